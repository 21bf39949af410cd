use super::*;
use crate::{DiskKind, DiskPolicy, Duty};
use proptest::prelude::*;

const QUIET: Duration = Duration::from_millis(100);
const CHUNK: Bytes = Bytes(1 << 20);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn foreign(bytes: u64) -> Signs {
    Signs { foreign: Bytes(bytes), ..Signs::default() }
}

/// What became of a mover whose chunks take `chunk` each, beside somebody whose requests come at `arrivals`.
struct Outcome {
    worked: Duration,
    /// Requests that came while a chunk was under way.
    met: usize,
    law: Law,
}

fn simulate(rules: Rules, chunk: Duration, arrivals: &[Duration], end: Duration) -> Outcome {
    let mut law = Law::new(rules);
    let (mut now, mut looked, mut worked, mut met) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
    while now < end {
        let between = |from: Duration, to: Duration| arrivals.iter().filter(|at| **at > from && **at <= to).count();
        let signs = foreign(between(looked, now) as u64 * 4096);
        looked = now;
        match law.judge(now, &signs) {
            Permission::Go => {
                met += between(now, now + chunk);
                worked += chunk;
                now += chunk;
            }
            Permission::Wait(time) => now += time,
        }
    }
    Outcome { worked, met, law }
}

#[test]
fn on_a_device_that_nobody_else_uses_work_takes_nearly_all_of_the_time() {
    let end = ms(60_000);
    let outcome = simulate(Rules::of(Pace::Invisible, QUIET), ms(12), &[], end);
    assert!(outcome.worked > end.mul_f64(0.96) && outcome.worked < end.mul_f64(0.98), "{:?}", outcome.worked);
    assert_eq!((outcome.law.pauses(), outcome.law.time_paused()), (0, Duration::ZERO));
}

#[test]
fn work_takes_no_larger_share_of_the_time_than_it_may() {
    let end = ms(60_000);
    for (pace, percent) in [(Pace::Invisible, 50), (Pace::Balanced, 25), (Pace::Fast, 10), (Pace::Fast, 2)] {
        let rules = Rules::of(pace, QUIET).at_most(Duty(percent));
        for chunk in [ms(12), ms(200)] {
            let worked = simulate(rules, chunk, &[], end).worked.as_secs_f64() / end.as_secs_f64();
            let may = f64::from(percent) / 100.0;
            assert!(worked > may * 0.9 - 0.005 && worked < may * 1.1 + 0.005, "{pace} {percent} % {chunk:?}: {worked}");
        }
    }
}

#[test]
fn in_a_long_rest_whoever_waits_can_ask_and_others_are_noticed() {
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET).at_most(Duty(1)));
    assert_eq!(law.judge(ms(0), &Signs::default()), Permission::Go);
    assert_eq!(law.judge(ms(100), &Signs::default()), Permission::Wait(ms(1000)));
    assert_eq!(law.judge(ms(1100), &Signs::default()), Permission::Wait(ms(1000)));
    law.judge(ms(2100), &foreign(4096));
    assert_eq!(law.pause(), Some(Pause::Foreign));
}

#[test]
fn a_long_time_without_a_question_counts_as_little_work() {
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET).at_most(Duty(50)));
    assert_eq!(law.judge(ms(0), &Signs::default()), Permission::Go);
    assert_eq!(law.judge(ms(600_000), &Signs::default()), Permission::Wait(ms(1000)));
    assert_eq!(law.judge(ms(601_000), &Signs::default()), Permission::Go);
}

#[test]
fn beside_steady_foreign_io_no_chunk_is_moved() {
    let arrivals: Vec<Duration> = (0..5000).map(|n| ms(4 * n + 1)).collect();
    let outcome = simulate(Rules::of(Pace::Invisible, QUIET), ms(12), &arrivals, ms(20_000));
    assert!(outcome.met <= 4, "{} requests met a chunk", outcome.met);
    assert!(outcome.law.time_paused() > ms(19_900));
}

#[test]
fn whoever_comes_a_few_times_a_second_meets_work_ever_less() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut at = Duration::ZERO;
    let arrivals: Vec<Duration> = std::iter::repeat_with(|| {
        at += Duration::from_secs_f64(-0.25 * (1.0 - random.f64()).ln());
        at
    })
    .take(1200)
    .collect();
    let end = *arrivals.last().unwrap();
    let outcome = simulate(Rules::of(Pace::Invisible, QUIET), ms(12), &arrivals, end);
    assert!(outcome.met < 12, "{} of 1200 requests met a chunk", outcome.met);
    // Without a growing quiet time every pause of a tenth of a second is taken for leave.
    let fixed = Rules { quiet_most: QUIET, ..Rules::of(Pace::Invisible, QUIET) };
    assert!(simulate(fixed, ms(12), &arrivals, end).met > 5 * outcome.met.max(1));
}

