/* machine.c -- how much of this machine the process may use.
 *
 * cgroup v2: /proc/self/cgroup says "0::/a/b"; the limits of /a/b, of /a and of / all hold, so the
 * least counts.  cgroup v1: one line per controller, the same walk below
 * /sys/fs/cgroup/<controller>. */
#include "base/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define PATH_ROOM 1024

static bool read_line(const char *path, char *line, size_t size)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fgets(line, (int)size, f) != NULL;
	fclose(f);
	line[ok ? strcspn(line, "\n") : 0] = '\0';
	return ok;
}

/* Whether "cpu" is one of "cpu,cpuacct". */
static bool has_controller(const char *list, const char *name)
{
	size_t n = strlen(name);

	while (*list) {
		size_t len = strcspn(list, ",");

		if (len == n && memcmp(list, name, n) == 0)
			return true;
		list += len + (list[len] == ',');
	}
	return false;
}

/* The folder of our cgroup that has this controller, below root; v2 where controller is NULL. */
static bool cgroup_folder(const char *root, const char *controller, char folder[PATH_ROOM])
{
	char path[PATH_ROOM], line[PATH_ROOM];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL;
		int n;

		if (!at)
			continue;
		*at++ = '\0';
		at[strcspn(at, "\n")] = '\0';
		if (controller ? !has_controller(list + 1, controller) : list[1] != '\0')
			continue;
		n = snprintf(folder, PATH_ROOM, "%s/sys/fs/cgroup%s%s%s", root,
			     controller ? "/" : "", controller ? list + 1 : "", at);
		found = n > 0 && n < PATH_ROOM;
	}
	fclose(f);
	return found;
}

/* Calls least() on the folder and on each one above it, down to sys/fs/cgroup; 0: none has a
 * limit. */
static uint64_t walk_up(const char *root, const char *controller,
			uint64_t (*limit)(const char *folder))
{
	char folder[PATH_ROOM], top[PATH_ROOM];
	uint64_t least = 0;

	if (!cgroup_folder(root, controller, folder))
		return 0;
	snprintf(top, sizeof(top), "%s/sys/fs/cgroup", root);
	while (strlen(folder) >= strlen(top)) {
		uint64_t x = limit(folder);
		char *slash;

		if (x && (!least || x < least))
			least = x;
		slash = strrchr(folder, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	return least;
}

static bool read_in(const char *folder, const char *file, char *line, size_t size)
{
	char path[PATH_ROOM + 64];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return read_line(path, line, size);
}

static uint64_t cores(long long quota, long long period)
{
	return quota > 0 && period > 0 ? (uint64_t)((quota + period - 1) / period) : 0;
}

static uint64_t cpu_v2(const char *folder)
{
	long long quota, period;
	char line[128];

	if (!read_in(folder, "cpu.max", line, sizeof(line)) ||
	    sscanf(line, "%lld %lld", &quota, &period) != 2)
		return 0; /* "max 100000" */
	return cores(quota, period);
}

static uint64_t cpu_v1(const char *folder)
{
	char quota[64], period[64];

	if (!read_in(folder, "cpu.cfs_quota_us", quota, sizeof(quota)) ||
	    !read_in(folder, "cpu.cfs_period_us", period, sizeof(period)))
		return 0;
	return cores(atoll(quota), atoll(period));
}

static uint64_t memory_v2(const char *folder)
{
	char line[64];

	return read_in(folder, "memory.max", line, sizeof(line)) ? strtoull(line, NULL, 10) : 0;
}

static uint64_t memory_v1(const char *folder)
{
	char line[64];

	return read_in(folder, "memory.limit_in_bytes", line, sizeof(line))
		       ? strtoull(line, NULL, 10)
		       : 0;
}

unsigned cpus_quota_at(const char *root)
{
	uint64_t n = walk_up(root, NULL, cpu_v2);

	if (!n)
		n = walk_up(root, "cpu", cpu_v1);
	return n > 65536 ? 65536 : (unsigned)n;
}

uint64_t memory_limit_at(const char *root)
{
	uint64_t n = walk_up(root, NULL, memory_v2);

	return n ? n : walk_up(root, "memory", memory_v1);
}

static unsigned affinity(void)
{
	size_t size = CPU_ALLOC_SIZE(8192);
	cpu_set_t *set = CPU_ALLOC(8192);
	int n = 0;

	if (set && sched_getaffinity(0, size, set) == 0)
		n = CPU_COUNT_S(size, set);
	CPU_FREE(set);
	return n > 0 ? (unsigned)n : 1;
}

unsigned cpus_usable(void)
{
	unsigned n = affinity(), quota = cpus_quota_at("");

	return quota && quota < n ? quota : n;
}

uint64_t memory_usable(void)
{
	uint64_t limit = memory_limit_at(""), all = UINT64_MAX;
	struct sysinfo info;

	if (sysinfo(&info) == 0)
		all = (uint64_t)info.totalram * info.mem_unit;
	return limit && limit < all ? limit : all;
}

uint64_t fds_usable(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0)
		return 1024;
	return r.rlim_max > (1u << 30) ? 1u << 30 : r.rlim_max;
}
