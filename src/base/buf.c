/* buf.c -- segs out of a slab, and the queue of spans.
 *
 *            head                 head + n_spans
 *   v  [    ][span][span][span][    ]      a ring of cap spans, cap a power of two
 *             |p..p+n|      on a seg (one reference each), on constant bytes, on a shared block
 *
 * The ring is the four inline spans until more are needed, and again as soon as the queue is empty:
 * an idle connection holds neither bytes nor a ring.  Neighbours on the same block that touch are
 * one span, so that passing a body on in small steps costs no spans. */
#include "base/buf.h"

#include "base/out.h"

#include <stdlib.h>
#include <unistd.h>

_Static_assert(sizeof(struct seg) == 32, "data begins 32 bytes into the block");
_Static_assert((BUFQ_INLINE & (BUFQ_INLINE - 1)) == 0, "a power of two");

/* --- seg --- */

void seg_pool_init(struct seg_pool *p, const char *name, uint32_t block, struct budget *budget)
{
	must(block > sizeof(struct seg) && block % 16 == 0);
	slab_init(&p->slab, name, block, budget);
	p->cap = block - (uint32_t)sizeof(struct seg);
}

void seg_pool_close(struct seg_pool *p)
{
	slab_close(&p->slab);
}

struct seg *seg_get(struct seg_pool *p)
{
	struct seg *s = slab_get(&p->slab);

	if (__builtin_expect(!s, 0))
		return NULL;
	s->magic = SEG_MAGIC;
	s->refs = 1;
	s->cap = p->cap;
	s->used = 0;
	s->home = p;
	return s;
}

void seg_free(struct seg *s)
{
	struct seg_pool *home = s->home;

	must(s->magic == SEG_MAGIC && s->refs == 0);
	s->magic = 0;
	slab_put(&home->slab, s);
}

/* --- spans --- */

static inline struct span *span_at(const struct bufq *q, uint32_t i)
{
	return &q->v[(q->head + i) & (q->cap - 1)];
}

static inline void span_release(struct span *s)
{
	if (__builtin_expect(s->kind == SPAN_SEG, 1))
		seg_drop(&s->own.seg);
	else if (s->kind == SPAN_SHARED)
		s->own.shared->release(s->own.shared);
}

static inline void span_hold(struct span *s)
{
	if (__builtin_expect(s->kind == SPAN_SEG, 1))
		seg_ref(s->own.seg);
	else if (s->kind == SPAN_SHARED)
		s->own.shared->hold(s->own.shared);
}

/* --- the ring --- */

void bufq_init(struct bufq *q, uint32_t high)
{
	q->v = q->inl;
	q->head = q->n_spans = 0;
	q->cap = BUFQ_INLINE;
	q->low = high / 2;
	q->high = high;
	q->bytes = 0;
}

static inline void ring_home(struct bufq *q)
{
	q->head = 0;
	if (__builtin_expect(q->v != q->inl, 0)) {
		free(q->v);
		q->v = q->inl;
		q->cap = BUFQ_INLINE;
	}
}

static COLD bool ring_grow(struct bufq *q)
{
	struct span *v;

	must(q->cap >= BUFQ_INLINE);
	v = malloc((size_t)q->cap * 2 * sizeof(*v));
	if (!v)
		return false;
	for (uint32_t i = 0; i < q->n_spans; i++)
		v[i] = *span_at(q, i);
	if (q->v != q->inl)
		free(q->v);
	q->v = v;
	q->head = 0;
	q->cap *= 2;
	return true;
}

/* Adds a span at the tail and takes what it owns. */
static inline bool ring_push(struct bufq *q, struct span s)
{
	if (__builtin_expect(q->n_spans == q->cap, 0) && !ring_grow(q))
		return false;
	*span_at(q, q->n_spans++) = s;
	q->bytes += s.n;
	return true;
}

