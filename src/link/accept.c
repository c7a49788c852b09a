/* accept.c -- takes connections out of a listening socket, for one shard.  Exports: acceptor_*,
 * acceptors_*
 *
 *     running    the accept op is armed
 *     resting    no descriptors, no memory, or may() said no: an alarm looks again, acceptors_go()
 *                too
 *     stopping   the op is being cancelled; then what still queues is accepted until EAGAIN; then
 *                done() and the end
 *
 * A multishot accept may bring a few connections more after may() has said no: they are delivered,
 * the owner decides. */
#include "link/priv.h"

#include <stdlib.h>
#include <sys/socket.h>

#define REST_MS        100
#define SWEEP_TURN     64 /* connections accepted per turn while stopping */
#define ACCEPTOR_MAGIC 0xacce9702u

struct acceptor {
	uint32_t magic;
	int fd;
	struct loop *loop;
	struct op op;
	const struct acceptor_ops *ops;
	void *owner;
	void (*done)(void *owner);
	struct alarm rest;
	struct task sweep;
	struct list node;
	bool shared;
	bool resting;
	bool stopping;
};

/* --- the end --- */
static void finish(struct acceptor *a)
{
	void (*done)(void *) = a->done;
	void *owner = a->owner;

	loop_alarm_off(&a->rest);
	loop_task_off(a->loop, &a->sweep);
	list_remove(&a->node);
	loop_forget(a->loop, a->fd); /* who bound it closes it */
	a->magic = 0;
	free(a);
	if (done)
		done(owner);
}

static bool may(struct acceptor *a)
{
	return !a->ops->may || a->ops->may(a);
}

static void rest(struct acceptor *a)
{
	a->resting = true;
	if (!op_idle(&a->op))
		loop_cancel(a->loop, &a->op);
	loop_alarm(a->loop, &a->rest, REST_MS);
}

/* Arms the op, or rests. */
static void go_on(struct acceptor *a)
{
	if (a->stopping)
		return;
	if (!may(a)) {
		rest(a);
		return;
	}
	a->resting = false;
	loop_alarm_off(&a->rest);
	if (op_idle(&a->op))
		loop_accept(a->loop, &a->op, a->fd, a->shared);
}

/* --- one connection --- */
/* False: it is gone already. */
static bool peer_of(struct loop *loop, int fd, struct addr *peer)
{
	struct sockaddr_storage ss;
	socklen_t n = sizeof(ss);

	memset(peer, 0, sizeof(*peer));
	if (loop_sockname(loop, fd, true, (struct sockaddr *)&ss, &n))
		return false;
	if (ss.ss_family == AF_INET || ss.ss_family == AF_INET6) {
		must(n <= sizeof(peer->u));
		memcpy(&peer->u, &ss, n);
		peer->len = n;
		addr_unmap(peer);
	} else {
		peer->u.sa.sa_family = AF_UNIX;
		peer->len = sizeof(sa_family_t);
	}
	return true;
}

static void deliver(struct acceptor *a, int fd)
{
	struct addr peer;

	if (!peer_of(a->loop, fd, &peer)) {
		loop_close(a->loop, fd);
		return;
	}
	a->ops->on_accept(a, fd, &peer);
}

/* --- stopping: what queues is accepted by hand, for the loop does not say when the queue is empty
 * --- */
static void sweep(struct task *t)
{
	struct acceptor *a = container_of(t, struct acceptor, sweep);
	int fd = -1;

	must(a->magic == ACCEPTOR_MAGIC && a->stopping && op_idle(&a->op));
	if (!a->done || !loop_can_splice(a->loop)) {
		finish(a);
		return;
	}
	for (int i = 0; i < SWEEP_TURN; i++) {
		fd = accept4(a->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			deliver(a, fd);
		else if (errno != ECONNABORTED && errno != EINTR)
			break;
	}
	if (fd < 0)
		finish(a);
	else
		loop_alarm(a->loop, &a->rest, 0); /* the next turn */
}

static void on_rest_over(struct alarm *al)
{
	struct acceptor *a = container_of(al, struct acceptor, rest);

	must(a->magic == ACCEPTOR_MAGIC);
	if (!a->stopping)
		go_on(a);
	else if (op_idle(&a->op))
		loop_soon(a->loop, &a->sweep);
}

void acceptor_stop(struct acceptor **ap, void (*done)(void *owner))
{
	struct acceptor *a = *ap;

	*ap = NULL;
	if (!a)
		return;
	must(a->magic == ACCEPTOR_MAGIC && !a->stopping);
	a->stopping = true;
	a->done = done;
	loop_alarm_off(&a->rest);
	if (op_idle(&a->op))
		loop_soon(a->loop, &a->sweep);
	else
		loop_cancel(a->loop, &a->op);
}

/* --- running --- */
/* Errors of one connection: the next one may be well. */
static bool passes(int32_t res)
{
	switch (-res) {
	case ECONNABORTED:
	case ECANCELED:
	case EAGAIN:
	case EINTR:
	case EPROTO:
	case ENETDOWN:
	case ENETUNREACH:
	case EHOSTDOWN:
	case EHOSTUNREACH:
	case ENONET:
	case ENOPROTOOPT:
	case EOPNOTSUPP: return true;
	default: return false;
	}
}

static void on_accepted(struct op *op, int32_t res)
{
	struct acceptor *a = container_of(op, struct acceptor, op);

	must(a->magic == ACCEPTOR_MAGIC);
	if (res >= 0 && a->stopping && !a->done)
		loop_close(a->loop, res);
	else if (res >= 0)
		deliver(a, res);
	if (a->stopping) {
		if (op_idle(op))
			loop_soon(a->loop, &a->sweep);
		return;
	}
	if (res < 0 && !passes(res))
		rest(a);
	else if (!a->resting && !may(a))
		rest(a);
	else if (op_idle(op) && !a->resting)
		go_on(a);
}

void acceptors_go(struct loop *loop)
{
	struct link_shard *s = link_shard(loop);
	struct list *node, *next;

	list_each_safe(node, next, &s->acceptors)
	{
		struct acceptor *a = container_of(node, struct acceptor, node);

		if (a->resting && op_idle(&a->op))
			go_on(a);
	}
}

struct acceptor *acceptor_new(struct loop *loop, int fd, bool shared,
			      const struct acceptor_ops *ops, void *owner)
{
	struct acceptor *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->magic = ACCEPTOR_MAGIC;
	a->fd = fd;
	a->loop = loop;
	a->shared = shared;
	a->ops = ops;
	a->owner = owner;
	op_init(&a->op, on_accepted);
	alarm_init(&a->rest, on_rest_over);
	task_init(&a->sweep, sweep);
	list_push_tail(&link_shard(loop)->acceptors, &a->node);
	loop_alarm(loop, &a->rest, 0); /* may() asks the owner, who is not ready inside this call */
	a->resting = true;
	return a;
}

void *acceptor_owner(const struct acceptor *a)
{
	return a->owner;
}
