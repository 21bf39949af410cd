//! `bench reads`, `bench copy` and `bench oltp`: the same bytes, laid in several ways, measured in turn.

use super::{refuse_without_root, this_program};
use crate::args::bench::{CopyArgs, LayoutArgs, OltpArgs};
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use crate::report::{json_name, print, print_json};
use longrun_bench::copy::Copies;
use longrun_bench::layouts::{LayoutSettings, Stage, Step};
use longrun_bench::oltp::{Oltp, OltpProfile, OltpSettings};
use longrun_bench::reads::Reads;
use longrun_bench::{BenchError, Findings, Place};
use longrun_volume::Progress as _;
use serde::Serialize;
use std::path::Path;

/// Makes the files, reads them, removes them.
pub fn reads(args: &LayoutArgs) -> Result<(), Failure> {
    let (settings, watch) = begin(args, 1)?;
    let mut shown = Shown(&watch);
    let reads = Reads::prepare(&args.target, settings, watch.stop(), &mut shown)?;
    let report = reads.measure(&mut shown)?;
    watch.finish();
    tell(args, reads.place(), &report)
}

/// Makes the files, reads and copies them, removes them.
pub fn copy(args: &CopyArgs) -> Result<(), Failure> {
    let (settings, watch) = begin(&args.layout, args.files)?;
    let mut shown = Shown(&watch);
    let copies = Copies::prepare(&args.layout.target, settings, args.fragment, watch.stop(), &mut shown)?;
    let report = copies.measure(&mut shown)?;
    watch.finish();
    tell(&args.layout, copies.place(), &report)
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
    tell(&args.layout, oltp.place(), &report)
}

fn begin(args: &LayoutArgs, files: u32) -> Result<(LayoutSettings, Watch), Failure> {
    refuse_without_root("optimizing, which is measured,")?;
    let watch = Watch::start()?;
    watch.phase("making files", Unit::Steps);
    let &LayoutArgs { bytes, iterations, seed, .. } = args;
    Ok((LayoutSettings { program: this_program()?, files, bytes, iterations, seed }, watch))
}

/// Shows how far things are.
struct Shown<'a>(&'a Watch);

impl Stage for Shown<'_> {
    fn making(&mut self, step: Step<'_>) {
        self.0.rename(&format!("making files: {}", step.what));
        self.0.at(step.number, step.of);
    }

    fn begin(&mut self, step: Step<'_>) -> Result<(), BenchError> {
        self.0.rename(step.what);
        self.0.at(step.number, step.of);
        Ok(())
    }
}

#[derive(Serialize)]
struct Report<'a, F> {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    device: &'a str,
    filesystem: &'a str,
    #[serde(flatten)]
    findings: &'a F,
}

fn tell<F: Findings>(args: &LayoutArgs, place: &Place, findings: &F) -> Result<(), Failure> {
    if args.json {
        let (target, target_hex) = json_name(&args.target);
        let (device, filesystem) = (place.device().name(), place.mount().filesystem.as_str());
        return print_json(&Report { target, target_hex, device, filesystem, findings });
    }
    print(&text(&args.target, findings))
}

fn text<F: Findings>(target: &Path, findings: &F) -> String {
    let said: String = findings.sentences().iter().map(|sentence| format!("{sentence}\n")).collect();
    let target = crate::text::printable_path(target);
    format!("{target}: {}\n{}{said}", findings.title(), findings.table().text())
}
