/* exchange_conf.c -- the settings that every exchange has: timeouts and limits.
 *
 * Both may stand at the top, in a listener, in a route; the nearest wins, key by key. */
#include "base/setting.h"
#include "exchange/exchange.h"

static const struct setting timeout_rows[] = {
	{
		.name = "connect",
		.type = SETTING_MS,
		SETTING_AT(timeouts, connect),
		.def = "5s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "All tries to connect to the addresses of one server together.",
	},
	{
		.name = "queue",
		.type = SETTING_MS,
		SETTING_AT(timeouts, queue),
		.def = "10s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "Waiting for a free connection of a server, where all of them have as "
		       "many as their `max_connections`.",
	},
	{
		.name = "request_head",
		.type = SETTING_MS,
		SETTING_AT(timeouts, request_head),
		.def = "10s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF | SETTING_EARLY,
		.doc = "A whole request head, from its first byte. Before the first byte "
		       "`keep_alive` runs, and the end is silent.",
	},
	{
		.name = "request_idle",
		.type = SETTING_MS,
		SETTING_AT(timeouts, request_idle),
		.def = "60s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "Between two pieces of a request body.",
	},
	{
		.name = "first_byte",
		.type = SETTING_MS,
		SETTING_AT(timeouts, first_byte),
		.def = "60s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "From the last byte of the request to the first of the answer.",
	},
	{
		.name = "response_idle",
		.type = SETTING_MS,
		SETTING_AT(timeouts, response_idle),
		.def = "60s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "Between two pieces of an answer; event streams and tunnels use "
		       "`tunnel_idle`.",
	},
	{
		.name = "send_idle",
		.type = SETTING_MS,
		SETTING_AT(timeouts, send_idle),
		.def = "60s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "A reader, client or server, that takes nothing.",
	},
	{
		.name = "keep_alive",
		.type = SETTING_MS,
		SETTING_AT(timeouts, keep_alive),
		.def = "75s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF | SETTING_EARLY,
		.doc = "A client's connection between two requests.",
	},
	{
		.name = "upstream_keep_alive",
		.type = SETTING_MS,
		SETTING_AT(timeouts, upstream_keep_alive),
		.def = "30s",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF | SETTING_EARLY,
		.doc = "An idle connection to a server; none is kept that is older than 30m. A "
		       "request that may not be sent twice takes only one that was idle for less "
		       "than 2s.",
	},
	{
		.name = "tunnel_idle",
		.type = SETTING_MS,
		SETTING_AT(timeouts, tunnel_idle),
		.def = "1h",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "A tunnel (CONNECT, WebSocket) or an event stream in which nothing "
		       "moves.",
	},
	{
		.name = "total",
		.type = SETTING_MS,
		SETTING_AT(timeouts, total),
		.def = "off",
		.min = 1,
		.max = 2592000000,
		.inherit = MS_INHERIT,
		.flags = SETTING_OFF,
		.doc = "A whole request with its answer.",
	},
};

const struct setting_group exchange_conf_timeouts_group = {
	.title = "timeouts",
	.later = "tls_handshake",
	SETTING_ROWS(timeout_rows),
};

const struct setting exchange_conf_timeouts = {
	.name = "timeouts",
	.type = SETTING_GROUP,
	.group = &exchange_conf_timeouts_group,
	.doc = "How long things may take; `off`: no bound. May stand in a listener or a route "
	       "too, the nearest wins.",
};

