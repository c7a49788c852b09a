/* log.c -- sinks, rings, the writer thread.
 *
 *   shard 0   ring ─┐
 *   shard 1   ring ─┼─> sink "access log" ─┐
 *   shard 0   ring ─┐                      ├── writer thread
 *   shard 1   ring ─┼─> sink "log" ────────┘
 *   writer    ring ─┘
 *
 * A ring counts bytes for ever (head: written, tail: read); the offset is the count's low bits.  A
 * line is never split: one that does not fit before the end of the memory begins at offset 0, and
 * `wrap` says where the gap before it begins:
 *
 *   |..line line line        (gap)|        lap n       wrap = end of the last line
 *   |line line ...                |        lap n + 1   head
 *
 * One wrap is enough: the next one is a lap later, and by then the reader has passed this one.
 *
 * The producer wakes the writer seldom: `state` says how the writer sleeps.
 *   AWAKE    it will look again by itself
 *   DOZING   it looks in 20 ms at the latest: woken when a ring is a quarter full
 *   ASLEEP   nothing came for 20 ms: the first line wakes it
 * Head is stored and state read in one total order, state stored and heads read as well: one of the
 * two sees the other. */
#include "base/log.h"

#include "base/panic.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RING_MIN    4096u
#define PAGE        4096u
#define LOOK_MS     20
#define PATIENCE_MS 2000 /* at the end, for a sink that takes nothing */
#define PANIC_MS    500
#define SINK_IOV    64
#define SINK_CALLS  64
#define SLOW_BYTES  4096 /* what a pipe that polls writable takes without blocking (PIPE_BUF) */

struct log_ring {
	/* the producer's */
	alignas(64) char *data;
	struct log_sink *sink;
	uint32_t size;
	uint64_t next;  /* as head, without the atomics */
	uint64_t start; /* of the line reserved */
	uint64_t tail_seen;
	uint64_t calm_at; /* next, when its pages were given back last */
	/* told by the producer */
	alignas(64) _Atomic uint64_t head;
	_Atomic uint64_t wrap;
	_Atomic uint64_t lines, dropped;
	/* the writer's */
	alignas(64) _Atomic uint64_t tail;
	struct log_ring *sibling;
};

/* never blocks for long; can be told not to block; pipe, terminal, device */
enum sink_kind { SINK_FILE, SINK_SOCKET, SINK_SLOW };

struct log_sink {
	const char *name;
	pthread_mutex_t lock; /* around fd and the reading side of the rings */
	int fd;
	enum sink_kind kind;
	struct log_ring *_Atomic rings;
	struct log_ring *current; /* whose line is half written; NULL: none */
	bool mid_line;            /* the last byte written was not \n */
	_Atomic bool blocked;
	_Atomic uint64_t thrown; /* lines that could not be written */
	int error;               /* why the last write failed; 0: it did not */
	bool told;               /* this failure has been logged */
	struct log_sink *next;
};

static struct log_sink *_Atomic sinks;

enum { AWAKE = 0, DOZING, ASLEEP };
static _Atomic uint32_t state;
static _Atomic bool running, stopping, poked;
static pthread_t writer;
static bool (*_Atomic tick_fn)(bool last);

/* --- sinks --- */

static enum sink_kind kind_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0) {
		if (S_ISREG(st.st_mode))
			return SINK_FILE;
		if (S_ISSOCK(st.st_mode))
			return SINK_SOCKET;
	}
	return SINK_SLOW;
}

struct log_sink *log_sink_new(const char *name, int fd)
{
	struct log_sink *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->name = name;
	s->fd = fd;
	s->kind = kind_of(fd);
	pthread_mutex_init(&s->lock, NULL);
	s->next = atomic_load(&sinks);
	while (!atomic_compare_exchange_weak(&sinks, &s->next, s))
		;
	return s;
}

int log_sink_swap_fd(struct log_sink *s, int fd)
{
	int old;

	pthread_mutex_lock(&s->lock);
	old = s->fd;
	s->fd = fd;
	s->kind = kind_of(fd);
	s->mid_line = false;
	pthread_mutex_unlock(&s->lock);
	return old;
}

const char *log_sink_name(const struct log_sink *s)
{
	return s->name;
}

uint64_t log_sink_dropped(const struct log_sink *s)
{
	uint64_t n = atomic_load_explicit(&s->thrown, memory_order_relaxed);

	for (struct log_ring *r = atomic_load(&s->rings); r; r = r->sibling)
		n += atomic_load_explicit(&r->dropped, memory_order_relaxed);
	return n;
}

/* --- rings: the producer's side --- */

struct log_ring *log_ring_new(struct log_sink *s, uint32_t bytes)
{
	struct log_ring *r;

