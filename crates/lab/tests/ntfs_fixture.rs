//! The laboratory's NTFS volumes and judges: fixtures hold what they promise, the inventory notices what a user would, and
//! the checkers notice damage. A judge that never complains proves nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use longrun_image::{Disk, MemoryDisk};
use longrun_lab::ntfs::{Access, AttributeKind, AttributeName, Census, Cuts, Fixture, Inventory, Mounted, Spec, Stage};
use longrun_lab::ntfs::{Recipe, places};
use longrun_lab::oracle::ntfs::{Place, check, fragments, is_dirty, runs, then_usable};
use longrun_layout::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SECTOR: u64 = 512;
const FRAGMENTED: &str = "fragmented/0";

/// Makes a fixture, and has everything about it judged.
fn check_fixture(spec: Spec) -> Fixture {
    let fixture = Fixture::make(spec).unwrap();
    fixture.promises_kept().unwrap();
    check(&fixture.image()).unwrap();
    assert!(!is_dirty(&fixture.image()).unwrap());
    fixture
}

fn read(image: &Path, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(image).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// Changes one byte of an image.
fn flip(image: &Path, at: u64, bits: u8) {
    let [old] = read(image, at, 1)[..] else { panic!("there is no byte {at}") };
    File::options().write(true).open(image).unwrap().write_all_at(&[old ^ bits], at).unwrap();
}

/// Where byte `at` of an attribute is in the image.
fn place_of(fixture: &Fixture, place: Place<'_>, name: &AttributeName, at: u64) -> u64 {
    let cluster = fixture.contents().cluster_bytes;
    let mut left = at / cluster;
    for (first, count) in &runs(&fixture.image(), place).unwrap()[name] {
        if left < *count {
            return (first + left) * cluster + at % cluster;
        }
        left -= count;
    }
    panic!("{place:?} ends before byte {at}");
}

/// Where the MFT record of a file is in the image.
fn record_of(fixture: &Fixture, path: &str) -> u64 {
    let census = Census::of(&fixture.image()).unwrap();
    let number = census.paths()[path];
    place_of(fixture, Place::Record(0), &AttributeName::content(), number * census.record_bytes as u64)
}

/// Where the first attribute of this type begins in a record that is in the image at `record`.
fn attribute_in(image: &Path, record: u64, kind: AttributeKind) -> u64 {
    let bytes = read(image, record, 1024);
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = usize::from(u16::from_le_bytes([bytes[0x14], bytes[0x15]]));
    while number(at) != kind.0 {
        assert_ne!(number(at), u32::MAX, "the record has no attribute {kind:?}");
        at += number(at + 4) as usize;
    }
    record + at as u64
}

#[test]
fn loop_a_small_fixture_holds_what_it_promises_with_clusters_and_sectors_of_all_sizes() {
    let small = Spec::small();
    let specs = [512, 1024, 4096, 65_536].map(|bytes| small.clusters(bytes));
    for spec in specs.into_iter().chain([small.sectors(4096), small.seed(2)]) {
        let fixture = check_fixture(spec);
        then_usable(&fixture.copy().unwrap().image()).unwrap();
    }
}

#[test]
fn campaign_a_full_fixture_has_thousands_of_files_and_a_fragmented_mft() {
    let fixture = check_fixture(Spec::full());
    then_usable(&fixture.copy().unwrap().image()).unwrap();
}

#[test]
fn loop_a_fixture_with_a_fragmented_mft_has_an_attribute_list_for_it() {
    let fixture = check_fixture(Spec::fragmented_mft());
    let of_tool = fragments(&fixture.image(), Place::Record(0)).unwrap();
    assert_eq!(of_tool[&AttributeName::content()], fixture.contents().mft_fragments);
    then_usable(&fixture.image()).unwrap();
}

#[test]
fn campaign_a_nearly_full_fixture_is_nearly_full_and_can_be_used() {
    let fixture = check_fixture(Spec::nearly_full());
    assert_eq!(fixture.spec().recipe, Recipe::NearlyFull);
    then_usable(&fixture.image()).unwrap();
}

#[test]
fn loop_the_census_counts_the_same_fragments_as_ntfsinfo() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let census = Census::of(&fixture.image()).unwrap();
    let mut compared = 0;
    for number in census.records.keys() {
        let of_census: Vec<_> = census.fragments().filter(|(record, ..)| record == number).collect();
        // ntfsinfo has no words for the largest of these: it ends with an error behind what is asked here.
        if of_census.is_empty() {
            continue;
        }
        let of_tool = fragments(&fixture.image(), Place::Record(*number)).unwrap();
        for (_, name, count) in of_census {
            assert_eq!(of_tool.get(name), Some(&count), "record {number}, attribute {name}");
            compared += 1;
        }
    }
    assert!(compared > 100, "only {compared} attributes were compared");
    let by_path = fragments(&fixture.image(), Place::Path(FRAGMENTED)).unwrap();
    assert!(by_path[&AttributeName::content()] > 200);
}

