//! What is asked of the kernel about hooks, and about programs that are loaded.

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Object, Program};
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// Whether this kernel has the tracepoint `hook` for programs with types (tp_btf).
#[must_use]
pub fn has_hook(kernel: &Btf<'_>, hook: &str) -> bool {
    kernel.type_by_name::<types::Typedef<'_>>(&format!("btf_trace_{hook}")).is_some()
}

/// The sum of one of the kernel's figures over all programs of `object` that are loaded, by its name in their fdinfo: `run_cnt` and
/// `run_time_ns` (only while the kernel records them), `recursion_misses`.
#[must_use]
pub fn figure(object: &Object, name: &str) -> u64 {
    let of_program = |program: Program<'_>| {
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse::<u64>().ok()
    };
    object.progs().filter(|program| program.autoload()).filter_map(of_program).sum()
}
