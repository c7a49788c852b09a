/* sim.c -- the loop on a scripted world; see sim.h.
 *
 *   sock    culvert's end of a connection, or its listener, by descriptor (FD_FIRST and up, so that
 *           a call past the loop meets no real file)
 *   wire    a connection: two flows, a sock at one end, a peer at the other; lives as long as the
 *           world
 *   flow    the bytes of one direction, of which the first `arrived` may be read
 *   event   what will happen at a moment: bytes or an end arrive, a connect is answered, a test's
 *           own
 *
 * An op sits in its slot until a reap finds that it can go (can_go) and that it may (rough: some
 * turns late).  A send keeps its iovecs and takes the bytes only then, so that a sanitizer sees who
 * frees them too early.  Ops that were cancelled wait in `ending`, out of their slots. */
#include "loop/sim.h"
#include "loop/priv.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#define FD_FIRST 1000
#define WALL0    1700000000000000ll
#define START_US 5000000ull

enum { OPF_ENDING = OPF_BACK };

struct name {
	struct sockaddr_storage ss;
	socklen_t n;
};

struct flow {
	uint8_t *p;
	size_t n, room, arrived;
	bool fin, fin_arrived;
};

/* Directions: towards culvert, towards the peer. */
enum { IN = 0, OUT = 1 };

struct sim_wire {
	struct sim_wire *next;
	struct sim *sim;
	struct sock *sock; /* NULL: closed, or not accepted yet */
	struct sim_peer peer;
	struct name there, here; /* of the peer, of culvert's end */
	struct flow flow[2];
	uint32_t window;
	bool closed; /* culvert has closed it in peace: what comes late is answered by a reset */
	bool dead;   /* reset, from either side */
};

enum sock_kind { SOCK_FRESH = 1, SOCK_LISTENS, SOCK_CONNECTS, SOCK_CONNECTED };

struct sock {
	enum sock_kind kind;
	int err; /* told once */
	bool reset_on_close, shut_read, shut_write, accept_shared;
	struct name name; /* of a listener */
	struct sim_wire *wire;
	struct sim_wire **queue; /* of a listener: not accepted yet */
	unsigned n_queue, room_queue;
};

struct event {
	uint64_t at, tie;
	void (*fn)(void *arg);
	void *arg;
};

struct place { /* an address and what it does */
	struct place *next;
	struct name name;
	enum sim_answer answer;
	void (*on_peer)(struct sim_peer *, void *arg);
	void *arg;
};

struct sim {
	struct loop *loop;
	uint64_t now_us, seed, n_events_ever;
	int64_t wall_us;
	bool rough;
	uint32_t window;
	uint16_t next_port;
	struct event *events; /* a heap, the next one first */
	size_t n_events, room_events;
	struct sock **socks; /* by descriptor - FD_FIRST */
	unsigned n_socks, room_socks;
	struct place *places;
	struct sim_wire *wires;
	struct list ending; /* of op.back.node */
};

/* ---------------------------------------------------------------- small things */
static void *grown(void *p, size_t need, size_t *room, size_t each)
{
	if (need <= *room)
		return p;
	*room = need < 16 ? 16 : need * 2;
	p = realloc(p, *room * each);
	must(p != NULL);
	return p;
}

static void *fresh(size_t n)
{
	void *p = calloc(1, n);

	must(p != NULL);
	return p;
}

