//! Faults of MFT records that the tools of ntfs-3g do not look for, and that ntfsck, which does, is rarely installed for.
//!
//! Owns the comparison of what is stored twice: the bitmap of $MFT with the records, attribute lists with the attributes,
//! sizes with the runs. Never writes, and never uses Longrun's reader.

use super::census::{AttributeKind, AttributeName, Census, array, content_of, decode, u16_at, u32_at, u64_at, utf16};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const RECORD_BITS: u64 = (1 << 48) - 1;
/// Faults shown at most.
const SHOWN: usize = 8;

/// One attribute, or a part of one, as an attribute list names it: type, name, first cluster, where, and its number there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    name: AttributeName,
    lowest: u64,
    record: u64,
    instance: u16,
}

/// What a base record and its extension records hold.
#[derive(Default)]
struct Group {
    base_in_use: bool,
    parts: BTreeSet<Part>,
    list: Option<Vec<u8>>,
    /// Clusters and allocated clusters of each attribute that is not resident, and what its first part says of them.
    sizes: BTreeMap<AttributeName, Sizes>,
}

#[derive(Clone, Copy, Default)]
struct Sizes {
    clusters: u64,
    allocated_clusters: u64,
    allocated: u64,
    data: u64,
    initialized: u64,
    /// Only where holes are possible.
    compressed: Option<u64>,
}

/// Fails when a record contradicts another one, the bitmap of $MFT, or itself.
pub(crate) fn check(image: &Path) -> Result<()> {
    let geometry = Census::geometry(image)?;
    let (mft, bitmap) = (content_of(image, 0, AttributeKind::DATA)?, content_of(image, 0, AttributeKind::BITMAP)?);
    let mut faults = Vec::new();
    let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
    let sequences: Vec<u16> =
        mft.chunks_exact(geometry.record_bytes).map(|record| u16_at(record, 0x10).unwrap_or(0)).collect();
    for (number, record) in mft.chunks_exact(geometry.record_bytes).enumerate() {
        let number = number as u64;
        let in_use = record.get(..4) == Some(b"FILE") && u16_at(record, 0x16)? & 1 != 0;
        let marked = bitmap.get((number / 8) as usize).is_some_and(|byte| byte >> (number % 8) & 1 != 0);
        if in_use != marked {
            faults.push(format!("record {number}: in use: {in_use}, in the bitmap of $MFT: {marked}"));
        }
        if in_use && let Err(error) = add(&mut groups, &sequences, number, record, image, geometry.cluster_bytes) {
            faults.push(format!("record {number}: {error:#}"));
        }
    }
    for (number, group) in &groups {
        if let Err(error) = group.check(&sequences, geometry.cluster_bytes) {
            faults.push(format!("record {number}: {error:#}"));
        }
    }
    ensure!(
        faults.is_empty(),
        "the volume is not clean: {} faults in $MFT:\n{}",
        faults.len(),
        faults.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n")
    );
    Ok(())
}

fn add(
    groups: &mut BTreeMap<u64, Group>,
    sequences: &[u16],
    number: u64,
    record: &[u8],
    image: &Path,
    cluster_bytes: u64,
) -> Result<()> {
    let reference = u64_at(record, 0x20)?;
    let base = if reference == 0 { number } else { reference & RECORD_BITS };
    let group = groups.entry(base).or_default();
    group.base_in_use |= base == number;
    ensure!(reference == 0 || sequence_matches(sequences, reference), "its base record is another one by now");
    let mut at = usize::from(u16_at(record, 0x14)?);
    while u32_at(record, at)? != u32::MAX {
        let length = u32_at(record, at + 4)? as usize;
        ensure!(length >= 24 && length.is_multiple_of(8), "an attribute has {length} bytes");
        let raw = record.get(at..at + length).context("an attribute is cut off")?;
        group.add(number, raw, image, cluster_bytes).with_context(|| format!("attribute at byte {at}"))?;
        at += length;
    }
    let used = u32_at(record, 0x18)? as usize;
    ensure!(used == at + 8, "it says that {used} bytes are used, its attributes end at byte {at}");
    Ok(())
}

/// Whether a reference names the record that is at its place now.
fn sequence_matches(sequences: &[u16], reference: u64) -> bool {
    let sequence = (reference >> 48) as u16;
    // Zero means that nobody has written down which.
    sequence == 0 || sequences.get((reference & RECORD_BITS) as usize) == Some(&sequence)
}

