/* Counts, inside the kernel, how often the device is read and written for which file. Owns the counts, in a table of bounded
 * size that forgets what was not used for longest. Sends nothing, never waits, and never changes anything. */
#include <pages.h>
#include <ours.h>
#include "heat.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The devices of the watched volumes, by number; and a btrfs, which may lie on several, by its own. What comes to another device, as to the disks below a mapped one, is not
 * counted a second time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct heat_device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct heat_key);
	__type(value, struct heat_count);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct heat_task);
} tasks SEC(".maps");

#define READ 0
#define WRITE 1

#define FIRST_SUBVOLUME 256
#define TOP_SUBVOLUME 5

/* The name of a regular file for the tables; false when it is none of a user. */
static __always_inline bool name_of(struct inode *inode, const struct heat_device *device, struct heat_key *key)
{
	key->inode = BPF_CORE_READ(inode, i_ino);
	key->volume = device->volume;
	key->generation = 0;
	if (!device->subvolumes) {
		key->generation = BPF_CORE_READ(inode, i_generation);
	} else if (bpf_core_type_exists(struct btrfs_inode)) {
		struct btrfs_inode *file = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);

		key->generation = BPF_CORE_READ(file, root, root_key.objectid);
		/* The trees of btrfs are in pages of an inode of their own. */
		return key->generation >= FIRST_SUBVOLUME || key->generation == TOP_SUBVOLUME;
	}
	return true;
}

/* The owner of the first page of a bio. */
enum owner { OF_A_FILE, OF_A_PROGRAM, OF_THE_KERNEL };

/* The owner; for a page of the page cache of a file of this volume also the file. */
static __always_inline enum owner owner_of(struct bio *bio, __u32 volume, struct inode **inode)
{
	struct bio_vec *first = bio->bi_io_vec;
	__u32 index = bio->bi_iter.bi_idx;
	struct page *page;
	struct folio *folio;
	struct address_space *mapping;

	if (!first)
		return OF_THE_KERNEL;
	/* Not the first in the rest of a bio that was split. */
	first = (struct bio_vec *)((unsigned long)first + (unsigned long)index * bpf_core_type_size(struct bio_vec));
	page = BPF_CORE_READ(first, bv_page);
	if (!page)
		return OF_THE_KERNEL;
	folio = folio_of(page);
	mapping = BPF_CORE_READ(folio, mapping);
	if ((unsigned long)mapping & ANONYMOUS)
		return OF_A_PROGRAM;
	if (!mapping)
		return OF_THE_KERNEL;
	*inode = BPF_CORE_READ(mapping, host);
	/* Metadata of file systems is in pages of the device, or of an inode without a type. */
	if (!*inode || (BPF_CORE_READ(*inode, i_mode) & S_IFMT) != S_IFREG)
		return OF_THE_KERNEL;
	/* Shared memory is a file, too, and programs have transfers made into it. */
	return BPF_CORE_READ(*inode, i_sb, s_dev) == volume ? OF_A_FILE : OF_A_PROGRAM;
}

static __always_inline void add(const struct heat_key *key, __u32 operation, __u64 bytes)
{
	struct heat_count fresh = {}, *count = bpf_map_lookup_elem(&files, key);

	if (!count) {
		bpf_map_update_elem(&files, key, &fresh, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&files, key);
		if (!count)
			return;
	}
	if (operation == READ) {
		__sync_fetch_and_add(&count->reads, 1);
		__sync_fetch_and_add(&count->read_bytes, bytes);
	} else {
		__sync_fetch_and_add(&count->writes, 1);
		__sync_fetch_and_add(&count->written_bytes, bytes);
	}
}

/* A bio is queued, before it is split or merged, in the context of the process that does the I/O. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(queued, struct bio *bio)
{
	__u32 number = bio->bi_bdev->bd_dev;
	struct heat_device *device = bpf_map_lookup_elem(&devices, &number);
	__u32 operation = bio->bi_opf & REQ_OP_MASK;
	__u64 bytes = bio->bi_iter.bi_size;
	struct inode *inode = 0;
	struct heat_key key;
	struct heat_task *task;

	if (!device || operation > WRITE || !bytes)
		return 0;
	if (operation == READ) {
		if (is_ours()) {
			__sync_fetch_and_add(&device->own_reads, 1);
			return 0;
		}
		__sync_fetch_and_add(&device->reads, 1);
		__sync_fetch_and_add(&device->read_bytes, bytes);
	}
	switch (owner_of(bio, device->volume, &inode)) {
	case OF_A_FILE:
		if (!name_of(inode, device, &key))
			return 0;
		break;
	case OF_A_PROGRAM:
		task = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);
		if (!task || !task->left || task->volume != device->volume)
			return 0;
		task->left = task->left > bytes ? task->left - bytes : 0;
		key.inode = task->inode;
		key.generation = task->generation;
		key.volume = task->volume;
		break;
	default:
		return 0;
	}
	add(&key, operation, bytes);
	return 0;
}

/* Reads and writes past the page cache. */
SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(direct_begins, struct kiocb *request, struct iov_iter *data)
{
	struct inode *inode = request->ki_filp->f_inode;
	__u32 volume = inode->i_sb->s_dev;
	struct heat_device *device = bpf_map_lookup_elem(&devices, &volume);
	__u64 flags = device ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0;
	struct heat_task *task = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, flags);
	struct heat_key key;

	if (!task)
		return 0;
	task->left = 0;
	if (!device || !name_of(inode, device, &key))
		return 0;
	task->inode = key.inode;
	task->generation = key.generation;
	task->volume = key.volume;
	task->left = data->count;
	return 0;
}
