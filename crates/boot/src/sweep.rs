//! Reads a plan ahead: metadata, then the files are opened, then the data, step by step, until time is up.
//!
//! Owns the order and the limits. What it reads with is behind [`Ahead`], so that every step can fail in a test.

use crate::model::{Place, file_of, range};
use crate::plan::Plan;
use longrun_layout::{Bytes, FileId};
use longrun_sys::ByteRange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// What reads ahead.
pub trait Ahead {
    /// How much one call reads at most: the kernel leaves out the rest, silently.
    fn step(&self) -> Bytes;
    /// The time since the beginning.
    fn elapsed(&self) -> Duration;
    /// Begins to read a part of the device. Whether that was possible.
    fn metadata(&mut self, range: ByteRange) -> bool;
    /// Opens a file; whether it is still there.
    fn open(&mut self, file: FileId) -> bool;
    /// Begins to read a part of a file that is open.
    fn data(&mut self, file: FileId, range: ByteRange) -> bool;
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// Everything was read.
    Complete,
    /// Time was up.
    Late,
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// Bytes of files.
    pub data: Bytes,
    /// Bytes of metadata.
    pub metadata: Bytes,
    /// Files that were opened.
    pub files: u64,
    /// Files that are gone, or are others now.
    pub gone: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How it ended.
    pub end: End,
}

/// Reads a plan ahead.
pub fn sweep(plan: &Plan, ahead: &mut impl Ahead) -> Swept {
    let deadline = plan.deadline();
    let mut swept = Swept { data: Bytes(0), metadata: Bytes(0), files: 0, gone: 0, seconds: 0.0, end: End::Complete };
    if !all(plan, ahead, deadline, &mut swept) {
        swept.end = End::Late;
    }
    swept.seconds = ahead.elapsed().as_secs_f64();
    swept
}

/// Whether it got through in time.
fn all(plan: &Plan, ahead: &mut impl Ahead, deadline: Duration, swept: &mut Swept) -> bool {
    for part in plan.parts.iter().filter(|part| part.place == Place::Device) {
        for step in steps(part.range, ahead.step()) {
            if ahead.elapsed() >= deadline {
                return false;
            }
            if ahead.metadata(step) {
                swept.metadata += step.length;
            }
        }
    }
    // In the order of the inodes, which is that of the inode tables.
    let mut open = BTreeSet::new();
    for file in plan.files() {
        if ahead.elapsed() >= deadline {
            return false;
        }
        if ahead.open(file) {
            swept.files += 1;
            open.insert(file);
        } else {
            swept.gone += 1;
        }
    }
    let data = plan.parts.iter().filter_map(|part| Some((file_of(part.place)?, part.range)));
    for (file, range) in data.filter(|(file, _)| open.contains(file)) {
        for step in steps(range, ahead.step()) {
            if ahead.elapsed() >= deadline {
                return false;
            }
            if ahead.data(file, step) {
                swept.data += step.length;
            }
        }
    }
    true
}

/// A range in steps.
fn steps(whole: ByteRange, step: Bytes) -> impl Iterator<Item = ByteRange> {
    let (start, end) = (whole.start.0, whole.start.0.saturating_add(whole.length.0));
    let step = step.0.max(4096);
    (0..whole.length.0.div_ceil(step)).map(move |nth| {
        let from = start.saturating_add(nth * step);
        range(from, from.saturating_add(step).min(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, Seen};
    use longrun_layout::InodeNumber;

    struct Recorded {
        calls: Vec<String>,
        /// What each call takes.
        each: Duration,
        /// The call that fails.
        fails: Option<usize>,
    }

    impl Recorded {
        fn call(&mut self, call: String) -> bool {
            self.calls.push(call);
            self.fails != Some(self.calls.len() - 1)
        }
    }

    impl Ahead for Recorded {
        fn step(&self) -> Bytes {
            Bytes(8192)
        }
        fn elapsed(&self) -> Duration {
            self.each * u32::try_from(self.calls.len()).unwrap()
        }
        fn metadata(&mut self, range: ByteRange) -> bool {
            self.call(format!("M {}+{}", range.start, range.length))
        }
        fn open(&mut self, file: FileId) -> bool {
            self.call(format!("O {}", file.inode))
        }
        fn data(&mut self, file: FileId, range: ByteRange) -> bool {
            self.call(format!("D {} {}+{}", file.inode, range.start, range.length))
        }
    }

    fn plan() -> Plan {
        let file = |inode| Place::File(FileId { inode: InodeNumber(inode), generation: 1 });
        let part = |place, start, end| Part { place, range: range(start, end), first: 0, seen: Seen::NOW };
        let parts = vec![
            part(Place::Device, 4096, 16384),
            part(file(9), 0, 12288),
            part(file(3), 0, 4096),
            part(file(9), 65536, 69632),
        ];
        Plan { uuid: [0; 16], expected: Duration::from_secs(1), parts }
    }

    fn run(each: u64, fails: Option<usize>) -> (Swept, Vec<String>) {
        let mut ahead = Recorded { calls: Vec::new(), each: Duration::from_millis(each), fails };
        (sweep(&plan(), &mut ahead), ahead.calls)
    }

    #[test]
    fn it_reads_in_steps_and_opens_in_the_order_of_inodes() {
        let (swept, calls) = run(0, None);
        let expected = [
            "M 4096+8192",
            "M 12288+4096",
            "O 3",
            "O 9",
            "D 9 0+8192",
            "D 9 8192+4096",
            "D 3 0+4096",
            "D 9 65536+4096",
        ];
        assert_eq!(calls, expected);
        assert_eq!(
            (swept.metadata, swept.data, swept.files, swept.end),
            (Bytes(12288), Bytes(20480), 2, End::Complete)
        );
    }

    #[test]
    fn a_file_that_is_gone_is_left_out_and_the_rest_goes_on() {
        let (swept, calls) = run(0, Some(3));
        assert_eq!((swept.files, swept.gone, swept.data), (1, 1, Bytes(4096)));
        assert!(!calls.iter().any(|call| call.starts_with("D 9")));
    }

    #[test]
    fn whatever_call_fails_it_ends_and_counts_only_what_was_read() {
        for fails in 0..8 {
            let (swept, _) = run(0, Some(fails));
            assert_eq!(swept.end, End::Complete);
            assert!(swept.metadata.0 + swept.data.0 < 12288 + 20480 || swept.gone > 0);
        }
    }

    #[test]
    fn it_is_given_up_at_twice_the_expected_time_wherever_that_is() {
        for (each, calls) in [(2000, 1), (1000, 2), (400, 5), (250, 8)] {
            let (swept, made) = run(each, None);
            assert_eq!(made.len(), calls);
            assert_eq!(swept.end, if calls == 8 { End::Complete } else { End::Late });
            assert!(swept.seconds <= 2.0);
        }
    }
}
