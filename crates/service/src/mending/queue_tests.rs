//! The queue by cases.

use super::*;
use longrun_sys::FileHandle;

const SECOND: u64 = 1_000_000_000;

fn key(volume: u32, number: u8) -> FileKey {
    let handle = FileHandle::new(1, &[number, 0, 0, 0, 1, 0, 0, 0]).unwrap();
    FileKey { volume: DeviceNumber { major: 7, minor: volume }, handle }
}

fn candidate(volume: u32, number: u8, excess: u64, mebibytes: u64) -> Candidate {
    Candidate { file: key(volume, number), path: None, excess, size: Some(Bytes(mebibytes << 20)) }
}

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * SECOND)
}

fn settings() -> MendSettings {
    MendSettings {
        quiet: Duration::from_secs(5),
        daily_budget: Bytes(1 << 30),
        resting: false,
        longest_queue: 3,
        ..MendSettings::default()
    }
}

fn mends(next: Next) -> Job {
    match next {
        Next::Mend(job) => *job,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_file_with_the_most_gain_per_byte_comes_first() {
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 10, 100), at(0), &settings());
    queue.offer(candidate(0, 2, 10, 1), at(0), &settings());
    queue.offer(candidate(0, 3, 90, 100), at(0), &settings());
    let order: Vec<FileKey> = (0..3).map(|_| mends(queue.next(at(5), &settings())).candidate.file).collect();
    assert_eq!(order, [key(0, 2), key(0, 3), key(0, 1)]);
    assert_eq!(queue.next(at(5), &settings()), Next::Idle);
}

#[test]
fn a_file_waits_until_it_is_quiet_and_each_write_starts_that_time_anew() {
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 10, 1), at(0), &settings());
    queue.touched(&key(0, 1), at(3), &settings());
    assert_eq!(queue.next(at(5), &settings()), Next::Wait(Duration::from_secs(3)));
    queue.offer(candidate(0, 1, 20, 1), at(7), &settings());
    assert_eq!(queue.len(), 1, "a file waits once");
    assert_eq!(queue.next(at(8), &settings()), Next::Wait(Duration::from_secs(4)));
    assert_eq!(mends(queue.next(at(12), &settings())).candidate.excess, 20);
}

#[test]
fn a_full_queue_forgets_the_file_with_the_least_gain() {
    let mut queue = Queue::default();
    for number in 1..=3 {
        assert_eq!(queue.offer(candidate(0, number, u64::from(number), 1), at(0), &settings()), None);
    }
    assert_eq!(queue.offer(candidate(0, 4, 4, 1), at(0), &settings()), Some(key(0, 1)));
    assert_eq!(queue.offer(candidate(0, 5, 1, 1), at(0), &settings()), Some(key(0, 5)), "even the new one");
    assert_eq!((queue.len(), queue.excess()), (3, 9));
}

#[test]
fn what_was_interrupted_waits_twice_as_long_each_time_and_is_given_up_in_the_end() {
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 10, 1), at(0), &settings());
    let (mut now, mut waits) = (5, Vec::new());
    loop {
        let job = mends(queue.next(at(now), &settings()));
        if !queue.postpone(job, at(now), &settings()) {
            break;
        }
        let Next::Wait(wait) = queue.next(at(now), &settings()) else { panic!("nothing to wait for") };
        waits.push(wait.as_secs());
        now += wait.as_secs();
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640]);
    assert_eq!(queue.next(at(now), &settings()), Next::Idle);
}

#[test]
fn a_file_that_was_noticed_anew_while_it_was_worked_on_keeps_what_is_known_since() {
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 10, 1), at(0), &settings());
    let job = mends(queue.next(at(5), &settings()));
    queue.offer(candidate(0, 1, 33, 2), at(6), &settings());
    assert!(queue.postpone(job, at(6), &settings()));
    assert_eq!(queue.next(at(10), &settings()), Next::Wait(Duration::from_secs(6)));
    let again = mends(queue.next(at(16), &settings()));
    assert_eq!((again.candidate.excess, again.attempts), (33, 1));
    assert_eq!(queue.len(), 0);
}

