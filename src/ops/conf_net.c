/* conf_net.c -- typed scalars that name places: networks, addresses, binds, servers, hosts.
 * Exports: conf_net_*.  Pure: nothing is resolved. */
#include "ops/conf.h"

#include <arpa/inet.h>
#include <ctype.h>

#define BACKLOG 4096 /* the kernel caps it at net.core.somaxconn */

static struct str cut(struct str s, uint32_t from, uint32_t n)
{
	return (struct str){ .p = s.p + from, .n = n };
}

/* ---- networks ---- */

void conf_net_print_net(struct out *o, const struct addr_net *n)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	char text[INET6_ADDRSTRLEN];
	bool v4 = memcmp(n->ip, mapped, 12) == 0 && n->bits >= 96;

	if (v4)
		inet_ntop(AF_INET, n->ip + 12, text, sizeof(text));
	else
		inet_ntop(AF_INET6, n->ip, text, sizeof(text));
	out_str(o, str_of(text));
	out_char(o, '/');
	out_u64(o, v4 ? n->bits - 96u : n->bits);
}

/* 10.1.2.3/8: an address with a length, whose host bits are not zero.  Says what was meant. */
static bool net_with_host_bits(struct conf_value *v, struct str ip, uint64_t bits)
{
	struct addr_net n = { .bits = 0 };
	struct addr a;
	char room[80];
	struct out o;

	if (!addr_parse_ip(ip, 0, &a))
		return false;
	if (a.u.sa.sa_family == AF_INET)
		bits += 96;
	if (bits > 128)
		return false;
	addr_ip16(&a, n.ip);
	n.bits = (uint8_t)bits;
	for (unsigned i = 0; i < 128; i++)
		if (i >= bits)
			n.ip[i / 8] &= (uint8_t) ~(0x80u >> (i % 8));
	out_init(&o, room, sizeof(room));
	conf_net_print_net(&o, &n);
	conf_value_why(v, "the bits behind the prefix must be zero");
	conf_value_fix(v, "write %.*s", (int)out_len(&o), room);
	return true;
}

bool conf_net_parse_net(struct conf_value *v, void *member)
{
	const char *slash = memchr(v->text.p, '/', v->text.n);
	uint64_t bits;

	if (addr_parse_net(v->text, member))
		return true;
	if (slash) {
		uint32_t n = (uint32_t)(slash - v->text.p);

		if (str_u64(cut(v->text, n + 1, v->text.n - n - 1), &bits) && bits <= 128 &&
		    net_with_host_bits(v, cut(v->text, 0, n), bits))
			return false;
	}
	return conf_value_why(v, "must be an address or a network such as 10.0.0.0/8 or fd00::/8");
}

/* ---- host names ---- */

/* RFC 1123 labels, and the underscore that people have in their names.  NULL: fine. */
static const char *name_wrong(struct str s)
{
	uint32_t label = 0;
	bool digits = true; /* the last label: 1.2.3 and 127.1 are addresses to some */

	if (s.n == 0 || s.n > 253)
		return "a host name has 1 to 253 characters";
	for (uint32_t i = 0; i < s.n; i++) {
		uint8_t ch = (uint8_t)s.p[i];

		if (ch == '.') {
			if (label == 0)
				return "a host name has an empty label";
			label = 0;
			digits = true;
			continue;
		}
		if (ch >= 0x80)
			return "write an international name in its xn-- form";
		if (!isalnum(ch) && ch != '-' && ch != '_')
			return "a host name is made of letters, digits, - and dots";
		if ((ch == '-' && (label == 0 || i + 1 == s.n || s.p[i + 1] == '.')) ||
		    ++label > 63)
			return "a label of a host name has 1 to 63 characters, no - at its ends";
		digits = digits && isdigit(ch);
	}
	if (label == 0)
		return "a host name has an empty label";
	if (digits ||
	    (label > 2 && s.p[s.n - label] == '0' && (s.p[s.n - label + 1] | 0x20) == 'x'))
		return "this looks like an address but is none; write all four numbers";
	return NULL;
}

static struct str lower_no_dot(struct str s, char *room)
{
	if (s.n > 1 && s.p[s.n - 1] == '.')
		s.n--;
	for (uint32_t i = 0; i < s.n; i++)
		room[i] = (char)tolower((uint8_t)s.p[i]);
	return (struct str){ .p = room, .n = s.n };
}

/* "name:port", "1.2.3.4:port", "[v6]:port", each also without a port. */
struct place {
	struct str host;      /* without brackets */
	struct str port_text; /* .p NULL: none */
	uint16_t port;
	bool bracket;
};

