/* link.h -- a byte pipe to a peer: a stack of layers over one socket (today: the plain socket; TLS
 * comes as a layer with the same contract).
 *
 *   link      one connection; has one owner, one reader and one writer at a time
 *   reader    gets what arrives: link->on_recv
 *   writer    gives what goes out as a bufq that the link borrows until it is empty or failed:
 *             link->on_sent
 *   listener  bound sockets of one listener, one per shard, or one that all share
 *   dial      from a name or path to a connected link: resolve, judge each address, happy eyeballs
 *             (RFC 8305)
 *
 * Callbacks come from loop_turn() only, never from inside a link_*() call; a callback may close its
 * link.
 *
 * Teardown: link_close() (or link_abort(): RST) takes the link; its callbacks are not called any
 * more; memory goes when its ops are idle.  What the kernel is just sending is taken out of the
 * borrowed queue and lives as long as it must, so the owner may free the queue at once. */
#ifndef LINK_LINK_H
#define LINK_LINK_H

#include "base/addr.h"
#include "base/buf.h"
#include "base/metric.h"
#include "base/why.h"
#include "loop/loop.h"

/* ------------------------------------------------------------------ link */
/* Whoever counts connections is told when one has really gone: its descriptor is closed and the
 * kernel has let go, FIN or RST is out.  May come from inside a call of this room: post mail. */
struct hold {
	void (*let_go)(struct hold *, struct loop *);
};

#define LINK_MAGIC 0x11c0ffeeu
struct link {
	uint32_t magic;
	int fd;
	struct loop *loop;
	struct op recv, send;
	/* res > 0: bytes at (*seg)->data[0..res), take the seg; 0: end of stream (once; reading is
	 * over); < 0: -errno (once; the connection is dead).  Bytes may come after link_pause(): at
	 * most LOOP_RECV_TURN more. */
	void (*on_recv)(struct link *, int32_t res, struct seg **seg);
	/* Bytes went out (n > 0; they are already dropped from the queue), or -errno: then nothing
	 * can be sent any more, but what the peer had sent before still comes to the reader.  When
	 * the queue is empty, or after an error, the borrow has ended. */
	void (*on_sent)(struct link *, int32_t n);
	void (*on_quiet)(struct link *);
	void *owner;       /* of reader and writer, for the callbacks */
	struct hold *hold; /* NULL: nobody counts it */
	struct bufq *out;  /* borrowed while sending */
	struct task flush;
	struct list hungry; /* waits for memory to receive into */
	uint64_t recv_bytes, sent_bytes;
	bool reading; /* the reader wants bytes */
	bool eof;     /* reading is over: end of stream or an error was told */
	bool dead;    /* an error was seen */
	bool closing; /* link_close() was called */
	/* Paused, POLLRDHUP is armed: an abort is told by on_recv(-ECONNRESET), a FIN is kept until
	 * reading goes on. */
	bool watching;
	bool rdhup;      /* FIN seen while paused */
	bool fin_wanted; /* after the queue */
	bool fin_sent;
	bool busy; /* in a callback: memory stays */
	bool gone; /* closed, and a turn has passed */
	uint8_t seg_class;
	/* in a row: receives that filled a small seg, or needed no large one */
	uint16_t full_recvs;
};

/* Takes fd (connected or accepted).  NULL: out of memory (fd is closed). */
struct link *link_new(struct loop *loop, int fd, void *owner) MUST_CHECK;
void link_read(struct link *l);  /* start or go on; no-op while reading and after the end */
void link_pause(struct link *l); /* stop; keeps watching for aborts */
/* Stops reading and watching altogether: on_quiet() when no op reads or polls the descriptor any
 * more, never from inside.  Then the caller may poll and splice l->fd itself; link_read() or
 * link_pause() take it back (the caller's poll must be idle then). */
