//! Every MFT record of a volume, decoded by a small scan of the laboratory's own: a second opinion about fragments.
//!
//! Owns reading $MFT and $Bitmap through ntfscat, which finds their runs itself. Never writes, and never uses Longrun's
//! reader.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::tool;

/// The record of the root directory.
const ROOT: u64 = 5;
/// Reference numbers hold a sequence number in the upper bits.
const RECORD_BITS: u64 = (1 << 48) - 1;
/// In $FILE_NAME: a name for DOS only. Such an entry is no link of its own.
const DOS_NAMESPACE: u8 = 2;

/// The types of attributes that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeKind(pub u32);

#[allow(missing_docs, reason = "the names are the ones of NTFS")]
impl AttributeKind {
    pub const ATTRIBUTE_LIST: Self = Self(0x20);
    pub const FILE_NAME: Self = Self(0x30);
    pub const DATA: Self = Self(0x80);
    pub const INDEX_ALLOCATION: Self = Self(0xa0);
    pub const BITMAP: Self = Self(0xb0);
    pub const REPARSE_POINT: Self = Self(0xc0);
    pub const EA: Self = Self(0xe0);
}

/// Which attribute of a file: its type, and its name, which is empty for the content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeName {
    /// Its type.
    pub kind: AttributeKind,
    /// Its name: `$I30` for the index of a directory, the stream's for a named stream.
    pub name: String,
}

impl AttributeName {
    /// The attribute of that type and name.
    #[must_use]
    pub fn new(kind: AttributeKind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// The content of a file.
    #[must_use]
    pub fn content() -> Self {
        Self::new(AttributeKind::DATA, "")
    }

    /// The blocks of a directory's index.
    #[must_use]
    pub fn index() -> Self {
        Self::new(AttributeKind::INDEX_ALLOCATION, "$I30")
    }
}

impl fmt::Display for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:{}", self.kind.0, self.name)
    }
}

/// A run: clusters that follow each other on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// Its first cluster in the file.
    pub vcn: u64,
    /// Its first cluster on the volume; `None` in a hole.
    pub lcn: Option<u64>,
    /// How many clusters.
    pub clusters: u64,
}

/// One attribute of a file, all of its parts put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredAttribute {
    /// Whether the value is in the MFT record.
    pub resident: bool,
    /// Whether it can be compressed.
    pub compressed: bool,
    /// Whether it can have holes.
    pub sparse: bool,
    /// Bytes of the value.
    pub bytes: u64,
    /// Its runs in the order of the file, holes included.
    pub runs: Vec<StoredRun>,
    /// In how many MFT records its mapping is stored.
    pub parts: usize,
}

impl StoredAttribute {
    /// Contiguous ranges of clusters; holes neither count nor separate.
    #[must_use]
    pub fn fragments(&self) -> usize {
        fragments_of(self.runs.iter().filter_map(|run| run.lcn.map(|lcn| (lcn, run.clusters))))
    }
}

/// How many contiguous ranges these are: first cluster and count of each.
pub(crate) fn fragments_of(runs: impl IntoIterator<Item = (u64, u64)>) -> usize {
    let mut next = None;
    let mut count = 0;
    for (first, clusters) in runs {
        count += usize::from(next != Some(first));
        next = Some(first + clusters);
    }
    count
}

/// A file or directory: everything that its base record and the records that belong to it hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whether it is a directory.
    pub directory: bool,
    /// Its names: record of the directory, the name, and whether it is the DOS alias of another one.
    pub names: Vec<(u64, String, bool)>,
    /// Its attributes.
    pub attributes: BTreeMap<AttributeName, StoredAttribute>,
    /// How many records it has besides its base record.
    pub extension_records: usize,
}

/// A volume as its MFT describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Bytes of an MFT record.
    pub record_bytes: usize,
    /// Bytes of a cluster.
    pub cluster_bytes: u64,
    /// Clusters of the volume.
    pub clusters: u64,
    /// The base records in use, by number.
    pub records: BTreeMap<u64, Record>,
    /// Free ranges: first cluster and how many.
    pub free: Vec<(u64, u64)>,
}

impl Census {
    /// Reads the MFT and the bitmap of an image.
    ///
    /// # Errors
    /// When a tool fails or a record cannot be understood; says which.
    pub fn of(image: &Path) -> Result<Self> {
        let mut census = Self::geometry(image)?;
        let mft = content_of(image, 0, AttributeKind::DATA)?;
        for (number, record) in mft.chunks_exact(census.record_bytes).enumerate() {
            census.add(number as u64, record).with_context(|| format!("MFT record {number}"))?;
        }
        census.order()?;
        // The content of a bitmap may be longer than the volume.
        census.free = free_ranges(&content_of(image, 6, AttributeKind::DATA)?, census.clusters);
        Ok(census)
    }

