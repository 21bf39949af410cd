//! A root directory in which a child finds its program and nothing else of this machine.
//!
//! Owns what is in it. Never decides which program runs there, and which files it gets open.

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Where systems keep programs and libraries. On most of them all but the first are links into it.
const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Where the loader looks for libraries, and the devices that a program without hardware opens.
const FILES: [&str; 4] = ["etc/ld.so.cache", "dev/null", "dev/urandom", "dev/fuse"];
/// Of the child alone: /proc as a whole would lead out by the root directory of any other process.
const DESCRIPTORS: &str = "proc/self/fd";
/// What these lie in.
const DIRECTORIES: [&str; 5] = ["etc", "dev", "proc", "proc/self", DESCRIPTORS];

/// A directory that a child can have as its root.
#[derive(Clone, Debug)]
pub struct Sandbox {
    root: CString,
    /// What is shown there, under which path of the machine's own root.
    shown: Vec<(CString, CString)>,
}

impl Sandbox {
    /// Makes in `root`, an empty directory that only root may enter, what programs are mounted on. `root` is an absolute path.
    ///
    /// # Errors
    /// The kernel's.
    pub fn furnish(root: &Path) -> io::Result<Self> {
        for directory in DIRECTORIES {
            fs::create_dir(root.join(directory))?;
        }
        let mut shown = vec![(path(&Path::new("/").join(DESCRIPTORS))?, path(&root.join(DESCRIPTORS))?)];
        for name in PROGRAMS.into_iter().chain(FILES) {
            let (of_machine, here) = (Path::new("/").join(name), root.join(name));
            let Ok(meta) = fs::symlink_metadata(&of_machine) else { continue };
            if meta.is_symlink() {
                symlink(fs::read_link(&of_machine)?, here)?;
                continue;
            }
            if meta.is_dir() {
                fs::create_dir(&here)?;
            } else {
                fs::File::create_new(&here)?;
            }
            shown.push((path(&of_machine)?, path(&here)?));
        }
        Ok(Self { root: path(root)?, shown })
    }

    /// Has the child run with this root: its path names lead to programs and libraries, which it cannot change, to its own descriptors,
    /// and to what it makes in the root itself. What it mounts nobody else sees, and it has no network. Needs root.
    ///
    /// The program is started with an errno of mount(2) or unshare(2) where that is forbidden.
    pub fn confine(&self, command: &mut Command) {
        let sandbox = self.clone();
        // SAFETY: between fork and exec only system calls are made, on strings that were made before; nothing is allocated.
        unsafe { command.pre_exec(move || Ok(sandbox.enter()?)) };
    }

    fn enter(&self) -> Result<(), Errno> {
        // SAFETY: there is one thread after a fork, and the table of descriptors stays as it is.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        // Not every kernel has network namespaces. No image that is opened names a host.
        // SAFETY: as above.
        _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
        // Before anything is mounted: nothing of it may show outside, where the directory is removed.
        rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        for (from, to) in &self.shown {
            rustix::mount::mount_bind(from.as_c_str(), to.as_c_str())?;
            if !from.as_bytes().starts_with(b"/dev/") && !from.as_bytes().starts_with(b"/proc/") {
                let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
                rustix::mount::mount_remount(to.as_c_str(), flags, c"")?;
            }
        }
        rustix::process::chroot(self.root.as_c_str())?;
        rustix::process::chdir(c"/")
    }

    /// Removes what [`Self::furnish`] made in `root`. One by one: should anything be mounted there, it is not removed.
    pub fn remove(root: &Path) {
        for name in PROGRAMS.into_iter().chain(FILES).chain(DIRECTORIES.into_iter().rev()) {
            let path = root.join(name);
            _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
    }
}

fn path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PassedFile, is_root, pass_files};
    use std::process::Output;

    /// What a script prints in a sandbox where it has `file` open.
    fn run(script: &str, file: &fs::File) -> Output {
        let directory = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::furnish(directory.path()).unwrap();
        let passed = PassedFile::of(file).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(passed.name());
        sandbox.confine(&mut command);
        pass_files(&mut command, vec![passed]);
        let output = command.output().unwrap();
        Sandbox::remove(directory.path());
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name == "made"), "{left:?}");
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(directory.path().to_str().unwrap()));
        output
    }

    #[test]
    fn a_confined_child_reaches_its_file_and_no_other() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (file, secret) = (base.path().join("file"), base.path().join("secret"));
        fs::write(&file, "before").unwrap();
        fs::write(&secret, "secret").unwrap();
        let open = fs::File::options().read(true).write(true).open(&file).unwrap();
        fs::rename(&file, base.path().join("renamed")).unwrap();
        let secret = secret.display();
        let script = format!(
            "printf after >\"$1\" && touch /made && cat {secret} /proc/1/root/{secret} /proc/self/root/{secret} ../../../..{secret} /etc/passwd; \
             touch /usr/made /lib/made /etc/ld.so.cache 2>&1; ls /"
        );
        let output = run(&script, &open);
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(base.path().join("renamed")).unwrap(), "after", "{errors}");
        assert!(!said.contains("secret\n") && !said.contains("root:"), "{said}");
        assert_eq!(errors.matches("No such file").count(), 5, "{errors}");
        assert!(said.matches("Read-only file system").count() >= 2, "{said}");
        assert!(said.contains("made") && !said.contains("home"), "{said}");
    }

    #[test]
    fn a_confined_child_inherits_only_what_is_passed() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let open = tempfile::tempfile().unwrap();
        let leaked = rustix::io::dup(fs::File::open(base.path()).unwrap()).unwrap();
        assert!(rustix::io::fcntl_getfd(&leaked).unwrap().is_empty(), "it would not be inherited anyway");
        let output = run("ls -l /proc/self/fd/; stat -L \"$1\"", &open);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(!said.contains(base.path().to_str().unwrap()), "{said}");
        drop(leaked);
    }
}
