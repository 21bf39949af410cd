//! Mending on file systems whose kernel code compares blocks and then shares them: XFS and btrfs.
//!
//! Owns the decision whether a file is mended. [`crate::remap`] does the work.

use super::joins::{Bargain, Join, joins};
use super::{Limits, MendError, Mended, NotMended, Place, await_permission, worth_moving};
use crate::remap::{Beside, Floor, Sharers, Subject, Survey, Unit, open, rewrite};
use longrun_engine::share::{Durable, Ended};
use longrun_engine::{Observer, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent};
use longrun_sys::{ByteRange, Errno, FileHandle};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Whether the file system can be led to allocate at a chosen place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steering {
    /// It chooses every place itself.
    None,
    /// Directly beside a block of the file, if that is free.
    Beside,
}

/// Mends the file `handle` of a volume that no other optimizer works on.
pub(crate) fn mend(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    steering: Steering,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    let block_size = longrun_sys::capacity(place.root).map_err(place.failed("reading the block size"))?.block_size;
    let floor = Floor::of(limits.floor, place.root).map_err(place.failed("reading the free space"))?;
    let file = open(place.root, handle).map_err(MendError::left)?;
    let subject = Subject::of(file, block_size, Sharers::None).map_err(MendError::left)?;
    let before = subject.survey.excess();
    if before == 0 {
        return Ok(Mended { before, after: 0, moved: Bytes(0) });
    }
    let parts = worth_moving(&subject.survey.data, block_size, limits.worth);
    let bargain = Bargain::of(&subject.survey.data, block_size, &parts);
    let mut written = Bytes(0);
    let mut subject = subject;
    if steering == Steering::Beside {
        let free = |extent: Extent| is_free(place.root, block_size, extent);
        let found = joins(&subject.survey.data, block_size, limits.worth, bargain, free);
        let found = found.filter(|(_, bargain)| bargain.is_within(limits.price));
        for join in found.into_iter().flat_map(|(joins, _)| joins) {
            let work = Work { place, budget: limits.budget, floor, block_size };
            match work.put_beside(&subject, join, observer, &mut written) {
                Ok(()) => {}
                // The place is not free any more, or cannot be had.
                Err(MendError::Left { reason: NotMended::NoGain, .. }) => break,
                Err(error) => return Err(error),
            }
            let left = |reason| MendError::Left { reason, written };
            subject = Subject::of(subject.file, block_size, Sharers::None).map_err(left)?;
        }
        if written > Bytes(0) {
            return Ok(Mended { before, after: subject.survey.excess(), moved: written });
        }
    }
    if parts.is_empty() {
        return Err(MendError::left(NotMended::WholeEnough));
    }
    if !bargain.is_within(limits.price) {
        return Err(MendError::left(NotMended::Dear));
    }
    let needed = subject.data_bytes(&parts);
    if needed > limits.budget {
        return Err(MendError::left(NotMended::Budget));
    }
    floor.permits(needed, place.root).map_err(MendError::left)?;
    await_permission(observer, needed)?;
    require_sharing(place)?;
    let subjects = [subject];
    let unit = Unit {
        place,
        subjects: &subjects,
        parts: &parts,
        floor,
        durable: Durable::BeforeItIsTaken,
        beside: true,
        at: None,
    };
    let ended = rewrite(unit, observer, &mut written);
    ended.map_err(|ended| match ended {
        Ended::Left(reason) => MendError::Left { reason, written },
        Ended::Failed(error) => error.into(),
    })?;
    let [subject] = &subjects;
    // A file with holes can have two parts of one extent of btrfs now, which the kernel calls shared.
    let after = Survey::of(&subject.file, block_size, Sharers::Known)
        .map_err(|reason| MendError::Left { reason, written })?
        .excess();
    Ok(Mended { before, after, moved: written })
}

/// What a part of a file is moved with.
struct Work<'a> {
    place: Place<'a>,
    budget: Bytes,
    floor: Floor,
    block_size: BlockSize,
}

impl Work<'_> {
    /// Moves a part of a file directly beside another.
    fn put_beside(
        &self,
        subject: &Subject,
        join: Join,
        observer: &mut dyn Observer,
        written: &mut Bytes,
    ) -> Result<(), MendError> {
        let needed = self.block_size.to_bytes(join.place.length);
        let left = |reason, written| MendError::Left { reason, written };
        if needed > self.budget.saturating_sub(*written) {
            return Err(left(NotMended::Budget, *written));
        }
        self.floor.permits(needed, self.place.root).map_err(|reason| left(reason, *written))?;
        await_permission(observer, needed)?;
        require_sharing(self.place)?;
        let Join { part, place, neighbour, behind } = join;
        let unit = Unit {
            place: self.place,
            subjects: std::slice::from_ref(subject),
            parts: &[part],
            floor: self.floor,
            durable: Durable::BeforeItIsTaken,
            beside: false,
            at: Some(Beside { place, neighbour, behind }),
        };
        rewrite(unit, observer, written).map_err(|ended| match ended {
            Ended::Left(reason) => left(reason, *written),
            Ended::Failed(error) => error.into(),
        })
    }
}

/// Whether all of `extent` is free, as far as can be told.
fn is_free(root: &File, block_size: BlockSize, extent: Extent) -> bool {
    let free = longrun_sys::free_extents(root, block_size, extent).unwrap_or_default();
    let inside: Blocks = free.iter().filter_map(|piece| piece.intersection(&extent)).map(|piece| piece.length).sum();
    inside == extent.length
}

/// Whether the volume shares blocks at all: XFS may have been made without. Tried with two files of ours, because a large
/// copy that then cannot be used would have been written for nothing.
fn require_sharing(place: Place<'_>) -> Result<(), VolumeError> {
    let one = || -> std::io::Result<File> {
        let file = File::from(longrun_sys::temporary_file(place.root)?);
        file.write_all_at(&[0; 4096], 0)?;
        Ok(file)
    };
    let both = one().and_then(|first| Ok((first, one()?)));
    let (first, second) = both.map_err(place.failed("creating a temporary file"))?;
    match longrun_sys::share_if_same(
        place.root,
        &first,
        Bytes(0),
        &second,
        ByteRange { start: Bytes(0), length: Bytes(4096) },
    ) {
        Err(Errno::OPNOTSUPP) => {
            let what = "mending on a file system without block sharing (XFS made with reflink=0)".to_owned();
            Err(VolumeError::Unsupported { path: place.point.to_owned(), what })
        }
        other => other.map(drop).map_err(place.failed("trying to share a block")),
    }
}
