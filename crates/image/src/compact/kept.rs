//! What of the form of an image its copy must have, as options for the program that writes it.
//!
//! Owns the refusal of images whose form cannot be kept. Reads headers only.

use super::CompactError;
use super::identity::{VDI_KINDS, Vhdx, vhd_header, vmdk_description};
use crate::bytes::{be32, be64, le32, le64};
use crate::format::{Description, Format, extension, read};
use crate::{Disk as _, FileDisk};

/// Of `-o NAME=VALUE`.
pub(super) type KeptOptions = Vec<(&'static str, String)>;

/// The options for a copy of `image`.
pub(super) fn options(image: &FileDisk, found: &Description) -> Result<KeptOptions, CompactError> {
    let kept = match found.format {
        Format::Raw => Ok(Vec::new()),
        Format::Qcow2 => qcow2(&read(image, 0, QCOW2_HEADER)?),
        Format::Vmdk => vmdk(&read(image, 0, 512)?, &vmdk_description(image)?.2),
        Format::Vhdx => vhdx(Vhdx::read(image)?),
        Format::Vhd => vhd(&read(image, 0, 512)?, &vhd_header(image)?),
        Format::Vdi => vdi(&read(image, 0, 512)?),
    };
    kept.map_err(|what| CompactError::Unsupported { path: image.path().to_owned(), what })
}

type Kept = Result<KeptOptions, &'static str>;

const BROKEN: &str = "its header is damaged";
/// The header and its extensions are in the first cluster, which may be smaller than that.
const QCOW2_HEADER: usize = 4096;

fn on_off(on: bool) -> String {
    if on { "on".into() } else { "off".into() }
}

fn qcow2(header: &[u8]) -> Kept {
    const DIRTY: u64 = 1;
    const OTHER_COMPRESSION: u64 = 1 << 3;
    const EXTENDED_ENTRIES: u64 = 1 << 4;
    const LAZY: u64 = 1;
    const BITMAPS: u32 = 0x2385_2875;
    let bits = be32(header, 20).filter(|bits| (9..=21).contains(bits)).ok_or(BROKEN)?;
    let version = be32(header, 4).ok_or(BROKEN)?;
    let mut kept = vec![("cluster_size", (1_u64 << bits).to_string())];
    if version == 2 {
        kept.push(("compat", "0.10".into()));
    } else {
        let incompatible = be64(header, 72).ok_or(BROKEN)?;
        if incompatible & DIRTY != 0 {
            return Err("it was not closed; repair it first with: qemu-img check -r all");
        }
        if incompatible & !(OTHER_COMPRESSION | EXTENDED_ENTRIES) != 0 {
            return Err("it has features that are not known");
        }
        let order = be32(header, 96).filter(|order| *order <= 6).ok_or(BROKEN)?;
        let lazy = be64(header, 80).ok_or(BROKEN)? & LAZY != 0;
        let compression = match header.get(104) {
            Some(1) if incompatible & OTHER_COMPRESSION != 0 => "zstd",
            _ if incompatible & OTHER_COMPRESSION == 0 => "zlib",
            _ => return Err("it has a compression that is not known"),
        };
        kept.extend([
            ("compat", "1.1".into()),
            ("refcount_bits", (1_u32 << order).to_string()),
            ("lazy_refcounts", on_off(lazy)),
            ("extended_l2", on_off(incompatible & EXTENDED_ENTRIES != 0)),
            ("compression_type", compression.into()),
        ]);
    }
    if extension(header, BITMAPS).is_some() {
        return Err("it has bitmaps for incremental backups, which would be lost");
    }
    Ok(kept)
}

fn vmdk(header: &[u8], description: &[u8]) -> Kept {
    const GRAIN: u64 = 128;
    if le64(header, 20) != Some(GRAIN) {
        return Err("its blocks have another size than 64 KiB");
    }
    if le32(header, 4).is_none_or(|version| version > 3) {
        return Err("it is a VMDK of a version that is not known");
    }
    const KIND: &[u8] = b"createType=\"monolithicSparse\"";
    if !description.windows(KIND.len()).any(|part| part.eq_ignore_ascii_case(KIND)) {
        return Err("it is a VMDK of another kind than monolithicSparse");
    }
    Ok(vec![("subformat", "monolithicSparse".into())])
}

fn vhdx(found: Vhdx) -> Kept {
    const KEEPS_BLOCKS: u32 = 1;
    const HAS_PARENT: u32 = 2;
    if found.flags & HAS_PARENT != 0 {
        return Err("it holds only what differs from another image");
    }
    if found.flags & KEEPS_BLOCKS != 0 {
        return Err("it is of fixed size");
    }
    Ok(vec![("subformat", "dynamic".into()), ("block_size", found.block_size.to_string())])
}

fn vhd(footer: &[u8], dynamic: &[u8]) -> Kept {
    const BLOCK: u32 = 2 << 20;
    if be32(dynamic, 32) != Some(BLOCK) {
        return Err("its blocks have another size than 2 MiB");
    }
    if footer.get(84) != Some(&0) {
        return Err("its machine is saved");
    }
    // Otherwise the size would be rounded to what cylinders, heads and sectors can express.
    Ok(vec![("subformat", "dynamic".into()), ("force_size", "on".into())])
}

fn vdi(header: &[u8]) -> Kept {
    const BLOCK: u32 = 1 << 20;
    match le32(header, 76) {
        Some(kind) if kind == VDI_KINDS.dynamic => {}
        Some(kind) if kind == VDI_KINDS.fixed => return Err("it is of fixed size"),
        _ => return Err(BROKEN),
    }
    if le32(header, 68) != Some(0x0001_0001) || le32(header, 376) != Some(BLOCK) || le32(header, 380) != Some(0) {
        return Err("its blocks have another form than 1 MiB each");
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u32, features: u64) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[4..8].copy_from_slice(&version.to_be_bytes());
        header[20..24].copy_from_slice(&16_u32.to_be_bytes());
        header[72..80].copy_from_slice(&features.to_be_bytes());
        header[96..100].copy_from_slice(&4_u32.to_be_bytes());
        header[100..104].copy_from_slice(&112_u32.to_be_bytes());
        header
    }

    #[test]
    fn the_form_of_a_qcow2_is_kept_and_what_is_not_known_is_refused() {
        let value = |header: &[u8], name| qcow2(header).unwrap().into_iter().find(|(n, _)| *n == name).unwrap().1;
        assert_eq!(value(&header(3, 1 << 4), "extended_l2"), "on");
        assert_eq!(
            (value(&header(3, 0), "refcount_bits"), value(&header(3, 0), "cluster_size")),
            ("16".into(), "65536".into())
        );
        assert_eq!(value(&header(2, 0), "compat"), "0.10");
        for features in [1, 1 << 5, 1 << 63] {
            assert!(qcow2(&header(3, features)).is_err(), "{features}");
        }
        let mut zstd = header(3, 1 << 3);
        zstd[104] = 1;
        assert_eq!(value(&zstd, "compression_type"), "zstd");
        zstd[104] = 2;
        assert!(qcow2(&zstd).is_err());
    }

    #[test]
    fn bitmaps_are_found_behind_other_extensions_and_an_endless_chain_ends() {
        let mut with = header(3, 0);
        with[112..120].copy_from_slice(&[0x68, 0x03, 0xf8, 0x57, 0, 0, 0, 5]);
        assert!(qcow2(&with).is_ok());
        with[128..136].copy_from_slice(&[0x23, 0x85, 0x28, 0x75, 0, 0, 0, 24]);
        assert!(qcow2(&with).is_err());
        with[112..120].copy_from_slice(&[0xff; 8]);
        assert!(qcow2(&with).is_ok());
    }

    #[test]
    fn a_vmdk_of_another_kind_is_refused() {
        let mut header = vec![0; 512];
        header[20] = 128;
        let kept = |kind| vmdk(&header, format!("x\ncreateType=\"{kind}\"\n").as_bytes());
        assert!(kept("monolithicSparse").is_ok() && kept("streamOptimized").is_err());
    }
}
