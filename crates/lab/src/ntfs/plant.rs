//! Leaks, planted: clusters and file records that are marked as in use although nothing has them, as crashes leave them.
//!
//! Owns the bits of the two bitmaps. Changes nothing else.

use super::census::{AttributeKind, AttributeName, Census};
use crate::oracle::ntfs::{Place, runs};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The record of $Bitmap, and that of $MFT.
const BITMAP: u64 = 6;
const MFT: u64 = 0;

/// Marks ranges of clusters (first and count) and file records as in use.
///
/// # Errors
/// When one of them is marked already, or a bitmap does not lie in clusters.
pub fn leak(image: &Path, clusters: &[(u64, u64)], records: &[u64]) -> Result<()> {
    let cluster_bytes = Census::geometry(image)?.cluster_bytes;
    let bits = clusters.iter().flat_map(|(first, count)| *first..first + count);
    mark(image, BITMAP, AttributeKind::DATA, cluster_bytes, bits)?;
    mark(image, MFT, AttributeKind::BITMAP, cluster_bytes, records.iter().copied())
}

fn mark(
    image: &Path,
    record: u64,
    kind: AttributeKind,
    cluster_bytes: u64,
    bits: impl Iterator<Item = u64>,
) -> Result<()> {
    let runs = runs(image, Place::Record(record))?;
    let runs = runs.get(&AttributeName::new(kind, "")).context("the bitmap stands in its record")?;
    let file = File::options().read(true).write(true).open(image)?;
    for bit in bits {
        let (mut cluster, within) = (bit / 8 / cluster_bytes, bit / 8 % cluster_bytes);
        let run = runs.iter().find(|(_, count)| {
            let is_here = cluster < *count;
            cluster -= if is_here { 0 } else { *count };
            is_here
        });
        let (first, _) = run.context("the bitmap is shorter")?;
        let place = (first + cluster) * cluster_bytes + within;
        let mut byte = [0];
        file.read_exact_at(&mut byte, place)?;
        ensure!(byte[0] >> (bit % 8) & 1 == 0, "{bit} is marked already");
        file.write_all_at(&[byte[0] | 1 << (bit % 8)], place)?;
    }
    Ok(())
}