    pub(super) fn geometry(image: &Path) -> Result<Self> {
        let text = tool::run("ntfsinfo", ["--force".as_ref(), "--mft".as_ref(), image.as_os_str()])?;
        let number = |label: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(label)?.strip_prefix(": "));
            line.and_then(|value| value.trim().parse().ok()).with_context(|| format!("ntfsinfo does not tell {label}"))
        };
        Ok(Self {
            record_bytes: number("MFT Record Size")? as usize,
            cluster_bytes: number("Cluster Size")?,
            clusters: number("Volume Size in Clusters")?,
            ..Self::default()
        })
    }

    /// Adds a record; ntfscat has put the ends of its sectors right.
    fn add(&mut self, number: u64, record: &[u8]) -> Result<()> {
        const IN_USE: u16 = 1;
        const DIRECTORY: u16 = 2;
        ensure!(record.get(..4) != Some(b"BAAD"), "the record is torn");
        if record.get(..4) != Some(b"FILE") || u16_at(record, 0x16)? & IN_USE == 0 {
            return Ok(());
        }
        // All zero in a base record; the records of $MFT itself refer to record 0 with a sequence number.
        let reference = u64_at(record, 0x20)?;
        let base = if reference == 0 { number } else { reference & RECORD_BITS };
        let entry = self.records.entry(base).or_default();
        if base == number {
            entry.directory = u16_at(record, 0x16)? & DIRECTORY != 0;
        } else {
            entry.extension_records += 1;
        }
        let mut at = usize::from(u16_at(record, 0x14)?);
        while u32_at(record, at)? != u32::MAX {
            let length = u32_at(record, at + 4)? as usize;
            let attribute = record.get(at..at + length).filter(|a| !a.is_empty()).context("an attribute is cut off")?;
            entry.add(attribute)?;
            at += length;
        }
        Ok(())
    }

    /// Puts the parts of every attribute in order: extension records come in any.
    fn order(&mut self) -> Result<()> {
        for (number, record) in &mut self.records {
            for (name, attribute) in &mut record.attributes {
                attribute.runs.sort_by_key(|run| run.vcn);
                let mut next = 0;
                for run in &attribute.runs {
                    ensure!(run.vcn == next, "MFT record {number}, attribute {name}: cluster {next} is not mapped");
                    next += run.clusters;
                }
            }
        }
        Ok(())
    }

    /// Where every file is: path from the root, to the number of its record. DOS aliases are left out.
    #[must_use]
    pub fn paths(&self) -> BTreeMap<String, u64> {
        let mut paths = BTreeMap::new();
        for (number, record) in &self.records {
            for (parent, name, _) in record.names.iter().filter(|(_, _, alias)| !alias) {
                if *number != ROOT
                    && let Some(path) = self.path(*parent, name)
                {
                    paths.insert(path, *number);
                }
            }
        }
        paths
    }

    fn path(&self, mut parent: u64, name: &str) -> Option<String> {
        let mut path = name.to_owned();
        // A loop of directories cannot be followed for ever.
        for _ in 0..self.records.len() {
            if parent == ROOT {
                return Some(path);
            }
            let (above, name, _) = self.records.get(&parent)?.names.iter().find(|(_, _, alias)| !alias)?;
            path = format!("{name}/{path}");
            parent = *above;
        }
        None
    }

    /// The record at a path from the root.
    ///
    /// # Errors
    /// When there is none.
    pub fn record(&self, path: &str) -> Result<&Record> {
        let number = self.paths().get(path).copied().with_context(|| format!("there is no {path}"))?;
        self.records.get(&number).with_context(|| format!("record {number} is not in use"))
    }

    /// Fragments of every attribute that has any, by record and attribute.
    pub fn fragments(&self) -> impl Iterator<Item = (u64, &AttributeName, usize)> {
        let attributes = |(number, record): (&u64, _)| -> Vec<_> {
            let record: &Record = record;
            let named = record.attributes.iter().map(|(name, attribute)| (*number, name, attribute.fragments()));
            named.filter(|(_, _, fragments)| *fragments > 0).collect()
        };
        self.records.iter().flat_map(attributes)
    }
}

