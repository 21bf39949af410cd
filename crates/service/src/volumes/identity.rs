//! UUID and label of a volume, and what else its superblock says once and for all.
//!
//! Owns the places of these fields. Reads the device: links made by udev are not everywhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a superblock says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// UUID, in lower case.
    pub uuid: Option<String>,
    /// Label.
    pub label: Option<String>,
    /// How XFS lays out its inodes.
    pub inodes: Option<InodeChunks>,
}

/// How XFS allocates inodes: a chunk of blocks at a time, which must be contiguous and aligned.
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

/// Reads UUID and label of the `filesystem` on `device`.
///
/// # Errors
/// The device's.
pub fn identify(device: &Path, filesystem: &str) -> io::Result<Identity> {
    let file = File::open(device)?;
    let mut block = [0; 4096];
    let offset = match filesystem {
        "ext4" => 1024,
        "btrfs" => 0x10000,
        _ => 0,
    };
    file.read_exact_at(&mut block, offset)?;
    Ok(decode(&block, filesystem))
}

fn decode(block: &[u8], filesystem: &str) -> Identity {
    let at = |offset: usize, length: usize| block.get(offset..offset + length).unwrap_or_default();
    match filesystem {
        "ext4" if at(56, 2) == [0x53, 0xef] => {
            Identity { uuid: uuid(at(104, 16)), label: label(at(120, 16)), inodes: None }
        }
        "xfs" if at(0, 4) == b"XFSB" => {
            Identity { uuid: uuid(at(32, 16)), label: label(at(108, 12)), inodes: inode_chunks(block) }
        }
        "btrfs" if at(0x40, 8) == b"_BHRfS_M" => {
            Identity { uuid: uuid(at(0x20, 16)), label: label(at(0x12b, 256)), inodes: None }
        }
        _ => Identity::default(),
    }
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

fn uuid(bytes: &[u8]) -> Option<String> {
    if bytes.len() != 16 || bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    Some(format_uuid(bytes))
}

/// The 16 bytes of a UUID, as blkid shows them.
#[must_use]
pub fn format_uuid(bytes: &[u8]) -> String {
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
        for filesystem in ["ext4", "xfs", "btrfs", "ntfs"] {
            assert_eq!(decode(&[0; 4096], filesystem), Identity::default());
            assert_eq!(decode(&[], filesystem), Identity::default());
        }
    }

    #[test]
    fn uuid_and_label_are_read_as_blkid_shows_them() {
        let mut block = [0; 4096];
        block[56..58].copy_from_slice(&[0x53, 0xef]);
        block[104..120].copy_from_slice(&[0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        block[120..124].copy_from_slice(b"data");
        let identity = decode(&block, "ext4");
        assert_eq!(identity.uuid.as_deref(), Some("0f010203-0405-0607-0809-0a0b0c0d0eff"));
        assert_eq!(identity.label.as_deref(), Some("data"));
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
        assert_eq!(decode(&block, "xfs").inodes, Some(whole));
        block[216..220].copy_from_slice(&3u32.to_be_bytes());
        block[228..232].copy_from_slice(&4u32.to_be_bytes());
        let sparse = InodeChunks { chunk_bytes: 16384, align_bytes: 16384, inodes: 32, group_bytes: 4_096_000 };
        assert_eq!(decode(&block, "xfs").inodes, Some(sparse));
    }
}
