//! What is learned of the lives of files, by cases and by properties.

use super::*;
use longrun_sys::FileHandle;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const HOUR: Duration = Duration::from_secs(3600);

fn new() -> Lives {
    let mut lives = Lives::default();
    lives.wait_at_most(HOUR);
    lives
}

fn key(number: u32) -> FileKey {
    let [a, b, c, d] = number.to_le_bytes();
    let handle = FileHandle::new(1, &[a, b, c, d, 1, 0, 0, 0]).unwrap();
    FileKey { volume: DeviceNumber { major: 7, minor: 0 }, handle }
}

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * SECOND)
}

fn seconds(time: Duration) -> u64 {
    time.as_secs()
}

fn noticed(lives: &mut Lives, number: u32, path: &str, now: u64) {
    lives.noticed(&key(number), Some(Path::new(path)), at(now));
}

/// Looks at the files in turn until `until`; those of `deleted` are found to be gone.
fn follow(lives: &mut Lives, deleted: impl Fn(&FileKey) -> bool, until: u64) {
    while let Some(now) = lives.next_look().filter(|now| *now <= at(until)) {
        let file = lives.to_look_at(now).unwrap();
        if deleted(&file) { lives.gone(&file, now) } else { lives.alive(&file, now) }
    }
}

/// `count` files of a kind, noticed at second 0, of which the first `short` live for `life` seconds.
fn taught(path: &str, count: u32, short: u32, life: u64) -> Lives {
    let mut lives = new();
    (0..count).for_each(|number| noticed(&mut lives, number, path, 0));
    follow(&mut lives, |_| false, life);
    follow(&mut lives, |file| (0..short).any(|number| key(number) == *file), 10_000);
    lives
}

fn held(lives: &mut Lives, path: &str, now: u64) -> Option<(u64, Hold)> {
    // Another file each time.
    let number = 10_000 + path.len() as u32;
    noticed(lives, number, path, now);
    lives.hold(&key(number), at(now)).map(|(until, why)| (until.0 / SECOND - now, why))
}

#[test]
fn ages_are_told_apart_by_doublings_up_to_an_hour() {
    let ends: Vec<u64> = (0..CLASSES).map(|class| seconds(new().end(class))).collect();
    assert_eq!(ends, [7, 14, 28, 56, 112, 225, 450, 900, 1800, 3600]);
    assert_eq!(new().class_at(Duration::from_secs(5)), Some(0));
    assert_eq!(new().class_at(Duration::from_secs(899)), Some(7));
    assert_eq!(new().class_at(HOUR), None);
}

#[test]
fn nothing_waits_while_nothing_is_known() {
    let mut lives = new();
    assert_eq!(held(&mut lives, "/build/a.o", 0), None);
    let mut few = taught("/build/a.o", EVIDENCE - 1, EVIDENCE - 1, 50);
    assert_eq!(held(&mut few, "/build/b.o", 20_000), None);
}

#[test]
fn a_file_waits_for_the_age_that_most_of_its_kind_do_not_reach() {
    let mut lives = taught("/build/a.o", 20, 15, 50);
    assert_eq!(held(&mut lives, "/build/b.o", 20_000), Some((56, Hold::ShortLived)));
}

#[test]
fn files_that_live_long_are_mended_at_once_and_so_are_those_of_other_kinds() {
    let mut lives = taught("/build/a.o", 20, 9, 50);
    assert_eq!(held(&mut lives, "/build/b.o", 20_000), None, "most live on");
    let mut lives = taught("/build/a.o", 20, 20, 50);
    assert_eq!(held(&mut lives, "/build/b.rs", 20_000), None);
    let mut lives = taught("/build/a.o", 20, 20, 50);
    assert_eq!(held(&mut lives, "/other/b.o", 20_000), None);
}

#[test]
fn a_file_that_has_outlived_its_kind_is_mended() {
    let mut lives = taught("/build/a.o", 20, 15, 50);
    noticed(&mut lives, 500, "/build/b.o", 20_000);
    follow(&mut lives, |_| false, 20_056);
    assert_eq!(lives.hold(&key(500), at(20_057)), None);
}

#[test]
fn directories_with_a_new_name_each_time_are_known_by_the_one_above() {
    let mut lives = new();
    (0..40).for_each(|number| noticed(&mut lives, number, &format!("/tmp/build-{number}/a.o"), 0));
    follow(&mut lives, |_| true, 10_000);
    assert_eq!(held(&mut lives, "/tmp/build-77/a.o", 20_000).map(|(_, why)| why), Some(Hold::ShortLived));
    assert_eq!(held(&mut lives, "/tmp/a.o", 20_000), None);
}

#[test]
fn a_file_that_fragments_again_after_it_was_mended_waits_twice_as_long_each_time() {
    let (mut lives, mut now, mut waits) = (new(), 0, Vec::new());
    for _ in 0..12 {
        noticed(&mut lives, 1, "/var/db", now);
        let until = lives.hold(&key(1), at(now)).map_or(at(now), |(until, why)| {
            assert_eq!(why, Hold::Again);
            until
        });
        waits.push(until.0 / SECOND - now);
        now = until.0 / SECOND + 1;
        lives.mended(&key(1), at(now));
        now += 1;
    }
    assert_eq!(waits, [0, 6, 13, 27, 55, 111, 224, 449, 899, 1799, 3599, 3599]);
    // Left alone for an hour, it is a file like any other.
    noticed(&mut lives, 1, "/var/db", now + 2 * 3600);
    assert_eq!(lives.hold(&key(1), at(now + 2 * 3600)), None);
}

