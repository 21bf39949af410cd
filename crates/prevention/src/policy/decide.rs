//! The decision: from a signal and the facts to a runway, or to the reason against it.

use super::glob::Globs;
use super::{
    Expectation, FileFacts, Growth, History, Modified, Pattern, Settings, SettingsError, SpaceFacts, SpaceHealth,
};
use crate::{Nanos, NoRunway, Signal, SignalKind};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use longrun_sys::FileSystem;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// On ext4, which keeps most files in few pieces by itself, nothing shorter helps: measured, 4 MiB made it worse.
const EXT4_LEAST: u64 = 16 * MIB;
/// On ext4 it takes so many pieces to prove that a file fragments.
const EXT4_EVIDENCE: u64 = 4;
/// From so many files on, a kind that stays small gets shorter runways than an unknown one.
const SMALL_EVIDENCE: u64 = 3;
/// A runway is longer by so much than what the file is expected to need.
const SLACK: u64 = 4 * MIB;
/// A sparse file of so many windows is small.
const SMALL_WINDOWS: u64 = 8;
/// One file gets at most one part in this many of the rest of the share, so that hundreds of files that fragment at
/// the same time all get a runway …
const PART_OF_SHARE: u64 = 16;
/// … but this larger part as long as that is at most one useful runway: otherwise small volumes, whose share is small,
/// would get none.
const PART_OF_SMALL_SHARE: u64 = 4;
/// On ext4 a runway that helps need be no longer than such a part of the volume, whose groups are as small as it is …
const PART_OF_EXT4: u64 = 32;
/// … but no shorter.
const EXT4_SHORTEST: u64 = 4 * MIB;

/// The policy of one volume: its settings, and what was learned about its free space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    settings: Settings,
    excluded: Globs,
    health: SpaceHealth,
}

/// All facts that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What was noticed; its time is the time of the decision.
    pub signal: &'a Signal,
    /// The file.
    pub file: &'a FileFacts,
    /// Its growth, with this signal noted already ([`Growth::note`]).
    pub growth: &'a Growth,
    /// The volume's space.
    pub space: SpaceFacts,
    /// What became of files like it.
    pub history: &'a History,
}

/// What to do about a fragmenting file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Preallocate `range` without changing the file's length.
    Runway {
        /// From the end of the file, or of its last runway.
        range: ByteRange,
        /// Ask for the next one when the file is written up to here.
        arm_half: Bytes,
    },
    /// Preallocate what are holes in `range`, which lies inside the file. Map it first: what is allocated there already
    /// is not ours to give back.
    Window {
        /// The window.
        range: ByteRange,
    },
    /// Leave the file alone.
    Leave(NoRunway),
}

impl Policy {
    /// A policy by `settings`.
    ///
    /// # Errors
    /// When they are invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        let excluded = Globs::new(&settings.exclude)?;
        Ok(Self { settings, excluded, health: SpaceHealth::default() })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The same volume under other settings: what was learned stays.
    ///
    /// # Errors
    /// If they are invalid; nothing has changed then.
    pub fn change(&mut self, settings: Settings) -> Result<(), SettingsError> {
        let health = self.health.clone();
        *self = Self { health, ..Self::new(settings)? };
        Ok(())
    }

    /// What was learned about the free space.
    #[must_use]
    pub fn health(&self) -> &SpaceHealth {
        &self.health
    }

    /// A runway of `length` bytes was granted in `pieces`: call it for each, and for windows that were holes throughout.
    pub fn granted(&mut self, length: Bytes, pieces: u32, now: Nanos) {
        self.health.learn(length, pieces, now);
    }

    /// What to do about a signal.
    #[must_use]
    pub fn decide(&self, case: &Case<'_>) -> Decision {
        if let Some(reason) = self.forbidden(case.file) {
            return Decision::Leave(reason);
        }
        let decided = match case.signal.kind {
            SignalKind::Fragmenting { end, .. } | SignalKind::HalfUsed { end } => self.runway(case, end),
            SignalKind::Scattered { at, .. } => self.window(case, at),
            SignalKind::InPieces | SignalKind::Closed => Err(NoRunway::KeptWhole),
        };
        decided.unwrap_or_else(Decision::Leave)
    }

    /// Whether the free space is below the floor: nothing is granted, and what can be taken back should be.
    #[must_use]
    pub fn is_short(&self, space: SpaceFacts) -> bool {
        space.free <= self.floor(space)
    }

    /// Whether the floor is near, or would be without the space that runways hold. Runways of closed files are then
    /// given back at once, so that a process that fills the volume finds this space free before it needs it.
    #[must_use]
    pub fn is_tight(&self, space: SpaceFacts) -> bool {
        space.free <= self.tight_below(space)
    }

