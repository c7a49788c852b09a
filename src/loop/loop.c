/* loop.c -- the front of the loop: books every op, keeps the clock, the wheel, the run queue and
 * the shard's pools, and turns.
 *
 * Nothing here knows how the kernel is asked: that is the back end's (priv.h).  The order of a turn
 * is priv.h's picture, and loop_turn() is that picture in code.  Every stage is bounded: alarms and
 * tasks by number, ops by the back end. */
#include "loop/priv.h"

#include "base/out.h"
#include "loop/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The sim is linked into tests only: whoever makes one pulls it in. */
extern const struct loop_backend loop_sim __attribute__((weak));

#define SLOTS_FIRST   256u
#define ALARMS_TURN   1024u
#define TASKS_TURN    8192u
#define CALM_EVERY_MS 2000u

/* --- life --- */
static void read_clock(struct loop *loop)
{
	loop->be->clock(loop, &loop->now_us, &loop->wall_us);
}

/* Opens the back end that was asked for, or the first that works.  0 or -errno. */
static int open_backend(struct loop *loop, const struct loop_params *par, char why[static 128])
{
	char refused[128];
	int rc;

	if (par->io == LOOP_SIM)
		loop->be = &loop_sim;
	else if (par->io == LOOP_EPOLL)
		loop->be = &loop_epoll;
	else
		loop->be = &loop_uring;
	loop->real_be = loop->be;
	must(loop->be != NULL);
	rc = loop->be->open(loop, par, why);
	if (rc == 0 || par->io != LOOP_AUTO)
		return rc;
	memcpy(refused, why, sizeof(refused));
	loop->real_be = loop->be = &loop_epoll;
	rc = loop->be->open(loop, par, why);
	if (rc == 0)
		snprintf(why, 128, "epoll: %.118s", refused);
	return rc;
}

/* Chunks that one pool does not need just now are another's. */
static void give_back(struct reclaim *r, uint64_t want)
{
	budget_trim(&container_of(r, struct loop, reclaim)->budget, want);
}

static void init_pools(struct loop *loop)
{
	seg_pool_init(&loop->segs[SEG_SMALL], "segs_small", SEG_SMALL_BLOCK, &loop->budget);
	seg_pool_init(&loop->segs[SEG_LARGE], "segs_large", SEG_LARGE_BLOCK, &loop->budget);
	slab_init(&loop->arenas, "arenas", ARENA_FIRST, &loop->budget);
	loop->reclaim.give = give_back;
	budget_reclaim(&loop->budget, &loop->reclaim);
}

static void close_pools(struct loop *loop)
{
	slab_close(&loop->arenas);
	seg_pool_close(&loop->segs[SEG_LARGE]);
	seg_pool_close(&loop->segs[SEG_SMALL]);
}

/* Everything that needs the back end. */
static int open_rest(struct loop *loop, const struct loop_params *par, char why[static 128])
{
	int rc = -ENOMEM;

	snprintf(why, 128, "out of memory");
	if (par->fault && fault_open(loop, par->fault))
		return rc;
	loop->wall_read_us = -(uint64_t)LOOP_WALL_EVERY_US;
	read_clock(loop);
	loop->wheel = wheel_new(loop->now_us / 1000);
	if (!loop->wheel)
		goto fail_fault;
	rc = mail_open(loop);
	if (rc) {
		snprintf(why, 128, "eventfd: %s", strerror(-rc));
		goto fail_wheel;
	}
	return 0;

fail_wheel:
	wheel_free(&loop->wheel);
fail_fault:
	fault_close(loop);
	return rc;
}

/* Pages, not malloc: what no descriptor has come to yet is zero without being touched. */
static bool open_slots(struct loop *loop)
{
	loop->slots = pages_get(SLOTS_FIRST * sizeof(*loop->slots));
	loop->n_slots = loop->slots ? SLOTS_FIRST : 0;
	return loop->slots != NULL;
}

static void close_slots(struct loop *loop)
{
	pages_give(loop->slots, loop->n_slots * sizeof(*loop->slots));
}

struct loop *loop_new(const struct loop_params *par, char why[static 128])
{
	struct loop *loop = calloc(1, sizeof(*loop));
	char failed[128];

