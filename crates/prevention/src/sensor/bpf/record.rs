//! Decodes the records of the BPF programs, and encodes those for them. Pure. The C header defines the layout; the type
//! information of the compiled object provides it.

use super::skeleton::types;
use crate::{Nanos, ProcessName, SignalKind};
use longrun_bpf::{KernelDevice, put, u32_at, u64_at};
use longrun_layout::Bytes;
use longrun_sys::FileHandle;
use longrun_sys::FileSystem;
use std::mem::offset_of;

/// How the handles of a volume are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleForm {
    /// Inode number of 32 bits, generation: ext4, and XFS with `inode32`.
    Short,
    /// Inode number of 64 bits, generation: XFS.
    Long,
    /// Inode number, subvolume, generation: btrfs.
    Btrfs,
}

impl HandleForm {
    const SHORT: i32 = 1;
    const LONG: i32 = 0x81;
    const BTRFS: i32 = 0x4d;

    /// Which form `handle` has, when we know it.
    pub(super) fn of(handle: &FileHandle) -> Option<Self> {
        match (handle.kind(), handle.bytes().len()) {
            (Self::SHORT, 8) => Some(Self::Short),
            (Self::LONG, 12) => Some(Self::Long),
            (Self::BTRFS, 20) => Some(Self::Btrfs),
            _ => None,
        }
    }
}

/// A file as the kernel's side names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity {
    pub inode: u64,
    pub root: u64,
    pub generation: u32,
}

impl Identity {
    /// What stands in a handle.
    pub(super) fn of(handle: &FileHandle) -> Option<Self> {
        let bytes = handle.bytes();
        Some(match HandleForm::of(handle)? {
            HandleForm::Short => Self { inode: u32_at(bytes, 0)?.into(), root: 0, generation: u32_at(bytes, 4)? },
            HandleForm::Long => Self { inode: u64_at(bytes, 0)?, root: 0, generation: u32_at(bytes, 8)? },
            HandleForm::Btrfs => {
                Self { inode: u64_at(bytes, 0)?, root: u64_at(bytes, 8)?, generation: u32_at(bytes, 16)? }
            }
        })
    }

    /// The handle that the kernel would give.
    pub(super) fn handle(self, form: HandleForm) -> Option<FileHandle> {
        let generation = self.generation.to_ne_bytes();
        match form {
            HandleForm::Short => {
                let inode = u32::try_from(self.inode).ok()?.to_ne_bytes();
                FileHandle::new(HandleForm::SHORT, &[inode, generation].concat())
            }
            HandleForm::Long => {
                FileHandle::new(HandleForm::LONG, &[&self.inode.to_ne_bytes()[..], &generation].concat())
            }
            HandleForm::Btrfs => {
                let (inode, root) = (self.inode.to_ne_bytes(), self.root.to_ne_bytes());
                FileHandle::new(HandleForm::BTRFS, &[&inode[..], &root, &generation].concat())
            }
        }
    }

    /// The key of the kernel's tables of files.
    pub(super) fn key(self, device: KernelDevice) -> [u8; size_of::<types::file_key>()] {
        let mut key = [0; size_of::<types::file_key>()];
        put(&mut key, offset_of!(types::file_key, inode), &self.inode.to_ne_bytes());
        put(&mut key, offset_of!(types::file_key, root), &self.root.to_ne_bytes());
        put(&mut key, offset_of!(types::file_key, device), &device.bytes());
        put(&mut key, offset_of!(types::file_key, generation), &self.generation.to_ne_bytes());
        key
    }
}

/// An event, but for the volume's way of making handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub at: Nanos,
    pub device: KernelDevice,
    pub file: Identity,
    pub size: Bytes,
    pub by: ProcessName,
    pub kind: SignalKind,
}

/// Reads an event; `None` when it is none.
pub(super) fn event(bytes: &[u8]) -> Option<Event> {
    use types::growth_event as E;
    if bytes.len() != size_of::<E>() {
        return None;
    }
    let (offset, total) = (Bytes(u64_at(bytes, offset_of!(E, offset))?), Bytes(u64_at(bytes, offset_of!(E, bytes))?));
    let allocations = u32_at(bytes, offset_of!(E, allocations))?;
    let kind = match u32_at(bytes, offset_of!(E, kind))? {
        1 => SignalKind::Fragmenting { allocations, bytes: total, end: offset },
        2 => SignalKind::Scattered { at: offset, allocations, bytes: total },
        3 => SignalKind::HalfUsed { end: offset },
        4 => SignalKind::InPieces,
        _ => return None,
    };
    Some(Event {
        at: Nanos(u64_at(bytes, offset_of!(E, at))?),
        device: KernelDevice(u32_at(bytes, offset_of!(E, device))?),
        file: Identity {
            inode: u64_at(bytes, offset_of!(E, inode))?,
            root: u64_at(bytes, offset_of!(E, root))?,
            generation: u32_at(bytes, offset_of!(E, generation))?,
        },
        size: Bytes(u64_at(bytes, offset_of!(E, size))?),
        by: ProcessName(bytes.get(offset_of!(E, by)..)?.get(..16)?.try_into().ok()?),
        kind,
    })
}

