//! A btrfs with everything that a scan has to tell apart: subvolumes in subvolumes, snapshots, and files of each kind.

use longrun_lab::tool;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Fills the volume whose top is mounted at `top`; read-only snapshots of what is there are made on the way.
pub fn grow(top: &Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for subvolume in ["home", "home/me", "snapshots"] {
        btrfs(&["subvolume", "create"], &[&top.join(subvolume)]);
    }
    let directories: Vec<PathBuf> = ["etc", "home/work", "home/me/a directory"].map(|name| top.join(name)).to_vec();
    directories.iter().for_each(|directory| fs::create_dir_all(directory).unwrap());
    write_files(&mut random, &directories);
    // Enough that the tree of a subvolume is read in parts.
    (0..1200).for_each(|i| fs::write(top.join(format!("home/work/note {i}")), noise(&mut random, 1500)).unwrap());
    append_in_turn(&mut random, &top.join("home"));
    write_odd_ones(&mut random, &top.join("home"));
    rustix::fs::sync();
    for (from, to) in [("home", "snapshots/1"), ("home/me", "snapshots/me")] {
        btrfs(&["subvolume", "snapshot", "-r"], &[&top.join(from), &top.join(to)]);
    }
    change(&mut random, top);
    btrfs(&["subvolume", "snapshot"], &[&top.join("home"), &top.join("snapshots/2")]);
    // Deleted: it must not be seen, however long it takes to be taken apart.
    btrfs(&["subvolume", "snapshot"], &[&top.join("home"), &top.join("snapshots/gone")]);
    btrfs(&["subvolume", "delete", "-c"], &[&top.join("snapshots/gone")]);
    rustix::fs::sync();
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    tool::run("btrfs", words.iter().map(Path::new).chain(paths.iter().copied())).unwrap();
}

fn noise(random: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    random.fill(&mut content);
    content
}

/// Many small files of which every other goes again: free space in pieces.
fn write_files(random: &mut fastrand::Rng, directories: &[PathBuf]) {
    let mut files = Vec::new();
    for number in 0..900 {
        let path = directories[random.usize(0..directories.len())].join(format!("file {number}"));
        let bytes = 1 << random.u32(4..16);
        fs::write(&path, noise(random, bytes + 3000)).unwrap();
        files.push(path);
    }
    rustix::fs::sync();
    files.iter().step_by(2).for_each(|path| fs::remove_file(path).unwrap());
}

/// Logs that grow side by side, each record on the medium: fragments.
fn append_in_turn(random: &mut fastrand::Rng, directory: &Path) {
    let open = |i: u32| OpenOptions::new().create(true).append(true).open(directory.join(format!("log{i}"))).unwrap();
    let logs: Vec<File> = (0..4).map(open).collect();
    for _ in 0..40 {
        for log in &logs {
            let bytes = random.usize(4000..60_000);
            (&*log).write_all(&noise(random, bytes)).unwrap();
            log.sync_data().unwrap();
        }
    }
}

fn write_odd_ones(random: &mut fastrand::Rng, directory: &Path) {
    let create = |name: &str| File::create(directory.join(name)).unwrap();
    let chattr = |flag: &str, name: &str| {
        tool::run("chattr", [flag.as_ref(), directory.join(name).as_os_str()]).unwrap();
    };
    create("inline").write_all(b"a few bytes").unwrap();
    create("empty");
    let sparse = create("sparse");
    (0..30).for_each(|i| sparse.write_all_at(&noise(random, 5000), i * 150_000).unwrap());
    let prepared = create("prepared");
    fallocate(&prepared, FallocateFlags::empty(), 0, 3 << 20).unwrap();
    prepared.write_all_at(&noise(random, 300_000), 1 << 20).unwrap();
    let beyond = create("beyond the end");
    fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    beyond.write_all_at(&noise(random, 70_000), 0).unwrap();
    create("in place");
    chattr("+C", "in place");
    fs::write(directory.join("in place"), noise(random, 500_000)).unwrap();
    create("immutable");
    fs::write(directory.join("immutable"), noise(random, 50_000)).unwrap();
    create("compressed");
    chattr("+c", "compressed");
    let text: Vec<u8> = (0..90_000u32).flat_map(|i| format!("line {} of a text\n", i * 7).into_bytes()).collect();
    fs::write(directory.join("compressed"), &text).unwrap();
    rustix::fs::sync();
    // Written over in the middle: what was there before stays for its ends.
    let compressed = OpenOptions::new().write(true).open(directory.join("compressed")).unwrap();
    (0..5).for_each(|i| compressed.write_all_at(&text[..9000], 200_000 + i * 170_000).unwrap());
    let plain = OpenOptions::new().write(true).open(directory.join("in place")).unwrap();
    plain.write_all_at(&noise(random, 9000), 100_000).unwrap();
    fs::write(directory.join("whole"), noise(random, 400_000)).unwrap();
    rustix::fs::sync();
    let whole = OpenOptions::new().write(true).open(directory.join("whole")).unwrap();
    whole.write_all_at(&noise(random, 8192), 81_920).unwrap();
    let clone = |from: &str, to: &str| {
        let paths = [from, to].map(|name| directory.join(name));
        tool::run("cp", ["--reflink=always".as_ref(), paths[0].as_os_str(), paths[1].as_os_str()]).unwrap();
    };
    rustix::fs::sync();
    clone("whole", "clone");
    clone("compressed", "compressed clone");
    chattr("+i", "immutable");
}

/// What happens after a snapshot: files change, go and come.
fn change(random: &mut fastrand::Rng, top: &Path) {
    let log = OpenOptions::new().write(true).open(top.join("home/log1")).unwrap();
    (0..6).for_each(|i| log.write_all_at(&noise(random, 20_000), i * 90_000).unwrap());
    fs::remove_file(top.join("home/log2")).unwrap();
    fs::write(top.join("home/new"), noise(random, 100_000)).unwrap();
}