static inline bool span_touches(const struct span *a, const struct span *b)
{
	return a->own.seg == b->own.seg && a->p + a->n == b->p && a->kind == b->kind &&
	       a->n <= UINT32_MAX - b->n;
}

/* Bytes that may be written behind the last span: its seg is ours alone, and nothing was written
 * there yet. */
static inline uint32_t tail_room(const struct bufq *q)
{
	const struct span *last;
	const struct seg *s;

	if (!q->n_spans)
		return 0;
	last = span_at(q, q->n_spans - 1);
	s = last->own.seg;
	if (last->kind != SPAN_SEG || s->refs != 1 || last->p + last->n != s->data + s->used)
		return 0;
	return s->cap - s->used;
}

/* Up to here copying is cheaper than one more span to carry, and to send. */
#define TINY 256u

/* A seg that is at most half full is not worth keeping while the one before it has room: what a
 * queue holds in memory stays within about twice its bytes, however small the pieces that came. */
static inline bool worth_copying(const struct bufq *q, const struct span *s)
{
	if (s->kind == SPAN_SEG)
		return s->n <= s->own.seg->cap / 2 && s->n <= tail_room(q);
	return s->kind == SPAN_CONST && s->n <= TINY && s->n <= tail_room(q);
}

/* Two tiny pieces in a row, cut out of a seg that others hold, too (small chunks of one receive):
 * the second begins a seg of its own, in which those that follow find room.  Else each would cost a
 * span. */
static inline bool worth_a_seg(const struct span *last, const struct span *s)
{
	return s->kind == SPAN_SEG && s->n <= TINY && last->kind == SPAN_SEG && last->n <= TINY &&
	       s->own.seg->refs > 1;
}

static void copy_behind(struct bufq *q, struct span *s)
{
	struct span *last = span_at(q, q->n_spans - 1);
	struct seg *seg = last->own.seg;

	memcpy(seg->data + seg->used, s->p, s->n);
	seg->used += s->n;
	last->n += s->n;
	q->bytes += s->n;
	span_release(s);
}

/* Without memory for a seg it goes in as it is. */
static NOINLINE bool push_own(struct bufq *q, struct span s)
{
	struct seg *own = seg_get(s.own.seg->home);
	struct span copy = { .n = s.n, .kind = SPAN_SEG, .own.seg = own };

	if (!own)
		return ring_push(q, s);
	memcpy(own->data, s.p, s.n);
	own->used = s.n;
	copy.p = own->data;
	if (!ring_push(q, copy)) {
		seg_drop(&own);
		return false;
	}
	span_release(&s);
	return true;
}

/* As ring_push, but lengthens the last span where s goes on right behind it. */
static inline bool ring_append(struct bufq *q, struct span s)
{
	if (q->n_spans) {
		struct span *last = span_at(q, q->n_spans - 1);

		if (span_touches(last, &s)) {
			last->n += s.n;
			q->bytes += s.n;
			span_release(&s);
			return true;
		}
		if (worth_copying(q, &s)) {
			copy_behind(q, &s);
			return true;
		}
		if (worth_a_seg(last, &s))
			return push_own(q, s);
	}
	return ring_push(q, s);
}

static inline void ring_pop(struct bufq *q)
{
	q->head = (q->head + 1) & (q->cap - 1);
	if (--q->n_spans == 0)
		ring_home(q);
}

void bufq_free(struct bufq *q)
{
	for (uint32_t i = 0; i < q->n_spans; i++)
		span_release(span_at(q, i));
	q->n_spans = 0;
	q->bytes = 0;
	ring_home(q);
}

/* --- in --- */

bool bufq_put_seg(struct bufq *q, struct seg **seg, uint32_t off, uint32_t n)
{
	struct seg *s = *seg;

	hot_must(s->magic == SEG_MAGIC && off <= s->cap && n <= s->cap - off);
	if (__builtin_expect(n == 0, 0)) {
		seg_drop(seg);
		return true;
	}
	if (!ring_append(
		    q, (struct span){ .p = s->data + off, .n = n, .kind = SPAN_SEG, .own.seg = s }))
		return false;
	*seg = NULL;
	return true;
}