/// The mark of an armed file.
pub(super) fn armed(half: Bytes) -> [u8; size_of::<types::armed_file>()] {
    let mut value = [0; size_of::<types::armed_file>()];
    put(&mut value, offset_of!(types::armed_file, half), &half.0.to_ne_bytes());
    value
}

/// From when on the files of a volume are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    filesystem: FileSystem,
    growth: u32,
    scatter: u32,
    small: Bytes,
    calm: Nanos,
}

impl Rules {
    /// The measured ones. ext4 puts a growing file into 8 to 12 pieces by itself, and fills holes well: it is left alone
    /// for longer.
    pub(super) fn of(filesystem: FileSystem) -> Self {
        let (growth, scatter) = match filesystem {
            FileSystem::Ext4 => (4, 0),
            FileSystem::Xfs | FileSystem::Btrfs => (2, 4),
        };
        Self { filesystem, growth, scatter, small: Bytes(4 << 20), calm: Nanos(1_000_000_000) }
    }

    /// The value for the kernel's table of volumes.
    pub(super) fn value(self) -> [u8; size_of::<types::volume_rules>()] {
        use types::volume_rules as R;
        let filesystem: u32 = match self.filesystem {
            FileSystem::Ext4 => 1,
            FileSystem::Xfs => 2,
            FileSystem::Btrfs => 3,
        };
        let mut value = [0; size_of::<R>()];
        put(&mut value, offset_of!(R, filesystem), &filesystem.to_ne_bytes());
        put(&mut value, offset_of!(R, growth), &self.growth.to_ne_bytes());
        put(&mut value, offset_of!(R, scatter), &self.scatter.to_ne_bytes());
        put(&mut value, offset_of!(R, small), &self.small.0.to_ne_bytes());
        put(&mut value, offset_of!(R, calm), &self.calm.0.to_ne_bytes());
        value
    }
}

/// The constants that the programs are loaded with.
pub(super) fn set_constants(constants: &mut [u8], own_process: u32, page_size: usize) {
    put(constants, offset_of!(types::rodata, own_process), &own_process.to_ne_bytes());
    put(constants, offset_of!(types::rodata, page_shift), &page_size.trailing_zeros().to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_sys::DeviceNumber;
    use proptest::prelude::*;

    /// An event as the C side writes it: in the header's order, without gaps.
    fn written(numbers: [u64; 6], device: u32, generation: u32, allocations: u32, kind: u32, by: [u8; 16]) -> Vec<u8> {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        bytes.extend([device, generation, allocations, kind].iter().flat_map(|number| number.to_ne_bytes()));
        bytes.extend(by);
        bytes
    }

    #[test]
    fn the_layout_of_the_compiled_object_is_the_headers() {
        assert_eq!(size_of::<types::growth_event>(), 80);
        assert_eq!(offset_of!(types::growth_event, by), 64);
        assert_eq!(size_of::<types::file_key>(), 24);
        assert_eq!(size_of::<types::volume_rules>(), 40);
        assert_eq!(size_of::<types::armed_file>(), 16);
    }

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let by = *b"writer\0\0\0\0\0\0\0\0\0\0";
        let bytes = written([1, 2, 3, 4, 5, 6], 7 << 20 | 300, 8, 9, 2, by);
        let device = KernelDevice::of(DeviceNumber { major: 7, minor: 300 });
        let kind = SignalKind::Scattered { at: Bytes(5), allocations: 9, bytes: Bytes(6) };
        let file = Identity { inode: 2, root: 3, generation: 8 };
        let expected = Event { at: Nanos(1), device, file, size: Bytes(4), by: ProcessName(by), kind };
        assert_eq!(event(&bytes), Some(expected));
        for kind in [0, 5, u32::MAX] {
            assert_eq!(event(&written([0; 6], 0, 0, 0, kind, by)), None, "{kind}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_reading_them_does_not_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(event(&bytes).is_none() || bytes.len() == size_of::<types::growth_event>());
        }

        #[test]
        fn a_handle_made_from_an_identity_has_that_identity(inode: u64, root: u64, generation: u32) {
            let short = Identity { inode: inode >> 32, root: 0, generation };
            prop_assert_eq!(short.handle(HandleForm::Short).and_then(|handle| Identity::of(&handle)), Some(short));
            let long = Identity { inode, root: 0, generation };
            prop_assert_eq!(long.handle(HandleForm::Long).and_then(|handle| Identity::of(&handle)), Some(long));
            let btrfs = Identity { inode, root, generation };
            prop_assert_eq!(btrfs.handle(HandleForm::Btrfs).and_then(|handle| Identity::of(&handle)), Some(btrfs));
        }
    }

    #[test]
    fn handles_of_unknown_form_are_no_identity() {
        for (kind, length) in [(1, 12), (2, 8), (0x81, 8), (0x4d, 12), (0x4e, 40)] {
            assert_eq!(Identity::of(&FileHandle::new(kind, &vec![0; length]).unwrap()), None, "{kind}");
        }
        let large = Identity { inode: 1 << 32, root: 0, generation: 1 };
        assert_eq!(large.handle(HandleForm::Short), None);
    }
}
