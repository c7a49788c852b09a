/* loop_world.h -- what the tests of loop/ share: a fresh loop per test, ops that remember what they
 * were told, and the table that runs every test on both real back ends, with multishot and without.
 *
 * The teardown frees the loop (which asserts that no op is armed and no seg is out) and finds as
 * many descriptors open as before.  Conditions are waited for by turning, never by time. */
#ifndef LOOP_WORLD_H
#define LOOP_WORLD_H

#include "loop/fault.h"
#include "loop/loop.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct config {
	const char *name;
	enum loop_io io;
	bool single_shot, no_limit;
};

static const struct config configs[] = {
	{ "io_uring", LOOP_URING, false, false },
	{ "epoll", LOOP_EPOLL, false, false },
	{ "io_uring, single-shot", LOOP_URING, true, false },
	{ "epoll, single-shot", LOOP_EPOLL, true, false },
	{ "io_uring, not limited", LOOP_URING, false, true },
};

struct world {
	const struct config *conf;
	struct fault_plan plan;
	struct budget budget;
	struct loop *loop;
	int fds_before;
	char why[128];
};

static bool in_turn; /* done(), ring(), run() and open() may run only while this is set */

static inline int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline int turn(struct world *w, uint32_t ms)
{
	int n;

	in_turn = true;
	n = loop_turn(w->loop, ms);
	in_turn = false;
	return n;
}

#define turn_until(w, cond)                                   \
	do {                                                  \
		for (int i_ = 0; i_ < 20000 && !(cond); i_++) \
			turn((w), 5);                         \
		assert_true(cond);                            \
	} while (0)

static inline struct loop *make_loop(struct world *w)
{
	struct loop_params par = { .io = w->conf->io, .budget = &w->budget, .fds_max = 20000 };

	w->plan.single_shot = w->conf->single_shot;
	w->plan.no_limit = w->conf->no_limit;
	if (w->plan.single_shot || w->plan.no_limit || w->plan.n_rules)
		par.fault = &w->plan;
	return loop_new(&par, w->why);
}

static inline bool uring_works(void)
{
	static int works = -1;
	char why[128];

	if (works < 0)
		works = loop_probe_uring(why) == 0;
	return works;
}

static inline int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	w->conf = *state;
	*state = w;
	w->budget.max = 256u << 20;
	w->fds_before = count_fds();
	if (w->conf->io == LOOP_URING && !uring_works())
		return 0;
	w->loop = make_loop(w);
	return w->loop ? 0 : -1;
}

static inline int teardown(void **state)
{
	struct world *w = *state;

	loop_free(&w->loop);
	assert_int_equal(count_fds(), w->fds_before);
	assert_int_equal(atomic_load(&w->budget.used), 0);
	free(w);
	return 0;
}

static inline struct world *the_world(void **state)
{
	struct world *w = *state;

	if (!w->loop)
		skip();
	return w;
}

/* A plan of faults needs a loop of its own. */
static inline void with_rules(struct world *w, const struct fault_rule *rules, uint32_t n)
{
	loop_free(&w->loop);
	memcpy(w->plan.rules, rules, n * sizeof(*rules));
	w->plan.n_rules = n;
	w->loop = make_loop(w);
	assert_non_null(w->loop);
}

/* --- ops that remember --- */
struct rec {
	struct op op;
	struct world *w;
	int32_t res; /* the last */
	int n;       /* reports */
	int n_idle;  /* that found it idle */
	int cancelled_seen;
	/* accept */
	int fd[64];
	int n_fd;
	/* recv */
	bool again; /* arm again as the contract says */
	bool hold;  /* keep the segs */
	enum seg_class cls;
	struct seg *held[1024];
	uint32_t n_held;
	uint8_t *bytes;
	uint64_t n_bytes, room;
	uint64_t turn, turn_bytes, turn_bytes_max;
	void (*then)(struct rec *);
};

static inline void on_done(struct op *op, int32_t res)
{
	struct rec *r = container_of(op, struct rec, op);

	assert_true(in_turn);
	r->res = res;
	r->n++;
	if (op_idle(op))
		r->n_idle++;
	if (op->state == OP_CANCELLING)
		r->cancelled_seen++;
	if (op->kind == OP_ACCEPT && res >= 0)
		r->fd[r->n_fd++] = res;
	if (r->then)
		r->then(r);
}