bool bufq_put_seg_ref(struct bufq *q, struct seg *seg, uint32_t off, uint32_t n)
{
	struct seg *s = seg_ref(seg);

	if (bufq_put_seg(q, &s, off, n))
		return true;
	seg_drop(&s);
	return false;
}

bool bufq_put_const(struct bufq *q, const void *p, uint32_t n)
{
	return n == 0 || ring_append(q, (struct span){ .p = p, .n = n, .kind = SPAN_CONST });
}

bool bufq_put_shared(struct bufq *q, struct shared_block *b, const void *p, uint32_t n)
{
	if (n == 0) {
		b->release(b);
		return true;
	}
	return ring_append(q,
			   (struct span){ .p = p, .n = n, .kind = SPAN_SHARED, .own.shared = b });
}

static bool copy_new(struct bufq *q, struct seg_pool *pool, const uint8_t *p, uint32_t n)
{
	while (n) {
		struct seg *s = seg_get(pool);
		uint32_t k;

		if (!s)
			return false;
		k = n < s->cap ? n : s->cap;
		memcpy(s->data, p, k);
		s->used = k;
		if (!ring_push(q, (struct span){ .p = s->data,
						 .n = k,
						 .kind = SPAN_SEG,
						 .own.seg = s })) {
			seg_drop(&s);
			return false;
		}
		p += k;
		n -= k;
	}
	return true;
}

/* Takes spans off the tail until n are left. */
static void ring_cut(struct bufq *q, uint32_t n)
{
	while (q->n_spans > n) {
		struct span *last = span_at(q, --q->n_spans);

		q->bytes -= last->n;
		span_release(last);
	}
	if (!n)
		ring_home(q);
}

/* New segs come first, because they may fail; then what fits behind the old tail, which cannot. */
bool bufq_put_copy(struct bufq *q, struct seg_pool *pool, const void *p, uint32_t n)
{
	uint32_t room = tail_room(q), k = n < room ? n : room, spans = q->n_spans;
	struct span *tail;

	if (n > k && !copy_new(q, pool, (const uint8_t *)p + k, n - k)) {
		ring_cut(q, spans);
		return false;
	}
	if (k) {
		tail = span_at(q, spans - 1);
		memcpy(tail->own.seg->data + tail->own.seg->used, p, k);
		tail->own.seg->used += k;
		tail->n += k;
		q->bytes += k;
	}
	return true;
}

/* --- out --- */

/* The first n bytes of a span that stays in `from` for the rest. */
static NOINLINE bool move_part(struct bufq *to, struct span *s, uint32_t n)
{
	struct span part = { .p = s->p, .n = n, .kind = s->kind, .own = s->own };

	span_hold(&part);
	if (!ring_append(to, part)) {
		span_release(&part);
		return false;
	}
	s->p += n;
	s->n -= n;
	return true;
}

uint64_t bufq_move(struct bufq *to, struct bufq *from, uint64_t max)
{
	uint64_t moved = 0;

	while (from->n_spans && moved < max) {
		struct span *s = span_at(from, 0);

		if (s->n > max - moved) {
			uint32_t n = (uint32_t)(max - moved);

			if (move_part(to, s, n)) {
				from->bytes -= n;
				moved = max;
			}
			break;
		}
		if (!ring_append(to, *s))
			break;
		moved += s->n;
		from->bytes -= s->n;
		ring_pop(from);
	}
	return moved;
}

uint64_t bufq_share(struct bufq *to, const struct bufq *from, uint64_t max)
{
	uint64_t shared = 0;

	for (uint32_t i = 0; i < from->n_spans && shared < max; i++) {
		struct span s = *span_at(from, i);

		if (s.n > max - shared)
			s.n = (uint32_t)(max - shared);
		span_hold(&s);
		if (!ring_append(to, s)) {
			span_release(&s);
			break;
		}
		shared += s.n;
	}
	return shared;
}

