/* match.c -- hosts to sites, paths to routes; compiled once per plan, then only read.
 *
 *   host_table    open addressing by the host's text; wildcards are kept under ".example.com" and
 *                 found by walking up the labels
 *   route_table   exact paths and prefixes in one open-addressed table; a prefix is looked up for
 *                 each segment border of the path, longest first: the cost follows the number of
 *                 segments, not of routes */
#include "route/route.h"

struct route_slot {
	struct str key;
	const struct route_conf *route;
	uint64_t hash;
};

struct route_table {
	uint32_t mask;
	uint32_t n_exact;
	uint32_t prefix_max; /* longest prefix: no look-up above it */
	struct route_slot *exact, *prefix;
};

struct host_slot {
	struct str key;
	const struct site_conf *site;
	uint64_t hash;
};

struct host_table {
	uint32_t mask;
	struct host_slot *slot;
	const struct site_conf *fallback; /* "*" */
	uint32_t n_hosts;
	bool wildcards;
};

/* FNV-1a: the keys are configured, a stranger cannot choose them; long foreign paths are cut by
 * prefix_max. */
static uint64_t hash_of(struct str s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (uint32_t i = 0; i < s.n; i++)
		h = (h ^ (uint8_t)s.p[i]) * 0x100000001b3ull;
	return h ^ h >> 32;
}

static uint32_t slots_for(uint32_t n)
{
	uint32_t size = 8;

	while (size < n * 2)
		size *= 2;
	return size;
}

/* ---------------------------------------------------------------- routes */
static void put_route(struct route_slot *slot, uint32_t mask, struct str key,
		      const struct route_conf *r)
{
	uint64_t hash = hash_of(key);
	uint32_t i = (uint32_t)hash & mask;

	while (slot[i].route)
		i = (i + 1) & mask;
	slot[i] = (struct route_slot){ .key = key, .route = r, .hash = hash };
}

static const struct route_conf *get_route(const struct route_slot *slot, uint32_t mask,
					  struct str key, uint64_t hash)
{
	for (uint32_t i = (uint32_t)hash & mask; slot[i].route; i = (i + 1) & mask)
		if (slot[i].hash == hash && str_eq(slot[i].key, key))
			return slot[i].route;
	return NULL;
}

/* "/a/" and "/a" are one prefix: it ends on a segment border.  The root is the empty prefix. */
static struct str trim_slash(struct str prefix)
{
	if (prefix.n && prefix.p[prefix.n - 1] == '/')
		prefix.n--;
	return prefix;
}

struct route_table *route_compile(struct arena *a, const struct site_conf *site)
{
	struct route_table *t = arena_zalloc(a, sizeof(*t));
	uint32_t size = slots_for(site->n_routes);

	if (!t)
		return NULL;
	t->mask = size - 1;
	t->exact = arena_zalloc(a, size * sizeof(*t->exact));
	t->prefix = arena_zalloc(a, size * sizeof(*t->prefix));
	if (!t->exact || !t->prefix)
		return NULL;
	for (uint32_t i = 0; i < site->n_routes; i++) {
		const struct route_conf *r = &site->routes[i];
		struct str prefix = trim_slash(r->prefix);

		if (r->exact.n) {
			put_route(t->exact, t->mask, r->exact, r);
			t->n_exact++;
			continue;
		}
		put_route(t->prefix, t->mask, prefix, r);
		if (prefix.n > t->prefix_max)
			t->prefix_max = prefix.n;
	}
	return t;
}

/* A trailing slash of a configured prefix must be matched: "/a/" takes "/a/x" and "/a/", not
 * "/a". */
static bool border_holds(const struct route_conf *r, struct str path, uint32_t at)
{
	bool wants_slash = r->prefix.n > 1 && r->prefix.p[r->prefix.n - 1] == '/';

	return !wants_slash || at < path.n;
}

