use super::*;
use std::process::Command;

fn image(directory: &tempfile::TempDir, megabytes: usize) -> PathBuf {
    let path = directory.path().join("image");
    fs::write(&path, vec![7; megabytes << 20]).unwrap();
    path
}

#[test]
fn what_is_written_is_read_and_nothing_reaches_beyond_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(&directory, 1);
    let disk = FileDisk::open(&path, Access::Write).unwrap();
    disk.write(Bytes(1000), &[1; 100]).unwrap();
    disk.flush().unwrap();
    let mut found = [0; 102];
    disk.read(Bytes(999), &mut found).unwrap();
    assert!(found[0] == 7 && found[1..101] == [1; 100] && found[101] == 7);
    let end = Bytes(1 << 20);
    assert_eq!(disk.length(), end);
    for at in [end, Bytes((1 << 20) - 1), Bytes(u64::MAX)] {
        assert_eq!(disk.write(at, &[1; 2]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(disk.read(at, &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(disk.discard(at, Bytes(2)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(disk.zero(at, Bytes(2)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
    let reader = FileDisk::open(&path, Access::Read).unwrap();
    assert!(reader.write(Bytes(0), &[1]).is_err());
}

#[test]
fn discarding_a_range_of_a_file_frees_its_space() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(&directory, 2);
    let disk = FileDisk::open(&path, Access::Write).unwrap();
    disk.flush().unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    disk.discard(Bytes(0), Bytes(1 << 20)).unwrap();
    disk.discard(Bytes(1 << 20), Bytes(0)).unwrap();
    disk.zero(Bytes(1 << 20), Bytes(10)).unwrap();
    disk.zero(Bytes(1 << 20), Bytes(0)).unwrap();
    disk.flush().unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 2 << 20);
    let freed = before - meta.blocks();
    assert!(freed.abs_diff(1 << 11) <= 16, "{freed} sectors were freed, of 1 MiB");
    let mut found = [1; 11];
    disk.read(Bytes(1 << 20), &mut found).unwrap();
    assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
}

#[test]
fn only_one_opens_a_file_for_writing_and_readers_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(&directory, 1);
    let other_name = directory.path().join("other-name");
    fs::hard_link(&path, &other_name).unwrap();
    let reader = FileDisk::open(&path, Access::Read).unwrap();
    assert_eq!(reader.in_use(), None);
    let disk = FileDisk::open(&path, Access::Write).unwrap();
    assert_eq!(disk.in_use(), None, "we are nobody else");
    assert!(reader.in_use().unwrap().contains("has locked it"));
    for name in [&path, &other_name] {
        let refused = FileDisk::open(name, Access::Write).unwrap_err();
        assert!(matches!(refused, ImageError::InUse { .. }), "{refused}");
    }
    // A child that is being started has the descriptor as well.
    let of_a_child = disk.file.file().try_clone().unwrap();
    drop(disk);
    assert_eq!(reader.in_use(), None);
    drop(FileDisk::open(&other_name, Access::Write).unwrap());
    drop(of_a_child);
}

#[test]
fn a_file_that_another_process_has_open_for_writing_is_refused_although_it_took_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(&directory, 1);
    let open = File::options().write(true).open(&path).unwrap();
    let mut child = Command::new("sleep").arg("1000").stdout(open).spawn().unwrap();
    let refused = FileDisk::open(&path, Access::Write).map(drop);
    let told = FileDisk::open(&path, Access::Read).unwrap().in_use();
    child.kill().unwrap();
    child.wait().unwrap();
    let user = format!("sleep (process {}) has it open for writing", child.id());
    assert!(refused.unwrap_err().to_string().contains(&user));
    assert_eq!(told, Some(user));
    FileDisk::open(&path, Access::Write).unwrap();
}

/// An image under another process's OFD write lock was changed: such a lock was taken for our own.
#[test]
fn a_file_with_a_lock_of_another_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(&directory, 1);
    let at = |start, length| ByteRange { start: Bytes(start), length: Bytes(length) };
    for range in [at(0, 1), at(4096, 4096), at((1 << 20) - 1, 1), at(1 << 40, 1), ByteRange::ALL, QEMU_LOCKS[0]] {
        let open = File::options().write(true).open(&path).unwrap();
        assert!(longrun_sys::lock_bytes(&open, range).unwrap());
        // The lock belongs to the open file, which the child has alone from here on.
        let mut child = Command::new("sleep").arg("1000").stdout(open).spawn().unwrap();
        let written = FileDisk::open_unlocked(&path, &path, Access::Write).unwrap().claim();
        let read = FileDisk::open(&path, Access::Read).unwrap().in_use();
        child.kill().unwrap();
        child.wait().unwrap();
        let refused = written.unwrap_err().to_string();
        let name = format!("sleep (process {})", child.id());
        assert!(refused.contains(&format!("{name} has locked it")), "{range:?}: {refused}");
        assert_eq!(read, Some(format!("{name} has it open for writing")), "{range:?}");
    }
    FileDisk::open_unlocked(&path, &path, Access::Write).unwrap().claim().unwrap();
}

/// The other process is not seen where it is another user's, or on another host: only its lock is.
#[test]
fn a_lock_for_writing_is_seen_without_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(&directory, 1);
    let reader = FileDisk::open(&path, Access::Read).unwrap();
    // Of our own processes none is looked at.
    let holder = File::options().read(true).write(true).open(&path).unwrap();
    assert_eq!(reader.in_use(), None);
    let range = ByteRange { start: Bytes(4096), length: Bytes(1) };
    assert!(longrun_sys::lock_bytes(&holder, range).unwrap());
    assert!(reader.in_use().unwrap().contains("has locked it"));
    let refused = FileDisk::open_unlocked(&path, &path, Access::Write).unwrap().claim().unwrap_err();
    assert!(matches!(refused, ImageError::InUse { .. }), "{refused}");
}

#[test]
fn what_is_no_disk_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [directory.path(), &fifo, Path::new("/dev/null")] {
        for access in [Access::Read, Access::Write] {
            assert!(matches!(FileDisk::open(path, access), Err(ImageError::NotADisk { .. })), "{}", path.display());
        }
    }
    assert!(matches!(FileDisk::open(&directory.path().join("none"), Access::Read), Err(ImageError::Examine { .. })));
}

#[test]
fn of_a_range_only_whole_sectors_are_discarded() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(&image(&directory, 1), Access::Read).unwrap();
    let whole = |at, length| {
        let range = disk.whole_sectors(Bytes(at), Bytes(length));
        (range.start.0, range.length.0)
    };
    assert_eq!(whole(0, 1024), (0, 1024));
    assert_eq!(whole(1, 1535), (512, 1024));
    assert_eq!(whole(1, 600), (512, 0));
    assert_eq!(whole(513, 100), (1024, 0));
}
