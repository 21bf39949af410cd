//! The law for failed writes: after an error of anything that changes a disk, nothing more is changed through it.
//!
//! Linux reports a failed write-back once. The flush after it succeeds, although what the first one should have made durable is lost:
//! who commits then commits what is not there. No retry is safe, and no path to the end of a run may make one by accident.

use crate::Disk;
use crate::disk::within;
use longrun_layout::Bytes;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk that can be read but no longer changed after a change of it has failed.
pub struct FailStop {
    disk: Arc<dyn Disk>,
    has_failed: AtomicBool,
}

impl FailStop {
    /// The same disk under the law.
    #[must_use]
    pub fn over(disk: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self { disk, has_failed: AtomicBool::new(false) })
    }

    /// Whether a change has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Makes a change that belongs to the disk, also outside of it: to its journal, or to what is known of it. When it fails, it was
    /// the last one.
    ///
    /// # Errors
    /// Those of `change`, which is not called when an earlier one has failed.
    pub fn change<T, E: From<io::Error>>(&self, change: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if self.has_failed() {
            return Err(io::Error::other("an earlier write to it failed, and nothing is written after that").into());
        }
        change().inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }
}

impl Disk for FailStop {
    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn length(&self) -> Bytes {
        self.disk.length()
    }

    fn sector_size(&self) -> Bytes {
        self.disk.sector_size()
    }

    fn in_file(&self) -> Option<(&File, Bytes)> {
        self.disk.in_file()
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, buffer)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        // What does not lie on the disk is refused, and nothing has failed.
        within(at, data.len() as u64, self.length())?;
        self.change(|| self.disk.write(at, data))
    }

    fn flush(&self) -> io::Result<()> {
        self.change(|| self.disk.flush())
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        within(at, length.0, self.length())?;
        let is_unsupported = |error: &io::Error| error.kind() == io::ErrorKind::Unsupported;
        // That the storage keeps what it has is an answer and no failure.
        self.change(|| match self.disk.discard(at, length) {
            Err(error) if is_unsupported(&error) => Ok(Err(error)),
            done => done.map(Ok),
        })?
    }

    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        within(at, length.0, self.length())?;
        self.change(|| self.disk.zero(at, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;

    /// Fails once, in the way that is given.
    struct Failing {
        disk: MemoryDisk,
        fails: &'static str,
        kind: io::ErrorKind,
    }

    impl Failing {
        fn act(&self, name: &str, done: io::Result<()>) -> io::Result<()> {
            if name == self.fails { Err(self.kind.into()) } else { done }
        }
    }

    impl Disk for Failing {
        fn path(&self) -> &Path {
            self.disk.path()
        }
        fn length(&self) -> Bytes {
            self.disk.length()
        }
        fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
            self.act("read", self.disk.read(at, buffer))
        }
        fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
            self.act("write", self.disk.write(at, data))
        }
        fn flush(&self) -> io::Result<()> {
            self.act("flush", self.disk.flush())
        }
        fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
            self.act("discard", self.disk.discard(at, length))
        }
        fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
            self.act("zero", self.disk.zero(at, length))
        }
    }

    type Change = fn(&FailStop) -> io::Result<()>;
    const CHANGES: [(&str, Change); 4] = [
        ("write", |disk| disk.write(Bytes(0), &[1; 512])),
        ("flush", |disk| disk.flush()),
        ("discard", |disk| disk.discard(Bytes(0), Bytes(512))),
        ("zero", |disk| disk.zero(Bytes(0), Bytes(512))),
    ];

    fn failing(fails: &'static str, kind: io::ErrorKind) -> (Arc<Failing>, Arc<FailStop>) {
        let disk = Arc::new(Failing { disk: MemoryDisk::new(vec![7; 1024]), fails, kind });
        let stop = FailStop::over(Arc::clone(&disk) as Arc<dyn Disk>);
        (disk, stop)
    }

    #[test]
    fn nothing_reaches_the_disk_after_a_change_has_failed() {
        for (fails, change) in CHANGES {
            let (disk, stop) = failing(fails, io::ErrorKind::StorageFull);
            assert!(!stop.has_failed());
            assert_eq!(change(&stop).unwrap_err().kind(), io::ErrorKind::StorageFull);
            let (content, events) = (disk.disk.content(), disk.disk.events());
            for (name, change) in CHANGES {
                let error = change(&stop).unwrap_err();
                assert!(error.to_string().contains("an earlier write"), "{name} after {fails}: {error}");
            }
            assert!(stop.has_failed());
            assert_eq!((disk.disk.content(), disk.disk.events()), (content, events), "after {fails}");
            stop.read(Bytes(0), &mut [0; 512]).unwrap();
        }
    }

    #[test]
    fn a_failed_change_elsewhere_ends_the_changes_of_the_disk() {
        let (disk, stop) = failing("nothing", io::ErrorKind::Other);
        stop.change(|| disk.flush()).unwrap();
        stop.change(|| Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull))).unwrap_err();
        CHANGES.iter().for_each(|(name, change)| assert!(change(&stop).is_err(), "{name}"));
    }

    #[test]
    fn failed_reads_and_refused_changes_end_nothing() {
        let (_, stop) = failing("read", io::ErrorKind::Other);
        stop.read(Bytes(0), &mut [0; 512]).unwrap_err();
        let behind = Bytes(1024);
        assert!(stop.write(behind, &[1]).is_err() && stop.discard(behind, Bytes(1)).is_err());
        assert!(stop.zero(Bytes(u64::MAX), behind).is_err());
        CHANGES.iter().for_each(|(name, change)| assert!(change(&stop).is_ok(), "{name}"));
        let (_, stop) = failing("discard", io::ErrorKind::Unsupported);
        assert_eq!(stop.discard(Bytes(0), Bytes(512)).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(!stop.has_failed());
        stop.write(Bytes(0), &[1; 512]).unwrap();
    }
}
