//! In which order a fixture is filled, so that everything in it ends up fragmented.
//!
//! Owns the amounts. Never deletes what it did not make.
//!
//! ntfs-3g begins each new file 4096 clusters behind the one before, and goes on behind the last cluster of a file: it
//! fragments files only where there is no other space. So all the space is taken first. Then a part of it, an arena, is
//! given back at a time, and writers append to their files in turn until it is full. When that has been done with all of
//! them, some of the writers' files and some ordinary files go. What is written now, $MFT and the indexes of directories
//! included, finds only small holes. The rest of the space is given back at the end.
//!
//! ntfs-3g compresses only what finds a contiguous place for all of a unit before it is compressed: such places are made
//! for it, with used space between them.

use super::fixture::{Recipe, Spec, places};
use super::kinds::Maker;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The file that takes the space which is left for it, and the one that takes what writers leave.
const BALLAST: &str = "ballast";
const PLUG: &str = "plug";
/// Clusters of an arena: no more than ntfs-3g keeps between the beginnings of new files.
const ARENA: u64 = 4096;
/// Clusters that writers leave for attribute lists and MFT records.
const RESERVE: u64 = 24;
/// Records that ntfs-3g adds to $MFT at a time, or a cluster of them.
const MFT_STEP: u64 = 16;

/// How much of everything.
struct Amounts {
    /// Ordinary files before and after the space is fragmented.
    ordinary: (usize, usize),
    /// How often $MFT grows while the space is fragmented, into up to four fragments each time.
    mft_steps: u64,
    /// Files that leave their MFT records to later ones, so that $MFT does not grow any more.
    spare_records: usize,
    /// Of the ordinary files that were there before, one in so many goes.
    removed_one_in: usize,
    /// Writers whose files stay, and those whose files go.
    writers: (usize, usize),
    /// Writers of named streams.
    stream_writers: usize,
    /// How often each of them appends.
    appends: usize,
    /// What they write together, in thousandths of the volume.
    written: u64,
    /// Names in the directory with a fragmented index.
    directory_entries: usize,
    /// How full the volume is at the end, in thousandths; 0 when that does not matter.
    used_at_end: u64,
}

impl Amounts {
    fn of(spec: &Spec) -> Self {
        // An index block is at least a cluster, and a long name takes about 600 bytes of one.
        let entries = (spec.cluster_bytes as usize * 12 / 600).max(300);
        // What fills a record of 1 KiB with mapping pairs leaves one of 4 KiB half empty.
        let appends = if spec.sector_bytes > 512 { 1100 } else { 300 };
        match spec.recipe {
            Recipe::Small | Recipe::FragmentedMft => Self {
                ordinary: (140, 60),
                mft_steps: if spec.recipe == Recipe::Small { 8 } else { 200 },
                spare_records: 900,
                removed_one_in: 3,
                writers: (3, 4),
                stream_writers: 2,
                appends,
                written: 500,
                directory_entries: entries,
                used_at_end: 0,
            },
            Recipe::Full => Self {
                ordinary: (11_400, 1_900),
                mft_steps: 120,
                spare_records: 3_000,
                removed_one_in: 10,
                writers: (12, 10),
                stream_writers: 4,
                appends: appends.max(1000),
                written: 450,
                directory_entries: entries.max(3_000),
                used_at_end: 0,
            },
            Recipe::NearlyFull => Self {
                ordinary: (600, 200),
                mft_steps: 12,
                spare_records: 2_000,
                removed_one_in: 3,
                writers: (9, 1),
                stream_writers: 1,
                appends: 2_000,
                written: 850,
                directory_entries: entries,
                used_at_end: 900,
            },
        }
    }
}

impl Amounts {
    /// MFT records that the mappings of fragmented files need at most, about.
    fn extension_records(&self) -> usize {
        const RUNS_IN_A_RECORD: usize = 150;
        10 + (self.writers.0 + self.writers.1 + self.stream_writers) * self.appends / RUNS_IN_A_RECORD
    }
}

