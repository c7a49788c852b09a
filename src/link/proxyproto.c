/* proxyproto.c -- the PROXY protocol's head, versions 1 and 2: who the client really is, as a
 * load balancer in front tells it.  Pure.  [proxy-protocol.txt §2]  Exports: proxyproto_*
 *
 *     v1   "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", at most 107 bytes
 *     v2   signature (12), version and command, family and protocol, length (2, big endian),
 *          addresses, TLVs
 *
 * It is demanded where it is configured and never guessed: the first byte that does not fit is an
 * error. */
#include "link/link.h"

#include <errno.h>

#define V1_MAX     107u
#define V2_HEAD    16u
#define TLV_CRC32C 0x03

static const uint8_t v2_signature[12] = { 0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d,
					  0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a };

/* --- version 1 --- */
/* The next word, which must end in the given byte; false: not so. */
static bool word(struct str *line, char end, struct str *out)
{
	const char *p = line->n ? memchr(line->p, end, line->n) : NULL;
	uint32_t n = p ? (uint32_t)(p - line->p) : 0;

	if (!p || n == 0)
		return false;
	*out = (struct str){ line->p, n };
	line->p += n + 1;
	line->n -= n + 1;
	return true;
}

/* Decimal, no leading zero but "0" itself. */
static bool parse_port(struct str s, uint16_t *port)
{
	uint64_t v;

	if (s.n > 5 || (s.n > 1 && s.p[0] == '0') || !str_u64(s, &v) || v > 65535)
		return false;
	*port = (uint16_t)v;
	return true;
}

static bool parse_ip(struct str s, int family, uint16_t port, struct addr *out)
{
	if (s.p[0] == '[' || !addr_parse_ip(s, port, out))
		return false;
	if (out->u.sa.sa_family != family)
		return false;
	addr_unmap(out);
	return true;
}

/* What stands between "PROXY " and CRLF; the line ends in CR. */
static bool parse_line(struct str line, struct addr *src, struct addr *dst)
{
	struct str proto, from, to, from_port, to_port;
	uint16_t p, q;
	int family;

	if (str_eq((struct str){ line.p, line.n < 7 ? line.n : 7 }, STR("UNKNOWN")))
		return line.n > 7 && (line.p[7] == ' ' || line.p[7] == '\r');
	if (!word(&line, ' ', &proto) || !word(&line, ' ', &from) || !word(&line, ' ', &to) ||
	    !word(&line, ' ', &from_port) || !word(&line, '\r', &to_port) || line.n)
		return false;
	if (!str_eq(proto, STR("TCP4")) && !str_eq(proto, STR("TCP6")))
		return false;
	family = proto.p[3] == '4' ? AF_INET : AF_INET6;
	return parse_port(from_port, &p) && parse_port(to_port, &q) &&
	       parse_ip(from, family, p, src) && parse_ip(to, family, q, dst);
}

static int parse_v1(const char *p, uint32_t n, struct addr *src, struct addr *dst)
{
	static const char start[] = "PROXY ";
	uint32_t known = sizeof(start) - 1, len;
	const char *end;

	if (memcmp(p, start, n < known ? n : known) != 0)
		return -EPROTO;
	end = memchr(p, '\n', n < V1_MAX ? n : V1_MAX);
	if (!end)
		return n >= V1_MAX ? -EPROTO : 0;
	len = (uint32_t)(end - p) + 1;
	if (len < known + 2 || end[-1] != '\r' ||
	    !parse_line((struct str){ p + known, len - known - 1 }, src, dst)) {
		src->len = dst->len = 0;
		return -EPROTO;
	}
	return (int)len;
}

/* --- version 2 --- */
static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t crc32c(uint32_t crc, const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

/* Over the whole head with the sum's own four bytes (at `at`) as zeros. */
static bool sum_fits(const uint8_t *head, uint32_t len, uint32_t at)
{
	static const uint8_t zeros[4];
	uint32_t crc = crc32c(~0u, head, at);

	crc = crc32c(crc, zeros, 4);
	crc = ~crc32c(crc, head + at + 4, len - at - 4);
	return crc == ((uint32_t)be16(head + at) << 16 | be16(head + at + 2));
}

/* Every TLV must end within the head; a checksum must be right. */
static bool tlvs_ok(const uint8_t *head, uint32_t len, uint32_t at)
{
	while (at < len) {
		uint32_t n;

		if (len - at < 3)
			return false;
		n = be16(head + at + 1);
		if (n > len - at - 3)
			return false;
		if (head[at] == TLV_CRC32C && (n != 4 || !sum_fits(head, len, at + 3)))
			return false;
		at += 3 + n;
	}
	return true;
}

static void take_v4(const uint8_t *ip, const uint8_t *port, struct addr *a)
{
	a->len = sizeof(a->u.in);
	a->u.in.sin_family = AF_INET;
	memcpy(&a->u.in.sin_addr, ip, 4);
	memcpy(&a->u.in.sin_port, port, 2);
}

static void take_v6(const uint8_t *ip, const uint8_t *port, struct addr *a)
{
	a->len = sizeof(a->u.in6);
	a->u.in6.sin6_family = AF_INET6;
	memcpy(&a->u.in6.sin6_addr, ip, 16);
	memcpy(&a->u.in6.sin6_port, port, 2);
	addr_unmap(a);
}

/* Bytes of the address block; what is no IP is passed over [§2.2: treat as UNSPEC]. */
static uint32_t address_bytes(uint8_t family)
{
	switch (family >> 4) {
	case 1: return 12;
	case 2: return 36;
	case 3: return 216;
	default: return 0;
	}
}

static int parse_v2(const uint8_t *p, uint32_t n, struct addr *src, struct addr *dst)
{
	uint32_t known = n < sizeof(v2_signature) ? n : sizeof(v2_signature), len, addresses;
	bool stream;

	if (memcmp(p, v2_signature, known) != 0)
		return -EPROTO;
	if (n > 12 && p[12] != 0x20 && p[12] != 0x21)
		return -EPROTO;
	if (n > 13 && ((p[13] >> 4) > 3 || (p[13] & 15) > 2))
		return -EPROTO;
	if (n < V2_HEAD)
		return 0;
	len = V2_HEAD + be16(p + 14);
	if (len > PROXYPROTO_MAX)
		return -EPROTO;
	if (n < len)
		return 0;
	if (p[12] == 0x20) /* LOCAL: a health check of the sender's own; whatever follows */
		return (int)len;
	addresses = address_bytes(p[13]);
	if (len < V2_HEAD + addresses)
		return -EPROTO;
	if (addresses && !tlvs_ok(p, len, V2_HEAD + addresses))
		return -EPROTO;
	stream = (p[13] & 15) == 1;
	if (stream && addresses == 12) {
		take_v4(p + 16, p + 24, src);
		take_v4(p + 20, p + 26, dst);
	} else if (stream && addresses == 36) {
		take_v6(p + 16, p + 48, src);
		take_v6(p + 32, p + 50, dst);
	}
	return (int)len;
}

int proxyproto_parse(const uint8_t *p, uint32_t n, struct addr *src, struct addr *dst)
{
	memset(src, 0, sizeof(*src));
	memset(dst, 0, sizeof(*dst));
	if (n == 0)
		return 0;
	if (p[0] == v2_signature[0])
		return parse_v2(p, n, src, dst);
	return parse_v1((const char *)p, n, src, dst);
}
