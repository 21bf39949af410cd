//! Loads and attaches the BPF programs. Owns which are required, and which are used only if the kernel has the hook.

use super::TraceError;
use super::record::{self, Settings};
use crate::recording::Cost;
use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, MapCore as _, Object, ObjectBuilder};
use longrun_bpf::{explained, figure, has_hook, quieten};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// All programs and their hooks, in the order in which they are attached. Those for the end of requests come before those
/// for the start, so that no request seems to be in flight forever.
const PROGRAMS: [(&str, &str, Need); 16] = [
    ("completed", "block_rq_complete", Need::Always),
    ("requeued", "block_rq_requeue", Need::Always),
    ("merged", "block_rq_merge", Need::Always),
    ("merged_behind", "block_bio_backmerge", Need::Always),
    ("merged_before", "block_bio_frontmerge", Need::Always),
    ("split", "block_split", Need::Always),
    ("direct_begins", "iomap_dio_rw_begin", Need::IfThere),
    ("reads_ahead", "page_cache_ra_unbounded", Need::IfThere),
    ("reads_ahead_large", "page_cache_ra_order", Need::IfThere),
    ("writes_back", "writeback_single_inode_start", Need::IfThere),
    ("ext4_syncs", "ext4_sync_file_enter", Need::IfThere),
    ("xfs_syncs", "xfs_file_fsync", Need::IfThere),
    ("btrfs_syncs", "btrfs_sync_file", Need::IfThere),
    ("queued", "block_bio_queue", Need::Always),
    ("made", "block_io_start", Need::IfThere),
    ("issued", "block_rq_issue", Need::Always),
];

/// Whether a hook is required.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    IfThere,
}

/// Programs that are attached until this is dropped.
pub(super) struct Programs {
    // Declared before the object, so that the links are dropped first.
    _links: Vec<Link>,
    object: Object,
    hooks: Vec<&'static str>,
}

impl Programs {
    /// Loads and attaches.
    pub(super) fn load(settings: &Settings) -> Result<Self, TraceError> {
        quieten();
        Self::try_load(settings).map_err(|error| match error.kind() {
            // The verifier refuses programs with the same error number.
            libbpf_rs::ErrorKind::PermissionDenied if !longrun_sys::is_root() => TraceError::NotPermitted,
            _ => TraceError::Unsupported { detail: explained(&error) },
        })
    }

    fn try_load(settings: &Settings) -> libbpf_rs::Result<Self> {
        let kernel = Btf::from_vmlinux()?;
        let chosen: Vec<(&str, &'static str)> = PROGRAMS
            .into_iter()
            .filter(|(_, hook, need)| *need == Need::Always || has_hook(&kernel, hook))
            .map(|(program, hook, _)| (program, hook))
            .collect();
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        longrun_bpf::set_constants(&mut open, |constants| record::set_constants(constants, settings))?;
        for mut map in open.maps_mut().filter(|map| map.name() == "counts") {
            map.set_max_entries(record::places(settings.devices.len()))?;
        }
        for mut program in open.progs_mut() {
            let wanted = chosen.iter().any(|(name, _)| program.name() == *name);
            program.set_autoload(wanted);
        }
        let object = open.load()?;
        let mut links = Vec::new();
        for (name, _) in &chosen {
            for program in object.progs_mut().filter(|program| program.name() == *name) {
                links.push(program.attach()?);
            }
        }
        Ok(Self { _links: links, object, hooks: chosen.into_iter().map(|(_, hook)| hook).collect() })
    }

    /// Whether the kernel has this hook and it is attached.
    pub(super) fn has(&self, hook: &str) -> bool {
        self.hooks.contains(&hook)
    }

    /// A map by its name.
    pub(super) fn table(&self, name: &str) -> Result<libbpf_rs::Map<'_>, TraceError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| TraceError::Broken { detail: format!("there is no map {name}") })
    }

    /// Events that the kernel skipped because the program was running on that processor.
    pub(super) fn misses(&self) -> u64 {
        figure(&self.object, "recursion_misses")
    }

    /// The cost of the programs, if the kernel records it.
    pub(super) fn cost(&self) -> Option<Cost> {
        let runs = figure(&self.object, "run_cnt");
        (runs > 0).then(|| Cost { runs, seconds: figure(&self.object, "run_time_ns") as f64 / 1e9 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::skeleton::types::trace_probe;
    use super::*;
    use crate::histogram::Scale;
    use libbpf_rs::ProgramInput;
    use std::mem::offset_of;

    #[test]
    fn the_kernels_side_puts_values_into_the_buckets_of_the_scales() {
        let mut open = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        open.progs_mut().for_each(|mut program| {
            let wanted = program.name() == "buckets";
            program.set_autoload(wanted);
        });
        let object = open.load().unwrap();
        let program = object.progs_mut().find(|program| program.name() == "buckets").unwrap();
        let bucket_of = |scale: u32, value: i64| {
            let mut probe = vec![0u8; size_of::<trace_probe>()];
            probe[offset_of!(trace_probe, value)..][..8].copy_from_slice(&value.to_ne_bytes());
            probe[offset_of!(trace_probe, scale)..][..4].copy_from_slice(&scale.to_ne_bytes());
            let input = ProgramInput { context_in: Some(&mut probe), ..ProgramInput::default() };
            program.test_run(input).unwrap().return_value as usize
        };
        for (nth, scale) in [Scale::Bytes, Scale::Microseconds, Scale::Sectors, Scale::Requests].into_iter().enumerate()
        {
            let bounds: Vec<i64> = (0..scale.buckets()).map_while(|bucket| scale.upto(bucket)).collect();
            let around = bounds.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
            for value in around.filter(|value| *value >= 0 || scale == Scale::Sectors).chain([0, 1 << 31, 1 << 40]) {
                // Lengths of requests have 32 bits.
                if scale != Scale::Bytes || value < 1 << 32 {
                    assert_eq!(bucket_of(nth as u32, value), scale.bucket_of(value), "{scale:?} {value}");
                }
            }
        }
    }
}
