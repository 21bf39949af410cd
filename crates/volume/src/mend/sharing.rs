//! Mending where the kernel can share blocks after comparing them: XFS and btrfs.
//!
//! Owns whether a file is mended at all. The work itself is [`crate::rewrite`]'s.

use super::{LeftReason, Limits, MendError, Mended, Place, checkpoint, worth_moving};
use crate::VolumeError;
use crate::engine::Observer;
use crate::rewrite::{Durable, Ended, Floor, Request, Sharers, Subject, Survey, open, rewrite};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno, FileHandle};
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(super) fn mend(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    let block_size = longrun_sys::capacity(place.root).map_err(place.failed("asking for the block size"))?.block_size;
    let floor = Floor::of(limits.floor, place.root).map_err(place.failed("asking for the free space"))?;
    let file = open(place.root, handle).map_err(MendError::left)?;
    let subject = Subject::of(file, block_size, Sharers::None).map_err(MendError::left)?;
    let before = subject.survey.excess();
    if before == 0 {
        return Ok(Mended { before, after: 0, moved: Bytes(0) });
    }
    let parts = worth_moving(&subject.survey.data, block_size, limits.worth);
    if parts.is_empty() {
        return Err(MendError::left(LeftReason::WholeEnough));
    }
    let needed = subject.data_bytes(&parts);
    if needed > limits.budget {
        return Err(MendError::left(LeftReason::Budget));
    }
    floor.permits(needed, place.root).map_err(MendError::left)?;
    checkpoint(observer, needed).map_err(MendError::left)?;
    require_sharing(place)?;
    let subjects = [subject];
    let request =
        Request { place, subjects: &subjects, parts: &parts, floor, durable: Durable::BeforeItIsTaken, beside: true };
    let mut written = Bytes(0);
    let ended = rewrite(&request, observer, &mut written);
    ended.map_err(|ended| match ended {
        Ended::Left(reason) => MendError::Left { reason, written },
        Ended::Failed(error) => error.into(),
    })?;
    let [subject] = &subjects;
    let after = Survey::of(&subject.file, block_size, Sharers::None)
        .map_err(|reason| MendError::Left { reason, written })?
        .excess();
    Ok(Mended { before, after, moved: written })
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
    let (first, second) = both.map_err(place.failed("making a temporary file"))?;
    match longrun_sys::share_if_same(&first, Bytes(0), &second, ByteRange { start: Bytes(0), length: Bytes(4096) }) {
        Err(Errno::OPNOTSUPP) => {
            let what = "mending on a file system that cannot share blocks (XFS made with reflink=0)".to_owned();
            Err(VolumeError::Unsupported { path: place.point.to_owned(), what })
        }
        other => other.map(drop).map_err(place.failed("trying to share a block")),
    }
}
