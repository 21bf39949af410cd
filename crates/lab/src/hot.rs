//! A state directory in which a volume has hot files and lies on a hard disk: what the service counts and `longrun profile` measures in
//! days is made up, so that `optimize` places files by heat.

use crate::disk::DiskModel;
use crate::{LoopVolume, cleanup};
use anyhow::{Context, Result};
use longrun_heat::{Counted, Harvested, HeatTable, Kept, Minute};
use longrun_layout::{Bytes, FileId};
use longrun_profile::{Kept as Profiles, Place, Profile, Verdict};
use longrun_sys::{BlockDevice, ByteRange, DeviceNumber, FileSystem, Mapping, format_uuid, map_file, read_superblock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// One in so many files is hot.
const HOT: u64 = 7;
/// Reads of a hot file, and of any other.
const READS: [u64; 2] = [3000, 5];

/// The state directory; removed when this is dropped.
#[derive(Debug)]
pub struct HotState {
    directory: PathBuf,
    /// Of what is moved today; written before anything is.
    noted: PathBuf,
}

impl HotState {
    /// For the volume (ext4 or XFS) that is mounted at `mount_point`, with the files that it has now.
    ///
    /// # Errors
    /// When the volume or its device cannot be identified, or nothing can be kept.
    pub fn of(mount_point: &Path) -> Result<Self> {
        let mut state = Self { directory: cleanup::fresh_directory()?, noted: PathBuf::new() };
        let number = DeviceNumber::from_stat(fs::metadata(mount_point)?.dev());
        let device = BlockDevice::numbered(number)?;
        keep_profile(&device, &state.directory)?;
        let path = device.node();
        let uuid =
            [FileSystem::Ext4, FileSystem::Xfs].into_iter().find_map(|kind| read_superblock(&path, kind).ok()?.uuid);
        let uuid = uuid.with_context(|| format!("{} has no UUID", path.display()))?;
        let now = Minute::of_seconds(jiff::Timestamp::now().as_second());
        let mut table = HeatTable::beginning(now);
        table.add(&harvest(mount_point)?, now, 100_000);
        let id = format_uuid(&uuid);
        Kept::within(&state.directory).keep(&id, uuid, &table)?;
        state.noted = state.directory.join(format!("heat/{id}.moved"));
        Ok(state)
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether placing has begun to move files.
    #[must_use]
    pub fn is_placing(&self) -> bool {
        self.noted.exists()
    }
}

impl Drop for HotState {
    fn drop(&mut self) {
        cleanup::take_down(&self.directory);
    }
}

/// Keeps for a device the profile of a hard disk, which is fastest at its beginning.
fn keep_profile(device: &BlockDevice, state: &Path) -> Result<()> {
    let places =
        (0..16).map(|nth| Place { at: Bytes(0), speeds: vec![160e6 - 5e6 * f64::from(nth); 3] }).collect::<Vec<_>>();
    let verdict = Verdict::of(&places);
    let measured = jiff::Timestamp::now();
    let profile = Profile { device: device.name.clone(), bytes: Bytes(0), measured, seconds: 1.0, places, verdict };
    let identity = device.identity().context("the device has no identity")?;
    Profiles::within(state).keep(&identity, &profile)?;
    Ok(())
}

/// Reads of all files. A file that goes meanwhile is left out.
fn harvest(mount_point: &Path) -> Result<Harvested> {
    let mut files: BTreeMap<FileId, Counted> = BTreeMap::new();
    for path in files_below(mount_point)? {
        let Some(id) = File::open(&path).ok().and_then(|file| longrun_sys::id_of_file(file).ok()) else { continue };
        let reads = READS[usize::from(!id.inode.0.is_multiple_of(HOT))];
        files.insert(id, Counted { reads, read_bytes: reads * 4096, ..Counted::default() });
    }
    Ok(Harvested { reads: 1_000_000, read_bytes: 1 << 32, files: files.into_iter().collect(), own_reads: 0 })
}

/// A copy of a volume on what is a hard disk to Longrun, and as fast as memory. Below an image in a file the disk of this machine shows.
///
/// # Errors
/// When a tool fails or the volume is busy.
pub fn on_hard_disk(volume: &LoopVolume) -> Result<LoopVolume> {
    let copy = volume.copy_to_disk(DiskModel::by_name("hdd").context("no model of a hard disk")?, 1)?;
    copy.disk().context("the copy is on no disk")?.set_modelled(false)?;
    Ok(copy)
}

/// Where each file begins on the device.
///
/// # Errors
/// When a file cannot be read.
pub fn places(mount_point: &Path) -> Result<BTreeMap<PathBuf, Bytes>> {
    let range = ByteRange { start: Bytes(0), length: Bytes(u64::MAX) };
    let mut places = BTreeMap::new();
    for path in files_below(mount_point)? {
        let extents = map_file(File::open(&path)?, range, Mapping::Synced)?;
        let below = path.strip_prefix(mount_point)?.to_owned();
        places.extend(extents.first().map(|first| (below, first.physical)));
    }
    Ok(places)
}

fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        // Others may be at work: what has gone is left out.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    Ok(files)
}
