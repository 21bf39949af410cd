/* What every BPF program of ours begins with. Instead of a dump of one kernel's types: the few that libbpf's headers want, and
 * what we use of the kernel's constants. */
#ifndef LONGRUN_BPF_H
#define LONGRUN_BPF_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

enum { false = 0, true = 1 };

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};

/* In bi_opf and cmd_flags: the operation without its flags. */
#define REQ_OP_MASK 0xff

/* In i_mode: the type of a file. */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFBLK 0060000

/* A device number in the kernel's own form, which is another one than user space sees. */
#define DEVICE_NUMBER(major, minor) ((__u32)(major) << 20 | (__u32)(minor))

#endif