	snprintf(why, 128, "out of memory");
	if (!loop)
		return NULL;
	loop->magic = LOOP_MAGIC;
	loop->budget.parent = par->budget;
	loop->budget.max = UINT64_MAX;
	loop->shard = par->shard;
	loop->fds_max = par->fds_max;
	loop->date_s = -1;
	list_init(&loop->deferred);
	init_pools(loop);
	if (!open_slots(loop) || open_backend(loop, par, why))
		goto fail_slots;
	if (open_rest(loop, par, failed)) {
		memcpy(why, failed, sizeof(failed));
		goto fail_backend;
	}
	return loop;

fail_backend:
	loop->real_be->close(loop);
fail_slots:
	close_slots(loop);
	close_pools(loop);
	free(loop);
	return NULL;
}

void loop_free(struct loop **lp)
{
	struct loop *loop = *lp;

	*lp = NULL;
	if (!loop)
		return;
	must(loop->magic == LOOP_MAGIC);
	mail_close(loop);
	must(loop->n_armed == 0);
	must(wheel_empty(loop->wheel));
	fault_close(loop);
	loop->real_be->close(loop);
	wheel_free(&loop->wheel);
	close_slots(loop);
	close_pools(loop);
	loop->magic = 0;
	free(loop);
}

const char *loop_io_name(const struct loop *loop)
{
	return loop->real_be->name;
}

bool loop_can_splice(const struct loop *loop)
{
	return loop->real_be->real;
}

/* --- sockets --- */
int loop_socket(struct loop *loop, int family, int type)
{
	return loop->be->socket(loop, family, type);
}

int loop_sockopt(struct loop *loop, int fd, int level, int name, const void *val, socklen_t n)
{
	return loop->be->sockopt(loop, fd, level, name, val, n);
}

int loop_sockname(struct loop *loop, int fd, bool peer, struct sockaddr *sa, socklen_t *n)
{
	return loop->be->sockname(loop, fd, peer, sa, n);
}

int loop_shutdown(struct loop *loop, int fd, int how)
{
	return loop->be->shutdown(loop, fd, how);
}

/* --- ops --- */
static bool grow_slots(struct loop *loop, uint32_t fd)
{
	uint32_t n = loop->n_slots;
	struct fd_slot *v;

	while (n <= fd)
		n *= 2;
	v = mremap(loop->slots, loop->n_slots * sizeof(*v), n * sizeof(*v), MREMAP_MAYMOVE);
	if (v == MAP_FAILED)
		return false;
	loop->slots = v;
	loop->n_slots = n;
	return true;
}

/* Books the op; false: there was no memory for its slot, and it will finish with -ENOMEM. */
static bool arm(struct loop *loop, struct op *op, int fd, enum op_kind kind)
{
	struct op **at;

	must(op->magic == OP_MAGIC && op->state == OP_IDLE && fd >= 0);
	op->state = OP_ARMED;
	op->kind = (uint8_t)kind;
	op->back_flags = 0;
	op->fd = fd;
	loop->n_armed++;
	if ((uint32_t)fd >= loop->n_slots && !grow_slots(loop, (uint32_t)fd)) {
		loop_defer(loop, op, -ENOMEM);
		return false;
	}
	at = &loop->slots[fd].op[loop_col[kind]];
	must(*at == NULL);
	*at = op;
	return true;
}

void loop_accept(struct loop *loop, struct op *op, int fd, bool shared)
{
	if (arm(loop, op, fd, OP_ACCEPT))
		loop->be->accept(loop, op, shared);
}

void loop_connect(struct loop *loop, struct op *op, int fd, const struct sockaddr *sa, socklen_t n)
{
	must(n <= sizeof(struct sockaddr_storage));
	if (arm(loop, op, fd, OP_CONNECT))
		loop->be->connect(loop, op, sa, n);
}

void loop_recv(struct loop *loop, struct op *op, int fd, enum seg_class cls)
{
	op->seg_class = (uint8_t)cls;
	op->seg = NULL;
	if (arm(loop, op, fd, OP_RECV))
		loop->be->recv(loop, op);
}

void loop_send(struct loop *loop, struct op *op, int fd, const struct iovec *iov, unsigned n)
{
	must(n > 0 && n <= LOOP_IOV);
	if (arm(loop, op, fd, OP_SEND))
		loop->be->send(loop, op, iov, n);
}

void loop_poll(struct loop *loop, struct op *op, int fd, unsigned events)
{
	if (arm(loop, op, fd, OP_POLL))
		loop->be->poll(loop, op, events);
}

void loop_cancel(struct loop *loop, struct op *op)
{
	must(op->magic == OP_MAGIC);
	if (op->state != OP_ARMED)
		return;
	op->state = OP_CANCELLING;
	if (!(op->back_flags & OPF_DEFERRED))
		loop->be->cancel(loop, op);
}