impl Group {
    fn add(&mut self, record: u64, raw: &[u8], image: &Path, cluster_bytes: u64) -> Result<()> {
        let kind = AttributeKind(u32_at(raw, 0)?);
        let [name_length] = array(raw, 9)?;
        let name_at = usize::from(u16_at(raw, 10)?);
        let name = raw.get(name_at..name_at + 2 * usize::from(name_length)).context("a name is cut off")?;
        let name = AttributeName { kind, name: utf16(name) };
        let [not_resident] = array(raw, 8)?;
        let lowest = if not_resident == 0 { 0 } else { u64_at(raw, 16)? };
        let part = Part { name: name.clone(), lowest, record, instance: u16_at(raw, 14)? };
        if not_resident == 0 {
            let (length, at) = (u32_at(raw, 16)? as usize, usize::from(u16_at(raw, 20)?));
            let value = raw.get(at..at + length).context("its value does not fit")?;
            if kind == AttributeKind::ATTRIBUTE_LIST {
                self.list = Some(value.to_vec());
                return Ok(());
            }
        } else {
            let runs = decode(raw.get(usize::from(u16_at(raw, 32)?)..).context("its runs are cut off")?, lowest)?;
            let clusters: u64 = runs.iter().map(|run| run.clusters).sum();
            let highest = u64_at(raw, 24)?;
            ensure!(
                highest.wrapping_add(1) == lowest + clusters,
                "its highest cluster is {highest}, not that of its runs"
            );
            if kind == AttributeKind::ATTRIBUTE_LIST {
                let mut value = Vec::new();
                for run in &runs {
                    let mut bytes = vec![0; (run.clusters * cluster_bytes) as usize];
                    let first = run.lcn.context("an attribute list has a hole")?;
                    File::open(image)?.read_exact_at(&mut bytes, first * cluster_bytes)?;
                    value.extend(bytes);
                }
                value.truncate(u64_at(raw, 48)? as usize);
                self.list = Some(value);
                return Ok(());
            }
            let sizes = self.sizes.entry(name).or_default();
            sizes.clusters += clusters;
            sizes.allocated_clusters +=
                runs.iter().filter(|run| run.lcn.is_some()).map(|run| run.clusters).sum::<u64>();
            if lowest == 0 {
                (sizes.allocated, sizes.data, sizes.initialized) =
                    (u64_at(raw, 40)?, u64_at(raw, 48)?, u64_at(raw, 56)?);
                let [unit] = array(raw, 34)?;
                let unit: u8 = unit;
                sizes.compressed = (unit != 0).then(|| u64_at(raw, 64)).transpose()?;
            }
        }
        ensure!(self.parts.insert(part), "it is there twice");
        Ok(())
    }

    fn check(&self, sequences: &[u16], cluster_bytes: u64) -> Result<()> {
        ensure!(self.base_in_use, "it is not in use, but extension records of it are");
        match &self.list {
            None => ensure!(self.parts.iter().all(|part| part.record == self.base()), "it needs an attribute list"),
            Some(list) => {
                let listed = listed(list, sequences)?;
                let missing = self.parts.difference(&listed).next();
                ensure!(missing.is_none(), "its attribute list lacks {missing:?}");
                let gone = listed.difference(&self.parts).next();
                ensure!(gone.is_none(), "its attribute list has {gone:?}, which is nowhere");
            }
        }
        for (name, sizes) in &self.sizes {
            let what = format!("attribute {name}");
            let (all, allocated) = (sizes.clusters * cluster_bytes, sizes.allocated_clusters * cluster_bytes);
            ensure!(sizes.allocated == all, "{what}: its allocated size is {}, its runs have {all}", sizes.allocated);
            ensure!(sizes.data <= sizes.allocated && sizes.initialized <= sizes.data, "{what}: its sizes are mixed up");
            if let Some(compressed) = sizes.compressed {
                ensure!(
                    compressed == allocated,
                    "{what}: its compressed size is {compressed}, its runs have {allocated}"
                );
            }
        }
        Ok(())
    }

    /// The record that every file has; the parts of other records belong to it.
    fn base(&self) -> u64 {
        const STANDARD_INFORMATION: AttributeKind = AttributeKind(0x10);
        self.parts.iter().find(|part| part.name.kind == STANDARD_INFORMATION).map_or(u64::MAX, |part| part.record)
    }
}

fn listed(mut list: &[u8], sequences: &[u16]) -> Result<BTreeSet<Part>> {
    let mut parts = BTreeSet::new();
    while !list.is_empty() {
        let length = usize::from(u16_at(list, 4)?);
        let (entry, rest) = list.split_at_checked(length).filter(|_| length >= 26).context("an entry is cut off")?;
        let [name_length, name_at] = array(entry, 6)?;
        let name_at = usize::from(name_at);
        let name = entry.get(name_at..name_at + 2 * usize::from(name_length)).context("a name is cut off")?;
        let reference = u64_at(entry, 16)?;
        let part = Part {
            name: AttributeName { kind: AttributeKind(u32_at(entry, 0)?), name: utf16(name) },
            lowest: u64_at(entry, 8)?,
            record: reference & RECORD_BITS,
            instance: u16_at(entry, 24)?,
        };
        ensure!(sequence_matches(sequences, reference), "the attribute list refers to another file: {part:?}");
        ensure!(parts.insert(part.clone()), "the attribute list has {part:?} twice");
        list = rest;
    }
    Ok(parts)
}
