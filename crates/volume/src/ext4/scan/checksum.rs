//! The checksums of ext4: crc32c without the final inversion, chained from a seed, and crc16 for old descriptors.

/// The running checksum of ext4's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext4) struct Crc32c(u32);

impl Crc32c {
    /// The start value.
    pub(in crate::ext4) const START: Self = Self(!0);

    /// Goes on from a stored seed.
    pub(in crate::ext4) fn from_seed(seed: u32) -> Self {
        Self(seed)
    }

    /// Takes in more bytes. The library inverts at both ends; ext4 does not.
    #[must_use]
    pub(in crate::ext4) fn over(self, bytes: &[u8]) -> Self {
        Self(!crc32c::crc32c_append(!self.0, bytes))
    }

    /// The value.
    pub(in crate::ext4) fn value(self) -> u32 {
        self.0
    }

    /// The lower half, which is all that some records have room for.
    pub(in crate::ext4) fn low(self) -> u16 {
        self.0 as u16
    }
}

/// CRC-16 (reflected 0x8005), of group descriptors without metadata_csum.
pub(in crate::ext4) fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksums_have_their_published_check_values() {
        assert_eq!(!Crc32c::START.over(b"123456789").value(), 0xE306_9283);
        assert_eq!(Crc32c::START.over(b"1234").over(b"56789"), Crc32c::START.over(b"123456789"));
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }
}
