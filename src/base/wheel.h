/* wheel.h -- hierarchical timer wheel, 1 ms ticks, lazy.  Pure: the caller brings the clock.
 *
 * An alarm that is moved to a *later* moment is not moved in the wheel: only its `due` is stored,
 * and the wheel puts it back in when its old slot comes up.  So a deadline that every request
 * pushes on costs one store.  [Varghese & Lauck 1987]
 *
 * 4 levels of 256 slots: horizon 2^32 ms (49 days); a longer wait is looked at once per horizon,
 * and rings when it is due. */
#ifndef BASE_WHEEL_H
#define BASE_WHEEL_H

#include "base/list.h"
#include <stdint.h>

struct alarm;
typedef void alarm_fn(struct alarm *);

struct alarm {
	struct list node; /* self-linked while off */
	uint64_t due_ms;  /* when it shall ring */
	uint64_t slot_ms; /* when the wheel will look at it: <= due_ms */
	alarm_fn *ring;
};

struct wheel;                             /* about 16 KiB */
struct wheel *wheel_new(uint64_t now_ms); /* NULL: out of memory */
void wheel_free(struct wheel **w);

static inline void alarm_init(struct alarm *a, alarm_fn *ring)
{
	list_init(&a->node);
	a->due_ms = a->slot_ms = 0;
	a->ring = ring;
}

static inline bool alarm_on(const struct alarm *a)
{
	return !list_empty(&a->node);
}

/* Rings once, at or after due_ms (never before); armed again it moves. */
void wheel_set(struct wheel *w, struct alarm *a, uint64_t due_ms);
void wheel_off(struct alarm *a); /* at once; no-op when off */
/* Rings all that are due, in the order of due_ms, at most `budget` alarms; returns how many rang
 * (the rest stays due, in order).  ring() may set and unset any alarm and free its own; one that it
 * sets to now or earlier rings in the next turn. */
unsigned wheel_turn(struct wheel *w, uint64_t now_ms, unsigned budget);
/* Milliseconds until the wheel next has to look (0: now); UINT32_MAX: nothing is set. May be early,
 * never late. */
uint32_t wheel_wait_ms(struct wheel *w, uint64_t now_ms);

/* Whether no alarm is set; looks at every slot: for the end of a loop. */
bool wheel_empty(const struct wheel *w);

#endif