static bool split_port(struct conf_value *v, struct str s, struct place *p)
{
	const char *colon = NULL;
	uint64_t port;

	*p = (struct place){ .host = s };
	if (s.n && s.p[0] == '[') {
		const char *close = memchr(s.p, ']', s.n);

		if (!close)
			return conf_value_why(v, "[ without its ]");
		p->bracket = true;
		p->host = cut(s, 1, (uint32_t)(close - s.p) - 1);
		if (close + 1 < s.p + s.n)
			colon = close + 1;
		if (colon && *colon != ':')
			return conf_value_why(v, "behind the ] only a port may stand");
	} else {
		colon = memrchr(s.p, ':', s.n);
		if (colon && memchr(s.p, ':', (size_t)(colon - s.p)))
			return true; /* a bare v6 address: no port */
		if (colon)
			p->host = cut(s, 0, (uint32_t)(colon - s.p));
	}
	if (!colon)
		return true;
	p->port_text = cut(s, (uint32_t)(colon + 1 - s.p), (uint32_t)(s.p + s.n - colon - 1));
	if (!str_u64(p->port_text, &port) || port == 0 || port > 65535)
		return conf_value_why(v, "a port is a number from 1 to 65535");
	p->port = (uint16_t)port;
	return true;
}

/* ---- name servers ---- */

bool conf_net_parse_addr(struct conf_value *v, void *member)
{
	struct place p;

	if (!split_port(v, v->text, &p))
		return false;
	if (!addr_parse_ip(p.host, p.port ? p.port : 53, member))
		return conf_value_why(
			v, "must be an address such as 192.0.2.53 or \"[2001:db8::53]:53\"");
	return true;
}

/* ---- binds ---- */

