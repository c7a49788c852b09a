/* loop.h -- completion, not readiness: the one seam to the kernel's sockets and clock.
 *
 * Who calls it: link/ and relay/ for sockets, everybody for time and the run queue.  One loop per
 * shard, one thread per loop.
 *
 *   op       one request to the kernel (accept, connect, recv, send, poll), embedded in its owner.
 *            The loop borrows it until the one done() call that finds it OP_IDLE.  Ops complete
 *            exactly once; a multishot op (accept, recv) may report many times while OP_ARMED, and
 *            then once, OP_IDLE, as its last.  Idle with res >= 0 means: the owner arms it again if
 *            it wants more (a completion queue overflowed, buffers ran out, the back end has no
 *            multishot).
 *   cancel   a request, by op: done() still comes (with -ECANCELED, or with the result that was
 *            faster).
 *   alarm    a moment in the loop's own wheel (base/wheel.h): nothing of the kernel, so off is off
 *            at once.
 *   task     work for later in this turn (loop_soon), or for the end of this turn after all tasks
 *            (loop_late: flushes).
 *   mail     work for another shard's loop, from any thread.
 *   turn     wait, done() of what completed, mail, alarms, tasks until none is left (bounded), late
 *            tasks, submit, done() of what ended there, and its tasks.
 *
 * done(), ring() and run() are called only from loop_turn(), never inside a submit.  One clock
 * reading per turn.  Wall clock and random bytes come from the loop too, so that the sim can script
 * them.
 *
 * An idle connection holds no buffer: bytes arrive as a counted seg out of one of the shard's two
 * rings of provided buffers (4 KiB for heads and small bodies, 68 KiB for a direction that proved
 * to be bulk); the epoll back end takes one from the same pools after readiness.  done() takes
 * op->seg (bytes at data[0..res)).  A receive that finds no memory reports -ENOBUFS, idle. */
#ifndef LOOP_LOOP_H
#define LOOP_LOOP_H

#include "base/buf.h"
#include "base/list.h"
#include "base/wheel.h"

#include <sys/socket.h>

struct loop;
struct op;

enum op_state { OP_IDLE = 0, OP_ARMED, OP_CANCELLING };
enum op_kind { OP_NONE = 0, OP_ACCEPT, OP_CONNECT, OP_RECV, OP_SEND, OP_POLL };
#define OP_MAGIC 0x0b5e55edu

typedef void op_done_fn(struct op *, int32_t res); /* res < 0 is -errno */

struct op {
	uint32_t magic;
	uint8_t state;      /* enum op_state; OP_ARMED inside done(): multishot, more follows */
	uint8_t kind;       /* enum op_kind */
	uint8_t seg_class;  /* RECV: enum seg_class */
	uint8_t back_flags; /* the back end's own */
	int fd;
	uint32_t back_n; /* the back end's own */
	op_done_fn *done;
	struct seg *seg; /* RECV: the bytes; done() takes it (nulls it) */
	union {          /* the back end's own, while armed */
		struct list node;
		struct {
			const void *p;
			struct iovec *iov;
		} out;
	} back;
};

static inline void op_init(struct op *op, op_done_fn *done)
{
	memset(op, 0, sizeof(*op));
	op->magic = OP_MAGIC;
	op->fd = -1;
	op->done = done;
}

static inline bool op_idle(const struct op *op)
{
	return op->state == OP_IDLE;
}

struct task {
	struct task *next; /* self while it is last; NULL while not queued */
	void (*run)(struct task *);
};

static inline void task_init(struct task *t, void (*run)(struct task *))
{
	t->next = NULL;
	t->run = run;
}

static inline bool task_queued(const struct task *t)
{
	return t->next != NULL;
}

struct mail {
	struct mail *_Atomic next;
	/* runs on the receiving shard; owns the mail from then on */
	void (*open)(struct loop *, struct mail *);
};

/* --- life --- */
enum loop_io { LOOP_AUTO = 0, LOOP_URING, LOOP_EPOLL, LOOP_SIM };

struct loop_params {
	enum loop_io io;                /* LOOP_AUTO: io_uring where it works, else epoll */
	struct budget *budget;          /* borrowed; limits.memory */
	unsigned shard;                 /* its number */
	uint32_t fds_max;               /* RLIMIT_NOFILE */
	const struct fault_plan *fault; /* NULL, or decorate the back end (loop/fault.h; tests) */
	struct sim *sim;                /* LOOP_SIM: the scripted world (loop/sim.h) */
};

/* Must be called by the thread that will turn it (SINGLE_ISSUER).  NULL: *why says it in words
 * (static or in the buffer). */
struct loop *loop_new(const struct loop_params *, char why[static 128]) MUST_CHECK;
void loop_free(struct loop **); /* by the same thread; asserts: no op armed, no alarm set */
const char *loop_io_name(const struct loop *); /* "io_uring", "epoll", "sim" */
/* Tries io_uring once, as start-up does: 0, or -errno, and why in words: "io_uring (ring 2048)",
 * "epoll: io_uring_setup: Operation not permitted". */
