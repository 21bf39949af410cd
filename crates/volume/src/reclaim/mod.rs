//! Gives the free space of a mounted volume back to what lies below: thin storage, an image, an SSD.
//!
//! Owns the refusals, the figures, and the run over the whole volume in slices ([`run`], behind a trait of what gives a range
//! back). What the slices of a file system are is said in its folder. Never decides what is free: that does the kernel, in the
//! moment of each call. Never moves data.

mod course;
mod granules;
mod memory;
mod place;
mod run;
mod storage;

pub use course::{Course, Cuts, Slice};
pub use granules::{FreePieces, Granules};
pub(crate) use memory::Memory;
pub use run::{GiveBack, Given, Limits, Reclaimed, carry_out};
pub use storage::{Device, Storage};

use crate::Target;
use crate::file_system::FileSystem;
use crate::mounted::io;
use crate::mounted::lock_place::VolumeLock;
use longrun_engine::{Observer, Progress, VolumeError};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno, Mount};
use place::Place;
use std::fs::File;
use std::io::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How FITRIM goes over a volume: what its file system says of that.
pub(crate) struct Trimming {
    /// The parts of the address space that it takes ranges of, ascending.
    pub(crate) areas: Vec<ByteRange>,
    /// Where slices are cut within an area.
    pub(crate) cuts: Cuts,
    /// A call that comes before all others, if there is something that no range is.
    pub(crate) first: Option<Slice>,
    /// The longest piece that it can find, where that is bounded.
    pub(crate) longest: Option<Bytes>,
    /// Whether it tells how much it has trimmed; else what it tells is a bound from above.
    pub(crate) is_counted: bool,
    /// What has to be put right between slices.
    pub(crate) memory: Option<Memory>,
}

/// A mounted volume whose free space can be given back.
pub struct Reclaim {
    target: Target,
    path: PathBuf,
    mount: Mount,
    root: File,
    filesystem: &'static dyn FileSystem,
    storage: Storage,
}

/// The space of a volume, and of what lies below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Free inside.
    pub free: Bytes,
    /// Everything else; none on several devices, where a free byte can take more than one below.
    pub used: Option<Bytes>,
    /// The pieces of free space, and how much of them is in whole blocks of the storage; none on several devices.
    pub pieces: Option<Pieces>,
    /// Allocated below, where that is known.
    pub allocated: Option<Bytes>,
}

/// The free space in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// How many.
    pub count: u64,
    /// What the storage can take back of them.
    pub reclaimable: Bytes,
}

impl Reclaim {
    /// Looks at the volume of `target`, and at what lies below. Changes nothing.
    ///
    /// # Errors
    /// [`VolumeError`] with the reason why its free space cannot be given back.
    pub fn open(target: &Target) -> Result<Self, VolumeError> {
        let path = target.given.clone();
        let not_writable = |state: &str| VolumeError::NotWritable { path: path.clone(), state: state.to_owned() };
        let (Some(mount), Some(device)) = (&target.mount, target.device_number) else {
            return Err(not_writable("not mounted"));
        };
        let unknown = || VolumeError::Unsupported { path: path.clone(), what: mount.filesystem.clone() };
        let known = mount.known_filesystem().ok_or_else(unknown)?;
        let filesystem = crate::file_systems::named(known.name()).ok_or_else(unknown)?;
        if !mount.writable {
            return Err(not_writable("mounted read-only"));
        }
        if !longrun_sys::is_root() {
            return Err(VolumeError::NotPermitted { path, act: "giving free space back".into() });
        }
        let storage = Storage::below(device, &path)?;
        let point = &mount.point;
        // Who owns a directory above it can put something else there.
        let root = longrun_sys::open_trusted_directory(point).map_err(io(point, "opening the root directory"))?;
        let root = File::from(root);
        let number = longrun_sys::mount_of_file(&root).map_err(io(point, "examining the root directory"))?;
        if number != mount.id {
            return Err(VolumeError::NotAVolume { path, problem: "hidden by another mount".into() });
        }
        Ok(Self { target: target.clone(), path, mount: mount.clone(), root, filesystem, storage })
    }

    /// What lies below.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// How the file system is mounted, if it gives space back by itself as soon as it is freed.
    #[must_use]
    pub fn online_discard(&self) -> Option<&str> {
        let mut options = self.mount.options.iter().map(String::as_str);
        options.rfind(|option| *option == "discard" || option.starts_with("discard="))
    }

