//! Identifies the content of a device or image by its signature, for errors that say what it is instead of ext4.

use longrun_engine::VolumeError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The content according to the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file system, by its usual name.
    FileSystem(&'static str),
    /// Something that holds file systems; give one of them.
    Container(&'static str),
    /// No signature that is known.
    Unknown,
}

impl Content {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FileSystem(name) | Self::Container(name) => name,
            Self::Unknown => "unknown",
        }
    }
}

struct Signature {
    offset: u64,
    bytes: &'static [u8],
    content: Content,
}

const fn file_system(offset: u64, bytes: &'static [u8], name: &'static str) -> Signature {
    Signature { offset, bytes, content: Content::FileSystem(name) }
}

const fn container(offset: u64, bytes: &'static [u8], name: &'static str) -> Signature {
    Signature { offset, bytes, content: Content::Container(name) }
}

/// The name of ext2, ext3 and ext4 alike: they have one format.
pub const EXT4: &str = "ext4";
/// NTFS.
pub const NTFS: &str = "NTFS";
/// NTFS that is encrypted as a whole.
pub const BITLOCKER: &str = "NTFS encrypted by BitLocker";

/// In order: what can stand in front of another's leftovers comes first, the boot sector's mark last.
const SIGNATURES: &[Signature] = &[
    container(0, b"QFI\xfb", "a qcow2 disk image"),
    container(0, b"KDMV", "a VMDK disk image"),
    container(0, b"# Disk DescriptorFile", "a VMDK disk image"),
    container(0, b"vhdxfile", "a VHDX disk image"),
    container(0, b"conectix", "a VHD disk image"),
    container(64, b"\x7f\x10\xda\xbe", "a VDI disk image"),
    container(0, b"LUKS\xba\xbe", "an encrypted LUKS device"),
    container(512, b"LABELONE", "an LVM physical volume"),
    file_system(0, b"XFSB", "XFS"),
    file_system(3, b"NTFS    ", NTFS),
    file_system(3, b"-FVE-FS-", BITLOCKER),
    file_system(3, b"EXFAT   ", "exFAT"),
    file_system(1080, b"\x53\xef", EXT4),
    file_system(0x10040, b"_BHRfS_M", "btrfs"),
    file_system(1024, b"\x10\x20\xf5\xf2", "F2FS"),
    file_system(0, b"hsqs", "SquashFS"),
    file_system(82, b"FAT32   ", "FAT32"),
    file_system(54, b"FAT1", "FAT"),
    file_system(0x8001, b"CD001", "ISO 9660"),
    container(4086, b"SWAPSPACE2", "swap space"),
    container(512, b"EFI PART", "a partition table (GPT)"),
    container(510, b"\x55\xaa", "a partition table or boot sector"),
];

/// Reads the signature of an opened device or image.
///
/// It may be any file, which is optimized afterwards: the kernel must not begin to read ahead here. The marks that reading ahead leaves in the
/// cache would go on with it when the optimizer reads the file a piece at a time, in as many requests at once as the file has pieces.
///
/// # Errors
/// The device's; a short file is no error.
pub fn identify(file: &File) -> io::Result<Content> {
    longrun_sys::expect_random_reads(file)?;
    identify_with(|at, buffer| file.read_exact_at(buffer, at))
}

/// The same for the regular file or block device at `path`.
///
/// # Errors
/// As [`identify`], and when it is none.
pub fn identify_at(path: &Path) -> io::Result<Content> {
    identify(&longrun_sys::open_file_or_block_device(path, File::options().read(true))?)
}

/// The same for what `read` reads from an offset.
///
/// # Errors
/// Those of `read`; `UnexpectedEof` is none.
pub fn identify_with(read: impl Fn(u64, &mut [u8]) -> io::Result<()>) -> io::Result<Content> {
    for signature in SIGNATURES {
        let mut found = vec![0; signature.bytes.len()];
        match read(signature.offset, &mut found) {
            Ok(()) if found == signature.bytes => return Ok(signature.content),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Content::Unknown)
}

/// Opens a block device or image with ext4 on it, read-only.
///
/// # Errors
/// [`VolumeError`] that names what it is instead, or why it cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File, VolumeError> {
    let io_error = |act| move |source| VolumeError::Io { path: path.to_owned(), act, source };
    let not_a_volume = |problem: &str| VolumeError::NotAVolume { path: path.to_owned(), problem: problem.to_owned() };
    let opened = longrun_sys::open_file_or_block_device(path, File::options().read(true));
    let file = opened.map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => {
            VolumeError::NotPermitted { path: path.to_owned(), act: "reading the device".into() }
        }
        io::ErrorKind::InvalidInput => not_a_volume("neither a block device nor an image file"),
        _ => io_error("opening")(source),
    })?;
    match identify(&file).map_err(io_error("reading"))? {
        Content::FileSystem(EXT4) => Ok(file),
        Content::FileSystem(name) => Err(VolumeError::Unsupported { path: path.to_owned(), what: name.into() }),
        Content::Container(name) => Err(not_a_volume(&format!("{name}, not a file system"))),
        Content::Unknown => Err(not_a_volume("not a known file system")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn with(offset: usize, bytes: &[u8]) -> File {
        let mut image = vec![0; 128 << 10];
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&image).unwrap();
        file
    }

    #[test]
    fn every_signature_is_recognised_and_an_empty_file_has_none() {
        for signature in SIGNATURES {
            let found = identify(&with(signature.offset as usize, signature.bytes)).unwrap();
            assert_eq!(found, signature.content);
        }
        assert_eq!(identify(&with(0, b"")).unwrap(), Content::Unknown);
        assert_eq!(identify(&tempfile::tempfile().unwrap()).unwrap(), Content::Unknown);
    }

    #[test]
    fn what_is_not_ext4_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let message = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            open(&path).unwrap_err().to_string()
        };
        assert!(message(b"XFSB").contains("XFS is not supported"));
        assert!(message(b"QFI\xfb").contains("a qcow2 disk image"));
        assert!(message(b"").contains("not a known file system"));
        assert!(open(directory.path()).unwrap_err().to_string().contains("neither a block device nor an image file"));
        assert!(matches!(open(&directory.path().join("none")), Err(VolumeError::Io { .. })));
    }
}
