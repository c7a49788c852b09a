/* record.c -- what the access log will want of a tunnel: packed when it begins, as its exchange is
 * gone by its end, which may be hours away.  Exports: access_pack, access_log_record.
 *
 *   exchange -> struct line -> record … record + access_end -> struct line -> text
 *
 * Each text has a smaller limit here than in a request's line; the same mark says that it was
 * cut. */
#include "policy/priv.h"

#include <stdlib.h>

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

	return (uint16_t)(s.n <= max ? s.n : text_cut(s, max - TEXT_MARK.n).n + TEXT_MARK.n);
}

static char *pack_text(char *to, struct str s, uint16_t n)
{
	if (n < s.n) {
		memcpy(to, s.p, n - TEXT_MARK.n);
		memcpy(to + n - TEXT_MARK.n, TEXT_MARK.p, TEXT_MARK.n);
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

	line_take(&l, x, names);
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
	l.total_us = line_since(end->end_us, rec->open_us);
	line_write(r, conf, &l);
	free(rec);
}
