/* accesslog.c -- one line per request, tunnel and refused connection: JSON or combined.
 *
 * Written straight into the shard's ring: no allocation, no printf.  A line is at most LINE_MAX bytes; texts that strangers choose are
 * cut to TEXT_MAX, with a mark.  Credentials are never among the fields; with `query: false` neither is a query.
 *
 *   exchange ─► struct line ─► text        a request, at its end
 *            └► record ─► struct line ─► text   a tunnel: packed at its begin, because the exchange is gone by then */
#include "policy/policy.h"

#include <stdlib.h>

#define LINE_MAX 16384u
#define TEXT_MAX 1500u /* bytes of one text before escaping (at most six times as many behind it) */

/* Everything that a line says.  Strings are borrowed. */
struct line {
	int64_t wall_us;
	uint64_t conn_id, request_id, bytes_in, bytes_out;
	uint64_t resolve_us, queue_us, connect_us, first_byte_us, total_us;
	unsigned shard;
	uint16_t status, upstream_status, attempts;
	uint8_t kind, version, method;
	bool has_request, forward, reused, complete;
	const struct why *why;
	const char *detail;
	struct str listener, site, route, scheme, host, target, method_text, upstream, server, user_agent, referer;
	uint16_t port;
	struct addr peer, client, address;
};

/* ---------------------------------------------------------------- gathering */
static struct str cut_text(struct str s)
{
	if (s.n > TEXT_MAX)
		s.n = TEXT_MAX;
	return s;
}

static struct str without_query(struct str target)
{
	const char *q = target.n ? memchr(target.p, '?', target.n) : NULL;

	if (q)
		target.n = (uint32_t)(q - target.p);
	return target;
}

static struct str field_text(const struct head *h, enum hdr_id id)
{
	const struct field *f = head_find(h, id);

	return f ? field_value(f) : STR_NONE;
}

static void take_head(struct line *l, const struct head *h, bool query)
{
	l->has_request = true;
	l->version = h->version;
	l->method = h->method;
	l->method_text = h->method_text;
	l->scheme = h->scheme;
	l->host = h->host;
	l->port = h->port;
	l->target = query ? h->target : without_query(h->target);
	l->user_agent = field_text(h, HDR_USER_AGENT);
	l->referer = field_text(h, HDR_REFERER);
	if (!query)
		l->referer = without_query(l->referer);
}

static uint64_t since(uint64_t moment, uint64_t from)
{
	return moment > from ? moment - from : 0;
}

static void take_exchange(struct line *l, const struct exchange *x, const struct access_names *names, bool query)
{
	const struct exchange_facts *f = &x->facts;

	*l = (struct line){ .wall_us = f->wall_us, .conn_id = x->conn_id, .request_id = x->request_id, .bytes_in = f->bytes_in,
			    .bytes_out = f->bytes_out, .resolve_us = f->resolve_us, .queue_us = f->queue_us, .connect_us = f->connect_us,
			    .first_byte_us = since(f->first_byte_us, f->open_us), .total_us = since(f->end_us, f->open_us),
			    .shard = loop_shard(x->loop), .status = f->status ? f->status : x->why->status,
			    .upstream_status = f->upstream_status, .attempts = f->attempts, .forward = x->forward,
			    .reused = f->reused, .complete = f->complete, .why = x->why, .detail = f->detail,
			    .listener = names->listener, .site = names->site, .route = names->route,
			    .upstream = str_of(f->upstream), .server = str_of(f->server), .peer = x->peer,
			    .client = x->client, .address = f->address };
	if (x->req.head)
		take_head(l, x->req.head, query);
}

/* ---------------------------------------------------------------- JSON */
static void key_text(struct out *o, const char *key, uint32_t n, struct str s)
{
	if (!s.n)
		return;
	out_mem(o, key, n);
	out_json(o, cut_text(s));
	if (s.n > TEXT_MAX)
		out_lit(o, "\xe2\x80\xa6"); /* … */
	out_char(o, '"');
}
#define TEXT(o, name, s) key_text(o, ",\"" name "\":\"", sizeof(",\"" name "\":\"") - 1, s)

#define NUMBER(o, name, v)                       \
	do {                                     \
		out_lit(o, ",\"" name "\":");    \
		out_u64(o, v);                   \
	} while (0)
#define MS(o, name, us)                          \
	do {                                     \
		out_lit(o, ",\"" name "\":");    \
		out_ms(o, us);                   \
	} while (0)
#define BOOL(o, name, v) out_str(o, (v) ? STR(",\"" name "\":true") : STR(",\"" name "\":false"))

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

static void ip_text(struct out *o, const struct addr *a)
{
	if (a->u.sa.sa_family == AF_UNIX)
		out_lit(o, "unix");
	else
		addr_ip_out(o, a);
}

static struct str proto_text(const struct line *l)
{
	return l->version >= 20 ? STR("HTTP/2") : l->version >= 11 ? STR("HTTP/1.1") : STR("HTTP/1.0");
}

