//! Tests of the journal: cuts, torn files, and what others have written since.

use super::*;
use longrun_image::MemoryDisk;
use std::path::Path;

const LENGTH: Bytes = Bytes(8192);
const VOLUME: (u64, Bytes) = (77, LENGTH);

fn folder_of(path: &Path) -> (Arc<Folder>, &OsStr) {
    (Arc::new(Folder::open(&path.parent().unwrap().canonicalize().unwrap(), None).unwrap()), path.file_name().unwrap())
}

fn create(path: &Path) -> Journal {
    let (folder, name) = folder_of(path);
    Journal::create(&folder, name, VOLUME).unwrap()
}

fn find_of(path: &Path, volume: (u64, Bytes)) -> Result<Option<Journal>, JournalError> {
    let (folder, name) = folder_of(path);
    Journal::find(&folder, name, Access::Write, volume)
}

fn find(path: &Path) -> Result<Option<Journal>, JournalError> {
    find_of(path, VOLUME)
}

fn writes() -> Vec<Write> {
    let write = |phase, at, byte, sectors: usize| Write { phase, at: Bytes(at), data: vec![byte; sectors * SECTOR] };
    vec![write(Phase::Allocate, 512, 1, 1), write(Phase::Change, 2048, 2, 4), write(Phase::Free, 512, 3, 1)]
}

#[test]
fn a_transaction_is_completed_from_every_state_that_a_cut_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let disk = MemoryDisk::new(vec![9; 8192]);
    let journal = create(&path);
    journal.put(&disk, &[], &writes()).unwrap();
    let held = std::fs::read(&path).unwrap();
    apply(&disk, &writes()).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    for cut in 0..=disk.events() {
        for _ in 0..20 {
            let after = MemoryDisk::new(disk.cut(cut, || random.bool()));
            std::fs::write(&path, &held).unwrap();
            find(&path).unwrap().unwrap().complete(&after).unwrap();
            assert_eq!(after.content(), disk.content(), "cut before event {cut}");
        }
    }
    assert!(find(&path).unwrap().unwrap().pending().unwrap().is_none());
    journal.remove().unwrap();
    assert!(find(&path).unwrap().is_none());
}

#[test]
fn contents_that_end_with_a_checksum_of_themselves_have_different_sums() {
    let with_checksum = |byte: u8| {
        let mut sector = vec![byte; SECTOR];
        let sum = !crc32c::crc32c(&sector[..SECTOR - 4]);
        sector[SECTOR - 4..].copy_from_slice(&sum.to_le_bytes());
        sector
    };
    assert_eq!(crc32c::crc32c(&with_checksum(1)), crc32c::crc32c(&with_checksum(2)), "a CRC tells them apart");
    let sums: std::collections::BTreeSet<u32> = (0..=255).map(|byte| sum_of(&with_checksum(byte))).collect();
    assert_eq!(sums.len(), 256);
    assert_ne!(sum_of(&[0; 8]), sum_of(&[0; 16]));
}

#[test]
fn what_somebody_else_wrote_meanwhile_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let disk = MemoryDisk::new(vec![9; 8192]);
    let mut journal = create(&path);
    journal.put(&disk, &[], &writes()).unwrap();
    disk.write(Bytes(2048 + 1024), &[5; 512]).unwrap();
    let before = disk.content();
    let error = journal.complete(&disk).unwrap_err();
    assert!(matches!(error, JournalError::Changed(Bytes(3072))), "{error}");
    assert_eq!(disk.content(), before);
    assert!(matches!(find_of(&path, (78, LENGTH)), Err(JournalError::Another)));
}

#[test]
fn a_volume_that_was_restored_from_a_backup_since_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let disk = MemoryDisk::new(vec![9; 8192]);
    disk.write(Bytes(6144), &[7; 1024]).unwrap();
    let mut journal = create(&path);
    journal.put(&disk, &[Copied::new(Bytes(6144), &[7; 1024])], &writes()).unwrap();
    let backup = MemoryDisk::new(vec![9; 8192]);
    let error = journal.complete(&backup).unwrap_err();
    assert!(matches!(error, JournalError::Restored), "{error}");
    assert_eq!(backup.content(), vec![9; 8192]);
    journal.complete(&disk).unwrap();
}

#[test]
fn a_torn_journal_knows_the_mark_that_is_on_the_volume() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let disk = MemoryDisk::new(vec![9; 8192]);
    let mut journal = create(&path);
    assert!(!journal.has_marked(b"first") && !journal.has_marked(b""));
    for (on_volume, next) in [(None, b"first"), (Some(b"first"), b"other"), (Some(b"other"), b"third")] {
        journal.set_mark(next);
        journal.put(&disk, &[], &writes()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // The header has reached the disk, the end of the body has not.
        std::fs::write(&path, [&whole[..whole.len() - SECTOR], &[0; SECTOR]].concat()).unwrap();
        let mut torn = find(&path).unwrap().unwrap();
        torn.complete(&disk).unwrap();
        assert_eq!(disk.content(), vec![9; 8192], "nothing had begun");
        assert!(on_volume.is_none_or(|mark| torn.has_marked(mark)), "{on_volume:?}");
        // Whole, it may be on the volume or not.
        std::fs::write(&path, &whole).unwrap();
        let found = find(&path).unwrap().unwrap();
        assert!(found.has_marked(next) && on_volume.is_none_or(|mark| found.has_marked(mark)));
        journal.done().unwrap();
        let done = find(&path).unwrap().unwrap();
        assert!(done.has_marked(next) && !on_volume.is_some_and(|mark| done.has_marked(mark)));
    }
}

#[test]
fn a_journal_that_was_not_written_as_a_whole_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let disk = MemoryDisk::new(vec![9; 8192]);
    let journal = create(&path);
    journal.put(&disk, &[], &writes()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let found = find(&path).unwrap().unwrap();
        assert!(found.pending().unwrap().is_none(), "{length} bytes of it");
    }
    let mut random = fastrand::Rng::with_seed(6);
    for _ in 0..500 {
        let mut bytes = whole.clone();
        let at = random.usize(..bytes.len());
        bytes[at] ^= 1 << random.u8(..8);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(Some(found)) = find(&path)
            && let Some((_, pending)) = found.pending().unwrap()
        {
            assert_eq!(pending.writes, writes(), "byte {at}: only what is not checked may differ");
        }
    }
}
