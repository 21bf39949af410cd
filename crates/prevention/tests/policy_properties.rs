//! What the policy never does, whatever it is told.
#![allow(missing_docs, clippy::unwrap_used)]

use longrun_layout::Bytes;
use longrun_prevention::policy::{
    Attributes, Case, Decision, Ended, FileFacts, FileKind, Growth, History, Modified, Pattern, Percent, Policy,
    Settings, SpaceFacts, SpaceHealth, Stretch, StretchState, give_back,
};
use longrun_prevention::{FileKey, Nanos, NoRunway, ProcessName, Signal, SignalKind};
use longrun_sys::FileSystem;
use longrun_sys::{ByteRange, DeviceNumber, FileHandle};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Numbers of every magnitude, the extremes included.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(i64::MAX as u64), (0_u32..64, any::<u64>()).prop_map(|(by, n)| n >> by)]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    number().prop_map(Bytes)
}

fn filesystem() -> impl Strategy<Value = FileSystem> {
    prop_oneof![Just(FileSystem::Ext4), Just(FileSystem::Xfs), Just(FileSystem::Btrfs)]
}

fn kind() -> impl Strategy<Value = SignalKind> {
    prop_oneof![
        (any::<u32>(), bytes(), bytes()).prop_map(|(allocations, bytes, end)| SignalKind::Fragmenting {
            allocations,
            bytes,
            end
        }),
        (bytes(), any::<u32>(), bytes()).prop_map(|(at, allocations, bytes)| SignalKind::Scattered {
            at,
            allocations,
            bytes
        }),
        bytes().prop_map(|end| SignalKind::HalfUsed { end }),
        Just(SignalKind::Closed),
    ]
}

fn signal() -> impl Strategy<Value = Signal> {
    (number(), bytes(), kind()).prop_map(|(at, size, kind)| {
        let handle = FileHandle::new(1, &[1; 8]).unwrap();
        let file = FileKey { volume: DeviceNumber { major: 8, minor: 1 }, handle };
        Signal { at: Nanos(at), file, size, by: ProcessName::default(), kind }
    })
}

fn facts() -> impl Strategy<Value = FileFacts> {
    let size = prop_oneof![bytes(), (0..1_u64 << 40).prop_map(Bytes)];
    (filesystem(), size, bytes()).prop_map(|(filesystem, size, allocated)| FileFacts {
        filesystem,
        path: None,
        kind: FileKind { directory: "/d".into(), extension: "e".into(), process: "p".into() },
        size,
        allocated,
        links: 1,
        executable: false,
        compressed: false,
        size_hint: false,
        limited: false,
        attributes: Attributes::default(),
        modified: Modified::Ago(Duration::ZERO),
        fragments: None,
    })
}

fn space() -> impl Strategy<Value = SpaceFacts> {
    let realistic = (0..1_u64 << 44, 0..=100_u64, 0..=10_u64).prop_map(|(total, free, held)| {
        let free = total / 100 * free;
        SpaceFacts { total: Bytes(total), free: Bytes(free), held: Bytes(free / 100 * held) }
    });
    let any = (bytes(), bytes(), bytes()).prop_map(|(total, free, held)| SpaceFacts { total, free, held });
    prop_oneof![any, realistic]
}

fn range() -> impl Strategy<Value = ByteRange> {
    (bytes(), bytes()).prop_map(|(start, length)| ByteRange { start, length })
}

/// A growth with a past, a policy that has seen grants, and a history.
#[derive(Clone, Debug)]
struct Past {
    growth: Growth,
    policy: Policy,
    history: History,
}

fn past() -> impl Strategy<Value = Past> {
    let grants = prop::collection::vec((any::<bool>(), range(), any::<u32>(), number()), 0..6);
    let ended = prop::collection::vec((bytes(), any::<bool>()), 0..6);
    (prop::collection::vec(kind(), 0..4), grants, ended).prop_map(|(signals, grants, ended)| {
        let mut past = Past {
            growth: Growth::default(),
            policy: Policy::new(Settings::default()).unwrap(),
            history: History::default(),
        };
        signals.iter().for_each(|signal| past.growth.note(signal));
        for (window, range, pieces, at) in grants {
            if window {
                past.growth.granted_window(range, pieces, Nanos(at));
            } else {
                past.growth.granted_runway(range, pieces, Nanos(at));
            }
            past.policy.granted(range.length, pieces, Nanos(at));
        }
        for (size, scattered) in ended {
            let pattern = if scattered { Pattern::Scattered } else { Pattern::Appended };
            let kind = FileKind { directory: "/d".into(), extension: "e".into(), process: "p".into() };
            past.history.learn(&Ended { kind, size, pattern });
        }
        past
    })
}

