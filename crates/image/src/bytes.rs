//! Numbers in on-disk records.

/// The `N` bytes at `at`, for `from_le_bytes` and `from_be_bytes`; `None` when the record ends before.
pub(crate) fn array<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..)?.first_chunk().copied()
}

/// The little-endian number at `at`.
pub(crate) fn le32(record: &[u8], at: usize) -> Option<u32> {
    array(record, at).map(u32::from_le_bytes)
}

/// The little-endian number at `at`.
pub(crate) fn le64(record: &[u8], at: usize) -> Option<u64> {
    array(record, at).map(u64::from_le_bytes)
}

/// The big-endian number at `at`.
pub(crate) fn be32(record: &[u8], at: usize) -> Option<u32> {
    array(record, at).map(u32::from_be_bytes)
}

/// The big-endian number at `at`.
pub(crate) fn be64(record: &[u8], at: usize) -> Option<u64> {
    array(record, at).map(u64::from_be_bytes)
}
