/* test_loop.c -- the contract of loop/loop.h, point by point, on both real back ends, with multishot and without.
 *
 * Every test gets a fresh loop; its teardown closes what is open, frees the loop (which asserts that no op is armed and no seg is
 * out) and finds as many descriptors open as before.  Conditions are waited for by turning, never by time. */
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
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct config {
	const char *name;
	enum loop_io io;
	bool single_shot;
};

static const struct config configs[] = {
	{ "io_uring", LOOP_URING, false },
	{ "epoll", LOOP_EPOLL, false },
	{ "io_uring, single-shot", LOOP_URING, true },
	{ "epoll, single-shot", LOOP_EPOLL, true },
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

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int turn(struct world *w, uint32_t ms)
{
	int n;

	in_turn = true;
	n = loop_turn(w->loop, ms);
	in_turn = false;
	return n;
}

#define turn_until(w, cond)                                    \
	do {                                                   \
		for (int i_ = 0; i_ < 20000 && !(cond); i_++)   \
			turn((w), 5);                          \
		assert_true(cond);                             \
	} while (0)

static struct loop *make_loop(struct world *w)
{
	struct loop_params par = { .io = w->conf->io, .budget = &w->budget, .fds_max = 20000 };

	w->plan.single_shot = w->conf->single_shot;
	if (w->plan.single_shot || w->plan.n_rules)
		par.fault = &w->plan;
	return loop_new(&par, w->why);
}

static bool uring_works(void)
{
	static int works = -1;
	char why[128];

	if (works < 0)
		works = loop_probe_uring(why) == 0;
	return works;
}

static int setup(void **state)
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

static int teardown(void **state)
{
	struct world *w = *state;

	loop_free(&w->loop);
	assert_int_equal(count_fds(), w->fds_before);
	assert_int_equal(atomic_load(&w->budget.used), 0);
	free(w);
	return 0;
}

static struct world *the_world(void **state)
{
	struct world *w = *state;

	if (!w->loop)
		skip();
	return w;
}

/* A plan of faults needs a loop of its own. */
static void with_rules(struct world *w, const struct fault_rule *rules, uint32_t n)
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
	int32_t res;       /* the last */
	int n;             /* reports */
	int n_idle;        /* that found it idle */
	int cancelled_seen;
	/* accept */
	int fd[64];
	int n_fd;
	/* recv */
	bool again;        /* arm again as the contract says */
	bool hold;         /* keep the segs */
	enum seg_class cls;
	struct seg *held[1024];
	uint32_t n_held;
	uint8_t *bytes;
	uint64_t n_bytes, room;
	uint64_t turn, turn_bytes, turn_bytes_max;
	void (*then)(struct rec *);
};

static void on_done(struct op *op, int32_t res)
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

static void count_bytes(struct rec *r, uint32_t n)
{
	uint64_t at = loop_turns(r->w->loop);

	if (at != r->turn)
		r->turn_bytes = 0;
	r->turn = at;
	r->turn_bytes += n;
	if (r->turn_bytes > r->turn_bytes_max)
		r->turn_bytes_max = r->turn_bytes;
}

static void on_bytes(struct op *op, int32_t res)
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

static void rec_init(struct rec *r, struct world *w, op_done_fn *done)
{
	memset(r, 0, sizeof(*r));
	r->w = w;
	r->again = true;
	op_init(&r->op, done);
}

static void start_recv(struct rec *r, struct world *w, int fd, enum seg_class cls, uint64_t room)
{
	rec_init(r, w, on_bytes);
	r->cls = cls;
	r->room = room;
	r->bytes = room ? malloc(room) : NULL;
	loop_recv(w->loop, &r->op, fd, cls);
}

/* Ends a receive that may be armed. */
static void end_op(struct world *w, struct rec *r)
{
	r->again = false;
	loop_cancel(w->loop, &r->op);
	turn_until(w, op_idle(&r->op));
	free(r->bytes);
	r->bytes = NULL;
}

/* --- sockets of the tests' own --- */
static int listen_on(struct sockaddr_in *at, int backlog)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(*at);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, &n), 0);
	return fd;
}

/* A TCP connection: sv[0] for the loop (non-blocking), sv[1] for the test (blocking). */
static void tcp_pair(int sv[2])
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

static void put(int fd, const void *p, size_t n)
{
	assert_int_equal(write(fd, p, n), n);
}

/* --- accept and connect --- */
static void accept_many(void **state)
{
	struct world *w = the_world(state);
	struct sockaddr_in at;
	struct rec acc, con[5];
	int l = listen_on(&at, 16), cfd[5];

	rec_init(&acc, w, on_done);
	loop_accept(w->loop, &acc.op, l, false);
	for (int i = 0; i < 5; i++) {
		rec_init(&con[i], w, on_done);
		cfd[i] = loop_socket(w->loop, AF_INET, SOCK_STREAM);
		assert_true(cfd[i] >= 0);
		loop_connect(w->loop, &con[i].op, cfd[i], (struct sockaddr *)&at, sizeof(at));
		assert_int_equal(con[i].n, 0);
		turn_until(w, op_idle(&con[i].op) && acc.n_fd == i + 1);
		assert_int_equal(con[i].res, 0);
		assert_int_equal(con[i].n, 1);
		if (w->conf->single_shot) {
			assert_true(op_idle(&acc.op));
			loop_accept(w->loop, &acc.op, l, false);
		}
		assert_int_equal(acc.op.state, OP_ARMED);
	}
	for (int i = 0; i < 5; i++) {
		assert_true(fcntl(acc.fd[i], F_GETFL) & O_NONBLOCK);
		assert_true(fcntl(acc.fd[i], F_GETFD) & FD_CLOEXEC);
		loop_close(w->loop, acc.fd[i]);
		loop_close(w->loop, cfd[i]);
	}
	end_op(w, &acc);
	assert_int_equal(acc.res, -ECANCELED);
	loop_close(w->loop, l);
}

