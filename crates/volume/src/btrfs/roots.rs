//! All subvolumes and snapshots of a volume.
//!
//! Owns the reading of the root tree. Leaves out deleted subvolumes that btrfs has not yet removed.

use super::address::SubvolumeId;
use super::items::{FIRST_OBJECT, LAST_OBJECT, Root, kind, root_place};
use super::model::Subvolume;
use super::trees::Trees;
use longrun_engine::VolumeError;
use longrun_sys::{TreeId, TreeItem, TreeKey, Visit};

/// Reads them, ascending by id.
pub(super) fn read(trees: &mut Trees<'_>) -> Result<Vec<Subvolume>, VolumeError> {
    let mut found = Found::default();
    let (first, last) = (TreeKey::first_of(SubvolumeId::TOP.0), TreeKey::last_of(LAST_OBJECT));
    trees.visit(TreeId::ROOTS, first, last, |item| {
        found.take(&item);
        Visit::Next
    })?;
    if let Some(beyond) = found.0.iter().find(|subvolume| u32::try_from(subvolume.id.0).is_err()) {
        return Err(trees.unsupported(format!("btrfs with subvolume number {}", beyond.id)));
    }
    Ok(found.0)
}

#[derive(Default)]
struct Found(Vec<Subvolume>);

impl Found {
    fn take(&mut self, item: &TreeItem<'_>) {
        let id = SubvolumeId(item.key.object);
        if id != SubvolumeId::TOP && id.0 < FIRST_OBJECT {
            return;
        }
        match item.key.kind {
            kind::ROOT => {
                let Some(root) = Root::decode(item.bytes).filter(|root| root.references > 0) else { return };
                self.0.push(Subvolume {
                    id,
                    place: None,
                    read_only: root.is_read_only,
                    is_snapshot: root.is_snapshot,
                    tree_bytes: root.tree_bytes,
                });
            }
            kind::ROOT_BACK_REFERENCE => {
                // It comes right behind the subvolume itself.
                if let Some(subvolume) = self.0.last_mut().filter(|subvolume| subvolume.id == id)
                    && let Some((directory, name)) = root_place(item.bytes)
                {
                    subvolume.place = Some((SubvolumeId(item.key.offset), directory, name.to_vec()));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{Bytes, InodeNumber};

    fn root(references: u32, flags: u64, is_snapshot: bool) -> Vec<u8> {
        let mut item = vec![0; 439];
        item[192..200].copy_from_slice(&16384u64.to_le_bytes());
        item[208..216].copy_from_slice(&flags.to_le_bytes());
        item[216..220].copy_from_slice(&references.to_le_bytes());
        item[263] = u8::from(is_snapshot);
        item
    }

    #[test]
    fn living_subvolumes_are_found_with_their_names() {
        let mut name = vec![0; 18];
        name[0..8].copy_from_slice(&256u64.to_le_bytes());
        name[16] = 4;
        name.extend(b"home");
        let mut found = Found::default();
        for (object, kind, offset, bytes) in [
            (5, kind::ROOT, 0, root(1, 0, false)),
            (7, kind::ROOT, 0, root(1, 0, false)),
            (256, kind::ROOT, 0, root(1, 0, false)),
            (256, kind::ROOT_BACK_REFERENCE, 5, name.clone()),
            (257, kind::ROOT, 12, root(0, 0, false)),
            (257, kind::ROOT_BACK_REFERENCE, 5, name),
            (258, kind::ROOT, 13, root(1, 1, true)),
        ] {
            found.take(&TreeItem { key: TreeKey { object, kind, offset }, bytes: &bytes });
        }
        let plain = |id| Subvolume {
            id: SubvolumeId(id),
            place: None,
            read_only: false,
            is_snapshot: false,
            tree_bytes: Bytes(16384),
        };
        let home = Subvolume { place: Some((SubvolumeId(5), InodeNumber(256), b"home".to_vec())), ..plain(256) };
        let snapshot = Subvolume { read_only: true, is_snapshot: true, ..plain(258) };
        assert_eq!(found.0, [plain(5), home, snapshot]);
    }
}
