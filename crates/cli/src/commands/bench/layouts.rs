//! `bench reads`, `bench copy` and `bench oltp`: the same bytes in several layouts, measured in turn.

use super::tell::{Shown, Told};
use super::{refuse_without_root, this_program};
use crate::args::bench::{CopyArgs, LayoutArgs, OltpArgs};
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use longrun_bench::copy::Copies;
use longrun_bench::layouts::LayoutSettings;
use longrun_bench::oltp::{Oltp, OltpProfile, OltpSettings};
use longrun_bench::reads::Reads;

/// Makes the files, reads them, removes them.
pub fn reads(args: &LayoutArgs) -> Result<(), Failure> {
    let (settings, watch) = begin(args, 1)?;
    let mut shown = Shown(&watch);
    let reads = Reads::prepare(&args.target, settings, watch.stop(), &mut shown)?;
    let report = reads.measure(&mut shown)?;
    watch.finish();
    Told::of(&args.target, reads.place()).tell(&report, &args.output)
}

/// Makes the files, reads and copies them, removes them.
pub fn copy(args: &CopyArgs) -> Result<(), Failure> {
    let (settings, watch) = begin(&args.layout, args.files)?;
    let mut shown = Shown(&watch);
    let copies = Copies::prepare(&args.layout.target, settings, args.fragment, watch.stop(), &mut shown)?;
    let report = copies.measure(&mut shown)?;
    watch.finish();
    Told::of(&args.layout.target, copies.place()).tell(&report, &args.layout.output)
}

/// Makes the files, has fio use them, removes them.
pub fn oltp(args: &OltpArgs) -> Result<(), Failure> {
    let (layout, watch) = begin(&args.layout, 1)?;
    let mut shown = Shown(&watch);
    let profiles = if args.profiles.is_empty() { OltpProfile::ALL.to_vec() } else { args.profiles.clone() };
    let settings = OltpSettings { layout, profiles, time: args.time };
    let oltp = Oltp::prepare(&args.layout.target, settings, &args.fio, watch.stop(), &mut shown)?;
    let report = oltp.measure(&mut shown)?;
    watch.finish();
    Told::of(&args.layout.target, oltp.place()).tell(&report, &args.layout.output)
}

fn begin(args: &LayoutArgs, files: u32) -> Result<(LayoutSettings, Watch), Failure> {
    refuse_without_root("this benchmark optimizes files, which")?;
    let watch = Watch::start()?;
    watch.phase("creating files", Unit::Steps);
    let &LayoutArgs { bytes, iterations, seed, .. } = args;
    Ok((LayoutSettings { program: this_program()?, files, bytes, iterations, seed }, watch))
}
