//! Cuts of power: every state in which a disk can be found when power is lost at one of many moments.
//!
//! Owns the choice of moments and of the sectors that were written by then. Never decides whether a state is good.

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;
use longrun_image::MemoryDisk;
use std::fmt;
use std::str::FromStr;

/// Which of the sectors that were written after the last flush are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lands {
    /// None.
    None,
    /// All.
    All,
    /// The first so many, in the order in which they were written.
    First(usize),
    /// Each as its bit says, the lowest bit first; none behind the last bit.
    Bits(u64),
    /// A random subset, sparse or dense, from this seed.
    Random(u64),
}

/// One cut. Its text repeats it: see [`Cuts::VARIABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Power is lost before this event of the disk.
    pub at: usize,
    /// What of the last writes is there.
    pub lands: Lands,
}

impl Cut {
    /// The disk as it is found afterwards.
    #[must_use]
    pub fn apply(&self, disk: &MemoryDisk) -> MemoryDisk {
        let mut number = 0;
        let mut lands: Box<dyn FnMut() -> bool> = match self.lands {
            Lands::None => Box::new(|| false),
            Lands::All => Box::new(|| true),
            Lands::First(count) => Box::new(move || {
                number += 1;
                number <= count
            }),
            Lands::Bits(bits) => Box::new(move || {
                number += 1;
                bits.checked_shr(number as u32 - 1).is_some_and(|bits| bits & 1 != 0)
            }),
            Lands::Random(seed) => {
                let mut rng = Rng::with_seed(seed);
                // Few sectors, about half of them, or nearly all: each finds other faults.
                let share = [0.02, 0.2, 0.5, 0.8, 0.98][rng.usize(..5)];
                Box::new(move || rng.f64() < share)
            }
        };
        MemoryDisk::from_image(disk.image_after_cut(self.at, &mut *lands))
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.at)?;
        match self.lands {
            Lands::None => write!(f, "none"),
            Lands::All => write!(f, "all"),
            Lands::First(count) => write!(f, "first-{count}"),
            Lands::Bits(bits) => write!(f, "bits-{bits}"),
            Lands::Random(seed) => write!(f, "random-{seed}"),
        }
    }
}

impl FromStr for Cut {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (at, lands) = text.split_once(':').with_context(|| format!("{text:?} is no cut"))?;
        let lands = match lands.split_once('-') {
            None if lands == "none" => Lands::None,
            None if lands == "all" => Lands::All,
            Some(("first", count)) => Lands::First(count.parse()?),
            Some(("bits", bits)) => Lands::Bits(bits.parse()?),
            Some(("random", seed)) => Lands::Random(seed.parse()?),
            _ => return Err(anyhow!("{text:?} is no cut")),
        };
        Ok(Self { at: at.parse()?, lands })
    }
}

/// Which states were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Moments.
    pub moments: usize,
    /// States.
    pub states: usize,
    /// The most sectors that were at stake at one moment.
    pub most_at_stake: usize,
}

/// Which cuts to make.
#[derive(Clone, Copy, Debug)]
pub struct Cuts {
    seed: u64,
    moments: Moments,
    states_each: usize,
}

#[derive(Clone, Copy, Debug)]
enum Moments {
    Every,
    Some(usize),
    Flushes,
}

impl Cuts {
    /// Names one cut, as a failed run printed it, to which a run is confined. Everything else must be the same as then.
    pub const VARIABLE: &str = "LONGRUN_CUT";

    /// How many moments of a run a campaign looks at: a number, or "all", so that every prefix of what was written is among them.
    pub const MOMENTS: &str = "LONGRUN_CUTS";

    /// Before so many events, or as many as [`Self::MOMENTS`] says, in at most so many states each, with a seed of its own.
    ///
    /// # Panics
    /// When the variable is no number.
    #[must_use]
    pub fn sample(moments: usize, states_each: usize) -> Self {
        let seed = crate::seed();
        match std::env::var(Self::MOMENTS).as_deref() {
            Ok("all") => Self::every(seed, 4),
            Ok(number) => match number.parse() {
                Ok(moments) => Self::some(seed, moments, 4),
                Err(_) => unreachable!("{} is {number:?}; it can be a number or \"all\"", Self::MOMENTS),
            },
            Err(_) => Self::some(seed, moments, states_each),
        }
    }

    /// Before every event and after the last, in at most so many states each.
    #[must_use]
    pub const fn every(seed: u64, states_each: usize) -> Self {
        Self { seed, moments: Moments::Every, states_each }
    }

    /// Before so many events, chosen at random, in at most so many states each.
    #[must_use]
    pub const fn some(seed: u64, moments: usize, states_each: usize) -> Self {
        Self { seed, moments: Moments::Some(moments), states_each }
    }

    /// Before every flush, when most is at stake, and after the last event, in at most so many states each.
    #[must_use]
    pub const fn flushes(seed: u64, states_each: usize) -> Self {
        Self { seed, moments: Moments::Flushes, states_each }
    }

