/* admin.c -- the admin port's own small HTTP/1.1 server: GET and HEAD, a table of paths, one answer each.
 *
 * It is apart from the data path on purpose: when that is at its limits, this still answers (THREATS L06).  At most ADMIN_CONNS
 * connections, at most HEAD_MAX bytes of a request, deadlines on everything.  A page of a browser cannot use it: no CORS, and a
 * Host that is a name of somebody else's is refused (DNS rebinding, THREATS L02). */
#include "ops/admin.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdlib.h>

#define ADMIN_CONNS 64u
#define HEAD_MAX    (16u * 1024)
#define HEAD_MS	    10000u
#define IDLE_MS	    30000u
#define REPLY_HEAD  512u

struct admin {
	struct loop *loop;
	const struct admin_conf *conf;
	struct service_shared *shared;
	struct acceptor *acceptor;
	struct list conns;
	unsigned n_conns;
};

struct admin_conn {
	struct admin *admin;
	struct list node;
	struct link *link;
	struct bufq in, out;
	struct alarm alarm;
	struct task task; /* frees it */
	bool close_after, answering, eof, closed;
};

struct reply {
	unsigned status;
	struct str type, body;
	char *owned; /* malloc'd body */
	struct str extra; /* whole field lines */
};

/* ---------------------------------------------------------------- connections */
static void on_free(struct task *t)
{
	free(container_of(t, struct admin_conn, task));
}

static void forget(struct admin_conn *c)
{
	c->closed = true;
	loop_alarm_off(&c->alarm);
	bufq_free(&c->in);
	bufq_free(&c->out);
	list_remove(&c->node);
	c->admin->n_conns--;
	loop_soon(c->admin->loop, &c->task);
}

static void end_conn(struct admin_conn *c)
{
	if (c->closed)
		return;
	link_close_lingering(&c->link, &c->out);
	forget(c);
}

static void cut_conn(struct admin_conn *c)
{
	if (c->closed)
		return;
	link_close(&c->link);
	forget(c);
}

static void on_late(struct alarm *a)
{
	cut_conn(container_of(a, struct admin_conn, alarm));
}

/* ---------------------------------------------------------------- answers */
static bool put(struct admin_conn *c, const void *p, size_t n)
{
	struct seg_pool *pool = loop_segs(c->admin->loop, n > 2048 ? SEG_LARGE : SEG_SMALL);

	return bufq_put_copy(&c->out, pool, p, (uint32_t)n);
}

static void send_reply(struct admin_conn *c, const struct reply *r, bool head_only)
{
	char text[REPLY_HEAD];
	struct out o;
	bool ok;

	out_init(&o, text, sizeof(text));
	out_lit(&o, "HTTP/1.1 ");
	out_u64(&o, r->status);
	out_char(&o, ' ');
	out_str(&o, head_reason(r->status));
	out_lit(&o, "\r\nDate: ");
	out_str(&o, loop_http_date(c->admin->loop));
	out_lit(&o, "\r\nContent-Type: ");
	out_str(&o, r->type);
	out_lit(&o, "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Length: ");
	out_u64(&o, r->body.n);
	out_lit(&o, "\r\n");
	out_str(&o, r->extra);
	if (c->close_after)
		out_lit(&o, "Connection: close\r\n");
	out_lit(&o, "\r\n");
	ok = out_ok(&o) && put(c, text, out_len(&o)) && (head_only || !r->body.n || put(c, r->body.p, r->body.n));
	if (!ok) {
		cut_conn(c);
		return;
	}
	c->answering = true;
	loop_alarm(c->admin->loop, &c->alarm, IDLE_MS);
	link_send(c->link, &c->out);
}

static struct reply plain(unsigned status, struct str body)
{
	return (struct reply){ .status = status, .type = STR("text/plain; charset=utf-8"), .body = body };
}

static struct reply get_health(struct admin *a)
{
	(void)a;
	return plain(200, STR("ok\n"));
}

