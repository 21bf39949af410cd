//! FIDEDUPERANGE on whole folios: whoever has the file mapped never sees zeros.
//!
//! Before XFS maps a range of a file to other blocks, it drops the pages of the range from memory. A large folio that lies
//! in the range with a part only is filled with zeros there, then divided, then dropped (Linux 5.18 to 6.18 at least,
//! `truncate_inode_partial_folio`). Reading calls wait for the lock of the file meanwhile; a memory mapping does not: it shows
//! the zeros, and a program that runs from the file copies them into its variables. So the call is made for whole folios only.
//! What lies beside the range is taken from the file itself, where XFS finds the same blocks on both sides and changes
//! nothing.

use crate::folio::hold_folio;
use crate::share::compare_and_share;
use crate::{
    ByteRange, FileSystem, HeldPages, Mapping, Shared, allocate, drop_cache, for_each_extent, page_size, set_length,
    share_blocks_of, temporary_file, wait_writeback,
};
use longrun_layout::Bytes;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// The most that is compared on behalf of the folios. More is needed only with pages of 64 KiB, where a folio could have
/// 512 MiB.
const MOST_BESIDE: Bytes = Bytes(64 << 20);

/// How long a folio of the page cache can be. It begins at a multiple of its length. The kernel makes none that is longer than
/// what one entry of the second level of the page table maps: as many pages as entries of 8 bytes fit into a page.
#[must_use]
pub fn longest_folio() -> Bytes {
    let page = page_size() as u64;
    Bytes(page * (page / 8))
}

/// Compares `range` of `file` with as many bytes of `donor` from `donor_start`, under the locks of both, and maps
/// the range to the donor's blocks if they are the same. Neither content nor times of the file change. Reading
/// access to both will do for root. On XFS, where the range would divide a folio that must stay in memory, a file without a
/// name is made in `directory`, of the same volume; the blocks beside the range are shared with it during the call.
///
/// # Errors
/// `EOPNOTSUPP` where the file system cannot share blocks or the folios are too long, `EINVAL` for files that must not be
/// mixed (checksums and none), `ETXTBSY` for swap space, `EPERM` for what is not the caller's.
pub fn share_if_same(
    directory: impl AsFd,
    donor: impl AsFd,
    donor_start: Bytes,
    file: impl AsFd,
    range: ByteRange,
) -> Result<Shared, Errno> {
    if FileSystem::of(&file)? != Some(FileSystem::Xfs) || range.length.0 == 0 {
        return compare_and_share(donor, donor_start, file, range);
    }
    let size = Bytes(u64::try_from(rustix::fs::fstat(&file)?.st_size).map_err(|_| Errno::OVERFLOW)?);
    let mut ends = ends(&file, range, size);
    let straddling: Vec<ByteRange> =
        ends.iter().map(|end| end.folio).filter(|folio| !is_within(*folio, range)).collect();
    if !straddling.is_empty() {
        // Folios that nobody has mapped go, once they are written.
        drop(ends);
        for folio in straddling {
            let _ = wait_writeback(&file, folio);
            let _ = drop_cache(&file, folio);
        }
        ends = self::ends(&file, range, size);
    }
    // As long as the pages at the ends are held, no other folios come about there.
    let whole = ends.iter().fold(range, |whole, end| around(whole, end.folio, size));
    if whole == range {
        return compare_and_share(donor, donor_start, file, range);
    }
    if whole.length.saturating_sub(range.length) > MOST_BESIDE {
        return Err(Errno::OPNOTSUPP);
    }
    let widened = widened(directory, donor, donor_start, &file, range, whole)?;
    let answer = compare_and_share(&widened, Bytes(0), file, whole);
    // At once: what is left to the closing of a file stays shared some time longer.
    set_length(&widened, Bytes(0))?;
    Ok(match answer? {
        Shared::Same(bytes) => Shared::Same(bytes.saturating_sub(range.start - whole.start).min(range.length)),
        Shared::Differs => Shared::Differs,
    })
}

/// The page at an end of a range, held where that is possible, and the folio that it lies in.
struct End {
    folio: ByteRange,
    _held: Option<HeldPages>,
}

/// The ends of `range` of a file of `size` bytes. Where the file begins a folio begins, and where it ends one ends.
fn ends(file: impl AsFd, range: ByteRange, size: Bytes) -> Vec<End> {
    let first = (range.start.0 > 0).then_some(range.start);
    let last = (end_of(range) < size).then(|| Bytes(end_of(range).0 - 1));
    let longest = longest_folio().0;
    let end = |position: Bytes| match hold_folio(&file, position) {
        Ok((held, folio)) => End { folio, _held: Some(held) },
        // Not told: it may be as long as folios can be.
        Err(_) => {
            let start = Bytes(position.0 - position.0 % longest);
            End { folio: ByteRange { start, length: Bytes(longest) }, _held: None }
        }
    };
    first.into_iter().chain(last).map(end).collect()
}

