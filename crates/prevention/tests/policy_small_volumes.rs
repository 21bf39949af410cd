//! Story: volumes below about 1 GiB got no runways, "low-space", with 90 percent free: a sixteenth of the share was never as long as
//! a runway that helps on ext4.
#![allow(missing_docs, clippy::unwrap_used)]

use longrun_layout::Bytes;
use longrun_prevention::policy::{
    Attributes, Case, Decision, FileFacts, FileKind, Growth, History, Modified, Policy, Settings, SpaceFacts,
};
use longrun_prevention::{FileKey, Nanos, ProcessName, Signal, SignalKind};
use longrun_sys::FileSystem;
use longrun_sys::{DeviceNumber, FileHandle};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

/// The runways that files get which fragment one after the other, until one gets nothing.
fn runways(filesystem: FileSystem, total: u64, free: u64) -> Vec<u64> {
    let policy = Policy::new(Settings::default()).unwrap();
    let signal = Signal {
        at: Nanos(1),
        file: FileKey { volume: DeviceNumber { major: 8, minor: 1 }, handle: FileHandle::new(1, &[1; 8]).unwrap() },
        size: Bytes(MIB),
        by: ProcessName::default(),
        kind: SignalKind::Fragmenting { allocations: 16, bytes: Bytes(MIB), end: Bytes(MIB) },
    };
    let mut growth = Growth::default();
    growth.note(&signal.kind);
    let file = FileFacts {
        filesystem,
        path: None,
        kind: FileKind::default(),
        size: Bytes(MIB),
        allocated: Bytes(MIB),
        links: 1,
        executable: false,
        compressed: false,
        size_hint: false,
        limited: false,
        attributes: Attributes::default(),
        modified: Modified::Ago(Duration::ZERO),
        fragments: None,
    };
    let mut lengths = Vec::new();
    let mut held = 0;
    while lengths.len() < 64 {
        let space = SpaceFacts { total: Bytes(total), free: Bytes(free - held), held: Bytes(held) };
        let case = Case { signal: &signal, file: &file, growth: &growth, space, history: &History::default() };
        let Decision::Runway { range, .. } = policy.decide(&case) else { break };
        held += range.length.0;
        lengths.push(range.length.0);
    }
    lengths
}

#[test]
fn small_volumes_have_runways_for_several_files_and_keep_most_of_their_space_for_others() {
    for filesystem in ALL {
        for (mebibytes, files, least) in [(256, 2, 7), (512, 3, 14), (1024, 4, 14), (8192, 8, 15)] {
            let (total, free) = (mebibytes * MIB, mebibytes * MIB / 10 * 9);
            let lengths = runways(filesystem, total, free);
            let enough = lengths.iter().filter(|length| **length >= least * MIB).count();
            assert!(enough >= files, "{filesystem}, {mebibytes} MiB: {lengths:?}");
            assert!(lengths.iter().sum::<u64>() <= free / 4, "{filesystem}, {mebibytes} MiB: {lengths:?}");
        }
    }
}

#[test]
fn a_small_volume_that_is_nearly_full_has_none() {
    for filesystem in ALL {
        for mebibytes in [64, 256, 512, 1024] {
            let total = mebibytes * MIB;
            assert!(runways(filesystem, total, total / 20).is_empty(), "{filesystem}, {mebibytes} MiB");
        }
    }
}
