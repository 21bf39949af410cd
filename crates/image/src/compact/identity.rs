//! What tells one image from another: identifiers, names and geometry, which are copied to the new one.
//!
//! Owns where they are in each format. A program that knows an image by its identifier must find the same one.

use super::CompactError;
use crate::bytes::{array, be32, be64, le32, le64};
use crate::format::{Format, read};
use crate::{Disk as _, FileDisk, ImageError};
use longrun_layout::Bytes;

/// Copies them from `old` to `new`, which is of the same format and size.
pub(super) fn keep(old: &FileDisk, new: &FileDisk, format: Format) -> Result<(), CompactError> {
    match format {
        // Nothing but content, and nothing that others refer to.
        Format::Raw | Format::Qcow2 => Ok(()),
        Format::Vmdk => vmdk(old, new),
        Format::Vhdx => vhdx(old, new),
        Format::Vhd => vhd(old, new),
        Format::Vdi => vdi(old, new),
    }
}

fn write(new: &FileDisk, at: u64, data: &[u8]) -> Result<(), CompactError> {
    let failed =
        |source| CompactError::Io { path: new.path().to_owned(), act: "writing the identity of the image", source };
    new.write(Bytes(at), data).map_err(failed)
}

fn strange(image: &FileDisk) -> CompactError {
    ImageError::Header { path: image.path().to_owned(), format: "new" }.into()
}

fn unsupported(image: &FileDisk, what: &'static str) -> CompactError {
    CompactError::Unsupported { path: image.path().to_owned(), what }
}

/// Where the description of a VMDK is, how long it may be, and its text.
pub(super) fn vmdk_description(image: &FileDisk) -> Result<(u64, u64, Vec<u8>), CompactError> {
    const LONGEST: u64 = 1 << 20;
    let header = read(image, 0, 512)?;
    let place = le64(&header, 28).zip(le64(&header, 36));
    let place = place.map(|(at, sectors)| (at.saturating_mul(512), sectors.saturating_mul(512)));
    let (at, room) = place.filter(|(at, room)| *at > 0 && *room <= LONGEST).ok_or_else(|| strange(image))?;
    let mut text = read(image, at, usize::try_from(room).unwrap_or(0))?;
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    Ok((at, room, text))
}

/// The description as a whole: it has the identifiers, the adapter and the geometry, and is the same for the same size.
fn vmdk(old: &FileDisk, new: &FileDisk) -> Result<(), CompactError> {
    let ((_, _, mut text), (at, room, _)) = (vmdk_description(old)?, vmdk_description(new)?);
    if text.len() as u64 >= room {
        return Err(unsupported(old, "its description is longer than the one of a new image may be"));
    }
    text.resize(usize::try_from(room).unwrap_or(text.len()), 0);
    write(new, at, &text)
}

/// The footer, which has the identifier, the geometry and who made it, stands at both ends. Where the table is may differ.
fn vhd(old: &FileDisk, new: &FileDisk) -> Result<(), CompactError> {
    const FOOTER: u64 = 512;
    const CHECKSUM: usize = 64;
    let (mut footer, made) = (read(old, 0, 512)?, read(new, 0, 512)?);
    let end = new.length().0.checked_sub(FOOTER).ok_or_else(|| strange(new))?;
    if read(new, end, 512)? != made || be64(&footer, 48) != be64(&made, 48) || footer.len() != made.len() {
        return Err(unsupported(old, "its size is another one than its geometry says"));
    }
    let table = 16..24;
    if let (Some(to), Some(from)) = (footer.get_mut(table.clone()), made.get(table)) {
        to.copy_from_slice(from);
    }
    let mut sum = 0_u32;
    for (at, byte) in footer.iter().enumerate() {
        sum = sum.wrapping_add(if (CHECKSUM..CHECKSUM + 4).contains(&at) { 0 } else { u32::from(*byte) });
    }
    if let Some(place) = footer.get_mut(CHECKSUM..CHECKSUM + 4) {
        place.copy_from_slice(&(!sum).to_be_bytes());
    }
    write(new, end, &footer)?;
    write(new, 0, &footer)
}

/// The header that a VHD of growing size has behind its first footer.
pub(super) fn vhd_header(image: &FileDisk) -> Result<Vec<u8>, CompactError> {
    let at = be64(&read(image, 0, 512)?, 16).ok_or_else(|| strange(image))?;
    let header = read(image, at, 1024)?;
    if header.starts_with(b"cxsparse") && be32(&header, 32).is_some() { Ok(header) } else { Err(strange(image)) }
}