/// Fills an empty volume.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn furnish(root: &Path, spec: &Spec) -> Result<()> {
    let amounts = Amounts::of(spec);
    let mut maker = Maker::new(root, spec)?;
    let early = maker.ordinary("early", amounts.ordinary.0)?;
    let spare = maker.empty("spare", amounts.spare_records)?;
    let (for_writers, for_later) = spare.split_at(amounts.extension_records());
    let slots = maker.slots()?;
    let gone = interleave(&mut maker, &amounts, for_writers)?;
    fill(&mut maker, PLUG)?;
    remove(&gone)?;
    let record = spec.sector_bytes.max(1024);
    let growing = amounts.mft_steps * MFT_STEP.max(spec.cluster_bytes / record);
    maker.empty("middle", growing as usize)?;
    remove(for_later.iter().chain(early.iter().step_by(amounts.removed_one_in)))?;
    maker.in_small_holes(amounts.directory_entries)?;
    maker.ordinary("late", amounts.ordinary.1)?;
    remove(&slots)?;
    maker.in_larger_holes()?;
    remove(&[root.join(PLUG)])?;
    let ballast = root.join(BALLAST);
    if amounts.used_at_end == 0 {
        return remove(&[ballast]);
    }
    shorten(&maker, &ballast, amounts.used_at_end)
}

fn remove<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    paths
        .into_iter()
        .try_for_each(|path| fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display())))
}

/// Takes all the space, and fragments files in a part of it. The ballast stays; returns the files that are to go.
fn interleave(maker: &mut Maker, amounts: &Amounts, spare: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let clusters = maker.spec.bytes / maker.spec.cluster_bytes * amounts.written / 1000;
    let count = clusters.div_ceil(ARENA);
    let arenas: Vec<_> = (0..count).map(|number| maker.root.join(format!("arena-{number}"))).collect();
    for path in &arenas {
        let content = maker.content((clusters / count * maker.spec.cluster_bytes) as usize);
        fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (mut files, gone) = open_files(maker, amounts)?;
    fill(maker, BALLAST)?;
    remove(spare)?;
    let average = (clusters / (files.len() * amounts.appends) as u64).max(1);
    for (number, arena) in arenas.iter().enumerate() {
        remove([arena])?;
        // Smaller pieces in some places, for smaller holes.
        let average = if number % 4 == 0 { average.div_ceil(8) } else { average };
        'arena: loop {
            maker.rng.shuffle(&mut files);
            for file in &mut files {
                let now = maker.rng.u64(average.div_ceil(2)..=average * 3 / 2);
                if free(maker)? < RESERVE + now {
                    break 'arena;
                }
                file.write_all(&maker.content((now * maker.spec.cluster_bytes) as usize))?;
            }
        }
    }
    Ok(gone)
}

/// The files that are appended to in turn, and which of them are to go.
fn open_files(maker: &Maker, amounts: &Amounts) -> Result<(Vec<File>, Vec<PathBuf>)> {
    let named = |directory: &str, count, suffix: &str| -> Vec<PathBuf> {
        (0..count).map(|number| maker.root.join(format!("{directory}/{number}{suffix}"))).collect()
    };
    let gone = named(places::ORDINARY, amounts.writers.1, ".gone");
    let stay = named(places::FRAGMENTED, amounts.writers.0, "");
    let streams = named(places::STREAMS, amounts.stream_writers, &format!(":{}", places::LARGE_STREAM));
    let open = |path: &PathBuf| {
        let file = File::options().create(true).append(true).open(path);
        file.with_context(|| format!("cannot create {}", path.display()))
    };
    for holder in named(places::STREAMS, amounts.stream_writers, "") {
        open(&holder)?;
    }
    Ok((gone.iter().chain(&stay).chain(&streams).map(open).collect::<Result<_>>()?, gone))
}

/// Free clusters.
fn free(maker: &Maker) -> Result<u64> {
    let now = rustix::fs::statvfs(&maker.root)?;
    Ok(now.f_bfree * now.f_frsize / maker.spec.cluster_bytes)
}

/// Writes a file until nothing is free.
fn fill(maker: &mut Maker, name: &str) -> Result<()> {
    const AT_ONCE: usize = 1 << 20;
    let path = maker.root.join(name);
    let mut file = File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
    loop {
        match file.write_all(&maker.content(AT_ONCE)) {
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            other => other.with_context(|| format!("cannot write {}", path.display()))?,
        }
    }
}

/// Shortens a file until so many thousandths of the volume are used.
fn shorten(maker: &Maker, path: &Path, used: u64) -> Result<()> {
    let clusters = maker.spec.bytes / maker.spec.cluster_bytes;
    let too_many = (clusters * (1000 - used) / 1000).saturating_sub(free(maker)?);
    let file = File::options().write(true).open(path)?;
    let length = file.metadata()?.len().saturating_sub(too_many * maker.spec.cluster_bytes);
    file.set_len(length).with_context(|| format!("cannot shorten {}", path.display()))
}
