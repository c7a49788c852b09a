/* mem.c -- budget, slab, arena.
 *
 *   slab    chunk  [obj][obj][obj][....not yet carved....]   about 64 KiB, or one larger object
 *           free   obj -> obj -> obj                            last in, first out
 *
 * A chunk is one malloc of nothing but objects, so that a 64 KiB object costs 64 KiB; what is known
 * about it lies apart.  Objects are carved off a chunk one by one: pages that were never needed are
 * never touched.
 *
 *   arena   first (slab, 1 KiB) -> block 2 KiB -> 4 KiB ... 64 KiB
 *           what is larger than the next block gets one of its own */
#include "base/mem.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define MEM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEM_ASAN 1
#endif
#endif

#ifdef MEM_ASAN
#include <sanitizer/asan_interface.h>
#define mem_hide(p, n) __asan_poison_memory_region((p), (n))
#define mem_show(p, n) __asan_unpoison_memory_region((p), (n))
#define mem_hidden(p)  __asan_address_is_poisoned(p)
#else
#define mem_hide(p, n) ((void)(p), (void)(n))
#define mem_show(p, n) ((void)(p), (void)(n))
#define mem_hidden(p)  false
#endif

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

/* --- slab --- */

#define SLAB_CHUNK 65536u

struct slab_free {
	struct slab_free *next;
};

struct slab_chunk {
	struct slab_chunk *next;
	char *mem;
	uint32_t n_free; /* only while slab_trim counts */
};

void slab_init(struct slab *s, const char *name, uint32_t size, struct budget *budget)
{
	must(size > 0 && size <= UINT32_MAX - 15);
	memset(s, 0, sizeof(*s));
	s->name = name;
	s->size = (size + 15) & ~15u;
	s->per_chunk = s->size < SLAB_CHUNK ? SLAB_CHUNK / s->size : 1;
	s->budget = budget;
	s->pool = budget_pool(budget, name);
}

static uint64_t chunk_bytes(const struct slab *s)
{
	return (uint64_t)s->per_chunk * s->size;
}

static bool slab_grow(struct slab *s)
{
	struct slab_chunk *c;

	if (!pool_take(s->budget, s->pool, chunk_bytes(s)))
		return false;
	c = malloc(sizeof(*c));
	if (!c)
		goto fail_budget;
	c->mem = malloc(chunk_bytes(s));
	if (!c->mem)
		goto fail_chunk;
	mem_hide(c->mem, chunk_bytes(s));
	c->next = s->chunks;
	s->chunks = c;
	s->fresh = c->mem;
	s->fresh_end = c->mem + chunk_bytes(s);
	s->n_total += s->per_chunk;
	return true;

fail_chunk:
	free(c);
fail_budget:
	pool_give(s->budget, s->pool, chunk_bytes(s));
	return false;
}

static COLD void *slab_carve(struct slab *s)
{
	void *obj;

	if (s->fresh == s->fresh_end && !slab_grow(s))
		return NULL;
	obj = s->fresh;
	s->fresh += s->size;
	s->n_live++;
	mem_show(obj, s->size);
	return obj;
}

void *slab_get(struct slab *s)
{
	struct slab_free *f = s->free;

	if (__builtin_expect(!f, 0))
		return slab_carve(s);
	mem_show(f, s->size);
	s->free = f->next;
	s->n_live++;
	return f;
}

void slab_put(struct slab *s, void *obj)
{
	struct slab_free *f = obj;

	if (!f)
		return;
	hot_must(s->n_live > 0);
	/* put twice (seen only with the address sanitizer) */
	must(!mem_hidden((char *)obj + s->size - 1));
	f->next = s->free;
	s->free = f;
	s->n_live--;
	mem_hide(f, s->size);
}

static int chunk_order(const void *a, const void *b)
{
	const char *x = (*(struct slab_chunk *const *)a)->mem,
		   *y = (*(struct slab_chunk *const *)b)->mem;

	return x < y ? -1 : x > y;
}

/* The chunk that holds p: the last one, in address order, that does not begin after it. */
static struct slab_chunk *chunk_of(struct slab_chunk **v, size_t n, const char *p)
{
	size_t lo = 0;

	while (n - lo > 1) {
		size_t mid = lo + (n - lo) / 2;

		if (v[mid]->mem <= p)
			lo = mid;
		else
			n = mid;
	}
	return v[lo];
}

static struct slab_free *free_next(const struct slab *s, struct slab_free *f)
{
	struct slab_free *next;

	mem_show(f, sizeof(*f));
	next = f->next;
	mem_hide(f, s->size);
	return next;
}

/* Counts what is free in each chunk; what was not carved yet is free, too. */
static void trim_count(struct slab *s, struct slab_chunk **v, size_t n)
{
	for (struct slab_free *f = s->free; f; f = free_next(s, f))
		chunk_of(v, n, (char *)f)->n_free++;
	if (s->fresh != s->fresh_end)
		chunk_of(v, n, s->fresh)->n_free +=
			(uint32_t)((size_t)(s->fresh_end - s->fresh) / s->size);
}

/* Keeps the order of the free objects that stay. */
static void trim_free_list(struct slab *s, struct slab_chunk **v, size_t n)
{
	struct slab_free *f = s->free, *next, **tail = &s->free, *last = NULL;

	for (; f; f = next) {
		next = free_next(s, f);
		if (chunk_of(v, n, (char *)f)->n_free == s->per_chunk)
			continue;
		*tail = f;
		if (last)
			mem_hide(last, s->size);
		mem_show(f, sizeof(*f));
		tail = &f->next;
		last = f;
	}
	*tail = NULL;
	if (last)
		mem_hide(last, s->size);
}

static void trim_chunks(struct slab *s, struct slab_chunk **v, size_t n)
{
	s->chunks = NULL;
	for (size_t i = 0; i < n; i++) {
		if (v[i]->n_free < s->per_chunk) {
			v[i]->next = s->chunks;
			s->chunks = v[i];
			continue;
		}
		if (s->fresh_end == v[i]->mem + chunk_bytes(s))
			s->fresh = s->fresh_end = NULL;
		mem_show(v[i]->mem, chunk_bytes(s));
		free(v[i]->mem);
		free(v[i]);
		s->n_total -= s->per_chunk;
		pool_give(s->budget, s->pool, chunk_bytes(s));
	}
}

void slab_trim(struct slab *s)
{
	size_t n = s->n_total / s->per_chunk, i = 0;
	struct slab_chunk **v;

	if (s->n_total - s->n_live < s->per_chunk)
		return;
	v = malloc(n * sizeof(struct slab_chunk *));
	if (!v)
		return;
	for (struct slab_chunk *c = s->chunks; c; c = c->next) {
		c->n_free = 0;
		v[i++] = c;
	}
	qsort(v, n, sizeof(struct slab_chunk *), chunk_order);
	trim_count(s, v, n);
	trim_free_list(s, v, n);
	trim_chunks(s, v, n);
	free(v);
}

void slab_close(struct slab *s)
{
	must(s->n_live == 0);
	while (s->chunks) {
		struct slab_chunk *c = s->chunks;

		s->chunks = c->next;
		mem_show(c->mem, chunk_bytes(s));
		free(c->mem);
		free(c);
		pool_give(s->budget, s->pool, chunk_bytes(s));
	}
	slab_init(s, s->name, s->size, s->budget);
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
