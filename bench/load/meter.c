/* meter.c -- latencies in a histogram; see load.h */
#include "load.h"

#include <string.h>

/*
 * Buckets of 1 us up to FINE_US, of COARSE_US above: one per cent or better everywhere that
 * matters, and few enough to stay in the cache.
 */
enum { FINE_US = 8192, COARSE_US = 64, BUCKETS = 65536 };

static uint32_t histogram[BUCKETS];

static unsigned bucket_of(uint64_t us)
{
	uint64_t b = us < FINE_US ? us : FINE_US + (us - FINE_US) / COARSE_US;

	return b < BUCKETS ? (unsigned)b : BUCKETS - 1;
}

static double bucket_us(unsigned b)
{
	return b < FINE_US ? b + 0.5 : FINE_US + (b - FINE_US + 0.5) * COARSE_US;
}

void meter_reset(void)
{
	memset(histogram, 0, sizeof(histogram));
}

void meter_add(double seconds)
{
	histogram[bucket_of((uint64_t)(seconds * 1e6))]++;
}

double meter_us(double share)
{
	uint64_t all = 0, seen = 0;
	unsigned b;

	for (b = 0; b < BUCKETS; b++)
		all += histogram[b];
	if (!all)
		return 0;
	for (b = 0; b < BUCKETS; b++) {
		seen += histogram[b];
		if ((double)seen >= share * (double)all)
			break;
	}
	return bucket_us(b < BUCKETS ? b : BUCKETS - 1);
}
