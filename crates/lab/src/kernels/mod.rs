//! Checks that everything works on the running kernel: optimizing, prevention and its fallback, and afterwards the
//! file systems' own checkers, on each file system and medium.
//!
//! Owns the list of checks and their criteria. Made for a guest with another kernel (`scripts/test-kernels.sh`): no
//! check depends on the speed of the machine.

mod growth;

use crate::oracle::{dump, filefrag};
use crate::service::Kernel;
use crate::{FileSystemKind, LoopVolume, Medium, Optimizer, VolumeSpec, tool};
use anyhow::{Context, Result, ensure};
use longrun_ageing::Recipe;
use std::process::Command;
use std::time::Duration;

/// Emulated processors are slow.
const LIMIT: Duration = Duration::from_secs(1800);
/// One file in this many may keep an excess fragment, because the free space of a small volume does not always have
/// room for all.
const FEW: u64 = 100;

/// What to check.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// On which file systems.
    pub kinds: Vec<FileSystemKind>,
    /// On which media.
    pub media: Vec<Medium>,
    /// Size of the volumes that are optimized, in MiB.
    pub mebibytes: u64,
    /// Seed of their ageing.
    pub seed: u64,
}

/// Runs every check, and sends a line for each to `report`, whether it passed or failed.
///
/// # Errors
/// That some have failed.
pub fn kernel_checks(settings: &KernelSettings, report: &mut dyn FnMut(&str)) -> Result<()> {
    let (mut passed, mut failed) = (0, 0);
    let mut note = |name: &str, result: Result<String>| match result {
        Ok(found) => {
            passed += 1;
            report(&format!("passed: {name}: {found}"));
        }
        Err(error) => {
            failed += 1;
            report(&format!("FAILED: {name}: {error:#}"));
        }
    };
    for &kind in &settings.kinds {
        for &medium in &settings.media {
            let at = format!("{} {}", kind.name(), medium.name());
            note(&format!("{at}: optimize"), optimized(settings, kind, medium));
            note(&format!("{at}: prevention"), growth::prevented(kind, medium, Kernel::AsItIs));
            note(&format!("{at}: prevention without BTF"), growth::prevented(kind, medium, Kernel::WithoutBtf));
        }
    }
    note("trace", traced());
    note("governor", accounted());
    ensure!(failed == 0, "{failed} of {} checks failed", passed + failed);
    Ok(())
}

/// A fragmented volume is put together: no excess is left, or next to none; every file is as before, also when it is
/// read from the device; the checker finds nothing.
fn optimized(settings: &KernelSettings, kind: FileSystemKind, medium: Medium) -> Result<String> {
    // With less room a pass on btrfs ends now and then with some per cent of the excess left, on every kernel.
    let room = if kind == FileSystemKind::Btrfs { 2 } else { 1 };
    let spec = VolumeSpec::of(kind, room * settings.mebibytes).on(medium);
    let (spec, recipe) = match kind {
        FileSystemKind::Ext4 => (spec.mkfs(&["-b", "4096", "-m", "0"]), Recipe::Server),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => (spec, Recipe::Churn),
    };
    let (volume, _) = LoopVolume::aged(&spec, recipe, settings.seed)?;
    let mount = volume.mount_point();
    let (before, fragments) = (dump(&mount)?, filefrag(&mount)?);
    let optimizer = Optimizer::longrun("full")?;
    let finished = optimizer.run(&mount, LIMIT)?;
    volume.remount()?;
    optimizer.compare(&before, &dump(&mount)?).context("after optimizing")?;
    let left = filefrag(&mount)?.excess;
    volume.check()?;
    ensure!(
        fragments.excess > 100,
        "only {} excess fragments before the pass: too few to prove anything",
        fragments.excess
    );
    ensure!(
        left <= fragments.files / FEW,
        "{} of {} excess fragments are left in {} files:\n{}",
        left,
        fragments.excess,
        fragments.files,
        finished.stdout
    );
    Ok(format!(
        "{} files, {} → {left} excess fragments in {:.0} s; SHA-256 and properties of all as before; checker clean",
        fragments.files,
        fragments.excess,
        finished.elapsed.as_secs_f64()
    ))
}

/// A run that gives way to others is told by the kernel what they ask for, and keeps an account.
fn accounted() -> Result<String> {
    let (volume, _) = LoopVolume::aged(&VolumeSpec::ext4(128).mkfs(&["-b", "4096", "-m", "0"]), Recipe::Server, 3)?;
    let finished = Optimizer::longrun("efficient")?.at_pace("invisible")?.run(&volume.mount_point(), LIMIT)?;
    let told: serde_json::Value = serde_json::from_str(&finished.stdout)?;
    let governor = told.get("governor").context("nothing is said of the governor")?;
    let observed = governor.get("observed").and_then(serde_json::Value::as_str);
    ensure!(
        observed == Some("arrivals"),
        "observed by {observed:?}: the BPF programs of the governor do not work here"
    );
    ensure!(governor.get("account").is_some_and(serde_json::Value::is_object), "no account: {governor}");
    volume.check()?;
    Ok("requests of others are seen when they arrive, and an account is kept".to_owned())
}

/// The I/O trace loads its programs and counts what is written.
fn traced() -> Result<String> {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64))?;
    let mut command = Command::new(crate::longrun_binary()?);
    command.args(["trace", "--json", "--duration", "3s"]).arg(volume.device());
    let mut tracing = crate::Running::start(&mut command)?;
    let file = volume.mount_point().join("written");
    while !tracing.has_ended()? {
        std::fs::write(&file, vec![1; 1 << 20])?;
        std::fs::File::open(&file)?.sync_all()?;
    }
    let finished = tracing.wait(LIMIT)?;
    ensure!(finished.status.success(), "{}", finished.stderr);
    let told: serde_json::Value = serde_json::from_str(&finished.stdout)?;
    let release = tool::run("uname", ["-r"])?;
    ensure!(told.is_object(), "the trace recorded nothing: {}", finished.stdout);
    Ok(format!("BPF programs of the trace work on Linux {}", release.trim()))
}
