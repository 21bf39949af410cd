//! A mounted XFS volume as an implementation of the trait.

use super::admission::{Admitted, admit};
use super::anchors::Anchors;
use super::claims::Claims;
use super::exchange::{Mover, any_is_cached};
use super::log::Log;
use super::scan::{free_in, scan};
use super::sharers::Keep;
use crate::Target;
use crate::mounted::Named;
use crate::mounted::files::{FileCalls, Files};
use crate::mounted::lock_place::VolumeLock;
use crate::mounted::reading::{Reading, ask_for, await_read, ranges_of};
use longrun_engine::{Exchanged, MoveError, Part, Placed, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{
    Blocks, Extent, ExtentSet, FileId, FileIndex, LogicalBlock, PhysicalBlock, Pin, Run, VolumeLayout,
};
use longrun_sys::{ByteRange, InodeAttributes, XfsGeometry};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Ranges that lie closer together than this are asked for at once.
const NEAR: Blocks = Blocks(1 << 16);

/// A mounted XFS volume that may be optimized. The only free space that it holds is one block in each allocation group,
/// in nameless files.
pub struct XfsVolume {
    files: Files,
    anchors: Anchors,
    claims: Claims,
    geometry: XfsGeometry,
    log: Log,
    keep: Keep,
    /// By the last scan: the files that lie in the same blocks as another, by that one.
    followers: BTreeMap<FileId, Vec<FileId>>,
    unavailable: ExtentSet,
    buffer: Vec<u8>,
    reading: Reading,
    info: VolumeInfo,
    name: Named,
    root: File,
    // Last: who has it next must find nothing of ours.
    _lock: VolumeLock,
}

const FILE_CALLS: FileCalls =
    FileCalls { open: |root, id, flags| longrun_sys::open_xfs_by_id(root, id, flags), reason_to_skip };

fn reason_to_skip(attributes: InodeAttributes) -> Option<SkipReason> {
    let pins = [
        (attributes.is_immutable() || attributes.is_append_only(), SkipReason::Pinned(Pin::Immutable)),
        (attributes.has_verity(), SkipReason::Pinned(Pin::Verity)),
        (attributes.is_dax(), SkipReason::NotExchangeable),
    ];
    pins.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
}

impl XfsVolume {
    /// Opens the volume of `target` for optimizing, and locks it against other optimizers.
    ///
    /// # Errors
    /// [`VolumeError`] with the reason why this volume cannot be optimized (now); nothing was changed.
    pub fn open(target: &Target) -> Result<Self, VolumeError> {
        Self::admitted(admit(target)?, target)
    }

    pub(super) fn admitted(admitted: Admitted, target: &Target) -> Result<Self, VolumeError> {
        let Admitted { root, lock, geometry, mount } = admitted;
        let name = Named(mount.point.clone());
        let another = root.try_clone().map_err(name.failed("opening the root directory"))?;
        let log = Log::open(&root).map_err(name.failed("creating a temporary file"))?;
        let keep = Keep::open(&root).map_err(name.failed("creating a temporary file"))?;
        Ok(Self {
            files: Files::new(name.clone(), another, FILE_CALLS),
            anchors: Anchors::default(),
            claims: Claims::default(),
            geometry,
            log,
            keep,
            followers: BTreeMap::new(),
            unavailable: ExtentSet::new(),
            buffer: Vec::new(),
            reading: Reading::default(),
            info: VolumeInfo {
                target: mount.point.clone(),
                device: target.device.clone(),
                filesystem: mount.filesystem.clone(),
            },
            name,
            root,
            _lock: lock,
        })
    }

    /// Notes which files lie in the same blocks.
    fn note_followers(&mut self, layout: &VolumeLayout) {
        let id = |index: &FileIndex| layout.file(*index).map(|file| file.id());
        self.followers = BTreeMap::new();
        for follower in layout.sharers() {
            if let Some(leader) = layout.leader_of(follower).as_ref().and_then(id) {
                self.followers.entry(leader).or_default().extend(id(&follower));
            }
        }
    }

    /// What of `extents` is free.
    fn free_of(&self, extents: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        let mut free = ExtentSet::new();
        let mut question: Option<Extent> = None;
        let mut ask = |within: Extent| -> Result<(), VolumeError> {
            let found = free_in(&self.root, &self.geometry, within);
            free.extend(found.map_err(self.name.failed("reading the free space"))?.iter());
            Ok(())
        };
        for extent in extents.iter() {
            match question {
                Some(before) if extent.start <= before.end() + NEAR => {
                    question = Some(Extent::between(before.start, extent.end()));
                }
                before => {
                    before.map_or(Ok(()), &mut ask)?;
                    question = Some(extent);
                }
            }
        }
        question.map_or(Ok(()), &mut ask)?;
        Ok(free)
    }
}

/// The same runs, in as few records as possible.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.dedup_by(|next, kept| {
        let joined = kept.continues_into(next);
        if joined {
            kept.length += next.length;
        }
        joined
    });
    runs
}

