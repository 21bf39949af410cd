/* What crosses between the kernel's side and ours. Rust takes sizes and offsets from the type information of the compiled
 * object. */
#ifndef LONGRUN_ARRIVALS_H
#define LONGRUN_ARRIVALS_H

#include <longrun.h>

/* A kind of request is what it does, and how large it is: OPERATIONS * SIZES of them. Of durability there is one size. */
#define OPERATION_READ 0
#define OPERATION_WRITE 1
/* Of the file system's own: journals among them. */
#define OPERATION_METADATA 2
/* Not a request: a process waits until a file is durable, and the journal writes what lies in the same transaction, too. */
#define OPERATION_SYNC 3
#define OPERATIONS 4
#define SMALL_MOST 16384
#define MEDIUM_MOST 131072
#define SIZES 3
#define KINDS (OPERATIONS * SIZES)

/* Times are in ns, of CLOCK_MONOTONIC. */

/* Completed requests of others of one kind, apart by the state of our work when they were made. */
struct times {
	__u64 requests;
	__u64 total; /* from the making of the request to its completion */
	__u64 slow;  /* requests that took longer than `slow` */
	__u64 late;  /* requests that took longer than `late` */
};

/* We rested, for a reason that has nothing to do with their arrival: such requests show the usual time. */
#define ALONE 0
/* Our work was under way, or began before the request was completed. */
#define MET 1
/* We did nothing, because others had just made a request. */
#define BETWEEN 2
/* Nothing of ours was under way, but it was the first one after our work: the arm is elsewhere, caches were used up. */
#define AFTER 3
#define STATES 4

/* What other processes have asked of a device so far. The key is the device in the kernel's own form: major << 20 | minor. */
struct arrivals {
	__u64 requests;
	__u64 bytes;
	__u64 last; /* when */
	char program[16]; /* who, at the last time */
	__u64 own;         /* requests of ours */
	__u64 own_squares; /* the squares of how long they took, added up, in square microseconds */
	__u64 met_last; /* how much work there had been when the last request of others was completed */
	__u64 met_last_sync; /* and when a file of others was last durable */
	struct times times[KINDS * STATES]; /* by kind * STATES + state */
};

/* Set by us for each device: which requests of a kind count as slow and as late. */
struct bounds {
	__u64 slow[KINDS];
	__u64 late[KINDS];
};

/* Set by us: the state of our work, when what we began before is done, and how often it has stopped. */
struct work {
	__u64 state;
	__u64 done;
	__u64 stops;
};

#endif
