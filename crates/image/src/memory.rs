//! A disk in memory whose power can be cut: for tests of what writes to disks.
//!
//! Owns the record of what was written since the last flush, and the states that a cut can leave. Never touches a device.

use crate::Disk;
use crate::disk::within;
use longrun_layout::Bytes;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a device writes as one: a cut leaves it old or new.
const SECTOR: usize = 512;

/// A disk in memory. It records its writes, so that [`MemoryDisk::cut`] can tell what a loss of power at any moment
/// would leave.
pub struct MemoryDisk {
    state: Mutex<State>,
    length: u64,
}

struct State {
    now: Vec<u8>,
    /// What every write replaced is not needed: the image as it was made, and all writes since.
    before: Vec<u8>,
    events: Vec<Event>,
}

enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

impl MemoryDisk {
    /// A disk with this content, which is durable.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        let length = content.len() as u64;
        Self { state: Mutex::new(State { before: content.clone(), now: content, events: Vec::new() }), length }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content as the last write left it.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state().now.clone()
    }

    /// How many writes and flushes there were: a cut can come before each, and after the last.
    #[must_use]
    pub fn events(&self) -> usize {
        self.state().events.len()
    }

    /// The content if power had been lost before event `at`: everything up to the last flush before it, and of the sectors
    /// written after that those for which `lands` says so.
    pub fn cut(&self, at: usize, mut lands: impl FnMut() -> bool) -> Vec<u8> {
        let state = self.state();
        let events = state.events.get(..at).unwrap_or(&state.events);
        let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
        let mut content = state.before.clone();
        for (number, event) in events.iter().enumerate() {
            let Event::Write(offset, data) = event else { continue };
            let mut start = *offset as usize;
            let mut rest = data.as_slice();
            while !rest.is_empty() {
                // Up to the end of the sector.
                let (sector, behind) = rest.split_at(rest.len().min(SECTOR - start % SECTOR));
                if (number < flushed || lands())
                    && let Some(place) = content.get_mut(start..start + sector.len())
                {
                    place.copy_from_slice(sector);
                }
                start += sector.len();
                rest = behind;
            }
        }
        content
    }
}

impl Disk for MemoryDisk {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn length(&self) -> Bytes {
        Bytes(self.length)
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        within(at, buffer.len() as u64, self.length())?;
        let state = self.state();
        let found = state.now.get(at.0 as usize..at.0 as usize + buffer.len());
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        within(at, data.len() as u64, self.length())?;
        let mut state = self.state();
        let place = state.now.get_mut(at.0 as usize..at.0 as usize + data.len());
        place.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        state.events.push(Event::Write(at.0, data.to_vec()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.state().events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        // What is not defined is anything but what it was.
        self.write(at, &vec![0xdd; length.0 as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_what_was_flushed_and_any_sectors_of_the_rest() {
        let disk = MemoryDisk::new(vec![0; 2048]);
        disk.write(Bytes(0), &[1; 512]).unwrap();
        disk.flush().unwrap();
        disk.write(Bytes(256), &[2; 1024]).unwrap();
        assert_eq!(disk.events(), 3);
        let sum = |content: &[u8]| content.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        assert_eq!(sum(&disk.cut(1, || false)), 0, "not flushed yet");
        assert_eq!(sum(&disk.cut(2, || false)), 512, "flushed by then");
        assert_eq!(sum(&disk.cut(3, || false)), 512);
        assert_eq!(disk.cut(3, || true), disk.content());
        let mut number = 0;
        let second = disk.cut(3, || {
            number += 1;
            number == 2
        });
        assert_eq!((second[255], second[256], second[511], second[512], second[1023], second[1024]), (1, 1, 1, 2, 2, 0));
    }
}
