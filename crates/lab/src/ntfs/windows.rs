//! Files as only Windows makes them: the change journal, files that were compressed for reading (WOF), deduplicated and encrypted ones.
//!
//! Owns what is in them and where. ntfs-3g writes all of it, but for the directory of the change journal, where it makes no files.

use super::census::{AttributeName, Census, u16_at, u64_at};
use super::kinds::{SYSTEM_ATTRIBUTES, reparse, set};
use super::mount::{Access, Mounted};
use crate::oracle::ntfs::{Place, runs};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The change journal, in the directory that NTFS keeps for such files.
pub const CHANGE_JOURNAL: &str = "$Extend/$UsnJrnl";
/// A file that is compressed for reading: its content is a hole, and a stream holds what to read instead.
pub const COMPRESSED_FOR_READING: &str = "wof";
/// An encrypted file.
pub const ENCRYPTED: &str = "efs";
/// A file whose content is elsewhere.
pub const DEDUPLICATED: &str = "dedup";

const EXTEND: u64 = 11;
const WOF: u32 = 0x8000_0017;
const DEDUP: u32 = 0x8000_0013;
const REPARSE: &str = "system.ntfs_reparse_data";
/// Hidden, of the system, with holes.
const JOURNAL_ATTRIBUTES: u32 = 0x0206;
/// How much of a stream is written before it is another one's turn, and how often.
const PIECE: usize = 12 << 10;
const TURNS: u64 = 24;

/// Makes all of them, with fragmented streams.
///
/// # Errors
/// When there is no space, or ntfs-3g refuses.
pub fn furnish(image: &Path) -> Result<()> {
    let mounted = Mounted::new(image, Access::Write)?;
    let root = mounted.root();
    let made = in_directory(&root);
    made?;
    mounted.unmount()?;
    put_into_extend(image, "$UsnJrnl")
}

fn in_directory(root: &Path) -> Result<()> {
    let mut rng = Rng::with_seed(3);
    let path = |name: &str| root.join(name);
    for name in ["$UsnJrnl", COMPRESSED_FOR_READING, ENCRYPTED, DEDUPLICATED, "beside"] {
        File::create_new(path(name)).with_context(|| format!("cannot make {name}"))?;
    }
    // What the journal has forgotten is a hole.
    let hole = 4 << 20;
    let streams =
        [("$UsnJrnl:$J", hole), ("wof:WofCompressedData", 0), ("efs", 0), ("dedup:of its own", 0), ("beside", 0)];
    for (name, start) in streams {
        File::create(path(name))?.set_len(start).with_context(|| format!("cannot make {name}"))?;
    }
    for turn in 0..TURNS {
        for (name, start) in streams {
            let file = File::options().write(true).open(path(name))?;
            let mut content = vec![0; PIECE];
            rng.fill(&mut content);
            file.write_all_at(&content, start + turn * PIECE as u64).with_context(|| format!("cannot write {name}"))?;
        }
    }
    std::fs::write(path("$UsnJrnl:$Max"), [[0, 0, 0x80, 0, 0, 0, 0, 0], [0, 0, 0x10, 0, 0, 0, 0, 0]].concat())?;
    set(&path("$UsnJrnl"), SYSTEM_ATTRIBUTES, &JOURNAL_ATTRIBUTES.to_be_bytes())?;
    for name in [COMPRESSED_FOR_READING, DEDUPLICATED] {
        File::options().write(true).open(path(name))?.set_len(1_234_567)?;
    }
    // The size before encryption is told by two bytes behind the blocks: how much of the last one was added.
    let encrypted = File::options().write(true).open(path(ENCRYPTED))?;
    encrypted.write_all_at(&100_u16.to_le_bytes(), TURNS * PIECE as u64)?;
    drop(encrypted);
    // Its keys: a header that begins with its length. So many do not stand in the record.
    let mut keys = vec![7; 2600];
    keys.get_mut(..8).context("there is room")?.copy_from_slice(&[0x28, 0x0a, 0, 0, 0, 0, 0, 0]);
    set(&path(ENCRYPTED), "system.ntfs_efsinfo", &keys)?;
    let provider = [1_u32, 2, 1, 0].map(u32::to_le_bytes).concat();
    set(&path(COMPRESSED_FOR_READING), REPARSE, &reparse(WOF, &provider))?;
    let mut stream_map = vec![0; 5000];
    rng.fill(&mut stream_map);
    set(&path(DEDUPLICATED), REPARSE, &reparse(DEDUP, &stream_map))
}

/// Says that a file of the root directory is one of $Extend. The index of the root goes on naming it, by which ntfs-3g finds it.
fn put_into_extend(image: &Path, name: &str) -> Result<()> {
    let census = Census::of(image)?;
    let number = *census.paths().get(name).with_context(|| format!("there is no {name}"))?;
    let place = |number: u64| -> Result<u64> {
        let mft = runs(image, Place::Record(0))?;
        let mut at = number * census.record_bytes as u64;
        for (first, count) in mft.get(&AttributeName::content()).context("$MFT has no content")? {
            let bytes = count * census.cluster_bytes;
            if at < bytes {
                return Ok(first * census.cluster_bytes + at);
            }
            at -= bytes;
        }
        anyhow::bail!("$MFT has no record {number}")
    };
    let file = File::options().read(true).write(true).open(image)?;
    let (mut record, mut extend) = (vec![0; 512], vec![0; 512]);
    file.read_exact_at(&mut extend, place(EXTEND)?)?;
    file.read_exact_at(&mut record, place(number)?)?;
    let parent = u64::from(u16_at(&extend, 0x10)?) << 48 | EXTEND;
    let root = u64::from(5_u16) << 48 | 5;
    let at = (0..record.len() - 8).step_by(8).find(|at| u64_at(&record, *at).is_ok_and(|field| field == root));
    let at = at.context("the record does not name the root directory")?;
    record.get_mut(at..at + 8).context("it is there")?.copy_from_slice(&parent.to_le_bytes());
    file.write_all_at(&record, place(number)?)?;
    ensure!(Census::of(image)?.paths().contains_key(&format!("$Extend/{name}")), "{name} is not in $Extend");
    Ok(())
}

/// The bytes of all streams that do not stand in a record, as they lie in clusters: by path and stream. Holes are left out.
///
/// # Errors
/// When the image cannot be read.
pub fn streams(image: &Path, paths: &[&str]) -> Result<BTreeMap<(PathBuf, AttributeName), Vec<u8>>> {
    let census = Census::of(image)?;
    let file = File::open(image)?;
    let mut streams = BTreeMap::new();
    for path in paths {
        for (name, attribute) in census.record(path)?.attributes.iter().filter(|(_, attribute)| !attribute.resident) {
            let mut content = Vec::new();
            for run in &attribute.runs {
                let Some(first) = run.lcn else { continue };
                let mut bytes = vec![0; (run.clusters * census.cluster_bytes) as usize];
                file.read_exact_at(&mut bytes, first * census.cluster_bytes)?;
                content.extend(bytes);
            }
            streams.insert((PathBuf::from(path), name.clone()), content);
        }
    }
    Ok(streams)
}
