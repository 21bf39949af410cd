//! Injected faults of a simulated volume, and its other users.

use fastrand::Rng;

/// Which call fails, and what other users do between calls. The default is no fault and no user.
#[derive(Clone, Debug, Default)]
pub struct ChunkFaults {
    /// The call with this number fails, counted from 1 over all calls.
    pub fails_at: Option<u64>,
    /// Between so many of 100 calls another process writes, rewrites or deletes a file.
    pub others: u8,
    /// From this call on another process takes all the space that there is.
    pub hungry_from: Option<u64>,
    /// So many of 100 chunks cannot be emptied, whatever the books say.
    pub stubborn: u8,
}

/// Where in its fate a volume is.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) faults: ChunkFaults,
    pub(super) rng: Rng,
    pub(super) calls: u64,
    pub(super) hit: bool,
}

impl Fate {
    pub(super) fn new(faults: ChunkFaults, seed: u64) -> Self {
        Self { faults, rng: Rng::with_seed(seed), calls: 0, hit: false }
    }

    /// Counts a call; true when it is the one that fails.
    pub(super) fn strikes(&mut self) -> bool {
        self.calls += 1;
        let strikes = self.faults.fails_at == Some(self.calls);
        self.hit |= strikes;
        strikes
    }

    pub(super) fn somebody_acts(&mut self) -> bool {
        self.rng.u8(..100) < self.faults.others
    }

    pub(super) fn is_hungry(&self) -> bool {
        self.faults.hungry_from.is_some_and(|from| self.calls >= from)
    }
}
