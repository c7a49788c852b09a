/* cpu.c -- see cpu.h */
#define _GNU_SOURCE
#include "cpu.h"

#include <err.h>
#include <stdlib.h>
#include <time.h>

void cpu_add(struct cpu_of *of, const char *pid)
{
	of->pids = reallocarray(of->pids, of->count + 1, sizeof(int));
	if (!of->pids)
		err(1, "reallocarray");
	of->pids[of->count++] = atoi(pid);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t))
		err(1, "a process that is to be measured has ended");
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t cpu_ns(const struct cpu_of *of)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < of->count; i++) {
		clockid_t clock;

		if (clock_getcpuclockid(of->pids[i], &clock))
			errx(1, "process %d, which is to be measured, has ended", of->pids[i]);
		ns += clock_ns(clock);
	}
	return ns;
}

uint64_t cpu_own_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}
