//! Ensures that one service runs on a machine: the lock in the state directory.

use super::DaemonError;
use longrun_sys::{FlockOperation, LockFile};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The lock. It is held until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: LockFile,
}

/// Makes the state directory and takes its lock.
///
/// # Errors
/// [`DaemonError::Running`] when another service has it.
pub fn lock(directory: &Path) -> Result<Lock, DaemonError> {
    let failed = |path: &Path, act| {
        let path = path.to_owned();
        move |source| DaemonError::Place { path, act, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory, "creating it"))?;
    let path = directory.join("daemon.lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(failed(&path, "opening it"))?;
    let file = LockFile::new(file);
    match file.set(FlockOperation::NonBlockingLockExclusive) {
        Ok(true) => Ok(Lock { _file: file }),
        Ok(false) => Err(DaemonError::Running { by: path }),
        Err(errno) => Err(failed(&path, "locking it")(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_second_service_in_the_same_state_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let first = lock(&state).unwrap();
        assert!(matches!(lock(&state).unwrap_err(), DaemonError::Running { .. }));
        drop(first);
        lock(&state).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