impl Record {
    fn add(&mut self, raw: &[u8]) -> Result<()> {
        const COMPRESSED: u16 = 0xff;
        const SPARSE: u16 = 0x8000;
        let name_at = usize::from(u16_at(raw, 10)?);
        let name = raw.get(name_at..name_at + 2 * usize::from(byte_at(raw, 9)?)).context("a name is cut off")?;
        let key = AttributeName { kind: AttributeKind(u32_at(raw, 0)?), name: utf16(name) };
        let (resident, flags) = (byte_at(raw, 8)? == 0, u16_at(raw, 12)?);
        if key.kind == AttributeKind::FILE_NAME {
            let value = raw.get(usize::from(u16_at(raw, 20)?)..).context("a file name is cut off")?;
            let name = value.get(66..66 + 2 * usize::from(byte_at(value, 64)?)).context("a file name is cut off")?;
            let alias = byte_at(value, 65)? == DOS_NAMESPACE;
            self.names.push((u64_at(value, 0)? & RECORD_BITS, utf16(name), alias));
        }
        let stored = self.attributes.entry(key).or_default();
        stored.parts += 1;
        stored.resident = resident;
        stored.compressed |= flags & COMPRESSED != 0;
        stored.sparse |= flags & SPARSE != 0;
        if resident {
            stored.bytes = u64::from(u32_at(raw, 16)?);
            return Ok(());
        }
        let lowest = u64_at(raw, 16)?;
        if lowest == 0 {
            stored.bytes = u64_at(raw, 48)?;
        }
        let pairs = raw.get(usize::from(u16_at(raw, 32)?)..).context("mapping pairs are cut off")?;
        stored.runs.extend(decode(pairs, lowest)?);
        Ok(())
    }
}

pub(super) fn decode(mut pairs: &[u8], mut vcn: u64) -> Result<Vec<StoredRun>> {
    let (mut lcn, mut runs) = (0_i64, Vec::new());
    loop {
        let header = byte_at(pairs, 0)?;
        if header == 0 {
            return Ok(runs);
        }
        let (length, offset) = (usize::from(header & 15), usize::from(header >> 4));
        let clusters = signed(pairs.get(1..=length).context("a run is cut off")?);
        ensure!(clusters > 0, "a run has {clusters} clusters");
        let delta = pairs.get(1 + length..=length + offset).context("a run is cut off")?;
        lcn += signed(delta);
        let first = (offset > 0).then_some(lcn as u64);
        runs.push(StoredRun { vcn, lcn: first, clusters: clusters as u64 });
        vcn += clusters as u64;
        pairs = pairs.get(1 + length + offset..).context("a run is cut off")?;
    }
}

/// A little-endian number with a sign, of up to eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let start = if negative { -1 } else { 0 };
    bytes.iter().rev().fold(start, |number, byte| number << 8 | i64::from(*byte))
}

/// The value of an attribute, without a name, of a file of NTFS itself.
pub(super) fn content_of(image: &Path, record: u64, kind: AttributeKind) -> Result<Vec<u8>> {
    let mut command = Command::new("ntfscat");
    command.args(["--force", "--inode", &record.to_string(), "--attribute", &kind.0.to_string()]).arg(image);
    let output = tool::output(&mut command)?;
    // Standard output is the content: it does not belong into a message.
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

fn free_ranges(bitmap: &[u8], clusters: u64) -> Vec<(u64, u64)> {
    let mut free: Vec<(u64, u64)> = Vec::new();
    for cluster in 0..clusters {
        let byte = bitmap.get((cluster / 8) as usize).copied().unwrap_or(0xff);
        if byte >> (cluster % 8) & 1 != 0 {
            continue;
        }
        match free.last_mut() {
            Some((first, count)) if *first + *count == cluster => *count += 1,
            _ => free.push((cluster, 1)),
        }
    }
    free
}

pub(super) fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().with_context(|| format!("it ends before byte {}", at + N))
}

fn byte_at(bytes: &[u8], at: usize) -> Result<u8> {
    array::<1>(bytes, at).map(|[byte]| byte)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_decoded_with_holes_and_backward_steps_and_holes_do_not_separate_fragments() {
        // 24 clusters at 0x5634; a hole of 16; 8 right behind the first run; 1 cluster 2 before that.
        let pairs = [0x21, 0x18, 0x34, 0x56, 0x01, 0x10, 0x11, 0x08, 0x18, 0x11, 0x01, 0xfe, 0x00];
        let runs = decode(&pairs, 100).unwrap();
        let expected = [(100, Some(0x5634), 24), (124, None, 16), (140, Some(0x564c), 8), (148, Some(0x564a), 1)];
        assert_eq!(runs, expected.map(|(vcn, lcn, clusters)| StoredRun { vcn, lcn, clusters }));
        let attribute = StoredAttribute { runs, ..StoredAttribute::default() };
        assert_eq!(attribute.fragments(), 2);
        assert!(decode(&pairs[..4], 0).is_err());
    }

    #[test]
    fn free_ranges_end_with_the_volume() {
        assert_eq!(free_ranges(&[0b0001_1001, 0b1111_1110], 10), [(1, 2), (5, 4)]);
    }
}
