/* buf.h -- bytes in flight: seg, span, bufq.
 *
 *   seg    counted block of one shard's pool (the count is not atomic: a seg never leaves its
 *          shard)
 *   span   a window on a seg, on constant bytes, or on a shared block with a release hook
 *   bufq   a queue of spans with a byte count, a low and a high mark
 *
 * Body bytes are never copied between two plain connections: what was received into a seg is sent
 * from it.
 *
 * Ownership: *take* = the callee now owns the reference; *borrow* = only during the call
 * (or until the stated callback); *count* = a new reference is made. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/mem.h"

#include <sys/uio.h>

#define SEG_MAGIC 0x5e65e65eu
enum seg_class { SEG_SMALL = 0, SEG_LARGE = 1, SEG_CLASSES = 2 };
#define SEG_SMALL_BLOCK 4096u            /* whole block, header included */
#define SEG_LARGE_BLOCK (65536u + 4096u) /* a head of 64 KiB and what is added to it fit */

struct seg_pool;
struct seg {
	uint32_t magic, refs;
	uint32_t cap, used; /* bytes of data; used: how far it has been written */
	struct seg_pool *home;
	uint64_t pad;
	uint8_t data[]; /* 32 bytes into the block */
};

struct seg_pool {
	struct slab slab;
	uint32_t cap; /* data bytes per seg */
};

void seg_pool_init(struct seg_pool *p, const char *name, uint32_t block, struct budget *budget);
void seg_pool_close(struct seg_pool *p);
struct seg *seg_get(struct seg_pool *p) MUST_CHECK; /* refs 1, used 0; NULL: out of memory */
void seg_free(struct seg *s);

static inline struct seg *seg_ref(struct seg *s)
{
	hot_must(s->magic == SEG_MAGIC && s->refs > 0);
	s->refs++;
	return s;
}

/* Gives one reference back and nulls the pointer; NULL inside is accepted. */
static inline void seg_drop(struct seg **sp)
{
	struct seg *s = *sp;

	*sp = NULL;
	if (!s)
		return;
	hot_must(s->magic == SEG_MAGIC && s->refs > 0);
	if (--s->refs == 0)
		seg_free(s);
}

/* A block that belongs to no shard (what the cache lends): held and released from any thread.  A
 * span that is split (bufq_move of a part) holds it once more. */
struct shared_block {
	void (*hold)(struct shared_block *);
	void (*release)(struct shared_block *);
};

enum span_kind { SPAN_SEG = 1, SPAN_CONST, SPAN_SHARED };
struct span {
	const uint8_t *p;
	uint32_t n;
	uint32_t kind;
	union {
		struct seg *seg; /* one reference */
		struct shared_block *shared;
	} own;
};

#define BUFQ_INLINE 4
struct bufq {
	/* ring of cap spans: inl (so a bufq is never copied), or malloc'd */
	struct span *v;
	uint32_t head, n_spans, cap;
	uint32_t low, high; /* marks in bytes; high 0: no mark */
	uint64_t bytes;
	struct span inl[BUFQ_INLINE];
};

void bufq_init(struct bufq *q, uint32_t high); /* low = high / 2 */
void bufq_free(struct bufq *q);                /* drops all; as after bufq_init */

static inline bool bufq_empty(const struct bufq *q)
{
	return q->bytes == 0;
}
static inline bool bufq_full(const struct bufq *q)
{
	return q->high && q->bytes >= q->high;
}
static inline bool bufq_has_room(const struct bufq *q)
{
	return !q->high || q->bytes <= q->low;
}

/* All puts: false = out of memory, and then nothing was taken.  Empty puts (n == 0) take and drop.
 * put_seg and put_shared take, put_seg_ref counts, put_const borrows until sent or dropped. */
bool bufq_put_seg(struct bufq *q, struct seg **seg, uint32_t off, uint32_t n) MUST_CHECK;
bool bufq_put_seg_ref(struct bufq *q, struct seg *seg, uint32_t off, uint32_t n) MUST_CHECK;
bool bufq_put_const(struct bufq *q, const void *p, uint32_t n) MUST_CHECK;
bool bufq_put_shared(struct bufq *q, struct shared_block *b, const void *p, uint32_t n) MUST_CHECK;
/* Copies: into the tail seg where this queue is its only owner and it has room, else into new segs
 * of the pool. */
bool bufq_put_copy(struct bufq *q, struct seg_pool *pool, const void *p, uint32_t n) MUST_CHECK;
/* Moves up to max bytes from the head of `from` to the tail of `to` without copying; returns bytes
 * moved (less than asked only at the end of `from` or out of memory). */
uint64_t bufq_move(struct bufq *to, struct bufq *from, uint64_t max);
/* Puts up to max bytes from the head of `from` also into `to`: the spans are counted, `from` keeps
 * its own (replay, tees).  Returns how many: less than asked only at the end or out of memory. */
uint64_t bufq_share(struct bufq *to, const struct bufq *from, uint64_t max);
/* Fills up to max iovecs from the head (borrowed until the next drop); returns how many. */
unsigned bufq_iov(const struct bufq *q, struct iovec *iov, unsigned max);
void bufq_drop(struct bufq *q, uint64_t n); /* n bytes from the head; must be there */
/* The first contiguous run; n = 0 when empty. */
struct str bufq_front(const struct bufq *q);
/* Copies up to n bytes from the head without taking them; returns how many. */
uint32_t bufq_peek(const struct bufq *q, void *to, uint32_t n);
void bufq_assert(const struct bufq *q);
void bufq_dump(const struct bufq *q, int fd);

#endif
