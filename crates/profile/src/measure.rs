//! Reads a device at its places, and gives way to others between the requests.

use crate::places::{MEASURED, PLACES, REQUEST, Tour};
use crate::{Place, Profile, ProfileError, Verdict};
use jiff::Timestamp;
use longrun_engine::{Observer, Phase, Status, until_permitted};
use longrun_layout::Bytes;
use longrun_sys::{AlignedBuffer, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// After a longer pause the head may be anywhere: others were served.
const LEFT_ALONE: Duration = Duration::from_millis(2);

/// What can be read, and tells how long that took.
pub trait Reads {
    /// The size of the device.
    fn bytes(&self) -> Bytes;

    /// Reads `length` bytes at `at`, and nothing else. The time that it took.
    ///
    /// # Errors
    /// The device's.
    fn read(&mut self, at: Bytes, length: Bytes) -> io::Result<Duration>;
}

/// A device that is read past the page cache.
#[derive(Debug)]
pub struct DirectReads {
    file: File,
    bytes: Bytes,
    buffer: AlignedBuffer,
}

impl DirectReads {
    /// Opens the device at `path`, for reading only.
    ///
    /// # Errors
    /// [`ProfileError::Open`].
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        let failed = |source| ProfileError::Open { device: path.display().to_string(), source };
        let direct = OFlags::DIRECT.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(direct).open(path).map_err(failed)?;
        let bytes = Bytes(file.seek(SeekFrom::End(0)).map_err(failed)?);
        let buffer = AlignedBuffer::new(usize::try_from(REQUEST.0).unwrap_or_default());
        Ok(Self { file, bytes, buffer })
    }
}

impl Reads for DirectReads {
    fn bytes(&self) -> Bytes {
        self.bytes
    }

    fn read(&mut self, at: Bytes, length: Bytes) -> io::Result<Duration> {
        let into = self.buffer.prefix(usize::try_from(length.0).unwrap_or_default());
        let begun = Instant::now();
        self.file.read_exact_at(into, at.0)?;
        Ok(begun.elapsed())
    }
}

/// Measures `device`, which messages call `name`. It reads at least 27 MiB at each place, 432 MiB in all, and asks `observer` before
/// each MiB. `seed` decides on the order of the places.
///
/// # Errors
/// [`ProfileError`] when the device is too small or cannot be read, or `observer` ends it.
pub fn measure(
    device: &mut dyn Reads,
    name: &str,
    seed: u64,
    observer: &mut dyn Observer,
) -> Result<Profile, ProfileError> {
    let (measured, begun, bytes) = (Timestamp::now(), Instant::now(), device.bytes());
    let too_small = || ProfileError::TooSmall { device: name.to_owned(), bytes: bytes.0, least: Tour::LEAST.0 };
    let mut tour = Tour::of(bytes, seed).ok_or_else(too_small)?;
    let mut places: Vec<Place> = (0..PLACES).map(|nth| Place { at: tour.start(nth), speeds: Vec::new() }).collect();
    let mut passes = 0;
    while Tour::goes_on(passes, places.iter().all(Place::is_settled)) {
        for (done, nth) in tour.order().into_iter().enumerate() {
            let (done, total, round) = (done as u64, places.len() as u64, u32::try_from(passes).unwrap_or(0) + 1);
            observer.status(Status { phase: Phase::Scan, round, done, total });
            if let Some(place) = places.get_mut(nth) {
                let times = Visit { device, name, observer, at: tour.place(nth, passes) }.times()?;
                place.speeds.push(undisturbed(times));
            }
        }
        passes += 1;
    }
    let (seconds, verdict) = (begun.elapsed().as_secs_f64(), Verdict::of(&places));
    Ok(Profile { device: name.to_owned(), bytes, measured, seconds, places, verdict })
}

/// The speed, in bytes a second, by the faster half of the requests that took `times`: on a hard disk each request of somebody else
/// makes one of ours or two wait for the head.
fn undisturbed(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.truncate(times.len().div_ceil(2));
    let time: Duration = times.iter().sum();
    REQUEST.0 as f64 * times.len() as f64 / time.as_secs_f64().max(1e-9)
}

/// Reading at one place.
struct Visit<'a> {
    device: &'a mut dyn Reads,
    name: &'a str,
    observer: &'a mut dyn Observer,
    at: Bytes,
}

