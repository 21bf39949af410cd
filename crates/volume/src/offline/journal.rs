//! The redo journal: what a transaction writes, durable outside of the volume before any of it is written there.
//!
//! Owns the file of the journal, its format, and the replay after a crash. Knows of a volume only that it has a serial
//! number. A file record of NTFS is two sectors, a block of ext4 eight, and a crash can leave one of them old: without the journal
//! what is torn would be lost with its file.

use super::error::JournalError;
use super::folder::Folder;
use crate::bytes::{le32, le64};
use longrun_image::{Access, Disk};
use longrun_layout::Bytes;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// What a device writes as one, and what a crash leaves old or new: changes are written in units of this.
pub(crate) const SECTOR: usize = 512;
const MAGIC: &[u8; 8] = b"LRREDOJ3";
/// The header and its checksum take one sector; the body begins behind it.
const HEADER: usize = 0x30;
/// Of an entry, what stands before its data: phase, place and length.
const ENTRY: usize = 20;
/// The longest body, in bytes. A body is held in memory, so that a header must not ask for more than a run can have written.
const LONGEST_BODY: u64 = 1 << 30;
/// A body has each sector of the volume once for each phase at most, with its checksums, and the checksums of what was copied.
const BODY_PER_BYTE: u64 = 4;

/// In which order the writes of a transaction reach the volume, with a flush after each: so that even without the journal no
/// cluster that is in use was ever marked as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Clusters are marked as in use.
    Allocate,
    /// Records, lists, boot sectors.
    Change,
    /// Clusters are marked as free.
    Free,
}

/// The mark of an entry that is no write, but tells what was copied before.
const COPIED: u32 = 3;
/// Copies have a checksum for each so many bytes.
const COPIED_BLOCK: usize = 64 << 10;

const PHASES: [Phase; 3] = [Phase::Allocate, Phase::Change, Phase::Free];

/// One write of a transaction: whole sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) phase: Phase,
    pub(crate) at: Bytes,
    pub(crate) data: Vec<u8>,
}

/// What was copied before a transaction that refers to it. A volume that was restored from a backup since, or is another one with
/// the same serial number, does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    at: Bytes,
    length: u64,
    /// Of each [`COPIED_BLOCK`].
    sums: Vec<u32>,
}

impl Copied {
    pub(crate) fn new(at: Bytes, data: &[u8]) -> Self {
        Self { at, length: data.len() as u64, sums: data.chunks(COPIED_BLOCK).map(sum_of).collect() }
    }
}

/// The checksum of what lies on the volume. No CRC: ext4 ends its blocks with CRCs of their own, and the CRC of anything that
/// does is the same number, whatever it holds. Multiplication has no such blind spot.
///
/// Four words at a time, each in a lane of its own: a processor multiplies them side by side, and everything that is moved is summed.
fn sum_of(data: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let add = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(ODD);
        hash ^ hash >> 32
    };
    let mut lanes = [0u64, 1, 2, 3];
    let (fours, rest) = data.as_chunks::<32>();
    for four in fours {
        let (words, _) = four.as_chunks();
        lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane = add(*lane, u64::from_le_bytes(*word)));
    }
    let hash = lanes.into_iter().fold(data.len() as u64, add);
    let last = rest.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    last.fold(hash, add) as u32
}

/// The journal of a volume.
pub(crate) struct Journal {
    file: File,
    folder: Arc<Folder>,
    name: OsString,
    serial: u64,
    length: Bytes,
    /// The checksum of the record by which this run or an interrupted one has marked the volume as dirty, as it is on the volume; 0
    /// when there is none. By it the mark is told from one that Windows has made since.
    mark: u32,
    /// The same after the transaction that is being written. Until it is complete, the volume may have either.
    next_mark: u32,
}

impl Journal {
    /// Opens the journal `name` of the volume with this serial number and length, if there is one.
    pub(super) fn find(
        folder: &Arc<Folder>,
        name: &OsStr,
        access: Access,
        (serial, length): (u64, Bytes),
    ) -> Result<Option<Self>, JournalError> {
        let Some(file) = folder.file(name, access)? else { return Ok(None) };
        let mut journal = Self::of(file, folder, name, (serial, length));
        // A header that was never completed belongs to a run that had not written anything yet.
        let Some(header) = journal.header()? else { return Ok(Some(journal)) };
        let has_begun = header.body > 0 || header.mark != 0 || header.next_mark != 0;
        let is_another = header.serial != serial && has_begun || header.length != length && header.body > 0;
        if is_another || header.body > longest_body(length) {
            return Err(JournalError::Another);
        }
        if header.serial == serial {
            (journal.mark, journal.next_mark) = (header.mark, header.next_mark);
        }
        Ok(Some(journal))
    }

    /// Makes an empty journal whose name is durable. There must be none.
    pub(super) fn create(folder: &Arc<Folder>, name: &OsStr, volume: (u64, Bytes)) -> io::Result<Self> {
        let journal = Self::of(folder.create(name)?, folder, name, volume);
        journal.put_header(0, 0)?;
        journal.file.sync_all()?;
        folder.sync()?;
        Ok(journal)
    }