    /// The cuts of what a disk has recorded, in ascending order. Where all subsets of the sectors are no more than the
    /// states that were asked for, they are all made.
    #[must_use]
    pub fn of(&self, disk: &MemoryDisk) -> Vec<Cut> {
        let mut rng = Rng::with_seed(self.seed);
        let moments: Vec<usize> = match self.moments {
            Moments::Every => (0..=disk.events()).collect(),
            Moments::Some(count) => {
                let mut all = rng.choose_multiple(0..=disk.events(), count);
                all.sort_unstable();
                all
            }
            Moments::Flushes => disk.flushes().into_iter().chain([disk.events()]).collect(),
        };
        let cuts = moments.into_iter().flat_map(|at| {
            let lands = states(&mut rng, disk.sectors_at_stake(at), self.states_each);
            lands.into_iter().map(move |lands| Cut { at, lands })
        });
        cuts.collect()
    }

    /// Has every state judged; `judge` gets a disk of its own each time, which it may write to, and returns why the state
    /// is not good.
    ///
    /// # Errors
    /// With the first state that is not good, and how to repeat it.
    pub fn judge(&self, disk: &MemoryDisk, mut judge: impl FnMut(&Cut, MemoryDisk) -> Result<()>) -> Result<Tally> {
        let cuts = match std::env::var(Self::VARIABLE) {
            Ok(text) => vec![text.parse()?],
            Err(_) => self.of(disk),
        };
        let mut tally = Tally::default();
        let mut last = None;
        for cut in cuts {
            ensure!(cut.at <= disk.events(), "there are only {} events: {cut} is none of them", disk.events());
            tally.states += 1;
            tally.moments += usize::from(last.replace(cut.at) != Some(cut.at));
            tally.most_at_stake = tally.most_at_stake.max(disk.sectors_at_stake(cut.at));
            judge(&cut, cut.apply(disk)).with_context(|| {
                format!(
                    "power lost before event {} of {}, {} sectors at stake (seed {}; repeat with {}={cut})",
                    cut.at,
                    disk.events(),
                    disk.sectors_at_stake(cut.at),
                    self.seed,
                    Self::VARIABLE
                )
            })?;
        }
        Ok(tally)
    }
}

/// At most `count` subsets of so many sectors.
fn states(rng: &mut Rng, sectors: usize, count: usize) -> Vec<Lands> {
    let subsets = u32::try_from(sectors).ok().and_then(|sectors| 1_u64.checked_shl(sectors)).unwrap_or(u64::MAX);
    if subsets <= count as u64 {
        return (0..subsets).map(Lands::Bits).collect();
    }
    // More than one sector here, unless no state was asked for.
    let some = rng.usize(..=sectors);
    let mut states = vec![Lands::None, Lands::All, Lands::First(some), Lands::First(sectors.saturating_sub(1))];
    states.truncate(count);
    states.extend((states.len()..count).map(|_| Lands::Random(rng.u64(..))));
    states
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_image::Disk;
    use longrun_layout::Bytes;
    use std::collections::BTreeSet;

    fn written() -> MemoryDisk {
        let disk = MemoryDisk::new(vec![0; 1 << 16]);
        for number in 0..3_u8 {
            disk.write(Bytes(u64::from(number) * 4096), &[number + 1; 1536]).unwrap();
            disk.write(Bytes(u64::from(number) * 4096 + 40_960), &[number + 1; 512]).unwrap();
            disk.flush().unwrap();
        }
        disk
    }

    #[test]
    fn all_subsets_of_a_few_sectors_are_made() {
        let disk = written();
        let mut seen = BTreeSet::new();
        let tally = Cuts::flushes(1, 16).judge(&disk, |_, state| {
            seen.insert(state.content());
            Ok(())
        });
        // Before each of three flushes four sectors are at stake; after the last event none.
        assert_eq!(tally.unwrap(), Tally { moments: 4, states: 3 * 16 + 1, most_at_stake: 4 });
        // The last states with nothing and everything are those of the neighbours.
        assert_eq!(seen.len(), 3 * 16 - 2);
    }

    #[test]
    fn a_bad_state_is_named_and_its_name_repeats_it() {
        let disk = written();
        let torn = |state: &MemoryDisk| {
            let content = state.content();
            content[0] != content[512]
        };
        let error = Cuts::every(5, 8).judge(&disk, |_, state| {
            ensure!(!torn(&state), "torn");
            Ok(())
        });
        let text = format!("{:#}", error.unwrap_err());
        let name = text.split("LONGRUN_CUT=").nth(1).unwrap().split(')').next().unwrap();
        assert!(torn(&name.parse::<Cut>().unwrap().apply(&disk)), "{text}");
        for lands in [Lands::None, Lands::All, Lands::First(3), Lands::Bits(9), Lands::Random(77)] {
            let cut = Cut { at: 4, lands };
            assert_eq!(cut.to_string().parse::<Cut>().unwrap(), cut);
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_cuts() {
        let disk = written();
        let cuts = Cuts::some(9, 4, 6).of(&disk);
        assert_eq!(cuts, Cuts::some(9, 4, 6).of(&disk));
        assert_ne!(cuts, Cuts::some(10, 4, 6).of(&disk));
        assert!(cuts.is_sorted_by_key(|cut| cut.at));
    }
}
