//! Giving the free space of a volume on a disk image back: NTFS by its bitmap, others by the kernel, where they are mounted.
//!
//! Owns what is reported of an image. What is free only the volume decides.

use super::super::disk::Outcome;
use super::super::optimize;
use crate::args::reclaim::ReclaimArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::compaction::Compaction;
use crate::report::optimization::Optimization;
use crate::report::print;
use crate::survey::Survey;
use crate::text::size;
use longrun_engine::ScanProgress;
use longrun_layout::Bytes;
use longrun_volume::reclaim::Limits;
use longrun_volume::{Reclaim, Target, file_system_name, give_back, is_offline, is_unfinished};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// What is printed as JSON.
#[derive(Serialize)]
pub struct Reclaimed {
    filesystem: String,
    free_bytes: u64,
    /// What the storage was asked to take back; with a dry run, what it would be.
    reclaimed_bytes: u64,
    /// Whether the format keeps its space, so that zeros were written instead.
    zeroed: bool,
    /// What the image takes on its storage.
    allocated_before_bytes: Option<u64>,
    allocated_after_bytes: Option<u64>,
    /// Whether something that an interrupted run had begun was completed first.
    recovered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    consolidation: Option<Box<Optimization>>,
    /// Of an image without partitions: of others it stands beside the volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    seconds: f64,
}

/// Gives back what is free on one volume. Prints text, but no JSON.
pub fn on_volume(args: &ReclaimArgs, target: &Target, watch: &mut Watch) -> Result<Outcome<Reclaimed>, Failure> {
    let target = &Target { spoils_shadow_copies: args.spoil_shadow_copies, ..target.clone() };
    watch.govern(args.manner.governor(target.device_number));
    let (begun, least) = (Instant::now(), args.min_extent.unwrap_or_default());
    let image = if target.inside.is_some() || target.mount.is_none() { Some(target.device.as_path()) } else { None };
    let allocated = |image: Option<&Path>| Some(std::fs::metadata(image?).ok().filter(|m| m.is_file())?.blocks() * 512);
    let mut told = Reclaimed {
        filesystem: file_system_name(target),
        free_bytes: 0,
        reclaimed_bytes: 0,
        zeroed: false,
        allocated_before_bytes: allocated(image),
        allocated_after_bytes: None,
        recovered: false,
        consolidation: None,
        compaction: None,
        seconds: 0.0,
    };
    if args.dry_run {
        watch.phase("reading the volume", Unit::Steps);
        let survey = Survey::read(target, &ScanProgress::new(watch, 0))?;
        let layout = survey.layout();
        let pieces = || layout.free().iter().map(|piece| layout.block_size().to_bytes(piece.length));
        told.free_bytes = pieces().sum::<Bytes>().0;
        told.reclaimed_bytes = pieces().filter(|piece| *piece >= least).sum::<Bytes>().0;
        watch.finish();
        return finish(args, told, begun, Ok(()));
    }
    if args.consolidate {
        let done = optimize::consolidate(target, args.deadline, !args.json, watch)?;
        if !args.json {
            print(&done.text())?;
        }
        told.consolidation = Some(Box::new(done));
    }
    watch.phase("giving free space back", Unit::Bytes);
    let mut stopped = false;
    if is_offline(target) {
        told.recovered = is_unfinished(target);
        let given = give_back(target, least, &ScanProgress::new(watch, 0))?;
        (told.free_bytes, told.reclaimed_bytes, told.zeroed) = (given.free.0, given.bytes.0, given.zeroed);
        stopped = given.stopped;
    } else {
        let volume = Reclaim::open(target)?;
        told.free_bytes = volume.space(least, &ScanProgress::new(watch, 0))?.free.0;
        let limits = Limits { deadline: args.deadline, rate: args.rate };
        let given = volume.run(least, limits, begun, watch)?;
        if let Some(error) = given.failure {
            return Err(error.into());
        }
        told.reclaimed_bytes = given.bytes.0;
    }
    watch.finish();
    told.allocated_after_bytes = allocated(image);
    let end = if stopped {
        Err(Failure::new(Status::Interrupted, format!("{}: stopped by a signal", target.given.display())))
    } else {
        Ok(())
    };
    finish(args, told, begun, end)
}

fn finish(
    args: &ReclaimArgs,
    mut told: Reclaimed,
    begun: Instant,
    end: Result<(), Failure>,
) -> Result<Outcome<Reclaimed>, Failure> {
    told.seconds = begun.elapsed().as_secs_f64();
    if !args.json {
        print(&text(&told, args))?;
    }
    Ok((told, end))
}

fn text(told: &Reclaimed, args: &ReclaimArgs) -> String {
    let (free, given) = (size(Bytes(told.free_bytes)), size(Bytes(told.reclaimed_bytes)));
    let mut text = match (args.dry_run, told.zeroed) {
        (true, _) => format!("{given} of {free} of free space can be given back.\n"),
        (false, false) => format!("{given} of {free} of free space was given back in {:.1} s.\n", told.seconds),
        (false, true) if args.compact => format!("{given} of free space was written with zeros.\n"),
        (false, true) => format!(
            "This format keeps the space that it has. {given} of free space was written with zeros. To make the image smaller, use \
             --compact, which rewrites it.\n"
        ),
    };
    if told.recovered {
        text.insert_str(0, "An earlier run was interrupted. What it had begun was completed first; nothing is lost.\n");
    }
    if let (Some(before), Some(after)) = (told.allocated_before_bytes, told.allocated_after_bytes) {
        text += &format!("The image took {}, and takes {} now.\n", size(Bytes(before)), size(Bytes(after)));
    }
    text
}
