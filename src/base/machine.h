/* machine.h -- how much of this machine the process may use: CPU affinity, cgroup v2 and v1 limits,
 * descriptors.  Called at start and by `check`; reads /proc and /sys, keeps nothing. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include <stdint.h>

/* Cores by affinity, and by the cgroup's CPU quota rounded up; at least 1. */
unsigned cpus_usable(void);
/* Bytes: the machine's memory or the cgroup's limit, whichever is less. */
uint64_t memory_usable(void);
/* Hard limit of RLIMIT_NOFILE, at most 2^30. */
uint64_t fds_usable(void);

/* The same from the files under `root` (with its proc/self/cgroup and sys/fs/cgroup); for tests.
 * 0: no limit there. */
unsigned cpus_quota_at(const char *root);
uint64_t memory_limit_at(const char *root);

#endif
