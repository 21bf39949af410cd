//! The loop over slices: permission before each, a length by how long the last one took, and stopping between two.
//!
//! Owns order, pace and limits. Never knows what gives the space back: that is a [`GiveBack`].

use super::course::Course;
use longrun_engine::{Observer, Phase, Status, Stop, VolumeError, until_permitted};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use std::time::{Duration, Instant};

/// What gives back the free space in a range: FITRIM on a mounted volume.
pub trait GiveBack {
    /// Gives back what is free in `range`.
    ///
    /// # Errors
    /// [`VolumeError`]. What was given back before stays so.
    fn give_back(&mut self, range: ByteRange) -> Result<Given, VolumeError>;

    /// Called once, when all ranges have been given back.
    ///
    /// # Errors
    /// [`VolumeError`].
    fn complete(&mut self) -> Result<(), VolumeError> {
        Ok(())
    }
}

/// What one call gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// So much, as the file system says; at most so much, where it does not count.
    pub bytes: Bytes,
    /// How long it took.
    pub time: Duration,
}

/// The limits of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// How much may be given back in a second.
    pub rate: Option<Bytes>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Reclaimed {
    /// Given back, as the file system says: at most so much, where it does not count.
    pub bytes: Bytes,
    /// Whether it counts.
    pub is_counted: bool,
    /// So much of the volume was gone through.
    pub covered: Bytes,
    /// So much there was to go through.
    pub total: Bytes,
    /// Calls of the kernel.
    pub calls: u64,
    /// The longest of them.
    pub longest_call: Duration,
    /// Where the next run begins; none after a complete one.
    pub next: Option<Bytes>,
    /// Why it ended before all was done, if it was stopped.
    pub stop: Option<Stop>,
    /// And if it failed.
    pub failure: Option<VolumeError>,
}

/// Between two looks at whether a wait is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Gives back all of `course`, slice by slice. Time runs since `begun`.
pub fn carry_out(
    giver: &mut dyn GiveBack,
    course: &mut Course,
    limits: Limits,
    begun: Instant,
    observer: &mut dyn Observer,
) -> Reclaimed {
    let mut done = Reclaimed::default();
    match all(giver, course, limits, begun, observer, &mut done) {
        Ok(()) => {}
        Err(Ended::Stopped(stop)) => done.stop = Some(stop),
        Err(Ended::Failed(error)) => done.failure = Some(error),
    }
    Reclaimed { covered: course.done(), total: course.total(), next: course.position(), ..done }
}

/// Why it ended before all was done.
enum Ended {
    Stopped(Stop),
    Failed(VolumeError),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<VolumeError> for Ended {
    fn from(error: VolumeError) -> Self {
        Self::Failed(error)
    }
}

fn all(
    giver: &mut dyn GiveBack,
    course: &mut Course,
    limits: Limits,
    begun: Instant,
    observer: &mut dyn Observer,
    done: &mut Reclaimed,
) -> Result<(), Ended> {
    let is_wanted = |observer: &dyn Observer| match limits.deadline {
        _ if observer.cancelled() => Err(Stop::Cancelled),
        Some(deadline) if begun.elapsed() >= deadline => Err(Stop::Deadline),
        _ => Ok(()),
    };
    let mut stride = Stride::new(limits.rate);
    while let Some(slice) = course.next(stride.length) {
        let (passed, total) = (course.done().0, course.total().0);
        observer.status(Status { phase: Phase::Reclaim, round: 1, done: passed, total });
        // No file is read or written.
        until_permitted(observer, Bytes(0), Duration::MAX, is_wanted)?;
        let given = giver.give_back(slice.range)?;
        done.bytes += given.bytes;
        done.calls += 1;
        done.longest_call = done.longest_call.max(given.time);
        if !course.is_at_first() {
            stride.learn(slice.length, given.time, Aim::of(observer));
        }
        course.pass(slice);
        let mut rest = limits.rate.map_or(Duration::ZERO, |rate| earned(given, rate));
        while rest > Duration::ZERO {
            is_wanted(observer)?;
            let step = rest.min(LOOK);
            observer.wait(step);
            rest -= step;
        }
    }
    observer.status(Status { phase: Phase::Reclaim, round: 1, done: course.total().0, total: course.total().0 });
    Ok(giver.complete()?)
}

/// How long to rest after a call, so that not more than `rate` is given back in a second.
fn earned(given: Given, rate: Bytes) -> Duration {
    let due = Duration::try_from_secs_f64(given.bytes.0 as f64 / rate.0.max(1) as f64).unwrap_or(Duration::MAX);
    due.saturating_sub(given.time)
}

/// How long a call should take, and how long a slice may become.
#[derive(Clone, Copy, Debug)]
struct Aim {
    time: Duration,
    most: Bytes,
}

impl Aim {
    /// Where others are given way to, they are asked for again sooner. What lies ahead is not known: free space takes longer
    /// than used space, so that a slice must not become so long that it takes seconds.
    fn of(observer: &dyn Observer) -> Self {
        if observer.turn().bytes.0 == u64::MAX {
            Self { time: Duration::from_millis(500), most: Bytes(16 << 30) }
        } else {
            Self { time: Duration::from_millis(50), most: Bytes(1 << 30) }
        }
    }
}

/// The length of the next slice.
#[derive(Clone, Copy, Debug)]
struct Stride {
    length: Bytes,
    rate: Option<Bytes>,
}

impl Stride {
    /// The first one.
    const FIRST: Bytes = Bytes(128 << 20);
    /// It becomes shorter by this factor at most.
    const STEEPEST: f64 = 8.0;

