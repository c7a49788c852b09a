/* addr.c -- addresses and networks.  Pure.
 *
 * Everything is judged in one form, 16 bytes, IPv4 as ::ffff:a.b.c.d: what a dual-stack socket
 * reports and what a plain one reports are the same peer. */
#include "base/addr.h"

#include "base/panic.h"

#include <arpa/inet.h>

static const uint8_t mapped_prefix[12] = { [10] = 0xff, [11] = 0xff };

static inline bool is_mapped(const uint8_t ip[16])
{
	return memcmp(ip, mapped_prefix, 12) == 0;
}

/* --- parse --- */

/* Four decimal numbers of up to 255 without leading zeros: 010 is 8 to some and 10 to others, so it
 * is neither. */
static bool parse_v4(struct str s, uint8_t ip[4])
{
	uint32_t at = 0;

	for (unsigned part = 0; part < 4; part++) {
		uint32_t begin = at, v = 0;

		while (at < s.n && at - begin < 3 && s.p[at] >= '0' && s.p[at] <= '9')
			v = v * 10 + (uint32_t)(s.p[at++] - '0');
		if (at == begin || v > 255 || (s.p[begin] == '0' && at - begin > 1))
			return false;
		ip[part] = (uint8_t)v;
		if (part < 3 && (at == s.n || s.p[at++] != '.'))
			return false;
	}
	return at == s.n;
}

static bool parse_v6(struct str s, uint8_t ip[16])
{
	char text[INET6_ADDRSTRLEN];

	if (s.n >= sizeof(text) || memchr(s.p, '\0', s.n) || !memchr(s.p, ':', s.n))
		return false;
	memcpy(text, s.p, s.n);
	text[s.n] = '\0';
	/* no zone, no brackets; an embedded dotted quad is strict, too */
	return inet_pton(AF_INET6, text, ip) == 1;
}

static bool parse_ip16(struct str s, uint8_t ip[16])
{
	if (!s.n)
		return false;
	if (parse_v4(s, ip + 12)) {
		memcpy(ip, mapped_prefix, 12);
		return true;
	}
	return parse_v6(s, ip);
}

static void addr_set_v4(struct addr *a, const uint8_t ip[4], uint16_t port)
{
	memset(a, 0, sizeof(*a));
	a->len = sizeof(a->u.in);
	a->u.in.sin_family = AF_INET;
	a->u.in.sin_port = htons(port);
	memcpy(&a->u.in.sin_addr, ip, 4);
}

static void addr_set_v6(struct addr *a, const uint8_t ip[16], uint16_t port)
{
	memset(a, 0, sizeof(*a));
	a->len = sizeof(a->u.in6);
	a->u.in6.sin6_family = AF_INET6;
	a->u.in6.sin6_port = htons(port);
	memcpy(&a->u.in6.sin6_addr, ip, 16);
}

bool addr_parse_ip(struct str s, uint16_t port, struct addr *out)
{
	uint8_t ip[16];

	if (!s.n)
		return false;
	if (parse_v4(s, ip)) {
		addr_set_v4(out, ip, port);
		return true;
	}
	if (s.n > 2 && s.p[0] == '[' && s.p[s.n - 1] == ']')
		s = (struct str){ .p = s.p + 1, .n = s.n - 2 };
	if (!parse_v6(s, ip))
		return false;
	addr_set_v6(out, ip, port);
	return true;
}

/* The first `bits` bits of a and b are the same. */
static inline bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	if (memcmp(a, b, bytes) != 0)
		return false;
	return rest == 0 || (a[bytes] ^ b[bytes]) >> (8 - rest) == 0;
}

static bool host_bits_zero(const struct addr_net *n)
{
	for (unsigned bit = n->bits; bit < 128; bit++)
		if (n->ip[bit / 8] & 0x80 >> bit % 8)
			return false;
	return true;
}

static bool parse_bits(struct str s, unsigned max, uint8_t *bits)
{
	uint64_t v;

	if (s.n > 3 || (s.n > 1 && s.p[0] == '0') || !str_u64(s, &v) || v > max)
		return false;
	*bits = (uint8_t)v;
	return true;
}

