//! Story: a volume or a disk comes from somebody who means harm, or from a program that writes nonsense into one field. It is refused, or it
//! is worked on; either way Longrun ends soon, takes little memory, and every file has the content that other readers found in it before.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/crowded.rs"]
mod crowded;

use anyhow::{Context, Result, ensure};
use crowded::{content, crowded};
use fastrand::Rng;
use longrun_engine::{Placed, Settings, Unobserved, VolumeError};
use longrun_image::{Disk, FailStop, MemoryDisk};
use longrun_lab::ntfs::{AttributeKind, Census, Fixture, Spec};
use longrun_lab::structure::{self, Structures};
use longrun_lab::{longrun_binary, oracle, tool};
use longrun_planner::Mode;
use longrun_volume::ext4::OfflineExt4;
use longrun_volume::ntfs::NtfsVolume;
use longrun_volume::thin::Thinned;
use rustix::process::{Resource, Rlimit, setrlimit};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No answer takes that long.
const SOON: Duration = Duration::from_secs(20);
/// The records of NTFS whose content says where everything is: $MFT, $MFTMirr, $Bitmap, $Boot.
const SAYS_WHERE: [u64; 4] = [0, 1, 6, 7];
/// What an answer may allocate beyond what the test has, for a volume of 16 MiB.
const MEMORY: u64 = 1 << 30;

/// What became of damaged images.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    refused: usize,
    /// Worked on to the end, or to an error.
    worked: usize,
    /// Worked on, and other programs could read all of it before.
    judged: usize,
    /// Worked on, and found sound by other programs before.
    sound: usize,
}

/// What other programs find in an image.
#[derive(PartialEq, Eq, Debug)]
struct Found {
    /// Content by name; nothing when it cannot be read.
    content: Option<BTreeMap<String, String>>,
    is_sound: bool,
}

/// How work on an image ended: refused with this message, or done, or failed.
type Ended = Result<Result<()>, String>;

/// A kind of image, what works on it, and what finds out what is in it. Each gets the image in a file.
struct Subject<'a> {
    image: Vec<u8>,
    structures: Structures,
    work: &'a dyn Fn(&Path) -> Ended,
    find: &'a dyn Fn(&Path) -> Found,
}

impl Tally {
    /// Fails when the cases do not show all that may become of an image.
    fn check(self) {
        let counts = [self.refused, self.worked, self.judged, self.sound];
        assert!(counts.into_iter().all(|count| count > 0), "too few of a kind: {self:?}");
    }
}

/// Damages an image `cases` times, each time otherwise, and judges what Longrun does with it.
fn judge(subject: &Subject<'_>, cases: u64) -> Tally {
    let (seed, directory) = (longrun_lab::seed(), tempfile::tempdir().unwrap());
    eprintln!("{:?} kinds of fields, and fields", subject.structures.count());
    let (mut tally, mut faults) = (Tally::default(), Vec::new());
    for case in 0..cases {
        let mut random = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let mut image = subject.image.clone();
        let changes = 1 + usize::from(random.u8(..4) == 0);
        let said: Vec<_> = (0..changes).map(|_| subject.structures.change(&mut image, &mut random)).collect();
        eprintln!("case {case}: {}", said.join("; "));
        let answer = catch_unwind(AssertUnwindSafe(|| one(subject, &image, directory.path(), &mut tally)));
        if let Err(error) = answer.unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked"))) {
            // Fixtures are not the same twice.
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("structures-{case}"));
            fs::write(&kept, &image).unwrap();
            faults.push(format!("case {case}: {}: {error:#}; the image is {}", said.join("; "), kept.display()));
            eprintln!("FAULT {}", faults.last().unwrap());
        }
    }
    eprintln!("{tally:?}");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    tally
}

