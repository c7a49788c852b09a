/* record.c -- what the access log will want of a tunnel: packed when it begins, as its exchange is
 * gone by its end, which may be hours away.  Exports: access_pack, access_log_packed.
 *
 *   exchange -> struct line -> packed … packed + access_end -> struct line -> text
 *
 * Packed: numbers in base 128, least digit first, the high bit says that more follow; an address is
 * its family, bytes and port; a text its length and bytes.  Most fields of most tunnels are one
 * byte then.  One list of fields (code_line) packs and unpacks, so that the two cannot differ.
 *
 * Each text has a smaller limit here than in a request's line; the same mark says that it was
 * cut. */
#include "policy/priv.h"

/* Bytes of one text that is packed, its mark included. */
enum { PACKED_TEXT = 256, PACKED_TARGET = 1024 };
enum { NUMBER_MAX = 10, NUMBERS = 20, ADDR_MAX = NUMBER_MAX + 16 + NUMBER_MAX };
_Static_assert(NUMBERS *NUMBER_MAX + 3 * ADDR_MAX + TEXTS * (NUMBER_MAX + PACKED_TEXT) +
			       PACKED_TARGET <=
		       ACCESS_PACKED_MAX,
	       "the worst record fits");

struct coder {
	uint8_t *to;         /* packing, else NULL */
	const uint8_t *from; /* unpacking */
};

static void put(struct coder *c, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*c->to++ = (uint8_t)(v | 0x80);
	*c->to++ = (uint8_t)v;
}

static uint64_t get(struct coder *c)
{
	uint64_t v = 0;
	uint8_t byte;

	for (unsigned shift = 0;; shift += 7) {
		byte = *c->from++;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return v;
	}
}

/* Packs v, or unpacks what then is the value. */
static uint64_t code(struct coder *c, uint64_t v)
{
	if (!c->to)
		return get(c);
	put(c, v);
	return v;
}

static void put_addr(struct coder *c, const struct addr *a)
{
	unsigned family = a && a->len ? a->u.sa.sa_family : AF_UNSPEC;
	uint32_t n = family == AF_INET ? 4 : 16;
	uint8_t ip[16];

	put(c, family);
	if (family != AF_INET && family != AF_INET6)
		return;
	addr_ip16(a, ip);
	memcpy(c->to, ip + 16 - n, n);
	c->to += n;
	put(c, addr_port(a));
}

static void get_addr(struct coder *c, struct addr *a)
{
	unsigned family = (unsigned)get(c);

	memset(a, 0, sizeof(*a));
	a->u.sa.sa_family = (sa_family_t)family;
	if (family == AF_UNIX) {
		a->len = sizeof(sa_family_t);
	} else if (family == AF_INET) {
		a->len = sizeof(a->u.in);
		memcpy(&a->u.in.sin_addr, c->from, 4);
		c->from += 4;
		a->u.in.sin_port = htons((uint16_t)get(c));
	} else if (family == AF_INET6) {
		a->len = sizeof(a->u.in6);
		memcpy(&a->u.in6.sin6_addr, c->from, 16);
		c->from += 16;
		a->u.in6.sin6_port = htons((uint16_t)get(c));
	}
}

static void put_text(struct coder *c, struct str s, uint32_t max)
{
	struct str mark = s.n > max ? TEXT_MARK : STR_NONE;
	struct str part = s.n > max ? text_cut(s, max - TEXT_MARK.n) : s;

	put(c, part.n + mark.n);
	if (part.n)
		memcpy(c->to, part.p, part.n);
	if (mark.n)
		memcpy(c->to + part.n, mark.p, mark.n);
	c->to += part.n + mark.n;
}

static struct str get_text(struct coder *c)
{
	struct str s = { .n = (uint32_t)get(c) };

	s.p = (const char *)c->from;
	c->from += s.n;
	return s;
}

static void code_numbers(struct coder *c, struct line *l)
{
	l->wall_us = (int64_t)code(c, (uint64_t)l->wall_us);
	l->conn_id = code(c, l->conn_id);
	l->request_id = code(c, l->request_id);
	l->bytes_in = code(c, l->bytes_in);
	l->bytes_out = code(c, l->bytes_out);
	l->resolve_us = code(c, l->resolve_us);
	l->queue_us = code(c, l->queue_us);
	l->connect_us = code(c, l->connect_us);
	l->first_byte_us = code(c, l->first_byte_us);
	l->total_us = code(c, l->total_us);
	l->shard = (unsigned)code(c, l->shard);
	l->status = (uint16_t)code(c, l->status);
	l->upstream_status = (uint16_t)code(c, l->upstream_status);
	l->attempts = (uint16_t)code(c, l->attempts);
	l->port = (uint16_t)code(c, l->port);
	l->version = (uint8_t)code(c, l->version);
	l->host_is_v6 = code(c, l->host_is_v6);
	l->reused = code(c, l->reused);
}

static void code_texts(struct coder *c, struct line *l)
{
	for (unsigned i = 0; i < TEXTS; i++) {
		if (c->to)
			put_text(c, l->text[i], i == TEXT_TARGET ? PACKED_TARGET : PACKED_TEXT);
		else
			l->text[i] = get_text(c);
	}
}

/* Until the end is known, total_us holds the moment when the tunnel began. */
uint32_t access_pack(uint8_t to[static ACCESS_PACKED_MAX], const struct exchange *x,
		     const struct access_names *names)
{
	struct coder c = { .to = to };
	struct line l;

	line_take(&l, x, names);
	l.total_us = x->facts.open_us;
	code_numbers(&c, &l);
	put_addr(&c, l.peer);
	put_addr(&c, l.client);
	put_addr(&c, l.address);
	code_texts(&c, &l);
	must(c.to <= to + ACCESS_PACKED_MAX);
	return (uint32_t)(c.to - to);
}

void access_log_packed(struct log_ring *r, const struct access_log_conf *conf,
		       const uint8_t *packed, const struct access_end *end)
{
	struct coder c = { .from = packed };
	struct line l = { .kind = LOG_KIND_TUNNEL, .has_request = true };
	struct addr peer, client, address;

	code_numbers(&c, &l);
	get_addr(&c, &peer);
	get_addr(&c, &client);
	get_addr(&c, &address);
	code_texts(&c, &l);
	l.peer = &peer;
	l.client = &client;
	l.address = address.len ? &address : NULL;
	l.why = end->why;
	l.complete = end->why->id == WHY_NONE;
	l.bytes_in += end->bytes_in;
	l.bytes_out += end->bytes_out;
	l.total_us = line_since(end->end_us, l.total_us);
	line_write(r, conf, &l);
}
