//! Why a volume inside of an image is not mounted.
//!
//! Owns the words. Each message says the act, the object, the cause and the next step.

use longrun_engine::VolumeError;
use longrun_sys::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A volume inside of an image or a disk, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What is called its name: "XFS", "btrfs".
    pub kind: &'static str,
    /// The image or disk.
    pub path: PathBuf,
    /// Where it begins there, in bytes.
    pub start: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} volume in {}", self.kind, self.path.display())?;
        if self.start > 0 {
            write!(f, " at byte {}", self.start)?;
        }
        Ok(())
    }
}

/// Why a volume inside of an image was not mounted, or not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// Mounting it would complete what its system left undone.
    #[error(
        "cannot use {place}: it was not unmounted cleanly ({what}), and its system may be suspended; start that system, shut it \
         down, and try again"
    )]
    Unclean {
        /// The volume.
        place: Place,
        /// What says so.
        what: &'static str,
    },
    /// The program that knows the log of XFS is not there.
    #[error(
        "cannot find out whether the log of {place} is clean: there is no program xfs_logprint; install the package xfsprogs"
    )]
    NoLogProgram {
        /// The volume.
        place: Place,
    },
    /// The program that knows the log of XFS could not be run.
    #[error("cannot run xfs_logprint on {place}: {source}; check the installation of the package xfsprogs")]
    LogProgram {
        /// The volume.
        place: Place,
        /// The system's answer.
        source: io::Error,
    },
    /// The program that knows the log of XFS does not say what its state is.
    #[error(
        "cannot find out whether the log of {place} is clean: xfs_logprint does not say so; check the volume in its own system \
         with: xfs_repair -n"
    )]
    LogUnknown {
        /// The volume.
        place: Place,
    },
    /// Two of the same identity would be mixed up by the kernel.
    #[error(
        "cannot mount {place}: a btrfs with the same UUID is mounted on this machine; unmount that one first, and if this is a \
         copy of it give it a UUID of its own with: btrfstune -u"
    )]
    SameIdentity {
        /// The volume.
        place: Place,
    },
    /// There is no loop device for it.
    #[error(
        "cannot make a loop device of {place}: {source}; look at the loop devices in use with losetup --list, and load the \
         kernel's module with modprobe loop"
    )]
    Loop {
        /// The volume.
        place: Place,
        /// The kernel's answer.
        source: Errno,
    },
    /// There is no directory to mount it on.
    #[error("cannot make a private directory to mount {place} on: {source}; make /run writable, or set TMPDIR")]
    Directory {
        /// The volume.
        place: Place,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel did not mount it.
    #[error("cannot mount {place}: {source}; the kernel's log says why (dmesg)")]
    Mount {
        /// The volume.
        place: Place,
        /// The kernel's answer.
        source: Errno,
    },
    /// The kernel did not unmount it: a file of it stays open.
    #[error(
        "cannot unmount {place}: {source}; it goes as soon as the program ends that uses it: do not start its system before that"
    )]
    Unmount {
        /// The volume.
        place: Place,
        /// The kernel's answer.
        source: Errno,
    },
    /// It is not known whether all that was written is on disk.
    #[error("cannot write {place} to disk: {source}; check the storage, and the volume in its own system")]
    Write {
        /// The volume.
        place: Place,
        /// The system's answer.
        source: io::Error,
    },
}

/// As an error of a volume. No `From`: a second one would leave `?` in the rest of the crate without a type.
pub(super) fn refused(error: InsideError) -> VolumeError {
    VolumeError::Image(Box::new(error))
}

/// What speaks against mounting a volume, by what its superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// It was not unmounted.
    Unclean(&'static str),
    /// It is made in a way that cannot be used from here.
    Unsupported(&'static str),
    /// There is no such volume.
    Missing,
}

impl Objection {
    pub(super) fn about(self, place: &Place) -> VolumeError {
        let path: &Path = &place.path;
        match self {
            Self::Unclean(what) => refused(InsideError::Unclean { place: place.clone(), what }),
            Self::Unsupported(what) => {
                VolumeError::Unsupported { path: path.to_owned(), what: format!("{} {what}", place.kind) }
            }
            Self::Missing => {
                let problem = format!("no {} volume at byte {}", place.kind, place.start);
                VolumeError::NotAVolume { path: path.to_owned(), problem }
            }
        }
    }
}
