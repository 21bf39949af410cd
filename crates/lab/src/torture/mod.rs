//! The torture test for writers: processes use files in many ways at the same time and know the expected content,
//! while an optimizer runs repeatedly. No data may be lost, and nothing may fail that would not fail without the
//! optimizer.

mod cutting;
mod data;
mod mapped;
mod names;
mod programs;
mod readers;

use crate::oracle::dump;
use crate::{LoopVolume, Optimizer, aged_directory};
use anyhow::{Context, Result};
use data::{DataWriter, Habit};
use mapped::MappedReader;
use names::Names;
use programs::Programs;
use readers::Reader;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any pass takes.
const LIMIT: Duration = Duration::from_secs(900);
/// Pieces into which the writers' files are cut before each pass, so that every pass has to move them.
const PIECES: u64 = 24;
/// Unexpected errors kept for the report.
const KEPT: usize = 20;

/// The number of passes that may give way to writers that fill the volume, before one must complete.
const MOST_YIELDED: u64 = 50;

/// Odd while the harness itself cuts files into pieces: what is slow or refused then is not the optimizer's doing.
static CUTTING: AtomicU64 = AtomicU64::new(0);

/// What to do.
#[derive(Clone, Debug)]
pub struct TortureSettings {
    /// Seed of everything random.
    pub seed: u64,
    /// How long the writers run alone, to know their stalls without an optimizer.
    pub alone: Duration,
    /// How long they run beside the optimizer (at least one whole pass).
    pub beside: Duration,
}

/// How it went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TortureReport {
    /// Passes that left the space to the writers before their end.
    pub yielded: u64,
    /// Passes of the optimizer.
    pub passes: u64,
    /// Bytes that passes moved to place files by heat.
    pub placed: u64,
    /// Passes that placed nothing, by reason.
    pub not_placed: BTreeMap<String, u64>,
    /// Operations of the writers beside it.
    pub operations: u64,
    /// The longest that one operation took without the optimizer, in milliseconds, by kind.
    pub worst_alone_ms: BTreeMap<String, f64>,
    /// The longest that one operation took beside it, in milliseconds, by kind.
    pub worst_beside_ms: BTreeMap<String, f64>,
    /// Errors that a user would have seen (ETXTBSY, ENOSPC, EAGAIN, …), and how often.
    pub unexpected_errors: BTreeMap<String, u64>,
    /// Files that the optimizer skipped, by reason, over all passes.
    pub skipped: BTreeMap<String, u64>,
}

/// A participant: does one thing after another, and knows what must be there in the end.
trait Participant: Send {
    /// What it is called in reports.
    fn kind(&self) -> String;
    /// One operation.
    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()>;
    /// Compares what is there with what must be there.
    fn verify(&mut self) -> Result<()>;
}

/// Operations, and the longest of them, of one participant.
#[derive(Default)]
struct Meter {
    operations: AtomicU64,
    worst_microseconds: AtomicU64,
}

/// Runs the torture on a mounted volume that holds some aged files.
///
/// # Errors
/// Any byte wrong, before or after everything has left the memory; a file system that is not clean; an optimizer that
/// fails.
pub fn torture(volume: &LoopVolume, optimizer: &Optimizer, settings: &TortureSettings) -> Result<TortureReport> {
    let mount_point = volume.mount_point();
    let bystanders = aged_directory(&mount_point)?;
    crate::furnish(volume, &bystanders, settings.seed)?;
    let before = dump(&bystanders)?;
    let directory = mount_point.join("torture");
    std::fs::create_dir(&directory)?;
    let mut rng = fastrand::Rng::with_seed(settings.seed);
    let mut participants: Vec<Box<dyn Participant>> = Vec::new();
    for habit in Habit::ALL {
        participants.push(Box::new(DataWriter::create(&directory, habit, &mut rng)?));
    }
    participants.push(Box::new(Names::create(&directory)?));
    participants.push(Box::new(Programs::create(&directory)?));
    participants.push(Box::new(MappedReader::create(&directory, &mut rng)?));
    participants.push(Box::new(Reader::new(&bystanders, &before)?));

    let mut report = TortureReport::default();
    let (_, worst) = run_all(&mut participants, settings.seed, &mut report, |_| {
        std::thread::sleep(settings.alone);
        Ok(())
    })?;
    report.worst_alone_ms = worst;
    let (operations, worst) = run_all(&mut participants, !settings.seed, &mut report, |report| {
        let start = Instant::now();
        while report.passes == 0 || start.elapsed() < settings.beside {
            one_pass(&mount_point, &directory, optimizer, report)?;
        }
        Ok(())
    })?;
    (report.operations, report.worst_beside_ms) = (operations, worst);

    participants.iter_mut().try_for_each(|p| p.verify().with_context(|| format!("{}, from memory", p.kind())))?;
    volume.drop_caches()?;
    participants.iter_mut().try_for_each(|p| p.verify().with_context(|| format!("{}, from the device", p.kind())))?;
    drop(participants);
    volume.remount()?;
    optimizer.compare(&before, &dump(&bystanders)?).context("files that nobody wrote to")?;
    volume.check()?;
    Ok(report)
}

