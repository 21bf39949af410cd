use super::*;
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use std::sync::LazyLock;

static HERE: LazyLock<VolumeId> = LazyLock::new(|| VolumeId { uuid: [1; 16], device: "here".into() });
static THERE: LazyLock<VolumeId> = LazyLock::new(|| VolumeId { uuid: [2; 16], device: "there".into() });

/// Longer than any machine takes.
const LONG: Duration = Duration::from_secs(300);

fn file(number: u8) -> FileHandle {
    FileHandle::new(1, &[number; 8]).unwrap()
}

fn window(start: u64) -> GiveBack {
    GiveBack::Window(ByteRange { start: Bytes(start), length: Bytes(4096) })
}

fn listed(journal: &Journal, volume: &VolumeId) -> Vec<(FileHandle, Vec<GiveBack>)> {
    journal.of_volume(volume).into_iter().map(|(file, entry)| (file, entry.give_back)).collect()
}

#[test]
fn what_was_remembered_is_there_after_a_sudden_end() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    journal.announce().remember(&HERE, file(1), &[GiveBack::ALL]).unwrap();
    journal.announce().remember(&HERE, file(2), &[GiveBack::ALL, window(0)]).unwrap();
    journal.announce().remember(&HERE, file(2), &[window(0), window(8192)]).unwrap();
    journal.announce().remember(&THERE, file(3), &[GiveBack::ALL]).unwrap();
    journal.forget(&HERE, file(1));
    assert!(journal.flush(LONG));
    // As after kill -9: nothing is closed in good order.
    let content = fs::read(directory.path().join(NAME)).unwrap();
    drop(journal);
    for torn in [&b""[..], b"12345678 {\"vol", b"\xff\xff\xff"] {
        fs::write(directory.path().join(NAME), [&content, torn].concat()).unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        assert_eq!(journal.damage, None);
        assert_eq!(listed(&journal, &HERE), [(file(2), vec![GiveBack::ALL, window(0), window(8192)])]);
        assert_eq!(listed(&journal, &THERE), [(file(3), vec![GiveBack::ALL])]);
    }
}

#[test]
fn a_second_process_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let refused = Journal::open(directory.path()).err().unwrap();
    assert!(matches!(refused, PreventionError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("another longrun"), "{refused}");
    drop(journal);
    Journal::open(directory.path()).unwrap();
}

#[test]
fn a_damaged_journal_is_used_as_far_as_it_goes_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    for number in 1..=3 {
        journal.announce().remember(&HERE, file(number), &[GiveBack::ALL]).unwrap();
    }
    drop(journal);
    let path = directory.path().join(NAME);
    let mut content = fs::read(&path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&path, &content).unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    assert!(journal.damage.as_ref().is_some_and(|d| d.contains("1 of its lines")), "{:?}", journal.damage);
    assert_eq!(listed(&journal, &HERE).len(), 2);
    assert_eq!(fs::read(directory.path().join(DAMAGED)).unwrap(), content);
}

#[test]
fn a_settled_file_stays_listed_until_its_file_system_has_committed() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let start = Instant::now();
    for number in 1..=2 {
        journal.announce().remember(&HERE, file(number), &[GiveBack::ALL]).unwrap();
        journal.retire(&HERE, file(number));
    }
    journal.tend(start + RETIRE_AFTER / 2);
    assert_eq!(journal.files(), 2);
    // What got a runway again meanwhile stays.
    journal.announce().remember(&HERE, file(2), &[GiveBack::ALL]).unwrap();
    journal.tend(Instant::now() + RETIRE_AFTER);
    assert_eq!(listed(&journal, &HERE), [(file(2), vec![GiveBack::ALL])]);
    drop(journal);
    assert_eq!(listed(&Journal::open(directory.path()).unwrap(), &HERE).len(), 1);
}

