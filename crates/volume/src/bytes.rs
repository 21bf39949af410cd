//! Little-endian fields of on-disk records.
//!
//! Callers pass whole records, whose length they have checked. A field outside of the record reads as zero, so that no
//! input causes a read out of bounds.

macro_rules! field {
    ($name:ident, $type:ty) => {
        /// The number at byte `at`.
        pub(crate) fn $name(record: &[u8], at: usize) -> $type {
            const SIZE: usize = std::mem::size_of::<$type>();
            record.get(at..).and_then(|r| r.first_chunk::<SIZE>()).map_or(0, |b| <$type>::from_le_bytes(*b))
        }
    };
}
field!(le16, u16);
field!(le32, u32);
field!(le64, u64);

/// Writes `value` to byte `at`. What does not lie within the record is not written.
pub(crate) fn put(record: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = record.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// The byte at `at`.
pub(crate) fn byte(record: &[u8], at: usize) -> u8 {
    record.get(at).copied().unwrap_or(0)
}

/// Whether bit `index` of a bitmap is set; beyond its end no bit is.
pub(crate) fn bit(bitmap: &[u8], index: usize) -> bool {
    byte(bitmap, index / 8) >> (index % 8) & 1 == 1
}
