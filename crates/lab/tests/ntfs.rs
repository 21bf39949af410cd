//! Story: NTFS volumes that are not mounted, as the disks of virtual machines are. Their files, directories and $MFT are put
//! together; what ntfs-3g and its tools see afterwards is what they saw before, but for places. Power can be lost at any moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;

use anyhow::{Context, Result, ensure};
use longrun_engine::{NoProgress, Placed, Settings, Unobserved, Volume};
use longrun_image::{Disk, MemoryDisk};
use longrun_lab::ntfs::{Census, Cuts, Fixture, Inventory, Spec, Stage};
use longrun_lab::oracle::ntfs as oracle;
use longrun_lab::{longrun_binary, tool};
use longrun_layout::{Bytes, Extent};
use longrun_planner::Mode;
use longrun_volume::ntfs::NtfsVolume;
use longrun_volume::thin::Thinned;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Excess fragments of all streams, and pieces of free space, by the laboratory's own reader.
fn figures(image: &Path) -> (usize, usize) {
    let census = Census::of(image).unwrap();
    let excess = census.fragments().map(|(_, _, fragments)| fragments.saturating_sub(1)).sum();
    (excess, census.free.len())
}

#[test]
fn loop_an_ntfs_image_is_optimized_and_only_places_change() {
    let specs =
        [Spec::small(), Spec::small().clusters(512), Spec::small().clusters(65536), Spec::small().sectors(4096)];
    for spec in specs.into_iter().chain([Spec::fragmented_mft()]) {
        let fixture = Fixture::make(spec).unwrap();
        let image = fixture.image();
        let before = Inventory::of(&image).unwrap();
        let (excess, pieces) = figures(&image);
        let finished = common::longrun("full").run(&image, LIMIT).unwrap();
        let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        let (after, left) = figures(&image);
        eprintln!("{spec:?}: excess {excess} -> {after}, pieces {pieces} -> {left}, {}", finished.stdout.len());
        assert_eq!(before.difference(&Inventory::of(&image).unwrap()), None, "{spec:?}");
        oracle::check(&image).unwrap();
        assert!(!oracle::is_dirty(&image).unwrap());
        assert!(excess > 100 && after == 0, "{spec:?}: {excess} -> {after}: {report}");
        assert!(left <= 22, "{spec:?}: {pieces} -> {left}: {report}");
        let names: Vec<_> =
            fs::read_dir(image.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("journal")), "{names:?}");
        oracle::then_usable(&image).unwrap();
    }
}

#[test]
fn loop_an_ntfs_volume_with_13000_files_ends_with_everything_whole_and_mft_in_one_piece() {
    let fixture = Fixture::make(Spec::full()).unwrap();
    fixture.promises_kept().unwrap();
    let image = fixture.image();
    let before = Inventory::of(&image).unwrap();
    let was = figures(&image);
    let finished = common::longrun("full").run(&image, LIMIT).unwrap();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let (excess, pieces) = figures(&image);
    eprintln!("{was:?} -> {:?}, {} s, {} moved", (excess, pieces), report["seconds"], report["bytes_moved"]);
    assert_eq!(before.difference(&Inventory::of(&image).unwrap()), None);
    oracle::check(&image).unwrap();
    assert_eq!(excess, 0, "{report}");
    assert!(pieces <= 22, "{pieces}: {report}");
    let mft = oracle::fragments(&image, oracle::Place::Record(0)).unwrap();
    assert!(mft.values().all(|fragments| *fragments == 1), "{mft:?}");
}

/// A disk that notes, before each of its events, what the journal held.
struct Watched {
    disk: Arc<MemoryDisk>,
    journal: PathBuf,
    /// By the number of the event before which it was found so.
    seen: Mutex<Vec<(usize, Option<Vec<u8>>)>>,
    /// Bytes that were given back.
    discarded: AtomicU64,
}

impl Watched {
    fn note(&self) {
        let found = fs::read(&self.journal).ok();
        let mut seen = self.seen.lock().unwrap();
        if seen.last().is_none_or(|(_, last)| *last != found) {
            seen.push((self.disk.events(), found));
        }
    }

