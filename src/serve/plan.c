/* plan.c -- the life of a plan: made by the loader, counted, freed with all that lies in its
 * arena. */
#include "serve/serve.h"

#include <stdlib.h>

/* The plan and its arena in one block; everything else lies in the arena. */
struct plan_block {
	struct plan plan;
	struct arena arena;
	struct slab slab;
	struct budget budget;
};

struct plan *plan_new(void)
{
	struct plan_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->budget.max = UINT64_MAX; /* a plan is as large as its file */
	slab_init(&b->slab, "plan", ARENA_FIRST, &b->budget);
	arena_init(&b->arena, &b->slab);
	b->plan.mem = &b->arena;
	atomic_init(&b->plan.refs, 1);
	return &b->plan;
}

/* The count is the one thing in a plan that is ever written. */
static struct plan *writable(const struct plan *p)
{
	return (struct plan *)(uintptr_t)p;
}

void plan_ref(const struct plan *p)
{
	uint32_t before = atomic_fetch_add_explicit(&writable(p)->refs, 1, memory_order_relaxed);

	must(before > 0);
}

void plan_drop(const struct plan **pp)
{
	struct plan *p = writable(*pp);
	struct plan_block *b;

	*pp = NULL;
	if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return;
	b = container_of(p, struct plan_block, plan);
	arena_free(&b->arena);
	slab_close(&b->slab);
	free(b);
}
