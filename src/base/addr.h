/* addr.h -- socket addresses and networks: parse, print, compare.  Pure. */
#ifndef BASE_ADDR_H
#define BASE_ADDR_H

#include "base/mem.h"
#include "base/out.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

struct addr {
	socklen_t len;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} u;
};

struct addr_net { /* v4 networks are kept as v4-mapped v6: 96 + prefix bits */
	uint8_t ip[16];
	uint8_t bits;
};

/* "1.2.3.4", "[::1]", "::1"; port in host order.  Strict dotted quad (no octal, no short forms):
 * those are names, which getaddrinfo-style resolving must never see as addresses. */
bool addr_parse_ip(struct str s, uint16_t port, struct addr *out) MUST_CHECK;
/* "10.0.0.0/8", "::1", "fd00::/8"; host bits must be 0. */
bool addr_parse_net(struct str s, struct addr_net *out) MUST_CHECK;
/* An IPv6 network shorter than /96 (::/0) never holds an IPv4 address. */
bool addr_in_net(const struct addr *a, const struct addr_net *n);
/* NULL, or the most specific of the nets that holds a (the first of equals). */
const struct addr_net *addr_find_net(const struct addr *a, const struct addr_net *nets, uint32_t n);
void addr_ip16(const struct addr *a, uint8_t ip[16]); /* v4 as ::ffff:a.b.c.d */
void addr_unmap(struct addr *a);                      /* ::ffff:a.b.c.d becomes plain v4 */
bool addr_same_ip(const struct addr *a, const struct addr *b);
bool addr_same(const struct addr *a, const struct addr *b); /* ip and port */
uint16_t addr_port(const struct addr *a);
void addr_set_port(struct addr *a, uint16_t port);
void addr_out(struct out *o, const struct addr *a);    /* 1.2.3.4:80, [::1]:80 */
void addr_ip_out(struct out *o, const struct addr *a); /* 1.2.3.4, ::1; another family: - */
bool addr_is_loopback(const struct addr *a);
/* In none of the special-purpose ranges; embedded v4 forms (mapped, compatible, NAT64, 6to4,
 * Teredo) are looked through. */
bool addr_is_public(const struct addr *a);

#endif
