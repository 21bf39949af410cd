//! Writes a map from a layout.
//!
//! Holds five bytes for each run of the layout, one bit for each file, and the cells (23 MiB at most). Who reads the file sees the
//! earlier map or this one, never a part of it.

use crate::AtlasError;
use crate::format::{HEAD, Head, Summary, Tables};
use crate::groups::{IN_GROUP, Output, Stream};
use crate::piece::{Owner, Piece, Traits};
use crate::pyramid::{BYTES_PER_CELL, Pyramid};
use crate::records::FileEntry;
use crate::sweep::{beneath, claims, joined};
use longrun_layout::{Extent, FileIndex, FileView, VolumeLayout};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

/// What is to be mapped.
pub struct Subject<'a> {
    /// The volume as the scan found it.
    pub layout: &'a VolumeLayout,
    /// What the file system itself has, ascending, and what each area is.
    pub areas: Box<dyn Iterator<Item = (Extent, &'static str)> + 'a>,
    /// The UUID of the volume; zeros when it has none.
    pub uuid: [u8; 16],
    /// The number of the scan.
    pub number: u64,
    /// When it ended, in seconds since 1970.
    pub at: i64,
}

/// Writes the map to `path`; returns its size in bytes.
///
/// # Errors
/// [`AtlasError::Io`]; an earlier map stays then.
pub fn write(path: &Path, subject: Subject<'_>) -> Result<u64, AtlasError> {
    let mut beside = OsString::from(path.file_name().unwrap_or_default());
    beside.push(".new");
    let beside = path.with_file_name(beside);
    let written = write_beside(&beside, subject).and_then(|bytes| {
        fs::rename(&beside, path).map_err(AtlasError::io("renaming the map"))?;
        Ok(bytes)
    });
    if written.is_err() {
        // The caller is told the first error.
        _ = fs::remove_file(&beside);
    }
    written
}

fn write_beside(path: &Path, subject: Subject<'_>) -> Result<u64, AtlasError> {
    // What an earlier service left when it was ended here.
    _ = fs::remove_file(path);
    let mut file = BufWriter::new(File::create_new(path).map_err(AtlasError::io("creating the map"))?);
    let bytes = encode(subject, &mut file)?;
    file.into_inner()
        .map_err(|error| AtlasError::io("writing the map")(error.into_error()))?
        .sync_all()
        .map_err(AtlasError::io("syncing the map"))?;
    Ok(bytes)
}

/// Writes the map to `file`, which is empty; returns its size in bytes.
///
/// # Errors
/// [`AtlasError::Io`].
pub fn encode<W: Write + Seek>(subject: Subject<'_>, file: W) -> Result<u64, AtlasError> {
    let Subject { layout, areas, uuid, number, at } = subject;
    let mut output = Output { file, at: 0 };
    output.write(&[0; HEAD])?;
    let mut words = Vec::new();
    let (files, runs, fragmented) = write_files(layout, &mut words, &mut output)?;
    let areas = areas.map(|(extent, word)| (extent, number_of(word, &mut words))).collect::<Vec<_>>();
    let (pieces, cells) = write_pieces(layout, &areas, &fragmented, &mut output)?;
    let cells = write_cells(&cells, &mut output)?;
    let summary = Summary {
        uuid,
        number,
        at,
        block_size: layout.block_size(),
        total: layout.total_blocks(),
        files: files.records,
        runs: runs.records,
        pieces: pieces.records,
    };
    let tables = Tables { words, pieces: pieces.groups, files: files.groups, runs: runs.groups, cells }.encode();
    let (tables_at, tables_length) = (output.at, tables.len() as u64);
    let head = Head { summary, tables_at, tables_length, tables_checksum: crc32c::crc32c(&tables) };
    output.write(&tables)?;
    let bytes = output.at;
    output.file.rewind().map_err(AtlasError::io("writing the map"))?;
    output.write(&head.encode())?;
    output.file.flush().map_err(AtlasError::io("writing the map"))?;
    Ok(bytes)
}

/// The number of a word, which there are few of.
fn number_of(word: &str, words: &mut Vec<String>) -> u16 {
    let known = words.iter().position(|known| known == word).unwrap_or_else(|| {
        words.push(word.to_owned());
        words.len() - 1
    });
    u16::try_from(known).unwrap_or(u16::MAX)
}

/// Which files have more than one fragment.
struct Fragmented(Vec<u64>);

impl Fragmented {
    fn set(&mut self, file: FileIndex) {
        if let Some(bits) = self.0.get_mut(file.0 as usize / 64) {
            *bits |= 1 << (file.0 % 64);
        }
    }

    fn has(&self, file: FileIndex) -> bool {
        self.0.get(file.0 as usize / 64).is_some_and(|bits| bits >> (file.0 % 64) & 1 != 0)
    }
}

type FilesAndRuns = (Stream<FileEntry>, Stream<longrun_layout::Run>, Fragmented);

fn write_files(
    layout: &VolumeLayout,
    words: &mut Vec<String>,
    output: &mut Output<impl Write>,
) -> Result<FilesAndRuns, AtlasError> {
    let (mut files, mut runs) = (Stream::default(), Stream::default());
    let mut fragmented = Fragmented(vec![0; layout.file_count().div_ceil(64)]);
    for file in layout.files() {
        let fragments = file.fragments();
        if fragments > 1 {
            fragmented.set(file.index);
        }
        let entry = FileEntry {
            id: file.id(),
            directory: file.record.directory,
            is_directory: file.record.is_directory,
            fixed: file.record.pin.map(|pin| number_of(pin.phrase(), words)),
            first_run: runs.records,
            runs: file.runs().len() as u64,
            fragments,
            blocks: file.size(),
        };
        files.push(&entry, output)?;
        file.runs().try_for_each(|run| runs.push(&run, output))?;
    }
    files.flush(output)?;
    runs.flush(output)?;
    Ok((files, runs, fragmented))
}

fn write_pieces(
    layout: &VolumeLayout,
    areas: &[(Extent, u16)],
    fragmented: &Fragmented,
    output: &mut Output<impl Write>,
) -> Result<(Stream<Piece>, Vec<Vec<u8>>), AtlasError> {
    let traits = |file: FileView<'_>| Traits {
        fixed: !file.is_movable(),
        fragmented: fragmented.has(file.index),
        shared: false,
        directory: file.record.is_directory,
    };
    let of_files = claims(layout, |file| layout.file(file).map(traits).unwrap_or_default());
    let areas = areas.iter().map(|(extent, word)| Piece { extent: *extent, owner: Owner::Area(*word) });
    let free = layout.free().iter().map(|extent| Piece { extent: *extent, owner: Owner::Free });
    let (mut pieces, mut pyramid) = (Stream::default(), Pyramid::new(layout.total_blocks()));
    for piece in joined(beneath(beneath(of_files, free), areas)) {
        pyramid.add(&piece);
        pieces.push(&piece, output)?;
    }
    pieces.flush(output)?;
    Ok((pieces, pyramid.finish()))
}

fn write_cells(levels: &[Vec<u8>], output: &mut Output<impl Write>) -> Result<Vec<crate::groups::Group>, AtlasError> {
    let mut groups = Vec::new();
    for cells in levels.iter().flat_map(|level| level.chunks(IN_GROUP * BYTES_PER_CELL)) {
        groups.push(output.group(cells, (cells.len() / BYTES_PER_CELL) as u32, [0; 3])?);
    }
    Ok(groups)
}
