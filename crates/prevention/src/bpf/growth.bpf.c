/* Notices, inside the kernel, which files grow in pieces. Owns the state of every growing file of the watched volumes, and
 * the decision what is worth telling; never waits, never changes anything. */
#include <kernel.h>
#include "growth.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 own_process = 0;
const volatile __u32 page_shift = 12;

/* Only so that the object's type information has it. */
const volatile struct growth_event event_layout = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct volume_rules);
} volumes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct file_key);
	__type(value, struct file_state);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC: mostly empty */
	__type(key, struct file_key);
	__type(value, struct armed_file);
} armed SEC(".maps");

/* How many files are armed: saves the way to the tables while there are none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} armed_count SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* An allocation, in bytes. */
struct allocation {
	__u64 begin;
	__u64 end;
	__u64 physical;
	bool delayed;   /* chosen when the data was written back, not when it was written */
	bool rewrites;  /* blocks that were there before may be allocated again */
	bool unplaced;  /* where it lies is not told */
};

#define MAX_LIMIT (1u << 20)
#define WINDOW_SHIFT 24
/* Who is told of a file in pieces looks at it, for some 30 microseconds: of one volume no more than 200 a second, but for
 * ten seconds' worth at once, since many files are written back together. */
#define PIECES_PAUSE 5000000ull
#define PIECES_AT_ONCE 10000000000ull

static __always_inline struct volume_rules *rules_of(struct inode *inode)
{
	__u32 device = inode->i_sb->s_dev;

	return bpf_map_lookup_elem(&volumes, &device);
}

/* Regular, and nobody may execute it. */
static __always_inline bool is_plain(struct inode *inode)
{
	__u16 mode = inode->i_mode;

	return (mode & S_IFMT) == S_IFREG && !(mode & 0111);
}

static __always_inline void identify(struct file_key *key, struct inode *inode, __u64 root)
{
	key->inode = inode->i_ino;
	key->root = root;
	key->device = inode->i_sb->s_dev;
	key->generation = inode->i_generation;
}

