//! Progress and output of the benchmarks that measure files in several layouts.

use crate::args::bench::BenchOutput;
use crate::exit::Failure;
use crate::fresh;
use crate::progress::Watch;
use crate::report::findings::page;
use crate::report::{json_name, print, print_json};
use crate::text::printable_path;
use longrun_bench::layouts::{Stage, Step};
use longrun_bench::{BenchError, Findings, Place};
use longrun_engine::Progress as _;
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;

/// Shows the progress.
pub struct Shown<'a>(pub &'a Watch);

impl Stage for Shown<'_> {
    fn making(&mut self, step: Step<'_>) {
        self.0.rename(&format!("preparing: {}", step.what));
        self.0.at(step.number, step.of);
    }

    fn begin(&mut self, step: Step<'_>) -> Result<(), BenchError> {
        self.0.rename(step.what);
        self.0.at(step.number, step.of);
        Ok(())
    }
}

/// Where something was measured.
pub struct Told<'a> {
    target: &'a Path,
    place: &'a Place,
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

impl<'a> Told<'a> {
    /// At `target`, as given by the user.
    pub fn of(target: &'a Path, place: &'a Place) -> Self {
        Self { target, place }
    }

    /// Writes the page if one was asked for, and prints the findings: as one JSON object, or as a table and sentences.
    pub fn tell<F: Findings>(&self, findings: &F, output: &BenchOutput) -> Result<(), Failure> {
        let (device, filesystem) = (self.place.device().name(), self.place.mount().filesystem.as_str());
        let shown = printable_path(self.target);
        if let Some(path) = &output.html {
            let page = page(&format!("{shown} ({filesystem} on {device})"), findings);
            write_page(path, &page)?;
        }
        if output.json {
            let (target, target_hex) = json_name(self.target);
            return print_json(&Report { target, target_hex, device, filesystem, findings });
        }
        let said: String = findings.sentences().iter().map(|sentence| format!("{sentence}\n")).collect();
        print(&format!("{shown}: {}\n{}{said}", findings.title(), findings.table().text()))
    }
}

/// Writes a page to `path`.
pub fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    fresh::write(path, |file| file.write_all(page.as_bytes())).map_err(|e| Failure::io(path, "writing the page", &e))
}
