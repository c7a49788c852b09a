/* exchange.h -- one request and its answer; knows no protocol and no socket.
 *
 *   down (h1, later h2, h3) --> req pipe --> up (upstream, tunnel, synth, …)
 *                           <-- rsp pipe <--
 *
 *   end     who stands at one side: reads one pipe and feeds the other
 *   pipe    head -> body -> trailers, one direction; its state moves right only; bytes wait in its
 *           bufq between two marks
 *   stop    a reason why the feeder must not feed; it feeds while the set is empty
 *   cut     the abnormal end; the first cause (a row of why.tbl) wins
 *   step    one stage of the path (serve/steps.c is the table); the driver runs them one after the
 *           other, a step may park
 *   driver  the task that calls ends and steps; the only caller of both
 *
 * No re-entrancy: calls into an end and into steps come from the driver (the loop's run queue),
 * never from inside a pipe_*(), exchange_*() or end_*() call.  An end may call any of these from
 * its callbacks and from its own link's callbacks.
 *
 *   life:  exchange_new (by the codec, at the first byte of a head) … both ends left -> log step ->
 *   freed by the driver
 *   why:   a refusal (exchange_refuse) is answered by a page that takes the same way as every
 *   answer; a failed try (end_fail of up before
 *          a response head) is judged by the flow step: again, or a page; after a response head it
 *          is a visible cut. */
#ifndef EXCHANGE_EXCHANGE_H
#define EXCHANGE_EXCHANGE_H

#include "base/addr.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/why.h"
#include "exchange/head.h"
#include "loop/loop.h"

struct exchange;
struct end;
struct pipe;

/* --- settings that every exchange has (exchange_conf.c describes them) --- */
#define MS_OFF     0u         /* `off` */
#define MS_INHERIT UINT32_MAX /* not set here: the next outer place says */
#define N_OFF      UINT64_MAX /* `off` of a size or count */
#define N_INHERIT  (UINT64_MAX - 1)

struct timeouts { /* milliseconds */
	uint32_t connect, queue, request_head, request_idle, first_byte, response_idle, send_idle,
		keep_alive, upstream_keep_alive, tunnel_idle, total;
};

struct limits { /* bytes or counts; what may differ by listener or route */
	uint64_t request_head, request_target, request_headers, request_body, body_rate_min,
		response_head;
};

struct limits_conf { /* top level: what all have, and what is the process's */
	struct limits each;
	uint64_t connections, memory; /* 0: auto */
	uint32_t upstream_pool;
};

struct setting;
struct setting_group;
extern const struct setting_group exchange_conf_timeouts_group; /* struct timeouts */
extern const struct setting_group exchange_conf_limits_group;   /* struct limits */
/* top level; limits: struct limits_conf */
extern const struct setting exchange_conf_timeouts, exchange_conf_limits;
extern const struct setting exchange_conf_half_close; /* uint8_t: 0 deliver, 1 abort */

/* --- pipes --- */
enum pipe_state { PIPE_EMPTY = 0, PIPE_HEAD, PIPE_BODY, PIPE_ENDED, PIPE_CUT };
enum stop {
	STOP_FULL = 1,   /* over the high mark; or nobody takes it, and enough was discarded */
	STOP_CONNECT = 2 /* nobody stands there yet who could use it: dialling, or in a queue */
};

#define PIPE_HIGH        (64u * 1024)
#define PIPE_INTERIM_MAX 100
#define PIPE_DISCARD_MAX (64u * 1024)

struct interim {
	struct interim *next;
	struct head head;
};

struct pipe {
	uint8_t state; /* enum pipe_state */
	uint8_t stops; /* set of enum stop */
	/* what is put is discarded, up to PIPE_DISCARD_MAX, then the feeder is stopped for good
	 * (STOP_FULL) */
	bool reader_gone;
	bool ended;   /* the feeder has put all; PIPE_ENDED once the reader took all */
	bool keeping; /* what is taken is also kept, for pipe_rewind() */
	struct exchange *x;
	struct end *feeder, *reader;
	struct head *head;     /* from PIPE_HEAD on */
	struct head *trailers; /* NULL: none; complete once `ended` */
	struct interim *interims, **interims_tail;
	uint32_t n_interims;
	struct bufq *kept; /* in the arena; NULL: never asked to keep */
	uint64_t kept_max;
	uint64_t total; /* body bytes put */
	uint64_t taken; /* body bytes taken by this try's reader */
	uint64_t discarded;
	struct bufq q; /* last: it is not zeroed */
};

