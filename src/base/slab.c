/* slab.c -- objects of one size, in chunks that know what of them is free.  Exports: slab_*
 *
 *   chunk   64 KiB, aligned to 64 KiB, straight from the system:
 *           [header][obj][obj][obj][....not yet carved....]    or one object that may be larger
 *
 *   slab    some ──► chunk ──► chunk ──► chunk     those that may have an object to give: the first
 *                    free: obj ──► obj ──► obj     one is asked, last in, first out
 *
 * The chunk of an object is found by its address, so that putting one back is a push, and a chunk
 * that is wholly free is known at once; it stays among the others.  How many there were at least
 * since the last look is what the slab can do without (slab_calm).
 *
 * Objects are carved off a chunk one by one: pages that were never needed are never touched. */
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

#define CHUNK     65536u
#define PAGE      4096u
#define CALM_MOST 64 /* chunks that one slab gives back in one look: some 100 us */

struct slab_free {
	struct slab_free *next;
};

struct slab_chunk {
	struct slab_chunk *next; /* of slab->some */
	struct slab *home;
	struct slab_free *free;
	char *fresh; /* not carved yet, up to the end */
	uint32_t n_live, n_fresh;
	bool listed; /* in slab->some; else nothing of it is free */
};
_Static_assert(sizeof(struct slab_chunk) <= 64, "the header fits");

static struct slab_chunk *chunk_of(const void *obj)
{
	return (struct slab_chunk *)((uintptr_t)obj & ~(uintptr_t)(CHUNK - 1));
}

/* Objects that are whole pages lie on pages. */
static uint32_t header_bytes(uint32_t size)
{
	return size % PAGE == 0 && size <= CHUNK / 2 ? PAGE : 64;
}