impl Visit<'_> {
    /// How long each request of the measured part takes.
    fn times(&mut self) -> Result<Vec<Duration>, ProfileError> {
        let (mut at, end) = (self.at + REQUEST, self.at + REQUEST + MEASURED);
        let (mut times, mut head_is_there) = (Vec::new(), false);
        while at < end {
            if head_is_there && self.waited_for(REQUEST)? {
                head_is_there = false;
            }
            if !head_is_there {
                // What lies before it is read, untimed: what is measured is reading on, not getting there. No question lies between
                // the two, so that it goes on even where each question means a wait.
                self.waited_for(REQUEST + REQUEST)?;
                self.read(Bytes(at.0 - REQUEST.0))?;
            }
            times.push(self.read(at)?);
            (at, head_is_there) = (at + REQUEST, true);
        }
        Ok(times)
    }

    /// Waits until `next` bytes may be read; whether that took so long that the head may be elsewhere.
    fn waited_for(&mut self, next: Bytes) -> Result<bool, ProfileError> {
        let asked = Instant::now();
        let interrupted = || ProfileError::Interrupted { device: self.name.to_owned() };
        let go_on = |observer: &dyn Observer| if observer.cancelled() { Err(interrupted()) } else { Ok(()) };
        until_permitted(self.observer, next, Duration::MAX, go_on)?;
        Ok(asked.elapsed() > LEFT_ALONE)
    }

    fn read(&mut self, at: Bytes) -> Result<Duration, ProfileError> {
        let failed = |source| ProfileError::Read { device: self.name.to_owned(), at: at.0, source };
        self.device.read(at, REQUEST).map_err(failed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::Fastest;
    use longrun_engine::{Permission, Unobserved};

    /// A disk that reads its beginning twice as fast as its end, and needs long to get anywhere.
    struct Disk {
        bytes: Bytes,
        head: u64,
        read: u64,
    }

    impl Reads for Disk {
        fn bytes(&self) -> Bytes {
            self.bytes
        }

        fn read(&mut self, at: Bytes, length: Bytes) -> io::Result<Duration> {
            assert!(at.0 + length.0 <= self.bytes.0);
            let way = if self.head == at.0 { 0.0 } else { 0.02 };
            self.head = at.0 + length.0;
            self.read += length.0;
            let speed = 160e6 - 80e6 * at.0 as f64 / self.bytes.0 as f64;
            Ok(Duration::from_secs_f64(way + length.0 as f64 / speed))
        }
    }

    #[test]
    fn the_way_to_a_place_is_not_measured() {
        let mut disk = Disk { bytes: Bytes(8 << 30), head: 1, read: 0 };
        let profile = measure(&mut disk, "disk", 7, &mut Unobserved).unwrap();
        assert_eq!((profile.places.len(), profile.unsettled()), (PLACES, 0));
        assert_eq!(disk.read, 3 * 9 * PLACES as u64 * REQUEST.0);
        let first = profile.places[0].speed() / 1e6;
        assert!((157.0..160.0).contains(&first), "{first}");
        assert_eq!(profile.verdict.gradient, Some(Fastest::Beginning));
    }

    /// Has the reader wait before every request; and ends it at last.
    struct Busy {
        asked: u64,
        most: u64,
    }

    impl Observer for Busy {
        fn permission(&mut self, next: Bytes) -> Permission {
            assert!(next.0 <= 2 * REQUEST.0);
            self.asked += 1;
            if self.asked.is_multiple_of(2) { Permission::Wait(Duration::from_millis(3)) } else { Permission::Go }
        }

        fn cancelled(&self) -> bool {
            self.asked >= self.most
        }
    }

    #[test]
    fn after_a_pause_the_head_is_brought_back_first() {
        let mut disk = Disk { bytes: Bytes(8 << 30), head: 1, read: 0 };
        let mut busy = Busy { asked: 0, most: u64::MAX };
        let profile = measure(&mut disk, "disk", 7, &mut busy).unwrap();
        let first = profile.places[0].speed() / 1e6;
        assert!((157.0..160.0).contains(&first), "{first}: no way was measured");
        assert!(disk.read > 3 * 9 * PLACES as u64 * REQUEST.0);
    }

    #[test]
    fn requests_that_waited_for_others_do_not_count() {
        let times = [10, 90, 10, 10, 70, 10, 80, 50].map(Duration::from_millis);
        assert!((undisturbed(times.to_vec()) - REQUEST.0 as f64 / 0.01).abs() < 1.0);
    }

    #[test]
    fn it_can_be_ended_and_refuses_what_is_too_small() {
        let mut disk = Disk { bytes: Bytes(8 << 30), head: 1, read: 0 };
        let ended = measure(&mut disk, "disk", 7, &mut Busy { asked: 0, most: 10 });
        assert!(matches!(ended, Err(ProfileError::Interrupted { .. })));
        disk.bytes = Bytes(1 << 20);
        assert!(matches!(measure(&mut disk, "disk", 7, &mut Unobserved), Err(ProfileError::TooSmall { .. })));
    }
}