/// Runs every participant in a thread of its own while `meanwhile` runs; returns operations and worst times.
fn run_all(
    participants: &mut [Box<dyn Participant>],
    seed: u64,
    report: &mut TortureReport,
    meanwhile: impl FnOnce(&mut TortureReport) -> Result<()>,
) -> Result<(u64, BTreeMap<String, f64>)> {
    let stop = AtomicBool::new(false);
    let meters: Vec<Meter> = participants.iter().map(|_| Meter::default()).collect();
    let errors = Mutex::new(BTreeMap::new());
    let outcome = std::thread::scope(|scope| {
        for ((number, participant), meter) in (0..).zip(participants.iter_mut()).zip(&meters) {
            let (stop, errors) = (&stop, &errors);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number));
                while !stop.load(Ordering::Relaxed) {
                    let (cutting, start) = (CUTTING.load(Ordering::SeqCst), Instant::now());
                    let result = participant.step(&mut rng);
                    let microseconds = start.elapsed().as_micros() as u64;
                    let cut_meanwhile = cutting % 2 == 1 || CUTTING.load(Ordering::SeqCst) != cutting;
                    if let Err(error) = result
                        && !(cut_meanwhile && is_busy_program(&error))
                    {
                        let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
                        if errors.len() < KEPT {
                            *errors.entry(format!("{}: {error:#}", participant.kind())).or_insert(0) += 1;
                        }
                    }
                    if !cut_meanwhile {
                        meter.worst_microseconds.fetch_max(microseconds, Ordering::Relaxed);
                    }
                    meter.operations.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(rng.u64(0..1500)));
                }
            });
        }
        let outcome = meanwhile(report);
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    outcome?;
    report.unexpected_errors.extend(errors.into_inner().unwrap_or_else(PoisonError::into_inner));
    let worst = participants
        .iter()
        .zip(&meters)
        .map(|(p, m)| (p.kind(), m.worst_microseconds.load(Ordering::Relaxed) as f64 / 1000.0));
    Ok((meters.iter().map(|m| m.operations.load(Ordering::Relaxed)).sum(), worst.collect()))
}

/// Cuts the writers' files into pieces under their hands, and lets the optimizer run once.
fn one_pass(mount: &Path, directory: &Path, optimizer: &Optimizer, report: &mut TortureReport) -> Result<()> {
    CUTTING.fetch_add(1, Ordering::SeqCst);
    let cut = cut_into_pieces(directory);
    CUTTING.fetch_add(1, Ordering::SeqCst);
    cut?;
    let finished = optimizer.start(mount)?.wait(LIMIT)?;
    if optimizer.is_ours() {
        // The writers may fill the volume: then it is right to leave the space to them, and to try again later.
        let yielded = ["needed the free space", "too little free space"];
        if !finished.status.success() && yielded.iter().any(|reason| finished.stderr.contains(reason)) {
            report.yielded += 1;
            anyhow::ensure!(report.yielded < MOST_YIELDED, "the optimizer never had space to work with");
            return Ok(());
        }
        anyhow::ensure!(
            finished.status.success(),
            "{} ended with {}:\n{}",
            optimizer.name(),
            finished.status,
            finished.stderr
        );
        count(&finished.stdout, report)?;
    }
    report.passes += 1;
    Ok(())
}

/// Fragments the writers' files, those excepted that change too fast: the next pass finds them.
fn cut_into_pieces(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "prey") {
            cutting::cut(&path, PIECES)?;
        }
    }
    Ok(())
}

/// Whether executing failed because the file is open for writing.
fn is_busy_program(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy)
}

/// Adds the skipped files of a pass, and what it placed by heat, from the optimizer's own report.
fn count(json: &str, report: &mut TortureReport) -> Result<()> {
    let value: serde_json::Value = serde_json::from_str(json).context("the optimizer's report is no JSON")?;
    report.placed += value["placement"]["moved"].as_u64().unwrap_or_default();
    if let Some(why) = value["placement"]["refused"].as_str() {
        *report.not_placed.entry(why.to_owned()).or_insert(0) += 1;
    }
    for skipped in value.get("skipped").and_then(serde_json::Value::as_array).into_iter().flatten() {
        let reason = skipped.get("reason").map(|r| r.as_str().map_or_else(|| r.to_string(), str::to_owned));
        let files = skipped.get("files").and_then(serde_json::Value::as_u64).unwrap_or(1);
        *report.skipped.entry(reason.unwrap_or_default()).or_insert(0) += files;
    }
    Ok(())
}
