/* fault.c -- see fault.h.  io_uring makes no system call that a test could intercept: so faults are
 * put in here, between the front and the back end, and do the same to every back end.
 *
 * A delayed op is held: its arguments are copied, and it goes on to the back end when its turns
 * have passed. */
#include "loop/fault.h"

#include "loop/priv.h"

#include <stdlib.h>

struct held {
	struct list node;
	struct op *op;
	uint32_t turns; /* left */
	bool shared;
	unsigned events, n_iov;
	socklen_t sa_len;
	struct sockaddr_storage sa;
	struct iovec iov[LOOP_IOV];
};

struct fault {
	const struct fault_plan *plan;
	uint32_t seen[FAULT_KINDS]; /* [FAULT_ANY]: all */
	uint32_t hits;
	struct list held;
};

/* Counts, and says which rule fits. */
static const struct fault_rule *meet(struct loop *loop, uint8_t kind)
{
	struct fault *f = loop->fault;

	f->seen[FAULT_ANY]++;
	f->seen[kind]++;
	for (uint32_t i = 0; i < f->plan->n_rules; i++) {
		const struct fault_rule *r = &f->plan->rules[i];
		uint32_t at = f->seen[r->kind];

		if ((r->kind != FAULT_ANY && r->kind != kind) || at < r->nth ||
		    at - r->nth >= (r->times ? r->times : 1))
			continue;
		f->hits++;
		return r;
	}
	return NULL;
}

/* True: the rule has dealt with the op.  *held: its arguments are to be kept there; NULL: they go
 * on. */
static bool apply(struct loop *loop, struct op *op, const struct fault_rule *r, struct held **held)
{
	struct fault *f = loop->fault;
	struct held *h;

	*held = NULL;
	if (!r)
		return false;
	if (r->res < 0) {
		loop_defer(loop, op, r->res);
		return true;
	}
	if (r->delay == 0)
		return false;
	h = calloc(1, sizeof(*h));
	must(h != NULL);
	h->op = op;
	h->turns = r->delay;
	op->back_flags |= OPF_HELD;
	op->back.out.p = h;
	list_push_tail(&f->held, &h->node);
	*held = h;
	return true;
}

static void hand_on(struct loop *loop, struct held *h)
{
	const struct loop_backend *be = loop->real_be;
	struct op *op = h->op;

	op->back_flags = 0;
	switch (op->kind) {
	case OP_ACCEPT: be->accept(loop, op, h->shared); break;
	case OP_CONNECT: be->connect(loop, op, (struct sockaddr *)&h->sa, h->sa_len); break;
	case OP_RECV: be->recv(loop, op); break;
	case OP_SEND: be->send(loop, op, h->iov, h->n_iov); break;
	default: be->poll(loop, op, h->events); break;
	}
	free(h);
}

/* --- ops --- */
static void f_accept(struct loop *loop, struct op *op, bool shared)
{
	struct held *h;

	if (!apply(loop, op, meet(loop, OP_ACCEPT), &h))
		loop->real_be->accept(loop, op, shared);
	else if (h)
		h->shared = shared;
}

static void f_connect(struct loop *loop, struct op *op, const struct sockaddr *sa, socklen_t n)
{
	struct held *h;

	if (!apply(loop, op, meet(loop, OP_CONNECT), &h)) {
		loop->real_be->connect(loop, op, sa, n);
	} else if (h) {
		memcpy(&h->sa, sa, n);
		h->sa_len = n;
	}
}

static void f_recv(struct loop *loop, struct op *op)
{
	struct held *h;

	if (!apply(loop, op, meet(loop, OP_RECV), &h))
		loop->real_be->recv(loop, op);
}

/* Copies what fits into max bytes; returns how many entries. */
static unsigned cut_iov(struct iovec *to, const struct iovec *from, unsigned n, size_t max)
{
	unsigned i;

	for (i = 0; i < n && max > 0; i++) {
		to[i] = from[i];
		if (to[i].iov_len > max)
			to[i].iov_len = max;
		max -= to[i].iov_len;
	}
	return i;
}

static void f_send(struct loop *loop, struct op *op, const struct iovec *iov, unsigned n)
{
	const struct fault_rule *r = meet(loop, OP_SEND);
	size_t max = r && r->send_max ? r->send_max : SIZE_MAX;
	struct iovec cut[LOOP_IOV];
	struct held *h;

	if (!apply(loop, op, r, &h)) {
		n = cut_iov(cut, iov, n, max);
		loop->real_be->send(loop, op, cut, n);
	} else if (h) {
		h->n_iov = cut_iov(h->iov, iov, n, max);
	}
}

