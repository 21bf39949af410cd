//! Detects other programs that move blocks of a volume.
//!
//! Owns the rules for trusting information about a process. Any user can choose the name of a process, and the links in
//! its command line. Therefore only processes of root count, identified by the program that they run, and nothing that
//! they name is opened or examined. The files that a process has open are identified by the mount of each descriptor.

use longrun_sys::DeviceNumber;
use longrun_sys::{Mount, parse_mountinfo};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the kernel adds to the path of a program whose file was deleted, as an update of its package does.
const DELETED: &[u8] = b" (deleted)";

/// The setuid bit.
const SET_USER: u32 = 0o4000;

/// A program that moves blocks of files too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// The name of its file.
    pub(crate) name: &'static str,
    /// What one of its arguments begins with when it does; `None` when it does nothing else.
    pub(crate) verb: Option<&'static str>,
}

/// A process of root's that runs `tool` on the volume of `mount`, in words.
pub(crate) fn at_work(tool: Tool, mount: &Mount) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().map(|process| Process(process.path())).find_map(|process| {
        let works = process.program().as_deref() == Some(OsStr::new(tool.name))
            && process.is_roots()
            && process.was_begun_by_root()
            && process.was_told(tool.verb)
            && (process.names(mount) || process.has_open(mount.device));
        works.then(|| format!("{} (process {})", tool.name, process.number()))
    })
}

/// A process of root's that holds an flock on this inode, in words. `device` is that of the volume, which for btrfs is not
/// what stat tells of a file.
pub(crate) fn lock_holder(device: DeviceNumber, inode: u64) -> Option<String> {
    let inode = format!("{:02x}:{:02x}:{inode}", device.major, device.minor);
    let table = fs::read_to_string("/proc/locks").ok()?;
    table.lines().find_map(|line| {
        // The number of the process is where it is in lines of those who hold a lock; who waits for one has an arrow before.
        let [_, "FLOCK", _, _, number, found, ..] = *line.split_whitespace().collect::<Vec<_>>() else { return None };
        let process = Process(Path::new("/proc").join(number));
        let counts = found == inode && process.is_roots() && process.was_begun_by_root() && process.holds(&inode);
        counts.then(|| process.to_string())
    })
}

/// A directory in /proc.
struct Process(PathBuf);