/* Feeder's side.  `head` lives in the exchange's arena. */
void pipe_head(struct pipe *, struct head *);
/* A 1xx head, copied; false: the head came before it, more than PIPE_INTERIM_MAX, or no memory. */
bool pipe_inform(struct pipe *, const struct head *interim) MUST_CHECK;
/* Moves n bytes from the head of `from` in, or drops them when nobody will take them (cut,
 * reader_gone).  False: stop feeding now; on_room() will come, but never once reader_gone has had
 * its PIPE_DISCARD_MAX.  Out of memory cuts the exchange. */
bool pipe_put(struct pipe *, struct bufq *from, uint64_t n);
void pipe_end(struct pipe *, struct head *trailers); /* NULL: none */
static inline bool pipe_wants(const struct pipe *p)
{
	return p->stops == 0;
}

/* Reader's side. */
/* moves; lets the feeder go on at the low mark */
uint64_t pipe_take(struct pipe *, struct bufq *to, uint64_t max);
/* As pipe_take(), but copies all n bytes behind what `to` holds; false: nothing was taken, as they
 * do not lie in one piece or there is no memory. */
bool pipe_take_copy(struct pipe *, struct bufq *to, struct seg_pool *, uint32_t n) MUST_CHECK;
struct interim *pipe_take_interim(struct pipe *); /* in order; NULL: none */
static inline bool pipe_done(const struct pipe *p)
{
	return p->ended && bufq_empty(&p->q) && !p->interims;
}
/* The reader wants no more of it, or has left: what is queued is dropped, what comes is
 * discarded. */
void pipe_reader_gone(struct pipe *);
void pipe_stop(struct pipe *, enum stop); /* one reason more not to feed */
void pipe_go(struct pipe *, enum stop);   /* one less; the last one: on_room() */
/* Keeps what is taken, up to max bytes, so that another try can read the request again.  No
 * answerer asks for it yet: a request of which body bytes were taken is not tried twice. */
void pipe_keep(struct pipe *, uint64_t max);
bool pipe_can_rewind(const struct pipe *); /* nothing was taken, or all of it is kept */
bool pipe_rewind(struct pipe *); /* everything taken so far is there again; false: no longer kept */
void pipe_assert(const struct pipe *);

/* --- ends --- */
struct link;
struct end_ops {
	const char *name;
	/* my reading pipe has something: interim, head, bytes, the end */
	void (*on_data)(struct end *);
	void (*on_room)(struct end *); /* my feeding pipe's stops fell to 0 */
	/* at most once; answer with end_leave, at once or when the ops are idle */
	void (*on_cut)(struct end *, const struct why *);
	/* 101 and CONNECT: gives the link away with its unread bytes; the end has left then.  Asked
	 * of both ends when x->tunnel_ready; NULL: an end that never sets x->tunnel or
	 * x->tunnel_ready. */
	struct link *(*detach)(struct end *, struct bufq *unread);
	void (*dump)(const struct end *, int fd);
};

struct end {
	const struct end_ops *ops;
	struct exchange *x; /* NULL: not attached */
	uint8_t due;        /* the driver's: DATA, ROOM, CUT */
	bool cut_heard;
};

/* --- what is remembered for log and metrics --- */
struct exchange_facts {
	/* loop_now_us at the first byte, at the complete head */
	uint64_t open_us, head_us;
	int64_t wall_us;                           /* of the first byte */
	uint64_t resolve_us, queue_us, connect_us; /* durations, summed over attempts */
	/* moments: request sent, first byte of the answer, end; 0: never */
	uint64_t sent_us, first_byte_us, end_us;
	uint64_t bytes_in, bytes_out; /* on the client's connection: heads and bodies */
	uint16_t status, upstream_status;
	uint16_t attempts;
	bool reused, complete, own_answer; /* own_answer: made by culvert (synth) */
	const char *upstream, *server;     /* names out of the plan; borrowed */
	struct addr address;               /* the one dialled; len 0: none */
	const char *detail;                /* of http_request_error:<detail>; static */
};

/* --- the path --- */
enum verdict {
	STEP_NEXT = 0,
	STEP_PARK,  /* the same step is run again at the next wake */
	STEP_AGAIN, /* back to steps->again */
	STEP_DONE   /* nothing is left: free it */
};
struct step {
	const char *name;
	enum verdict (*run)(struct exchange *);
};
struct steps {
	const struct step *step;
	uint8_t n;
	uint8_t again;  /* STEP_AGAIN: where another try begins (route) */
	uint8_t answer; /* where a refusal goes (begin) */
	uint8_t flow;   /* where a cut exchange waits for its ends to leave */
	/* Filters of the answer: called once, when its head stands, before down hears of it. */
	void (*answer_head)(struct exchange *);
	/* last call, before the memory goes; NULL: nothing to do */
	void (*freed)(struct exchange *);
};

