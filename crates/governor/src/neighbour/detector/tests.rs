use super::*;
use proptest::prelude::*;

/// Times of a disk in milliseconds: logarithmically normal with a given middle, and now and then a long stall.
struct Disk {
    random: fastrand::Rng,
    middle: f64,
    spread: f64,
    stalls: f64,
}

impl Disk {
    /// The quiet disk of the measurements: half of the probes within 3.8 ms, nine tenths within 6.1 ms.
    fn quiet(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), middle: 3.8, spread: 0.37, stalls: 0.01 }
    }

    /// With a neighbour: 12.6 and 15.4 ms.
    fn shared(self) -> Self {
        Self { middle: 12.6, spread: 0.2, ..self }
    }

    fn probe(&mut self) -> Duration {
        // The sum of twelve uniform numbers is as good as normal.
        let normal: f64 = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
        let stall = if self.random.f64() < self.stalls { 10.0 + 90.0 * self.random.f64() } else { 0.0 };
        Duration::from_secs_f64((self.middle * (self.spread * normal).exp() + stall) / 1000.0)
    }
}

/// Probes for `time`; the shares of the time in doubt and with somebody found, how often somebody was newly found, and when
/// at first.
fn watch(detector: &mut Detector, disk: &mut Disk, time: Duration) -> (f64, f64, u32, Option<Duration>) {
    let (mut now, mut doubt, mut found, mut times, mut first) = (Duration::ZERO, 0.0, 0.0, 0, None);
    while now < time {
        let before = detector.finding();
        let took = disk.probe();
        let finding = detector.probed(took);
        if finding == Finding::Somebody && before != Finding::Somebody {
            times += 1;
            first = first.or(Some(now + took));
        }
        let step = took + detector.interval();
        match finding {
            Finding::Nobody => {}
            Finding::Doubt => doubt += step.as_secs_f64(),
            Finding::Somebody => found += step.as_secs_f64(),
        }
        now += step;
    }
    (doubt / time.as_secs_f64(), found / time.as_secs_f64(), times, first)
}

#[test]
fn on_a_quiet_disk_with_stalls_hardly_ever_somebody_is_found() {
    for seed in 0..10 {
        let (doubt, found, times, _) =
            watch(&mut Detector::default(), &mut Disk::quiet(seed), Duration::from_secs(1200));
        assert!(found <= 0.005, "seed {seed}: {found} of the time, {times} times");
        assert!(doubt < 0.04, "seed {seed}: in doubt for {doubt} of the time");
    }
}

#[test]
fn a_neighbour_is_found_within_half_a_second_and_forgotten_soon_after_it_left() {
    let mut late = 0;
    for seed in 0..200 {
        let mut detector = Detector::default();
        let (mut quiet, mut shared) = (Disk::quiet(seed), Disk::quiet(seed + 1000).shared());
        watch(&mut detector, &mut quiet, Duration::from_secs(20));
        // The first probe after it came is up to an interval away.
        let phase = INTERVAL.mul_f64(fastrand::Rng::with_seed(seed).f64());
        let (_, _, _, first) = watch(&mut detector, &mut shared, Duration::from_secs(30));
        late += u32::from(first.is_none_or(|first| phase + first > Duration::from_millis(500)));
        assert_eq!(detector.finding(), Finding::Somebody, "seed {seed}");
        watch(&mut detector, &mut quiet, Duration::from_secs(3));
        assert_ne!(detector.finding(), Finding::Somebody, "seed {seed}");
    }
    assert!(late <= 10, "{late} of 200 found too late");
}

#[test]
fn a_disk_that_has_become_slower_for_good_is_not_taken_for_shared_for_ever() {
    let mut detector = Detector::default();
    watch(&mut detector, &mut Disk::quiet(1), Duration::from_secs(20));
    let mut slower = Disk { stalls: 0.0, ..Disk::quiet(2).shared() };
    watch(&mut detector, &mut slower, Duration::from_secs(1200));
    assert_eq!(detector.finding(), Finding::Nobody);
    assert!(detector.baseline().unwrap() > Duration::from_millis(10));
}

proptest! {
    #[test]
    fn a_constant_disk_is_never_suspected_however_slow_it_is(micros in 1u64..1_000_000, probes in 1usize..300) {
        let mut detector = Detector::default();
        for _ in 0..probes {
            prop_assert_eq!(detector.probed(Duration::from_micros(micros)), Finding::Nobody);
        }
    }

    #[test]
    fn fewer_slow_probes_than_most_of_those_judged_find_nobody(
        slow in prop::collection::vec(0usize..500, 0..60),
    ) {
        let mut detector = Detector::default();
        for at in 0..500 {
            // At most two of any five in a row.
            let is_slow = at % 5 < 2 && slow.contains(&at) && at > LEAST_KNOWN;
            let finding = detector.probed(Duration::from_millis(if is_slow { 50 } else { 5 }));
            prop_assert_ne!(finding, Finding::Somebody);
        }
    }
}
