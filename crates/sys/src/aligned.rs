//! Memory for direct I/O.

/// Alignment in bytes: that of pages, which satisfies every device.
const ALIGNMENT: usize = 4096;

/// A buffer that starts at a multiple of 4096 bytes, as direct I/O wants it.
#[derive(Debug)]
pub struct AlignedBuffer {
    raw: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// `length` zero bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let raw = vec![0; length + ALIGNMENT];
        // The vector is never grown, so its address stays.
        let start = raw.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { raw, start, length }
    }

    /// The first `length` bytes, or all when there are fewer.
    pub fn prefix(&mut self, length: usize) -> &mut [u8] {
        let end = self.start + length.min(self.length);
        self.raw.get_mut(self.start..end).unwrap_or_default()
    }
}
