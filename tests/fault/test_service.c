/* Every op of the loop fails, comes late or sends short, at each place of each scenario, on both
 * back ends.
 *
 * For each (scenario, kind of op, error) the n-th op of that kind is struck, n = 1, 2, … until a
 * run has met no fault.  Always must hold: it ends in bounded time, the client sees a status that
 * fits or the end, the next request on a new connection works, everything is given back. */
#include "rig.h"

#include <errno.h>

#define N_MAX 60u

static const struct fault {
	uint8_t kind;
	int32_t res;
	uint32_t send_max, delay, times;
	const char *name, *only; /* the one scenario that it is for: it takes long */
} faults[] = {
	{ .kind = OP_ACCEPT, .res = -EMFILE, .name = "accept: no descriptor" },
	{ .kind = OP_ACCEPT, .res = -ENOBUFS, .name = "accept: no buffers", .only = "GET" },
	{ .kind = OP_ACCEPT, .res = -ECONNABORTED, .name = "accept: gone already" },
	{ .kind = OP_ACCEPT, .delay = 3, .name = "accept: late" },
	{ .kind = OP_CONNECT, .res = -ECONNREFUSED, .name = "connect: refused" },
	{ .kind = OP_CONNECT, .res = -ETIMEDOUT, .name = "connect: timeout" },
	{ .kind = OP_CONNECT, .res = -EADDRNOTAVAIL, .name = "connect: no port" },
	{ .kind = OP_CONNECT, .res = -ECANCELED, .name = "connect: cancelled" },
	{ .kind = OP_CONNECT, .res = -ECONNREFUSED, .times = 8, .name = "connect: all refused" },
	{ .kind = OP_CONNECT, .delay = 3, .name = "connect: late" },
	{ .kind = OP_RECV, .res = -ECONNRESET, .name = "recv: reset" },
	{ .kind = OP_RECV, .res = -ETIMEDOUT, .name = "recv: timeout" },
	{ .kind = OP_RECV, .res = -ENOBUFS, .name = "recv: no buffers" },
	{ .kind = OP_RECV, .res = -ENOBUFS, .times = 3, .name = "recv: no buffers, thrice" },
	{ .kind = OP_RECV, .res = -ENOMEM, .name = "recv: no memory" },
	{ .kind = OP_RECV, .res = -ECANCELED, .name = "recv: cancelled" },
	{ .kind = OP_RECV, .delay = 3, .name = "recv: late" },
	{ .kind = OP_SEND, .res = -EPIPE, .name = "send: broken pipe" },
	{ .kind = OP_SEND, .res = -ECONNRESET, .name = "send: reset" },
	{ .kind = OP_SEND, .res = -ENOBUFS, .name = "send: no buffers", .only = "GET" },
	{ .kind = OP_SEND, .res = -ECANCELED, .name = "send: cancelled" },
	{ .kind = OP_SEND, .send_max = 7, .name = "send: short" },
	{ .kind = OP_SEND, .send_max = 1, .times = 16, .name = "send: byte by byte" },
	{ .kind = OP_SEND, .delay = 3, .name = "send: late" },
	{ .kind = OP_POLL, .res = -ENOMEM, .name = "poll: no memory" },
	{ .kind = OP_POLL, .res = -ECANCELED, .name = "poll: cancelled" },
	{ .kind = OP_POLL, .delay = 3, .name = "poll: late" },
	{ .kind = FAULT_SOCKET, .res = -EMFILE, .name = "socket: no descriptor" },
	{ .kind = FAULT_SOCKET, .res = -ENOBUFS, .name = "socket: no buffers" },
	{ .kind = FAULT_SOCKET, .res = -EMFILE, .times = 8, .name = "socket: never again" },
};

/* Late and short is no fault at all; what is lacking is asked for again; a server that cannot be
 * reached is left for the other one. */
