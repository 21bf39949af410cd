//! The resources that the service uses, from /proc/self.

use longrun_api::model::OwnUse;
use longrun_layout::Bytes;
use std::fs;

/// The memory that this process holds now.
#[must_use]
pub fn resident() -> Bytes {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Bytes(field(&status, "VmRSS").unwrap_or(0) * 1024)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    line.split_whitespace().next()?.parse().ok()
}

/// Now.
#[must_use]
pub fn own_use() -> OwnUse {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let io_bytes = field(&io, "read_bytes").unwrap_or(0) + field(&io, "write_bytes").unwrap_or(0);
    OwnUse {
        cpu_seconds: longrun_sys::processor_time().as_secs_f64(),
        resident_bytes: field(&status, "VmRSS").unwrap_or(0) * 1024,
        io_bytes,
        threads: field(&status, "Threads").unwrap_or(0),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count().saturating_sub(1) as u64),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_uses_memory_threads_and_files() {
        let own = super::own_use();
        assert!(own.resident_bytes > 0 && own.threads > 0 && own.open_files > 2, "{own:?}");
    }
}
