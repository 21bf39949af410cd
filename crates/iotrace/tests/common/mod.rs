//! What the tests share: I/O past the page cache, and a trace around it.
#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_iotrace::{Options, Recording, Tracer};
use longrun_sys::{BlockDevice, DeviceNumber, OFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

pub const KIB: u64 = 1024;

/// A buffer that starts where direct I/O wants it to.
pub struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    pub fn new(length: u64) -> Self {
        const ALIGNMENT: usize = 4096;
        let length = usize::try_from(length).unwrap();
        let bytes = vec![0xa5; length + ALIGNMENT];
        let from = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, from, length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}

/// A file or device, past the page cache.
pub fn direct(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path).unwrap()
}

pub fn read(file: &File, at: u64, length: u64) {
    file.read_exact_at(Aligned::new(length).bytes(), at).unwrap();
}

pub fn write(file: &File, at: u64, length: u64) {
    file.write_all_at(Aligned::new(length).bytes(), at).unwrap();
}

pub fn device(path: &Path) -> BlockDevice {
    BlockDevice::numbered(DeviceNumber::from_stat(fs::metadata(path).unwrap().rdev())).unwrap()
}

/// What is found while `work` is done.
pub fn trace(top: &Path, options: Options, work: impl FnOnce()) -> Recording {
    let tracer = Tracer::start("test", &[device(top)], options).unwrap();
    work();
    tracer.recording().unwrap()
}

/// The filled buckets of a histogram.
pub fn filled(histogram: &longrun_iotrace::Histogram) -> Vec<(Option<i64>, u64)> {
    histogram.buckets().filter(|(_, count)| *count > 0).collect()
}
