/* priv.h -- inside origin/: the shard's state, one exchange's tries, servers' live state, pooled
 * connections. */
#ifndef ORIGIN_PRIV_H
#define ORIGIN_PRIV_H

#include "base/log.h"
#include "base/map.h"
#include "origin/origin.h"
#include "wire/wire.h"

/* --- places: connections of servers that have a limit; process-wide (places.c) --- */
struct places; /* of one upstream */
struct quota { /* of one server */
	/* a place that was taken is given back by this */
	struct hold hold;
	struct places *places;
	uint32_t upstream; /* its index */
	uint32_t server;   /* its position */
	uint32_t max;
	_Atomic uint32_t taken;
};
/* What one shard's requests wait for. */
struct places_waiting {
	uint32_t n;
	uint64_t since_us; /* the first one */
	uint64_t servers;  /* by position: where any of them may go */
};
/* Told to a shard that waits, or has parked connections. */
struct places_news {
	uint32_t granted; /* sum of grants */
	bool look;        /* something has changed: try again */
	uint64_t give;    /* servers: give up an idle connection, if others need it */
	uint32_t grants[LIMITED_SERVERS_MAX]; /* places, taken for this shard */
};
/* `upstream`: its index.  The shard may have closed meanwhile: then there are no grants. */
typedef void places_fn(struct loop *, uint32_t upstream, const struct places_news *);
struct upstream;
/* Nothing to do for an upstream without limits.  False: out of memory; places_close() all the
 * same. */
bool places_open(struct upstream *, const struct upstream_conf *, unsigned shards,
		 places_fn *news) MUST_CHECK;
void places_close(struct places **); /* after the last loop; NULL inside is accepted */
void places_join(struct places *, struct loop *);
void places_leave(struct places *, unsigned shard); /* nothing of it waits or is parked */
static inline bool places_full(const struct quota *q)
{
	return atomic_load_explicit(&q->taken, memory_order_relaxed) >= q->max;
}
/* True: one place is taken; it goes back by q->hold. */
bool places_take(struct quota *) MUST_CHECK;
/* A granted place is of no use here. */
void places_decline(struct quota *);
/* Says what this shard's requests wait for, then what is free must be looked at again. */
void places_wait(struct places *, unsigned shard, const struct places_waiting *);
/* All shards that wait shall look: a server was ejected. */
void places_look(struct places *);
/* A shard with an idle connection to one of these servers is asked to give it up. */
void places_ask(struct places *, unsigned shard, uint64_t servers);
/* Whether a connection to this server shall be closed for another shard's request that has waited
 * since before this moment.  True: one is counted as coming. */
bool places_owed(struct quota *, unsigned shard, uint64_t before_us) MUST_CHECK;
/* A connection is closed for a request of this shard. */
void places_coming(struct places *);
/* An idle connection more or less. */
void places_park(struct quota *, unsigned shard, int delta);
/* Whether anybody waits; asked after parking one: who waits looks for parked ones, too. */
bool places_awaited(const struct places *);

/* --- live state of servers: process-wide, atomics --- */
struct server_live {
	_Atomic uint32_t fails;            /* connects that failed in a row */
	_Atomic uint64_t ejected_until_ms; /* monotonic; 0: not ejected */
	_Atomic int32_t active;            /* requests at it now, all shards */
	_Atomic bool nameless;             /* the last time its name was asked it had no address */
	struct quota *quota;               /* NULL: no limit */
	uint32_t slot_connect_ok, slot_connect_failed, slot_reuse, slot_active, slot_idle;
};
struct upstream {
	struct str name;
	uint32_t n_servers;
	const struct upstream_conf *conf;
	struct metrics *metrics;
	struct places *places; /* NULL: no server has a limit */
	uint32_t slot_queued;
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
	struct quota *quota;      /* NULL: no limit */
	struct pin *pin;          /* of the client connection at hand */
	struct addr address;
	uint64_t born_ms, idle_since_ms, idle_until_ms;
	uint32_t keep_ms;
};

struct origin_shard {
	struct origin_params p;
	struct slab upconns, attempts, waiters;
	struct map targets;          /* pool_group by "host:port" */
	struct pool_group **servers; /* by server index */
	uint32_t n_servers;
	struct list lru;
	uint32_t n_idle;
	bool draining;
	struct balance_state **balance; /* by upstream index */
	uint32_t n_upstreams;
	struct queue **queues; /* by upstream index; NULL: no limit, or not used yet */
	uint32_t n_queues;
	uint64_t rng;
};
struct origin_shard *origin_shard(struct loop *);
uint64_t origin_random(struct origin_shard *);

/* older connections are not kept: addresses and load move on */
#define POOL_AGE_MS (30u * 60 * 1000)
/* a request that may not be sent twice takes only a connection idle for less */
#define UNSAFE_IDLE_MS 2000u

/* NULL: out of memory */
struct pool_group *pool_server_open(struct origin_shard *, const struct server_conf *) MUST_CHECK;
static inline struct pool_group *pool_server(struct origin_shard *s, const struct server_conf *c)
{
	struct pool_group *g = c->index < s->n_servers ? s->servers[c->index] : NULL;

	return g ? g : pool_server_open(s, c);
}
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
/* Whether pool_unpin() or, unless `fresh`, pool_get() would have one for this request. */
bool pool_has(const struct exchange *, const struct pool_group *, bool fresh);
void pool_close_idlest(struct pool_group *); /* of this group, which has an idle one */
void pool_close(struct upconn *);            /* its request has left it */
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
};
/* made at the first call; NULL: out of memory */
struct tries *upstream_tries(struct exchange *) MUST_CHECK;
static inline void tries_chose(struct tries *t, const struct server_conf *server)
{
	uint32_t i = (uint32_t)(server - t->conf->servers);

	t->server = server;
	t->live = &t->conf->live->server[i];
	if (i < 64)
		t->tried |= 1ull << i;
	t->attempts++;
}
/* Goes to the server chosen.  `hold`: the place that was taken for a new connection; NULL: the pool
 * has one, or there is no limit. */
void upstream_go(struct exchange *, struct tries *, struct hold *hold);

/* queue.c: requests of this shard to one upstream that has a limit, first come first served. */
struct queue;
/* upstream_begin() of such an upstream: goes, waits, or refuses. */
void queue_begin(struct exchange *, struct tries *);
/* Just now idle in the pool: a waiting request may take it over, or it is closed for another
 * shard's. */
void queue_parked(struct origin_shard *, struct upconn *);
places_fn queue_news;
uint32_t queue_waiter_size(void);
void queue_close(struct queue *); /* nothing waits; NULL is accepted */

/* balance.c: pure but for the shard's own state; NULL: none is left. */
struct balance_state;
const struct server_conf *balance_pick(struct origin_shard *, const struct upstream_conf *,
				       uint64_t passed_over);
/* Among these only, by position; NULL: out of memory. */
const struct server_conf *balance_pick_among(struct origin_shard *, const struct upstream_conf *,
					     uint64_t among);
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
	struct hold *hold; /* the place that was taken for a new connection; NULL: no limit */
};
void attempt_begin(const struct attempt_params *);
/* For how long a connection may have been idle to be taken by this request. */
static inline uint32_t attempt_idle_max_ms(const struct exchange *x)
{
	bool twice = method_idempotent((enum method)x->req.head->method) &&
		     x->req.head->body == BODY_NONE;

	return twice ? UINT32_MAX : UNSAFE_IDLE_MS;
}
uint32_t attempt_size(void);

#endif