bool addr_parse_net(struct str s, struct addr_net *out)
{
	const char *slash = s.n ? memchr(s.p, '/', s.n) : NULL;
	struct str ip = s, bits;
	struct addr_net n;
	bool v4;

	if (slash)
		ip.n = (uint32_t)(slash - s.p);
	if (!parse_ip16(ip, n.ip))
		return false;
	v4 = !memchr(ip.p, ':', ip.n);
	n.bits = 128;
	if (slash) {
		bits = (struct str){ .p = slash + 1, .n = s.n - ip.n - 1 };
		if (!parse_bits(bits, v4 ? 32 : 128, &n.bits))
			return false;
		n.bits = (uint8_t)(n.bits + (v4 ? 96 : 0));
	}
	if (!host_bits_zero(&n))
		return false;
	*out = n;
	return true;
}

/* --- compare --- */

void addr_ip16(const struct addr *a, uint8_t ip[16])
{
	if (a->u.sa.sa_family == AF_INET) {
		memcpy(ip, mapped_prefix, 12);
		memcpy(ip + 12, &a->u.in.sin_addr, 4);
	} else if (a->u.sa.sa_family == AF_INET6) {
		memcpy(ip, &a->u.in6.sin6_addr, 16);
	} else {
		memset(ip, 0, 16);
	}
}

/* ::/0 and the like mean IPv6: that IPv4 lies inside of it is our form, not what was written. */
static inline bool net_has(const struct addr_net *n, const uint8_t ip[16])
{
	return same_bits(n->ip, ip, n->bits) && (n->bits >= 96 || !is_mapped(ip));
}

bool addr_in_net(const struct addr *a, const struct addr_net *n)
{
	uint8_t ip[16];

	addr_ip16(a, ip);
	return net_has(n, ip);
}

static NOINLINE const struct addr_net *find_net(const struct addr *a, const struct addr_net *nets,
						uint32_t n)
{
	const struct addr_net *best = NULL;
	uint8_t ip[16];

	addr_ip16(a, ip);
	for (uint32_t i = 0; i < n; i++)
		if ((!best || nets[i].bits > best->bits) && net_has(&nets[i], ip))
			best = &nets[i];
	return best;
}

const struct addr_net *addr_find_net(const struct addr *a, const struct addr_net *nets, uint32_t n)
{
	return n ? find_net(a, nets, n) : NULL;
}

void addr_unmap(struct addr *a)
{
	uint8_t ip[16];

	if (a->u.sa.sa_family != AF_INET6)
		return;
	addr_ip16(a, ip);
	if (is_mapped(ip))
		addr_set_v4(a, ip + 12, ntohs(a->u.in6.sin6_port));
}

bool addr_same_ip(const struct addr *a, const struct addr *b)
{
	uint8_t x[16], y[16];

	addr_ip16(a, x);
	addr_ip16(b, y);
	return memcmp(x, y, 16) == 0;
}

bool addr_same(const struct addr *a, const struct addr *b)
{
	return addr_port(a) == addr_port(b) && addr_same_ip(a, b);
}

uint16_t addr_port(const struct addr *a)
{
	if (a->u.sa.sa_family == AF_INET)
		return ntohs(a->u.in.sin_port);
	return a->u.sa.sa_family == AF_INET6 ? ntohs(a->u.in6.sin6_port) : 0;
}

void addr_set_port(struct addr *a, uint16_t port)
{
	if (a->u.sa.sa_family == AF_INET)
		a->u.in.sin_port = htons(port);
	else if (a->u.sa.sa_family == AF_INET6)
		a->u.in6.sin6_port = htons(port);
}

/* --- print --- */

/* The bytes of an address as text: three digits at most, then their number. */
/* clang-format off */
#define OCTET(n) { \
	'0' + ((n) >= 100 ? (n) / 100 : (n) >= 10 ? (n) / 10 : (n)), \
	'0' + ((n) >= 100 ? (n) / 10 % 10 : (n) % 10), '0' + (n) % 10, \
	1 + ((n) >= 10) + ((n) >= 100) }