/// Also with another mount, at another place, at another time.
#[test]
fn loop_the_inventory_of_an_unchanged_volume_is_the_same_again() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let before = Inventory::of(&fixture.image()).unwrap();
    assert!(before.items().count() > 300);
    assert_eq!(before.difference(&Inventory::of(&fixture.copy().unwrap().image()).unwrap()), None);
    // Every file that the census found, and every stream: ntfs-3g hides nothing.
    let census = Census::of(&fixture.image()).unwrap();
    let mut streams = 0;
    for (path, number) in census.paths().iter().filter(|(path, _)| !path.starts_with('$')) {
        let item = before.item(path).unwrap_or_else(|| panic!("the inventory lacks {path}"));
        assert_eq!(item.property("record"), Some(&*number.to_string()), "{path}");
        let named = |name: &&AttributeName| name.kind == AttributeKind::DATA && !name.name.is_empty();
        let expected = census.records[number].attributes.keys().filter(named).count();
        assert_eq!(item.streams().count(), expected, "{path}");
        streams += expected;
    }
    assert!(streams > 100, "only {streams} streams");
}

#[test]
fn loop_the_inventory_notices_a_changed_byte_wherever_it_is() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let before = Inventory::of(&fixture.image()).unwrap();
    let (content, large) = (AttributeName::content(), AttributeName::new(AttributeKind::DATA, places::LARGE_STREAM));
    let in_record = |path: &str, kind, offset| {
        let record = record_of(&fixture, path);
        attribute_in(&fixture.image(), record, AttributeKind(kind)) + offset
    };
    let changes = [
        ("fragmented/0: sha256 was", place_of(&fixture, Place::Path(FRAGMENTED), &content, 400_003)),
        ("streams/0: stream large was", place_of(&fixture, Place::Path("streams/0"), &large, 300_001)),
        // Bytes of $STANDARD_INFORMATION, whose value begins 24 bytes behind it: created, changed, attributes.
        ("tiny/tiny-3: times was", in_record("tiny/tiny-3", 0x10, 24)),
        ("tiny/tiny-3: times was", in_record("tiny/tiny-3", 0x10, 24 + 8)),
        ("tiny/tiny-3: attrib was", in_record("tiny/tiny-3", 0x10, 24 + 32)),
        ("tiny/tiny-3: sha256 was", in_record("tiny/tiny-3", 0x80, 24)),
        ("tiny/tiny-3: acl was", in_record("tiny/tiny-3", 0x50, 24 + 60)),
    ];
    for (expected, at) in changes {
        let copy = fixture.copy().unwrap();
        flip(&copy.image(), at, 2);
        let difference = before.difference(&Inventory::of(&copy.image()).unwrap());
        let text = difference.unwrap_or_else(|| panic!("byte {at} was not missed: {expected}"));
        assert!(text.contains(expected), "{text}");
    }
    // Reading changes the time of access, of which nothing is said.
    let copy = fixture.copy().unwrap();
    flip(&copy.image(), in_record("tiny/tiny-3", 0x10, 24 + 24), 2);
    assert_eq!(before.difference(&Inventory::of(&copy.image()).unwrap()), None);
}

