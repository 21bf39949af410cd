//! Opens files and directories on paths that unprivileged users can change.

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fcntl_getfl, fcntl_setfl, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, ReadDir};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Opens the directory `path` for reading, without following a symbolic link anywhere in it.
///
/// A user who controls a part of the path can put something else there at any time: a symbolic link that leads
/// elsewhere, a FIFO that blocks who opens it, a link to a device that acts when it is opened. None of these is
/// opened: neither the last part nor any before it may be a link (magic links of /proc included), and nothing but a
/// directory is opened at all. What remains is another directory in the place of the one expected, moved there by
/// its owner: the caller must check that the answer is the directory that it means ([`crate::mount_of_file`],
/// [`crate::is_root_of_mount`], inode number).
///
/// # Errors
/// `ELOOP` when a part of the path is a symbolic link; `ENOTDIR` when it names something else than a directory; `ENOSYS`
/// before Linux 5.6, which cannot be asked to follow no links.
pub fn open_trusted_directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::DIRECTORY)
}

/// As [`open_trusted_directory`], for what may also be a regular file: the caller must ask what it is. A FIFO does
/// not block, and has no effect beyond being opened; devices lie where only root can put them.
///
/// # Errors
/// `ELOOP` when a part of the path is a symbolic link; `ENOSYS` before Linux 5.6.
pub fn open_trusted(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::NOCTTY)
}

/// Opens `path` as `options` say if it is a regular file or a block device. Symbolic links are followed that root, we, or the owner of what
/// they lead to has made: another user could lead us to a file that they may not open themselves. Where the kernel permits it, reading does not
/// change the access time.
///
/// A user who owns the directory can put something else there at any time, a FIFO for instance, which blocks who opens it. What is opened
/// is therefore what was looked at, by its descriptor. A lease on a file is waited for, as by any reader, unless `options` have
/// `O_NONBLOCK`.
///
/// # Errors
/// The kernel's; `PermissionDenied` for the link of another user; `InvalidInput` for everything else than a file or a block device.
pub fn open_file_or_block_device(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let (looked_at, links) = follow(path)?;
    let stat = rustix::fs::fstat(&looked_at)?;
    let accepted = [0, rustix::process::geteuid().as_raw(), stat.st_uid];
    if let Some(owner) = links.into_iter().find(|owner| !accepted.contains(owner)) {
        let text =
            format!("a symbolic link of another user (ID {owner}) leads to it; give the name that the link leads to");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => {
            let file = options.open(descriptor_path(&looked_at))?;
            // To look at a file is no use of it. The kernel permits that to its owner and to root.
            _ = fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NOATIME);
            Ok(file)
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device")),
    }
}

/// What `path` leads to, opened for nothing (`O_PATH`), and the owners of the symbolic links on the way.
fn follow(path: &Path) -> io::Result<(OwnedFd, Vec<u32>)> {
    /// The kernel follows no more, either.
    const MOST_LINKS: usize = 40;
    let names = |path: &Path| path.components().rev().map(|name| name.as_os_str().to_owned()).collect::<Vec<_>>();
    let here = OFlags::PATH | OFlags::CLOEXEC;
    let mut found = rustix::fs::open(".", here, Mode::empty())?;
    let (mut links, mut left) = (Vec::new(), names(path));
    while let Some(name) = left.pop() {
        let next = rustix::fs::openat(&found, &name, here | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            found = next;
            continue;
        }
        if rustix::fs::fstatfs(&next)?.f_type == PROC_SUPER_MAGIC {
            // Nobody made it. Where it leads only the kernel knows: the name that it tells may be one for another process.
            found = rustix::fs::openat(&found, &name, here, Mode::empty())?;
            continue;
        }
        links.push(stat.st_uid);
        if links.len() > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
        left.extend(names(Path::new(OsStr::from_bytes(target.as_bytes()))));
    }
    Ok((found, links))
}

/// The name that the kernel has for a descriptor of this process. To open it opens the same file, though another has its path by now; to read
/// it as a link tells the path.
pub fn descriptor_path(descriptor: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd()).into()
}