fn is_within(inner: ByteRange, outer: ByteRange) -> bool {
    inner.start >= outer.start && end_of(inner) <= end_of(outer)
}

/// The range, and the folio that it has a part of, within a file of `size` bytes.
fn around(range: ByteRange, folio: ByteRange, size: Bytes) -> ByteRange {
    let start = range.start.min(folio.start);
    let end = end_of(range).max(end_of(folio).min(size));
    ByteRange { start, length: end - start }
}

/// Has a part of `file` that reads as zeros be a hole, if it still does. `hole` is a file without blocks. No folio matters
/// here: a mapping shows zeros before, meanwhile, and afterwards.
///
/// # Errors
/// As [`share_if_same`].
pub fn share_hole_if_zeros(hole: impl AsFd, file: impl AsFd, range: ByteRange) -> Result<Shared, Errno> {
    compare_and_share(hole, Bytes(0), file, range)
}

fn end_of(range: ByteRange) -> Bytes {
    Bytes(range.start.0.saturating_add(range.length.0))
}

/// A file without a name that holds `whole` of `file`: in the donor's blocks where `range` is, in the file's own elsewhere.
fn widened(
    directory: impl AsFd,
    donor: impl AsFd,
    donor_start: Bytes,
    file: impl AsFd,
    range: ByteRange,
    whole: ByteRange,
) -> Result<OwnedFd, Errno> {
    let widened = temporary_file(directory)?;
    let at = |position: Bytes| position - whole.start;
    let before = ByteRange { start: whole.start, length: range.start - whole.start };
    let behind = ByteRange { start: end_of(range), length: end_of(whole) - end_of(range) };
    share_data(&file, before, &widened, at)?;
    share_blocks_of(donor, ByteRange { start: donor_start, length: range.length }, &widened, at(range.start))?;
    share_data(&file, behind, &widened, at)?;
    if behind.length.0 > 0 {
        // Where a hole ends the file: the lengths must agree.
        set_length(&widened, whole.length)?;
    }
    Ok(widened)
}

/// Shares the data of a range. Between it blocks are allocated and never written: where the file has such, too, XFS
/// leaves it as it is; a hole in their place would take from the file what was allocated to it.
fn share_data(file: impl AsFd, range: ByteRange, ours: impl AsFd, at: impl Fn(Bytes) -> Bytes) -> Result<(), Errno> {
    let end = end_of(range).0;
    let mut data: Vec<(u64, u64)> = Vec::new();
    if range.length.0 == 0 {
        return Ok(());
    }
    for_each_extent(&file, range, Mapping::AsIs, |extent| {
        let (from, to) =
            (extent.logical.0.max(range.start.0), (extent.logical.0.saturating_add(extent.length.0)).min(end));
        if from < to && (!extent.flags.is_unwritten() || extent.flags.is_delayed()) {
            match data.last_mut().filter(|(_, last)| *last == from) {
                Some((_, last)) => *last = to,
                None => data.push((from, to)),
            }
        }
        true
    })?;
    let part = |from: u64, to: u64| ByteRange { start: Bytes(from), length: Bytes(to - from) };
    let mut done = range.start.0;
    for (from, to) in data.into_iter().chain([(end, end)]) {
        if done < from {
            allocate(&ours, ByteRange { start: at(Bytes(done)), length: Bytes(from - done) })?;
        }
        if from < to {
            share_blocks_of(&file, part(from, to), &ours, at(Bytes(from)))?;
        }
        done = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_grows_by_the_folios_at_its_ends_within_the_file() {
        let range = |start, length| ByteRange { start: Bytes(start), length: Bytes(length) };
        assert_eq!(around(range(100, 200), range(100, 50), Bytes(1000)), range(100, 200));
        assert_eq!(around(range(130, 100), range(128, 64), Bytes(1000)), range(128, 102));
        assert_eq!(around(range(930, 40), range(900, 100), Bytes(985)), range(900, 85));
        // It has just become shorter: what the caller asks for is for the kernel to judge.
        assert_eq!(around(range(900, 85), range(900, 100), Bytes(950)), range(900, 85));
    }

    #[test]
    fn with_pages_of_4_kib_a_folio_has_2_mib_at_most() {
        if page_size() == 4096 {
            assert_eq!(longest_folio(), Bytes(2 << 20));
        }
    }
}