    fn of(file: File, folder: &Arc<Folder>, name: &OsStr, (serial, length): (u64, Bytes)) -> Self {
        let (folder, name) = (Arc::clone(folder), name.to_owned());
        Self { file, folder, name, serial, length, mark: 0, next_mark: 0 }
    }

    /// Whether it is of a run on the volume on `disk` as it is now, or on another one with the same content. `mark` is the record on
    /// it by which runs mark the volume.
    pub(super) fn belongs_to(&self, disk: &dyn Disk, mark: Option<Vec<u8>>) -> bool {
        match self.pending() {
            Ok(Some((_, pending))) => pending.check(disk).is_ok(),
            Ok(None) => mark.is_some_and(|mark| self.has_marked(&mark)),
            Err(_) => false,
        }
    }

    /// Notes the record that marks the volume as dirty; durable with the next transaction, which writes that record.
    pub(crate) fn set_mark(&mut self, record: &[u8]) {
        self.next_mark = sum_of(record);
    }

    /// Whether a run of ours has written this record to mark the volume.
    pub(crate) fn has_marked(&self, record: &[u8]) -> bool {
        [self.mark, self.next_mark].contains(&sum_of(record))
    }

    /// Makes a transaction durable. `disk` is asked for what it replaces.
    pub(crate) fn put(&self, disk: &dyn Disk, copies: &[Copied], writes: &[Write]) -> io::Result<()> {
        let mut body = Vec::new();
        for copied in copies {
            body.extend(COPIED.to_le_bytes());
            body.extend(copied.at.0.to_le_bytes());
            body.extend(copied.length.to_le_bytes());
            body.extend(copied.sums.iter().flat_map(|sum| sum.to_le_bytes()));
        }
        let mut old = Vec::new();
        for write in writes {
            body.extend((write.phase as u32).to_le_bytes());
            body.extend(write.at.0.to_le_bytes());
            body.extend((write.data.len() as u64).to_le_bytes());
            old.resize(write.data.len(), 0);
            disk.read(write.at, &mut old)?;
            old.chunks(SECTOR).for_each(|sector| body.extend(sum_of(sector).to_le_bytes()));
            body.extend(&write.data);
        }
        self.store(&body)
    }

    /// Header and body reach the disk in any order: until both are there the body does not have its checksum, and nothing has begun.
    fn store(&self, body: &[u8]) -> io::Result<()> {
        if body.len() as u64 > longest_body(self.length) {
            return Err(io::Error::other("a transaction is too long for its journal"));
        }
        self.file.write_all_at(body, SECTOR as u64)?;
        self.put_header(body.len() as u64, crc32c::crc32c(body))?;
        self.file.sync_data()
    }

    /// The transaction is on the volume, durably.
    pub(crate) fn done(&mut self) -> io::Result<()> {
        self.mark = self.next_mark;
        self.put_header(0, 0)?;
        self.file.sync_data()
    }

    /// Completes what an interrupted run has left. Refuses when somebody else has written to the same sectors.
    pub(crate) fn complete(&mut self, disk: &dyn Disk) -> Result<(), JournalError> {
        let Some((body, pending)) = self.pending()? else { return Ok(()) };
        pending.check(disk)?;
        // What was read here may be in memory only: a run that was killed, or whose flush failed, has left it there. Should the power
        // go while the volume is written to, the journal must be on the disk.
        self.store(&body)?;
        apply(disk, &pending.writes)?;
        Ok(self.done()?)
    }

    /// The transaction that was not completed, if there is one, with its bytes. What was not written as a whole never began.
    fn pending(&self) -> Result<Option<(Vec<u8>, Pending)>, JournalError> {
        let Some(header) = self.header()?.filter(|header| header.body > 0) else { return Ok(None) };
        if header.body.saturating_add(SECTOR as u64) > self.file.metadata()?.len() {
            return Ok(None);
        }
        let mut body = vec![0; header.body as usize];
        self.file.read_exact_at(&mut body, SECTOR as u64)?;
        if crc32c::crc32c(&body) != header.sum {
            return Ok(None);
        }
        let pending = Pending::parse(&body, self.length);
        Ok(pending.map(|pending| (body, pending)))
    }