fn one(subject: &Subject<'_>, image: &[u8], directory: &Path, tally: &mut Tally) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        fs::remove_file(entry?.path())?;
    }
    let (place, compared) = (directory.join("image"), directory.join("compared"));
    fs::write(&place, image)?;
    let start = Instant::now();
    let ended = (subject.work)(&place);
    ensure!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    let ended = match ended {
        Err(message) => {
            tally.refused += 1;
            ensure!(fs::read(&place)? == image, "it was written to and then refused: {message}");
            ensure!(fs::read_dir(directory)?.count() == 1, "something is left of a run that was refused: {message}");
            return Ok(());
        }
        Ok(ended) => ended,
    };
    tally.worked += 1;
    fs::write(&compared, image)?;
    let (before, after) = ((subject.find)(&compared), (subject.find)(&place));
    tally.sound += usize::from(before.is_sound);
    ensure!(after.is_sound || !before.is_sound, "it is no longer sound; the run ended with {ended:?}");
    let Some(content) = before.content else { return Ok(()) };
    tally.judged += 1;
    let after = after.content.with_context(|| format!("it cannot be read any more; the run ended with {ended:?}"))?;
    let names = content.keys().chain(after.keys());
    let changed: Vec<_> = names.filter(|name| content.get(*name) != after.get(*name)).take(5).collect();
    ensure!(changed.is_empty(), "{changed:?} changed; the run ended with {ended:?}; sound before: {}", before.is_sound);
    Ok(())
}

/// An allocation by the word of an image ends the test.
fn limit_memory() {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let limit = Rlimit { current: Some(pages * 4096 + MEMORY), maximum: None };
    setrlimit(Resource::As, limit).unwrap();
}

/// Optimizes what `open` opens, as on thin storage, where what files leave is given back and is not what it was any more.
fn optimize<V: Placed + 'static>(place: &Path, open: impl Fn(Arc<dyn Disk>, &Path) -> Result<V, VolumeError>) -> Ended {
    let disk = Arc::new(MemoryDisk::new(fs::read(place).unwrap()));
    let shared = FailStop::over(Arc::clone(&disk) as _) as Arc<dyn Disk>;
    let journal = place.with_file_name("journal");
    let volume = open(Arc::clone(&shared), &journal).map_err(|error| match error {
        VolumeError::Damaged { .. } | VolumeError::Unsupported { .. } | VolumeError::NotAVolume { .. } => {
            error.to_string()
        }
        error => panic!("no answer to damage: {error}"),
    })?;
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    let mut volume = Thinned::new(Box::new(volume), shared);
    let ended = longrun_engine::placed::optimize(&mut volume, &settings, &mut Unobserved);
    drop(volume);
    fs::write(place, disk.content()).unwrap();
    Ok(ended.map(drop).map_err(Into::into))
}

/// Runs the program. Its status says whether it has refused the image.
fn run(arguments: &[&str], image: &Path) -> Ended {
    let output = Command::new(longrun_binary().unwrap()).args(arguments).arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(Ok(())),
        Some(1) => Ok(Err(anyhow::anyhow!(said))),
        // No volume is found in it: another error of the user's.
        Some(2 | 3) => Err(said),
        _ => panic!("{}: {said}", output.status),
    }
}

/// What e2fsck and debugfs find. debugfs may neither fill the disk nor run for ever.
fn find_ext4(image: &Path) -> Found {
    let is_sound = tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()]).is_ok();
    let directory = tempfile::tempdir().unwrap();
    let dump = format!("rdump / {}", directory.path().display());
    let output = bounded(&["debugfs", "-R", &dump], &[image]);
    let mut content = BTreeMap::new();
    collect(directory.path(), Path::new(""), &mut content);
    // It says its version there, and each error.
    let has_read_all = output.status.success() && output.stderr.iter().filter(|byte| **byte == b'\n').count() <= 1;
    Found { content: has_read_all.then_some(content), is_sound }
}

