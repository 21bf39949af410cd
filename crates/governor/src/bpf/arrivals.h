/* What crosses between the kernel's side and ours. Rust takes sizes and offsets from the type information of the compiled
 * object. */
#ifndef LONGRUN_ARRIVALS_H
#define LONGRUN_ARRIVALS_H

#include <longrun.h>

/* What other processes have asked of a device so far. The key is the device in the kernel's own form: major << 20 | minor. */
struct arrivals {
	__u64 requests;
	__u64 bytes;
	__u64 last; /* when: CLOCK_MONOTONIC, ns */
};

#endif
