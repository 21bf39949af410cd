//! Somebody else who uses a device, and is put first by the scheduler: how busy the processors are must not matter.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Another process that reads the device, until this is dropped.
pub struct Busy(Child);

impl Busy {
    /// Reads `device` without a pause from now on.
    pub fn on(device: &Path) -> Self {
        Self::run(
            device,
            "while :; do dd if=\"$0\" of=/dev/null bs=4k iflag=direct 2>/dev/null & dd if=\"$0\" of=/dev/null bs=4k skip=9000 iflag=direct 2>/dev/null; wait; done",
        )
    }

    /// Reads a block of `device` five times a second from now on.
    #[allow(dead_code, reason = "not each test that has this module needs it")]
    pub fn now_and_then(device: &Path) -> Self {
        Self::run(
            device,
            "while :; do dd if=\"$0\" of=/dev/null bs=4k count=1 skip=9000 iflag=direct 2>/dev/null; sleep 0.2; done",
        )
    }

    fn run(device: &Path, again: &str) -> Self {
        let mut command = Command::new("nice");
        // A group of its own, so that the shell's present child ends with it.
        command.args(["-n", "-20", "sh", "-c", again]).arg(device).process_group(0);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}
