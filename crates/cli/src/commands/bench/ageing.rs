//! `bench ageing`: weeks of use with several kinds of maintenance.

use super::tell::Told;
use super::{refuse_without_root, this_program};
use crate::args::bench::AgeingArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use longrun_bench::ageing::{Ageing, AgeingSettings, Maintenance};
use longrun_engine::Progress as _;

/// Simulates the days, measures, and removes the files.
pub fn run(args: &AgeingArgs) -> Result<(), Failure> {
    refuse_without_root("this benchmark runs the service, which")?;
    let watch = Watch::start()?;
    watch.phase("ageing", Unit::Steps);
    let &AgeingArgs { days, bytes, daily: daily_percent, seed, .. } = args;
    let settings = AgeingSettings { program: this_program()?, days, bytes, daily_percent, seed };
    let bench = Ageing::prepare(&args.target, settings, watch.stop())?;
    let (mut done, of) = (0, Maintenance::ALL.len() as u64 * (u64::from(days) + 1));
    let report = bench.measure(&mut |maintenance, day| {
        watch.rename(&format!("day {day} of {days}, {}", maintenance.words()));
        watch.at(done, of);
        done += 1;
    })?;
    watch.finish();
    Told::of(&args.target, bench.place()).tell(&report, &args.output)
}
