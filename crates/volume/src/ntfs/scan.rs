//! The scan of a volume: every file record, and what lies where.
//!
//! Owns which streams may move, and the check of who has which cluster against $Bitmap. Never writes.

use super::attribute::{Attribute, Name, kind};
use super::bitmap::Bitmap;
use super::fault::{Fault, Read, damaged};
use super::file::{MFT, NtfsFile, Records, joined, numbered};
use super::leaks::Leaks;
use super::names::FileName;
use super::reader::{Reader, system};
use super::record::{Record, Reference};
use super::runs::Map;
use longrun_engine::Progress;
use longrun_layout::{
    Blocks, Extent, FileId, FileIndex, InodeNumber, LayoutBuilder, NO_DIRECTORY, Pin, Run, VolumeLayout,
};
use std::collections::{BTreeMap, BTreeSet};

/// $MFT is read in pieces of this size.
const PIECE: u64 = 1 << 20;
/// Numbers of records have 48 bits; behind them the model has the number of the stream.
const NUMBER_BITS: u32 = 48;
/// Files of the root directory that Windows writes to by their place on the disk, or believes to know it.
const SWAP: [&str; 3] = ["hiberfil.sys", "pagefile.sys", "swapfile.sys"];
/// What keeps a hibernated system.
const HIBERNATION: &str = "hiberfil.sys";
/// The directory of shadow copies, and what the names of their stores contain.
const VOLUME_INFORMATION: &str = "System Volume Information";
const SHADOW_STORE: &str = "{3808876b-c176-4e48-b7ae-04046e6cc752}";

/// The inode number by which the model knows a stream.
pub(super) fn inode(number: u64, stream: u16) -> InodeNumber {
    InodeNumber(u64::from(stream) << NUMBER_BITS | number)
}

/// The record of a stream of the model.
pub(super) fn number_of(inode: InodeNumber) -> u64 {
    inode.0 & ((1 << NUMBER_BITS) - 1)
}

/// The number of a stream of the model among those of its file.
pub(super) fn stream_of(inode: InodeNumber) -> u16 {
    (inode.0 >> NUMBER_BITS) as u16
}

/// What a scan has found.
#[derive(Debug)]
pub(super) struct NtfsScan {
    /// Each stream that does not stand in a record is a file of the model, and so is a file that has none.
    pub(super) layout: VolumeLayout,
    /// The record of the file that keeps a hibernated system, if there is one.
    pub(super) hibernation: Option<u64>,
    /// Whether there are shadow copies.
    pub(super) has_shadow_copies: bool,
    /// Which clusters are in use.
    pub(super) clusters: Bitmap,
    /// Which file records are.
    pub(super) records: Bitmap,
    /// What of both nothing has. To the layout these clusters are obstacles.
    pub(super) leaks: Leaks,
}

struct Collector<'a> {
    reader: &'a Reader,
    builder: LayoutBuilder,
    claims: Vec<(u64, u64)>,
    /// Files with several records, by their base record, as far as they have been seen.
    in_parts: BTreeMap<Reference, Parts>,
    hibernation: Option<u64>,
    volume_information: Option<u64>,
    shadow_parents: BTreeSet<u64>,
    /// The content of $MFT.
    table: Option<FileIndex>,
    leaks: Leaks,
}

#[derive(Default)]
struct Parts {
    base: Option<Record>,
    attributes: Vec<Attribute>,
}

/// Reads the whole volume.
pub(super) fn scan(reader: &Reader, progress: &dyn Progress) -> Read<NtfsScan> {
    let geometry = reader.geometry;
    let bitmap_file = NtfsFile::read(reader, system::BITMAP)?;
    let (clusters, place) = reader.bitmap(&bitmap_file, kind::DATA, geometry.clusters)?;
    if place.is_none() {
        return Err(Fault::Unsupported("a volume whose $Bitmap has no clusters".into()));
    }
    let (records, place_of_records) = reader.bitmap(&NtfsFile::read(reader, MFT)?, kind::BITMAP, reader.count)?;
    let mut collector = Collector {
        reader,
        builder: LayoutBuilder::new(geometry.cluster, Blocks(geometry.clusters)).moving_directories(),
        claims: Vec::new(),
        in_parts: BTreeMap::new(),
        hibernation: None,
        volume_information: None,
        shadow_parents: BTreeSet::new(),
        table: None,
        leaks: Leaks::default(),
    };
    if place_of_records.is_none() {
        collector.leaks.doubt("the list of file records is of an unusual form");
    }
    collector.sweep(&records, progress)?;
    collector.finish(clusters, records)
}

