//! Volumes age by the same days whoever looks after them, and what is told of that is what judges find.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_ageing::{Day, Life, LifePlan, Progress};
use longrun_lab::{AgeingSettings, FileSystemKind, LoopVolume, Maintenance, VolumeSpec, ageing, ageing_report};
use longrun_layout::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => _ = found.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()),
        }
    }
    found
}

#[test]
fn loop_the_same_seed_lives_the_same_days_on_every_file_system_and_keeps_to_the_plan() {
    let plan = LifePlan { live: Bytes(48 << 20), daily: Bytes(8 << 20) };
    let live = |kind, seed| {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let mut progress = |_: &Progress| ControlFlow::Continue(());
        let mut life = Life::begin(&volume.mount_point(), plan, seed, &mut progress).unwrap();
        let days: Vec<Day> = (0..4).map(|_| life.day().unwrap()).collect();
        (days, files(&volume.mount_point()))
    };
    let (days, kept) = live(FileSystemKind::Ext4, 7);
    let (same_days, same) = live(FileSystemKind::Xfs, 7);
    assert_eq!((&days, kept.len()), (&same_days, same.len()));
    assert!(kept == same, "contents differ");
    let bytes: u64 = kept.values().map(|content| content.len() as u64).sum();
    let about = plan.live.0 * 3 / 4..=plan.live.0 * 5 / 4;
    assert!(about.contains(&bytes), "{bytes}");
    assert!(about.contains(&days[0].written.0) && days[0].deleted == 0, "{days:?}");
    // Else what is told of the free space would be that of a volume with more and more files.
    assert!(days[1..].iter().all(|day| day.deleted > 0 && day.created == day.deleted), "{days:?}");
    assert!(days[1..].iter().all(|day| day.written.0 < 3 * plan.daily.0), "{days:?}");
    assert_ne!(live(FileSystemKind::Ext4, 8).0, days);
}

#[test]
fn campaign_a_volume_that_is_looked_after_fragments_less_and_judges_agree() {
    let kind = FileSystemKind::Xfs;
    let settings = AgeingSettings { kind, mebibytes: 512, days: 7, full_percent: 40, daily_percent: 4, seed: 3 };
    let courses = ageing(&settings, &Maintenance::ALL, &mut |_| {}).unwrap();
    let [nobody, peer, service, both] = courses.as_slice() else { panic!("{courses:?}") };
    assert_eq!([nobody.maintenance, peer.maintenance, service.maintenance, both.maintenance], Maintenance::ALL);
    for course in &courses {
        assert_eq!(course.evenings.len(), 8, "{}", course.name);
        let last = course.evenings.last().unwrap();
        // filefrag counts what XFS keeps preallocated behind the end of a log, too, which is not moved with what lies before it.
        let apart = last.excess_fragments.abs_diff(course.judged_excess);
        assert!(apart * 100 <= nobody.judged_excess, "{}: {course:?}", course.name);
        assert_eq!(last.files, nobody.evenings[7].files, "{}: other files", course.name);
        assert!(last.written.0 > 0);
    }
    assert!(nobody.judged_excess > 500, "nothing fragments: {nobody:?}");
    assert!(peer.judged_excess < nobody.judged_excess && peer.evenings[7].moved > peer.evenings[6].moved);
    for looked_after in [service, both] {
        assert!(looked_after.judged_excess * 10 < nobody.judged_excess, "{looked_after:?}");
    }
    assert!(service.evenings[7].moved.0 > 0 && both.evenings[7].moved > both.evenings[6].moved);
    let (text, picture) = ageing_report(&settings, &courses, "picture.svg").unwrap();
    assert!(text.contains("| xfs_fsr once a week | 7 |") && picture.starts_with("<svg"), "{text}");
}
