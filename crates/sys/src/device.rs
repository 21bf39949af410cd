//! The numbers of block devices.

use rustix::fs::{fstat, major, makedev, minor};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::AsFd;

/// The number of a device; names it in /proc and /sys, and across mount namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device of the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From the form that stat uses.
    #[must_use]
    pub fn from_stat(device: u64) -> Self {
        Self { major: major(device), minor: minor(device) }
    }

    /// The form that stat uses.
    #[must_use]
    pub fn to_stat(self) -> u64 {
        makedev(self.major, self.minor)
    }

    /// The 32-bit form of kernel records.
    pub(crate) fn encoded(self) -> u32 {
        (self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12)
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The device that `file` lies on.
///
/// # Errors
/// The kernel's.
pub fn device_number_of_file(file: impl AsFd) -> Result<DeviceNumber, Errno> {
    fstat(file).map(|stat| DeviceNumber::from_stat(stat.st_dev))
}
