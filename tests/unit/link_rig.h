/* link_rig.h -- a loop of either real back end with a link shard, and a plain blocking TCP socket
 * as the peer.  Conditions are waited for by turning, never by time. */
#ifndef TESTS_LINK_RIG_H
#define TESTS_LINK_RIG_H

#include "unit.h"

#include "link/link.h"
#include "loop/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct rig {
	enum loop_io io;
	struct budget budget;
	struct loop *loop;
	const struct fault_plan *fault;
	int fds_before;
};

#define rig_until(r, cond)                                   \
	do {                                                 \
		for (int i_ = 0; i_ < 4000 && !(cond); i_++) \
			loop_turn((r)->loop, 5);             \
		assert_true(cond);                           \
	} while (0)

static inline int rig_count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline bool rig_can_uring(void)
{
	static int works = -1;
	char why[128];

	if (works < 0)
		works = loop_probe_uring(why) == 0;
	return works;
}

static inline int rig_open(struct rig *r)
{
	struct loop_params par = { .io = r->io, .fds_max = 20000, .fault = r->fault };
	char why[128];

	r->budget.max = 256u << 20;
	par.budget = &r->budget;
	r->fds_before = rig_count_fds();
	r->loop = loop_new(&par, why);
	if (!r->loop)
		print_error("%s\n", why);
	return r->loop ? link_shard_open(r->loop) : -1;
}

/* All that was opened is closed again: descriptors, links, ops, alarms. */
static inline void rig_close(struct rig *r)
{
	rig_until(r, link_shard_idle(r->loop));
	link_shard_close(r->loop);
	loop_free(&r->loop);
	assert_int_equal(rig_count_fds(), r->fds_before);
}

static inline int rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->io = *(const enum loop_io *)*state;
	*state = r;
	if (r->io == LOOP_URING && !rig_can_uring())
		return 0;
	return rig_open(r);
}

static inline int rig_teardown(void **state)
{
	struct rig *r = *state;

	if (r->loop)
		rig_close(r);
	free(r);
	return 0;
}

static const enum loop_io rig_uring = LOOP_URING, rig_epoll = LOOP_EPOLL;

/* A test on both back ends; it begins with RIG(state). */
#define RIG_TEST(f)                                                                      \
	{ #f " (io_uring)", f, rig_setup, rig_teardown, (void *)(uintptr_t)&rig_uring }, \
	{                                                                                \
#f " (epoll)", f, rig_setup, rig_teardown, (void *)(uintptr_t)&rig_epoll \
	}

#define RIG(r, state)             \
	struct rig *r = *(state); \
	if (!r->loop) {           \
		skip();           \
		return;           \
	}

/* --- the peer --- */
static inline struct sockaddr_in rig_loopback(uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return in;
}

/* A listening socket on a free port of 127.0.0.1. */
static inline int rig_listen(uint16_t *port)
{
	struct sockaddr_in in = rig_loopback(0);
	socklen_t n = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
	*port = ntohs(in.sin_port);
	return fd;
}

static inline int rig_connect(uint16_t port)
{
	struct sockaddr_in in = rig_loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

/* Two connected sockets: *ours non-blocking, for a link; *theirs blocking. */
static inline void rig_pair(int *ours, int *theirs)
{
	uint16_t port;
	int l = rig_listen(&port);

	*theirs = rig_connect(port);
	*ours = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(*ours >= 0);
	close(l);
}

static inline void rig_reset(int fd)
{
	struct linger now = { 1, 0 };

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
}

#endif
