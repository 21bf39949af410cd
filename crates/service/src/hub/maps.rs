//! The maps of volumes, and what only the volume itself can add to them: paths.
//!
//! Owns the time limit for a volume that does not answer. The paths are not in the map: they are found when they are asked for, by the
//! same means as by `longrun map --at`.

use super::jobs::moves_files;
use super::{Entry, Hub};
use crate::maps::{Maps, Wanted};
use crate::threads::lock;
use crate::volumes::Found;
use jiff::Timestamp;
use longrun_api::jobs::Job;
use longrun_api::map::MapPass;
use longrun_atlas::{Atlas, AtlasError, FileEntry};
use longrun_engine::{Progress, unnamed};
use longrun_layout::{BlockSize, Blocks, InodeNumber, LayoutBuilder};
use longrun_prevention::Watched;
use longrun_sys::{FileHandle, FileSystem, Mount, OFlags};
use longrun_volume::survey::{Source, Survey};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The search for a path ends after this time: an act on a volume keeps others waiting.
const SEARCH: Duration = Duration::from_secs(4);
/// Why there is no path, or no file, when the volume did not answer.
const SILENT: &str = "the volume does not respond";

/// A file of a volume, in the terms of its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOnVolume {
    /// Its inode number.
    pub inode: InodeNumber,
    /// On btrfs, the number of its subvolume.
    pub subvolume: Option<u64>,
}

impl FileOnVolume {
    /// Whether the entry of a map is of this file.
    #[must_use]
    pub fn is(&self, entry: &FileEntry) -> bool {
        self.inode == entry.id.inode
            && self.subvolume.is_none_or(|subvolume| subvolume == u64::from(entry.id.generation))
    }
}

impl Hub {
    /// Where maps are.
    #[must_use]
    pub fn maps(&self) -> Maps {
        Maps::of(&self.config().service.state_directory)
    }

    /// The volume `id`, in the terms of its map, and its file system.
    #[must_use]
    pub fn map_wanted(&self, id: &str) -> Option<(Wanted, FileSystem)> {
        let volumes = lock(&self.volumes);
        let entry = volumes.values().find(|entry| entry.id == id)?;
        Some((Wanted { id: entry.id.clone(), uuid: entry.superblock.uuid }, entry.found.watched.filesystem))
    }

    /// Leaves the map of a volume that was just read.
    pub(super) fn leave_map(&self, id: &str, survey: &dyn Survey) {
        let Some((wanted, _)) = self.map_wanted(id) else { return };
        match self.maps().write(&wanted, survey) {
            Ok(bytes) => tracing::debug!("{id}: the map was written, {bytes} bytes"),
            Err(error) => tracing::warn!("{id}: no map of the volume was left: {error}"),
        }
        self.tidy_maps();
    }

    /// Keeps the map from before a pass that has ended, if it moved something.
    pub(super) fn keep_map_from_before(&self, job: &Job) {
        if moves_files(job) && job.runs > 0 && job.state.has_ended() {
            self.maps().pass_ended(&job.volume, job.moved_bytes > 0);
        }
    }

    /// The last pass of a volume whose map from before it is kept; `now` is its current map.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn map_pass(&self, wanted: &Wanted, now: &Atlas<File>) -> Result<Option<MapPass>, AtlasError> {
        let Some(before) = self.maps().open_before(wanted)? else { return Ok(None) };
        let Some(job) = self.jobs.since_map(&wanted.id, before.summary().number) else { return Ok(None) };
        let ended = job.ended.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        Ok(Some(MapPass {
            job: job.id,
            mode: job.mode,
            started: job.started.unwrap_or_default(),
            ended: job.ended.unwrap_or_default(),
            moved_bytes: job.moved_bytes,
            before: job.before,
            after: job.after,
            scanned_since: ended.is_some_and(|at| now.summary().at >= at.as_second()),
        }))
    }

    /// Removes the maps that are of no use any more.
    pub(super) fn tidy_maps(&self) {
        let ids = |is: fn(&Entry) -> bool| -> BTreeSet<String> {
            lock(&self.volumes).values().filter(|entry| is(entry)).map(|entry| entry.id.clone()).collect()
        };
        self.maps().tidy(&ids(|entry| entry.settings.enabled), &ids(|_| true));
    }

    /// The path of a file of the volume `id`, or why it has none.
    ///
    /// # Errors
    /// In one sentence.
    pub fn path_of(self: &Arc<Self>, id: &str, entry: FileEntry) -> Result<String, String> {
        let found = self.found(id)?;
        let path = self.ask(&found, "finding a path", move |found| path_of(found, &entry));
        path.ok_or(SILENT)?.map(|path| path.to_string_lossy().into_owned())
    }

    /// The file at `path`, if it lies on the volume `id`.
    ///
    /// # Errors
    /// In one sentence.
    pub fn file_at(self: &Arc<Self>, id: &str, path: PathBuf) -> Result<FileOnVolume, String> {
        let found = self.found(id)?;
        let file = self.ask(&found, "finding a file", move |found| file_at(found, &path));
        file.ok_or(SILENT)?
    }

    pub(super) fn found(&self, id: &str) -> Result<Found, String> {
        let volumes = lock(&self.volumes);
        let entry = volumes.values().find(|entry| entry.id == id);
        entry.map(|entry| entry.found.clone()).ok_or_else(|| "the volume is no longer mounted".to_owned())
    }

    /// What comes of an act on a volume; nothing when it takes too long.
    fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        found: &Found,
        what: &'static str,
        work: impl FnOnce(&Found) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        let of = found.clone();
        self.act(found.watched.device, what, move |_| {
            // No one listens any more when it took too long.
            _ = sender.send(work(&of));
        });
        answer.try_recv().ok()
    }
}

