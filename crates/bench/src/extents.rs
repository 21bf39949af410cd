//! The extents of files, and the number of device requests that they cost.
//!
//! Owns the definitions. A *fragment* is a physically contiguous range of a file: adjoining extents are one fragment,
//! and a hole between two extents does not separate them. *Excess* is the number of fragments of a file beyond the
//! first. A *split* is a request of a given size, aligned to its size, whose blocks are in more than one place, so
//! that no device can serve it in one transfer.

use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, FileExtent, Mapping, for_each_extent};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::Path;

/// The layout of the files of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Files with blocks.
    pub files: u64,
    /// Their lengths together.
    pub bytes: Bytes,
    /// Extent records that the file system keeps for them.
    pub extents: u64,
    /// Physically contiguous ranges.
    pub fragments: u64,
    /// Sum over the files of fragments - 1.
    pub excess_fragments: u64,
    /// The most fragments of any of them.
    pub most_fragments: u64,
    /// Blocks beyond the ends of the files, which were not given back.
    pub bytes_behind_end: Bytes,
}

/// Requests that need more than one device transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits {
    /// Size of the requests.
    pub request: Bytes,
    /// How many of them the files are made of.
    pub requests: u64,
    /// Those that lie in more than one place.
    pub split: u64,
    /// Transfers that they need beyond one each.
    pub more_transfers: u64,
}

/// A contiguous part of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    logical: u64,
    physical: u64,
    length: u64,
}

/// The layout of all files below `directory`, and the splits of requests of the given sizes.
///
/// # Errors
/// [`BenchError::Io`] when a file cannot be read, or its file system does not report extents.
pub fn layout_of(directory: &Path, requests: &[Bytes]) -> Result<(Layout, Vec<Splits>), BenchError> {
    look(directory, requests, Mapping::Synced)
}

/// The layout of the files below `directory` at this moment, as far as it is known, to watch them grow. Does not
/// write back dirty data, and skips files that vanish meanwhile.
///
/// # Errors
/// As [`layout_of`].
pub fn glance(directory: &Path) -> Result<Layout, BenchError> {
    look(directory, &[], Mapping::AsIs).map(|(layout, _)| layout)
}

fn look(directory: &Path, requests: &[Bytes], mapping: Mapping) -> Result<(Layout, Vec<Splits>), BenchError> {
    let mut layout = Layout::default();
    let mut splits: Vec<Splits> = requests.iter().map(|size| Splits { request: *size, ..Splits::default() }).collect();
    for_each_file(directory, &mut |path| {
        let (length, extents) = match extents_of(path, mapping) {
            Err(BenchError::Io { source, .. })
                if mapping == Mapping::AsIs && source.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(());
            }
            found => found?,
        };
        let inside = pieces(&extents, length);
        let fragments = count(&inside);
        layout.files += u64::from(fragments > 0);
        layout.bytes += Bytes(length);
        layout.extents += extents.iter().filter(|extent| extent.logical.0 < length).count() as u64;
        layout.fragments += fragments;
        layout.excess_fragments += fragments.saturating_sub(1);
        layout.most_fragments = layout.most_fragments.max(fragments);
        layout.bytes_behind_end += behind_end(&extents, length);
        splits.iter_mut().for_each(|splits| splits.add(&inside, length));
        Ok(())
    })?;
    Ok((layout, splits))
}

/// Calls `visit` for each regular file below `directory`, by name: the same order every time.
pub(crate) fn for_each_file(
    directory: &Path,
    visit: &mut dyn FnMut(&Path) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let failed = |e| BenchError::io("listing it", directory, e);
    let mut entries = fs::read_dir(directory).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            for_each_file(&entry.path(), visit)?;
        } else if kind.is_file() {
            visit(&entry.path())?;
        }
    }
    Ok(())
}

fn extents_of(path: &Path, mapping: Mapping) -> Result<(u64, Vec<FileExtent>), BenchError> {
    let file = File::open(path).map_err(|e| BenchError::io("opening it", path, e))?;
    let length = file.metadata().map_err(|e| BenchError::io("examining it", path, e))?.len();
    let mut extents = Vec::new();
    for_each_extent(&file, ByteRange::ALL, mapping, |extent| {
        // What has no place yet is in no pieces.
        if !extent.flags.is_delayed() {
            extents.push(extent);
        }
        true
    })
    .map_err(|e| BenchError::io("mapping its extents", path, e))?;
    Ok((length, extents))
}