    /// What the journal may hold when power is lost before event `at`: what it held then, or what it held one event earlier.
    fn journals(&self, at: usize) -> Vec<Option<Vec<u8>>> {
        let seen = self.seen.lock().unwrap();
        let upto = |at: usize| seen.iter().rfind(|(number, _)| *number <= at).and_then(|(_, found)| found.clone());
        let mut both = vec![upto(at), upto(at.saturating_sub(1))];
        both.dedup();
        both
    }
}

impl Disk for Watched {
    fn path(&self) -> &Path {
        self.disk.path()
    }
    fn length(&self) -> Bytes {
        self.disk.length()
    }
    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, buffer)
    }
    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.note();
        self.disk.write(at, data)
    }
    fn flush(&self) -> io::Result<()> {
        self.note();
        self.disk.flush()
    }
    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        self.note();
        self.discarded.fetch_add(length.0, Ordering::Relaxed);
        self.disk.discard(at, length)
    }
    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        self.disk.zero(at, length)
    }
}

fn optimize(volume: &mut dyn Placed) -> Result<()> {
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    longrun_engine::placed::optimize(volume, &settings, &mut Unobserved)?;
    Ok(())
}

/// States of one run that power losses leave, judged after the next opening, or as they are found when there is no journal.
fn cut(spec: Spec, with_journal: bool, moments: usize, states: usize) -> Result<usize> {
    cut_on(spec, false, with_journal, moments, states)
}

/// The same; on a thin disk what files leave is discarded.
fn cut_on(spec: Spec, is_thin: bool, with_journal: bool, moments: usize, states: usize) -> Result<usize> {
    let fixture = Fixture::make(spec)?;
    let expected = Inventory::of(&fixture.image())?;
    let directory = tempfile::tempdir()?;
    let journal = directory.path().join("journal");
    let disk = Arc::new(MemoryDisk::new(fixture.read()?));
    let watched = Arc::new(Watched {
        disk: Arc::clone(&disk),
        journal: journal.clone(),
        seen: Mutex::default(),
        discarded: AtomicU64::default(),
    });
    let volume = NtfsVolume::open(Path::new("cut"), Arc::clone(&watched) as Arc<dyn Disk>, &journal)?;
    let mut volume: Box<dyn Placed> = Box::new(volume);
    if is_thin {
        volume = Box::new(Thinned::new(volume, Arc::clone(&watched) as Arc<dyn Disk>));
    }
    optimize(&mut *volume)?;
    drop(volume);
    watched.note();
    ensure!(is_thin == (watched.discarded.load(Ordering::Relaxed) > 0), "the test proves nothing");
    let mut stage = Stage::new()?;
    let seed = fastrand::u64(..);
    let mut number = 0;
    let tally = Cuts::some(seed, moments, states).judge(&disk, |cut, state| {
        let state = Arc::new(state);
        for held in watched.journals(cut.at) {
            number += 1;
            let again = directory.path().join("found");
            match held.filter(|_| with_journal) {
                Some(held) => fs::write(&again, held)?,
                None => _ = fs::remove_file(&again),
            }
            let recovered = Arc::new(MemoryDisk::new(state.content()));
            if with_journal {
                drop(NtfsVolume::open(Path::new("cut"), Arc::clone(&recovered) as Arc<dyn Disk>, &again)?);
                ensure!(!again.exists(), "the journal is left");
            }
            let image = stage.show(&recovered)?;
            oracle::check(image)?;
            ensure!(!with_journal || !oracle::is_dirty(image)?, "the volume is left dirty");
            // Reading all of it takes longest.
            if number % 8 == 0 {
                let image = stage.give_away(&recovered)?;
                let found = Inventory::of(image)?;
                let difference = expected.difference(&found);
                ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
            }
        }
        Ok(())
    });
    let tally = tally.with_context(|| format!("seed {seed}"))?;
    eprintln!("{tally:?} of {} events", disk.events());
    Ok(number)
}

#[test]
fn loop_power_lost_at_any_moment_leaves_a_clean_volume_with_every_byte() {
    let states = cut(Spec::small(), true, 40, 3).unwrap();
    assert!(states >= 100, "{states}");
    // Where the list of $MFT's own extents has to be rewritten while $MFT moves.
    cut(Spec::fragmented_mft(), true, 10, 3).unwrap();
}

