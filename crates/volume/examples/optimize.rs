//! Optimizes a mounted volume and prints the report: the engine alone, without the command line around it.
//! `optimize [--mode full|efficient|files] MOUNT`; needs root. With LONGRUN_BIN the laboratory's harness runs it in place
//! of `longrun optimize`, whose options it takes.
#![allow(clippy::print_stdout, reason = "an example talks on standard output")]

use longrun_layout::FileId;
use longrun_planner::Mode;
use longrun_volume::chunked::{self, Scope};
use longrun_volume::engine::{Observer, Phase, Settings, Status, Stop, optimize};
use longrun_volume::{Opened, SkipReason, Target, open};
use std::error::Error;
use std::path::Path;

/// Says which files are left alone, and why, and how far each round came.
#[derive(Default)]
struct Talkative {
    last: Option<Status>,
}

impl Observer for Talkative {
    fn status(&mut self, status: Status) {
        if let Some(last) = self.last.filter(|last| last.round != status.round && last.phase != Phase::Scan) {
            eprintln!("round {}: {} of {} planned bytes moved", last.round, last.done, last.total);
        }
        self.last = Some(status);
    }

    fn skipped(&mut self, file: FileId, reason: SkipReason) {
        eprintln!("skipped inode {}: {reason:?}", file.inode);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = match arguments.iter().skip_while(|word| *word != "--mode").nth(1).map(String::as_str) {
        Some("efficient") => Mode::Efficient,
        Some("files") => Mode::Files,
        _ => Mode::Full,
    };
    let target = Target::resolve(Path::new(arguments.last().ok_or("optimize [--mode MODE] MOUNT")?))?;
    let settings = Settings { mode, ..Settings::default() };
    let report = match open(&target)? {
        Opened::Placed(mut volume) => optimize(&mut *volume, &settings, &mut Talkative::default())?,
        Opened::Chunked(mut volume) => {
            chunked::optimize(&mut *volume, &Scope::All, &settings, &mut Talkative::default())?
        }
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    if report.stop == Some(Stop::SpaceNeeded) {
        return Err("others needed the free space".into());
    }
    Ok(())
}
