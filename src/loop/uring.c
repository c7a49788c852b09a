/* uring.c -- the loop on io_uring.
 *
 * One io_uring_enter per turn: it submits what the last turn prepared, sleeps, and runs the
 * deferred completions; then the turn works through the completion queue.  The ring is made by the
 * thread that turns it (SINGLE_ISSUER | DEFER_TASKRUN: without these io_uring is slower than epoll,
 * so a kernel that lacks them gets epoll).
 *
 *   user_data        the op; 0 for cancels and closes, which nobody waits for.  An op outlives its
 *                    descriptor, so a late completion never meets a stranger.
 *   receive          multishot, out of one of two rings of provided buffers: 256 of 4 KiB, 16 of 64
 *                    KiB, all of them segs of the shard's pools.  A seg that was filled goes to the
 *                    owner, and a fresh one takes its place at once.  The multishot is limited to
 *                    LOOP_RECV_TURN bytes where the kernel can (optlen), then it ends with a good
 *                    result; the seg that crosses the limit is filled, not cut.  Where it cannot,
 *                    the 64 KiB class is received single-shot, and the 4 KiB class may overshoot,
 *                    bounded by its ring (1 MiB).
 *   hungry           a buffer id without a seg: the pool had no memory.  Looked after in every
 *                    turn.
 *   waiting          receives that found their ring empty.  As many as there are buffers are armed
 *                    again at the end of a reap, oldest first; only when the ring has no buffer at
 *                    all, their owners hear -ENOBUFS.
 *   scratch          msghdrs, iovecs and addresses that the kernel copies while it takes the entry
 *                    (IORING_FEAT_SUBMIT_STABLE); free again when all entries are taken.
 *
 * Order: the kernel takes entries in order, so a cancel that is followed by a close of the same
 * descriptor has let go of the file when the close drops the last reference, and FIN goes out. */
#include "loop/priv.h"
#include "loop/uring_compat.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RING_SQ     2048u
#define RING_CQ     16384u
#define RING_SQ_MIN 256u
#define RING_CQ_MIN 512u
#define REAP_MAX    8192u /* completions per turn */

#define BUFS_SMALL 256u /* x 4 KiB: 1 MiB */
#define BUFS_LARGE 16u  /* x 64 KiB: 1 MiB */
#define BUFS_MAX   BUFS_SMALL

#define SCRATCH_MSGS  128u
#define SCRATCH_IOVS  2048u
#define SCRATCH_ADDRS 32u

#define OPF_WAITING OPF_BACK

/* One class of provided buffers. */
struct bufs {
	struct io_uring_buf_ring *br;
	uint32_t n;     /* entries of the ring */
	uint32_t fresh; /* added, the tail not yet published */
	/* bytes of one multishot, a multiple of a seg; 0: the kernel has no limit */
	uint32_t limit;
	uint32_t n_hungry;
	struct seg *seg[BUFS_MAX]; /* by buffer id; NULL: hungry */
	uint16_t hungry[BUFS_MAX]; /* ids */
	struct list waiting;       /* of op.back.node */
};

struct uring {
	struct io_uring io;
	unsigned enter_fd, enter_flags;
	bool multishot, limit;
	unsigned n_msgs, n_iovs, n_addrs; /* scratch in use */
	struct bufs bufs[SEG_CLASSES];
	struct msghdr msgs[SCRATCH_MSGS];
	struct iovec iovs[SCRATCH_IOVS];
	struct sockaddr_storage addrs[SCRATCH_ADDRS];
};

/* --- provided buffers --- */
static inline void bufs_add(struct bufs *b, struct seg *s, uint16_t id)
{
	b->seg[id] = s;
	io_uring_buf_ring_add(b->br, s->data, s->cap, id, (int)b->n - 1, (int)b->fresh++);
}

static inline void bufs_publish(struct bufs *b)
{
	if (b->fresh) {
		io_uring_buf_ring_advance(b->br, (int)b->fresh);
		b->fresh = 0;
	}
}

static void bufs_feed(struct bufs *b, struct seg_pool *pool)
{
	while (b->n_hungry > 0) {
		struct seg *s = seg_get(pool);

		if (!s)
			return;
		bufs_add(b, s, b->hungry[--b->n_hungry]);
	}
}