	must(bytes >= RING_MIN && (bytes & (bytes - 1)) == 0);
	r = aligned_alloc(alignof(struct log_ring), sizeof(*r) + bytes);
	if (!r)
		return NULL;
	memset(r, 0, sizeof(*r)); /* not the bytes: pages never written to cost nothing */
	r->data = (char *)(r + 1);
	r->size = bytes;
	r->sink = s;
	r->sibling = atomic_load(&s->rings);
	while (!atomic_compare_exchange_weak(&s->rings, &r->sibling, r))
		;
	return r;
}

static inline void count(_Atomic uint64_t *n) /* by one thread only */
{
	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

static inline uint64_t lap_end(const struct log_ring *r, uint64_t at)
{
	return (at | (r->size - 1)) + 1;
}

char *log_ring_reserve(struct log_ring *r, uint32_t n)
{
	uint64_t start = r->next, end = lap_end(r, start);

	if (n > end - start)
		start = end;
	if (__builtin_expect(start + n - r->tail_seen > r->size, 0)) {
		r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
		if (start + n - r->tail_seen > r->size) {
			count(&r->dropped);
			return NULL;
		}
	}
	r->start = start;
	return r->data + (start & (r->size - 1));
}

static void wake(void)
{
	if (atomic_exchange(&state, AWAKE) != AWAKE)
		syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Not worth waking anybody for a sink that takes nothing. */
static bool quarter_full(struct log_ring *r)
{
	if (r->next - r->tail_seen < r->size / 4)
		return false;
	r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	return r->next - r->tail_seen >= r->size / 4 &&
	       !atomic_load_explicit(&r->sink->blocked, memory_order_relaxed);
}

void log_ring_commit(struct log_ring *r, uint32_t used)
{
	uint32_t how;

	if (!used)
		return;
	hot_must(r->data[(r->start + used - 1) & (r->size - 1)] == '\n');
	if (r->start != r->next)
		atomic_store_explicit(&r->wrap, r->next, memory_order_relaxed);
	count(&r->lines);
	r->next = r->start + used;
	atomic_store(&r->head, r->next);
	how = atomic_load(&state);
	if (how != AWAKE && (how == ASLEEP || quarter_full(r)))
		wake();
}

/* The writer reads between tail and head only: of an empty ring it touches nothing. */
void log_ring_calm(struct log_ring *r)
{
	uintptr_t from = ((uintptr_t)r->data + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	uintptr_t to = ((uintptr_t)r->data + r->size) & ~(uintptr_t)(PAGE - 1);

	if (r->calm_at == r->next ||
	    atomic_load_explicit(&r->tail, memory_order_acquire) != r->next)
		return;
	r->calm_at = r->next;
	if (to > from)
		(void)madvise((void *)from, to - from, MADV_DONTNEED);
}

/* --- rings: the writer's side, under the sink's lock --- */

struct run {
	struct log_ring *ring;
	uint64_t from;
	size_t n;
};

/* The one or two runs of bytes between tail and head; returns how many. */
static unsigned ring_runs(struct log_ring *r, struct run run[2])
{
	uint64_t head = atomic_load(&r->head),
		 tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	uint64_t end = lap_end(r, tail), wrap;
	unsigned n = 0;

	if (head == tail)
		return 0;
	if (head <= end) {
		run[0] = (struct run){ r, tail, head - tail };
		return 1;
	}
	wrap = atomic_load_explicit(&r->wrap, memory_order_relaxed);
	if (wrap < tail || wrap > end) /* of an older lap: this one was filled to its end */
		wrap = end;
	if (wrap > tail)
		run[n++] = (struct run){ r, tail, wrap - tail };
	run[n++] = (struct run){ r, end, head - end };
	return n;
}

static inline char *run_bytes(const struct run *run)
{
	return run->ring->data + (run->from & (run->ring->size - 1));
}

static uint64_t count_lines(const struct run *run)
{
	const char *p = run_bytes(run), *end = p + run->n;
	uint64_t n = 0;

	while (p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		n++;
		p++;
	}
	return n;
}

static uint64_t ring_pending(struct log_ring *r)
{
	struct run run[2];
	uint64_t lines = 0;

	for (unsigned n = ring_runs(r, run); n > 0; n--)
		lines += count_lines(&run[n - 1]);
	return lines;
}

uint64_t log_sink_written(struct log_sink *s)
{
	uint64_t n = 0;

	pthread_mutex_lock(&s->lock);
	for (struct log_ring *r = atomic_load(&s->rings); r; r = r->sibling) {
		uint64_t pending = ring_pending(r);

		n += atomic_load_explicit(&r->lines, memory_order_relaxed) - pending;
	}
	n -= atomic_load_explicit(&s->thrown, memory_order_relaxed);
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* Whole lines only: a slow sink is shared with others, whose lines shall not come between the parts
 * of ours. */
static size_t cut_at_line(const struct run *run, size_t n)
{
	const char *p = run_bytes(run), *nl = memrchr(p, '\n', n);

	return nl ? (size_t)(nl + 1 - p) : n;
}

/* Adds a ring's runs, at most *room bytes; returns the new number of runs. */
static unsigned gather_ring(struct log_ring *r, struct run *v, unsigned n, size_t *room)
{
	struct run run[2];
	unsigned runs = ring_runs(r, run);

	for (unsigned i = 0; i < runs && n < SINK_IOV && *room; i++) {
		if (run[i].n > *room) {
			if (n && run[i].n > 0 && !memrchr(run_bytes(&run[i]), '\n', *room))
				return n; /* a line that begins here fits the next call better */
			run[i].n = cut_at_line(&run[i], *room);
			*room = run[i].n; /* nothing more after this */
		}
		*room -= run[i].n;
		v[n++] = run[i];
	}
	return n;
}

/* All of the sink's rings, the one first whose line is half written. */
static unsigned gather(struct log_sink *s, struct run v[SINK_IOV])
{
	size_t room = s->kind == SINK_SLOW ? SLOW_BYTES : SIZE_MAX;
	unsigned n = s->current ? gather_ring(s->current, v, 0, &room) : 0;

	for (struct log_ring *r = atomic_load(&s->rings); r && n < SINK_IOV && room; r = r->sibling)
		if (r != s->current)
			n = gather_ring(r, v, n, &room);
	return n;
}

/* What was written is read: moves the tails on by `done` bytes in all. */
static void consume(struct log_sink *s, const struct run *v, unsigned n, size_t done)
{
	s->current = NULL;
	for (unsigned i = 0; i < n && done; i++) {
		size_t k = done < v[i].n ? done : v[i].n;

		s->mid_line = run_bytes(&v[i])[k - 1] != '\n';
		s->current = s->mid_line ? v[i].ring : NULL;
		atomic_store_explicit(&v[i].ring->tail, v[i].from + k, memory_order_release);
		done -= k;
	}
}

static ssize_t put(struct log_sink *s, struct iovec *iov, unsigned n)
{
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };

	if (s->kind == SINK_SOCKET)
		return sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (s->kind == SINK_SLOW && poll(&p, 1, 0) == 0) {
		errno = EAGAIN;
		return -1;
	}
	return writev(s->fd, iov, (int)n);
}

/* The sink refuses: all that is there goes, so that the producers find room for what will perhaps
 * be taken. */
static void throw_away(struct log_sink *s)
{
	struct run run[2];

	for (struct log_ring *r = atomic_load(&s->rings); r; r = r->sibling) {
		unsigned n = ring_runs(r, run);
		uint64_t lines = 0;

		if (!n)
			continue;
		for (unsigned i = 0; i < n; i++)
			lines += count_lines(&run[i]);
		atomic_fetch_add_explicit(&s->thrown, lines, memory_order_relaxed);
		atomic_store_explicit(&r->tail, run[n - 1].from + run[n - 1].n,
				      memory_order_release);
	}
	s->current = NULL;
}

/* A line was cut short by an error: the next one shall not be glued to it. */
static bool end_torn_line(struct log_sink *s)
{
	struct iovec nl = { .iov_base = (char[]){ '\n' }, .iov_len = 1 };

	if (!s->mid_line || s->current)
		return true;
	if (put(s, &nl, 1) != 1)
		return false;
	s->mid_line = false;
	return true;
}

/* nothing there; not taken; taken; taken, and more is there */
enum drained { DRAIN_NONE, DRAIN_BLOCKED, DRAIN_SOME, DRAIN_MORE };

/* One call's worth. */
static enum drained drain_once(struct log_sink *s)
{
	struct run v[SINK_IOV];
	struct iovec iov[SINK_IOV];
	unsigned n = gather(s, v);
	ssize_t done = -1;

	if (!n)
		return DRAIN_NONE;
	for (unsigned i = 0; i < n; i++)
		iov[i] = (struct iovec){ .iov_base = run_bytes(&v[i]), .iov_len = v[i].n };
	if (end_torn_line(s))
		done = put(s, iov, n);
	if (done < 0 && (errno == EAGAIN || errno == EINTR))
		return DRAIN_BLOCKED;
	s->error = done > 0 ? 0 : errno;
	if (done > 0)
		consume(s, v, n, (size_t)done);
	else
		throw_away(s);
	return DRAIN_SOME;
}

/* Once per failure: if this log is the operational one, its own line fails too. */
static void tell_failure(struct log_sink *s, int error)
{
	if (error && !s->told)
		log_say(LOG_ERROR, "log %s: %s: its lines are lost until it can be written again",
			s->name, strerror(error));
	else if (!error && s->told)
		log_say(LOG_INFO, "log %s: is written again", s->name);
	s->told = error != 0;
}

/* A bounded number of calls, so that one sink does not keep the writer from the others. */
static enum drained drain_sink(struct log_sink *s)
{
	enum drained now = DRAIN_SOME;
	unsigned calls = 0;
	int error;

	pthread_mutex_lock(&s->lock);
	while (now == DRAIN_SOME && calls < SINK_CALLS) {
		now = drain_once(s);
		calls++;
	}
	error = s->error;
	pthread_mutex_unlock(&s->lock);
	tell_failure(s, error);
	atomic_store_explicit(&s->blocked, now == DRAIN_BLOCKED, memory_order_relaxed);
	if (now == DRAIN_SOME)
		return DRAIN_MORE;
	return calls > 1 ? DRAIN_SOME : now;
}

static enum drained drain_all(void)
{
	enum drained all = DRAIN_NONE;

	for (struct log_sink *s = atomic_load(&sinks); s; s = s->next) {
		enum drained d = drain_sink(s);

		if (d > all)
			all = d;
	}
	return all;
}

static bool all_empty(void)
{
	for (struct log_sink *s = atomic_load(&sinks); s; s = s->next)
		for (struct log_ring *r = atomic_load(&s->rings); r; r = r->sibling)
			if (atomic_load(&r->head) != atomic_load(&r->tail))
				return false;
	return true;
}

/* --- the writer thread --- */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void doze(void)
{
	const struct timespec t = { .tv_nsec = LOOK_MS * 1000000 };

	atomic_store(&state, DOZING);
	if (!atomic_load(&stopping))
		syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, DOZING, &t, NULL, 0);
	atomic_store(&state, AWAKE);
}

static void fall_asleep(void)
{
	atomic_store(&state, ASLEEP);
	if (!atomic_load(&stopping) && !atomic_load(&poked) && all_empty())
		syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, ASLEEP, NULL, NULL, 0);
	atomic_store(&state, AWAKE);
}

static bool tick(bool last)
{
	bool (*fn)(bool) = atomic_load(&tick_fn);

	atomic_store(&poked, false);
	return fn && fn(last);
}

/* After the last tick; a sink that takes nothing is waited for a while, as its reader may be slow
 * and not gone. */
static void drain_last(void)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	uint64_t since = now_ms();

	while (!all_empty()) {
		if (drain_all() >= DRAIN_SOME)
			since = now_ms();
		else if (now_ms() - since < PATIENCE_MS)
			nanosleep(&pause, NULL);
		else
			break;
	}
	for (struct log_sink *s = atomic_load(&sinks); s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		throw_away(s);
		pthread_mutex_unlock(&s->lock);
	}
}

