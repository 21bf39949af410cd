use super::*;
use crate::Pace;
use longrun_engine::Permission;

const QUIET: Duration = Duration::from_millis(50);

/// A device that serves one request at a time, and those who use it beside us.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// Requests of others a second, at random times.
    rate: f64,
    /// How long the device needs for one of them, and for a piece of ours, in seconds.
    request: f64,
    piece: f64,
    /// Of the requests that arrive during a piece only this share waits for it: the others use another channel.
    shared: f64,
    /// How much longer the first request after a piece takes, in seconds.
    after: f64,
    /// By how much the device's own time varies, as a factor up or down.
    jitter: f64,
    /// How long others use it, of the time that is simulated.
    seconds: f64,
}

const SSD: Scene =
    Scene { rate: 100.0, request: 150e-6, piece: 1e-3, shared: 1.0, after: 0.0, jitter: 0.2, seconds: 120.0 };

#[derive(Debug, Default)]
struct Outcome {
    /// The mean and the 99th percentile of the requests' times, in seconds.
    mean: f64,
    slowest: f64,
    /// The share of the time in which pieces were moved.
    worked: f64,
    /// From the first request after silence to the first refusal, in seconds.
    noticed: Option<f64>,
}

/// Asks, and begins the piece if it may be.
fn permission(account: &mut Account, now: Duration) -> Permission {
    match account.refuses(now) {
        Some(time) => Permission::Wait(time),
        None => {
            account.begin(now);
            Permission::Go
        }
    }
}

/// The requests of others: when each arrives, and how long the device alone needs.
fn arrivals(scene: &Scene, from: f64, random: &mut fastrand::Rng) -> Vec<(f64, f64)> {
    let mut at = from;
    let mut all = Vec::new();
    loop {
        at += -(1.0 - random.f64()).ln() / scene.rate;
        if at > from + scene.seconds {
            return all;
        }
        let jitter = 1.0 + scene.jitter * (random.f64() * 2.0 - 1.0);
        all.push((at, scene.request * jitter));
    }
}

/// Serves the requests in the order of their arrival, beside a mover that asks `account`, if there is one.
fn simulate(scene: &Scene, mut account: Option<Account>, from: f64) -> Outcome {
    let mut random = fastrand::Rng::with_seed(7);
    let requests = arrivals(scene, from, &mut random);
    let end = from + scene.seconds;
    let (mut now, mut free, mut worked, mut next) = (0.0f64, 0.0f64, 0.0f64, 0);
    let (mut times, mut noticed, mut away) = (Vec::new(), None, false);
    let mut bounds = [Bounds { slow: 0, late: u64::MAX }; KINDS];
    while now < end {
        let permission = account.as_mut().map_or(Permission::Wait(Duration::from_millis(10)), |account| {
            permission(account, Duration::from_secs_f64(now))
        });
        let (until, busy) = match permission {
            Permission::Go => (now + scene.piece, true),
            Permission::Wait(time) => (now + time.as_secs_f64().max(1e-5), false),
        };
        if !busy && noticed.is_none() && next > 0 {
            noticed = Some(now - from);
        }
        away |= busy;
        worked += until.min(end) - now;
        worked -= if busy { 0.0 } else { until.min(end) - now };
        let own = u64::from(busy);
        let mut seen = Requests { own, own_squares: own as f64 * scene.piece * scene.piece, ..Requests::default() };
        while let Some((arrived, needs)) = requests.get(next).filter(|(arrived, _)| *arrived < until) {
            let waits = busy && random.f64() < scene.shared;
            let start = if waits { free.max(until) } else { free.max(*arrived) };
            let first = std::mem::take(&mut away);
            free = start + needs + if first { scene.after } else { 0.0 };
            let time = free - arrived;
            times.push(time);
            seen.asked += 1;
            seen.since_last = Duration::from_secs_f64(until - arrived);
            let kind = &mut seen.completed[0];
            let met = match account.as_ref().map(Account::work) {
                Some(Work::UnderWay) => &mut kind.met,
                Some(_) if first => &mut kind.after,
                Some(Work::GivesWay) => &mut kind.between,
                Some(Work::Rests) | None => &mut kind.alone,
            };
            let nanoseconds = (time * 1e9) as u64;
            met.requests += 1;
            met.total += nanoseconds;
            met.slow += u64::from(nanoseconds > bounds[0].slow);
            met.late += u64::from(nanoseconds > bounds[0].late);
            next += 1;
        }
        now = until;
        if let Some(account) = &mut account {
            account.observe(Duration::from_secs_f64(now), &seen);
            bounds = account.bounds();
        }
    }
    times.sort_by(f64::total_cmp);
    let slowest = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    Outcome { mean, slowest, worked: worked / end, noticed }
}