/* The seg that was filled; a fresh one takes its place. */
static inline struct seg *bufs_take(struct bufs *b, struct seg_pool *pool, uint16_t id)
{
	struct seg *full = b->seg[id], *s = seg_get(pool);

	hot_must(id < b->n && full);
	if (__builtin_expect(s != NULL, 1)) {
		bufs_add(b, s, id);
	} else {
		b->seg[id] = NULL;
		b->hungry[b->n_hungry++] = id;
	}
	return full;
}

static int bufs_open(struct bufs *b, struct uring *u, struct seg_pool *pool, uint16_t group,
		     uint32_t n)
{
	struct io_uring_buf_reg reg = { .ring_entries = n, .bgid = group };
	size_t bytes = (n * sizeof(struct io_uring_buf) + 4095) & ~(size_t)4095;
	int rc;

	list_init(&b->waiting);
	b->n = n;
	b->br = aligned_alloc(4096, bytes);
	if (!b->br)
		return -ENOMEM;
	memset(b->br, 0, bytes);
	reg.ring_addr = (uintptr_t)b->br;
	rc = io_uring_register_buf_ring(&u->io, &reg, 0);
	if (rc) {
		free(b->br);
		b->br = NULL;
		return rc;
	}
	io_uring_buf_ring_init(b->br);
	for (uint32_t id = n; id > 0; id--)
		b->hungry[b->n_hungry++] = (uint16_t)(id - 1);
	bufs_feed(b, pool);
	bufs_publish(b);
	return 0;
}

/* After the ring is gone: the kernel no longer writes here. */
static void bufs_close(struct bufs *b)
{
	for (uint32_t id = 0; b->br && id < b->n; id++)
		seg_drop(&b->seg[id]);
	free(b->br);
	b->br = NULL;
}

/* --- submission --- */
static int uring_enter(struct uring *u, unsigned wait, unsigned flags,
		       const struct __kernel_timespec *ts)
{
	struct io_uring_getevents_arg arg = { .ts = (uintptr_t)ts };
	unsigned n = uring_flush(&u->io);
	int rc;

	bufs_publish(&u->bufs[SEG_SMALL]);
	bufs_publish(&u->bufs[SEG_LARGE]);
	rc = io_uring_enter2(u->enter_fd, n, wait, u->enter_flags | flags | IORING_ENTER_EXT_ARG,
			     (void *)&arg, sizeof(arg));
	if (uring_unsubmitted(&u->io) == 0)
		u->n_msgs = u->n_iovs = u->n_addrs = 0;
	return rc;
}

/* Hands everything to the kernel in the middle of a turn: a queue or the scratch is full.  The
 * completion queue was emptied up to here, so the kernel has room. */
static bool submit_now(struct uring *u)
{
	for (int i = 0; i < 16; i++) {
		int rc = uring_enter(u, 0, 0, NULL);

		if (uring_unsubmitted(&u->io) == 0)
			return true;
		if (rc < 0 && rc != -EAGAIN && rc != -EBUSY && rc != -EINTR && rc != -ENOMEM)
			panic_fmt("io_uring_enter: %s", strerror(-rc));
	}
	return false;
}

static inline struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->io);

	if (__builtin_expect(!sqe, 0)) {
		submit_now(u);
		sqe = io_uring_get_sqe(&u->io);
	}
	return sqe;
}

/* For an op: none left means that the kernel has no memory for more, and the op says so. */
static inline struct io_uring_sqe *op_sqe(struct loop *loop, struct op *op)
{
	struct io_uring_sqe *sqe = get_sqe(loop->back);

	if (__builtin_expect(!sqe, 0))
		loop_defer(loop, op, -ENOMEM);
	return sqe;
}

/* For a cancel or a close, which nobody hears of and which must not be lost. */
static struct io_uring_sqe *quiet_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = get_sqe(u);

	if (!sqe)
		panic_fmt("io_uring: the kernel takes no more entries");
	return sqe;
}

static inline void quiet(struct io_uring_sqe *sqe)
{
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	io_uring_sqe_set_data64(sqe, 0);
}

