//! Tables that are kept in the state directory: one file for each volume, by its UUID.
//!
//! The file is written beside the old one and takes its name when it is on the disk. A file that is damaged is not used, and the table
//! begins anew: what it had is recorded again within days.
//!
//! All numbers are little-endian: `LRHEAT01`, the UUID, when it began, since when it is complete, minutes recorded, the totals with
//! their minute, the number of files; then 28 bytes for each file; then CRC-32C of everything before it.

use crate::HeatError;
use crate::table::{Heat, HeatTable, MOST_FILES, Minute, Totals};
use longrun_layout::{FileId, InodeNumber};
use longrun_sys::replace_file;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 8] = b"LRHEAT01";
const HEADER: usize = 8 + 16 + 4 * 4 + 2 * 8 + 4;
const RECORD: usize = 28;
const LONGEST: usize = HEADER + MOST_FILES * RECORD + 4;
/// The table of a volume that is gone is kept for so long: later it tells nothing.
const KEPT: Duration = Duration::from_secs(180 * 24 * 3600);

/// Days since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day(pub u32);

/// The tables in the state directory.
#[derive(Clone, Debug)]
pub struct Kept(PathBuf);

/// What was found of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Its table.
    Table(HeatTable),
    /// None.
    Nothing,
    /// What cannot be used.
    Damaged(&'static str),
}

impl Kept {
    /// Below the state directory `state`.
    #[must_use]
    pub fn within(state: &Path) -> Self {
        Self(state.join("heat"))
    }

    /// The file of the volume `id`, which is of the service's own making (a UUID or a device number).
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.heat"))
    }

    /// The table of the volume `id` with this UUID.
    ///
    /// # Errors
    /// [`HeatError::Io`].
    pub fn find(&self, id: &str, uuid: [u8; 16]) -> Result<Found, HeatError> {
        let path = self.path(id);
        let failed = |source| HeatError::Io { path: path.clone(), act: "reading the table of reads", source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(LONGEST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        match HeatTable::from_bytes(&bytes, uuid) {
            Ok(table) => Ok(Found::Table(table)),
            Err(HeatError::Damaged { what }) => Ok(Found::Damaged(what)),
            Err(error) => Err(error),
        }
    }

    /// Keeps the table of the volume `id` in the place of an older one.
    ///
    /// # Errors
    /// [`HeatError::Io`]; the older one stays then.
    pub fn keep(&self, id: &str, uuid: [u8; 16], table: &HeatTable) -> Result<u64, HeatError> {
        let bytes = table.to_bytes(uuid);
        self.replace(&self.path(id), &bytes, "writing the table of reads")?;
        Ok(bytes.len() as u64)
    }

    fn replace(&self, path: &Path, bytes: &[u8], act: &'static str) -> Result<(), HeatError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        let written = made.and_then(|()| replace_file(path, bytes));
        written.map_err(|source| HeatError::Io { path: path.to_owned(), act, source })
    }

    /// How much of the volume `id` was moved on `day` because of its heat. What cannot be read counts as nothing but on that day's first
    /// write.
    #[must_use]
    pub fn moved_on(&self, id: &str, day: Day) -> u64 {
        let text = fs::read_to_string(self.0.join(format!("{id}.moved"))).unwrap_or_default();
        let mut words = text.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(on)), Some(Ok(bytes))) if on == u64::from(day.0) => bytes,
            _ => 0,
        }
    }

    /// Notes that so many bytes are going to be moved on `day`: before they are, so that no crash forgets them.
    ///
    /// # Errors
    /// [`HeatError::Io`]; nothing may be moved then.
    pub fn note_moved(&self, id: &str, day: Day, bytes: u64) -> Result<(), HeatError> {
        let path = self.0.join(format!("{id}.moved"));
        let all = self.moved_on(id, day).saturating_add(bytes);
        self.replace(&path, format!("{} {all}\n", day.0).as_bytes(), "writing what was moved today")
    }

    /// Removes tables of volumes that were not there for half a year.
    pub fn tidy(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|meta| meta.modified());
            let is_old = age.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > KEPT));
            if is_old && let Err(error) = fs::remove_file(entry.path()) {
                tracing::warn!("{}: removing an old table of reads failed: {error}", entry.path().display());
            }
        }
    }
}