#[test]
fn being_written_anew_ends_a_life_as_a_deletion_does() {
    let mut lives = new();
    for number in 0..20 {
        noticed(&mut lives, number, "/srv/state.db", 0);
        noticed(&mut lives, number, "/srv/state.db", 1);
        lives.mended(&key(number), at(6));
    }
    follow(&mut lives, |_| false, 40);
    (0..20).for_each(|number| noticed(&mut lives, number, "/srv/state.db", 40));
    assert_eq!(held(&mut lives, "/srv/other.db", 20_000), Some((56, Hold::ShortLived)));
}

#[test]
fn what_was_not_looked_at_for_long_teaches_nothing_by_being_gone() {
    let mut lives = new();
    (0..20).for_each(|number| noticed(&mut lives, number, "/build/a.o", 0));
    (0..20).for_each(|number| lives.gone(&key(number), at(100_000)));
    assert_eq!(held(&mut lives, "/build/b.o", 200_000), None);
}

#[test]
fn old_lessons_give_way_to_new_ones() {
    let mut lives = taught("/build/a.o", 60, 60, 5);
    for round in 1..8_u32 {
        let start = u64::from(round) * 100_000;
        (0..60).for_each(|number| noticed(&mut lives, round * 100 + number, "/build/a.o", start));
        follow(&mut lives, |_| false, start + 10_000);
    }
    assert_eq!(held(&mut lives, "/build/b.o", 2_000_000), None);
}

#[test]
fn without_patience_nothing_is_learned_and_nothing_waits() {
    let mut lives = taught("/build/a.o", 20, 20, 50);
    lives.wait_at_most(Duration::ZERO);
    assert_eq!(held(&mut lives, "/build/b.o", 20_000), None);
    assert_eq!(lives.next_look(), None);
}

#[test]
fn a_volume_that_goes_takes_its_files_along() {
    let mut lives = new();
    noticed(&mut lives, 1, "/a/b.c", 0);
    lives.mended(&key(1), at(1));
    lives.forget_volume(key(1).volume);
    assert_eq!((lives.next_look(), lives.hold(&key(1), at(2))), (None, None));
}

/// What may happen to one of a few files.
#[derive(Clone, Debug)]
enum Act {
    Noticed(u32, u8),
    Mended(u32),
    Gone(u32),
    Look(bool),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..40_u32, 0..3_u8).prop_map(|(file, kind)| Act::Noticed(file, kind)),
        (0..40_u32).prop_map(Act::Mended),
        (0..40_u32).prop_map(Act::Gone),
        any::<bool>().prop_map(Act::Look),
        (0..2000_u64).prop_map(Act::Pass),
    ]
}

fn run(acts: &[Act]) -> (Lives, u64, BTreeMap<u32, u64>) {
    let (mut lives, mut now, mut last) = (new(), 0, BTreeMap::new());
    for act in acts {
        match *act {
            Act::Noticed(file, kind) => {
                last.entry(file).or_insert(now);
                noticed(&mut lives, file, &format!("/d{kind}/x.t{kind}"), now);
            }
            Act::Mended(file) => {
                last.insert(file, now);
                lives.mended(&key(file), at(now));
            }
            Act::Gone(file) => {
                last.remove(&file);
                lives.gone(&key(file), at(now));
            }
            Act::Look(there) => {
                if let Some(file) = lives.to_look_at(at(now)) {
                    if there { lives.alive(&file, at(now)) } else { lives.gone(&file, at(now)) }
                }
            }
            Act::Pass(time) => now += time,
        }
    }
    (lives, now, last)
}

proptest! {
    #[test]
    fn no_file_waits_longer_than_an_hour_and_the_books_agree(acts in prop::collection::vec(act(), 0..400)) {
        let (lives, now, last) = run(&acts);
        for number in 0..40 {
            let Some((until, _)) = lives.hold(&key(number), at(now)) else { continue };
            prop_assert!(until > at(now) && until <= after(at(now), HOUR));
            // Found gone by a look, and noticed again: a new file.
            if let Some(since) = last.get(&number) {
                prop_assert!(until <= after(at(now.max(*since)), HOUR));
            }
        }
        let looks: BTreeSet<_> = lives.followed.iter().map(|(file, known)| (lives.look_at(known), *file)).collect();
        prop_assert_eq!(&looks, &lives.looks);
        for record in lives.kinds.values() {
            prop_assert!(record.classes.iter().all(|class| class.ended <= class.reached && class.reached < SAY));
        }
        let (again, ..) = run(&acts);
        prop_assert_eq!(format!("{again:?}"), format!("{lives:?}"), "the same acts teach the same");
    }

    #[test]
    fn memory_is_bounded_whatever_is_noticed(files in prop::collection::vec((any::<u32>(), any::<u32>()), 0..3000)) {
        let mut lives = new();
        for (now, (file, kind)) in (0..).zip(&files) {
            noticed(&mut lives, *file, &format!("/d{kind}/f.e{kind}"), now);
            lives.mended(&key(*file), at(now));
            if now % 2 == 0 {
                lives.gone(&key(*file), at(now));
            }
        }
        prop_assert!(lives.followed.len() <= FOLLOWED && lives.looks.len() <= FOLLOWED && lives.mended.len() <= FOLLOWED);
        prop_assert!(lives.kinds.len() <= KINDS + 1);
    }
}
