//! The policy, replayed on signals that the sensor recorded while nobody prevented anything: eight direct writers, others
//! that fragment, and those that do not.
//!
//! What a runway covers would not have been allocated, so its signals are passed over, and the crossing of the half is
//! told instead. Allocations until a decision takes effect count as not prevented.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use longrun_layout::Bytes;
use longrun_prevention::policy::{
    Attributes, Case, Decision, FileFacts, FileKind, Growth, History, Modified, Policy, Settings, SpaceFacts,
};
use longrun_prevention::{FileKey, Nanos, Signal, SignalKind};
use longrun_sys::FileSystem;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const GIB: u64 = 1 << 30;
const REACTION: u64 = 2_000_000;

#[derive(Default)]
struct File {
    growth: Growth,
    half: Option<u64>,
    covered: Vec<(u64, u64)>,
    /// The last preallocation that came too late for something takes effect then.
    since: u64,
}

#[derive(Debug, Default, PartialEq)]
struct Replay {
    allocations: u64,
    prevented: u64,
    decisions: Vec<(FileKey, Decision)>,
}

fn trace(name: &str) -> Vec<Signal> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

fn facts(filesystem: FileSystem, signal: &Signal) -> FileFacts {
    FileFacts {
        filesystem,
        path: Some("/data/file.dat".into()),
        kind: FileKind::new(Some(Path::new("/data/file.dat")), &signal.by),
        size: signal.size,
        allocated: signal.size,
        links: 1,
        executable: false,
        compressed: false,
        size_hint: false,
        limited: false,
        attributes: Attributes::default(),
        modified: Modified::Ago(Duration::from_millis(2)),
        fragments: None,
    }
}

fn replay(filesystem: FileSystem, signals: &[Signal]) -> Replay {
    let mut policy = Policy::new(Settings::default()).unwrap();
    let mut files: BTreeMap<FileKey, File> = BTreeMap::new();
    let mut replay = Replay::default();
    for signal in signals {
        let file = files.entry(signal.file).or_default();
        let (allocations, place) = match signal.kind {
            SignalKind::Fragmenting { allocations, end, .. } => (allocations, end.0 - 1),
            SignalKind::Scattered { allocations, at, .. } => (allocations, at.0),
            SignalKind::HalfUsed { .. } | SignalKind::InPieces | SignalKind::Closed => continue,
        };
        replay.allocations += u64::from(allocations);
        // The half was crossed on the way here.
        while let Some(half) = file.half.take_if(|half| place >= *half) {
            let kind = SignalKind::HalfUsed { end: Bytes(half) };
            let crossed = Signal { kind, size: Bytes(half), ..*signal };
            decide(&mut policy, filesystem, &crossed, file, &mut replay);
        }
        if file.covered.iter().any(|(start, end)| (*start..*end).contains(&place)) && signal.at.0 >= file.since {
            replay.prevented += u64::from(allocations);
        } else {
            decide(&mut policy, filesystem, signal, file, &mut replay);
        }
    }
    replay
}

fn decide(policy: &mut Policy, filesystem: FileSystem, signal: &Signal, file: &mut File, replay: &mut Replay) {
    file.growth.note(&signal.kind);
    let facts = facts(filesystem, signal);
    let space = SpaceFacts { total: Bytes(16 * GIB), free: Bytes(12 * GIB), held: Bytes(0) };
    let history = History::default();
    let case = Case { signal, file: &facts, growth: &file.growth, space, history: &history };
    let decision = policy.decide(&case);
    replay.decisions.push((signal.file, decision));
    let done = Nanos(signal.at.0 + REACTION);
    let range = match decision {
        Decision::Runway { range, arm_half } => {
            file.growth.granted_runway(range, 1, done);
            policy.granted(range.length, 1, done);
            file.half = Some(arm_half.0);
            range
        }
        Decision::Window { range } => {
            file.growth.granted_window(range, 1, done);
            range
        }
        Decision::Leave(_) => return,
    };
    file.covered.push((range.start.0, range.start.0 + range.length.0));
    if !matches!(signal.kind, SignalKind::HalfUsed { .. }) {
        file.since = done.0;
    }
}

fn share(replay: &Replay) -> f64 {
    100.0 * replay.prevented as f64 / replay.allocations as f64
}

#[test]
fn recorded_direct_writers_get_their_runway_at_the_first_signal() {
    for (name, filesystem) in [("xfs-direct", FileSystem::Xfs), ("btrfs-direct", FileSystem::Btrfs)] {
        let signals = trace(&format!("{name}.jsonl"));
        let replay = replay(filesystem, &signals);
        assert!(share(&replay) > 90.0, "{name}: {:.2} %", share(&replay));
        let mut seen = Vec::new();
        for (file, decision) in &replay.decisions {
            if !seen.contains(file) {
                seen.push(*file);
                assert!(
                    matches!(decision, Decision::Runway { range, .. } if (15..=16).contains(&(range.length.0 >> 20))),
                    "{name}: {decision:?}"
                );
            }
        }
        assert_eq!(seen.len(), 8, "{name}");
    }
}

#[test]
fn recorded_synchronous_writers_on_btrfs_are_kept_whole() {
    let replay = replay(FileSystem::Btrfs, &trace("btrfs-dsync.jsonl"));
    assert!(share(&replay) >= 90.0, "{:.2} %", share(&replay));
}

#[test]
fn recorded_scattered_writes_get_a_window_and_then_the_whole_of_a_small_file() {
    for (name, filesystem) in [("xfs-sparse", FileSystem::Xfs), ("btrfs-sparse", FileSystem::Btrfs)] {
        let signals = trace(&format!("{name}.jsonl"));
        let replay = replay(filesystem, &signals);
        assert!(share(&replay) >= 90.0, "{name}: {:.2} %", share(&replay));
        assert!(replay.decisions.iter().any(|(_, decision)| matches!(decision, Decision::Window { .. })));
    }
}

#[test]
fn recorded_writers_that_the_kernel_keeps_whole_are_left_alone() {
    for name in ["xfs-buffered", "btrfs-buffered", "ext4-buffered", "xfs-single", "btrfs-single", "ext4-single"] {
        let filesystem = FileSystem::from_name(name.split('-').next().unwrap()).unwrap();
        assert_eq!(replay(filesystem, &trace(&format!("{name}.jsonl"))).decisions, [], "{name}");
    }
}

#[test]
fn recorded_direct_writers_on_ext4_get_few_runways_and_long_ones() {
    let replay = replay(FileSystem::Ext4, &trace("ext4-direct.jsonl"));
    for (_, decision) in &replay.decisions {
        if let Decision::Runway { range, .. } = decision {
            assert!(range.length.0 >= 15 << 20, "{decision:?}");
        }
    }
}

#[test]
fn a_replay_repeats_itself() {
    let signals = trace("btrfs-dsync.jsonl");
    assert_eq!(replay(FileSystem::Btrfs, &signals), replay(FileSystem::Btrfs, &signals));
}
