/* accesslog.c -- one line per request, tunnel and refused connection: JSON or combined.  Exports:
 * access_*, line_*, text_cut
 *
 * Written straight into the shard's ring: no allocation, no printf.  A line is at most LINE_ROOM
 * bytes: each text has a limit (below), counted after escaping, and ends in a mark where it was
 * cut.  Credentials are never among the fields, nor the userinfo of a URI; with `query: false`
 * neither is a query.
 *
 *   exchange -> struct line -> text             a request, at its end
 *            -> record -> struct line -> text   a tunnel (record.c) */
#include "policy/priv.h"
#include "policy/put.h"

#define LINE_ROOM 16384u
/* Bytes of a text, escaped, without its mark: 14,176 in all, which leaves 2,208 for the rest. */
enum {
	NAME_ROOM = 256,
	METHOD_ROOM = 64,
	SCHEME_ROOM = 32,
	HOST_ROOM = 512,
	FIELD_ROOM = 2048,
	TARGET_ROOM = 8192
};
/* A byte becomes six at most; lines whose texts have no more than FEW_TEXT take a small room. */
enum { ESCAPED = 6, FEW_TEXT = 480, FEW_ROOM = 4096 };

/* --- gathering --- */

static struct str without_query(struct str s)
{
	const char *q = s.n ? memchr(s.p, '?', s.n) : NULL;

	if (q)
		s.n = (uint32_t)(q - s.p);
	return s;
}

/* "http://user:secret@host/", "user:secret@host:443": what follows the '@' of the authority.  Such
 * a target is refused, but its line is written. */
static struct str without_userinfo(struct str s)
{
	const char *at;
	uint32_t from = 0, end;

	if (!s.n || s.p[0] == '/' || !memchr(s.p, '@', s.n))
		return s;
	for (uint32_t i = 0; i + 2 < s.n && !from && s.p[i] != '?'; i++)
		if (memcmp(s.p + i, "://", 3) == 0)
			from = i + 3;
	for (end = from; end < s.n && s.p[end] != '/' && s.p[end] != '?';)
		end++;
	at = memrchr(s.p + from, '@', end - from);
	if (!at)
		return s;
	return (struct str){ .p = at + 1, .n = s.n - (uint32_t)(at + 1 - s.p) };
}

/* The first value that says something. */
static struct str first_value(const struct head *h, enum hdr_id id)
{
	const struct field *f = head_find(h, id);

	while (f && !f->value_n)
		f = head_find_next(h, f);
	return f ? field_value(f) : STR_NONE;
}

static void take_fields(struct line *l, const struct head *h)
{
	l->text[TEXT_AGENT] = first_value(h, HDR_USER_AGENT);
	l->text[TEXT_REFERER] = without_userinfo(first_value(h, HDR_REFERER));
}

static struct str scheme_of(const struct exchange *x, const struct head *h)
{
	if (h->scheme.n || h->method == METHOD_CONNECT || !h->host.n)
		return h->scheme;
	return x->secure ? STR("https") : STR("http");
}

static void take_head(struct line *l, const struct exchange *x, const struct head *h)
{
	l->has_request = true;
	l->version = h->version;
	l->port = h->port;
	l->host_is_v6 = h->host_is_v6;
	l->text[TEXT_METHOD] = h->method_text;
	l->text[TEXT_SCHEME] = scheme_of(x, h);
	l->text[TEXT_HOST] = h->host;
	l->text[TEXT_TARGET] = without_userinfo(h->target);
	take_fields(l, h);
}