#define OCTETS4(n)  OCTET(n), OCTET((n) + 1), OCTET((n) + 2), OCTET((n) + 3)
#define OCTETS16(n) OCTETS4(n), OCTETS4((n) + 4), OCTETS4((n) + 8), OCTETS4((n) + 12)
#define OCTETS64(n) OCTETS16(n), OCTETS16((n) + 16), OCTETS16((n) + 32), OCTETS16((n) + 48)
static const char octets[256][4] = { OCTETS64(0), OCTETS64(64), OCTETS64(128), OCTETS64(192) };
/* clang-format on */

#define V4_TEXT 16u /* 255.255.255.255, and one byte more that is written */
static inline char *put_v4(char *p, const uint8_t ip[4])
{
	for (unsigned i = 0; i < 4; i++) {
		memcpy(p, octets[ip[i]], 4);
		p += octets[ip[i]][3];
		*p++ = '.';
	}
	return p - 1;
}

/* Near the end of the buffer: it may fit, or not. */
static COLD void v4_at_end(struct out *o, const uint8_t ip[4])
{
	char text[V4_TEXT], *end = put_v4(text, ip);

	out_mem(o, text, (size_t)(end - text));
}

static inline void out_v4(struct out *o, const uint8_t ip[4])
{
	if (__builtin_expect(o->end - o->p >= (ptrdiff_t)V4_TEXT, 1))
		o->p = put_v4(o->p, ip);
	else
		v4_at_end(o, ip);
}

/* The longest run of at least two zero groups, the first of equals (RFC 5952 §4.2). */
static unsigned zero_run(const uint16_t g[8], unsigned *len)
{
	unsigned best = 8, run = 0;

	*len = 1;
	for (unsigned i = 0; i < 8; i++) {
		run = g[i] ? 0 : run + 1;
		if (run > *len) {
			*len = run;
			best = i + 1 - run;
		}
	}
	return best;
}

/* RFC 5952; an embedded IPv4 address is dotted only in the mapped form (§5). */
static NOINLINE void out_v6(struct out *o, const uint8_t ip[16])
{
	uint16_t g[8];
	unsigned zeros, len;

	if (is_mapped(ip)) {
		out_lit(o, "::ffff:");
		out_v4(o, ip + 12);
		return;
	}
	for (unsigned i = 0; i < 8; i++)
		g[i] = (uint16_t)(ip[2 * i] << 8 | ip[2 * i + 1]);
	zeros = zero_run(g, &len);
	for (unsigned i = 0; i < 8; i++) {
		if (i == zeros) {
			out_lit(o, "::");
			i += len - 1;
			continue;
		}
		if (i && i != zeros + len)
			out_char(o, ':');
		out_hex(o, g[i]);
	}
}

void addr_ip_out(struct out *o, const struct addr *a)
{
	if (a->u.sa.sa_family == AF_INET)
		out_v4(o, (const uint8_t *)&a->u.in.sin_addr);
	else if (a->u.sa.sa_family == AF_INET6)
		out_v6(o, (const uint8_t *)&a->u.in6.sin6_addr);
	else
		out_char(o, '-');
}

void addr_out(struct out *o, const struct addr *a)
{
	if (a->u.sa.sa_family == AF_INET6) {
		out_char(o, '[');
		addr_ip_out(o, a);
		out_char(o, ']');
	} else {
		addr_ip_out(o, a);
	}
	if (a->u.sa.sa_family != AF_UNSPEC) {
		out_char(o, ':');
		out_u64(o, addr_port(a));
	}
}

/* --- judge --- */

/* clang-format off */
/* What no stranger's request may be led to: the IANA special-purpose address registries (RFC 6890
 * and its successors). */