#[test]
fn loop_the_checkers_notice_damage_of_every_kind() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let census = Census::of(&fixture.image()).unwrap();
    let content = AttributeName::content();
    let (used, free) = (runs(&fixture.image(), Place::Path(FRAGMENTED)).unwrap()[&content][7].0, census.free[3].0);
    let bit = |cluster: u64| (place_of(&fixture, Place::Record(6), &content, cluster / 8), 1 << (cluster % 8));
    let record = record_of(&fixture, "sparse/1");
    let data = attribute_in(&fixture.image(), record, AttributeKind::DATA);
    let pairs = data + u64::from(read(&fixture.image(), data + 32, 1)[0]);
    // The first run is a hole or not: header, length, and the first byte of the place if there is one.
    let header = read(&fixture.image(), pairs, 1)[0];
    let first_place = if header >> 4 > 0 { pairs } else { pairs + 1 + u64::from(header & 15) };
    let mirror = place_of(&fixture, Place::Record(1), &content, 0);
    let number = census.paths()["sparse/1"];
    let in_bitmap = place_of(&fixture, Place::Record(0), &AttributeName::new(AttributeKind::BITMAP, ""), number / 8);
    let list = AttributeName::new(AttributeKind::ATTRIBUTE_LIST, "");
    let list = place_of(&fixture, Place::Path(FRAGMENTED), &list, 0);
    let damages = [
        ("a used cluster that the bitmap calls free", bit(used)),
        ("a free cluster that the bitmap calls used", bit(free)),
        ("a torn record", (record + SECTOR - 2, 0xff)),
        ("a run in another place", (first_place + 1 + u64::from(read(&fixture.image(), first_place, 1)[0] & 15), 4)),
        ("a highest cluster that is wrong", (data + 24, 1)),
        ("a mirror of $MFT that is old", (mirror + 48 + 2, 1)),
        ("an allocated size that is wrong", (data + 40 + 2, 1)),
        ("a compressed size that is wrong", (data + 64 + 2, 1)),
        ("a record in use that the bitmap of $MFT calls free", (in_bitmap, 1 << (number % 8))),
        // The number of the first entry's attribute in its record.
        ("an attribute list that names something else", (list + 24, 4)),
        ("an alternate boot sector that is old", (fixture.spec().bytes - SECTOR + 3, 1)),
    ];
    for (what, (at, bits)) in damages {
        let copy = fixture.copy().unwrap();
        flip(&copy.image(), at, bits);
        let Err(error) = check(&copy.image()) else { panic!("nobody noticed {what}") };
        assert!(format!("{error:#}").contains("the volume is not clean"), "{what}: {error:#}");
        flip(&copy.image(), at, bits);
        check(&copy.image()).unwrap();
    }
}

#[test]
fn loop_a_dirty_volume_is_known_as_such() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    assert!(!is_dirty(&fixture.image()).unwrap());
    // $Volume is record 3, and the mirror has it, too. The value of $VOLUME_INFORMATION begins 24 bytes behind the
    // attribute, the flags 10 bytes later.
    let places = [0, 1].map(|file| {
        let record = place_of(&fixture, Place::Record(file), &AttributeName::content(), 3 * 1024);
        attribute_in(&fixture.image(), record, AttributeKind(0x70)) + 24 + 10
    });
    places.into_iter().for_each(|place| flip(&fixture.image(), place, 1));
    assert!(is_dirty(&fixture.image()).unwrap());
}

