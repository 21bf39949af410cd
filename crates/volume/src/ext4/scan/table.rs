//! Reads the inode tables in large pieces.
//!
//! Reads only groups that were ever used, only up to their last inode in use, and holds one piece in memory at a time.
//! One thread is enough: a second thread that reads ahead gave no measurable gain (400 000 files, cold).

use super::bitmap::read_inode_bitmap;
use super::bytes::bit;
use super::fault::{Access, Read};
use super::group::Group;
use super::source::Source;
use super::superblock::Superblock;

/// Bytes of an inode table read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A stretch of an inode table.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The group that it belongs to, for progress.
    pub(super) group: u32,
    first_inode: u32,
    in_use: Vec<u32>,
    bytes: Vec<u8>,
}

impl Piece {
    /// The inodes in use, with their raw content.
    pub(super) fn inodes<'a>(&'a self, sb: &Superblock) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let size = usize::from(sb.inode_size);
        self.in_use.iter().filter_map(move |number| {
            let at = (number - self.first_inode) as usize * size;
            Some((*number, self.bytes.get(at..at + size)?))
        })
    }

    /// Reads the part of a group's table that holds the inodes in use among `indices`; false when none is.
    fn read(
        &mut self,
        source: &dyn Source,
        sb: &Superblock,
        (number, group): (u32, &Group),
        bitmap: &[u8],
        indices: std::ops::Range<usize>,
    ) -> Read<bool> {
        // Inode numbers start at 1.
        let before = number * sb.inodes_per_group + 1;
        self.in_use.clear();
        self.in_use.extend(indices.filter(|i| bit(bitmap, *i)).map(|i| before + i as u32));
        let (Some(first), Some(last)) = (self.in_use.first(), self.in_use.last()) else { return Ok(false) };
        (self.group, self.first_inode) = (number, *first);
        self.bytes.resize((last - first + 1) as usize * usize::from(sb.inode_size), 0);
        let skipped = u64::from(first - before) * u64::from(sb.inode_size);
        source.read_exact_at(&mut self.bytes, sb.offset(group.inode_table) + skipped)?;
        Ok(true)
    }
}

/// Hands every piece with inodes in use to `each`, in order of inode number.
pub(super) fn for_each_piece(
    source: &dyn Source,
    sb: &Superblock,
    access: Access,
    groups: &[Group],
    mut each: impl FnMut(&Piece) -> Read<()>,
) -> Read<()> {
    let inodes_per_piece = (PIECE_BYTES / usize::from(sb.inode_size)).max(1);
    let mut piece = Piece::default();
    for (number, group) in (0..).zip(groups).filter(|(_, group)| group.initialised_inodes > 0) {
        let bitmap = read_inode_bitmap(source, sb, access, number, group)?;
        let initialised = group.initialised_inodes as usize;
        for start in (0..initialised).step_by(inodes_per_piece) {
            let indices = start..initialised.min(start + inodes_per_piece);
            if piece.read(source, sb, (number, group), &bitmap, indices)? {
                each(&piece)?;
            }
        }
    }
    Ok(())
}
