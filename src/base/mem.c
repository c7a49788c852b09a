/* mem.c -- budget and arena (slabs: slab.c).
 *
 *   arena   first (slab, 2 KiB) -> block 4 KiB -> 8 KiB ... 64 KiB
 *           what is larger than the next block gets one of its own */
#include "base/mem.h"

#include <stdlib.h>
#include <sys/mman.h>

/* --- budget --- */

bool budget_take(struct budget *b, uint64_t n)
{
	uint64_t used;

	if (!b)
		return true;
	b = b->parent ? b->parent : b;
	used = atomic_load_explicit(&b->used, memory_order_relaxed);
	do {
		if (used > b->max || n > b->max - used)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&b->used, &used, used + n, memory_order_relaxed, memory_order_relaxed));
	return true;
}

void budget_give(struct budget *b, uint64_t n)
{
	if (!b)
		return;
	b = b->parent ? b->parent : b;
	must(atomic_fetch_sub_explicit(&b->used, n, memory_order_relaxed) >= n);
}

unsigned budget_pool(struct budget *b, const char *name)
{
	if (!b)
		return 0;
	for (unsigned i = 0; i < b->n_pools; i++)
		if (!strcmp(b->pool[i].name, name))
			return i;
	must(b->n_pools < BUDGET_POOLS);
	b->pool[b->n_pools].name = name;
	return b->n_pools++;
}

static void book(struct budget *b, unsigned pool, uint64_t n)
{
	_Atomic uint64_t *held = &b->pool[pool].held;

	atomic_store_explicit(held, atomic_load_explicit(held, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* How much has to be given back before n can be taken; 0: then they could be taken now, or
 * never. */
static uint64_t shortage(const struct budget *b, uint64_t n)
{
	uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed);

	return n > b->max || used + n <= b->max ? 0 : used + n - b->max;
}

static COLD bool take_back(struct budget *b, uint64_t n)
{
	const struct budget *all = b->parent ? b->parent : b;

	for (struct reclaim *r = b->reclaims; r && shortage(all, n) > 0; r = r->next)
		if (r->give)
			r->give(r, shortage(all, n));
	return budget_take(b, n);
}

bool pool_take(struct budget *b, unsigned pool, uint64_t n)
{
	if (!b)
		return true;
	if (!budget_take(b, n) && !take_back(b, n))
		return false;
	book(b, pool, n);
	return true;
}

void pool_give(struct budget *b, unsigned pool, uint64_t n)
{
	if (!b)
		return;
	must(atomic_load_explicit(&b->pool[pool].held, memory_order_relaxed) >= n);
	book(b, pool, -n);
	budget_give(b, n);
}

void budget_reclaim(struct budget *b, struct reclaim *r)
{
	r->next = b->reclaims;
	b->reclaims = r;
}

void budget_reclaim_off(struct budget *b, struct reclaim *r)
{
	struct reclaim **at = &b->reclaims;

	while (*at && *at != r)
		at = &(*at)->next;
	must(*at == r);
	*at = r->next;
}

/* --- pages --- */
void *pages_get(size_t n)
{
	/* cppcheck-suppress invalidFunctionArg ; no descriptor is -1 (mmap(2)) */
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* cppcheck-suppress memleak ; it is returned */
	return p != MAP_FAILED ? p : NULL;
}

void pages_give(void *p, size_t n)
{
	must(n == 0 || munmap(p, n) == 0);
}

/* --- who has chunks --- */
void budget_slab(struct budget *b, struct slab *s)
{
	if (!b)
		return;
	s->next = b->slabs;
	b->slabs = s;
}

void budget_slab_off(struct budget *b, struct slab *s)
{
	struct slab **at = b ? &b->slabs : NULL;

	if (!b)
		return;
	while (*at && *at != s)
		at = &(*at)->next;
	must(*at == s);
	*at = s->next;
}

void budget_trim(struct budget *b, uint64_t want)
{
	struct slab *next;
	uint64_t given = 0;

	for (struct slab *s = b->slabs; s && given < want; s = next) {
		next = s->next; /* it leaves the list when nothing of it is left */
		given += slab_trim(s, want - given);
	}
}

uint64_t budget_excess(const struct budget *b)
{
	const struct budget *all = b->parent ? b->parent : b;
	uint64_t used = atomic_load_explicit(&all->used, memory_order_relaxed);
	uint64_t free_below = all->max - all->max / 8;

	return used > free_below ? used - free_below : 0;
}

void budget_calm(struct budget *b)
{
	struct slab *next;

	for (struct slab *s = b->slabs; s; s = next) {
		next = s->next;
		slab_calm(s);
	}
	for (struct reclaim *r = b->reclaims; r; r = r->next)
		if (r->calm)
			r->calm(r);
}

/* --- arena --- */

#define ARENA_BLOCK_MAX 65536u

struct arena_block {
	struct arena_block *next;
	size_t size; /* with this header */
	char data[];
};

void arena_init(struct arena *a, struct slab *home)
{
	must(home->size >= ARENA_FIRST);
	memset(a, 0, sizeof(*a));
	a->home = home;
}

static struct arena_block *arena_block_new(struct arena *a, size_t size)
{
	struct arena_block *b;

	if (!pool_take(a->home->budget, a->home->pool, size))
		return NULL;
	b = malloc(size);
	if (!b) {
		pool_give(a->home->budget, a->home->pool, size);
		return NULL;
	}
	b->size = size;
	b->next = a->blocks;
	a->blocks = b;
	a->taken += size;
	return b;
}

static bool arena_first(struct arena *a)
{
	a->first = slab_get(a->home);
	if (!a->first)
		return false;
	a->p = a->first;
	a->end = a->p + ARENA_FIRST;
	return true;
}

/* n is a multiple of 8.  All that ever was taken doubles with each block, so the next size needs no
 * counter. */
void *arena_slow(struct arena *a, size_t n)
{
	size_t size = ARENA_FIRST * 2;
	struct arena_block *b;

	if (!a->first) {
		if (!arena_first(a))
			return NULL;
		if (n <= ARENA_FIRST)
			return arena_alloc(a, n);
	}
	while (size < a->taken + ARENA_FIRST * 2 && size < ARENA_BLOCK_MAX)
		size *= 2;
	if (n > SIZE_MAX - sizeof(*b))
		return NULL;
	if (n > size - sizeof(*b)) { /* a block of its own; the one at hand keeps its room */
		b = arena_block_new(a, sizeof(*b) + n);
		return b ? b->data : NULL;
	}
	b = arena_block_new(a, size);
	if (!b)
		return NULL;
	a->p = b->data + n;
	a->end = (char *)b + size;
	return b->data;
}

void arena_free(struct arena *a)
{
	struct slab *home = a->home;

	while (a->blocks) {
		struct arena_block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
	if (a->taken)
		pool_give(home->budget, home->pool, a->taken);
	slab_put(home, a->first);
	arena_init(a, home);
}

void *arena_zalloc(struct arena *a, size_t n)
{
	void *p = arena_alloc(a, n);

	return p ? memset(p, 0, n) : NULL;
}

struct str arena_str(struct arena *a, struct str s)
{
	char *p = arena_alloc(a, s.n);

	if (p && s.n)
		memcpy(p, s.p, s.n);
	return p ? (struct str){ .p = p, .n = s.n } : STR_NONE;
}

char *arena_cstr(struct arena *a, struct str s)
{
	char *p = arena_alloc(a, (size_t)s.n + 1);

	if (!p)
		return NULL;
	if (s.n)
		memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	return p;
}
