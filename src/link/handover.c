/* handover.c -- which shard serves a connection that was just accepted.  Exports: handover_*
 *
 * SO_REUSEPORT deals connections out by hash: with few of them one shard may get all.  Each shard
 * keeps one public number, its connections; a shard that has many more than the least loaded one
 * gives the fresh descriptor away, by mail.  The numbers are read without order: a wrong choice now
 * and then costs nothing. */
#include "link/link.h"

#include "base/panic.h"

#include <stdatomic.h>
#include <stdlib.h>

#define GAP 8 /* connections: below that it is noise */

struct load {
	_Atomic int64_t n;
	struct loop *_Atomic loop; /* NULL: takes no part */
	char pad[48];              /* a cache line each */
};

struct handover {
	unsigned n;
	struct load *shard;
};

struct handover *handover_new(unsigned n_shards)
{
	struct handover *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->n = n_shards;
	h->shard = aligned_alloc(64, n_shards * sizeof(struct load));
	if (!h->shard) {
		free(h);
		return NULL;
	}
	memset(h->shard, 0, n_shards * sizeof(struct load));
	return h;
}

void handover_free(struct handover **hp)
{
	struct handover *h = *hp;

	*hp = NULL;
	if (!h)
		return;
	free(h->shard);
	free(h);
}

void handover_join(struct handover *h, struct loop *loop)
{
	must(loop_shard(loop) < h->n);
	atomic_store(&h->shard[loop_shard(loop)].loop, loop);
}

void handover_leave(struct handover *h, struct loop *loop)
{
	atomic_store(&h->shard[loop_shard(loop)].loop, NULL);
}

struct loop *handover_loop(const struct handover *h, unsigned shard)
{
	return atomic_load(&h->shard[shard].loop);
}

void handover_count(struct handover *h, unsigned shard, int delta)
{
	atomic_fetch_add_explicit(&h->shard[shard].n, delta, memory_order_relaxed);
}

unsigned handover_pick(const struct handover *h, unsigned shard)
{
	int64_t mine = atomic_load_explicit(&h->shard[shard].n, memory_order_relaxed);
	int64_t least = mine;
	unsigned best = shard;

	for (unsigned i = 0; i < h->n; i++) {
		int64_t n = atomic_load_explicit(&h->shard[i].n, memory_order_relaxed);

		if (n < least && handover_loop(h, i)) {
			least = n;
			best = i;
		}
	}
	return mine > least + GAP && mine * 4 > least * 5 ? best : shard;
}