static void host_out(struct out *o, const struct line *l)
{
	if (!l->host.n)
		return;
	out_lit(o, ",\"host\":\"");
	out_json(o, cut_text(l->host));
	if (l->port) {
		out_char(o, ':');
		out_u64(o, l->port);
	}
	out_char(o, '"');
}

static void request_json(struct out *o, const struct line *l)
{
	if (!l->has_request)
		return;
	TEXT(o, "proto", proto_text(l));
	TEXT(o, "method", l->method_text);
	TEXT(o, "scheme", l->scheme);
	host_out(o, l);
	TEXT(o, "target", l->target);
}

static void server_json(struct out *o, const struct line *l)
{
	NUMBER(o, "status", l->status);
	if (l->upstream_status)
		NUMBER(o, "upstream_status", l->upstream_status);
	TEXT(o, "upstream", l->upstream);
	TEXT(o, "server", l->server);
	if (l->address.len) {
		out_lit(o, ",\"address\":\"");
		if (l->address.u.sa.sa_family == AF_UNIX)
			out_lit(o, "unix");
		else
			addr_out(o, &l->address);
		out_char(o, '"');
	}
	BOOL(o, "reused", l->reused);
	NUMBER(o, "attempts", l->attempts);
}

static void reason_out(struct out *o, const struct line *l)
{
	out_str(o, str_of(l->why->name));
	if (l->detail && l->why->id == WHY_BAD_REQUEST) {
		out_char(o, ':');
		out_str(o, str_of(l->detail));
	}
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
		reason_out(o, l);
		out_char(o, '"');
	}
	TEXT(o, "user_agent", l->user_agent);
	TEXT(o, "referer", l->referer);
}

static void line_json(struct out *o, const struct line *l)
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
	TEXT(o, "listener", l->listener);
	TEXT(o, "site", l->site);
	TEXT(o, "route", l->route);
	out_lit(o, ",\"peer\":\"");
	if (l->peer.u.sa.sa_family == AF_UNIX)
		out_lit(o, "unix");
	else
		addr_out(o, &l->peer);
	out_lit(o, "\",\"client\":\"");
	ip_text(o, &l->client);
	out_char(o, '"');
	request_json(o, l);
	server_json(o, l);
	end_json(o, l);
	out_lit(o, "}\n");
}

/* ---------------------------------------------------------------- combined (NCSA) */
static void quoted(struct out *o, struct str s)
{
	out_char(o, '"');
	if (s.n)
		out_quoted_log(o, cut_text(s));
	else
		out_char(o, '-');
	out_char(o, '"');
}

static void line_combined(struct out *o, const struct line *l)
{
	ip_text(o, &l->client);
	out_lit(o, " - - [");
	out_time_clf(o, l->wall_us);
	out_lit(o, "] \"");
	if (l->has_request) {
		out_quoted_log(o, cut_text(l->method_text));
		out_char(o, ' ');
		out_quoted_log(o, cut_text(l->target));
		out_char(o, ' ');
		out_str(o, proto_text(l));
	} else {
		out_char(o, '-');
	}
	out_lit(o, "\" ");
	out_u64(o, l->status);
	out_char(o, ' ');
	out_u64(o, l->bytes_out);
	out_char(o, ' ');
	quoted(o, l->referer);
	out_char(o, ' ');
	quoted(o, l->user_agent);
	out_char(o, '\n');
}

/* Most lines are short; a long one asks again for more room. */
static void write_line(struct log_ring *r, const struct access_log_conf *conf, const struct line *l)
{
	uint64_t texts = (uint64_t)l->target.n + l->host.n + l->user_agent.n + l->referer.n + l->method_text.n + l->server.n;
	uint32_t room = texts > 512 ? LINE_MAX * 4 : 4096;
	char *p = log_ring_reserve(r, room);
	struct out o;

	if (!p)
		return;
	out_init(&o, p, room);
	if (conf->format == ACCESS_COMBINED)
		line_combined(&o, l);
	else
		line_json(&o, l);
	must(out_ok(&o));
	log_ring_commit(r, out_len(&o));
}

/* ---------------------------------------------------------------- entry */
void access_log_exchange(struct log_ring *r, const struct access_log_conf *conf, const struct exchange *x, const struct access_names *names)
{
	struct line l;

	take_exchange(&l, x, names, conf->query);
	l.kind = LOG_KIND_REQUEST;
	write_line(r, conf, &l);
}

void access_log_refused(struct log_ring *r, const struct access_log_conf *conf, const struct access_refused *f)
{
	struct line l = { .kind = LOG_KIND_REFUSED, .wall_us = f->wall_us, .conn_id = f->conn_id, .shard = f->shard, .peer = *f->peer,
			  .client = *f->peer, .why = f->why, .status = f->why->status, .listener = f->listener };

	write_line(r, conf, &l);
}

/* ---------------------------------------------------------------- tunnels: packed */
/* An address in the least room: a tunnel is kept for hours. */
struct packed_addr {
	uint8_t ip[16];
	uint16_t port;
	uint8_t family; /* AF_INET, AF_INET6, AF_UNIX; 0: none */
};

