//! How long a cold scan of a million files takes, beside `e4defrag -c`; needs root, 5 GB and some minutes:
//!
//!     cargo run --release -p longrun-lab --example scan_million [-- FILES]
#![allow(clippy::print_stdout)]

use anyhow::{Context, Result};
use longrun_lab::{LoopVolume, VolumeSpec, drop_caches, tool};
use longrun_volume::NoProgress;
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const FILES_PER_DIRECTORY: u64 = 1000;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let files = std::env::args().nth(1).map_or(Ok(1_000_000), |a| a.parse()).context("how many files?")?;
    let inodes = (files + files / FILES_PER_DIRECTORY + 10_000).to_string();
    let volume = LoopVolume::create(&VolumeSpec::ext4(2048 + files / 120).mkfs(&["-b", "4096", "-N", &inodes]))?;
    for directory in 0..files.div_ceil(FILES_PER_DIRECTORY) {
        let path = volume.mount_point().join(format!("{}/{}", directory % 37, directory));
        fs::create_dir_all(&path)?;
        for file in 0..FILES_PER_DIRECTORY.min(files - directory * FILES_PER_DIRECTORY) {
            fs::write(path.join(format!("a file of usual name {file}")), b"content")?;
        }
    }
    volume.remount()?;
    let root = File::open(volume.mount_point())?;
    for directories in [false, true] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            drop_caches()?;
            let start = Instant::now();
            let mut reader = Ext4Reader::open(volume.device(), Access::Live)?;
            let options = ScanOptions { free_space: FreeSpace::Kernel(root.as_fd()), directories };
            let figures = reader.scan(options, &NoProgress)?.layout.fragmentation();
            times.push(start.elapsed());
            anyhow::ensure!(figures.files == files, "{} files were found", figures.files);
        }
        println!("{files} files, directories {directories}: {}, {}", spread(&mut times), peak_memory()?);
    }
    let mut times = Vec::new();
    for _ in 0..2 {
        drop_caches()?;
        let start = Instant::now();
        tool::run("e4defrag", ["-c".as_ref(), volume.mount_point().as_os_str()])?;
        times.push(start.elapsed());
    }
    println!("e4defrag -c: {}", spread(&mut times));
    Ok(())
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    format!("cold {:?} (median of {}), {:?} at best", times[times.len() / 2], times.len(), times[0])
}

fn peak_memory() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("the kernel does not tell")?;
    Ok(format!("peak memory {}", line.trim()))
}
