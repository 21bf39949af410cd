//! The workloads do what they promise, on any file system that takes direct writes.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

const SMALL: Parameters = Parameters { writers: 2, bytes: Bytes(1 << 20), seed: 7, pause: Duration::ZERO };

/// Beside the build, which lies on a disk: in memory, where temporary directories may be, not everything can be written to
/// directly.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn work(profile: Profile, stop: bool) -> (Result<Done, BenchError>, tempfile::TempDir) {
    let _alone = crate::child::one_at_a_time();
    let directory = directory();
    let stop = AtomicBool::new(stop);
    let done = run(profile, &Job { directory: directory.path(), parameters: SMALL, stop: &stop });
    (done, directory)
}

fn lengths(directory: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().size())).collect()
}

#[test]
fn every_profile_writes_what_it_says_and_no_more_than_it_needs() {
    for profile in Profile::ALL {
        let (done, directory) = work(profile, false);
        let done = done.unwrap();
        let lengths = lengths(directory.path());
        assert!(done.requests > 0 && done.bytes.0 > 0 && !lengths.is_empty(), "{profile}: {done:?}");
        let all: u64 = lengths.values().sum();
        assert!(all <= profile.space_needed(&SMALL).0, "{profile}: {all} of {:?}", profile.space_needed(&SMALL));
        assert_eq!((done.failed_executions, done.refused_opens), (0, 0), "{profile}: nobody is beside us");
        if [Profile::Direct, Profile::Dsync, Profile::Sparse, Profile::Buffered, Profile::Single].contains(&profile) {
            assert_eq!(lengths.values().copied().collect::<Vec<_>>(), [1 << 20; 2], "{profile}");
            assert_eq!(done.bytes, SMALL.total(), "{profile}");
            assert_eq!(done.requests, 32, "{profile}");
        }
    }
}

#[test]
fn the_same_seed_does_the_same_work() {
    // Where several write into one database or count by time, only the amount is the same.
    for profile in [Profile::SlowAppend, Profile::Office, Profile::Logs, Profile::Install, Profile::Compile] {
        let [(one, a), (two, b)] = [work(profile, false), work(profile, false)];
        assert_eq!(one.unwrap(), two.unwrap(), "{profile}");
        assert_eq!(lengths(a.path()), lengths(b.path()), "{profile}");
    }
}

#[test]
fn every_profile_ends_early_when_it_is_asked_to() {
    for profile in Profile::ALL {
        let (done, _directory) = work(profile, true);
        assert!(matches!(done, Err(BenchError::Interrupted)), "{profile}: {done:?}");
    }
}

#[test]
fn profiles_are_known_by_their_names() {
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse(), Ok(profile));
    }
    assert_eq!("fast".parse::<Profile>().unwrap_err().to_string(), "'fast' is not a profile");
    let mut all = [&Profile::GROWING[..], &Profile::CONTROLS[..]].concat();
    all.sort();
    assert_eq!(all, Profile::ALL);
}

#[test]
fn a_pace_is_kept() {
    let directory = directory();
    let job = Job { directory: directory.path(), parameters: SMALL, stop: &AtomicBool::new(false) };
    let rate = Rate { per_second: 2000, time: std::time::Duration::from_millis(300) };
    assert_eq!(paced(&job, rate).unwrap().requests, 600);
}
