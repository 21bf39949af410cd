//! Every ioctl and system call that Longrun makes, typed and safe to call.
//!
//! Owns the kernel's record layouts (each written once) and the only `unsafe` code of the workspace. Never decides,
//! never retries, never keeps state: one function is one call to the kernel (or one reading of its sysfs). Every
//! function takes a borrowed descriptor, and returns the kernel's [`Errno`].
//!
//! `unsafe` is allowed here because calls that `rustix` does not wrap (FIEMAP, GETFSMAP, MOVE_EXT, FITRIM, file handles,
//! ranged write-back, cachestat, shutdown) exist only as untyped entry points. Each block states why it is sound.
#![allow(unsafe_code)]

mod aligned;
mod behind_end;
mod block_device;
mod bpf_statistics;
mod btrfs;
mod btrfs_balance;
mod bulkstat;
mod byte_lock;
mod cache;
mod device;
mod device_counters;
mod discard;
mod exchange;
mod fiemap;
mod file_events;
mod file_system;
mod folio;
mod fsmap;
mod handle;
mod inherit;
mod inode;
mod lease;
mod lock;
mod loop_backing;
mod loop_device;
mod mmap;
mod mounts;
mod passed;
mod peer;
mod private_mount;
mod process;
mod quota;
mod raw;
mod sandbox;
mod share;
mod shutdown;
mod space;
mod storage_group;
mod superblock;
mod trim;
mod trusted;
mod wait;
mod wake;
mod whole_folios;
mod within;
mod xfs;
mod xfs_space;

pub use aligned::AlignedBuffer;
pub use behind_end::{can_free_behind_end, free_behind_end, punch_behind_end};
pub use block_device::{BlockDevice, BlockDeviceKind, partition_number, volume_members};
pub use bpf_statistics::{measure_bpf, time_in_bpf};
pub use btrfs::{
    BtrfsInfo, TreeId, TreeItem, TreeKey, TreeReader, Visit, btrfs_info, path_in_subvolume, subvolume_of_file,
};
pub use btrfs_balance::{
    BalanceState, Reference, balance_data, balance_state, cancel_balance, for_each_reference, is_balancing,
};
pub use bulkstat::{InodeKind, InodeRecord, XfsGeometry, for_each_inode, xfs_geometry};
pub use byte_lock::{are_bytes_locked, are_bytes_locked_for_writing, lock_bytes, unlock_bytes};
pub use cache::{
    CacheState, cache_state, drop_cache, expect_random_reads, read_ahead, start_writeback, wait_writeback,
};
pub use device::{DeviceNumber, device_number_of_file};
pub use device_counters::{DeviceCounters, DeviceCounts};
pub use discard::{discard_blocks, sector_size, zero_range};
pub use exchange::{Exchange, MoveFailure, Moved, exchange_with_donor};
pub use fiemap::{ExtentFlags, FileExtent, Mapping, for_each_extent, map_file};
pub use file_events::{FileEvent, FileEvents, FileSystemId, Interest, file_system_id, wait_readable};
pub use file_system::FileSystem;
pub use folio::{HeldPages, has_large_folios, hold_pages};
pub use fsmap::{SpaceOwner, SpaceRecord, all_free_extents, free_extents, map_space};
pub use handle::{FileHandle, id_of_file, open_by_id};
pub use inherit::{PassedFile, pass_files};
pub use inode::{
    InodeAttributes, attributes, generation, gives_privileges, is_root_of_mount, mount_at, mount_of_file, set_modified,
    set_written_in_place, volume_uuid,
};
pub use lease::ExclusiveLease;
pub use lock::LockFile;
pub use loop_backing::loop_devices_on;
pub use loop_device::LoopDevice;
pub use mmap::SharedMapping;
pub use mounts::{MOUNT_TABLE, Mount, parse_mountinfo, read_mounts, unescape};
pub use passed::passed_listener;
pub use peer::peer_groups;
pub use private_mount::{
    NamespaceError, detach_mount, forget_btrfs_device, mount_device, own_mount_namespace, unmount,
};
pub use process::{
    end_after, end_with_us, ignore_terminal_stops, is_root, monotonic_nanoseconds, processor_time,
    raise_open_file_limit, run_before_others, set_nice, share_memory_pools, since_boot, yield_io_to_others,
};
pub use quota::{Charged, SpaceLimits, forgo_resource_privilege, set_space_limit, space_limits};
pub use rustix::fs::{FlockOperation, OFlags};
pub use rustix::io::Errno;
pub use rustix::param::page_size;
pub use sandbox::Sandbox;
pub use share::{Shared, share_blocks_of};
pub use shutdown::{Shutdown, shutdown};
pub use space::{
    Capacity, allocate, capacity, capacity_at, free_inodes, give_name, is_read_only, punch, reopen_directory,
    set_length, set_length_at, sync_file, sync_file_data, sync_volume, temporary_file,
};
pub use storage_group::{StorageGroupSource, storage_groups, storage_groups_within};
pub use superblock::{InodeChunks, Superblock, format_uuid, read_superblock, superblock_of};
pub use trim::{Discards, discards_of, shows_whole_file, size_of_device, trim};
pub use trusted::{
    descriptor_path, list_trusted_directory, open_file_or_block_device, open_trusted, open_trusted_directory,
};
pub use wait::{Bell, wait_for_change};
pub use wake::wake_every_second;
pub use whole_folios::{longest_folio, share_hole_if_zeros, share_if_same};
pub use within::{enter_root, make_directory_within, open_within, remove_within, replace_file, write_within};
pub use xfs::{
    ExtendedAttributes, extended_attributes, inherited_size_hint, open_without_times, open_xfs_by_id,
    set_inherited_size_hint,
};
pub use xfs_space::xfs_free_inodes;

use longrun_layout::Bytes;

/// A range of a file or device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: Bytes,
    /// Number of bytes.
    pub length: Bytes,
}

impl ByteRange {
    /// From the first byte to whatever end the kernel accepts.
    pub const ALL: Self = Self { start: Bytes(0), length: Bytes(u64::MAX) };

    /// `length` blocks from `start`, in bytes.
    #[must_use]
    pub fn of_blocks(
        block_size: longrun_layout::BlockSize,
        start: longrun_layout::LogicalBlock,
        length: longrun_layout::Blocks,
    ) -> Self {
        Self { start: block_size.to_bytes(longrun_layout::Blocks(start.0)), length: block_size.to_bytes(length) }
    }

    /// What of it does not lie before `start`; `None` when that is nothing.
    #[must_use]
    pub fn not_before(self, start: Bytes) -> Option<Self> {
        let skipped = start.saturating_sub(self.start);
        let length = self.length.saturating_sub(skipped);
        (length.0 > 0).then(|| Self { start: self.start.max(start), length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_before_where_it_is_to_begin() {
        let range = |start, length| ByteRange { start: Bytes(start), length: Bytes(length) };
        assert_eq!(range(10, 5).not_before(Bytes(3)), Some(range(10, 5)));
        assert_eq!(range(10, 5).not_before(Bytes(12)), Some(range(12, 3)));
        assert_eq!(range(10, 5).not_before(Bytes(15)), None);
        assert_eq!(ByteRange::ALL.not_before(Bytes(7)), Some(range(7, u64::MAX - 7)));
    }
}
