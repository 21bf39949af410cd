//! The list of attached resources. Every way out removes them: drop, panic, signal, and the next start after a kill
//! -9.

use crate::tool;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Every directory of ours is called so, followed by the process and its start time.
const PREFIX: &str = "longrun-lab";
/// In a directory of ours: where the volume is mounted; and, for a volume whose power can be cut, where the file
/// system that its image lies on is mounted, and the image of that.
pub(crate) const MOUNT: &str = "mnt";
pub(crate) const BELOW: &str = "below";
pub(crate) const BELOW_IMAGE: &str = "below-image";
/// In a directory of ours that is a modelled disk: where its server has its files, and what the files are called, a
/// number following, that hold the bytes.
pub(crate) const DISK: &str = "disk";
pub(crate) const BACKING: &str = "backing-";
/// How often a busy mount is tried again, and how long is waited between.
const BUSY_TRIES: u32 = 300;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// What has to be taken down, in the order of taking it down.
#[derive(Debug, Default)]
struct Registry {
    children: Vec<Pid>,
    volumes: BTreeMap<PathBuf, Devices>,
    /// Settings of the machine that were changed, and what they were.
    settings: BTreeMap<PathBuf, String>,
}

/// The loop devices of a directory.
#[derive(Debug, Default)]
struct Devices {
    /// What the volume is on.
    volume: Option<PathBuf>,
    /// What its image lies on, where that is a file system of ours too.
    below: Option<PathBuf>,
    /// What a modelled disk gives to its clients.
    disk: Vec<PathBuf>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { children: Vec::new(), volumes: BTreeMap::new(), settings: BTreeMap::new() });
static START: Once = Once::new();
/// A signal is taking the process down.
static SIGNALLED: AtomicBool = AtomicBool::new(false);

fn registry() -> MutexGuard<'static, Registry> {
    // A panic while the lock was held does not make the list wrong, and cleaning up matters most then.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fresh directory of ours, in `LONGRUN_LAB_DIR` or the system's temporary directory. The first call sweeps what killed
/// runs left, and makes signals clean up.
///
/// # Errors
/// When the directory cannot be made.
pub fn fresh_directory() -> Result<PathBuf> {
    let base = std::env::var_os("LONGRUN_LAB_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    fs::create_dir_all(&base).with_context(|| format!("cannot create {}", base.display()))?;
    START.call_once(|| {
        watch_signals();
        sweep(&base);
    });
    let pid = std::process::id();
    let start = start_time(pid).unwrap_or_default();
    let directory = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}-{pid}-{start}-"))
        .tempdir_in(&base)
        .with_context(|| format!("cannot create a directory in {}", base.display()))?;
    let path = directory.keep();
    registry().volumes.insert(path.clone(), Devices::default());
    Ok(path)
}

/// Notes the loop device of the volume that belongs to `directory`.
pub(crate) fn attached(directory: &Path, device: &Path) {
    registry().volumes.entry(directory.to_owned()).or_default().volume = Some(device.to_owned());
}

/// Notes that the volume of `directory` has no device for now.
pub(crate) fn detached(directory: &Path) {
    registry().volumes.entry(directory.to_owned()).or_default().volume = None;
}

/// Notes the loop device below the image of `directory`.
pub(crate) fn attached_below(directory: &Path, device: &Path) {
    registry().volumes.entry(directory.to_owned()).or_default().below = Some(device.to_owned());
}

/// Notes a loop device of the modelled disk in `directory`.
pub(crate) fn attached_to_disk(directory: &Path, device: &Path) {
    registry().volumes.entry(directory.to_owned()).or_default().disk.push(device.to_owned());
}

/// Takes down what belongs to `directory`: mounts, loop device, files. Reports what did not work on standard error.
pub(crate) fn take_down(directory: &Path) {
    // Held to the end: a signal meanwhile must not end the process half-way.
    let mut registry = registry();
    let devices = registry.volumes.remove(directory).unwrap_or_default();
    remove(directory, &devices, Holder::Stranger);
    drop(registry);
}

/// Notes a child that must not outlive us.
pub(crate) fn child_started(pid: Pid) {
    registry().children.push(pid);
}

/// Forgets a child that has ended.
pub(crate) fn child_ended(pid: Pid) {
    registry().children.retain(|p| *p != pid);
}

/// A setting of the machine (a file in /proc/sys) that is changed until this is dropped, or a signal ends the process.
pub(crate) struct Setting {
    path: PathBuf,
}

impl Setting {
    pub(crate) fn change(path: &Path, value: &str) -> Result<Self> {
        let before = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        registry().settings.entry(path.to_owned()).or_insert(before);
        let changed = Self { path: path.to_owned() };
        fs::write(path, value).with_context(|| format!("cannot write {value} to {}", path.display()))?;
        Ok(changed)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Some(before) = registry().settings.remove(&self.path) {
            report(fs::write(&self.path, before).with_context(|| format!("cannot restore {}", self.path.display())));
        }
    }
}

/// Unmounts, trying again while something holds the mount; the error then says what.
pub(crate) fn unmount(mount_point: &Path) -> Result<()> {
    let mut last = Ok(String::new());
    for _ in 0..BUSY_TRIES {
        last = tool::run("umount", [mount_point]);
        if last.is_ok() || !is_mounted(mount_point) {
            return Ok(());
        }
        std::thread::sleep(BUSY_PAUSE);
    }
    let holders = tool::output(Command::new("fuser").arg("-vm").arg(mount_point))
        .map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).into_owned());
    last.map(|_| ()).with_context(|| format!("{} stays busy, held by:\n{holders}", mount_point.display()))
}

