//! The socket: made where nobody else listens, and removed at the end.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process answers there.
    #[error("another process answers at {by}; stop it first, or give this one another socket", by = by.display())]
    Running {
        /// The socket.
        by: PathBuf,
    },
    /// It cannot be made.
    #[error("{path}: {act} failed: {source}; check the path and its permissions, or choose another one", path = path.display())]
    Place {
        /// Where.
        path: PathBuf,
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
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
/// [`SocketError::Running`] when another process answers there.
pub fn listen(path: &Path) -> Result<Socket, SocketError> {
    let failed = |act| move |source| SocketError::Place { path: path.to_owned(), act, source };
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed("creating its directory"))?;
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            if UnixStream::connect(path).is_ok() {
                return Err(SocketError::Running { by: path.to_owned() });
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
        assert!(matches!(second, SocketError::Running { .. }), "{second}");
        drop(first);
        assert!(!path.exists(), "the socket goes with the service");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a socket that nobody listens at");
        drop(listen(&path).unwrap());
        fs::write(&path, "a file").unwrap();
        let file = listen(&path).unwrap_err().to_string();
        assert!(file.contains("not a socket") && path.exists(), "{file}");
    }
}