static void take_facts(struct line *l, const struct exchange *x)
{
	const struct exchange_facts *f = &x->facts;

	l->wall_us = f->wall_us;
	l->conn_id = x->conn_id;
	l->request_id = x->request_id;
	l->bytes_in = f->bytes_in;
	l->bytes_out = f->bytes_out;
	l->resolve_us = f->resolve_us;
	l->queue_us = f->queue_us;
	l->connect_us = f->connect_us;
	l->first_byte_us = line_since(f->first_byte_us, f->open_us);
	l->total_us = line_since(f->end_us, f->open_us);
	l->shard = loop_shard(x->loop);
	l->status = f->status ? f->status : x->why->status;
	l->upstream_status = f->upstream_status;
	l->attempts = f->attempts;
	l->reused = f->reused;
	l->complete = f->complete;
	l->why = x->why;
	l->detail = f->detail;
	l->peer = &x->peer;
	l->client = &x->client;
	l->address = f->address.len ? &f->address : NULL;
}

void line_take(struct line *l, const struct exchange *x, const struct access_names *names)
{
	mem_zero(l, sizeof(*l));
	take_facts(l, x);
	l->text[TEXT_LISTENER] = names->listener;
	l->text[TEXT_SITE] = names->site;
	l->text[TEXT_ROUTE] = names->route;
	l->text[TEXT_UPSTREAM] = str_of(x->facts.upstream);
	l->text[TEXT_SERVER] = str_of(x->facts.server);
	if (x->req.head)
		take_head(l, x, x->req.head);
}

/* --- texts within their limits --- */

typedef void escape_fn(struct out *o, struct str s);

struct str text_cut(struct str s, uint32_t n)
{
	if (s.n <= n)
		return s;
	for (int i = 0; i < 3 && n && (s.p[n] & 0xc0) == 0x80; i++)
		n--;
	s.n = n;
	return s;
}

/* What becomes too long by its escapes is tried again with half of it. */
static void long_text(struct out *o, escape_fn *escape, struct str s, uint32_t room)
{
	char *begin = o->p, *end = o->end;
	uint32_t n = s.n < room ? s.n : room;
	struct str part;

	must((size_t)(end - begin) > room);
	o->end = begin + room;
	for (;; n /= 2) {
		part = text_cut(s, n);
		escape(o, part);
		if (out_ok(o))
			break;
		o->p = begin;
		o->over = false;
	}
	o->end = end;
	if (part.n < s.n)
		escape(o, TEXT_MARK);
}

static inline void text_out(struct out *o, escape_fn *escape, struct str s, uint32_t room)
{
	if (__builtin_expect(s.n <= room / ESCAPED, 1))
		escape(o, s);
	else
		long_text(o, escape, s, room);
}

static COLD char *put_escaped(char *p, struct str s, uint32_t room)
{
	struct out o;

	out_init(&o, p, room + ESCAPED * TEXT_MARK.n);
	text_out(&o, out_json, s, room);
	must(out_ok(&o));
	return o.p;
}

static inline char *put_text(char *p, struct str s, uint32_t room)
{
	if (__builtin_expect(s.n > room, 0) || !copy_clean(p, s))
		return put_escaped(p, s, room);
	return p + s.n;
}

/* --- addresses --- */

#define ADDR_ROOM 64u

static inline char *put_addr(char *p, const struct addr *a, bool port)
{
	struct out o;

	out_init(&o, p, ADDR_ROOM);
	if (a->u.sa.sa_family == AF_UNIX)
		out_lit(&o, "unix");
	else if (port)
		addr_out(&o, a);
	else
		addr_ip_out(&o, a);
	return o.p;
}

/* --- JSON --- */

#define NUMBER(p, name, v) digits_put(LIT(p, ",\"" name "\":"), v)
#define MS(p, name, us)    put_ms(LIT(p, ",\"" name "\":"), us)
#define BOOL(p, name, v)   ((v) ? LIT(p, ",\"" name "\":true") : LIT(p, ",\"" name "\":false"))
#define TEXT(p, name, s, room)                          \
	do {                                            \
		if ((s).n) {                            \
			p = LIT(p, ",\"" name "\":\""); \
			p = put_text(p, (s), (room));   \
			*p++ = '"';                     \
		}                                       \
	} while (0)