static bool unix_path(struct conf_value *v, struct str path, struct str *to)
{
	char room[4096];
	struct out o;

	if (path.n == 0)
		return conf_value_why(v, "behind unix: the path of a socket is missing");
	out_init(&o, room, sizeof(room));
	if (path.p[0] != '/')
		out_str(&o, str_of(v->dir));
	out_str(&o, path);
	if (!out_ok(&o) || out_len(&o) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return conf_value_why(v, "the path of a socket has at most %zu bytes",
				      sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	for (uint32_t i = 0; i < out_len(&o); i++)
		if ((uint8_t)room[i] < ' ')
			return conf_value_why(v, "must not have line breaks or control characters");
	return conf_value_keep(v, (struct str){ .p = room, .n = out_len(&o) }, to);
}

static bool bind_no_port(struct conf_value *v, const struct place *p)
{
	uint64_t port;

	conf_value_why(v, "must be address:port, *:port or unix:path");
	if (str_u64(v->text, &port) && port > 0 && port <= 65535)
		return conf_value_fix(v, "write \"*:%u\"", (unsigned)port);
	if (p->host.n && memchr(p->host.p, ':', p->host.n) && !p->bracket)
		return conf_value_fix(v, "write \"[%.*s]:8080\"", (int)p->host.n, p->host.p);
	return conf_value_fix(v, "write \"%.*s:8080\"", (int)v->text.n, v->text.p);
}

static bool bind_tcp(struct conf_value *v, struct bind_conf *b)
{
	struct place p;
	static const struct in6_addr any6;

	if (!split_port(v, v->text, &p))
		return false;
	if (!p.port_text.p)
		return bind_no_port(v, &p);
	b->dual = str_eq(p.host, STR("*"));
	if (b->dual) {
		must(addr_parse_ip(STR("::"), p.port, &b->addr));
		return true;
	}
	if (p.host.n == 0) {
		conf_value_why(v, "the address is missing");
		return conf_value_fix(v, "write \"*:%u\" for all addresses", p.port);
	}
	if (!addr_parse_ip(p.host, p.port, &b->addr)) {
		conf_value_why(v, "a bind takes an address, not a name");
		if (str_ieq(p.host, STR("localhost")))
			return conf_value_fix(v, "write \"127.0.0.1:%u\"", p.port);
		return false;
	}
	b->dual = b->addr.u.sa.sa_family == AF_INET6 &&
		  memcmp(&b->addr.u.in6.sin6_addr, &any6, sizeof(any6)) == 0;
	return true;
}

bool conf_net_parse_bind(struct conf_value *v, void *member)
{
	struct bind_conf *b = member;

	b->backlog = BACKLOG;
	b->dual = false;
	conf_value_keep(v, v->text, &b->text);
	if (v->text.n >= 5 && memcmp(v->text.p, "unix:", 5) == 0) {
		b->kind = BIND_UNIX;
		return unix_path(v, cut(v->text, 5, v->text.n - 5), &b->path);
	}
	if (v->text.n && v->text.p[0] == '/') {
		conf_value_why(v, "must be address:port, *:port or unix:path");
		return conf_value_fix(v, "write \"unix:%.*s\"", (int)v->text.n, v->text.p);
	}
	b->kind = BIND_TCP;
	return bind_tcp(v, b);
}

/* ---- servers ---- */

static bool server_place(struct conf_value *v, struct str s, struct server_conf *sv)
{
	const char *slash = memchr(s.p, '/', s.n), *wrong;
	char room[256];
	struct place p;

	if (memchr(s.p, '@', s.n))
		return conf_value_why(v, "a server's URL has no user and no password");
	if (slash) {
		uint32_t n = (uint32_t)(slash - s.p);

		conf_value_why(v, "a server's URL has no path: the request's goes on as it is");
		return conf_value_fix(v, "write http://%.*s", (int)n, s.p);
	}
	if (!split_port(v, s, &p))
		return false;
	sv->port = p.port ? p.port : 80;
	sv->literal = addr_parse_ip(p.host, sv->port, &sv->addr);
	if (!sv->literal && p.bracket)
		return conf_value_why(v, "between [ and ] an IPv6 address stands");
	if (sv->literal && !p.bracket && sv->addr.u.sa.sa_family == AF_INET6) {
		conf_value_why(v, "an IPv6 address needs brackets");
		return conf_value_fix(v, "write \"http://[%.*s]\"", (int)s.n, s.p);
	}
	if (!sv->literal) {
		wrong = name_wrong(p.host.n <= 254 ? lower_no_dot(p.host, room) : p.host);
		if (wrong)
			return conf_value_why(v, "%s", wrong);
	}
	return conf_value_keep(v, lower_no_dot(p.host, room), &sv->host);
}

bool conf_net_parse_server(struct conf_value *v, void *member)
{
	struct server_conf *sv = member;
	struct str s = v->text;
	const char *colon = s.n ? memmem(s.p, s.n, "://", 3) : NULL;

	conf_value_keep(v, s, &sv->url);
	if (s.n >= 5 && memcmp(s.p, "unix:", 5) == 0)
		return unix_path(v, cut(s, 5, s.n - 5), &sv->path);
	if (str_istarts(s, STR("https://")))
		return conf_value_why(v, "https servers are not in this version");
	if (str_istarts(s, STR("http://")))
		return server_place(v, cut(s, 7, s.n - 7), sv);
	if (colon)
		return conf_value_why(v, "a server is http://host:port or unix:path");
	conf_value_why(v, "a server is http://host:port or unix:path");
	if (s.n && s.p[0] == '/')
		return conf_value_fix(v, "write \"unix:%.*s\"", (int)s.n, s.p);
	return s.n ? conf_value_fix(v, "write http://%.*s", (int)s.n, s.p) : false;
}

/* ---- hosts ---- */

/* What a Host field may be: host, host:port, [v6]:port. */
bool conf_net_parse_host(struct conf_value *v, void *member)
{
	const char *wrong;
	struct place p;
	struct addr a;

	if (!split_port(v, v->text, &p))
		return false;
	if (addr_parse_ip(p.host, 0, &a)) {
		if (a.u.sa.sa_family == AF_INET6 && !p.bracket) {
			conf_value_why(v, "an IPv6 address needs brackets");
			return conf_value_fix(v, "write \"[%.*s]\"", (int)v->text.n, v->text.p);
		}
		return conf_value_keep(v, v->text, member);
	}
	wrong = p.bracket ? "between [ and ] an IPv6 address stands" : name_wrong(p.host);
	if (wrong)
		return conf_value_why(v, "%s", wrong);
	return conf_value_keep(v, v->text, member);
}

/* A pattern for hosts, as heads have them: lower case, no port, no brackets, no trailing dot. */
bool conf_net_parse_hosts(struct conf_value *v, void *member)
{
	struct str s = v->text, bare;
	const char *wrong;
	char room[256], ip[INET6_ADDRSTRLEN];
	struct place p;
	struct addr a;

	if (str_eq(s, STR("*")))
		return conf_value_keep(v, s, member);
	if (!split_port(v, s, &p))
		return false;
	if (p.port_text.p) {
		conf_value_why(v, "a host without its port");
		return conf_value_fix(v, "write \"%.*s\"", (int)p.host.n, p.host.p);
	}
	if (addr_parse_ip(p.host, 0, &a)) {
		struct out o;

		out_init(&o, ip, sizeof(ip));
		addr_ip_out(&o, &a);
		return conf_value_keep(v, (struct str){ .p = ip, .n = out_len(&o) }, member);
	}
	if (p.bracket)
		return conf_value_why(v, "between [ and ] an IPv6 address stands");
	if (s.n > 254)
		return conf_value_why(v, "a host name has 1 to 253 characters");
	s = lower_no_dot(s, room);
	bare = s.n > 2 && memcmp(s.p, "*.", 2) == 0 ? cut(s, 2, s.n - 2) : s;
	if (memchr(bare.p, '*', bare.n))
		return conf_value_why(v, "* stands alone or as \"*.\" at the beginning");
	wrong = name_wrong(bare);
	if (wrong)
		return conf_value_why(v, "%s", wrong);
	return conf_value_keep(v, s, member);
}