static __always_inline void report(const struct file_key *key, __u32 kind, __u64 now, __u64 size, __u64 offset,
				   __u64 bytes, __u32 allocations)
{
	struct growth_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	__u32 zero = 0;

	if (!event) {
		__u64 *count = bpf_map_lookup_elem(&lost, &zero);

		if (count)
			*count += 1;
		return;
	}
	event->at = now;
	event->inode = key->inode;
	event->root = key->root;
	event->size = size;
	event->offset = offset;
	event->bytes = bytes;
	event->device = key->device;
	event->generation = key->generation;
	event->allocations = allocations;
	event->kind = kind;
	bpf_get_current_comm(event->by, sizeof(event->by));
	/* A writer makes the next piece within microseconds: never wait for company. */
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* The allocation continues the last one: nothing comes between them on the volume, or just the room for the hole between
 * them in the file. */
static __always_inline bool continues(const struct file_state *state, const struct allocation *a)
{
	return a->physical - state->physical == a->begin - state->begin;
}

/* The threshold for the next report: as for the first time after a calm while, and twice the last one before. */
static __always_inline bool is_due(__u32 count, __u32 limit, __u32 first, __u64 reported, __u64 now, __u64 calm)
{
	return count >= limit || (count >= first && now - reported > calm);
}

static __always_inline __u32 next_limit(__u32 limit, __u32 first, __u64 reported, __u64 now, __u64 calm)
{
	if (reported && now - reported > calm)
		limit = first;
	return limit < MAX_LIMIT ? limit * 2 : limit;
}

/* Data that the file system knew as one was laid in pieces, for want of longer ones, or may have been: nothing helps such a
 * file but mending. */
static __always_inline bool is_next_piece(const struct file_state *state, const struct volume_rules *rules,
					  const struct allocation *a)
{
	/* Of a promise it is not told where it was kept. One that begins within the last proves that only a part was kept; one
	 * behind it may lie anywhere, and does where several files grow together. Whoever looks will see. */
	if (a->unplaced)
		return a->begin > state->begin &&
		       (a->begin < state->end ? a->begin : state->end) - state->begin < rules->small;
	return a->delayed && state->goes_on && a->begin == state->end && !continues(state, a) &&
	       a->end - a->begin < rules->small;
}

static __always_inline void tell_of_pieces(const struct file_key *key, struct file_state *state,
					   struct volume_rules *rules, __u64 size)
{
	__u64 now = bpf_ktime_get_ns(), next = rules->next;

	if (now - state->pieces_reported <= rules->calm)
		return;
	if (next + PIECES_AT_ONCE < now)
		next = now - PIECES_AT_ONCE;
	if (next > now)
		return;
	/* Others may do the same at this moment: then one more is told of. */
	rules->next = next + PIECES_PAUSE;
	report(key, GROWTH_IN_PIECES, now, size, 0, 0, 0);
	state->pieces_reported = now;
}

static __always_inline void count_growth(const struct file_key *key, struct file_state *state,
					 struct volume_rules *rules, const struct allocation *a, __u64 size)
{
	__u64 now;

	state->growth += 1;
	state->growth_bytes += a->end - a->begin;
	if (state->growth < rules->growth) {
		/* Too few for a runway yet; and if there come no more, it is in pieces all the same. */
		tell_of_pieces(key, state, rules, size);
		return;
	}
	now = bpf_ktime_get_ns();
	if (!is_due(state->growth, state->growth_limit, rules->growth, state->growth_reported, now, rules->calm))
		return;
	report(key, GROWTH_FRAGMENTING, now, size, a->end, state->growth_bytes, state->growth);
	state->growth_limit = next_limit(state->growth_limit, rules->growth, state->growth_reported, now, rules->calm);
	state->growth_reported = now;
	state->growth = 0;
	state->growth_bytes = 0;
}

static __always_inline void count_scatter(const struct file_key *key, struct file_state *state,
					  const struct volume_rules *rules, const struct allocation *a, __u64 size)
{
	__u64 window = 1ull << ((a->begin >> WINDOW_SHIFT) & 63);
	__u64 now;
	bool due, elsewhere;

	state->scatter += 1;
	state->scatter_bytes += a->end - a->begin;
	/* Once proven, each other part of the file is told of at its first piece: what helps, helps one part. */
	elsewhere = state->scatter_reported && !(state->windows & window);
	if (state->scatter < rules->scatter && !elsewhere)
		return;
	now = bpf_ktime_get_ns();
	due = is_due(state->scatter, state->scatter_limit, rules->scatter, state->scatter_reported, now, rules->calm);
	if (!due && !elsewhere)
		return;
	if (now - state->scatter_reported > rules->calm)
		state->windows = 0;
	report(key, GROWTH_SCATTERED, now, size, a->begin, state->scatter_bytes, state->scatter);
	if (due)
		state->scatter_limit =
			next_limit(state->scatter_limit, rules->scatter, state->scatter_reported, now, rules->calm);
	state->scatter_reported = now;
	state->windows |= window;
	state->scatter = 0;
	state->scatter_bytes = 0;
}

/* What the allocation was for: growth at the end, a hole inside, or neither. */
static __always_inline void classify(const struct file_key *key, struct file_state *state,
				     struct volume_rules *rules, const struct allocation *a, struct inode *inode)
{
	__u64 size = inode->i_size;
	__u64 length = a->end - a->begin;

	if (is_next_piece(state, rules, a))
		tell_of_pieces(key, state, rules, size);
	if (length >= rules->small)
		return;
	if (a->unplaced) {
		/* What is written back in one go comes in ascending order, and may lie well: only a step back proves
		 * that a hole is being filled bit by bit. */
		if (rules->scatter && a->end < size && a->begin < state->begin)
			count_scatter(key, state, rules, a, size);
		return;
	}
	if (continues(state, a))
		return;
	if (a->end >= size) {
		/* The file grew by a runway since: where that lies is not known here. */
		if (a->begin > state->end + rules->small) {
			state->growth_limit = rules->growth;
			state->growth = 0;
			state->growth_bytes = 0;
			return;
		}
		/* The last block again, written before and now moved by copy on write: it goes elsewhere with each write, runway
		 * or not, and a runway would only part it from what follows. */
		if (a->rewrites) {
			__u64 old = state->top > size && a->begin >= size ? a->begin : state->top;

			if (a->begin < old) {
				state->growth = 0;
				state->growth_bytes = 0;
				return;
			}
		}
		if (rules->growth)
			count_growth(key, state, rules, a, a->delayed || size > a->end ? size : a->end);
		return;
	}
	/* Written back in order, in one go: the file system knew all of it. */
	if (!rules->scatter || (a->delayed && a->begin == state->end))
		return;
	if (a->rewrites) {
		/* Copy on write allocates for every overwriting: only a file with holes has something to gain. */
		__u64 stored = (inode->i_blocks << 9) + inode->i_bytes;

		if (stored >= size - (size >> 5))
			return;
	}
	count_scatter(key, state, rules, a, size);
}

static __always_inline void allocated(struct inode *inode, __u64 root, struct volume_rules *rules,
				      const struct allocation *a)
{
	struct file_key key = {};
	struct file_state *state;

	identify(&key, inode, root);
	state = bpf_map_lookup_elem(&files, &key);
	if (!state) {
		struct file_state fresh = {
			.begin = a->begin,
			.end = a->end,
			.physical = a->physical,
			.top = a->end,
			.growth_limit = rules->growth,
			.scatter_limit = rules->scatter,
			.goes_on = a->end < (__u64)inode->i_size,
		};

		bpf_map_update_elem(&files, &key, &fresh, BPF_ANY);
		return;
	}
	if (bpf_get_current_pid_tgid() >> 32 == own_process)
		state->growth_limit = rules->growth;
	else
		classify(&key, state, rules, a, inode);
	state->begin = a->begin;
	state->end = a->end;
	state->physical = a->physical;
	state->goes_on = a->end < (__u64)inode->i_size;
	if (a->end > state->top || a->end >= inode->i_size)
		state->top = a->end;
}

/* Tells once when an armed file is written beyond its mark. */
static __always_inline void written(struct inode *inode, __u64 root, __u64 end, bool direct)
{
	struct file_key key = {};
	struct armed_file *mark;
	__u64 size;

	identify(&key, inode, root);
	mark = bpf_map_lookup_elem(&armed, &key);
	if (!mark || end <= mark->half || __sync_lock_test_and_set(&mark->fired, 1))
		return;
	size = inode->i_size;
	report(&key, GROWTH_HALF_USED, bpf_ktime_get_ns(), direct && end > size ? end : size, end, 0, 0);
}

static __always_inline bool none_armed(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&armed_count, &zero);

	return !count || !*count;
}

