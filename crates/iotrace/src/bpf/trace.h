/* What crosses between the kernel's side and ours. The only place where these layouts are written: Rust takes sizes and
 * offsets from the type information of the compiled object. Plain integers, no implicit padding. */
#ifndef LONGRUN_TRACE_H
#define LONGRUN_TRACE_H

#include <longrun.h>

#define MAX_DEVICES 16
#define MAX_OWN 16
/* A power of two, far above what can be under way, so that places are rarely taken. */
#define REQUESTS 32768

/* What a request is for. */
enum trace_class { CLASS_READ, CLASS_WRITE, CLASS_DISCARD, CLASS_FLUSH, CLASS_OTHER, CLASSES };

/* Numbers of buckets; the bounds are in histogram.rs, and the choice of the bucket in buckets.bpf.h: a test compares them. */
#define SIZE_BUCKETS 18
#define TIME_BUCKETS 100
#define SEEK_BUCKETS 18
#define DEPTH_BUCKETS 13

/* Set before loading. Devices in the kernel's own form: major << 20 | minor. */
struct trace_config {
	__u32 devices;                /* how many are traced */
	__u32 tops;                   /* how many of the stack's tops there are */
	__u32 own;                    /* how many processes are ours */
	__u32 page_shift;
	__u32 device[MAX_DEVICES];    /* whole disks */
	__u32 top[MAX_DEVICES];       /* whole disks on which file systems lie */
	__u32 process[MAX_OWN];
};

/* What is counted for one device, class and owner, on each processor. Fields of one group are written by one program only,
 * so that plain addition is enough. */
struct trace_counts {
	/* issued */
	__u64 requests;
	__u64 bytes;
	__u64 distances;              /* how many had one before them */
	__u64 sequential;             /* began where the one before of the same class ended */
	__u64 sequential_any;         /* began where the one before, read or write, ended */
	__u64 size[SIZE_BUCKETS];
	__u64 seek[SEEK_BUCKETS];     /* to the one before of the same class */
	__u64 seek_any[SEEK_BUCKETS]; /* to the one before, read or write */
	__u64 depth[DEPTH_BUCKETS];
	__u64 wait[TIME_BUCKETS];     /* from its making to its issue */
	__u64 wait_ns;
	__u64 waited;
	/* completed */
	__u64 completed;
	__u64 errors;
	__u64 latency_ns;
	__u64 latency[TIME_BUCKETS];  /* from its issue to its completion */
	/* requeued */
	__u64 requeued;
};

/* What became of bios on one device, on each processor, each field written by one program only. */
struct trace_device {
	__u64 bios;
	__u64 splits;                 /* of bios that were longer than the device takes */
	__u64 back_merges;            /* of a bio into a request */
	__u64 front_merges;
	__u64 request_merges;         /* of two requests */
	__u64 untracked;              /* requests that found no room in the table */
	__u64 nameless;               /* requests of processes that found no room in the table */
};

/* What file systems asked for, on each processor: index 0 for reads, 1 for writes. */
struct trace_asked {
	__u64 requests;               /* stretches of a file asked for in one go */
	__u64 split;                  /* of these, in more than one piece of the device */
	__u64 extra;                  /* pieces beyond the first of each */
	__u64 between;                /* steps between two requests that follow each other in the file but not on the device */
	__u64 file_bytes;             /* that these are about */
	__u64 direct_bytes;           /* of these, past the page cache */
	__u64 other_bytes;            /* metadata, swap, raw access, and what could not be assigned */
	__u64 other_bios;
};

/* Asks for the bucket of a value: bytes, microseconds, sectors or requests. */
struct trace_probe {
	long long value;
	__u32 scale;
	__u32 reserved;
};

/* A request under way. */
struct trace_request {
	__u64 address;                /* 0: the place is free */
	__u64 made;                   /* ns; 0 not known */
	__u64 issued;                 /* ns; 0 not yet */
	__u32 process;
	__u8 own;
	__u8 counted;
	__u8 slot;
	__u8 class;
};

/* A process, by its number. */
struct trace_process {
	__u64 reads;
	__u64 read_bytes;
	__u64 writes;
	__u64 written_bytes;
	__u64 others;
	__u8 name[16];
};

/* What a task asked for last. */
struct trace_task {
	__u64 file;                   /* which file; 0 none */
	__u64 next;                   /* where in the file it ended, in bytes */
	__u64 sector;                 /* where on the device it ended */
	__u64 direct;                 /* bytes left of a direct transfer */
	__u64 direct_file;
	__u64 direct_at;
	__u8 class;
	__u8 fresh;                   /* what comes next is a new request */
	__u8 split;                   /* this request has been counted as split */
	__u8 reserved[5];
};

#endif
