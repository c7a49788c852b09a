/* accesslog.c -- one line per request, tunnel and refused connection: JSON or combined.
 *
 * Written straight into the shard's ring: no allocation, no printf.  A line is at most LINE_ROOM
 * bytes: each text has a limit (below), counted after escaping, and ends in a mark where it was
 * cut.  Credentials are never among the fields, nor the userinfo of a URI; with `query: false`
 * neither is a query.
 *
 *   exchange -> struct line -> text             a request, at its end
 *            -> record -> struct line -> text   a tunnel: packed at its begin, as the exchange is
 *                                               gone by then */
#include "policy/policy.h"

#include <stdlib.h>

#define LINE_ROOM 16384u
#define MARK      STR("\xe2\x80\xa6") /* … */
/* Bytes of a text, escaped, without its mark: 14,176 in all, which leaves 2,208 for the rest. */
enum { NAME_ROOM = 256, METHOD_ROOM = 64, SCHEME_ROOM = 32, HOST_ROOM = 512, FIELD_ROOM = 2048, TARGET_ROOM = 8192 };
/* A byte becomes six at most; lines whose texts have no more than this many take a small room. */
enum { ESCAPED = 6, FEW_TEXT = 480, FEW_ROOM = 4096 };

enum text {
	TEXT_LISTENER,
	TEXT_SITE,
	TEXT_ROUTE,
	TEXT_METHOD,
	TEXT_SCHEME,
	TEXT_HOST,
	TEXT_TARGET,
	TEXT_UPSTREAM,
	TEXT_SERVER,
	TEXT_AGENT,
	TEXT_REFERER,
	TEXTS
};

/* Everything that a line says.  Strings and addresses are borrowed. */
struct line {
	int64_t wall_us;
	uint64_t conn_id, request_id, bytes_in, bytes_out;
	uint64_t resolve_us, queue_us, connect_us, first_byte_us, total_us;
	unsigned shard;
	uint16_t status, upstream_status, attempts, port;
	uint8_t kind, version;
	bool has_request, host_is_v6, reused, complete;
	const struct why *why;
	const char *detail;
	const struct addr *peer, *client, *address; /* address NULL: none was dialled */
	struct str text[TEXTS];
};

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

