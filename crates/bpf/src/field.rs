//! Fields of records, at offsets that come from the type information of the compiled programs.

/// Puts `value` at `at`; where a record is too short for it, nothing happens.
pub fn put(record: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = at.checked_add(value.len()).and_then(|end| record.get_mut(at..end)) {
        place.copy_from_slice(value);
    }
}

/// The number of 32 bits at `at`, if the record is long enough.
#[must_use]
pub fn u32_at(record: &[u8], at: usize) -> Option<u32> {
    array_at(record, at).map(u32::from_ne_bytes)
}

/// The number of 64 bits at `at`, if the record is long enough.
#[must_use]
pub fn u64_at(record: &[u8], at: usize) -> Option<u64> {
    array_at(record, at).map(u64::from_ne_bytes)
}

fn array_at<const LENGTH: usize>(record: &[u8], at: usize) -> Option<[u8; LENGTH]> {
    record.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_found_and_what_does_not_fit_is_not_put() {
        let mut record = [0; 12];
        put(&mut record, 4, &7_u64.to_ne_bytes());
        put(&mut record, 0, &9_u32.to_ne_bytes());
        put(&mut record, 8, &[0xff; 8]);
        put(&mut record, usize::MAX, &[0xff; 8]);
        assert_eq!((u32_at(&record, 0), u64_at(&record, 4)), (Some(9), Some(7)));
        assert_eq!((u32_at(&record, 9), u64_at(&record, 5), u64_at(&record, usize::MAX)), (None, None, None));
    }
}
