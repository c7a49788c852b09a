/* pipe.c -- one direction of an exchange: head, body, trailers, and the set of reasons not to feed
 * it.
 *
 *        feeder                                       reader
 *     pipe_head  ──►  EMPTY → HEAD        on_data ──►
 *     pipe_put   ──►  q: [span][span]…    on_data ──►  pipe_take
 *     on_room    ◄──  stops == 0          ◄──────────  (q at its low mark)
 *     pipe_end   ──►  ended; ENDED once q is taken
 *
 * Nothing here calls an end: it marks the end as due and wakes the driver. */
#include "exchange/priv.h"

void pipe_open(struct pipe *p, struct exchange *x, uint32_t high)
{
	mem_zero(p, offsetof(struct pipe, q));
	p->x = x;
	p->interims_tail = &p->interims;
	bufq_init(&p->q, high);
}

void pipe_close(struct pipe *p)
{
	bufq_free(&p->q);
	if (p->kept)
		bufq_free(p->kept);
	p->kept = NULL;
}

static void tell_reader(struct pipe *p)
{
	exchange_due(p->reader, DUE_DATA);
}

static void tell_feeder_if_free(struct pipe *p)
{
	if (!p->stops)
		exchange_due(p->feeder, DUE_ROOM);
}

void pipe_stop(struct pipe *p, enum stop reason)
{
	p->stops |= reason;
}

void pipe_go(struct pipe *p, enum stop reason)
{
	if (!(p->stops & reason))
		return;
	p->stops &= (uint8_t)~reason;
	tell_feeder_if_free(p);
}

void pipe_head(struct pipe *p, struct head *head)
{
	if (p->state == PIPE_CUT)
		return;
	must(p->state == PIPE_EMPTY);
	p->head = head;
	p->state = PIPE_HEAD;
	tell_reader(p);
	exchange_wake(p->x);
}

bool pipe_inform(struct pipe *p, const struct head *head)
{
	struct interim *i;

	if (p->state != PIPE_EMPTY)
		return p->state == PIPE_CUT;
	if (++p->n_interims > PIPE_INTERIM_MAX)
		return false;
	i = arena_alloc(&p->x->arena, sizeof(*i));
	if (!i)
		return false;
	i->next = NULL;
	i->head = *head;
	*p->interims_tail = i;
	p->interims_tail = &i->next;
	tell_reader(p);
	return true;
}

struct interim *pipe_take_interim(struct pipe *p)
{
	struct interim *i = p->interims;

	if (!i)
		return NULL;
	p->interims = i->next;
	if (!p->interims)
		p->interims_tail = &p->interims;
	return i;
}

/* The reader takes nothing any more: what comes is thrown away, but not for ever. */
static bool discard(struct pipe *p, struct bufq *from, uint64_t n)
{
	p->discarded += n;
	p->total += n;
	bufq_drop(from, n);
	if (p->discarded > PIPE_DISCARD_MAX)
		p->stops |= STOP_FULL;
	return !p->stops;
}

bool pipe_put(struct pipe *p, struct bufq *from, uint64_t n)
{
	if (p->state == PIPE_CUT || p->reader_gone)
		return discard(p, from, n);
	must(p->state == PIPE_HEAD || p->state == PIPE_BODY);
	must(!p->ended);
	if (n == 0)
		return !p->stops;
	p->state = PIPE_BODY;
	p->total += n;
	if (bufq_move(&p->q, from, n) != n) {
		exchange_cut(p->x, why(WHY_MEMORY));
		return false;
	}
	if (bufq_full(&p->q))
		p->stops |= STOP_FULL;
	tell_reader(p);
	return !p->stops;
}

void pipe_end(struct pipe *p, struct head *trailers)
{
	if (p->state == PIPE_CUT || p->ended)
		return;
	must(p->state == PIPE_HEAD || p->state == PIPE_BODY);
	p->trailers = trailers;
	p->ended = true;
	if (bufq_empty(&p->q))
		p->state = PIPE_ENDED;
	tell_reader(p);
}

