//! `boot`: records what a boot or an application reads, and has it read in one sweep.

mod installing;
mod lists;
mod recording;

use crate::args::boot::{Boot, Place, PreloadArgs};
use crate::exit::{Failure, Status};
use crate::progress::say;
use crate::text::size;
use longrun_boot::{LONGEST, Names, Order, RecorderError, Root, Store, StoreError, Swept, Unsupported, Volume, Why};
use longrun_governor::DiskKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// What preloading may take besides reading.
const SPARE: Duration = Duration::from_secs(5);

/// Does what is asked about the boot.
pub fn run(what: &Boot) -> Result<(), Failure> {
    match what {
        Boot::Record(args) => recording::record(args),
        Boot::Learn(args) => recording::learn(args),
        Boot::Status(args) => lists::status(args),
        Boot::Plan(args) => lists::plan(args),
        Boot::Export(args) => lists::export(args),
        Boot::Import(args) => lists::import(args),
        Boot::Enable(args) => installing::enable(args),
        Boot::Disable(args) => installing::disable(args),
        Boot::Preload(args) => {
            preload(args);
            Ok(())
        }
    }
}

/// Reads ahead, in bounded time, and says in one line what became of it. Never fails.
fn preload(args: &PreloadArgs) {
    // A disk that does not answer must not keep us, and nobody waits for us.
    longrun_sys::end_after(LONGEST + SPARE);
    match try_preload(args) {
        Ok(swept) => say(&format!(
            "boot preload: {} of files and {} of metadata in {:.1} s; {} files are gone{}",
            size(swept.data),
            size(swept.metadata),
            swept.seconds,
            swept.gone,
            if swept.end == longrun_boot::End::Late { "; given up, because it took too long" } else { "" }
        )),
        Err(why) => say(&format!("boot preload: nothing is read ahead: {why}")),
    }
}

fn try_preload(args: &PreloadArgs) -> Result<Swept, Why> {
    let unusable = |error: &dyn std::fmt::Display| Why::Unusable(error.to_string());
    let root = open_root(&args.place, args.root_on_stdin).map_err(|error| unusable(&error))?;
    let names = Names::of(&args.list).map_err(|error| unusable(&error))?;
    let directory = open_volume(&args.place, &root).map_err(|error| unusable(&error))?;
    longrun_boot::preload(&root, &args.place.state, &names, directory)
}

fn open_root(place: &Place, on_stdin: bool) -> Result<Root, Failure> {
    let opened = if on_stdin { Root::of_standard_input() } else { Root::open(&place.root) };
    opened.map_err(|error| Failure::io(&place.root, "opening the root directory", &error))
}

/// The directory by which the volume is known.
fn open_volume(place: &Place, root: &Root) -> Result<OwnedFd, Failure> {
    let path = place.volume.as_deref().unwrap_or(Path::new("/"));
    root.open_file(path).map_err(|error| Failure::io(path, "opening the directory of the volume", &error.into()))
}

/// The volume, with its files.
fn volume(place: &Place, root: &Root) -> Result<Volume, Failure> {
    let directory = open_volume(place, root)?;
    let shown = place.volume.as_deref().unwrap_or(&place.root);
    Volume::of(directory, root).map_err(|error| {
        let status = match &error {
            Unsupported::FileSystem | Unsupported::Nameless => Status::Refused,
            Unsupported::Io { .. } => Status::Failed,
        };
        Failure::new(status, format!("{}: {error}", shown.display()))
    })
}

/// The files of all lists, where there are any.
fn store(place: &Place, root: &Root) -> Result<Option<Store>, Failure> {
    Ok(Store::find(root, &place.state)?)
}

/// A rotating disk is read in its own order; any other in the order of need.
fn order(volume: &Volume) -> Order {
    match DiskKind::below(volume.device) {
        Some(DiskKind::Rotational) => Order::Disk,
        _ => Order::FirstUse,
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::Name { .. } => Status::Usage,
            StoreError::Untrusted { .. } | StoreError::Damaged { .. } => Status::Refused,
            StoreError::Io { .. } => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}

impl From<RecorderError> for Failure {
    fn from(error: RecorderError) -> Self {
        let mut failure = Self::new(Status::Refused, error.to_string());
        failure.needs_root = matches!(error, RecorderError::NotPermitted);
        failure
    }
}