static struct reply get_ready(struct admin *a)
{
	return atomic_load_explicit(&a->shared->draining, memory_order_relaxed) ? plain(503, STR("draining\n")) :
										     plain(200, STR("ready\n"));
}

static struct reply get_metrics(struct admin *a)
{
	size_t n;
	char *text = metrics_text(a->shared->metrics, &n);

	if (!text || n > UINT32_MAX) {
		free(text);
		return plain(503, STR("out of memory\n"));
	}
	return (struct reply){ .status = 200,
			       .type = STR("text/plain; version=0.0.4; charset=utf-8"),
			       .body = { .p = text, .n = (uint32_t)n },
			       .owned = text };
}

static const struct {
	struct str path;
	bool open; /* needs no token */
	struct reply (*get)(struct admin *);
} paths[] = {
	{ STR("/healthz"), true, get_health },
	{ STR("/readyz"), true, get_ready },
	{ STR("/metrics"), false, get_metrics },
};

/* ---------------------------------------------------------------- who may */
/* Reads all of both, whatever differs. */
static bool same_secret(struct str a, struct str b)
{
	unsigned char differs = a.n != b.n;

	for (uint32_t i = 0; i < a.n; i++)
		differs |= (unsigned char)(a.p[i] ^ (b.n ? b.p[i % b.n] : 0));
	return !differs;
}

static bool has_token(const struct admin_conf *conf, const struct head *h)
{
	const struct field *f = head_find(h, HDR_AUTHORIZATION);
	struct str v = f ? field_value(f) : STR_NONE;

	if (!conf->token.n)
		return true;
	if (!str_istarts(v, STR("Bearer ")))
		return false;
	v.p += 7;
	v.n -= 7;
	return same_secret(conf->token, str_trim(v));
}

/* An address, localhost, or no dot at all: a page under a name of its own cannot be that. */
static bool host_is_ours(const struct head *h)
{
	struct addr ignored;

	if (!h->host.n || addr_parse_ip(h->host, 0, &ignored) || str_eq(h->host, STR("localhost")))
		return true;
	return !memchr(h->host.p, '.', h->host.n);
}

static struct reply decide(struct admin *a, const struct head *h)
{
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		if (!str_eq(paths[i].path, h->path))
			continue;
		if (h->method != METHOD_GET && h->method != METHOD_HEAD) {
			struct reply r = plain(405, STR("only GET and HEAD\n"));

			r.extra = STR("Allow: GET, HEAD\r\n");
			return r;
		}
		if (!paths[i].open && !a->conf->token.n && (head_find_name(h, STR("origin")) || !host_is_ours(h)))
			return plain(403, STR("not for other sites' pages\n"));
		if (!paths[i].open && !has_token(a->conf, h)) {
			struct reply r = plain(401, STR("a token is needed\n"));

			r.extra = STR("WWW-Authenticate: Bearer realm=\"culvert admin\"\r\n");
			return r;
		}
		return paths[i].get(a);
	}
	return plain(404, STR("try /healthz, /readyz, /metrics\n"));
}

/* ---------------------------------------------------------------- requests */
static void refuse(struct admin_conn *c, struct str text)
{
	struct reply r = plain(400, text);

	c->close_after = true;
	send_reply(c, &r, false);
}

static void answer(struct admin_conn *c, const struct head *h)
{
	struct reply r = decide(c->admin, h);

	c->close_after = h->body != BODY_NONE || (h->flags & HEAD_CLOSE) ||
			 (h->version < 11 && !(h->flags & HEAD_KEEP_ALIVE));
	send_reply(c, &r, h->method == METHOD_HEAD);
	free(r.owned);
}

