/* log_say.c -- the operational log: levels, two formats, folding of what repeats.
 *
 * A table of 64 slots remembers the last lines by what makes them the same.  The first of them is
 * written at once; those that come within a second are counted; when the second is over (the
 * writer's tick, or another line that needs the slot) one line tells how many there were. */
#include "base/log.h"

#include "base/out.h"
#include "base/panic.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SAY_TEXT 1024                 /* longest message; what is beyond is cut */
#define SAY_LINE (SAY_TEXT * 6 + 256) /* each byte may become \u00xx */
#define SAY_RING 65536u
#define FOLDS    64u
#define FOLD_MS  1000

static struct log_sink *_Atomic sink; /* NULL: standard error */
static _Atomic int level_max = LOG_INFO, format = LOG_TEXT;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_say_level(enum log_level level)
{
	atomic_store_explicit(&level_max, (int)level, memory_order_relaxed);
}

bool log_say_on(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&level_max, memory_order_relaxed);
}

/* --- out --- */

static int64_t wall_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void line_json(struct out *o, enum log_level level, struct str text, uint64_t more)
{
	out_lit(o, "{\"time\":\"");
	out_time_rfc3339(o, wall_us());
	out_lit(o, "\",\"level\":\"");
	out_str(o, str_of(level_names[level]));
	out_lit(o, "\",\"message\":\"");
	out_json(o, text);
	out_char(o, '"');
	if (more) {
		out_lit(o, ",\"more\":");
		out_u64(o, more);
	}
	out_lit(o, "}\n");
}

static void line_text(struct out *o, enum log_level level, struct str text, uint64_t more)
{
	out_time_rfc3339(o, wall_us());
	out_char(o, ' ');
	out_str(o, str_of(level_names[level]));
	out_char(o, ' ');
	out_text(o, text);
	if (more) {
		out_lit(o, " \xe2\x80\xa6 (");
		out_u64(o, more);
		out_lit(o, " more like this)");
	}
	out_char(o, '\n');
}

/* This thread's ring of this sink. */
static struct log_ring *own_ring(struct log_sink *s)
{
	static __thread struct log_sink *of;
	static __thread struct log_ring *ring;

	if (of != s) {
		of = s;
		ring = log_ring_new(s, SAY_RING);
	}
	return ring;
}

static void emit(enum log_level level, struct str text, uint64_t more)
{
	struct log_sink *s = atomic_load(&sink);
	struct log_ring *ring;
	char line[SAY_LINE], *room;
	struct out o;

	out_init(&o, line, sizeof(line));
	if (atomic_load_explicit(&format, memory_order_relaxed) == LOG_JSON)
		line_json(&o, level, text, more);
	else
		line_text(&o, level, text, more);
	must(out_ok(&o));
	if (!s) {
		if (write(STDERR_FILENO, line, out_len(&o)) < 0)
			return; /* nobody reads it */
	} else if (log_writer_running() && (ring = own_ring(s)) != NULL) {
		room = log_ring_reserve(ring, out_len(&o));
		if (!room)
			return;
		memcpy(room, line, out_len(&o));
		log_ring_commit(ring, out_len(&o));
	} else {
		log_sink_write_now(s, line, out_len(&o));
	}
}

/* --- folding --- */

struct fold {
	const char *fmt; /* NULL: unused */
	uint64_t text_hash;
	uint64_t since_ms;
	uint64_t more;
	enum log_level level;
	uint32_t n;
	char text[256]; /* of the first one, perhaps cut */
};

static pthread_mutex_t fold_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fold folds[FOLDS];
static _Atomic uint32_t n_folded; /* slots that have something to tell */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* FNV-1a: who fools it folds a line of the debug log. */
static uint64_t hash(const char *p, uint32_t n)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (uint32_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)p[i]) * 0x100000001b3ull;
	return h;
}

/* Takes what a slot has to tell out of it; true: there is something. */
static bool fold_take(struct fold *f, struct fold *tell)
{
	bool any = f->fmt && f->more;

	if (any) {
		*tell = *f;
		atomic_fetch_sub(&n_folded, 1);
	}
	f->fmt = NULL;
	return any;
}

static void fold_tell(const struct fold *f)
{
	emit(f->level, (struct str){ .p = f->text, .n = f->n }, f->more);
}

static void fold_begin(struct fold *f, enum log_level level, const char *fmt, struct str text,
		       uint64_t text_hash)
{
	f->fmt = fmt;
	f->text_hash = text_hash;
	f->since_ms = now_ms();
	f->more = 0;
	f->level = level;
	f->n = text.n < sizeof(f->text) ? text.n : (uint32_t)sizeof(f->text);
	memcpy(f->text, text.p, f->n);
}

/* True: the line was counted and is not to be written. */
static bool fold(enum log_level level, const char *fmt, struct str text)
{
	uint64_t text_hash = level <= LOG_WARN ? 0 : hash(text.p, text.n);
	uint64_t slot = ((uint64_t)(uintptr_t)fmt ^ text_hash) * 0x9e3779b97f4a7c15ull >> 58;
	struct fold *f = &folds[slot % FOLDS], tell;
	bool same, any = false, wake = false;

	pthread_mutex_lock(&fold_lock);
	same = f->fmt == fmt && f->text_hash == text_hash && f->level == level &&
	       now_ms() - f->since_ms < FOLD_MS;
	if (same) {
		wake = f->more++ == 0;
		if (wake)
			atomic_fetch_add(&n_folded, 1);
	} else {
		any = fold_take(f, &tell);
		fold_begin(f, level, fmt, text, text_hash);
	}
	pthread_mutex_unlock(&fold_lock);
	if (any)
		fold_tell(&tell);
	if (wake)
		log_writer_poke();
	return same;
}

/* Tells what is a second old, or all; true: there is more to tell later. */
static bool fold_sweep(bool all)
{
	struct fold tell;

	for (unsigned i = 0; i < FOLDS && atomic_load(&n_folded); i++) {
		bool any = false;

		pthread_mutex_lock(&fold_lock);
		if (all || now_ms() - folds[i].since_ms >= FOLD_MS)
			any = fold_take(&folds[i], &tell);
		pthread_mutex_unlock(&fold_lock);
		if (any)
			fold_tell(&tell);
	}
	return atomic_load(&n_folded) > 0;
}

/* --- in --- */

void log_say_open(struct log_sink *s, enum log_level level, enum log_format how)
{
	log_say_level(level);
	atomic_store_explicit(&format, (int)how, memory_order_relaxed);
	atomic_store(&sink, s);
	log_writer_tick(fold_sweep);
}

void log_say(enum log_level level, const char *fmt, ...)
{
	char text[SAY_TEXT];
	va_list ap;
	int n;

	if (!log_say_on(level))
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if (n >= (int)sizeof(text)) {
		n = sizeof(text) - 1;
		memcpy(text + n - 3, "\xe2\x80\xa6", 3); /* cut */
	}
	if (!log_writer_running())
		fold_sweep(false); /* nobody else does */
	if (!fold(level, fmt, (struct str){ .p = text, .n = (uint32_t)n }))
		emit(level, (struct str){ .p = text, .n = (uint32_t)n }, 0);
}
