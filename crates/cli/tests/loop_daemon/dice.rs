//! Chance that can be repeated.

/// SplitMix64.
pub struct Dice {
    seed: u64,
    state: u64,
}

impl Dice {
    /// With the seed of this run.
    pub fn from_environment() -> Self {
        let seed = longrun_lab::seed();
        Self { seed, state: seed }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}
