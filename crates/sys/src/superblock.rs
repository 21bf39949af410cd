//! The UUID, the label, and for XFS the parameters of inode allocation, from a superblock.
//!
//! Reads the device itself, because udev's links do not exist everywhere.

use crate::FileSystem;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a superblock records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// UUID; `None` when it is all zero.
    pub uuid: Option<[u8; 16]>,
    /// Label.
    pub label: Option<String>,
    /// How XFS lays out its inodes.
    pub inodes: Option<InodeChunks>,
}

/// How XFS allocates inodes: in chunks of blocks, which must be contiguous and aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeChunks {
    /// Bytes of the smallest chunk that will do.
    pub chunk_bytes: u64,
    /// To what it is aligned, in bytes.
    pub align_bytes: u64,
    /// How many inodes are in it.
    pub inodes: u64,
    /// How long an allocation group is, in bytes: chunks are aligned within it.
    pub group_bytes: u64,
}

/// Reads the superblock of the `filesystem` on `device`.
///
/// # Errors
/// The device's; `InvalidData` when no such file system lies on it.
pub fn read_superblock(device: &Path, filesystem: FileSystem) -> io::Result<Superblock> {
    superblock_of(&File::open(device)?, filesystem)
}

/// As [`read_superblock`], of a device that is open.
///
/// # Errors
/// As [`read_superblock`].
pub fn superblock_of(device: &File, filesystem: FileSystem) -> io::Result<Superblock> {
    let mut block = [0; 4096];
    let offset = match filesystem {
        FileSystem::Ext4 => 1024,
        FileSystem::Xfs => 0,
        FileSystem::Btrfs => 0x10000,
    };
    device.read_exact_at(&mut block, offset)?;
    decode(&block, filesystem).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn decode(block: &[u8], filesystem: FileSystem) -> Option<Superblock> {
    let at = |offset: usize, length: usize| block.get(offset..offset + length).unwrap_or_default();
    let (is_there, uuid_at, label, inodes) = match filesystem {
        FileSystem::Ext4 => (at(56, 2) == [0x53, 0xef], 104, label(at(120, 16)), None),
        FileSystem::Xfs => (at(0, 4) == b"XFSB", 32, label(at(108, 12)), inode_chunks(block)),
        FileSystem::Btrfs => (at(0x40, 8) == b"_BHRfS_M", 0x20, label(at(0x12b, 256)), None),
    };
    let uuid = at(uuid_at, 16).try_into().ok().filter(|uuid| *uuid != [0; 16]);
    is_there.then_some(Superblock { uuid, label, inodes })
}

fn inode_chunks(block: &[u8]) -> Option<InodeChunks> {
    const SPARSE: u32 = 1 << 1;
    const CHUNK: u64 = 64;
    let be32 = |offset: usize| Some(u32::from_be_bytes(block.get(offset..offset + 4)?.try_into().ok()?));
    let be16 = |offset: usize| Some(u16::from_be_bytes(block.get(offset..offset + 2)?.try_into().ok()?));
    let (block_size, inode_size) = (u64::from(be32(4)?), u64::from(be16(104)?));
    let sparse_align = u64::from(be32(228)?);
    let sparse = be32(216)? & SPARSE != 0 && sparse_align > 0;
    let whole = CHUNK * inode_size;
    let align = if sparse { sparse_align } else { u64::from(be32(180)?).max(1) };
    // A sparse chunk may be as small as its alignment.
    let chunk = if sparse { (sparse_align * block_size).min(whole) } else { whole };
    let usable = block_size.is_power_of_two() && inode_size.is_power_of_two() && chunk >= inode_size;
    usable.then(|| InodeChunks {
        chunk_bytes: chunk.max(block_size),
        align_bytes: align * block_size,
        inodes: chunk / inode_size,
        group_bytes: u64::from(be32(84).unwrap_or(0)) * block_size,
    })
}

/// A UUID in lower case, as blkid shows it.
#[must_use]
pub fn format_uuid(bytes: &[u8; 16]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default().concat();
    [part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 16)].join("-")
}

fn label(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text).trim_end().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_superblock_has_no_name() {
        for filesystem in [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs] {
            assert_eq!(decode(&[0; 4096], filesystem), None);
            assert_eq!(decode(&[], filesystem), None);
        }
    }

    #[test]
    fn uuid_and_label_are_read_as_blkid_shows_them() {
        let mut block = [0; 4096];
        block[56..58].copy_from_slice(&[0x53, 0xef]);
        block[104..120].copy_from_slice(&[0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        block[120..124].copy_from_slice(b"data");
        let found = decode(&block, FileSystem::Ext4).unwrap();
        assert_eq!(found.uuid.as_ref().map(format_uuid).as_deref(), Some("0f010203-0405-0607-0809-0a0b0c0d0eff"));
        assert_eq!(found.label.as_deref(), Some("data"));
        block[104..120].fill(0);
        assert_eq!(decode(&block, FileSystem::Ext4).unwrap().uuid, None);
    }

    #[test]
    fn xfs_tells_how_its_inodes_are_allocated() {
        let mut block = [0; 512];
        block[..4].copy_from_slice(b"XFSB");
        block[4..8].copy_from_slice(&4096u32.to_be_bytes());
        block[84..88].copy_from_slice(&1000u32.to_be_bytes());
        block[104..106].copy_from_slice(&512u16.to_be_bytes());
        block[180..184].copy_from_slice(&8u32.to_be_bytes());
        let whole = InodeChunks { chunk_bytes: 32768, align_bytes: 32768, inodes: 64, group_bytes: 4_096_000 };
        assert_eq!(decode(&block, FileSystem::Xfs).unwrap().inodes, Some(whole));
        block[216..220].copy_from_slice(&3u32.to_be_bytes());
        block[228..232].copy_from_slice(&4u32.to_be_bytes());
        let sparse = InodeChunks { chunk_bytes: 16384, align_bytes: 16384, inodes: 32, group_bytes: 4_096_000 };
        assert_eq!(decode(&block, FileSystem::Xfs).unwrap().inodes, Some(sparse));
    }
}
