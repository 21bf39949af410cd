//! The names of files, and their paths.
//!
//! Owns $FILE_NAME. Never writes.

use super::attribute::{Attribute, Name, kind};
use super::file::{LIST, NtfsFile, Records, numbered};
use super::reader::{Reader, system};
use super::record::Reference;
use super::scan::{number_of, stream_of};
use crate::bytes::{byte, le16, le64};
use longrun_engine::unnamed;
use longrun_layout::{FileId, InodeNumber};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The short name that DOS programs see, beside the real one.
const DOS: u8 = 2;
/// Directories can be nested deeper than any path that Windows accepts; a circle ends here.
const DEEPEST: usize = 300;

/// A name of a file, and the directory that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) parent: Reference,
    pub(super) name: String,
    is_dos: bool,
}

impl FileName {
    fn parse(value: &[u8]) -> Option<Self> {
        let units = usize::from(byte(value, 0x40));
        let name = value.get(0x42..0x42 + 2 * units).filter(|_| units > 0)?;
        let units: Vec<u16> = name.chunks_exact(2).map(|unit| le16(unit, 0)).collect();
        Some(Self {
            parent: Reference::parse(le64(value, 0)),
            name: String::from_utf16_lossy(&units),
            is_dos: byte(value, 0x41) == DOS,
        })
    }

    /// The first name of a file that is not only a short one.
    pub(super) fn of<'a>(attributes: impl Iterator<Item = &'a Attribute>) -> Option<Self> {
        let names = attributes.filter(|attribute| attribute.of.kind == kind::FILE_NAME);
        let mut names: Vec<Self> = names.filter_map(|name| Self::parse(name.value())).collect();
        names.sort_by_key(|name| name.is_dos);
        names.into_iter().next()
    }
}

/// Finds paths, from the root of the volume.
pub(super) struct Paths<'a> {
    reader: &'a Reader,
    top: &'a Path,
    known: BTreeMap<u64, Option<FileName>>,
}

impl<'a> Paths<'a> {
    /// Paths that begin with `top`.
    pub(super) fn new(reader: &'a Reader, top: &'a Path) -> Self {
        Self { reader, top, known: BTreeMap::new() }
    }

    /// The path of a stream of the model. A file without a readable name is called by its number.
    pub(super) fn of(&mut self, id: FileId) -> PathBuf {
        let number = number_of(id.inode);
        let Some(mut path) = self.path(number) else { return unnamed(InodeNumber(number)) };
        let suffix = self.suffix(number, stream_of(id.inode));
        if !suffix.is_empty() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            path.set_file_name(name + &suffix);
        }
        path
    }

    fn path(&mut self, number: u64) -> Option<PathBuf> {
        let (mut parts, mut at) = (Vec::new(), number);
        while at != system::ROOT {
            if parts.len() > DEEPEST {
                return None;
            }
            let name = self.name(at)?;
            at = name.parent.number;
            parts.push(name.name.replace(['/', '\0'], "\u{fffd}"));
        }
        let mut path = self.top.to_owned();
        path.extend(parts.iter().rev());
        Some(path)
    }

    fn name(&mut self, number: u64) -> Option<FileName> {
        if let Some(known) = self.known.get(&number) {
            return known.clone();
        }
        let file = NtfsFile::read(self.reader as &dyn Records, number).ok();
        let name = file.and_then(|file| FileName::of(file.attributes()));
        self.known.insert(number, name.clone());
        name
    }

    /// What tells a stream from the content of its file or directory.
    fn suffix(&self, number: u64, stream: u16) -> String {
        if stream == LIST {
            return ":$ATTRIBUTE_LIST".into();
        }
        let Ok(file) = NtfsFile::read(self.reader as &dyn Records, number) else { return String::new() };
        let numbers = numbered(file.attributes());
        let Some((Name { kind: of, name }, _)) = numbers.into_iter().find(|(_, number)| *number == stream) else {
            return String::new();
        };
        let name = String::from_utf16_lossy(&name).replace(['/', '\0'], "\u{fffd}");
        match of {
            kind::DATA if name.is_empty() => String::new(),
            kind::DATA => format!(":{name}"),
            kind::INDEX_ALLOCATION if name == "$I30" => String::new(),
            kind::INDEX_ALLOCATION => format!(":{name}:$INDEX_ALLOCATION"),
            kind::BITMAP => format!(":{name}:$BITMAP"),
            other => format!(":{name}:{other:#x}"),
        }
    }
}
