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
#include "base/digits.h"
#include "policy/policy.h"

#include <endian.h>
#include <stdlib.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define LINE_ROOM 16384u
#define MARK      STR("\xe2\x80\xa6") /* … */
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

static void take_exchange(struct line *l, const struct exchange *x,
			  const struct access_names *names)
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

/* --- plain writers: the room is known to do, so that nothing is checked on the way.  Some write
 * up to SLACK bytes behind what they return. --- */

enum { SLACK = 24 };

#define LIT(p, lit) ((char *)memcpy((p), (lit), sizeof(lit) - 1) + sizeof(lit) - 1)

static inline char *put_str(char *p, struct str s)
{
	if (!s.n)
		return p;
	memcpy(p, s.p, s.n);
	return p + s.n;
}

/* Microseconds as milliseconds with three decimals. */
static inline char *put_ms(char *p, uint64_t us)
{
	unsigned part;

	if (!us)
		return LIT(p, "0.000");
	part = (unsigned)(us % 1000);
	p = digits_put(p, us / 1000);
	p[0] = '.';
	p[1] = (char)('0' + part / 100);
	digits_put2(p + 2, part % 100);
	return p + 4;
}

#ifdef __SSE2__
/* Sixteen hexadecimal digits at once. */
static inline char *put_hex16(char *p, uint64_t v)
{
	const __m128i low = _mm_set1_epi8(0x0f);
	__m128i b = _mm_cvtsi64_si128((int64_t)htobe64(v));
	__m128i d =
		_mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi64(b, 4), low), _mm_and_si128(b, low));
	__m128i letter =
		_mm_and_si128(_mm_cmpgt_epi8(d, _mm_set1_epi8(9)), _mm_set1_epi8('a' - '0' - 10));

	d = _mm_add_epi8(_mm_add_epi8(d, _mm_set1_epi8('0')), letter);
	_mm_storeu_si128((void *)p, d);
	return p + 16;
}
#else
/* Eight hexadecimal digits at once: nibbles are spread over the bytes of a word. */
static inline void put_hex8(char *p, uint32_t v)
{
	uint64_t x = v;

	x = (x << 16 | x) & 0x0000ffff0000ffff;
	x = (x << 8 | x) & 0x00ff00ff00ff00ff;
	x = (x << 4 | x) & 0x0f0f0f0f0f0f0f0f;
	x += 0x3030303030303030 +
	     ((x + 0x0606060606060606) >> 4 & 0x0101010101010101) * ('a' - '0' - 10);
	x = htobe64(x);
	memcpy(p, &x, sizeof(x));
}

static inline char *put_hex16(char *p, uint64_t v)
{
	put_hex8(p, (uint32_t)(v >> 32));
	put_hex8(p + 8, (uint32_t)v);
	return p + 16;
}
#endif

/* Microseconds change, the second seldom does. */
static inline char *put_time(char *p, int64_t wall_us)
{
	static _Thread_local int64_t second = -1;
	static _Thread_local char text[27] = "....................000000Z";
	int64_t s = wall_us / 1000000;
	unsigned us = (unsigned)(wall_us % 1000000);

	if (__builtin_expect(s != second, 0)) {
		struct out o;

		out_init(&o, text, sizeof(text));
		out_time_rfc3339(&o, s * 1000000);
		second = s;
	}
	memcpy(p, text, sizeof(text));
	digits_put2(p + 20, us / 10000);
	digits_put2(p + 22, us / 100 % 100);
	digits_put2(p + 24, us % 100);
	return p + sizeof(text);
}

/* --- texts: nearly all hold nothing to escape --- */

#ifdef __SSE2__
static inline bool all_clean(uint64_t a, uint64_t b)
{
	const __m128i v = _mm_set_epi64x((int64_t)b, (int64_t)a);
	/* signed: controls and everything from 0x80 on are below the space */
	__m128i bad = _mm_cmplt_epi8(v, _mm_set1_epi8(' '));

	bad = _mm_or_si128(bad, _mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
	bad = _mm_or_si128(bad, _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
	bad = _mm_or_si128(bad, _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f)));
	return _mm_movemask_epi8(bad) == 0;
}
#else
#define EACH(c) (UINT64_C(0x0101010101010101) * (c))
static inline uint64_t has(uint64_t x, uint8_t c)
{
	x ^= EACH(c);
	return (x - EACH(1)) & ~x & EACH(0x80);
}

static inline bool all_clean(uint64_t a, uint64_t b)
{
	uint64_t low = ((a - EACH(0x20)) & ~a) | ((b - EACH(0x20)) & ~b);

	return !(((a | b | low) & EACH(0x80)) | has(a, '"') | has(b, '"') | has(a, '\\') |
		 has(b, '\\') | has(a, 0x7f) | has(b, 0x7f));
}
#endif

static inline uint64_t load8(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t load4(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline bool copy16(char *to, const char *p)
{
	memcpy(to, p, 16);
	return all_clean(load8(p), load8(p + 8));
}

/* Copies; false: something in it has to be escaped.  Reads no byte that is not its own: a rest is
 * read by loads that overlap. */
static inline bool copy_clean(char *to, struct str s)
{
	const char *p = s.p;
	uint64_t blank = 0x2020202020202020, few;
	uint32_t n = s.n;
	bool clean = true;

	if (n >= 16) {
		for (uint32_t i = 0; i + 16 <= n; i += 16)
			clean &= copy16(to + i, p + i);
		return clean & copy16(to + n - 16, p + n - 16);
	}
	if (n >= 8) {
		memcpy(to, p, 8);
		memcpy(to + n - 8, p + n - 8, 8);
		return all_clean(load8(p), load8(p + n - 8));
	}
	if (n >= 4) {
		memcpy(to, p, 4);
		memcpy(to + n - 4, p + n - 4, 4);
		return all_clean(load4(p) | (uint64_t)load4(p + n - 4) << 32, blank);
	}
	to[0] = p[0];
	to[n / 2] = p[n / 2];
	to[n - 1] = p[n - 1];
	few = (uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint64_t)(uint8_t)p[n - 1] << 16;
	return all_clean(few | blank << 24, blank);
}

static COLD char *put_escaped(char *p, struct str s, uint32_t room)
{
	struct out o;

	out_init(&o, p, room + ESCAPED * MARK.n);
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
		p = put_str(p, cut_text(str_of(l->detail), NAME_ROOM));
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

	take_exchange(&l, x, names);
	l.kind = LOG_KIND_REQUEST;
	write_line(r, conf, &l);
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

void access_log_record(struct log_ring *r, const struct access_log_conf *conf,
		       struct access_record **recp, const struct access_end *end)
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
