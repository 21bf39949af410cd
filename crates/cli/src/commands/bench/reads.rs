//! `bench reads`: reads the same bytes, laid in several ways.

use super::{refuse_without_root, this_program};
use crate::args::bench::ReadsArgs;
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use crate::report::{json_name, print, print_json};
use crate::text::size;
use longrun_bench::reads::{Lie, Reads, ReadsReport, ReadsSettings};
use longrun_volume::Progress as _;
use serde::Serialize;

#[derive(Serialize)]
struct Report<'a> {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    device: &'a str,
    filesystem: &'a str,
    #[serde(flatten)]
    reads: &'a ReadsReport,
}

/// Makes the files, reads them, removes them.
pub fn run(args: &ReadsArgs) -> Result<(), Failure> {
    refuse_without_root("optimizing, which is measured,")?;
    let watch = Watch::start()?;
    let ReadsArgs { bytes, iterations, seed, .. } = *args;
    let settings = ReadsSettings { program: this_program()?, bytes, iterations, seed };
    watch.phase("making files", Unit::Steps);
    let (mut made, layouts) = (0, Lie::ALL.len() as u64);
    let reads = Reads::prepare(&args.target, settings, watch.stop(), &mut |lie| {
        watch.rename(&format!("making a file: {lie}"));
        watch.at(made, layouts);
        made += 1;
    })?;
    let (mut read, all) = (0, layouts * u64::from(iterations));
    let report = reads.measure(&mut || Ok(()), &mut |lie, round| {
        watch.rename(&format!("reading: {lie}, round {}", round + 1));
        watch.at(read, all);
        read += 1;
    })?;
    watch.finish();
    if !args.json {
        return print(&text(&report));
    }
    let (target, target_hex) = json_name(&args.target);
    let (device, filesystem) = (reads.place().device().name(), reads.place().mount().filesystem.as_str());
    print_json(&Report { target, target_hex, device, filesystem, reads: &report })
}

fn text(report: &ReadsReport) -> String {
    let line = |cells: [&str; 7]| {
        let [first, rest @ ..] = cells;
        rest.iter().fold(format!("  {first:<38}"), |line, cell| format!("{line}{cell:>12}")) + "\n"
    };
    let [first, fragments, seconds, rate, requests, size_of, whole] = ReadsReport::COLUMNS;
    let whole = whole.split(',').next().unwrap_or_default();
    let mut text = format!("Cold sequential reads of {} each, {} times\n", size(report.bytes), report.iterations);
    text += &line([first, fragments, seconds, rate, requests, size_of, whole]);
    for row in report.rows() {
        text += &line(row.each_ref().map(String::as_str));
    }
    text + &report.sentence() + "\n"
}
