/* mem.h -- where memory comes from: budget, slab, arena.
 *
 *   budget   one per process (limits.memory): a counted cap over all shards, taken in chunks.  Each
 *            shard has one of its own below it: it knows the shard's pools, by name, and who of the
 *            shard can give memory back
 *   slab     objects of one size, one shard, last in first out (the next object is cache-warm)
 *   arena    everything that one exchange needs, freed at once; its first block comes from a slab
 *
 * All of them answer NULL when the budget or malloc refuses: the caller refuses the thing at hand
 * (why `memory`), never the process. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/panic.h"
#include "base/str.h"

#include <stdatomic.h>

struct budget_pool {
	const char *name;
	_Atomic uint64_t held; /* bytes; written by one thread, read by the scrape */
};

/* Asked when the budget refuses, by the shard's own thread, from inside slab_get() and its like:
 * gives back what it can do without, `want` bytes or more if it can.  Takes nothing. */
struct reclaim {
	struct reclaim *next;
	void (*give)(struct reclaim *, uint64_t want);
};

#define BUDGET_POOLS 32
struct budget {
	_Atomic uint64_t used; /* bytes; of a shard's budget: 0, they are its parent's */
	uint64_t max;
	struct budget *parent; /* NULL: this is the process's */
	struct reclaim *reclaims;
	unsigned n_pools;
	struct budget_pool pool[BUDGET_POOLS];
};

/* A NULL budget has no cap. */
bool budget_take(struct budget *b, uint64_t n) MUST_CHECK; /* false: over the cap, nothing taken */
void budget_give(struct budget *b, uint64_t n);
/* The pool of this name (borrowed), made when new; names are the program's own. */
unsigned budget_pool(struct budget *b, const char *name);
/* Booked in a pool; when the budget refuses, those who can give back are asked first. */
bool pool_take(struct budget *b, unsigned pool, uint64_t n) MUST_CHECK;
void pool_give(struct budget *b, unsigned pool, uint64_t n);
void budget_reclaim(struct budget *b, struct reclaim *r);
void budget_reclaim_off(struct budget *b, struct reclaim *r);

struct slab_free;
struct slab_chunk;
struct slab {
	const char *name; /* borrowed, for dumps and culvert_memory_bytes{pool} */
	uint32_t size;    /* bytes of an object, rounded up to 16 */
	uint32_t per_chunk;
	unsigned pool; /* of the budget */
	struct slab_free *free;
	struct slab_chunk *chunks; /* all freed by slab_close */
	char *fresh, *fresh_end;   /* what the newest chunk still holds uncarved */
	struct budget *budget;
	uint64_t n_live, n_total; /* objects; n_total * size bytes are held */
};

void slab_init(struct slab *s, const char *name, uint32_t size, struct budget *budget);
void *slab_get(struct slab *s) MUST_CHECK; /* not zeroed */
void slab_put(struct slab *s, void *obj);  /* NULL is accepted */
/* Gives chunks that are wholly free back to the system: when the budget refuses. */
void slab_trim(struct slab *s);
void slab_close(struct slab *s); /* asserts that nothing is live */

/* First block: ARENA_FIRST bytes from `home`; later blocks are malloc'd, doubling up to 64 KiB,
 * counted in the slab's budget.  A usual request and its answer need about 1,300 bytes: with 1 KiB
 * each of them had met malloc (5 % of all instructions). */
#define ARENA_FIRST 2048
struct arena_block;
struct arena {
	char *p, *end;
	struct arena_block *blocks; /* beyond the first */
	struct slab *home;          /* objects of ARENA_FIRST bytes */
	void *first;
	uint64_t taken; /* bytes of later blocks */
};

void arena_init(struct arena *a, struct slab *home); /* takes no memory yet */
void *arena_slow(struct arena *a, size_t n);
void arena_free(struct arena *a); /* all of it; may be used again */

/* 8-byte aligned, not zeroed; NULL: out of memory (also for n == 0, else a valid address).  n is at
 * most 4 GiB. */
static inline void *arena_alloc(struct arena *a, size_t n)
{
	char *p = a->p;

	n = (n + 7 + (n == 0)) & ~(size_t)7;
	if (__builtin_expect((size_t)(a->end - p) < n, 0))
		return arena_slow(a, n);
	a->p = p + n;
	return p;
}

void *arena_zalloc(struct arena *a, size_t n);
struct str arena_str(struct arena *a, struct str s); /* copy; .p == NULL: out of memory */
char *arena_cstr(struct arena *a, struct str s);     /* NUL-terminated copy */

/* --- zeroing --- */
/* By the C library: `rep stos`, which compilers write for some hundred bytes, takes longer to start
 * than this takes in all. */
static inline void mem_zero(void *p, size_t n)
{
	__asm__("" : "+r"(n));
	memset(p, 0, n);
}

#endif
