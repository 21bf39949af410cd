//! The lock that admits one optimizer per volume.
//!
//! Owns the locking of a lock file, and the time that we wait for a process that mends one file. [`super::lock_place`]
//! owns the place of the lock file, [`super::others`] the detection of other tools. Never writes to the volume.

use super::io;
use super::others::lock_holder;
use longrun_engine::VolumeError;
use longrun_sys::{DeviceNumber, FlockOperation, LockFile};
use std::os::unix::fs::MetadataExt;
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

/// Locks `own`, the lock file of the volume at `path`, for a run over all of it, until it is dropped. The
/// kernel drops the lock with our death, so it never goes stale.
///
/// Who mends one file shares the lock ([`lock_for_one_file`]): that is over in moments, and waited for. Who waits
/// shares it likewise, so that no other file is begun with meanwhile. Who runs over a volume does not share it, and
/// is not waited for.
pub(super) fn lock(own: &LockFile, path: &Path) -> Result<(), VolumeError> {
    let set = |operation| own.set(operation).map_err(io(path, "locking the volume"));
    let until = Instant::now() + PATIENCE;
    let mut refused = 0;
    // Each try for the whole begins with what is shared, if anything, and loses that when it fails.
    while !set(FlockOperation::NonBlockingLockExclusive)? {
        if refused == LOOKS || Instant::now() > until {
            return Err(in_use(own, path));
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
pub(super) fn lock_for_one_file(own: &LockFile, path: &Path) -> Result<(), VolumeError> {
    let set = |operation| own.set(operation).map_err(io(path, "locking the volume"));
    // All of it first: two who mend exclude each other.
    if set(FlockOperation::NonBlockingLockExclusive)? && set(FlockOperation::NonBlockingLockShared)? {
        return Ok(());
    }
    Err(in_use(own, path))
}

fn in_use(own: &LockFile, path: &Path) -> VolumeError {
    let known = own.file().metadata().ok();
    let holder = known.and_then(|meta| lock_holder(DeviceNumber::from_stat(meta.dev()), meta.ino()));
    VolumeError::InUse { path: path.to_owned(), holder: holder.unwrap_or_else(|| "another process".into()) }
}

/// A part of `whole` that no two processes have in common: by the clock.
fn some_of(whole: Duration) -> Duration {
    let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    whole.mul_f64(f64::from(nanoseconds % 997) / 997.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::TempDir;

    /// Opened again, as another process would open it.
    fn root(volume: &TempDir) -> LockFile {
        LockFile::new(File::open(volume.path()).unwrap())
    }

    fn run(volume: &TempDir) -> Result<LockFile, VolumeError> {
        let root = root(volume);
        lock(&root, volume.path()).map(|()| root)
    }

    fn mender(volume: &TempDir) -> Option<LockFile> {
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
        assert!(waiting.set(FlockOperation::NonBlockingLockShared).unwrap());
        assert!(mender(&volume).is_none());
        drop(waiting);
        assert!(mender(&volume).is_some());
    }

    #[test]
    fn of_two_runs_that_wait_for_the_same_file_one_gets_the_volume_and_the_other_is_refused() {
        let volume = tempfile::tempdir().unwrap();
        let mending = mender(&volume).unwrap();
        let locked: Vec<Result<LockFile, VolumeError>> = std::thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| run(&volume)));
            sleep(PAUSE * 5);
            drop(mending);
            waiting.into_iter().map(|running| running.join().unwrap()).collect()
        });
        assert_eq!(locked.iter().filter(|locked| locked.is_ok()).count(), 1, "{locked:?}");
    }
}