void link_quiet(struct link *l, void (*on_quiet)(struct link *));
/* Sends what is in the queue now and what is added before it runs empty; gathered at the end of the
 * turn: one sendmsg per link and turn.  Call it again after adding to an empty queue.  Only one
 * queue at a time.  Constant spans must live until they are dropped from the queue, and those of
 * a closed link until the kernel has let go: they are static, or counted as segs are. */
void link_send(struct link *l, struct bufq *out);
static inline bool link_sending(const struct link *l)
{
	return l->out != NULL;
}
/* FIN after what was queued. */
void link_fin(struct link *l);
void link_close(struct link **lp); /* FIN; takes; NULL inside is accepted; what is queued is lost */
void link_abort(struct link **lp); /* RST; takes; NULL inside is accepted */
/* An early error answer must not be eaten by a RST: sends the queue (NULL: what is being sent),
 * then FIN, then drains at most 64 KiB or 2 s, then closes.  Takes the link and the queue's
 * bytes. */
void link_close_lingering(struct link **lp, struct bufq *out);
/* Whether an idle pooled link is still usable: no bytes wait to go out, no FIN, no error came.
 * Bytes that come are told to the reader, which must keep reading. */
bool link_idle_ok(const struct link *l);
int link_shard_open(struct loop *loop) MUST_CHECK; /* 0 or -ENOMEM */
/* At the end of a shard: cuts what lingers; true when nothing of this room needs the loop any more;
 * else turn the loop and ask again. */
bool link_shard_idle(struct loop *loop);
void link_shard_close(struct loop *loop);     /* asserts that nothing is left */
unsigned link_count(const struct loop *loop); /* links whose memory lives */
void link_assert(const struct link *l);
void link_dump(const struct link *l, int fd);

/* ------------------------------------------------------------------ listeners */
enum bind_kind { BIND_TCP = 0, BIND_UNIX };
struct bind_conf {       /* one `bind:` */
	struct str text; /* as written; shown in errors and logs */
	uint8_t kind;    /* enum bind_kind */
	/* "*:80", "[::]:80": v6 that takes v4 too; v4 where there is no IPv6 */
	bool dual;
	struct addr addr;
	struct str path;  /* BIND_UNIX */
	uint32_t mode;    /* of the Unix socket, 0: default 0666 & ~umask */
	uint32_t backlog; /* 0: 4,096 (the kernel cuts it to net.core.somaxconn) */
};

struct bound {    /* the keeper's result for one listener */
	int *fds; /* n of them: one per shard, or 1 that is shared; malloc'd */
	unsigned n;
	bool shared; /* accept single-shot (Unix socket, LISTEN_FDS) */
	bool passed; /* came by LISTEN_FDS */
};

#define LISTEN_WHY 256
/* Binds and listens: the first socket without SO_REUSEPORT, so that another owner shows, then the
 * group; TCP_NODELAY set on the listening sockets.  0, or -errno with a sentence in why that
 * says what to do ("bind 0.0.0.0:80: permission denied: start as root, or set
 * net.ipv4.ip_unprivileged_port_start").  Port 0: all of the group get the same free one. */
int listen_bind(const struct bind_conf *conf, unsigned shards, struct bound *out,
		char why[static LISTEN_WHY]) MUST_CHECK;
/* Closes; a Unix socket's path is removed (conf NULL: it stays). */
void listen_unbind(struct bound *b, const struct bind_conf *conf);
/* LISTEN_FDS (sd_listen_fds(3)): takes the descriptors from the environment whose address matches a
 * bind; each match fills bound[i], the others are zeroed; a leftover is an error.  0 or -errno. */
int listen_inherit(const struct bind_conf *const *binds, struct bound *bound, unsigned n,
		   char why[static LISTEN_WHY]) MUST_CHECK;

