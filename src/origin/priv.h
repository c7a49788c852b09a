/* priv.h -- inside origin/: the shard's state, one exchange's tries, servers' live state, pooled
 * connections. */
#ifndef ORIGIN_PRIV_H
#define ORIGIN_PRIV_H

#include "base/log.h"
#include "base/map.h"
#include "origin/origin.h"
#include "wire/wire.h"

/* --- live state of servers: process-wide, atomics --- */
struct server_live {
	_Atomic uint32_t fails;            /* connects that failed in a row */
	_Atomic uint64_t ejected_until_ms; /* monotonic; 0: not ejected */
	_Atomic int32_t active;            /* requests at it now, all shards */
	_Atomic bool resolved;             /* its name has had an address, or it needs none */
	uint32_t slot_connect_ok, slot_connect_failed, slot_reuse, slot_active, slot_idle;
};
struct upstream {
	struct str name;
	uint32_t n_servers;
	const struct upstream_conf *conf;
	struct metrics *metrics;
	struct server_live server[];
};

/* --- pool --- */
/* all connections of one shard that may serve each other's requests */
struct pool_group {
	struct map_node node; /* forward targets: by "host:port" */
	struct list idle;     /* most recently used first */
	uint32_t n_idle, n_conns;
	/* a configured server's: never freed while the shard lives */
	bool fixed;
	/* whose name is asked again when its TTL has run out; NULL: none to ask */
	const struct server_conf *server;
	struct resolve *asking;
	struct answer *known; /* its addresses now; NULL: not asked yet */
	struct origin_shard *shard;
	uint16_t key_n;
	char key[];
};

#define UPCONN_MAGIC 0x0c044ec7u
struct upconn {
	uint32_t magic;
	bool idle;
	struct h1_client *client;
	struct pool_group *group;
	struct list node; /* group->idle, while idle */
	struct list lru;  /* shard's, while idle: oldest at the tail */
	struct alarm expire;
	struct loop *loop;
	struct server_live *live; /* NULL: a forward target */
	struct pin *pin;          /* of the client connection at hand */
	struct addr address;
	uint64_t born_ms, idle_since_ms, idle_until_ms;
	uint32_t keep_ms;
};

struct origin_shard {
	struct origin_params p;
	struct slab upconns, attempts;
	struct map targets;          /* pool_group by "host:port" */
	struct pool_group **servers; /* by server index */
	uint32_t n_servers;
	struct list lru;
	uint32_t n_idle;
	bool draining;
	struct balance_state **balance; /* by upstream index */
	uint32_t n_upstreams;
	uint64_t rng;
	uint32_t slot_retry_reused;
};
struct origin_shard *origin_shard(struct loop *);
uint64_t origin_random(struct origin_shard *);

/* older connections are not kept: addresses and load move on */
#define POOL_AGE_MS (30u * 60 * 1000)
/* a request that may not be sent twice takes only a connection idle for less */
#define UNSAFE_IDLE_MS 2000u

struct pool_group *pool_server(struct origin_shard *, const struct server_conf *) MUST_CHECK;
void pool_server_free(struct pool_group *);
struct pool_group *pool_target(struct origin_shard *, struct str host, uint16_t port) MUST_CHECK;
/* A usable idle connection, taken out, or NULL.  `policy`: asked again for its address. */
struct upconn *pool_get(struct origin_shard *, struct pool_group *, uint32_t idle_max_ms,
			const struct dial_policy *);
/* Makes a connected link a connection of this group.  NULL: out of memory (the link is closed). */
struct upconn *pool_new(struct origin_shard *, struct pool_group *, struct link *,
			const struct addr *, struct server_live *) MUST_CHECK;
/* The pinned connection of this client connection, if it belongs to this group; taken out of the
 * pin. */
struct upconn *pool_unpin(struct pin *, struct pool_group *);
void pool_trim(struct origin_shard *, uint32_t keep); /* closes the idlest */
/* freed when nothing uses it */
void pool_group_release(struct origin_shard *, struct pool_group *);

/* --- one exchange's tries, in its arena --- */
struct tries {
	const struct upstream_conf *conf; /* NULL: forward target */
	const struct server_conf *server;
	struct server_live *live;
	uint64_t tried;    /* servers by position, first 64 */
	uint32_t attempts; /* counted ones: silent repeats are not */
	bool fresh;        /* no pooled connection this time */
	bool same;         /* the same server again */
	bool reused;       /* the try at hand is on a pooled connection */
	struct client_result result;
	struct dial_policy policy;
	struct attempt *attempt;
};
/* made at the first call; NULL: out of memory */
struct tries *upstream_tries(struct exchange *) MUST_CHECK;

/* balance.c: pure but for the shard's own state; NULL: none is left. */
struct balance_state;
const struct server_conf *balance_pick(struct origin_shard *, const struct upstream_conf *,
				       const struct tries *);
bool balance_any_left(const struct upstream_conf *, const struct tries *);
void balance_failed(struct loop *, const struct upstream_conf *, const struct server_conf *);
void balance_worked(const struct upstream_conf *, const struct server_conf *);
bool balance_ejected(const struct server_live *, uint64_t now_ms);

/* attempt.c: one try: a pooled connection, or dial and a new one; then the codec is x's up end. */
struct attempt_params {
	struct exchange *x;
	struct tries *t;
	struct pool_group *group;
	/* where to */
	struct str host;
	bool literal;
	struct addr addr;
	struct str path;
	uint16_t port;
	unsigned resolve_flags;
	struct client_job job;
};
void attempt_begin(const struct attempt_params *);
uint32_t attempt_size(void);

#endif