#[test]
fn the_file_stays_small_however_much_comes_and_goes() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    journal.announce().remember(&HERE, file(9), &[GiveBack::ALL]).unwrap();
    for _ in 0..COMPACT_FROM {
        let mut state = journal.lock();
        append(&mut state, &record::line(&Record::Forget(HERE.clone(), file(1))), 1);
    }
    assert!(journal.flush(LONG));
    journal.tend(Instant::now());
    assert!(journal.flush(LONG));
    assert!(fs::metadata(directory.path().join(NAME)).unwrap().len() < 4096);
    journal.announce().remember(&HERE, file(8), &[GiveBack::ALL]).unwrap();
    drop(journal);
    assert_eq!(listed(&Journal::open(directory.path()).unwrap(), &HERE).len(), 2);
}

#[test]
fn a_journal_that_cannot_be_written_refuses_until_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    journal.lock().file = Arc::new(File::open("/dev/null").unwrap());
    assert!(journal.announce().remember(&HERE, file(1), &[GiveBack::ALL]).is_err());
    assert!(journal.trouble().is_some_and(|t| t.contains("cannot be written")));
    // Too soon.
    assert!(journal.announce().remember(&HERE, file(1), &[GiveBack::ALL]).is_err());
    let earlier = Instant::now().checked_sub(TRY_AGAIN).unwrap();
    journal.lock().trouble.as_mut().unwrap().0 = earlier;
    journal.announce().remember(&HERE, file(1), &[GiveBack::ALL]).unwrap();
    assert_eq!(journal.trouble(), None);
    drop(journal);
    assert_eq!(listed(&Journal::open(directory.path()).unwrap(), &HERE).len(), 1);
}

#[test]
fn many_threads_share_one_sync_and_all_are_durable() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let journal = &journal;
            scope.spawn(move || {
                journal.announce().remember(&HERE, file(number), &[GiveBack::ALL]).unwrap();
                let state = journal.lock();
                assert!(state.durable >= state.entries[&*HERE][&file(number)].sequence);
            });
        }
    });
    assert_eq!(journal.files(), 16);
}

#[test]
fn who_syncs_waits_for_those_who_were_announced_and_for_nobody_who_does_not_come() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let (one, other, gives_up) = (journal.announce(), journal.announce(), journal.announce());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| one.remember(&HERE, file(1), &[GiveBack::ALL]));
        scope.spawn(|| other.remember(&HERE, file(2), &[GiveBack::ALL])).join().unwrap().unwrap();
        first.join().unwrap().unwrap();
    });
    // One is still announced, and both were made durable: a moment is the most that is waited.
    assert_eq!(journal.lock().coming, 1);
    assert_eq!(journal.lock().durable, 2);
    drop(gives_up);
    assert_eq!(journal.lock().coming, 0);
    journal.announce().remember(&HERE, file(3), &[GiveBack::ALL]).unwrap();
    assert_eq!(journal.lock().coming, 0);
    assert_eq!(journal.lock().durable, 3);
}

#[test]
fn loop_a_frozen_state_directory_is_waited_for_by_those_who_need_it_and_not_for_ever() {
    let volume = LoopVolume::create(&VolumeSpec::of(FileSystemKind::Ext4, 64)).unwrap();
    let journal = Arc::new(Journal::open(&volume.mount_point()).unwrap());
    for number in 1..=3 {
        journal.announce().remember(&HERE, file(number), &[GiveBack::ALL]).unwrap();
    }
    assert!(journal.flush(LONG));
    let frozen = volume.freeze().unwrap();
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn({
        let journal = Arc::clone(&journal);
        move || {
            // Each of these wrote while it held the lock, or waited for somebody who did.
            journal.forget(&HERE, file(1));
            journal.retire(&HERE, file(2));
            journal.tend(Instant::now() + RETIRE_AFTER);
            let refused = journal.announce().remember(&HERE, file(4), &[GiveBack::ALL]).unwrap_err();
            sender.send((journal.files(), journal.trouble(), refused.kind())).unwrap();
        }
    });
    let (files, trouble, refused) = done.recv_timeout(LONG).unwrap();
    // The fourth is listed, but not granted anything.
    assert_eq!((files, refused), (2, io::ErrorKind::TimedOut));
    assert!(trouble.is_some_and(|trouble| trouble.contains("does not respond")));
    drop(frozen);
    assert!(journal.flush(LONG));
    assert_eq!(journal.trouble(), None);
    journal.announce().remember(&HERE, file(4), &[GiveBack::ALL]).unwrap();
    drop(journal);
    let journal = Journal::open(&volume.mount_point()).unwrap();
    assert_eq!(listed(&journal, &HERE), [3, 4].map(|number| (file(number), vec![GiveBack::ALL])));
}

