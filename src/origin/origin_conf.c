/* origin_conf.c -- the settings of upstreams: named groups of servers. */
#include "base/setting.h"
#include "origin/origin.h"

static const struct setting server_rows[] = {
	{
		.name = "url",
		.type = SETTING_SERVER,
		.flags = SETTING_REQUIRED,
		.doc = "`http://host:port` or `unix:path`.",
	},
	{
		.name = "weight",
		.type = SETTING_COUNT,
		SETTING_AT(server_conf, weight),
		.def = "1",
		.min = 1,
		.max = 256,
		.unit = "parts",
		.doc = "Its share of the requests.",
	},
	{
		.name = "max_connections",
		.type = SETTING_COUNT,
		SETTING_AT(server_conf, max_connections),
		.def = "off",
		.min = 1,
		.max = 1000000,
		.flags = SETTING_OFF,
		.unit = "connections",
		.doc = "Connections to it at one time, idle ones and tunnels included, over all "
		       "shards; never more. Requests beyond wait, first come first served, at "
		       "most for `timeouts.queue`.",
	},
};

static const struct setting_group server_group = {
	.title = "a server",
	.later = "tls backup health slow_start zone proxy_protocol",
	.scalar = "url",
	SETTING_ROWS(server_rows),
};

static const struct setting server_elem = {
	.name = "servers",
	.type = SETTING_GROUP,
	.group = &server_group,
};

static const struct setting retry_rows[] = {
	{
		.name = "attempts",
		.type = SETTING_COUNT,
		SETTING_AT(upstream_conf, retry_attempts),
		.def = "2",
		.min = 1,
		.max = 10,
		.unit = "tries",
		.doc = "Tries in all, the first included; 1: no other server is tried.",
	},
};

static const struct setting_group retry_group = {
	.title = "retry",
	.later = "budget backoff on hedge",
	SETTING_ROWS(retry_rows),
};

static const struct setting eject_rows[] = {
	{
		.name = "failures",
		.type = SETTING_COUNT,
		SETTING_AT(upstream_conf, eject_failures),
		.def = "3",
		.min = 1,
		.max = 1000,
		.flags = SETTING_OFF,
		.unit = "failures",
		.doc = "After how many failures to connect in a row a server is left out. "
		       "`off`: never.",
	},
	{
		.name = "time",
		.type = SETTING_MS,
		SETTING_AT(upstream_conf, eject_ms),
		.def = "10s",
		.min = 100,
		.max = 86400000,
		.doc = "For how long.",
	},
};

static const struct setting_group eject_group = {
	.title = "eject",
	.later = "share max_share status",
	SETTING_ROWS(eject_rows),
};

/* The order is that of enum balance. */
static const char *const balance_words[] = { "round_robin", "least_connections", "p2c", NULL };

static const struct setting upstream_rows[] = {
	{
		.name = "name",
		.type = SETTING_NAME,
		SETTING_AT(upstream_conf, name),
		.flags = SETTING_KEY,
		.doc = "The key itself.",
	},
	{
		.name = "servers",
		.type = SETTING_LIST,
		SETTING_LIST_AT(upstream_conf, servers, &server_elem),
		.flags = SETTING_REQUIRED | SETTING_SOME,
		.doc = "URLs, or maps with `url`, `weight` and `max_connections`.",
	},
	{
		.name = "balance",
		.type = SETTING_ENUM,
		SETTING_AT(upstream_conf, balance),
		.def = "round_robin",
		.words = balance_words,
		.later = "hash maglev ewma random source cookie",
		.doc = "`round_robin` (smooth, weighted, each shard by itself), "
		       "`least_connections`, or `p2c` (the better of two at random): these "
		       "two go by the requests of all shards.",
	},
	{
		.name = "host",
		.type = SETTING_HOST,
		SETTING_AT(upstream_conf, host),
		.example = "app.internal",
		.doc = "The Host that the servers see. Default: the client's.",
	},
	{
		.name = "retry",
		.type = SETTING_GROUP,
		.group = &retry_group,
		.doc = "Another server is tried only while no byte of the request was sent.",
	},
	{
		.name = "eject",
		.type = SETTING_GROUP,
		.group = &eject_group,
		.doc = "A server that cannot be reached is left out for a while; never the "
		       "last one.",
	},
};

static const struct setting_group upstream_group = {
	.title = "an upstream",
	.later = "tls health check sticky hash slow_start backup max_connections queue "
		 "discover http2 http3 mirror zone circuit_breaker proxy_protocol keep_alive "
		 "parents",
	SETTING_ROWS(upstream_rows),
};

static const struct setting upstream_elem = {
	.name = "upstreams",
	.type = SETTING_GROUP,
	.group = &upstream_group,
};

const struct setting origin_conf_upstreams = {
	.name = "upstreams",
	.type = SETTING_NAMES,
	SETTING_LIST_AT(upstreams_conf, upstreams, &upstream_elem),
	.example = "\n"
		   "  app:\n"
		   "    servers: [\"http://127.0.0.1:8000\"]\n",
	.doc = "Named groups of servers that routes name.",
};