/// The values of the field that says what a VDI is.
pub(super) struct VdiKinds {
    pub(super) dynamic: u32,
    pub(super) fixed: u32,
}

pub(super) const VDI_KINDS: VdiKinds = VdiKinds { dynamic: 1, fixed: 2 };

/// Names, geometry and identifiers. What is between them says where the content is.
fn vdi(old: &FileDisk, new: &FileDisk) -> Result<(), CompactError> {
    const COPIED: [(u64, usize); 4] = [(0, 64), (80, 260), (348, 12), (392, 120)];
    const CONTENT: usize = 512;
    let (from, to) = (read(old, 0, CONTENT)?, read(new, 0, CONTENT)?);
    let is_apart = |header: &[u8]| le32(header, 340).is_some_and(|at| at as usize >= CONTENT);
    if le64(&from, 368) != le64(&to, 368) || !is_apart(&from) || !is_apart(&to) {
        return Err(unsupported(old, "its header has another form than usual"));
    }
    for (at, length) in COPIED {
        let piece = from.get(at as usize..at as usize + length).ok_or_else(|| strange(old))?;
        write(new, at, piece)?;
    }
    Ok(())
}

/// A GUID as it stands on the disk.
type Guid = [u8; 16];

/// What a VHDX says of itself, and where.
pub(super) struct Vhdx {
    pub(super) block_size: u32,
    pub(super) flags: u32,
    /// By which the guest knows the disk.
    identifier: (u64, Guid),
    /// What it is told.
    physical_sector: (u64, u32),
}

impl Vhdx {
    pub(super) fn read(image: &FileDisk) -> Result<Self, CompactError> {
        const REGIONS: u64 = 192 << 10;
        const METADATA: Guid = *b"\x06\xa2\x7c\x8b\x90\x47\x9a\x4b\xb8\xfe\x57\x5f\x05\x0f\x88\x6e";
        const PARAMETERS: Guid = *b"\x37\x67\xa1\xca\x36\xfa\x43\x4d\xb3\xb6\x33\xf0\xaa\x44\xe7\x6b";
        const IDENTIFIER: Guid = *b"\xab\x12\xca\xbe\xe6\xb2\x23\x45\x93\xef\xc3\x09\xe0\x00\xc7\x46";
        const PHYSICAL: Guid = *b"\xc7\x48\xa3\xcd\x5d\x44\x71\x44\x9c\xc9\xe9\x88\x52\x51\xc5\x56";
        const TABLE: usize = 64 << 10;
        let broken = || ImageError::Header { path: image.path().to_owned(), format: Format::Vhdx.driver() };
        let regions = read(image, REGIONS, TABLE)?;
        let at = entries(&regions, 16, &METADATA).and_then(|entry| le64(entry, 16)).ok_or_else(broken)?;
        let table = read(image, at, TABLE)?;
        if !regions.starts_with(b"regi") || !table.starts_with(b"metadata") {
            return Err(broken().into());
        }
        let item = |guid: &Guid| -> Result<(u64, Vec<u8>), CompactError> {
            let place = entries(&table, 32, guid).and_then(|entry| le32(entry, 16)).ok_or_else(broken)?;
            let place = at.checked_add(u64::from(place)).ok_or_else(broken)?;
            Ok((place, read(image, place, 16)?))
        };
        let (parameters, identifier, physical) = (item(&PARAMETERS)?, item(&IDENTIFIER)?, item(&PHYSICAL)?);
        Ok(Self {
            block_size: le32(&parameters.1, 0).ok_or_else(broken)?,
            flags: le32(&parameters.1, 4).ok_or_else(broken)?,
            identifier: (identifier.0, array(&identifier.1, 0).ok_or_else(broken)?),
            physical_sector: (physical.0, le32(&physical.1, 0).ok_or_else(broken)?),
        })
    }
}

/// The entry of a table, whose entries of 32 bytes begin at `first`, that begins with `guid`.
fn entries<'a>(table: &'a [u8], first: usize, guid: &Guid) -> Option<&'a [u8]> {
    table.get(first..)?.chunks_exact(32).find(|entry| entry.starts_with(guid))
}

fn vhdx(old: &FileDisk, new: &FileDisk) -> Result<(), CompactError> {
    let (from, to) = (Vhdx::read(old)?, Vhdx::read(new)?);
    write(new, to.identifier.0, &from.identifier.1)?;
    write(new, to.physical_sector.0, &from.physical_sector.1.to_le_bytes())
}
