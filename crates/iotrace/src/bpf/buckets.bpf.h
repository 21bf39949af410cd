/* The bucket of a value in a histogram. histogram.rs has the same bounds; a test compares them. */
/* An upper bound belongs to its bucket. */
static __always_inline __u32 size_bucket(__u32 bytes)
{
	if (bytes <= 4096)
		return bytes <= 512 ? 0 : bytes <= 1024 ? 1 : bytes <= 2048 ? 2 : bytes <= 4095 ? 3 : 4;
	if (bytes <= 16384)
		return bytes <= 8191 ? 5 : bytes <= 8192 ? 6 : bytes <= 16383 ? 7 : 8;
	if (bytes <= 65536)
		return bytes <= 32768 ? 9 : bytes <= 49152 ? 10 : bytes <= 65535 ? 11 : 12;
	return bytes <= 81920 ? 13 : bytes <= 131072 ? 14 : bytes <= 262144 ? 15 : bytes <= 524288 ? 16 : 17;
}

/* The bounds of negative distances mirror those of positive ones. */
static __always_inline __u32 seek_bucket(__s64 sectors)
{
	if (sectors <= 0) {
		__u64 back = -sectors;

		return back < 2 ? 8 : back < 6 ? 7 : back < 16 ? 6 : back < 64 ? 5 : back < 500 ? 4 : back < 5000 ? 3 :
		       back < 50000 ? 2 : back < 500000 ? 1 : 0;
	}
	return sectors <= 2 ? 9 : sectors <= 6 ? 10 : sectors <= 16 ? 11 : sectors <= 64 ? 12 : sectors <= 500 ? 13 :
	       sectors <= 5000 ? 14 : sectors <= 50000 ? 15 : sectors <= 500000 ? 16 : 17;
}

static __always_inline __u32 depth_bucket(__u64 depth)
{
	if (depth <= 8)
		return depth <= 1 ? 0 : depth <= 2 ? 1 : depth <= 4 ? 2 : depth <= 6 ? 3 : 4;
	return depth <= 12 ? 5 : depth <= 16 ? 6 : depth <= 20 ? 7 : depth <= 24 ? 8 : depth <= 28 ? 9 : depth <= 32 ? 10 :
	       depth <= 64 ? 11 : 12;
}

/* Four buckets to each doubling. */
static __always_inline __u32 time_bucket(__u64 ns)
{
	__u64 us = ns / 1000;
	__u64 rest = us;
	__u32 log = 0;

	if (us < 4)
		return us;
	if (us >> 26)
		return TIME_BUCKETS - 1;
	if (rest >> 16)
		log += 16, rest >>= 16;
	if (rest >> 8)
		log += 8, rest >>= 8;
	if (rest >> 4)
		log += 4, rest >>= 4;
	if (rest >> 2)
		log += 2, rest >>= 2;
	if (rest >> 1)
		log += 1;
	return (log - 1) * 4 + ((us >> (log - 2)) & 3);
}

static __always_inline void add(__u64 *field, __u32 at, __u32 size)
{
	/* Forces the compiler to compare the value that it uses. The verifier does not accept a copy as bounded. */
	asm volatile("" : "+r"(at));
	if (at < size)
		field[at] += 1;
}

/* For the test that compares the buckets here with the bounds in histogram.rs; never loaded otherwise. */
SEC("syscall")
int buckets(struct trace_probe *probe)
{
	switch (probe->scale) {
	case 0:
		return size_bucket(probe->value);
	case 1:
		return time_bucket((__u64)probe->value * 1000);
	case 2:
		return seek_bucket(probe->value);
	default:
		return depth_bucket(probe->value);
	}
}
