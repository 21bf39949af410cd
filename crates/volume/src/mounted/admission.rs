//! The conditions that every mounted volume must meet to be optimized, whatever its file system.
//!
//! Owns the refusals that all engines share, the opening of the root directory, and the order of both. The refusals of
//! one file system come between [`Candidate::of`], [`Candidate::open_root`] and [`Candidate::lock`]: checks that touch
//! nothing come first, the lock last. Never writes to the volume.

use super::backing::growing;
use super::io;
use super::lock_place::VolumeLock;
use super::others::{self, Tool};
use crate::Target;
use longrun_engine::VolumeError;
use longrun_sys::{DeviceNumber, Mount, volume_members};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What differs between file systems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What the kernel calls the file system in mountinfo.
    pub(crate) filesystem: &'static str,
    /// What people call it, for messages.
    pub(crate) title: &'static str,
    /// Whether nothing but the whole volume will do. Else also a mount of a part of it is admitted: a bind mount, or a
    /// subvolume, whose root in mountinfo is not "/" either.
    pub(crate) whole: bool,
    /// Whether data must not be moved while this option of the file system is in force.
    pub(crate) is_unsafe: fn(&str) -> bool,
    /// Whether a directory that was opened by the path of the mount point is the root of that mount, not of one that
    /// hides it. [`is_on_device`] where files tell the device number that mountinfo has; on btrfs each subvolume has
    /// its own.
    pub(crate) is_root: fn(&File, &Mount) -> std::io::Result<bool>,
    /// A program that moves blocks of its files too.
    pub(crate) other_optimizer: Tool,
}

/// A mounted volume against which nothing speaks so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    target: &'a Target,
    terms: Terms,
    /// Where it is mounted.
    pub(crate) mount: &'a Mount,
}

impl<'a> Candidate<'a> {
    /// Checks the mount, our privilege and what lies below the devices.
    pub(crate) fn of(target: &'a Target, terms: Terms) -> Result<Self, VolumeError> {
        let path = || target.given.clone();
        let not_writable = |state: &str| VolumeError::NotWritable { path: path(), state: state.to_owned() };
        let unsupported = |what: String| VolumeError::Unsupported { path: path(), what };
        let (Some(mount), Some(device)) = (&target.mount, target.device_number) else {
            return Err(not_writable("not mounted"));
        };
        if mount.filesystem != terms.filesystem {
            return Err(unsupported(mount.filesystem.clone()));
        }
        if !mount.writable {
            return Err(not_writable("mounted read-only"));
        }
        if terms.whole && !mount.is_whole() {
            return Err(unsupported(format!("a bind mount of {} without the whole volume", mount.root.display())));
        }
        if !longrun_sys::is_root() {
            return Err(VolumeError::NotPermitted { path: path(), act: "optimizing a volume".into() });
        }
        if let Some(option) = mount.options.iter().find(|option| (terms.is_unsafe)(option)) {
            return Err(unsupported(format!("{} mounted with {option}", terms.title)));
        }
        refuse_growing(&target.given, device)?;
        Ok(Self { target, terms, mount })
    }

    /// Opens its root directory.
    pub(crate) fn open_root(&self) -> Result<File, VolumeError> {
        let point = &self.mount.point;
        // Who owns a directory above it can put something else there.
        let root = longrun_sys::open_trusted_directory(point).map_err(io(point, "opening the root directory"))?;
        let root = File::from(root);
        if !(self.terms.is_root)(&root, self.mount).map_err(io(point, "examining the root directory"))? {
            let problem = "hidden by another mount".into();
            return Err(VolumeError::NotAVolume { path: self.target.given.clone(), problem });
        }
        Ok(root)
    }

    /// Excludes other optimizers of the volume of `root` until the answer is dropped, and looks for one that knows
    /// nothing of our lock. A file that is being mended is waited for.
    pub(crate) fn lock(&self, root: &File) -> Result<VolumeLock, VolumeError> {
        let lock = VolumeLock::whole(root, &self.target.given)?;
        self.look_for_others().map(|()| lock)
    }

    /// As [`Self::lock`], for no longer than it takes to mend one file; the present holder of the lock is not waited for.
    pub(crate) fn lock_for_one_file(&self, root: &File) -> Result<VolumeLock, VolumeError> {
        let lock = VolumeLock::for_one_file(root, &self.target.given)?;
        self.look_for_others().map(|()| lock)
    }