static void accept_shared_is_single(void **state)
{
	struct world *w = the_world(state);
	struct sockaddr_in at;
	struct rec acc;
	int l = listen_on(&at, 16), c[3];

	for (int i = 0; i < 3; i++) {
		c[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(c[i], (struct sockaddr *)&at, sizeof(at)), 0);
	}
	rec_init(&acc, w, on_done);
	for (int i = 0; i < 3; i++) {
		loop_accept(w->loop, &acc.op, l, true);
		turn_until(w, op_idle(&acc.op));
		assert_int_equal(acc.n, i + 1);
		loop_close(w->loop, acc.fd[i]);
		close(c[i]);
	}
	loop_close(w->loop, l);
}

static void accept_without_descriptors(void **state)
{
	struct world *w = the_world(state);
	struct rlimit was, now;
	struct sockaddr_in at;
	struct rec acc;
	int l = listen_on(&at, 16), c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(c);

	rec_init(&acc, w, on_done);
	assert_int_equal(connect(c, (struct sockaddr *)&at, sizeof(at)), 0);
	close(next);
	getrlimit(RLIMIT_NOFILE, &was);
	now = was;
	now.rlim_cur = (rlim_t)next; /* the lowest free number is one too many */
	setrlimit(RLIMIT_NOFILE, &now);
	loop_accept(w->loop, &acc.op, l, false);
	turn_until(w, op_idle(&acc.op));
	setrlimit(RLIMIT_NOFILE, &was);
	assert_int_equal(acc.res, -EMFILE);
	loop_accept(w->loop, &acc.op, l, false);
	turn_until(w, acc.n_fd == 1);
	end_op(w, &acc);
	loop_close(w->loop, acc.fd[0]);
	loop_close(w->loop, l);
	close(c);
}

static void connect_refused(void **state)
{
	struct world *w = the_world(state);
	struct sockaddr_in at;
	struct rec con;
	int l = listen_on(&at, 1), fd = loop_socket(w->loop, AF_INET, SOCK_STREAM);

	close(l);
	rec_init(&con, w, on_done);
	loop_connect(w->loop, &con.op, fd, (struct sockaddr *)&at, sizeof(at));
	memset(&at, 0, sizeof(at)); /* borrowed during the call only */
	turn_until(w, op_idle(&con.op));
	assert_int_equal(con.res, -ECONNREFUSED);
	loop_close(w->loop, fd);
}

/* The backlog is full, so the connect hangs until it is cancelled. */
static void connect_cancelled(void **state)
{
	struct world *w = the_world(state);
	struct sockaddr_in at;
	struct rec con[4];
	int l = listen_on(&at, 0), fd[4], pending = 0;

	for (int i = 0; i < 4; i++) {
		rec_init(&con[i], w, on_done);
		fd[i] = loop_socket(w->loop, AF_INET, SOCK_STREAM);
		loop_connect(w->loop, &con[i].op, fd[i], (struct sockaddr *)&at, sizeof(at));
	}
	turn_until(w, op_idle(&con[0].op));
	for (int i = 0; i < 4; i++) {
		loop_cancel(w->loop, &con[i].op);
		pending += con[i].op.state == OP_CANCELLING;
	}
	assert_true(pending > 0);
	for (int i = 0; i < 4; i++) {
		turn_until(w, op_idle(&con[i].op));
		assert_int_equal(con[i].n, 1);
		assert_true(con[i].res == 0 || con[i].res == -ECANCELED);
		loop_close(w->loop, fd[i]);
	}
	assert_int_equal(con[3].res, -ECANCELED);
	close(l);
}

/* --- receive and send --- */
static void echo_small(void **state)
{
	struct world *w = the_world(state);
	struct rec in, out;
	char back[16] = "";
	int sv[2];

	tcp_pair(sv);
	start_recv(&in, w, sv[0], SEG_SMALL, 64);
	for (int i = 0; i < 3; i++) {
		put(sv[1], "hello", 5);
		turn_until(w, in.n_bytes == 5 * (uint64_t)(i + 1));
		assert_int_equal(in.op.state, OP_ARMED); /* multishot, or armed again */
	}
	assert_memory_equal(in.bytes, "hellohellohello", 15);
	assert_int_equal(in.n, 3);
	rec_init(&out, w, on_done);
	loop_send(w->loop, &out.op, sv[0], &(struct iovec){ .iov_base = (void *)(uintptr_t) "answer", .iov_len = 6 }, 1);
	assert_int_equal(out.n, 0); /* never inside a submit */
	turn_until(w, op_idle(&out.op));
	assert_int_equal(out.res, 6);
	assert_int_equal(read(sv[1], back, sizeof(back)), 6);
	assert_memory_equal(back, "answer", 6);
	end_op(w, &in);
	assert_int_equal(in.res, -ECANCELED);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

static void send_gathered(void **state)
{
	struct world *w = the_world(state);
	uint8_t bytes[LOOP_IOV], back[LOOP_IOV + 1];
	struct iovec iov[LOOP_IOV];
	struct rec out;
	int sv[2];

	tcp_pair(sv);
	for (int i = 0; i < LOOP_IOV; i++) {
		bytes[i] = (uint8_t)(i * 7);
		iov[i] = (struct iovec){ .iov_base = &bytes[i], .iov_len = 1 };
	}
	rec_init(&out, w, on_done);
	loop_send(w->loop, &out.op, sv[0], iov, LOOP_IOV);
	memset(iov, 0, sizeof(iov)); /* the array was copied */
	turn_until(w, op_idle(&out.op));
	assert_int_equal(out.res, LOOP_IOV);
	assert_int_equal(read(sv[1], back, sizeof(back)), LOOP_IOV);
	assert_memory_equal(back, bytes, LOOP_IOV);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

/* More gathered sends in one turn than the back end has scratch for. */
static void send_gathered_on_many(void **state)
{
	enum { N = 200 };
	struct world *w = the_world(state);
	static struct rec out[N];
	static int sv[N][2];
	struct iovec iov[LOOP_IOV];
	char back[LOOP_IOV + 1];

	for (int i = 0; i < LOOP_IOV; i++)
		iov[i] = (struct iovec){ .iov_base = (void *)(uintptr_t) "x", .iov_len = 1 };
	for (int i = 0; i < N; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv[i]), 0);
		rec_init(&out[i], w, on_done);
		loop_send(w->loop, &out[i].op, sv[i][0], iov, LOOP_IOV);
	}
	for (int i = 0; i < N; i++) {
		turn_until(w, op_idle(&out[i].op));
		assert_int_equal(out[i].res, LOOP_IOV);
		assert_int_equal(read(sv[i][1], back, sizeof(back)), LOOP_IOV);
		loop_close(w->loop, sv[i][0]);
		close(sv[i][1]);
	}
}

