//! `map`: draws a volume, or names the owner of a block.

use super::disk::Disk;
use crate::args::MapArgs;
use crate::exit::{Failure, Status};
use crate::fresh;
use crate::map::scene::{self, Scene};
use crate::map::terminal::{self, LABEL_WIDTH, Style};
use crate::map::{png, svg};
use crate::progress::{Unit, Watch};
use crate::report::analysis::Analysis;
use crate::report::print;
use crate::survey::Survey;
use crate::text::{counted, printable_path, size};
use longrun_engine::NoProgress;
use longrun_engine::ScanProgress;
use longrun_governor::Governor;
use longrun_image::Access;
use longrun_layout::{Blocks, Extent, FileId, FileIndex, FileView, LogicalBlock, PhysicalBlock};
use longrun_volume::Target;
use longrun_volume::survey::{Owner, Part};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

/// The default size of pictures, in pixels.
const PICTURE: (u32, u32) = (1280, 800);
/// The default size of the map where there is no terminal: columns and lines of cells.
const TEXT: (usize, usize) = (70, 20);
/// Lines that the report around the map takes in a terminal.
const LINES_AROUND: usize = 16;

/// Draws the map or names the owner.
pub fn run(args: &MapArgs) -> Result<(), Failure> {
    if let Some(disk) = Disk::find(&args.target) {
        return disk.on_each(Access::Read, false, |target, watch| Ok((on_volume(args, target, watch)?, Ok(()))));
    }
    on_volume(args, &Target::resolve(&args.target)?, &mut Watch::start()?)
}

fn on_volume(args: &MapArgs, target: &Target, watch: &mut Watch) -> Result<(), Failure> {
    watch.govern(Governor::new(target.device_number, args.reading.pace.into()));
    watch.phase("reading the volume", Unit::Steps);
    let survey = Survey::read(target, &ScanProgress::new(watch, 0));
    watch.finish();
    let survey = survey?;
    if let Some(block) = args.at {
        return name_owner(&survey, PhysicalBlock(block));
    }
    let analysis = Analysis::new(&survey.findings(0, &NoProgress)?);
    if args.svg.is_none() && args.png.is_none() {
        return draw(&survey, &analysis, args);
    }
    let (width, height) = (args.width.unwrap_or(PICTURE.0), args.height.unwrap_or(PICTURE.1));
    let scene = scene::compose(survey.layout(), &analysis.title(), &analysis.captions(), width, height);
    if let Some(path) = &args.svg {
        save(path, &scene, |scene, file| file.write_all(svg::render(scene).as_bytes()))?;
    }
    if let Some(path) = &args.png {
        save(path, &scene, |scene, file| png::render(scene, file))?;
    }
    Ok(())
}

fn save(
    path: &Path,
    scene: &Scene,
    render: impl FnOnce(&Scene, &mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = fresh::write(path, |file| {
        let mut output = BufWriter::new(file);
        render(scene, &mut output)?;
        output.flush()
    });
    written.map_err(|e| Failure::io(path, "writing the picture", &e))
}

fn draw(survey: &Survey, analysis: &Analysis, args: &MapArgs) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let style = Style::choose(args.color, is_terminal, |name| std::env::var(name).ok());
    let fitting = terminal_size::terminal_size().filter(|_| is_terminal).map(|(width, height)| {
        let columns = usize::from(width.0).saturating_sub(LABEL_WIDTH + 1);
        (columns.clamp(20, 160), usize::from(height.0).saturating_sub(LINES_AROUND).clamp(8, 40))
    });
    let (columns, lines) = fitting.unwrap_or(TEXT);
    let columns = args.width.map_or(columns, |n| n as usize);
    let lines = args.height.map_or(lines, |n| n as usize);
    let map = terminal::draw(survey.layout(), columns, lines, style);
    let captions = analysis.captions().join("\n");
    print(&format!("{}, {}\n{captions}\n\n{map}", analysis.title(), size(survey.bytes())))
}