    /// Below so much free space [`Self::is_tight`] holds: giving back takes time, in which another process may
    /// preallocate as much again as is held.
    #[must_use]
    pub fn tight_below(&self, space: SpaceFacts) -> Bytes {
        Bytes(self.floor(space).0.saturating_mul(2).saturating_add(space.held.0.saturating_mul(3)))
    }

    /// The most that one runway may have now.
    #[must_use]
    pub fn room(&self, space: SpaceFacts) -> Bytes {
        let left = self.share(space).saturating_sub(space.held);
        // The first few only: of hundreds on a large volume each is to get something.
        let few = space.held.0 < PART_OF_SMALL_SHARE * EXT4_LEAST;
        let small = if few { (left.0 / PART_OF_SMALL_SHARE).min(EXT4_LEAST) } else { 0 };
        let part = (left.0 / PART_OF_SHARE).max(small);
        Bytes(part).min(space.free.saturating_sub(self.floor(space)))
    }

    /// What all runways and windows may hold together: a share of what would be free without them, above the floor.
    fn share(&self, space: SpaceFacts) -> Bytes {
        if self.is_short(space) {
            return Bytes(0);
        }
        let without_us = Bytes(space.free.0.saturating_add(space.held.0));
        self.settings.held_share.of(without_us.saturating_sub(self.floor(space)))
    }

    /// The most that one window may have now, in a file that is small enough to be written all over soon, or in another:
    /// such files may stay sparse and open for months, and get only a part of what runways may hold.
    #[must_use]
    pub fn room_for_window(&self, space: SpaceFacts, small: bool) -> Bytes {
        let share = self.share(space);
        let most = if small { share } else { Bytes(share.0 / 5 * 2) };
        Bytes(most.saturating_sub(space.held).0.min(share.0 / 4)).min(space.free.saturating_sub(self.floor(space)))
    }

    fn floor(&self, space: SpaceFacts) -> Bytes {
        self.settings.floor_share.of(space.total).min(self.settings.floor_bytes)
    }

    fn forbidden(&self, file: &FileFacts) -> Option<NoRunway> {
        // Through an XFS handle a preallocation changes no times; elsewhere it would undo what another process set.
        let times_matter = file.filesystem != FileSystem::Xfs;
        let times_set = match file.modified {
            Modified::Ago(age) => age > Duration::from_millis(self.settings.recent_ms),
            Modified::Ahead(by) => by > Duration::from_secs(1),
        };
        let excluded = !self.settings.enabled || file.path.as_deref().is_some_and(|path| self.excluded.matches(path));
        [
            (i64::try_from(file.size.0).is_err(), NoRunway::Refused),
            (excluded, NoRunway::Excluded),
            (file.links == 0, NoRunway::Gone),
            (file.compressed, NoRunway::Compressed),
            (file.attributes.forbid(), NoRunway::Attributes),
            (file.executable, NoRunway::Executable),
            (file.size_hint, NoRunway::SizeHint),
            (file.limited, NoRunway::Quota),
            (times_matter && times_set, NoRunway::TimesSet),
        ]
        .into_iter()
        .find_map(|(forbids, reason)| forbids.then_some(reason))
    }

    fn runway(&self, case: &Case<'_>, end: Bytes) -> Result<Decision, NoRunway> {
        let Case { file, growth, signal, .. } = case;
        let ext4 = file.filesystem == FileSystem::Ext4;
        let start = file.size.max(signal.size).max(end);
        let start = match signal.kind {
            SignalKind::HalfUsed { .. } => start.max(growth.runway_end()),
            // An older signal about what the runway covers by now. A younger one proves that the runway is not there any more:
            // the file was shortened meanwhile.
            _ if signal.at <= growth.last_at() && start < growth.runway_end() => return Err(NoRunway::HasRunway),
            _ if ext4 && growth.grants() == 0 && !self.is_proven(case) => return Err(NoRunway::KeptWhole),
            _ => start,
        };
        let wanted = self.wanted(case, start);
        let least = if ext4 { ext4_least(case.space).min(wanted) } else { self.settings.fragmented_runway };
        let (length, piece) = self.health.choose(wanted.min(self.room(case.space)), least, signal.at);
        if length < Bytes(MIB) || (ext4 && length < least) {
            return Err(NoRunway::LowSpace);
        }
        if !self.is_worth_it(case, piece) {
            return Err(NoRunway::ScatteredSpace);
        }
        let stop = start.0.checked_add(length.0).filter(|stop| i64::try_from(*stop).is_ok());
        let stop = stop.ok_or(NoRunway::Refused)?;
        // Ends lie at whole MiB, so that what follows is not cut at odd places.
        let whole = stop / MIB * MIB;
        let stop = if whole > start.0 && whole - start.0 >= length.0 / 2 { whole } else { stop };
        let range = ByteRange { start, length: Bytes(stop - start.0) };
        let half = start.0 + range.length.0 / 2;
        // When the runway covers what is expected, the next one is wanted only if the file becomes larger than that.
        let expected = self.expected(case).map_or(0, |expected| expected.size.0);
        let arm_half = if expected <= stop.saturating_sub(MIB) { Bytes(half.max(expected)) } else { Bytes(half) };
        Ok(Decision::Runway { range, arm_half })
    }