fn account(pace: Pace) -> Account {
    Account::new(Promise::of(pace).unwrap(), QUIET)
}

/// What becomes of the requests beside us, as factors of their times alone; and the share of the time that we work.
fn beside(scene: &Scene, pace: Pace) -> (f64, f64, f64) {
    let alone = simulate(scene, None, 0.0);
    let beside = simulate(scene, Some(account(pace)), 0.0);
    (beside.mean / alone.mean, beside.slowest / alone.slowest, beside.worked)
}

#[test]
fn others_become_no_slower_than_promised_and_the_work_goes_on() {
    let hdd = Scene { rate: 10.0, request: 12e-3, piece: 12e-3, shared: 1.0, after: 0.0, jitter: 0.7, seconds: 900.0 };
    let cloud =
        Scene { rate: 500.0, request: 500e-6, piece: 2e-3, shared: 0.3, after: 0.0, jitter: 0.1, seconds: 120.0 };
    for (name, scene, least) in [
        ("an SSD, 5 reads a second", Scene { rate: 5.0, seconds: 600.0, ..SSD }, 0.005),
        ("20 reads", Scene { rate: 20.0, seconds: 300.0, ..SSD }, 0.003),
        ("100 reads", SSD, 0.002),
        ("1000 reads, small pieces", Scene { rate: 1000.0, piece: 100e-6, ..SSD }, 0.04),
        ("1000 reads, most on other channels", Scene { rate: 1000.0, shared: 0.02, ..SSD }, 0.15),
        ("a hard disk, 10 reads", hdd, 0.03),
        ("a hard disk whose arm goes a longer way after us", Scene { rate: 4.0, after: 4e-3, ..hdd }, 0.006),
        ("a cloud volume, 500 reads", cloud, 0.01),
    ] {
        let (mean, slowest, worked) = beside(&scene, Pace::Invisible);
        assert!(mean <= 1.03 && slowest < 1.35 && worked >= least, "{name}: {mean}, {slowest}, worked {worked}");
        let (mean, _, more) = beside(&scene, Pace::Balanced);
        assert!(mean <= 1.12 && more > worked * 0.9, "{name}, balanced: {mean}, worked {more}");
    }
}

#[test]
fn a_device_that_nobody_else_uses_is_used_all_the_time_also_after_others_have_gone() {
    let nobody = Scene { rate: 1e-9, seconds: 10.0, ..SSD };
    assert!(simulate(&nobody, Some(account(Pace::Invisible)), 0.0).worked > 0.999);
    // They come at once, stay for 10 s, and go: what the account owes them then does not matter.
    let burst = Scene { rate: 3000.0, seconds: 10.0, ..SSD };
    let mut account = account(Pace::Invisible);
    let during = simulate(&burst, Some(account.clone()), 0.0);
    assert!(during.worked < 0.05, "{during:?}");
    account.piece = SSD.piece;
    account.observe(Duration::from_secs(1), &Requests { asked: 3000, ..Requests::default() });
    account.credit = -1.0;
    assert_ne!(permission(&mut account, Duration::from_millis(1001)), Permission::Go);
    assert_eq!(permission(&mut account, Duration::from_millis(1060)), Permission::Go);
}

#[test]
fn a_burst_after_silence_is_refused_at_the_next_question() {
    for (pace, piece) in [(Pace::Invisible, 1e-3), (Pace::Balanced, 1e-3), (Pace::Invisible, 12e-3)] {
        let burst = Scene { rate: 2000.0, piece, seconds: 2.0, ..SSD };
        let noticed = simulate(&burst, Some(account(pace)), 30.0).noticed;
        assert!(noticed.is_some_and(|time| time <= piece * 1.01), "{pace}, pieces of {piece} s: {noticed:?}");
    }
}

