//! The real planner and the engine together, on aged volumes.

use super::support::{Impatient, fragments};
use crate::engine::{Report, Settings, optimize};
use crate::sim::{SimVolume, recipes};
use longrun_layout::{Blocks, VolumeLayout};
use longrun_planner::Mode;

fn pass(layout: VolumeLayout, mode: Mode) -> (Report, SimVolume) {
    let mut sim = SimVolume::new(layout, 1);
    let settings = Settings { mode, ..Settings::default() };
    let report = optimize(&mut sim, &settings, &mut Impatient::default()).unwrap();
    eprintln!("{report:?}");
    sim.check().unwrap();
    assert!(sim.held().is_empty());
    (report, sim)
}

#[test]
fn a_full_pass_reaches_zero_excess_on_every_kind_of_volume() {
    for recipe in [recipes::server, recipes::office, recipes::media] {
        let layout = recipe(5, Blocks(1 << std::env::var("LOG").map_or(17, |l| l.parse::<u32>().unwrap())));
        let found = fragments(&layout);
        let (report, sim) = pass(layout, Mode::Full);
        assert!(fragments(&sim.layout()) <= found);
        assert_eq!(report.skipped, []);
        assert!(report.after.excess_fragments <= 2, "{report:?}");
    }
}
