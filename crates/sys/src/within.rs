//! Files below a directory that is open, whatever its path is by now: the root of a system that is being started is moved.

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fsync, mkdirat, openat2, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens `path` for reading with `directory` as the root: neither a leading `/`, nor `..`, nor a symbolic link leads out of it. A FIFO
/// does not block.
///
/// # Errors
/// The kernel's; `ENOSYS` before Linux 5.6.
pub fn open_within(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    open(directory, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
}

/// Writes the file at `path` as [`write_within`] does; its directory must exist.
///
/// # Errors
/// As there; `InvalidFilename` for a path that ends with no name in UTF-8.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().and_then(OsStr::to_str).ok_or(io::ErrorKind::InvalidFilename)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    write_within(File::open(directory.unwrap_or(Path::new(".")))?, name, content)
}

/// Writes the file `name` in `directory` as a whole: as a file beside it, durable, which is then renamed. For root only to read.
/// Durable when this returns.
///
/// # Errors
/// The kernel's; then what was there before is still there, and the new content is not, unless the directory alone could not be written.
pub fn write_within(directory: impl AsFd, name: &str, content: &[u8]) -> io::Result<()> {
    let directory = directory.as_fd();
    let beside = format!(".{name}.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    // One of the same number that was killed may have left it.
    _ = unlinkat(directory, &beside, AtFlags::empty());
    let mut file = File::from(open(directory, Path::new(&beside), flags, Mode::RUSR | Mode::WUSR)?);
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(directory, &beside, directory, name)?))
        .and_then(|()| Ok(fsync(directory)?));
    if written.is_err() {
        // The first error is the one that tells.
        _ = unlinkat(directory, &beside, AtFlags::empty());
    }
    written
}

/// Makes the directory `name` in `directory`, for root only, if there is none, and opens it. A symbolic link is not followed.
///
/// # Errors
/// The kernel's.
pub fn make_directory_within(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let directory = directory.as_fd();
    match mkdirat(directory, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    open(directory, Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Removes the file `name` in `directory`, if there is one.
///
/// # Errors
/// The kernel's.
pub fn remove_within(directory: impl AsFd, name: &str) -> Result<(), Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Makes `directory` the root of this process: a process from the initramfs has the wrong one after the system has started.
///
/// # Errors
/// The kernel's; needs CAP_SYS_CHROOT.
pub fn enter_root(directory: impl AsFd) -> Result<(), Errno> {
    rustix::process::fchdir(directory)?;
    rustix::process::chroot(".")
}

fn open(directory: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, mode, resolve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn read(directory: &File, path: &str) -> Result<String, Errno> {
        let mut text = String::new();
        File::from(open_within(directory, Path::new(path))?).read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn nothing_leads_out_of_the_directory() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("secret"), "out").unwrap();
        fs::create_dir(base.path().join("root")).unwrap();
        fs::write(base.path().join("root/secret"), "in").unwrap();
        symlink("/secret", base.path().join("root/absolute")).unwrap();
        symlink("../../../secret", base.path().join("root/relative")).unwrap();
        let root = File::open(base.path().join("root")).unwrap();
        for path in ["secret", "/secret", "../secret", "absolute", "relative"] {
            assert_eq!(read(&root, path).unwrap(), "in", "{path}");
        }
        assert_eq!(read(&root, "none"), Err(Errno::NOENT));
    }

    #[test]
    fn a_file_is_written_whole_for_root_only_and_removed() {
        let base = tempfile::tempdir().unwrap();
        let root = File::open(base.path()).unwrap();
        let directory = make_directory_within(&root, "state").unwrap();
        make_directory_within(&root, "state").unwrap();
        write_within(&directory, "list", b"old and long").unwrap();
        write_within(&directory, "list", b"new").unwrap();
        assert_eq!(read(&root, "state/list").unwrap(), "new");
        replace_file(&base.path().join("state/list"), b"newer").unwrap();
        assert_eq!(read(&root, "state/list").unwrap(), "newer");
        assert!(replace_file(&base.path().join("missing/list"), b"").is_err());
        assert!(replace_file(Path::new("/"), b"").is_err());
        let mode = |name: &str| fs::metadata(base.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("state"), mode("state/list")), (0o700, 0o600));
        remove_within(&directory, "list").unwrap();
        remove_within(&directory, "list").unwrap();
        assert_eq!(fs::read_dir(base.path().join("state")).unwrap().count(), 0);
        symlink("/tmp", base.path().join("link")).unwrap();
        assert!(make_directory_within(&root, "link").is_err());
    }
}