/* One head at a time; what is pipelined behind it waits. */
static void read_request(struct admin_conn *c)
{
	static const struct h1_limits lim = { .head = HEAD_MAX, .target = 4096, .fields = 100 };
	struct h1_scan scan = { 0 };
	struct head h = { 0 };
	struct arena a;
	char text[HEAD_MAX];
	uint32_t n = bufq_peek(&c->in, text, sizeof(text));
	int32_t used = h1_scan(&scan, H1_REQUEST, &lim, text, n);

	if (used == 0 && n < sizeof(text))
		return;
	if (used <= 0) {
		refuse(c, STR("malformed request\n"));
		return;
	}
	bufq_drop(&c->in, (uint32_t)used);
	arena_init(&a, loop_arenas(c->admin->loop));
	if (h1_request(&h, &a, text + scan.skip, (uint32_t)used - scan.skip, &scan, &lim) < 0)
		refuse(c, STR("malformed request\n"));
	else
		answer(c, &h);
	arena_free(&a);
}

static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct admin_conn *c = l->owner;

	if (res < 0) {
		cut_conn(c);
		return;
	}
	c->eof |= res == 0;
	if (res > 0 && (!bufq_put_copy(&c->in, loop_segs(l->loop, SEG_SMALL), (*seg)->data, (uint32_t)res) || c->in.bytes > HEAD_MAX)) {
		cut_conn(c);
		return;
	}
	if (c->answering)
		return;
	if (c->eof) {
		cut_conn(c);
		return;
	}
	loop_alarm(c->admin->loop, &c->alarm, HEAD_MS);
	read_request(c);
}

static void on_sent(struct link *l, int32_t n)
{
	struct admin_conn *c = l->owner;

	if (n < 0) {
		cut_conn(c);
		return;
	}
	loop_alarm(c->admin->loop, &c->alarm, IDLE_MS);
	if (!bufq_empty(&c->out)) {
		if (!link_sending(l))
			link_send(l, &c->out);
		return;
	}
	c->answering = false;
	if (c->close_after || (c->eof && bufq_empty(&c->in))) {
		end_conn(c);
		return;
	}
	if (!bufq_empty(&c->in))
		read_request(c);
}

/* ---------------------------------------------------------------- accepting */
static bool may(struct acceptor *acceptor)
{
	const struct admin *a = acceptor_owner(acceptor);

	return a->n_conns < ADMIN_CONNS;
}

static void on_accept(struct acceptor *acceptor, int fd, const struct addr *peer)
{
	struct admin *a = acceptor_owner(acceptor);
	struct admin_conn *c;

	if (!access_from(a->conf->allow_from, a->conf->n_allow_from, peer)) {
		log_say(LOG_WARN, "admin port: a client that allow_from does not name was turned away");
		loop_close(a->loop, fd);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		loop_close(a->loop, fd);
		return;
	}
	c->admin = a;
	c->link = link_new(a->loop, fd, c);
	if (!c->link) {
		free(c);
		return;
	}
	bufq_init(&c->in, 0);
	bufq_init(&c->out, 0);
	alarm_init(&c->alarm, on_late);
	task_init(&c->task, on_free);
	c->link->on_recv = on_recv;
	c->link->on_sent = on_sent;
	list_push_tail(&a->conns, &c->node);
	a->n_conns++;
	loop_alarm(a->loop, &c->alarm, HEAD_MS);
	link_read(c->link);
}

static const struct acceptor_ops admin_acceptor = { .on_accept = on_accept, .may = may };

struct admin *admin_open(struct loop *l, const struct admin_conf *conf, int fd, bool shared, struct service_shared *s)
{
	struct admin *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->loop = l;
	a->conf = conf;
	a->shared = s;
	list_init(&a->conns);
	a->acceptor = acceptor_new(l, fd, shared, &admin_acceptor, a);
	if (a->acceptor)
		return a;
	free(a);
	return NULL;
}

void admin_stop(struct admin **ap)
{
	struct admin *a = *ap;

	*ap = NULL;
	if (!a)
		return;
	acceptor_stop(&a->acceptor, NULL);
	while (!list_empty(&a->conns)) {
		struct admin_conn *c = container_of(a->conns.next, struct admin_conn, node);

		cut_conn(c);
		loop_task_off(a->loop, &c->task);
		free(c);
	}
	free(a);
}
