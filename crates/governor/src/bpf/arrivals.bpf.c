/* Counts, inside the kernel, what other processes ask of the watched disks, at the moment when they ask; and how long the
 * requests of others take, apart by whether they met our work. */
#include <kernel.h>
#include "arrivals.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 own_process = 0;

/* Only so that the object's type information has them. */
const volatile struct bounds bounds_layout = {};
const volatile struct work work_layout = {};

#define PF_KTHREAD 0x00200000
#define IOPRIO_CLASS_SHIFT 13
#define IOPRIO_CLASS_IDLE 3

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct arrivals);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct bounds);
} bounds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} work SEC(".maps");

/* Since when a thread has waited for a file to be durable. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} syncs SEC(".maps");

/* Kernel threads do not count: they write back for anybody, and the counters of the disk tell what of that was not ours. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(asked, struct bio *bio)
{
	struct gendisk *disk = bio->bi_bdev->bd_disk;
	__u32 device = DEVICE_NUMBER(disk->major, disk->first_minor);
	struct arrivals *arrivals = bpf_map_lookup_elem(&watched, &device);

	if (!arrivals || bpf_get_current_pid_tgid() >> 32 == own_process)
		return 0;
	if (bpf_get_current_task_btf()->flags & PF_KTHREAD)
		return 0;
	__sync_fetch_and_add(&arrivals->requests, 1);
	__sync_fetch_and_add(&arrivals->bytes, bio->bi_iter.bi_size);
	arrivals->last = bpf_ktime_get_ns();
	bpf_get_current_comm(arrivals->program, sizeof(arrivals->program));
	return 0;
}

static __always_inline bool has(__u32 flags, __u32 bit)
{
	return flags >> bit & 1;
}

/* What a request does; OPERATIONS for one that nobody waits for, or that carries no data. */
static __always_inline __u32 operation_of(__u32 flags)
{
	switch (flags & REQ_OP_MASK) {
	case 0:
		return OPERATION_READ;
	case 1: /* write */
	case 7: /* zone append */
		if (!has(flags, bpf_core_enum_value(enum req_flag_bits, __REQ_SYNC)))
			return OPERATIONS;
		return has(flags, bpf_core_enum_value(enum req_flag_bits, __REQ_META)) ? OPERATION_METADATA : OPERATION_WRITE;
	default:
		return OPERATIONS;
	}
}

/* Counts what began at `start` and took so long, by the state of our work. `met_last`: how much work there had been at the last of
 * the same sort. */
static __always_inline void count(struct arrivals *arrivals, __u64 *met_last, __u32 device, __u32 kind, __u64 start, __u64 took)
{
	__u32 zero = 0, state, at;
	struct work *ours = bpf_map_lookup_elem(&work, &zero);
	struct bounds *bound = bpf_map_lookup_elem(&bounds, &device);
	struct times *times;
	__u64 work_so_far;

	if (!ours || !bound || kind >= KINDS)
		return;
	state = start < ours->done ? MET : ours->state;
	work_so_far = arrivals->own + ours->stops;
	if (state != MET && *met_last != work_so_far)
		state = AFTER;
	*met_last = work_so_far;
	at = kind * STATES + state;
	/* Forces the compiler to compare the value that it uses. The verifier does not accept a copy as bounded. */
	asm volatile("" : "+r"(at));
	if (at >= KINDS * STATES)
		return;
	times = &arrivals->times[at];
	__sync_fetch_and_add(&times->requests, 1);
	__sync_fetch_and_add(&times->total, took);
	if (took > bound->slow[kind])
		__sync_fetch_and_add(&times->slow, 1);
	if (took > bound->late[kind])
		__sync_fetch_and_add(&times->late, 1);
}

/* Our own requests are in the idle class, as are those of others that want to be served last: such others are not harmed. Where
 * the kernel's threads write for us that is lost, and user space takes our share off. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(completed, struct request *rq, int error, unsigned int bytes)
{
	__u64 now = bpf_ktime_get_ns();
	struct gendisk *disk = rq->q->disk;
	__u32 length = rq->__data_len, kind, device;
	__u64 start = rq->start_time_ns, took;
	struct arrivals *arrivals;

	if (!disk)
		return 0;
	device = DEVICE_NUMBER(disk->major, disk->first_minor);
	arrivals = bpf_map_lookup_elem(&watched, &device);
	/* A part of a request is not its end. */
	if (!arrivals || error || bytes < length || !start || start > now)
		return 0;
	took = now - start;
	if (!rq->bio)
		return 0;
	if (rq->bio->bi_ioprio >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_IDLE) {
		__u64 us = took / 1000;

		__sync_fetch_and_add(&arrivals->own, 1);
		__sync_fetch_and_add(&arrivals->own_squares, us * us);
		return 0;
	}
	kind = operation_of(rq->cmd_flags);
	if (kind >= OPERATIONS)
		return 0;
	count(arrivals, &arrivals->met_last, device, kind * SIZES + (length <= SMALL_MOST ? 0 : length <= MEDIUM_MOST ? 1 : 2), start,
	      took);
	return 0;
}

static __always_inline struct arrivals *arrivals_below(struct inode *inode, __u32 *device)
{
	struct block_device *below = inode->i_sb->s_bdev;
	struct gendisk *disk;

	if (!below)
		return NULL;
	disk = below->bd_disk;
	*device = DEVICE_NUMBER(disk->major, disk->first_minor);
	return bpf_map_lookup_elem(&watched, device);
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_begins, struct file *file)
{
	__u64 now = bpf_ktime_get_ns(), thread = bpf_get_current_pid_tgid();
	__u32 device;

	if (thread >> 32 != own_process && arrivals_below(file->f_inode, &device))
		bpf_map_update_elem(&syncs, &thread, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(sync_ends, struct inode *inode, int error)
{
	__u64 now = bpf_ktime_get_ns(), thread = bpf_get_current_pid_tgid();
	__u64 *start = bpf_map_lookup_elem(&syncs, &thread), began;
	struct arrivals *arrivals;
	__u32 device;

	if (!start)
		return 0;
	began = *start;
	bpf_map_delete_elem(&syncs, &thread);
	arrivals = arrivals_below(inode, &device);
	if (arrivals && !error && began < now)
		count(arrivals, &arrivals->met_last_sync, device, OPERATION_SYNC * SIZES, began, now - began);
	return 0;
}
