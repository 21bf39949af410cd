//! Loads and attaches the BPF programs. Owns which are required, and which are used only if the kernel has the hook.

use super::Cost;
use crate::HeatError;
use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, Map, MapCore as _, Object, ObjectBuilder};
use longrun_bpf::{explained, figure, has_hook, quieten};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/heat.bpf.o"));

/// The hook that reports transfers past the page cache: since Linux 6.4.
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
        let tells_direct = has_hook(&kernel, hook);
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
        let runs = figure(&self.object, "run_cnt");
        (runs > 0).then(|| Cost { runs, nanos: figure(&self.object, "run_time_ns") })
    }
}
