/* wire.h -- codecs: bytes of a link to exchanges (server side), an exchange to bytes of a link
 * (client side).
 *
 * Syntax is pure code (h1_syntax.h); here are the connections.  House rule for safety: a message is
 * always written anew from its parsed form; received framing bytes are never forwarded; any doubt
 * about framing ends the connection.
 *
 *   conn    one client connection, server side: what serve/ sees of every codec (h1 today)
 *   client  one connection to a server (h1_client)
 *
 * Adding a protocol: a file here that makes a conn of a link, opens an exchange (exchange_new) at
 * the first byte of each request with what ops->fill() says, and is its down end; for the upstream
 * side a client that is an up end.  docs/ARCHITECTURE.md, "How to add", has the rest. */
#ifndef WIRE_WIRE_H
#define WIRE_WIRE_H

#include "exchange/exchange.h"
#include "link/link.h"
#include "wire/h1_syntax.h"

/* ---------------------------------------------------------------- server side */
enum conn_state {
	CONN_NEW = 0, /* no byte yet */
	CONN_IDLE,    /* between requests */
	CONN_ACTIVE,
	CONN_CLOSING /* closed() comes, or was */
};

struct conn;
struct conn_ops {
	/* A request begins: fills steps, plan, listener, timeouts, limits, forward. */
	void (*fill)(struct conn *, struct exchange_params *);
	/* Whether the connection may stay open after the answer at hand (false: draining, over a
	 * limit). */
	bool (*may_keep)(struct conn *);
	void (*moved)(struct conn *, enum conn_state from);
	/* The connection ended; its memory goes after this call.  WHY_NONE: with a request, whose
	 * own end tells why. */
	void (*closed)(struct conn *, const struct why *);
};

#define CONN_MAGIC 0xc0117ec7u
struct conn {
	uint32_t magic;
	uint8_t state; /* enum conn_state */
	const struct conn_ops *ops;
	void *owner;      /* serve/'s */
	struct list node; /* serve/'s lists */
	struct loop *loop;
	const struct timeouts *timeouts; /* the listener's: for what is no request yet */
	const struct limits *limits;
	uint64_t id;
	struct addr peer;
	uint64_t requests; /* begun */
	uint64_t since_ms; /* loop_now_ms when it began */
	struct pin pin;
	/* closes when idle, else after the answer at hand */
	void (*drain)(struct conn *);
	void (*cut)(struct conn *, const struct why *); /* at once, whatever runs */
	void (*dump)(const struct conn *, int fd);
};

struct conn_params {
	struct loop *loop;
	struct link *link; /* taken */
	const struct conn_ops *ops;
	void *owner;
	const struct timeouts *timeouts;
	const struct limits *limits;
	uint64_t id;
	struct addr peer;
	bool half_close_abort; /* client_half_close: abort */
};

/* HTTP/1.0 and 1.1 [RFC 9112].  NULL: out of memory (the link is closed).  `first`: bytes already
 * read (moved), or NULL. */
struct conn *h1_serve(const struct conn_params *, struct bufq *first) MUST_CHECK;

/* ---------------------------------------------------------------- client side */
struct h1_client;
enum client_end {
	CLIENT_REUSABLE, /* the answer is complete, the connection may serve another request */
	CLIENT_SPENT,    /* it is closed */
	CLIENT_DETACHED, /* its link went to a tunnel */
};
struct h1_client_ops {
	/* The exchange has left this connection.  SPENT, DETACHED: its memory goes after this
	 * call. */
	void (*left)(struct h1_client *, void *arg, enum client_end);
	/* Idle in the pool: the server closed it or sent something; its memory goes after this
	 * call. */
	void (*died)(struct h1_client *, void *arg);
};

/* What a failed try was like: judged by whoever may try again. */
struct client_result {
	bool any_sent;     /* bytes of the request may have reached the server */
	bool any_received; /* bytes of the answer came */
};

/* Takes the link.  NULL: out of memory (the link is closed). */
struct h1_client *h1_client_new(struct loop *, struct link *, const struct h1_client_ops *,
				void *arg) MUST_CHECK;
/* Becomes x's up end: writes x->req.head (`host`: its Host, empty: the head's own) and the body,
 * reads the answer.  `result` is kept up to date until the end has left (lives in the exchange's
 * arena).  A failure is end_fail(): what it means is in `result`. */
struct client_job {
	struct str host; /* overrides Host; empty: of the head */
	uint16_t host_port;
	bool host_is_v6;
	bool absolute; /* absolute-form: to a parent proxy */
	struct client_result *result;
};
void h1_client_begin(struct h1_client *, struct exchange *, const struct client_job *);
bool h1_client_usable(const struct h1_client *); /* idle, and nothing came since */
void h1_client_idle(struct h1_client *);         /* now in a pool: watches for the server's close */
void h1_client_close(struct h1_client **);
/* it carried NTLM or Negotiate: never another client's */
bool h1_client_pinned(const struct h1_client *);

int wire_shard_open(struct loop *) MUST_CHECK;
void wire_shard_close(struct loop *);

#endif
