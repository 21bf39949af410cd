/* Counts the requests to block devices inside the kernel. Owns the counters and the table of requests in flight. Sends
 * nothing, never waits, and never changes anything. */
#include <pages.h>
#include "trace.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "buckets.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile struct trace_config config = {};

/* Only so that the object's type information has them. */
const volatile struct trace_counts counts_layout = {};
const volatile struct trace_device device_layout = {};
const volatile struct trace_asked asked_layout = {};
const volatile struct trace_process process_layout = {};
const volatile struct trace_probe probe_layout = {};

/* By (device * CLASSES + class) * 2 + own. As many as there are devices: set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLASSES * 2);
	__type(key, __u32);
	__type(value, struct trace_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, struct trace_device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct trace_asked);
} asked SEC(".maps");

/* Requests in flight, as a hash table whose key is the address of the request, which is unique while it is in flight. The
 * kernel's hash maps take locks, which would cost more than all the rest. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUESTS);
	__type(key, __u32);
	__type(value, struct trace_request);
} requests SEC(".maps");

/* The process that made the last request on this processor. It is already in the table of processes. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} last_maker SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct trace_process);
} processes SEC(".maps");

/* Shared by all processors. */
__u64 under_way[MAX_DEVICES];
/* The end of the last read, of the last write and of the last of both, in sectors; 0 if there was none. */
__u64 ended[MAX_DEVICES][3];

#define NONE (~0u)
/* The number of entries that are tried for a request. */
#define TRIES 4

static __always_inline __u32 disk_number(struct gendisk *disk)
{
	return disk ? DEVICE_NUMBER(disk->major, disk->first_minor) : NONE;
}

static __always_inline __u32 slot_of(__u32 number)
{
	__u32 i;

	/* Usually there is one device. */
	if (config.device[0] == number)
		return 0;
	for (i = 1; i < MAX_DEVICES && i < config.devices; i++)
		if (config.device[i] == number)
			return i;
	return NONE;
}

static __always_inline __u32 slot_of_request(struct request *rq)
{
	return slot_of(disk_number(rq->q->disk));
}

static __always_inline __u32 class_of(__u32 flags)
{
	switch (flags & REQ_OP_MASK) {
	case 0:
		return CLASS_READ;
	case 1: /* write */
	case 7: /* zone append */
		return CLASS_WRITE;
	case 2:
		return CLASS_FLUSH;
	case 3: /* discard */
	case 5: /* secure erase */
	case 9: /* write zeroes: no data goes to the device */
		return CLASS_DISCARD;
	default:
		return CLASS_OTHER;
	}
}

static __always_inline bool is_own(__u32 process)
{
	__u32 i;

	for (i = 0; i < MAX_OWN && i < config.own; i++)
		if (config.process[i] == process)
			return true;
	return false;
}

static __always_inline struct trace_counts *counts_of(__u32 slot, __u32 class, __u32 own)
{
	__u32 index = (slot * CLASSES + class) * 2 + own;

	return bpf_map_lookup_elem(&counts, &index);
}

static __always_inline struct trace_device *device_of(__u32 slot)
{
	return bpf_map_lookup_elem(&devices, &slot);
}

static __always_inline void count_process(const struct trace_request *entry, __u32 slot, __u32 class, __u32 bytes)
{
	struct trace_process *process = bpf_map_lookup_elem(&processes, &entry->process);

	if (!process) {
		struct trace_device *device = device_of(slot);

		if (device)
			device->nameless += 1;
		return;
	}
	if (class == CLASS_READ) {
		__sync_fetch_and_add(&process->reads, 1);
		__sync_fetch_and_add(&process->read_bytes, bytes);
	} else if (class == CLASS_WRITE) {
		__sync_fetch_and_add(&process->writes, 1);
		__sync_fetch_and_add(&process->written_bytes, bytes);
	} else {
		__sync_fetch_and_add(&process->others, 1);
	}
}