unsigned bufq_iov(const struct bufq *q, struct iovec *iov, unsigned max)
{
	unsigned n = q->n_spans < max ? q->n_spans : max;

	for (unsigned i = 0; i < n; i++) {
		const struct span *s = span_at(q, i);

		iov[i].iov_base = (void *)(uintptr_t)s->p;
		iov[i].iov_len = s->n;
	}
	return n;
}

void bufq_drop(struct bufq *q, uint64_t n)
{
	must(n <= q->bytes);
	q->bytes -= n;
	while (n) {
		struct span *s = span_at(q, 0);

		if (s->n > n) {
			s->p += n;
			s->n -= (uint32_t)n;
			return;
		}
		n -= s->n;
		span_release(s);
		ring_pop(q);
	}
}

struct str bufq_front(const struct bufq *q)
{
	const struct span *s = span_at(q, 0);

	return q->n_spans ? (struct str){ .p = (const char *)s->p, .n = s->n } : STR_NONE;
}

uint32_t bufq_peek(const struct bufq *q, void *to, uint32_t n)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < q->n_spans && done < n; i++) {
		const struct span *s = span_at(q, i);
		uint32_t k = s->n < n - done ? s->n : n - done;

		memcpy((uint8_t *)to + done, s->p, k);
		done += k;
	}
	return done;
}

/* --- truth --- */

static void span_assert(const struct span *s)
{
	must(s->n > 0 && s->p);
	if (s->kind == SPAN_SEG) {
		const struct seg *seg = s->own.seg;

		must(seg->magic == SEG_MAGIC && seg->refs > 0 && seg->used <= seg->cap);
		must(s->p >= seg->data && s->p + s->n <= seg->data + seg->cap);
	} else {
		must(s->kind == SPAN_CONST || (s->kind == SPAN_SHARED && s->own.shared));
	}
}

void bufq_assert(const struct bufq *q)
{
	uint64_t bytes = 0;

	must(q->cap >= BUFQ_INLINE && (q->cap & (q->cap - 1)) == 0);
	must((q->v == q->inl) == (q->cap == BUFQ_INLINE));
	must(q->head < q->cap && q->n_spans <= q->cap && q->low <= q->high);
	for (uint32_t i = 0; i < q->n_spans; i++) {
		span_assert(span_at(q, i));
		bytes += span_at(q, i)->n;
	}
	must(bytes == q->bytes);
}

#define DUMP_SPANS 16

/* Called by a panic too: no malloc, and the queue may be broken. */
void bufq_dump(const struct bufq *q, int fd)
{
	static const char *const kinds[] = { "?", "seg", "const", "shared" };
	char buf[2048];
	struct out o;

	out_init(&o, buf, sizeof(buf));
	out_fmt(&o, "bufq %p: %llu bytes in %u spans, low %u, high %u, ring of %u\n",
		(const void *)q, (unsigned long long)q->bytes, q->n_spans, q->low, q->high, q->cap);
	for (uint32_t i = 0; i < q->n_spans && i < DUMP_SPANS; i++) {
		const struct span *s = span_at(q, i);

		out_fmt(&o, "  %s %p +%u", kinds[s->kind <= SPAN_SHARED ? s->kind : 0],
			(const void *)s->p, s->n);
		if (s->kind == SPAN_SEG)
			out_fmt(&o, " refs %u used %u/%u", s->own.seg->refs, s->own.seg->used,
				s->own.seg->cap);
		out_char(&o, '\n');
	}
	if (q->n_spans > DUMP_SPANS)
		out_lit(&o, "  ...\n");
	if (write(fd, buf, out_len(&o)) < 0)
		return; /* nobody reads it */
}