void loop_close(struct loop *loop, int fd)
{
	struct fd_slot *slot;

	must(fd >= 0);
	if ((uint32_t)fd >= loop->n_slots) { /* never had an op */
		loop->be->close_fd(loop, fd);
		return;
	}
	slot = &loop->slots[fd];
	for (int i = 0; i < COLS; i++) {
		struct op *op = slot->op[i];

		if (!op)
			continue;
		loop_cancel(loop, op);
		slot->op[i] = NULL; /* it still finishes, but the number may soon be another's */
	}
	loop->be->close_fd(loop, fd);
	slot->bits = 0;
	slot->gen++;
}

void loop_forget(struct loop *loop, int fd)
{
	struct fd_slot *slot;

	if (fd < 0 || (uint32_t)fd >= loop->n_slots)
		return;
	slot = &loop->slots[fd];
	for (int i = 0; i < COLS; i++)
		must(!slot->op[i]);
	if (loop->real_be->forget_fd)
		loop->real_be->forget_fd(loop, fd);
	slot->bits = 0;
	slot->gen++;
}

unsigned loop_reap_deferred(struct loop *loop)
{
	struct list now, *node;
	unsigned n = 0;

	if (list_empty(&loop->deferred))
		return 0;
	list_init(&now); /* what done() defers waits for the next time */
	list_insert_after(&loop->deferred, &now);
	list_remove(&loop->deferred);
	while ((node = list_pop_head(&now))) {
		struct op *op = container_of(node, struct op, back.node);
		int32_t res = (int32_t)op->back_n;

		n++;
		if (__builtin_expect((uint32_t)op->fd < loop->n_slots, 1)) {
			loop_finish(loop, op, res);
			continue;
		}
		op->state = OP_IDLE; /* its slot could not be made */
		op->back_flags = 0;
		loop->n_armed--;
		op->done(op, res);
	}
	return n;
}

/* --- time --- */
uint64_t loop_now_ms(const struct loop *loop)
{
	return loop->now_us / 1000;
}

uint64_t loop_now_us(const struct loop *loop)
{
	return loop->now_us;
}

int64_t loop_wall_us(const struct loop *loop)
{
	return loop->wall_us;
}

struct str loop_http_date(struct loop *loop)
{
	int64_t s = loop->wall_us / 1000000;

	if (s != loop->date_s) {
		struct out o;

		out_init(&o, loop->date, sizeof(loop->date));
		out_time_http(&o, loop->wall_us);
		must(out_ok(&o));
		loop->date_s = s;
	}
	return (struct str){ .p = loop->date, .n = 29 }; /* IMF-fixdate is always that long */
}

void loop_random(struct loop *loop, void *p, size_t n)
{
	loop->be->random(loop, p, n);
}

void loop_alarm(struct loop *loop, struct alarm *a, uint32_t ms)
{
	/* Rounded up: an alarm never rings before its time has passed. */
	wheel_set(loop->wheel, a, (loop->now_us + 999) / 1000 + ms);
}

/* --- run queue --- */
static void taskq_push(struct taskq *q, struct task *t)
{
	if (t->next)
		return;
	t->next = t;
	if (q->head)
		q->tail->next = t;
	else
		q->head = t;
	q->tail = t;
}

static struct task *taskq_pop(struct taskq *q)
{
	struct task *t = q->head;

	if (!t)
		return NULL;
	q->head = t->next == t ? NULL : t->next;
	t->next = NULL;
	return t;
}

/* Walks: only teardown takes a queued task off. */
static bool taskq_off(struct taskq *q, struct task *t)
{
	struct task *before = NULL;

	for (struct task *at = q->head; at; before = at, at = at->next) {
		if (at == t) {
			struct task *next = t->next == t ? NULL : t->next;

			if (!before)
				q->head = next;
			else
				before->next = next ? next : before;
			if (q->tail == t)
				q->tail = before;
			t->next = NULL;
			return true;
		}
		if (at->next == at)
			break;
	}
	return false;
}

void loop_soon(struct loop *loop, struct task *t)
{
	taskq_push(&loop->soon, t);
}

void loop_late(struct loop *loop, struct task *t)
{
	taskq_push(&loop->late, t);
}

void loop_task_off(struct loop *loop, struct task *t)
{
	if (t->next && !taskq_off(&loop->soon, t))
		must(taskq_off(&loop->late, t));
}

static unsigned run_soon(struct loop *loop)
{
	unsigned n = 0;
	struct task *t;

	while (n < TASKS_TURN && (t = taskq_pop(&loop->soon))) {
		n++;
		t->run(t);
	}
	return n;
}

/* Each that is queued now runs once; those that they queue run at the end of the next turn.  A
 * fence marks the border, since any task behind it may be taken off meanwhile. */