fn decide(past: &Past, signal: &Signal, file: &FileFacts, space: SpaceFacts) -> Decision {
    past.policy.decide(&Case { signal, file, growth: &past.growth, space, history: &past.history })
}

fn granted(decision: Decision) -> Option<ByteRange> {
    match decision {
        Decision::Runway { range, .. } | Decision::Window { range } => Some(range),
        Decision::Leave(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bounds_hold_whatever_comes(past in past(), signal in signal(), file in facts(), space in space()) {
        let decision = decide(&past, &signal, &file, space);
        prop_assert_eq!(decision, decide(&past, &signal, &file, space));
        let Some(range) = granted(decision) else { return Ok(()) };
        let settings = past.policy.settings();
        let floor = Percent(5).of(space.total).min(settings.floor_bytes);
        let end = range.start.0.checked_add(range.length.0).unwrap();
        prop_assert!(range.length.0 > 0 && i64::try_from(end).is_ok());
        prop_assert!(range.length.0 <= settings.longest_runway.0);
        // The free space stays above the floor, and all runways together below their share.
        prop_assert!(space.free.0 - range.length.0 >= floor.0);
        let share = u128::from(settings.held_share.0);
        let without = u128::from(space.free.0) + u128::from(space.held.0) - u128::from(floor.0);
        prop_assert!((u128::from(space.held.0) + u128::from(range.length.0)) * 100 <= without * share);
        match decision {
            Decision::Runway { range, arm_half } => {
                prop_assert!(range.start >= file.size, "a runway lies behind the end");
                prop_assert!(range.length.0 >= MIB / 2);
                prop_assert!(arm_half >= range.start && arm_half.0 <= end);
            }
            Decision::Window { range } => {
                prop_assert!(file.filesystem != FileSystem::Ext4);
                prop_assert!(end <= file.size.0, "a window lies within the file");
                prop_assert_eq!(range.start.0 % settings.sparse_window.0, 0);
            }
            Decision::Leave(_) => {}
        }
    }

    #[test]
    fn more_free_space_never_makes_a_runway_shorter(
        signal in signal(), file in facts(), space in space(), more in number(),
    ) {
        let mut past = Past {
            growth: Growth::default(),
            policy: Policy::new(Settings::default()).unwrap(),
            history: History::default(),
        };
        past.growth.note(&signal.kind);
        let roomier = SpaceFacts { free: Bytes(space.free.0.saturating_add(more)), ..space };
        prop_assert!(past.policy.room(roomier) >= past.policy.room(space));
        for small in [false, true] {
            prop_assert!(past.policy.room_for_window(roomier, small) >= past.policy.room_for_window(space, small));
        }
        let length = |space| granted(decide(&past, &signal, &file, space)).map_or(0, |range| range.length.0);
        // Ends lie at whole MiB.
        prop_assert!(length(roomier) + MIB >= length(space));
    }

    #[test]
    fn what_must_not_be_touched_is_not(past in past(), signal in signal(), file in facts(), space in space(), which in 0..9) {
        let size = file.size.min(Bytes(i64::MAX as u64));
        let mut file = FileFacts { filesystem: FileSystem::Btrfs, size, ..file };
        let reason = match which {
            0 => { file.compressed = true; NoRunway::Compressed }
            1 => { file.executable = true; NoRunway::Executable }
            2 => { file.size_hint = true; NoRunway::SizeHint }
            3 => { file.attributes.fixed = true; NoRunway::Attributes }
            4 => { file.attributes.sealed = true; NoRunway::Attributes }
            5 => { file.attributes.swap = true; NoRunway::Attributes }
            6 => { file.modified = Modified::Ago(Duration::from_secs(11)); NoRunway::TimesSet }
            7 => { file.modified = Modified::Ahead(Duration::from_secs(2)); NoRunway::TimesSet }
            _ => { file.links = 0; NoRunway::Gone }
        };
        prop_assert_eq!(decide(&past, &signal, &file, space), Decision::Leave(reason));
    }

    #[test]
    fn what_is_prevented_is_never_more_than_the_pieces_that_would_have_been(past in past(), used in bytes()) {
        let prevented = past.growth.prevented(used).0;
        prop_assert!(prevented <= used.0 / 4096);
        prop_assert_eq!(past.growth.prevented(Bytes(0)).0, 0);
    }

    #[test]
    fn names_of_any_bytes_make_kinds_that_are_short_and_printable(
        name in prop::collection::vec(any::<u8>(), 0..5000), process in any::<[u8; 16]>(),
    ) {
        let kind = FileKind::new(Some(Path::new(OsStr::from_bytes(&name))), &ProcessName(process));
        for part in [&kind.directory, &kind.extension, &kind.process] {
            prop_assert!(part.len() <= 220);
            prop_assert!(!part.chars().any(char::is_control));
        }
        let mut history = History::default();
        history.learn(&Ended { kind: kind.clone(), size: Bytes(1), pattern: Pattern::Appended });
        let (read, reason) = History::from_json(&history.to_json());
        prop_assert_eq!((read, reason), (history, None));
    }

    #[test]
    fn a_damaged_history_is_an_empty_one_with_a_reason(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut history = History::default();
        let kind = FileKind { directory: "/d".into(), extension: "e".into(), process: "p".into() };
        history.learn(&Ended { kind, size: Bytes(64 * MIB), pattern: Pattern::Appended });
        let saved = history.to_json();
        let mut damaged = saved.clone();
        let at = at.index(damaged.len());
        damaged[at] = byte;
        let (read, reason) = History::from_json(&damaged);
        prop_assert!(reason.is_none() || read.is_empty());
        let (read, reason) = History::from_json(&saved[..at]);
        prop_assert!(read.is_empty() && reason.is_some());
    }

    #[test]
    fn settings_survive_being_written_and_read(share in 0_u8..=50, cap in 16_u64..=1024, exclude in "/[a-z*?/]{0,20}") {
        let settings = Settings {
            held_share: Percent(share),
            longest_runway: Bytes(cap * MIB),
            exclude: vec![exclude],
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        prop_assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings.clone());
        prop_assert!(Policy::new(settings).is_ok());
    }

    #[test]
    fn only_what_is_ours_and_unwritten_goes_back(lengths in prop::collection::vec((0_u64..12 * MIB, 0_usize..4), 0..40)) {
        let mut at = 0;
        let mut stretches = Vec::new();
        for (length, state) in lengths {
            let state = [StretchState::Written, StretchState::Ours, StretchState::Theirs, StretchState::Hole][state];
            stretches.push(Stretch { range: ByteRange { start: Bytes(at), length: Bytes(length) }, state });
            at += length;
        }
        let back = give_back(&stretches);
        for range in &back {
            let ours = stretches.contains(&Stretch { range: *range, state: StretchState::Ours });
            prop_assert!(ours, "what is not ours");
            prop_assert!(range.length.0 >= MIB);
        }
        prop_assert!(back.windows(2).all(|pair| pair[0].start < pair[1].start));
        // What stays is never much more than what is written.
        let sum = |state| stretches.iter().filter(|s| s.state == state).map(|s| s.range.length.0).sum::<u64>();
        let kept = sum(StretchState::Ours) - back.iter().map(|range| range.length.0).sum::<u64>();
        let crumbs = stretches.len() as u64 * MIB;
        prop_assert!(kept <= sum(StretchState::Written) + crumbs);
    }

    #[test]
    fn the_health_of_the_space_chooses_within_bounds(
        grants in prop::collection::vec((bytes(), any::<u32>(), number()), 0..40),
        wanted in bytes(), least in bytes(), now in number(),
    ) {
        let mut health = SpaceHealth::default();
        grants.iter().for_each(|(length, pieces, at)| health.learn(*length, *pieces, Nanos(*at)));
        let (length, piece) = health.choose(wanted, least, Nanos(now));
        prop_assert!(length <= wanted && (length >= least || length == wanted));
        prop_assert!(piece <= length);
        let text = serde_json::to_string(&health).unwrap();
        prop_assert_eq!(serde_json::from_str::<SpaceHealth>(&text).unwrap(), health);
    }
}
