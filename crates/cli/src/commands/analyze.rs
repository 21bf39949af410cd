//! `analyze`: the figures of a volume, a directory or a file.

use super::disk::Disk;
use crate::args::AnalyzeArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use crate::report::analysis::{Analysis, Findings, Method};
use crate::report::pauses::pauses;
use crate::report::{print, print_json};
use crate::survey::{Survey, is_readable_volume};
use longrun_engine::ScanProgress;
use longrun_engine::VolumeInfo;
use longrun_governor::{Disks, Governor, Loads, Pace};
use longrun_image::Access;
use longrun_sys::DeviceNumber;
use longrun_sys::read_mounts;
use longrun_volume::Target;
use longrun_volume::target::Subject;
use longrun_volume::walk::walk;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

/// Analyzes and prints.
pub fn run(args: &AnalyzeArgs) -> Result<(), Failure> {
    if let Some(disk) = Disk::find(&args.target) {
        return disk.on_each(Access::Read, args.json, |target, watch| {
            watch.govern(Governor::new(target.device_number, args.reading.pace.into()));
            watch.phase("reading the volume", Unit::Steps);
            let progress = ScanProgress::new(watch, 0);
            let findings = Survey::read(target, &progress)?.findings(args.top, &progress)?;
            watch.finish();
            let told = told(&findings, watch);
            if !args.json {
                print(&told.text())?;
            }
            Ok((told, Ok(())))
        });
    }
    let mut watch = Watch::start()?;
    let findings = examine(args, &mut watch);
    watch.finish();
    let told = told(&findings?, &watch);
    if args.json { print_json(&told) } else { print(&told.text()) }
}

/// Analyzes for the process that follows `watch`.
pub(super) fn supervised(args: &AnalyzeArgs, watch: &mut Watch) -> Result<Told, Failure> {
    let findings = examine(args, watch)?;
    Ok(told(&findings, watch))
}

fn told(findings: &Findings, watch: &Watch) -> Told {
    Told { analysis: Analysis::new(findings), governor: watch.loads().filter(|loads| loads.pace != Pace::Fast) }
}

impl Told {
    pub(super) fn text(&self) -> String {
        self.analysis.text() + &self.governor.as_ref().map(pauses).unwrap_or_default()
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
pub(super) struct Told {
    #[serde(flatten)]
    pub(super) analysis: Analysis,
    /// How reading gave way to other I/O, if the pace asked for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    governor: Option<Loads>,
}

/// Reads a whole volume from its device where that is possible and permitted; walks everything else file by file.
fn examine(args: &AnalyzeArgs, watch: &mut Watch) -> Result<Findings, Failure> {
    let (path, top) = (args.target.as_path(), args.top);
    let resolved = Target::resolve(path);
    let device = resolved.as_ref().ok().and_then(|target| target.device_number);
    watch.govern(Governor::new(device, args.reading.pace.into()));
    if let Ok(target) = &resolved
        && is_readable_volume(target)
    {
        watch.phase("reading the volume", Unit::Steps);
        let progress = ScanProgress::new(watch, 0);
        match Survey::read(target, &progress) {
            Err(failure) if failure.needs_root && target.mount.is_some() => {}
            survey => return survey?.findings(top, &progress),
        }
    }
    match resolved {
        Err(error) if !path.is_file() && !path.is_dir() => Err(error.into()),
        Err(_) => by_walking(path, described(path), top, watch),
        Ok(target) => {
            // A device is walked at its mount point.
            let mounted = target.mount.as_ref().map_or(path, |mount| &mount.point);
            let start = if target.subject == Subject::Volume { mounted } else { path };
            let filesystem = target.mount.as_ref().map_or_else(String::new, |mount| mount.filesystem.clone());
            let info = VolumeInfo { target: path.to_owned(), device: target.device.clone(), filesystem };
            by_walking(start, info, top, watch)
        }
    }
}

/// The description of a file system without a block device of its own (tmpfs, network).
fn described(path: &Path) -> VolumeInfo {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let holders = read_mounts().unwrap_or_default().into_iter().filter(|mount| real.starts_with(&mount.point));
    let (device, filesystem) = holders
        .max_by_key(|mount| mount.point.as_os_str().len())
        .map_or_else(|| ("unknown".into(), "unknown".to_owned()), |mount| (mount.source, mount.filesystem));
    VolumeInfo { target: path.to_owned(), device, filesystem }
}

fn by_walking(start: &Path, info: VolumeInfo, top: usize, watch: &mut Watch) -> Result<Findings, Failure> {
    let device = fs::metadata(&info.device).ok().filter(|meta| meta.file_type().is_block_device());
    watch.phase("reading the volume", Unit::Steps);
    let started = Instant::now();
    let walk = walk(start, top, &ScanProgress::new(watch, 0))?;
    Ok(Findings {
        info,
        disks: device.and_then(|meta| Disks::below(DeviceNumber::from_stat(meta.rdev()))),
        devices: Vec::new(),
        method: Method::Walk { occupied: walk.occupied_bytes },
        figures: walk.figures(),
        most_fragmented: walk.most_fragmented.into_iter().map(|f| (f.path, f.fragments, f.bytes)).collect(),
        compactable: None,
        unreadable: walk.unreadable,
        time: started.elapsed(),
    })
}
