//! Files of every kind that NTFS knows, each in a place of its own.
//!
//! Owns what is in them. Never decides how fragmented they become: that is what the free space at that moment does.

use super::contents::Contents;
use super::fixture::{Recipe, Spec, places};
use anyhow::{Context, Result};
use fastrand::Rng;
use rustix::fs::XattrFlags;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// Random bytes, from which contents are cut.
const POOL: usize = 8 << 20;
/// Ordinary files in a directory.
const IN_A_DIRECTORY: usize = 200;
/// What is compressed as one, in clusters.
const UNIT: usize = 16;
pub(super) const SYSTEM_ATTRIBUTES: &str = "system.ntfs_attrib_be";
/// The attributes of a compressed directory, as in `setfattr -v 0x00000810`.
const COMPRESSED_DIRECTORY: u32 = 0x0810;

/// Makes files on a volume.
pub(super) struct Maker {
    pub(super) root: PathBuf,
    pub(super) spec: Spec,
    pub(super) rng: Rng,
    pool: Vec<u8>,
}

impl Maker {
    pub(super) fn new(root: &Path, spec: &Spec) -> Result<Self> {
        let (mut rng, mut pool) = (Rng::with_seed(spec.seed), vec![0; POOL]);
        rng.fill(&mut pool);
        for directory in [
            places::FRAGMENTED,
            places::BIG_DIRECTORY,
            places::COMPRESSED,
            places::SPARSE,
            places::STREAMS,
            places::LINKS,
            places::REPARSE,
            places::NAMES,
            places::TINY,
            places::DEEP,
            places::MARKED,
            places::ORDINARY,
        ] {
            fs::create_dir(root.join(directory)).with_context(|| format!("cannot make {directory}"))?;
        }
        Ok(Self { root: root.to_owned(), spec: *spec, rng, pool })
    }

    /// Bytes that cannot be compressed, other ones each time.
    pub(super) fn content(&mut self, length: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(length);
        while content.len() < length {
            let start = self.rng.usize(..POOL / 2);
            let piece = (length - content.len()).min(POOL / 2);
            content.extend_from_slice(&self.pool[start..start + piece]);
        }
        content
    }

