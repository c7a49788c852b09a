/* epoll.c -- the loop on epoll, for kernels and containers that refuse io_uring.
 *
 * Every descriptor is registered once, edge-triggered, for reading, writing and the peer's end;
 * what is known of it is kept in its slot's bits, so that no system call asks twice:
 *
 *   IN      an edge said readable, and no read has come up short since
 *   RDHUP   the peer has ended (or an error stands): a short read does not mean drained, the end is
 *           still to be read
 *   FULL    a write met EAGAIN, and no edge said writable since
 *
 * A send is tried inside the submit and its result deferred to this turn's flush; a connect or a
 * send that has to wait sits in its slot until the edge.  A receive reads until a short read or the
 * turn's budget, then it goes on in the next turn (ready list).  Closing drops the registration
 * with the descriptor, except where another process holds the same open file (listeners). */
#include "loop/priv.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_TURN 512
#define ACCEPT_TURN 64

enum { EB_REGISTERED = 1, EB_IN = 2, EB_RDHUP = 4, EB_FULL = 8, EB_LISTEN = 16 };
enum { OPF_READY = OPF_BACK, OPF_SHARED = OPF_BACK << 1 };

struct epoll {
	int fd;
	int n_events;
	/* of op.back.node: reads and accepts that have work without a new edge */
	struct list ready;
	struct slab iovs; /* copies of iovec arrays while a send waits */
	struct epoll_event events[EVENTS_TURN];
};

static inline struct fd_slot *slot_of(struct loop *loop, int fd)
{
	return &loop->slots[fd];
}

static bool join(struct loop *loop, struct op *op, uint32_t events)
{
	struct epoll *e = loop->back;
	struct fd_slot *slot = slot_of(loop, op->fd);
	struct epoll_event ev = { .events = events | EPOLLET,
				  .data.u64 = (uint64_t)slot->gen << 32 | (uint32_t)op->fd };

	if (epoll_ctl(e->fd, EPOLL_CTL_ADD, op->fd, &ev)) {
		loop_defer(loop, op, -errno);
		return false;
	}
	slot->bits |= EB_REGISTERED;
	return true;
}

/* Registers the descriptor if it is not yet; the kernel then reports at once what already holds.
 * False: the op was deferred. */
