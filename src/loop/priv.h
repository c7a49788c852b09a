/* priv.h -- what the files of loop/ share: the loop itself, the back end's table, and how an op
 * comes to its end.
 *
 * loop.c is the front: it checks and books every op, then hands it to one back end (uring.c,
 * epoll.c, sim.c; fault.c stands before another one).  A turn:
 *
 *     wait    the back end submits what is queued and sleeps, not at all if the front has work left
 *     clock   one reading
 *     reap    ops that the front deferred, then what the back end brings: done()
 *     mail, alarms, tasks, late tasks
 *     flush   the back end reports what it finished inside submits (epoll: sends), so that the next
 *             wait may sleep
 *
 *   slot     one row per descriptor: the op that reads (accept, recv), the op that writes (connect,
 *            send), the poll
 *   defer    an op whose result is known inside a submit waits here for the next reap: done() never
 *            runs inside a submit
 *
 * A back end ends every op that it was given by exactly one loop_finish(); a multishot op may
 * loop_report() before.  After either, everything may have changed: the op freed, the descriptor
 * closed, its number reused. */
#ifndef LOOP_PRIV_H
#define LOOP_PRIV_H

#include "loop/loop.h"

#include "base/panic.h"

#include <errno.h>

struct loop_backend {
	const char *name;
	enum loop_io io;
	bool real; /* real descriptors and threads: mail wakes the loop by an eventfd */

	/* Sets loop->back.  0 or -errno, and then *why says what failed. */
	int (*open)(struct loop *, const struct loop_params *, char why[static 128]);
	void (*close)(struct loop *); /* no op is armed; queued closes are carried out */

	int (*socket)(struct loop *, int family, int type);
	int (*sockopt)(struct loop *, int fd, int level, int name, const void *val, socklen_t n);
	int (*sockname)(struct loop *, int fd, bool peer, struct sockaddr *, socklen_t *);
	int (*shutdown)(struct loop *, int fd, int how);
	/* Takes fd.  The fd's armed ops have had their cancel() and have left the slot; the slot is
	 * reset after this. */
	void (*close_fd)(struct loop *, int fd);
	void (*forget_fd)(struct loop *, int fd); /* NULL: it keeps nothing of a descriptor */

	/* The front has filled op (kind, fd, seg_class, state OP_ARMED) and the slot. */
	void (*accept)(struct loop *, struct op *, bool shared);
	void (*connect)(struct loop *, struct op *, const struct sockaddr *, socklen_t);
	void (*recv)(struct loop *, struct op *);
	void (*send)(struct loop *, struct op *, const struct iovec *, unsigned n);
	void (*poll)(struct loop *, struct op *, unsigned events);
	/* The op is OP_CANCELLING since now, and not deferred. */
	void (*cancel)(struct loop *, struct op *);

	void (*wait)(struct loop *, uint64_t wait_us); /* submits; 0: does not sleep */
	void (*clock)(struct loop *, uint64_t *mono_us, int64_t *wall_us);
	unsigned (*reap)(struct loop *);  /* done() of what completed, bounded; returns how many */
	unsigned (*flush)(struct loop *); /* may be NULL */
	/* work is left that the next wait must not sleep over; may be NULL */
	bool (*busy)(const struct loop *);
	void (*random)(struct loop *, void *, size_t);
	void (*dump)(const struct loop *, int fd); /* may be NULL */
};

extern const struct loop_backend loop_uring, loop_epoll, loop_sim, loop_fault;

/* The column of the slot that an op of this kind sits in. */
enum slot_col { COL_IN, COL_OUT, COL_POLL, COLS };
static const uint8_t loop_col[] = {
	[OP_ACCEPT] = COL_IN, [OP_RECV] = COL_IN,   [OP_CONNECT] = COL_OUT,
	[OP_SEND] = COL_OUT,  [OP_POLL] = COL_POLL,
};

struct fd_slot {
	struct op *op[COLS];
	uint32_t bits; /* the back end's; 0 after close */
	uint32_t gen;  /* counts the closes of this number */
};

