/* The kernel's own structures, reduced to the fields that our programs read. Offsets are corrected when a program is loaded,
 * so only names and types matter here; order and what is left out do not. */
#ifndef LONGRUN_KERNEL_H
#define LONGRUN_KERNEL_H

#include "longrun.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
	int pid;
	unsigned int flags;
	struct task_struct *group_leader;
	char comm[16];
};

/* Files */
struct gendisk {
	int major;
	int first_minor;
};

struct block_device {
	struct gendisk *bd_disk;
	__u32 bd_dev;
};

struct super_block {
	__u32 s_dev;
	struct block_device *s_bdev;
};

struct inode {
	__u16 i_mode;
	__u8 i_blkbits;
	__u16 i_bytes;
	__u32 i_generation;
	__u32 i_rdev;
	unsigned long i_ino;
	__s64 i_size;
	__u64 i_blocks;
	struct super_block *i_sb;
};

struct address_space {
	struct inode *host;
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
};

struct page {
	unsigned long compound_head;
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

/* Block devices */
struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	__u32 __data_len;
	__u64 __sector;
	__u64 start_time_ns;
	struct bio *bio;
};

enum req_flag_bits {
	__REQ_SYNC = 11,
	__REQ_META = 12,
};

struct bio_vec {
	struct page *bv_page;
	__u32 bv_len;
	__u32 bv_offset;
};

struct bvec_iter {
	__u64 bi_sector;
	__u32 bi_size;
	__u32 bi_idx;
} __attribute__((packed));

struct bio {
	struct block_device *bi_bdev;
	__u32 bi_opf;
	__u16 bi_ioprio;
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
};

/* ext4 */
struct journal_s {
	struct block_device *j_fs_dev;
};

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
