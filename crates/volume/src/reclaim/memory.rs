//! What the kernel remembers of earlier trims, and how a trim in slices keeps it right.
//!
//! ext4 marks each block group that it has trimmed until something is freed there, and skips it afterwards, unless the last call
//! asked for longer pieces than this one. It notes the least piece of the last *call*, not of the last trim of each group: the
//! first slice of a run that asks for shorter pieces than an earlier one would let the kernel skip the groups of all later
//! slices. So the note of the earlier run is put back after each call, and replaced when all groups are done.

use crate::mounted::io;
use longrun_engine::VolumeError;
use std::fs;
use std::path::PathBuf;

/// The kernel's note of the least piece that was asked for last.
#[derive(Debug)]
pub(crate) struct Memory {
    file: PathBuf,
    before: u64,
    /// What the calls of this run have set.
    now: Option<u64>,
}

impl Memory {
    /// In this file; none where the kernel does not show it.
    pub(crate) fn open(file: PathBuf) -> Option<Self> {
        let before = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some(Self { file, before, now: None })
    }

    /// After a call: groups that are still to come must not count as trimmed for pieces that are as short as those of this run.
    pub(super) fn keep(&mut self) -> Result<(), VolumeError> {
        let now = match self.now {
            Some(now) => now,
            None => {
                let text = fs::read_to_string(&self.file).map_err(io(&self.file, "reading what was trimmed"))?;
                text.trim().parse().unwrap_or(self.before)
            }
        };
        self.now = Some(now);
        if now < self.before { self.set(self.before) } else { Ok(()) }
    }

    /// When all groups are done.
    pub(super) fn settle(&self) -> Result<(), VolumeError> {
        self.now.filter(|now| *now < self.before).map_or(Ok(()), |now| self.set(now))
    }

    fn set(&self, value: u64) -> Result<(), VolumeError> {
        fs::write(&self.file, value.to_string()).map_err(io(&self.file, "restoring what was trimmed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_pieces_of_an_earlier_run_are_remembered_until_all_is_done() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("note");
        let told = || fs::read_to_string(&file).unwrap();
        fs::write(&file, "256\n").unwrap();
        let mut memory = Memory::open(file.clone()).unwrap();
        for _ in 0..2 {
            // The kernel's own act.
            fs::write(&file, "1\n").unwrap();
            memory.keep().unwrap();
            assert_eq!(told(), "256");
        }
        memory.settle().unwrap();
        assert_eq!(told(), "1");
    }

    #[test]
    fn nothing_is_put_back_where_this_run_asks_for_longer_pieces_or_for_the_first_time() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("note");
        for before in ["0", "1", "256"] {
            fs::write(&file, before).unwrap();
            let mut memory = Memory::open(file.clone()).unwrap();
            fs::write(&file, "256\n").unwrap();
            memory.keep().unwrap();
            memory.settle().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "256\n", "{before}: the kernel's own");
        }
        assert!(Memory::open(place.path().join("none")).is_none());
    }
}