#[test]
fn each_volume_has_its_own_daily_budget() {
    let mut queue = Queue::default();
    queue.spend(key(0, 1).volume, Bytes(1000 << 20), at(0));
    queue.offer(candidate(0, 1, 100, 100), at(0), &settings());
    queue.offer(candidate(1, 2, 1, 100), at(0), &settings());
    let first = mends(queue.next(at(5), &settings()));
    assert_eq!((first.candidate.file, first.budget), (key(1, 2), Bytes(1 << 30)));
    // 24 MiB are left to the first volume today.
    let day = 24 * 60 * 60;
    assert_eq!(queue.next(at(5), &settings()), Next::Wait(Duration::from_secs(day - 5)));
    queue.offer(candidate(0, 3, 1, 20), at(5), &settings());
    let small = mends(queue.next(at(10), &settings()));
    assert_eq!((small.candidate.file, small.budget), (key(0, 3), Bytes(24 << 20)));
    assert_eq!(mends(queue.next(at(day), &settings())).candidate.file, key(0, 1));
}

#[test]
fn a_volume_that_goes_takes_its_files_along() {
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 10, 1), at(0), &settings());
    queue.offer(candidate(1, 2, 10, 1), at(0), &settings());
    queue.forget_volume(key(0, 1).volume);
    assert_eq!(mends(queue.next(at(5), &settings())).candidate.file, key(1, 2));
    assert_eq!(queue.next(at(5), &settings()), Next::Idle);
}

/// One error ended mending of a volume until the service was started anew.
#[test]
fn where_mending_fails_a_volume_rests_longer_each_time_and_no_other_does() {
    let settings = MendSettings { longest_queue: 10, ..settings() };
    let mut queue = Queue::default();
    let start = |queue: &mut Queue, seconds| mends(queue.next(at(seconds), &settings));
    for number in 1..4 {
        queue.offer(candidate(0, number, 10, 1), at(0), &settings);
    }
    queue.offer(candidate(1, 9, 1, 100), at(0), &settings);
    let volume = key(0, 1).volume;
    let job = start(&mut queue, 5);
    assert_eq!(queue.failed(job, "out of memory", at(5), &settings), (1, Duration::from_secs(10)));
    assert_eq!(queue.trouble(volume, at(5)), None, "once is no trouble");
    assert_eq!(start(&mut queue, 6).candidate.file, key(1, 9), "the other volume is mended meanwhile");
    assert_eq!(queue.next(at(6), &settings), Next::Wait(Duration::from_secs(9)));
    let job = start(&mut queue, 15);
    assert_eq!(queue.failed(job, "out of memory", at(15), &settings), (2, Duration::from_secs(20)));
    let job = start(&mut queue, 35);
    assert_eq!(queue.failed(job, "out of memory", at(35), &settings), (3, Duration::from_secs(40)));
    let trouble = queue.trouble(volume, at(45)).unwrap();
    assert!(trouble.contains("3 times") && trouble.contains("30 s") && trouble.contains("out of memory"), "{trouble}");
    queue.worked(volume);
    assert_eq!(queue.trouble(volume, at(45)), None);
    start(&mut queue, 45);
}

#[test]
fn what_is_due_without_a_break_is_behind_and_neither_quiet_times_nor_rests_count() {
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 10, 1), at(0), &settings());
    queue.offer(candidate(0, 2, 5, 1), at(0), &settings());
    queue.next(at(1), &settings());
    assert_eq!(queue.behind(at(4)), Duration::ZERO, "nothing is due yet");
    mends(queue.next(at(10), &settings()));
    mends(queue.next(at(500), &settings()));
    assert_eq!(queue.behind(at(4000)), Duration::from_secs(3990), "from the first job on");
    assert_eq!(queue.next(at(4001), &settings()), Next::Idle);
    assert_eq!(queue.behind(at(5000)), Duration::ZERO);
    queue.offer(candidate(0, 3, 10, 1), at(5000), &settings());
    mends(queue.next(at(5010), &settings()));
    let resting = MendSettings { resting: true, ..settings() };
    queue.next(at(5020), &resting);
    assert_eq!(queue.behind(at(9999)), Duration::ZERO);
}

fn of_kind(number: u8) -> Candidate {
    Candidate { path: Some(PathBuf::from(format!("/build/{number}.o"))), ..candidate(0, number, 10, 1) }
}

/// Files of a kind that nobody keeps for a minute.
fn short_lived(queue: &mut Queue, settings: &MendSettings) {
    for number in 0..20 {
        queue.offer(of_kind(number), at(0), settings);
        mends(queue.next(at(6), settings));
    }
    while let Some(now) = queue.lives.next_look() {
        let file = queue.lives.to_look_at(now).unwrap();
        if now >= at(50) { queue.lives.gone(&file, now) } else { queue.lives.alive(&file, now) }
    }
}