    fn write(&mut self, path: &Path, length: usize) -> Result<()> {
        let content = self.content(length);
        fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    fn cluster(&self) -> usize {
        self.spec.cluster_bytes as usize
    }

    fn place(&self, place: &str, name: &str) -> PathBuf {
        self.root.join(place).join(name)
    }

    /// Ordinary files of some clusters, or of less than one; returns them.
    pub(super) fn ordinary(&mut self, name: &str, count: usize) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for number in 0..count {
            let directory = self.place(places::ORDINARY, &format!("{name}-{}", number / IN_A_DIRECTORY));
            if number % IN_A_DIRECTORY == 0 {
                fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
            }
            let path = directory.join(format!("{number}.dat"));
            let longest = if self.rng.u8(..5) < 2 { 600 } else { 4 * self.cluster().min(16 << 10) };
            let length = self.rng.usize(1..longest);
            self.write(&path, length)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Empty files; returns them.
    pub(super) fn empty(&mut self, name: &str, count: usize) -> Result<Vec<PathBuf>> {
        let directory = self.place(places::ORDINARY, name);
        fs::create_dir(&directory)?;
        let paths: Vec<_> = (0..count).map(|number| directory.join(number.to_string())).collect();
        for path in &paths {
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        Ok(paths)
    }

    /// Files that each take a little more than what is compressed as one; returns some of them, which leave larger holes
    /// when they go.
    pub(super) fn slots(&mut self) -> Result<Vec<PathBuf>> {
        let count = if self.spec.compresses() { 96 } else { 16 };
        let mut paths = self.empty("slots", count)?;
        let length = (UNIT + UNIT / 4) * self.cluster();
        paths.iter().try_for_each(|path| self.write(path, length))?;
        self.rng.shuffle(&mut paths);
        paths.truncate(count * 2 / 5);
        Ok(paths)
    }

    /// The kinds of files for which ntfs-3g finds space wherever it is, and a directory with so many entries.
    pub(super) fn in_small_holes(&mut self, directory_entries: usize) -> Result<()> {
        self.big_directory(directory_entries).context("cannot fill the large directory")?;
        self.sparse().context("cannot write sparse files")?;
        self.streams().context("cannot write named streams")?;
        self.links().context("cannot make hard links")?;
        self.names().context("cannot make files with special names")?;
        self.tiny().context("cannot write tiny files")?;
        self.deep().context("cannot make deep directories")
    }

    /// The kinds of files that ntfs-3g puts into larger holes only.
    pub(super) fn in_larger_holes(&mut self) -> Result<()> {
        self.compressed().context("cannot write compressed files")?;
        self.reparse_points().context("cannot make reparse points")?;
        self.marked().context("cannot mark files")
    }

    /// Every fourth name is a new file, the others are further names of it: the index grows faster than $MFT. Some names go
    /// again, so that the index has free blocks.
    fn big_directory(&mut self, entries: usize) -> Result<()> {
        let mut file = PathBuf::new();
        for number in 0..entries {
            let filler = "n".repeat(self.rng.usize(100..240));
            let path = self.place(places::BIG_DIRECTORY, &format!("{number:05}-{filler}"));
            if number % 4 == 0 {
                fs::write(&path, number.to_string())?;
                file = path;
            } else {
                fs::hard_link(&file, &path)?;
                if number % 4 == 3 && number % 7 == 0 {
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Compressed files, where NTFS has such.
    fn compressed(&mut self) -> Result<()> {
        if !self.spec.compresses() {
            return Ok(());
        }
        let directory = self.root.join(places::COMPRESSED);
        set(&directory, SYSTEM_ATTRIBUTES, &COMPRESSED_DIRECTORY.to_be_bytes())?;
        let unit = UNIT * self.cluster();
        // Units that compress well and not at all in turn, and units of zeros, which take no space.
        let mixed = (0..12).flat_map(|number| match number % 3 {
            0 => b"the same again, ".repeat(unit / 16),
            1 => self.content(unit),
            _ => vec![0; unit],
        });
        let mixed = mixed.collect();
        let text = (0..).flat_map(|n: u32| format!("line {n}\n").into_bytes()).take(20 * unit + 777).collect();
        let files: [(&str, Vec<u8>); 4] = [
            ("mixed", mixed),
            ("text", text),
            ("shorter than a unit", b"short ".repeat(self.cluster() / 3)),
            ("random", self.content(5 * unit / 2)),
        ];
        for (name, content) in files {
            fs::write(directory.join(name), content).with_context(|| format!("cannot compress {name}"))?;
        }
        // Two that grow in turn.
        let mut pair = [File::create(directory.join("left"))?, File::create(directory.join("right"))?];
        for _ in 0..6 {
            for file in &mut pair {
                let content: Vec<u8> = self.content(unit / 8).iter().flat_map(|byte| [*byte; 8]).collect();
                file.write_all(&content).context("cannot compress what grows")?;
            }
        }
        Ok(())
    }

    fn sparse(&mut self) -> Result<()> {
        for number in 0..5_u64 {
            let file = File::create(self.place(places::SPARSE, &number.to_string()))?;
            let clusters = 200 + 100 * number;
            file.set_len(clusters * self.spec.cluster_bytes - number)?;
            // The last one is a hole as a whole.
            for _ in 0..3 * (4 - number) {
                let at = self.rng.u64(..clusters - 4) * self.spec.cluster_bytes + number;
                let content = self.content(self.cluster() * 2 + 5);
                file.write_all_at(&content, at)?;
            }
        }
        Ok(())
    }

    /// From one small stream up to as many as need an attribute list; a directory has one, too.
    fn streams(&mut self) -> Result<()> {
        for number in 0..16 {
            let name = format!("many-{number}");
            let holder = self.place(places::STREAMS, &name);
            self.write(&holder, 50)?;
            for stream in 0..number {
                let path = self.place(places::STREAMS, &format!("{name}:{}-{stream}", places::SMALL_STREAM));
                let length = 70 * self.record_kibibytes();
                self.write(&path, length)?;
            }
        }
        let length = 3 * self.cluster() + 1;
        self.write(&self.place(places::STREAMS, "other:Ünïcode stream"), length)?;
        self.write(&self.root.join(format!("{}:{}", places::STREAMS, places::SMALL_STREAM)), 40)
    }

    /// How large an MFT record is: a sector, or 1 KiB.
    fn record_kibibytes(&self) -> usize {
        (self.spec.sector_bytes as usize / 1024).max(1)
    }

    fn links(&mut self) -> Result<()> {
        for number in 0..8 {
            let file = self.place(places::LINKS, &format!("file-{number}"));
            self.write(&file, 100 + 900 * number)?;
            for name in 0..=2 * number {
                let elsewhere = [places::LINKS, places::TINY][name % 2];
                let name = format!("link-{number}-{name}-{}", "l".repeat(20 * number));
                fs::hard_link(&file, self.place(elsewhere, &name))?;
            }
        }
        Ok(())
    }

    fn reparse_points(&mut self) -> Result<()> {
        const DATA: &str = "system.ntfs_reparse_data";
        const SYMLINK: u32 = 0xa000_000c;
        const JUNCTION: u32 = 0xa000_0003;
        const WSL_SYMLINK: u32 = 0xa000_001d;
        const STORE_APPLICATION: u32 = 0x8000_001b;
        const RELATIVE: u32 = 1;
        // The first are links as ntfs-3g makes them: special files.
        symlink("../tiny/empty-0", self.place(places::REPARSE, "link"))?;
        symlink("/nowhere/at/all", self.place(places::REPARSE, "dangling"))?;
        let wsl = [&2_u32.to_le_bytes()[..], b"../tiny/empty-2"].concat();
        let mut points = vec![
            ("symlink".to_owned(), SYMLINK, target("..\\tiny\\empty-1", &RELATIVE.to_le_bytes())),
            ("wsl".to_owned(), WSL_SYMLINK, wsl),
        ];
        for (number, length) in [24, 300, 3000, 15_000].into_iter().enumerate() {
            points.push((format!("other-{number}"), STORE_APPLICATION, self.content(length)));
        }
        for (name, tag, data) in points {
            let path = self.place(places::REPARSE, &name);
            File::create(&path)?;
            set(&path, DATA, &reparse(tag, &data)).with_context(|| name.clone())?;
        }
        let junction = self.place(places::REPARSE, "junction");
        fs::create_dir(&junction)?;
        set(&junction, DATA, &reparse(JUNCTION, &target("\\??\\C:\\Windows", &[])))
    }

    fn names(&mut self) -> Result<()> {
        let long = |letter: &str, count| letter.repeat(count);
        let mut all: Vec<String> =
            ["Grüße.txt", "文件夹", "файл", "🦀 and 𝄞", "a b  c", "UPPER lower", "semi;colon", "'quotes'"]
                .map(str::to_owned)
                .to_vec();
        all.extend((0..6).map(|number| format!("{number}{}", long("x", 254))));
        all.extend((0..3).map(|number| format!("{number}{}", long("é", 220))));
        all.push(long("漢", 255));
        for (number, name) in all.iter().enumerate() {
            self.write(&self.place(places::NAMES, name), number * 300 + 1)?;
        }
        Ok(())
    }

    fn tiny(&mut self) -> Result<()> {
        for number in 0..12 {
            File::create(self.place(places::TINY, &format!("empty-{number}")))?;
            let length = self.rng.usize(1..500);
            self.write(&self.place(places::TINY, &format!("tiny-{number}")), length)?;
        }
        Ok(())
    }

    fn deep(&mut self) -> Result<()> {
        let mut directory = self.root.join(places::DEEP);
        for level in 0..30 {
            directory.push(format!("level {level}"));
            fs::create_dir(&directory)?;
            if level % 5 == 4 {
                self.write(&directory.join("file"), 2000)?;
            }
        }
        Ok(())
    }

    fn marked(&mut self) -> Result<()> {
        for (number, attributes) in [0x01, 0x02, 0x04, 0x07, 0x21, 0x1000_u32].into_iter().enumerate() {
            let path = self.place(places::MARKED, &format!("attributes-{number}"));
            self.write(&path, 5000)?;
            set(&path, SYSTEM_ATTRIBUTES, &attributes.to_be_bytes())?;
        }
        for number in 0..4_u64 {
            let path = self.place(places::MARKED, &format!("old-{number}.txt"));
            self.write(&path, 100)?;
            // 100 ns since 1601: created in 1998, then changed, then read.
            let times =
                [0_u64, 3600, 7200].map(|seconds| (12_550_000_000 + 1000 * number + seconds) * 10_000_000 + number);
            set(&path, "system.ntfs_times", &times.map(u64::to_le_bytes).concat())?;
            set(&path, "system.ntfs_dos_name", format!("OLD-{number}~1.TXT").as_bytes())?;
            set(&path, "system.ntfs_object_id", &self.content(16))?;
        }
        for (number, length) in [10, 400, 5000].into_iter().enumerate() {
            let path = self.place(places::MARKED, &format!("extended-{number}"));
            self.write(&path, 10)?;
            let value = self.content(length);
            set(&path, "system.ntfs_ea", &extended(b"LONGRUN", &value))?;
        }
        // Readable by everybody instead of fully controlled: another security descriptor than all the rest.
        let path = self.place(places::MARKED, "guarded");
        self.write(&path, 700)?;
        let mut descriptor = [0_u8; 512];
        let length = rustix::fs::getxattr(&path, "system.ntfs_acl", &mut descriptor)?;
        let descriptor = &descriptor[..length];
        let (full, read) = (0x001f_01ff_u32.to_le_bytes(), 0x0012_00a9_u32.to_le_bytes());
        let at = descriptor.windows(4).position(|window| window == full).context("nobody has full control")?;
        set(&path, "system.ntfs_acl", &[&descriptor[..at], &read, &descriptor[at + 4..]].concat())
    }
}

pub(super) fn set(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .with_context(|| format!("cannot set {name} of {}", path.display()))
}

fn names(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// The data of a symbolic link or junction: the same target for the system and for people. A symbolic link has flags.
fn target(path: &str, flags: &[u8]) -> Vec<u8> {
    let name = names(path);
    let (length, behind) = (name.len() as u16, name.len() as u16 + 2);
    let places = [0, length, behind, length].map(u16::to_le_bytes).concat();
    [&places[..], flags, &name, &[0, 0], &name, &[0, 0]].concat()
}

pub(super) fn reparse(tag: u32, data: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), &[0, 0], data].concat()
}

/// One extended attribute: where the next one begins, flags, lengths, name, value, filled up to a multiple of four.
fn extended(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = (8 + name.len() + 1 + value.len()).next_multiple_of(4);
    let header = (length as u32).to_le_bytes();
    let lengths = [&[0, name.len() as u8][..], &(value.len() as u16).to_le_bytes()].concat();
    let mut entry = [&header[..], &lengths, name, &[0], value].concat();
    entry.resize(length, 0);
    entry
}

/// What a fixture has too little of.
pub(super) fn missing(contents: &Contents, spec: &Spec) -> Vec<&'static str> {
    // Holes are larger on a volume whose files are: what is small needs not be fragmented there.
    let (files, mft, index) = match spec.recipe {
        Recipe::Small => (200, 2, 3),
        Recipe::FragmentedMft => (3_000, 201, 5),
        Recipe::Full => (13_001, 20, 40),
        Recipe::NearlyFull => (200, 1, 1),
    };
    let compressed = usize::from(spec.compresses());
    let mft_records = usize::from(spec.recipe == Recipe::FragmentedMft);
    // In a larger record the list is the first to leave.
    let small_records = usize::from(contents.record_bytes == 1024);
    let least = [
        ("files", contents.files, files),
        ("fragments of $MFT", contents.mft_fragments, mft),
        ("extension records of $MFT", contents.mft_extension_records, mft_records),
        ("fragments of an index", contents.most_index_fragments, index),
        ("attributes with more than 200 fragments", contents.attributes_with_many_fragments, 3),
        ("resident attribute lists", contents.resident_attribute_lists, small_records),
        ("attribute lists that are not resident", contents.nonresident_attribute_lists, 3),
        ("compressed files", contents.compressed, 4 * compressed),
        ("fragmented compressed files", contents.fragmented_compressed, compressed),
        ("sparse files", contents.sparse, 5),
        ("fragmented sparse files", contents.fragmented_sparse, 3),
        ("resident streams", contents.resident_streams, 20),
        ("streams that are not resident", contents.nonresident_streams, 2),
        ("fragmented streams", contents.fragmented_streams, 1),
        ("hard links", contents.hard_linked, 8),
        ("reparse points", contents.reparse_points, 7),
        ("DOS names", contents.dos_names, 4),
        ("extended attributes", contents.extended_attributes, 3),
        ("resident files", contents.resident_files, 10),
        ("empty files", contents.empty_files, 10),
        ("long names", contents.long_names, 10),
        ("names that are not ASCII", contents.non_ascii_names, 5),
        ("deep directories", contents.depth, 30),
        ("free pieces", contents.free_pieces, 20),
    ];
    let too_few = least.into_iter().filter(|(_, have, least)| have < least).map(|(name, ..)| name);
    let too_free = spec.recipe == Recipe::NearlyFull && contents.free_clusters * 1000 > contents.clusters * 105;
    too_few.chain(too_free.then_some("use: too much is free")).collect()
}
