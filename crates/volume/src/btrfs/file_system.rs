//! The operations that are supported on btrfs.

use super::units::taken_apart;
use super::{BtrfsScan, BtrfsVolume, Chunk, ChunkKind, DataExtent, Profile, Subvolume, names, scan, trimming, unfit};
use crate::Target;
use crate::file_system::FileSystem;
use crate::mend::{self, Limits, MendError, Mended, Place, Steering};
use crate::reclaim::{FreePieces, Trimming};
use crate::survey::{DeviceSpace, Names, Owner, Part, Source, Survey, free_piece};
use longrun_engine::{Observer, Opened, Progress, Scan, VolumeError};
use longrun_layout::{Bytes, Extent, FileId, FileIndex, PhysicalBlock, VolumeLayout};
use longrun_sys::{FileHandle, Mount};
use std::fs::File;
use std::path::{Path, PathBuf};

/// btrfs.
pub(crate) struct Btrfs;

impl FileSystem for Btrfs {
    fn names(&self) -> &'static [&'static str] {
        &["btrfs"]
    }

    /// With zones, or newer than this program: only its files can be asked.
    fn is_unreadable_as_a_whole(&self, target: &Target) -> bool {
        let Some(mount) = &target.mount else { return false };
        let root = longrun_sys::open_trusted_directory(&mount.point).ok().map(File::from);
        let refusal = root.and_then(|root| scan::refusal(&root, &mount.point).ok());
        refusal.is_none_or(|refusal| refusal.is_some())
    }

    /// By the kernel's own calls.
    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
        let path = source.path;
        let (mount, root) = source.mount()?;
        let scan = scan::scan(&root, path, progress)?;
        let names =
            ByReferences { root, path: path.to_owned(), subvolumes: scan.subvolumes.clone(), mount: mount.clone() };
        Ok(Box::new(Read { scan, names }))
    }

    fn namer(&self, source: Source<'_>) -> Result<Box<dyn Names>, VolumeError> {
        let path = source.path.to_owned();
        let (mount, root) = source.mount()?;
        let subvolumes = scan::subvolumes(&root, &path)?;
        Ok(Box::new(ByReferences { root, path, subvolumes, mount: mount.clone() }))
    }

    fn open(&self, target: &Target) -> Result<Opened, VolumeError> {
        Ok(Opened::Relocated(Box::new(BtrfsVolume::open(target)?)))
    }

    fn mend(
        &self,
        place: Place<'_>,
        handle: &FileHandle,
        limits: Limits,
        observer: &mut dyn Observer,
    ) -> Result<Mended, MendError> {
        mend::by_sharing(place, handle, limits, Steering::None, observer)
    }

    fn trimming(&self, root: &File, target: &Target) -> Result<Trimming, VolumeError> {
        trimming::trimming(root, target)
    }

    fn skips_when_trimming(&self) -> Option<&'static str> {
        Some(trimming::SKIPS)
    }

    fn free_pieces(
        &self,
        root: &File,
        path: &Path,
        progress: &dyn Progress,
    ) -> Result<Option<FreePieces>, VolumeError> {
        trimming::free_pieces(root, path, progress)
    }
}

struct Read {
    scan: BtrfsScan,
    names: ByReferences,
}

struct ByReferences {
    root: File,
    path: PathBuf,
    subvolumes: Vec<Subvolume>,
    mount: Mount,
}

impl Names for ByReferences {
    fn of(&self, _: &VolumeLayout, files: &[FileId], _: &dyn Progress) -> Result<Vec<PathBuf>, VolumeError> {
        names(&self.root, &self.path, &self.subvolumes, Some(&self.mount), files)
    }
}

impl Survey for Read {
    fn layout(&self) -> &VolumeLayout {
        &self.scan.layout
    }

    fn refusal(&self) -> Option<String> {
        unfit(&self.scan)
    }

    fn devices(&self) -> &[DeviceSpace] {
        if self.scan.geometry.devices.len() > 1 { &self.scan.geometry.devices } else { &[] }
    }

    fn owner(&self, block: PhysicalBlock) -> Owner {
        let scan = &self.scan;
        if let Some((file, _)) = scan.layout.owner_of(block) {
            return of_file(scan, file, block);
        }
        if let Some(piece) = free_piece(&scan.layout, block) {
            let unallocated = scan.unallocated.iter().any(|extent| holds(extent, block));
            return Owner::Free { piece, note: unallocated.then_some("not allocated to a chunk") };
        }
        match scan.chunk_of_block(block) {
            Some((chunk, is_first)) => of_chunk(scan, chunk, is_first, block),
            None => Owner::Metadata { what: RESERVED.to_owned(), of: None, extent: None },
        }
    }