/* Removes a request from those in flight on a device. */
static __always_inline void leave(__u32 slot)
{
	asm volatile("" : "+r"(slot));
	if (slot < MAX_DEVICES)
		__sync_fetch_and_add(&under_way[slot], -1);
}

/* The address of the request of an event, its first argument, as a number, which the verifier allows to be used in
 * calculations. */
static __always_inline __u64 address_of(unsigned long long *event)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), event);
	return address;
}

/* The nth entry for a request with this address. */
static __always_inline struct trace_request *place_for(__u64 address, __u32 nth)
{
	__u32 index = (((address >> 6) * 0x9e3779b97f4a7c15ull >> 32) + nth) & (REQUESTS - 1);

	return bpf_map_lookup_elem(&requests, &index);
}

static __always_inline struct trace_request *find(__u64 address)
{
	__u32 nth;

	for (nth = 0; nth < TRIES; nth++) {
		struct trace_request *entry = place_for(address, nth);

		if (entry && entry->address == address)
			return entry;
	}
	return 0;
}

/* An entry for a new request. If the table has one with this address, that request has ended unnoticed. */
static __always_inline struct trace_request *claim(__u64 address)
{
	struct trace_request *entry = find(address);
	__u32 nth;

	for (nth = 0; nth < TRIES && !entry; nth++) {
		struct trace_request *place = place_for(address, nth);

		if (place && !place->address && !__sync_val_compare_and_swap(&place->address, 0, address))
			entry = place;
	}
	if (!entry)
		return 0;
	if (entry->issued)
		leave(entry->slot);
	entry->made = 0;
	entry->issued = 0;
	entry->counted = 0;
	return entry;
}

/* Records the process that makes a request. */
static __always_inline void note_maker(struct trace_request *entry)
{
	__u32 process = bpf_get_current_pid_tgid() >> 32;
	__u32 zero = 0, *last;

	entry->process = process;
	entry->own = is_own(process);
	last = bpf_map_lookup_elem(&last_maker, &zero);
	if (last && *last == process)
		return;
	if (last)
		*last = process;
	if (!bpf_map_lookup_elem(&processes, &process)) {
		struct trace_process fresh = {};

		bpf_get_current_comm(fresh.name, sizeof(fresh.name));
		bpf_map_update_elem(&processes, &process, &fresh, BPF_NOEXIST);
	}
}

/* A request was made of a bio, in the context of the process that does the I/O. */
SEC("tp_btf/block_io_start")
int BPF_PROG(made, struct request *rq)
{
	struct trace_request *entry;

	if (slot_of_request(rq) == NONE)
		return 0;
	/* If there is no room, the issue counts it. */
	entry = claim(address_of(ctx));
	if (entry) {
		entry->made = bpf_ktime_get_ns();
		note_maker(entry);
	}
	return 0;
}

