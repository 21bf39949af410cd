/* Records what of a volume is read from the device: which part of which file, and of ext4 which metadata; and which parts of files
 * that were read ahead are used. Only looks: never waits, never changes anything. */
#include <pages.h>
#include <ours.h>
#include "reads.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile struct reads_config config = {};

/* Only so that the object's type information has them. */
const volatile struct reads_event event_layout = {};
const volatile struct reads_use use_layout = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* By inode. As many as there are files in the list: set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct reads_use);
} uses SEC(".maps");

/* Events that found no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* The owner of the pages of a bio, if it belongs to the volume; where its first byte is there. */
static __always_inline struct inode *owner_of(struct bio *bio, __u64 *at)
{
	struct bio_vec *first = bio->bi_io_vec;
	unsigned long address, size = bpf_core_type_size(struct page);
	struct page *page;
	struct folio *folio;
	struct address_space *mapping;
	struct inode *inode;

	/* Only complete bios of a file system, not parts of another bio. */
	if (!first || bio->bi_iter.bi_idx || !size)
		return 0;
	/* Read as a number, because the verifier does not allow calculations with a pointer. */
	page = BPF_CORE_READ(first, bv_page);
	if (!page)
		return 0;
	folio = folio_of(page);
	mapping = BPF_CORE_READ(folio, mapping);
	address = (unsigned long)mapping;
	if (!address || address & ANONYMOUS)
		return 0;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode)
		return 0;
	*at = place_in_file(first, page, folio, size, config.page_shift);
	return inode;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(queued, struct bio *bio)
{
	struct reads_event *event;
	struct inode *inode;
	__u64 at = 0, number = 0;
	__u32 generation = 0, bytes = bio->bi_iter.bi_size;
	__u16 type;

	/* The device of the volume, not one below it: that gets the same pages, perhaps from another process. */
	if ((bio->bi_opf & REQ_OP_MASK) || !bytes || bio->bi_bdev->bd_dev != config.volume)
		return 0;
	inode = owner_of(bio, &at);
	if (!inode)
		return 0;
	type = BPF_CORE_READ(inode, i_mode) & S_IFMT;
	if (type == S_IFREG) {
		if (BPF_CORE_READ(inode, i_sb, s_dev) != config.volume)
			return 0;
		number = BPF_CORE_READ(inode, i_ino);
		generation = BPF_CORE_READ(inode, i_generation);
	} else if (type != S_IFBLK || BPF_CORE_READ(inode, i_rdev) != config.volume) {
		return 0;
	}
	if (is_ours())
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__u32 zero = 0;
		__u64 *count = bpf_map_lookup_elem(&lost, &zero);

		if (count)
			__sync_fetch_and_add(count, 1);
		return 0;
	}
	event->inode = number;
	event->at = at;
	event->bytes = bytes;
	event->generation = generation;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Pages of a file are used, from the first to the last. */
static __always_inline int use(struct address_space *mapping, unsigned long first, unsigned long last)
{
	struct inode *inode = BPF_CORE_READ(mapping, host);
	struct reads_use *use;
	__u64 number, mask;

	if (!inode || BPF_CORE_READ(inode, i_sb, s_dev) != config.volume)
		return 0;
	number = BPF_CORE_READ(inode, i_ino);
	use = bpf_map_lookup_elem(&uses, &number);
	if (!use || use->generation != BPF_CORE_READ(inode, i_generation) || use->shift > 51)
		return 0;
	first >>= use->shift;
	last >>= use->shift;
	if (first > 63)
		return 0;
	if (last > 63)
		last = 63;
	if (last < first)
		last = first;
	mask = (~0ull << first) & (~0ull >> (63 - last));
	if ((use->used & mask) != mask && !is_ours())
		__sync_fetch_and_or(&use->used, mask);
	return 0;
}

/* These two are younger than Linux 6.1. `last` is behind the last page. */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(copied, struct address_space *mapping, unsigned long first, unsigned long last)
{
	return use(mapping, first, last > first ? last - 1 : first);
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(mapped, struct address_space *mapping, unsigned long first, unsigned long last)
{
	return use(mapping, first, last);
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(faulted, struct address_space *mapping, unsigned long index)
{
	return use(mapping, index, index);
}
