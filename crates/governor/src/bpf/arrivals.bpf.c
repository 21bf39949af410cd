/* Counts, inside the kernel, what other processes ask of the watched disks, at the moment when they ask. Kernel threads do
 * not count: they write back for anybody, and the counters of the disk tell what of that was not ours. */
#include <kernel.h>
#include "arrivals.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 own_process = 0;

#define PF_KTHREAD 0x00200000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct arrivals);
} watched SEC(".maps");

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
	return 0;
}