static bool harmless(const struct scenario *s, const struct fault *f)
{
	bool server = f->res == -ECONNREFUSED || f->res == -ETIMEDOUT;
	bool lacks = f->res == -ENOBUFS || f->res == -ENOMEM || f->res == -ECANCELED;

	switch (f->kind) {
	case OP_ACCEPT:
	case OP_POLL: return true;
	case OP_CONNECT: return f->res == 0 || (server && !s->forward && !f->times);
	case OP_RECV: return f->res == 0 || lacks;
	case OP_SEND: return f->res == 0 || f->res == -ECANCELED;
	default: return false;
	}
}

/* 0: the client saw the end. */
static bool fits(const struct scenario *s, unsigned status)
{
	return status == 0 || status == s->good || (status >= 500 && status <= 504);
}

static void judge(const struct scenario *s, const struct fault *f, const struct outcome *o)
{
	if (!fits(s, o->status))
		print_error("status %u\n", o->status);
	rig_must(fits(s, o->status));
	if (harmless(s, f))
		rig_must(o->complete && o->status == s->good);
}

/* The fault is over: the next one is served. */
static void again(struct rig *r, const struct scenario *s)
{
	struct outcome o;

	r->plan.n_rules = 0;
	o = rig_exchange(r, s);
	if (o.status != s->good)
		print_error("then %u: %s\n", o.status, r->got);
	rig_must(o.status == s->good && o.complete);
}

/* As on kernels without multishot, or without a limit for it. */
static bool plain_kernel;

/* True: the fault was met. */
static bool run(enum loop_io io, const struct scenario *s, const struct fault *f, unsigned nth)
{
	static struct rig r;
	unsigned before = rig_fds(), hits;
	struct outcome o;

	memset(&r, 0, sizeof(r));
	rig_context("%s, %s, the %u.%s", s->name, f->name, nth,
		    plain_kernel ? ", single shot" : "");
	r.plan.single_shot = r.plan.no_limit = plain_kernel;
	r.plan.n_rules = 1;
	r.plan.rules[0] = (struct fault_rule){ .kind = f->kind,
					       .nth = nth,
					       .times = f->times,
					       .res = f->res,
					       .delay = f->delay,
					       .send_max = f->send_max };
	rig_must(rig_open(&r, io, 64 << 20));
	o = rig_exchange(&r, s);
	hits = fault_hits(r.loop);
	judge(s, f, &o);
	rig_must(hits || (o.status == s->good && o.complete));
	if (hits && !s->drain)
		again(&r, s);
	rig_close(&r);
	rig_must(rig_fds() == before);
	return hits > 0;
}

static bool worth_it(const struct fault *f, const struct scenario *s)
{
	return !f->only || (strcmp(f->only, s->name) == 0 && !plain_kernel);
}

static void sweep(enum loop_io io, const struct scenario *s)
{
	for (unsigned f = 0; f < ARRAY_LEN(faults); f++) {
		unsigned nth = 1;

		if (!worth_it(&faults[f], s))
			continue;
		while (nth < N_MAX && run(io, s, &faults[f], nth))
			nth++;
		rig_must(nth < N_MAX);
	}
}

static void sweep_all(enum loop_io io, bool plain)
{
	char text[128];

	if (io == LOOP_URING && loop_probe_uring(text) < 0)
		skip();
	plain_kernel = plain;
	for (unsigned i = 0; i < rig_n_scenarios; i++)
		sweep(io, &rig_scenarios[i]);
}

static void test_epoll(void **state)
{
	(void)state;
	sweep_all(LOOP_EPOLL, false);
}

static void test_uring(void **state)
{
	(void)state;
	sweep_all(LOOP_URING, false);
}

static void test_epoll_single_shot(void **state)
{
	(void)state;
	sweep_all(LOOP_EPOLL, true);
}

static void test_uring_single_shot(void **state)
{
	(void)state;
	sweep_all(LOOP_URING, true);
}

static void test_log(void **state)
{
	(void)state;
	rig_check_log();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_epoll),
					    cmocka_unit_test(test_uring),
					    cmocka_unit_test(test_epoll_single_shot),
					    cmocka_unit_test(test_uring_single_shot),
					    cmocka_unit_test(test_log) };

	rig_open_log();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
