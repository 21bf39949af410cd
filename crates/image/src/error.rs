//! The errors of images: one variant for each act that failed.
//!
//! Each message says the act, the object, the cause and the next step.

use crate::TableFault;
use std::io;
use std::path::PathBuf;

/// Why an image or device cannot be used. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its kind and size could not be asked for.
    #[error("cannot examine {path}: {source}; check the name and the permissions")]
    Examine {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory, a FIFO or the like.
    #[error("cannot use {path}: it is neither a regular file nor a block device; give a disk image or a device")]
    NotADisk {
        /// What was given.
        path: PathBuf,
    },
    /// The kernel did not open it.
    #[error("cannot open {path}: {source}; check the permissions, or run this as root")]
    Open {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else uses it, and could write to it at the same time.
    #[error(
        "cannot use {path} alone: {user}; end that use (shut the virtual machine down, unmount, detach) and try again"
    )]
    InUse {
        /// The image.
        path: PathBuf,
        /// Who, and what for, as far as that is known.
        user: String,
    },
    /// It is not known whether somebody uses it.
    #[error(
        "cannot make sure that nobody else uses {path}: {source}; use a file system that has locks, and mount /sys"
    )]
    Lock {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Its beginning, its end or its partition table could not be read.
    #[error("cannot read {path}: {source}; check the device, or restore the image")]
    Read {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Its partition table contradicts itself.
    #[error("cannot use the partition table of {path}: {fault}; check it with: fdisk -l")]
    Table {
        /// The image.
        path: PathBuf,
        /// The first contradiction found.
        fault: TableFault,
    },
    /// Its header contradicts itself.
    #[error("cannot use {path}: its {format} header is damaged; check it with: qemu-img check")]
    Header {
        /// The image.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
    },
    /// An image of a kind that cannot be worked on.
    #[error("cannot use {path}: {what}; convert it first with: qemu-img convert -O qcow2")]
    Unsupported {
        /// The image.
        path: PathBuf,
        /// Its format or feature.
        what: &'static str,
    },
    /// An image that holds only what differs from another one.
    #[error(
        "cannot write to {path}: it holds only what differs from {backing}, and would grow; merge the two with qemu-img \
         commit or qemu-img rebase first"
    )]
    Overlay {
        /// The image.
        path: PathBuf,
        /// The image that it names.
        backing: PathBuf,
    },
    /// The image that it names as its backing file is not a local image.
    #[error("cannot use {path}: its backing file {backing} is not a regular file or block device of this machine")]
    Backing {
        /// The image.
        path: PathBuf,
        /// The image that it names.
        backing: PathBuf,
    },
    /// The directory that the content of the image is to be shown in could not be made.
    #[error("cannot make a private directory for the content of {path}: {source}; make /run writable, or set TMPDIR")]
    Directory {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program that reads the format is not there.
    #[error(
        "cannot open {path}: its format needs the program qemu-storage-daemon; install it (Debian and Ubuntu: apt-get \
         install qemu-system-common)"
    )]
    NoDaemon {
        /// The image.
        path: PathBuf,
    },
    /// The program that checks and rewrites images is not there.
    #[error(
        "cannot write to {path}: the image has to be checked first, which needs the program qemu-img; install it (Debian and \
         Ubuntu: apt-get install qemu-utils qemu-system-common)"
    )]
    NoQemuImg {
        /// The image.
        path: PathBuf,
    },
    /// Its tables contradict each other. What is written to one part of the disk could change another one.
    #[error(
        "cannot write to {path}: its tables are not in order: {message}; repair a copy with qemu-img check -r all, or make one with \
         qemu-img convert, and then check the file systems in it"
    )]
    Errors {
        /// The image.
        path: PathBuf,
        /// What was found, by us or by `qemu-img check`.
        message: String,
    },
    /// The program that reads the format could not be started.
    #[error(
        "cannot start qemu-storage-daemon for {path}: {source}; check the installation of QEMU, and run this outside of containers \
         that forbid a mount namespace"
    )]
    Start {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program that reads the format did not accept the image.
    #[error(
        "cannot open {path}: qemu-storage-daemon says: {message}; check the image with: qemu-img check, and that \
         /dev/fuse can be used"
    )]
    Daemon {
        /// The image.
        path: PathBuf,
        /// What it wrote to its standard error.
        message: String,
    },
    /// Without root, its header could lead QEMU to a file of the user of the run.
    #[error(
        "cannot open {path}: it belongs to another user (ID {owner}), who could name files of yours in it for QEMU to open; run this \
         as root, where QEMU finds no other files"
    )]
    Foreign {
        /// The image.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
    },
    /// The program that reads the format does not answer.
    #[error(
        "cannot open {path}: qemu-storage-daemon was not ready within {seconds} s; try again when its storage answers"
    )]
    Slow {
        /// The image.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// Another file has the name now.
    #[error("cannot use {path}: the file was replaced while it was opened; try again")]
    Replaced {
        /// The image.
        path: PathBuf,
    },
}
