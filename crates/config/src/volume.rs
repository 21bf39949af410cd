//! The settings of a volume. Each setting is defined once; from that follow its default and the change that a rule can
//! make.

use super::{Moment, PassMode, Percent, Window};
use longrun_governor::{Duty, MinProgress, Pace};
use longrun_layout::Bytes;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr;)+) => {
        /// The settings of one volume.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct VolumeSettings {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for VolumeSettings {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// The settings that a rule changes. Absent settings are not changed.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct VolumeChange {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)+
        }

        impl VolumeSettings {
            /// What each setting means, in sentences.
            pub const MEANINGS: &[(&'static str, &'static str)] = &[$((stringify!($name), concat!($($doc),+)),)+];
        }

        impl VolumeChange {
            /// `base` with these changes.
            #[must_use]
            pub fn applied_to(&self, base: VolumeSettings) -> VolumeSettings {
                VolumeSettings { $($name: self.$name.clone().unwrap_or(base.$name),)+ }
            }

            /// These changes, and those of `base` that they do not replace.
            #[must_use]
            pub fn over(self, base: Self) -> Self {
                Self { $($name: self.$name.or(base.$name),)+ }
            }
        }

        impl From<&VolumeSettings> for VolumeChange {
            fn from(all: &VolumeSettings) -> Self {
                Self { $($name: Some(all.$name.clone()),)+ }
            }
        }
    };
}

settings! {
    /// Whether the volume is watched at all.
    enabled: bool = true;
    /// Whether growing files get runways.
    prevention: bool = true;
    /// The first runway of a file where the free space is not fragmented.
    first_runway: Bytes = Bytes(16 * MIB);
    /// The first runway of a file where the free space is in pieces.
    fragmented_runway: Bytes = Bytes(4 * MIB);
    /// The longest runway.
    longest_runway: Bytes = Bytes(128 * MIB);
    /// Nothing is preallocated while less than this share of the volume is free, or less than `floor_bytes`, whichever is smaller.
    floor_share: Percent = Percent::of(5);
    /// Nothing is preallocated while less than this is free, or less than `floor_share`, whichever is smaller.
    floor_bytes: Bytes = Bytes(4 * GIB);
    /// All unused runways together hold at most this share of what is free above the floor.
    held_share: Percent = Percent::of(25);
    /// Whether sparse files that are written at scattered places get windows (XFS and btrfs).
    sparse_windows: bool = true;
    /// The size of a window of `sparse_windows`, a power of two.
    sparse_window: Bytes = Bytes(16 * MIB);
    /// Files and directories that are left alone.
    exclude: Vec<String> = Vec::new();
    /// Whether the results of files are remembered for later files of their kind.
    history: bool = true;
    /// Whether directories on XFS whose files keep fragmenting get an inherited extent-size hint.
    xfs_hint: bool = false;
    /// After how many such files in a directory `xfs_hint` gives it a hint.
    xfs_hint_files: u32 = 8;
    /// Whether files that fragmented in spite of prevention are mended.
    mending: bool = true;
    /// How much mending may write in a day; 0 is without bound.
    mending_budget: Bytes = Bytes(10 * GIB);
    /// How long a file must have been quiet before it is mended.
    mending_quiet: Duration = Duration::from_secs(5);
    /// How long at most a file waits that will probably be deleted or written again soon; 0 is not at all.
    mending_patience: Duration = Duration::from_secs(3600);
    /// When mending rests, and no scan is begun by itself.
    mending_rests: Vec<Window> = Vec::new();
    /// How much mending gives way to others who use the device.
    pace: Pace = Pace::Invisible;
    /// How much of the time mending takes at most.
    max_duty: Duty = Duty::ALL;
    /// How much of the time mending takes at least, even if others have to wait.
    min_progress: MinProgress = MinProgress::default();
    /// What scheduled passes do at most.
    pass: PassMode = PassMode::Off;
    /// When they may work.
    pass_windows: Vec<Window> = vec![Window::SATURDAY_NIGHT];
    /// How much they may write in a day (UTC); 0 is without bound.
    pass_budget: Bytes = Bytes(100 * GIB);
    /// How long one pass may work in total; 0 is without bound.
    pass_deadline: Duration = Duration::from_secs(86_400);
    /// How often the whole volume is read for its figures; 0 is never.
    scan_interval: Duration = Duration::from_secs(86_400);
    /// Volumes with more bytes than this are never read as a whole by themselves.
    scan_largest: Bytes = Bytes(16 << 40);
    /// Whether reads of the device are counted by file, for `longrun heat` and for placing files.
    heat: bool = true;
    /// The storage that the volume shares with other hosts, by a name that all of them use; found by itself when empty.
    storage_group: String = String::new();
    /// By how much at most windows of `pass_windows` begin later, so that not all hosts of a storage group begin together.
    window_spread: Duration = Duration::ZERO;
}

impl VolumeSettings {
    /// Whether `now` lies in a window of rest.
    #[must_use]
    pub fn rests(&self, now: Moment) -> bool {
        self.mending_rests.iter().any(|window| window.contains(now))
    }

    /// The part that is the policy's.
    #[must_use]
    pub fn policy(&self) -> longrun_prevention::policy::Settings {
        use longrun_prevention::policy;
        policy::Settings {
            enabled: self.prevention,
            first_runway: self.first_runway,
            fragmented_runway: self.fragmented_runway,
            longest_runway: self.longest_runway,
            floor_share: policy::Percent(self.floor_share.get()),
            floor_bytes: self.floor_bytes,
            held_share: policy::Percent(self.held_share.get()),
            sparse_windows: self.sparse_windows,
            sparse_window: self.sparse_window,
            exclude: self.exclude.clone(),
            history: self.history,
            xfs_hint: self.xfs_hint,
            xfs_hint_files: self.xfs_hint_files,
            ..policy::Settings::default()
        }
    }
}