/* What is taken stays readable for another try, as long as it is not too much. */
static void keep(struct pipe *p, uint64_t n)
{
	if (p->kept->bytes + n <= p->kept_max && bufq_share(p->kept, &p->q, n) == n)
		return;
	p->keeping = false;
	bufq_free(p->kept);
}

static inline void taken(struct pipe *p, uint64_t n)
{
	p->taken += n;
	if (p->ended && bufq_empty(&p->q) && p->state != PIPE_CUT)
		p->state = PIPE_ENDED;
	if ((p->stops & STOP_FULL) && bufq_has_room(&p->q))
		pipe_go(p, STOP_FULL);
}

uint64_t pipe_take(struct pipe *p, struct bufq *to, uint64_t max)
{
	uint64_t n = p->q.bytes < max ? p->q.bytes : max;

	if (n && p->keeping)
		keep(p, n);
	n = bufq_move(to, &p->q, n);
	taken(p, n);
	return n;
}

bool pipe_take_copy(struct pipe *p, struct bufq *to, struct seg_pool *pool, uint32_t n)
{
	struct str front = bufq_front(&p->q);

	if (front.n < n || !bufq_put_copy(to, pool, front.p, n))
		return false;
	if (p->keeping)
		keep(p, n);
	bufq_drop(&p->q, n);
	taken(p, n);
	return true;
}

void pipe_reader_gone(struct pipe *p)
{
	if (p->reader_gone)
		return;
	p->reader_gone = true;
	p->reader = NULL;
	p->keeping = false;
	if (p->kept)
		bufq_free(p->kept);
	bufq_free(&p->q);
	if (p->ended && p->state != PIPE_CUT)
		p->state = PIPE_ENDED;
	pipe_go(p, STOP_FULL);
	pipe_go(p, STOP_CONNECT);
}

void pipe_keep(struct pipe *p, uint64_t max)
{
	if (p->taken || p->kept)
		return;
	p->kept = arena_alloc(&p->x->arena, sizeof(*p->kept));
	if (!p->kept)
		return;
	bufq_init(p->kept, 0);
	p->kept_max = max;
	p->keeping = true;
}

bool pipe_can_rewind(const struct pipe *p)
{
	return p->state != PIPE_CUT && !p->reader_gone && (p->taken == 0 || p->keeping);
}

bool pipe_rewind(struct pipe *p)
{
	struct bufq rest;
	bool ok = true;

	if (!pipe_can_rewind(p))
		return false;
	if (p->taken == 0)
		return true;
	bufq_init(&rest, 0);
	ok &= bufq_move(&rest, &p->q, p->q.bytes) == rest.bytes && bufq_empty(&p->q);
	ok &= bufq_move(&p->q, p->kept, p->kept->bytes) == p->taken;
	ok &= bufq_move(&p->q, &rest, rest.bytes) == p->q.bytes - p->taken && bufq_empty(&rest);
	bufq_free(&rest);
	p->taken = 0;
	p->state = bufq_empty(&p->q) ? p->state : PIPE_BODY;
	return ok;
}

void pipe_cut(struct pipe *p)
{
	p->state = PIPE_CUT;
}

void pipe_recall(struct pipe *p)
{
	if (p->state == PIPE_CUT)
		return;
	p->state = PIPE_EMPTY;
	p->head = p->trailers = NULL;
	p->ended = false;
	p->stops = 0;
	p->total = 0;
	bufq_free(&p->q);
}

void pipe_assert(const struct pipe *p)
{
	must(p->state <= PIPE_CUT);
	must(p->x && p->x->magic == EXCHANGE_MAGIC);
	must((p->state == PIPE_EMPTY) <= (p->q.bytes == 0));
	must(p->state != PIPE_ENDED || (p->ended && bufq_empty(&p->q)));
	must(!p->reader_gone || bufq_empty(&p->q));
	bufq_assert(&p->q);
}
