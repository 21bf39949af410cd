use super::super::exclusive::faults::{WITHOUT_ASKING, WITHOUT_LEASE};
use super::super::window::faults::WITHOUT_WRITE_BACK;
use super::faults::Step;
use super::*;
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use std::fs::Permissions;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 4096;

/// Appends to a file while it is trimmed again and again; answers how many bytes are missing in the end.
fn bytes_lost(kind: FileSystemKind, appends: u64) -> u64 {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
    let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
    let path = volume.mount_point().join("file");
    let handle = FileHandle::of_file(File::create_new(&path).unwrap()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = File::options().write(true).open(&path).unwrap();
            for number in 0..appends {
                writer.write_all_at(&[7; BLOCK as usize], number * BLOCK).unwrap();
                if number % 64 == 63 {
                    drop(writer);
                    writer = File::options().write(true).open(&path).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let mut opened = file::open(&watched, &handle, Executables::Never).unwrap();
            let runway = ByteRange { start: Bytes(opened.stat.len()), length: Bytes(4 << 20) };
            longrun_sys::allocate(&opened.file, runway).unwrap();
            settle_open(&watched, &mut opened, &[GiveBack::ALL]).unwrap();
        }
    });
    let content = std::fs::read(&path).unwrap();
    appends * BLOCK - content.iter().filter(|byte| **byte == 7).count() as u64
}

#[test]
fn loop_without_the_lease_appends_are_lost_and_with_it_none_is() {
    for kind in FileSystemKind::ALL {
        assert_eq!(bytes_lost(kind, 5000), 0, "{kind:?}");
    }
    // That the test bites, where trimming sets the length, as it did once.
    WITHOUT_LEASE.set(true);
    faults::AS_BEFORE.set(true);
    let lost = (0..20).any(|_| bytes_lost(FileSystemKind::Ext4, 5000) > 0);
    WITHOUT_LEASE.set(false);
    faults::AS_BEFORE.set(false);
    assert!(lost, "no byte was lost without the lease");
}

#[test]
fn loop_what_is_in_memory_only_is_written_back_before_a_window_is_judged() {
    for (without, kind) in
        [false, true].into_iter().flat_map(|w| [FileSystemKind::Xfs, FileSystemKind::Btrfs].map(|kind| (w, kind)))
    {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let path = volume.mount_point().join("sparse");
        let file = File::create_new(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        let window = ByteRange { start: Bytes(16 << 20), length: Bytes(16 << 20) };
        longrun_sys::allocate(&file, window).unwrap();
        longrun_sys::sync_file(&file).unwrap();
        file.write_all_at(&[9; 1 << 20], 20 << 20).unwrap();
        let handle = FileHandle::of_file(&file).unwrap();
        drop(file);
        let mut opened = file::open(&watched, &handle, Executables::Never).unwrap();
        WITHOUT_WRITE_BACK.set(without);
        faults::AS_BEFORE.set(without);
        // A child that another test has just forked has everything open until it executes its program.
        let given_back = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            settle_open(&watched, &mut opened, &[GiveBack::Window(window)]).unwrap()
        });
        WITHOUT_WRITE_BACK.set(false);
        faults::AS_BEFORE.set(false);
        assert!(given_back.is_some_and(|back| back.bytes.0 > 0), "{kind:?}: {given_back:?}");
        let content = std::fs::read(&path).unwrap();
        let kept = content[20 << 20..21 << 20].iter().all(|byte| *byte == 9);
        // The second round shows that the test bites: the map of XFS alone says that the place was never written.
        assert_eq!(kept, !(without && kind == FileSystemKind::Xfs), "{kind:?}");
    }
}

/// Has the kernel take a lease that somebody waits for after a second, until this is dropped. The setting is the machine's: one
/// test at a time, whichever process it is of.
struct ShortLeases {
    setting: longrun_sys::LockFile,
    before: String,
}

impl ShortLeases {
    const SETTING: &str = "/proc/sys/fs/lease-break-time";

    fn set() -> Self {
        let setting = File::options().read(true).write(true).open(Self::SETTING).unwrap();
        let setting = longrun_sys::LockFile::new(setting);
        assert!(setting.set(longrun_sys::FlockOperation::LockExclusive).unwrap());
        let before = std::fs::read_to_string(Self::SETTING).unwrap();
        setting.file().write_all_at(b"1", 0).unwrap();
        Self { setting, before }
    }
}

impl Drop for ShortLeases {
    fn drop(&mut self) {
        self.setting.file().write_all_at(self.before.trim().as_bytes(), 0).unwrap();
    }
}