#[test]
fn loop_power_lost_on_thin_storage_where_what_files_leave_is_discarded_costs_no_byte() {
    let states = cut_on(Spec::small(), true, true, 40, 3).unwrap();
    assert!(states >= 100, "{states}");
}

#[test]
fn loop_optimizing_a_thin_image_leaves_it_as_large_as_it_was_and_a_full_one_keeps_its_space() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let before = Inventory::of(&fixture.image()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let used =
        fixture.spec().bytes - Census::of(&fixture.image()).unwrap().free.iter().map(|(_, n)| n * 4096).sum::<u64>();
    common::build();
    for format in ["raw", "qcow2"] {
        for mode in ["efficient", "full"] {
            let image = directory.path().join(format!("{mode}.{format}"));
            let source = fixture.image();
            let copy = ["convert".as_ref(), "-O".as_ref(), format.as_ref(), source.as_os_str(), image.as_os_str()];
            tool::run("qemu-img", copy).unwrap();
            let run = |arguments: &[&str]| {
                let output = Command::new(longrun_binary().unwrap()).args(arguments).arg(&image).output().unwrap();
                assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            run(&["reclaim"]);
            let was = allocated(&image);
            let told = run(&["optimize", "--pace", "fast", "--mode", mode]);
            let is = allocated(&image);
            eprintln!("{format} {mode}: {was} -> {is}, used {used}");
            assert!(told.contains("moved in"), "the test proves nothing: {told}");
            // On a disk as small as this, blocks of 64 KiB of which only parts were left count for something.
            let parts = if format == "qcow2" { 2 << 20 } else { 0 };
            assert!(is <= was + used * 3 / 100 + parts, "{format} {mode}: the image grew from {was} to {is}");
            let plain = directory.path().join("plain");
            let back = ["convert".as_ref(), "-O".as_ref(), "raw".as_ref(), image.as_os_str(), plain.as_os_str()];
            tool::run("qemu-img", back).unwrap();
            assert_eq!(before.difference(&Inventory::of(&plain).unwrap()), None, "{format} {mode}");
            oracle::check(&plain).unwrap();
        }
    }
    // Whoever has allocated all of an image wants it so.
    let plain = directory.path().join("full");
    fs::write(&plain, fixture.read().unwrap()).unwrap();
    fs::File::open(&plain).unwrap().sync_all().unwrap();
    assert!(allocated(&plain) >= fixture.spec().bytes, "the test proves nothing");
    let finished = common::longrun("full").run(&plain, LIMIT).unwrap();
    assert!(finished.status.success() && allocated(&plain) >= fixture.spec().bytes, "{}", finished.stderr);
}

#[test]
fn loop_mft_can_be_the_first_that_moves_and_power_be_lost_then() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let disk = Arc::new(MemoryDisk::new(fixture.read().unwrap()));
    let mut volume = NtfsVolume::open(Path::new("cut"), Arc::clone(&disk) as Arc<dyn Disk>, &journal).unwrap();
    let layout = volume.scan(&NoProgress).unwrap();
    let mft = layout.files().find(|file| file.record.inode.0 == 0).unwrap();
    let first = mft.runs().next().unwrap();
    let piece = layout.free().iter().find(|piece| piece.length >= first.length).unwrap();
    let target = Extent { start: piece.start, length: first.length };
    assert_eq!(volume.capture(&[target].into_iter().collect()).unwrap().total(), first.length);
    let done = volume.exchange(mft.id(), first.logical, target.start, first.length).unwrap();
    assert_eq!(done.blocks, first.length);
    // The power goes: the run is not closed.
    let (left, held) = (disk.content(), fs::read(&journal).unwrap());
    drop(volume);
    fs::write(&journal, held).unwrap();
    let found = Arc::new(MemoryDisk::new(left));
    drop(NtfsVolume::open(Path::new("cut"), Arc::clone(&found) as Arc<dyn Disk>, &journal).unwrap());
    let image = directory.path().join("image");
    fs::write(&image, found.content()).unwrap();
    oracle::check(&image).unwrap();
    assert!(!oracle::is_dirty(&image).unwrap());
    let expected = Inventory::of(&fixture.image()).unwrap();
    assert_eq!(expected.difference(&Inventory::of(&image).unwrap()), None);
}

