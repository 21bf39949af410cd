/* The kernel's own records, as far as they are read. Offsets are corrected when the programs are loaded, so only names and
 * types matter here; order and what is left out do not. */
#ifndef LONGRUN_KERNEL_H
#define LONGRUN_KERNEL_H

#include "growth.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};

struct inode {
	__u16 i_mode;
	__u8 i_blkbits;
	__u16 i_bytes;
	__u32 i_generation;
	unsigned long i_ino;
	__s64 i_size;
	__u64 i_blocks;
	struct super_block *i_sb;
};

struct address_space {
	struct inode *host;
};

struct folio {
	unsigned long index;
};

struct page___old {
	unsigned long index;
};

struct file {
	struct inode *f_inode;
};

struct kiocb {
	struct file *ki_filp;
	__s64 ki_pos;
};

struct iov_iter {
	bool data_source;
	unsigned long count;
};

/* ext4 */
struct ext4_allocation_request {
	struct inode *inode;
	__u32 len;
	__u32 logical;
	__u32 flags;
};

/* XFS */
struct xfs_inode {
	__u16 i_diflags;
	struct inode i_vnode;
};

struct xfs_bmbt_irec {
	__u64 br_startoff;
	__u64 br_startblock;
	__u64 br_blockcount;
};

/* btrfs */
struct btrfs_key {
	__u64 objectid;
};

struct btrfs_root {
	struct btrfs_key root_key;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

struct btrfs_ordered_extent {
	__u64 file_offset;
	__u64 num_bytes;
	__u64 disk_bytenr;
	unsigned long flags;
};

#pragma clang attribute pop

#endif
