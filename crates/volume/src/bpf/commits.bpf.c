/* Tells when the journal of one ext4 volume begins to write a transaction. What changes from then on belongs to the next. */
#include <kernel.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 volume = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} commits SEC(".maps");

SEC("tp_btf/jbd2_commit_flushing")
int BPF_PROG(flushing, struct journal_s *journal)
{
	__u64 *commit;

	if (journal->j_fs_dev->bd_dev != volume)
		return 0;
	commit = bpf_ringbuf_reserve(&commits, sizeof(*commit), 0);
	/* No room: nobody has looked yet, and there is something to see. */
	if (!commit)
		return 0;
	*commit = 0;
	bpf_ringbuf_submit(commit, BPF_RB_FORCE_WAKEUP);
	return 0;
}