#[test]
fn on_a_hard_disk_whoever_comes_a_few_times_a_second_meets_work_hardly_more_than_once() {
    let quiet = |kind| DiskPolicy::of(kind).quiet;
    let met = |quiet: Duration| -> usize {
        let one = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut at = ms(1500);
            let arrivals: Vec<Duration> = std::iter::repeat_with(|| {
                at += Duration::from_secs_f64(-0.25 * (1.0 - random.f64()).ln());
                at
            })
            .take(40)
            .collect();
            simulate(Rules::of(Pace::Invisible, quiet), ms(12), &arrivals, *arrivals.last().unwrap()).met
        };
        (0..100).map(one).sum()
    };
    // Of 4000 requests, 5 in 100 would show in what 95 of 100 take at most.
    assert!(met(quiet(DiskKind::Rotational)) < 160, "{}", met(quiet(DiskKind::Rotational)));
    assert!(met(quiet(DiskKind::Virtual)) > 200, "{}", met(quiet(DiskKind::Virtual)));
}

#[test]
fn the_quiet_time_doubles_with_interruptions_up_to_its_bound_and_halves_in_calm() {
    let mut law = Law::new(Rules { duty: Duty::ALL, ..Rules::of(Pace::Invisible, QUIET) });
    let (mut now, mut seen) = (Duration::ZERO, Vec::new());
    law.judge(now, &Signs::default());
    for _ in 0..6 {
        now += ms(1);
        law.judge(now, &foreign(1));
        seen.push(law.quiet().as_millis());
        while let Permission::Wait(time) = law.judge(now, &Signs::default()) {
            now += time;
        }
    }
    assert_eq!(seen, [200, 400, 800, 1600, 2000, 2000]);
    assert_eq!(law.pauses(), 6);
    for _ in 0..60_000 {
        now += ms(10);
        assert_eq!(law.judge(now, &Signs::default()), Permission::Go);
    }
    assert_eq!(law.quiet(), QUIET);
}

#[test]
fn other_rules_hold_at_once_and_a_pause_goes_on_under_them() {
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET));
    law.judge(ms(0), &foreign(1));
    law.set_rules(Rules::of(Pace::Invisible, 5 * QUIET));
    assert!(
        matches!(law.judge(ms(200), &Signs::default()), Permission::Wait(_)),
        "quiet for longer than the old rules want"
    );
    assert_eq!((law.judge(ms(501), &Signs::default()), law.pauses()), (Permission::Go, 1));
}

#[test]
fn that_somebody_waits_makes_a_quiet_time_longer_but_is_no_reason_to_pause() {
    let pressed = Signs { pressed: true, ..Signs::default() };
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET));
    assert_eq!(law.judge(ms(0), &pressed), Permission::Go);
    let mut pause = |from: u64, signs: &Signs| {
        law.judge(ms(from), &foreign(1));
        let wanted = law.quiet();
        let mut now = ms(from);
        while let Permission::Wait(time) = law.judge(now, signs) {
            now += time;
        }
        (now - ms(from)).as_secs_f64() / wanted.as_secs_f64()
    };
    assert_eq!(pause(10_000, &pressed), 2.0, "even when somebody waits all the time");
    assert_eq!(pause(20_000, &Signs::default()), 1.0, "what was seen in one pause is not carried into the next");
}

#[test]
fn requests_under_way_matter_only_while_work_is_paused() {
    let under_way = Signs { in_flight: 1, ..Signs::default() };
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET));
    assert_eq!(law.judge(ms(0), &under_way), Permission::Go, "they may be ours");
    assert!(matches!(law.judge(ms(1), &foreign(1)), Permission::Wait(_)));
    let mut now = ms(1);
    for _ in 0..1000 {
        now += ms(10);
        assert_ne!(law.judge(now, &under_way), Permission::Go, "ours are done by now");
    }
}

