//! `fragment`: makes fragmentation on purpose, one file or a whole volume.

use crate::args::FragmentArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch, say};
use crate::report::{json_name, print, print_json};
use crate::signals;
use crate::text::{count, counted, duration, percent, printable_path, size};
use longrun_ageing::{AgeError, age, fill_block, fragment_file};
use longrun_engine::Progress as _;
use longrun_layout::Bytes;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// A volume counts as nearly empty if less than one block in this many is used.
const IN_USE: u64 = 20;
/// The steps in which the progress of a recipe is shown.
const STEPS: f64 = 1000.0;

/// Fragments the file or ages the volume.
pub fn run(args: &FragmentArgs) -> Result<(), Failure> {
    match (&args.file, args.fragments, &args.volume) {
        (Some(file), Some(fragments), _) => one_file(file, fragments, args),
        (_, _, Some(directory)) => whole_volume(directory, args),
        _ => Err(Failure::new(Status::Usage, "give a file and --fragments, or a directory with --volume")),
    }
}

fn one_file(path: &Path, fragments: u64, args: &FragmentArgs) -> Result<(), Failure> {
    if let Some(bytes) = args.size {
        make(path, bytes, args.seed).map_err(|e| Failure::io(path, "creating the file", &e))?;
    }
    signals::refuse_stops(say).map_err(Failure::signals)?;
    let result = fragment_file(path, fragments)?;
    if args.json {
        #[derive(Serialize)]
        struct Report<'a> {
            path: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            path_hex: Option<String>,
            #[serde(flatten)]
            result: &'a longrun_ageing::Fragmented,
        }
        let (path, path_hex) = json_name(path);
        return print_json(&Report { path, path_hex, result: &result });
    }
    print(&format!(
        "{}: {} before, {} now; {} moved\n",
        printable_path(path),
        counted(result.fragments_before, "fragment", "fragments"),
        count(result.fragments_after),
        size(Bytes(result.bytes_moved))
    ))
}

/// Makes a new file of `bytes` bytes, in which no two blocks are equal. Fails if the file exists.
fn make(path: &Path, bytes: Bytes, seed: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let written = fill(&mut file, bytes, seed);
    if written.is_err() {
        // An incomplete file serves nothing, and may have filled the volume.
        _ = fs::remove_file(path);
    }
    written
}

fn fill(file: &mut File, bytes: Bytes, seed: u64) -> io::Result<()> {
    let mut block = [0; 4096];
    let mut output = io::BufWriter::with_capacity(1 << 20, file);
    let mut left = bytes.0;
    for number in 0.. {
        let length = left.min(block.len() as u64) as usize;
        let Some(part) = block.get_mut(..length).filter(|part| !part.is_empty()) else { break };
        fill_block(part, seed, 0, number);
        output.write_all(part)?;
        left -= length as u64;
    }
    output.flush()?;
    output.get_ref().sync_all()
}

fn whole_volume(directory: &Path, args: &FragmentArgs) -> Result<(), Failure> {
    if !directory.is_dir() {
        let text = "is not a directory; give the mount point of a new volume, or a directory on it";
        return Err(Failure::new(Status::Usage, format!("{}: {text}", directory.display())));
    }
    if !args.force {
        refuse_a_volume_in_use(directory)?;
    }
    let started = Instant::now();
    let watch = Watch::start()?;
    watch.refuse_stops()?;
    watch.phase("ageing", Unit::Steps);
    let summary = age(directory, args.recipe, args.seed, &mut |progress| {
        watch.at((progress.done * STEPS) as u64, STEPS as u64);
        if watch.cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    watch.finish();
    let summary = summary?;
    if args.json {
        return print_json(&summary);
    }
    print(&format!(
        "{}: {} with {}, the volume is {} full; {} written in {}\n",
        printable_path(&summary.directory),
        counted(summary.files, "file", "files"),
        size(Bytes(summary.bytes)),
        percent((summary.fill * 1000.0) as u64, 1000),
        size(Bytes(summary.bytes_written)),
        duration(started.elapsed())
    ))
}

/// A recipe fills the volume, so a volume that holds other files is refused.
fn refuse_a_volume_in_use(directory: &Path) -> Result<(), Failure> {
    let failed = |e| Failure::io(directory, "examining the volume", &e);
    if is_nearly_empty(directory).map_err(failed)? || has_only_aged_files(directory).map_err(failed)? {
        return Ok(());
    }
    let text = "the volume is in use, and ageing would fill it; use a new volume, or add --force";
    Err(Failure::new(Status::Refused, format!("{}: {text}", directory.display())))
}

fn is_nearly_empty(directory: &Path) -> io::Result<bool> {
    let capacity = longrun_sys::capacity(File::open(directory)?)?;
    let used = capacity.total.0.saturating_sub(capacity.free.0);
    Ok(used.saturating_mul(IN_USE) < capacity.total.0)
}

/// Whether the root of the volume that holds `directory` has only directories that ageing made.
fn has_only_aged_files(directory: &Path) -> io::Result<bool> {
    let directory = fs::canonicalize(directory)?;
    let device = fs::metadata(&directory)?.dev();
    let is_there = |path: &&Path| fs::metadata(path).is_ok_and(|meta| meta.dev() == device);
    let Some(root) = directory.ancestors().take_while(is_there).last() else { return Ok(false) };
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_expected = name == "lost+found" || name.as_encoded_bytes().starts_with(b"aged-");
        if !is_expected || !entry.file_type()?.is_dir() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl From<AgeError> for Failure {
    fn from(error: AgeError) -> Self {
        let status = match &error {
            AgeError::Io { .. } | AgeError::Full(_) => Status::Failed,
            AgeError::Exists(_) | AgeError::TooSmall { .. } | AgeError::Unsuitable { .. } => Status::Refused,
            AgeError::TooManyFragments { .. } => Status::Usage,
            AgeError::Interrupted(_) => Status::Interrupted,
        };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_in_the_size_asked_for_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        make(&path, Bytes(10_000), 1).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 10_000);
        assert_ne!(content[..4096], content[4096..8192]);
        let error = make(&path, Bytes(1), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}
