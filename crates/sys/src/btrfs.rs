//! Reads a whole btrfs volume: its parameters, and the items of its trees, without opening a file.

use crate::raw::{BTRFS_CALLS, KernelRecord, update};
use longrun_layout::{BlockSize, Bytes, InodeNumber};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// The number of a tree: one of the constants, or the id of a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(
    /// The bare number.
    pub u64,
);

impl TreeId {
    /// The tree of trees: all subvolumes.
    pub const ROOTS: Self = Self(1);
    /// What is allocated.
    pub const EXTENTS: Self = Self(2);
    /// How addresses map to devices.
    pub const CHUNKS: Self = Self(3);
    /// What of each device belongs to chunks.
    pub const DEVICES: Self = Self(4);
    /// Quota groups: how much subvolumes use, and may use.
    pub const QUOTAS: Self = Self(8);
    /// What is free.
    pub const FREE_SPACE: Self = Self(10);
    /// How much of each chunk is used, where that is not in the tree of extents.
    pub const BLOCK_GROUPS: Self = Self(11);
}

/// Where an item is in its tree. Keys are ordered as the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeKey {
    /// An inode number, an address, the id of a subvolume: what the item is about.
    pub object: u64,
    /// What kind of item it is.
    pub kind: u8,
    /// Its place within the object; means something else for each kind.
    pub offset: u64,
}

impl TreeKey {
    /// The first key that `object` can have.
    #[must_use]
    pub const fn first_of(object: u64) -> Self {
        Self { object, kind: 0, offset: 0 }
    }

    /// The last key that `object` can have.
    #[must_use]
    pub const fn last_of(object: u64) -> Self {
        Self { object, kind: u8::MAX, offset: u64::MAX }
    }

    /// The key right behind this one; `None` behind the last of all.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Self { kind, offset: 0, ..self });
        }
        self.object.checked_add(1).map(Self::first_of)
    }
}

/// An item of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeItem<'a> {
    /// Where it is.
    pub key: TreeKey,
    /// What it says, as on disk: little-endian, and of the length that its writer chose.
    pub bytes: &'a [u8],
}

/// How a visit of a tree goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// With the next item.
    Next,
    /// With the first item that is not before this key.
    SkipTo(TreeKey),
    /// Not at all.
    Stop,
}

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SearchKey {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    transactions: [u64; 2],
    kinds: [u32; 2],
    items: u32,
    unused: u32,
    reserved: [u64; 4],
}

/// Several times the largest item, and no more than stays in the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// `struct btrfs_ioctl_search_args_v2` with its buffer.
#[repr(C)]
struct Search {
    key: SearchKey,
    buffer_bytes: u64,
    buffer: [u8; BUFFER_BYTES],
}

// SAFETY: repr(C), integers only, 104 + 8 + 256 Ki bytes without padding.
unsafe impl KernelRecord for Search {}

#[repr(C)]
struct SearchHeader {
    key: SearchKey,
    buffer_bytes: u64,
}

const TREE_SEARCH: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<SearchHeader>(BTRFS_CALLS, 17);

/// Reads trees; keeps a buffer from one call to the next.
pub struct TreeReader(Box<Search>);

impl Default for TreeReader {
    fn default() -> Self {
        // SAFETY: integers only, so that all zero is a valid value. On the heap from the start: it is large.
        Self(unsafe { Box::<Search>::new_zeroed().assume_init() })
    }
}