static const struct {
	uint8_t ip[4], bits;
} special_v4[] = {
	{ { 0 }, 8 },               /* this host on this network, RFC 791 */
	{ { 10 }, 8 },              /* private, RFC 1918 */
	{ { 100, 64 }, 10 },        /* shared (CGNAT), RFC 6598 */
	{ { 127 }, 8 },             /* loopback, RFC 1122 */
	/* not registered: Azure's host agent, reachable from inside only */
	{ { 168, 63, 129, 16 }, 32 },
	{ { 169, 254 }, 16 },       /* link-local, RFC 3927: cloud metadata */
	{ { 172, 16 }, 12 },        /* private, RFC 1918 */
	{ { 192, 0, 0 }, 24 },      /* IETF protocol assignments, RFC 6890 */
	{ { 192, 0, 2 }, 24 },      /* documentation, RFC 5737 */
	{ { 192, 88, 99 }, 24 },    /* 6to4 relays, RFC 7526 */
	{ { 192, 168 }, 16 },       /* private, RFC 1918 */
	{ { 198, 18 }, 15 },        /* benchmarking, RFC 2544 */
	{ { 198, 51, 100 }, 24 },   /* documentation, RFC 5737 */
	{ { 203, 0, 113 }, 24 },    /* documentation, RFC 5737 */
	{ { 224 }, 4 },             /* multicast, RFC 5771 */
	{ { 240 }, 4 },             /* reserved, RFC 1112; 255.255.255.255 */
};

/* Inside of 2000::/3; outside of it nothing is global unicast (loopback, unique-local, link-local,
 * site-local, multicast, discard-only 100::/64, segment routing 5f00::/16 all lie there). */
static const struct {
	uint8_t ip[16], bits;
} special_v6[] = {
	{ { 0x20, 0x01, 0x00 }, 23 },       /* IETF protocol assignments, RFC 2928 */
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32 }, /* documentation, RFC 3849 */
	{ { 0x3f, 0xff, 0x00 }, 20 },       /* documentation, RFC 9637 */
};
/* clang-format on */

static bool public_v4(const uint8_t ip[4])
{
	for (unsigned i = 0; i < ARRAY_LEN(special_v4); i++)
		if (same_bits(ip, special_v4[i].ip, special_v4[i].bits))
			return false;
	return true;
}

/* server, flags, port, client inverted: RFC 4380 §4 */
static bool public_teredo(const uint8_t ip[16])
{
	uint8_t client[4];

	for (unsigned i = 0; i < 4; i++)
		client[i] = (uint8_t)~ip[12 + i];
	return public_v4(ip + 4) && public_v4(client);
}

static bool public_v6(const uint8_t ip[16])
{
	static const uint8_t compatible[12] = { 0 }, nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
	static const uint8_t nat64_local[12] = { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 };
	static const uint8_t teredo[4] = { 0x20, 0x01, 0x00, 0x00 }, sixto4[2] = { 0x20, 0x02 };
	static const uint8_t global[1] = { 0x20 };

	/* nat64_local is a /48 (RFC 8215) whose user chooses where the IPv4 address lies: it is
	 * looked through where it lies at the end, every other form is refused. */
	if (is_mapped(ip) || !memcmp(ip, compatible, 12) || !memcmp(ip, nat64, 12) ||
	    !memcmp(ip, nat64_local, 12))
		return public_v4(ip + 12);
	if (!memcmp(ip, sixto4, 2))
		return public_v4(ip + 2);
	if (!memcmp(ip, teredo, 4))
		return public_teredo(ip);
	if (!same_bits(ip, global, 3))
		return false;
	for (unsigned i = 0; i < ARRAY_LEN(special_v6); i++)
		if (same_bits(ip, special_v6[i].ip, special_v6[i].bits))
			return false;
	return true;
}

bool addr_is_public(const struct addr *a)
{
	uint8_t ip[16];

	addr_ip16(a, ip);
	return public_v6(ip);
}

bool addr_is_loopback(const struct addr *a)
{
	static const uint8_t one[16] = { [15] = 1 };
	uint8_t ip[16];

	addr_ip16(a, ip);
	return is_mapped(ip) ? ip[12] == 127 : memcmp(ip, one, 16) == 0;
}
