//! The paths of files that are known by subvolume and inode number.
//!
//! Owns the search from a file up to the root of the volume, by the kernel's back references. Never opens a file.

use super::address::SubvolumeId;
use super::model::{Owner, Subvolume};
use super::trees::refused;
use longrun_engine::VolumeError;
use longrun_layout::{FileId, InodeNumber};
use longrun_sys::Mount;
use longrun_sys::{Errno, TreeId};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Subvolumes in subvolumes, at most: more is a circle.
const DEEPEST: usize = 128;

/// The paths of `files`, in their order, on the volume that `volume` lies on and that errors call `path`. What is not below
/// the mount point is called by its subvolume, and a file without a name by its number.
///
/// # Errors
/// As [`Names::of`].
pub fn names(
    volume: &File,
    path: &Path,
    subvolumes: &[Subvolume],
    mount: Option<&Mount>,
    files: &[FileId],
) -> Result<Vec<PathBuf>, VolumeError> {
    let mut names = Names::new(volume, path, subvolumes);
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        let (subvolume, inode) = Owner::of_file_id(*file);
        let path = names.of(subvolume, inode)?;
        let unnamed = || PathBuf::from(format!("<inode {inode} of subvolume {subvolume}>"));
        found.push(path.map_or_else(unnamed, |path| below(mount, &path)));
    }
    Ok(found)
}

fn below(mount: Option<&Mount>, path: &FilePath) -> PathBuf {
    let reachable = mount.and_then(|mount| {
        let inside = path.from_top().strip_prefix(&mount.root).map(Path::to_owned).ok()?;
        Some(mount.point.join(inside))
    });
    reachable.unwrap_or_else(|| PathBuf::from(format!("<subvolume {}>", path.subvolume.display())).join(&path.file))
}

/// The names on one volume.
pub struct Names<'a> {
    volume: &'a File,
    path: &'a Path,
    subvolumes: &'a [Subvolume],
    /// Paths of subvolumes from the top of the volume, without a slash in front; `None` where there is none.
    known: BTreeMap<SubvolumeId, Option<Vec<u8>>>,
}

/// A path, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath {
    /// The path of its subvolume from the top of the volume, without a slash in front; empty for the top one.
    pub subvolume: PathBuf,
    /// The path of the file below its subvolume.
    pub file: PathBuf,
}

impl FilePath {
    /// From the top of the volume, beginning with a slash.
    #[must_use]
    pub fn from_top(&self) -> PathBuf {
        Path::new("/").join(&self.subvolume).join(&self.file)
    }
}

impl<'a> Names<'a> {
    /// Of the volume that `volume`, any open file or directory of it, lies on, and that errors call `path`; `subvolumes` are
    /// those of a scan of it.
    #[must_use]
    pub fn new(volume: &'a File, path: &'a Path, subvolumes: &'a [Subvolume]) -> Self {
        Self { volume, path, subvolumes, known: BTreeMap::new() }
    }

    /// The path of a file: one of its names, if it has several; `None` when it has none (any more).
    ///
    /// # Errors
    /// [`VolumeError`]: without root, or when the kernel refuses in an unexpected way.
    pub fn of(&mut self, subvolume: SubvolumeId, inode: InodeNumber) -> Result<Option<FilePath>, VolumeError> {
        let Some(top) = self.subvolume(subvolume)? else { return Ok(None) };
        let Some(below) = self.look_up(subvolume, inode)? else { return Ok(None) };
        let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
        Ok(Some(FilePath { subvolume: path(top), file: path(below) }))
    }

    fn subvolume(&mut self, id: SubvolumeId) -> Result<Option<Vec<u8>>, VolumeError> {
        let mut below: Vec<(SubvolumeId, Vec<u8>)> = Vec::new();
        let mut at = id;
        let mut path = loop {
            if let Some(known) = self.known.get(&at) {
                break known.clone();
            }
            if at == SubvolumeId::TOP {
                break Some(Vec::new());
            }
            let found = self.subvolumes.binary_search_by_key(&at, |subvolume| subvolume.id).ok();
            let place = found.and_then(|found| self.subvolumes.get(found)).and_then(|found| found.place.as_ref());
            let Some((parent, directory, name)) = place.filter(|_| below.len() < DEEPEST) else { break None };
            let Some(directory) = self.look_up(*parent, *directory)? else { break None };
            below.push((at, joined(directory, name)));
            at = *parent;
        };
        self.known.insert(at, path.clone());
        for (id, name) in below.into_iter().rev() {
            path = path.map(|above| joined(above, &name));
            self.known.insert(id, path.clone());
        }
        Ok(path)
    }

    fn look_up(&self, subvolume: SubvolumeId, inode: InodeNumber) -> Result<Option<Vec<u8>>, VolumeError> {
        match longrun_sys::path_in_subvolume(self.volume, TreeId(subvolume.0), inode) {
            Ok(path) => Ok(Some(path)),
            Err(Errno::NOENT | Errno::NAMETOOLONG | Errno::STALE) => Ok(None),
            Err(errno) => Err(refused(self.path, "resolving names")(errno)),
        }
    }
}

fn joined(mut above: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if !above.is_empty() {
        above.push(b'/');
    }
    above.extend_from_slice(name);
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str, point: &str) -> Mount {
        Mount {
            id: 1,
            device: longrun_sys::DeviceNumber { major: 0, minor: 41 },
            root: root.into(),
            point: point.into(),
            writable: true,
            filesystem: "btrfs".into(),
            source: "/dev/vda".into(),
            options: Vec::new(),
        }
    }

    #[test]
    fn names_are_those_below_the_mount_point_or_those_of_the_subvolume() {
        let path = |subvolume: &str, file: &str| FilePath { subvolume: subvolume.into(), file: file.into() };
        let name = |mount: &Mount, path: &FilePath| below(Some(mount), path).display().to_string();
        let home = mount("/@home", "/home");
        assert_eq!(name(&home, &path("@home", "me/file")), "/home/me/file");
        assert_eq!(name(&home, &path("@home/me/sub", "file")), "/home/me/sub/file");
        assert_eq!(name(&home, &path("@homeless", "file")), "<subvolume @homeless>/file");
        assert_eq!(name(&home, &path("@snapshots/1", "file")), "<subvolume @snapshots/1>/file");
        assert_eq!(name(&mount("/", "/mnt"), &path("", "file")), "/mnt/file");
        assert_eq!(name(&mount("/", "/mnt"), &path("a", "file")), "/mnt/a/file");
    }
}