/// A file with something of ours on it, behind its end and inside.
struct Prepared {
    watched: Watched,
    path: PathBuf,
    handle: FileHandle,
    content: Vec<u8>,
    ours: Vec<GiveBack>,
}

const WINDOW: ByteRange = ByteRange { start: Bytes(4 << 20), length: Bytes(8 << 20) };

impl Prepared {
    /// Its end lies inside a block.
    fn on(volume: &LoopVolume) -> Self {
        let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let path = volume.mount_point().join("file");
        let file = File::create(&path).unwrap();
        let mut content = vec![3; (20 << 20) + 1000];
        // ext4 gets no windows.
        let mut ours = vec![GiveBack::ALL];
        if volume.kind() == FileSystemKind::Ext4 {
            file.write_all_at(&content, 0).unwrap();
        } else {
            let (start, end) = (WINDOW.start.0 as usize, (WINDOW.start.0 + WINDOW.length.0) as usize);
            content[start..end].fill(0);
            file.write_all_at(&content[..start], 0).unwrap();
            file.write_all_at(&content[end..], end as u64).unwrap();
            longrun_sys::allocate(&file, WINDOW).unwrap();
            ours.push(GiveBack::Window(WINDOW));
        }
        longrun_sys::sync_file(&file).unwrap();
        let runway = ByteRange { start: Bytes(content.len() as u64), length: Bytes(16 << 20) };
        longrun_sys::allocate(&file, runway).unwrap();
        let handle = FileHandle::of_file(&file).unwrap();
        Self { watched, path, handle, content, ours }
    }

    /// Attempts until `step` is reached, where something is to happen. An attempt that takes too long on a busy machine, or meets a
    /// child as below, is given up before it changes anything.
    fn settle_up_to(&self, step: Step) {
        let is_reached = (0..500).any(|nth| {
            std::thread::sleep(std::time::Duration::from_millis(nth.min(10)));
            self.settle();
            !faults::is_due()
        });
        assert!(faults::has_happened() && is_reached, "{}: {step:?} was not reached", self.path.display());
    }

    /// One attempt, when nobody has the file open any more.
    fn settle(&self) -> Option<Back> {
        let mut opened = file::open(&self.watched, &self.handle, Executables::Never).unwrap();
        settle_open(&self.watched, &mut opened, &self.ours).unwrap()
    }

    fn settle_in_the_end(&self) -> Back {
        // A child that another test has just forked has everything open until it executes its program.
        let back = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            self.settle()
        });
        back.unwrap()
    }

    /// What is in it, by the medium.
    fn read(&self) -> Vec<u8> {
        let file = File::open(&self.path).unwrap();
        longrun_sys::sync_file(&file).unwrap();
        longrun_sys::drop_cache(&file, ByteRange::ALL).unwrap();
        std::fs::read(&self.path).unwrap()
    }
}

/// Somebody opens the file, waits as long as the kernel has him wait, writes into the window, appends, makes it durable, and closes.
fn write_and_append(path: &Path, windows: bool, length: u64) {
    let file = File::options().write(true).open(path).unwrap();
    if windows {
        file.write_all_at(&[5; 8192], WINDOW.start.0 + (2 << 20)).unwrap();
    }
    file.write_all_at(&[5; 100_000], length).unwrap();
    // What is in memory only would be noticed.
    file.sync_all().unwrap();
}

/// How many bytes are wrong after this process was stopped at `step` for so long that somebody has written to the file.
fn wrong_after_a_stall(kind: FileSystemKind, step: Step) -> u64 {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
    let prepared = Prepared::on(&volume);
    let windows = kind != FileSystemKind::Ext4;
    let mut expected = prepared.content.clone();
    if windows {
        let start = WINDOW.start.0 as usize + (2 << 20);
        expected[start..start + 8192].fill(5);
    }
    expected.extend([5; 100_000]);
    let (path, length) = (prepared.path.clone(), prepared.content.len() as u64);
    faults::at(step, move || {
        std::thread::spawn(move || write_and_append(&path, windows, length)).join().unwrap();
    });
    prepared.settle_up_to(step);
    // What this attempt has left is taken by the next.
    prepared.settle_in_the_end();
    let content = prepared.read();
    let differing = content.iter().zip(&expected).filter(|(a, b)| a != b).count();
    (differing + content.len().abs_diff(expected.len())) as u64
}

