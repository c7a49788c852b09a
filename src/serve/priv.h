/* priv.h -- inside serve/: one shard's service, its listeners, and what a request's steps need of
 * them. */
#ifndef SERVE_PRIV_H
#define SERVE_PRIV_H

#include "serve/serve.h"
#include "wire/wire.h"

struct door { /* one listener on this shard */
	struct service *service;
	const struct listener_conf *conf;
	struct acceptor *acceptor;
	uint32_t slot_active, slot_idle, slot_tunnel, slot_duration;
	/* by (route index + 1) × STATUS_CLASSES + class; 0: not made yet */
	uint32_t *slot_requests;
	unsigned index;
};
#define TUNNEL_SIZES   9
#define STATUS_CLASSES 6 /* 0xx (none was sent), 1xx … 5xx */

struct service {
	struct loop *loop;
	const struct plan *plan;
	struct service_shared *shared;
	struct log_ring *access;
	struct reclaim reclaim;
	struct slab tunnels[TUNNEL_SIZES];
	struct resolver *resolver;
	uint64_t *cells;
	struct door *doors;
	unsigned n_doors, doors_open;
	struct list busy, idle; /* conns; idle: the idlest at the head */
	struct list prefaces;   /* PROXY headers awaited */
	unsigned n_conns, n_tunnels;
	uint32_t slot_shard_conns, slot_handovers;
	uint32_t slot_ends[WHY_ROWS];
	uint32_t slot_tunnel_up, slot_tunnel_down;
	uint64_t next_conn;
	bool draining, stopping, told;
	struct task check; /* whether all has ended */
	void (*done)(void *arg);
	void *done_arg;
};
struct service *service_of(struct loop *);
/* Something has ended: while stopping, it may have been the last. */
void service_ended_one(struct service *);

/* steps.c */
extern const struct steps serve_steps;

/* account.c: what of a request goes to log and metrics */
void account_exchange(struct service *, struct exchange *);
void account_refused(struct service *, const struct door *, const struct addr *peer,
		     uint64_t conn_id, const struct why *);
void account_conn_end(struct service *, const struct why *);
struct access_names account_names(const struct exchange *);
struct door *account_door(struct service *, const struct listener_conf *);

/* handoff.c: a tunnel begins: both links go to relay/ */
void handoff_open(struct service *);
void handoff_close(struct service *); /* no tunnel is left */
bool handoff_tunnel(struct service *, struct exchange *);

/* admit.c: from an accepted descriptor to a conn */
extern const struct acceptor_ops serve_acceptor;
void admit_shutdown(struct service *); /* what still waits for a PROXY header is closed */
/* One connection or tunnel more or less; gone: acceptors may go on, and it may have been the
 * last. */
void admit_came(struct service *);
void admit_gone(struct service *);

#endif
