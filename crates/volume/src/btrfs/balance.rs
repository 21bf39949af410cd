//! Lets btrfs empty a chunk.
//!
//! Owns the guarantee that this can be ended at any moment, and that no balance continues or stays paused then. Never
//! balances more than one chunk at a time.

use super::gather::in_use;
use super::model::Chunk;
use crate::mounted::Named;
use longrun_engine::relocated::{Evacuated, Meter};
use longrun_engine::{Halt, Stop};
use longrun_layout::Bytes;
use longrun_sys::{Errno, format_uuid};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often it is asked whether to go on.
const PAUSE: Duration = Duration::from_millis(20);
/// How long others' balances, replacements and the like are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has the volume of `root` move everything out of a chunk. What it holds is charged as written, also when it is ended early.
pub(super) fn evacuate(name: &Named, root: &File, chunk: &Chunk, meter: &mut dyn Meter) -> Result<Evacuated, Halt> {
    let begun = Instant::now();
    loop {
        let answer = balance(root, chunk.start.0, chunk.length, &|| meter.stop().is_some());
        match answer {
            Ok((0, _)) => return Ok(Evacuated::Gone),
            Ok((_, completed)) => {
                meter.wrote(chunk.used);
                // What swap space lies in is passed over.
                return Ok(if completed > 0 { Evacuated::Emptied } else { Evacuated::NoSpace });
            }
            Err(Errno::NOSPC) => {
                meter.wrote(chunk.used);
                return Ok(Evacuated::NoSpace);
            }
            Err(Errno::CANCELED | Errno::INTR) => {
                meter.wrote(chunk.used);
                return Err(meter.stop().unwrap_or(Stop::Cancelled).into());
            }
            Err(Errno::INPROGRESS) if begun.elapsed() < PATIENCE => {
                if let Some(stop) = meter.stop() {
                    return Err(stop.into());
                }
                std::thread::sleep(PAUSE);
            }
            Err(Errno::INPROGRESS) => {
                return Err(in_use(name, "another exclusive operation of btrfs".to_owned()).into());
            }
            Err(errno) => return Err(name.failed("emptying a chunk")(errno).into()),
        }
    }
}

/// The call itself returns when everything is done: it is made by another thread, so that it can be ended.
fn balance(root: &File, first: u64, length: Bytes, is_over: &dyn Fn() -> bool) -> Result<(u64, u64), Errno> {
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| longrun_sys::balance_data(root, first, length));
        while !worker.is_finished() {
            // Ours may not have begun, or may have been refused because an administrator's is under way: that is not ours to end.
            if is_over() && longrun_sys::is_balancing(root, first, length) == Ok(true) {
                // It may have ended by itself meanwhile.
                let _ = longrun_sys::cancel_balance(root);
            }
            std::thread::sleep(PAUSE);
        }
        worker.join().unwrap_or(Err(Errno::IO))
    })
}

/// What of its exclusive operations a volume is at, if any.
pub(super) fn exclusive_operation(uuid: [u8; 16]) -> Option<String> {
    let file: PathBuf = ["/sys/fs/btrfs", &format_uuid(&uuid), "exclusive_operation"].iter().collect();
    let operation = fs::read_to_string(file).ok()?;
    let operation = operation.trim();
    (!operation.is_empty() && operation != "none").then(|| operation.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use longrun_lab::{LoopVolume, VolumeSpec, tool};
    use longrun_sys::{BalanceState, balance_state};
    use std::process::{Child, Command, Stdio};

    /// Any balance was cancelled in the moment in which ours had been refused because of it.
    #[test]
    fn loop_a_balance_of_an_administrator_is_not_cancelled() {
        let volume = LoopVolume::create(&VolumeSpec::btrfs(2048)).unwrap();
        let point = volume.mount_point();
        let file = format!("of={}", point.join("file").display());
        tool::run("dd", [file.as_str(), "if=/dev/zero", "bs=1M", "count=700"]).unwrap();
        let root = File::open(&point).unwrap();
        let state = || balance_state(&root).unwrap();
        let btrfs = |words: &[&str]| -> Child {
            let mut command = Command::new("btrfs");
            command.arg("balance").args(words).arg(&point).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        // It may end before it is paused.
        while state() != BalanceState::Paused {
            let mut started = btrfs(&["start", "--full-balance"]);
            while state() == BalanceState::None && started.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            btrfs(&["pause"]).wait().unwrap();
            started.wait().unwrap();
        }
        let all = Bytes(1 << 40);
        let ours = || balance(&root, 0, all, &|| true);
        assert_eq!(ours().unwrap_err(), Errno::INPROGRESS);
        assert_eq!(state(), BalanceState::Paused);
        assert!(btrfs(&["cancel"]).wait().unwrap().success());
        // One of ours is cancelled, unless it ends before.
        let cancelled = std::iter::repeat_with(ours).find_map(Result::err);
        assert_eq!((cancelled, state()), (Some(Errno::CANCELED), BalanceState::None));
    }
}
