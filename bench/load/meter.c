/* meter.c -- latencies in a histogram, CPU time from /proc/PID/task/TID/schedstat; see load.h */
#include "load.h"

#include <dirent.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static uint64_t thread_cpu_ns(const char *pid, const char *tid)
{
	char path[96];
	uint64_t ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/task/%.20s/schedstat", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return 0; /* it has just ended */
	if (fscanf(f, "%" SCNu64, &ns) != 1)
		errx(1, "%s: no run time in it", path);
	fclose(f);
	return ns;
}

static uint64_t process_cpu_ns(const char *pid)
{
	char path[64];
	struct dirent *task;
	uint64_t ns = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	dir = opendir(path);
	if (!dir)
		err(1, "%s", path);
	while ((task = readdir(dir)))
		if (task->d_name[0] != '.')
			ns += thread_cpu_ns(pid, task->d_name);
	closedir(dir);
	return ns;
}

uint64_t meter_cpu_ns(const int *pids, unsigned n)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < n; i++) {
		char pid[16];

		snprintf(pid, sizeof(pid), "%d", pids[i]);
		ns += process_cpu_ns(pid);
	}
	return ns;
}

uint64_t meter_own_cpu_ns(void)
{
	return process_cpu_ns("self");
}
