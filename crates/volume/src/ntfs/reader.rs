//! Reads records and streams of a volume.
//!
//! Owns where the file records lie. Never writes.

use super::attribute::{Attribute, Name, kind};
use super::bitmap::Bitmap;
use super::boot::Geometry;
use super::fault::{Read, damaged};
use super::file::{MFT, NtfsFile, Records};
use super::list::Entry;
use super::record::Record;
use super::runs::Map;
use crate::bytes::{byte, le16};
use longrun_image::Disk;
use longrun_layout::Bytes;
use std::sync::Arc;

/// The records of the file system's own files, by name.
pub(super) mod system {
    pub(in super::super) const MIRROR: u64 = 1;
    pub(in super::super) const LOG: u64 = 2;
    pub(in super::super) const VOLUME: u64 = 3;
    pub(in super::super) const ROOT: u64 = 5;
    pub(in super::super) const BITMAP: u64 = 6;
    pub(in super::super) const BOOT: u64 = 7;
    pub(in super::super) const BAD_CLUSTERS: u64 = 8;
    pub(in super::super) const UPCASE: u64 = 10;
    /// The first record that is not reserved for them.
    pub(in super::super) const FIRST_OTHER: u64 = 24;
}

/// A map that is read as a whole has no more than this: a lying size must not take all memory. 2 GiB are the bitmap of
/// 64 TiB in clusters of 4 KiB.
const MOST_CONTENT: u64 = 2 << 30;

/// An opened volume.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) geometry: Geometry,
    /// Where $MFT lies.
    pub(super) mft: Map,
    /// How many records it has.
    pub(super) count: u64,
}

impl Reader {
    /// Reads the boot sector, and where the file records are.
    pub(super) fn open(disk: Arc<dyn Disk>) -> Read<Self> {
        let geometry = Geometry::read(&*disk)?;
        if geometry.length() > disk.length() {
            return damaged("the boot sector tells of more sectors than the device has");
        }
        let clusters = u64::from(geometry.record).div_ceil(u64::from(geometry.cluster.bytes()));
        let mut mft = Map::default();
        mft.push(super::runs::Segment { vcn: 0, lcn: Some(geometry.mft), length: clusters });
        let mut reader = Self { disk, geometry, mft, count: 1 };
        let record = reader.record(MFT)?;
        let of = Name::unnamed(kind::DATA);
        let attributes = Attribute::parse_all(record.attributes(), geometry.clusters)?;
        let Some(data) = attributes.iter().find(|attribute| attribute.of == of && attribute.lowest == 0) else {
            return damaged("$MFT has no content");
        };
        let (Some(map), size) = (&data.outside, data.initialized().min(data.size())) else {
            return damaged("$MFT has no content");
        };
        reader.mft = map.clone();
        if reader.mft.segments().first().and_then(|segment| segment.lcn) != Some(geometry.mft) {
            return damaged("the boot sector and $MFT do not agree where $MFT begins");
        }
        reader.count = size / u64::from(geometry.record);
        if let Some(list) = attributes.iter().find(|attribute| attribute.of.kind == kind::ATTRIBUTE_LIST) {
            reader.follow(list)?;
        }
        if geometry.bytes(reader.mft.end()) < size || reader.mft.segments().iter().any(|part| part.lcn.is_none()) {
            return damaged("$MFT is not complete");
        }
        Ok(reader)
    }

    /// The other extents of $MFT. Each stands in a record that those before it map.
    fn follow(&mut self, list: &Attribute) -> Read<()> {
        let bytes = match &list.outside {
            None => list.value().to_vec(),
            Some(map) => self.content(map, list.size())?,
        };
        let of = Name::unnamed(kind::DATA);
        for entry in Entry::parse_all(&bytes)?.into_iter().filter(|entry| entry.of == of && entry.lowest > 0) {
            let record = self.record(entry.record.number)?;
            let attributes = Attribute::parse_all(record.attributes(), self.geometry.clusters)?;
            let is_next = |a: &&Attribute| a.of == of && a.lowest == entry.lowest && a.lowest == self.mft.end();
            let Some(map) = attributes.iter().find(is_next).and_then(|a| a.outside.as_ref()) else {
                return damaged("the extents of $MFT do not follow each other");
            };
            map.segments().iter().for_each(|segment| self.mft.push(*segment));
        }
        Ok(())
    }

