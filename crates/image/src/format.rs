//! The formats of disk images, by their signatures, and the parts of their headers that matter before they are opened.
//!
//! Owns the refusal of images that lead elsewhere: who can write to an image (a guest, to a raw one) could have us
//! read or write any file of the host. Never maps a block: that is QEMU's work.

use crate::bytes::{be32, be64, le32, le64};
use crate::{Disk, ImageError};
use longrun_layout::Bytes;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// How an image stores the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Byte for byte.
    Raw,
    /// QEMU's own.
    Qcow2,
    /// VMware's, in one file.
    Vmdk,
    /// Hyper-V's.
    Vhdx,
    /// Virtual PC's and the older one of Hyper-V.
    Vhd,
    /// VirtualBox's.
    Vdi,
}

impl Format {
    /// What QEMU calls it.
    #[must_use]
    pub fn driver(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vpc",
            Self::Vdi => "vdi",
        }
    }

    /// Whether the image gets smaller by what is discarded. In the other formats only a conversion makes it smaller,
    /// and only when the space was zeroed before.
    #[must_use]
    pub fn frees(self) -> bool {
        matches!(self, Self::Raw | Self::Qcow2)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "VMDK",
            Self::Vhdx => "VHDX",
            Self::Vhd => "VHD",
            Self::Vdi => "VDI",
        })
    }
}

/// What an image says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) format: Format,
    /// Internal snapshots.
    pub(crate) snapshots: u32,
    /// As the image names it.
    pub(crate) backing: Option<PathBuf>,
    /// The backing file is raw, also when its first bytes look like the header of another format: a guest can write those.
    pub(crate) is_backing_raw: bool,
    /// What needs no program to be read: the disk is this much from the start on.
    pub(crate) plain: Option<Bytes>,
    /// Why it can be read only.
    pub(crate) read_only: Option<&'static str>,
}

impl Description {
    /// Of an image that needs nothing but itself.
    pub(crate) fn of(format: Format) -> Self {
        Self { format, snapshots: 0, backing: None, is_backing_raw: false, plain: None, read_only: None }
    }
}

/// Longer than all the headers that are looked at.
const HEADER: usize = 512;

/// What `disk` is. What has no signature is raw.
pub(crate) fn identify(disk: &dyn Disk) -> Result<Description, ImageError> {
    let start = read(disk, 0, HEADER)?;
    let found = match start.as_slice() {
        [b'Q', b'F', b'I', 0xfb, ..] => qcow2(disk, &start)?,
        [b'K', b'D', b'M', b'V', ..] => vmdk(disk, &start)?,
        [b'C', b'O', b'W', b'D', ..] => return Err(unsupported(disk, "it is a VMDK of ESX 2")),
        start if start.starts_with(b"# Disk DescriptorFile") => {
            return Err(unsupported(disk, "it is a VMDK description whose data are in other files"));
        }
        start if start.starts_with(b"vhdxfile") => Description::of(Format::Vhdx),
        start if start.starts_with(b"conectix") => vhd(disk, start)?,
        start if le32(start, 64) == Some(0xbeda_107f) => vdi(disk, start)?,
        _ => raw_or_fixed_vhd(disk)?,
    };
    Ok(found)
}

/// At most `length` bytes: up to the end of the disk.
pub(crate) fn read(disk: &dyn Disk, at: u64, length: usize) -> Result<Vec<u8>, ImageError> {
    let rest = usize::try_from(disk.length().0.saturating_sub(at)).unwrap_or(usize::MAX);
    let mut found = vec![0; length.min(rest)];
    if found.is_empty() {
        return Ok(found);
    }
    disk.read(Bytes(at), &mut found).map_err(|source| ImageError::Read { path: disk.path().to_owned(), source })?;
    Ok(found)
}

fn unsupported(disk: &dyn Disk, what: &'static str) -> ImageError {
    ImageError::Unsupported { path: disk.path().to_owned(), what }
}

pub(crate) fn damaged(disk: &dyn Disk, format: Format) -> ImageError {
    ImageError::Header { path: disk.path().to_owned(), format: format.driver() }
}

fn qcow2(disk: &dyn Disk, header: &[u8]) -> Result<Description, ImageError> {
    const CORRUPT: u64 = 1 << 1;
    const DATA_ELSEWHERE: u64 = 1 << 2;
    /// The format allows no longer names.
    const LONGEST_NAME: u32 = 1023;
    let broken = || damaged(disk, Format::Qcow2);
    let version = be32(header, 4).ok_or_else(broken)?;
    if !(2..=3).contains(&version) {
        return Err(unsupported(disk, "it is a qcow image of another version than 2 and 3"));
    }
    let encryption = be32(header, 32).ok_or_else(broken)?;
    if encryption != 0 {
        return Err(unsupported(disk, "it is an encrypted qcow2 image"));
    }
    let features = if version == 2 { 0 } else { be64(header, 72).ok_or_else(broken)? };
    if features & DATA_ELSEWHERE != 0 {
        return Err(unsupported(disk, "it is a qcow2 image whose data are in another file"));
    }
    if features & CORRUPT != 0 {
        return Err(broken());
    }
    let (at, length) = be64(header, 8).zip(be32(header, 16)).ok_or_else(broken)?;
    let backing = match at {
        0 => None,
        _ if (1..=LONGEST_NAME).contains(&length) => {
            let name = read(disk, at, length as usize)?;
            Some(PathBuf::from(OsString::from_vec(name))).filter(|name| name.as_os_str().len() == length as usize)
        }
        _ => None,
    };
    if at != 0 && backing.is_none() {
        return Err(broken());
    }
    let snapshots = be32(header, 60).ok_or_else(broken)?;
    // The extensions are in the first cluster, which may be smaller than that.
    let extensions = read(disk, 0, 4096)?;
    let is_backing_raw = extension(&extensions, BACKING_FORMAT).is_some_and(|name| name == b"raw");
    Ok(Description { snapshots, backing, is_backing_raw, ..Description::of(Format::Qcow2) })
}

