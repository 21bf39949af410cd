//! The I/O of this process on all devices, as counted by the kernel.

use crate::Own;
use longrun_layout::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What this process has had read and written.
#[derive(Debug)]
pub(crate) struct OwnCounters {
    /// Kept open; none where the kernel does not count.
    file: Option<File>,
    granted: Own,
}

impl OwnCounters {
    pub(crate) fn open() -> Self {
        let file = File::open("/proc/self/io").ok();
        let usable = file.filter(|file| read_own(file).is_some());
        if usable.is_none() {
            tracing::warn!("the kernel does not count the I/O of this process; the permitted amounts are used instead");
        }
        Self { file: usable, granted: Own::default() }
    }

    /// At worst what was granted is what was done.
    pub(crate) fn granted(&mut self, bytes: Bytes) {
        self.granted.read += bytes;
        self.granted.written += bytes;
    }

    pub(crate) fn read(&self) -> Own {
        self.file.as_ref().and_then(read_own).unwrap_or(self.granted)
    }
}

fn read_own(file: &File) -> Option<Own> {
    let mut buffer = [0; 512];
    let length = file.read_at(&mut buffer, 0).ok()?;
    parse_own(std::str::from_utf8(buffer.get(..length)?).ok()?)
}

fn parse_own(text: &str) -> Option<Own> {
    let value = |name: &str| {
        let number = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        number.trim().parse().ok().map(Bytes)
    };
    Some(Own { read: value("read_bytes")?, written: value("write_bytes")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_counts_for_this_process_is_read() {
        let text = "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";
        assert_eq!(parse_own(text), Some(Own { read: Bytes(4096), written: Bytes(8192) }));
        assert_eq!(parse_own("rchar: 1\n"), None);
    }
}