fn name_owner(survey: &Survey, block: PhysicalBlock) -> Result<(), Failure> {
    let total = survey.layout().total_blocks();
    if block.0 >= total.0 {
        return Err(Failure::new(
            Status::Usage,
            format!(
                "{}: block {block} is beyond the end of the volume; the last block is {}",
                survey.target.given.display(),
                total.0 - 1
            ),
        ));
    }
    let text = match survey.owner(block) {
        Owner::Free { piece, note } => {
            let note = note.map_or(String::new(), |note| format!(", {note}"));
            format!("free; the free piece is {}{note}", range(survey, piece))
        }
        Owner::File { file, part, subvolume, sharers } => of_file(survey, file, part, subvolume, sharers)?,
        Owner::Metadata { what, of, extent } => {
            let of = of.map(|file| named(survey, file)).transpose()?;
            let of = of.map_or(String::new(), |name| format!(" {name}"));
            let place = extent.map_or(String::new(), |extent| format!(", {}", range(survey, extent)));
            format!("metadata: {what}{of}{place}")
        }
        Owner::Unknown { note: Some(note) } => format!("in use; no file was found that owns it: {note}"),
        Owner::Unknown { note: None } => UNKNOWN.to_owned(),
    };
    print(&format!("block {block}: {text}\n"))
}

/// The answer for a block that is in use by an unknown owner.
const UNKNOWN: &str = "in use by an unknown owner; treated as immovable";

fn of_file(
    survey: &Survey,
    file: FileIndex,
    part: Part,
    subvolume: Option<u64>,
    sharers: u64,
) -> Result<String, Failure> {
    let Some(file) = survey.layout().file(file) else { return Ok(UNKNOWN.to_owned()) };
    let path = named(survey, file.id())?;
    let kind = if file.record.is_directory { "directory" } else { "file" };
    let subvolume = subvolume.map_or(String::new(), |subvolume| format!(" of subvolume {subvolume}"));
    let part = match part {
        Part::Block(logical) => of_block(survey, file, logical),
        Part::Extent { start, length, compressed, preallocated, at } => {
            let end = (start + length).0.saturating_sub(1);
            let prepared = if preallocated { ", preallocated and never written" } else { "" };
            compressed.map_or_else(
                || format!("\n  its byte {at}, in the extent of its bytes {start} to {end}{prepared}"),
                |stored| {
                    let (data, stored) = (size(length), size(stored));
                    format!("\n  its bytes {start} to {end} ({data}), stored compressed in {stored}")
                },
            )
        }
        Part::Unknown => String::new(),
    };
    let shared = match sharers {
        0 => String::new(),
        others => format!("\n  shared with {}", counted(others, "other file", "other files")),
    };
    let pin = file.record.pin;
    let pin = pin.map_or(String::new(), |pin| format!("\n  must stay in place: {}", pin.phrase()));
    Ok(format!("{kind} {path}\n  inode {}{subvolume}{part}{shared}{pin}", file.record.inode))
}

fn of_block(survey: &Survey, file: FileView<'_>, logical: LogicalBlock) -> String {
    let mut runs = file.runs().enumerate();
    let run = runs.find(|(_, r)| r.logical <= logical && logical < r.logical_end());
    let run = run.map_or(String::new(), |(number, run)| {
        let of = counted(file.runs().len() as u64, "run", "runs");
        format!(
            "\n  run {} of {of}: {} of the file, {}",
            number + 1,
            blocks_text(run.logical.0, run.length),
            range(survey, run.extent())
        )
    });
    format!("\n  its block {logical}{run}")
}

/// "blocks 100 to 199 of the volume (400 KiB)".
fn range(survey: &Survey, extent: Extent) -> String {
    let bytes = size(survey.layout().block_size().to_bytes(extent.length));
    format!("blocks {} to {} of the volume ({bytes})", extent.start, extent.end().0.saturating_sub(1))
}

fn blocks_text(start: u64, length: Blocks) -> String {
    match length.0 {
        1 => format!("block {start}"),
        n => format!("blocks {start} to {}", start + n.saturating_sub(1)),
    }
}

fn named(survey: &Survey, file: FileId) -> Result<String, Failure> {
    Ok(survey.names(&[file], &NoProgress)?.first().map(|path| printable_path(path)).unwrap_or_default())
}
