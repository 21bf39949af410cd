//! Little-endian fields of on-disk records.
//!
//! Callers hand over whole records, whose length they have checked; a field outside the record reads as zero, so that
//! no input can make a read go astray.

macro_rules! field {
    ($name:ident, $type:ty) => {
        pub(super) fn $name(record: &[u8], at: usize) -> $type {
            const SIZE: usize = std::mem::size_of::<$type>();
            record.get(at..).and_then(|r| r.first_chunk::<SIZE>()).map_or(0, |b| <$type>::from_le_bytes(*b))
        }
    };
}
field!(le16, u16);
field!(le32, u32);

/// The byte at `at`.
pub(super) fn byte(record: &[u8], at: usize) -> u8 {
    record.get(at).copied().unwrap_or(0)
}

/// Two halves of a number, as ext4 keeps them apart.
pub(super) fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Whether bit `index` of a bitmap is set; beyond its end no bit is.
pub(super) fn bit(bitmap: &[u8], index: usize) -> bool {
    byte(bitmap, index / 8) >> (index % 8) & 1 == 1
}
