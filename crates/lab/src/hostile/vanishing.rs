//! A device that fails every request from one moment on, like a detached one, and comes back without the data that it
//! had not yet written. The service and a pass find it missing at any moment.

use super::{HostileSettings, PATIENCE, prey, start_service};
use crate::{LoopVolume, Optimizer, VolumeSpec};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

const FILES: usize = 6;
/// What is durable of each file, in bytes, and what may be lost.
const DURABLE: usize = 3 << 20;
const LOST: usize = 1 << 20;

/// Takes the device away once, and gives it back; everything durable must be there.
pub(super) fn vanish(settings: &HostileSettings, seed: u64) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let spec = VolumeSpec::of(settings.kind, 640).on(settings.medium);
    let empty = LoopVolume::create(&spec)?;
    empty.unmount()?;
    let mut volume = empty.copy_behind_cache("")?;
    drop(empty);
    let state = tempfile::tempdir()?;
    let mut service = start_service(state.path(), &volume)?;
    let content = |file: usize, length: usize| -> Vec<u8> {
        (0..length as u64).map(|at| prey::content(seed.wrapping_add(file as u64), at)).collect()
    };
    let paths: Vec<_> = (0..FILES).map(|number| volume.mount_point().join(prey::file_name(number))).collect();
    let open = |path| Ok(File::options().create(true).append(true).open(path)?);
    let mut files = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    for (number, file) in files.iter_mut().enumerate() {
        file.write_all(&content(number, DURABLE))?;
        file.sync_all()?;
    }
    File::open(volume.mount_point())?.sync_all()?;
    let pass = Optimizer::longrun("full")?.start(&volume.mount_point())?;
    for (number, file) in files.iter_mut().enumerate() {
        let all = content(number, DURABLE + LOST);
        file.write_all(all.get(DURABLE..).context("the rest")?)?;
    }
    std::thread::sleep(Duration::from_millis(rng.u64(..400)));
    volume.cut_power()?;
    drop(files);
    service.ask(PATIENCE, "that it is alive", |told| told.get("healthy").map(|_| ()))?;
    pass.wait(PATIENCE).context("a pass whose device is gone")?;
    volume.restore_power().context("the volume whose device was gone")?;
    service.ask(PATIENCE, "that it is alive", |told| told.get("healthy").map(|_| ()))?;
    for (number, path) in paths.iter().enumerate() {
        let (seen, expected) = (fs::read(path)?, content(number, DURABLE));
        ensure!(seen.starts_with(&expected), "{}: what was durable is lost", path.display());
    }
    service.stop()?;
    volume.check()
}
