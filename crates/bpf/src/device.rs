//! Device numbers.

use longrun_sys::DeviceNumber;

/// The kernel's own form of a device number: another one than user space sees. `DEVICE_NUMBER` in `include/longrun.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelDevice(pub u32);

impl KernelDevice {
    const MINOR_BITS: u32 = 20;

    /// Of a device.
    #[must_use]
    pub const fn of(device: DeviceNumber) -> Self {
        Self(device.major << Self::MINOR_BITS | device.minor)
    }

    /// As the key of a table.
    #[must_use]
    pub const fn bytes(self) -> [u8; 4] {
        self.0.to_ne_bytes()
    }
}
