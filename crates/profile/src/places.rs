//! Where is read, and in which order. Pure.

use longrun_layout::Bytes;

/// The number of places. More make no verdict clearer, and take longer.
pub const PLACES: usize = 16;
/// The size of a read.
pub const REQUEST: Bytes = Bytes(1 << 20);
/// How much is measured at a place in one pass. One request before it, which is not measured, brings the head there.
pub const MEASURED: Bytes = Bytes(8 << 20);
/// The room that a place takes.
const ROOM: u64 = REQUEST.0 + MEASURED.0;
/// The passes that are made in any case.
const PASSES: usize = 3;
/// The most passes, while places are not measured twice alike.
const MOST_PASSES: usize = 9;

/// The places of a device, and the way through them: each lies in one of sixteen equal parts of it.
#[derive(Clone, Debug)]
pub struct Tour {
    /// The size of a part.
    part: u64,
    random: fastrand::Rng,
}

impl Tour {
    /// The smallest device that has room for all places twice.
    pub const LEAST: Bytes = Bytes(ROOM * PLACES as u64 * 2);

    /// Of a device of `bytes`; `None` when it is smaller than [`Self::LEAST`]. `seed` decides on the order.
    #[must_use]
    pub fn of(bytes: Bytes, seed: u64) -> Option<Self> {
        let part = bytes.0 / PLACES as u64;
        (bytes >= Self::LEAST).then(|| Self { part, random: fastrand::Rng::with_seed(seed) })
    }

    /// Where a part begins.
    #[must_use]
    pub fn start(&self, nth: usize) -> Bytes {
        Bytes(self.part * nth as u64)
    }

    /// Where is read in a part in a pass, counted from 0: each time elsewhere if there is room, since what was read before may lie in
    /// the memory of the disk.
    #[must_use]
    pub fn place(&self, nth: usize, pass: usize) -> Bytes {
        let at = self.start(nth).0 + ROOM * (pass as u64 % (self.part / ROOM).max(1));
        // Direct reads begin at blocks of the device. Downwards, so that it ends within the device.
        Bytes(at & !(REQUEST.0 - 1))
    }

    /// The order of the next pass. Each pass has another one: what others do meanwhile, and what the way from place to place
    /// costs, shall not look like a gradient.
    pub fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..PLACES).collect();
        self.random.shuffle(&mut order);
        order
    }

    /// Whether another pass is needed after `passes`; `settled` says whether each place was measured twice alike.
    #[must_use]
    pub fn goes_on(passes: usize, settled: bool) -> bool {
        passes < PASSES || (!settled && passes < MOST_PASSES)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_lie_in_their_parts_and_no_two_overlap(bytes in Tour::LEAST.0..1 << 45, seed: u64) {
            let mut tour = Tour::of(Bytes(bytes), seed).unwrap();
            let passes = (tour.part / ROOM).min(9) as usize;
            let mut all: Vec<u64> =
                (0..PLACES).flat_map(|nth| (0..passes).map(move |pass| (nth, pass))).map(|(nth, pass)| tour.place(nth, pass).0).collect();
            all.sort_unstable();
            prop_assert!(all.windows(2).all(|pair| pair[0] + ROOM <= pair[1]));
            prop_assert!(all.iter().all(|at| at % REQUEST.0 == 0 && at + ROOM <= bytes));
            let mut order = tour.order();
            order.sort_unstable();
            prop_assert_eq!(order, (0..PLACES).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_device_without_room_has_no_places_and_passes_end() {
        assert!(Tour::of(Bytes(Tour::LEAST.0 - 1), 1).is_none());
        assert!(Tour::goes_on(2, true) && !Tour::goes_on(3, true));
        assert!(Tour::goes_on(8, false) && !Tour::goes_on(9, false));
    }
}
