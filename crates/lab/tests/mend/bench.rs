//! A volume with files in pieces, and somebody who writes to them.

use longrun_engine::{Observer, Unobserved};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, write_in_pieces};
use longrun_layout::{BlockSize, Bytes};
use longrun_sys::{ByteRange, FileHandle, SharedMapping};
use longrun_volume::mend::{Limits, MendError, Mended, NotMended, Place};
use longrun_volume::mend_file;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What mending on ext4 wants of mkfs: blocks as large as a page.
pub fn blocks(kind: FileSystemKind) -> &'static [&'static str] {
    if kind == FileSystemKind::Ext4 { &["-b", "4096"] } else { &[] }
}

/// Bytes that no two places of a file have in common.
pub fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut content);
    content
}

pub struct Bench {
    pub volume: LoopVolume,
}

impl Bench {
    pub fn new(kind: FileSystemKind) -> Self {
        Self::of(&VolumeSpec::of(kind, 320).mkfs(blocks(kind)))
    }

    pub fn of(spec: &VolumeSpec) -> Self {
        Self { volume: LoopVolume::create(spec).unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.volume.mount_point().join(name)
    }

    pub fn range(&self, start: u64, length: u64) -> ByteRange {
        ByteRange { start: Bytes(start), length: Bytes(length) }
    }

    /// A file of random bytes in pieces of `kibibytes`.
    pub fn fragmented(&self, name: &str, bytes: usize, kibibytes: u64) {
        let content = content(bytes, bytes as u64);
        write_in_pieces(self.volume.kind(), &self.path(name), &content, Bytes(kibibytes << 10), 1).unwrap();
    }

    /// Overwrites an existing empty file in a shuffled order, each piece durable before the next.
    pub fn write_shuffled(&self, name: &str, content: &[u8], piece: usize) {
        let file = OpenOptions::new().write(true).open(self.path(name)).unwrap();
        let wedge = File::create(self.path("wedge")).unwrap();
        let mut order: Vec<usize> = (0..content.len().div_ceil(piece)).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        for (turn, at) in order.into_iter().enumerate() {
            let part = &content[at * piece..(at * piece + piece).min(content.len())];
            file.write_all_at(part, (at * piece) as u64).unwrap();
            file.sync_data().unwrap();
            wedge.write_all_at(&[1; 4096], turn as u64 * 4096).unwrap();
            wedge.sync_data().unwrap();
        }
        fs::remove_file(self.path("wedge")).unwrap();
    }

    /// A file whose pieces have these lengths, roughly: allocated from the last to the first, with others between.
    pub fn few_pieces(&self, name: &str, lengths: &[u64]) {
        let file = File::create(self.path(name)).unwrap();
        let total: u64 = lengths.iter().sum();
        file.set_len(total).unwrap();
        let mut end = total;
        for length in lengths.iter().rev() {
            let wedge = File::create(self.path(&format!("{name}-{end}.wedge"))).unwrap();
            end -= length;
            longrun_sys::allocate(&file, self.range(end, *length)).unwrap();
            file.write_all_at(&content(usize::try_from(*length).unwrap(), end), end).unwrap();
            file.sync_all().unwrap();
            wedge.write_all_at(&[1; 65536], 0).unwrap();
            wedge.sync_all().unwrap();
        }
    }

    /// Writes a file until only so many bytes are left; answers how many it got.
    pub fn fill_up_to(&self, left: u64) -> u64 {
        let filler = File::create(self.path("filler")).unwrap();
        let (block, mut at) = (vec![0x5A; 1 << 20], 0);
        loop {
            let capacity = longrun_sys::capacity(&filler).unwrap();
            let available = capacity.block_size.to_bytes(capacity.available).0;
            if available <= left || filler.write_all_at(&block, at).is_err() || filler.sync_data().is_err() {
                return filler.metadata().unwrap().len();
            }
            at += block.len() as u64;
        }
    }

    pub fn handle(&self, name: &str) -> FileHandle {
        FileHandle::of_file(File::open(self.path(name)).unwrap()).unwrap()
    }

    pub fn mend_handle(
        &self,
        handle: &FileHandle,
        limits: Limits,
        observer: &mut dyn Observer,
    ) -> Result<Mended, MendError> {
        let point = self.volume.mount_point();
        let root = File::open(&point).unwrap();
        mend_file(Place { root: &root, point: &point }, handle, limits, observer)
    }

    pub fn try_mend(&self, name: &str, limits: Limits, observer: &mut dyn Observer) -> Result<Mended, MendError> {
        self.mend_handle(&self.handle(name), limits, observer)
    }

    /// A child that another test has just forked has the lock of the mending before open until it executes its program.
    pub fn mend(&self, name: &str) -> Result<Mended, MendError> {
        for _ in 0..500 {
            match self.try_mend(name, Limits::NONE, &mut Unobserved) {
                Err(MendError::Left { reason: NotMended::OtherOptimizer, .. }) => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                other => return other,
            }
        }
        self.try_mend(name, Limits::NONE, &mut Unobserved)
    }

    pub fn left_within(&self, name: &str, limits: Limits, observer: &mut dyn Observer) -> NotMended {
        match self.try_mend(name, limits, observer) {
            Err(MendError::Left { reason, .. }) => reason,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn left(&self, name: &str) -> NotMended {
        self.left_within(name, Limits::NONE, &mut Unobserved)
    }

    /// Mends a file again and again while one writer overwrites it by pwrite and another through a mapping, each its own
    /// half of every block and each knowing what it wrote last; `mendings` times, and until they have written a thousand times.
    /// Whether any of these succeeds is a matter of luck: what is copied is compared with the file as it is by then. When nobody
    /// writes any more, the file is made whole.
    pub fn torture(&self, seed: u64, mendings: u32) {
        const BLOCKS: usize = 512;
        const BLOCK: usize = 4096;
        let name = "prey";
        let path = self.path(name);
        let block_size = BlockSize::new(4096).unwrap();
        assert_eq!(block_size.bytes() as usize, BLOCK);
        self.fragmented(name, BLOCKS * BLOCK, 16);
        let initial = fs::read(&path).unwrap();
        let stop = AtomicBool::new(false);
        let (rounds, moved) = (AtomicU64::new(0), AtomicU64::new(0));
        let expected = std::thread::scope(|scope| {
            let by_call = scope.spawn(|| {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                let (mut rng, mut last) = (fastrand::Rng::with_seed(seed), vec![None; BLOCKS]);
                while !stop.load(Ordering::Relaxed) {
                    let (block, value) = (rng.usize(..BLOCKS), rng.u8(..));
                    file.write_all_at(&[value; BLOCK / 2], (block * BLOCK) as u64).unwrap();
                    last[block] = Some(value);
                    if rng.u32(..50) == 0 {
                        file.sync_data().unwrap();
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                    if rng.u32(..200) == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(3));
                    }
                }
                last
            });
            let by_mapping = scope.spawn(|| {
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let mut mapping = SharedMapping::new(&file, BLOCKS * BLOCK).unwrap();
                let (mut rng, mut last) = (fastrand::Rng::with_seed(!seed), vec![None; BLOCKS]);
                while !stop.load(Ordering::Relaxed) {
                    let (block, value) = (rng.usize(..BLOCKS), rng.u8(..));
                    mapping.write(block * BLOCK + BLOCK / 2, &[value; BLOCK / 2]).unwrap();
                    last[block] = Some(value);
                    rounds.fetch_add(1, Ordering::Relaxed);
                    if rng.u32(..200) == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(3));
                    }
                }
                last
            });
            let mut turn = 0;
            while turn < mendings || rounds.load(Ordering::Relaxed) < 1000 {
                match self.mend(name) {
                    Ok(mended) => drop(moved.fetch_add(mended.moved.0, Ordering::Relaxed)),
                    Err(MendError::Left { written, .. }) => drop(moved.fetch_add(written.0, Ordering::Relaxed)),
                    Err(other) => panic!("{other}"),
                }
                turn += 1;
                // Fragmented anew under the writers' hands, where the writers do not see to that themselves.
                if self.volume.kind() == FileSystemKind::Ext4 {
                    let _ = longrun_ageing::fragment_file(&path, 100);
                }
            }
            stop.store(true, Ordering::Relaxed);
            let (by_call, by_mapping) = (by_call.join().unwrap(), by_mapping.join().unwrap());
            let mut expected = initial.clone();
            for block in 0..BLOCKS {
                for (half, last) in [(0, &by_call), (1, &by_mapping)] {
                    if let Some(value) = last[block] {
                        let at = block * BLOCK + half * BLOCK / 2;
                        expected[at..at + BLOCK / 2].fill(value);
                    }
                }
            }
            expected
        });
        assert!(fs::read(&path).unwrap() == expected, "seed {seed}: wrong bytes in memory");
        let (rounds, moved) = (rounds.into_inner(), moved.into_inner());
        eprintln!("{:?}: {rounds} writes beside {mendings} mendings, {moved} bytes written", self.volume.kind());
        let last = self.mend(name).unwrap();
        assert_eq!(last.after, 0, "{last:?}");
        assert!(last.moved.0 > 0 || moved > 0, "it was never in pieces");
        assert!(fs::read(&path).unwrap() == expected, "seed {seed}: wrong bytes in memory");
        self.volume.drop_caches().unwrap();
        assert!(fs::read(&path).unwrap() == expected, "seed {seed}: wrong bytes on the device");
        fs::remove_file(&path).unwrap();
    }
}
