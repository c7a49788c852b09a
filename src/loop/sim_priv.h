/* sim_priv.h -- what sim.c (the loop's back end) and sim_world.c (everything around it) share.
 *
 *   sock    culvert's end of a connection, or its listener, by descriptor (SIM_FD_FIRST and up, so
 *           that a call past the loop meets no real file)
 *   wire    a connection: two flows, a sock at one end, a peer at the other; lives as long as the
 *           world
 *   flow    the bytes of one direction, of which the first `arrived` may be read
 *   event   what will happen at a moment: bytes or an end arrive, a connect is answered, a test's
 *           own */
#ifndef LOOP_SIM_PRIV_H
#define LOOP_SIM_PRIV_H

#include "loop/priv.h"
#include "loop/sim.h"

#define SIM_FD_FIRST 1000

struct name {
	struct sockaddr_storage ss;
	socklen_t n;
};

struct flow {
	uint8_t *p;
	size_t n, room, arrived;
	bool fin, fin_arrived;
};

/* Directions: towards culvert, towards the peer. */
enum { IN = 0, OUT = 1 };

struct sim_wire {
	struct sim_wire *next;
	struct sim *sim;
	struct sock *sock; /* NULL: closed, or not accepted yet */
	struct sim_peer peer;
	struct name there, here; /* of the peer, of culvert's end */
	struct flow flow[2];
	uint32_t window;
	bool closed; /* culvert has closed it in peace: what comes late is answered by a reset */
	bool dead;   /* reset, from either side */
};

enum sock_kind { SOCK_FRESH = 1, SOCK_LISTENS, SOCK_CONNECTS, SOCK_CONNECTED };

struct sock {
	enum sock_kind kind;
	int err; /* told once */
	bool reset_on_close, shut_read, shut_write, accept_shared;
	struct name name; /* of a listener */
	struct sim_wire *wire;
	struct sim_wire **queue; /* of a listener: not accepted yet */
	unsigned n_queue, room_queue;
};

struct event {
	uint64_t at, tie;
	void (*fn)(void *arg);
	void *arg;
};

struct place { /* an address and what it does */
	struct place *next;
	struct name name;
	enum sim_answer answer;
	void (*on_peer)(struct sim_peer *, void *arg);
	void *arg;
};

struct sim {
	struct loop *loop;
	uint64_t now_us, seed, n_events_ever;
	int64_t wall_us;
	bool rough;
	uint32_t window;
	uint16_t next_port;
	struct event *events; /* a heap, the next one first */
	size_t n_events, room_events;
	struct sock **socks; /* by descriptor - SIM_FD_FIRST */
	unsigned n_socks, room_socks;
	struct place *places;
	struct sim_wire *wires;
	struct list ending; /* of op.back.node */
};

/* --- sim_world.c --- */
void *sim_grown(void *p, size_t need, size_t *room, size_t each); /* realloc'd; never fails */
void *sim_fresh(size_t n);                                        /* zeroed; never fails */
uint64_t sim_random64(struct sim *);
bool sim_odd(struct sim *, uint32_t n); /* one time in n; never when calm */
/* How much of n happens at once: all, or rough: often less, now and then one byte. */
size_t sim_piece(struct sim *, size_t n);
uint64_t sim_latency(struct sim *); /* of one arrival, us */
bool sim_run_events(struct sim *);  /* those that are due; whether there were any */
void sim_flow_put(struct flow *, const void *, size_t n);
void sim_flow_drop(struct flow *, size_t n); /* of what has arrived, from the head */
static inline bool sim_flow_ended(const struct flow *f)
{
	return f->fin_arrived && f->arrived == f->n;
}
size_t sim_room(const struct sim_wire *, int dir); /* bytes that the direction still takes */
void sim_room_again(struct sim_wire *);            /* culvert's end took bytes */
void sim_arrive_out(struct sim_wire *);            /* schedules an arrival at the peer */
void sim_send_fin(struct sim_wire *);
void sim_send_reset(struct sim_wire *);
struct sim_wire *sim_wire_new(struct sim *, const struct name *there, const struct name *here);
struct name sim_name(const struct sockaddr *, socklen_t);
const struct place *sim_place(const struct sim *, const struct name *); /* NULL: nobody is there */
int sim_sock_new(struct sim *, enum sock_kind);                         /* its descriptor */
/* asserts that it is there */
void sim_sock_free(struct sim *, int fd); /* who waits in its queue is reset */
struct sock *sim_sock(const struct sim *, int fd);

#endif