/// Runs a program that reads a damaged image: for a bounded time, and no file of it becomes long.
fn bounded(command: &[&str], files: &[&Path]) -> Output {
    let mut bounds = Command::new("timeout");
    bounds.args(["20", "prlimit", "--fsize=134217728"]);
    tool::output(bounds.args(command).args(files)).unwrap()
}

fn collect(root: &Path, path: &Path, content: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(path)).unwrap() {
        let path = path.join(entry.unwrap().file_name());
        let here = root.join(&path);
        let kind = fs::symlink_metadata(&here).unwrap().file_type();
        let said = if kind.is_dir() {
            collect(root, &path, content);
            "directory".to_owned()
        } else if kind.is_symlink() {
            format!("{:?}", fs::read_link(&here).unwrap())
        } else {
            oracle::file_hash(File::open(&here).unwrap()).unwrap()
        };
        content.insert(path.display().to_string(), said);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the tools of ntfs-3g find: of each attribute the content of its runs.
fn find_ntfs(image: &Path) -> Found {
    let is_sound = oracle::ntfs::check(image).is_ok();
    let bytes = fs::read(image).unwrap();
    Found { content: Census::of(image).ok().and_then(|census| contents(&census, &bytes)), is_sound }
}

fn contents(census: &Census, image: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut contents = BTreeMap::new();
    for (number, record) in census.records.iter().filter(|(number, _)| !SAYS_WHERE.contains(number)) {
        let mut names: Vec<_> = record.names.iter().map(|(parent, name, _)| format!("{parent}/{name}")).collect();
        names.sort();
        contents.insert(number.to_string(), names.join(" "));
        let attributes = record
            .attributes
            .iter()
            .filter(|(name, attribute)| !attribute.resident && name.kind != AttributeKind::ATTRIBUTE_LIST);
        for (name, attribute) in attributes {
            let mut sum = Sha256::new();
            for run in &attribute.runs {
                let length = usize::try_from(run.clusters.checked_mul(census.cluster_bytes)?).ok()?;
                let Some(lcn) = run.lcn else {
                    // A hole, which no sound file has longer than that.
                    sum.update(vec![0; Some(length).filter(|length| *length <= image.len())?]);
                    continue;
                };
                let start = usize::try_from(lcn.checked_mul(census.cluster_bytes)?).ok()?;
                sum.update(image.get(start..start.checked_add(length)?)?);
            }
            contents.insert(format!("{number} {name}"), hex(&sum.finalize()));
        }
    }
    Some(contents)
}

/// What QEMU finds of an image in a format, and e2fsck and debugfs of the volume in it.
fn find_converted(format: &str, image: &Path) -> Found {
    /// `qemu-img check` knows no check for the format.
    const NO_CHECK: i32 = 63;
    let raw = image.with_extension("raw");
    let check = bounded(&["qemu-img", "check", "-q", "-f", format], &[image]);
    let convert = bounded(&["qemu-img", "convert", "-f", format, "-O", "raw"], &[image, &raw]);
    if !convert.status.success() {
        return Found { content: None, is_sound: false };
    }
    let found = find_ext4(&raw);
    Found { is_sound: found.is_sound && matches!(check.status.code(), Some(0 | NO_CHECK)), ..found }
}

/// ext4 without checksums of metadata, which would hide what is behind them.
const PLAIN: [&[&str]; 3] = [
    &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"],
    &["-O", "^metadata_csum,^uninit_bg,^has_journal,^64bit,inline_data", "-I", "256"],
    &["-b", "1024", "-O", "^metadata_csum,^uninit_bg,meta_bg,^resize_inode,^flex_bg", "-g", "2048", "-I", "128"],
];

fn ext4(make: &[&str]) -> Vec<u8> {
    content(&crowded(16, make, 200).unwrap().0)
}

fn ext4_in_memory(make: &[&str], cases: u64) {
    let image = ext4(make);
    let structures = structure::ext4(&image);
    limit_memory();
    let open = |disk, journal: &Path| OfflineExt4::open(Path::new("damaged"), disk, journal);
    let work = |place: &Path| optimize(place, open);
    judge(&Subject { image, structures, work: &work, find: &find_ext4 }, cases).check();
}

fn ntfs_in_memory(spec: Spec, cases: u64) {
    let image = Fixture::make(spec).unwrap().read().unwrap();
    let structures = structure::ntfs(&image);
    limit_memory();
    let open = |disk, journal: &Path| NtfsVolume::open(Path::new("damaged"), disk, journal);
    let work = |place: &Path| optimize(place, open);
    judge(&Subject { image, structures, work: &work, find: &find_ntfs }, cases).check();
}

/// By the program, which works on the image in its file.
fn reclaimed(image: Vec<u8>, structures: Structures, find: &dyn Fn(&Path) -> Found, cases: u64) -> Tally {
    let work = |place: &Path| run(&["reclaim", "--consolidate"], place);
    judge(&Subject { image, structures, work: &work, find }, cases)
}

/// An ext4 volume in an image of this format.
fn converted(format: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let [raw, image] = ["raw", "image"].map(|name| directory.path().join(name));
    fs::write(&raw, ext4(PLAIN[0])).unwrap();
    let options = ["convert", "-f", "raw", "-O", format].map(AsRef::as_ref);
    tool::run("qemu-img", options.into_iter().chain([raw.as_os_str(), image.as_os_str()])).unwrap();
    fs::read(image).unwrap()
}

fn raw(cases: u64) {
    let image = ext4(PLAIN[0]);
    let structures = structure::ext4(&image);
    reclaimed(image, structures, &find_ext4, cases).check();
}

/// The structures of a sound image.
type Map = fn(&[u8]) -> Structures;

/// As QEMU calls them.
const FORMATS: [(&str, Map); 5] = [
    ("qcow2", structure::qcow2),
    ("vmdk", structure::vmdk),
    ("vpc", structure::vhd),
    ("vdi", structure::vdi),
    ("vhdx", structure::vhdx),
];

fn in_formats(cases: u64) {
    let mut all = Tally::default();
    for (format, structures) in FORMATS {
        eprintln!("{format}");
        let image = converted(format);
        let structures = structures(&image);
        let Tally { refused, worked, judged, sound } =
            reclaimed(image, structures, &|image| find_converted(format, image), cases);
        all.refused += refused;
        all.worked += worked;
        all.judged += judged;
        all.sound += sound;
    }
    // Of one format a few cases can all be refused.
    all.check();
}

#[test]
fn loop_an_ext4_with_a_wrong_field_is_refused_or_kept() {
    ext4_in_memory(PLAIN[0], 40);
    raw(16);
}

#[test]
fn loop_an_ntfs_with_a_wrong_field_is_refused_or_kept() {
    ntfs_in_memory(Spec::small(), 20);
}

#[test]
fn loop_an_image_of_any_format_with_a_wrong_field_is_kept() {
    in_formats(12);
}

#[test]
fn campaign_an_ext4_with_a_wrong_field_is_refused_or_kept() {
    PLAIN.iter().for_each(|make| ext4_in_memory(make, 1500));
    raw(500);
}

#[test]
fn campaign_an_ntfs_with_a_wrong_field_is_refused_or_kept() {
    for spec in [Spec::small(), Spec::fragmented_mft(), Spec::small().clusters(512), Spec::small().clusters(65536)] {
        ntfs_in_memory(spec, 400);
    }
}

#[test]
fn campaign_an_image_of_any_format_with_a_wrong_field_is_kept() {
    in_formats(1000);
}

/// Where the first two used entries of the table are that says where the parts of the disk are in an image, and how long they are.
fn entries(format: &str, image: &[u8]) -> ([usize; 2], usize) {
    let little =
        |at: usize, bytes: usize| image[at..at + bytes].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let big = |at: usize, bytes: usize| image[at..at + bytes].iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let (table, length) = match format {
        "qcow2" => (big(big(40, 8), 8) & 0x00ff_ffff_ffff_fe00, 8),
        "vmdk" => (little(little(56, 8) * 512, 4) * 512, 4),
        "vdi" => (little(0x154, 4), 4),
        // The first region is the table.
        "vhdx" => (little((192 << 10) + 32, 8), 8),
        _ => (big(big(16, 8) + 16, 8), 4),
    };
    let unused = [0, u32::MAX as usize];
    let mut used = (table..).step_by(length).filter(|at| !unused.contains(&little(*at, length)));
    ([used.next().unwrap(), used.next().unwrap()], length)
}

#[test]
fn loop_an_image_with_one_place_for_two_parts_is_refused() {
    for (format, _) in FORMATS {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("image");
        let mut image = converted(format);
        fs::write(&place, &image).unwrap();
        assert!(matches!(run(&["optimize"], &place), Ok(Ok(()))), "{format}: it is sound");
        let ([first, second], length) = entries(format, &image);
        image.copy_within(first..first + length, second);
        fs::write(&place, &image).unwrap();
        for command in [&["optimize"][..], &["reclaim"], &["reclaim", "--consolidate"]] {
            let said = run(command, &place).expect_err("it was written to");
            assert!(said.contains("its tables are not in order"), "{format}, {command:?}: {said}");
            assert!(fs::read(&place).unwrap() == image, "{format}, {command:?}: it was written to");
        }
    }
}

/// What libblkid finds: first byte and length of each partition.
fn found_by_libblkid(image: &Path) -> Vec<(u64, u64)> {
    let options = ["--show", "--noheadings", "--output", "START,SECTORS"];
    let said = tool::run("partx", options.iter().map(AsRef::as_ref).chain([image.as_os_str()])).unwrap_or_default();
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()?.checked_mul(512));
    let lines = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        number(words.next()).zip(number(words.next()))
    });
    lines.collect()
}

