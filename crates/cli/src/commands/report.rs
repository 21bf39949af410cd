//! `report`: what prevention and mending did, from the history that the service keeps.

use crate::args::{ReportArgs, ReportFormat};
use crate::exit::{Failure, Status};
use crate::fresh;
use crate::report::{history, print};
use jiff::Timestamp;
use longrun_ledger::{LedgerError, Period, Query, Reader, Report};
use std::io::Write as _;

/// The number of events shown.
const EVENTS: usize = 50;
/// The name of the database within the state directory.
const DATABASE: &str = "ledger.db";

/// Reads and shows.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let period = period(args, Timestamp::now())?;
    let query = Query { period, volume: args.volume.clone(), events: EVENTS };
    let report = match Reader::open(&args.state.join(DATABASE)).and_then(|reader| reader.report(&query)) {
        // A service that has not run yet has no history, which is not a failure.
        Err(LedgerError::Missing { .. }) => Report::empty(period),
        read => read?,
    };
    let shown = match args.format {
        _ if args.json => json(&report)?,
        ReportFormat::Json => json(&report)?,
        ReportFormat::Text => history::text(&report),
        ReportFormat::Html => history::page(&report),
    };
    match &args.output {
        None => print(&shown),
        Some(path) => fresh::write(path, |file| file.write_all(shown.as_bytes()))
            .map_err(|e| Failure::io(path, "writing the report", &e)),
    }
}

fn json(report: &Report) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure::output(e.into()))?;
    Ok(text + "\n")
}

fn period(args: &ReportArgs, now: Timestamp) -> Result<Period, Failure> {
    let from = args.since.seen_from(now);
    let to = args.until.map_or(now, |until| until.seen_from(now));
    if from < to {
        return Ok(Period { from, to });
    }
    let message =
        "the period ends before it begins; write for example --since 2026-11-01 --until 2026-11-08, or --since 7d";
    Err(Failure::new(Status::Usage, message))
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        let status = match &error {
            LedgerError::UnknownVolume { .. } => Status::Usage,
            LedgerError::Newer { .. } | LedgerError::Older { .. } | LedgerError::Foreign { .. } => Status::Refused,
            _ => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}
