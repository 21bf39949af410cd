//! `analyze`: the figures of a volume, a directory or a file.

use crate::args::AnalyzeArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use crate::report::analysis::{Analysis, Findings};
use crate::report::{print, print_json};
use crate::survey::Survey;
use longrun_volume::Target;

/// Analyzes and prints.
pub fn run(args: &AnalyzeArgs) -> Result<(), Failure> {
    let target = Target::resolve(&args.target)?;
    let watch = Watch::start()?;
    let findings = examine(&target, args.top, &watch);
    watch.finish();
    let analysis = Analysis::new(&findings?);
    if args.json { print_json(&analysis) } else { print(&analysis.text()) }
}

/// Reads the whole volume from its device.
fn examine(target: &Target, top: usize, watch: &Watch) -> Result<Findings, Failure> {
    watch.phase("reading the volume", Unit::Steps);
    Survey::read(target, watch)?.findings(top)
}
