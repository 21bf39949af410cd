//! Volumes that do not answer. A mend that the kernel did not come back from held up the unmount of other volumes, each reload, and the
//! end of the service, for as long as the volume was frozen.

use super::common::{check, longrun};
use super::growing::grow_beside_each_other;
use super::service::{PATIENCE, Service, ask, daemon, of, only};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use longrun_sys::Shutdown;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waits for something that the service does without telling.
#[track_caller]
fn until(what: &str, service: &Service, happens: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < end, "it never came to that: {what}\n{}\n{}", service.threads(), service.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The state of a thread as the kernel tells it.
fn state(thread: &Path) -> Option<char> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a thread of the process whose name begins so (on ext4 the mender waits for its guard) is in the kernel, where no signal reaches it, and stays there.
fn hangs(process: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let named = threads.map(|thread| thread.path()).find(|thread| {
        let known = fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim().starts_with(name));
        known && state(thread) == Some('D')
    });
    named.is_some_and(|thread| {
        (0..20).all(|_| {
            std::thread::sleep(Duration::from_millis(20));
            state(&thread) == Some('D')
        })
    })
}

fn contents(mount: &Path) -> Vec<Vec<u8>> {
    (0..8).map(|number| fs::read(mount.join(format!("grow-{number}"))).unwrap()).collect()
}

fn beyond_the_ends(mount: &Path) -> u64 {
    let metas = (0..8).map(|number| fs::metadata(mount.join(format!("grow-{number}"))).unwrap());
    // Less what the file system needs to describe the file.
    metas.map(|meta| (meta.blocks() * 512).saturating_sub(meta.len() + 16384)).sum()
}

#[test]
fn loop_a_frozen_volume_holds_up_neither_the_others_nor_a_reload_nor_the_end() {
    check_frozen(&[FileSystemKind::Xfs]);
}

#[test]
fn campaign_a_frozen_volume_holds_up_neither_the_others_nor_a_reload_nor_the_end() {
    check_frozen(&FileSystemKind::ALL);
}

fn check_frozen(kinds: &[FileSystemKind]) {
    for &kind in kinds {
        let blocks: &[&str] = if kind == FileSystemKind::Ext4 { &["-b", "4096"] } else { &[] };
        let frozen = LoopVolume::create(&VolumeSpec::of(kind, 1024).mkfs(blocks)).unwrap();
        let other = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "4096"])).unwrap();
        let mounts = [&frozen, &other].map(LoopVolume::mount_point);
        let mut first = Service::start(&mounts);
        let resting = only(&mounts).replace("\"1s\"\n", "\"1s\"\nmending_rests = [\"daily 00:00-24:00\"]\n");
        fs::write(first.path("longrun.toml"), resting).unwrap();
        first.signal("HUP");
        first.wait(|s| s["mending"]["rests"] == true && of(s, &mounts[0]).is_some_and(|v| v["prevention"] == true));
        let mut files = grow_beside_each_other(&mounts[0], "grow");
        let content = contents(&mounts[0]);
        let kept = files.split_off(4);
        drop(files);
        let status = first.wait(|s| s["mending"]["queued"].as_u64() > Some(0));
        let volume = of(&status, &mounts[0]).unwrap();
        let runways = volume["prevented"]["runways"].as_u64().unwrap();
        assert!(runways > 0 || kind == FileSystemKind::Ext4, "{volume:#}");

        // From here on every writer waits in the kernel: the mender, and who gives back what is closed now.
        let ice = frozen.freeze().unwrap();
        drop(kept);
        fs::write(first.path("longrun.toml"), only(&mounts)).unwrap();
        first.signal("HUP");
        let id = first.child.id();
        until("a mend hangs in the kernel", &first, || hangs(id, "longrun-"));
        if runways > 0 {
            until("giving back hangs in the kernel", &first, || hangs(id, "runway-"));
        }

        others_are_served(&mut first, &mounts, &other);
        it_ends(&first);

        // Another one can take its place at once.
        fs::write(first.path("longrun.toml"), only(&mounts[1..])).unwrap();
        let child = daemon(&[], first.directory.path()).spawn().unwrap();
        let mut second = Service { child, directory: tempfile::tempdir().unwrap() };
        until("the next one answers", &first, || ask(&first.path("socket"), "GET", "/v1/status").is_ok());

        // When the volume answers again, the journal knows what is to be given back.
        drop(ice);
        assert_eq!(first.child.wait().unwrap().code(), Some(0), "{}", first.log());
        fs::write(first.path("longrun.toml"), only(&mounts)).unwrap();
        second.signal("HUP");
        until("what the first one held is given back", &first, || beyond_the_ends(&mounts[0]) == 0);
        second.signal("TERM");
        assert_eq!(second.child.wait().unwrap().code(), Some(0), "{}", first.log());
        assert!(contents(&mounts[0]) == content, "{kind:?}");
        frozen.check().unwrap();
        assert!(contents(&mounts[0]) == content, "{kind:?}");
    }
}

