//! `images`: the disk images in a directory, with what could be gained in each.
//!
//! Owns the search and the table. Only reads.

use crate::args::ImagesArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::{print, print_json};
use crate::survey::{Survey, is_readable_volume};
use crate::text::{count, printable_path, size};
use longrun_engine::ScanProgress;
use longrun_image::Access;
use longrun_layout::{Bytes, Fragmentation};
use longrun_volume::Target;
use longrun_volume::disk_image::{DiskImage, VolumeOnDisk, is_disk, mounts_something};
use longrun_volume::target::Subject;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An image, as JSON has it.
#[derive(Serialize)]
struct Image {
    path: PathBuf,
    format: String,
    /// What it takes on its storage.
    allocated_bytes: u64,
    /// Who has it open, if somebody has.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<String>,
    volumes: Vec<Volume>,
}

#[derive(Serialize)]
struct Volume {
    partition: Option<u32>,
    filesystem: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
    /// Why it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
struct Figures {
    excess_fragments: u64,
    free_pieces: u64,
    floor_pieces: u64,
    used_bytes: u64,
    free_bytes: u64,
}

impl From<Fragmentation> for Figures {
    fn from(found: Fragmentation) -> Self {
        let free = found.free_space;
        Self {
            excess_fragments: found.excess_fragments,
            free_pieces: free.pieces,
            floor_pieces: free.floor_pieces,
            used_bytes: found.used_bytes.0,
            free_bytes: free.bytes.0,
        }
    }
}

/// Finds and prints them.
pub fn run(args: &ImagesArgs) -> Result<(), Failure> {
    let mut files = Vec::new();
    find(&args.directory, args.recursive, &mut files).map_err(|e| Failure::io(&args.directory, "reading it", &e))?;
    files.sort();
    // Only the first thread can do that.
    if longrun_sys::is_root() && files.iter().any(|path| mounts_something(path)) {
        longrun_sys::own_mount_namespace().map_err(|error| Failure::new(Status::Failed, error.to_string()))?;
    }
    let mut watch = Watch::start()?;
    watch.phase("reading images", Unit::Steps);
    let images: Vec<Image> = files.iter().filter_map(|path| examine(path, &mut watch)).collect();
    watch.finish();
    if args.json { print_json(&images) } else { print(&table(&images)) }
}

/// Regular files; links are not followed.
fn find(directory: &Path, deep: bool, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && deep {
            // One that is not ours to read is left out.
            let _ = find(&entry.path(), deep, files);
        }
    }
    Ok(())
}

/// What is in a file, if it is an image.
fn examine(path: &Path, watch: &mut Watch) -> Option<Image> {
    let allocated_bytes = fs::metadata(path).ok()?.blocks() * 512;
    let mut read = |target: &Target| match Survey::read(target, &ScanProgress::new(watch, 0)) {
        Ok(survey) => (Some(Figures::from(survey.layout().fragmentation())), survey.refusal()),
        Err(failure) => (None, Some(failure.to_string())),
    };
    if !is_disk(path) {
        let target = Target::resolve(path).ok().filter(|target| target.subject == Subject::Image)?;
        if !is_readable_volume(&target) {
            return None;
        }
        let (figures, problem) = read(&target);
        let filesystem = longrun_volume::file_system_name(&target);
        let bytes = fs::metadata(path).ok()?.len();
        let volumes = vec![Volume { partition: None, filesystem, bytes, figures, problem }];
        return Some(Image { path: path.to_owned(), format: "raw".into(), allocated_bytes, in_use: None, volumes });
    }
    let disk = match DiskImage::open(path, Access::Read) {
        Ok(disk) => disk,
        Err(error) => {
            let problem = Some(error.to_string());
            let volume = Volume { partition: None, filesystem: String::new(), bytes: 0, figures: None, problem };
            let format = "unknown".to_owned();
            return Some(Image { path: path.to_owned(), format, allocated_bytes, in_use: None, volumes: vec![volume] });
        }
    };
    let mut volume = |volume: &VolumeOnDisk| {
        let (partition, bytes) = (volume.number, volume.length.0);
        match disk.target(volume) {
            Err(error) => {
                let filesystem = volume.content.name().to_owned();
                Volume { partition, filesystem, bytes, figures: None, problem: Some(error.to_string()) }
            }
            Ok(opened) => {
                let (figures, problem) = read(&opened.target);
                let filesystem = longrun_volume::file_system_name(&opened.target);
                Volume { partition, filesystem, bytes, figures, problem }
            }
        }
    };
    let volumes = disk.volumes.iter().map(&mut volume).collect();
    let (format, in_use) = (disk.format.to_string(), disk.in_use.clone());
    Some(Image { path: path.to_owned(), format, allocated_bytes, in_use, volumes })
}

fn table(images: &[Image]) -> String {
    if images.is_empty() {
        return "No disk image was found.\n".into();
    }
    let mut text = String::from("   excess     pieces       used  allocated  image\n");
    for image in images {
        let name = printable_path(&image.path);
        for volume in &image.volumes {
            let number = volume.partition.map_or_else(String::new, |number| format!("#{number}"));
            let of = format!("{name}{number}  {} in {}", volume.filesystem, image.format);
            let allocated = size(Bytes(image.allocated_bytes));
            match (&volume.figures, &volume.problem) {
                (Some(figures), problem) => {
                    let (excess, pieces) = (count(figures.excess_fragments), count(figures.free_pieces));
                    let used = size(Bytes(figures.used_bytes));
                    _ = writeln!(text, "{excess:>9}  {pieces:>9}  {used:>9}  {allocated:>9}  {of}");
                    if let Some(problem) = problem {
                        _ = writeln!(text, "{:>45}  cannot be optimized now: {}", "", crate::text::printable(problem));
                    }
                }
                (None, problem) => {
                    let why = problem.as_deref().map(crate::text::printable).unwrap_or_default();
                    _ = writeln!(
                        text,
                        "{:>9}  {:>9}  {:>9}  {allocated:>9}  {of}\n{:>45}  not read: {why}",
                        "–", "–", "–", ""
                    );
                }
            }
        }
        if let Some(user) = &image.in_use {
            _ = writeln!(text, "{:>45}  in use: {}", "", crate::text::printable(user));
        }
    }
    text
}
