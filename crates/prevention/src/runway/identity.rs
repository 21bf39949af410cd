//! The permanent identity of a volume, and its mount options.

use super::record::VolumeId;
use crate::Watched;
use longrun_sys::Mount;
use std::fs::File;
use std::io;

/// The UUID of the volume: the kernel tells it, or else its superblock.
pub(super) fn of(watched: &Watched, root: &File) -> io::Result<VolumeId> {
    match longrun_sys::volume_uuid(root) {
        Ok(uuid) => Ok(VolumeId(uuid)),
        Err(errno) => from_superblock(watched).map_err(|_| errno.into()),
    }
}

fn from_superblock(watched: &Watched) -> io::Result<VolumeId> {
    let source = mount(watched).ok_or(io::ErrorKind::NotFound)?.source;
    Ok(VolumeId(longrun_sys::read_superblock(&source, watched.filesystem)?.uuid.unwrap_or_default()))
}

/// Whether the mount has what is written compressed.
pub(super) fn is_compressed(watched: &Watched) -> bool {
    let options = mount(watched).map(|mount| mount.options).unwrap_or_default();
    options.iter().any(|option| option.starts_with("compress") && !option.ends_with("=no"))
}

fn mount(watched: &Watched) -> Option<Mount> {
    Mount::numbered(watched.mount).ok().flatten()
}
