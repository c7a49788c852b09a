/* priv.h -- what tcp.c (life, copies) and splice.c (bulk) share: the relay and its two ways.
 *
 * A way reads one link and writes the other; way[i] reads link[i].
 *
 *     COPY ──bulk, a pipe may be had──► TURNING ──quiet, queue empty──► SPLICE
 *       ▲                                                                 │
 *       └──────── no pipe is left, or only crumbs come ◄──────────────────┘
 *
 * At most one of queue and pipe holds bytes, and neither is there while nothing is in flight. */
#ifndef RELAY_PRIV_H
#define RELAY_PRIV_H

#include "relay/relay.h"

#define RELAY_MAGIC 0x4e1a74e1u
#define RELAY_HIGH  (64u * 1024)  /* of a queue: reading pauses */
#define RELAY_BULK  (256u * 1024) /* received by full receives: the way is bulk */

enum { OUT = 0, BACK = 1 };

enum way_state {
	WAY_COPY = 0, /* through a queue */
	WAY_TURNING,  /* the link is asked to be quiet, the queue runs empty */
	WAY_SPLICE,   /* through a pipe of the kernel */
};

struct way {
	struct bufq *q; /* NULL: nothing in flight */
	uint64_t bytes;
	uint32_t run;     /* bytes that came by full receives, lately */
	uint8_t state;    /* enum way_state */
	bool eof : 1;     /* the source's FIN came */
	bool fin : 1;     /* and was passed on */
	bool paused : 1;  /* the queue is too long */
	bool hushing : 1; /* COPY beside a bulk way: paused by link_quiet(), on_quiet() will come */
	bool quiet : 1;   /* TURNING: nothing reads the link any more */
	bool plain : 1;   /* its sockets cannot be spliced */
};

struct bulk;
struct relay {
	uint32_t magic;
	bool over;
	struct list node;
	struct loop *loop;
	struct link *link[2]; /* down, up */
	struct way way[2];
	struct bulk *bulk; /* splice.c's; NULL: both ways copy */
	union {
		struct alarm idle; /* until it is over */
		struct {
			struct task task; /* says so, and frees */
			const struct why *cause;
		} end;
	};
	uint32_t idle_ms;
	uint32_t slot[2];
	uint64_t *cells;
	void (*ended)(void *arg, const struct relay_end *);
	void *arg;
};

/* A pipe of the kernel: in a bulk way while it holds bytes, else in the pool. */
struct kpipe {
	struct kpipe *next;
	int fd[2];
	uint32_t held; /* bytes */
};

struct kpipe_pool {
	struct kpipe *free;
	struct slab slab;
	unsigned made, max;
	uint64_t ask_ms;  /* the system refused one: not asked again before */
	uint64_t spliced; /* bytes, since the start */
};

struct relay_shard {
	struct slab relays, queues, bulks;
	struct list all;
	unsigned n; /* whose ended() was not called yet */
	struct kpipe_pool pipes;
};

static inline struct relay_shard *relay_shard(const struct loop *l)
{
	return loop_slot(l, SLOT_RELAY);
}

/* --- tcp.c --- */
void relay_end(struct relay *r, const struct why *cause); /* the first cause wins */
void relay_gone(struct relay *r);                         /* an op of an ended relay became idle */
void relay_moved(struct relay *r, unsigned way, uint64_t n); /* bytes were received */
/* After bytes went out, and at eof: passes the FIN on when everything before it is out. */
void relay_settle(struct relay *r, unsigned way);
void relay_assert(const struct relay *r);

/* --- splice.c --- */
void splice_open(struct relay_shard *s, struct loop *l, unsigned pipes_max);
void splice_close(struct relay_shard *s);
/* The way shall be bulk: from now on splice.c reads its link.  False: it stays as it is. */
bool splice_turn(struct relay *r, unsigned way);
void splice_go(struct relay *r, unsigned way); /* the queue of a turning way ran empty */
/* A copying way beside a bulk one pauses: the poll of its link is not link/'s to have. */
void splice_hush(struct relay *r, unsigned way);
bool splice_holds(const struct relay *r, unsigned way); /* bytes are in its pipe */
void splice_end(struct relay *r);                       /* the links are closed: pipes go */
bool splice_gone(struct relay *r); /* no op is armed any more; its memory is freed then */
void splice_dump(const struct relay *r, int fd);

#endif
