//! Loads and attaches the BPF programs in groups: one group for all volumes, and one for each file system when its
//! first volume is watched (its module may be loaded late). Owns only the programs.

use super::record;
use crate::sensor::{SensorError, Settings};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder};
use longrun_bpf::{explained, quieten};
use longrun_sys::FileSystem;
use longrun_sys::page_size;
use std::os::fd::AsFd;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/growth.bpf.o"));

/// The number of no process.
const NOBODY: u32 = u32::MAX;

/// Programs that are attached until this is dropped.
pub(super) struct Group {
    // Before the object: links first go down, then what they lead to.
    _links: Vec<Link>,
    object: Object,
    own: u32,
}

/// What every volume needs: to be told when an armed file is written to. Best first; the others are for kernels before
/// Linux 6.4 and 5.18. Where a hook is missing, a runway's use is noticed later: when the file fragments again.
const CORE: &[&[&str]] = &[&["dirty_folio", DIRECT_WRITES], &["dirty_folio"], &["dirty_page"]];

/// Tells of direct writes on all file systems, where it exists.
const DIRECT_WRITES: &str = "direct_begin";

/// What a file system needs, best first.
fn programs_of(filesystem: FileSystem, direct_writes_told: bool) -> &'static [&'static [&'static str]] {
    match filesystem {
        FileSystem::Ext4 => &[&["ext4_allocated"]],
        FileSystem::Xfs if direct_writes_told => &[&["xfs_at_once", "xfs_written_back"]],
        FileSystem::Xfs => &[&["xfs_at_once", "xfs_written_back", "xfs_direct"], &["xfs_at_once", "xfs_written_back"]],
        FileSystem::Btrfs => &[&["btrfs_allocated"]],
    }
}

impl Group {
    /// The programs that every volume needs, with the tables that all groups share.
    pub(super) fn core(settings: Settings) -> Result<Self, SensorError> {
        quieten();
        let own = settings.silent_process().unwrap_or(NOBODY);
        load(CORE, own, |name, map| match name {
            "events" => map.set_max_entries(u32::try_from(settings.queue.0).unwrap_or(u32::MAX)),
            _ => Ok(()),
        })
    }

    /// The programs of one file system, working on the tables of `core`.
    pub(super) fn of(filesystem: FileSystem, core: &Self) -> Result<Self, SensorError> {
        let direct_writes_told =
            core.object.progs().any(|program| program.name() == DIRECT_WRITES && program.autoload());
        load(programs_of(filesystem, direct_writes_told), core.own, |name, map| match core.table(name) {
            Some(shared) => map.reuse_fd(shared.as_fd()),
            None => Ok(()),
        })
    }

    /// A table by its name.
    pub(super) fn table(&self, name: &str) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == name)
    }
}

/// Loads the first of `sets` that the kernel takes: whether it has a hook is found out by trying.
fn load(
    sets: &[&[&str]],
    own: u32,
    prepare: impl Fn(&str, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> Result<Group, SensorError> {
    let mut first = None;
    for set in sets {
        match load_set(set, own, &prepare) {
            Ok(group) => {
                if let Some(error) = first {
                    let programs = set.join(", ");
                    tracing::info!(programs, %error, "the preferred BPF programs could not be loaded; others are used");
                }
                return Ok(group);
            }
            Err(error) => first = first.or(Some(explained(&error))),
        }
    }
    let detail = first.unwrap_or_default();
    Err(SensorError::Bpf { detail })
}

fn load_set(
    names: &[&str],
    own: u32,
    prepare: impl Fn(&str, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<Group> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    longrun_bpf::set_constants(&mut open, |constants| record::set_constants(constants, own, page_size()))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        prepare(&name, &mut map)?;
    }
    for mut program in open.progs_mut() {
        let wanted = names.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
    }
    let object = open.load()?;
    let mut links = Vec::new();
    for program in object.progs_mut() {
        if names.iter().any(|name| program.name() == *name) {
            links.push(program.attach()?);
        }
    }
    Ok(Group { _links: links, object, own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_hook_is_missing_the_next_set_is_taken_and_without_any_the_error_names_the_first() {
        let core = Group::core(Settings::default()).unwrap();
        // This kernel has the folio's hook, and so has not the page's, which it replaced.
        let sets: &[&[&str]] = &[&["dirty_page"], &["dirty_folio"]];
        let (one, other) = (load(&sets[..1], 0, |_, _| Ok(())), load(&sets[1..], 0, |_, _| Ok(())));
        assert!(one.is_ok() != other.is_ok());
        assert!(load(sets, 0, |_, _| Ok(())).is_ok());
        let failed = one.err().or(other.err()).unwrap().to_string();
        assert!(failed.contains("writeback_dirty_"), "{failed}");
        // What is for kernels without iomap_dio_rw_begin passes the verifier of this one too.
        let older = load(&programs_of(FileSystem::Xfs, false)[..1], core.own, |_, _| Ok(()));
        assert!(older.is_ok());
    }
}