/// What a journal in the root directory of `volume` would list if the power failed now.
fn after_a_cut(volume: &LoopVolume) -> Vec<(FileHandle, Vec<GiveBack>)> {
    let recovered = volume.crashed_copy().unwrap();
    let journal = Journal::open(&recovered.mount_point()).unwrap();
    assert_eq!(journal.damage, None);
    listed(&journal, &HERE)
}

#[test]
fn loop_a_power_cut_before_or_after_any_sync_loses_nothing_that_was_granted() {
    for (kind, mebibytes) in [(FileSystemKind::Ext4, 64), (FileSystemKind::Xfs, 320)] {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, mebibytes)).unwrap();
        let journal = Journal::open(&volume.mount_point()).unwrap();
        let mut granted = Vec::new();
        for number in 1..=3 {
            // Whoever is remembered gets a runway as soon as this returns.
            journal.announce().remember(&HERE, file(number), &[GiveBack::ALL, window(0)]).unwrap();
            granted.push((file(number), vec![GiveBack::ALL, window(0)]));
            assert_eq!(after_a_cut(&volume), granted, "{kind:?}");
        }
        // Nobody waits until it is durable that a file needs nothing any more: it may be listed still.
        journal.forget(&HERE, file(1));
        assert!(journal.flush(LONG));
        let listed = after_a_cut(&volume);
        assert!(listed == granted || listed == granted[1..], "{kind:?}: {listed:?}");
        granted.remove(0);
        let (text, _) = writer::text_of(&journal.lock().entries);
        let mut cuts = 0;
        let new = writer::write_anew_in_steps(&volume.mount_point(), &text, || {
            let listed = after_a_cut(&volume);
            // The old one has file 1 perhaps, the new one does not; each has all the others.
            assert!(listed.ends_with(&granted), "{kind:?}, cut {cuts}: {listed:?}");
            cuts += 1;
        });
        journal.lock().file = Arc::new(new.unwrap());
        assert_eq!((cuts, after_a_cut(&volume)), (4, granted.clone()), "{kind:?}");
        journal.announce().remember(&HERE, file(4), &[GiveBack::ALL]).unwrap();
        granted.push((file(4), vec![GiveBack::ALL]));
        assert_eq!(after_a_cut(&volume), granted, "{kind:?}: what comes after it was written anew");
    }
}

#[test]
fn a_clone_has_its_own_records() {
    let directory = tempfile::tempdir().unwrap();
    let clone = VolumeId { device: "clone".into(), ..HERE.clone() };
    let journal = Journal::open(directory.path()).unwrap();
    journal.announce().remember(&HERE, file(1), &[GiveBack::ALL]).unwrap();
    journal.announce().remember(&clone, file(1), &[window(0)]).unwrap();
    journal.announce().remember(&THERE, file(2), &[window(0)]).unwrap();
    drop(journal);
    let journal = Journal::open(directory.path()).unwrap();
    assert_eq!(listed(&journal, &HERE), [(file(1), vec![GiveBack::ALL])]);
    assert_eq!((journal.elsewhere(&HERE), journal.elsewhere(&THERE)), (1, 0));
    journal.forget(&HERE, file(1));
    assert_eq!(listed(&journal, &clone), [(file(1), vec![window(0)])]);
    assert_eq!((journal.elsewhere(&HERE), journal.elsewhere(&clone)), (1, 0));
}