static void f_poll(struct loop *loop, struct op *op, unsigned events)
{
	struct held *h;

	if (op == &loop->box.poll || !apply(loop, op, meet(loop, OP_POLL), &h))
		loop->real_be->poll(loop, op, events);
	else if (h)
		h->events = events;
}

static void f_cancel(struct loop *loop, struct op *op)
{
	struct held *h;

	if (!(op->back_flags & OPF_HELD)) {
		loop->real_be->cancel(loop, op);
		return;
	}
	h = (struct held *)(uintptr_t)op->back.out.p;
	list_remove(&h->node);
	free(h);
	op->back_flags = 0;
	loop_defer(loop, op, -ECANCELED);
}

/* --- sockets --- */
static int f_socket(struct loop *loop, int family, int type)
{
	const struct fault_rule *r = meet(loop, FAULT_SOCKET);

	return r && r->res < 0 ? r->res : loop->real_be->socket(loop, family, type);
}

static int f_sockopt(struct loop *loop, int fd, int level, int name, const void *val, socklen_t n)
{
	return loop->real_be->sockopt(loop, fd, level, name, val, n);
}

static int f_sockname(struct loop *loop, int fd, bool peer, struct sockaddr *sa, socklen_t *n)
{
	return loop->real_be->sockname(loop, fd, peer, sa, n);
}

static int f_shutdown(struct loop *loop, int fd, int how)
{
	return loop->real_be->shutdown(loop, fd, how);
}

static void f_close_fd(struct loop *loop, int fd)
{
	loop->real_be->close_fd(loop, fd);
}

/* --- the turn --- */
static void f_wait(struct loop *loop, uint64_t wait_us)
{
	loop->real_be->wait(loop, wait_us);
}

static void f_clock(struct loop *loop, uint64_t *mono_us, int64_t *wall_us)
{
	loop->real_be->clock(loop, mono_us, wall_us);
}

static unsigned f_reap(struct loop *loop)
{
	struct fault *f = loop->fault;
	struct list *node, *tmp;

	list_each_safe(node, tmp, &f->held)
	{
		struct held *h = container_of(node, struct held, node);

		if (h->turns-- > 1)
			continue;
		list_remove(&h->node);
		hand_on(loop, h); /* submits only: nothing is done() in here */
	}
	return loop->real_be->reap(loop);
}

static unsigned f_flush(struct loop *loop)
{
	return loop->real_be->flush ? loop->real_be->flush(loop) : 0;
}

static bool f_busy(const struct loop *loop)
{
	const struct fault *f = loop->fault;

	return !list_empty(&f->held) || (loop->real_be->busy && loop->real_be->busy(loop));
}

static void f_random(struct loop *loop, void *p, size_t n)
{
	loop->real_be->random(loop, p, n);
}

const struct loop_backend loop_fault = {
	.name = "fault",
	.socket = f_socket,
	.sockopt = f_sockopt,
	.sockname = f_sockname,
	.shutdown = f_shutdown,
	.close_fd = f_close_fd,
	.accept = f_accept,
	.connect = f_connect,
	.recv = f_recv,
	.send = f_send,
	.poll = f_poll,
	.cancel = f_cancel,
	.wait = f_wait,
	.clock = f_clock,
	.reap = f_reap,
	.flush = f_flush,
	.busy = f_busy,
	.random = f_random,
};

/* --- life --- */
int fault_open(struct loop *loop, const struct fault_plan *plan)
{
	struct fault *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	must(plan->n_rules <= FAULT_RULES);
	f->plan = plan;
	list_init(&f->held);
	loop->fault = f;
	loop->single_shot = plan->single_shot;
	loop->no_limit = plan->no_limit;
	loop->be = &loop_fault;
	return 0;
}

void fault_close(struct loop *loop)
{
	struct fault *f = loop->fault;

	if (!f)
		return;
	must(list_empty(&f->held));
	free(f);
	loop->fault = NULL;
	loop->be = loop->real_be;
}

uint32_t fault_seen(const struct loop *loop, uint8_t kind)
{
	const struct fault *f = loop->fault;

	return f ? f->seen[kind] : 0;
}

uint32_t fault_hits(const struct loop *loop)
{
	const struct fault *f = loop->fault;

	return f ? f->hits : 0;
}
