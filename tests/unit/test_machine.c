/* test_machine.c -- limits of cgroups, v2 and v1, out of files made here. */
#include "unit.h"

#include "base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

/* Makes the folders on the way and the file. */
static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(path, 0700);
		*p = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static int make_root(void **state)
{
	(void)state;
	strcpy(root, "/tmp/culvert-machine-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void test_none(void **state)
{
	(void)state;
	assert_int_equal(cpus_quota_at(root), 0);
	assert_int_equal(memory_limit_at(root), 0);
	put("proc/self/cgroup", "0::/\n");
	put("sys/fs/cgroup/cpu.max", "max 100000\n");
	put("sys/fs/cgroup/memory.max", "max\n");
	assert_int_equal(cpus_quota_at(root), 0);
	assert_int_equal(memory_limit_at(root), 0);
}

static void test_v2(void **state)
{
	(void)state;
	put("proc/self/cgroup", "0::/a/b\n");
	put("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
	put("sys/fs/cgroup/a/b/memory.max", "1000000\n");
	assert_int_equal(cpus_quota_at(root), 3); /* rounded up */
	assert_int_equal(memory_limit_at(root), 1000000);
	/* The folder above has less. */
	put("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
	put("sys/fs/cgroup/a/memory.max", "4096\n");
	assert_int_equal(cpus_quota_at(root), 1);
	assert_int_equal(memory_limit_at(root), 4096);
}

static void test_v1(void **state)
{
	(void)state;
	put("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/\n");
	put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "200000\n");
	put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
	put("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "123456\n");
	assert_int_equal(cpus_quota_at(root), 2);
	assert_int_equal(memory_limit_at(root), 123456);
	put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n");
	assert_int_equal(cpus_quota_at(root), 0);
}

static void test_here(void **state)
{
	(void)state;
	assert_in_range(cpus_usable(), 1, 65536);
	assert_true(memory_usable() > 1 << 20);
	assert_true(fds_usable() >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_none, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_v2, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_v1, make_root, remove_root),
		cmocka_unit_test(test_here),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
