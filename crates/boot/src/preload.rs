//! Reading ahead what a list says: finds the plan, checks that it may, and leaves a note for the recorder.
//!
//! Never fails: what cannot be done is not done, and the answer says why. Everything that has a path is opened before the first read:
//! while a system starts, its root is moved.

use crate::plan::MOST;
use crate::store::{Names, Store, trusted_text};
use crate::sweep::{Ahead as _, Swept, sweep};
use crate::system::Root;
use crate::volume::Volume;
use longrun_layout::Bytes;
use longrun_sys::{format_uuid, make_directory_within, open_within, remove_within, write_within};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where the notes are, below /run.
const NOTES: &str = "longrun-boot";
/// Of the memory that can be had, this part is used at most.
const PART_OF_MEMORY: u64 = 4;

/// Why nothing was read ahead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The kernel's command line.
    #[error("the kernel's command line says longrun.preload=0")]
    Forbidden,
    /// Not recorded yet, or it is the turn of a boot without.
    #[error("there is nothing to read ahead this time")]
    NoPlan,
    /// It is of another volume.
    #[error("the list is of another volume")]
    OtherVolume,
    /// The plan cannot be used, or the volume.
    #[error("{0}")]
    Unusable(String),
}

/// What became of it; also the note for the recorder, one for each list and volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was read; `None` while it is under way, or when it was killed.
    pub swept: Option<Swept>,
}

/// Reads ahead what the plan of `names` says, on the volume of `directory` in the system `root`.
///
/// # Errors
/// [`Why`] nothing was read.
pub fn preload(root: &Root, state: &Path, names: &Names, directory: OwnedFd) -> Result<Swept, Why> {
    let unusable = |error: &dyn std::fmt::Display| Why::Unusable(error.to_string());
    if root.forbids() {
        return Err(Why::Forbidden);
    }
    let store = Store::find(root, state).map_err(|error| unusable(&error))?.ok_or(Why::NoPlan)?;
    let plan = store.plan(names).map_err(|error| unusable(&error))?.ok_or(Why::NoPlan)?;
    let notes = notes(root).ok();
    let mut volume = Volume::of(directory, root).map_err(|error| unusable(&error))?;
    if volume.uuid != plan.uuid {
        return Err(Why::OtherVolume);
    }
    let plan = plan.at_most(memory_for(root.available_memory()));
    // Fails for the first few thousand files at worst.
    _ = longrun_sys::raise_open_file_limit();
    let name = note_name(names, &plan.uuid);
    note(notes.as_ref(), &name, &Outcome::default());
    let swept = sweep(&plan, &mut volume);
    note(notes.as_ref(), &name, &Outcome { swept: Some(swept) });
    tracing::debug!(seconds = volume.elapsed().as_secs_f64(), "read ahead");
    Ok(swept)
}

/// The note that reading ahead has left in this system, which is taken away; `None` when nothing was read ahead.
#[must_use]
pub fn take_outcome(root: &Root, names: &Names, volume: &Volume) -> Option<Outcome> {
    let notes = notes(root).ok()?;
    let name = note_name(names, &volume.uuid);
    let path = Path::new(&name);
    let text = trusted_text(open_within(&notes, path).ok()?.into(), path).ok()?;
    _ = remove_within(&notes, &name);
    // One that is cut short was begun.
    Some(serde_json::from_str(&text).unwrap_or_default())
}

fn note_name(names: &Names, uuid: &[u8; 16]) -> String {
    format!("{}.{}", names.as_str(), format_uuid(uuid))
}

fn memory_for(available: Option<Bytes>) -> Bytes {
    MOST.min(Bytes(available.map_or(0, |bytes| bytes.0 / PART_OF_MEMORY)))
}

fn note(notes: Option<&OwnedFd>, name: &str, outcome: &Outcome) {
    let written = notes.map(|notes| {
        let text = serde_json::to_string(outcome).unwrap_or_default();
        write_within(notes, name, text.as_bytes())
    });
    if let Some(Err(error)) = written {
        tracing::debug!(%error, "no note for the recorder");
    }
}

/// The directory of notes: in the system's /run where that is mounted, else in that of the initramfs, which becomes it.
fn notes(root: &Root) -> io::Result<OwnedFd> {
    let inside = root.open_file(Path::new("/run"));
    let device = |directory: &OwnedFd| Some(File::from(directory.try_clone().ok()?).metadata().ok()?.dev());
    let own = device(&root.open_file(Path::new("/"))?);
    let run = match inside {
        Ok(inside) if device(&inside) != own => inside,
        _ => File::open("/run")?.into(),
    };
    Ok(make_directory_within(run, NOTES)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_quarter_of_the_memory_and_half_a_gibibyte() {
        assert_eq!(memory_for(Some(Bytes(1 << 30))), Bytes(256 << 20));
        assert_eq!(memory_for(Some(Bytes(64 << 30))), MOST);
        assert_eq!(memory_for(None), Bytes(0), "unknown: nothing");
    }

    #[test]
    fn a_note_cut_short_means_that_it_was_begun() {
        assert_eq!(serde_json::from_str::<Outcome>("{\"sw").unwrap_or_default(), Outcome::default());
    }
}