static uint64_t chunk_bytes(const struct slab *s)
{
	uint64_t n = header_bytes(s->size) + (uint64_t)s->per_chunk * s->size;

	return (n + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

/* --- the system --- */
#ifdef MEM_ASAN
/* Out of the allocator that the sanitizer watches: a slab that is not closed shows as a leak, and
 * what only its objects point to does not. */
static void *map_chunk(size_t n)
{
	return aligned_alloc(CHUNK, (n + CHUNK - 1) & ~(size_t)(CHUNK - 1));
}

static void unmap_chunk(void *p, size_t n)
{
	(void)n;
	free(p);
}
#else
static bool aligned(const void *p)
{
	return (uintptr_t)p % CHUNK == 0;
}

static void unmap_chunk(void *p, size_t n)
{
	pages_give(p, n);
}

/* The system places maps right below one another: the next after an aligned one is so, too. */
static void *map_chunk(size_t n)
{
	char *p = n == CHUNK ? pages_get(n) : NULL, *at;

	if (p && aligned(p))
		return p;
	if (p)
		unmap_chunk(p, n);
	p = pages_get(n + CHUNK);
	if (!p)
		return NULL;
	at = (char *)chunk_of(p + CHUNK - 1);
	unmap_chunk(p, (size_t)(at - p));
	unmap_chunk(at + n, (size_t)(p + CHUNK - at));
	return at;
}
#endif

/* --- chunks --- */
void slab_init(struct slab *s, const char *name, uint32_t size, struct budget *budget)
{
	must(size > 0 && size <= UINT32_MAX - CHUNK);
	memset(s, 0, sizeof(*s));
	s->name = name;
	s->size = (size + 15) & ~15u;
	s->per_chunk = (CHUNK - header_bytes(s->size)) / s->size;
	if (s->per_chunk == 0)
		s->per_chunk = 1;
	s->budget = budget;
	s->pool = budget_pool(budget, name);
}

static void list_chunk(struct slab *s, struct slab_chunk *c)
{
	c->next = s->some;
	s->some = c;
	c->listed = true;
}

static bool slab_grow(struct slab *s)
{
	struct slab_chunk *c;

	if (!pool_take(s->budget, s->pool, chunk_bytes(s)))
		return false;
	c = map_chunk(chunk_bytes(s));
	if (!c) {
		pool_give(s->budget, s->pool, chunk_bytes(s));
		return false;
	}
	*c = (struct slab_chunk){ .home = s,
				  .fresh = (char *)c + header_bytes(s->size),
				  .n_fresh = s->per_chunk };
	mem_hide(c->fresh, (size_t)s->per_chunk * s->size);
	list_chunk(s, c);
	if (s->n_chunks++ == 0)
		budget_slab(s->budget, s);
	s->n_spare++;
	return true;
}

static void slab_shrink(struct slab *s, struct slab_chunk *c)
{
	must(c->home == s && c->n_live == 0);
	mem_show((char *)c, chunk_bytes(s));
	unmap_chunk(c, chunk_bytes(s));
	pool_give(s->budget, s->pool, chunk_bytes(s));
	s->n_spare--;
	if (--s->n_chunks == 0)
		budget_slab_off(s->budget, s);
}

uint64_t slab_bytes(const struct slab *s)
{
	return s->n_chunks * chunk_bytes(s);
}

/* n of the spare chunks, at most. */
static uint64_t give_spare(struct slab *s, uint64_t n)
{
	struct slab_chunk **at = &s->some, *c;
	uint64_t held = slab_bytes(s);

	n = n < s->n_spare ? n : s->n_spare;

	while (n > 0 && (c = *at)) {
		if (c->n_live > 0) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		slab_shrink(s, c);
		n--;
	}
	if (s->n_idle > s->n_spare)
		s->n_idle = s->n_spare;
	return held - slab_bytes(s);
}

uint64_t slab_trim(struct slab *s, uint64_t want)
{
	return give_spare(s, want / chunk_bytes(s) + (want % chunk_bytes(s) != 0));
}

void slab_calm(struct slab *s)
{
	give_spare(s, s->n_idle < CALM_MOST ? s->n_idle : CALM_MOST);
	s->n_idle = s->n_spare;
}

void slab_close(struct slab *s)
{
	must(s->n_live == 0);
	slab_trim(s, UINT64_MAX);
	must(s->n_chunks == 0);
}

/* --- objects --- */
/* Nothing of the first chunk was given back: carves from it, or goes on to the next. */
static COLD struct slab_free *seek(struct slab *s)
{
	struct slab_chunk *c;

	while ((c = s->some) && !c->free && !c->n_fresh) {
		s->some = c->next;
		c->listed = false;
	}
	if (!c && !slab_grow(s))
		return NULL;
	c = s->some;
	if (c->free)
		return c->free;
	c->free = (struct slab_free *)(void *)c->fresh;
	c->fresh += s->size;
	c->n_fresh--;
	mem_show(c->free, sizeof(*c->free));
	c->free->next = NULL;
	return c->free;
}

void *slab_get(struct slab *s)
{
	struct slab_free *f = s->some ? s->some->free : NULL;
	struct slab_chunk *c;

	if (__builtin_expect(!f, 0)) {
		f = seek(s);
		if (!f)
			return NULL;
	}
	c = s->some;
	mem_show(f, s->size);
	c->free = f->next;
	if (c->n_live++ == 0 && --s->n_spare < s->n_idle)
		s->n_idle = s->n_spare;
	s->n_live++;
	return f;
}

void slab_put(struct slab *s, void *obj)
{
	struct slab_chunk *c = chunk_of(obj);
	struct slab_free *f = obj;

	if (!f)
		return;
	hot_must(c->home == s && c->n_live > 0);
	/* put twice (seen only with the address sanitizer) */
	must(!mem_hidden((char *)obj + s->size - 1));
	f->next = c->free;
	c->free = f;
	mem_hide(f, s->size);
	if (!c->listed)
		list_chunk(s, c);
	if (--c->n_live == 0)
		s->n_spare++;
	s->n_live--;
}
