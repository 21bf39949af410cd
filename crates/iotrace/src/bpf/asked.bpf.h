/* Requests of file systems: ranges of files, and how many ranges of the device each needs. A part of trace.bpf.c. */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct trace_task);
} tasks SEC(".maps");

static __always_inline bool is_top(__u32 number)
{
	__u32 i;

	if (config.top[0] == number)
		return true;
	for (i = 1; i < MAX_DEVICES && i < config.tops; i++)
		if (config.top[i] == number)
			return true;
	return false;
}

static __always_inline struct trace_task *task_of(__u64 flags)
{
	return bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, flags);
}

/* The owner of the pages of a bio. */
enum owner { OF_A_FILE, OF_A_PROGRAM, OF_THE_KERNEL };

/* The owner; for pages of a file in the page cache also the file and the offset in it. */
static __always_inline enum owner place_of(struct bio *bio, __u64 *file, __u64 *at)
{
	struct bio_vec *first = bio->bi_io_vec;
	struct page *page;
	struct folio *folio;
	struct address_space *mapping;
	struct inode *inode;
	unsigned long size = bpf_core_type_size(struct page);

	/* Only complete bios of a file system, not parts of another bio. */
	if (!first || bio->bi_iter.bi_idx || !size)
		return OF_THE_KERNEL;
	/* Read as a number, because the verifier does not allow calculations with a pointer. */
	page = BPF_CORE_READ(first, bv_page);
	if (!page)
		return OF_THE_KERNEL;
	folio = folio_of(page);
	mapping = BPF_CORE_READ(folio, mapping);
	if ((unsigned long)mapping & ANONYMOUS)
		return OF_A_PROGRAM;
	if (!mapping)
		return OF_THE_KERNEL;
	inode = BPF_CORE_READ(mapping, host);
	/* Metadata of file systems is in pages of the device, or of an inode without a type. */
	if (!inode || (BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
		return OF_THE_KERNEL;
	*file = (__u64)inode;
	*at = place_in_file(first, page, folio, size, config.page_shift);
	return OF_A_FILE;
}

static __always_inline void count_asked(struct bio *bio, __u32 class)
{
	struct trace_asked *to = bpf_map_lookup_elem(&asked, &class);
	struct trace_task *task = task_of(BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 file = 0, at = 0, sector = bio->bi_iter.bi_sector;
	__u32 bytes = bio->bi_iter.bi_size;
	enum owner owner;
	bool follows;

	if (!to || !task)
		return;
	owner = place_of(bio, &file, &at);
	/* Extent maps are read during a direct transfer, too. */
	if (owner == OF_THE_KERNEL || (owner == OF_A_PROGRAM && !task->direct)) {
		to->other_bios += 1;
		to->other_bytes += bytes;
		return;
	}
	/* The buffer may belong to a file as well (shared memory). The remaining bytes of the transfer tell where it goes. */
	if (task->direct && file != task->direct_file) {
		file = task->direct_file;
		at = task->direct_at;
		task->direct_at += bytes;
		task->direct = task->direct > bytes ? task->direct - bytes : 0;
		to->direct_bytes += bytes;
	}
	to->file_bytes += bytes;
	follows = task->file == file && task->class == class && task->next == at;
	if (!follows || task->fresh) {
		to->requests += 1;
		to->between += follows && task->sector != sector;
		task->fresh = 0;
		task->split = 0;
	} else if (task->sector != sector) {
		to->extra += 1;
		to->split += !task->split;
		task->split = 1;
	}
	task->file = file;
	task->class = class;
	task->next = at + bytes;
	task->sector = sector + (bytes >> 9);
}

/* A bio is queued, before it is split or merged, in the context of the process that does the I/O. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(queued, struct bio *bio)
{
	__u32 number = disk_number(bio->bi_bdev->bd_disk);
	__u32 slot = slot_of(number);
	__u32 class;

	if (slot != NONE) {
		struct trace_device *device = device_of(slot);

		if (device)
			device->bios += 1;
	}
	if (!is_top(number))
		return 0;
	class = class_of(bio->bi_opf);
	if (class <= CLASS_WRITE && bio->bi_iter.bi_size)
		count_asked(bio, class);
	return 0;
}

/* The next bio of this task begins a new request of a file system. A task without an earlier request needs no mark. */
static __always_inline int begins(void)
{
	struct trace_task *task = task_of(0);

	if (task) {
		task->fresh = 1;
		task->direct = 0;
	}
	return 0;
}

SEC("tp_btf/page_cache_ra_unbounded")
int BPF_PROG(reads_ahead, struct inode *inode)
{
	return begins();
}

SEC("tp_btf/page_cache_ra_order")
int BPF_PROG(reads_ahead_large, struct inode *inode)
{
	return begins();
}

SEC("tp_btf/writeback_single_inode_start")
int BPF_PROG(writes_back, struct inode *inode)
{
	return begins();
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(ext4_syncs, void *file)
{
	return begins();
}

SEC("tp_btf/xfs_file_fsync")
int BPF_PROG(xfs_syncs, void *file)
{
	return begins();
}

SEC("tp_btf/btrfs_sync_file")
int BPF_PROG(btrfs_syncs, void *file)
{
	return begins();
}

SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(direct_begins, struct kiocb *request, struct iov_iter *data)
{
	struct trace_task *task = task_of(BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!task)
		return 0;
	task->fresh = 1;
	task->direct = data->count;
	task->direct_file = (__u64)request->ki_filp->f_inode;
	task->direct_at = request->ki_pos;
	return 0;
}
