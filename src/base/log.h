/* log.h -- lines out of the process without blocking a shard: sinks, rings, one writer thread.
 *
 *   sink    a file, stdout or stderr, with a name for culvert_log_dropped_total{sink}
 *   ring    bounded byte ring, one per (sink, producer thread), single producer, single consumer (the writer thread)
 *
 * A line that does not fit is dropped and counted, never waited for.  The writer gathers what lies in all rings of a sink
 * and writes it with few calls; on a write error (ENOSPC, EIO) it counts what it had to throw away and goes on trying.
 * It is woken when a ring is a quarter full, else it looks every 20 ms while there is work and sleeps on a futex when idle.
 * log_flush() at a graceful end writes everything.  Reopening swaps the descriptor between two writes.
 *
 * The operational log (log_say) is for people: one line that can be acted on (who, where, why, what culvert did).
 * Levels: error, warn, info, debug.  A line that repeats (same format string) within a second is folded:
 * "… (41 more like this)". */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/str.h"

enum log_level { LOG_ERROR = 0, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT = 0, LOG_JSON };

struct log_sink;
struct log_ring;

struct log_sink *log_sink_new(const char *name, int fd); /* takes fd (0-2 are never closed); NULL: out of memory */
int log_sink_swap_fd(struct log_sink *s, int fd);        /* takes the new one, gives the old one back: to be closed by the caller */
uint64_t log_sink_dropped(const struct log_sink *s);     /* lines */
uint64_t log_sink_written(const struct log_sink *s);     /* lines */
struct log_ring *log_ring_new(struct log_sink *s, uint32_t bytes); /* power of two; before the writer starts or from its owner thread */
/* Room for a line of at most n bytes, contiguous, or NULL (counted as dropped).  Then commit what was used (<= n; ends with \n). */
char *log_ring_reserve(struct log_ring *r, uint32_t n);
void log_ring_commit(struct log_ring *r, uint32_t used);

int log_writer_start(void);   /* 0 or -errno; the process's one writer thread, after the fork and the drop of privileges */
void log_writer_stop(void);   /* flushes everything that was committed before, then joins */

/* Operational log.  Before log_say_open() lines go to stderr at once (the keeper always does that). */
void log_say_open(struct log_sink *s, enum log_level level, enum log_format format);
void log_say_level(enum log_level level);
bool log_say_on(enum log_level level);
void log_say(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
