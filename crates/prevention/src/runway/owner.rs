//! Finds out whether the owner of a file has a limit on space.
//!
//! Owns the queries to the kernel; the policy decides what follows. Never changes a quota.

use super::file::Opened;
use longrun_sys::FileSystem;
use longrun_sys::{Charged, Errno, SpaceLimits, TreeId, TreeItem, TreeKey, TreeReader, Visit};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

/// What `btrfs-progs` calls `BTRFS_QGROUP_STATUS_KEY`, `…_LIMIT_KEY` and `…_RELATION_KEY`.
const STATUS: u8 = 240;
const LIMIT: u8 = 244;
const RELATION: u8 = 246;
/// Whether quotas are on.
const STATUS_ON: u64 = 1;
/// Of the flags of a limit: on what is referenced, or exclusive.
const SPACE_LIMITS: u64 = 0b11;

/// Whether a user, a group, a project or a quota group with a limit pays for the file.
pub(super) fn is_limited(filesystem: FileSystem, opened: &Opened) -> Result<bool, Errno> {
    if filesystem == FileSystem::Btrfs {
        return btrfs(opened);
    }
    let project = longrun_sys::extended_attributes(&opened.file).map_or(0, |attributes| attributes.project);
    let mut charged =
        vec![Charged::User(opened.stat.uid()), Charged::Group(opened.stat.gid()), Charged::Project(project)];
    if filesystem == FileSystem::Xfs {
        // The limits of number 0 are those that others begin with; it has none itself.
        charged.retain(|whom| !matches!(whom, Charged::User(0) | Charged::Group(0) | Charged::Project(0)));
    }
    any_limited(&charged, |whom| longrun_sys::space_limits(&opened.file, whom))
}

fn any_limited(
    charged: &[Charged],
    ask: impl Fn(Charged) -> Result<Option<SpaceLimits>, Errno>,
) -> Result<bool, Errno> {
    for whom in charged {
        if ask(*whom)?.is_some_and(|limits| limits.is_limited()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn btrfs(opened: &Opened) -> Result<bool, Errno> {
    let mut groups = Groups::default();
    let (first, last) = (TreeKey::first_of(0), TreeKey::last_of(u64::MAX));
    let read =
        TreeReader::default().for_each_item(&opened.file, TreeId::QUOTAS, first, last, |item| groups.note(&item));
    match read {
        // Quotas were never switched on.
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
        Ok(()) => Ok(groups.limit(longrun_sys::subvolume_of_file(&opened.file)?)),
    }
}

/// The quota groups of a btrfs.
#[derive(Default)]
struct Groups {
    on: bool,
    limited: BTreeSet<u64>,
    /// Member and group.
    members: BTreeSet<(u64, u64)>,
}

impl Groups {
    fn note(&mut self, item: &TreeItem<'_>) -> Visit {
        let number = |at: usize| item.bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        match item.key.kind {
            // Version and generation come first.
            STATUS => self.on = number(16).is_some_and(|flags| flags & STATUS_ON != 0),
            LIMIT if number(0).is_some_and(|flags| flags & SPACE_LIMITS != 0) => {
                self.limited.insert(item.key.offset);
            }
            // Told in both directions; a group has the higher number.
            RELATION if item.key.object < item.key.offset => {
                self.members.insert((item.key.object, item.key.offset));
            }
            _ => {}
        }
        Visit::Next
    }

    /// Whether the subvolume, or any group that it is in, is limited.
    fn limit(&self, subvolume: TreeId) -> bool {
        let mut of = BTreeSet::from([subvolume.0]);
        let mut next = vec![subvolume.0];
        while let Some(member) = next.pop() {
            let groups = self.members.range((member, 0)..=(member, u64::MAX)).map(|(_, group)| *group);
            next.extend(groups.filter(|group| of.insert(*group)));
        }
        self.on && !of.is_disjoint(&self.limited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::Bytes;

    #[test]
    fn one_limit_is_enough_whoever_it_is_set_for() {
        let all = [Charged::User(7), Charged::Group(8), Charged::Project(9)];
        let limit = |limited: Charged| {
            any_limited(&all, |whom| {
                let hard = Bytes(if whom == limited { 1 << 40 } else { 0 });
                Ok(Some(SpaceLimits { hard, ..SpaceLimits::default() }))
            })
        };
        for whom in all {
            assert_eq!(limit(whom), Ok(true));
        }
        assert_eq!(limit(Charged::User(1)), Ok(false));
        let soft = SpaceLimits { soft: Bytes(1), ..SpaceLimits::default() };
        assert_eq!(any_limited(&all, |_| Ok(Some(soft))), Ok(true));
        assert_eq!(any_limited(&all, |_| Ok(None)), Ok(false));
        assert_eq!(any_limited(&all, |_| Err(Errno::IO)), Err(Errno::IO));
    }

    #[test]
    fn a_subvolume_is_limited_by_every_group_above_it_while_quotas_are_on() {
        let (above, top) = (1 << 48 | 5, 2 << 48 | 5);
        let groups = |on: u64, limited: u64, flags: u64| {
            let mut groups = Groups::default();
            let mut note = |object, kind, offset, numbers: &[u64]| {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                groups.note(&TreeItem { key: TreeKey { object, kind, offset }, bytes: &bytes })
            };
            note(0, STATUS, 0, &[1, 9, on]);
            note(0, LIMIT, limited, &[flags, 4096, 0, 0, 0]);
            for (object, offset) in [(256, above), (above, 256), (above, top), (top, above)] {
                note(object, RELATION, offset, &[]);
            }
            groups
        };
        for limited in [256, above, top] {
            assert!(groups(1, limited, 1).limit(TreeId(256)), "{limited}");
            assert!(!groups(1, limited, 1).limit(TreeId(257)) && !groups(0, limited, 1).limit(TreeId(256)));
            assert!(!groups(1, limited, 0).limit(TreeId(256)));
        }
    }
}