impl TreeReader {
    /// Calls `visit` for each item of `tree` from key `first` to `last`, ascending, until it has enough. `volume` is
    /// any open file or directory of it. What is not committed yet may show or not: sync the volume first. Needs
    /// CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// `EPERM` without privilege, `ENOTTY` where the file system is another one, `ENOENT` when there is no such tree (any
    /// more); `EUCLEAN` when the answer is invalid.
    pub fn for_each_item(
        &mut self,
        volume: impl AsFd,
        tree: TreeId,
        first: TreeKey,
        last: TreeKey,
        mut visit: impl FnMut(TreeItem<'_>) -> Visit,
    ) -> Result<(), Errno> {
        let mut from = first;
        while from <= last {
            let count = self.search(volume.as_fd(), tree, from, last, u32::MAX)?;
            if count == 0 {
                return Ok(());
            }
            match visit_found(&self.0.buffer, count, from, &mut visit)? {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Whether `tree` has any item from key `first` to `last`.
    ///
    /// # Errors
    /// As [`Self::for_each_item`].
    pub fn has_items(&mut self, volume: impl AsFd, tree: TreeId, first: TreeKey, last: TreeKey) -> Result<bool, Errno> {
        self.search(volume.as_fd(), tree, first, last, 1).map(|count| count > 0)
    }

    /// Fills the buffer; answers with the number of items in it.
    fn search(
        &mut self,
        volume: BorrowedFd<'_>,
        tree: TreeId,
        first: TreeKey,
        last: TreeKey,
        most: u32,
    ) -> Result<u32, Errno> {
        let argument = self.0.as_mut();
        argument.key = SearchKey {
            tree: tree.0,
            objects: [first.object, last.object],
            offsets: [first.offset, last.offset],
            transactions: [0, u64::MAX],
            kinds: [u32::from(first.kind), u32::from(last.kind)],
            items: most,
            unused: 0,
            reserved: [0; 4],
        };
        argument.buffer_bytes = BUFFER_BYTES as u64;
        // SAFETY: the kernel writes the key, the length, and as many bytes of the buffer as the length says at most.
        unsafe { update(volume, TREE_SEARCH, argument) }?;
        Ok(argument.key.items)
    }
}

/// Visits `count` items in a buffer, none of which may lie before `from`. Answers with the key to go on from.
fn visit_found(
    buffer: &[u8],
    count: u32,
    from: TreeKey,
    visit: &mut impl FnMut(TreeItem<'_>) -> Visit,
) -> Result<Option<TreeKey>, Errno> {
    /// `struct btrfs_ioctl_search_header`: a transaction, object, offset (64 bits), kind, length (32 bits).
    const HEADER: usize = 32;
    let (mut at, start, mut from) = (0usize, from, from);
    for _ in 0..count {
        // Whatever the kernel counts, nothing lies behind the buffer: this ends with it.
        let header = buffer.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()).ok_or(Errno::UCLEAN)?;
        let long =
            |place: usize| header.get(place..).and_then(|h| h.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b));
        let short =
            |place: usize| header.get(place..).and_then(|h| h.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b));
        let kind = u8::try_from(short(24)).map_err(|_| Errno::UCLEAN)?;
        let key = TreeKey { object: long(8), kind, offset: long(16) };
        let length = short(28) as usize;
        let bytes = buffer.get(at + HEADER..).and_then(|rest| rest.get(..length)).ok_or(Errno::UCLEAN)?;
        at += HEADER + length;
        if key < from {
            continue;
        }
        let Some(mut next) = key.next() else {
            visit(TreeItem { key, bytes });
            return Ok(None);
        };
        match visit(TreeItem { key, bytes }) {
            Visit::Next => {}
            Visit::SkipTo(wanted) => next = next.max(wanted),
            Visit::Stop => return Ok(None),
        }
        from = next;
    }
    // An answer that does not advance would loop for ever.
    if from > start { Ok(Some(from)) } else { Err(Errno::UCLEAN) }
}

/// How a btrfs volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtrfsInfo {
    /// What names it.
    pub uuid: [u8; 16],
    /// The devices that it has, missing ones included.
    pub devices: u64,
    /// The unit of allocation.
    pub block_size: BlockSize,
    /// Bytes of a tree node.
    pub node_bytes: Bytes,
    /// What it has that older kernels need not know for reading it.
    pub read_only_features: u64,
    /// What it has that every kernel has to know.
    pub features: u64,
}

impl BtrfsInfo {
    /// It has a free-space tree that can be trusted.
    #[must_use]
    pub fn has_free_space_tree(&self) -> bool {
        self.read_only_features & 0b11 == 0b11
    }

    /// How much of each chunk is used is in a tree of its own.
    #[must_use]
    pub fn has_block_group_tree(&self) -> bool {
        self.read_only_features & 1 << 3 != 0
    }