#[test]
fn what_others_wait_for_a_slow_disk_is_not_charged_to_us() {
    // The device is twice as slow from the middle on, whether we work or not.
    let mut account = account(Pace::Invisible);
    let read = |requests, each: u64| Times { requests, total: requests * each, ..Times::default() };
    for second in 0..120u64 {
        let each = if second < 60 { 150_000 } else { 300_000 };
        let mut seen = Requests { asked: 100, ..Requests::default() };
        seen.completed[0] =
            Completed { alone: read(50, each), met: read(25, each), between: read(20, each), after: read(5, each) };
        account.observe(Duration::from_secs(second), &seen);
    }
    let slowdown = account.balance().slowdown().unwrap();
    assert!(slowdown < 0.05, "only while the change was not learned: {slowdown}");
}

#[test]
fn the_writes_of_kernel_threads_are_charged_by_the_share_that_was_not_ours() {
    let charged = |kind: usize, foreign_writes, others_write: bool| {
        let mut account = account(Pace::Invisible);
        let of = |requests, each: u64| Times { requests, total: requests * each, ..Times::default() };
        let mut seen = Requests { foreign_writes, ..Requests::default() };
        seen.completed[kind] = Completed { alone: of(100, 1_000_000), met: of(100, 3_000_000), ..Completed::default() };
        if others_write {
            seen.completed[SIZES].alone = of(1, 1000);
        }
        account.observe(Duration::from_secs(1), &seen);
        (account.balance().charged_seconds * 1000.0).round()
    };
    assert_eq!(charged(0, 0.0, false), 200.0, "reads are identified by their I/O class");
    assert_eq!((charged(SIZES, 0.0, false), charged(SIZES, 0.5, false)), (0.0, 100.0));
    assert_eq!(charged(2 * SIZES, 1.0, false), 0.0, "the journal is written for us");
    assert_eq!(charged(2 * SIZES, 1.0, true), 200.0, "for others");
}

#[test]
fn the_work_goes_on_for_the_least_share_that_was_asked_for_and_with_none_it_waits() {
    // So many come that the account never covers a piece.
    let full = Scene { rate: 3000.0, request: 300e-6, seconds: 120.0, ..SSD };
    let worked = |least: &str| {
        let promise = Promise { least: least.parse().unwrap(), mean: 0.0, ..Promise::of(Pace::Invisible).unwrap() };
        simulate(&full, Some(Account::new(promise, QUIET)), 0.0).worked
    };
    let (none, half, five) = (worked("0%"), worked("0.5%"), worked("5%"));
    assert!(none < 0.001, "{none}");
    assert!((0.004..0.007).contains(&half), "{half}");
    assert!((0.04..0.06).contains(&five), "{five}");
}

#[test]
fn no_piece_is_begun_beside_others_before_it_is_known_how_long_their_requests_take() {
    let mut account = account(Pace::Invisible);
    let read = |number| Times { requests: number, total: number * 150_000, ..Times::default() };
    let see = |account: &mut Account, at: u64, alone: Times| {
        let mut seen = Requests { asked: 1, since_last: Duration::from_millis(20), ..Requests::default() };
        seen.completed[0] = Completed { alone, ..Completed::default() };
        account.observe(Duration::from_millis(at), &seen);
    };
    // Nobody tells how long they take.
    for at in (0..2000).step_by(50) {
        see(&mut account, at, Times::default());
        assert_ne!(permission(&mut account, Duration::from_millis(at + 25)), Permission::Go, "after {at} ms");
    }
    see(&mut account, 2000, read(10));
    let begun = (2050..3000).step_by(50).any(|at| {
        see(&mut account, at, Times::default());
        permission(&mut account, Duration::from_millis(at + 25)) == Permission::Go
    });
    assert!(begun);
}

#[test]
fn what_the_journal_writes_for_us_is_charged_to_those_who_wait_for_durability() {
    let mut account = account(Pace::Invisible);
    let of = |requests, each: u64| Times { requests, total: requests * each, ..Times::default() };
    let mut seen = Requests::default();
    seen.completed[SYNC] =
        Completed { alone: of(100, 600_000), after: of(20, 900_000), between: of(50, 600_000), ..Completed::default() };
    account.observe(Duration::from_secs(1), &seen);
    let balance = account.balance();
    assert!((balance.charged_seconds - 20.0 * 300e-6).abs() < 1e-9, "{balance:?}");
    assert!((balance.usual_seconds - 170.0 * 600e-6).abs() < 1e-9, "{balance:?}");
    // They are no requests to the device: neither their number nor their time says how busy that is.
    assert_eq!((balance.requests, balance.met, account.usual_time()), (0, 0, 0.0));
    assert!(account.first_after() > 100e-6, "the next piece must cover that, too");
}
