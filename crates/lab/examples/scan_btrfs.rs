//! How long a cold scan of many files on btrfs takes, beside the walk that asks each of them; needs root and space:
//!
//!     cargo run --release -p longrun-lab --example scan_btrfs [-- FILES]
#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, ensure};
use longrun_lab::{LoopVolume, VolumeSpec, drop_caches};
use longrun_volume::NoProgress;
use longrun_volume::btrfs::scan::scan;
use longrun_volume::walk::walk;
use std::fs::{self, File};
use std::time::{Duration, Instant};

const FILES_PER_DIRECTORY: u64 = 1000;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let files = std::env::args().nth(1).map_or(Ok(200_000), |a| a.parse()).context("how many files?")?;
    let volume = LoopVolume::create(&VolumeSpec::btrfs(4096 + files / 100))?;
    for directory in 0..files.div_ceil(FILES_PER_DIRECTORY) {
        let path = volume.mount_point().join(format!("{}/{}", directory % 37, directory));
        fs::create_dir_all(&path)?;
        for file in 0..FILES_PER_DIRECTORY.min(files - directory * FILES_PER_DIRECTORY) {
            // Every other one is small enough to lie in the tree.
            let bytes = if file % 2 == 0 { 300 } else { 3000 };
            fs::write(path.join(format!("a file of usual name {file}")), vec![file as u8; bytes])?;
        }
    }
    volume.remount()?;
    let (mut scans, mut walks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        drop_caches()?;
        let start = Instant::now();
        let (found, point) = (File::open(volume.mount_point())?, volume.mount_point());
        let picture = scan(&found, &point, &NoProgress)?;
        let figures = picture.layout.fragmentation();
        scans.push(start.elapsed());
        let held = peak_memory()?;
        drop(picture);
        drop_caches()?;
        let start = Instant::now();
        let walked = walk(&point, 10, &NoProgress)?;
        walks.push(start.elapsed());
        ensure!((figures.files, walked.files) == (files, files), "{} and {} files", figures.files, walked.files);
        ensure!(figures.excess_fragments == walked.excess_fragments, "{figures:?}, {walked:?}");
        println!("scan {:?}, walk {:?}; {held}", scans.last(), walks.last());
    }
    let median = |times: &mut [Duration]| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (scan, walk) = (median(&mut scans), median(&mut walks));
    println!(
        "{files} files, cold, medians of {ROUNDS} in turn: scan {scan:?}, walk {walk:?}, ratio {:.1}",
        walk.as_secs_f64() / scan.as_secs_f64()
    );
    Ok(())
}

fn peak_memory() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("no VmHWM")?;
    Ok(line.to_owned())
}
