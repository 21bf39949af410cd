//! Streams the inode tables: one thread reads ahead in large pieces, the caller parses.
//!
//! Only groups that were ever used are read, only up to their last inode in use, and never more than a few pieces are in
//! memory at once.

use super::bitmap::read_inode_bitmap;
use super::bytes::bit;
use super::fault::{Access, Read};
use super::group::Group;
use super::source::Source;
use super::superblock::Superblock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of an inode table read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that wait for the parser; one more is being read, and one parsed.
const PIECES_AHEAD: usize = 2;

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
}

/// Hands every piece with inodes in use to `each`, in order of inode number.
pub(super) fn for_each_piece(
    source: &dyn Source,
    sb: &Superblock,
    access: Access,
    groups: &[Group],
    mut each: impl FnMut(&Piece) -> Read<()>,
) -> Read<()> {
    let (full, filled) = sync_channel(PIECES_AHEAD);
    let (empty, recycled) = sync_channel(PIECES_AHEAD + 2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let reader = Reader { source, sb, access, full, recycled };
            for (group, number) in groups.iter().zip(0..) {
                let result = reader.read_group(number, group);
                match result {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The parser may be gone already: then nobody wants to know.
                    Err(fault) => return reader.full.send(Err(fault)).unwrap_or(()),
                }
            }
        });
        for piece in filled {
            let piece = piece?;
            each(&piece)?;
            // A full or closed return path only means that the buffer is not used again.
            empty.try_send(piece).unwrap_or(());
        }
        Ok(())
    })
}

struct Reader<'a> {
    source: &'a dyn Source,
    sb: &'a Superblock,
    access: Access,
    full: SyncSender<Read<Piece>>,
    recycled: Receiver<Piece>,
}

impl Reader<'_> {
    /// Reads the pieces of one group; false when the parser has stopped.
    fn read_group(&self, number: u32, group: &Group) -> Read<bool> {
        if group.initialised_inodes == 0 {
            return Ok(true);
        }
        let bitmap = read_inode_bitmap(self.source, self.sb, self.access, number, group)?;
        let size = usize::from(self.sb.inode_size);
        let inodes_per_piece = (PIECE_BYTES / size).max(1);
        let initialised = group.initialised_inodes as usize;
        for start in (0..initialised).step_by(inodes_per_piece) {
            let mut piece = self.recycled.try_recv().unwrap_or_default();
            let end = initialised.min(start + inodes_per_piece);
            // Inode numbers start at 1.
            let number_of = |index: usize| number * self.sb.inodes_per_group + index as u32 + 1;
            piece.in_use.clear();
            piece.in_use.extend((start..end).filter(|i| bit(&bitmap, *i)).map(number_of));
            let (Some(first), Some(last)) = (piece.in_use.first(), piece.in_use.last()) else { continue };
            let skipped = (first - number_of(start)) as usize + start;
            piece.bytes.resize((last - first + 1) as usize * size, 0);
            (piece.group, piece.first_inode) = (number, *first);
            self.source.read_exact_at(&mut piece.bytes, self.sb.offset(group.inode_table) + (skipped * size) as u64)?;
            if self.full.send(Ok(piece)).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