/* --- PROXY protocol v1 and v2, receiving (proxy-protocol.txt §2) --- pure */
struct proxyproto_conf {
	const struct addr_net *from;
	uint32_t n_from;
	uint32_t timeout_ms;
	bool on;
};
enum { PROXYPROTO_MAX = 4096 };
/* > 0: length of the header; *src is the client, *dst what it had connected to (len 0: LOCAL,
 * UNKNOWN, or no IP: use the socket's); 0: more bytes are needed; -EPROTO: not valid. */
int proxyproto_parse(const uint8_t *p, uint32_t n, struct addr *src, struct addr *dst);

/* --- accepting --- */
struct acceptor;
struct acceptor_ops {
	/* A new connection on this shard.  Takes fd.  `peer` is the socket's; a Unix peer has
	 * family AF_UNIX and no name. */
	void (*on_accept)(struct acceptor *a, int fd, const struct addr *peer);
	/* Whether one more may be accepted now; false: it stays in the kernel's queue; asked again
	 * at acceptors_go() and every 100 ms.  NULL: always. */
	bool (*may)(struct acceptor *a);
};
/* Accepts on fd until stopped.  EMFILE and friends: pauses, goes on when told (acceptors_go: a
 * connection closed) or after 100 ms.  NULL: out of memory.  fd is borrowed. */
struct acceptor *acceptor_new(struct loop *loop, int fd, bool shared,
			      const struct acceptor_ops *ops, void *owner) MUST_CHECK;
void *acceptor_owner(const struct acceptor *a);
void acceptors_go(struct loop *loop);
/* Drain: accepts until EAGAIN what already queues (without asking may()), then stops; done(owner)
 * when it has, never from inside this call.  The descriptor stays open: all members of a group
 * close together.  done NULL: stops at once, nothing more is accepted. */
void acceptor_stop(struct acceptor **ap, void (*done)(void *owner));

/* Accept-time balancing: a fresh fd may be handed to a much less loaded shard (more than 1.25 × and
 * 8 connections below); loads are one atomic per shard. */
struct handover;
struct handover *handover_new(unsigned n_shards); /* one per process; NULL: out of memory */
void handover_free(struct handover **hp);
void handover_join(struct handover *h, struct loop *loop); /* this shard takes part */
void handover_leave(struct handover *h, struct loop *loop);
void handover_count(struct handover *h, unsigned shard, int delta); /* its connections */
/* The shard that should serve: `shard` itself nearly always. */
unsigned handover_pick(const struct handover *h, unsigned shard);
struct loop *handover_loop(const struct handover *h, unsigned shard); /* NULL: does not take part */

/* ------------------------------------------------------------------ names */
enum resolve_prefer { PREFER_AUTO = 0, PREFER_IPV4, PREFER_IPV6 };
struct resolver_conf {
	const struct addr *servers; /* with ports; borrowed during resolver_new() */
	uint32_t n_servers;         /* 0: auto, resolv.conf, followed when it changes */
	uint32_t timeout_ms, attempts, negative_ttl_ms, stale_ms;
	uint8_t prefer;
	const char *hosts_path;  /* NULL: /etc/hosts; "": none.  For tests */
	const char *resolv_path; /* NULL: /etc/resolv.conf.  For tests */
};
#define RESOLVE_ADDRS 16
struct answer { /* what a name has: counted, one shard */
	uint32_t refs;
	uint32_t n;
	uint64_t expires_ms;
	bool stale; /* served past its TTL because the servers do not answer */
	uint8_t pool;
	struct budget *budget;           /* what it is booked in; the loop's */
	struct addr addr[RESOLVE_ADDRS]; /* port 0; A and AAAA */
};
struct resolver;
struct resolve; /* one question; embedded by nobody: made by resolve_name */
/* res 0: answer (borrowed; count it with answer_ref to keep it); -ENOENT: NXDOMAIN, no address, or
 * not a host name; -ETIMEDOUT; -EIO: servers failed; -ENOMEM; -ECANCELED: the resolver is freed. */
