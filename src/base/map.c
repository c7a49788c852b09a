/* map.c -- SipHash-1-3 and a chained table that doubles as it fills.
 *
 * A node keeps its hash, so that growing compares nothing and a chain compares keys only where all
 * 64 bits agree. */
#include "base/map.h"

#include <stdlib.h>

#define MAP_SLOTS_MIN 8u
#define MAP_SLOTS_MAX (1u << 30)

static inline uint64_t rotl(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] = rotl(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] = rotl(v[2], 32);
}

/* The last 0 to 7 bytes, low byte first, under the length's low byte. */
static inline uint64_t sip_last(const uint8_t *p, size_t n, size_t total)
{
	uint64_t m = (uint64_t)(total & 0xff) << 56;

	for (size_t i = 0; i < n; i++)
		m |= (uint64_t)p[i] << (8 * i);
	return m;
}

uint64_t map_siphash(const uint64_t key[2], const void *data, size_t n)
{
	uint64_t v[4] = { key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
			  key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull };
	const uint8_t *p = data;
	uint64_t m;
	size_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		memcpy(&m, p + i, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		m = __builtin_bswap64(m);
#endif
		v[3] ^= m;
		sip_round(v);
		v[0] ^= m;
	}
	m = sip_last(p + i, n - i, n);
	v[3] ^= m;
	sip_round(v);
	v[0] ^= m;
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

bool map_init(struct map *m, const uint64_t key[2],
	      bool (*same)(const struct map_node *, const void *, uint32_t))
{
	memset(m, 0, sizeof(*m));
	m->slot = calloc(MAP_SLOTS_MIN, sizeof(struct map_node *));
	if (!m->slot)
		return false;
	m->n_slots = MAP_SLOTS_MIN;
	m->key[0] = key[0];
	m->key[1] = key[1];
	m->same = same;
	return true;
}

void map_close(struct map *m)
{
	free(m->slot);
	memset(m, 0, sizeof(*m));
}

static inline struct map_node **slot_of(const struct map *m, uint64_t hash)
{
	return &m->slot[hash & (m->n_slots - 1)];
}

static struct map_node *find_hashed(const struct map *m, uint64_t hash, const void *key, uint32_t n)
{
	struct map_node *node = *slot_of(m, hash);

	while (node && !(node->hash == hash && m->same(node, key, n)))
		node = node->next;
	return node;
}

struct map_node *map_find(const struct map *m, const void *key, uint32_t n)
{
	return find_hashed(m, map_siphash(m->key, key, n), key, n);
}

/* Without memory the chains get longer, that is all. */
static void map_grow(struct map *m)
{
	struct map_node **old = m->slot, **slot;
	uint32_t n_old = m->n_slots;

	if (n_old >= MAP_SLOTS_MAX)
		return;
	slot = calloc((size_t)n_old * 2, sizeof(struct map_node *));
	if (!slot)
		return;
	m->slot = slot;
	m->n_slots = n_old * 2;
	for (uint32_t i = 0; i < n_old; i++) {
		while (old[i]) {
			struct map_node *node = old[i], **to = slot_of(m, node->hash);

			old[i] = node->next;
			node->next = *to;
			*to = node;
		}
	}
	free(old);
}

bool map_add(struct map *m, struct map_node *node, const void *key, uint32_t n)
{
	struct map_node **slot;

	if (m->n == UINT32_MAX)
		return false;
	if (m->n >= m->n_slots)
		map_grow(m);
	node->hash = map_siphash(m->key, key, n);
	hot_must(!find_hashed(m, node->hash, key, n));
	slot = slot_of(m, node->hash);
	node->next = *slot;
	*slot = node;
	m->n++;
	return true;
}

void map_remove(struct map *m, struct map_node *node)
{
	struct map_node **at = slot_of(m, node->hash);

	while (*at != node) {
		must(*at);
		at = &(*at)->next;
	}
	*at = node->next;
	node->next = NULL;
	m->n--;
}

void map_each(struct map *m, void (*visit)(struct map_node *, void *arg), void *arg)
{
	for (uint32_t i = 0; i < m->n_slots; i++) {
		struct map_node *node = m->slot[i], *next;

		for (; node; node = next) {
			next = node->next;
			visit(node, arg);
		}
	}
}
