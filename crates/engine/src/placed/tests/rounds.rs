//! When rounds follow each other, and when no more.

use super::scenarios::{batch, settings, volume};
use super::support::Impatient;
use crate::placed::{PlanSource, optimize_with};
use crate::{PassEnd, Settings};
use longrun_layout::{Run, VolumeLayout};
use longrun_planner::{Batch, Policy};

/// Puts one of sixty files together, the first that is in pieces.
struct OneByOne;

impl PlanSource for OneByOne {
    fn plan<'l>(&self, layout: &'l VolumeLayout, _policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        let next = layout.files().find(|file| file.fragments() > 1).map(|file| u64::from(file.index.0));
        Box::new(next.map(|n| batch(&[(n as u32, 1, 121 + n, 2 + 2 * n, 1)])).into_iter())
    }
}

/// Story: a pass had done nearly all in 40 seconds. Then 63 rounds joined three free pieces of some hundreds each, and took four minutes.
#[test]
fn a_pass_whose_rounds_gain_next_to_nothing_comes_to_its_end() {
    let files: Vec<Vec<Run>> = (0..60).map(|n| vec![Run::new(0, 1 + 2 * n, 1), Run::new(1, 121 + n, 1)]).collect();
    let mut sim = volume(&files.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let settings = Settings { rounds: 64, ..settings() };
    let report = optimize_with(&mut sim, &settings, &mut Impatient::default(), &OneByOne).unwrap();
    assert_eq!((report.end, report.rounds), (PassEnd::NoGain, 5));
    assert_eq!(report.after.excess_fragments, 55, "what little they gained is kept");
    sim.check().unwrap();
}
