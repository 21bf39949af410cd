/* The kernel's own records, as far as they are read. Offsets are corrected when the programs are loaded, so only names and
 * types matter here; order and what is left out do not. */
#ifndef LONGRUN_KERNEL_H
#define LONGRUN_KERNEL_H

#include "trace.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
	int pid;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	__u32 __data_len;
	__u64 __sector;
};

struct block_device {
	struct gendisk *bd_disk;
};

struct inode {
	__u16 i_mode;
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
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
};

struct file {
	struct inode *f_inode;
};

struct kiocb {
	struct file *ki_filp;
	__s64 ki_pos;
};

struct iov_iter {
	unsigned long count;
};

#pragma clang attribute pop

#endif