/// Reloads, an unmount and a mount go on as if there were no frozen volume.
fn others_are_served(service: &mut Service, mounts: &[PathBuf], other: &LoopVolume) {
    let slower = only(mounts).replace("\"fast\"", "\"balanced\"");
    fs::write(service.path("longrun.toml"), slower).unwrap();
    service.signal("HUP");
    service.wait(|s| of(s, &mounts[1]).is_some_and(|v| v["governor"]["pace"] == "balanced"));
    // And that the frozen one is to be left alone.
    fs::write(service.path("longrun.toml"), only(&mounts[1..])).unwrap();
    service.signal("HUP");
    service.wait(|s| of(s, &mounts[0]).is_some_and(|v| v["enabled"] == false));
    service.wait(|s| of(s, &mounts[1]).is_some_and(|v| v["governor"]["pace"] == "fast"));
    other.unmount().unwrap();
    service.wait(|s| s["volumes"].is_array() && of(s, &mounts[1]).is_none());
    other.mount().unwrap();
    service.wait(|s| of(s, &mounts[1]).is_some_and(|v| v["prevention"] == true));
}

/// All that is left of it is what the kernel keeps until the volume answers.
fn it_ends(service: &Service) {
    service.signal("TERM");
    let process = PathBuf::from(format!("/proc/{}", service.child.id()));
    until("the service has ended", service, || matches!(state(&process), None | Some('Z')));
    assert!(!service.path("socket").exists(), "the socket stays");
    let log = service.log();
    assert!(log.contains("totals:"), "{log}");
}

#[test]
fn loop_a_volume_that_cannot_be_opened_is_listed_with_the_reason() {
    let volumes = [(); 2].map(|()| LoopVolume::create(&VolumeSpec::xfs(320)).unwrap());
    let mounts: Vec<PathBuf> = volumes.iter().map(LoopVolume::mount_point).collect();
    let stop = |mount: &Path| longrun_sys::shutdown(File::open(mount).unwrap(), Shutdown::Synced).unwrap();
    let has_reason = |status: &Value, mount: &Path| {
        let named = |text: &str| text.contains(mount.to_str().unwrap()) && text.contains("Input/output error");
        let shown = of(status, mount).is_some_and(|volume| volume["trouble"].as_str().is_some_and(named));
        shown && status["troubles"].as_array().unwrap().iter().any(|text| named(text.as_str().unwrap()))
    };
    // One before the service comes, one after that.
    stop(&mounts[0]);
    let mut service = Service::start(&mounts);
    let status =
        service.wait(|s| has_reason(s, &mounts[0]) && of(s, &mounts[1]).is_some_and(|v| v["trouble"].is_null()));
    assert_eq!((&status["healthy"], &of(&status, &mounts[0]).unwrap()["prevention"]), (&false.into(), &false.into()));
    let shown = longrun(["status", "--socket", service.path("socket").to_str().unwrap()]);
    let shown = check(&shown, 0, "");
    assert!(shown.contains("Input/output error"), "{shown}");
    stop(&mounts[1]);
    // It looks again at once when it reads its configuration again.
    service.signal("HUP");
    service.wait(|s| mounts.iter().all(|mount| has_reason(s, mount)));
    for volume in &volumes {
        volume.unmount().unwrap();
        volume.mount().unwrap();
    }
    service.wait(|s| {
        mounts.iter().all(|mount| of(s, mount).is_some_and(|v| v["trouble"].is_null() && v["prevention"] == true))
    });
    service.stop("TERM");
}
