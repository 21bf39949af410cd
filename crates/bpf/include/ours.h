/* Whether Longrun itself is at work. */
#ifndef LONGRUN_OURS_H
#define LONGRUN_OURS_H

#include <kernel.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Whether the current task is a thread of a process of that name: what Longrun reads, ahead or to move it, nobody has needed. By the
 * process, because threads have names of their own. */
static __always_inline bool is_ours(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	char name[8] = {};

	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(task, group_leader, comm));
	return *(__u64 *)name == *(__u64 *)"longrun";
}

#endif