struct pump {
	int fd;
	uint64_t n;
	const uint8_t *bytes;
};

static void *pump_bytes(void *arg)
{
	struct pump *p = arg;
	uint64_t at = 0;

	while (at < p->n) {
		ssize_t n = write(p->fd, p->bytes + at, p->n - at);

		if (n <= 0)
			return NULL;
		at += (uint64_t)n;
	}
	shutdown(p->fd, SHUT_WR);
	return NULL;
}

/* Everything arrives, in order, and no turn brings more than LOOP_RECV_TURN and the seg that crossed it. */
static void recv_bulk(struct world *w, enum seg_class cls)
{
	struct pump p = { .n = 8u << 20 };
	uint8_t *bytes = malloc(p.n);
	pthread_t t;
	struct rec in;
	int sv[2];

	for (uint64_t i = 0; i < p.n; i++)
		bytes[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
	tcp_pair(sv);
	p.fd = sv[1];
	p.bytes = bytes;
	assert_int_equal(pthread_create(&t, NULL, pump_bytes, &p), 0);
	start_recv(&in, w, sv[0], cls, p.n);
	turn_until(w, op_idle(&in.op));
	pthread_join(t, NULL);
	assert_int_equal(in.res, 0); /* the end */
	assert_int_equal(in.n_bytes, p.n);
	assert_memory_equal(in.bytes, bytes, p.n);
	if (!strstr(w->why, "not limited"))
		assert_true(in.turn_bytes_max < LOOP_RECV_TURN + loop_segs(w->loop, cls)->cap);
	free(in.bytes);
	free(bytes);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

static void recv_bulk_small(void **state)
{
	recv_bulk(the_world(state), SEG_SMALL);
}

static void recv_bulk_large(void **state)
{
	recv_bulk(the_world(state), SEG_LARGE);
}

/* One that floods does not keep the others waiting. */
static void recv_is_fair(void **state)
{
	struct world *w = the_world(state);
	struct rec flood, calm;
	struct pump p = { .n = 16u << 20 };
	uint8_t *bytes = calloc(1, p.n);
	int f[2], c[2];
	pthread_t t;

	tcp_pair(f);
	tcp_pair(c);
	p.fd = f[1];
	p.bytes = bytes;
	assert_int_equal(pthread_create(&t, NULL, pump_bytes, &p), 0);
	start_recv(&flood, w, f[0], SEG_SMALL, 0);
	start_recv(&calm, w, c[0], SEG_SMALL, 64);
	turn_until(w, flood.n_bytes > LOOP_RECV_TURN);
	put(c[1], "me too", 6);
	for (int i = 0; i < 8 && calm.n_bytes < 6; i++)
		turn(w, 5);
	assert_int_equal(calm.n_bytes, 6);
	turn_until(w, op_idle(&flood.op));
	assert_int_equal(flood.n_bytes, p.n);
	pthread_join(t, NULL);
	end_op(w, &calm);
	free(bytes);
	loop_close(w->loop, f[0]);
	loop_close(w->loop, c[0]);
	close(f[1]);
	close(c[1]);
}

static void data_and_end_together(void **state)
{
	struct world *w = the_world(state);

	for (int armed_first = 0; armed_first < 2; armed_first++) {
		struct rec in;
		int sv[2];

		tcp_pair(sv);
		if (armed_first) {
			start_recv(&in, w, sv[0], SEG_SMALL, 16);
			turn(w, 0);
		}
		put(sv[1], "last words", 10);
		close(sv[1]);
		if (!armed_first)
			start_recv(&in, w, sv[0], SEG_SMALL, 16);
		turn_until(w, op_idle(&in.op));
		assert_int_equal(in.n_bytes, 10);
		assert_int_equal(in.res, 0);
		assert_int_equal(in.n_idle, w->conf->single_shot ? 2 : 1);
		/* The end can be heard again. */
		loop_recv(w->loop, &in.op, sv[0], SEG_SMALL);
		turn_until(w, op_idle(&in.op));
		assert_int_equal(in.res, 0);
		free(in.bytes);
		loop_close(w->loop, sv[0]);
	}
}

static void recv_end_and_reset(void **state)
{
	struct world *w = the_world(state);
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	for (int reset = 0; reset < 2; reset++) {
		struct rec in;
		int sv[2];

		tcp_pair(sv);
		start_recv(&in, w, sv[0], SEG_SMALL, 0);
		turn(w, 0);
		assert_int_equal(in.n, 0);
		if (reset)
			setsockopt(sv[1], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(sv[1]);
		turn_until(w, op_idle(&in.op));
		assert_int_equal(in.res, reset ? -ECONNRESET : 0);
		assert_int_equal(in.n, 1);
		loop_close(w->loop, sv[0]);
	}
}

/* The peer does not read: the send reports what fitted, the next one waits, and goes on when there is room. */
static void send_waits_for_room(void **state)
{
	struct world *w = the_world(state);
	size_t n = 8u << 20;
	uint8_t *bytes = calloc(1, n), *back = malloc(n);
	struct iovec iov[2] = { { .iov_base = bytes, .iov_len = n / 2 }, { .iov_base = bytes + n / 2, .iov_len = n / 2 } };
	struct rec out;
	uint64_t sent = 0, got = 0;
	int sv[2];

	tcp_pair(sv);
	fcntl(sv[1], F_SETFL, O_NONBLOCK);
	rec_init(&out, w, on_done);
	for (int i = 0; i < 64; i++) { /* until it hangs */
		loop_send(w->loop, &out.op, sv[0], iov, 2);
		for (int k = 0; k < 3 && !op_idle(&out.op); k++)
			turn(w, 1);
		if (!op_idle(&out.op))
			break;
		assert_true(out.res > 0);
		sent += (uint64_t)out.res;
	}
	assert_int_equal(out.op.state, OP_ARMED);
	while (!op_idle(&out.op)) {
		ssize_t r = read(sv[1], back, n);

		got += r > 0 ? (uint64_t)r : 0;
		turn(w, 1);
	}
	assert_true(out.res > 0);
	sent += (uint64_t)out.res;
	while (got < sent) {
		ssize_t r = read(sv[1], back, n);

		got += r > 0 ? (uint64_t)r : 0;
	}
	assert_int_equal(got, sent);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
	free(bytes);
	free(back);
}

/* Until not one byte more fits. */
static void fill(int fd)
{
	static const uint8_t bytes[65536];

	for (size_t n = sizeof(bytes); n > 0; n /= 2)
		while (write(fd, bytes, n) > 0)
			;
	assert_int_equal(errno, EAGAIN);
}

static void send_cancelled(void **state)
{
	struct world *w = the_world(state);

	for (unsigned n = 1; n <= 2; n++) {
		struct iovec iov[2] = { { .iov_base = (void *)(uintptr_t) "a", .iov_len = 1 },
					{ .iov_base = (void *)(uintptr_t) "b", .iov_len = 1 } };
		struct rec out;
		int sv[2];

		tcp_pair(sv);
		fill(sv[0]);
		rec_init(&out, w, on_done);
		loop_send(w->loop, &out.op, sv[0], iov, n);
		turn(w, 0);
		turn(w, 0);
		assert_int_equal(out.op.state, OP_ARMED);
		loop_cancel(w->loop, &out.op);
		assert_int_equal(out.op.state, OP_CANCELLING);
		loop_cancel(w->loop, &out.op);
		assert_int_equal(out.n, 0);
		turn_until(w, op_idle(&out.op));
		assert_int_equal(out.res, -ECANCELED);
		loop_close(w->loop, sv[0]);
		close(sv[1]);
	}
}

static void send_to_the_gone(void **state)
{
	struct world *w = the_world(state);
	struct iovec iov = { .iov_base = (void *)(uintptr_t) "x", .iov_len = 1 };
	struct rec out;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv), 0);
	close(sv[1]);
	rec_init(&out, w, on_done);
	loop_send(w->loop, &out.op, sv[0], &iov, 1); /* no SIGPIPE */
	turn_until(w, op_idle(&out.op));
	assert_int_equal(out.res, -EPIPE);
	loop_close(w->loop, sv[0]);
}

/* --- memory --- */
/* The ring (or pool) runs dry while the owner keeps the segs: it hears -ENOBUFS, and nothing is lost. */
static void no_memory_for_bytes(void **state)
{
	struct world *w = the_world(state);
	struct seg_pool *pool = loop_segs(w->loop, SEG_SMALL);
	static struct seg *mine[4096];
	uint64_t total = 2u << 20;
	uint8_t *bytes = malloc(total);
	struct pump p = { .n = total, .bytes = bytes };
	uint32_t n_mine = 0;
	struct rec in;
	pthread_t t;
	int sv[2];

	for (uint64_t i = 0; i < total; i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	tcp_pair(sv);
	mine[n_mine++] = seg_get(pool);
	w->budget.max = atomic_load(&w->budget.used);
	while (n_mine < 4096 && (mine[n_mine] = seg_get(pool)))
		n_mine++;
	if (w->conf->io == LOOP_EPOLL) /* it has no ring: give it some to hold */
		for (int i = 0; i < 8 && n_mine > 0; i++)
			seg_drop(&mine[--n_mine]);
	start_recv(&in, w, sv[0], SEG_SMALL, total);
	in.hold = true;
	p.fd = sv[1];
	assert_int_equal(pthread_create(&t, NULL, pump_bytes, &p), 0);
	turn_until(w, op_idle(&in.op));
	assert_int_equal(in.res, -ENOBUFS);
	assert_true(in.n_bytes < total);
	for (uint32_t i = 0; i < in.n_held; i++)
		seg_drop(&in.held[i]);
	for (uint32_t i = 0; i < n_mine; i++)
		seg_drop(&mine[i]);
	in.hold = false;
	loop_recv(w->loop, &in.op, sv[0], SEG_SMALL);
	turn_until(w, op_idle(&in.op));
	pthread_join(t, NULL);
	assert_int_equal(in.res, 0);
	assert_int_equal(in.n_bytes, total);
	assert_memory_equal(in.bytes, bytes, total);
	free(in.bytes);
	free(bytes);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

/* More receives at once than the ring has buffers: all get their bytes, no owner hears of it; some are cancelled while they wait. */
static void more_receives_than_buffers(void **state)
{
	enum { N = 700 };
	struct world *w = the_world(state);
	static struct rec in[N];
	static int sv[N][2];
	uint8_t bytes[3000] = "";
	uint64_t got;

	for (int i = 0; i < N; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv[i]), 0);
		start_recv(&in[i], w, sv[i][0], i & 1 ? SEG_SMALL : SEG_LARGE, 0);
	}
	turn(w, 0);
	for (int round = 1; round <= 3; round++) {
		for (int i = 0; i < N; i++)
			put(sv[i][1], bytes, sizeof(bytes));
		for (int k = 0; k < 200; k++) {
			got = 0;
			turn(w, 1);
			for (int i = 0; i < N; i++)
				got += in[i].n_bytes;
			if (got == (uint64_t)round * N * sizeof(bytes))
				break;
		}
		assert_int_equal(got, (uint64_t)round * N * sizeof(bytes));
	}
	for (int i = 0; i < N; i++) {
		assert_true(in[i].res > 0);
		put(sv[i][1], bytes, sizeof(bytes));
	}
	turn(w, 1);
	for (int i = 0; i < N; i++) {
		in[i].again = false;
		loop_cancel(w->loop, &in[i].op);
		loop_close(w->loop, sv[i][0]);
	}
	for (int i = 0; i < N; i++) {
		turn_until(w, op_idle(&in[i].op));
		close(sv[i][1]);
	}
}

/* --- close --- */
/* Close with ops armed: they are done, FIN goes out, and the number's next owner is not disturbed. */
static void close_with_ops_armed(void **state)
{
	struct world *w = the_world(state);
	struct iovec iov = { .iov_base = (void *)(uintptr_t) "x", .iov_len = 1 };

	for (int i = 0; i < 50; i++) {
		struct rec in, out, pol, in2;
		struct pollfd p = { .events = POLLIN };
		int sv[2], sw[2];
		char c;

		tcp_pair(sv);
		start_recv(&in, w, sv[0], SEG_SMALL, 0);
		rec_init(&pol, w, on_done);
		loop_poll(w->loop, &pol.op, sv[0], POLLRDHUP);
		rec_init(&out, w, on_done);
		if (i & 1) {
			fill(sv[0]);
			loop_send(w->loop, &out.op, sv[0], &iov, 1);
		}
		if (i & 2)
			turn(w, 0);
		if (i & 4)
			put(sv[1], "late", 4);
		in.again = false;
		loop_close(w->loop, sv[0]);
		assert_int_equal(in.n + out.n + pol.n, 0);
		if (i & 8)
			turn(w, 0);
		/* Its number may be given out again at once. */
		tcp_pair(sw);
		start_recv(&in2, w, sw[0], SEG_SMALL, 16);
		put(sw[1], "new", 3);
		turn_until(w, op_idle(&in.op) && op_idle(&out.op) && op_idle(&pol.op) && in2.n_bytes == 3);
		assert_true(in.res == -ECANCELED || in.res > 0);
		assert_int_equal(pol.n, 1);
		assert_memory_equal(in2.bytes, "new", 3);
		p.fd = sv[1];
		turn(w, 0);
		turn(w, 0);
		assert_int_equal(poll(&p, 1, 1000), 1); /* FIN, or RST where bytes were left unread */
		if (!(i & 5))
			assert_int_equal(read(sv[1], &c, 1), 0);
		close(sv[1]);
		end_op(w, &in2);
		loop_close(w->loop, sw[0]);
		close(sw[1]);
	}
}

static void close_with_linger_resets(void **state)
{
	struct world *w = the_world(state);
	struct linger now = { .l_onoff = 1, .l_linger = 0 };
	struct rec in;
	int sv[2];
	char c;

	tcp_pair(sv);
	start_recv(&in, w, sv[0], SEG_SMALL, 0);
	turn(w, 0);
	assert_int_equal(loop_sockopt(w->loop, sv[0], SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	loop_close(w->loop, sv[0]);
	turn_until(w, op_idle(&in.op));
	turn(w, 0);
	assert_int_equal(read(sv[1], &c, 1), -1);
	assert_int_equal(errno, ECONNRESET);
	close(sv[1]);
}

static void close_inside_done(struct rec *r)
{
	loop_close(r->w->loop, r->op.fd);
	r->again = false;
	r->then = NULL;
}

/* done() closes its own descriptor while more bytes are there. */
static void close_from_done(void **state)
{
	struct world *w = the_world(state);
	static const uint8_t bytes[32768];
	struct rec in;
	int sv[2];

	tcp_pair(sv);
	put(sv[1], bytes, sizeof(bytes));
	start_recv(&in, w, sv[0], SEG_SMALL, 0);
	in.then = close_inside_done;
	turn_until(w, op_idle(&in.op));
	turn(w, 0);
	close(sv[1]);
}

static void shutdown_at_once(void **state)
{
	struct world *w = the_world(state);
	int sv[2];
	char c;

	tcp_pair(sv);
	assert_int_equal(loop_shutdown(w->loop, sv[0], SHUT_WR), 0);
	assert_int_equal(read(sv[1], &c, 1), 0);
	loop_close(w->loop, sv[0]);
	assert_int_equal(loop_shutdown(w->loop, 19999, SHUT_WR), -EBADF);
	close(sv[1]);
}

/* --- poll --- */
static void poll_levels(void **state)
{
	struct world *w = the_world(state);
	struct rec in, pol;
	char c;
	int sv[2];

	tcp_pair(sv);
	rec_init(&pol, w, on_done);
	loop_poll(w->loop, &pol.op, sv[0], POLLOUT);
	turn_until(w, op_idle(&pol.op));
	assert_int_equal(pol.res, POLLOUT);
	loop_poll(w->loop, &pol.op, sv[0], POLLIN);
	turn(w, 0);
	assert_int_equal(pol.op.state, OP_ARMED);
	put(sv[1], "ab", 2);
	turn_until(w, op_idle(&pol.op));
	assert_int_equal(pol.res, POLLIN);
	assert_int_equal(read(sv[0], &c, 1), 1); /* one is left: still readable */
	loop_poll(w->loop, &pol.op, sv[0], POLLIN);
	turn_until(w, op_idle(&pol.op));
	assert_int_equal(pol.res, POLLIN);
	assert_int_equal(read(sv[0], &c, 1), 1);
	loop_poll(w->loop, &pol.op, sv[0], POLLIN); /* drained: not readable */
	turn(w, 0);
	turn(w, 1);
	assert_int_equal(pol.op.state, OP_ARMED);
	loop_cancel(w->loop, &pol.op);
	turn_until(w, op_idle(&pol.op));
	assert_int_equal(pol.res, -ECANCELED);
	/* Beside a receive, for the end of the stream. */
	start_recv(&in, w, sv[0], SEG_SMALL, 16);
	loop_poll(w->loop, &pol.op, sv[0], POLLRDHUP);
	put(sv[1], "cd", 2);
	turn_until(w, in.n_bytes == 2);
	assert_int_equal(pol.op.state, OP_ARMED);
	shutdown(sv[1], SHUT_WR);
	turn_until(w, op_idle(&pol.op) && op_idle(&in.op));
	assert_int_equal(pol.res & POLLRDHUP, POLLRDHUP);
	assert_int_equal(in.res, 0);
	free(in.bytes);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

/* A receive is paused: the bytes wait in the kernel, the poll still hears the abort, and a new receive gets the bytes. */
static void paused_receive(void **state)
{
	struct world *w = the_world(state);
	struct rec in, pol;
	int sv[2];

	tcp_pair(sv);
	start_recv(&in, w, sv[0], SEG_SMALL, 32);
	put(sv[1], "one", 3);
	turn_until(w, in.n_bytes == 3);
	in.again = false;
	loop_cancel(w->loop, &in.op);
	turn_until(w, op_idle(&in.op));
	assert_int_equal(in.res, -ECANCELED);
	rec_init(&pol, w, on_done);
	loop_poll(w->loop, &pol.op, sv[0], POLLRDHUP);
	put(sv[1], "two", 3);
	turn(w, 1);
	turn(w, 1);
	assert_int_equal(in.n_bytes, 3);
	close(sv[1]);
	turn_until(w, op_idle(&pol.op));
	in.again = true;
	loop_recv(w->loop, &in.op, sv[0], SEG_SMALL);
	turn_until(w, op_idle(&in.op));
	assert_int_equal(in.res, 0);
	assert_memory_equal(in.bytes, "onetwo", 6);
	free(in.bytes);
	loop_close(w->loop, sv[0]);
}

/* --- tasks, alarms, clock --- */
struct note {
	struct task task;
	struct alarm alarm;
	struct mail mail;
	struct world *w;
	struct note *soon, *late, *off;
	char name;
};

static char noted[256];

static void note_down(char c)
{
	assert_true(in_turn);
	noted[strlen(noted)] = c;
}

static void run_note(struct task *t)
{
	struct note *n = container_of(t, struct note, task);

	note_down(n->name);
	if (n->soon)
		loop_soon(n->w->loop, &n->soon->task);
	if (n->late)
		loop_late(n->w->loop, &n->late->task);
	if (n->off)
		loop_task_off(n->w->loop, &n->off->task);
}

static void ring_note(struct alarm *a)
{
	note_down(container_of(a, struct note, alarm)->name);
}

static void open_note(struct loop *loop, struct mail *m)
{
	(void)loop;
	note_down(container_of(m, struct note, mail)->name);
}

static void notes(struct note *n, struct world *w, const char *names)
{
	memset(noted, 0, sizeof(noted));
	for (; *names; names++, n++) {
		memset(n, 0, sizeof(*n));
		n->w = w;
		n->name = *names;
		n->mail.open = open_note;
		task_init(&n->task, run_note);
		alarm_init(&n->alarm, ring_note);
	}
}

static void tasks_in_order(void **state)
{
	struct world *w = the_world(state);
	struct note n[6];

	notes(n, w, "abcdef");
	n[0].soon = &n[2]; /* a queues c: runs this turn */
	n[3].late = &n[4]; /* d, late, queues e late: next turn */
	n[3].soon = &n[5]; /* and f soon: next turn */
	loop_late(w->loop, &n[3].task);
	loop_soon(w->loop, &n[0].task);
	loop_soon(w->loop, &n[1].task);
	loop_soon(w->loop, &n[0].task); /* queued already */
	assert_true(task_queued(&n[0].task));
	turn(w, 10000); /* does not sleep */
	assert_string_equal(noted, "abcd");
	assert_false(task_queued(&n[0].task));
	turn(w, 10000);
	assert_string_equal(noted, "abcdfe");
	assert_int_equal(turn(w, 0), 0);
}

static void tasks_taken_off(void **state)
{
	struct world *w = the_world(state);
	struct note n[4];

	for (int out = 0; out < 4; out++) {
		char want[5] = "abcd";

		notes(n, w, "abcd");
		for (int i = 0; i < 4; i++)
			loop_soon(w->loop, &n[i].task);
		loop_task_off(w->loop, &n[out].task);
		loop_task_off(w->loop, &n[out].task);
		assert_false(task_queued(&n[out].task));
		memmove(want + out, want + out + 1, 4 - (size_t)out);
		turn(w, 0);
		assert_string_equal(noted, want);
	}
	notes(n, w, "abcd"); /* the last of the late ones, taken off by the first */
	n[0].off = &n[2];
	n[0].late = &n[3];
	for (int i = 0; i < 3; i++)
		loop_late(w->loop, &n[i].task);
	turn(w, 0);
	turn(w, 0);
	assert_string_equal(noted, "abd");
}

static void alarms_ring(void **state)
{
	struct world *w = the_world(state);
	struct note n[3];
	uint64_t t0, t;

	notes(n, w, "abc");
	turn(w, 0);
	t0 = loop_now_us(w->loop);
	loop_alarm(w->loop, &n[0].alarm, 20);
	loop_alarm(w->loop, &n[1].alarm, 10);
	loop_alarm(w->loop, &n[2].alarm, 5);
	loop_alarm_off(&n[2].alarm);
	for (int i = 0; i < 100 && strlen(noted) < 2; i++)
		turn(w, 60000); /* wakes for the alarm */
	t = loop_now_us(w->loop);
	assert_string_equal(noted, "ba");
	assert_true(t - t0 >= 20000);
	assert_true(t - t0 < 10000000);
}

static void turn_order(void **state)
{
	struct world *w = the_world(state);
	struct note n[4];
	struct rec in;
	int sv[2];

	notes(n, w, "mast");
	tcp_pair(sv);
	put(sv[1], "x", 1);
	start_recv(&in, w, sv[0], SEG_SMALL, 0);
	assert_true(loop_post(w->loop, &n[0].mail));
	loop_alarm(w->loop, &n[1].alarm, 0);
	loop_soon(w->loop, &n[2].task);
	loop_late(w->loop, &n[3].task);
	for (uint64_t until = loop_now_us(w->loop) + 2000; loop_now_us(w->loop) < until;) { /* the alarm is due */
		struct timespec ts = { .tv_nsec = 3000000 };

		nanosleep(&ts, NULL);
		turn(w, 0);
	}
	assert_string_equal(noted, "mast");
	turn_until(w, in.n_bytes == 1);
	end_op(w, &in);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

static void clocks_and_randomness(void **state)
{
	struct world *w = the_world(state);
	uint8_t a[300], b[300];
	struct str d;
	struct tm tm;
	char want[64];
	time_t s;

	turn(w, 0);
	assert_true(llabs(loop_wall_us(w->loop) / 1000000 - (int64_t)time(NULL)) <= 1);
	assert_int_equal(loop_now_ms(w->loop), loop_now_us(w->loop) / 1000);
	s = (time_t)(loop_wall_us(w->loop) / 1000000);
	strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&s, &tm));
	d = loop_http_date(w->loop);
	assert_int_equal(d.n, 29);
	assert_memory_equal(d.p, want, 29);
	loop_random(w->loop, a, sizeof(a));
	loop_random(w->loop, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
}

/* --- mail --- */
#define MAILS 20000
#define POSTERS 4
struct letter {
	struct mail mail;
	int from, nr;
};

static struct letter letters[POSTERS][MAILS];
static int last_nr[POSTERS], n_opened;
static struct loop *letter_loop;
static sem_t answered;

static void open_letter(struct loop *loop, struct mail *m)
{
	struct letter *l = container_of(m, struct letter, mail);

	assert_ptr_equal(loop, letter_loop);
	assert_int_equal(l->nr, last_nr[l->from] + 1); /* in order, none twice */
	last_nr[l->from] = l->nr;
	n_opened++;
	if (l->nr % 16 == 0)
		sem_post(&answered);
}

static void *post_letters(void *arg)
{
	struct letter *l = arg;

	for (int i = 0; i < MAILS; i++) {
		if (!loop_post(letter_loop, &l[i].mail))
			return (void *)1;
		if ((i + 1) % 16 == 0) /* now and then the loop falls asleep */
			sem_wait(&answered);
	}
	return NULL;
}

static void mail_from_threads(void **state)
{
	struct world *w = the_world(state);
	pthread_t t[POSTERS];

	sem_init(&answered, 0, 0);
	letter_loop = w->loop;
	n_opened = 0;
	for (int k = 0; k < POSTERS; k++) {
		last_nr[k] = 0;
		for (int i = 0; i < MAILS; i++)
			letters[k][i] = (struct letter){ .mail.open = open_letter, .from = k, .nr = i + 1 };
	}
	for (int k = 0; k < POSTERS; k++)
		assert_int_equal(pthread_create(&t[k], NULL, post_letters, letters[k]), 0);
	while (n_opened < POSTERS * MAILS)
		turn(w, 600000); /* a lost wake would hang here until the suite's timeout */
	for (int k = 0; k < POSTERS; k++) {
		void *rc;

		pthread_join(t[k], &rc);
		assert_null(rc);
	}
	sem_destroy(&answered);
}

static void mail_is_opened_at_the_end(void **state)
{
	struct world *w = the_world(state);
	struct note n[2];

	notes(n, w, "ab");
	assert_true(loop_post(w->loop, &n[0].mail));
	assert_true(loop_post(w->loop, &n[1].mail));
	in_turn = true;
	loop_free(&w->loop);
	in_turn = false;
	assert_string_equal(noted, "ab");
}

/* --- faults --- */
static void fault_nth_send(void **state)
{
	struct world *w = the_world(state);
	static const struct fault_rule rule = { .kind = OP_SEND, .nth = 2, .res = -ECONNRESET };
	struct iovec iov = { .iov_base = (void *)(uintptr_t) "abc", .iov_len = 3 };
	struct rec out;
	int sv[2];

	with_rules(w, &rule, 1);
	tcp_pair(sv);
	rec_init(&out, w, on_done);
	for (int i = 1; i <= 3; i++) {
		loop_send(w->loop, &out.op, sv[0], &iov, 1);
		turn_until(w, op_idle(&out.op));
		assert_int_equal(out.res, i == 2 ? -ECONNRESET : 3);
	}
	assert_int_equal(fault_seen(w->loop, OP_SEND), 3);
	assert_int_equal(fault_hits(w->loop), 1);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

static void fault_storm_short_late(void **state)
{
	struct world *w = the_world(state);
	static const struct fault_rule rules[] = {
		{ .kind = OP_RECV, .nth = 1, .times = 5, .res = -ENOBUFS },
		{ .kind = OP_SEND, .nth = 1, .times = 100, .send_max = 4, .delay = 3 },
		{ .kind = FAULT_SOCKET, .nth = 2, .res = -EMFILE },
		{ .kind = OP_POLL, .nth = 1, .delay = 1000 },
	};
	struct iovec iov[2] = { { .iov_base = (void *)(uintptr_t) "abc", .iov_len = 3 },
				{ .iov_base = (void *)(uintptr_t) "def", .iov_len = 3 } };
	struct rec in, out, pol;
	char c[8];
	int sv[2], fd, turns = 0;

	with_rules(w, rules, 4);
	tcp_pair(sv);
	start_recv(&in, w, sv[0], SEG_SMALL, 16);
	for (int i = 0; i < 5; i++) {
		turn_until(w, op_idle(&in.op));
		assert_int_equal(in.res, -ENOBUFS);
		loop_recv(w->loop, &in.op, sv[0], SEG_SMALL);
	}
	put(sv[1], "x", 1);
	turn_until(w, in.n_bytes == 1);
	rec_init(&out, w, on_done);
	loop_send(w->loop, &out.op, sv[0], iov, 2);
	for (; !op_idle(&out.op); turns++)
		turn(w, 60000); /* never sleeps over a held op */
	assert_true(turns >= 3);
	assert_int_equal(out.res, 4);
	assert_int_equal(read(sv[1], c, sizeof(c)), 4);
	assert_memory_equal(c, "abcd", 4);
	fd = loop_socket(w->loop, AF_INET, SOCK_STREAM);
	assert_true(fd >= 0);
	loop_close(w->loop, fd);
	assert_int_equal(loop_socket(w->loop, AF_INET, SOCK_STREAM), -EMFILE);
	rec_init(&pol, w, on_done);
	loop_poll(w->loop, &pol.op, sv[0], POLLOUT);
	turn(w, 0);
	assert_int_equal(pol.op.state, OP_ARMED);
	loop_cancel(w->loop, &pol.op); /* while it is held */
	turn_until(w, op_idle(&pol.op));
	assert_int_equal(pol.res, -ECANCELED);
	end_op(w, &in);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

/* --- start-up, without a world --- */
static rlim_t memlock;

/* In a child whose locked memory is limited, as a user that the limit holds for. */
static void in_child(int (*body)(void))
{
	pid_t pid = fork();
	int st;

	if (pid == 0) {
		struct rlimit r = { .rlim_cur = memlock, .rlim_max = memlock };

		if (setrlimit(RLIMIT_MEMLOCK, &r) || (geteuid() == 0 && setuid(65533)))
			_exit(99);
		_exit(body());
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
}

static int auto_falls_back(void)
{
	struct budget budget = { .max = UINT64_MAX };
	struct loop_params par = { .io = LOOP_AUTO, .budget = &budget };
	char why[128];
	struct loop *loop = loop_new(&par, why);
	int rc = !loop || strcmp(loop_io_name(loop), "epoll") || strncmp(why, "epoll: io_uring_setup: ", 23);

	loop_free(&loop);
	par.io = LOOP_URING;
	loop = loop_new(&par, why);
	return rc ? 1 : loop ? 2 : strncmp(why, "io_uring_setup: ", 16) ? 3 : 0;
}

static void falls_back_to_epoll(void **state)
{
	(void)state;
	if (!uring_works())
		skip();
	memlock = 0;
	in_child(auto_falls_back);
}

/* 1,500 polls that are ready at once, through a ring of 256 entries and a completion queue of a few hundred: it overflows. */
static int small_ring(void)
{
	enum { N = 1500 };
	static struct rec pol[N];
	struct world w = { .conf = &configs[0], .budget.max = UINT64_MAX };
	static int fd[N];
	int p[2];

	w.loop = make_loop(&w);
	if (!w.loop || strstr(w.why, "ring 2048"))
		return 2;
	if (pipe2(p, O_NONBLOCK))
		return 3;
	for (int i = 0; i < N; i++) {
		rec_init(&pol[i], &w, on_done);
		fd[i] = dup(p[1]);
		if (fd[i] < 0)
			return 4;
		loop_poll(w.loop, &pol[i].op, fd[i], POLLOUT);
	}
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < 1000 && !op_idle(&pol[i].op); k++)
			turn(&w, 5);
		if (!op_idle(&pol[i].op) || pol[i].res != POLLOUT || pol[i].n != 1)
			return 5;
		loop_close(w.loop, fd[i]);
	}
	loop_free(&w.loop);
	return 0;
}

static void small_ring_overflows(void **state)
{
	(void)state;
	if (!uring_works())
		skip();
	memlock = 64 * 1024;
	in_child(small_ring);
}

/* --- the table --- */
#define ROW(f) { #f, f }
static const struct {
	const char *name;
	CMUnitTestFunction fn;
} rows[] = {
	ROW(accept_many),
	ROW(accept_shared_is_single),
	ROW(accept_without_descriptors),
	ROW(connect_refused),
	ROW(connect_cancelled),
	ROW(echo_small),
	ROW(send_gathered),
	ROW(send_gathered_on_many),
	ROW(recv_bulk_small),
	ROW(recv_bulk_large),
	ROW(recv_is_fair),
	ROW(data_and_end_together),
	ROW(recv_end_and_reset),
	ROW(send_waits_for_room),
	ROW(send_cancelled),
	ROW(send_to_the_gone),
	ROW(no_memory_for_bytes),
	ROW(more_receives_than_buffers),
	ROW(close_with_ops_armed),
	ROW(close_with_linger_resets),
	ROW(close_from_done),
	ROW(shutdown_at_once),
	ROW(poll_levels),
	ROW(paused_receive),
	ROW(tasks_in_order),
	ROW(tasks_taken_off),
	ROW(alarms_ring),
	ROW(turn_order),
	ROW(clocks_and_randomness),
	ROW(mail_from_threads),
	ROW(mail_is_opened_at_the_end),
	ROW(fault_nth_send),
	ROW(fault_storm_short_late),
};

#define N_TESTS (ARRAY_LEN(rows) * ARRAY_LEN(configs) + 2)

int main(void)
{
	static struct CMUnitTest tests[N_TESTS];
	static char names[N_TESTS][80];
	size_t n = 0;

	for (size_t c = 0; c < ARRAY_LEN(configs); c++) {
		for (size_t i = 0; i < ARRAY_LEN(rows); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", configs[c].name, rows[i].name);
			tests[n] = (struct CMUnitTest){ names[n], rows[i].fn, setup, teardown,
							(void *)(uintptr_t)&configs[c] };
		}
	}
	tests[n++] = (struct CMUnitTest){ .name = "falls_back_to_epoll", .test_func = falls_back_to_epoll };
	tests[n++] = (struct CMUnitTest){ .name = "small_ring_overflows", .test_func = small_ring_overflows };
	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
