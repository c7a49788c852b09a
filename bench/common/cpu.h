/*
 * cpu.h -- the CPU time of processes.
 *
 * A process' CPU clock is the sum of its threads' run times as in /proc/PID/task/TID/schedstat, and
 * keeps those of threads that have ended.
 */
#ifndef BENCH_CPU_H
#define BENCH_CPU_H

#include <stdint.h>

struct cpu_of {
	int *pids;
	unsigned count;
};

/* Adds a process, given as text. */
void cpu_add(struct cpu_of *of, const char *pid);

/* Nanoseconds that the processes, or this one, have run, with all their threads. */
uint64_t cpu_ns(const struct cpu_of *of);
uint64_t cpu_own_ns(void);

#endif