    /// Removes the file.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.folder.remove(&self.name)?;
        self.folder.sync()
    }

    fn put_header(&self, body: u64, sum: u32) -> io::Result<()> {
        let mut header = Vec::with_capacity(SECTOR);
        header.extend(MAGIC);
        header.extend(self.serial.to_le_bytes());
        header.extend(self.length.0.to_le_bytes());
        header.extend(body.to_le_bytes());
        header.extend(sum.to_le_bytes());
        header.extend(self.next_mark.to_le_bytes());
        header.extend(self.mark.to_le_bytes());
        header.resize(HEADER - 4, 0);
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        header.resize(SECTOR, 0);
        self.file.write_all_at(&header, 0)
    }

    /// `None` when it was not written as a whole.
    fn header(&self) -> Result<Option<Header>, JournalError> {
        let mut bytes = [0; HEADER];
        match self.file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let (content, sum) = (bytes.get(..HEADER - 4).unwrap_or_default(), le32(&bytes, HEADER - 4));
        let is_whole = crc32c::crc32c(content) == sum;
        if is_whole && !content.starts_with(MAGIC) {
            return Err(JournalError::Another);
        }
        let header = Header {
            serial: le64(&bytes, 8),
            length: Bytes(le64(&bytes, 16)),
            body: le64(&bytes, 24),
            sum: le32(&bytes, 32),
            next_mark: le32(&bytes, 36),
            // Earlier versions have written 0 here.
            mark: le32(&bytes, 40),
        };
        Ok(is_whole.then_some(header))
    }
}

/// The most bytes that the body of a journal of a volume of this length has.
fn longest_body(length: Bytes) -> u64 {
    length.0.saturating_mul(BODY_PER_BYTE).min(LONGEST_BODY)
}

struct Header {
    serial: u64,
    length: Bytes,
    /// Bytes of the transaction; 0 when there is none.
    body: u64,
    sum: u32,
    mark: u32,
    next_mark: u32,
}

/// A transaction that may be on the volume in part.
#[derive(Debug)]
pub(crate) struct Pending {
    copies: Vec<Copied>,
    writes: Vec<Write>,
    /// The checksums that each sector may have: what it was, and what it becomes.
    expected: BTreeMap<u64, Vec<u32>>,
}

impl Pending {
    /// `None` when it does not fit the volume: then it was not written by this program.
    fn parse(mut body: &[u8], length: Bytes) -> Option<Self> {
        let mut pending = Self { copies: Vec::new(), writes: Vec::new(), expected: BTreeMap::new() };
        while !body.is_empty() {
            let (entry, rest) = body.split_at_checked(ENTRY)?;
            let (at, bytes) = (le64(entry, 4), usize::try_from(le64(entry, 12)).ok()?);
            let sectors = bytes / SECTOR;
            if bytes % SECTOR != 0 || at.checked_add(bytes as u64)? > length.0 {
                return None;
            }
            if le32(entry, 0) == COPIED {
                let (sums, rest) = rest.split_at_checked(4 * bytes.div_ceil(COPIED_BLOCK))?;
                let sums = sums.chunks_exact(4).map(|sum| le32(sum, 0)).collect();
                pending.copies.push(Copied { at: Bytes(at), length: bytes as u64, sums });
                body = rest;
                continue;
            }
            let phase = PHASES.into_iter().find(|phase| *phase as u32 == le32(entry, 0))?;
            let (sums, rest) = rest.split_at_checked(4 * sectors)?;
            let (data, rest) = rest.split_at_checked(bytes)?;
            for ((sum, new), number) in sums.chunks_exact(4).zip(data.chunks_exact(SECTOR)).zip(0..) {
                let expected = pending.expected.entry(at + number * SECTOR as u64).or_default();
                expected.extend([le32(sum, 0), sum_of(new)]);
            }
            pending.writes.push(Write { phase, at: Bytes(at), data: data.to_vec() });
            body = rest;
        }
        Some(pending)
    }

    /// Whether it belongs to the volume as it is now: nobody else has written to the same sectors, and what was copied is there.
    fn check(&self, disk: &dyn Disk) -> Result<(), JournalError> {
        let mut sector = vec![0; SECTOR];
        for (at, expected) in &self.expected {
            disk.read(Bytes(*at), &mut sector)?;
            if !expected.contains(&sum_of(&sector)) {
                return Err(JournalError::Changed(Bytes(*at)));
            }
        }
        self.check_copies(disk)
    }

    /// Looks whether everything is there that was copied. What the transaction itself writes to is left out: it was looked at.
    fn check_copies(&self, disk: &dyn Disk) -> Result<(), JournalError> {
        let mut block = vec![0; COPIED_BLOCK];
        for copied in &self.copies {
            for (number, sum) in (0u64..).zip(&copied.sums) {
                let within = number * COPIED_BLOCK as u64;
                let (start, length) = (copied.at.0 + within, (copied.length - within).min(COPIED_BLOCK as u64));
                if self.expected.range(start..start + length).next().is_some() {
                    continue;
                }
                let block = block.get_mut(..length as usize).unwrap_or_default();
                disk.read(Bytes(start), block)?;
                if sum_of(block) != *sum {
                    return Err(JournalError::Restored);
                }
            }
        }
        Ok(())
    }
}

/// Writes a transaction to the volume, durably. It must be in the journal.
pub(crate) fn apply(disk: &dyn Disk, writes: &[Write]) -> io::Result<()> {
    for phase in PHASES {
        let mut of_phase = writes.iter().filter(|write| write.phase == phase).peekable();
        if of_phase.peek().is_none() {
            continue;
        }
        for write in of_phase {
            disk.write(write.at, &write.data)?;
        }
        disk.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
