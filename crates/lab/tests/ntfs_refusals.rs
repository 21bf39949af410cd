//! Story: NTFS volumes that must not be changed while Windows is off: dirty, hibernated, not shut down, with shadow copies,
//! damaged. Each is refused with its reason, and not a byte is written. A run that is killed is completed by the next one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use longrun_engine::{Settings, Unobserved};
use longrun_lab::longrun_binary;
use longrun_lab::ntfs::{Access, Fixture, Inventory, Mounted, Spec};
use longrun_lab::oracle::ntfs as oracle;
use longrun_planner::Mode;
use longrun_volume::ntfs::NtfsVolume;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CLUSTER: u64 = 4096;
const RECORD: u64 = 1024;

/// Where a file record lies; the first records of a fresh volume lie together.
fn place_of_record(image: &Path, number: u64) -> u64 {
    let mut field = [0; 8];
    File::open(image).unwrap().read_exact_at(&mut field, 0x30).unwrap();
    u64::from_le_bytes(field) * CLUSTER + number * RECORD
}

fn change(image: &Path, at: u64, change: impl FnOnce(&mut [u8]), length: usize) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).unwrap();
    change(&mut bytes);
    file.write_all_at(&bytes, at).unwrap();
}

/// Changes the record of a system file, in $MFT and in its mirror.
fn change_record(image: &Path, number: u64, with: impl Fn(&mut [u8])) {
    let mut field = [0; 8];
    File::open(image).unwrap().read_exact_at(&mut field, 0x38).unwrap();
    let mirror = u64::from_le_bytes(field) * CLUSTER + number * RECORD;
    change(image, place_of_record(image, number), &with, RECORD as usize);
    change(image, mirror, with, RECORD as usize);
}

/// The value of a resident attribute of this kind, of which a record has only one.
fn value_of(record: &mut [u8], kind: u32) -> &mut [u8] {
    let u32_at = |record: &[u8], at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    let mut at = usize::from(u16::from_le_bytes([record[0x14], record[0x15]]));
    while u32_at(record, at) != kind {
        at += u32_at(record, at + 4) as usize;
    }
    let (length, offset) = (u32_at(record, at + 0x10) as usize, usize::from(record[at + 0x14]));
    &mut record[at + offset..at + offset + length]
}

/// A store of shadow copies, as Windows calls it.
fn with_shadow_copies(image: &Path) {
    let mounted = Mounted::new(image, Access::Write).unwrap();
    let directory = mounted.root().join("System Volume Information");
    fs::create_dir_all(&directory).unwrap();
    let name = "{0a1b2c3d-0000-11ee-8000-806e6f6e6963}{3808876b-c176-4e48-b7ae-04046e6cc752}";
    fs::write(directory.join(name), [1; 9000]).unwrap();
    mounted.unmount().unwrap();
}

/// What `longrun optimize` says of it, with its status.
fn told(image: &Path) -> (Option<i32>, String) {
    told_with(image, &[])
}

fn told_with(image: &Path, options: &[&str]) -> (Option<i32>, String) {
    told_by(&["optimize", "--mode", "full"], image, options)
}

