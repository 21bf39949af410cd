//! Checks again what a scan found to be inconsistent.
//!
//! A mounted volume changes while it is read: between two reads a file can be truncated and its blocks allocated to
//! another file, or freed. Owns the distinction between this and damage. Never reads anything itself.

use longrun_layout::{FileId, FileIndex, Run, VolumeLayout};
use std::collections::{BTreeMap, BTreeSet};

/// What contradicts itself in the same way in each of so many fresh looks is damaged.
const LOOKS: u32 = 3;

/// Has files whose maps contradict something read again by `look`, which answers with a layout of them and the free space
/// alone. Those that contradict nothing there, or lie elsewhere, had only changed, and are called so.
pub(crate) fn look_again<E>(
    layout: &mut VolumeLayout,
    mut look: impl FnMut(&BTreeSet<FileId>) -> Result<VolumeLayout, E>,
) -> Result<(), E> {
    let mut confirmed = doubted(layout);
    for _ in 0..LOOKS {
        if confirmed.is_empty() {
            break;
        }
        let fresh = doubted(&look(&confirmed.keys().copied().collect())?);
        confirmed.retain(|id, runs| fresh.get(id) == Some(runs));
    }
    let excused = layout.contradicting().filter(|file| !confirmed.contains_key(&file.id()));
    let excused: Vec<FileIndex> = excused.map(|file| file.index).collect();
    layout.excuse(&excused);
    Ok(())
}

/// The files whose maps contradict something, with these.
fn doubted(layout: &VolumeLayout) -> BTreeMap<FileId, Vec<Run>> {
    layout.contradicting().map(|file| (file.id(), file.runs().collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{BlockSize, Blocks, Extent, InodeNumber, LayoutBuilder, NO_DIRECTORY, Pin};

    fn id(inode: u64) -> FileId {
        FileId { inode: InodeNumber(inode), generation: 1 }
    }

    fn layout(files: &[(u64, u64)], free: Extent) -> VolumeLayout {
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
        for (inode, start) in files {
            builder.push_file(id(*inode), NO_DIRECTORY, false, None, &mut vec![Run::new(0, *start, 10)]);
        }
        builder.push_free(free);
        builder.build().unwrap()
    }

    fn pins(layout: &VolumeLayout) -> Vec<Option<Pin>> {
        layout.files().map(|file| file.record.pin).collect()
    }

    #[test]
    fn only_what_contradicts_itself_whenever_it_is_read_is_damaged() {
        // 1 and 2 are said to lie in the same blocks, 3 and 4 in free ones, 6 and 7 in the same.
        let claims = [(1, 100), (2, 105), (3, 500), (4, 510), (5, 300), (6, 400), (7, 400)];
        let free = Extent::new(500, 100);
        let mut read = layout(&claims, free);
        let mut looks = 0;
        look_again::<()>(&mut read, |files| {
            looks += 1;
            let expected: &[u64] = if looks == 1 { &[1, 2, 3, 4, 6, 7] } else { &[6, 7] };
            assert!(files.iter().copied().eq(expected.iter().copied().map(id)), "{files:?}");
            // 1 is gone by now, 3 lies elsewhere, and 4 in other blocks that were free a moment later.
            let fresh = [(6, 400), (7, 400), (2, 105), (3, 700), (4, 520)];
            Ok(layout(&fresh[..if looks == 1 { 5 } else { 2 }], free))
        })
        .unwrap();
        let (changed, damaged) = (Some(Pin::Changed), Some(Pin::DamagedMap));
        assert_eq!((looks, pins(&read)), (LOOKS, vec![changed, changed, changed, changed, None, damaged, damaged]));
    }

    #[test]
    fn a_volume_without_contradictions_is_not_read_again() {
        let mut read = layout(&[(1, 100), (2, 200)], Extent::new(500, 100));
        look_again::<()>(&mut read, |_| Err(())).unwrap();
        assert_eq!(pins(&read), [None, None]);
    }
}
