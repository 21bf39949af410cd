//! The request times of disks: pure models below the block layer.
//!
//! Owns the behaviour of each kind of disk, in virtual time: the same requests at the same times with the same seed
//! are complete at the same times. Never reads a clock, waits, or moves a byte; [`super::server`] does.

mod cloud;
mod hdd;
mod load;
mod queue;
mod san;
mod ssd;

pub use cloud::Cloud;
pub use hdd::Hdd;
pub use load::closed_loop;
pub use queue::{Completion, Device};
pub use san::San;
pub use ssd::Ssd;

use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Add;

/// A moment, or a time, in nanoseconds of the device's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// So many microseconds.
    #[must_use]
    pub const fn micros(micros: u64) -> Self {
        Self(micros * 1000)
    }

    /// What one of `per_second` takes.
    #[must_use]
    pub fn each_of(per_second: u64) -> Self {
        Self(1_000_000_000 / per_second.max(1))
    }

    /// The time since `earlier`; zero when that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate(pub u64);

impl Rate {
    /// So many MB (millions of bytes) a second.
    #[must_use]
    pub const fn megabytes(megabytes: u64) -> Self {
        Self(megabytes * 1_000_000)
    }

    /// The time for this many bytes.
    #[must_use]
    pub fn time(self, bytes: Bytes) -> Nanos {
        let nanos = u128::from(bytes.0) * 1_000_000_000 / u128::from(self.0.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many bytes pass in a time.
    #[must_use]
    pub fn bytes(self, time: Nanos) -> Bytes {
        let bytes = u128::from(time.0) * u128::from(self.0) / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// What is done to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Bytes from it.
    Read,
    /// Bytes to it; complete when they are on it, so that there is nothing left to flush.
    Write,
}

/// One request, as it comes out of the block layer: merged, and split where it was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifies its completion; chosen by the caller.
    pub id: u64,
    /// What is done.
    pub access: Access,
    /// Where it begins on the device.
    pub at: Bytes,
    /// How long it is.
    pub length: Bytes,
}

impl Request {
    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> Bytes {
        self.at + self.length
    }
}

/// A disk that works on requests in the order in which they come, several at a time if it likes: when one comes, it
/// is known when it will be complete.
pub(crate) trait Service: std::fmt::Debug + Send {
    /// When a request that comes at `now` will be complete. Called with times that never go back.
    fn service(&mut self, now: Nanos, request: &Request) -> Nanos;
}

/// The kinds of disk, with what is to be known of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskModel {
    /// A rented volume with a limit of requests and of bytes a second.
    Cloud(Cloud),
    /// A disk with one arm.
    Hdd(Hdd),
    /// A flash disk.
    Ssd(Ssd),
    /// A volume of a storage array that several hosts share.
    San(San),
}

impl DiskModel {
    /// What users type.
    pub const NAMES: [&'static str; 4] = ["cloud", "hdd", "ssd", "san"];

    /// The usual disk of a kind.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "cloud" => Some(Self::Cloud(Cloud::default())),
            "hdd" => Some(Self::Hdd(Hdd::default())),
            "ssd" => Some(Self::Ssd(Ssd::default())),
            "san" => Some(Self::San(San::default())),
            _ => None,
        }
    }

    /// What users type.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cloud(_) => "cloud",
            Self::Hdd(_) => "hdd",
            Self::Ssd(_) => "ssd",
            Self::San(_) => "san",
        }
    }

    /// The disk in a few words, for tables. Says that it is modelled.
    #[must_use]
    pub fn describe(&self) -> String {
        let model = match self {
            Self::Cloud(cloud) => cloud.describe(),
            Self::Hdd(hdd) => hdd.describe(),
            Self::Ssd(ssd) => ssd.describe(),
            Self::San(san) => san.describe(),
        };
        format!("modelled {model}")
    }

    /// Whether the disk rotates, as reported to the kernel.
    #[must_use]
    pub const fn is_rotational(&self) -> bool {
        matches!(self, Self::Hdd(_))
    }

    /// A disk of `capacity`, at rest.
    #[must_use]
    pub fn device(&self, capacity: Bytes, seed: u64) -> Device {
        match *self {
            Self::Cloud(cloud) => Device::at_once(Box::new(cloud::Volume::new(cloud, seed))),
            Self::Ssd(ssd) => Device::at_once(Box::new(ssd::Flash::new(ssd))),
            Self::San(san) => Device::at_once(Box::new(san::Lun::new(san))),
            Self::Hdd(hdd) => Device::one_armed(hdd::Arm::new(hdd, capacity, seed)),
        }
    }
}

#[cfg(test)]
mod tests;