#[test]
fn a_file_that_is_likely_to_be_deleted_soon_waits_and_is_not_behind() {
    let settings = MendSettings { longest_queue: 100, ..settings() };
    let mut queue = Queue::default();
    short_lived(&mut queue, &settings);
    queue.offer(of_kind(100), at(1000), &settings);
    queue.offer(candidate(0, 101, 5, 1), at(1000), &settings);
    assert_eq!(queue.waits(at(1001)), Waits { quiet: 2, ..Waits::default() });
    assert_eq!(mends(queue.next(at(1005), &settings)).candidate.file, key(0, 101), "another one is not held back");
    let Next::Wait(wait) = queue.next(at(1005), &settings) else { panic!("it is mended") };
    assert_eq!(wait.as_secs(), 51);
    assert_eq!(queue.waits(at(1005)), Waits { short_lived: 1, ..Waits::default() });
    assert_eq!(queue.behind(at(1050)), Duration::ZERO);
    // It lives on.
    queue.lives.alive(&key(0, 100), at(1057));
    assert_eq!(mends(queue.next(at(1057), &settings)).candidate.file, key(0, 100));
}

#[test]
fn a_file_that_is_reported_again_and_again_is_mended_within_an_hour_of_the_first_time() {
    let settings = MendSettings { longest_queue: 100, ..settings() };
    let mut queue = Queue::default();
    // Mended so often in a row that it would wait for an hour.
    for round in 0..12 {
        queue.lives.wait_at_most(settings.patience);
        queue.lives.mended(&key(0, 1), at(round));
    }
    let mut now = 100;
    queue.offer(of_kind(1), at(now), &settings);
    loop {
        now += 60;
        queue.offer(of_kind(1), at(now), &settings);
        now += 6;
        match queue.next(at(now), &settings) {
            Next::Mend(_) => break,
            Next::Wait(_) => assert_eq!(queue.waits(at(now)).again, 1),
            Next::Idle => panic!("it was lost"),
        }
    }
    assert!((3500..3700).contains(&now), "{now}");
}

#[test]
fn what_is_not_quiet_when_its_turn_comes_waits_without_being_noticed_anew() {
    let settings = MendSettings { longest_queue: 100, ..settings() };
    let mut queue = Queue::default();
    queue.offer(of_kind(1), at(0), &settings);
    let job = mends(queue.next(at(10), &settings));
    let before = format!("{:?}", queue.lives);
    queue.not_quiet(job, at(10), &settings);
    assert_eq!(format!("{:?}", queue.lives), before);
    assert_eq!(queue.next(at(10), &settings), Next::Wait(Duration::from_secs(5)));
    assert_eq!(mends(queue.next(at(15), &settings)).since, at(0));
}

#[test]
fn a_dear_file_waits_for_cheaper_ones_and_is_mended_at_the_full_price_in_the_end() {
    let settings = MendSettings { longest_queue: 100, ..settings() };
    let mut queue = Queue::default();
    queue.offer(candidate(0, 1, 100, 1), at(0), &settings);
    let (mut now, mut prices) = (5, Vec::new());
    loop {
        let job = mends(queue.next(at(now), &settings));
        let price = job.price(Bytes(4 << 20));
        prices.push(price.0 >> 10);
        if price == Bytes(4 << 20) {
            break;
        }
        queue.dearer(job, at(now), &settings);
        assert_eq!(queue.waits(at(now)), Waits { dear: 1, ..Waits::default() });
        now += 5;
    }
    assert_eq!((prices, now), (vec![64, 128, 256, 512, 1024, 2048, 4096], 35));
    // Of two that are ready the one that has not proved dear is first, whatever there is to gain.
    queue.offer(candidate(0, 2, 100, 1), at(now), &settings);
    let job = mends(queue.next(at(now + 5), &settings));
    queue.dearer(job, at(now + 5), &settings);
    queue.offer(candidate(0, 3, 1, 100), at(now + 5), &settings);
    assert_eq!(mends(queue.next(at(now + 10), &settings)).candidate.file, key(0, 3));
    assert_eq!(mends(queue.next(at(now + 10), &settings)).candidate.file, key(0, 2));
}
