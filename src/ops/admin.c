/* admin.c -- the admin port's own small HTTP/1.1 server: GET and HEAD, a table of paths, one answer
 * each.
 *
 * It is apart from the data path on purpose: when that is at its limits, this still answers.
 * It takes nothing out of limits.connections nor limits.memory; its own limits are
 * ADMIN_CONNS connections, HEAD_MAX bytes of input each, and a deadline on everything.  When all
 * connections are taken, the one that has been quiet longest makes room.
 *
 *   accept -> head (HEAD_MS from its first byte) -> answer (ANSWER_MS) -> idle (IDLE_MS) -> ...
 *                                                       `-> lingering close
 *
 * A page in a browser cannot use it: there is no CORS, and without a token a request is refused
 * that says where it comes from, or whose Host is a name that somebody else may own (DNS
 * rebinding). */
#include "ops/admin.h"

#include "wire/wire.h"

#include <stdlib.h>

#define ADMIN_CONNS 64u
#define HEAD_MAX    (16u * 1024)
#define REPLY_HEAD  512u
#define HEAD_MS     10000u
#define ANSWER_MS   30000u
#define IDLE_MS     30000u

#define ADMIN_MAGIC 0xad317000u
struct admin {
	uint32_t magic;
	struct loop *loop;
	const struct admin_conf *conf;
	struct service_shared *shared;
	struct acceptor *acceptor;
	struct list conns; /* the one that has been quiet longest first */
	unsigned n_conns;
	struct slab arenas; /* not of limits.memory */
};

struct admin_conn {
	struct admin *admin;
	struct list node;
	struct link *link;
	char *in; /* HEAD_MAX bytes, while there is something in it */
	uint32_t in_n;
	struct bufq out;
	struct alarm alarm;
	struct task task; /* frees it */
	bool answering, close_after, eof, gone;
};

/* --- connections --- */

static void on_free(struct task *t)
{
	free(container_of(t, struct admin_conn, task));
}

static void forget(struct admin_conn *c)
{
	c->gone = true;
	loop_alarm_off(&c->alarm);
	bufq_free(&c->out);
	free(c->in);
	c->in = NULL;
	list_remove(&c->node);
	c->admin->n_conns--;
	acceptors_go(c->admin->loop);
	loop_soon(c->admin->loop, &c->task);
}

static void end_conn(struct admin_conn *c)
{
	link_close_lingering(&c->link, &c->out);
	forget(c);
}

static void cut_conn(struct admin_conn *c)
{
	link_close(&c->link);
	forget(c);
}

static void on_late(struct alarm *a)
{
	cut_conn(container_of(a, struct admin_conn, alarm));
}

/* --- replies --- */

struct reply {
	unsigned status;
	struct str type, body;
	char *owned;       /* malloc'd body */
	const char *field; /* one more field line, with its end */
};

static struct reply plain(unsigned status, struct str body)
{
	return (struct reply){ .status = status,
			       .type = STR("text/plain; charset=utf-8"),
			       .body = body };
}

/* Head and body in one block that goes when the kernel has let go of it. */
struct reply_bytes {
	struct shared_block block;
	uint32_t holders;
	uint32_t n;
	char text[];
};

static void hold(struct shared_block *b)
{
	container_of(b, struct reply_bytes, block)->holders++;
}

static void release(struct shared_block *b)
{
	struct reply_bytes *r = container_of(b, struct reply_bytes, block);

	if (--r->holders == 0)
		free(r);
}

static void write_head(struct out *o, struct admin_conn *c, const struct reply *r)
{
	out_lit(o, "HTTP/1.1 ");
	out_u64(o, r->status);
	out_char(o, ' ');
	out_str(o, head_reason(r->status));
	out_lit(o, "\r\nDate: ");
	out_str(o, loop_http_date(c->admin->loop));
	out_lit(o, "\r\nContent-Type: ");
	out_str(o, r->type);
	out_lit(o,
		"\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Length: ");
	out_u64(o, r->body.n);
	out_lit(o, "\r\n");
	out_str(o, str_of(r->field));
	out_str(o, c->close_after ? STR("Connection: close\r\n\r\n")
				  : STR("Connection: keep-alive\r\n\r\n"));
}

