//! `bench install`: unpacks software on a volume that has aged, and on one that has been optimized.

use super::tell::{Shown, Told};
use super::{refuse_without_root, this_program};
use crate::args::bench::InstallArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use longrun_bench::install::{Install, Software, Source};

/// Packs, unpacks, removes.
pub fn run(args: &InstallArgs) -> Result<(), Failure> {
    refuse_without_root("this benchmark traces and optimizes, which")?;
    let watch = Watch::start()?;
    watch.phase("preparing the software", Unit::Steps);
    let source = match &args.archive {
        Some(archive) => Source::Archive(archive.clone()),
        None => Source::Tree { path: args.tree.clone(), most: args.bytes },
    };
    let software = Software::prepare(&source, watch.stop())?;
    let targets: Vec<_> = std::iter::once(&args.target).chain(&args.optimized).map(AsRef::as_ref).collect();
    let install = Install::prepare(&targets, &software, args.iterations, watch.stop())?;
    let (mut first, mut second) = (Shown(&watch), Shown(&watch));
    let report = match &args.optimized {
        Some(_) => install.by_turns([&mut first, &mut second])?,
        None => install.around_optimizing(&this_program()?, &mut first)?,
    };
    watch.finish();
    install.places().first().map_or(Ok(()), |place| Told::of(&args.target, place).tell(&report, &args.output))
}