    fn look_for_others(&self) -> Result<(), VolumeError> {
        match others::at_work(self.terms.other_optimizer, self.mount) {
            Some(holder) => Err(VolumeError::InUse { path: self.target.given.clone(), holder }),
            None => Ok(()),
        }
    }
}

/// Refuses the volume at `path` if each rewritten block takes space of a pool or a snapshot below `device`, or below another
/// that the volume has.
pub(crate) fn refuse_growing(path: &Path, device: DeviceNumber) -> Result<(), VolumeError> {
    match volume_members(device).into_iter().find_map(|member| growing(Path::new("/sys"), member)) {
        Some(growing) => Err(VolumeError::Unsupported { path: path.to_owned(), what: growing.to_string() }),
        None => Ok(()),
    }
}

/// Whether `root` tells the device number of `mount`.
pub(crate) fn is_on_device(root: &File, mount: &Mount) -> std::io::Result<bool> {
    Ok(DeviceNumber::from_stat(root.metadata()?.dev()) == mount.device)
}

/// Whether files are mapped straight to the device: no cached pages that could be exchanged or compared.
pub(crate) fn is_dax(option: &str) -> bool {
    option == "dax" || option == "dax=always"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Subject;

    const TERMS: Terms = Terms {
        filesystem: "ext4",
        title: "ext4",
        whole: true,
        is_unsafe: is_dax,
        is_root: is_on_device,
        other_optimizer: Tool { name: "e4defrag", verb: None },
    };

    /// A volume that nothing speaks against but what `change` makes of it.
    fn target(change: impl FnOnce(&mut Mount)) -> Target {
        let device = DeviceNumber { major: 999, minor: 1 };
        let mut mount = Mount {
            id: 1,
            device,
            root: "/".into(),
            point: "/".into(),
            writable: true,
            filesystem: "ext4".into(),
            source: "/dev/none".into(),
            options: vec!["rw".into()],
        };
        change(&mut mount);
        Target {
            given: "/volume".into(),
            subject: Subject::Volume,
            device: "/dev/none".into(),
            device_number: Some(device),
            mount: Some(mount),
            inside: None,
            spoils_shadow_copies: false,
        }
    }

    fn refusal(target: &Target, terms: Terms) -> String {
        Candidate::of(target, terms).map_or_else(|error| error.to_string(), |_| "admitted".into())
    }

    #[test]
    fn what_is_not_mounted_is_refused_before_anything_else() {
        let mut image = target(|_| {});
        image.mount = None;
        assert_eq!(refusal(&image, TERMS), "/volume is not mounted; mount it read-write first");
    }

    #[test]
    fn every_refusal_is_made_and_the_first_that_applies_is_told() {
        // Everything speaks against it, and then one thing less at a time.
        let mut target = target(|mount| {
            mount.filesystem = "tmpfs".into();
            mount.writable = false;
            mount.root = "/part".into();
            mount.options.push("dax=always".into());
        });
        type Change = fn(&mut Mount);
        let mends: [(&str, Change); 3] = [
            ("tmpfs is not supported", |mount| mount.filesystem = "ext4".into()),
            ("mounted read-only", |mount| mount.writable = true),
            ("a bind mount of /part", |mount| mount.root = "/".into()),
        ];
        for (words, mend) in mends {
            let told = refusal(&target, TERMS);
            assert!(told.contains(words), "{words}: {told}");
            target.mount.as_mut().into_iter().for_each(mend);
        }
        let last = refusal(&target, TERMS);
        let expected = if longrun_sys::is_root() { "ext4 mounted with dax=always" } else { "needs root" };
        assert!(last.contains(expected), "{last}");
    }

    #[test]
    fn a_part_of_a_volume_is_refused_only_where_all_of_it_is_needed() {
        let part = target(|mount| mount.root = "/subvolume".into());
        assert!(refusal(&part, TERMS).contains("without the whole volume"));
        assert!(!refusal(&part, Terms { whole: false, ..TERMS }).contains("without the whole volume"));
    }

    #[test]
    fn a_mount_that_another_one_hides_is_refused() {
        let hidden = target(|_| {});
        let Some(mount) = &hidden.mount else { panic!("it is mounted") };
        let candidate = Candidate { target: &hidden, terms: TERMS, mount };
        let error = candidate.open_root().unwrap_err().to_string();
        assert!(error.contains("hidden by another mount"), "{error}");
    }
}
