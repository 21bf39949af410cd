//! The place of a measurement: a directory of our own on a volume, and the device below it.
//!
//! Finds the mount and the device, refuses if there is too little space, and makes the directory. Never measures.

use crate::device::{Device, mount_of};
use crate::{BenchError, Scratch};
use longrun_layout::Bytes;
use longrun_sys::Mount;
use std::fs::File;
use std::path::Path;

/// A volume where something is measured. Dropping this removes what was made there.
#[derive(Debug)]
pub struct Place {
    mount: Mount,
    device: Device,
    scratch: Scratch,
}

impl Place {
    /// Makes a new directory in `target`, where `needed` bytes have to be free.
    ///
    /// # Errors
    /// [`BenchError::TooLittleSpace`]; [`BenchError::Unsuitable`] when there is no device to be measured;
    /// [`BenchError::Io`].
    pub fn with_room(target: &Path, needed: Bytes) -> Result<Self, BenchError> {
        let target = target.canonicalize().map_err(|e| BenchError::io("finding it", target, e))?;
        let mount = mount_of(&target)?;
        let device = Device::under(&mount)?;
        refuse_too_little_space(&target, needed)?;
        Ok(Self { mount, device, scratch: Scratch::new(&target)? })
    }

    /// The mount that is measured.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// The device that is measured.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where to write.
    #[must_use]
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

/// Whether there is room for what will be written, what others than root may not use not counted.
///
/// # Errors
/// [`BenchError::TooLittleSpace`], or [`BenchError::Io`] when the volume does not tell.
pub fn refuse_too_little_space(target: &Path, needed: Bytes) -> Result<(), BenchError> {
    let failed = |e| BenchError::io("reading the free space of", target, e);
    let known = longrun_sys::capacity(File::open(target).map_err(failed)?).map_err(|e| failed(e.into()))?;
    let free = known.block_size.to_bytes(known.available);
    if free < needed {
        return Err(BenchError::TooLittleSpace { path: target.to_owned(), needed, free });
    }
    Ok(())
}