#[test]
fn whatever_holds_work_up_is_named_and_ends_with_its_reason() {
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET));
    let battery = Signs { hold: Some(Pause::Battery), ..Signs::default() };
    assert!(matches!(law.judge(ms(0), &battery), Permission::Wait(_)));
    assert_eq!(law.pause(), Some(Pause::Battery));
    assert!(matches!(law.judge(ms(10), &foreign(1)), Permission::Wait(_)));
    assert_eq!(law.pause(), Some(Pause::Foreign));
    assert_eq!(law.judge(ms(110), &Signs::default()), Permission::Go);
    assert_eq!((law.pause(), law.pauses(), law.time_paused()), (None, 1, ms(110)));
}

#[test]
fn the_balanced_pace_goes_on_beside_a_light_load_and_the_fast_one_beside_any() {
    let arrivals: Vec<Duration> = (0..2000).map(|n| ms(10 * n + 1)).collect();
    let share = |pace| {
        let outcome = simulate(Rules::of(pace, QUIET), ms(12), &arrivals, ms(20_000));
        outcome.worked.as_secs_f64() / 20.0
    };
    assert!(share(Pace::Invisible) < 0.01);
    assert!(share(Pace::Balanced) > 0.95, "4 KiB in 10 ms are little");
    let mut law = Law::new(Rules::of(Pace::Balanced, QUIET));
    assert!(matches!(law.judge(ms(0), &foreign(CHUNK.0)), Permission::Wait(_)), "as much as we move is not");
    let mut law = Law::new(Rules::of(Pace::Fast, QUIET));
    assert_eq!(law.judge(ms(0), &foreign(u64::MAX)), Permission::Go);
}

proptest! {
    #[test]
    fn no_sign_is_answered_by_leave_and_quiet_always_ends_a_pause(
        steps in prop::collection::vec((1u64..400, 0u64..3, 0u64..2), 1..200),
    ) {
        let rules = Rules::of(Pace::Invisible, QUIET);
        let mut law = Law::new(rules);
        let mut now = Duration::ZERO;
        for (gap, bytes, in_flight) in steps {
            now += ms(gap);
            let verdict = law.judge(now, &Signs { foreign: Bytes(bytes), in_flight, ..Signs::default() });
            prop_assert!(bytes == 0 || verdict != Permission::Go);
            prop_assert!(law.quiet() >= rules.quiet_first && law.quiet() <= rules.quiet_most);
            if let Permission::Wait(time) = verdict {
                prop_assert!(time > Duration::ZERO && time <= rules.quiet_most / 10);
            }
        }
        let quiet_since = now;
        while let Permission::Wait(time) = law.judge(now, &Signs::default()) {
            now += time;
            prop_assert!(now - quiet_since <= rules.quiet_most + rules.quiet_most / 10);
        }
        prop_assert!(law.time_paused() <= now);
    }
}

#[test]
fn a_pause_that_nobody_waits_in_is_not_told_for_ever() {
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET));
    law.judge(ms(0), &foreign(4096));
    assert_eq!((law.pause_at(ms(0)), law.pause_at(ms(4000))), (Some(Pause::Foreign), Some(Pause::Foreign)));
    assert_eq!((law.pause_at(ms(60_000)), law.pause()), (None, Some(Pause::Foreign)));
    law.judge(ms(60_000), &foreign(4096));
    assert_eq!(law.pause_at(ms(60_000)), Some(Pause::Foreign));
}

#[test]
fn what_the_account_refuses_waits_and_goes_on_at_once_when_it_does_not() {
    let mut law = Law::new(Rules::of(Pace::Invisible, QUIET));
    let refused = Signs { refused: Some(ms(7)), ..Signs::default() };
    assert_eq!(law.judge(ms(0), &Signs::default()), Permission::Go);
    assert_eq!(law.judge(ms(10), &refused), Permission::Wait(ms(7)));
    assert_eq!((law.pause(), law.pauses()), (None, 0), "a gap for one request is no pause");
    assert_eq!(law.judge(ms(17), &Signs::default()), Permission::Go);
    for now in (20..400).step_by(7) {
        assert_eq!(law.judge(ms(now), &refused), Permission::Wait(ms(7)));
    }
    assert_eq!((law.pause(), law.pauses()), (Some(Pause::Foreign), 1));
    assert!(law.time_paused() > ms(100), "{:?}", law.time_paused());
    assert_eq!(law.judge(ms(400), &Signs::default()), Permission::Go, "without a quiet time");
    law.judge(ms(405), &refused);
    assert_eq!((law.pause(), law.pauses()), (Some(Pause::Foreign), 1), "5 ms of work do not end the pause");
    // Another reason comes first.
    let battery = Signs { hold: Some(Pause::Battery), ..refused };
    law.judge(ms(410), &battery);
    assert_eq!(law.pause(), Some(Pause::Battery));
}