    /// Where `length` bytes of a stream from `at` on lie on the disk, in pieces. Holes are an error.
    pub(super) fn places(&self, map: &Map, at: u64, length: u64) -> Read<Vec<(Bytes, u64)>> {
        let cluster = u64::from(self.geometry.cluster.bytes());
        let (mut at, mut left, mut places) = (at, length, Vec::new());
        let from = map.segments().partition_point(|segment| self.geometry.bytes(segment.end()) <= at);
        for segment in map.segments().get(from..).unwrap_or_default() {
            if left == 0 {
                break;
            }
            let Some(lcn) = segment.lcn else { return damaged("a stream has a hole where it must not have one") };
            let within = at - segment.vcn * cluster;
            let piece = left.min(segment.length * cluster - within);
            places.push((Bytes(lcn * cluster + within), piece));
            at += piece;
            left -= piece;
        }
        if left > 0 { damaged("a stream ends too early") } else { Ok(places) }
    }

    /// Reads `buffer` from byte `at` of a stream.
    pub(super) fn read_stream(&self, map: &Map, at: u64, buffer: &mut [u8]) -> Read<()> {
        let mut rest = buffer;
        for (place, length) in self.places(map, at, rest.len() as u64)? {
            let Some((here, behind)) = rest.split_at_mut_checked(length as usize) else { break };
            self.disk.read(place, here)?;
            rest = behind;
        }
        Ok(())
    }

    /// A bitmap that has `bits` bits, with the clusters it lies in; `None` when it stands in a record.
    pub(super) fn bitmap(&self, file: &NtfsFile, kind: u32, bits: u64) -> Read<(Bitmap, Option<Map>)> {
        let Some(attribute) = file.attribute(&Name::unnamed(kind)) else { return damaged("a bitmap is missing") };
        let bytes = match &attribute.outside {
            None => attribute.value().to_vec(),
            Some(map) => self.content(map, attribute.size())?,
        };
        if (bytes.len() as u64) < bits.div_ceil(8) {
            return damaged("a bitmap is too short");
        }
        Ok((Bitmap::new(bytes, bits), attribute.outside.clone()))
    }

    /// A record as it lies on the disk.
    pub(super) fn raw_record(&self, number: u64) -> Read<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.record as usize];
        self.read_stream(&self.mft, number.saturating_mul(u64::from(self.geometry.record)), &mut bytes)?;
        Ok(bytes)
    }

    /// The version of NTFS and the flags of the volume.
    pub(super) fn volume_information(&self) -> Read<VolumeInformation> {
        let file = NtfsFile::read(self, system::VOLUME)?;
        let Some(information) = file.attribute(&Name::unnamed(kind::VOLUME_INFORMATION)) else {
            return damaged("$Volume does not tell the version");
        };
        let value = information.value();
        Ok(VolumeInformation { major: byte(value, 8), minor: byte(value, 9), flags: le16(value, 10) })
    }
}

/// What $Volume says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VolumeInformation {
    pub(super) major: u8,
    pub(super) minor: u8,
    pub(super) flags: u16,
}

impl Records for Reader {
    fn record(&self, number: u64) -> Read<Record> {
        if number >= self.count {
            return damaged(format!("file record {number} lies behind the end of $MFT"));
        }
        Record::decode(number, self.raw_record(number)?)
    }

    fn content(&self, map: &Map, bytes: u64) -> Read<Vec<u8>> {
        if bytes > MOST_CONTENT || bytes > self.geometry.bytes(map.end()) {
            return damaged("a stream has more bytes than clusters");
        }
        let mut content = vec![0; bytes as usize];
        self.read_stream(map, 0, &mut content)?;
        Ok(content)
    }

    fn clusters(&self) -> u64 {
        self.geometry.clusters
    }
}
