//! What a volume is called for good, and how it is mounted.

use super::record::VolumeId;
use crate::{FileSystem, Watched};
use longrun_volume::target::Mount;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The UUID of the volume: the kernel tells it, or else its superblock.
pub(super) fn of(watched: &Watched, root: &File) -> io::Result<VolumeId> {
    match longrun_sys::volume_uuid(root) {
        Ok(uuid) => Ok(VolumeId(uuid)),
        Err(errno) => from_superblock(watched).map_err(|_| errno.into()),
    }
}

fn from_superblock(watched: &Watched) -> io::Result<VolumeId> {
    let (magic, at, uuid): (&[u8], u64, u64) = match watched.filesystem {
        FileSystem::Ext4 => (&[0x53, 0xef], 1024 + 0x38, 1024 + 0x68),
        FileSystem::Xfs => (b"XFSB", 0, 32),
        FileSystem::Btrfs => (b"_BHRfS_M", (64 << 10) + 0x40, (64 << 10) + 0x20),
    };
    let source = mount(watched).ok_or(io::ErrorKind::NotFound)?.source;
    let device = File::open(source)?;
    let mut found = vec![0; magic.len()];
    device.read_exact_at(&mut found, at)?;
    if found != magic {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = [0; 16];
    device.read_exact_at(&mut bytes, uuid)?;
    Ok(VolumeId(bytes))
}

/// Whether the mount has what is written compressed.
pub(super) fn is_compressed(watched: &Watched) -> bool {
    let options = mount(watched).map(|mount| mount.options).unwrap_or_default();
    options.iter().any(|option| option.starts_with("compress") && !option.ends_with("=no"))
}

fn mount(watched: &Watched) -> Option<Mount> {
    Mount::numbered(watched.mount).ok().flatten()
}