    /// What of the free space the file system skips, where it remembers what it has given back.
    #[must_use]
    pub fn skips(&self) -> Option<&'static str> {
        self.filesystem.skips_when_trimming()
    }

    /// The figures at this moment. What was freed a moment ago counts: the volume is synced.
    ///
    /// # Errors
    /// [`VolumeError`]: the kernel refuses, or `progress` was cancelled.
    pub fn space(&self, least: Bytes, progress: &dyn Progress) -> Result<Space, VolumeError> {
        longrun_sys::sync_volume(&self.root).map_err(io(&self.path, "syncing the volume"))?;
        let found = self.filesystem.free_pieces(&self.root, &self.path, progress)?;
        let allocated = self.storage.allocated();
        let Some(found) = found else {
            let capacity = longrun_sys::capacity(&self.root).map_err(io(&self.path, "reading how full it is"))?;
            let free = capacity.block_size.to_bytes(capacity.free);
            return Ok(Space { free, allocated, ..Space::default() });
        };
        let free = found.bytes();
        let reclaimable = found.reclaimable(self.storage.granules(), least);
        let pieces = Some(Pieces { count: found.pieces.len() as u64, reclaimable });
        Ok(Space { free, used: Some(self.storage.size().saturating_sub(free)), pieces, allocated })
    }

    /// Gives the free space back, from pieces of at least `least`. Begins where the last run was stopped, and goes all round.
    /// Time runs since `begun`.
    ///
    /// # Errors
    /// [`VolumeError`] when nothing could be given back. Being stopped, or failing on the way, is no error but a
    /// [`Reclaimed`] that says so.
    pub fn run(
        &self,
        least: Bytes,
        limits: Limits,
        begun: Instant,
        observer: &mut dyn Observer,
    ) -> Result<Reclaimed, VolumeError> {
        let trimming = self.trimming(least)?;
        let lock = VolumeLock::whole(&self.root, &self.path)?;
        let place = Place(lock.note(&self.root, &self.path, place::NAME)?);
        // What was freed before counts as free only when that is committed.
        longrun_sys::sync_volume(&self.root).map_err(io(&self.path, "syncing the volume"))?;
        let mut course = Course::new(&trimming.areas, trimming.cuts, place.read()).beginning_with(trimming.first);
        let mut giver = Fitrim { root: &self.root, path: &self.path, least, memory: trimming.memory };
        let mut done = carry_out(&mut giver, &mut course, limits, begun, observer);
        self.storage.settle();
        if done.calls == 0
            && let Some(error) = done.failure.take()
        {
            return Err(error);
        }
        done.is_counted = trimming.is_counted;
        // Where that cannot be noted, the next run begins at the start.
        if place.note(done.next).is_err() {
            done.next = done.next.map(|_| Bytes(0));
        }
        Ok(done)
    }

    /// What the file system says of trimming, where pieces of at least `least` are asked for.
    fn trimming(&self, least: Bytes) -> Result<Trimming, VolumeError> {
        let trimming = self.filesystem.trimming(&self.root, &self.target)?;
        let least = least.max(self.storage.granules().bytes);
        match trimming.longest {
            Some(longest) if least > longest => {
                let what = format!(
                    "giving back only pieces of {least} bytes and more (no free piece of this volume is longer than {longest} \
                     bytes: block groups bound them)"
                );
                Err(VolumeError::Unsupported { path: self.path.clone(), what })
            }
            _ => Ok(trimming),
        }
    }
}

/// The kernel's call on a mounted volume.
struct Fitrim<'a> {
    root: &'a File,
    path: &'a Path,
    least: Bytes,
    memory: Option<Memory>,
}

impl GiveBack for Fitrim<'_> {
    fn give_back(&mut self, range: ByteRange) -> Result<Given, VolumeError> {
        let begun = Instant::now();
        let bytes = longrun_sys::trim(self.root, range, self.least).map_err(|errno| refused(self.path, errno))?;
        let time = begun.elapsed();
        self.memory.as_mut().map_or(Ok(()), Memory::keep)?;
        Ok(Given { bytes, time })
    }

    fn complete(&mut self) -> Result<(), VolumeError> {
        self.memory.as_ref().map_or(Ok(()), Memory::settle)
    }
}

fn refused(path: &Path, errno: Errno) -> VolumeError {
    let path = path.to_owned();
    match errno {
        Errno::OPNOTSUPP | Errno::NOTTY => VolumeError::Unsupported { path, what: "FITRIM on this volume".into() },
        Errno::ROFS => VolumeError::NotWritable { path, state: "mounted without its journal".into() },
        Errno::PERM | Errno::ACCESS => VolumeError::NotPermitted { path, act: "giving free space back".into() },
        errno => VolumeError::Io { path, act: "giving free space back (FITRIM)", source: Error::from(errno) },
    }
}