static struct reply_bytes *reply_bytes(struct admin_conn *c, const struct reply *r, bool head_only)
{
	size_t room = REPLY_HEAD + (head_only ? 0 : r->body.n);
	struct reply_bytes *b = malloc(sizeof(*b) + room);
	struct out o;

	if (!b)
		return NULL;
	b->block.hold = hold;
	b->block.release = release;
	b->holders = 1;
	out_init(&o, b->text, room);
	write_head(&o, c, r);
	if (!head_only)
		out_str(&o, r->body);
	must(out_ok(&o));
	b->n = out_len(&o);
	return b;
}

static void send_reply(struct admin_conn *c, const struct reply *r, bool head_only)
{
	struct reply_bytes *b = reply_bytes(c, r, head_only);

	if (!b || !bufq_put_shared(&c->out, &b->block, b->text, b->n)) {
		free(b);
		cut_conn(c);
		return;
	}
	c->answering = true;
	loop_alarm(c->admin->loop, &c->alarm, ANSWER_MS);
	link_send(c->link, &c->out);
}

/* --- what there is --- */

static struct reply get_health(struct admin *a)
{
	(void)a;
	return plain(200, STR("ok\n"));
}

static struct reply get_ready(struct admin *a)
{
	if (atomic_load_explicit(&a->shared->draining, memory_order_relaxed))
		return plain(503, STR("draining\n"));
	return plain(200, STR("ready\n"));
}

static struct reply get_metrics(struct admin *a)
{
	struct reply r = { .status = 200, .type = STR("text/plain; version=0.0.4; charset=utf-8") };
	size_t n;

	r.owned = metrics_text(a->shared->metrics, &n);
	if (!r.owned || n > INT32_MAX) {
		free(r.owned);
		return plain(503, STR("out of memory\n"));
	}
	r.body = (struct str){ .p = r.owned, .n = (uint32_t)n };
	return r;
}

static const struct path {
	struct str path;
	bool open; /* to all that reach the port */
	struct reply (*get)(struct admin *);
} paths[] = {
	{ STR("/healthz"), true, get_health },
	{ STR("/readyz"), true, get_ready },
	{ STR("/metrics"), false, get_metrics },
};

/* --- who may --- */

/* Takes as long whatever differs; the length is no secret. */
static bool same_secret(struct str a, struct str b)
{
	volatile unsigned char differs = 0;

	if (a.n != b.n)
		return false;
	for (uint32_t i = 0; i < a.n; i++)
		differs |= (unsigned char)(a.p[i] ^ b.p[i]);
	return differs == 0;
}

static bool has_token(const struct admin_conf *conf, const struct head *h)
{
	const struct field *f = head_find(h, HDR_AUTHORIZATION);
	struct str v = f ? field_value(f) : STR_NONE, scheme = STR("Bearer ");

	if (!str_istarts(v, scheme))
		return false;
	v.p += scheme.n;
	v.n -= scheme.n;
	return same_secret(conf->token, str_trim(v));
}

/* An address, localhost, or a name without a dot: a page that is named otherwise cannot have sent
 * it. */
static bool host_is_ours(const struct head *h)
{
	struct addr ignored;

	return !h->host.n || addr_parse_ip(h->host, 0, &ignored) ||
	       !memchr(h->host.p, '.', h->host.n);
}

static bool from_a_page(const struct head *h)
{
	const struct field *f = head_find_name(h, STR("sec-fetch-site"));

	if (head_find(h, HDR_ORIGIN))
		return true;
	return f && !str_ieq(field_value(f), STR("none")) &&
	       !str_ieq(field_value(f), STR("same-origin"));
}