impl Volume for XfsVolume {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        self.files.close();
        self.anchors.give_back_all().map_err(self.name.failed("giving back free space"))?;
        let mut layout = scan(&self.root, &self.name.0, progress)?.layout;
        let out_of_reach = self.anchors.anchor(&self.root, &self.geometry, &mut layout);
        self.unavailable = out_of_reach.map_err(self.name.failed("anchoring temporary files"))?;
        self.note_followers(&layout);
        Ok(layout)
    }

    fn names(
        &mut self,
        _layout: &VolumeLayout,
        files: &[FileId],
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        super::names(&self.name.0, files, progress)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        // Whatever we have claimed: it is everybody's until a file moves there.
        let capacity = longrun_sys::capacity(&self.root).map_err(self.name.failed("reading the free space"))?;
        Ok(capacity.available)
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.files.close();
        self.log.write().map_err(|errno| VolumeError::Barrier { path: self.name.0.clone(), source: errno.into() })
    }
}

impl Placed for XfsVolume {
    fn unavailable(&mut self) -> Result<ExtentSet, VolumeError> {
        Ok(self.unavailable.clone())
    }

    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        let free = self.free_of(wanted)?;
        Ok(self.claims.stake(wanted, &free))
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.claims.drop(extents);
        Ok(())
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        let free = self.free_of(self.claims.all())?;
        self.claims.keep_free(&free);
        Ok(self.claims.all().clone())
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        let mut maps: Vec<Vec<Run>> = Vec::new();
        for id in self.followers.get(&file).into_iter().flatten().chain([&file]) {
            let open = self.files.open(*id)?;
            maps.push(joined(self.files.map(&open, self.geometry.block_size)?));
        }
        let map = maps.pop().unwrap_or_default();
        if maps.iter().any(|other| *other != map) {
            // One of them was written to: they do not share all their blocks any more.
            return Err(MoveError::Skip(SkipReason::Changed));
        }
        Ok(map)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let Part { file, logical, length } = part;
        let open = self.files.open(file)?;
        let range = ByteRange::of_blocks(self.geometry.block_size, logical, length);
        if !self.reading.is_of(file, range) {
            // Those that follow it share its blocks, and each has pages of its own.
            let followers = self.followers.get(&file).into_iter().flatten().map(|id| self.files.open(*id));
            let mut group = followers.collect::<Result<Vec<_>, _>>()?;
            group.push(Arc::clone(&open));
            self.reading.begin(file, range, any_is_cached(&group, range));
        }
        ask_for(open.file(), &ranges_of(self.geometry.block_size, pieces));
        Ok(())
    }

    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let open = self.files.open(part.file)?;
        await_read(open.file(), &ranges_of(self.geometry.block_size, pieces));
        Ok(())
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        let range = ByteRange::of_blocks(self.geometry.block_size, logical, length);
        let mut mover = Mover {
            name: &self.name,
            root: &self.root,
            geometry: self.geometry,
            files: &mut self.files,
            anchors: &self.anchors,
            claims: &mut self.claims,
            log: &self.log,
            keep: &self.keep,
            buffer: &mut self.buffer,
            was_cached: self.reading.take(file, range).map(|ahead| ahead.was_cached),
        };
        let followers = self.followers.get(&file).map_or(&[][..], Vec::as_slice);
        mover.exchange(file, followers, logical, target, length)
    }
}