typedef void resolve_fn(void *arg, int res, struct answer *a);
/* Order of dns_slots, the series of culvert_dns_queries_total{result}; NULL: not counted. */
enum resolve_count {
	RESOLVE_HIT = 0,
	RESOLVE_STALE,
	RESOLVE_OK,
	RESOLVE_NXDOMAIN,
	RESOLVE_TIMEOUT,
	RESOLVE_ERROR,
	RESOLVE_COUNTS
};
struct resolver *resolver_new(struct loop *loop, const struct resolver_conf *conf, uint64_t *cells,
			      const uint32_t *dns_slots) MUST_CHECK;
/* Questions that still run get -ECANCELED, at once.  Not from inside a resolve_fn. */
void resolver_free(struct resolver **rp);
enum resolve_flag {
	RESOLVE_SEARCH = 1, /* the operator's own names: resolv.conf's search list is used, and the
	                     * last good answer is kept (for stale_ms) over an NXDOMAIN too */
	RESOLVE_FRESH = 2,  /* not from the cache: the last answer's addresses refused; at most once
	                     * a second per name, else as usual */
};
/* From cache, /etc/hosts or the network; single flight per name.  Calls back from the loop, never
 * from inside this call; NULL: out of memory (then it does not call).  The name is copied. */
struct resolve *resolve_name(struct resolver *r, struct str name, unsigned flags, resolve_fn *fn,
			     void *arg) MUST_CHECK;
void resolve_cancel(struct resolve **qp); /* no call back any more; NULL inside is accepted */
void answer_ref(struct answer *a);
void answer_drop(struct answer **ap);
/* The sim and tests put their own resolver in place: called instead of the network (and of the
 * hosts file); it ends in resolver_fake_answer(), then or later.  res as of resolve_fn. */
void resolver_fake(struct resolver *r, void (*ask)(void *arg, struct str name), void *arg);
void resolver_fake_answer(struct resolver *r, struct str name, int res, const struct addr *addr,
			  uint32_t n, uint32_t ttl_s);

/* ------------------------------------------------------------------ dial */
struct dial_result {
	/* why(WHY_NONE): connected.  All addresses denied: IP_PROHIBITED */
	const struct why *why;
	struct addr address; /* the last one dialled; len 0: none */
	uint64_t resolve_us, connect_us;
};
struct dial_params {
	struct loop *loop;
	struct resolver *resolver;
	struct str host;  /* name or address literal; borrowed until done */
	bool literal;     /* host is `addr` */
	struct addr addr; /* literal: the address, with port; AF_UNIX goes by `path` */
	struct str path;  /* a Unix socket; empty: TCP */
	uint16_t port;
	unsigned resolve_flags;
	uint8_t prefer;      /* enum resolve_prefer */
	uint32_t timeout_ms; /* over everything, resolving included; 0: off */
	/* Taken, whatever comes of it: the link's when connected, else let go when no socket of
	 * this dial is open.  With a hold no two sockets are open at once: addresses are tried one
	 * after the other, each for its share of the time.  NULL: nobody counts. */
	struct hold *hold;
	/* Asked for each address just before it is dialled; NULL: all may be.  Not for a path. */
	bool (*judge)(void *arg, const struct addr *a);
	/* Connected: link (taken by the callee; it has no owner and no callbacks yet); else NULL
	 * and the result says why.  The result is borrowed.  The dial is gone. */
	void (*done)(void *arg, struct link *l, const struct dial_result *r);
	void *arg;
};
struct dial;
/* Never calls done() from inside; NULL: out of memory. */
struct dial *dial_start(const struct dial_params *p) MUST_CHECK;
void dial_cancel(struct dial **dp); /* no call any more; NULL inside is accepted */

/* ------------------------------------------------------------------ settings: link_conf.c */
struct setting;
struct setting_group;
extern const struct setting link_conf_bind;                 /* struct bind_conf; its mode apart */
extern const struct setting_group link_conf_proxy_protocol; /* struct proxyproto_conf */
extern const struct setting link_conf_resolver;             /* struct resolver_conf */

#endif
