/* serve.h -- the path of a request, and the plan that it follows.  steps.c is the table of
 * contents.
 *
 *   plan      the configuration as the shards see it: immutable, counted
 *   service   one shard's listeners, connections, exchanges: opened, drained, closed by the shard's
 *             thread */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "base/log.h"
#include "base/metric.h"
#include "origin/origin.h"
#include "policy/policy.h"
#include "relay/relay.h"

enum serve_kind { SERVE_WEB = 0, SERVE_FORWARD };

struct listener_conf {
	struct str name;
	struct bind_conf bind;
	uint8_t serve; /* enum serve_kind */
	struct proxyproto_conf proxy_protocol;
	const struct addr_net *allow_from;
	uint32_t n_allow_from;
	/* a forward listener on a public address without allow_from: insisted on */
	bool open;
	const struct str *site_names;
	uint32_t n_site_names; /* empty: all */
	uint8_t via;           /* 0 inherit (on), 1 on, 2 off */
	/* the top-level one with this listener's keys replaced */
	struct forward_conf forward;
	struct timeouts timeouts; /* resolved: nothing is MS_INHERIT */
	/* resolved; request_body off by default for forward */
	struct limits limits;
	uint32_t index;
	/* by the loader */
	struct host_table *hosts;
	const struct timeouts **route_timeouts; /* by route index; NULL entries: the listener's */
	const struct limits **route_limits;
};

struct listeners_conf {
	struct listener_conf *listeners;
	uint32_t n_listeners;
};
struct setting;
extern const struct setting serve_conf_listeners; /* struct listeners_conf */

struct plan {
	_Atomic uint32_t refs;
	struct arena *mem; /* everything below */
	/* loop */
	uint32_t workers; /* resolved */
	uint8_t io;       /* enum loop_io as asked */
	struct listener_conf *listeners;
	uint32_t n_listeners;
	struct forward_conf forward;
	struct site_conf *sites;
	uint32_t n_sites;
	uint32_t n_routes; /* over all sites */
	struct upstream_conf *upstreams;
	uint32_t n_upstreams;
	struct identity_conf identity;
	struct resolver_conf resolver;
	struct timeouts timeouts;
	struct limits limits;
	bool half_close_abort; /* client_half_close: abort */
	struct access_log_conf access_log;
	uint64_t connections_max, memory_max; /* resolved */
	uint32_t upstream_pool;
	struct str pseudonym; /* for Via; of this keeper, so of all its proxies */
};
/* Empty, one reference, its own arena; NULL: out of memory. */
struct plan *plan_new(void) MUST_CHECK;
void plan_ref(const struct plan *);
void plan_drop(const struct plan **); /* the last one frees */

/* --- one shard's service --- */
struct service_shared { /* one per process, made before the shards start */
	struct metrics *metrics;
	struct handover *handover;
	_Atomic uint64_t n_connections; /* clients, over all shards */
	_Atomic bool started;           /* all shards run, all series are there */
	_Atomic bool draining;          /* readiness */
	struct budget *budget;
};
struct service_params {
	struct loop *loop;
	const struct plan *plan; /* counted */
	struct service_shared *shared;
	const int *listen_fds; /* by listener index: this shard's */
	const bool *listen_shared;
	struct log_ring *access; /* this shard's ring; NULL: off */
};
struct service;
struct service *service_open(const struct service_params *) MUST_CHECK; /* NULL: out of memory */
/* Phase 1 of a drain: says Connection: close from now on (accepting goes on). */
void service_drain(struct service *);
/* Phase 2: stops accepting (after EAGAIN), closes idle connections; `done(arg)` when the last
 * connection and tunnel has ended. */
void service_stop(struct service *, void (*done)(void *arg), void *arg);
/* After service_stop(): no listening socket is in use any more.  When that is so on all shards, all
 * of them are closed. */
bool service_stopped(const struct service *);
/* Deadline: cuts all that still runs; returns how many. */
unsigned service_cut(struct service *);
void service_close(struct service **); /* asserts that nothing is left */
unsigned service_connections(const struct service *);
void service_dump(const struct service *, int fd);

#endif