static inline bool watch(struct loop *loop, struct op *op)
{
	return (slot_of(loop, op->fd)->bits & EB_REGISTERED) ||
	       join(loop, op, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
}

static void make_ready(struct loop *loop, struct op *op)
{
	struct epoll *e = loop->back;

	op->back_flags |= OPF_READY;
	list_push_tail(&e->ready, &op->back.node);
}

/* --- accept --- */
static void epoll_accept(struct loop *loop, struct op *op, bool shared)
{
	struct fd_slot *slot = slot_of(loop, op->fd);

	slot->bits |= EB_LISTEN;
	if (shared)
		op->back_flags |= OPF_SHARED;
	if (!(slot->bits & EB_REGISTERED))
		join(loop, op, shared ? EPOLLIN | EPOLLEXCLUSIVE : EPOLLIN);
	else if (slot->bits & EB_IN)
		make_ready(loop, op);
}

static void pump_accept(struct loop *loop, struct op *op)
{
	for (int i = 0; i < ACCEPT_TURN; i++) {
		int fd = accept4(op->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && errno == EAGAIN) {
			slot_of(loop, op->fd)->bits &= ~(uint32_t)EB_IN;
			return;
		}
		if (fd < 0 && errno == EINTR)
			continue;
		if (fd < 0 || (op->back_flags & OPF_SHARED) || loop->single_shot) {
			loop_finish(loop, op, fd < 0 ? -errno : fd);
			return;
		}
		loop_report(op, fd);
		if (op->state != OP_ARMED)
			return;
	}
	make_ready(loop, op);
}

/* --- connect --- */
static void epoll_connect(struct loop *loop, struct op *op, const struct sockaddr *sa, socklen_t n)
{
	if (connect(op->fd, sa, n) == 0)
		loop_defer(loop, op, 0);
	else if (errno != EINPROGRESS)
		loop_defer(loop, op, -errno);
	else
		watch(loop, op); /* only now: an unconnected socket is "writable" */
}

static void pump_connect(struct loop *loop, struct op *op)
{
	int err = 0;
	socklen_t n = sizeof(err);

	if (getsockopt(op->fd, SOL_SOCKET, SO_ERROR, &err, &n))
		err = errno;
	loop_finish(loop, op, -err);
}

/* --- recv --- */
static void epoll_recv(struct loop *loop, struct op *op)
{
	struct fd_slot *slot = slot_of(loop, op->fd);

	if (!(slot->bits & EB_REGISTERED))
		watch(loop, op);
	else if (slot->bits & (EB_IN | EB_RDHUP))
		make_ready(loop, op);
}

static void recv_ended(struct loop *loop, struct op *op, struct seg *seg, ssize_t r)
{
	int err = r < 0 ? errno : 0;

	seg_drop(&seg);
	if (err == EAGAIN)
		slot_of(loop, op->fd)->bits &= ~(uint32_t)EB_IN;
	else
		loop_finish(loop, op, -err);
}

static void pump_recv(struct loop *loop, struct op *op)
{
	struct seg_pool *pool = &loop->segs[op->seg_class];
	/* whole segs, as io_uring's limit */
	uint32_t left = LOOP_RECV_TURN / pool->cap * pool->cap;

	for (;;) {
		struct fd_slot *slot = slot_of(loop, op->fd);
		struct seg *seg = seg_get(pool);
		bool drained;
		ssize_t r;

		if (__builtin_expect(!seg, 0)) {
			loop_finish(loop, op, -ENOBUFS);
			return;
		}
		do
			r = recv(op->fd, seg->data, seg->cap, 0);
		while (r < 0 && errno == EINTR);
		if (r <= 0) {
			recv_ended(loop, op, seg, r);
			return;
		}
		left -= (uint32_t)r;
		seg->used = (uint32_t)r;
		op->seg = seg;
		drained = (uint32_t)r < seg->cap && !(slot->bits & EB_RDHUP);
		if (drained) /* the next byte brings an edge */
			slot->bits &= ~(uint32_t)EB_IN;
		if (loop->single_shot) {
			loop_finish(loop, op, (int32_t)r);
			return;
		}
		loop_report(op, (int32_t)r);
		if (op->state != OP_ARMED || drained)
			return;
		if (left < pool->cap) {
			make_ready(loop, op);
			return;
		}
	}
}

/* --- send --- */
static ssize_t send_one(int fd, const void *p, size_t n)
{
	ssize_t r;

	do
		r = send(fd, p, n, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static NOINLINE ssize_t send_many(int fd, const struct iovec *iov, unsigned n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
	ssize_t r;

	do
		r = sendmsg(fd, &msg, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

/* Keeps the iovec until the descriptor is writable: one entry in the op itself, more in a copy. */
static bool keep_iov(struct loop *loop, struct op *op, const struct iovec *iov, unsigned n)
{
	struct epoll *e = loop->back;

	op->back_n = n == 1 ? (uint32_t)iov->iov_len : n;
	op->back.out.p = iov->iov_base;
	op->back.out.iov = NULL;
	if (n == 1 && iov->iov_len <= UINT32_MAX)
		return true;
	op->back_n = n;
	op->back.out.iov = slab_get(&e->iovs);
	if (!op->back.out.iov)
		return false;
	memcpy(op->back.out.iov, iov, n * sizeof(*iov));
	return true;
}

static void drop_iov(struct loop *loop, struct op *op)
{
	struct epoll *e = loop->back;

	slab_put(&e->iovs, op->back.out.iov);
	op->back.out.iov = NULL;
}

static void epoll_send(struct loop *loop, struct op *op, const struct iovec *iov, unsigned n)
{
	struct fd_slot *slot = slot_of(loop, op->fd);

	if (!(slot->bits & EB_FULL)) {
		ssize_t r = n == 1 ? send_one(op->fd, iov->iov_base, iov->iov_len)
				   : send_many(op->fd, iov, n);

		if (r != -EAGAIN) {
			loop_defer(loop, op, (int32_t)r);
			return;
		}
		slot->bits |= EB_FULL;
	}
	if (!(slot->bits & EB_REGISTERED) && !join(loop, op, EPOLLIN | EPOLLOUT | EPOLLRDHUP))
		return;
	if (!keep_iov(loop, op, iov, n))
		loop_defer(loop, op, -ENOMEM);
}

static void pump_send(struct loop *loop, struct op *op)
{
	struct iovec *iov = op->back.out.iov;
	ssize_t r = iov ? send_many(op->fd, iov, op->back_n)
			: send_one(op->fd, op->back.out.p, op->back_n);

	if (r == -EAGAIN) {
		slot_of(loop, op->fd)->bits |= EB_FULL;
		return;
	}
	drop_iov(loop, op);
	loop_finish(loop, op, (int32_t)r);
}

/* --- poll: the level is asked for once, then edges --- */
static void epoll_poll(struct loop *loop, struct op *op, unsigned events)
{
	struct pollfd p = { .fd = op->fd, .events = (short)events };

	if (poll(&p, 1, 0) > 0)
		loop_defer(loop, op, p.revents);
	else if (watch(loop, op))
		op->back_n = events;
}

/* --- cancel, close --- */
static void epoll_cancel(struct loop *loop, struct op *op)
{
	if (op->back_flags & OPF_READY)
		list_remove(&op->back.node);
	else if (op->kind == OP_SEND)
		drop_iov(loop, op);
	loop_defer(loop, op, -ECANCELED);
}

static void epoll_forget_fd(struct loop *loop, int fd)
{
	struct epoll *e = loop->back;

	if (slot_of(loop, fd)->bits & EB_REGISTERED)
		(void)epoll_ctl(e->fd, EPOLL_CTL_DEL, fd, NULL);
}

static void epoll_close_fd(struct loop *loop, int fd)
{
	struct epoll *e = loop->back;

	if ((uint32_t)fd < loop->n_slots && (slot_of(loop, fd)->bits & EB_LISTEN))
		epoll_ctl(e->fd, EPOLL_CTL_DEL, fd, NULL);
	close(fd);
}

/* --- the turn --- */
static void epoll_wait_turn(struct loop *loop, uint64_t wait_us)
{
	struct epoll *e = loop->back;
	uint64_t ms = (wait_us + 999) / 1000;

	e->n_events = epoll_wait(e->fd, e->events, EVENTS_TURN, ms > INT_MAX ? INT_MAX : (int)ms);
	if (e->n_events < 0) {
		must(errno == EINTR);
		e->n_events = 0;
	}
}

static void pump_in(struct loop *loop, struct op *op)
{
	if (op->kind == OP_RECV)
		pump_recv(loop, op);
	else
		pump_accept(loop, op);
}

static inline bool stale(const struct loop *loop, const struct epoll_event *ev)
{
	return loop->slots[(uint32_t)ev->data.u64].gen != (uint32_t)(ev->data.u64 >> 32);
}

/* The op of this column, if the back end has it to work on: not when its end is on the way
 * already. */
static inline struct op *live_op(struct loop *loop, uint32_t fd, enum slot_col col)
{
	struct op *op = loop->slots[fd].op[col];

	return op && !(op->back_flags & (OPF_DEFERRED | OPF_READY | OPF_HELD)) ? op : NULL;
}

static void on_event(struct loop *loop, const struct epoll_event *ev)
{
	uint32_t fd = (uint32_t)ev->data.u64, was = ev->events;
	struct fd_slot *slot = &loop->slots[fd];
	struct op *op;

	if (was & (EPOLLRDHUP | EPOLLERR | EPOLLHUP))
		slot->bits |= EB_IN | EB_RDHUP;
	if (was & EPOLLIN)
		slot->bits |= EB_IN;
	if (was & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
		slot->bits &= ~(uint32_t)EB_FULL;
		op = live_op(loop, fd, COL_OUT);
		if (op && op->kind == OP_SEND)
			pump_send(loop, op);
		else if (op)
			pump_connect(loop, op);
		if (stale(loop, ev))
			return;
	}
	op = live_op(loop, fd, COL_POLL);
	if (op && (was & (op->back_n | EPOLLERR | EPOLLHUP))) {
		loop_finish(loop, op, (int32_t)(was & (op->back_n | EPOLLERR | EPOLLHUP)));
		if (stale(loop, ev))
			return;
	}
	op = live_op(loop, fd, COL_IN);
	if (op && (loop->slots[fd].bits & EB_IN))
		pump_in(loop, op);
}

static unsigned epoll_reap(struct loop *loop)
{
	struct epoll *e = loop->back;
	struct list now, *node;
	unsigned n = 0;

	list_init(&now); /* what gets ready from here on waits for the next turn */
	if (!list_empty(&e->ready)) {
		list_insert_after(&e->ready, &now);
		list_remove(&e->ready);
	}
	for (int i = 0; i < e->n_events; i++) {
		if (stale(loop, &e->events[i]))
			continue;
		on_event(loop, &e->events[i]);
		n++;
	}
	for (; (node = list_pop_head(&now)); n++) {
		struct op *op = container_of(node, struct op, back.node);

		op->back_flags &= (uint8_t)~OPF_READY;
		pump_in(loop, op);
	}
	return n;
}

static bool epoll_busy(const struct loop *loop)
{
	const struct epoll *e = loop->back;

	return !list_empty(&e->ready);
}

/* --- life --- */
static int epoll_open(struct loop *loop, const struct loop_params *par, char why[static 128])
{
	struct epoll *e = calloc(1, sizeof(*e));
	int err = ENOMEM;

	(void)par;
	if (e) {
		e->fd = epoll_create1(EPOLL_CLOEXEC);
		err = errno;
	}
	if (!e || e->fd < 0) {
		snprintf(why, 128, "epoll_create1: %s", strerror(err));
		free(e);
		return -err;
	}
	list_init(&e->ready);
	slab_init(&e->iovs, "iovecs", LOOP_IOV * sizeof(struct iovec), &loop->budget);
	loop->back = e;
	snprintf(why, 128, "epoll");
	return 0;
}

static void epoll_close(struct loop *loop)
{
	struct epoll *e = loop->back;

	must(list_empty(&e->ready));
	slab_close(&e->iovs);
	close(e->fd);
	free(e);
	loop->back = NULL;
}

const struct loop_backend loop_epoll = {
	.name = "epoll",
	.io = LOOP_EPOLL,
	.real = true,
	.open = epoll_open,
	.close = epoll_close,
	.socket = loop_real_socket,
	.sockopt = loop_real_sockopt,
	.sockname = loop_real_sockname,
	.shutdown = loop_real_shutdown,
	.close_fd = epoll_close_fd,
	.forget_fd = epoll_forget_fd,
	.accept = epoll_accept,
	.connect = epoll_connect,
	.recv = epoll_recv,
	.send = epoll_send,
	.poll = epoll_poll,
	.cancel = epoll_cancel,
	.wait = epoll_wait_turn,
	.clock = loop_real_clock,
	.reap = epoll_reap,
	.flush = loop_reap_deferred,
	.busy = epoll_busy,
	.random = loop_real_random,
};