static uint64_t random64(struct sim *s) /* splitmix64 (Steele, Lea, Flood 2014) */
{
	uint64_t z = (s->seed += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t sim_random(struct sim *s, uint32_t n)
{
	must(n > 0);
	return (uint32_t)((random64(s) >> 32) * n >> 32);
}

/* One time in n, and never when calm. */
static bool odd(struct sim *s, uint32_t n)
{
	return s->rough && sim_random(s, n) == 0;
}

/* How much of n happens at once: all, or rough: often less, now and then one byte. */
static size_t piece(struct sim *s, size_t n)
{
	if (n < 2 || !odd(s, 2))
		return n;
	return odd(s, 4) ? 1 : 1 + sim_random(s, (uint32_t)(n < 1u << 20 ? n : 1u << 20));
}

static uint64_t latency(struct sim *s)
{
	if (!s->rough)
		return SIM_LATENCY_US;
	return odd(s, 8) ? sim_random(s, 50000) : sim_random(s, 300);
}

static struct name name_of(const struct sockaddr *sa, socklen_t n)
{
	struct name name = { .n = n };

	must(n <= sizeof(name.ss));
	memcpy(&name.ss, sa, n);
	return name;
}

static bool same_name(const struct name *a, const struct name *b)
{
	const struct sockaddr_un *x = (const void *)&a->ss, *y = (const void *)&b->ss;

	if (a->ss.ss_family == AF_UNIX && b->ss.ss_family == AF_UNIX)
		return !strncmp(x->sun_path, y->sun_path, sizeof(x->sun_path));
	return a->n == b->n && !memcmp(&a->ss, &b->ss, a->n);
}

/* ---------------------------------------------------------------- events */
static bool before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->tie < b->tie;
}

static void swap_events(struct event *a, struct event *b)
{
	struct event t = *a;

	*a = *b;
	*b = t;
}

void sim_at(struct sim *s, uint64_t in_us, void (*fn)(void *arg), void *arg)
{
	size_t i = s->n_events++;

	s->events = grown(s->events, s->n_events, &s->room_events, sizeof(*s->events));
	s->events[i] = (struct event){ .at = s->now_us + in_us,
				       .tie = s->rough ? random64(s) : s->n_events_ever,
				       .fn = fn,
				       .arg = arg };
	s->n_events_ever++;
	for (; i > 0 && before(&s->events[i], &s->events[(i - 1) / 2]); i = (i - 1) / 2)
		swap_events(&s->events[i], &s->events[(i - 1) / 2]);
}

static struct event pop_event(struct sim *s)
{
	struct event first = s->events[0];
	size_t i = 0;

	s->events[0] = s->events[--s->n_events];
	for (;;) {
		size_t least = i;

		for (size_t c = 2 * i + 1; c <= 2 * i + 2 && c < s->n_events; c++)
			if (before(&s->events[c], &s->events[least]))
				least = c;
		if (least == i)
			return first;
		swap_events(&s->events[i], &s->events[least]);
		i = least;
	}
}

static void run_events(struct sim *s)
{
	while (s->n_events > 0 && s->events[0].at <= s->now_us) {
		struct event e = pop_event(s);

		e.fn(e.arg);
	}
}

/* ---------------------------------------------------------------- flows */
static void flow_put(struct flow *f, const void *p, size_t n)
{
	f->p = grown(f->p, f->n + n, &f->room, 1);
	memcpy(f->p + f->n, p, n);
	f->n += n;
}

static void flow_drop(struct flow *f, size_t n)
{
	must(n <= f->arrived);
	memmove(f->p, f->p + n, f->n - n);
	f->n -= n;
	f->arrived -= n;
}

static bool flow_ended(const struct flow *f)
{
	return f->fin_arrived && f->arrived == f->n;
}

static size_t room_of(const struct sim_wire *w, int dir)
{
	return w->flow[dir].n < w->window ? w->window - w->flow[dir].n : 0;
}

/* ---------------------------------------------------------------- peers */
static void tell_peer(struct sim_peer *p)
{
	if (p->on && !p->gone)
		p->on(p);
}

static void take_in(struct sim_peer *p)
{
	struct flow *f = &p->wire->flow[OUT];
	size_t n = f->arrived;

	if (p->hold || p->gone)
		return;
	p->got = grown(p->got, p->n_got + n + 1, &p->room_got, 1);
	memcpy(p->got + p->n_got, f->p, n);
	p->n_got += n;
	p->n_all += n;
	p->got[p->n_got] = 0;
	flow_drop(f, n);
	if (flow_ended(f))
		p->eof = true;
}

static void arrive_out(void *arg)
{
	struct sim_wire *w = arg;
	struct flow *f = &w->flow[OUT];

	f->arrived += piece(w->sim, f->n - f->arrived);
	if (f->arrived < f->n)
		sim_at(w->sim, latency(w->sim), arrive_out, w);
	else if (f->fin)
		f->fin_arrived = true;
	take_in(&w->peer);
	tell_peer(&w->peer);
}

static void reset_arrives_out(void *arg)
{
	struct sim_wire *w = arg;

	w->peer.reset = true;
	w->flow[OUT].n = w->flow[OUT].arrived;
	tell_peer(&w->peer);
}

static void send_reset(struct sim_wire *w)
{
	if (w->dead)
		return;
	w->dead = true;
	w->peer.n_out = 0;
	sim_at(w->sim, latency(w->sim), reset_arrives_out, w);
}

static void arrive_in(void *arg)
{
	struct sim_wire *w = arg;
	struct flow *f = &w->flow[IN];

	if (w->dead)
		return;
	f->arrived += piece(w->sim, f->n - f->arrived);
	if (f->arrived < f->n)
		sim_at(w->sim, latency(w->sim), arrive_in, w);
	else if (f->fin)
		f->fin_arrived = true;
	if (w->closed && f->arrived > 0)
		send_reset(w);
}

static void push_out(struct sim_peer *p)
{
	struct sim_wire *w = p->wire;
	size_t n = p->n_out, room = room_of(w, IN);

	if (w->dead) {
		p->n_out = 0;
		return;
	}
	if (n > room)
		n = room;
	if (n > 0) {
		flow_put(&w->flow[IN], p->out, n);
		memmove(p->out, p->out + n, p->n_out - n);
		p->n_out -= n;
	}
	if (p->n_out == 0 && p->fin)
		w->flow[IN].fin = true;
	if (n > 0 || w->flow[IN].fin)
		sim_at(w->sim, latency(w->sim), arrive_in, w);
}

/* The reader at culvert's end took bytes. */
static void room_again(struct sim_wire *w)
{
	bool waited = w->peer.n_out > 0;

	if (!waited)
		return;
	push_out(&w->peer);
	if (w->peer.n_out == 0)
		tell_peer(&w->peer);
}

void sim_say(struct sim_peer *p, const void *bytes, size_t n)
{
	must(!p->fin && !p->gone);
	p->out = grown(p->out, p->n_out + n, &p->room_out, 1);
	memcpy(p->out + p->n_out, bytes, n);
	p->n_out += n;
	push_out(p);
}

size_t sim_unsaid(const struct sim_peer *p)
{
	return p->n_out;
}

void sim_fin(struct sim_peer *p)
{
	if (p->fin || p->gone)
		return;
	p->fin = true;
	push_out(p);
}

static void reset_arrives_in(void *arg)
{
	struct sim_wire *w = arg;

	if (w->dead)
		return;
	w->dead = true;
	w->flow[IN].n = w->flow[IN].arrived;
	if (w->sock)
		w->sock->err = ECONNRESET;
}

void sim_reset(struct sim_peer *p)
{
	if (p->gone)
		return;
	p->gone = true;
	p->n_out = 0;
	sim_at(p->wire->sim, latency(p->wire->sim), reset_arrives_in, p->wire);
}

void sim_hold(struct sim_peer *p, bool hold)
{
	p->hold = hold;
	if (!hold)
		take_in(p);
}

void sim_eat(struct sim_peer *p, size_t n)
{
	must(n <= p->n_got);
	memmove(p->got, p->got + n, p->n_got - n);
	p->n_got -= n;
	p->got[p->n_got] = 0;
}

static struct sim_wire *wire_new(struct sim *s, const struct name *there, const struct name *here)
{
	struct sim_wire *w = fresh(sizeof(*w));

	w->sim = s;
	w->there = *there;
	w->here = *here;
	w->window = s->window;
	w->peer.wire = w;
	w->peer.got = grown(NULL, 1, &w->peer.room_got, 1);
	w->peer.got[0] = 0;
	w->next = s->wires;
	s->wires = w;
	return w;
}

/* ---------------------------------------------------------------- socks */
static struct sock *sock_at(const struct sim *s, int fd)
{
	must(fd >= FD_FIRST && (unsigned)(fd - FD_FIRST) < s->n_socks);
	must(s->socks[fd - FD_FIRST] != NULL);
	return s->socks[fd - FD_FIRST];
}

static int sock_new(struct sim *s, enum sock_kind kind)
{
	size_t room = s->room_socks;
	unsigned i = 0;

	while (i < s->n_socks && s->socks[i])
		i++;
	if (i == s->n_socks) {
		s->socks = grown(s->socks, ++s->n_socks, &room, sizeof(*s->socks));
		s->room_socks = (unsigned)room;
	}
	s->socks[i] = fresh(sizeof(struct sock));
	s->socks[i]->kind = kind;
	return FD_FIRST + (int)i;
}

unsigned sim_sockets(const struct sim *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_socks; i++)
		n += s->socks[i] != NULL;
	return n;
}

