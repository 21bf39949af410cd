//! Somebody else who uses a device, and is put first by the scheduler: how busy the processors are must not matter.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Another process that reads the device without a pause, until this is dropped.
pub struct Busy(Child);

impl Busy {
    /// Reads `device` from now on.
    pub fn on(device: &Path) -> Self {
        let again = "while :; do dd if=\"$0\" of=/dev/null bs=4k iflag=direct 2>/dev/null & dd if=\"$0\" of=/dev/null bs=4k skip=9000 iflag=direct 2>/dev/null; wait; done";
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
