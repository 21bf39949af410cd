//! Owner, permissions, extended attributes (access lists and labels among them) and flags of a file, for another one.
//!
//! Owns the order in which they are set. Never touches content.

use rustix::fs::{Gid, IFlags, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;

/// Sets on an empty file what must be set before it has content: on btrfs that it is not copied on write.
pub(super) fn prepare(old: &File, new: &File) -> io::Result<()> {
    match rustix::fs::ioctl_getflags(old) {
        Ok(flags) if flags.contains(IFlags::NOCOW) => {
            Ok(rustix::fs::ioctl_setflags(new, rustix::fs::ioctl_getflags(new)? | IFlags::NOCOW)?)
        }
        // Where files have no flags there are none to keep.
        _ => Ok(()),
    }
}

/// Gives `new` the owner, the extended attributes and the permissions of `old`.
pub(super) fn keep(old: &File, new: &File) -> io::Result<()> {
    let (from, to) = (old.metadata()?, new.metadata()?);
    if (from.uid(), from.gid()) != (to.uid(), to.gid()) {
        rustix::fs::fchown(new, Some(Uid::from_raw(from.uid())), Some(Gid::from_raw(from.gid())))?;
    }
    let (wanted, found) = (extended(old)?, extended(new)?);
    for (name, value) in &wanted {
        if found.get(name) != Some(value) {
            rustix::fs::fsetxattr(new, name, value, XattrFlags::empty())?;
        }
    }
    // A directory may hand down an access list. Labels cannot be taken away, only changed.
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        if !name.as_encoded_bytes().starts_with(b"security.") {
            rustix::fs::fremovexattr(new, name)?;
        }
    }
    // Last: a change of the owner clears some bits, an access list sets others.
    Ok(rustix::fs::fchmod(new, Mode::from_raw_mode(from.mode() & 0o7777))?)
}

fn extended(file: &File) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    names.truncate(length);
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsString::from_vec(name.to_vec());
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(file, &name, &mut value[..])?;
        value.truncate(length);
        found.insert(name, value);
    }
    Ok(found)
}