impl Collector<'_> {
    /// All records that are in use, in their order.
    fn sweep(&mut self, in_use: &Bitmap, progress: &dyn Progress) -> Read<()> {
        let size = u64::from(self.reader.geometry.record);
        let per_piece = (PIECE / size).max(1);
        let mut first = 0;
        while first < self.reader.count {
            if progress.cancelled() {
                return Err(Fault::Interrupted);
            }
            progress.give_way();
            progress.at(first, self.reader.count);
            let count = per_piece.min(self.reader.count - first);
            let mut piece = vec![0; (count * size) as usize];
            self.reader.read_stream(&self.reader.mft, first * size, &mut piece)?;
            for (number, bytes) in (first..).zip(piece.chunks_exact(size as usize)) {
                if in_use.is_set(number) {
                    self.record(number, bytes)?;
                    continue;
                }
                match Record::decode(number, bytes.to_vec()) {
                    Ok(record) if record.is_in_use() => {
                        return damaged(format!("file record {number} is in use and marked as free"));
                    }
                    // Reserved ones that were never in use are not filled in as others are.
                    Err(_)
                        if number >= system::FIRST_OTHER
                            && (bytes.starts_with(b"FILE") || bytes.starts_with(b"BAAD")) =>
                    {
                        self.leaks.doubt("a file record that is marked as free is damaged");
                    }
                    _ => {}
                }
            }
            first += count;
        }
        Ok(())
    }

    fn record(&mut self, number: u64, bytes: &[u8]) -> Read<()> {
        // Reserved records are marked as in use before they ever are.
        if number < system::FIRST_OTHER && !bytes.starts_with(b"FILE") {
            return Ok(());
        }
        let record = Record::decode(number, bytes.to_vec())?;
        if !record.is_in_use() {
            if number >= system::FIRST_OTHER {
                self.leaks.add_record(number);
            }
            return Ok(());
        }
        let attributes = Attribute::parse_all(record.attributes(), self.reader.geometry.clusters)
            .map_err(|fault| within(number, fault))?;
        match record.base() {
            Some(base) => self.in_parts.entry(base).or_default().attributes.extend(attributes),
            None if attributes.iter().any(|attribute| attribute.of.kind == kind::ATTRIBUTE_LIST) => {
                let parts = self.in_parts.entry(record.reference()).or_default();
                parts.attributes.extend(attributes);
                parts.base = Some(record);
            }
            None => self.file(&record, &attributes),
        }
        Ok(())
    }

    /// A file, all of whose attributes are known.
    fn file(&mut self, record: &Record, attributes: &[Attribute]) {
        let number = record.number;
        let name = FileName::of(attributes.iter());
        let is_at_top = name.as_ref().is_some_and(|name| name.parent.number == system::ROOT);
        let called = |what: &str| name.as_ref().is_some_and(|name| name.name.eq_ignore_ascii_case(what));
        if is_at_top && called(HIBERNATION) {
            self.hibernation = Some(number);
        }
        if is_at_top && called(VOLUME_INFORMATION) {
            self.volume_information = Some(number);
        }
        if let Some(name) = name.as_ref().filter(|name| name.name.to_ascii_lowercase().contains(SHADOW_STORE)) {
            self.shadow_parents.insert(name.parent.number);
        }
        let is_swap = is_at_top && SWAP.into_iter().any(called);
        let is_strange = attributes.iter().any(|attribute| !kind::KNOWN.contains(&attribute.of.kind));
        let pin = match number {
            system::MIRROR | system::LOG | system::BITMAP | system::BOOT | system::BAD_CLUSTERS | system::UPCASE => {
                Some(Pin::System)
            }
            _ if is_swap => Some(Pin::Swap),
            _ if is_strange => Some(Pin::UnknownAttribute),
            _ => None,
        };
        if is_strange {
            self.leaks.doubt("a file has an attribute of an unknown kind");
        }
        // Where an extent of a stream is lost, nobody knows its clusters. The stream of $BadClus is as long as the volume was once.
        let is_partly_mapped = |attribute: &Attribute| {
            let mapped = |map: &Map| self.reader.geometry.bytes(map.end());
            attribute.outside.as_ref().is_some_and(|map| mapped(map) != attribute.allocated())
        };
        if number != system::BAD_CLUSTERS && attributes.iter().any(is_partly_mapped) {
            self.leaks.doubt("a file has more space than its records map");
        }
        let directory = name.map_or(NO_DIRECTORY, |name| name.parent.number as u32);
        let mut push = |stream, is_directory, runs: &mut Vec<Run>| {
            let id = FileId { inode: inode(number, stream), generation: u32::from(record.reference().sequence) };
            self.claims.extend(runs.iter().map(|run| (run.physical.0, run.length.0)));
            self.builder.push_file(id, directory, is_directory, pin, runs)
        };
        let streams = numbered(attributes.iter());
        if streams.is_empty() {
            push(0, record.is_directory(), &mut Vec::new());
        }
        for (of, stream) in streams {
            let maps = attributes.iter().filter(|attribute| attribute.of == of).filter_map(|a| a.outside.as_ref());
            let mut runs: Vec<Run> = maps.flat_map(Map::runs).collect();
            let is_index = record.is_directory() && of.kind == kind::INDEX_ALLOCATION;
            let file = push(stream, is_index, &mut runs);
            if number == MFT && of == Name::unnamed(kind::DATA) {
                self.table = Some(file);
            }
        }
    }

    /// Puts files together that have several records, and compares what all of them have with $Bitmap.
    fn finish(mut self, clusters: Bitmap, records: Bitmap) -> Read<NtfsScan> {
        for (reference, parts) in std::mem::take(&mut self.in_parts) {
            let Some(base) = parts.base else {
                return damaged(format!("file record {} is extended by others and has no list", reference.number));
            };
            let attributes = joined(parts.attributes).map_err(|fault| within(reference.number, fault))?;
            self.file(&base, &attributes);
        }
        let free = clusters.free();
        self.claims.sort_unstable();
        let (mut end, mut pieces) = (0, free.iter().peekable());
        for (start, length) in &self.claims {
            if *start < end {
                return damaged(format!("cluster {start} belongs to two files"));
            }
            end = start + length;
            while pieces.next_if(|piece| piece.end().0 <= *start).is_some() {}
            if pieces.peek().is_some_and(|piece| piece.start.0 < end) {
                return damaged(format!("a cluster from {start} on is in use and marked as free"));
            }
        }
        self.leaks.find_clusters(&self.claims, &free, self.reader.geometry.clusters);
        free.into_iter().for_each(|piece: Extent| self.builder.push_free(piece));
        let mut layout = self.builder.build().map_err(|error| Fault::Damaged(error.to_string()))?;
        layout.set_table(self.table);
        let has_shadow_copies = self.volume_information.is_some_and(|at| self.shadow_parents.contains(&at));
        Ok(NtfsScan { layout, hibernation: self.hibernation, has_shadow_copies, clusters, records, leaks: self.leaks })
    }
}

/// Names the record that a contradiction was found in.
fn within(number: u64, fault: Fault) -> Fault {
    match fault {
        Fault::Damaged(what) => Fault::Damaged(format!("file record {number}: {what}")),
        other => other,
    }
}

/// The file with this number and name, for a look into its content.
pub(super) fn beginning(reader: &Reader, number: u64, buffer: &mut [u8]) -> Read<()> {
    let file = NtfsFile::read(reader as &dyn Records, number)?;
    let Some(data) = file.attribute(&Name::unnamed(kind::DATA)) else { return Ok(()) };
    match &data.outside {
        None => {
            buffer.iter_mut().zip(data.value()).for_each(|(place, byte)| *place = *byte);
            Ok(())
        }
        Some(map) if data.initialized() >= buffer.len() as u64 => match reader.read_stream(map, 0, buffer) {
            // A hole reads as zeros.
            Err(Fault::Damaged(_)) => Ok(()),
            other => other,
        },
        Some(_) => Ok(()),
    }
}
