//! `bench invisibility`: works beside an optimizer, and alone.

use super::tell::Told;
use super::{refuse_without_root, this_program};
use crate::args::bench::InvisibilityArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use longrun_bench::invisibility::{Invisibility, InvisibilitySettings, Mode};
use longrun_engine::Progress as _;

/// Makes the files, works, removes them.
pub fn run(args: &InvisibilityArgs) -> Result<(), Failure> {
    refuse_without_root("this benchmark runs an optimizer, which")?;
    let watch = Watch::start()?;
    watch.phase("creating files", Unit::Steps);
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let of = modes.len() as u64 * u64::from(args.iterations);
    let &InvisibilityArgs { bytes: copy, reads, iterations, seed, .. } = args;
    let (reads_per_second, writes_per_second) = (f64::from(args.rate), f64::from(args.writes));
    let program = this_program()?;
    let settings =
        InvisibilitySettings { program, modes, copy, reads, reads_per_second, writes_per_second, iterations, seed };
    let bench = Invisibility::prepare(&args.target, settings, watch.stop())?;
    let mut done = 0;
    let report = bench.measure(&mut |act| act(), &mut |mode, round| {
        watch.rename(&format!("round {}: {mode}", round + 1));
        watch.at(done, of);
        done += 1;
    })?;
    watch.finish();
    Told::of(&args.target, bench.place()).tell(&report, &args.output)
}