impl Process {
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap_or_default()
    }

    fn number(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether it is root's in every respect. The owner of the directory in /proc would not do: it is root for whatever process
    /// does not want to be dumped. Nor the effective identity alone: that of a program with the setuid bit is root's too.
    fn is_roots(&self) -> bool {
        let status = self.read("status");
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"));
        line.and_then(|line| std::str::from_utf8(line).ok()).is_some_and(|line| {
            let users: Vec<&str> = line.split_whitespace().collect();
            !users.is_empty() && users.iter().all(|user| *user == "0")
        })
    }

    /// Whether its program is not one that any user can begin as root: some of these, sudo among them, are root in every respect
    /// while they wait for a password, with a lock of the user's as their input.
    fn was_begun_by_root(&self) -> bool {
        fs::metadata(self.0.join("exe")).is_ok_and(|meta| meta.mode() & SET_USER == 0)
    }

    /// The name of the file that it executes.
    fn program(&self) -> Option<std::ffi::OsString> {
        let path = fs::read_link(self.0.join("exe")).ok()?;
        let name = path.file_name()?.as_bytes();
        Some(OsStr::from_bytes(name.strip_suffix(DELETED).unwrap_or(name)).to_owned())
    }

    fn arguments(&self) -> Vec<PathBuf> {
        let command = self.read("cmdline");
        let words = command.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
        words.map(|word| PathBuf::from(OsStr::from_bytes(word))).collect()
    }

    fn was_told(&self, verb: Option<&str>) -> bool {
        let begins =
            |verb: &str| self.arguments().iter().any(|word| word.as_os_str().as_bytes().starts_with(verb.as_bytes()));
        verb.is_none_or(begins)
    }

    /// Whether an argument is the device of the volume, or lies below its mount point, by its letters alone.
    fn names(&self, mount: &Mount) -> bool {
        let directory = fs::read_link(self.0.join("cwd")).unwrap_or_default();
        let paths = self.arguments().into_iter().map(|word| directory.join(word));
        // Below the root directory lies every other volume too.
        let is_below = |path: &PathBuf| mount.point != Path::new("/") && path.starts_with(&mount.point);
        paths.into_iter().any(|path| path == mount.point || path == mount.source || is_below(&path))
    }

    /// Whether it has a file of the volume with this number open: by the mounts of its own name space.
    fn has_open(&self, device: DeviceNumber) -> bool {
        let mounts = parse_mountinfo(&self.read("mountinfo"));
        let numbers: BTreeSet<String> =
            mounts.iter().filter(|mount| mount.device == device).map(|mount| mount.id.to_string()).collect();
        self.any_descriptor(|line| line.strip_prefix("mnt_id:").is_some_and(|number| numbers.contains(number.trim())))
    }

    /// Whether the lock on `inode` really is of a descriptor of it: the number in the table is of who took the lock, and may
    /// be another process's by now.
    fn holds(&self, inode: &str) -> bool {
        self.any_descriptor(|line| {
            line.strip_prefix("lock:")
                .is_some_and(|lock| lock.contains("FLOCK") && lock.split_whitespace().any(|word| word == inode))
        })
    }

    fn any_descriptor(&self, mut matches: impl FnMut(&str) -> bool) -> bool {
        let descriptors = fs::read_dir(self.0.join("fdinfo")).into_iter().flatten().flatten();
        descriptors
            .into_iter()
            .any(|descriptor| fs::read_to_string(descriptor.path()).is_ok_and(|text| text.lines().any(&mut matches)))
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = String::from_utf8_lossy(&self.read("comm")).trim().replace(char::is_control, "?");
        write!(f, "{name} (process {})", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A process as /proc shows it.
    fn process(top: &Path, users: &str, program: &str, arguments: &[&str]) -> Process {
        let directory = top.join("17");
        fs::create_dir_all(directory.join("fdinfo")).unwrap();
        fs::write(directory.join("status"), format!("Name:\tx\nUid:\t{users}\nGid:\t0\t0\t0\t0\n")).unwrap();
        std::os::unix::fs::symlink(program, directory.join("exe")).unwrap();
        std::os::unix::fs::symlink("/mnt", directory.join("cwd")).unwrap();
        fs::write(directory.join("cmdline"), arguments.join("\0") + "\0").unwrap();
        let mounts = "36 24 7:0 / /mnt/a rw - ext4 /dev/loop0 rw\n37 24 7:1 / /mnt/b rw - ext4 /dev/loop1 rw\n";
        fs::write(directory.join("mountinfo"), mounts).unwrap();
        fs::write(directory.join("fdinfo/3"), "pos:\t0\nmnt_id:\t37\nino:\t2\n").unwrap();
        Process(directory)
    }

    #[test]
    fn only_what_is_roots_in_every_respect_counts() {
        for (users, expected) in
            [("0\t0\t0\t0", true), ("1000\t0\t0\t0", false), ("1000\t1000\t1000\t1000", false), ("", false)]
        {
            let top = tempfile::tempdir().unwrap();
            assert_eq!(process(top.path(), users, "/usr/sbin/e4defrag", &[]).is_roots(), expected, "{users:?}");
        }
    }

    #[test]
    fn a_program_that_any_user_can_begin_as_root_does_not_count() {
        for (mode, expected) in [(0o755, true), (0o4755, false)] {
            let top = tempfile::tempdir().unwrap();
            let program = top.path().join("e4defrag");
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            let tool = process(top.path(), "0\t0\t0\t0", program.to_str().unwrap(), &[]);
            assert_eq!(tool.was_begun_by_root(), expected, "{mode:o}");
        }
    }

    #[test]
    fn a_program_is_known_by_its_file_and_what_it_works_on_by_mounts_and_letters() {
        let top = tempfile::tempdir().unwrap();
        let tool = process(top.path(), "0\t0\t0\t0", "/usr/sbin/e4defrag (deleted)", &["e4defrag", "-v", "c/d"]);
        assert_eq!(tool.program().unwrap(), "e4defrag");
        let mounts = parse_mountinfo(b"1 0 7:1 / /mnt/b rw - ext4 /dev/loop1 rw\n2 0 7:0 / /mnt/a rw - ext4 x rw\n3 0 7:3 / /mnt/c rw - ext4 x rw\n");
        let [b, a, c] = &mounts[..] else { panic!("{mounts:?}") };
        assert!(tool.has_open(b.device) && !tool.has_open(a.device), "by the mount of its descriptor");
        assert!(tool.names(c) && !tool.names(a), "by its command line");
        assert!(tool.was_told(None) && tool.was_told(Some("c/")) && !tool.was_told(Some("defrag")));
    }

    #[test]
    fn the_holder_of_a_lock_is_found_and_only_while_it_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = fs::File::open(directory.path()).unwrap();
        let meta = file.metadata().unwrap();
        let device = DeviceNumber::from_stat(meta.dev());
        assert_eq!(lock_holder(device, meta.ino()), None);
        let locked = longrun_sys::LockFile::new(file);
        assert!(locked.set(longrun_sys::FlockOperation::LockExclusive).unwrap());
        let holder = lock_holder(device, meta.ino());
        let own = holder.is_some_and(|holder| holder.contains(&format!("process {}", std::process::id())));
        assert_eq!(own, longrun_sys::is_root(), "root's lock counts, a user's does not");
    }
}