/* Counts the distance from the end of the previous request. The first request has none. */
static __always_inline void count_seek(struct trace_counts *to, struct request *rq, __u32 slot, __u32 class, __u32 bytes)
{
	__u64 begin = rq->__sector;
	__u64 end = begin + (bytes >> 9);
	__u64 before, before_any;

	if (slot >= MAX_DEVICES || class > CLASS_WRITE)
		return;
	before = __sync_lock_test_and_set(&ended[slot][class], end);
	before_any = __sync_lock_test_and_set(&ended[slot][2], end);
	if (before) {
		to->distances += 1;
		to->sequential += begin == before;
		add(to->seek, seek_bucket(begin - before), SEEK_BUCKETS);
	}
	if (before_any) {
		to->sequential_any += begin == before_any;
		add(to->seek_any, seek_bucket(begin - before_any), SEEK_BUCKETS);
	}
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(issued, struct request *rq)
{
	__u32 slot = slot_of_request(rq);
	__u32 bytes, class;
	__u64 address, now, depth;
	struct trace_request fresh = {};
	struct trace_request *entry;
	struct trace_counts *to;

	if (slot == NONE || slot >= MAX_DEVICES)
		return 0;
	now = bpf_ktime_get_ns();
	class = class_of(rq->cmd_flags);
	bytes = rq->__data_len;
	address = address_of(ctx);
	entry = find(address);
	if (!entry) {
		/* Made before the trace began, or by the block layer itself, like flushes. */
		entry = claim(address);
		note_maker(entry ? entry : &fresh);
	}
	if (entry) {
		depth = __sync_fetch_and_add(&under_way[slot], 1) + 1;
	} else {
		/* Counted, but its completion will not be noticed. */
		struct trace_device *device = device_of(slot);

		if (device)
			device->untracked += 1;
		depth = under_way[slot] + 1;
		entry = &fresh;
	}
	entry->issued = now;
	entry->slot = slot;
	entry->class = class;
	/* A request that the device refused is issued again. It still counts as one. */
	if (entry->counted)
		return 0;
	entry->counted = 1;
	to = counts_of(slot, class, entry->own);
	if (!to)
		return 0;
	to->requests += 1;
	to->bytes += bytes;
	add(to->size, size_bucket(bytes), SIZE_BUCKETS);
	add(to->depth, depth_bucket(depth), DEPTH_BUCKETS);
	if (entry->made) {
		__u64 wait = now - entry->made;

		to->waited += 1;
		to->wait_ns += wait;
		add(to->wait, time_bucket(wait), TIME_BUCKETS);
	}
	count_seek(to, rq, slot, class, bytes);
	count_process(entry, slot, class, bytes);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(completed, struct request *rq, __u8 error, __u32 bytes)
{
	struct trace_request *entry;
	struct trace_counts *to;

	if (slot_of_request(rq) == NONE)
		return 0;
	/* Only a part is completed; the rest is still in flight. */
	if (bytes < rq->__data_len)
		return 0;
	entry = find(address_of(ctx));
	if (!entry)
		return 0;
	if (entry->issued) {
		__u64 latency = bpf_ktime_get_ns() - entry->issued;

		leave(entry->slot);
		to = counts_of(entry->slot, entry->class, entry->own);
		if (to) {
			to->completed += 1;
			to->errors += error != 0;
			to->latency_ns += latency;
			add(to->latency, time_bucket(latency), TIME_BUCKETS);
		}
	}
	entry->issued = 0;
	entry->address = 0;
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(requeued, struct request *rq)
{
	struct trace_request *entry;
	struct trace_counts *to;

	if (slot_of_request(rq) == NONE)
		return 0;
	entry = find(address_of(ctx));
	if (!entry || !entry->issued)
		return 0;
	leave(entry->slot);
	entry->issued = 0;
	to = counts_of(entry->slot, entry->class, entry->own);
	if (to)
		to->requeued += 1;
	return 0;
}

/* The request is merged into another one and ceases to exist. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(merged, struct request *rq)
{
	__u32 slot = slot_of_request(rq);
	struct trace_request *entry;
	struct trace_device *device;

	if (slot == NONE)
		return 0;
	entry = find(address_of(ctx));
	if (entry)
		entry->address = 0;
	device = device_of(slot);
	if (device)
		device->request_merges += 1;
	return 0;
}

static __always_inline struct trace_device *device_of_bio(struct bio *bio)
{
	__u32 slot = slot_of(disk_number(bio->bi_bdev->bd_disk));

	return slot == NONE ? 0 : device_of(slot);
}

SEC("tp_btf/block_bio_backmerge")
int BPF_PROG(merged_behind, struct bio *bio)
{
	struct trace_device *device = device_of_bio(bio);

	if (device)
		device->back_merges += 1;
	return 0;
}

SEC("tp_btf/block_bio_frontmerge")
int BPF_PROG(merged_before, struct bio *bio)
{
	struct trace_device *device = device_of_bio(bio);

	if (device)
		device->front_merges += 1;
	return 0;
}

SEC("tp_btf/block_split")
int BPF_PROG(split, struct bio *bio, __u32 sector)
{
	struct trace_device *device = device_of_bio(bio);

	if (device)
		device->splits += 1;
	return 0;
}

#include "asked.bpf.h"