int sim_listen(struct sim *s, const struct sockaddr *sa, socklen_t n)
{
	int fd = sock_new(s, SOCK_LISTENS);

	sock_at(s, fd)->name = name_of(sa, n);
	return fd;
}

static void call_arrives(void *arg)
{
	struct sim_wire *w = arg;
	struct sim *s = w->sim;

	for (unsigned i = 0; i < s->n_socks; i++) {
		struct sock *l = s->socks[i];
		size_t room;

		if (!l || l->kind != SOCK_LISTENS || !same_name(&l->name, &w->here))
			continue;
		room = l->room_queue;
		l->queue = grown(l->queue, l->n_queue + 1u, &room, sizeof(struct sim_wire *));
		l->room_queue = (unsigned)room;
		l->queue[l->n_queue++] = w;
		return;
	}
	w->dead = true;
	reset_arrives_out(w);
}

struct sim_peer *sim_call(struct sim *s, int listen_fd, const struct sockaddr *from, socklen_t n)
{
	struct name there = name_of(from, n);
	struct sim_wire *w = wire_new(s, &there, &sock_at(s, listen_fd)->name);

	sim_at(s, latency(s), call_arrives, w);
	return &w->peer;
}

void sim_answer(struct sim *s, const struct sockaddr *sa, socklen_t n, enum sim_answer answer,
		void (*on_peer)(struct sim_peer *, void *arg), void *arg)
{
	struct name name = name_of(sa, n);
	struct place *p = s->places;

	while (p && !same_name(&p->name, &name))
		p = p->next;
	if (!p) {
		p = fresh(sizeof(*p));
		p->name = name;
		p->next = s->places;
		s->places = p;
	}
	p->answer = answer;
	p->on_peer = on_peer;
	p->arg = arg;
}

