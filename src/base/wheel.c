/* wheel.c -- four wheels of 256 slots; a slot of level k covers 256^k ms.
 *
 *   level 3   ....[slot].................     the digit of slot_ms (base 256) that first differs
 *   level 2   ..........[slot]...........     chooses the level, its value the slot
 *   level 1   ...[slot]..................
 *   level 0   ......[1 ms]...............
 *   due now   ripe: a list, in order
 *
 * When the moment at which a slot begins has come, its alarms are placed again: those due become
 * ripe, the others go to a finer level (or far away, if their due_ms was moved meanwhile).  Within
 * a level only slots ahead of now's digit are in use; the top level alone is a circle, because its
 * horizon wraps.
 *
 * `next` is never later than the begin of the first slot in use, so a turn in which nothing happens
 * compares two numbers.  Bits in `used` may be stale (wheel_off does not know the wheel); the
 * search clears them. */
#include "base/wheel.h"

#include "base/panic.h"

#include <stdlib.h>

#define LEVELS  4
#define SLOTS   256u
#define HORIZON 0xffffffffull

struct wheel {
	uint64_t now;  /* all moments up to this one have been looked at */
	uint64_t next; /* UINT64_MAX: no slot is in use */
	struct list ripe;
	uint64_t used[LEVELS][SLOTS / 64];
	struct list slot[LEVELS][SLOTS];
};

struct wheel *wheel_new(uint64_t now_ms)
{
	struct wheel *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->now = now_ms;
	w->next = UINT64_MAX;
	list_init(&w->ripe);
	for (unsigned level = 0; level < LEVELS; level++)
		for (unsigned i = 0; i < SLOTS; i++)
			list_init(&w->slot[level][i]);
	return w;
}

void wheel_free(struct wheel **w)
{
	free(*w);
	*w = NULL;
}

static inline void place(struct wheel *w, struct alarm *a)
{
	uint64_t at = a->due_ms, differs;
	unsigned level, shift, i;

	if (at <= w->now) {
		a->slot_ms = at;
		list_push_tail(&w->ripe, &a->node);
		return;
	}
	if (at - w->now > HORIZON)
		at = w->now + HORIZON;
	differs = at ^ w->now;
	level = differs > HORIZON ? LEVELS - 1
				  : (unsigned)(31 - __builtin_clz((uint32_t)differs)) / 8;
	shift = level * 8;
	i = (unsigned)(at >> shift) & (SLOTS - 1);
	a->slot_ms = at;
	list_push_tail(&w->slot[level][i], &a->node);
	w->used[level][i / 64] |= 1ull << (i % 64);
	at = at >> shift << shift;
	if (at < w->next)
		w->next = at;
}

void wheel_set(struct wheel *w, struct alarm *a, uint64_t due_ms)
{
	a->due_ms = due_ms;
	if (alarm_on(a)) {
		if (due_ms >= a->slot_ms)
			return;
		list_remove(&a->node);
	}
	place(w, a);
}

void wheel_off(struct alarm *a)
{
	list_remove(&a->node);
}

/* The first slot from i on that holds something; SLOTS: none. */
static unsigned find_used(struct wheel *w, unsigned level, unsigned i)
{
	while (i < SLOTS) {
		uint64_t word = w->used[level][i / 64] >> (i % 64);

		if (!word) {
			i = (i | 63) + 1;
			continue;
		}
		i += (unsigned)__builtin_ctzll(word);
		if (!list_empty(&w->slot[level][i]))
			return i;
		w->used[level][i / 64] &= ~(1ull << (i % 64));
		i++;
	}
	return SLOTS;
}

/* When the first slot in use begins: any slot of a finer level comes before all of the coarser
 * ones. */
static uint64_t find_next(struct wheel *w)
{
	unsigned digit, i;

	for (unsigned level = 0; level < LEVELS; level++) {
		unsigned shift = level * 8;

		digit = (unsigned)(w->now >> shift) & (SLOTS - 1);
		i = find_used(w, level, digit + 1);
		if (i < SLOTS)
			return ((w->now >> shift) + (i - digit)) << shift;
	}
	digit = (unsigned)(w->now >> 24) & (SLOTS - 1);
	i = find_used(w, LEVELS - 1, 0); /* around the circle, at last now's own digit */
	return i <= digit ? ((w->now >> 24) + SLOTS - (digit - i)) << 24 : UINT64_MAX;
}

static void empty_slot(struct wheel *w, unsigned level, unsigned i)
{
	struct list moved, *slot = &w->slot[level][i], *node;

	w->used[level][i / 64] &= ~(1ull << (i % 64));
	if (list_empty(slot))
		return;
	/* takes the ring over: an alarm may come back to this very slot */
	list_insert_after(slot, &moved);
	list_remove(slot);
	while ((node = list_pop_head(&moved)) != NULL)
		place(w, container_of(node, struct alarm, node));
}

/* Coarse levels first: what they hold for exactly this moment was set before, at greater
 * distance. */
static void look(struct wheel *w)
{
	for (unsigned level = LEVELS; level-- > 0;) {
		unsigned shift = level * 8;

		if ((w->now >> shift << shift) == w->now)
			empty_slot(w, level, (unsigned)(w->now >> shift) & (SLOTS - 1));
	}
}

static void advance(struct wheel *w, uint64_t now_ms)
{
	while (w->next <= now_ms) {
		w->now = w->next;
		look(w);
		w->next = find_next(w);
	}
	if (now_ms > w->now)
		w->now = now_ms;
}

/* All of `from` to the head of `to`. */
static void splice_head(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->prev->next = to->next;
	to->next->prev = from->prev;
	from->next->prev = to;
	to->next = from->next;
	list_init(from);
}

unsigned wheel_turn(struct wheel *w, uint64_t now_ms, unsigned budget)
{
	struct list due, *node;
	unsigned rang = 0;

	advance(w, now_ms);
	if (list_empty(&w->ripe))
		return 0;
	list_init(&due);
	splice_head(&due, &w->ripe);
	while (rang < budget && (node = list_pop_head(&due)) != NULL) {
		struct alarm *a = container_of(node, struct alarm, node);

		if (a->due_ms > w->now) { /* moved while it was ripe */
			place(w, a);
			continue;
		}
		rang++;
		a->ring(a);
	}
	splice_head(&w->ripe, &due);
	return rang;
}

uint32_t wheel_wait_ms(struct wheel *w, uint64_t now_ms)
{
	uint64_t wait;

	if (!list_empty(&w->ripe))
		return 0;
	if (w->next == UINT64_MAX)
		return UINT32_MAX;
	if (w->next <= now_ms)
		return 0;
	wait = w->next - now_ms;
	return wait < UINT32_MAX ? (uint32_t)wait : UINT32_MAX - 1;
}

bool wheel_empty(const struct wheel *w)
{
	if (!list_empty(&w->ripe))
		return false;
	for (unsigned level = 0; level < LEVELS; level++)
		for (unsigned i = 0; i < SLOTS; i++)
			if (!list_empty(&w->slot[level][i]))
				return false;
	return true;
}