impl HeatTable {
    /// As the content of a file, or of an answer of the service.
    #[must_use]
    pub fn to_bytes(&self, uuid: [u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.files.len() * RECORD + 4);
        bytes.extend(MAGIC);
        bytes.extend(uuid);
        for number in [self.began.0, self.complete_since.0, self.recorded, self.totals_at.0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.totals.reads.to_le_bytes());
        bytes.extend(self.totals.bytes.to_le_bytes());
        bytes.extend(u32::try_from(self.files.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (file, heat) in &self.files {
            bytes.extend(file.inode.0.to_le_bytes());
            bytes.extend(file.generation.to_le_bytes());
            for figure in [heat.reads, heat.bytes, heat.changes] {
                bytes.extend(figure.to_le_bytes());
            }
            bytes.extend(heat.last.0.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads [`Self::to_bytes`] of the volume with this UUID.
    ///
    /// # Errors
    /// [`HeatError::Damaged`], whatever the bytes are.
    pub fn from_bytes(bytes: &[u8], uuid: [u8; 16]) -> Result<Self, HeatError> {
        let damaged = |what| HeatError::Damaged { what };
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(damaged("it is too short"))?;
        if bytes.len() > LONGEST {
            return Err(damaged("it is too long"));
        }
        let mut from = content;
        if take::<8>(&mut from) != Some(*MAGIC) {
            return Err(damaged("it does not begin as one"));
        }
        if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("its checksum is wrong"));
        }
        let short = || damaged("it is too short");
        if take::<16>(&mut from).ok_or_else(short)? != uuid {
            return Err(damaged("it is of another volume"));
        }
        let mut number = || take::<4>(&mut from).map(u32::from_le_bytes).ok_or_else(short);
        let (began, complete_since, recorded, totals_at) = (number()?, number()?, number()?, number()?);
        let mut figure = || take::<8>(&mut from).map(f64::from_le_bytes).ok_or_else(short);
        let totals = Totals { reads: figure()?, bytes: figure()? };
        let count = take::<4>(&mut from).map(u32::from_le_bytes).ok_or_else(short)? as usize;
        if count.checked_mul(RECORD) != Some(from.len()) {
            return Err(damaged("its length contradicts the number of files"));
        }
        let mut records = Vec::with_capacity(count);
        while !from.is_empty() {
            records.push(record(&mut from).ok_or_else(short)?);
        }
        // One by one they would fill the nodes of the map by halves.
        let files = BTreeMap::from_iter(records);
        let figures = files.values().flat_map(|heat: &Heat| [heat.reads, heat.bytes, heat.changes].map(f64::from));
        if files.len() != count || !figures.chain([totals.reads, totals.bytes]).all(|n| n.is_finite() && n >= 0.0) {
            return Err(damaged("its figures are none"));
        }
        Ok(Self {
            files,
            totals,
            totals_at: Minute(totals_at),
            began: Minute(began),
            complete_since: Minute(complete_since),
            recorded,
        })
    }
}

fn record(from: &mut &[u8]) -> Option<(FileId, Heat)> {
    let inode = InodeNumber(u64::from_le_bytes(take(from)?));
    let generation = u32::from_le_bytes(take(from)?);
    let mut figure = || take(from).map(f32::from_le_bytes);
    let (reads, bytes, changes) = (figure()?, figure()?, figure()?);
    let last = Minute(u32::from_le_bytes(take(from)?));
    Some((FileId { inode, generation }, Heat { reads, bytes, changes, last }))
}

/// The next bytes.
fn take<const LENGTH: usize>(from: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (first, rest) = from.split_first_chunk::<LENGTH>()?;
    *from = rest;
    Some(*first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = [3; 16];

    fn table(files: u64) -> HeatTable {
        let mut table = HeatTable::beginning(Minute(40));
        table.recorded = 9;
        table.totals = Totals { reads: 1e9, bytes: 3.5 };
        table.totals_at = Minute(77);
        for inode in 0..files {
            let heat = Heat { reads: inode as f32, bytes: 4096.0, changes: 0.5, last: Minute(60) };
            table.files.insert(FileId { inode: InodeNumber(inode << 20), generation: 5 }, heat);
        }
        table
    }

    #[test]
    fn a_table_is_found_as_it_was_kept_and_only_of_the_same_volume() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::within(state.path());
        assert_eq!(kept.find("a", UUID).unwrap(), Found::Nothing);
        kept.keep("a", UUID, &table(0)).unwrap();
        kept.keep("a", UUID, &table(1000)).unwrap();
        assert_eq!(kept.find("a", UUID).unwrap(), Found::Table(table(1000)));
        assert!(matches!(kept.find("a", [4; 16]).unwrap(), Found::Damaged(_)));
        assert_eq!(fs::read_dir(state.path().join("heat")).unwrap().count(), 1, "nothing is left beside it");
        fs::write(kept.path("a"), vec![0; LONGEST + 5]).unwrap();
        assert!(matches!(kept.find("a", UUID).unwrap(), Found::Damaged(_)));
    }

    #[test]
    fn what_was_moved_counts_for_its_day() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::within(state.path());
        assert_eq!(kept.moved_on("a", Day(5)), 0);
        kept.note_moved("a", Day(5), 100).unwrap();
        kept.note_moved("a", Day(5), 11).unwrap();
        assert_eq!((kept.moved_on("a", Day(5)), kept.moved_on("a", Day(6)), kept.moved_on("b", Day(5))), (111, 0, 0));
        kept.note_moved("a", Day(6), 7).unwrap();
        assert_eq!((kept.moved_on("a", Day(5)), kept.moved_on("a", Day(6))), (0, 7));
    }

    #[test]
    fn the_largest_table_takes_less_than_12_mib() {
        const { assert!(LONGEST < 12 << 20) };
    }

    proptest! {
        #[test]
        fn any_damage_is_noticed_and_none_is_fatal(at: prop::sample::Index, bit in 0u8..8, cut: prop::sample::Index) {
            let bytes = table(20).to_bytes(UUID);
            let mut flipped = bytes.clone();
            flipped[at.index(bytes.len())] ^= 1 << bit;
            prop_assert!(HeatTable::from_bytes(&flipped, UUID).is_err());
            prop_assert!(HeatTable::from_bytes(&bytes[..cut.index(bytes.len())], UUID).is_err());
        }

        #[test]
        fn whatever_the_bytes_are_reading_them_does_not_fail(content in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = [MAGIC.as_slice(), &UUID, &content].concat();
            let sum = crc32c::crc32c(&bytes);
            bytes.extend(sum.to_le_bytes());
            // With a right checksum, too.
            if let Ok(table) = HeatTable::from_bytes(&bytes, UUID) {
                prop_assert!(table.files(Minute(u32::MAX)).all(|(_, heat)| heat.reads.is_finite()));
            }
            prop_assert!(HeatTable::from_bytes(&content, UUID).is_err());
        }
    }
}
