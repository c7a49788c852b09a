/* log.h -- lines out of the process without blocking a shard: sinks, rings, one writer thread.
 *
 *   sink    a file, stdout or stderr, with a name for culvert_log_dropped_total{sink}; lives as
 *           long as the process
 *   ring    bounded byte ring, one per (sink, producer thread), single producer, single consumer
 *           (the writer thread)
 *
 * A line that does not fit is dropped and counted, never waited for.  The writer gathers what lies
 * in all rings of a sink and writes it with few calls; on a write error (ENOSPC, EIO) it counts
 * what it had to throw away and goes on trying.  A sink that takes nothing (a full pipe) holds up
 * no other sink.  The writer is woken when a ring is a quarter full, else it looks every 20 ms
 * while there is work and sleeps on a futex when idle.  log_writer_stop() at a graceful end writes
 * everything; a panic gives the writer half a second to do so.  Reopening swaps the descriptor
 * between two writes.
 *
 * The operational log (log_say) is for people: one line that can be acted on (who, where, why, what
 * culvert did).  Levels: error, warn, info, debug.  A line that repeats within a second is folded,
 * and the second's end tells: "… (41 more like this)".  An error or a warning repeats when its
 * format string is the same, whatever it is filled with (so the format must say what it is about:
 * never "%s"); the others when their text is the same. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/str.h"

enum log_level { LOG_ERROR = 0, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT = 0, LOG_JSON };

struct log_sink;
struct log_ring;

/* borrows the name, takes fd; NULL: out of memory */
struct log_sink *log_sink_new(const char *name, int fd);
/* takes the new one, gives the old one back: closed by the caller, if above 2 */
int log_sink_swap_fd(struct log_sink *s, int fd);
const char *log_sink_name(const struct log_sink *s);
/* lines that found no room, or could not be written */
uint64_t log_sink_dropped(const struct log_sink *s);
uint64_t log_sink_written(struct log_sink *s); /* lines */
/* A power of two from 4096 on; a line of up to half of it fits into an empty ring.  Any thread;
 * then used by one thread only, for ever. */
struct log_ring *log_ring_new(struct log_sink *s, uint32_t bytes);
/* Room for a line of at most n bytes, contiguous, or NULL (counted as dropped).  Then commit what
 * was used (<= n; ends with \n; 0: nothing).  A second reserve without a commit replaces the
 * first. */
char *log_ring_reserve(struct log_ring *r, uint32_t n);
void log_ring_commit(struct log_ring *r, uint32_t used);
/* Now and then, by its thread, between lines: when all of it is written, its memory goes back to
 * the system until the next lines come. */
void log_ring_calm(struct log_ring *r);

/* 0 or -errno; the process's one writer thread, after the fork and the drop of privileges */
int log_writer_start(void);
/* writes what was committed before (gives up on a sink that takes nothing for 2 s), then joins */
void log_writer_stop(void);
bool log_writer_running(void);
/* One call to the sink, now, past the rings: for a few lines while no writer runs.  May block. */
void log_sink_write_now(struct log_sink *s, const char *line, uint32_t n);
/* The writer calls this once per round; true: come again in 20 ms, even if nothing else is to
 * do. */
void log_writer_tick(bool (*fn)(bool last));
void log_writer_poke(void); /* the tick has got something to do */

/* Operational log.  Before log_say_open() lines go to stderr at once (the keeper always does that),
 * and while no writer runs they go to the sink at once. */
void log_say_open(struct log_sink *s, enum log_level level, enum log_format how);
void log_say_level(enum log_level level);
bool log_say_on(enum log_level level);
void log_say(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
