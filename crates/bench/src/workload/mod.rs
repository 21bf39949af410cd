//! Work for a file system, by profiles: the same seed does the same work.
//!
//! Owns the profiles, their common parts, and the space that they need. Never measures, and writes only below the
//! directory that it is given.

mod buffered;
mod compile;
mod direct;
mod dsync;
mod logs;
mod office;
mod paced;
mod short;
mod single;
mod slow;
mod sparse;
mod sqlite;
mod writer;

pub use paced::{Rate, paced};

use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A way of writing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Several files grow at once by direct writes of 64 KiB, as of databases, virtual disks and backups.
    Direct,
    /// Several files grow at once by writes of 64 KiB of which each is made durable (O_DSYNC).
    Dsync,
    /// Many files grow by turns and little by little, made durable after each piece.
    SlowAppend,
    /// Documents are created, rewritten, saved by renaming, and appended to.
    Office,
    /// Files full of holes are filled at random places by direct writes of 64 KiB, as virtual disks are.
    Sparse,
    /// Many logs grow by lines, made durable now and then.
    Logs,
    /// Programs are written piece by piece, each made durable, beside a map of theirs, and executed at once, as
    /// installers do it at worst.
    Install,
    /// Control: several files grow at once by buffered writes. The kernel keeps these whole by itself.
    Buffered,
    /// Control: one file after another grows by direct writes, undisturbed.
    Single,
    /// Control: thousands of files of 20 KB, each written in one go.
    Short,
    /// Control: many small files are written and read back, and programs are linked from them and executed at once.
    Compile,
    /// Control: SQLite databases with a write-ahead log.
    Sqlite,
}

impl Profile {
    /// Where prevention is meant to show.
    pub const GROWING: [Self; 7] =
        [Self::Direct, Self::Dsync, Self::SlowAppend, Self::Office, Self::Sparse, Self::Logs, Self::Install];
    /// Where it is meant not to be noticed.
    pub const CONTROLS: [Self; 5] = [Self::Buffered, Self::Single, Self::Short, Self::Compile, Self::Sqlite];
    /// All profiles.
    pub const ALL: [Self; 12] = [
        Self::Direct,
        Self::Dsync,
        Self::SlowAppend,
        Self::Office,
        Self::Sparse,
        Self::Logs,
        Self::Install,
        Self::Buffered,
        Self::Single,
        Self::Short,
        Self::Compile,
        Self::Sqlite,
    ];

    /// What the user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Dsync => "dsync",
            Self::SlowAppend => "slow-append",
            Self::Office => "office",
            Self::Sparse => "sparse",
            Self::Logs => "logs",
            Self::Install => "install",
            Self::Buffered => "buffered",
            Self::Single => "single",
            Self::Short => "short",
            Self::Compile => "compile",
            Self::Sqlite => "sqlite",
        }
    }

    /// Whether the service is meant to make no difference.
    #[must_use]
    pub fn is_control(self) -> bool {
        Self::CONTROLS.contains(&self)
    }

    /// The most that the files of the profile occupy at a time, without any runway.
    #[must_use]
    pub fn space_needed(self, parameters: &Parameters) -> Bytes {
        let all = parameters.total().0;
        Bytes(match self {
            Self::SlowAppend | Self::Logs | Self::Short => all / 2 + (64 << 20),
            Self::Office => all + (64 << 20),
            // The log and the temporary copies of a checkpoint.
            Self::Sqlite | Self::Compile | Self::Install => all / 2 + (128 << 20),
            Self::Direct | Self::Dsync | Self::Sparse | Self::Buffered | Self::Single => all + all / 64,
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No profile has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a profile")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

/// How much work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How many write at the same time.
    pub writers: u32,
    /// How large the file of each becomes; profiles with other sizes scale with it.
    pub bytes: Bytes,
    /// The same seed does the same work.
    pub seed: u64,
    /// How long a writer rests after each write, as one who waits for a slower device or for what there is to write.
    #[serde(default)]
    pub pause: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { writers: 8, bytes: Bytes(64 << 20), seed: 1, pause: Duration::ZERO }
    }
}

impl Parameters {
    /// What all writers write together, in the profiles that the size is meant for.
    #[must_use]
    pub fn total(&self) -> Bytes {
        Bytes(self.bytes.0.saturating_mul(u64::from(self.writers)))
    }
}

/// What is to be done, where, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// An empty directory.
    pub directory: &'a Path,
    /// How much.
    pub parameters: Parameters,
    /// Set to stop it early.
    pub stop: &'a AtomicBool,
}

impl Job<'_> {
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Writes that were asked for.
    pub requests: u64,
    /// Bytes in them.
    pub bytes: Bytes,
    /// The size of each write when all have one; 0 otherwise.
    pub request: Bytes,
    /// Programs that were executed right after they had been written, or shortly later.
    pub executions: u64,
    /// Those of them that the system would not execute, because something had them open for writing.
    pub failed_executions: u64,
    /// Opens that must not wait (O_NONBLOCK).
    pub opens: u64,
    /// Those of them that were refused (EAGAIN).
    pub refused_opens: u64,
}

impl Done {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.request = self.request.max(other.request);
        self.executions += other.executions;
        self.failed_executions += other.failed_executions;
        self.opens += other.opens;
        self.refused_opens += other.refused_opens;
    }
}

/// Does the work of a profile to its end.
///
/// # Errors
/// [`BenchError::Interrupted`] when it was asked to stop; the errors of the system.
pub fn run(profile: Profile, job: &Job<'_>) -> Result<Done, BenchError> {
    match profile {
        Profile::Direct => direct::run(job),
        Profile::Dsync => dsync::run(job),
        Profile::SlowAppend => slow::run(job),
        Profile::Office => office::run(job),
        Profile::Sparse => sparse::run(job),
        Profile::Logs => logs::run(job),
        Profile::Buffered => buffered::run(job),
        Profile::Single => single::run(job),
        Profile::Short => short::run(job),
        Profile::Install => compile::run(job, OFlags::DSYNC),
        Profile::Compile => compile::run(job, OFlags::empty()),
        Profile::Sqlite => sqlite::run(job),
    }
}

/// Makes durable everything on the volume of a directory.
fn sync_directory(directory: &Path) -> Result<(), BenchError> {
    std::fs::File::open(directory)
        .and_then(|opened| longrun_sys::sync_volume(opened).map_err(std::io::Error::from))
        .map_err(|e| BenchError::io("syncing its volume", directory, e))
}

#[cfg(test)]
mod tests;
