//! `map`: what lies where, drawn; or who owns a block.

use crate::args::MapArgs;
use crate::exit::{Failure, Status};
use crate::fresh;
use crate::map::scene::{self, Scene};
use crate::map::terminal::{self, LABEL_WIDTH, Style};
use crate::map::{png, svg};
use crate::progress::{Unit, Watch};
use crate::report::analysis::Analysis;
use crate::report::print;
use crate::subvolumes;
use crate::survey::{Picture, Survey};
use crate::text::{count, counted, printable_path, size};
use longrun_governor::Governor;
use longrun_layout::{Blocks, Extent, FileId, FileView, InodeNumber, LogicalBlock, PhysicalBlock};
use longrun_sys::SpaceOwner;
use longrun_volume::engine::ScanProgress;
use longrun_volume::ext4::scan::{Area, AreaKind, Owner};
use longrun_volume::xfs::scan::XfsScan;
use longrun_volume::{NoProgress, Target};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

/// The size of pictures unless the user says otherwise, in pixels.
const PICTURE: (u32, u32) = (1280, 800);
/// Columns and lines of cells where there is no terminal to fit.
const TEXT: (usize, usize) = (70, 20);
/// Lines that the report around the map takes in a terminal.
const LINES_AROUND: usize = 16;

/// Draws the map or names the owner.
pub fn run(args: &MapArgs) -> Result<(), Failure> {
    let target = Target::resolve(&args.target)?;
    let mut watch = Watch::start()?;
    watch.govern(Governor::new(target.device_number, args.reading.pace.into()));
    watch.phase("reading the volume", Unit::Steps);
    let survey = Survey::read(&target, &ScanProgress::new(&mut watch, 0));
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
                "{}: block {block} lies behind the end; the last block is {}",
                survey.target.given.display(),
                total.0 - 1
            ),
        ));
    }
    let text = match &survey.picture {
        Picture::Ext4(scan, _) => match scan.owner_of(block) {
            Some(Owner::Free(piece)) => of_free(survey, piece),
            Some(Owner::Area(area)) => of_area(survey, area)?,
            Some(Owner::File(file, logical)) => of_file(survey, file, logical)?,
            Some(Owner::Unknown) | None => UNKNOWN.to_owned(),
        },
        Picture::Xfs(scan) => on_xfs(survey, scan, block)?,
        Picture::Btrfs(scan, _) => subvolumes::owner(survey, scan, block)?,
    };
    print(&format!("block {block}: {text}\n"))
}

/// What is said of a block that has an owner, but not which.
pub(crate) const UNKNOWN: &str = "in use, by whom is not known; treated as immovable";

fn on_xfs(survey: &Survey, scan: &XfsScan, block: PhysicalBlock) -> Result<String, Failure> {
    let layout = survey.layout();
    if let Some((index, run)) = layout.owner_of(block)
        && let Some(file) = layout.file(index)
    {
        return of_file(survey, file, run.logical + (block - run.physical));
    }
    let free = layout.free();
    let piece = free.get(free.partition_point(|piece| piece.end() <= block)).filter(|piece| piece.start <= block);
    if let Some(piece) = piece {
        return Ok(of_free(survey, *piece));
    }
    let Some(area) = scan.area_at(block) else { return Ok(UNKNOWN.to_owned()) };
    let what = match area.owner {
        SpaceOwner::FixedMetadata => "superblock, group headers or a copy of them",
        SpaceOwner::Journal => "journal",
        SpaceOwner::Inodes => "inodes",
        SpaceOwner::Metadata => "of the file system itself",
        _ => return Ok(UNKNOWN.to_owned()),
    };
    Ok(format!("metadata: {what}, {}", range(survey, area.extent)))
}

pub(crate) fn of_free(survey: &Survey, piece: Extent) -> String {
    format!("free, in a piece of {}", range(survey, piece))
}

fn of_file(survey: &Survey, file: FileView<'_>, logical: LogicalBlock) -> Result<String, Failure> {
    let path = named(survey, file.id())?;
    let kind = if file.record.is_directory { "directory" } else { "file" };
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
    let pin = file
        .record
        .pin
        .map_or(String::new(), |pin| format!("\n  must stay in place: {}", crate::report::reasons::pin(pin)));
    Ok(format!("{kind} {path}\n  its block {logical}, inode {}{run}{pin}", file.record.inode))
}

/// "blocks 100 to 199 (400 KiB)" on the volume.
pub(crate) fn range(survey: &Survey, extent: Extent) -> String {
    let bytes = size(survey.layout().block_size().to_bytes(extent.length));
    format!("blocks {} to {} of the volume ({bytes})", extent.start, extent.end().0.saturating_sub(1))
}

fn blocks_text(start: u64, length: Blocks) -> String {
    match length.0 {
        1 => format!("block {start}"),
        n => format!("blocks {start} to {}", start + n.saturating_sub(1)),
    }
}

pub(crate) fn named(survey: &Survey, file: FileId) -> Result<String, Failure> {
    Ok(survey.names(&[file], &NoProgress)?.first().map(|path| printable_path(path)).unwrap_or_default())
}

fn of_area(survey: &Survey, area: Area) -> Result<String, Failure> {
    let by_inode = |inode: u32| named(survey, FileId { inode: InodeNumber(u64::from(inode)), generation: 0 });
    let what = match area.kind {
        AreaKind::Superblock => "superblock or a copy of it".to_owned(),
        AreaKind::Descriptors => "group descriptors or a copy of them".to_owned(),
        AreaKind::ReservedDescriptors => "room for more group descriptors".to_owned(),
        AreaKind::BlockBitmap => "block bitmap".to_owned(),
        AreaKind::InodeBitmap => "inode bitmap".to_owned(),
        AreaKind::InodeTable => "inode table".to_owned(),
        AreaKind::MountProtection => "multiple-mount protection".to_owned(),
        AreaKind::Journal => "journal".to_owned(),
        AreaKind::System { inode } => format!("system file, inode {inode}"),
        AreaKind::FileMap { inode } => format!("extent tree or indirect blocks of {}", by_inode(inode)?),
        AreaKind::Attributes { inode } => format!("extended attributes of {}", by_inode(inode)?),
        AreaKind::BeyondEnd { inode } => format!("preallocated behind the end of {}", by_inode(inode)?),
        AreaKind::Deleted { inode } => format!("file that was deleted while open, inode {}", count(u64::from(inode))),
    };
    Ok(format!("metadata: {what}, {}", range(survey, area.extent)))
}