/* 200: may. */
static struct reply judge(const struct admin_conf *conf, const struct head *h)
{
	struct reply r = plain(401, STR("401: a token is needed: Authorization: Bearer ...\n"));

	if (conf->token.n) {
		r.field = "WWW-Authenticate: Bearer realm=\"culvert admin\"\r\n";
		return has_token(conf, h) ? plain(200, STR_NONE) : r;
	}
	if (from_a_page(h))
		return plain(403, STR("403: not for pages of other sites\n"));
	if (!host_is_ours(h))
		return plain(403, STR("403: ask by address or as localhost, or set admin.token\n"));
	return plain(200, STR_NONE);
}

static struct reply not_allowed(void)
{
	struct reply r = plain(405, STR("405: only GET and HEAD\n"));

	r.field = "Allow: GET, HEAD\r\n";
	return r;
}

static struct reply decide(struct admin *a, const struct head *h)
{
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct reply r;

		if (!str_eq(paths[i].path, h->path))
			continue;
		if (h->method != METHOD_GET && h->method != METHOD_HEAD)
			return not_allowed();
		r = paths[i].open ? plain(200, STR_NONE) : judge(a->conf, h);
		return r.status == 200 ? paths[i].get(a) : r;
	}
	return plain(404, STR("404: there are /healthz, /readyz, /metrics\n"));
}

/* --- requests --- */

static void refuse(struct admin_conn *c, int err)
{
	const struct why *cause = why(h1_error_why((enum h1_error) - err));
	struct reply r = plain(cause->status, str_of(cause->text));

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

static const struct h1_limits limits = { .head = HEAD_MAX, .target = 4096, .fields = 100 };

static void parse(struct admin_conn *c, const struct h1_scan *scan, uint32_t n)
{
	struct head h = { 0 };
	struct arena a;
	int err;

	arena_init(&a, &c->admin->arenas);
	err = h1_request(&h, &a, c->in + scan->skip, n - scan->skip, scan, &limits);
	if (err < 0)
		refuse(c, err);
	else
		answer(c, &h);
	arena_free(&a);
}

/* One head at a time; what is pipelined behind it waits. */
static void read_request(struct admin_conn *c)
{
	struct h1_scan scan = { 0 };
	int32_t n = h1_scan(&scan, H1_REQUEST, &limits, c->in, c->in_n);

	if (n == 0)
		return;
	if (n < 0) {
		refuse(c, n);
		return;
	}
	parse(c, &scan, (uint32_t)n);
	if (c->gone)
		return;
	c->in_n -= (uint32_t)n;
	memmove(c->in, c->in + n, c->in_n);
}

static bool keep_input(struct admin_conn *c, const void *p, uint32_t n)
{
	if (!c->in)
		c->in = malloc(HEAD_MAX + 2); /* an empty line may stand before the head */
	if (!c->in || n > HEAD_MAX + 2 - c->in_n)
		return false;
	if (!c->in_n && !c->answering)
		loop_alarm(c->admin->loop, &c->alarm, HEAD_MS);
	memcpy(c->in + c->in_n, p, n);
	c->in_n += n;
	return true;
}

/* The seg that is not taken is dropped by the link. */
static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct admin_conn *c = l->owner;

	c->eof |= res == 0;
	if (res < 0 || (res == 0 && !c->answering)) {
		cut_conn(c);
		return;
	}
	if (res == 0 || c->close_after) /* what comes behind the last request is not read */
		return;
	if (!keep_input(c, (*seg)->data, (uint32_t)res)) {
		if (c->answering || !c->in)
			cut_conn(c);
		else
			refuse(c, -H1_E_HEAD_TOO_LARGE);
		return;
	}
	if (!c->answering)
		read_request(c);
}