static const struct setting limit_rows[] = {
	{
		.name = "request_head",
		.type = SETTING_SIZE,
		SETTING_AT(limits, request_head),
		.def = "32KiB",
		.min = 1024,
		.max = 65536,
		.inherit = N_INHERIT,
		.flags = SETTING_EARLY,
		.doc = "A whole request head.",
	},
	{
		.name = "request_target",
		.type = SETTING_SIZE,
		SETTING_AT(limits, request_target),
		.def = "8KiB",
		.min = 64,
		.max = 65536,
		.inherit = N_INHERIT,
		.flags = SETTING_EARLY,
		.doc = "The target in the request line.",
	},
	{
		.name = "request_headers",
		.type = SETTING_COUNT,
		SETTING_AT(limits, request_headers),
		.def = "100",
		.min = 1,
		.max = 10000,
		.inherit = N_INHERIT,
		.flags = SETTING_EARLY,
		.unit = "fields",
		.doc = "Header fields of a request.",
	},
	{
		.name = "request_body",
		.type = SETTING_SIZE,
		SETTING_AT(limits, request_body),
		.def = "64MiB",
		.min = 1,
		.max = 1125899906842624,
		.off = N_OFF,
		.inherit = N_INHERIT,
		.flags = SETTING_OFF,
		.doc = "A request body; one of exactly the limit passes. Forward listeners: "
		       "`off` unless it is set.",
	},
	{
		.name = "body_rate_min",
		.type = SETTING_COUNT,
		SETTING_AT(limits, body_rate_min),
		.def = "500",
		.min = 1,
		.max = 1000000000,
		.off = N_OFF,
		.inherit = N_INHERIT,
		.flags = SETTING_OFF,
		.unit = "bytes per second",
		.doc = "How fast a request body must come, judged after 20 s.",
	},
	{
		.name = "response_head",
		.type = SETTING_SIZE,
		SETTING_AT(limits, response_head),
		.def = "64KiB",
		.min = 1024,
		.max = 65536,
		.inherit = N_INHERIT,
		.doc = "A whole response head.",
	},
};

const struct setting_group exchange_conf_limits_group = {
	.title = "limits",
	SETTING_ROWS(limit_rows),
};

/* ---- top level: totals over all shards stand beside them ---- */

static const struct setting total_rows[] = {
	{
		.name = "connections",
		.type = SETTING_COUNT,
		SETTING_AT(limits_conf, connections),
		.def = "auto",
		.min = 1,
		.max = 10000000,
		.flags = SETTING_AUTO,
		.unit = "connections",
		.doc = "Connections of clients, over all shards. `auto`: 100,000, or what "
		       "RLIMIT_NOFILE allows (two descriptors each, and a reserve).",
	},
	{
		.name = "memory",
		.type = SETTING_SIZE,
		SETTING_AT(limits_conf, memory),
		.def = "auto",
		.min = 16777216,
		.max = 17592186044416,
		.flags = SETTING_AUTO,
		.doc = "Buffers and requests, over all shards. `auto`: 1GiB, or half of the "
		       "cgroup's or the machine's if that is less.",
	},
	{
		.name = "upstream_pool",
		.type = SETTING_COUNT,
		SETTING_AT(limits_conf, upstream_pool),
		.def = "512",
		.min = 1,
		.max = 1000000,
		.flags = SETTING_OFF,
		.unit = "connections",
		.doc = "Idle connections to servers that are kept, over all shards. `off`: "
		       "none.",
	},
};

static const struct setting_part limits_parts[] = {
	{ total_rows, sizeof(total_rows) / sizeof(total_rows[0]), 0 },
	{ limit_rows, sizeof(limit_rows) / sizeof(limit_rows[0]),
	  offsetof(struct limits_conf, each) },
};

static const struct setting_group limits_top_group = {
	.title = "limits",
	.parts = limits_parts,
	.n_parts = 2,
};

const struct setting exchange_conf_limits = {
	.name = "limits",
	.type = SETTING_GROUP,
	.group = &limits_top_group,
	.doc = "How much there may be. All but the totals (`connections`, `memory`, "
	       "`upstream_pool`) may stand in a listener or a route too, the nearest wins.",
};

static const char *const half_close_words[] = { "deliver", "abort", NULL };

const struct setting exchange_conf_half_close = {
	.name = "client_half_close",
	.type = SETTING_ENUM,
	.width = 1,
	.def = "deliver",
	.words = half_close_words,
	.doc = "What a client's FIN after a complete request means: `deliver` the answer all "
	       "the same, or `abort`.",
};