#[test]
fn loop_a_process_that_is_stopped_at_any_step_loses_nothing_of_what_others_write() {
    let _short = ShortLeases::set();
    for kind in FileSystemKind::ALL {
        for step in [Step::Mapped, Step::Leased, Step::Asked] {
            assert_eq!(wrong_after_a_stall(kind, step), 0, "{kind:?}: {step:?}");
        }
        // That the test bites: without asking again, and by the length that was read before, as it was done once.
        faults::AS_BEFORE.set(true);
        WITHOUT_ASKING.set(true);
        for step in [Step::Leased, Step::Asked] {
            assert!(wrong_after_a_stall(kind, step) > 0, "{kind:?}: {step:?}");
        }
        WITHOUT_ASKING.set(false);
        faults::AS_BEFORE.set(false);
    }
}

/// Whether what somebody writes after the space was given back looks as old as what was there before.
fn looks_old(kind: FileSystemKind) -> bool {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
    let path = Prepared::on(&volume).path;
    let modified = {
        let path = path.clone();
        move || std::fs::metadata(&path).unwrap().modified().unwrap()
    };
    faults::at(Step::Released, move || {
        // The length stays: only the lease tells.
        let write = move || File::options().write(true).open(path).unwrap().write_all_at(&[5; 100], 0).unwrap();
        std::thread::spawn(write).join().unwrap();
    });
    // An attempt that takes too long on a busy machine is given up before that, as it has to be; what it has given back by then is
    // gone, so that the next needs another file.
    let before = (0..500).find_map(|_| {
        let prepared = Prepared::on(&volume);
        let before = modified();
        prepared.settle();
        (!faults::is_due()).then_some(before)
    });
    assert!(faults::has_happened(), "{kind:?}");
    Some(modified()) == before
}

#[test]
fn loop_the_time_of_what_others_write_is_not_set_back() {
    let _short = ShortLeases::set();
    for kind in [FileSystemKind::Ext4, FileSystemKind::Btrfs] {
        assert!(!looks_old(kind), "{kind:?}");
        // That the test bites.
        WITHOUT_ASKING.set(true);
        assert!(looks_old(kind), "{kind:?}");
        WITHOUT_ASKING.set(false);
    }
}

/// An overlay whose files lie on the volume. It shortens and lengthens them without breaking a lease, as an NFS server does.
struct Overlay(tempfile::TempDir);

impl Overlay {
    fn over(volume: &LoopVolume) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (lower, work) = (directory.path().join("lower"), volume.mount_point().join("work"));
        for path in [&lower, &work, &directory.path().join("merged")] {
            std::fs::create_dir(path).unwrap();
        }
        let upper = volume.mount_point().join("upper");
        let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let merged = directory.path().join("merged");
        let mut mount = std::process::Command::new("mount");
        assert!(mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(merged).status().unwrap().success());
        Self(directory)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount").arg(self.0.path().join("merged")).status();
        assert!(status.unwrap().success() || std::thread::panicking());
    }
}

/// How long a file is that was set to `wanted` through an overlay at `step`.
fn length_after(kind: FileSystemKind, step: Step, wanted: u64) -> (u64, u64) {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
    let mut prepared = Prepared::on(&volume);
    let upper = volume.mount_point().join("upper");
    std::fs::create_dir(&upper).unwrap();
    std::fs::rename(&prepared.path, upper.join("file")).unwrap();
    prepared.path = upper.join("file");
    let overlay = Overlay::over(&volume);
    let merged = overlay.0.path().join("merged/file");
    faults::at(step, move || longrun_sys::set_length_at(&merged, Bytes(wanted)).unwrap());
    prepared.settle_up_to(step);
    let content = prepared.read();
    let kept = content.iter().zip(&prepared.content).filter(|(a, b)| a == b).count() as u64;
    (content.len() as u64, kept)
}

#[test]
fn loop_a_length_that_is_set_through_an_overlay_stays() {
    let length = (20 << 20) + 1000;
    for kind in FileSystemKind::ALL {
        for step in [Step::Mapped, Step::Leased, Step::Asked] {
            // Into the runway, and back inside the file.
            assert_eq!(length_after(kind, step, length + 50_000), (length + 50_000, length), "{kind:?}: {step:?}");
            assert_eq!(
                length_after(kind, step, length - 50_000),
                (length - 50_000, length - 50_000),
                "{kind:?}: {step:?}"
            );
        }
    }
    // That the test bites.
    faults::AS_BEFORE.set(true);
    let (found, _) = length_after(FileSystemKind::Ext4, Step::Asked, length + 50_000);
    faults::AS_BEFORE.set(false);
    assert_eq!(found, length);
}

