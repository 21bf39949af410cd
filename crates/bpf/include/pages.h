/* Whose pages a bio carries: from a page of the page cache to its folio, and to its place in the file. */
#ifndef LONGRUN_PAGES_H
#define LONGRUN_PAGES_H

#include <kernel.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* In the address of a folio's mapping: it belongs to no file. */
#define ANONYMOUS 3ul

/* The folio of a page. A page behind the first one of a folio has the folio's address, plus one. */
static __always_inline struct folio *folio_of(struct page *page)
{
	unsigned long head = BPF_CORE_READ(page, compound_head);

	return head & 1 ? (struct folio *)(head - 1) : (struct folio *)page;
}

/* Where the data of a bio begins in its file, in bytes: `page` is that of its first vector `first`, in `folio`. `size` is that of the
 * kernel's record of a page. Older kernels name the first page of a large folio, and count the offset from there: it can be larger
 * than a page. */
static __always_inline __u64 place_in_file(struct bio_vec *first, struct page *page, struct folio *folio,
					   unsigned long size, __u32 page_shift)
{
	__u64 index = (__u64)BPF_CORE_READ(folio, index) + ((unsigned long)page - (unsigned long)folio) / size;

	return (index << page_shift) + BPF_CORE_READ(first, bv_offset);
}

#endif
