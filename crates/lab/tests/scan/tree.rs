//! A small seeded tree with everything that a scan has to tell apart.

use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags, fallocate, mkdirat, mknodat, setxattr};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// Fills the volume mounted at `root` until about `bytes` are used, the same way for the same seed.
pub fn grow(root: &Path, seed: u64, bytes: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let directories: Vec<PathBuf> = (0..12).map(|i| root.join(format!("d{}/e{i}", i % 3))).collect();
    for directory in &directories {
        fs::create_dir_all(directory).unwrap();
    }
    let mut files = write_files(&mut random, &directories, "a", bytes);
    for index in (0..files.len()).rev().filter(|i| i % 2 == 0) {
        fs::remove_file(files.swap_remove(index)).unwrap();
    }
    write_files(&mut random, &directories, "b", bytes / 3);
    write_logs(&mut random, root);
    write_odd_ones(root);
    write_directories(root);
}

fn write_files(random: &mut fastrand::Rng, directories: &[PathBuf], prefix: &str, bytes: u64) -> Vec<PathBuf> {
    let (mut files, mut written) = (Vec::new(), 0);
    while written < bytes {
        let size = 1usize << random.u32(4..18);
        let size = size + random.usize(0..size);
        let path = directories[random.usize(0..directories.len())].join(format!("{prefix}{}", files.len()));
        match fs::write(&path, vec![7; size]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => panic!("{}: {error}", path.display()),
        }
        written += size as u64 + 2048;
        files.push(path);
    }
    files
}

/// Appends to a few files in turn, each time on the medium: fragments.
fn write_logs(random: &mut fastrand::Rng, root: &Path) {
    let logs: Vec<File> = (0..5)
        .map(|i| OpenOptions::new().create(true).append(true).open(root.join(format!("log{i}"))).unwrap())
        .collect();
    for _ in 0..60 {
        for log in &logs {
            (&*log).write_all(&vec![9; random.usize(1..40_000)]).unwrap();
            log.sync_data().unwrap();
        }
    }
}

fn write_odd_ones(root: &Path) {
    let create = |name: &str| File::create(root.join(name)).unwrap();
    let sparse = create("sparse");
    for index in 0..40 {
        sparse.write_all_at(&[1; 3000], index * 150_000).unwrap();
    }
    sparse.set_len(1 << 32).unwrap();
    // Only a file with extents can have preallocated blocks, and only behind its end do they stay.
    let preallocated = create("preallocated");
    preallocated.write_all_at(&[1; 10_000], 0).unwrap();
    match fallocate(&preallocated, FallocateFlags::KEEP_SIZE, 0, 3 << 20) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => panic!("fallocate: {error}"),
    }
    match fallocate(create("unwritten"), FallocateFlags::empty(), 5000, 2 << 20) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => panic!("fallocate: {error}"),
    }
    create("empty");
    fs::write(root.join("tiny"), b"fits into an inode").unwrap();
    fs::write(root.join("less tiny"), [b'x'; 110]).unwrap();
    fs::hard_link(root.join("sparse"), root.join("d0/hard link")).unwrap();
    symlink("short", root.join("short link")).unwrap();
    symlink("long/".repeat(50), root.join("long link")).unwrap();
    mknodat(rustix::fs::CWD, root.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    for (index, length) in [(0u8, 20), (1, 900), (2, 900)] {
        let path = root.join(format!("attributes {index}"));
        fs::write(&path, b"content").unwrap();
        setxattr(&path, "user.some", &vec![index; length], XattrFlags::empty()).unwrap();
    }
    let sealed = create("append only");
    (&sealed).write_all(b"sealed").unwrap();
    let flags = rustix::fs::ioctl_getflags(&sealed).unwrap();
    rustix::fs::ioctl_setflags(&sealed, flags | rustix::fs::IFlags::APPEND).unwrap();
}

/// A directory with a tree index, grown between others' data; one kept in its inode where that is possible; empty ones.
fn write_directories(root: &Path) {
    let large = root.join("large directory");
    fs::create_dir(&large).unwrap();
    for index in 0..900 {
        File::create(large.join(format!("a name of some length, so that blocks fill soon {index}"))).unwrap();
        if index % 30 == 0 {
            fs::write(root.join(format!("between {index}")), vec![1; 5000]).unwrap();
            rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
        }
    }
    let directory = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for index in 0..5 {
        mkdirat(&directory, format!("few {index}"), Mode::RWXU).unwrap();
        for name in 0..index * 2 {
            File::create(root.join(format!("few {index}/name {name}"))).unwrap();
        }
    }
}
