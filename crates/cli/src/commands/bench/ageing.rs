//! `bench ageing`: weeks of use, looked after in several ways.

use super::tell::Told;
use super::{refuse_without_root, this_program};
use crate::args::bench::AgeingArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use longrun_bench::ageing::{Ageing, AgeingSettings, Care};
use longrun_volume::Progress as _;

/// Lives, looks, removes.
pub fn run(args: &AgeingArgs) -> Result<(), Failure> {
    refuse_without_root("the service that is measured")?;
    let watch = Watch::start()?;
    watch.phase("living", Unit::Steps);
    let &AgeingArgs { days, bytes, daily: daily_percent, seed, .. } = args;
    let settings = AgeingSettings { program: this_program()?, days, bytes, daily_percent, seed };
    let bench = Ageing::prepare(&args.target, settings, watch.stop())?;
    let (mut done, of) = (0, Care::ALL.len() as u64 * (u64::from(days) + 1));
    let report = bench.measure(&mut |care, day| {
        watch.rename(&format!("day {day} of {days}, {}", care.words()));
        watch.at(done, of);
        done += 1;
    })?;
    watch.finish();
    Told::of(&args.target, bench.place()).tell(&report, &args.output)
}
