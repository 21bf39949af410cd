//! Little-endian fields of ext4's records: the common ones, and what ext4 splits.

pub(super) use crate::bytes::{bit, byte, le16, le32, put};

/// Two halves of a number, as ext4 keeps them apart.
pub(super) fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