#define TEXTS 9
struct access_record {
	int64_t wall_us;
	uint64_t conn_id, request_id, bytes_in, bytes_out, open_us;
	uint32_t resolve_us, connect_us, first_byte_us;
	struct packed_addr peer, client, address;
	uint16_t status, upstream_status, attempts, port;
	uint8_t version, shard, reused;
	uint16_t text_n[TEXTS];
	char text[];
};

static struct packed_addr pack_addr(const struct addr *a)
{
	struct packed_addr p = { .family = a->len ? (uint8_t)a->u.sa.sa_family : 0 };

	if (p.family == AF_INET || p.family == AF_INET6) {
		addr_ip16(a, p.ip);
		p.port = addr_port(a);
	}
	return p;
}

static struct addr unpack_addr(const struct packed_addr *p)
{
	struct addr a = { 0 };

	if (p->family == AF_UNIX) {
		a.len = sizeof(sa_family_t);
		a.u.sa.sa_family = AF_UNIX;
	} else if (p->family) {
		a.len = sizeof(a.u.in6);
		a.u.in6.sin6_family = AF_INET6;
		a.u.in6.sin6_port = htons(p->port);
		memcpy(&a.u.in6.sin6_addr, p->ip, 16);
		if (p->family == AF_INET)
			addr_unmap(&a);
	}
	return a;
}

/* The texts of a line, in the order in which they are packed. */
static void list_texts(struct line *l, struct str *t[TEXTS])
{
	struct str *all[TEXTS] = { &l->listener, &l->site, &l->route, &l->method_text, &l->host, &l->target, &l->upstream, &l->server, &l->user_agent };

	memcpy(t, all, sizeof(all));
}

struct access_record *access_pack(const struct exchange *x, const struct access_names *names)
{
	struct access_record *rec;
	struct str *t[TEXTS];
	struct line l;
	size_t n = 0, at = 0;

	take_exchange(&l, x, names, true);
	list_texts(&l, t);
	for (unsigned i = 0; i < TEXTS; i++)
		n += (*t[i] = cut_text(*t[i])).n;
	rec = malloc(sizeof(*rec) + n);
	if (!rec)
		return NULL;
	*rec = (struct access_record){ .wall_us = l.wall_us, .conn_id = l.conn_id, .request_id = l.request_id, .bytes_in = l.bytes_in,
				       .bytes_out = l.bytes_out, .open_us = x->facts.open_us, .resolve_us = (uint32_t)l.resolve_us,
				       .connect_us = (uint32_t)l.connect_us, .first_byte_us = (uint32_t)l.first_byte_us,
				       .peer = pack_addr(&l.peer), .client = pack_addr(&l.client), .address = pack_addr(&l.address),
				       .status = l.status, .upstream_status = l.upstream_status, .attempts = l.attempts, .port = l.port,
				       .version = l.version, .shard = (uint8_t)l.shard, .reused = l.reused };
	for (unsigned i = 0; i < TEXTS; i++) {
		rec->text_n[i] = (uint16_t)t[i]->n;
		if (t[i]->n)
			memcpy(rec->text + at, t[i]->p, t[i]->n);
		at += t[i]->n;
	}
	return rec;
}

static void unpack(struct line *l, const struct access_record *rec)
{
	struct str *t[TEXTS];
	size_t at = 0;

	*l = (struct line){ .kind = LOG_KIND_TUNNEL, .has_request = true, .wall_us = rec->wall_us, .conn_id = rec->conn_id,
			    .request_id = rec->request_id, .bytes_in = rec->bytes_in, .bytes_out = rec->bytes_out,
			    .resolve_us = rec->resolve_us, .connect_us = rec->connect_us, .first_byte_us = rec->first_byte_us,
			    .peer = unpack_addr(&rec->peer), .client = unpack_addr(&rec->client), .address = unpack_addr(&rec->address),
			    .status = rec->status, .upstream_status = rec->upstream_status, .attempts = rec->attempts,
			    .port = rec->port, .version = rec->version, .shard = rec->shard, .reused = rec->reused };
	list_texts(l, t);
	for (unsigned i = 0; i < TEXTS; i++) {
		*t[i] = (struct str){ .p = rec->text + at, .n = rec->text_n[i] };
		at += rec->text_n[i];
	}
}

void access_log_record(struct log_ring *r, const struct access_log_conf *conf, struct access_record **recp, const struct access_end *end)
{
	struct access_record *rec = *recp;
	struct line l;

	*recp = NULL;
	unpack(&l, rec);
	if (!conf->query)
		l.target = without_query(l.target);
	l.why = end->why;
	l.complete = end->why->id == WHY_NONE;
	l.bytes_in += end->bytes_in;
	l.bytes_out += end->bytes_out;
	l.total_us = since(end->end_us, rec->open_us);
	write_line(r, conf, &l);
	free(rec);
}