static void *writer_main(void *arg)
{
	(void)arg;
	pthread_setname_np(pthread_self(), "culvert-log");
	while (!atomic_load(&stopping)) {
		enum drained d = drain_all();
		bool again = tick(false);

		if (d == DRAIN_NONE && !again)
			fall_asleep();
		else if (d != DRAIN_MORE)
			doze();
	}
	tick(true);
	drain_last();
	return NULL;
}

/* The process is about to die: the lines that explain why lie in the rings. */
static void on_panic(int fd, void *arg)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	(void)fd;
	(void)arg;
	if (!atomic_load(&running) || pthread_equal(pthread_self(), writer))
		return;
	for (unsigned i = 0; i < PANIC_MS && !all_empty(); i++) {
		wake();
		nanosleep(&pause, NULL);
	}
}

int log_writer_start(void)
{
	static bool hooked;
	sigset_t all, old;
	int err;

	must(!atomic_load(&running));
	if (!hooked)
		panic_hook(on_panic, NULL);
	hooked = true;
	atomic_store(&stopping, false);
	atomic_store(&state, AWAKE);
	/* Signals are for other threads, SIGPIPE for nobody; faults stay deadly. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGABRT);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&writer, NULL, writer_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	atomic_store(&running, err == 0);
	return -err;
}

void log_writer_stop(void)
{
	if (!atomic_load(&running))
		return;
	atomic_store(&stopping, true);
	wake();
	pthread_join(writer, NULL);
	atomic_store(&running, false);
}

bool log_writer_running(void)
{
	return atomic_load_explicit(&running, memory_order_relaxed);
}

void log_writer_tick(bool (*fn)(bool last))
{
	atomic_store(&tick_fn, fn);
}

void log_writer_poke(void)
{
	atomic_store(&poked, true);
	wake();
}

void log_sink_write_now(struct log_sink *s, const char *line, uint32_t n)
{
	pthread_mutex_lock(&s->lock);
	if (write(s->fd, line, n) != (ssize_t)n)
		atomic_fetch_add_explicit(&s->thrown, 1, memory_order_relaxed);
	pthread_mutex_unlock(&s->lock);
}