    fn areas(&self) -> Box<dyn Iterator<Item = (Extent, &'static str)> + '_> {
        Box::new(areas(&self.scan).into_iter())
    }

    fn names(&self) -> &dyn Names {
        &self.names
    }

    fn into_scan(self: Box<Self>) -> (Scan, Box<dyn Names>) {
        let (picture, _) = taken_apart(self.scan);
        (Scan::Relocated(picture), Box::new(self.names))
    }
}

fn holds(extent: &Extent, block: PhysicalBlock) -> bool {
    extent.start <= block && block < extent.end()
}

/// What lies in no chunk, and cannot become one.
const RESERVED: &str = "reserved by btrfs (superblock, start of the device)";

/// What a chunk holds besides the content of files, in its first copy or another one.
fn word(kind: ChunkKind, is_first: bool) -> Option<&'static str> {
    match kind {
        ChunkKind::System => Some("the chunk tree"),
        ChunkKind::Metadata => Some("trees"),
        ChunkKind::Data | ChunkKind::Mixed if !is_first => Some("data"),
        ChunkKind::Mixed => Some("trees, or data that no file refers to"),
        ChunkKind::Data => None,
    }
}

/// All areas, ascending.
fn areas(scan: &BtrfsScan) -> Vec<(Extent, &'static str)> {
    let size = scan.geometry.block_size;
    let of_chunk = |chunk: &Chunk| {
        let extent = chunk.extent(size);
        let copies: Vec<_> = chunk.copies.iter().map(|start| Extent { start: *start, ..extent }).collect();
        let copy = word(chunk.kind, false);
        std::iter::once((extent, word(chunk.kind, true))).chain(copies.into_iter().map(move |extent| (extent, copy)))
    };
    let mut known: Vec<_> = scan.chunks.iter().flat_map(of_chunk).collect();
    known.extend(scan.unallocated.iter().map(|extent| (*extent, None)));
    known.sort_unstable_by_key(|(extent, _)| *extent);
    known.push((Extent::between(scan.layout.whole().end(), scan.layout.whole().end()), None));
    let (mut areas, mut at) = (Vec::new(), PhysicalBlock(0));
    for (extent, word) in known {
        areas.extend((extent.start > at).then(|| (Extent::between(at, extent.start), RESERVED)));
        areas.extend(word.map(|word| (extent, word)));
        at = at.max(extent.end());
    }
    areas
}

fn of_chunk(scan: &BtrfsScan, chunk: &Chunk, is_first: bool, block: PhysicalBlock) -> Owner {
    let profile = match chunk.profile {
        Profile::Dup if !is_first => ", second copy of the chunk at",
        Profile::Dup => ", first of two copies in the chunk at",
        _ => ", in the chunk at",
    };
    let free = if chunk.free.iter().any(|piece| holds(piece, block)) { " (free there)" } else { "" };
    let Some(what) = word(chunk.kind, is_first) else {
        let note = "an unreferenced part of an extent that is still in use, or a file that was deleted while open";
        return Owner::Unknown { note: Some(note) };
    };
    let extent = Some(chunk.extent(scan.geometry.block_size));
    Owner::Metadata { what: format!("{what}{free}{profile}"), of: None, extent }
}

fn of_file(scan: &BtrfsScan, file: FileIndex, block: PhysicalBlock) -> Owner {
    let Some(owner) = scan.owner(file) else { return Owner::Unknown { note: None } };
    let others = scan.sets.sharers_of(file).filter(|other| *other != file);
    let sharers = others.filter(|other| extent_at(scan, *other, block).is_some()).count() as u64;
    let part = extent_at(scan, file, block).map_or(Part::Unknown, |(extent, inside)| Part::Extent {
        start: extent.logical,
        length: extent.logical_end().saturating_sub(extent.logical),
        compressed: extent.is_compressed.then_some(extent.disk_length),
        preallocated: extent.is_preallocated,
        at: Bytes(extent.logical.0.saturating_add(inside.0)),
    });
    Owner::File { file, part, subvolume: Some(owner.subvolume.0), sharers }
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
