/* The records shared by the BPF programs and Rust. The layouts are defined only here: Rust takes sizes and offsets from the
 * type information of the compiled object. Plain integers, no implicit padding. */
#ifndef LONGRUN_TRACE_H
#define LONGRUN_TRACE_H

#include <longrun.h>

#define MAX_DEVICES 16
#define MAX_OWN 16
/* A power of two, far above the number of requests in flight, so that collisions are rare. */
#define REQUESTS 32768

/* The classes of requests. */
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

/* The counts of one device, class and owner, per processor. Only one program writes the fields of each group, so that
 * plain addition is enough. */
struct trace_counts {
	/* issued */
	__u64 requests;
	__u64 bytes;
	__u64 distances;              /* requests with a predecessor */
	__u64 sequential;             /* began where the previous one of the same class ended */
	__u64 sequential_any;         /* began where the previous read or write ended */
	__u64 size[SIZE_BUCKETS];
	__u64 seek[SEEK_BUCKETS];     /* from the previous one of the same class */
	__u64 seek_any[SEEK_BUCKETS]; /* from the previous read or write */
	__u64 depth[DEPTH_BUCKETS];
	__u64 wait[TIME_BUCKETS];     /* from creation to issue */
	__u64 wait_ns;
	__u64 waited;
	/* completed */
	__u64 completed;
	__u64 errors;
	__u64 latency_ns;
	__u64 latency[TIME_BUCKETS];  /* from issue to completion */
	/* requeued */
	__u64 requeued;
};

/* The counts of bios of one device, per processor. Only one program writes each field. */
struct trace_device {
	__u64 bios;
	__u64 splits;                 /* of bios that were longer than the device's limit */
	__u64 back_merges;            /* of a bio into a request */
	__u64 front_merges;
	__u64 request_merges;         /* of two requests */
	__u64 untracked;              /* requests for which the table of requests had no room */
	__u64 nameless;               /* requests of processes for which the table of processes had no room */
};

/* Requests of file systems, per processor: index 0 for reads, 1 for writes. */
struct trace_asked {
	__u64 requests;               /* ranges of a file that were requested at once */
	__u64 split;                  /* those that needed more than one range of the device */
	__u64 extra;                  /* ranges beyond the first of each */
	__u64 between;                /* pairs of requests that are adjacent in the file but not on the device */
	__u64 file_bytes;             /* bytes of these requests */
	__u64 direct_bytes;           /* those that bypass the page cache */
	__u64 other_bytes;            /* metadata, swap, raw access, and unassigned data */
	__u64 other_bios;
};

/* Asks for the bucket of a value: bytes, microseconds, sectors or requests. */
struct trace_probe {
	long long value;
	__u32 scale;
	__u32 reserved;
};

/* A request in flight. */
struct trace_request {
	__u64 address;                /* 0: the entry is free */
	__u64 made;                   /* ns; 0 not known */
	__u64 issued;                 /* ns; 0 not yet */
	__u32 process;
	__u8 own;
	__u8 counted;
	__u8 slot;
	__u8 class;
};

/* A process, by its id. */
struct trace_process {
	__u64 reads;
	__u64 read_bytes;
	__u64 writes;
	__u64 written_bytes;
	__u64 others;
	__u8 name[16];
};

/* The last request of a task. */
struct trace_task {
	__u64 file;                   /* which file; 0 none */
	__u64 next;                   /* its end in the file, in bytes */
	__u64 sector;                 /* its end on the device */
	__u64 direct;                 /* remaining bytes of a direct transfer */
	__u64 direct_file;
	__u64 direct_at;
	__u8 class;
	__u8 fresh;                   /* the next bio begins a new request */
	__u8 split;                   /* this request has been counted as split */
	__u8 reserved[5];
};

#endif