fn told_by(command: &[&str], image: &Path, options: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(longrun_binary().unwrap()).args(command).args(options).arg(image).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn loop_an_ntfs_volume_that_windows_has_not_finished_with_is_refused_with_its_reason() {
    type Change = fn(&Path);
    let cases: [(&str, Change); 8] = [
        ("marked as dirty", |image| change_record(image, 3, |record| value_of(record, 0x70)[10] |= 1)),
        ("has not finished its work", |image| change_record(image, 3, |record| value_of(record, 0x70)[10] |= 0x10)),
        ("NTFS version 2.1", |image| change_record(image, 3, |record| value_of(record, 0x70)[8] = 2)),
        ("BitLocker", |image| change(image, 3, |name| name.copy_from_slice(b"-FVE-FS-"), 8)),
        ("hibernated", |image| {
            let mounted = Mounted::new(image, Access::Write).unwrap();
            let mut content = b"HIBR".to_vec();
            content.resize(20_000, 7);
            fs::write(mounted.root().join("hiberfil.sys"), content).unwrap();
            mounted.unmount().unwrap();
        }),
        ("shadow copies", with_shadow_copies),
        ("was not shut down", |image| {
            // A restart page of a log that a client has open.
            let mut page = vec![0; 4096];
            page[..8].copy_from_slice(&[b'R', b'S', b'T', b'R', 0x1e, 0, 9, 0]);
            page[0x18] = 0x30;
            page[0x30 + 14] = 0;
            for stride in 1..=8 {
                page[stride * 512 - 2..stride * 512].copy_from_slice(&[0, 0]);
            }
            let runs = oracle::runs(image, oracle::Place::Record(2)).unwrap();
            let (first, _) = runs.into_values().flatten().next().unwrap();
            OpenOptions::new().write(true).open(image).unwrap().write_all_at(&page, first * CLUSTER).unwrap();
        }),
        ("$MFTMirr differs", |image| {
            change(image, place_of_record(image, 1), |record| value_of(record, 0x10)[0] ^= 1, RECORD as usize);
        }),
    ];
    let fixture = Fixture::make(Spec::small()).unwrap();
    assert_eq!(told(&fixture.copy().unwrap().image()).0, Some(0), "without a reason it is not refused");
    for (reason, spoil) in cases {
        let copy = fixture.copy().unwrap();
        let image = copy.image();
        spoil(&image);
        let before = fs::read(&image).unwrap();
        let (status, said) = told(&image);
        assert_eq!(status, Some(3), "{reason}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert!(fs::read(&image).unwrap() == before, "{reason}: the image was written to");
        assert_eq!(fs::read_dir(image.parent().unwrap()).unwrap().count(), 1, "{reason}: something was left beside it");
    }
}

#[test]
fn loop_a_volume_with_shadow_copies_is_optimized_when_they_may_become_wrong_and_nothing_else_is_permitted() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let image = fixture.image();
    with_shadow_copies(&image);
    let before = Inventory::of(&image).unwrap();
    let (status, said) = told(&image);
    assert!(status == Some(3) && said.contains("--spoil-shadow-copies"), "{said}");
    let (status, said) = told_with(&image, &["--dry-run"]);
    assert!(status == Some(3) && said.contains("shadow copies"), "{said}");
    let spoil = "--spoil-shadow-copies";
    assert_eq!(told_with(&image, &[spoil, "--dry-run"]).0, Some(0));
    let dirty = fixture.copy().unwrap();
    change_record(&dirty.image(), 3, |record| value_of(record, 0x70)[10] |= 1);
    let (status, said) = told_with(&dirty.image(), &[spoil]);
    assert!(status == Some(3) && said.contains("marked as dirty"), "{said}");
    let reclaimed = fixture.copy().unwrap();
    let content = fs::read(reclaimed.image()).unwrap();
    let (status, said) = told_by(&["reclaim"], &reclaimed.image(), &[]);
    assert!(status == Some(3) && said.contains("--spoil-shadow-copies"), "{said}");
    assert!(fs::read(reclaimed.image()).unwrap() == content, "free space of shadow copies was given back");
    let (status, said) = told_by(&["reclaim"], &dirty.image(), &[spoil]);
    assert!(status == Some(3) && said.contains("marked as dirty"), "{said}");
    let full = ["optimize", "--mode", "full"];
    let reclaimed = reclaimed.image();
    for (command, image) in
        [(&full[..], &image), (&["reclaim"], &reclaimed), (&["reclaim", "--consolidate"], &reclaimed)]
    {
        let (status, said) = told_by(command, image, &[spoil]);
        assert_eq!(status, Some(0), "{command:?}: {said}");
        oracle::check(image).unwrap();
        assert_eq!(before.difference(&Inventory::of(image).unwrap()), None, "{command:?}");
    }
}

#[test]
fn loop_a_mark_that_windows_has_made_since_an_interrupted_run_is_not_taken_for_our_own() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let image = fixture.image();
    let open = || {
        let disk = longrun_image::FileDisk::open(&image, longrun_image::Access::Write).unwrap();
        NtfsVolume::open(&image, Arc::new(disk), &image.with_file_name(".image.longrun-journal"))
    };
    // A run that ends without being closed, once before it has marked the volume, and once after.
    let original = fixture.read().unwrap();
    for marks in [false, true] {
        fs::write(&image, &original).unwrap();
        let mut volume = open().unwrap();
        if marks {
            let settings = Settings { mode: Mode::Full, ..Settings::default() };
            longrun_engine::placed::optimize(&mut volume, &settings, &mut Unobserved).unwrap();
        }
        let kept = fs::read(&image).unwrap();
        let journal = fs::read(image.with_file_name(".image.longrun-journal")).unwrap();
        drop(volume);
        fs::write(&image, &kept).unwrap();
        fs::write(image.with_file_name(".image.longrun-journal"), &journal).unwrap();
        assert_eq!(oracle::is_dirty(&image).unwrap(), marks);
        // Windows writes to the record when it marks the volume.
        change_record(&image, 3, |record| {
            value_of(record, 0x70)[10] |= 1;
            record[8] ^= 1;
        });
        let (status, said) = told(&image);
        assert!(status == Some(3) && said.contains("marked as dirty"), "{marks}: {status:?}: {said}");
        fs::write(&image, &kept).unwrap();
        let (status, said) = told(&image);
        assert_eq!(status, Some(0), "{marks}: {said}");
        assert!(!oracle::is_dirty(&image).unwrap());
    }
}

#[test]
fn loop_a_run_on_an_ntfs_image_that_is_killed_is_completed_by_the_next_one() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let expected = Inventory::of(&fixture.image()).unwrap();
    let (mut unfinished, mut delay) = (0, Duration::from_millis(2));
    for attempt in 0..12 {
        let copy = fixture.copy().unwrap();
        let image = copy.image();
        let mut child = Command::new(longrun_binary().unwrap());
        let child = child.args(["optimize", "--mode", "full"]).arg(&image).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        std::thread::sleep(delay);
        // By its handle; it may have ended by itself.
        let _ = child.kill();
        let ended = child.wait().unwrap();
        // From run to run later, until a run is complete.
        delay = if ended.success() { Duration::from_millis(3) } else { delay * 3 / 2 };
        let journal = image.with_file_name(".image.longrun-journal");
        let had_journal = journal.exists();
        unfinished += u32::from(had_journal);
        let output =
            Command::new(longrun_binary().unwrap()).args(["optimize", "--mode", "full"]).arg(&image).output().unwrap();
        assert!(output.status.success(), "attempt {attempt}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).contains("An earlier run was interrupted");
        assert_eq!(said, had_journal, "attempt {attempt}");
        assert!(!journal.exists() && !oracle::is_dirty(&image).unwrap());
        oracle::check(&image).unwrap();
        assert_eq!(expected.difference(&Inventory::of(&image).unwrap()), None, "attempt {attempt}");
    }
    assert!(unfinished > 0, "no run was interrupted while it had a journal");
}
