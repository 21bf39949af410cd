//! The free space of the model, and how file systems choose from it.

use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use std::collections::BTreeMap;

pub const BLOCK: u64 = 4096;
const MIB: u64 = (1 << 20) / BLOCK;

/// What the free space is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// In a few long runs.
    Healthy,
    /// A half in holes of 16 to 256 KiB, where files were deleted, and the rest behind them in one run.
    Holes,
    /// Such holes, and runs of 4 to 12 MiB between them.
    Runs,
    /// Such holes and nothing else.
    Dust,
}

pub struct Space {
    filesystem: FileSystem,
    total: u64,
    /// Start → length.
    free: BTreeMap<u64, u64>,
    /// Where the last allocation ended.
    cursor: u64,
}

impl Space {
    pub fn new(filesystem: FileSystem, condition: Condition, total: Bytes, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let mut free = BTreeMap::new();
        let total = total.0 / BLOCK;
        let holes = |from: u64, to: u64, runs: bool, random: &mut fastrand::Rng, free: &mut BTreeMap<u64, u64>| {
            let mut at = from;
            while at + 20 * MIB < to {
                at += random.u64(4..=64);
                let length =
                    if runs && random.u32(..100) == 0 { random.u64(4 * MIB..12 * MIB) } else { random.u64(4..=64) };
                free.insert(at, length);
                at += length;
            }
        };
        match condition {
            Condition::Healthy => {
                (0..4).for_each(|nth| {
                    free.insert(nth * total / 4 + 64, total / 4 - 64);
                });
            }
            Condition::Holes => {
                holes(64, total * 2 / 3, false, &mut random, &mut free);
                free.insert(total * 2 / 3, total / 3);
            }
            Condition::Runs => holes(64, total, true, &mut random, &mut free),
            Condition::Dust => holes(64, total, false, &mut random, &mut free),
        }
        Self { filesystem, total, free, cursor: 64 }
    }

    pub fn total(&self) -> Bytes {
        Bytes(self.total * BLOCK)
    }

    pub fn free(&self) -> Bytes {
        Bytes(self.free.values().sum::<u64>() * BLOCK)
    }

    pub fn release(&mut self, block: u64) {
        let (mut start, mut length) = (block, 1);
        if let Some(behind) = self.free.remove(&(block + 1)) {
            length += behind;
        }
        if let Some((at, before)) = self.free.range(..block).next_back().map(|(at, before)| (*at, *before))
            && at + before == block
        {
            start = at;
            length += before;
        }
        self.free.insert(start, length);
    }

    /// What a write gets: as it comes, right behind its file if that is free, and otherwise the nearest that is enough.
    pub fn write(&mut self, hint: Option<u64>, wanted: u64) -> (u64, u64) {
        // XFS looks near the file's last block, btrfs behind its own last allocation.
        let hint = if self.filesystem == FileSystem::Btrfs { self.cursor } else { hint.unwrap_or(64) };
        if let Some((at, length)) = self.run_at(hint) {
            let got = wanted.min(at + length - hint);
            if got == wanted || self.filesystem != FileSystem::Btrfs {
                return self.take(hint, got);
            }
        }
        let at = self.enough(hint, wanted).or_else(|| self.longest()).expect("the model's volume is full");
        let got = wanted.min(self.free[&at]);
        self.take(at, got)
    }

    /// What a preallocation gets at once.
    pub fn preallocate(&mut self, hint: Option<u64>, wanted: u64) -> Option<(u64, u64)> {
        let hint = hint.unwrap_or(self.cursor);
        if let Some((at, length)) = self.run_at(hint)
            && at + length - hint >= wanted
        {
            return Some(self.take(hint, wanted));
        }
        if self.filesystem == FileSystem::Btrfs {
            // Half of it, and half of that, until there is a run that is enough.
            let mut part = wanted;
            while part > 1 {
                if let Some(at) = self.enough(hint, part) {
                    return Some(self.take(at, part));
                }
                part = part.div_ceil(2);
            }
        }
        let at = self.enough(hint, wanted).or_else(|| self.longest())?;
        let got = wanted.min(self.free[&at]);
        Some(self.take(at, got))
    }

    fn run_at(&self, block: u64) -> Option<(u64, u64)> {
        let (at, length) = self.free.range(..=block).next_back()?;
        (at + length > block).then_some((*at, *length))
    }

    /// The next run behind `from` that is long enough, or the first.
    fn enough(&self, from: u64, wanted: u64) -> Option<u64> {
        let fits = |run: &(&u64, &u64)| *run.1 >= wanted;
        self.free.range(from..).find(fits).or_else(|| self.free.range(..from).find(fits)).map(|(at, _)| *at)
    }

    fn longest(&self) -> Option<u64> {
        self.free.iter().max_by_key(|(at, length)| (**length, std::cmp::Reverse(**at))).map(|(at, _)| *at)
    }

    fn take(&mut self, start: u64, length: u64) -> (u64, u64) {
        let (at, run) = self.run_at(start).expect("free");
        self.free.remove(&at);
        if at < start {
            self.free.insert(at, start - at);
        }
        if start + length < at + run {
            self.free.insert(start + length, at + run - start - length);
        }
        self.cursor = start + length;
        (start, length)
    }
}