/// Of an extension of the header: it names the format of the backing file.
const BACKING_FORMAT: u32 = 0xe279_2aca;

/// The content of the extension `wanted` of a qcow2 header. Of one that reaches beyond `header`, what is there.
pub(crate) fn extension(header: &[u8], wanted: u32) -> Option<&[u8]> {
    const FIRST_OF_VERSION_2: u32 = 72;
    let first = if be32(header, 4)? == 2 { FIRST_OF_VERSION_2 } else { be32(header, 100)? };
    let mut at = first as usize;
    while let Some((kind, length)) =
        be32(header, at).zip(be32(header, at.checked_add(4)?)).filter(|(kind, _)| *kind != 0)
    {
        let (start, length) = (at.checked_add(8)?, length as usize);
        if kind == wanted {
            let end = start.saturating_add(length).min(header.len());
            return header.get(start..end);
        }
        at = start.checked_add(length.checked_next_multiple_of(8)?)?;
    }
    None
}

fn vmdk(disk: &dyn Disk, header: &[u8]) -> Result<Description, ImageError> {
    const COMPRESSED: u32 = 1 << 16;
    /// What QEMU reads of a description at most.
    const DESCRIPTION: u64 = 20 * 512;
    let broken = || damaged(disk, Format::Vmdk);
    let flags = le32(header, 8).ok_or_else(broken)?;
    let capacity = le64(header, 12).ok_or_else(broken)?;
    let (at, sectors) = le64(header, 28).zip(le64(header, 36)).ok_or_else(broken)?;
    if at == 0 || capacity == 0 {
        return Err(unsupported(disk, "it is a VMDK of several files"));
    }
    let at = at.checked_mul(512).ok_or_else(broken)?;
    let description = read(disk, at, sectors.saturating_mul(512).min(DESCRIPTION) as usize)?;
    let has = |text: &str| description.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()));
    if has("parentFileNameHint") || !has("parentCID=ffffffff") {
        return Err(unsupported(disk, "it is a VMDK that holds only what differs from another one"));
    }
    if !has("createType=\"monolithicSparse\"") && !has("createType=\"streamOptimized\"") {
        return Err(unsupported(disk, "it is a VMDK of several files"));
    }
    let read_only = (flags & COMPRESSED != 0).then_some("it is a compressed VMDK, which cannot be changed");
    Ok(Description { read_only, ..Description::of(Format::Vmdk) })
}

fn vdi(disk: &dyn Disk, header: &[u8]) -> Result<Description, ImageError> {
    match le32(header, 76) {
        Some(1 | 2) => Ok(Description::of(Format::Vdi)),
        Some(3 | 4) => Err(unsupported(disk, "it is a VDI that holds only what differs from another one")),
        _ => Err(damaged(disk, Format::Vdi)),
    }
}

/// Where the footer of a VHD says what kind it is.
const VHD_KIND: usize = 60;
const VHD_FOOTER: usize = 512;

fn vhd(disk: &dyn Disk, header: &[u8]) -> Result<Description, ImageError> {
    match be32(header, VHD_KIND) {
        Some(3) => Ok(Description::of(Format::Vhd)),
        Some(4) => Err(unsupported(disk, "it is a VHD that holds only what differs from another one")),
        _ => Err(damaged(disk, Format::Vhd)),
    }
}

/// A VHD of fixed size is the disk itself with a footer behind it. QEMU would calculate another size of it.
fn raw_or_fixed_vhd(disk: &dyn Disk) -> Result<Description, ImageError> {
    let raw = Description { plain: Some(disk.length()), ..Description::of(Format::Raw) };
    let Some(at) = disk.length().0.checked_sub(VHD_FOOTER as u64) else { return Ok(raw) };
    let footer = read(disk, at, VHD_FOOTER)?;
    let sum = footer.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let own = footer.get(64..68).unwrap_or_default().iter().map(|byte| u32::from(*byte)).sum::<u32>();
    if !footer.starts_with(b"conectix") || be32(&footer, 64) != Some(!(sum - own)) {
        return Ok(raw);
    }
    match (be32(&footer, VHD_KIND), be64(&footer, 48)) {
        (Some(2), Some(size)) if (1..=at).contains(&size) => {
            Ok(Description { plain: Some(Bytes(size)), ..Description::of(Format::Vhd) })
        }
        _ => Err(damaged(disk, Format::Vhd)),
    }
}

#[cfg(test)]
mod tests;
