//! Everything that somebody who uses an NTFS volume can notice: a list of all files, and what has changed in it.
//!
//! Owns reading through ntfs-3g, read-only. Times of access are left out. So is where anything is on the volume.

use super::mount::{Access, Mounted};
use crate::oracle::file_hash;
use crate::tool;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Differences shown at most.
const SHOWN: usize = 12;
/// The largest value of an extended attribute.
const LARGEST: usize = 1 << 16;
/// What ntfs-3g tells about a file beyond what every file system does.
const ATTRIBUTES: [&str; 8] = ["acl", "attrib", "crtime", "dos_name", "ea", "efsinfo", "object_id", "reparse_data"];
/// Of the files of NTFS itself those that only say what the user has put in.
const SYSTEM_FILES: [&str; 3] = ["$AttrDef", "$UpCase", "$Secure:$SDS"];

/// A file or directory: its properties by name, in a readable form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(BTreeMap<String, String>);

impl Item {
    /// A property: `sha256`, `size`, `allocated`, `links`, `record`, `times`, `acl`, … or `stream NAME`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The names of its streams.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|name| name.strip_prefix("stream "))
    }

    fn note(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }
}

/// All files of a volume by their paths from its root, which has the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<PathBuf, Item>);

impl Inventory {
    /// Reads everything in an image: content and named streams (SHA-256), sizes, allocated bytes, times, attributes,
    /// security descriptors, reparse data, aliases, object identifiers, extended attributes, links, record numbers.
    ///
    /// # Errors
    /// When something cannot be read; says what.
    pub fn of(image: &Path) -> Result<Self> {
        let (lister, reader) = (Mounted::new(image, Access::ListStreams)?, Mounted::new(image, Access::ReadSystem)?);
        let (mut inventory, mut paths) = (Self::default(), Vec::new());
        collect(&lister.root(), Path::new(""), &mut paths)?;
        for path in paths {
            let item = describe(&lister.root(), &reader.root(), &path);
            let item = item.with_context(|| format!("cannot read {} of {}", path.display(), image.display()))?;
            inventory.0.insert(path, item);
        }
        for name in SYSTEM_FILES {
            let mut item = Item::default();
            item.note("sha256", hash(&reader.root().join(name))?);
            inventory.0.insert(name.into(), item);
        }
        reader.unmount()?;
        lister.unmount()?;
        let label = tool::run("ntfslabel", ["--force".as_ref(), image.as_os_str()])?;
        inventory.0.entry(PathBuf::new()).or_default().note("label", label.trim());
        Ok(inventory)
    }

    /// What it holds at a path.
    #[must_use]
    pub fn item(&self, path: impl AsRef<Path>) -> Option<&Item> {
        self.0.get(path.as_ref())
    }

    /// All paths and what is there.
    pub fn items(&self) -> impl Iterator<Item = (&Path, &Item)> {
        self.0.iter().map(|(path, item)| (path.as_path(), item))
    }

    /// What is not the same in `after`, one a line: path, property, before, after. `None` when nothing is.
    #[must_use]
    pub fn difference(&self, after: &Self) -> Option<String> {
        let mut lines = Vec::new();
        let paths: BTreeSet<_> = self.0.keys().chain(after.0.keys()).collect();
        for path in paths {
            let name = path.display();
            match (self.0.get(path), after.0.get(path)) {
                (Some(before), Some(after)) => {
                    let properties: BTreeSet<_> = before.0.keys().chain(after.0.keys()).collect();
                    for property in properties {
                        let [was, is] = [before, after].map(|item| item.property(property).unwrap_or("nothing"));
                        if was != is {
                            lines.push(format!("{name}: {property} was {was}, is {is}"));
                        }
                    }
                }
                (Some(_), None) => lines.push(format!("{name}: gone")),
                (None, _) => lines.push(format!("{name}: new")),
            }
        }
        let more = lines.len().saturating_sub(SHOWN);
        let mut text = format!("the volumes differ in {} places:\n", lines.len());
        text += &lines.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
        if more > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n… and {more} more");
        }
        (!lines.is_empty()).then_some(text)
    }
}

fn collect(root: &Path, path: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    paths.push(path.to_owned());
    let here = root.join(path);
    if fs::symlink_metadata(&here).with_context(|| format!("cannot stat {}", path.display()))?.is_dir() {
        for entry in fs::read_dir(&here).with_context(|| format!("cannot list {}", path.display()))? {
            collect(root, &path.join(entry?.file_name()), paths)?;
        }
    }
    Ok(())
}

fn describe(lister: &Path, reader: &Path, path: &Path) -> Result<Item> {
    let here = reader.join(path);
    let meta = fs::symlink_metadata(&here)?;
    let mut item = Item::default();
    item.note("mode", format!("{:o}", meta.mode()));
    item.note("record", meta.ino());
    item.note("links", meta.nlink());
    item.note("allocated", meta.blocks() * 512);
    for name in ATTRIBUTES {
        if let Some(value) = attribute(&here, &format!("system.ntfs_{name}"))? {
            item.note(name, hex(&value));
        }
    }
    let times = attribute(&here, "system.ntfs_times")?.context("it has no times")?;
    // Created, changed, accessed, record changed.
    let [created, changed, _, record] = times.as_chunks::<8>().0 else { bail!("it has {} times", times.len() / 8) };
    item.note("times", [created, changed, record].map(|time| u64::from_le_bytes(*time).to_string()).join(" "));
    if meta.is_symlink() {
        // What a reparse point leads to is told with the mount point in it; its data does not have that.
        if item.property("reparse_data").is_none() {
            item.note("target", fs::read_link(&here)?.display());
            item.note("size", meta.size());
        }
    } else {
        item.note("size", meta.size());
    }
    if meta.is_file() {
        item.note("sha256", hash(&here)?);
    }
    for stream in streams(&lister.join(path))? {
        let mut place = here.clone().into_os_string();
        place.push(":");
        place.push(&stream);
        let place = Path::new(&place);
        let value = format!("{} bytes, sha256 {}", fs::metadata(place)?.size(), hash(place)?);
        item.note(&format!("stream {}", stream.to_string_lossy()), value);
    }
    Ok(item)
}

/// The names of the streams of a file, where they are its extended attributes.
fn streams(path: &Path) -> Result<Vec<OsString>> {
    let mut names = vec![0; LARGEST];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other.context("its streams cannot be listed")?,
    };
    let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let streams = names.filter_map(|name| name.strip_prefix(b"user."));
    // So ntfs-3g lists the keys of an encrypted file, which are no stream.
    let streams = streams.filter(|name| name != b"ntfs.efsinfo");
    Ok(streams.map(|name| OsString::from_vec(name.to_vec())).collect())
}

fn attribute(path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; LARGEST];
    match rustix::fs::lgetxattr(path, name, &mut value) {
        // Not there, or not known for such a file.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        // The root directory must not even be asked for an alias.
        Err(Errno::PERM) if name.ends_with("dos_name") => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{name} cannot be read")),
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
    }
}

fn hash(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file_hash(file).with_context(|| format!("cannot read {}", path.display()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
