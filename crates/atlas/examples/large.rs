//! Measures the map of a large volume: `cargo run -p longrun-atlas --example large -- 25000000 16`, for so many extents on so
//! many TiB. Tells the time and the memory of the layout, of the map, and of reading it.
#![allow(clippy::unwrap_used, reason = "a measurement fails loudly")]

use longrun_atlas::{Atlas, Subject, write};
use longrun_layout::{BlockSize, Blocks, Extent, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, PhysicalBlock, Run};
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let (extents, tebibytes) = (arguments.next().unwrap_or(1_000_000), arguments.next().unwrap_or(1));
    let path = std::env::temp_dir().join(format!("longrun-atlas-{}.map", std::process::id()));
    let (started, total) = (Instant::now(), tebibytes << 28);
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(total));
    // Files of 25 extents, as far apart as they can be; half of the volume is free.
    let (stride, files) = (total / extents, extents / 25);
    let mut runs = Vec::new();
    for file in 0..files {
        let place = |piece: u64| 1 + (piece * files + file) * stride;
        runs.extend((0..25).map(|piece| Run::new(piece * (stride / 2), place(piece), stride / 2)));
        let id = FileId { inode: InodeNumber(file + 11), generation: (file as u32).wrapping_mul(2_654_435_761) };
        builder.push_file(id, NO_DIRECTORY, false, None, &mut runs);
        runs.clear();
    }
    tell("files collected", started);
    (0..files * 25).for_each(|n| builder.push_free(Extent::new(1 + n * stride + stride / 2, stride - stride / 2)));
    tell("free pieces collected", started);
    let layout = builder.build().unwrap();
    tell("layout built", started);
    let areas = Box::new(std::iter::empty());
    let bytes = write(&path, Subject { layout: &layout, areas, uuid: [0; 16], number: 1, at: 0 }).unwrap();
    tell("map written", started);
    eprintln!(
        "{bytes} bytes, {:.1} for each of {} extents of files",
        bytes as f64 / extents as f64,
        layout.run_count()
    );
    drop(layout);
    let reading = Instant::now();
    let atlas = Atlas::open(std::fs::File::open(&path).unwrap()).unwrap();
    tell("map opened", reading);
    let reading = Instant::now();
    for n in 0..1000 {
        atlas.place_of(PhysicalBlock(n * (total / 1000))).unwrap();
    }
    tell("a thousand owners found", reading);
    let reading = Instant::now();
    let cells = atlas.cells(2, 0, 65_536).unwrap();
    tell(&format!("{} bytes of cells read", cells.len()), reading);
    std::fs::remove_file(&path).unwrap();
}

fn tell(what: &str, since: Instant) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    eprintln!(
        "{what}: {:.2} s, {} MiB resident, {} at most",
        since.elapsed().as_secs_f64(),
        field("VmRSS"),
        field("VmHWM")
    );
}
