/* link_conf.c -- the settings of connections: binds, PROXY protocol, names. */
#include "base/setting.h"
#include "link/link.h"

const struct setting link_conf_bind = {
	.name = "bind",
	.type = SETTING_BIND,
	.flags = SETTING_REQUIRED,
	.example = "\"127.0.0.1:9090\"",
	.doc = "Where to listen: `address:port`, `[v6]:port`, `*:port` (IPv4 and IPv6) or "
	       "`unix:path`.",
};

/* ---- PROXY protocol ---- */

static const struct setting proxy_from_elem = {
	.name = "from",
	.type = SETTING_NET,
};

static const struct setting proxy_protocol_rows[] = {
	{
		.name = "from",
		.type = SETTING_LIST,
		SETTING_LIST_AT(proxyproto_conf, from, &proxy_from_elem),
		.flags = SETTING_REQUIRED | SETTING_SOME,
		.doc = "Networks that send a PROXY header, v1 or v2. From these it is "
		       "required, from all others it is refused.",
	},
	{
		.name = "timeout",
		.type = SETTING_MS,
		SETTING_AT(proxyproto_conf, timeout_ms),
		.def = "3s",
		.min = 1,
		.max = 3600000,
		.doc = "How long to wait for the whole header.",
	},
};

const struct setting_group link_conf_proxy_protocol = {
	.title = "proxy_protocol",
	SETTING_ROWS(proxy_protocol_rows),
};

/* ---- names ---- */

static const struct setting resolver_server_elem = {
	.name = "servers",
	.type = SETTING_ADDR,
};

static const char *const prefer_words[] = { "auto", "ipv4", "ipv6", NULL };

static const struct setting resolver_rows[] = {
	{
		.name = "servers",
		.type = SETTING_LIST,
		SETTING_LIST_AT(resolver_conf, servers, &resolver_server_elem),
		.def = "auto",
		.flags = SETTING_AUTO | SETTING_SOME,
		.doc = "Name servers, as addresses, port 53 unless given. `auto`: those of "
		       "/etc/resolv.conf.",
	},
	{
		.name = "timeout",
		.type = SETTING_MS,
		SETTING_AT(resolver_conf, timeout_ms),
		.def = "2s",
		.min = 10,
		.max = 60000,
		.doc = "How long to wait for one answer of one server.",
	},
	{
		.name = "attempts",
		.type = SETTING_COUNT,
		SETTING_AT(resolver_conf, attempts),
		.def = "2",
		.min = 1,
		.max = 10,
		.unit = "tries",
		.doc = "How often each server is asked.",
	},
	{
		.name = "negative_ttl",
		.type = SETTING_MS,
		SETTING_AT(resolver_conf, negative_ttl_ms),
		.def = "5s",
		.min = 1,
		.max = 86400000,
		.flags = SETTING_OFF,
		.doc = "How long it is remembered that a name has no address. `off`: not at "
		       "all.",
	},
	{
		.name = "stale",
		.type = SETTING_MS,
		SETTING_AT(resolver_conf, stale_ms),
		.def = "1h",
		.min = 1,
		.max = 2592000000,
		.flags = SETTING_OFF,
		.doc = "How long past its TTL an answer is served while no server answers. "
		       "`off`: not at all.",
	},
	{
		.name = "prefer",
		.type = SETTING_ENUM,
		SETTING_AT(resolver_conf, prefer),
		.def = "auto",
		.words = prefer_words,
		.doc = "Which addresses of a name are tried first. `auto`: IPv6 with a short "
		       "head start (RFC 8305).",
	},
};

static const struct setting_group resolver_group = {
	.title = "resolver",
	SETTING_ROWS(resolver_rows),
};

const struct setting link_conf_resolver = {
	.name = "resolver",
	.type = SETTING_GROUP,
	.group = &resolver_group,
	.doc = "How names become addresses. Upstream names use the search list of "
	       "resolv.conf, targets of the forward direction never.",
};
