//! Mending on file systems whose kernel code compares blocks and then shares them: XFS and btrfs.
//!
//! Owns the decision whether a file is mended. [`crate::remap`] does the work.

use super::{Limits, MendError, Mended, NotMended, Place, await_permission, worth_moving};
use crate::remap::{Floor, Sharers, Subject, Survey, Unit, open, rewrite};
use longrun_engine::share::{Durable, Ended};
use longrun_engine::{Observer, VolumeError};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno, FileHandle};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Mends the file `handle` of a volume that no other optimizer works on.
pub(crate) fn mend(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
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
    if parts.is_empty() {
        return Err(MendError::left(NotMended::WholeEnough));
    }
    let needed = subject.data_bytes(&parts);
    if needed > limits.budget {
        return Err(MendError::left(NotMended::Budget));
    }
    floor.permits(needed, place.root).map_err(MendError::left)?;
    await_permission(observer, needed)?;
    require_sharing(place)?;
    let subjects = [subject];
    let unit =
        Unit { place, subjects: &subjects, parts: &parts, floor, durable: Durable::BeforeItIsTaken, beside: true };
    let mut written = Bytes(0);
    let ended = rewrite(unit, observer, &mut written);
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
    let (first, second) = both.map_err(place.failed("creating a temporary file"))?;
    match longrun_sys::share_if_same(&first, Bytes(0), &second, ByteRange { start: Bytes(0), length: Bytes(4096) }) {
        Err(Errno::OPNOTSUPP) => {
            let what = "mending on a file system without block sharing (XFS made with reflink=0)".to_owned();
            Err(VolumeError::Unsupported { path: place.point.to_owned(), what })
        }
        other => other.map(drop).map_err(place.failed("trying to share a block")),
    }
}
