//! Reads files from beginning to end through the page cache, as copying and backup do.

use super::{Laid, Stage};
use crate::device::{Activity, Device};
use crate::{BenchError, median};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The size of the requests.
pub const SEQUENTIAL_REQUEST: Bytes = Bytes(128 << 10);

/// One pass over the files of a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pass {
    /// How long it took.
    pub seconds: f64,
    /// What the device did meanwhile.
    pub device: Activity,
    /// On a modelled disk, how many seconds that was busy by its model: a busy host does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_busy_seconds: Option<f64>,
}

/// The median of what the model says, where there is one.
pub(crate) fn modelled_busy(passes: &[Pass]) -> Option<f64> {
    let busy: Vec<f64> = passes.iter().filter_map(|pass| pass.modelled_busy_seconds).collect();
    (!busy.is_empty()).then(|| median(busy))
}

/// Takes files out of the page cache.
pub(super) fn forget(laid: &Laid) -> Result<(), BenchError> {
    laid.files.iter().try_for_each(|path| {
        let file = File::open(path).map_err(|e| BenchError::io("reading it", path, e))?;
        longrun_sys::drop_cache(&file, ByteRange::ALL)
            .map_err(|e| BenchError::io("dropping the cache of", path, std::io::Error::from(e)))
    })
}

/// Times `act`, from when nothing of the files is in memory.
pub(crate) fn timed(
    laid: &Laid,
    device: &Device,
    stage: &mut dyn Stage,
    act: &mut dyn FnMut() -> Result<(), BenchError>,
) -> Result<Pass, BenchError> {
    forget(laid)?;
    let (before, start) = (device.sample()?, Instant::now());
    act()?;
    let seconds = start.elapsed().as_secs_f64();
    let device = device.sample()?.since(&before);
    Ok(Pass { seconds, device, modelled_busy_seconds: stage.end()? })
}

/// Reads a file by requests of [`SEQUENTIAL_REQUEST`], and writes what it reads into `copy`, if there is one.
pub(crate) fn read_through(path: &Path, copy: Option<&Path>, stop: &AtomicBool) -> Result<(), BenchError> {
    let failed = |e| BenchError::io("reading it", path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut target = match copy {
        Some(copy) => Some((File::create(copy).map_err(|e| BenchError::io("making it", copy, e))?, copy)),
        None => None,
    };
    let mut buffer = vec![0; SEQUENTIAL_REQUEST.0 as usize];
    loop {
        let got = file.read(&mut buffer).map_err(failed)?;
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        if got == 0 {
            return Ok(());
        }
        if let Some((target, copy)) = &mut target {
            let written = target.write_all(buffer.get(..got).unwrap_or_default());
            written.map_err(|e| BenchError::io("writing it", copy, e))?;
        }
    }
}
