//! What kinds of volumes the laboratory makes, and the tools that make and check each.

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
}

impl VolumeSpec {
    /// A file system as its mkfs makes it by default, `mebibytes` MiB large.
    #[must_use]
    pub fn of(kind: FileSystemKind, mebibytes: u64) -> Self {
        Self { kind, bytes: mebibytes << 20, mkfs: Vec::new(), mount: String::new() }
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

    /// With these mount options.
    #[must_use]
    pub fn mount(mut self, options: &str) -> Self {
        options.clone_into(&mut self.mount);
        self
    }
}
