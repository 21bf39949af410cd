//! ext2 and ext3, read-only, by the reader of ext4, which has the same format.

use crate::ext4::Ext4;
use crate::file_system::FileSystem;
use crate::survey::{Source, Survey};
use longrun_engine::{Progress, VolumeError};

/// The forerunners of ext4.
pub(crate) struct Ext2;

impl FileSystem for Ext2 {
    fn names(&self) -> &'static [&'static str] {
        &["ext2", "ext3"]
    }

    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
        Ext4.survey(source, progress)
    }
}