    /// It has something that changes where data lies in ways that this program does not know: zones, a stripe tree, the
    /// second form of the extent tree, or what came later.
    #[must_use]
    pub fn is_strange(&self) -> bool {
        /// Mixed backrefs, default subvolume, mixed groups, LZO, zstd, big metadata, long back references, RAID 5/6,
        /// skinny metadata, no holes, metadata UUID, three and four copies, simple quotas.
        const KNOWN: u64 = 0b1_0000_1111_1111_1111;
        self.features & !KNOWN != 0
    }
}

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct FsInfo {
    largest_device: u64,
    devices: u64,
    uuid: [u8; 16],
    node_bytes: u32,
    sector_bytes: u32,
    clone_alignment: u32,
    checksum: [u16; 2],
    flags: u64,
    generation: u64,
    metadata_uuid: [u8; 16],
    reserved: [u8; 944],
}

// SAFETY: repr(C), integers only, 1024 bytes without padding.
unsafe impl KernelRecord for FsInfo {}

const FS_INFO: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<FsInfo>(BTRFS_CALLS, 31);

#[repr(C)]
struct Features([u64; 3]);

// SAFETY: repr(C), three integers.
unsafe impl KernelRecord for Features {}

const GET_FEATURES: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Features>(BTRFS_CALLS, 57);

/// How the btrfs volume of `file` is made.
///
/// # Errors
/// `ENOTTY` where the file system is another one; `EINVAL` when its answer is invalid.
pub fn btrfs_info(file: impl AsFd) -> Result<BtrfsInfo, Errno> {
    // SAFETY: integers only; all zero is a valid value.
    let mut info: FsInfo = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one record, whose size is part of the opcode.
    unsafe { update(file.as_fd(), FS_INFO, &mut info) }?;
    let mut features = Features([0; 3]);
    // SAFETY: the kernel writes one record, whose size is part of the opcode.
    unsafe { update(file.as_fd(), GET_FEATURES, &mut features) }?;
    let [_, read_only_features, features] = features.0;
    Ok(BtrfsInfo {
        uuid: info.uuid,
        devices: info.devices,
        block_size: BlockSize::new(info.sector_bytes).ok_or(Errno::INVAL)?,
        node_bytes: Bytes(u64::from(info.node_bytes)),
        read_only_features,
        features,
    })
}

const PATH_BYTES: usize = 4080;

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct Lookup {
    tree: u64,
    object: u64,
    path: [u8; PATH_BYTES],
}

// SAFETY: repr(C), integers only, 4096 bytes without padding.
unsafe impl KernelRecord for Lookup {}

const INO_LOOKUP: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Lookup>(BTRFS_CALLS, 18);
/// The directory at the top of each subvolume.
const TOP_DIRECTORY: u64 = 256;

fn look_up(volume: impl AsFd, tree: u64, object: u64) -> Result<Lookup, Errno> {
    let mut lookup = Lookup { tree, object, path: [0; PATH_BYTES] };
    // SAFETY: the kernel writes one record, whose size is part of the opcode.
    unsafe { update(volume, INO_LOOKUP, &mut lookup) }?;
    Ok(lookup)
}

/// The path of `inode` below the top of the subvolume `tree`, without a slash in front or behind; one of its names,
/// if it has several. `volume` is any open file or directory of the volume. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// `ENOENT` when there is no such inode or no name is found; `ENAMETOOLONG` beyond 4080 bytes.
pub fn path_in_subvolume(volume: impl AsFd, tree: TreeId, inode: InodeNumber) -> Result<Vec<u8>, Errno> {
    let found = look_up(volume, tree.0, inode.0)?;
    let path = found.path.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(path.strip_suffix(b"/").unwrap_or(path).to_vec())
}

/// The subvolume that an open file or directory lies in.
///
/// # Errors
/// `ENOTTY` where the file system is another one.
pub fn subvolume_of_file(file: impl AsFd) -> Result<TreeId, Errno> {
    look_up(file, 0, TOP_DIRECTORY).map(|found| TreeId(found.tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_are_as_large_as_the_kernels() {
        let sizes = [size_of::<SearchKey>(), size_of::<SearchHeader>(), size_of::<FsInfo>(), size_of::<Lookup>()];
        assert_eq!(sizes, [104, 112, 1024, 4096]);
        assert_eq!(std::mem::offset_of!(Search, buffer), 112);
    }

    #[test]
    fn behind_a_key_comes_the_next_of_its_kind_then_of_its_object() {
        let key = |object, kind, offset| TreeKey { object, kind, offset };
        assert_eq!(key(1, 2, 3).next(), Some(key(1, 2, 4)));
        assert_eq!(key(1, 2, u64::MAX).next(), Some(key(1, 3, 0)));
        assert_eq!(TreeKey::last_of(1).next(), Some(TreeKey::first_of(2)));
        assert_eq!(TreeKey::last_of(u64::MAX).next(), None);
    }

    /// Items as the kernel puts them: object, offset, kind, length.
    fn buffer(items: &[(u64, u64, u32, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (object, offset, kind, length) in items {
            bytes.extend([0, *object, *offset].iter().flat_map(|n| n.to_ne_bytes()));
            bytes.extend([*kind, *length].iter().flat_map(|n| n.to_ne_bytes()));
            bytes.extend(std::iter::repeat_n(7, *length as usize));
        }
        bytes
    }

    #[test]
    fn items_are_visited_once_and_skipped_where_that_is_wanted() {
        let found = buffer(&[(1, 0, 1, 3), (1, 5, 84, 0), (1, 6, 84, 1), (2, 0, 1, 2)]);
        let mut seen = Vec::new();
        let next = visit_found(&found, 4, TreeKey::first_of(0), &mut |item: TreeItem<'_>| {
            seen.push((item.key.object, item.key.kind, item.bytes.len()));
            if item.key.kind == 84 { Visit::SkipTo(TreeKey::first_of(2)) } else { Visit::Next }
        });
        assert_eq!(seen, [(1, 1, 3), (1, 84, 0), (2, 1, 2)]);
        assert_eq!(next, Ok(Some(TreeKey { object: 2, kind: 1, offset: 1 })));
    }

    #[test]
    fn no_answer_reads_beyond_the_buffer_or_goes_on_for_ever() {
        let mut visit = |_: TreeItem<'_>| Visit::Next;
        let whole = buffer(&[(1, 0, 1, 3)]);
        for cut in 0..whole.len() {
            assert_eq!(visit_found(&whole[..cut], 1, TreeKey::first_of(0), &mut visit), Err(Errno::UCLEAN), "{cut}");
        }
        assert_eq!(visit_found(&whole, u32::MAX, TreeKey::first_of(0), &mut visit), Err(Errno::UCLEAN));
        let strange = buffer(&[(1, 0, 256, 0)]);
        assert_eq!(visit_found(&strange, 1, TreeKey::first_of(0), &mut visit), Err(Errno::UCLEAN));
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let mut noise = vec![0; random.usize(..300)];
            random.fill(&mut noise);
            let _ = visit_found(&noise, random.u32(..), TreeKey::first_of(0), &mut visit);
        }
    }
}