/* ---------------------------------------------------------------- the loop's calls */
static struct sim *sim_of(const struct loop *loop)
{
	return loop->back;
}

static int do_socket(struct loop *loop, int family, int type)
{
	(void)family;
	(void)type;
	return sock_new(sim_of(loop), SOCK_FRESH);
}

static int do_sockopt(struct loop *loop, int fd, int level, int name, const void *val, socklen_t n)
{
	struct sock *k = sock_at(sim_of(loop), fd);

	if (level == SOL_SOCKET && name == SO_LINGER) {
		const struct linger *l = val;

		must(n == sizeof(*l));
		k->reset_on_close = l->l_onoff && l->l_linger == 0;
	}
	return 0;
}

static int do_sockname(struct loop *loop, int fd, bool peer, struct sockaddr *sa, socklen_t *n)
{
	struct sock *k = sock_at(sim_of(loop), fd);
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

static void send_fin(struct sim_wire *w)
{
	if (w->flow[OUT].fin || w->dead)
		return;
	w->flow[OUT].fin = true;
	sim_at(w->sim, latency(w->sim), arrive_out, w);
}

static int do_shutdown(struct loop *loop, int fd, int how)
{
	struct sock *k = sock_at(sim_of(loop), fd);

	if (k->kind != SOCK_CONNECTED || k->wire->dead)
		return -ENOTCONN;
	if (how != SHUT_WR)
		k->shut_read = true;
	if (how != SHUT_RD) {
		k->shut_write = true;
		send_fin(k->wire);
	}
	return 0;
}

static void do_close(struct loop *loop, int fd)
{
	struct sim *s = sim_of(loop);
	struct sock *k = sock_at(s, fd);
	struct sim_wire *w = k->wire;

	for (unsigned i = 0; i < k->n_queue; i++)
		send_reset(k->queue[i]);
	if (w && k->kind == SOCK_CONNECTED) {
		w->sock = NULL;
		if (k->reset_on_close || w->flow[IN].arrived > 0) {
			send_reset(w);
		} else {
			send_fin(w);
			w->closed = true;
		}
	} else if (w) {
		w->sock = NULL;
		w->dead = true; /* the connect was given up */
	}
	free(k->queue);
	free(k);
	s->socks[fd - FD_FIRST] = NULL;
}

static void do_accept(struct loop *loop, struct op *op, bool shared)
{
	sock_at(sim_of(loop), op->fd)->accept_shared = shared;
}

static const struct place *place_of(const struct sim *s, const struct name *name)
{
	const struct place *p = s->places;

	while (p && !same_name(&p->name, name))
		p = p->next;
	return p;
}

static void connect_answered(void *arg)
{
	struct sim_wire *w = arg;
	const struct place *p = place_of(w->sim, &w->there);
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
	struct sock *k = sock_at(s, op->fd);
	struct name there = name_of(sa, n);
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(++s->next_port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct name here = name_of((struct sockaddr *)&in, sizeof(in));
	const struct place *p = place_of(s, &there);

	must(k->kind == SOCK_FRESH);
	k->kind = SOCK_CONNECTS;
	k->wire = wire_new(s, &there, &here);
	k->wire->sock = k;
	if (!p || p->answer != SIM_SILENT)
		sim_at(s, latency(s), connect_answered, k->wire);
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
	op->back.out.iov = fresh(n * sizeof(*iov));
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
	return k->kind == SOCK_CONNECTED ? room_of(k->wire, OUT) : 0;
}

static bool may_read(const struct sock *k)
{
	const struct flow *f;

	if (k->kind != SOCK_CONNECTED)
		return k->err != 0;
	f = &k->wire->flow[IN];
	return f->arrived > 0 || flow_ended(f) || k->err || k->shut_read || k->wire->dead;
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
	if (k->kind == SOCK_CONNECTED && (k->wire->dead || flow_ended(&k->wire->flow[IN])))
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
	const struct sock *k = sock_at(s, op->fd);

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
	int fd = sock_new(s, SOCK_CONNECTED);
	struct sock *k = sock_at(s, fd);

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

	while (op->state == OP_ARMED && sock_at(s, fd)->n_queue > 0) {
		struct sock *l = sock_at(s, fd);
		int got = accept_one(s, l);

		if (l->accept_shared || loop->single_shot || odd(s, 4)) {
			loop_finish(loop, op, got);
			return;
		}
		loop_report(op, got);
	}
}

static void go_connect(struct loop *loop, struct op *op)
{
	struct sock *k = sock_at(sim_of(loop), op->fd);
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

static void go_recv(struct loop *loop, struct op *op)
{
	struct sim *s = sim_of(loop);
	struct seg_pool *pool = &loop->segs[op->seg_class];
	uint32_t left = LOOP_RECV_TURN / pool->cap * pool->cap;
	struct sock *k = sock_at(s, op->fd);

	while (op->state == OP_ARMED && left >= pool->cap) {
		struct flow *f = k->wire ? &k->wire->flow[IN] : NULL;
		size_t n = f && !k->shut_read ? f->arrived : 0;
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
		n = piece(s, n < seg->cap ? n : seg->cap);
		memcpy(seg->data, f->p, n);
		flow_drop(f, n);
		seg->used = (uint32_t)n;
		op->seg = seg;
		left -= (uint32_t)n;
		room_again(k->wire);
		if (loop->single_shot || odd(s, 6)) {
			loop_finish(loop, op, (int32_t)n);
			return;
		}
		loop_report(op, (int32_t)n);
	}
}

/* Takes the bytes of a send that is in the slot; returns its result. */
static int32_t take_bytes(struct sim *s, struct op *op)
{
	struct sock *k = sock_at(s, op->fd);
	struct iovec *iov = op->back.out.iov;
	size_t all = 0, n, left;

	if (k->err || k->wire->dead || k->shut_write) {
		int err = k->err ? k->err : EPIPE;

		k->err = 0;
		return -err;
	}
	for (unsigned i = 0; i < op->back_n; i++)
		all += iov[i].iov_len;
	n = left = piece(s, all < send_room(k) ? all : send_room(k));
	for (unsigned i = 0; left > 0; i++) {
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

		flow_put(&k->wire->flow[OUT], iov[i].iov_base, part);
		left -= part;
	}
	sim_at(s, latency(s), arrive_out, k->wire);
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
	loop_finish(loop, op, (int32_t)revents(sock_at(sim_of(loop), op->fd), op->back_n));
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
		if (can_go(s, op) && odd(s, 2))
			res = take_bytes(s, op);
		drop_iov(op);
	} else if (op->kind == OP_POLL && can_go(s, op) && odd(s, 2)) {
		res = (int32_t)revents(sock_at(s, op->fd), op->back_n);
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
			const struct op *op = op_at(loop, FD_FIRST + (int)i, c);

			if (op && can_go(s, op))
				return true;
		}
	return false;
}

static void do_wait(struct loop *loop, uint64_t wait_us)
{
	struct sim *s = sim_of(loop);
	uint64_t until;

	s->now_us += s->rough ? sim_random(s, 30) : 1;
	until = s->now_us + wait_us;
	run_events(s);
	while (s->now_us < until && !any_ready(loop)) {
		uint64_t next = s->n_events ? s->events[0].at : until;

		s->now_us = next < until ? next : until;
		run_events(s);
	}
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

		if (odd(s, 3)) {
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

		if (!s->socks[fd - FD_FIRST])
			break;
		if (!op || !can_go(s, op) || odd(s, 3))
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
	unsigned n = odd(s, 2) ? end_cancelled(loop) : 0;

	for (unsigned i = 0; i < all; i++) {
		unsigned at = (start + i) % all;

		if (s->socks[at])
			n += reap_fd(loop, FD_FIRST + (int)at);
	}
	return n + end_cancelled(loop);
}

static void do_random(struct loop *loop, void *p, size_t n)
{
	uint8_t *to = p;

	while (n-- > 0)
		*to++ = (uint8_t)random64(sim_of(loop));
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
			i + FD_FIRST, (int)k->kind, k->err, k->wire->dead ? " dead" : "",
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

struct sim *sim_new(uint64_t seed, bool rough)
{
	struct sim *s = fresh(sizeof(*s));

	s->seed = seed;
	s->rough = rough;
	s->now_us = START_US;
	s->wall_us = WALL0;
	s->window = SIM_WINDOW;
	s->next_port = 32768;
	list_init(&s->ending);
	return s;
}

static void wire_free(struct sim_wire *w)
{
	free(w->flow[IN].p);
	free(w->flow[OUT].p);
	free(w->peer.got);
	free(w->peer.out);
	free(w);
}

void sim_free(struct sim **sp)
{
	struct sim *s = *sp;

	*sp = NULL;
	if (!s)
		return;
	must(!s->loop);
	for (unsigned i = 0; i < s->n_socks; i++) {
		if (s->socks[i])
			free(s->socks[i]->queue);
		free(s->socks[i]);
	}
	for (struct place *p = s->places, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	for (struct sim_wire *w = s->wires, *next; w; w = next) {
		next = w->next;
		wire_free(w);
	}
	free(s->socks);
	free(s->events);
	free(s);
}

uint64_t sim_now_us(const struct sim *s)
{
	return s->now_us;
}

void sim_set_wall(struct sim *s, int64_t by_us)
{
	s->wall_us += by_us;
}

void sim_window(struct sim *s, uint32_t bytes)
{
	s->window = bytes;
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
