/* sim.c -- the loop on a scripted world (sim.h); what is around the sockets is in sim_world.c.
 *
 * An op sits in its slot until a reap finds that it can go (can_go) and that it may (rough: some
 * turns late).  A send keeps its iovecs and takes the bytes only then, so that a sanitizer sees who
 * frees them too early.  Ops that were cancelled wait in `ending`, out of their slots. */
#include "loop/sim_priv.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define WALL0    1700000000000000ll
#define START_US 5000000ull

enum { OPF_ENDING = OPF_BACK };

/* ---------------------------------------------------------------- the loop's calls */
static struct sim *sim_of(const struct loop *loop)
{
	return loop->back;
}

static int do_socket(struct loop *loop, int family, int type)
{
	(void)family;
	(void)type;
	return sim_sock_new(sim_of(loop), SOCK_FRESH);
}

static int do_sockopt(struct loop *loop, int fd, int level, int name, const void *val, socklen_t n)
{
	struct sock *k = sim_sock(sim_of(loop), fd);

	if (level == SOL_SOCKET && name == SO_LINGER) {
		const struct linger *l = val;

		must(n == sizeof(*l));
		k->reset_on_close = l->l_onoff && l->l_linger == 0;
	}
	return 0;
}

static int do_sockname(struct loop *loop, int fd, bool peer, struct sockaddr *sa, socklen_t *n)
{
	struct sock *k = sim_sock(sim_of(loop), fd);
	const struct name *name = &k->name;

	if (k->kind == SOCK_CONNECTED && k->wire->dead && peer)
		return -ENOTCONN;
	if (k->wire)
		name = peer ? &k->wire->there : &k->wire->here;
	else if (peer)
		return -ENOTCONN;
	memcpy(sa, &name->ss, name->n < *n ? name->n : *n);
	*n = name->n;
	return 0;
}

static int do_shutdown(struct loop *loop, int fd, int how)
{
	struct sock *k = sim_sock(sim_of(loop), fd);

	if (k->kind != SOCK_CONNECTED || k->wire->dead)
		return -ENOTCONN;
	if (how != SHUT_WR)
		k->shut_read = true;
	if (how != SHUT_RD) {
		k->shut_write = true;
		sim_send_fin(k->wire);
	}
	return 0;
}

static void do_close(struct loop *loop, int fd)
{
	struct sim *s = sim_of(loop);
	struct sock *k = sim_sock(s, fd);
	struct sim_wire *w = k->wire;

	if (w && k->kind == SOCK_CONNECTED) {
		w->sock = NULL;
		if (k->reset_on_close || w->flow[IN].arrived > 0) {
			sim_send_reset(w);
		} else {
			sim_send_fin(w);
			w->closed = true;
		}
	} else if (w) {
		w->sock = NULL;
		w->dead = true; /* the connect was given up */
	}
	sim_sock_free(s, fd);
}

static void do_accept(struct loop *loop, struct op *op, bool shared)
{
	sim_sock(sim_of(loop), op->fd)->accept_shared = shared;
}

static void connect_answered(void *arg)
{
	struct sim_wire *w = arg;
	const struct place *p = sim_place(w->sim, &w->there);
	enum sim_answer answer = p ? p->answer : SIM_REFUSES;
	struct sock *k = w->sock;

	if (!k) /* given up meanwhile */
		return;
	if (answer == SIM_ACCEPTS) {
		k->kind = SOCK_CONNECTED;
		p->on_peer(&w->peer, p->arg);
	} else {
		k->err = answer == SIM_REFUSES ? ECONNREFUSED : EHOSTUNREACH;
	}
}