/* btrfs says more exactly by itself what is written where (btrfs_allocated); and its records are unknown until its module
 * is loaded, which may be after these programs. */
static __always_inline bool is_told_elsewhere(const struct volume_rules *rules)
{
	return !rules || rules->filesystem == GROWTH_BTRFS;
}

static __always_inline int dirtied(struct address_space *mapping, unsigned long index)
{
	struct inode *inode;

	if (!mapping || none_armed())
		return 0;
	inode = mapping->host;
	if (!inode)
		return 0;
	if (!is_told_elsewhere(rules_of(inode)))
		written(inode, 0, ((__u64)index + 1) << page_shift, false);
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(dirty_folio, struct folio *folio, struct address_space *mapping)
{
	/* For a moment during truncation and for anonymous folios there is none. */
	return mapping ? dirtied(mapping, folio->index) : 0;
}

/* Its name before Linux 5.18. */
SEC("tp_btf/writeback_dirty_page")
int BPF_PROG(dirty_page, struct page___old *page, struct address_space *mapping)
{
	return mapping ? dirtied(mapping, page->index) : 0;
}

static __always_inline int direct(struct kiocb *request, struct iov_iter *data)
{
	struct inode *inode;

	if (none_armed())
		return 0;
	inode = request->ki_filp->f_inode;
	if (!is_told_elsewhere(rules_of(inode)))
		written(inode, 0, request->ki_pos + data->count, true);
	return 0;
}

/* Reads too; the data of a write comes from the buffer. */
SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(direct_begin, struct kiocb *request, struct iov_iter *data)
{
	return data->data_source ? direct(request, data) : 0;
}

/* For XFS before Linux 6.4, which has no iomap_dio_rw_begin. */
SEC("tp_btf/xfs_file_direct_write")
int BPF_PROG(xfs_direct, struct kiocb *request, struct iov_iter *data)
{
	return direct(request, data);
}

#define EXT4_MB_HINT_DATA 0x20
#define EXT4_MB_DELALLOC_RESERVED 0x400

SEC("tp_btf/ext4_allocate_blocks")
int BPF_PROG(ext4_allocated, struct ext4_allocation_request *request, __u64 block)
{
	struct inode *inode = request->inode;
	__u32 flags = request->flags;
	struct volume_rules *rules = rules_of(inode);

	if (!rules || !(flags & EXT4_MB_HINT_DATA) || !is_plain(inode))
		return 0;
	__u8 bits = inode->i_blkbits;
	struct allocation a = {
		.begin = (__u64)request->logical << bits,
		.end = ((__u64)request->logical + request->len) << bits,
		.physical = block << bits,
		.delayed = flags & EXT4_MB_DELALLOC_RESERVED,
	};
	allocated(inode, 0, rules, &a);
	return 0;
}

#define XFS_DATA_FORK 0
/* Continues nothing. */
#define NO_PLACE (1ull << 63)
#define XFS_DIFLAG_REALTIME 1

static __always_inline int xfs_allocated(struct xfs_inode *file, int fork, struct xfs_bmbt_irec *extent, bool delayed)
{
	struct inode *inode = &file->i_vnode;
	struct volume_rules *rules = rules_of(inode);
	__u64 block;

	/* Recent kernels declare that it may be missing, and insist on the question. */
	if (!extent)
		return 0;
	if (!rules || fork != XFS_DATA_FORK || !is_plain(inode) || file->i_diflags & XFS_DIFLAG_REALTIME)
		return 0;
	block = extent->br_startblock;
	/* Space promised to buffered data. When that is written back, it is the promise that is shown once more, not the
	 * place that has been chosen. */
	if (block >> 51 && !delayed)
		return 0;
	__u8 bits = inode->i_blkbits;
	struct allocation a = {
		.begin = extent->br_startoff << bits,
		.end = (extent->br_startoff + extent->br_blockcount) << bits,
		.physical = block >> 51 ? NO_PLACE : block << bits,
		.delayed = delayed,
		.unplaced = block >> 51,
	};
	allocated(inode, 0, rules, &a);
	return 0;
}

SEC("tp_btf/xfs_iomap_alloc")
int BPF_PROG(xfs_at_once, struct xfs_inode *file, __s64 offset, __s64 count, int fork, struct xfs_bmbt_irec *extent)
{
	return xfs_allocated(file, fork, extent, false);
}

SEC("tp_btf/xfs_map_blocks_alloc")
int BPF_PROG(xfs_written_back, struct xfs_inode *file, __s64 offset, __s64 count, int fork,
	     struct xfs_bmbt_irec *extent)
{
	return xfs_allocated(file, fork, extent, true);
}

#define BTRFS_ORDERED_NOCOW (1 << 1)
#define BTRFS_ORDERED_PREALLOC (1 << 2)
#define BTRFS_ORDERED_COMPRESSED (1 << 3)
#define BTRFS_ORDERED_DIRECT (1 << 4)

SEC("tp_btf/btrfs_ordered_extent_add")
int BPF_PROG(btrfs_allocated, struct btrfs_inode *file, struct btrfs_ordered_extent *extent)
{
	struct inode *inode = &file->vfs_inode;
	struct volume_rules *rules = rules_of(inode);

	if (!rules || !is_plain(inode))
		return 0;
	__u64 flags = extent->flags;
	__u64 root = file->root->root_key.objectid;
	struct allocation a = {
		.begin = extent->file_offset,
		.end = extent->file_offset + extent->num_bytes,
		.physical = extent->disk_bytenr,
		.delayed = !(flags & BTRFS_ORDERED_DIRECT),
		.rewrites = true,
	};
	if (!none_armed())
		written(inode, root, a.end, flags & BTRFS_ORDERED_DIRECT);
	/* Into space that the file has already, or stored in another form. */
	if (!(flags & (BTRFS_ORDERED_NOCOW | BTRFS_ORDERED_PREALLOC | BTRFS_ORDERED_COMPRESSED)))
		allocated(inode, root, rules, &a);
	return 0;
}