static void take_fields(struct line *l, const struct head *h)
{
	for (uint32_t i = 0; i < h->n_fields; i++) {
		const struct field *f = &h->fields[i];

		if (f->id == HDR_USER_AGENT && !l->text[TEXT_AGENT].n)
			l->text[TEXT_AGENT] = field_value(f);
		else if (f->id == HDR_REFERER && !l->text[TEXT_REFERER].n)
			l->text[TEXT_REFERER] = without_userinfo(field_value(f));
	}
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

static uint64_t since(uint64_t moment, uint64_t from)
{
	return moment > from ? moment - from : 0;
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
	l->first_byte_us = since(f->first_byte_us, f->open_us);
	l->total_us = since(f->end_us, f->open_us);
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

static void take_exchange(struct line *l, const struct exchange *x, const struct access_names *names)
{
	memset(l, 0, sizeof(*l));
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

/* At most n bytes, not in the middle of a character. */
static struct str cut_text(struct str s, uint32_t n)
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
		part = cut_text(s, n);
		escape(o, part);
		if (out_ok(o))
			break;
		o->p = begin;
		o->over = false;
	}
	o->end = end;
	if (part.n < s.n)
		escape(o, MARK);
}

static inline void text_out(struct out *o, escape_fn *escape, struct str s, uint32_t room)
{
	if (__builtin_expect(s.n <= room / ESCAPED, 1))
		escape(o, s);
	else
		long_text(o, escape, s, room);
}

/* --- JSON --- */

static inline void key_text(struct out *o, const char *key, uint32_t n, struct str s, uint32_t room)
{
	if (!s.n)
		return;
	out_mem(o, key, n);
	text_out(o, out_json, s, room);
	out_char(o, '"');
}
#define TEXT(o, name, s, room) key_text(o, ",\"" name "\":\"", sizeof(",\"" name "\":\"") - 1, s, room)
#define NUMBER(o, name, v)                    \
	do {                                  \
		out_lit(o, ",\"" name "\":"); \
		out_u64(o, v);                \
	} while (0)
#define MS(o, name, us)                                       \
	do {                                                  \
		uint64_t us_ = us;                            \
		if (!us_) {                                   \
			out_lit(o, ",\"" name "\":0.000");    \
		} else {                                      \
			out_lit(o, ",\"" name "\":");         \
			out_ms(o, us_);                       \
		}                                             \
	} while (0)
#define BOOL(o, name, v)                             \
	do {                                         \
		if (v)                               \
			out_lit(o, ",\"" name "\":true");  \
		else                                 \
			out_lit(o, ",\"" name "\":false"); \
	} while (0)

/* Microseconds change, the second seldom does. */
static void time_out(struct out *o, int64_t wall_us)
{
	static _Thread_local int64_t second = -1;
	static _Thread_local char text[20]; /* 2026-11-30T18:00:00. */
	int64_t s = wall_us / 1000000;
	uint32_t us = (uint32_t)(wall_us % 1000000);
	char tail[7];

	if (s != second) {
		char full[40];
		struct out f;

		out_init(&f, full, sizeof(full));
		out_time_rfc3339(&f, s * 1000000);
		memcpy(text, full, sizeof(text));
		second = s;
	}
	for (int i = 5; i >= 0; i--, us /= 10)
		tail[i] = (char)('0' + us % 10);
	tail[6] = 'Z';
	out_mem(o, text, sizeof(text));
	out_mem(o, tail, sizeof(tail));
}

static void hex16(struct out *o, uint64_t v)
{
	static const char digits[] = "0123456789abcdef";
	char text[16];

	for (int i = 15; i >= 0; i--, v >>= 4)
		text[i] = digits[v & 15];
	out_mem(o, text, sizeof(text));
}

static void peer_out(struct out *o, const struct addr *a, bool port)
{
	if (a->u.sa.sa_family == AF_UNIX)
		out_lit(o, "unix");
	else if (port)
		addr_out(o, a);
	else
		addr_ip_out(o, a);
}

static struct str proto_text(const struct line *l)
{
	if (l->version >= 30)
		return STR("HTTP/3");
	if (l->version >= 20)
		return STR("HTTP/2");
	if (l->version >= 11)
		return STR("HTTP/1.1");
	return l->version ? STR("HTTP/1.0") : STR_NONE; /* none: the head did not get so far */
}

/* Written as in a URI. */
static void host_json(struct out *o, const struct line *l)
{
	if (!l->text[TEXT_HOST].n)
		return;
	out_lit(o, ",\"host\":\"");
	if (l->host_is_v6)
		out_char(o, '[');
	text_out(o, out_json, l->text[TEXT_HOST], HOST_ROOM);
	if (l->host_is_v6)
		out_char(o, ']');
	if (l->port) {
		out_char(o, ':');
		out_u64(o, l->port);
	}
	out_char(o, '"');
}

static void connection_json(struct out *o, const struct line *l)
{
	static const struct str kinds[] = { STR("request"), STR("tunnel"), STR("refused") };

	out_lit(o, "{\"time\":\"");
	time_out(o, l->wall_us);
	out_lit(o, "\",\"kind\":\"");
	out_str(o, kinds[l->kind]);
	out_lit(o, "\",\"conn_id\":\"");
	hex16(o, l->conn_id);
	if (l->kind != LOG_KIND_REFUSED) {
		out_lit(o, "\",\"request_id\":\"");
		hex16(o, l->request_id);
	}
	out_lit(o, "\",\"shard\":");
	out_u64(o, l->shard);
	TEXT(o, "listener", l->text[TEXT_LISTENER], NAME_ROOM);
	TEXT(o, "site", l->text[TEXT_SITE], NAME_ROOM);
	TEXT(o, "route", l->text[TEXT_ROUTE], NAME_ROOM);
	out_lit(o, ",\"peer\":\"");
	peer_out(o, l->peer, true);
	out_lit(o, "\",\"client\":\"");
	peer_out(o, l->client, false);
	out_char(o, '"');
}

static void request_json(struct out *o, const struct line *l)
{
	struct str proto = proto_text(l);

	TEXT(o, "proto", proto, NAME_ROOM);
	TEXT(o, "method", l->text[TEXT_METHOD], METHOD_ROOM);
	TEXT(o, "scheme", l->text[TEXT_SCHEME], SCHEME_ROOM);
	host_json(o, l);
	TEXT(o, "target", l->text[TEXT_TARGET], TARGET_ROOM);
}

static void server_json(struct out *o, const struct line *l)
{
	NUMBER(o, "status", l->status);
	if (l->upstream_status)
		NUMBER(o, "upstream_status", l->upstream_status);
	TEXT(o, "upstream", l->text[TEXT_UPSTREAM], NAME_ROOM);
	TEXT(o, "server", l->text[TEXT_SERVER], NAME_ROOM);
	if (l->address) {
		out_lit(o, ",\"address\":\"");
		peer_out(o, l->address, true);
		out_char(o, '"');
	}
	BOOL(o, "reused", l->reused);
	NUMBER(o, "attempts", l->attempts);
}

static void end_json(struct out *o, const struct line *l)
{
	NUMBER(o, "bytes_in", l->bytes_in);
	NUMBER(o, "bytes_out", l->bytes_out);
	MS(o, "resolve_ms", l->resolve_us);
	MS(o, "queue_ms", l->queue_us);
	MS(o, "connect_ms", l->connect_us);
	MS(o, "first_byte_ms", l->first_byte_us);
	MS(o, "total_ms", l->total_us);
	BOOL(o, "complete", l->complete);
	if (l->why->id) {
		out_lit(o, ",\"reason\":\"");
		out_str(o, str_of(l->why->name));
		if (l->detail && l->why->id == WHY_BAD_REQUEST) {
			out_char(o, ':');
			out_str(o, str_of(l->detail));
		}
		out_char(o, '"');
	}
	TEXT(o, "user_agent", l->text[TEXT_AGENT], FIELD_ROOM);
	TEXT(o, "referer", l->text[TEXT_REFERER], FIELD_ROOM);
	out_lit(o, "}\n");
}

static void line_json(struct out *o, const struct line *l)
{
	connection_json(o, l);
	if (l->has_request)
		request_json(o, l);
	server_json(o, l);
	end_json(o, l);
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

static void line_combined(struct out *o, const struct line *l)
{
	peer_out(o, l->client, false);
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

static void write_line(struct log_ring *r, const struct access_log_conf *conf, struct line *l)
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
	out_init(&o, p, room);
	if (conf->format == ACCESS_COMBINED)
		line_combined(&o, l);
	else
		line_json(&o, l);
	must(out_ok(&o));
	log_ring_commit(r, out_len(&o));
}

void access_log_exchange(struct log_ring *r, const struct access_log_conf *conf, const struct exchange *x, const struct access_names *names)
{
	struct line l;

	take_exchange(&l, x, names);
	l.kind = LOG_KIND_REQUEST;
	write_line(r, conf, &l);
}

void access_log_refused(struct log_ring *r, const struct access_log_conf *conf, const struct access_refused *f)
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
	write_line(r, conf, &l);
}

/* --- tunnels: packed --- */

/* An address in the least room: a tunnel is kept for hours. */
struct packed_addr {
	uint8_t ip[16];
	uint16_t port;
	uint8_t family; /* AF_INET, AF_INET6, AF_UNIX; 0: none */
};

struct access_record {
	int64_t wall_us;
	uint64_t conn_id, request_id, bytes_in, bytes_out, open_us;
	uint32_t resolve_us, queue_us, connect_us, first_byte_us; /* at most 71 minutes */
	struct packed_addr peer, client, address;
	uint16_t status, upstream_status, attempts, port, shard;
	uint8_t version;
	bool host_is_v6, reused;
	uint16_t text_n[TEXTS];
	char text[];
};
_Static_assert(sizeof(struct access_record) <= 200, "what a tunnel keeps is small");
/* Bytes of one text that is packed, its mark included. */
enum { PACKED_TEXT = 256, PACKED_TARGET = 1024 };

static struct packed_addr pack_addr(const struct addr *a)
{
	struct packed_addr p = { .family = a && a->len ? (uint8_t)a->u.sa.sa_family : 0 };

	if (p.family == AF_INET || p.family == AF_INET6) {
		addr_ip16(a, p.ip);
		p.port = addr_port(a);
	}
	return p;
}

static void unpack_addr(struct addr *a, const struct packed_addr *p)
{
	memset(a, 0, sizeof(*a));
	if (p->family == AF_UNIX) {
		a->len = sizeof(sa_family_t);
		a->u.sa.sa_family = AF_UNIX;
	} else if (p->family) {
		a->len = sizeof(a->u.in6);
		a->u.in6.sin6_family = AF_INET6;
		a->u.in6.sin6_port = htons(p->port);
		memcpy(&a->u.in6.sin6_addr, p->ip, 16);
		if (p->family == AF_INET)
			addr_unmap(a);
	}
}

static uint32_t packed_us(uint64_t us)
{
	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static uint16_t packed_n(unsigned which, struct str s)
{
	uint32_t max = which == TEXT_TARGET ? PACKED_TARGET : PACKED_TEXT;

	return (uint16_t)(s.n <= max ? s.n : cut_text(s, max - MARK.n).n + MARK.n);
}

static char *pack_text(char *to, struct str s, uint16_t n)
{
	if (n < s.n) {
		memcpy(to, s.p, n - MARK.n);
		memcpy(to + n - MARK.n, MARK.p, MARK.n);
	} else if (n) {
		memcpy(to, s.p, n);
	}
	return to + n;
}

static void pack_line(struct access_record *rec, const struct line *l)
{
	rec->wall_us = l->wall_us;
	rec->conn_id = l->conn_id;
	rec->request_id = l->request_id;
	rec->bytes_in = l->bytes_in;
	rec->bytes_out = l->bytes_out;
	rec->resolve_us = packed_us(l->resolve_us);
	rec->queue_us = packed_us(l->queue_us);
	rec->connect_us = packed_us(l->connect_us);
	rec->first_byte_us = packed_us(l->first_byte_us);
	rec->peer = pack_addr(l->peer);
	rec->client = pack_addr(l->client);
	rec->address = pack_addr(l->address);
	rec->status = l->status;
	rec->upstream_status = l->upstream_status;
	rec->attempts = l->attempts;
	rec->port = l->port;
	rec->shard = (uint16_t)l->shard;
	rec->version = l->version;
	rec->host_is_v6 = l->host_is_v6;
	rec->reused = l->reused;
}

struct access_record *access_pack(const struct exchange *x, const struct access_names *names)
{
	struct access_record *rec;
	uint16_t text_n[TEXTS];
	struct line l;
	size_t n = 0;
	char *to;

	take_exchange(&l, x, names);
	for (unsigned i = 0; i < TEXTS; i++)
		n += text_n[i] = packed_n(i, l.text[i]);
	rec = calloc(1, sizeof(*rec) + n);
	if (!rec)
		return NULL;
	pack_line(rec, &l);
	rec->open_us = x->facts.open_us;
	memcpy(rec->text_n, text_n, sizeof(text_n));
	to = rec->text;
	for (unsigned i = 0; i < TEXTS; i++)
		to = pack_text(to, l.text[i], text_n[i]);
	return rec;
}

static void unpack_texts(struct line *l, const struct access_record *rec)
{
	const char *p = rec->text;

	for (unsigned i = 0; i < TEXTS; i++) {
		l->text[i] = (struct str){ .p = p, .n = rec->text_n[i] };
		p += rec->text_n[i];
	}
}

static void unpack(struct line *l, const struct access_record *rec)
{
	*l = (struct line){ .kind = LOG_KIND_TUNNEL,
			    .has_request = true,
			    .wall_us = rec->wall_us,
			    .conn_id = rec->conn_id,
			    .request_id = rec->request_id,
			    .bytes_in = rec->bytes_in,
			    .bytes_out = rec->bytes_out,
			    .resolve_us = rec->resolve_us,
			    .queue_us = rec->queue_us,
			    .connect_us = rec->connect_us,
			    .first_byte_us = rec->first_byte_us,
			    .status = rec->status,
			    .upstream_status = rec->upstream_status,
			    .attempts = rec->attempts,
			    .port = rec->port,
			    .shard = rec->shard,
			    .version = rec->version,
			    .host_is_v6 = rec->host_is_v6,
			    .reused = rec->reused };
	unpack_texts(l, rec);
}

void access_log_record(struct log_ring *r, const struct access_log_conf *conf, struct access_record **recp, const struct access_end *end)
{
	struct access_record *rec = *recp;
	struct addr peer, client, address;
	struct line l;

	*recp = NULL;
	unpack(&l, rec);
	unpack_addr(&peer, &rec->peer);
	unpack_addr(&client, &rec->client);
	unpack_addr(&address, &rec->address);
	l.peer = &peer;
	l.client = &client;
	l.address = address.len ? &address : NULL;
	l.why = end->why;
	l.complete = end->why->id == WHY_NONE;
	l.bytes_in += end->bytes_in;
	l.bytes_out += end->bytes_out;
	l.total_us = since(end->end_us, rec->open_us);
	write_line(r, conf, &l);
	free(rec);
}