/// Ends a search.
struct Until(Instant);

impl Progress for Until {
    fn at(&self, _done: u64, _total: u64) {}

    fn cancelled(&self) -> bool {
        Instant::now() >= self.0
    }
}

fn path_of(found: &Found, entry: &FileEntry) -> Result<PathBuf, String> {
    let until = Until(Instant::now() + SEARCH);
    let root = found.watched.open_root().map_err(|error| error.to_string())?;
    let mount = Mount::of(&root).map_err(|error| error.to_string())?.ok_or("the volume is no longer mounted")?;
    if found.watched.filesystem == FileSystem::Xfs
        && let Some(path) = known_path(&root, entry)
    {
        return Ok(path);
    }
    let source = Source {
        path: &found.watched.point,
        device: &found.source,
        mounted: Some((&mount, root)),
        inside: None,
        spoils_shadow_copies: false,
    };
    let namer = longrun_volume::namer(source).map_err(|error| error.to_string())?;
    let block_size = BlockSize::new(4096).ok_or("no such block size")?;
    let mut layout = LayoutBuilder::new(block_size, Blocks(1));
    layout.push_file(entry.id, entry.directory, entry.is_directory, None, &mut Vec::new());
    let layout = layout.build().map_err(|error| error.to_string())?;
    let paths = namer.of(&layout, &[entry.id], &until).map_err(|error| error.to_string())?;
    let path = paths.into_iter().next().unwrap_or_else(|| unnamed(entry.id.inode));
    if path.to_string_lossy().starts_with("<inode ") {
        return Err(if until.cancelled() {
            format!("no name was found in {} s", SEARCH.as_secs())
        } else {
            "it was moved or removed since the scan, or has no name below the mount point".to_owned()
        });
    }
    Ok(path)
}

/// The path under which the kernel knows a file of XFS at the moment, if it does: the search goes through all directories there.
fn known_path(root: &File, entry: &FileEntry) -> Option<PathBuf> {
    let file = FileHandle::on_xfs(entry.id)?.open(root, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    let path = fs::read_link(longrun_sys::descriptor_path(&file)).ok()?;
    // The kernel has a path for what it does not know, too.
    let (file, there) = (File::from(file).metadata().ok()?, fs::symlink_metadata(&path).ok()?);
    ((file.dev(), file.ino()) == (there.dev(), there.ino())).then_some(path)
}

fn file_at(found: &Found, path: &Path) -> Result<FileOnVolume, String> {
    let name = path.to_string_lossy().escape_debug().to_string();
    let failed = |error: io::Error| format!("{name}: {error}");
    // Without following links: these lead where their owner wants.
    let file = File::from(longrun_sys::open_trusted(path).map_err(|errno| failed(errno.into()))?);
    let meta = file.metadata().map_err(failed)?;
    let there = Watched::mount_of(path).map_err(failed)?.map(|mount| mount.device);
    if there != Some(found.watched.device) || !(meta.is_file() || meta.is_dir()) {
        return Err(format!("{name} is not a file or directory of this volume"));
    }
    let subvolume = (found.watched.filesystem == FileSystem::Btrfs)
        .then(|| longrun_sys::subvolume_of_file(&file).map(|tree| tree.0))
        .transpose()
        .map_err(|errno| failed(errno.into()))?;
    Ok(FileOnVolume { inode: InodeNumber(meta.ino()), subvolume })
}