fn partition_tables(cases: u64) {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("disk");
    let gpt = "label: gpt\nstart=2048,size=4096\nstart=6144,size=2048\nstart=10240,size=2048\n";
    let mbr =
        "label: dos\nstart=2048,size=2048\nstart=4096,size=16384,type=5\nstart=4128,size=2048\nstart=8192,size=2048\n";
    for (table, structures) in [(gpt, structure::gpt as Map), (mbr, structure::mbr)] {
        fs::write(&place, vec![0; 16 << 20]).unwrap();
        let mut sfdisk = Command::new("sfdisk").arg("--quiet").arg(&place).stdin(Stdio::piped()).spawn().unwrap();
        sfdisk.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
        assert!(sfdisk.wait().unwrap().success(), "{table}");
        let sound = fs::read(&place).unwrap();
        let structures = structures(&sound);
        let (mut random, mut refused) = (Rng::with_seed(longrun_lab::seed()), 0);
        for case in 0..cases {
            let mut image = sound.clone();
            let said = structures.change(&mut image, &mut random);
            let Ok(ours) = longrun_image::read_partitions(&MemoryDisk::new(image.clone())) else {
                refused += 1;
                continue;
            };
            fs::write(&place, image).unwrap();
            let theirs = found_by_libblkid(&place);
            let ours: Vec<_> = ours.iter().map(|one| (one.start.0, one.length.0)).collect();
            assert!(ours.iter().all(|one| theirs.contains(one)), "{case}: {said}: {ours:?}, libblkid {theirs:?}");
        }
        assert!(refused > 0 && refused < cases / 2, "{refused} of {cases} refused");
    }
}

#[test]
fn a_partition_table_is_read_as_libblkid_reads_it() {
    partition_tables(60);
}

#[test]
fn campaign_a_partition_table_is_read_as_libblkid_reads_it() {
    partition_tables(3000);
}
