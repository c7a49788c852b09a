/* mem.h -- where memory comes from: budget, slab, arena.
 *
 *   budget   one per process (limits.memory): a counted cap over all shards, taken in chunks.  Each
 *            shard has one of its own below it: it knows the shard's pools, by name, and who of the
 *            shard can give memory back
 *   slab     objects of one size, one shard, in chunks of 64 KiB that go back to the system when
 *            they are not needed for a while; last in, first out (the next object is cache-warm)
 *   arena    everything that one exchange needs, freed at once; its first block comes from a slab
 *
 * All of them answer NULL when the budget or the system refuses: the caller refuses the thing at
 * hand (why `memory`), never the process. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/panic.h"
#include "base/str.h"

#include <stdatomic.h>

struct slab;
struct budget_pool {
	const char *name;
	_Atomic uint64_t held; /* bytes; written by one thread, read by the scrape */
};

/* Who can give memory back, asked by the shard's own thread; takes nothing. */
struct reclaim {
	struct reclaim *next;
	/* The budget refuses, inside slab_get() and its like: what it can do without, `want` bytes
	 * or more if it can.  NULL: nothing. */
	void (*give)(struct reclaim *, uint64_t want);
	/* Every two seconds or so: what was not needed lately.  NULL: nothing. */
	void (*calm)(struct reclaim *);
};

#define BUDGET_POOLS 32
struct budget {
	_Atomic uint64_t used; /* bytes; of a shard's budget: 0, they are its parent's */
	uint64_t max;
	struct budget *parent; /* NULL: this is the process's */
	struct reclaim *reclaims;
	struct slab *slabs; /* that hold chunks; of the one thread that uses them */
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
/* Its slabs give wholly free chunks back to the system until `want` bytes are given. */
void budget_trim(struct budget *b, uint64_t want);
/* How much is taken of the cap's last eighth, bytes.  There no free chunk may lie: the shard that
 * is refused can ask only itself, and the memory may be another's. */
uint64_t budget_excess(const struct budget *b);
/* Its slabs and reclaims give back what was not needed since the last time. */
void budget_calm(struct budget *b);
/* slab.c's: a slab has its first chunk, has none any more. */
void budget_slab(struct budget *b, struct slab *s);
void budget_slab_off(struct budget *b, struct slab *s);

/* Zeroed pages of the system's, in no budget; n in bytes, a multiple of 4,096 for pages_give(). */
void *pages_get(size_t n) MUST_CHECK; /* NULL: the system refuses */
void pages_give(void *p, size_t n);   /* n 0: nothing */

struct slab_chunk;
struct slab {
	const char *name;        /* borrowed, for dumps and culvert_memory_bytes{pool} */
	uint32_t size;           /* bytes of an object, rounded up to 16 */
	uint32_t per_chunk;      /* objects */
	struct slab_chunk *some; /* objects come from the first of these */
	uint64_t n_live;         /* objects */
	uint32_t n_chunks;
	uint32_t n_spare; /* chunks that are wholly free now */
	uint32_t n_idle;  /* and since the last slab_calm(), at least */
	unsigned pool;    /* of the budget */
	struct budget *budget;
	struct slab *next; /* of the budget's */
};

void slab_init(struct slab *s, const char *name, uint32_t size, struct budget *budget);
void *slab_get(struct slab *s) MUST_CHECK; /* 16-byte aligned, not zeroed */
void slab_put(struct slab *s, void *obj);  /* NULL is accepted */
uint64_t slab_bytes(const struct slab *s); /* held */
/* Chunks that are wholly free go back to the system, until `want` bytes are given; how many
 * were. */
uint64_t slab_trim(struct slab *s, uint64_t want);
/* So do those that were free since the last slab_calm(), 64 at most. */
void slab_calm(struct slab *s);
void slab_close(struct slab *s); /* asserts that nothing is live; as after slab_init() */

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
