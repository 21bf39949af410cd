//! What is particular about btrfs in reports: the names of files in subvolumes and snapshots, and who has a block.
//!
//! Owns the words. Never changes anything.

use crate::commands::map;
use crate::exit::Failure;
use crate::survey::Survey;
use crate::text::{counted, size};
use longrun_layout::{Bytes, Extent, FileId, FileIndex, PhysicalBlock};
use longrun_volume::Target;
use longrun_volume::btrfs::{BtrfsScan, Chunk, ChunkKind, DataExtent, FilePath, Names, Owner, Profile};
use longrun_volume::target::Mount;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The paths of files, in their order. What is not below the mount point is called by its subvolume, and a file without a
/// name by its number.
pub fn names(scan: &BtrfsScan, root: &File, target: &Target, files: &[FileId]) -> Result<Vec<PathBuf>, Failure> {
    let mut names = Names::new(root, &target.given, &scan.subvolumes);
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        let (subvolume, inode) = Owner::of_file_id(*file);
        let path = names.of(subvolume, inode)?;
        let unnamed = || PathBuf::from(format!("<inode {inode} of subvolume {subvolume}>"));
        found.push(path.map_or_else(unnamed, |path| below(target.mount.as_ref(), &path)));
    }
    Ok(found)
}

fn below(mount: Option<&Mount>, path: &FilePath) -> PathBuf {
    let reachable = mount.and_then(|mount| {
        let inside = path.from_top().strip_prefix(&mount.root).map(Path::to_owned).ok()?;
        Some(mount.point.join(inside))
    });
    reachable.unwrap_or_else(|| PathBuf::from(format!("<subvolume {}>", path.subvolume.display())).join(&path.file))
}

/// Who has `block`.
pub fn owner(survey: &Survey, scan: &BtrfsScan, block: PhysicalBlock) -> Result<String, Failure> {
    let layout = &scan.layout;
    if let Some((index, _)) = layout.owner_of(block) {
        return of_file(survey, scan, index, block);
    }
    let free = layout.free();
    let piece = free.get(free.partition_point(|piece| piece.end() <= block)).filter(|piece| piece.start <= block);
    if let Some(piece) = piece {
        let unallocated = scan.unallocated.iter().any(|extent| holds(extent, block));
        let kind = if unallocated { ", given to no chunk yet" } else { "" };
        return Ok(format!("{}{kind}", map::of_free(survey, *piece)));
    }
    let Some((chunk, is_first)) = scan.chunk_of_block(block) else {
        return Ok("metadata: kept by btrfs for itself (superblock, start of the device)".to_owned());
    };
    Ok(of_chunk(survey, scan, chunk, is_first, block))
}

fn holds(extent: &Extent, block: PhysicalBlock) -> bool {
    extent.start <= block && block < extent.end()
}

fn of_chunk(survey: &Survey, scan: &BtrfsScan, chunk: &Chunk, is_first: bool, block: PhysicalBlock) -> String {
    let place = map::range(survey, chunk.extent(scan.geometry.block_size));
    let profile = match chunk.profile {
        Profile::Dup if !is_first => ", second copy of what lies in",
        Profile::Dup => ", first of two copies in",
        _ => ", in",
    };
    let what = match chunk.kind {
        ChunkKind::System => "the tree of chunks",
        ChunkKind::Metadata => "trees",
        ChunkKind::Data | ChunkKind::Mixed if !is_first => "data",
        ChunkKind::Mixed => "trees, or data that no file refers to any more",
        ChunkKind::Data => {
            return format!(
                "in use, by no file that can be found: the rest of an extent of which only a part is still referred to, or a \
                 file that was deleted while open; in the chunk at {place}"
            );
        }
    };
    let free = chunk.free.iter().any(|piece| holds(piece, block));
    let free = if free { " (free there)" } else { "" };
    format!("metadata: {what}{free}{profile} the chunk at {place}")
}

fn of_file(survey: &Survey, scan: &BtrfsScan, index: FileIndex, block: PhysicalBlock) -> Result<String, Failure> {
    let (Some(file), Some(owner)) = (scan.layout.file(index), scan.owner(index)) else {
        return Ok(map::UNKNOWN.to_owned());
    };
    let path = map::named(survey, file.id())?;
    let part = extent_at(scan, index, block).map_or(String::new(), |(extent, inside)| part(&extent, inside));
    let others = scan.sets.sharers_of(index).filter(|other| *other != index);
    let sharers = others.filter(|other| extent_at(scan, *other, block).is_some()).count() as u64;
    let shared = match sharers {
        0 => String::new(),
        others => format!("\n  shared with {}", counted(others, "other file", "other files")),
    };
    let pin = file.record.pin;
    let pin = pin.map_or(String::new(), |pin| format!("\n  must stay in place: {}", crate::report::reasons::pin(pin)));
    Ok(format!("file {path}\n  inode {} of subvolume {}{part}{shared}{pin}", owner.inode, owner.subvolume))
}

/// The extent of a file that `block` is read for, and how many bytes into what is read it lies.
fn extent_at(scan: &BtrfsScan, index: FileIndex, block: PhysicalBlock) -> Option<(DataExtent, Bytes)> {
    let (chunk, _) = scan.chunk_of_block(block)?;
    let address = chunk.address_of(scan.geometry.block_size, block)?;
    scan.extents.of(index).find_map(|extent| {
        let (start, length) = extent.read();
        let inside = address.0.checked_sub(start.0).filter(|inside| *inside < length.0)?;
        Some((extent, Bytes(inside)))
    })
}

fn part(extent: &DataExtent, inside: Bytes) -> String {
    let end = extent.logical_end().0.saturating_sub(1);
    if extent.is_compressed {
        let (stored, data) = (size(extent.disk_length), size(extent.length));
        return format!("\n  its bytes {} to {end} ({data}), stored compressed in {stored}", extent.logical);
    }
    let prepared = if extent.is_preallocated { ", preallocated and never written" } else { "" };
    let at = extent.logical.0.saturating_add(inside.0);
    format!("\n  its byte {at}, in an extent with its bytes {} to {end}{prepared}", extent.logical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str, point: &str) -> Mount {
        Mount {
            id: 1,
            device: longrun_sys::DeviceNumber { major: 0, minor: 41 },
            root: root.into(),
            point: point.into(),
            writable: true,
            filesystem: "btrfs".into(),
            source: "/dev/vda".into(),
            options: Vec::new(),
        }
    }

    #[test]
    fn names_are_those_below_the_mount_point_or_those_of_the_subvolume() {
        let path = |subvolume: &str, file: &str| FilePath { subvolume: subvolume.into(), file: file.into() };
        let name = |mount: &Mount, path: &FilePath| below(Some(mount), path).display().to_string();
        let home = mount("/@home", "/home");
        assert_eq!(name(&home, &path("@home", "me/file")), "/home/me/file");
        assert_eq!(name(&home, &path("@home/me/sub", "file")), "/home/me/sub/file");
        assert_eq!(name(&home, &path("@homeless", "file")), "<subvolume @homeless>/file");
        assert_eq!(name(&home, &path("@snapshots/1", "file")), "<subvolume @snapshots/1>/file");
        assert_eq!(name(&mount("/", "/mnt"), &path("", "file")), "/mnt/file");
        assert_eq!(name(&mount("/", "/mnt"), &path("a", "file")), "/mnt/a/file");
    }
}