/* --- ops --- */
static void uring_accept(struct loop *loop, struct op *op, bool shared)
{
	struct io_uring_sqe *sqe = op_sqe(loop, op);

	if (!sqe)
		return;
	if (shared || loop->single_shot)
		io_uring_prep_accept(sqe, op->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	else
		io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL,
					       SOCK_NONBLOCK | SOCK_CLOEXEC);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_connect(struct loop *loop, struct op *op, const struct sockaddr *sa, socklen_t n)
{
	struct uring *u = loop->back;
	struct io_uring_sqe *sqe;
	struct sockaddr_storage *at;

	if (u->n_addrs == SCRATCH_ADDRS && !submit_now(u)) {
		loop_defer(loop, op, -ENOMEM);
		return;
	}
	sqe = op_sqe(loop, op);
	if (!sqe)
		return;
	at = &u->addrs[u->n_addrs++];
	memcpy(at, sa, n);
	io_uring_prep_connect(sqe, op->fd, (struct sockaddr *)at, n);
	io_uring_sqe_set_data(sqe, op);
}

static void prep_recv(struct io_uring_sqe *sqe, const struct loop *loop, struct op *op)
{
	const struct uring *u = loop->back;
	const struct bufs *b = &u->bufs[op->seg_class];
	uint32_t limit = loop->no_limit ? 0 : b->limit;
	bool multi = u->multishot && !loop->single_shot && (limit || op->seg_class == SEG_SMALL);

	io_uring_prep_recv(sqe, op->fd, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = op->seg_class;
	if (multi) {
		sqe->ioprio |= IORING_RECV_MULTISHOT;
		uring_set_recv_limit(sqe, limit);
	} else {
		sqe->len = loop->segs[op->seg_class].cap;
	}
	io_uring_sqe_set_data(sqe, op);
}

static void uring_recv(struct loop *loop, struct op *op)
{
	struct io_uring_sqe *sqe = op_sqe(loop, op);

	if (sqe)
		prep_recv(sqe, loop, op);
}

static void send_many(struct loop *loop, struct op *op, const struct iovec *iov, unsigned n)
{
	struct uring *u = loop->back;
	struct io_uring_sqe *sqe;
	struct msghdr *msg;

	if ((u->n_msgs == SCRATCH_MSGS || u->n_iovs + n > SCRATCH_IOVS) && !submit_now(u)) {
		loop_defer(loop, op, -ENOMEM);
		return;
	}
	sqe = op_sqe(loop, op);
	if (!sqe)
		return;
	msg = &u->msgs[u->n_msgs++];
	memset(msg, 0, sizeof(*msg));
	msg->msg_iov = memcpy(&u->iovs[u->n_iovs], iov, n * sizeof(*iov));
	msg->msg_iovlen = n;
	u->n_iovs += n;
	io_uring_prep_sendmsg(sqe, op->fd, msg, MSG_NOSIGNAL);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_send(struct loop *loop, struct op *op, const struct iovec *iov, unsigned n)
{
	struct io_uring_sqe *sqe;

	if (n > 1) {
		send_many(loop, op, iov, n);
		return;
	}
	sqe = op_sqe(loop, op);
	if (!sqe)
		return;
	io_uring_prep_send(sqe, op->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_poll(struct loop *loop, struct op *op, unsigned events)
{
	struct io_uring_sqe *sqe = op_sqe(loop, op);

	if (!sqe)
		return;
	io_uring_prep_poll_add(sqe, op->fd, events);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_cancel(struct loop *loop, struct op *op)
{
	struct io_uring_sqe *sqe;

	if (op->back_flags & OPF_WAITING) { /* the kernel does not have it */
		list_remove(&op->back.node);
		op->back_flags = 0;
		loop_defer(loop, op, -ECANCELED);
		return;
	}
	sqe = quiet_sqe(loop->back);
	io_uring_prep_cancel(sqe, op, 0);
	quiet(sqe);
}

static void uring_close_fd(struct loop *loop, int fd)
{
	struct io_uring_sqe *sqe = quiet_sqe(loop->back);

	io_uring_prep_close(sqe, fd);
	quiet(sqe);
}

/* --- completions --- */
static void on_recv(struct loop *loop, struct op *op, int32_t res, uint32_t flags)
{
	struct uring *u = loop->back;
	struct bufs *b = &u->bufs[op->seg_class];

	if (__builtin_expect(res > 0, 1)) {
		hot_must(flags & IORING_CQE_F_BUFFER);
		op->seg = bufs_take(b, &loop->segs[op->seg_class],
				    (uint16_t)(flags >> IORING_CQE_BUFFER_SHIFT));
		op->seg->used = (uint32_t)res;
	} else if (flags & IORING_CQE_F_BUFFER) { /* taken and not used */
		uint16_t id = (uint16_t)(flags >> IORING_CQE_BUFFER_SHIFT);

		bufs_add(b, b->seg[id], id);
	}
	if (__builtin_expect(flags & IORING_CQE_F_MORE, 1)) {
		loop_report(op, res);
		return;
	}
	if (res != -ENOBUFS) {
		loop_finish(loop, op, res);
	} else if (op->state == OP_CANCELLING) {
		loop_finish(loop, op, -ECANCELED);
	} else {
		op->back_flags |= OPF_WAITING;
		list_push_tail(&b->waiting, &op->back.node);
	}
}

static inline void on_cqe(struct loop *loop, struct op *op, int32_t res, uint32_t flags)
{
	hot_must(op->magic == OP_MAGIC);
	if (op->kind == OP_RECV)
		on_recv(loop, op, res, flags);
	else if (flags & IORING_CQE_F_MORE)
		loop_report(op, res);
	else
		loop_finish(loop, op, res);
}

/* Arms again what found its ring empty: at most one per buffer, so that they do not all run into
 * the wall again. */
static unsigned rearm_waiting(struct loop *loop, struct bufs *b, struct seg_pool *pool)
{
	uint32_t room;
	unsigned n = 0;

	bufs_feed(b, pool);
	room = b->n - b->n_hungry;
	if (room == 0) {
		struct list *node;

		for (; (node = list_pop_head(&b->waiting)); n++)
			loop_finish(loop, container_of(node, struct op, back.node), -ENOBUFS);
		return n;
	}
	for (; n < room && !list_empty(&b->waiting); n++) {
		struct op *op = container_of(list_pop_head(&b->waiting), struct op, back.node);

		op->back_flags = 0;
		uring_recv(loop, op);
	}
	return 0;
}

static unsigned uring_reap(struct loop *loop)
{
	struct uring *u = loop->back;
	struct io_uring_cq *cq = &u->io.cq;
	unsigned head = *cq->khead, mask = *cq->kring_mask,
		 end = io_uring_smp_load_acquire(cq->ktail), n = 0;

	if (end - head > REAP_MAX)
		end = head + REAP_MAX;
	while (head != end) {
		struct io_uring_cqe cqe = cq->cqes[head & mask];

		/* Given back at once: a submit inside done() may bring completions. */
		io_uring_smp_store_release(cq->khead, ++head);
		if (cqe.user_data == 0)
			continue;
		on_cqe(loop, (struct op *)(uintptr_t)cqe.user_data, cqe.res, cqe.flags);
		n++;
	}
	for (int c = 0; c < SEG_CLASSES; c++)
		if (u->bufs[c].n_hungry || !list_empty(&u->bufs[c].waiting))
			n += rearm_waiting(loop, &u->bufs[c], &loop->segs[c]);
	return n;
}

static void uring_wait(struct loop *loop, uint64_t wait_us)
{
	struct uring *u = loop->back;
	struct __kernel_timespec ts = { .tv_sec = (int64_t)(wait_us / 1000000),
					.tv_nsec = (long long)(wait_us % 1000000) * 1000 };
	int rc = uring_enter(u, wait_us ? 1 : 0, IORING_ENTER_GETEVENTS, wait_us ? &ts : NULL);

	/* ETIME, EINTR: the turn goes on.  EAGAIN, EBUSY, ENOMEM: what was not taken is offered
	 * again in the next turn. */
	if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY &&
	    rc != -ENOMEM)
		panic_fmt("io_uring_enter: %s", strerror(-rc));
}

static bool uring_busy(const struct loop *loop)
{
	const struct uring *u = loop->back;

	return !list_empty(&u->bufs[SEG_SMALL].waiting) || !list_empty(&u->bufs[SEG_LARGE].waiting);
}

/* --- life --- */
/* The largest ring that RLIMIT_MEMLOCK allows.  0 or -errno. */
static int make_ring(struct io_uring *io, unsigned *sq_entries)
{
	unsigned sq = RING_SQ, cq = RING_CQ;
	int rc;

	for (;;) {
		struct io_uring_params p = { .flags = IORING_SETUP_SINGLE_ISSUER |
						      IORING_SETUP_DEFER_TASKRUN |
						      IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE,
					     .cq_entries = cq };

		rc = io_uring_queue_init_params(sq, io, &p);
		if (rc == 0) {
			*sq_entries = sq;
			break;
		}
		if (rc != -ENOMEM || cq == RING_CQ_MIN)
			return rc;
		cq /= 2;
		sq = sq / 2 < RING_SQ_MIN ? RING_SQ_MIN : sq / 2;
	}
	if (!(io->features & IORING_FEAT_EXT_ARG) || !(io->features & IORING_FEAT_NODROP) ||
	    !(io->features & IORING_FEAT_SUBMIT_STABLE) || !(io->features & IORING_FEAT_CQE_SKIP)) {
		io_uring_queue_exit(io);
		return -ENOSYS;
	}
	uring_identity_array(io);
	return 0;
}

static bool has_opcodes(struct io_uring *io)
{
	static const uint8_t needed[] = { IORING_OP_ACCEPT,       IORING_OP_CONNECT,
					  IORING_OP_RECV,         IORING_OP_SEND,
					  IORING_OP_SENDMSG,      IORING_OP_POLL_ADD,
					  IORING_OP_ASYNC_CANCEL, IORING_OP_CLOSE };
	struct io_uring_probe *p = io_uring_get_probe_ring(io);
	bool all = p != NULL;

	for (size_t i = 0; all && i < ARRAY_LEN(needed); i++)
		all = io_uring_opcode_supported(p, needed[i]);
	io_uring_free_probe(p);
	return all;
}

/* One multishot receive, limited or not, over a socket that holds two segs' bytes and the end of
 * the stream.  Returns the first result, -EINVAL where the kernel does not know such a receive;
 * *more: another result followed it. */
static int32_t try_recv(struct loop *loop, int fd, uint32_t limit, bool *more)
{
	struct uring *u = loop->back;
	struct bufs *b = &u->bufs[SEG_SMALL];
	struct io_uring_sqe *sqe = get_sqe(u);
	int32_t first = 0;
	unsigned n = 0;

	io_uring_prep_recv(sqe, fd, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->ioprio |= IORING_RECV_MULTISHOT;
	uring_set_recv_limit(sqe, limit);
	for (bool end = false; !end; n++) {
		struct io_uring_cqe *cqe;

		uring_enter(u, 1, IORING_ENTER_GETEVENTS, NULL);
		if (io_uring_peek_cqe(&u->io, &cqe))
			return -EINVAL;
		if (n == 0)
			first = cqe->res;
		if (cqe->flags & IORING_CQE_F_BUFFER) {
			uint16_t id = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);

			bufs_add(b, b->seg[id], id);
		}
		end = !(cqe->flags & IORING_CQE_F_MORE);
		io_uring_cqe_seen(&u->io, cqe);
	}
	*more = n > 1;
	return first;
}

/* Finds out how far receives can be left to themselves.  0 or -errno. */
static int probe_recv(struct loop *loop)
{
	struct uring *u = loop->back;
	static const char bytes[2 * SEG_SMALL_BLOCK];
	uint32_t cap = loop->segs[SEG_SMALL].cap;
	bool more = false;
	int sv[2];

	if (u->bufs[SEG_SMALL].n_hungry > u->bufs[SEG_SMALL].n - 3)
		return -ENOMEM;
	for (int limited = 1; limited >= 0 && !u->multishot; limited--) {
		int32_t res;

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv))
			return -errno;
		res = write(sv[1], bytes, 2 * (size_t)cap) == (ssize_t)cap * 2 ? 0 : -EIO;
		shutdown(sv[1], SHUT_WR);
		if (res == 0)
			res = try_recv(loop, sv[0], limited ? cap : 0, &more);
		close(sv[0]);
		close(sv[1]);
		u->multishot = res == (int32_t)cap && more != (bool)limited;
		u->limit = u->multishot && limited;
	}
	for (int c = 0; u->limit && c < SEG_CLASSES; c++)
		u->bufs[c].limit = LOOP_RECV_TURN / loop->segs[c].cap * loop->segs[c].cap;
	return 0;
}

static int fail(char why[static 128], const char *what, int rc)
{
	snprintf(why, 128, "%s: %s", what, strerror(-rc));
	return rc;
}

static void uring_close(struct loop *loop)
{
	struct uring *u = loop->back;

	submit_now(u); /* the last closes */
	io_uring_queue_exit(&u->io);
	bufs_close(&u->bufs[SEG_SMALL]);
	bufs_close(&u->bufs[SEG_LARGE]);
	free(u);
	loop->back = NULL;
}

static int uring_open(struct loop *loop, const struct loop_params *par, char why[static 128])
{
	struct uring *u = calloc(1, sizeof(*u));
	unsigned sq;
	int rc;

	(void)par;
	if (!u)
		return fail(why, "io_uring", -ENOMEM);
	rc = make_ring(&u->io, &sq);
	if (rc) {
		free(u);
		return fail(why, "io_uring_setup", rc);
	}
	loop->back = u;
	list_init(&u->bufs[SEG_SMALL].waiting);
	list_init(&u->bufs[SEG_LARGE].waiting);
	if (io_uring_register_ring_fd(&u->io) == 1) { /* saves the kernel a look-up per enter */
		u->enter_fd = (unsigned)u->io.enter_ring_fd;
		u->enter_flags = IORING_ENTER_REGISTERED_RING;
	} else {
		u->enter_fd = (unsigned)u->io.ring_fd;
	}
	rc = has_opcodes(&u->io) ? 0 : fail(why, "io_uring opcodes", -ENOSYS);
	if (rc == 0 && ((rc = bufs_open(&u->bufs[SEG_SMALL], u, &loop->segs[SEG_SMALL], SEG_SMALL,
					BUFS_SMALL)) ||
			(rc = bufs_open(&u->bufs[SEG_LARGE], u, &loop->segs[SEG_LARGE], SEG_LARGE,
					BUFS_LARGE))))
		fail(why, "io_uring buffer ring", rc);
	if (rc == 0 && (rc = probe_recv(loop)))
		fail(why, "io_uring receive", rc);
	if (rc) {
		uring_close(loop);
		return rc;
	}
	snprintf(why, 128, "io_uring (ring %u%s)", sq,
		 u->limit       ? ""
		 : u->multishot ? ", receives not limited"
				: ", single-shot receives");
	return 0;
}

int loop_probe_uring(char why[static 128])
{
	struct loop_params par = { .io = LOOP_URING };
	struct budget budget = { .max = UINT64_MAX };
	char how[128];
	struct loop *loop;

	par.budget = &budget;
	loop = loop_new(&par, how);
	if (!loop) {
		snprintf(why, 128, "epoll: %.118s", how);
		return -ENOSYS;
	}
	loop_free(&loop);
	memcpy(why, how, sizeof(how));
	return 0;
}

static void uring_dump(const struct loop *loop, int fd)
{
	const struct uring *u = loop->back;

	dprintf(fd,
		"  io_uring: %u unsubmitted, %u ready, hungry %u small %u large, limit %u, "
		"multishot %d\n",
		uring_unsubmitted(&u->io), io_uring_cq_ready(&u->io), u->bufs[SEG_SMALL].n_hungry,
		u->bufs[SEG_LARGE].n_hungry, u->bufs[SEG_SMALL].limit, u->multishot);
}

const struct loop_backend loop_uring = {
	.name = "io_uring",
	.io = LOOP_URING,
	.real = true,
	.open = uring_open,
	.close = uring_close,
	.socket = loop_real_socket,
	.sockopt = loop_real_sockopt,
	.sockname = loop_real_sockname,
	.shutdown = loop_real_shutdown,
	.close_fd = uring_close_fd,
	.accept = uring_accept,
	.connect = uring_connect,
	.recv = uring_recv,
	.send = uring_send,
	.poll = uring_poll,
	.cancel = uring_cancel,
	.wait = uring_wait,
	.clock = loop_real_clock,
	.reap = uring_reap,
	.busy = uring_busy,
	.random = loop_real_random,
	.dump = uring_dump,
};