    /// ext4 keeps most files whole by itself: it takes more pieces, or that files like it have fragmented before.
    fn is_proven(&self, case: &Case<'_>) -> bool {
        case.growth.alone().count >= EXT4_EVIDENCE || self.expected(case).is_some()
    }

    /// Pieces of a runway that are hardly longer than the file's own would not help it, and cost others their free space.
    fn is_worth_it(&self, case: &Case<'_>, piece: Bytes) -> bool {
        let quarters = if case.file.filesystem == FileSystem::Ext4 { 12 } else { 5 };
        case.growth.mean_alone().is_none_or(|mean| piece.0 / quarters >= mean.0 / 4)
    }

    fn expected(&self, case: &Case<'_>) -> Option<Expectation> {
        self.settings.history.then(|| case.history.expect(&case.file.kind)).flatten()
    }

    /// How much the file should get, were there space without end.
    fn wanted(&self, case: &Case<'_>, start: Bytes) -> Bytes {
        let Settings { first_runway, longest_runway, .. } = &self.settings;
        let usual = match case.growth.last_length() {
            Bytes(0) => *first_runway,
            last => Bytes(last.0.saturating_mul(2)).max(*first_runway),
        };
        let learned = self.expected(case).and_then(|expected| {
            let missing = expected.size.saturating_sub(start);
            // And some more, to have time when it becomes larger.
            let whole = missing.0.div_ceil(MIB).saturating_mul(MIB);
            let enough = Bytes(whole.saturating_add((whole / 8).clamp(MIB, SLACK)));
            match missing {
                Bytes(0) => None,
                _ if enough >= usual => Some(enough),
                _ => (expected.files >= SMALL_EVIDENCE).then_some(enough),
            }
        });
        // A snapshot holds all of a runway for as long as it lives, and makes it useless: on btrfs an unknown file gets no more
        // than it has written.
        let usual = if case.file.filesystem == FileSystem::Btrfs { usual.min(start.max(*first_runway)) } else { usual };
        learned.unwrap_or(usual).min(*longest_runway)
    }

    fn window(&self, case: &Case<'_>, at: Bytes) -> Result<Decision, NoRunway> {
        let Case { file, growth, signal, .. } = case;
        let window = self.settings.sparse_window;
        if file.filesystem == FileSystem::Ext4 {
            return Err(NoRunway::KeptWhole);
        }
        if !self.settings.sparse_windows {
            return Err(NoRunway::Excluded);
        }
        if growth.has_window_at(at) || at >= file.size || !growth.has_room_for_windows() {
            return Err(NoRunway::HasRunway);
        }
        if !self.is_worth_it(case, self.health.expected_piece(window, signal.at)) {
            return Err(NoRunway::ScatteredSpace);
        }
        // A small file that goes on, or whose like were written all over, is likely to be written all over.
        let small = file.size.0 <= window.0.saturating_mul(SMALL_WINDOWS);
        let known = self.expected(case).is_some_and(|expected| expected.pattern == Pattern::Scattered);
        let wanted = if small && (known || growth.windows() > 0) { file.size } else { window };
        let room = self.room_for_window(case.space, small);
        let around = |window: u64| {
            let start = Bytes(at.0 & !(window - 1));
            ByteRange { start, length: file.size.saturating_sub(start).min(Bytes(window)) }
        };
        let longest = wanted.0.checked_next_power_of_two().unwrap_or(window.0);
        let mut range = around(longest.max(window.0));
        let mut halves = longest;
        while range.length > room && halves > window.0 {
            halves /= 2;
            range = around(halves);
        }
        if range.length > room { Err(NoRunway::LowSpace) } else { Ok(Decision::Window { range }) }
    }
}

/// The shortest runway that helps on ext4.
fn ext4_least(space: SpaceFacts) -> Bytes {
    Bytes((space.total.0 / PART_OF_EXT4).clamp(EXT4_SHORTEST, EXT4_LEAST) / MIB * MIB)
}