/* op->back_flags: the lowest bit is the front's, the highest the fault decorator's (it keeps the op
 * back: no back end has it yet), the others the back end's. */
enum { OPF_DEFERRED = 1, OPF_BACK = 2, OPF_HELD = 0x80 };

struct mailbox {
	struct mail *_Atomic head; /* newest first; NULL: empty */
	int wake_fd;               /* -1: nobody sleeps (sim) */
	struct op poll;
};

struct taskq {
	struct task *head, *tail; /* tail->next == tail */
};

#define LOOP_MAGIC  0x100b100bu
#define LOOP_RANDOM 256
struct loop {
	uint32_t magic;
	uint32_t n_armed;              /* ops, the mailbox's own poll included */
	const struct loop_backend *be; /* loop_fault, or == real_be */
	const struct loop_backend *real_be;
	void *back;  /* the back end's own */
	void *fault; /* fault.c's own */

	struct fd_slot *slots; /* by descriptor */
	uint32_t n_slots;
	bool single_shot, no_limit; /* asked by the fault plan: older kernels */
	struct list deferred;       /* of op.back.node, result in back_n */

	uint64_t now_us;
	int64_t wall_us;
	struct wheel *wheel;
	struct taskq soon, late;
	struct mailbox box;
	_Atomic uint64_t turns;

	struct budget budget; /* this shard's, below the process's */
	struct reclaim reclaim;
	uint64_t calm_us; /* when those that nobody needs are given back */
	unsigned shard;
	uint32_t fds_max;
	struct seg_pool segs[SEG_CLASSES];
	struct slab arenas;
	void *room[SLOTS];

	int64_t wall_off_us; /* real clocks: wall - monotonic, read anew now and then */
	uint64_t wall_read_us;
	int64_t date_s; /* second that date[] says; 0: none yet */
	char date[32];
	uint32_t n_random; /* bytes left */
	uint8_t random[LOOP_RANDOM];
};

/* --- the front, for back ends --- */
/* A multishot op reports and stays armed (or cancelling). */
static inline void loop_report(struct op *op, int32_t res)
{
	hot_must(op->magic == OP_MAGIC && op->state != OP_IDLE);
	op->done(op, res);
}

/* The op's last report. */
static inline void loop_finish(struct loop *loop, struct op *op, int32_t res)
{
	struct op **at = &loop->slots[op->fd].op[loop_col[op->kind]];

	hot_must(op->magic == OP_MAGIC && op->state != OP_IDLE && loop->n_armed > 0);
	if (*at == op)
		*at = NULL;
	op->state = OP_IDLE;
	op->back_flags = 0;
	loop->n_armed--;
	op->done(op, res);
}

/* The op will finish with res in the next reap (or flush); from now on cancel is a no-op. */
static inline void loop_defer(struct loop *loop, struct op *op, int32_t res)
{
	op->back_flags |= OPF_DEFERRED;
	op->back_n = (uint32_t)res;
	list_push_tail(&loop->deferred, &op->back.node);
}

/* Finishes what was deferred before the call; returns how many. */
unsigned loop_reap_deferred(struct loop *);

/* --- real.c: what the two real back ends share --- */
/* how often the wall clock is asked where it stands against the monotonic one */
#define LOOP_WALL_EVERY_US 100000u
int loop_real_socket(struct loop *, int family, int type);
int loop_real_sockopt(struct loop *, int fd, int level, int name, const void *val, socklen_t n);
int loop_real_sockname(struct loop *, int fd, bool peer, struct sockaddr *, socklen_t *);
int loop_real_shutdown(struct loop *, int fd, int how);
void loop_real_clock(struct loop *, uint64_t *mono_us, int64_t *wall_us);
void loop_real_random(struct loop *, void *, size_t);

/* --- mail.c --- */
int mail_open(struct loop *); /* 0 or -errno */
void mail_arm(struct loop *); /* the wake-up poll */
bool mail_waiting(const struct loop *);
unsigned mail_deliver(struct loop *); /* opens what lies in the box */
void mail_close(struct loop *);       /* box shut, rest delivered, poll ended, eventfd closed */

#endif
