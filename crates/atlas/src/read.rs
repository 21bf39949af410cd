//! Reads a map piece by piece.

use crate::format::{HEAD, Head, Summary, Tables};
use crate::groups::{Coded, Group, IN_GROUP, LARGEST_GROUP, decode, group_at};
use crate::piece::Piece;
use crate::pyramid::{BYTES_PER_CELL, Level, levels};
use crate::records::FileEntry;
use crate::{AtlasError, Owner};
use longrun_layout::{Extent, FileIndex, InodeNumber, PhysicalBlock, Run};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes of a map.
pub trait Source {
    /// How many.
    ///
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` with those from `at` on.
    ///
    /// # Errors
    /// The system's, and when there are not as many.
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl Source for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }
}

impl Source for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let bytes = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a piece.
    Piece(Piece),
    /// In a range that is in use, by whom is not known.
    Unknown(Extent),
}

/// An opened map.
pub struct Atlas<S> {
    source: S,
    summary: Summary,
    tables: Tables,
    levels: Vec<Level>,
}

pub(crate) const DAMAGED: AtlasError = AtlasError::Damaged("records contradict each other");

impl<S: Source> Atlas<S> {
    /// Reads the head and the tables.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn open(source: S) -> Result<Self, AtlasError> {
        let length = source.length().map_err(AtlasError::io("examining the map"))?;
        if length < HEAD as u64 {
            return Err(AtlasError::Damaged("it is too short"));
        }
        let mut head = [0; HEAD];
        source.read(&mut head, 0).map_err(AtlasError::io("reading the map"))?;
        let Head { summary, tables_at, tables_length, tables_checksum } = Head::decode(&head, length)?;
        let mut tables = vec![0; usize::try_from(tables_length).map_err(|_| DAMAGED)?];
        source.read(&mut tables, tables_at).map_err(AtlasError::io("reading the map"))?;
        if crc32c::crc32c(&tables) != tables_checksum {
            return Err(AtlasError::Damaged("its tables have a wrong checksum"));
        }
        let tables = Tables::decode(&tables).ok_or(AtlasError::Damaged("its tables are too short or too long"))?;
        Ok(Self { source, summary, tables, levels: levels(summary.total) })
    }

    /// What is mapped, and when.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The levels of detail, from the finest on.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// All words.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.tables.words
    }

    /// The bytes of `count` cells of a level from the one numbered `from` on, or of as many as there are; none where there is no
    /// such level.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn cells(&self, level: usize, from: u64, count: u64) -> Result<Vec<u8>, AtlasError> {
        let in_group = IN_GROUP as u64;
        let Some(found) = self.levels.get(level) else { return Ok(Vec::new()) };
        let before: u64 = self.levels.iter().take(level).map(|level| level.cells.div_ceil(in_group)).sum();
        let end = from.saturating_add(count).min(found.cells);
        let (mut cells, mut at) = (Vec::new(), from);
        while at < end {
            let inside = at % in_group;
            let some = (in_group - inside).min(end - at);
            let bytes = self.bytes(group_at(&self.tables.cells, before + at / in_group)?)?;
            let range = inside as usize * BYTES_PER_CELL..(inside + some) as usize * BYTES_PER_CELL;
            cells.extend(bytes.get(range).ok_or(DAMAGED)?);
            at += some;
        }
        Ok(cells)
    }

    /// The pieces that touch `within`, ascending, `most` at most.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn pieces(&self, within: Extent, most: usize) -> Result<Vec<Piece>, AtlasError> {
        let groups = &self.tables.pieces;
        let first = groups.partition_point(|group| group.keys[0] <= within.start.0).saturating_sub(1);
        let mut found = Vec::new();
        for group in groups.iter().skip(first).take_while(|group| group.keys[0] < within.end().0) {
            let pieces: Vec<Piece> = self.pieces_of(group)?;
            let touching = |piece: &Piece| piece.extent.intersection(&within).is_some();
            found.extend(pieces.into_iter().filter(touching).take(most - found.len()));
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    /// Where `block`, which lies on the volume, lies.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn place_of(&self, block: PhysicalBlock) -> Result<Place, AtlasError> {
        let groups = &self.tables.pieces;
        let behind = groups.partition_point(|group| group.keys[0] <= block.0);
        let end_of_volume = PhysicalBlock(self.summary.total.0);
        let next_group = groups.get(behind).map_or(end_of_volume, |group| PhysicalBlock(group.keys[0]));
        let Some(group) = behind.checked_sub(1).and_then(|at| groups.get(at)) else {
            return Ok(Place::Unknown(Extent::between(PhysicalBlock(0), next_group)));
        };
        let pieces = self.pieces_of(group)?;
        let behind = pieces.partition_point(|piece| piece.extent.start <= block);
        let piece = behind.checked_sub(1).and_then(|at| pieces.get(at)).ok_or(DAMAGED)?;
        if block < piece.extent.end() {
            return Ok(Place::Piece(*piece));
        }
        let end = pieces.get(behind).map_or(next_group, |next| next.extent.start);
        Ok(Place::Unknown(Extent::between(piece.extent.end(), end)))
    }

    fn pieces_of(&self, group: &Group) -> Result<Vec<Piece>, AtlasError> {
        let pieces: Vec<Piece> = self.records(group)?;
        let is_sound = |piece: &Piece| {
            let owner = match piece.owner {
                Owner::Free => true,
                Owner::Area(word) => usize::from(word) < self.tables.words.len(),
                Owner::File { file, .. } => u64::from(file.0) < self.summary.files,
            };
            owner && piece.extent.end().0 <= self.summary.total.0
        };
        if pieces.iter().all(is_sound) { Ok(pieces) } else { Err(DAMAGED) }
    }

    /// The file `index`, if there is one.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn file(&self, index: FileIndex) -> Result<Option<FileEntry>, AtlasError> {
        if u64::from(index.0) >= self.summary.files {
            return Ok(None);
        }
        let at = index.0 as usize;
        let files = self.files_of(group_at(&self.tables.files, (at / IN_GROUP) as u64)?)?;
        files.get(at % IN_GROUP).copied().ok_or(DAMAGED).map(Some)
    }

    /// The first file with this inode number that `is_meant`, and its index.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn find(
        &self,
        inode: InodeNumber,
        is_meant: impl Fn(&FileEntry) -> bool,
    ) -> Result<Option<(FileIndex, FileEntry)>, AtlasError> {
        for (number, group) in self.tables.files.iter().enumerate() {
            let [lowest, highest, _] = group.keys;
            if !(lowest..=highest).contains(&inode.0) {
                continue;
            }
            let files = self.files_of(group)?;
            if let Some((at, file)) =
                files.iter().enumerate().find(|(_, file)| file.id.inode == inode && is_meant(file))
            {
                let index = u32::try_from(number * IN_GROUP + at).map_err(|_| DAMAGED)?;
                return Ok(Some((FileIndex(index), *file)));
            }
        }
        Ok(None)
    }

    pub(crate) fn file_groups(&self) -> &[Group] {
        &self.tables.files
    }

    pub(crate) fn run_groups(&self) -> &[Group] {
        &self.tables.runs
    }

    pub(crate) fn files_of(&self, group: &Group) -> Result<Vec<FileEntry>, AtlasError> {
        let files: Vec<FileEntry> = self.records(group)?;
        let is_sound = |file: &FileEntry| {
            let word = file.fixed.is_none_or(|word| usize::from(word) < self.tables.words.len());
            word && file.first_run.checked_add(file.runs).is_some_and(|end| end <= self.summary.runs)
        };
        if files.iter().all(is_sound) { Ok(files) } else { Err(DAMAGED) }
    }

    /// The runs of a file of this map, ascending by their place in it, without the first `from`, `most` at most.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn runs(&self, file: &FileEntry, from: u64, most: usize) -> Result<Vec<Run>, AtlasError> {
        let first = file.first_run + from.min(file.runs);
        let end = first + file.runs.saturating_sub(from).min(most as u64);
        let mut runs = Vec::new();
        self.visit_runs(first..end, &mut None, |some| runs.extend_from_slice(some))?;
        Ok(runs)
    }

    /// The runs of a group, if they lie on the volume.
    pub(crate) fn sound_runs(&self, group: &Group) -> Result<Vec<Run>, AtlasError> {
        let runs: Vec<Run> = self.records(group)?;
        let total = self.summary.total.0;
        if runs.iter().all(|run| run.extent().end().0 <= total) { Ok(runs) } else { Err(DAMAGED) }
    }

    fn records<R: Coded>(&self, group: &Group) -> Result<Vec<R>, AtlasError> {
        decode(group, &self.bytes(group)?).ok_or(DAMAGED)
    }

    fn bytes(&self, group: &Group) -> Result<Vec<u8>, AtlasError> {
        if group.length as usize > LARGEST_GROUP {
            return Err(DAMAGED);
        }
        let mut bytes = vec![0; group.length as usize];
        self.source.read(&mut bytes, group.offset).map_err(AtlasError::io("reading the map"))?;
        if crc32c::crc32c(&bytes) == group.checksum {
            Ok(bytes)
        } else {
            Err(AtlasError::Damaged("a group of records has a wrong checksum"))
        }
    }
}