int loop_probe_uring(char why[static 128]);

/* Runs one turn; waits at most wait_ms_max.  Returns how much was done (0: nothing). */
int loop_turn(struct loop *, uint32_t wait_ms_max);

/* --- sockets: so that the sim can play them --- */
/* non-blocking, close-on-exec; fd or -errno */
int loop_socket(struct loop *, int family, int type);
/* 0 or -errno */
int loop_sockopt(struct loop *, int fd, int level, int name, const void *val, socklen_t n);
/* 0 or -errno */
int loop_sockname(struct loop *, int fd, bool peer, struct sockaddr *, socklen_t *);
/* real descriptors: relay/ may call splice(2) when poll says ready */
bool loop_can_splice(const struct loop *);

/* --- ops; the op must be idle, fd non-blocking --- */
/* Multishot where the descriptor is one shard's own; `shared`: single-shot accepts, else one shard
 * gets everything.  res: the new fd (non-blocking, close-on-exec), or -EMFILE, -ENFILE, ... idle:
 * arm again when a connection closes or an alarm rings, not at once. */
void loop_accept(struct loop *, struct op *, int fd, bool shared);
/* The address is borrowed during the call only.  res: 0 or -errno. */
void loop_connect(struct loop *, struct op *, int fd, const struct sockaddr *, socklen_t);
/* Multishot.  res > 0: bytes in op->seg; 0: end of stream, idle; < 0: idle.  One turn brings less
 * than LOOP_RECV_TURN and one seg per op (kernels without a limit on multishot receives, before
 * 6.18: SEG_SMALL up to 1 MiB). */
#define LOOP_RECV_TURN SEG_LARGE_BLOCK
void loop_recv(struct loop *, struct op *, int fd, enum seg_class);
/* The iovec array is copied, the bytes are borrowed until done.  res: bytes sent, maybe fewer than
 * asked, or -errno.  n <= LOOP_IOV. */
#define LOOP_IOV 64
void loop_send(struct loop *, struct op *, int fd, const struct iovec *, unsigned n);
/* Single-shot readiness: POLLIN, POLLOUT, POLLRDHUP.  res: revents or -errno.  May be armed on a
 * descriptor beside its recv and send ops. */
void loop_poll(struct loop *, struct op *, int fd, unsigned events);
void loop_cancel(struct loop *, struct op *);      /* no-op if idle or already cancelling */
int loop_shutdown(struct loop *, int fd, int how); /* at once; 0 or -errno */
/* Takes fd.  Ops of this fd that are still armed are cancelled first and get their done(); FIN (or,
 * after SO_LINGER 0, RST) goes out. */
void loop_close(struct loop *, int fd);
/* The loop is done with a descriptor that stays open, or that others close: no op of it is armed,
 * and its number may become another's. */
void loop_forget(struct loop *loop, int fd);

/* --- time --- */
uint64_t loop_now_ms(const struct loop *); /* monotonic, of this turn */
uint64_t loop_now_us(const struct loop *);
int64_t loop_wall_us(const struct loop *); /* of this turn, since 1970 */
/* IMF-fixdate of this turn's second; valid during the turn */
struct str loop_http_date(struct loop *);
void loop_random(struct loop *, void *, size_t);
void loop_alarm(struct loop *, struct alarm *, uint32_t ms); /* sets or moves */
static inline void loop_alarm_off(struct alarm *a)
{
	wheel_off(a);
}

/* --- run queue --- */
void loop_soon(struct loop *, struct task *); /* later this turn; no-op if queued */
void loop_late(struct loop *, struct task *); /* at the end of this turn, once; no-op if queued */
void loop_task_off(struct loop *, struct task *); /* not queued any more, at once */

/* --- mail --- */
/* any thread; takes the mail; false: the loop is gone */
bool loop_post(struct loop *, struct mail *);

/* --- the shard around it: pools, and an opaque slot for each room that keeps something --- */
enum shard_slot { SLOT_LINK, SLOT_WIRE, SLOT_EXCHANGE, SLOT_ORIGIN, SLOT_RELAY, SLOT_SERVE, SLOTS };
void *loop_slot(const struct loop *, enum shard_slot);
void loop_set_slot(struct loop *, enum shard_slot, void *);
struct seg_pool *loop_segs(struct loop *, enum seg_class);
struct slab *loop_arenas(struct loop *);   /* ARENA_FIRST blocks */
struct budget *loop_budget(struct loop *); /* this shard's */
unsigned loop_shard(const struct loop *);
uint64_t loop_turns(const struct loop *); /* readable from any thread */
void loop_dump(const struct loop *, int fd);

/* --- settings: workers, io (rows: loop_conf.c) --- */
struct loop_conf {
	uint32_t workers; /* 0: auto, one per usable core */
	uint8_t io;       /* enum loop_io */
};
struct setting;
extern const struct setting loop_conf_workers, loop_conf_io;

#endif