static struct str proto_text(const struct line *l)
{
	if (l->version == 11)
		return STR("HTTP/1.1");
	if (l->version >= 30)
		return STR("HTTP/3");
	if (l->version >= 20)
		return STR("HTTP/2");
	return l->version ? STR("HTTP/1.0") : STR_NONE; /* none: the head did not get so far */
}

/* Written as in a URI. */
static char *host_json(char *p, const struct line *l)
{
	if (!l->text[TEXT_HOST].n)
		return p;
	p = LIT(p, ",\"host\":\"");
	if (l->host_is_v6)
		*p++ = '[';
	p = put_text(p, l->text[TEXT_HOST], HOST_ROOM);
	if (l->host_is_v6)
		*p++ = ']';
	if (l->port) {
		*p++ = ':';
		p = digits_put(p, l->port);
	}
	*p++ = '"';
	return p;
}

static char *connection_json(char *p, const struct line *l)
{
	static const struct str kinds[] = { STR("request"), STR("tunnel"), STR("refused") };

	p = put_time(LIT(p, "{\"time\":\""), l->wall_us);
	p = put_str(LIT(p, "\",\"kind\":\""), kinds[l->kind]);
	p = put_hex16(LIT(p, "\",\"conn_id\":\""), l->conn_id);
	if (l->kind != LOG_KIND_REFUSED)
		p = put_hex16(LIT(p, "\",\"request_id\":\""), l->request_id);
	p = digits_put(LIT(p, "\",\"shard\":"), l->shard);
	TEXT(p, "listener", l->text[TEXT_LISTENER], NAME_ROOM);
	TEXT(p, "site", l->text[TEXT_SITE], NAME_ROOM);
	TEXT(p, "route", l->text[TEXT_ROUTE], NAME_ROOM);
	p = put_addr(LIT(p, ",\"peer\":\""), l->peer, true);
	p = put_addr(LIT(p, "\",\"client\":\""), l->client, false);
	*p++ = '"';
	return p;
}

static char *request_json(char *p, const struct line *l)
{
	struct str proto = proto_text(l);

	if (proto.n) {
		p = put_str(LIT(p, ",\"proto\":\""), proto);
		*p++ = '"';
	}
	TEXT(p, "method", l->text[TEXT_METHOD], METHOD_ROOM);
	TEXT(p, "scheme", l->text[TEXT_SCHEME], SCHEME_ROOM);
	p = host_json(p, l);
	TEXT(p, "target", l->text[TEXT_TARGET], TARGET_ROOM);
	return p;
}

static char *server_json(char *p, const struct line *l)
{
	p = NUMBER(p, "status", l->status);
	if (l->upstream_status)
		p = NUMBER(p, "upstream_status", l->upstream_status);
	TEXT(p, "upstream", l->text[TEXT_UPSTREAM], NAME_ROOM);
	TEXT(p, "server", l->text[TEXT_SERVER], NAME_ROOM);
	if (l->address) {
		p = put_addr(LIT(p, ",\"address\":\""), l->address, true);
		*p++ = '"';
	}
	p = BOOL(p, "reused", l->reused);
	return NUMBER(p, "attempts", l->attempts);
}

static char *reason_json(char *p, const struct line *l)
{
	p = put_str(LIT(p, ",\"reason\":\""), str_of(l->why->name));
	if (l->detail && l->why->id == WHY_BAD_REQUEST) {
		*p++ = ':';
		p = put_str(p, text_cut(str_of(l->detail), NAME_ROOM));
	}
	*p++ = '"';
	return p;
}

static char *end_json(char *p, const struct line *l)
{
	p = NUMBER(p, "bytes_in", l->bytes_in);
	p = NUMBER(p, "bytes_out", l->bytes_out);
	p = MS(p, "resolve_ms", l->resolve_us);
	p = MS(p, "queue_ms", l->queue_us);
	p = MS(p, "connect_ms", l->connect_us);
	p = MS(p, "first_byte_ms", l->first_byte_us);
	p = MS(p, "total_ms", l->total_us);
	p = BOOL(p, "complete", l->complete);
	if (l->why->id)
		p = reason_json(p, l);
	TEXT(p, "user_agent", l->text[TEXT_AGENT], FIELD_ROOM);
	TEXT(p, "referer", l->text[TEXT_REFERER], FIELD_ROOM);
	return LIT(p, "}\n");
}