/// How many bytes are missing after the volume was frozen at `step` for so long that the kernel took the lease away.
fn lost_by_a_freeze(kind: FileSystemKind, step: Step) -> u64 {
    let volume = Arc::new(LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap());
    let prepared = Prepared::on(&volume);
    let (path, length) = (prepared.path.clone(), prepared.content.len() as u64);
    let frozen = Arc::clone(&volume);
    let (sender, writer) = std::sync::mpsc::channel();
    faults::at(step, move || {
        let frozen = frozen.freeze().unwrap();
        let opens = move || {
            let file = File::options().write(true).open(path).unwrap();
            // The lease is gone.
            drop(frozen);
            file.write_all_at(&[5; 100_000], length).unwrap();
        };
        sender.send(std::thread::spawn(opens)).unwrap();
    });
    prepared.settle_up_to(step);
    writer.recv().unwrap().join().unwrap();
    prepared.settle_in_the_end();
    let content = prepared.read();
    100_000 - content.get(length as usize..).unwrap_or_default().iter().filter(|byte| **byte == 5).count() as u64
}

#[test]
fn loop_a_volume_that_is_frozen_meanwhile_loses_no_append() {
    let _short = ShortLeases::set();
    for kind in FileSystemKind::ALL {
        assert_eq!(lost_by_a_freeze(kind, Step::Leased), 0, "{kind:?}");
    }
    // Nothing can be asked any more when it is frozen in between: on ext4 the call itself sees to it.
    assert_eq!(lost_by_a_freeze(FileSystemKind::Ext4, Step::Asked), 0);
}

/// What an installer gives a program after it has written it.
#[derive(Clone, Copy, Debug)]
enum Privilege {
    /// Such bits in its mode.
    Bits(u32),
    Capabilities,
}

impl Privilege {
    fn give(self, path: &Path) {
        match self {
            Self::Bits(mode) => std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap(),
            Self::Capabilities => {
                longrun_lab::tool::run("setcap", ["cap_net_raw+ep".as_ref(), path.as_os_str()]).unwrap();
            }
        }
    }
}

/// The mode of a file, and its capabilities as getcap tells them.
fn privileges(path: &Path) -> (u32, String) {
    let capabilities = longrun_lab::tool::run("getcap", [path]).unwrap();
    (std::fs::metadata(path).unwrap().mode() & 0o7777, capabilities)
}

/// Takes CAP_FSETID from this thread, as the service is without: with it the kernel leaves the bits alone.
fn without_fsetid() {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(rustix::thread::CapabilitySet::FSETID);
    }
    rustix::thread::set_capabilities(None, sets).unwrap();
}

#[test]
fn loop_a_file_keeps_its_privileges_and_with_them_its_space() {
    without_fsetid();
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        for privilege in [Privilege::Bits(0o4644), Privilege::Bits(0o2644), Privilege::Capabilities] {
            // Before an attempt, and in the middle of one.
            for step in [None, Some(Step::Mapped), Some(Step::Leased)] {
                let prepared = Prepared::on(&volume);
                let (path, about) = (prepared.path.clone(), format!("{kind:?}, {privilege:?}, {step:?}"));
                match step {
                    None => privilege.give(&path),
                    Some(step) => {
                        faults::at(step, move || privilege.give(&path));
                        prepared.settle_up_to(step);
                    }
                }
                let (before, blocks) =
                    (privileges(&prepared.path), std::fs::metadata(&prepared.path).unwrap().blocks());
                let back = prepared.settle_in_the_end();
                assert_eq!(privileges(&prepared.path), before, "{about}");
                assert!(before.0 & 0o6000 != 0 || before.1.contains("cap_net_raw"), "{about}: {before:?}");
                assert!(back.bytes.0 == 0 && back.kept.0 >= 16 << 20 && back.foreign, "{about}: {back:?}");
                assert_eq!(std::fs::metadata(&prepared.path).unwrap().blocks(), blocks, "{about}");
                std::fs::remove_file(&prepared.path).unwrap();
            }
        }
        // Right before the call, too.
        let prepared = Prepared::on(&volume);
        let opened = file::open(&prepared.watched, &prepared.handle, Executables::Never).unwrap();
        let alone = (0..500).find_map(|_| Exclusive::take(&opened.file).unwrap()).unwrap();
        assert!(alone.permits_change().unwrap(), "{kind:?}");
        Privilege::Capabilities.give(&prepared.path);
        assert!(!alone.permits_change().unwrap() && alone.holds().unwrap(), "{kind:?}");
    }
}
