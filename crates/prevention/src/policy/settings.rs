//! The settings that an administrator can choose for a volume, and their defaults.

use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// A share in whole per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u8);

impl Percent {
    /// That share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        let share = u128::from(whole.0) * u128::from(self.0.min(100)) / 100;
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

/// The settings of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Whether runways are granted at all.
    pub enabled: bool,
    /// The first runway of a file where the free space is not fragmented.
    pub first_runway: Bytes,
    /// The shortest runway that is worth its while: what is tried where the free space is in pieces.
    pub fragmented_runway: Bytes,
    /// No runway is longer, however much the file grows.
    pub longest_runway: Bytes,
    /// No runway is granted while less than this share of the volume is free …
    pub floor_share: Percent,
    /// … or less than this, whichever is smaller, because five percent of a large volume is more than is needed as a
    /// reserve.
    pub floor_bytes: Bytes,
    /// All unused runways and windows of a volume together hold at most this share of what is free above the floor,
    /// and one runway a sixteenth of that, or 16 MiB where that is more but no more than a quarter: they shrink as
    /// the volume fills, and end at the floor.
    ///
    /// This is also the most that others may have to do without in the worst case: many files got a runway, are kept
    /// open and are never written again. The runway of an open file cannot be taken back without racing with its
    /// writer. One such file holds less than 2.5 percent (on volumes with little free space 16 MiB, or a
    /// quarter of the share). One that is still written withholds nothing, since it fills its runway before it needs
    /// other space. A closed one gives everything back.
    pub held_share: Percent,
    /// Whether sparse files that are written at scattered places get windows (XFS and btrfs; never on ext4).
    pub sparse_windows: bool,
    /// The size of such a window, a power of two; windows lie at its multiples.
    pub sparse_window: Bytes,
    /// Files and directories that are left alone: absolute paths, in which `*` stands for anything but `/`, `**` for
    /// anything, `?` for one character. A pattern without `/` is compared with the name alone. A directory stands for all
    /// that lies below it.
    pub exclude: Vec<String>,
    /// Whether the results of files are remembered for later files of their kind.
    pub history: bool,
    /// A file that was last modified longer ago than this although it is being written has had its times set by hand.
    pub recent_ms: u64,
    /// Whether directories on XFS whose files keep fragmenting by direct writes get an inherited extent-size hint.
    pub xfs_hint: bool,
    /// After how many such files in a directory.
    pub xfs_hint_files: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            first_runway: Bytes(16 * MIB),
            fragmented_runway: Bytes(4 * MIB),
            longest_runway: Bytes(128 * MIB),
            floor_share: Percent(5),
            floor_bytes: Bytes(4096 * MIB),
            held_share: Percent(25),
            sparse_windows: true,
            sparse_window: Bytes(16 * MIB),
            exclude: Vec::new(),
            history: true,
            recent_ms: 10_000,
            xfs_hint: false,
            xfs_hint_files: 8,
        }
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A size is out of its bounds.
    #[error("{key} is {value} bytes; use {least} to {most} bytes")]
    Size {
        /// The key.
        key: &'static str,
        /// What was chosen.
        value: Bytes,
        /// The smallest that is allowed.
        least: Bytes,
        /// The largest that is allowed.
        most: Bytes,
    },
    /// A share is more than may be given away.
    #[error("{key} is {value} percent; use at most {most}")]
    Share {
        /// The key.
        key: &'static str,
        /// What was chosen.
        value: u8,
        /// The largest that is allowed.
        most: u8,
    },
    /// A time or a number is out of its bounds.
    #[error("{key} is {value}; use {least} to {most}")]
    Number {
        /// The key.
        key: &'static str,
        /// What was chosen.
        value: u64,
        /// The smallest that is allowed.
        least: u64,
        /// The largest that is allowed.
        most: u64,
    },
    /// The window is no power of two.
    #[error("sparse_window is {value} bytes; use a power of two, such as 16 MiB")]
    NotAPowerOfTwo {
        /// What was chosen.
        value: Bytes,
    },
    /// A pattern cannot match anything.
    #[error("the pattern {pattern} in exclude is {fault}; use an absolute path, or a name without slashes")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl Settings {
    /// Whether the settings make sense, all of them together.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), SettingsError> {
        size("fragmented_runway", self.fragmented_runway, Bytes(MIB), Bytes(64 * MIB))?;
        size("first_runway", self.first_runway, self.fragmented_runway, Bytes(1024 * MIB))?;
        size("longest_runway", self.longest_runway, self.first_runway, Bytes(1024 * MIB))?;
        size("sparse_window", self.sparse_window, Bytes(MIB), Bytes(256 * MIB))?;
        if !self.sparse_window.0.is_power_of_two() {
            return Err(SettingsError::NotAPowerOfTwo { value: self.sparse_window });
        }
        share("floor_share", self.floor_share, 90)?;
        share("held_share", self.held_share, 50)?;
        number("recent_ms", self.recent_ms, 1000, 600_000)?;
        number("xfs_hint_files", u64::from(self.xfs_hint_files), 2, 1_000_000)?;
        super::glob::Globs::new(&self.exclude).map(|_| ())
    }
}

fn size(key: &'static str, value: Bytes, least: Bytes, most: Bytes) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(SettingsError::Size { key, value, least, most }) }
}

fn share(key: &'static str, value: Percent, most: u8) -> Result<(), SettingsError> {
    if value.0 <= most { Ok(()) } else { Err(SettingsError::Share { key, value: value.0, most }) }
}

fn number(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(SettingsError::Number { key, value, least, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense_and_absurd_settings_are_refused_by_name() {
        assert_eq!(Settings::default().validate(), Ok(()));
        let refused = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        assert!(refused(|s| s.first_runway = Bytes(1)).starts_with("first_runway"));
        assert!(refused(|s| s.fragmented_runway = Bytes(u64::MAX)).starts_with("fragmented_runway"));
        assert!(refused(|s| s.longest_runway = Bytes(8 * MIB)).starts_with("longest_runway"));
        assert!(refused(|s| s.sparse_window = Bytes(12 * MIB)).contains("power of two"));
        assert!(refused(|s| s.held_share = Percent(51)).starts_with("held_share"));
        assert!(refused(|s| s.floor_share = Percent(101)).starts_with("floor_share"));
        assert!(refused(|s| s.recent_ms = 0).starts_with("recent_ms"));
        assert!(refused(|s| s.xfs_hint_files = 0).starts_with("xfs_hint_files"));
        assert!(refused(|s| s.exclude = vec!["a/b".to_owned()]).contains("a/b"));
    }

    #[test]
    fn unknown_keys_are_refused_and_missing_ones_are_the_defaults() {
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
        assert!(serde_json::from_str::<Settings>(r#"{"frist_runway":1}"#).is_err());
    }

    #[test]
    fn a_share_of_the_largest_number_is_right() {
        assert_eq!(Percent(100).of(Bytes(u64::MAX)), Bytes(u64::MAX));
        assert_eq!(Percent(255).of(Bytes(100)), Bytes(100));
        assert_eq!(Percent(25).of(Bytes(1001)), Bytes(250));
    }
}
