/* The records shared by the BPF programs and Rust. The layouts are defined only here: Rust takes sizes and offsets from the
 * type information of the compiled object. Plain integers, no implicit padding. */
#ifndef LONGRUN_HEAT_H
#define LONGRUN_HEAT_H

#include <longrun.h>

/* A file. */
struct heat_key {
	__u64 inode;
	__u32 generation;             /* btrfs: the number of the subvolume, as inodes are numbered anew in each */
	__u32 volume;                 /* the file system's own number (s_dev): on btrfs another one than stat shows */
};

/* What the device was asked for on behalf of a file. */
struct heat_count {
	__u64 reads;
	__u64 read_bytes;
	__u64 writes;
	__u64 written_bytes;
};

/* A device of a watched volume, by its number, with all reads of it: of files, and of what belongs to none. */
struct heat_device {
	__u64 reads;
	__u64 read_bytes;
	__u64 own_reads;              /* Longrun's own, which count for no file and not above */
	__u32 volume;
	__u32 subvolumes;             /* not 0: inodes are numbered by subvolume (btrfs) */
};

/* The direct transfer that a task is at. Its pages belong to the program, and do not tell the file. */
struct heat_task {
	__u64 inode;
	__u32 generation;
	__u32 volume;
	__u64 left;                   /* bytes; 0 none */
};

#endif