/// Whether something is mounted there.
pub(crate) fn is_mounted(mount_point: &Path) -> bool {
    let wanted = mount_point.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&*wanted))
}

/// Who may still hold a mount that is being taken down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Somebody who should not: wait for it, and say who it is.
    Stranger,
    /// Our own threads, which a signal found at work: the mount goes when this process does.
    Ourselves,
}

fn remove(directory: &Path, devices: &Devices, holder: Holder) {
    for (mount, device) in [(MOUNT, &devices.volume), (BELOW, &devices.below)] {
        remove_mount(&directory.join(mount), holder);
        device.iter().for_each(|device| detach(device));
    }
    // The devices of a disk lie on its mount, not below it.
    devices.disk.iter().for_each(|device| detach(device));
    remove_mount(&directory.join(DISK), holder);
    report(fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display())));
}

fn remove_mount(mount_point: &Path, holder: Holder) {
    if !is_mounted(mount_point) {
        return;
    }
    crate::frozen::thaw(mount_point);
    let unmounted = match holder {
        Holder::Stranger => unmount(mount_point).inspect_err(|error| eprintln!("{error:#}")).is_ok(),
        Holder::Ourselves => tool::run("umount", [mount_point]).is_ok(),
    };
    if !unmounted {
        // Detached lazily, the mount goes as soon as its holder does; nothing of ours stays in the name space.
        report(tool::run("umount", ["--lazy".as_ref(), mount_point]));
    }
}

fn detach(device: &Path) {
    report(tool::run("losetup", ["--detach".as_ref(), device]));
}

/// Directories in the order of taking them down: modelled disks after the volumes on them.
fn volumes_first<T>(directories: impl IntoIterator<Item = (PathBuf, T)>) -> Vec<(PathBuf, T)> {
    let mut directories: Vec<_> = directories.into_iter().collect();
    directories.sort_by_key(|(path, _)| path.join(format!("{BACKING}0")).exists());
    directories
}

fn report<T>(result: Result<T>) {
    if let Err(error) = result {
        eprintln!("{error:#}");
    }
}

/// Waits for the end of the process when a signal is taking it down: what fails meanwhile, because its volume
/// vanishes, is not what it ends for.
pub fn yield_to_signal() {
    while SIGNALLED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn watch_signals() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        eprintln!("signals cannot be watched: an interrupted run will be swept at the next start");
        return;
    };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            SIGNALLED.store(true, Ordering::SeqCst);
            // Held to the end: nothing may be attached any more.
            let mut registry = registry();
            for child in registry.children.drain(..) {
                report(rustix::process::kill_process(child, Signal::KILL).context("cannot kill a child"));
            }
            for (path, before) in std::mem::take(&mut registry.settings) {
                report(fs::write(&path, before).with_context(|| format!("cannot restore {}", path.display())));
            }
            for (directory, devices) in volumes_first(std::mem::take(&mut registry.volumes)) {
                remove(&directory, &devices, Holder::Ourselves);
            }
            std::process::exit(128 + signal);
        }
    });
}

/// Takes down what runs of ours left that have ended without cleaning up.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let entries = entries.flatten().map(|entry| (entry.path(), entry.file_name()));
    for (path, name) in volumes_first(entries) {
        let Some(owner) = name.to_str().and_then(owner) else { continue };
        if start_time(owner.0) == Some(owner.1) || !path.is_dir() {
            continue;
        }
        eprintln!("sweeping what a killed run left: {}", path.display());
        let devices = tool::run("losetup", ["--noheadings", "--output", "NAME,BACK-FILE"]).unwrap_or_default();
        let backed_by = |belongs: &dyn Fn(&Path) -> bool| -> Vec<PathBuf> {
            let backed = devices.lines().filter_map(|line| {
                let (device, file) = line.trim().split_once(char::is_whitespace)?;
                belongs(Path::new(file.trim())).then(|| PathBuf::from(device))
            });
            backed.collect()
        };
        let (below, disk) = (path.join(BELOW_IMAGE), path.join(DISK));
        let of_volume = |file: &Path| file != below && file.starts_with(&path) && !file.starts_with(&disk);
        let left = Devices {
            volume: backed_by(&of_volume).pop(),
            below: backed_by(&|file| file == below).pop(),
            disk: backed_by(&|file| file.starts_with(&disk)),
        };
        remove(&path, &left, Holder::Stranger);
    }
}

/// The process and start time in a directory's name; `None` when the directory is not ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
    let pid = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    parts.next().filter(|rest| !rest.is_empty())?;
    Some((pid, start))
}

/// When a process was started, in clock ticks since boot: with the number, it identifies a process for good.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces: count from its end. Start time is field 22, the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_ours_have_an_owner() {
        assert_eq!(owner("longrun-lab-12-345-aBc"), Some((12, 345)));
        for name in ["longrun-lab", "longrun-lab-dev.x", "longrun-lab-12", "longrun-lab-12-345", "other-12-345-x"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn this_process_has_a_start_time_and_an_unused_number_has_none() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }
}
