//! Ensures that one service runs on a machine: the lock in the state directory, and the socket.

use super::DaemonError;
use longrun_sys::{FlockOperation, LockFile};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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

/// The socket. It is removed when this value is dropped.
#[derive(Debug)]
pub struct Socket {
    /// What listens.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket that stays is stale, and is replaced at the next start.
        _ = fs::remove_file(&self.path);
    }
}

/// Listens at `path`. A socket that a killed service left is replaced; one that another process answers at is not, and
/// neither is anything that is no socket.
///
/// # Errors
/// [`DaemonError::Running`] when another process answers there.
pub fn listen(path: &Path) -> Result<Socket, DaemonError> {
    let failed = |act| move |source| DaemonError::Place { path: path.to_owned(), act, source };
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed("creating its directory"))?;
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            if UnixStream::connect(path).is_ok() {
                return Err(DaemonError::Running { by: path.to_owned() });
            }
            fs::remove_file(path).map_err(failed("removing the stale socket"))?;
        }
        Ok(_) => return Err(failed("listening there")(io::Error::other("it exists and is not a socket"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("examining it")(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed("listening there"))?;
    let socket = Socket { listener, path: path.to_owned() };
    // Everybody may connect; who may ask for what is decided by who they are.
    fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed("setting its permissions"))?;
    socket.listener.set_nonblocking(true).map_err(failed("listening there"))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_or_a_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/socket");
        let first = listen(&path).unwrap();
        let second = listen(&path).unwrap_err();
        assert!(matches!(second, DaemonError::Running { .. }), "{second}");
        drop(first);
        assert!(!path.exists(), "the socket goes with the service");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a socket that nobody listens at");
        drop(listen(&path).unwrap());
        fs::write(&path, "a file").unwrap();
        let file = listen(&path).unwrap_err().to_string();
        assert!(file.contains("not a socket") && path.exists(), "{file}");
    }

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
