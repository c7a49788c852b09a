/* test_loop.c -- sockets through loop/loop.h, point by point of its contract: accept, connect,
 * receive, send, poll, close, and what happens when memory is short. */
#include "loop_world.h"

#include <sys/resource.h>

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
	int l = listen_on(&at, 16), c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    next = dup(c);

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
	loop_send(w->loop, &out.op, sv[0],
		  &(struct iovec){ .iov_base = (void *)(uintptr_t) "answer", .iov_len = 6 }, 1);
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
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv[i]),
			0);
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

/* Everything arrives, in order, and no turn brings more than LOOP_RECV_TURN and the seg that
 * crossed it. */
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
	if (cls == SEG_LARGE || !(w->conf->no_limit || strstr(w->why, "not limited")))
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

/* The peer does not read: the send reports what fitted, the next one waits, and goes on when there
 * is room. */
static void send_waits_for_room(void **state)
{
	struct world *w = the_world(state);
	size_t n = 8u << 20;
	uint8_t *bytes = calloc(1, n), *back = malloc(n);
	struct iovec iov[2] = { { .iov_base = bytes, .iov_len = n / 2 },
				{ .iov_base = bytes + n / 2, .iov_len = n / 2 } };
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
/* The ring (or pool) runs dry while the owner keeps the segs: it hears -ENOBUFS, and nothing is
 * lost. */
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

/* More receives at once than the ring has buffers: all get their bytes, no owner hears of it; some
 * are cancelled while they wait. */
static void more_receives_than_buffers(void **state)
{
	enum { N = 700 };
	struct world *w = the_world(state);
	static struct rec in[N];
	static int sv[N][2];
	uint8_t bytes[3000] = "";
	uint64_t got;

	for (int i = 0; i < N; i++) {
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv[i]),
			0);
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
/* Close with ops armed: they are done, FIN goes out, and the number's next owner is not
 * disturbed. */
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
		turn_until(w, op_idle(&in.op) && op_idle(&out.op) && op_idle(&pol.op) &&
				      in2.n_bytes == 3);
		assert_true(in.res == -ECANCELED || in.res > 0);
		assert_int_equal(pol.n, 1);
		assert_memory_equal(in2.bytes, "new", 3);
		p.fd = sv[1];
		turn(w, 0);
		turn(w, 0);
		/* FIN, or RST where bytes were left unread */
		assert_int_equal(poll(&p, 1, 1000), 1);
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

/* A receive is paused: the bytes wait in the kernel, the poll still hears the abort, and a new
 * receive gets the bytes. */
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

static const struct row rows[] = {
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
};

int main(void)
{
	return run_rows("loop", rows, ARRAY_LEN(rows), NULL, 0);
}