#[test]
fn loop_states_of_a_disk_are_shown_to_the_checkers_one_after_the_other() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let disk = MemoryDisk::new(fixture.read().unwrap());
    // Allocates a free range in three steps, which is bad until it is taken back: a third of the states is clean.
    let census = Census::of(&fixture.image()).unwrap();
    let at = Bytes(place_of(&fixture, Place::Record(6), &AttributeName::content(), census.free[0].0 / 8));
    let sector = Bytes(at.0 / SECTOR * SECTOR);
    let mut bitmap = vec![0; 512];
    disk.read(sector, &mut bitmap).unwrap();
    let mut changed = bitmap.clone();
    changed[(at.0 - sector.0) as usize] ^= 1 << (census.free[0].0 % 8);
    for content in [&changed, &bitmap] {
        disk.write(sector, content).unwrap();
        disk.write(Bytes(census.free[0].0 * 4096), &[7; 3 * 512]).unwrap();
        disk.flush().unwrap();
    }
    let mut stage = Stage::new().unwrap();
    let (mut clean, mut bad) = (0, 0);
    let tally = Cuts::every(1, 16).judge(&disk, |_, state| {
        let image = stage.show(&state)?;
        assert!(fs::read(image)? == state.content(), "the file is not the state");
        let mut found = vec![0; 512];
        state.read(sector, &mut found)?;
        let expected = found == bitmap;
        assert_eq!(check(image).is_ok(), expected);
        if expected {
            clean += 1
        } else {
            bad += 1
        }
        Ok(())
    });
    assert_eq!(tally.unwrap().states, clean + bad);
    assert!(clean > 5 && bad > 5, "{clean} clean, {bad} bad");
    // What a tool has written is not taken for the state.
    then_usable(stage.give_away(&disk).unwrap()).unwrap();
    assert!(fs::read(stage.show(&disk).unwrap()).unwrap() == disk.content());
}

#[test]
fn loop_nothing_of_ntfs_stays_behind() {
    let (fixture, stage) = (Fixture::make(Spec::small()).unwrap(), Stage::new().unwrap());
    let mounted = Mounted::new(&fixture.image(), Access::Read).unwrap();
    let (image, root) = (fixture.image(), mounted.root());
    assert!(root.join(FRAGMENTED).exists());
    drop((mounted, stage, fixture));
    assert!(!root.exists() && !image.exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(root.to_str().unwrap()) && !mounts.contains(image.to_str().unwrap()));

    // A file that is no volume.
    let directory = tempfile::tempdir().unwrap();
    let nothing = directory.path().join("nothing");
    fs::write(&nothing, vec![0; 1 << 20]).unwrap();
    let error = Mounted::new(&nothing, Access::Read).unwrap_err();
    assert!(format!("{error:#}").contains("NTFS signature is missing"), "{error:#}");
    assert!(check(&nothing).is_err());
}

/// What a process of its own does in the tests that end it.
const PART: &str = "LONGRUN_NTFS_TEST_PART";

/// This program once more, with nothing but the test `name`, which plays another part then.
fn start(base: &Path, name: &str, part: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("LONGRUN_LAB_DIR", base)
        .env(PART, part)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Mount points below a directory.
fn mounts_in(base: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(base)).collect()
}

/// Whether a process still has this in its arguments.
fn served(base: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(&*base.to_string_lossy()))
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn loop_signals_and_kills_leave_no_mount_no_server_and_no_file() {
    const NAME: &str = "loop_signals_and_kills_leave_no_mount_no_server_and_no_file";
    match std::env::var(PART).as_deref() {
        Ok("hold") => {
            // A mount of an image that is on a stage: two mounts, of which one lies on the other.
            let mut stage = Stage::new().unwrap();
            let disk = MemoryDisk::new(Fixture::make(Spec::small()).unwrap().read().unwrap());
            let mounted = Mounted::new(stage.give_away(&disk).unwrap(), Access::Write).unwrap();
            fs::write(mounted.root().join("ready"), "ready").unwrap();
            std::thread::sleep(Duration::from_secs(600));
            return;
        }
        // The first directory that is asked for sweeps.
        Ok(_) => return drop(Stage::new().unwrap()),
        Err(_) => {}
    }
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let base = tempfile::tempdir().unwrap();
        let mut child = start(base.path(), NAME, "hold");
        wait_until("it is mounted", || mounts_in(base.path()).iter().any(|point| point.join("ready").exists()));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        if signal == Signal::KILL {
            assert!(served(base.path()), "the test proves nothing: ntfs-3g has ended by itself");
            assert!(start(base.path(), NAME, "sweep").wait().unwrap().success());
        } else {
            assert_eq!(status.code(), Some(128 + signal.as_raw()));
        }
        wait_until("ntfs-3g has ended", || !served(base.path()));
        assert_eq!(mounts_in(base.path()), Vec::<PathBuf>::new(), "{signal:?}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0, "{signal:?}");
    }
}
