//! The worker of mending on a real volume.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail loudly, as tests do")]

use longrun_engine::VolumeError;
use longrun_lab::oracle::excess_of;
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, write_in_pieces};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, Watched};
use longrun_service::mending::{Candidate, MendEvent, MendSettings, MendSink, Mending, Ungoverned};
use longrun_sys::FileHandle;
use longrun_volume::mend::MendError;
use longrun_volume::mend_file;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

struct Told(mpsc::Sender<MendEvent>);

impl MendSink for Told {
    fn mending(&self, _point: &Path, event: &MendEvent) {
        let _ = self.0.send(event.clone());
    }
}

#[test]
fn loop_a_file_that_is_offered_is_mended_once_it_is_quiet_and_the_volume_can_be_unmounted() {
    for kind in FileSystemKind::ALL {
        let mkfs: &[&str] = if kind == FileSystemKind::Ext4 { &["-b", "4096"] } else { &[] };
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 320).mkfs(mkfs)).unwrap();
        let path = volume.mount_point().join("file");
        let content: Vec<u8> = (0..2_000_001_u32).map(|n| (n / 7) as u8).collect();
        write_in_pieces(kind, &path, &content, Bytes(32 << 10), 1).unwrap();
        let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let device = watched.device;
        let (sender, told) = mpsc::channel();
        let settings = MendSettings { quiet: Duration::from_millis(300), ..MendSettings::default() };
        let mending = Mending::start(settings, Arc::new(Ungoverned), Arc::new(Told(sender))).unwrap();
        mending.watch(watched);
        let handle = FileHandle::of_file(File::open(&path).unwrap()).unwrap();
        let file = FileKey { volume: device, handle };
        let excess = excess_of(&path).unwrap();
        mending.offer(Candidate { file, path: Some(path.clone()), excess, size: None });
        match told.recv_timeout(Duration::from_secs(60)).unwrap() {
            MendEvent::Mended { before, after: 0, .. } => assert_eq!(before, excess, "{kind:?}"),
            other => panic!("{kind:?}: {other:?}"),
        }
        assert_eq!(excess_of(&path).unwrap(), 0, "{kind:?}");
        assert!(fs::read(&path).unwrap() == content, "{kind:?}");
        let done = mending.snapshot();
        assert_eq!((done.mended, done.removed, done.queued), (1, excess, 0), "{kind:?}");
        // The worker still runs, and holds nothing.
        volume.unmount().unwrap();
    }
}

/// No memory for a moment, or one block that could not be read, and no file of the volume was mended any more.
#[test]
fn loop_a_passing_error_does_not_end_mending() {
    const ENOMEM: i32 = 12;
    const EIO: i32 = 5;
    for kind in FileSystemKind::ALL {
        let mkfs: &[&str] = if kind == FileSystemKind::Ext4 { &["-b", "4096"] } else { &[] };
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 320).mkfs(mkfs)).unwrap();
        let path = volume.mount_point().join("file");
        let content: Vec<u8> = (0..1_000_001_u32).map(|n| (n / 7) as u8).collect();
        write_in_pieces(kind, &path, &content, Bytes(32 << 10), 1).unwrap();
        let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let device = watched.device;
        let (sender, told) = mpsc::channel();
        let short = Duration::from_millis(100);
        let settings = MendSettings { quiet: short, after_failure: short, ..MendSettings::default() };
        let tries = AtomicUsize::new(0);
        let point = volume.mount_point();
        let mender = move |place: longrun_volume::mend::Place<'_>,
                           handle: &FileHandle,
                           limits,
                           observer: &mut dyn longrun_engine::Observer| {
            let fails = |errno| {
                let source = io::Error::from_raw_os_error(errno);
                let error = VolumeError::Io { path: point.clone(), act: "exchanging blocks", source };
                Err(MendError::Volume(error))
            };
            match tries.fetch_add(1, Ordering::SeqCst) {
                0 => fails(ENOMEM),
                1 => fails(EIO),
                _ => mend_file(place, handle, limits, observer),
            }
        };
        let mending =
            Mending::start_with(settings, Arc::new(Ungoverned), Arc::new(Told(sender)), Box::new(mender)).unwrap();
        mending.watch(watched);
        let handle = FileHandle::of_file(File::open(&path).unwrap()).unwrap();
        let excess = excess_of(&path).unwrap();
        mending.offer(Candidate {
            file: FileKey { volume: device, handle },
            path: Some(path.clone()),
            excess,
            size: None,
        });
        for (count, errno) in [(1, ENOMEM), (2, EIO)] {
            match told.recv_timeout(Duration::from_secs(60)).unwrap() {
                MendEvent::Failed { problem, failures, .. } => {
                    let said = io::Error::from_raw_os_error(errno).to_string();
                    assert!(failures == count && problem.contains(&said), "{kind:?}: {failures}, {problem}");
                }
                other => panic!("{kind:?}: {other:?}"),
            }
        }
        match told.recv_timeout(Duration::from_secs(60)).unwrap() {
            MendEvent::Mended { before, after: 0, .. } => assert_eq!(before, excess, "{kind:?}"),
            other => panic!("{kind:?}: {other:?}"),
        }
        assert_eq!((mending.snapshot().failed, mending.trouble(device)), (2, None), "{kind:?}");
        assert!(fs::read(&path).unwrap() == content, "{kind:?}");
        volume.unmount().unwrap();
    }
}
