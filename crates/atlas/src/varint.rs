//! Numbers in as few bytes as they need: seven bits a byte, the lowest first.

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the way from `from` to `to`, which is short when they are near each other.
pub(crate) fn put_way(out: &mut Vec<u8>, from: u64, to: u64) {
    let way = to.wrapping_sub(from).cast_signed();
    put(out, ((way << 1) ^ (way >> 63)).cast_unsigned());
}

/// Bytes that are being read.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl Cursor<'_> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The other end of a way that begins at `from`.
    pub(crate) fn way(&mut self, from: u64) -> Option<u64> {
        let way = self.number()?;
        Some(from.wrapping_add((way >> 1) ^ (way & 1).wrapping_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_taken(value in any::<u64>(), from in any::<u64>(), to in any::<u64>(), shift in 0u32..64) {
            let mut out = Vec::new();
            put(&mut out, value >> shift);
            put_way(&mut out, from, to);
            let mut cursor = Cursor(&out);
            prop_assert_eq!(cursor.number(), Some(value >> shift));
            prop_assert_eq!(cursor.way(from), Some(to));
            prop_assert!(cursor.0.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            let mut cursor = Cursor(&bytes);
            while cursor.way(7).is_some() {}
        }
    }
}
