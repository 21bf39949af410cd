//! The root of a system, which may be about to be moved, and what the kernel says there.

use longrun_layout::Bytes;
use longrun_sys::{Errno, open_within};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The word on the kernel's command line that forbids reading ahead.
const FORBIDDEN: &str = "longrun.preload=0";

/// The root directory of a system. Everything is found from it: in an initramfs, /run, /dev, /proc and /sys are moved below it while we
/// work, and afterwards it is the root.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

impl Root {
    /// The directory `path`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(File::open(path)?.into())
    }

    /// What is open as standard input: the caller has opened it before it is moved.
    ///
    /// # Errors
    /// When that is no directory.
    pub fn of_standard_input() -> io::Result<Self> {
        Self::of(io::stdin().as_fd().try_clone_to_owned()?)
    }

    fn of(directory: OwnedFd) -> io::Result<Self> {
        let file = File::from(directory);
        if file.metadata()?.is_dir() { Ok(Self { directory: file.into() }) } else { Err(Errno::NOTDIR.into()) }
    }

    /// A path in this system.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_file(&self, path: &Path) -> Result<OwnedFd, Errno> {
        open_within(&self.directory, path)
    }

    /// A file of the kernel (in /proc, /sys, /dev), where it is now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_kernels(&self, path: &str) -> io::Result<File> {
        File::open(path).or_else(|_| Ok(self.open_file(Path::new(path))?.into()))
    }

    /// The text of a file of the kernel, without white space around it.
    #[must_use]
    pub fn kernels(&self, path: &str) -> Option<String> {
        let mut text = String::new();
        // They are short; what is not is none.
        self.open_kernels(path).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// Where an open file is in this system, as far as the kernel knows: of one that was opened by handle only when somebody else has
    /// used its path.
    pub(crate) fn path_of(&self, file: &File) -> Option<PathBuf> {
        let shown = |fd: BorrowedFd<'_>| std::fs::read_link(longrun_sys::descriptor_path(fd)).ok();
        let path = shown(file.as_fd())?;
        let inside = path.strip_prefix(shown(self.as_fd())?).ok()?;
        Some(Path::new("/").join(inside))
    }

    /// How much memory can be had without taking it from anybody.
    #[must_use]
    pub fn available_memory(&self) -> Option<Bytes> {
        available_in(&self.kernels("/proc/meminfo")?)
    }

    /// Whether the kernel's command line forbids it.
    #[must_use]
    pub fn forbids(&self) -> bool {
        self.kernels("/proc/cmdline").is_some_and(|line| is_forbidden(&line))
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Whether a kernel's command line forbids reading ahead.
#[must_use]
pub fn is_forbidden(command_line: &str) -> bool {
    command_line.split_ascii_whitespace().any(|word| word == FORBIDDEN)
}

fn available_in(meminfo: &str) -> Option<Bytes> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kibibytes.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_of_the_kernels_command_line_forbids_it() {
        assert!(is_forbidden("root=/dev/sda1 quiet longrun.preload=0\n"));
        for line in ["", "longrun.preload=1", "longrun.preload=00", "xlongrun.preload=0", "longrun.preload = 0"] {
            assert!(!is_forbidden(line), "{line}");
        }
    }

    #[test]
    fn the_available_memory_is_what_the_kernel_says() {
        assert_eq!(available_in("MemTotal: 8 kB\nMemAvailable:    1024 kB\n"), Some(Bytes(1 << 20)));
        assert_eq!(available_in("MemTotal: 8 kB\n"), None);
        assert_eq!(available_in("MemAvailable: 99999999999999999999 kB\n"), None);
        assert!(Root::open(Path::new("/")).unwrap().available_memory().unwrap() > Bytes(1 << 20));
    }

    #[test]
    fn only_a_directory_is_a_root() {
        assert!(Root::open(Path::new("/proc/self/status")).is_err());
        assert!(Root::open(Path::new("/none")).is_err());
    }
}
