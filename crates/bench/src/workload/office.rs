//! Documents as office programs treat them: created, saved under a temporary name and renamed, rewritten, appended to.

use super::writer::{Writer, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_sys::OFlags;
use std::fs;
use std::path::{Path, PathBuf};

/// Documents of each writer at most.
const DOCUMENTS: usize = 12;
/// Sizes of new documents: between these, small ones more often.
const SMALLEST: u64 = 200 << 10;
const DOUBLINGS: f64 = 4.3;
/// Pieces in which programs write.
const PIECE: u64 = 32 << 10;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let done = together(job, |writer| {
        let mut documents: Vec<PathBuf> = Vec::new();
        for save in 0.. {
            if writer.done.bytes >= job.parameters.bytes {
                break;
            }
            let what = writer.rng.u32(..100);
            let at = writer.rng.usize(..documents.len().max(1));
            match documents.get(at).cloned() {
                Some(path) if what < 40 => save_by_renaming(writer, &path, save)?,
                Some(path) if what < 60 => rewrite(writer, &path)?,
                Some(path) if what < 75 => append(writer, &path)?,
                Some(path) if documents.len() >= DOCUMENTS => {
                    fs::remove_file(&path).map_err(|e| BenchError::io("removing it", &path, e))?;
                    documents.swap_remove(at);
                }
                _ => {
                    let length = new_length(writer);
                    documents.push(create(writer, &format!("document-{save}"), length)?);
                }
            }
        }
        Ok(())
    })?;
    Ok(done)
}

fn new_length(writer: &mut Writer<'_>) -> u64 {
    (SMALLEST as f64 * (writer.rng.f64() * DOUBLINGS).exp2()) as u64
}

fn create(writer: &mut Writer<'_>, name: &str, length: u64) -> Result<PathBuf, BenchError> {
    let mut output = writer.create(name, OFlags::empty())?;
    writer.grow(&mut output, length, PIECE)?;
    output.sync()?;
    Ok(output.path)
}

/// Somewhat longer or shorter than before, and never half of either: the new one takes the place of the old when it is whole.
fn save_by_renaming(writer: &mut Writer<'_>, path: &Path, save: u64) -> Result<(), BenchError> {
    let old = fs::metadata(path).map_err(|e| BenchError::io("examining it", path, e))?.len();
    let length = old * writer.rng.u64(80..=130) / 100;
    let fresh = create(writer, &format!("saving-{save}"), length)?;
    fs::rename(&fresh, path).map_err(|e| BenchError::io("renaming it", &fresh, e))
}

fn rewrite(writer: &mut Writer<'_>, path: &Path) -> Result<(), BenchError> {
    let mut output = writer.open(path, OFlags::TRUNC)?;
    let length = new_length(writer);
    writer.grow(&mut output, length, PIECE)?;
    output.sync()
}

/// What programs do that save every few seconds: short pieces, each durable.
fn append(writer: &mut Writer<'_>, path: &Path) -> Result<(), BenchError> {
    let mut output = writer.open(path, OFlags::DSYNC)?;
    for _ in 0..8 {
        let piece = writer.rng.u64(4 << 10..=48 << 10);
        writer.append(&mut output, piece)?;
    }
    Ok(())
}
