/* sim_world.c -- the world around the sim's sockets: randomness, events, what is on its way, peers.
 * Exports: sim_* (loop/sim.h, loop/sim_priv.h) */
#include "loop/sim_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

/* ---------------------------------------------------------------- small things */
void *sim_grown(void *p, size_t need, size_t *room, size_t each)
{
	if (need <= *room)
		return p;
	*room = need < 16 ? 16 : need * 2;
	p = realloc(p, *room * each);
	must(p != NULL);
	return p;
}

void *sim_fresh(size_t n)
{
	void *p = calloc(1, n);

	must(p != NULL);
	return p;
}

uint64_t sim_random64(struct sim *s) /* splitmix64 (Steele, Lea, Flood 2014) */
{
	uint64_t z = (s->seed += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t sim_random(struct sim *s, uint32_t n)
{
	must(n > 0);
	return (uint32_t)((sim_random64(s) >> 32) * n >> 32);
}

/* One time in n, and never when calm. */
bool sim_odd(struct sim *s, uint32_t n)
{
	return s->rough && sim_random(s, n) == 0;
}

/* How much of n happens at once: all, or rough: often less, now and then one byte. */
size_t sim_piece(struct sim *s, size_t n)
{
	if (n < 2 || !sim_odd(s, 2))
		return n;
	return sim_odd(s, 4) ? 1 : 1 + sim_random(s, (uint32_t)(n < 1u << 20 ? n : 1u << 20));
}

uint64_t sim_latency(struct sim *s)
{
	if (!s->rough)
		return SIM_LATENCY_US;
	return sim_odd(s, 8) ? sim_random(s, 50000) : sim_random(s, 300);
}

struct name sim_name(const struct sockaddr *sa, socklen_t n)
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

	s->events = sim_grown(s->events, s->n_events, &s->room_events, sizeof(*s->events));
	s->events[i] = (struct event){ .at = s->now_us + in_us,
				       .tie = s->rough ? sim_random64(s) : s->n_events_ever,
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

bool sim_run_events(struct sim *s)
{
	bool any = false;

	while (s->n_events > 0 && s->events[0].at <= s->now_us) {
		struct event e = pop_event(s);

		e.fn(e.arg);
		any = true;
	}
	return any;
}

/* ---------------------------------------------------------------- flows */
void sim_flow_put(struct flow *f, const void *p, size_t n)
{
	if (n == 0)
		return;
	f->p = sim_grown(f->p, f->n + n, &f->room, 1);
	memcpy(f->p + f->n, p, n);
	f->n += n;
}

void sim_flow_drop(struct flow *f, size_t n)
{
	must(n <= f->arrived);
	memmove(f->p, f->p + n, f->n - n);
	f->n -= n;
	f->arrived -= n;
}

size_t sim_room(const struct sim_wire *w, int dir)
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
	p->got = sim_grown(p->got, p->n_got + n + 1, &p->room_got, 1);
	if (n > 0) {
		memcpy(p->got + p->n_got, f->p, n);
		sim_flow_drop(f, n);
	}
	p->n_got += n;
	p->n_all += n;
	p->got[p->n_got] = 0;
	if (sim_flow_ended(f))
		p->eof = true;
}

static void arrive_out(void *arg)
{
	struct sim_wire *w = arg;
	struct flow *f = &w->flow[OUT];

	f->arrived += sim_piece(w->sim, f->n - f->arrived);
	if (f->arrived < f->n)
		sim_at(w->sim, sim_latency(w->sim), arrive_out, w);
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

void sim_send_reset(struct sim_wire *w)
{
	if (w->dead)
		return;
	w->dead = true;
	w->peer.n_out = 0;
	sim_at(w->sim, sim_latency(w->sim), reset_arrives_out, w);
}

void sim_arrive_out(struct sim_wire *w)
{
	sim_at(w->sim, sim_latency(w->sim), arrive_out, w);
}

void sim_send_fin(struct sim_wire *w)
{
	if (w->flow[OUT].fin || w->dead)
		return;
	w->flow[OUT].fin = true;
	sim_arrive_out(w);
}

static void arrive_in(void *arg)
{
	struct sim_wire *w = arg;
	struct flow *f = &w->flow[IN];

	if (w->dead)
		return;
	f->arrived += sim_piece(w->sim, f->n - f->arrived);
	if (f->arrived < f->n)
		sim_at(w->sim, sim_latency(w->sim), arrive_in, w);
	else if (f->fin)
		f->fin_arrived = true;
	if (w->closed && f->arrived > 0)
		sim_send_reset(w);
}

static void push_out(struct sim_peer *p)
{
	struct sim_wire *w = p->wire;
	size_t n = p->n_out, room = sim_room(w, IN);

	if (w->dead) {
		p->n_out = 0;
		return;
	}
	if (n > room)
		n = room;
	if (n > 0) {
		sim_flow_put(&w->flow[IN], p->out + p->out_at, n);
		p->n_out -= n;
		p->out_at = p->n_out ? p->out_at + n : 0;
	}
	if (p->n_out == 0 && p->fin)
		w->flow[IN].fin = true;
	if (n > 0 || w->flow[IN].fin)
		sim_at(w->sim, sim_latency(w->sim), arrive_in, w);
}

/* The reader at culvert's end took bytes. */
void sim_room_again(struct sim_wire *w)
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
	if (n == 0)
		return;
	p->out = sim_grown(p->out, p->out_at + p->n_out + n, &p->room_out, 1);
	memcpy(p->out + p->out_at + p->n_out, bytes, n);
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
	sim_at(p->wire->sim, sim_latency(p->wire->sim), reset_arrives_in, p->wire);
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

struct sim_wire *sim_wire_new(struct sim *s, const struct name *there, const struct name *here)
{
	struct sim_wire *w = sim_fresh(sizeof(*w));

	w->sim = s;
	w->there = *there;
	w->here = *here;
	w->window = s->window;
	w->peer.wire = w;
	w->peer.got = sim_grown(NULL, 1, &w->peer.room_got, 1);
	w->peer.got[0] = 0;
	w->next = s->wires;
	s->wires = w;
	return w;
}

const struct place *sim_place(const struct sim *s, const struct name *name)
{
	const struct place *p = s->places;

	while (p && !same_name(&p->name, name))
		p = p->next;
	return p;
}

/* ---------------------------------------------------------------- socks */
struct sock *sim_sock(const struct sim *s, int fd)
{
	must(fd >= SIM_FD_FIRST && (unsigned)(fd - SIM_FD_FIRST) < s->n_socks);
	must(s->socks[fd - SIM_FD_FIRST] != NULL);
	return s->socks[fd - SIM_FD_FIRST];
}

int sim_sock_new(struct sim *s, enum sock_kind kind)
{
	size_t room = s->room_socks;
	unsigned i = 0;

	while (i < s->n_socks && s->socks[i])
		i++;
	if (i == s->n_socks) {
		s->socks = sim_grown(s->socks, ++s->n_socks, &room, sizeof(*s->socks));
		s->room_socks = (unsigned)room;
	}
	s->socks[i] = sim_fresh(sizeof(struct sock));
	s->socks[i]->kind = kind;
	return SIM_FD_FIRST + (int)i;
}

void sim_sock_free(struct sim *s, int fd)
{
	struct sock *k = sim_sock(s, fd);

	for (unsigned i = 0; i < k->n_queue; i++)
		sim_send_reset(k->queue[i]);
	free(k->queue);
	free(k);
	s->socks[fd - SIM_FD_FIRST] = NULL;
}

void sim_unlisten(struct sim *s, int listen_fd)
{
	must(sim_sock(s, listen_fd)->kind == SOCK_LISTENS);
	sim_sock_free(s, listen_fd);
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
	int fd = sim_sock_new(s, SOCK_LISTENS);

	sim_sock(s, fd)->name = sim_name(sa, n);
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
		l->queue = sim_grown(l->queue, l->n_queue + 1u, &room, sizeof(struct sim_wire *));
		l->room_queue = (unsigned)room;
		l->queue[l->n_queue++] = w;
		return;
	}
	w->dead = true;
	reset_arrives_out(w);
}

struct sim_peer *sim_call(struct sim *s, const struct sockaddr *to, const struct sockaddr *from,
			  socklen_t n)
{
	struct name there = sim_name(from, n), here = sim_name(to, n);
	struct sim_wire *w = sim_wire_new(s, &there, &here);

	sim_at(s, sim_latency(s), call_arrives, w);
	return &w->peer;
}

void sim_answer(struct sim *s, const struct sockaddr *sa, socklen_t n, enum sim_answer answer,
		void (*on_peer)(struct sim_peer *, void *arg), void *arg)
{
	struct name name = sim_name(sa, n);
	struct place *p = s->places;

	while (p && !same_name(&p->name, &name))
		p = p->next;
	if (!p) {
		p = sim_fresh(sizeof(*p));
		p->name = name;
		p->next = s->places;
		s->places = p;
	}
	p->answer = answer;
	p->on_peer = on_peer;
	p->arg = arg;
}

/* ---------------------------------------------------------------- life */
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