static void run_fence(struct task *t)
{
	(void)t;
}

static unsigned run_late(struct loop *loop)
{
	struct task fence, *t;
	unsigned n = 0;

	if (!loop->late.head)
		return 0;
	task_init(&fence, run_fence);
	taskq_push(&loop->late, &fence);
	while ((t = taskq_pop(&loop->late)) != &fence) {
		n++;
		t->run(t);
	}
	return n;
}

/* --- the turn --- */
static uint64_t wait_us(const struct loop *loop, uint32_t wait_ms_max)
{
	uint64_t us;
	uint32_t ms;

	if (wait_ms_max == 0 || loop->soon.head || loop->late.head ||
	    !list_empty(&loop->deferred) || mail_waiting(loop) ||
	    (loop->be->busy && loop->be->busy(loop)))
		return 0;
	us = (uint64_t)wait_ms_max * 1000;
	ms = wheel_wait_ms(loop->wheel, loop->now_us / 1000);
	if (ms < wait_ms_max)
		us = ms ? (uint64_t)ms * 1000 - loop->now_us % 1000 : 0;
	return us;
}

/* What a burst has left behind goes back to the system: when it was not needed for a while, or at
 * once where memory is short. */
static void calm(struct loop *loop)
{
	uint64_t excess = budget_excess(&loop->budget);

	if (excess > 0)
		budget_trim(&loop->budget, excess);
	if (loop->now_us < loop->calm_us)
		return;
	loop->calm_us = loop->now_us + CALM_EVERY_MS * 1000u;
	budget_calm(&loop->budget);
}

int loop_turn(struct loop *loop, uint32_t wait_ms_max)
{
	const struct loop_backend *be = loop->be;
	unsigned n, done;

	be->wait(loop, wait_us(loop, wait_ms_max));
	read_clock(loop);
	n = loop_reap_deferred(loop);
	n += be->reap(loop);
	n += mail_deliver(loop);
	n += wheel_turn(loop->wheel, loop->now_us / 1000, ALARMS_TURN);
	n += run_soon(loop);
	n += run_late(loop);
	if (be->flush && (done = be->flush(loop)) > 0)
		n += done + run_soon(loop); /* what a send has ended needs no turn of its own */
	calm(loop);
	atomic_store_explicit(&loop->turns,
			      atomic_load_explicit(&loop->turns, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	return (int)n;
}

/* --- the shard around it --- */
void *loop_slot(const struct loop *loop, enum shard_slot slot)
{
	return loop->room[slot];
}

void loop_set_slot(struct loop *loop, enum shard_slot slot, void *p)
{
	loop->room[slot] = p;
}

struct seg_pool *loop_segs(struct loop *loop, enum seg_class cls)
{
	return &loop->segs[cls];
}

struct slab *loop_arenas(struct loop *loop)
{
	return &loop->arenas;
}

struct budget *loop_budget(struct loop *loop)
{
	return &loop->budget;
}

unsigned loop_shard(const struct loop *loop)
{
	return loop->shard;
}

uint64_t loop_turns(const struct loop *loop)
{
	return atomic_load_explicit(&loop->turns, memory_order_relaxed);
}

static void dump_op(int fd, const struct op *op)
{
	static const char *const kinds[] = { "none", "accept", "connect", "recv", "send", "poll" };

	if (op)
		dprintf(fd, " %s%s", kinds[op->kind],
			op->state == OP_CANCELLING ? "(cancelling)" : "");
}

void loop_dump(const struct loop *loop, int fd)
{
	dprintf(fd,
		"loop %u %s: turn %llu, now %llu us, %u ops armed, "
		"segs live %llu small %llu large\n",
		loop->shard, loop->real_be->name, (unsigned long long)loop_turns(loop),
		(unsigned long long)loop->now_us, loop->n_armed,
		(unsigned long long)loop->segs[SEG_SMALL].slab.n_live,
		(unsigned long long)loop->segs[SEG_LARGE].slab.n_live);
	for (uint32_t i = 0; i < loop->n_slots; i++) {
		const struct fd_slot *slot = &loop->slots[i];

		if (!slot->op[COL_IN] && !slot->op[COL_OUT] && !slot->op[COL_POLL])
			continue;
		dprintf(fd, "  fd %u:", i);
		for (int c = 0; c < COLS; c++)
			dump_op(fd, slot->op[c]);
		dprintf(fd, " bits %x\n", slot->bits);
	}
	if (loop->real_be->dump)
		loop->real_be->dump(loop, fd);
}