/// The contiguous parts up to the end of the file. Inline data in the inode needs no blocks.
fn pieces(extents: &[FileExtent], length: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for extent in extents.iter().filter(|extent| extent.logical.0 < length && !extent.flags.is_inline()) {
        let next = Piece {
            logical: extent.logical.0,
            physical: extent.physical.0,
            // The last block of a file belongs to it whole.
            length: extent.length.0.min(length.next_multiple_of(4096) - extent.logical.0),
        };
        match pieces.last_mut() {
            Some(last)
                if last.logical + last.length == next.logical && last.physical + last.length == next.physical =>
            {
                last.length += next.length;
            }
            _ => pieces.push(next),
        }
    }
    pieces
}

/// Fragments: here a hole does not count.
fn count(pieces: &[Piece]) -> u64 {
    let mut end = None;
    let mut fragments = 0;
    for piece in pieces {
        fragments += u64::from(end != Some(piece.physical));
        end = Some(piece.physical + piece.length);
    }
    fragments
}

fn behind_end(extents: &[FileExtent], length: u64) -> Bytes {
    let end = length.next_multiple_of(4096);
    Bytes(extents.iter().map(|e| (e.logical.0 + e.length.0).saturating_sub(e.logical.0.max(end))).sum())
}

impl Splits {
    fn add(&mut self, pieces: &[Piece], length: u64) {
        if self.request.0 == 0 {
            return;
        }
        self.requests += length.div_ceil(self.request.0);
        let pieces = pieces.iter().copied();
        let mut current: Option<(u64, u64)> = None;
        let mut close = |current: Option<(u64, u64)>| {
            if let Some((_, transfers)) = current.filter(|(_, transfers)| *transfers > 1) {
                self.split += 1;
                self.more_transfers += transfers - 1;
            }
        };
        for piece in pieces {
            let first = piece.logical / self.request.0;
            let last = (piece.logical + piece.length - 1) / self.request.0;
            // The piece goes on with the request that the piece before it ended in, or begins one.
            current = match current {
                Some((number, transfers)) if number == first => Some((number, transfers + 1)),
                before => {
                    close(before);
                    Some((first, 1))
                }
            };
            if last > first {
                close(current);
                current = Some((last, 1));
            }
        }
        close(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1024;

    fn piece(logical: u64, physical: u64, length: u64) -> Piece {
        Piece { logical: logical * K, physical: physical * K, length: length * K }
    }

    fn splits(pieces: &[Piece], length: u64) -> (u64, u64, u64) {
        let mut splits = Splits { request: Bytes(64 * K), ..Splits::default() };
        splits.add(pieces, length * K);
        (splits.requests, splits.split, splits.more_transfers)
    }

    #[test]
    fn a_request_in_one_place_is_not_split() {
        assert_eq!(splits(&[piece(0, 1000, 256)], 256), (4, 0, 0));
        assert_eq!(splits(&[piece(0, 1000, 64), piece(64, 5000, 64)], 128), (2, 0, 0));
        assert_eq!(splits(&[], 0), (0, 0, 0));
    }

    #[test]
    fn a_request_across_a_boundary_is_split_once_however_many_boundaries_it_has() {
        assert_eq!(splits(&[piece(0, 1000, 32), piece(32, 5000, 96)], 128), (2, 1, 1));
        let many: Vec<Piece> = (0..16).map(|n| piece(n * 4, 1000 + n * 8, 4)).collect();
        assert_eq!(splits(&many, 64), (1, 1, 15));
        assert_eq!(splits(&[piece(0, 1000, 160), piece(160, 5000, 32), piece(192, 9000, 64)], 256), (4, 1, 1));
    }

    #[test]
    fn a_hole_needs_no_transfer_but_parts_it_from_what_follows() {
        assert_eq!(splits(&[piece(0, 1000, 16), piece(48, 1016, 16)], 64), (1, 1, 1));
        assert_eq!(splits(&[piece(0, 1000, 16), piece(128, 1016, 16)], 192), (3, 0, 0));
        assert_eq!(count(&[piece(0, 1000, 16), piece(48, 1016, 16)]), 1, "physically they adjoin");
    }

    #[test]
    fn splits_agree_with_counting_request_by_request() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut at, mut pieces) = (0, Vec::new());
            for number in 0..rng.u64(1..40) {
                at += if rng.bool() { 0 } else { rng.u64(0..100) * 4 };
                let length = rng.u64(1..60) * 4;
                pieces.push(piece(at, 10_000 * (number + 1), length));
                at += length;
            }
            let (mut split, mut more) = (0, 0);
            for request in 0..at.div_ceil(64) {
                let (from, to) = (request * 64 * K, (request + 1) * 64 * K);
                let transfers = pieces.iter().filter(|p| p.logical < to && p.logical + p.length > from).count() as u64;
                split += u64::from(transfers > 1);
                more += transfers.saturating_sub(1);
            }
            assert_eq!(splits(&pieces, at), (at.div_ceil(64), split, more), "seed {seed}");
        }
    }
}
