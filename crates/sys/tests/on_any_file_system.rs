//! What can be checked without privilege, on whatever file system holds the temporary directory. Calls that need ext4
//! and root are tested where they are used, on loop volumes.
#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as the tests themselves

use longrun_layout::{Blocks, Bytes, FileId, InodeNumber, LogicalBlock};
use longrun_sys::{
    ByteRange, Errno, Exchange, Mapping, OFlags, cache_state, capacity, exchange_with_donor, map_file, open_by_id,
    sync_file,
};
use std::io::Write as _;

fn file_of(bytes: usize) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file
}

#[test]
fn a_mapped_file_has_extents_that_cover_its_blocks() {
    let file = file_of(1 << 20);
    let extents = match map_file(&file, ByteRange::ALL, Mapping::Synced) {
        Ok(extents) => extents,
        Err(Errno::OPNOTSUPP) => return, // tmpfs has no FIEMAP
        Err(errno) => panic!("FIEMAP: {errno}"),
    };
    let covered: u64 = extents.iter().map(|e| e.length.0).sum();
    assert!(covered >= 1 << 20, "{extents:?}");
    assert!(extents.last().unwrap().flags.is_last());
}

#[test]
fn the_page_cache_of_a_fresh_file_is_seen() {
    let file = file_of(64 << 10);
    match cache_state(&file, ByteRange::ALL) {
        Ok(state) => assert_eq!(state.cached_pages, 16),
        Err(Errno::NOSYS) => {} // before Linux 6.5
        Err(errno) => panic!("cachestat: {errno}"),
    }
}

#[test]
fn a_handle_of_generation_zero_is_refused_without_asking_the_kernel() {
    let root = std::fs::File::open("/").unwrap();
    let any = FileId { inode: InodeNumber(2), generation: 0 };
    assert_eq!(open_by_id(&root, any, OFlags::RDONLY).unwrap_err(), Errno::STALE);
    let beyond = FileId { inode: InodeNumber(1 << 32), generation: 1 };
    assert_eq!(open_by_id(&root, beyond, OFlags::RDONLY).unwrap_err(), Errno::STALE);
}

#[test]
fn an_exchange_of_no_blocks_is_refused_because_the_kernel_would_take_all() {
    let (a, b) = (file_of(4096), file_of(4096));
    let nothing = Exchange { file_start: LogicalBlock(0), donor_start: LogicalBlock(0), length: Blocks(0) };
    let failure = exchange_with_donor(&a, &b, nothing).unwrap_err();
    assert_eq!((failure.errno, failure.moved.0), (Errno::INVAL, Blocks(0)));
}

#[test]
fn capacity_is_consistent() {
    let file = file_of(1);
    sync_file(&file).unwrap();
    let capacity = capacity(&file).unwrap();
    assert!(capacity.available <= capacity.free && capacity.free <= capacity.total);
    assert!(capacity.block_size.to_bytes(capacity.total) > Bytes(0));
}

#[test]
fn a_modification_time_is_set_to_the_nanosecond_also_before_1970() {
    use std::time::{Duration, SystemTime};
    let file = file_of(1);
    let since = Duration::new(12_345, 678_000_000);
    for time in [SystemTime::UNIX_EPOCH + since, SystemTime::UNIX_EPOCH - since, SystemTime::UNIX_EPOCH] {
        let accessed = file.metadata().unwrap().accessed().unwrap();
        longrun_sys::set_modified(&file, time).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), time);
        assert_eq!(file.metadata().unwrap().accessed().unwrap(), accessed);
    }
}
