//! The kinds of volumes that the laboratory makes, and the tools that make and check them.

/// The file systems that the laboratory makes volumes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileSystemKind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FileSystemKind {
    /// All of them, for tests that hold for each.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The kernel's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The tool that makes one, and what keeps it from asking or talking.
    pub(crate) fn maker(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Ext4 => ("mkfs.ext4", ["-q", "-F"]),
            Self::Xfs => ("mkfs.xfs", ["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", ["-q", "-f"]),
        }
    }

    /// The tool that checks an unmounted one without writing to it.
    pub(crate) fn checker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => ("e2fsck", &["-f", "-n"]),
            Self::Xfs => ("xfs_repair", &["-n"]),
            Self::Btrfs => ("btrfs", &["check", "--readonly"]),
        }
    }
}

/// Whether the device below a volume says that it rotates (`queue/rotational`). File systems look at that when they
/// are mounted, and allocate otherwise on what does not: ext4 no longer searches near the goal first, btrfs mounts
/// with `ssd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    /// A hard disk.
    Rotating,
    /// An SSD, NVMe, most cloud disks.
    SolidState,
}

impl Medium {
    /// Both of them, for tests that hold for each.
    pub const ALL: [Self; 2] = [Self::Rotating, Self::SolidState];
    /// Names the medium of every volume for which a test does not choose one.
    pub const VARIABLE: &str = "LONGRUN_LAB_MEDIUM";

    /// The medium of this run: `solid-state` where [`Self::VARIABLE`] says so, else rotating.
    ///
    /// # Panics
    /// When the variable says something else: a misspelt run would prove nothing.
    #[must_use]
    pub fn of_this_run() -> Self {
        match std::env::var(Self::VARIABLE).as_deref() {
            Err(_) | Ok("") => Self::Rotating,
            Ok(name) if name == Self::Rotating.name() => Self::Rotating,
            Ok(name) if name == Self::SolidState.name() => Self::SolidState,
            Ok(other) => unreachable!("{} is {other:?}; it can be rotating or solid-state", Self::VARIABLE),
        }
    }

    /// As users type it and reports name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotating => "rotating",
            Self::SolidState => "solid-state",
        }
    }

    /// The text of `queue/rotational`.
    pub(crate) const fn rotational(self) -> &'static str {
        match self {
            Self::Rotating => "1",
            Self::SolidState => "0",
        }
    }
}

/// What kind of volume to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its file system.
    pub kind: FileSystemKind,
    /// Size of the image in bytes.
    pub bytes: u64,
    /// Arguments for mkfs, the device excepted.
    pub mkfs: Vec<String>,
    /// Mount options; empty for the defaults.
    pub mount: String,
    /// What its device says of itself.
    pub medium: Medium,
}

impl VolumeSpec {
    /// A file system as its mkfs makes it by default, `mebibytes` MiB large.
    #[must_use]
    pub fn of(kind: FileSystemKind, mebibytes: u64) -> Self {
        Self { kind, bytes: mebibytes << 20, mkfs: Vec::new(), mount: String::new(), medium: Medium::of_this_run() }
    }

    /// ext4.
    #[must_use]
    pub fn ext4(mebibytes: u64) -> Self {
        Self::of(FileSystemKind::Ext4, mebibytes)
    }

    /// XFS; its mkfs wants at least 300 MiB.
    #[must_use]
    pub fn xfs(mebibytes: u64) -> Self {
        Self::of(FileSystemKind::Xfs, mebibytes)
    }

    /// btrfs; its mkfs wants at least 110 MiB.
    #[must_use]
    pub fn btrfs(mebibytes: u64) -> Self {
        Self::of(FileSystemKind::Btrfs, mebibytes)
    }

    /// With these mkfs arguments.
    #[must_use]
    pub fn mkfs(mut self, arguments: &[&str]) -> Self {
        self.mkfs = arguments.iter().map(ToString::to_string).collect();
        self
    }

    /// On a device that says this of itself.
    #[must_use]
    pub const fn on(mut self, medium: Medium) -> Self {
        self.medium = medium;
        self
    }

    /// With these mount options.
    #[must_use]
    pub fn mount(mut self, options: &str) -> Self {
        options.clone_into(&mut self.mount);
        self
    }
}