static void do_connect(struct loop *loop, struct op *op, const struct sockaddr *sa, socklen_t n)
{
	struct sim *s = sim_of(loop);
	struct sock *k = sim_sock(s, op->fd);
	struct name there = sim_name(sa, n);
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(++s->next_port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct name here = sim_name((struct sockaddr *)&in, sizeof(in));
	const struct place *p = sim_place(s, &there);

	must(k->kind == SOCK_FRESH);
	k->kind = SOCK_CONNECTS;
	k->wire = sim_wire_new(s, &there, &here);
	k->wire->sock = k;
	if (!p || p->answer != SIM_SILENT)
		sim_at(s, sim_latency(s), connect_answered, k->wire);
}

static void do_recv(struct loop *loop, struct op *op)
{
	(void)loop;
	(void)op;
}

static void do_send(struct loop *loop, struct op *op, const struct iovec *iov, unsigned n)
{
	(void)loop;
	op->back_n = n;
	op->back.out.iov = sim_fresh(n * sizeof(*iov));
	memcpy(op->back.out.iov, iov, n * sizeof(*iov));
}

static void do_poll(struct loop *loop, struct op *op, unsigned events)
{
	(void)loop;
	op->back_n = events;
}

/* ---------------------------------------------------------------- what can go */
static size_t send_room(const struct sock *k)
{
	return k->kind == SOCK_CONNECTED ? sim_room(k->wire, OUT) : 0;
}

static bool may_read(const struct sock *k)
{
	const struct flow *f;

	if (k->kind != SOCK_CONNECTED)
		return k->err != 0;
	f = &k->wire->flow[IN];
	return f->arrived > 0 || sim_flow_ended(f) || k->err || k->shut_read || k->wire->dead;
}

static bool may_write(const struct sock *k)
{
	return k->err ||
	       (k->kind == SOCK_CONNECTED && (k->wire->dead || k->shut_write || send_room(k) > 0));
}

static unsigned revents(const struct sock *k, unsigned asked)
{
	unsigned r = 0;

	if (k->kind == SOCK_LISTENS)
		return k->n_queue ? asked & POLLIN : 0;
	if (may_read(k))
		r |= POLLIN;
	if (may_write(k))
		r |= POLLOUT;
	if (k->kind == SOCK_CONNECTED && (k->wire->dead || sim_flow_ended(&k->wire->flow[IN])))
		r |= POLLRDHUP;
	r &= asked;
	if (k->err)
		r |= POLLERR;
	if (k->kind == SOCK_CONNECTED && k->wire->dead)
		r |= POLLHUP;
	return r;
}

static bool can_go(const struct sim *s, const struct op *op)
{
	const struct sock *k = sim_sock(s, op->fd);

	switch ((enum op_kind)op->kind) {
	case OP_ACCEPT: return k->n_queue > 0;
	case OP_CONNECT: return k->kind == SOCK_CONNECTED || k->err;
	case OP_RECV: return may_read(k);
	case OP_SEND: return may_write(k);
	case OP_POLL: return revents(k, op->back_n) != 0;
	case OP_NONE: break;
	}
	panic_fmt("an op of no kind");
}

/* ---------------------------------------------------------------- going */
static int accept_one(struct sim *s, struct sock *l)
{
	struct sim_wire *w = l->queue[0];
	int fd = sim_sock_new(s, SOCK_CONNECTED);
	struct sock *k = sim_sock(s, fd);

	memmove(l->queue, l->queue + 1, --l->n_queue * sizeof(struct sim_wire *));
	k->wire = w;
	w->sock = k;
	if (w->dead)
		k->err = ECONNRESET;
	return fd;
}

static void go_accept(struct loop *loop, struct op *op)
{
	struct sim *s = sim_of(loop);
	int fd = op->fd;

	while (op->state == OP_ARMED && sim_sock(s, fd)->n_queue > 0) {
		struct sock *l = sim_sock(s, fd);
		int got = accept_one(s, l);

		if (l->accept_shared || loop->single_shot || sim_odd(s, 4)) {
			loop_finish(loop, op, got);
			return;
		}
		loop_report(op, got);
	}
}

static void go_connect(struct loop *loop, struct op *op)
{
	struct sock *k = sim_sock(sim_of(loop), op->fd);
	int err = k->err;

	k->err = 0;
	loop_finish(loop, op, -err);
}

/* No bytes are left to read: why. */
static int32_t read_end(struct sock *k)
{
	int err = k->err;

	k->err = 0;
	return -err;
}

static size_t readable(const struct sock *k)
{
	return k->wire && !k->shut_read ? k->wire->flow[IN].arrived : 0;
}

static void go_recv(struct loop *loop, struct op *op)
{
	struct sim *s = sim_of(loop);
	struct seg_pool *pool = &loop->segs[op->seg_class];
	uint32_t left = LOOP_RECV_TURN / pool->cap * pool->cap;
	struct sock *k = sim_sock(s, op->fd);

	while (op->state == OP_ARMED && left >= pool->cap) {
		size_t n = readable(k);
		struct seg *seg;

		if (n == 0 && may_read(k)) {
			loop_finish(loop, op, read_end(k));
			return;
		}
		if (n == 0)
			return;
		seg = seg_get(pool);
		if (!seg) {
			loop_finish(loop, op, -ENOBUFS);
			return;
		}
		n = sim_piece(s, n < seg->cap ? n : seg->cap);
		memcpy(seg->data, k->wire->flow[IN].p, n);
		sim_flow_drop(&k->wire->flow[IN], n);
		seg->used = (uint32_t)n;
		op->seg = seg;
		left -= (uint32_t)n;
		sim_room_again(k->wire);
		if (loop->single_shot || sim_odd(s, 6)) {
			loop_finish(loop, op, (int32_t)n);
			return;
		}
		loop_report(op, (int32_t)n);
	}
}

/* Takes the bytes of a send that is in the slot; returns its result. */
static int32_t take_bytes(struct sim *s, struct op *op)
{
	struct sock *k = sim_sock(s, op->fd);
	struct iovec *iov = op->back.out.iov;
	size_t all = 0, n, left;

	if (k->err || k->wire->dead || k->shut_write) {
		int err = k->err ? k->err : EPIPE;

		k->err = 0;
		return -err;
	}
	for (unsigned i = 0; i < op->back_n; i++)
		all += iov[i].iov_len;
	n = left = sim_piece(s, all < send_room(k) ? all : send_room(k));
	for (unsigned i = 0; left > 0; i++) {
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

		sim_flow_put(&k->wire->flow[OUT], iov[i].iov_base, part);
		left -= part;
	}
	sim_arrive_out(k->wire);
	return (int32_t)n;
}

static void drop_iov(struct op *op)
{
	free(op->back.out.iov);
	op->back.out.iov = NULL;
}

static void go_send(struct loop *loop, struct op *op)
{
	int32_t n = take_bytes(sim_of(loop), op);

	drop_iov(op);
	loop_finish(loop, op, n);
}

static void go_poll(struct loop *loop, struct op *op)
{
	loop_finish(loop, op, (int32_t)revents(sim_sock(sim_of(loop), op->fd), op->back_n));
}

static void go(struct loop *loop, struct op *op)
{
	static void (*const go_on[])(struct loop *, struct op *) = {
		[OP_ACCEPT] = go_accept, [OP_CONNECT] = go_connect, [OP_RECV] = go_recv,
		[OP_SEND] = go_send,     [OP_POLL] = go_poll,
	};

	go_on[op->kind](loop, op);
}

/* A cancel ends the op with -ECANCELED, or with what was faster. */
static void do_cancel(struct loop *loop, struct op *op)
{
	struct sim *s = sim_of(loop);
	int32_t res = -ECANCELED;

	if (op->kind == OP_SEND) {
		if (can_go(s, op) && sim_odd(s, 2))
			res = take_bytes(s, op);
		drop_iov(op);
	} else if (op->kind == OP_POLL && can_go(s, op) && sim_odd(s, 2)) {
		res = (int32_t)revents(sim_sock(s, op->fd), op->back_n);
	}
	op->back_flags |= OPF_ENDING;
	op->back_n = (uint32_t)res;
	list_push_tail(&s->ending, &op->back.node);
}

/* ---------------------------------------------------------------- the turn */
static struct op *op_at(const struct loop *loop, int fd, int col)
{
	struct op *op = (uint32_t)fd < loop->n_slots ? loop->slots[fd].op[col] : NULL;

	return op && !(op->back_flags & (OPF_DEFERRED | OPF_HELD | OPF_ENDING)) ? op : NULL;
}

static bool any_ready(const struct loop *loop)
{
	const struct sim *s = sim_of(loop);

	if (!list_empty(&s->ending))
		return true;
	for (unsigned i = 0; i < s->n_socks; i++)
		for (int c = 0; c < COLS && s->socks[i]; c++) {
			const struct op *op = op_at(loop, SIM_FD_FIRST + (int)i, c);

			if (op && can_go(s, op))
				return true;
		}
	return false;
}

/* To the next event at the most, even if it is none of the loop's: a test must see what has come
 * to a peer at the moment when it came. */
static void do_wait(struct loop *loop, uint64_t wait_us)
{
	struct sim *s = sim_of(loop);
	uint64_t until, next;

	s->now_us += s->rough ? sim_random(s, 30) : 1;
	until = s->now_us + wait_us;
	if (sim_run_events(s) || s->now_us >= until || any_ready(loop))
		return;
	next = s->n_events ? s->events[0].at : until;
	s->now_us = next < until ? next : until;
	(void)sim_run_events(s);
}

static void do_clock(struct loop *loop, uint64_t *mono_us, int64_t *wall_us)
{
	const struct sim *s = sim_of(loop);

	*mono_us = s->now_us;
	*wall_us = s->wall_us + (int64_t)s->now_us;
}

static unsigned end_cancelled(struct loop *loop)
{
	struct sim *s = sim_of(loop);
	struct list now, *node;
	unsigned n = 0;

	list_init(&now);
	while ((node = list_pop_head(&s->ending)))
		list_push_tail(&now, node);
	while ((node = list_pop_head(&now))) {
		struct op *op = container_of(node, struct op, back.node);

		if (sim_odd(s, 3)) {
			list_push_tail(&s->ending, node);
			continue;
		}
		n++;
		loop_finish(loop, op, (int32_t)op->back_n);
	}
	return n;
}

/* The ops of a descriptor that can go, go; rough: not each in each turn. */
static unsigned reap_fd(struct loop *loop, int fd)
{
	struct sim *s = sim_of(loop);
	unsigned n = 0;

	for (int c = COLS - 1; c >= 0; c--) {
		struct op *op = op_at(loop, fd, c);

		if (!s->socks[fd - SIM_FD_FIRST])
			break;
		if (!op || !can_go(s, op) || sim_odd(s, 3))
			continue;
		n++;
		go(loop, op);
	}
	return n;
}

static unsigned do_reap(struct loop *loop)
{
	struct sim *s = sim_of(loop);
	unsigned all = s->n_socks, start = s->rough && all ? sim_random(s, all) : 0;
	unsigned n = sim_odd(s, 2) ? end_cancelled(loop) : 0;

	for (unsigned i = 0; i < all; i++) {
		unsigned at = (start + i) % all;

		if (s->socks[at])
			n += reap_fd(loop, SIM_FD_FIRST + (int)at);
	}
	return n + end_cancelled(loop);
}

static void do_random(struct loop *loop, void *p, size_t n)
{
	uint8_t *to = p;

	while (n-- > 0)
		*to++ = (uint8_t)sim_random64(sim_of(loop));
}

static void do_dump(const struct loop *loop, int fd)
{
	const struct sim *s = sim_of(loop);

	dprintf(fd, "  sim: now %llu us, %zu events\n", (unsigned long long)s->now_us, s->n_events);
	for (unsigned i = 0; i < s->n_socks; i++) {
		const struct sock *k = s->socks[i];

		if (!k || !k->wire)
			continue;
		dprintf(fd, "    %u: kind %d err %d%s in %zu of %zu%s out %zu of %zu%s\n",
			i + SIM_FD_FIRST, (int)k->kind, k->err, k->wire->dead ? " dead" : "",
			k->wire->flow[IN].arrived, k->wire->flow[IN].n,
			k->wire->flow[IN].fin ? " fin" : "", k->wire->flow[OUT].arrived,
			k->wire->flow[OUT].n, k->wire->flow[OUT].fin ? " fin" : "");
	}
}

/* ---------------------------------------------------------------- life */
static int do_open(struct loop *loop, const struct loop_params *par, char why[static 128])
{
	must(par->sim && !par->sim->loop);
	loop->back = par->sim;
	par->sim->loop = loop;
	snprintf(why, 128, "sim");
	return 0;
}

static void do_loop_close(struct loop *loop)
{
	must(list_empty(&sim_of(loop)->ending));
	sim_of(loop)->loop = NULL;
	loop->back = NULL;
}

/* Here, so that whoever makes a world links the back end (loop.c knows it as weak). */
struct sim *sim_new(uint64_t seed, bool rough)
{
	struct sim *s = sim_fresh(sizeof(*s));

	s->seed = seed;
	s->rough = rough;
	s->now_us = START_US;
	s->wall_us = WALL0;
	s->window = SIM_WINDOW;
	s->next_port = 32768;
	list_init(&s->ending);
	return s;
}

const struct loop_backend loop_sim = {
	.name = "sim",
	.io = LOOP_SIM,
	.open = do_open,
	.close = do_loop_close,
	.socket = do_socket,
	.sockopt = do_sockopt,
	.sockname = do_sockname,
	.shutdown = do_shutdown,
	.close_fd = do_close,
	.accept = do_accept,
	.connect = do_connect,
	.recv = do_recv,
	.send = do_send,
	.poll = do_poll,
	.cancel = do_cancel,
	.wait = do_wait,
	.clock = do_clock,
	.reap = do_reap,
	.random = do_random,
	.dump = do_dump,
};
