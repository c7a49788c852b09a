/* map.h -- intrusive hash map, chained, grown as it fills; keyed hash (SipHash-1-3 with a random
 * key) because strangers choose the keys.  One shard. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/mem.h"

struct map_node {
	struct map_node *next;
	uint64_t hash;
};

struct map {
	struct map_node **slot;
	uint32_t n_slots, n;
	uint64_t key[2];
	/* Whether the node holds this key. */
	bool (*same)(const struct map_node *, const void *key, uint32_t n);
};

uint64_t map_siphash(const uint64_t key[2], const void *data, size_t n); /* SipHash-1-3 */
bool map_init(struct map *m, const uint64_t key[2],
	      bool (*same)(const struct map_node *, const void *, uint32_t)) MUST_CHECK;
void map_close(struct map *m); /* frees the table, not the nodes */
struct map_node *map_find(const struct map *m, const void *key, uint32_t n);
/* the key must not be in it */
bool map_add(struct map *m, struct map_node *node, const void *key, uint32_t n) MUST_CHECK;
void map_remove(struct map *m, struct map_node *node);
/* Visits every node; visit() may remove the node that it got. */
void map_each(struct map *m, void (*visit)(struct map_node *, void *arg), void *arg);

#endif