    fn new(rate: Option<Bytes>) -> Self {
        Self { length: rate.map_or(Self::FIRST, |rate| Self::FIRST.min(rate)), rate }
    }

    /// A call for `slice` took so long.
    fn learn(&mut self, slice: Bytes, time: Duration, aim: Aim) {
        let most = self.rate.map_or(aim.most, |rate| aim.most.min(rate));
        let length = if time > aim.time {
            let factor = (aim.time.as_secs_f64() / time.as_secs_f64()).max(1.0 / Self::STEEPEST);
            Bytes((slice.0 as f64 * factor) as u64)
        } else if time * 2 < aim.time {
            Bytes(self.length.0.saturating_mul(2))
        } else {
            self.length
        };
        self.length = length.min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Cuts;
    use super::*;
    use longrun_engine::{Permission, Turn, Unobserved};
    use std::path::PathBuf;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// A storage that takes `per_gib` for each GiB, and gives back half of each range.
    struct Storage {
        size: u64,
        per_gib: Duration,
        asked: Vec<ByteRange>,
        fails_at: usize,
        completed: u32,
    }

    impl Storage {
        fn of(size: u64, per_gib: Duration) -> Self {
            Self { size, per_gib, asked: Vec::new(), fails_at: usize::MAX, completed: 0 }
        }
    }

    impl GiveBack for Storage {
        fn give_back(&mut self, range: ByteRange) -> Result<Given, VolumeError> {
            if self.asked.len() == self.fails_at {
                let source = std::io::ErrorKind::Other.into();
                return Err(VolumeError::Io { path: PathBuf::from("/volume"), act: "trimming", source });
            }
            self.asked.push(range);
            let length = range.length.0.min(self.size - range.start.0);
            Ok(Given { bytes: Bytes(length / 2), time: self.per_gib.mul_f64(length as f64 / GIB as f64) })
        }

        fn complete(&mut self) -> Result<(), VolumeError> {
            self.completed += 1;
            Ok(())
        }
    }

    /// Gives a permission every second question; counts how long was waited, and stops after so many questions.
    struct Gentle {
        questions: u32,
        waited: Duration,
        stops_after: u32,
    }

    impl Default for Gentle {
        fn default() -> Self {
            Self { questions: 0, waited: Duration::ZERO, stops_after: u32::MAX }
        }
    }

    impl Observer for Gentle {
        fn permission(&mut self, _next: Bytes) -> Permission {
            self.questions += 1;
            if self.questions.is_multiple_of(2) { Permission::Go } else { Permission::Wait(Duration::from_millis(10)) }
        }

        fn turn(&self) -> Turn {
            Turn { bytes: Bytes(MIB), pieces: 1 }
        }

        fn cancelled(&self) -> bool {
            self.questions >= self.stops_after
        }

        fn wait(&mut self, time: Duration) {
            self.waited += time;
        }
    }

    fn course(size: u64, from: u64) -> Course {
        let all = ByteRange { start: Bytes(0), length: Bytes(size) };
        Course::new(&[all], Cuts::each(Bytes(16 * MIB)), Bytes(from))
    }

    fn run(storage: &mut Storage, course: &mut Course, limits: Limits, observer: &mut dyn Observer) -> Reclaimed {
        carry_out(storage, course, limits, Instant::now(), observer)
    }

    #[test]
    fn all_of_it_is_given_back_with_a_permission_for_each_call() {
        let (mut storage, mut gentle) = (Storage::of(64 * GIB, Duration::from_millis(10)), Gentle::default());
        let done = run(&mut storage, &mut course(64 * GIB, 0), Limits::default(), &mut gentle);
        assert_eq!((done.bytes, done.covered, done.total), (Bytes(32 * GIB), Bytes(64 * GIB), Bytes(64 * GIB)));
        assert!(done.next.is_none() && done.stop.is_none() && done.failure.is_none());
        assert_eq!((done.calls, gentle.questions, storage.completed), (67, 2 * 67, 1), "it grows to 1 GiB");
        assert_eq!(storage.asked.last().unwrap().length, Bytes(u64::MAX), "the end is open");
    }

    #[test]
    fn calls_become_as_short_as_they_are_to_be() {
        let mut storage = Storage::of(16 * GIB, Duration::from_secs(1));
        let done = run(&mut storage, &mut course(16 * GIB, 0), Limits::default(), &mut Gentle::default());
        let lengths: Vec<u64> = storage.asked.iter().map(|range| range.length.0 / MIB).collect();
        assert_eq!(lengths[..3], [128, 48, 48], "50 ms are 51 MiB, which is cut at a unit");
        assert_eq!((done.longest_call, done.bytes), (Duration::from_millis(125), Bytes(8 * GIB)));
        let hasty = run(&mut storage, &mut course(16 * GIB, 0), Limits::default(), &mut Unobserved);
        assert!(hasty.calls < done.calls / 4, "{} calls, {} before", hasty.calls, done.calls);
    }

    #[test]
    fn not_more_than_the_rate_is_given_back_in_a_second() {
        let limits = Limits { rate: Some(Bytes(32 * MIB)), ..Limits::default() };
        let (mut storage, mut gentle) = (Storage::of(GIB, Duration::ZERO), Gentle::default());
        run(&mut storage, &mut course(GIB, 0), limits, &mut gentle);
        let most = storage.asked.iter().rev().skip(1).map(|range| range.length).max().unwrap();
        assert_eq!(most, Bytes(32 * MIB), "no more than one second's worth at once");
        assert!(gentle.waited >= Duration::from_secs(16), "{:?} for 512 MiB", gentle.waited);
    }

    #[test]
    fn a_run_that_was_stopped_says_where_the_next_one_begins() {
        let mut storage = Storage::of(4 * GIB, Duration::from_millis(50));
        let mut gentle = Gentle { stops_after: 6, ..Gentle::default() };
        let mut stopped = course(4 * GIB, GIB);
        let done = run(&mut storage, &mut stopped, Limits::default(), &mut gentle);
        assert_eq!((done.stop, done.calls, storage.completed), (Some(Stop::Cancelled), 3, 0));
        let reached = GIB + (128 + 256 + 512) * MIB;
        assert_eq!((done.next, done.covered.0), (Some(Bytes(reached)), reached - GIB));
        let mut rest = run(&mut storage, &mut course(4 * GIB, reached), Limits::default(), &mut Gentle::default());
        assert_eq!((storage.asked[3].start, rest.next.take()), (Bytes(reached), None));

        let limits = Limits { deadline: Some(Duration::ZERO), ..Limits::default() };
        let late = run(&mut storage, &mut course(GIB, 0), limits, &mut Unobserved);
        assert_eq!((late.stop, late.calls, late.next), (Some(Stop::Deadline), 0, Some(Bytes(0))));
    }

    #[test]
    fn what_was_done_before_a_failure_is_told_and_the_slice_that_failed_comes_again() {
        let mut storage = Storage { fails_at: 2, ..Storage::of(GIB, Duration::ZERO) };
        let done = run(&mut storage, &mut course(GIB, 0), Limits::default(), &mut Unobserved);
        assert!(done.failure.is_some() && done.stop.is_none() && storage.completed == 0);
        assert_eq!((done.calls, done.bytes, done.next), (2, Bytes(192 * MIB), Some(Bytes(384 * MIB))));
    }

    #[test]
    fn the_first_slice_says_nothing_about_the_others() {
        let first = super::super::course::Slice {
            range: ByteRange { start: Bytes(0), length: Bytes(1) },
            length: Bytes(500 * GIB),
        };
        let mut storage = Storage::of(GIB, Duration::from_millis(1));
        let mut course = course(GIB, 0).beginning_with(Some(first));
        run(&mut storage, &mut course, Limits::default(), &mut Gentle::default());
        assert_eq!(storage.asked[1].length, Stride::FIRST);
    }
}
