//! The paths of a few files, for reports: from each file up to the root, one directory at a time.

use super::device::Device;
use super::directory::is_self_or_parent;
use super::fault::Read;
use super::inode::ROOT;
use longrun_layout::InodeNumber;
use std::collections::{BTreeMap, BTreeSet};

/// Directories above one another; more is a loop.
const DEPTH_LIMIT: usize = 4096;

/// The names found so far: child → (directory, name).
#[derive(Default)]
struct Names(BTreeMap<u32, (u32, Vec<u8>)>);

/// The path from the root of the volume for each of `wanted` that has one, without a leading slash. `known_parents` holds
/// the directory of files where the scan has found it; the others cost a pass over all `directories`.
pub(super) fn find(
    device: &Device,
    wanted: &BTreeSet<u32>,
    known_parents: &BTreeMap<u32, u32>,
    directories: &mut dyn Iterator<Item = u32>,
) -> Read<BTreeMap<InodeNumber, Vec<u8>>> {
    let mut names = Names::default();
    let mut by_parent: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut orphaned: BTreeSet<u32> = BTreeSet::new();
    for inode in wanted.iter().filter(|i| **i != ROOT) {
        match known_parents.get(inode) {
            Some(parent) => drop(by_parent.entry(*parent).or_default().insert(*inode)),
            None => drop(orphaned.insert(*inode)),
        }
    }
    let mut above = BTreeSet::new();
    for (parent, children) in &by_parent {
        above.extend(names.look_in(device, *parent, children)?);
    }
    orphaned.extend(wanted.iter().filter(|i| **i != ROOT && !names.0.contains_key(i)));
    if !orphaned.is_empty() {
        for directory in directories {
            let before = names.0.len();
            let parent = names.look_in(device, directory, &orphaned)?;
            if names.0.len() > before {
                above.extend(parent);
            }
        }
    }
    names.climb(device, above)?;
    Ok(wanted.iter().filter_map(|i| Some((InodeNumber(u64::from(*i)), names.path(*i)?))).collect())
}

impl Names {
    /// Looks for `children` in `directory`; returns (directory, its parent).
    fn look_in(&mut self, device: &Device, directory: u32, children: &BTreeSet<u32>) -> Read<Option<(u32, u32)>> {
        let encrypted = device.read_inode(directory)?.0.is_encrypted();
        let mut parent = None;
        device.for_each_entry(directory, |entry| {
            if entry.name == b".." {
                parent = Some((directory, entry.inode));
            } else if !is_self_or_parent(entry.name) && children.contains(&entry.inode) {
                let name = if encrypted {
                    // Ciphertext is no name; the kernel, too, shows something else without the key.
                    format!("(encrypted name of inode {})", entry.inode).into_bytes()
                } else {
                    entry.name.to_vec()
                };
                self.0.entry(entry.inode).or_insert((directory, name));
            }
        })?;
        Ok(parent)
    }

    /// Finds the names of directories, given with their parents, up to the root.
    fn climb(&mut self, device: &Device, mut above: BTreeSet<(u32, u32)>) -> Read<()> {
        for _ in 0..DEPTH_LIMIT {
            let mut by_parent: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for (directory, parent) in above.iter().filter(|(d, _)| *d != ROOT && !self.0.contains_key(d)) {
                by_parent.entry(*parent).or_default().insert(*directory);
            }
            if by_parent.is_empty() {
                break;
            }
            above = BTreeSet::new();
            for (parent, children) in &by_parent {
                above.extend(self.look_in(device, *parent, children)?);
            }
        }
        Ok(())
    }

    /// Joins the names from the root down; `None` when one is missing.
    fn path(&self, inode: u32) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = inode;
        while at != ROOT {
            let (parent, name) = self.0.get(&at)?;
            parts.push(name);
            at = *parent;
            if parts.len() > DEPTH_LIMIT {
                return None;
            }
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }
}
