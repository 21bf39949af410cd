/* What crosses between the kernel's side and ours. The only place where these layouts are written: Rust takes sizes and
 * offsets from the type information of the compiled object. Plain integers, no implicit padding. */
#ifndef LONGRUN_GROWTH_H
#define LONGRUN_GROWTH_H

#include <longrun.h>

/* Values of volume_rules.filesystem. */
enum growth_filesystem { GROWTH_EXT4 = 1, GROWTH_XFS = 2, GROWTH_BTRFS = 3 };

/* Values of growth_event.kind. */
enum growth_kind { GROWTH_FRAGMENTING = 1, GROWTH_SCATTERED = 2, GROWTH_HALF_USED = 3, GROWTH_IN_PIECES = 4 };

struct growth_event {
	__u64 at;          /* CLOCK_MONOTONIC, ns */
	__u64 inode;
	__u64 root;        /* btrfs: the subvolume; otherwise 0 */
	__u64 size;        /* of the file */
	__u64 offset;      /* fragmenting, half used: end; scattered: begin */
	__u64 bytes;
	__u32 device;      /* in the kernel's own form: major << 20 | minor */
	__u32 generation;
	__u32 allocations;
	__u32 kind;
	__u8 by[16];
};

/* A file; equal in the tables "files" and "armed". */
struct file_key {
	__u64 inode;
	__u64 root;
	__u32 device;
	__u32 generation;
};

/* What is known about a growing file. */
struct file_state {
	__u64 begin;              /* the last allocation */
	__u64 end;
	__u64 physical;
	__u64 top;                /* the highest end seen */
	__u64 growth_bytes;
	__u64 growth_reported;    /* when */
	__u64 scatter_bytes;
	__u64 scatter_reported;
	__u64 windows;            /* where scattered writes were reported lately: a bit for each WINDOW, modulo 64 */
	__u32 growth;             /* allocations since the last report */
	__u32 growth_limit;       /* report at */
	__u32 scatter;
	__u32 scatter_limit;
	__u64 pieces_reported;    /* when the file was reported to lie in pieces */
	__u64 goes_on;            /* behind the last allocation there was more to be written back */
};

/* Value of "armed". */
struct armed_file {
	__u64 half;               /* report once written beyond */
	__u64 fired;
};

/* Value of "volumes"; the key is the device in the kernel's own form. */
struct volume_rules {
	__u32 filesystem;
	__u32 growth;             /* report growth in pieces from this many on; 0 never */
	__u32 scatter;            /* the same for scattered writes */
	__u32 reserved;
	__u64 small;              /* what is as long is no piece */
	__u64 calm;               /* ns after which a file is reported as early as the first time */
	__u64 next;               /* the kernel's side's own: when a report of pieces would not come too early */
};

#endif