/// The entries of the directory `path`, opened as by [`open_trusted_directory`]. The path that an entry tells of
/// itself is none to use: join its name to `path`.
///
/// # Errors
/// As [`open_trusted_directory`].
pub fn list_trusted_directory(path: &Path) -> io::Result<ReadDir> {
    let directory = open_trusted_directory(path)?;
    fs::read_dir(descriptor_path(&directory))
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    // NO_SYMLINKS covers what NOFOLLOW does; with both, a link in place of a directory would be answered as ENOTDIR.
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    #[test]
    fn a_directory_is_opened_on_its_own_path_and_on_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(base.join("real/inner")).unwrap();
        symlink(base.join("real"), base.join("link")).unwrap();
        let opened = File::from(open_trusted_directory(&base.join("real/inner")).unwrap());
        assert_eq!(opened.metadata().unwrap().ino(), fs::metadata(base.join("real/inner")).unwrap().ino());
        for path in [base.join("link"), base.join("link/inner"), base.join("link/../real")] {
            assert_eq!(open_trusted_directory(&path).unwrap_err(), Errno::LOOP, "{}", path.display());
        }
        assert_eq!(open_trusted_directory(&base.join("none")).unwrap_err(), Errno::NOENT);
        let names = |path: &Path| -> io::Result<Vec<_>> {
            Ok(list_trusted_directory(path)?.flatten().map(|entry| entry.file_name()).collect())
        };
        assert_eq!(names(&base.join("real")).unwrap(), ["inner"]);
        assert_eq!(names(&base.join("link")).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }

    #[test]
    fn a_file_is_opened_on_its_own_path_and_a_fifo_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::write(base.join("file"), "content").unwrap();
        symlink(base.join("file"), base.join("link")).unwrap();
        mknodat(CWD, base.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(File::from(open_trusted(&base.join("file")).unwrap()).metadata().unwrap().len(), 7);
        assert_eq!(open_trusted(&base.join("link")).unwrap_err(), Errno::LOOP);
        assert!(!File::from(open_trusted(&base.join("fifo")).unwrap()).metadata().unwrap().is_file());
    }

    #[test]
    fn a_link_of_another_user_leads_only_to_files_of_theirs() {
        const OTHER: u32 = 65534;
        if !crate::is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        let lchown = |name: &str| std::os::unix::fs::lchown(path(name), Some(OTHER), None).unwrap();
        fs::create_dir_all(path("directory/inner")).unwrap();
        for name in ["of-root", "of-other", "directory/inner/file"] {
            fs::write(path(name), name).unwrap();
        }
        lchown("of-other");
        let links = [
            ("ours", "of-root", 0),
            ("ours-to-other", "of-other", 0),
            ("theirs", "of-root", OTHER),
            ("theirs-to-other", "of-other", OTHER),
            ("ours-to-theirs", "theirs", 0),
            ("their-directory", "directory", OTHER),
            ("our-directory", "directory", 0),
            ("directory/up", "../of-root", 0),
            ("absolute", path("of-root").to_str().unwrap(), 0),
            ("loop", "loop", 0),
        ]
        .map(|(name, target, owner)| {
            symlink(target, path(name)).unwrap();
            if owner == OTHER {
                lchown(name);
            }
        });
        assert_eq!(links.len(), 10);
        let read = |name: &str| {
            let mut text = String::new();
            let file = open_file_or_block_device(&path(name), File::options().read(true));
            io::Read::read_to_string(&mut file?, &mut text).map(|_| text)
        };
        for (name, content) in [
            ("ours", "of-root"),
            ("ours-to-other", "of-other"),
            ("theirs-to-other", "of-other"),
            ("our-directory/inner/../inner/./file", "directory/inner/file"),
            ("our-directory/up", "of-root"),
            ("absolute", "of-root"),
        ] {
            assert_eq!(read(name).unwrap(), content, "{name}");
        }
        for name in ["theirs", "ours-to-theirs", "their-directory/inner/file", "their-directory/up"] {
            assert_eq!(read(name).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        assert_eq!(read("loop").unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert_eq!(read("of-root/more").unwrap_err().raw_os_error(), Some(Errno::NOTDIR.raw_os_error()));
        // The name that the kernel has for an open file may have gone.
        let open = File::open(path("of-root")).unwrap();
        fs::remove_file(path("of-root")).unwrap();
        let again = open_file_or_block_device(&descriptor_path(&open), File::options().read(true)).unwrap();
        assert_eq!(again.metadata().unwrap().ino(), open.metadata().unwrap().ino());
    }

    #[test]
    fn a_file_is_opened_and_neither_a_fifo_nor_a_directory_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "content").unwrap();
        symlink("file", path("link")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("fifo", path("link to fifo")).unwrap();
        let open = |path: &Path| open_file_or_block_device(path, File::options().read(true));
        for name in ["file", "link"] {
            assert_eq!(io::read_to_string(open(&path(name)).unwrap()).unwrap(), "content");
        }
        for path in [path("fifo"), path("link to fifo"), path(""), "/dev/null".into()] {
            let error = open(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(open(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn magic_links_of_proc_are_not_followed() {
        for path in ["/proc/self/cwd", "/proc/self/root/", "/proc/self/root/proc"] {
            assert_eq!(open_trusted_directory(Path::new(path)).unwrap_err(), Errno::LOOP, "{path}");
        }
    }

    #[test]
    fn what_is_no_directory_is_not_opened_and_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        let fifo = base.join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Opened without O_DIRECTORY and O_NONBLOCK it would wait for a writer for ever.
        assert_eq!(open_trusted_directory(&fifo).unwrap_err(), Errno::NOTDIR);
        fs::write(base.join("file"), "content").unwrap();
        assert_eq!(open_trusted_directory(&base.join("file")).unwrap_err(), Errno::NOTDIR);
        assert_eq!(open_trusted_directory(Path::new("/dev/null")).unwrap_err(), Errno::NOTDIR);
    }
}