#[test]
fn loop_without_the_journal_power_losses_damage_the_volume() {
    let error = format!("{:#}", cut(Spec::small(), false, 400, 4).unwrap_err());
    eprintln!("{error}");
}

/// What a file takes on its storage.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn loop_images_of_every_format_are_listed_with_what_is_on_them_and_other_files_are_not() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    common::build();
    let formats = ["raw", "qcow2", "vmdk", "vhdx", "vdi", "vpc"];
    for (format, options) in formats.into_iter().map(|format| (format, "")).chain([("vpc", "subformat=fixed")]) {
        let image = directory.path().join(format!("{format}{options}"));
        let arguments = ["convert", "-O", format, "-o", options].map(std::ffi::OsStr::new);
        let arguments = if options.is_empty() { &arguments[..3] } else { &arguments[..] };
        let paths = [fixture.image().into_os_string(), image.into_os_string()];
        tool::run("qemu-img", arguments.iter().map(|a| (*a).to_owned()).chain(paths)).unwrap();
    }
    fs::write(directory.path().join("text"), "no image").unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    let output =
        Command::new(longrun_binary().unwrap()).args(["images", "--json"]).arg(directory.path()).output().unwrap();
    let images: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (excess, pieces) = figures(&fixture.image());
    assert_eq!(images.as_array().unwrap().len(), 7, "{images:#}");
    for image in images.as_array().unwrap() {
        let figures = &image["volumes"][0]["figures"];
        assert_eq!(image["volumes"][0]["filesystem"], "ntfs", "{image:#}");
        assert_eq!(
            (figures["excess_fragments"].as_u64(), figures["free_pieces"].as_u64()),
            (Some(excess as u64), Some(pieces as u64))
        );
    }
}

#[test]
fn loop_the_free_space_of_a_virtual_disk_goes_back_and_no_file_changes() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let before = Inventory::of(&fixture.image()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let convert = |from: &Path, format: &str, to: &Path| {
        tool::run("qemu-img", ["convert".as_ref(), "-O".as_ref(), format.as_ref(), from.as_os_str(), to.as_os_str()])
            .unwrap();
    };
    common::build();
    for format in ["raw", "qcow2", "vmdk", "vhdx"] {
        // What was deleted is still there: the whole image has data.
        let full = directory.path().join("full");
        let census = Census::of(&fixture.image()).unwrap();
        let mut content = fixture.read().unwrap();
        for (first, count) in &census.free {
            content[(first * 4096) as usize..((first + count) * 4096) as usize].fill(0x77);
        }
        fs::write(&full, &content).unwrap();
        let used = content.len() as u64 - census.free.iter().map(|(_, count)| count * 4096).sum::<u64>();
        let image = directory.path().join(format!("disk.{format}"));
        convert(&full, format, &image);
        let was = allocated(&image);
        let output =
            Command::new(longrun_binary().unwrap()).args(["reclaim", "--consolidate"]).arg(&image).output().unwrap();
        assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        let plain = directory.path().join("plain");
        convert(&image, "raw", &plain);
        assert_eq!(before.difference(&Inventory::of(&plain).unwrap()), None, "{format}");
        oracle::check(&plain).unwrap();
        // Of the formats that keep what they have, a conversion leaves the zeros out.
        let small = directory.path().join("small");
        convert(&image, format, &small);
        let end = if matches!(format, "raw" | "qcow2") { allocated(&image) } else { allocated(&small) };
        eprintln!("{format}: {was} -> {end}, used {used}");
        // Besides what is used, a format has tables of its own.
        assert!(
            end <= used * 102 / 100 + (1 << 20) + if format == "vhdx" { 8 << 20 } else { 0 },
            "{format}: {end} of {used}"
        );
        assert!(allocated(&image) <= was + (1 << 20), "{format}: the image grew from {was} to {}", allocated(&image));
    }
}