/* Keys, numbers and addresses take less than 950 bytes in all, the texts what their rooms say. */
static uint32_t line_json(char *base, uint32_t room, const struct line *l)
{
	char *p = connection_json(base, l);

	if (l->has_request)
		p = request_json(p, l);
	p = end_json(server_json(p, l), l);
	must((size_t)(p - base) + SLACK <= room);
	return (uint32_t)(p - base);
}

/* --- combined (NCSA) --- */

static void or_dash(struct out *o, struct str s, uint32_t room)
{
	if (s.n)
		text_out(o, out_quoted_log, s, room);
	else
		out_char(o, '-');
}

static void request_combined(struct out *o, const struct line *l)
{
	if (!l->text[TEXT_METHOD].n) {
		out_char(o, '-');
		return;
	}
	or_dash(o, l->text[TEXT_METHOD], METHOD_ROOM);
	out_char(o, ' ');
	or_dash(o, l->text[TEXT_TARGET], TARGET_ROOM);
	if (l->version) {
		out_char(o, ' ');
		out_str(o, proto_text(l));
	}
}

static void client_combined(struct out *o, const struct line *l)
{
	char text[ADDR_ROOM];
	char *end = put_addr(text, l->client, false);

	out_mem(o, text, (size_t)(end - text));
}

static void line_combined(struct out *o, const struct line *l)
{
	client_combined(o, l);
	out_lit(o, " - - [");
	out_time_clf(o, l->wall_us);
	out_lit(o, "] \"");
	request_combined(o, l);
	out_lit(o, "\" ");
	out_u64(o, l->status);
	out_char(o, ' ');
	out_u64(o, l->bytes_out);
	out_lit(o, " \"");
	or_dash(o, l->text[TEXT_REFERER], FIELD_ROOM);
	out_lit(o, "\" \"");
	or_dash(o, l->text[TEXT_AGENT], FIELD_ROOM);
	out_lit(o, "\"\n");
}

/* --- into the ring --- */

static uint32_t room_for(const struct line *l)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < TEXTS; i++)
		n += l->text[i].n;
	return n <= FEW_TEXT ? FEW_ROOM : LINE_ROOM;
}

void line_write(struct log_ring *r, const struct access_log_conf *conf, struct line *l)
{
	uint32_t room = room_for(l);
	char *p = log_ring_reserve(r, room);
	struct out o;

	if (!p)
		return;
	if (!conf->query) {
		l->text[TEXT_TARGET] = without_query(l->text[TEXT_TARGET]);
		l->text[TEXT_REFERER] = without_query(l->text[TEXT_REFERER]);
	}
	if (conf->format != ACCESS_COMBINED) {
		log_ring_commit(r, line_json(p, room, l));
		return;
	}
	out_init(&o, p, room);
	line_combined(&o, l);
	must(out_ok(&o));
	log_ring_commit(r, out_len(&o));
}

void access_log_exchange(struct log_ring *r, const struct access_log_conf *conf,
			 const struct exchange *x, const struct access_names *names)
{
	struct line l;

	line_take(&l, x, names);
	l.kind = LOG_KIND_REQUEST;
	line_write(r, conf, &l);
}

void access_log_refused(struct log_ring *r, const struct access_log_conf *conf,
			const struct access_refused *f)
{
	struct line l = { .kind = LOG_KIND_REFUSED,
			  .wall_us = f->wall_us,
			  .conn_id = f->conn_id,
			  .shard = f->shard,
			  .peer = f->peer,
			  .client = f->peer,
			  .why = f->why,
			  .status = f->why->status };

	l.text[TEXT_LISTENER] = f->listener;
	line_write(r, conf, &l);
}
