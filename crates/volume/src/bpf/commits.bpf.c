/* Tells when the journal of one ext4 volume begins to write a transaction (what changes from then on belongs to the next), and
 * when other processes have allocated so much that somebody must look at the free space. */
#include <kernel.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What is told. */
#define COMMIT 1
#define LEAP 2

/* Set before loading. */
const volatile __u32 volume = 0;
const volatile __u32 own_process = 0;

/* Set by us: after how many blocks it is told. */
struct leap {
	__u64 most;
	__u64 taken;
};

/* Only so that the object's type information has it. */
const volatile struct leap leap_layout = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct leap);
} leaps SEC(".maps");

static __always_inline void tell(__u64 what)
{
	__u64 *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	/* No room: nobody has looked yet, and there is something to see. */
	if (!event)
		return;
	*event = what;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/jbd2_commit_flushing")
int BPF_PROG(flushing, struct journal_s *journal)
{
	if (journal->j_fs_dev->bd_dev == volume)
		tell(COMMIT);
	return 0;
}

SEC("tp_btf/ext4_allocate_blocks")
int BPF_PROG(allocated, struct ext4_allocation_request *request)
{
	__u32 zero = 0, length = request->len;
	struct leap *leap;
	__u64 before;

	if (request->inode->i_sb->s_dev != volume || bpf_get_current_pid_tgid() >> 32 == own_process)
		return 0;
	leap = bpf_map_lookup_elem(&leaps, &zero);
	if (!leap)
		return 0;
	before = __sync_fetch_and_add(&leap->taken, length);
	if (before < leap->most && before + length >= leap->most)
		tell(LEAP);
	return 0;
}
