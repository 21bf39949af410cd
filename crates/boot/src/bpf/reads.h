/* What the recorder's program and we have in common. */
#ifndef LONGRUN_READS_H
#define LONGRUN_READS_H

#include <longrun.h>

struct reads_config {
	/* The volume, in the kernel's own form. */
	__u32 volume;
	__u32 page_shift;
};

/* One read of the device for pages of a file, or of the device itself. */
struct reads_event {
	/* 0: the device. */
	__u64 inode;
	__u64 at;
	__u32 bytes;
	__u32 generation;
};

/* Of a file that was read ahead: which of 64 parts were used. */
struct reads_use {
	__u64 used;
	/* Pages of a part, as a power of two. */
	__u32 shift;
	__u32 generation;
};

#endif