static inline void count_bytes(struct rec *r, uint32_t n)
{
	uint64_t at = loop_turns(r->w->loop);

	if (at != r->turn)
		r->turn_bytes = 0;
	r->turn = at;
	r->turn_bytes += n;
	if (r->turn_bytes > r->turn_bytes_max)
		r->turn_bytes_max = r->turn_bytes;
}

static inline void on_bytes(struct op *op, int32_t res)
{
	struct rec *r = container_of(op, struct rec, op);

	if (res > 0) {
		assert_non_null(op->seg);
		assert_int_equal(op->seg->used, res);
		count_bytes(r, (uint32_t)res);
		if (r->bytes && r->n_bytes + (uint32_t)res <= r->room)
			memcpy(r->bytes + r->n_bytes, op->seg->data, (size_t)res);
		r->n_bytes += (uint32_t)res;
		if (r->hold)
			r->held[r->n_held++] = op->seg;
		else
			seg_drop(&op->seg);
		op->seg = NULL;
	} else {
		assert_null(op->seg);
	}
	on_done(op, res);
	if (res > 0 && op_idle(op) && r->again)
		loop_recv(r->w->loop, op, op->fd, r->cls);
}

static inline void rec_init(struct rec *r, struct world *w, op_done_fn *done)
{
	memset(r, 0, sizeof(*r));
	r->w = w;
	r->again = true;
	op_init(&r->op, done);
}

static inline void start_recv(struct rec *r, struct world *w, int fd, enum seg_class cls,
			      uint64_t room)
{
	rec_init(r, w, on_bytes);
	r->cls = cls;
	r->room = room;
	r->bytes = room ? malloc(room) : NULL;
	loop_recv(w->loop, &r->op, fd, cls);
}

/* Ends a receive that may be armed. */
static inline void end_op(struct world *w, struct rec *r)
{
	r->again = false;
	loop_cancel(w->loop, &r->op);
	turn_until(w, op_idle(&r->op));
	free(r->bytes);
	r->bytes = NULL;
}

/* --- sockets of the tests' own --- */
static inline int listen_on(struct sockaddr_in *at, int backlog)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(*at);

	*at = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, &n), 0);
	return fd;
}

/* A TCP connection: sv[0] for the loop (non-blocking), sv[1] for the test (blocking). */
static inline void tcp_pair(int sv[2])
{
	struct sockaddr_in at;
	int l = listen_on(&at, 1), flags;

	sv[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(sv[1], (struct sockaddr *)&at, sizeof(at)), 0);
	flags = fcntl(l, F_GETFL);
	fcntl(l, F_SETFL, flags & ~O_NONBLOCK);
	sv[0] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(sv[0] >= 0);
	close(l);
}

static inline void put(int fd, const void *p, size_t n)
{
	assert_int_equal(write(fd, p, n), n);
}

/* --- the table of a test program: every row in every configuration, then the rows that need no
 * world --- */
struct row {
	const char *name;
	CMUnitTestFunction fn;
};
#define ROW(f)        \
	{             \
#f, f \
	}

static inline int run_rows(const char *group, const struct row *rows, size_t n_rows,
			   const struct row *bare, size_t n_bare)
{
	static struct CMUnitTest tests[256];
	static char names[256][80];
	size_t n = 0;

	assert_true(n_rows * ARRAY_LEN(configs) + n_bare <= ARRAY_LEN(tests));
	for (size_t c = 0; c < ARRAY_LEN(configs); c++) {
		for (size_t i = 0; i < n_rows; i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", configs[c].name,
				 rows[i].name);
			tests[n] = (struct CMUnitTest){ names[n], rows[i].fn, setup, teardown,
							(void *)(uintptr_t)&configs[c] };
		}
	}
	for (size_t i = 0; i < n_bare; i++, n++)
		tests[n] = (struct CMUnitTest){ .name = bare[i].name, .test_func = bare[i].fn };
	return _cmocka_run_group_tests(group, tests, n, NULL, NULL);
}

#endif
