//! Loads and attaches the BPF programs. Owns which are required, and which are used only if the kernel has the hook.

use super::Cost;
use crate::HeatError;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Link, Map, MapCore as _, Object, ObjectBuilder};
use longrun_bpf::{explained, quieten};
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/heat.bpf.o"));

/// Transfers past the page cache are told since Linux 6.4.
const DIRECT: (&str, &str) = ("direct_begins", "iomap_dio_rw_begin");

/// Programs that are attached until this is dropped.
pub(super) struct Programs {
    // Declared before the object, so that the links are dropped first.
    _links: Vec<Link>,
    object: Object,
    tells_direct: bool,
}

impl Programs {
    /// Loads and attaches.
    pub(super) fn load() -> Result<Self, HeatError> {
        quieten();
        Self::try_load().map_err(|error| match error.kind() {
            // The verifier refuses programs with the same error number.
            libbpf_rs::ErrorKind::PermissionDenied if !longrun_sys::is_root() => HeatError::NotPermitted,
            _ => HeatError::Unsupported { detail: explained(&error) },
        })
    }

    fn try_load() -> libbpf_rs::Result<Self> {
        let (program, hook) = DIRECT;
        let kernel = Btf::from_vmlinux()?;
        let tells_direct = kernel.type_by_name::<types::Typedef<'_>>(&format!("btf_trace_{hook}")).is_some();
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut known in open.progs_mut().filter(|known| known.name() == program) {
            known.set_autoload(tells_direct);
        }
        let object = open.load()?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            links.push(program.attach()?);
        }
        Ok(Self { _links: links, object, tells_direct })
    }

    /// Whether transfers past the page cache are counted for their files.
    pub(super) fn tells_direct(&self) -> bool {
        self.tells_direct
    }

    /// A map by its name.
    pub(super) fn table(&self, name: &'static str) -> Result<Map<'_>, HeatError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| HeatError::Broken { act: "finding a table", detail: format!("there is no {name}") })
    }

    /// The cost of the programs, if the kernel records it.
    pub(super) fn cost(&self) -> Option<Cost> {
        let runs = self.figure("run_cnt");
        (runs > 0).then(|| Cost { runs, nanos: self.figure("run_time_ns") })
    }

    /// The sum of one of the kernel's figures over all programs.
    fn figure(&self, name: &str) -> u64 {
        let of_program = |program: libbpf_rs::Program<'_>| {
            let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd())).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse::<u64>().ok()
        };
        self.object.progs().filter(|program| program.autoload()).filter_map(of_program).sum()
    }
}