static void next_request(struct admin_conn *c)
{
	c->answering = false;
	list_remove(&c->node);
	list_push_tail(&c->admin->conns, &c->node);
	if (c->in_n) {
		loop_alarm(c->admin->loop, &c->alarm, HEAD_MS);
		read_request(c);
	} else {
		loop_alarm(c->admin->loop, &c->alarm, IDLE_MS);
		free(c->in);
		c->in = NULL;
	}
	if (!c->gone && c->eof && !c->answering)
		cut_conn(c);
}

static void on_sent(struct link *l, int32_t n)
{
	struct admin_conn *c = l->owner;

	if (n < 0)
		cut_conn(c);
	else if (!bufq_empty(&c->out))
		return;
	else if (c->close_after)
		end_conn(c);
	else
		next_request(c);
}

/* --- accepting --- */

/* The connection that has been quiet longest; NULL: all are being answered. */
static struct admin_conn *quietest(struct admin *a)
{
	for (struct list *n = a->conns.next; n != &a->conns; n = n->next) {
		struct admin_conn *c = container_of(n, struct admin_conn, node);

		if (!c->answering)
			return c;
	}
	return NULL;
}

/* Who comes before the start is over waits in the kernel's queue: half of the series would be a
 * wrong answer. */
static bool may(struct acceptor *acceptor)
{
	struct admin *a = acceptor_owner(acceptor);

	if (!atomic_load_explicit(&a->shared->started, memory_order_acquire))
		return false;
	return a->n_conns < ADMIN_CONNS || quietest(a);
}

static bool allowed(const struct admin_conf *conf, const struct addr *peer)
{
	char text[64] = "";
	struct out o;

	if (peer->u.sa.sa_family == AF_UNIX ||
	    access_from(conf->allow_from, conf->n_allow_from, peer))
		return true;
	out_init(&o, text, sizeof(text) - 1);
	addr_ip_out(&o, peer);
	*o.p = '\0';
	log_say(LOG_WARN,
		"admin port: closed a connection of %s, which admin.allow_from does not name",
		text);
	return false;
}

static bool conn_open(struct admin *a, struct admin_conn *c, int fd)
{
	c->admin = a;
	bufq_init(&c->out, 0);
	alarm_init(&c->alarm, on_late);
	task_init(&c->task, on_free);
	c->link = link_new(a->loop, fd, c);
	if (!c->link)
		return false;
	c->link->on_recv = on_recv;
	c->link->on_sent = on_sent;
	list_push_tail(&a->conns, &c->node);
	a->n_conns++;
	loop_alarm(a->loop, &c->alarm, HEAD_MS);
	link_read(c->link);
	return true;
}

static void on_accept(struct acceptor *acceptor, int fd, const struct addr *peer)
{
	struct admin *a = acceptor_owner(acceptor);
	struct admin_conn *c, *quiet = a->n_conns >= ADMIN_CONNS ? quietest(a) : NULL;

	must(a->magic == ADMIN_MAGIC);
	if (quiet)
		cut_conn(quiet);
	if (a->n_conns >= ADMIN_CONNS || !allowed(a->conf, peer)) {
		loop_close(a->loop, fd);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		loop_close(a->loop, fd);
	else if (!conn_open(a, c, fd))
		free(c);
}

static const struct acceptor_ops acceptor_ops = { .on_accept = on_accept, .may = may };

/* --- life --- */

struct admin *admin_open(struct loop *l, const struct admin_conf *conf, int fd, bool shared,
			 struct service_shared *s)
{
	struct admin *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->magic = ADMIN_MAGIC;
	a->loop = l;
	a->conf = conf;
	a->shared = s;
	list_init(&a->conns);
	slab_init(&a->arenas, "admin", ARENA_FIRST, NULL);
	a->acceptor = acceptor_new(l, fd, shared, &acceptor_ops, a);
	if (a->acceptor)
		return a;
	slab_close(&a->arenas);
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
	slab_close(&a->arenas);
	a->magic = 0;
	free(a);
}
