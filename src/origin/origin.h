/* origin.h -- whoever answers: upstream servers, tunnels, own pages (later cache, files).  Each is
 * an end that reads x->req and feeds x->rsp.
 *
 *   upstream  a named group of servers; chooses the server and how often it is tried
 *   queue     requests that wait because every server they may go to is at its max_connections
 *   places    how many connections each of those servers has, exactly, over all shards
 *   attempt   one try at one server: an end of its own with its own `why`
 *   pool      connections of one shard, idle ones kept: in a group for each server, and for each
 *             host:port of the forward direction
 *   synth     own pages: errors, respond, redirect
 *   tunnel    CONNECT: dials, answers 200, hands both links to relay/ */
#ifndef ORIGIN_ORIGIN_H
#define ORIGIN_ORIGIN_H

#include "link/link.h"
#include "route/route.h"

/* --- settings (origin_conf.c describes them) --- */
enum balance { BALANCE_ROUND_ROBIN = 0, BALANCE_LEAST_CONNECTIONS, BALANCE_P2C };
struct server_conf {
	struct str url; /* as written: its name in log and metrics */
	struct str host;
	bool literal;
	struct addr addr;
	uint16_t port;
	struct str path;          /* unix: */
	uint32_t weight;          /* 1..256 */
	uint32_t max_connections; /* over all shards; 0: no limit */
	uint32_t index;           /* among all servers of the plan */
};
struct upstream_conf {
	struct str name;
	uint8_t balance;
	struct server_conf *servers;
	uint32_t n_servers;
	struct str host;         /* Host sent to the servers; empty: the client's */
	uint32_t retry_attempts; /* tries in all, first included */
	uint32_t eject_failures, eject_ms;
	uint32_t index;
	struct upstream *live; /* registry entry: by the loader */
};

struct upstreams_conf {
	struct upstream_conf *upstreams;
	uint32_t n_upstreams;
};
struct setting;
extern const struct setting origin_conf_upstreams; /* struct upstreams_conf */

/* --- registry: what outlives a plan; shared by all shards: atomics, and one lock (places.c) that
 * only upstreams with a max_connections have --- */
struct upstream; /* health, requests at each server, places */
/* `shards`: how many will use it, numbered from 0. */
struct upstream *upstream_new(const struct upstream_conf *, struct metrics *,
			      unsigned shards) MUST_CHECK;
void upstream_free(struct upstream **);

/* --- per shard --- */
struct origin_params {
	struct loop *loop;
	struct resolver *resolver;
	uint64_t *cells;
	struct metrics *metrics;
	uint32_t pool_max; /* limits.upstream_pool, this shard's part */
	uint8_t prefer;    /* enum resolve_prefer */
};
int origin_shard_open(const struct origin_params *) MUST_CHECK;
void origin_shard_close(struct loop *);
/* Drain: idle upstream connections are closed, none is kept any more. */
void origin_shard_drain(struct loop *);
void origin_shard_dump(struct loop *, int fd);

/* --- answerers; each attaches itself as x->up, or refuses --- */
struct dial_policy {
	bool (*judge)(void *arg, const struct addr *);
	void *arg;
};
/* More cannot be remembered of one request, and none of it may be guessed. */
#define LIMITED_SERVERS_MAX 64u /* of an upstream with a max_connections */
/* Web: one try at a server of this upstream; called again for each further try (STEP_AGAIN), like
 * target_begin(). */
void upstream_begin(struct exchange *, const struct upstream_conf *);
/* Whether the flow step may try again after x->try_why (RFC 9110 §9.2.2).  Either the pooled
 * connection had died under a request that may be sent twice (silently, on a fresh one), or no byte
 * of the request was sent and another server and an attempt are left.  True: the request has been
 * rewound. */
bool origin_may_retry(struct exchange *);
/* Forward, absolute-form: the target's host and port. */
void target_begin(struct exchange *, const struct dial_policy *);
/* Forward, CONNECT. */
void tunnel_begin(struct exchange *, const struct dial_policy *);
/* Own answers. `x->why` and x->facts.detail make the page; text, HTML or JSON by Accept. */
void synth_error(struct exchange *);
void synth_respond(struct exchange *, const struct respond_conf *);
void synth_redirect(struct exchange *, const struct redirect_conf *);

#endif