/* What a client connection holds on to between its requests: an upstream connection that carried
 * NTLM or Negotiate. */
struct pin {
	void *held; /* NULL: nothing */
	/* set together with held; called when the client connection ends */
	void (*drop)(struct pin *);
};

struct listener_conf;
struct site_conf;
struct route_conf;
struct plan;

#define EXCHANGE_MAGIC 0xe8c4a96eu
struct exchange {
	uint32_t magic;
	uint8_t step; /* index */
	bool running, woken;
	bool answer_seen;  /* steps->answer_head was called */
	bool logged;       /* its line is written, or a tunnel will write it */
	bool answering;    /* the refusal is on its way as a page */
	bool tunnel_ready; /* its head is out: both links may be taken */
	/* tunnel: 101 or CONNECT 2xx: the flow step detaches both ends */
	bool tunnel;
	bool refused; /* exchange_refuse was called: `why` shall become a page */
	bool cut;
	bool forward; /* forward direction */
	bool secure;  /* the client came over TLS: never yet */
	/* the steps have judged the body by `limits`, which are its route's: from here on whoever
	 * reads it does */
	bool body_limited;
	struct loop *loop;
	struct task task; /* the driver */
	const struct steps *steps;
	struct end *down, *up;     /* NULL once they have left */
	const struct why *why;     /* first cause; why(WHY_NONE) while all is well */
	const struct why *try_why; /* of the last failed try; why(WHY_NONE) */
	struct arena arena;
	const struct timeouts *timeouts;
	const struct limits *limits;
	const struct plan *plan; /* the shard holds it while exchanges run */
	const struct listener_conf *listener;
	const struct site_conf *site;
	const struct route_conf *route;
	struct pin *pin;    /* of the client connection; NULL: it has none */
	void *origin;       /* origin/'s own, in the arena: which servers were tried … */
	struct alarm total; /* timeouts.total */
	uint64_t conn_id, request_id;
	struct addr peer; /* the socket's, or the PROXY header's */
	/* by trusted_proxies; what ACLs and logs use; = peer otherwise */
	struct addr client;
	struct exchange_facts facts;
	struct list node;     /* the shard's list of exchanges */
	struct pipe req, rsp; /* last: pipe_open() sets them up */
};

struct exchange_params {
	const struct steps *steps;
	struct end *down;
	const struct plan *plan;
	const struct listener_conf *listener;
	const struct timeouts *timeouts;
	const struct limits *limits;
	uint64_t conn_id;
	const struct addr *peer;
	struct pin *pin;
	bool forward, secure;
};

/* NULL: out of memory (the codec answers with a constant 503 and closes). Runs the first step later
 * this turn. */
struct exchange *exchange_new(struct loop *, const struct exchange_params *) MUST_CHECK;
/* x->timeouts has been replaced: `total` counts from the beginning all the same. */
void exchange_retimed(struct exchange *);
void exchange_wake(struct exchange *); /* run the driver later this turn */
/* Answers with a page instead of going on, or, once a response head stands, cuts; the first call
 * wins.  `detail`: static, or NULL. */
void exchange_refuse(struct exchange *, const struct why *, const char *detail);
/* The end of everything; idempotent; the first cause wins, and a refusal stays the cause when its
 * page is cut.  Both pipes are cut; each end hears on_cut() once. */
void exchange_cut(struct exchange *, const struct why *);
/* Puts an answerer in place (it becomes reader of req, feeder of rsp); it hears on_data when the
 * driver runs. */
void exchange_attach_up(struct exchange *, struct end *);
/* The up end could not answer, or not to the end: leaves too. Before a response head the flow step
 * decides; after it: a visible cut. */
void end_fail(struct end *, const struct why *);
/* The end is done with this exchange and must not be called any more. */
void end_leave(struct end *);

/* --- per shard --- */
int exchange_shard_open(struct loop *) MUST_CHECK; /* 0 or -ENOMEM */
void exchange_shard_close(struct loop *);          /* asserts that none is left */
unsigned exchange_count(struct loop *);
void exchange_each(struct loop *, void (*visit)(struct exchange *, void *), void *arg);
void exchange_assert(const struct exchange *);
void exchange_dump(const struct exchange *, int fd);

#endif