/* One hash per segment border, made in one pass; looked up from the longest down. */
#define BORDERS 64
static const struct route_conf *longest_prefix(const struct route_table *t, struct str path)
{
	struct {
		uint32_t at;
		uint64_t hash;
	} border[BORDERS];
	uint64_t h = 0xcbf29ce484222325ull;
	uint32_t n = 0, end = path.n < t->prefix_max ? path.n : t->prefix_max;

	for (uint32_t i = 0; i <= end; i++) {
		if (n < BORDERS && (i == path.n || path.p[i] == '/')) {
			border[n].at = i;
			border[n++].hash = h ^ h >> 32;
		}
		if (i < end)
			h = (h ^ (uint8_t)path.p[i]) * 0x100000001b3ull;
	}
	while (n-- > 0) {
		struct str key = { .p = path.p, .n = border[n].at };
		const struct route_conf *r = get_route(t->prefix, t->mask, key, border[n].hash);

		if (r && border_holds(r, path, border[n].at))
			return r;
	}
	return NULL;
}

const struct route_conf *route_match(const struct route_table *t, struct str path)
{
	const struct route_conf *r = NULL;

	if (t->n_exact)
		r = get_route(t->exact, t->mask, path, hash_of(path));
	return r ? r : longest_prefix(t, path);
}

/* ---------------------------------------------------------------- hosts */
static void put_host(struct host_table *t, struct str key, const struct site_conf *site)
{
	uint64_t hash = hash_of(key);
	uint32_t i = (uint32_t)hash & t->mask;

	while (t->slot[i].site)
		i = (i + 1) & t->mask;
	t->slot[i] = (struct host_slot){ .key = key, .site = site, .hash = hash };
	t->n_hosts++;
}

static const struct site_conf *get_host(const struct host_table *t, struct str key)
{
	uint64_t hash = hash_of(key);

	for (uint32_t i = (uint32_t)hash & t->mask; t->slot[i].site; i = (i + 1) & t->mask)
		if (t->slot[i].hash == hash && str_eq(t->slot[i].key, key))
			return t->slot[i].site;
	return NULL;
}

static void add_host(struct host_table *t, struct str host, const struct site_conf *site)
{
	if (str_eq(host, STR("*"))) {
		t->fallback = site;
	} else if (host.n > 2 && host.p[0] == '*') {
		t->wildcards = true;
		put_host(t, (struct str){ .p = host.p + 1, .n = host.n - 1 }, site);
	} else {
		put_host(t, host, site);
	}
}

struct host_table *host_compile(struct arena *a, const struct site_conf *const *sites, uint32_t n)
{
	struct host_table *t = arena_zalloc(a, sizeof(*t));
	uint32_t hosts = 0;

	for (uint32_t i = 0; i < n; i++)
		hosts += sites[i]->n_hosts;
	if (!t)
		return NULL;
	t->mask = slots_for(hosts) - 1;
	t->slot = arena_zalloc(a, (t->mask + 1) * sizeof(*t->slot));
	if (!t->slot)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < sites[i]->n_hosts; k++)
			add_host(t, sites[i]->hosts[k], sites[i]);
	return t;
}

static const struct site_conf *by_wildcard(const struct host_table *t, struct str host)
{
	for (uint32_t i = 1; i < host.n; i++) {
		struct str rest = { .p = host.p + i, .n = host.n - i };
		const struct site_conf *site;

		if (host.p[i] != '.')
			continue;
		site = get_host(t, rest);
		if (site)
			return site;
	}
	return NULL;
}

const struct site_conf *host_match(const struct host_table *t, struct str host)
{
	const struct site_conf *site = NULL;

	/* a dot in front is how wildcards are kept */
	if (t->n_hosts && host.n && host.p[0] != '.') {
		site = get_host(t, host);
		if (!site && t->wildcards)
			site = by_wildcard(t, host);
	}
	return site ? site : t->fallback;
}
