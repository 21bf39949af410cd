//! Scans an ext4 device or image, and prints the figures, the time and the peak memory:
//!
//!     cargo run --release -p longrun-volume --example ext4_scan -- DEVICE [MOUNT POINT] [no-directories]
#![allow(clippy::print_stdout)]

use longrun_layout::InodeNumber;
use longrun_volume::NoProgress;
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).collect::<Vec<_>>();
    let directories = !arguments.iter().any(|a| a == "no-directories");
    arguments.retain(|a| a != "no-directories");
    let device = arguments.first().ok_or("which device or image?")?;
    let mount = arguments.get(1).map(File::open).transpose()?;
    let access = if mount.is_some() { Access::Live } else { Access::Still };
    let free_space = mount.as_ref().map_or(FreeSpace::Bitmaps, |m| FreeSpace::Kernel(m.as_fd()));
    let start = Instant::now();
    let mut reader = Ext4Reader::open(Path::new(device), access)?;
    let scan = reader.scan(ScanOptions { free_space, directories }, &NoProgress)?;
    let scanned = start.elapsed();
    let figures = scan.layout.fragmentation();
    println!("{figures:#?}");
    println!("beyond end {:?}, deleted {:?}, refusals {:?}", scan.beyond_end, scan.deleted, scan.refusals);
    println!(
        "{} areas, {} runs, unreadable directory blocks {}",
        scan.areas.all().len(),
        scan.layout.run_count(),
        scan.unreadable_directory_blocks
    );
    let worst = scan.layout.most_fragmented(5);
    let inodes: Vec<InodeNumber> = worst.iter().filter_map(|w| Some(scan.layout.file(w.file)?.record.inode)).collect();
    let named = Instant::now();
    let paths = reader.paths_of(&scan, &inodes)?;
    for (inode, worst) in inodes.iter().zip(&worst) {
        let path = paths.get(inode).map(|p| String::from_utf8_lossy(p).into_owned());
        println!("{:>6} fragments  inode {inode}  {path:?}", worst.fragments);
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    println!("scan {scanned:?}, paths {:?}, {peak}", named.elapsed());
    Ok(())
}
