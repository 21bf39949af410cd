//! One optimizer to a volume: our own lock, and a look at who else is at work.
//!
//! Owns the lock, and how long who mends one file is waited for. Never writes to the volume.

use super::io;
use crate::VolumeError;
use longrun_sys::{DeviceNumber, Errno, FlockOperation, lock_file};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// How long a file that is being mended is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often is looked whether it is done.
const PAUSE: Duration = Duration::from_millis(10);
/// So many looks in a row must find that the lock is not shared: who mends does not share it either for the microseconds
/// between taking it and sharing it.
const LOOKS: u32 = 3;

/// Takes the lock of the volume at `path` for a run over all of it, for as long as `root` is open: an flock on its root
/// directory.
///
/// Why there: the root directory is one inode, whichever mount point, mount namespace or container it is reached
/// through, while /run and /dev may differ from one to another. Unlike a lock on the block device it does not keep udev
/// from looking at the device. The kernel drops it with our death, so it never goes stale. It stops nobody from using the
/// volume; another program that holds the same lock only makes us refuse.
///
/// Who mends one file shares the lock ([`lock_for_one_file`]): that is over in moments, and waited for. Who waits shares it
/// likewise, so that no other file is begun with meanwhile. Who runs over a volume does not share it, and is not waited for.
pub(crate) fn lock(root: &File, path: &Path) -> Result<(), VolumeError> {
    let set = |operation| set(root, operation).map_err(io(path, "locking the volume"));
    let until = Instant::now() + PATIENCE;
    let mut refused = 0;
    // Each try for the whole begins with what is shared, if anything, and loses that when it fails.
    while !set(FlockOperation::NonBlockingLockExclusive)? {
        if refused == LOOKS || Instant::now() > until {
            return Err(in_use(root, path));
        }
        // While nothing is held another one who waits can have it all: two who always shared would keep it from each other.
        sleep(some_of(PAUSE));
        if set(FlockOperation::NonBlockingLockShared)? {
            refused = 0;
            sleep(PAUSE);
        } else {
            refused += 1;
        }
    }
    Ok(())
}

/// As [`lock`], but for one file, and without waiting: hold it for no longer than that file takes.
pub(crate) fn lock_for_one_file(root: &File, path: &Path) -> Result<(), VolumeError> {
    let set = |operation| set(root, operation).map_err(io(path, "locking the volume"));
    // All of it first: two who mend exclude each other.
    if set(FlockOperation::NonBlockingLockExclusive)? && set(FlockOperation::NonBlockingLockShared)? {
        return Ok(());
    }
    Err(in_use(root, path))
}

fn in_use(root: &File, path: &Path) -> VolumeError {
    let holder = lock_holder(root).unwrap_or_else(|| "another process".into());
    VolumeError::InUse { path: path.to_owned(), holder }
}

/// Changes the lock; false when that of another one forbids it: then nothing is held any more.
fn set(root: &File, operation: FlockOperation) -> Result<bool, Errno> {
    match lock_file(root, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A part of `whole` that no two processes have in common: by the clock.
fn some_of(whole: Duration) -> Duration {
    let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    whole.mul_f64(f64::from(nanoseconds % 997) / 997.0)
}

/// The process that /proc/locks names for the root directory of a volume.
fn lock_holder(root: &File) -> Option<String> {
    let table = fs::read_to_string("/proc/locks").ok()?;
    let meta = root.metadata().ok()?;
    let device = DeviceNumber::from_stat(meta.dev());
    let inode = format!("{:02x}:{:02x}:{}", device.major, device.minor, meta.ino());
    let of_root = |line: &&str| line.contains("FLOCK") && line.split_whitespace().any(|word| word == inode);
    let line = table.lines().find(of_root)?;
    let pid = line.split_whitespace().nth(4)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{} (process {pid})", printable(name.trim())))
}

fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A running process called `name`, a tool that moves blocks of files too, that was told to work on `device` or has a
/// file of it open.
pub(crate) fn other_optimizer(name: &str, device: DeviceNumber) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    for process in processes.flatten() {
        let directory = process.path();
        let running = fs::read_to_string(directory.join("comm")).unwrap_or_default();
        if running.trim() == name && works_on(&directory, device) {
            return Some(format!("{name} (process {})", process.file_name().to_string_lossy()));
        }
    }
    None
}

fn works_on(process: &Path, device: DeviceNumber) -> bool {
    let is_on = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| {
            let number = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
            DeviceNumber::from_stat(number) == device
        })
    };
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let directory = process.join("cwd");
    let named = command
        .split(|byte| *byte == 0)
        .skip(1)
        .filter_map(|argument| std::str::from_utf8(argument).ok())
        .any(|argument| !argument.is_empty() && is_on(&directory.join(argument)));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|fd| is_on(&fd.path()));
    named || open
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::TempDir;

    /// Opened anew, as another process would have it.
    fn root(volume: &TempDir) -> File {
        File::open(volume.path()).unwrap()
    }

    fn run(volume: &TempDir) -> Result<File, VolumeError> {
        let root = root(volume);
        lock(&root, volume.path()).map(|()| root)
    }

    fn mender(volume: &TempDir) -> Option<File> {
        let root = root(volume);
        match lock_for_one_file(&root, volume.path()) {
            Err(VolumeError::InUse { .. }) => None,
            locked => Some(locked.map(|()| root).unwrap()),
        }
    }

    #[test]
    fn two_runs_over_a_volume_exclude_each_other() {
        let volume = tempfile::tempdir().unwrap();
        let first = run(&volume).unwrap();
        let refused = run(&volume).unwrap_err().to_string();
        assert!(refused.contains("is working on this volume"), "{refused}");
        drop(first);
        run(&volume).unwrap();
    }

    #[test]
    fn a_run_waits_until_a_file_is_mended() {
        let volume = tempfile::tempdir().unwrap();
        let (mending, done) = (mender(&volume).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let locked = run(&volume);
                (locked, done.load(Ordering::SeqCst))
            });
            sleep(PAUSE * 10);
            done.store(true, Ordering::SeqCst);
            drop(mending);
            let (locked, was_done) = running.join().unwrap();
            assert!(locked.is_ok(), "{locked:?}");
            assert!(was_done, "the file was still being mended");
        });
    }

    #[test]
    fn no_file_is_begun_with_while_a_run_has_the_volume_or_waits_for_it_or_another_is_mended() {
        let volume = tempfile::tempdir().unwrap();
        let whole = run(&volume).unwrap();
        assert!(mender(&volume).is_none());
        drop(whole);
        let mending = mender(&volume).unwrap();
        assert!(mender(&volume).is_none());
        drop(mending);
        let waiting = root(&volume);
        assert!(set(&waiting, FlockOperation::NonBlockingLockShared).unwrap());
        assert!(mender(&volume).is_none());
        drop(waiting);
        assert!(mender(&volume).is_some());
    }

    #[test]
    fn of_two_runs_that_wait_for_the_same_file_one_gets_the_volume_and_the_other_is_refused() {
        let volume = tempfile::tempdir().unwrap();
        let mending = mender(&volume).unwrap();
        let locked: Vec<Result<File, VolumeError>> = std::thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| run(&volume)));
            sleep(PAUSE * 5);
            drop(mending);
            waiting.into_iter().map(|running| running.join().unwrap()).collect()
        });
        assert_eq!(locked.iter().filter(|locked| locked.is_ok()).count(), 1, "{locked:?}");
    }
}
