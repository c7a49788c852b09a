/* ops_conf.c -- the settings of running: user, drain, operational log, admin port; and the top of
 * the file, where the rooms' settings are joined.  Exports: conf_*. */
#include "base/setting.h"
#include "ops/conf.h"

static const struct setting user_row = {
	.name = "user",
	.type = SETTING_TEXT,
	SETTING_AT(conf_top, user),
	.flags = SETTING_RESTART,
	.example = "nobody",
	.doc = "Who the proxy process becomes when started as root: a name or \"uid:gid\". "
	       "Default: nobody; `root` must be asked for.",
};

/* ---- drain ---- */

static const struct setting drain_rows[] = {
	{
		.name = "delay",
		.type = SETTING_MS,
		SETTING_AT(drain_conf, delay_ms),
		.def = "5s",
		.max = 3600000,
		.flags = SETTING_ZERO,
		.doc = "From the moment readiness turns to the moment accepting stops.",
	},
	{
		.name = "deadline",
		.type = SETTING_MS,
		SETTING_AT(drain_conf, deadline_ms),
		.def = "20s",
		.min = 1,
		.max = 2592000000,
		.flags = SETTING_OFF,
		.doc = "How long what runs may take then, before it is cut. `off`: as long as "
		       "it takes.",
	},
};

static const struct setting_group drain_group = {
	.title = "drain",
	SETTING_ROWS(drain_rows),
};

static const struct setting drain_row = {
	.name = "drain",
	.type = SETTING_GROUP,
	SETTING_AT(conf_top, drain),
	.group = &drain_group,
	.doc = "How culvert ends: readiness first, then the delay, then accepting stops.",
};

/* ---- operational log ---- */

static const char *const level_words[] = { "error", "warn", "info", "debug", NULL };
static const char *const format_words[] = { "text", "json", NULL };

static const struct setting log_rows[] = {
	{
		.name = "to",
		.type = SETTING_SINK,
		SETTING_AT(log_conf, to),
		.def = "stderr",
		.doc = "`stdout`, `stderr`, or the name of a file, with a `/` in it.",
	},
	{
		.name = "level",
		.type = SETTING_ENUM,
		SETTING_AT(log_conf, level),
		.def = "info",
		.words = level_words,
		.doc = "From which level on lines are written.",
	},
	{
		.name = "format",
		.type = SETTING_ENUM,
		SETTING_AT(log_conf, format),
		.def = "text",
		.words = format_words,
		.doc = "`text` for people, `json` for machines.",
	},
};

static const struct setting_group log_group = {
	.title = "log",
	.later = "syslog",
	SETTING_ROWS(log_rows),
};

static const struct setting log_row = {
	.name = "log",
	.type = SETTING_GROUP,
	SETTING_AT(conf_top, log),
	.group = &log_group,
	.doc = "The operational log: what happened, and what culvert did about it.",
};

/* ---- admin port ---- */

static const struct setting admin_rows[] = {
	{
		.name = "mode",
		.type = SETTING_MODE,
		SETTING_AT(admin_conf, bind.mode),
		.example = "\"0660\"",
		.doc = "Permissions of a Unix socket. Default: 0666 less the umask.",
	},
	{
		.name = "token",
		.type = SETTING_TEXT,
		SETTING_AT(admin_conf, token),
		.flags = SETTING_SECRET,
		.example = "\"${CULVERT_ADMIN_TOKEN}\"",
		.doc = "Bearer token for everything but /healthz and /readyz. Default: none.",
	},
	{
		.name = "allow_from",
		.type = SETTING_LIST,
		SETTING_LIST_AT(admin_conf, allow_from, &policy_conf_net),
		.flags = SETTING_SOME,
		.example = "[10.0.0.0/8]",
		.doc = "Only clients of these networks are served. Default: all.",
	},
};

static const struct setting_part admin_parts[] = {
	{ &link_conf_bind, 1, offsetof(struct admin_conf, bind) },
	{ admin_rows, sizeof(admin_rows) / sizeof(admin_rows[0]), 0 },
};

static const struct setting_group admin_group = {
	.title = "admin",
	.later = "tls dashboard users roles",
	.parts = admin_parts,
	.n_parts = 2,
};

static const struct setting admin_row = {
	.name = "admin",
	.type = SETTING_GROUP,
	SETTING_AT(conf_top, admin),
	.group = &admin_group,
	.mark_offset = offsetof(struct conf_top, admin.on),
	.flags = SETTING_MARK,
	.doc = "The port for health, readiness and metrics; off unless set. An address off "
	       "loopback needs a token or `allow_from`.",
};

/* ---- the top, in the order of the file ---- */

#define TOP(member) offsetof(struct conf_top, member)
static const struct setting_part top_parts[] = {
	{ &loop_conf_workers, 1, TOP(loop) },
	{ &loop_conf_io, 1, TOP(loop) },
	{ &user_row, 1, 0 },
	{ &serve_conf_listeners, 1, TOP(listeners) },
	{ &policy_conf_forward, 1, TOP(forward) },
	{ &route_conf_sites, 1, TOP(sites) },
	{ &origin_conf_upstreams, 1, TOP(upstreams) },
	{ &policy_conf_trusted, 1, TOP(identity) },
	{ &link_conf_resolver, 1, TOP(resolver) },
	{ &exchange_conf_timeouts, 1, TOP(timeouts) },
	{ &exchange_conf_limits, 1, TOP(limits) },
	{ &exchange_conf_half_close, 1, TOP(half_close) },
	{ &drain_row, 1, 0 },
	{ &policy_conf_access_log, 1, TOP(access_log) },
	{ &log_row, 1, 0 },
	{ &admin_row, 1, 0 },
};

const struct setting_group conf_top_group = {
	.later = "users auth cache tls acme include includes shared streams rate_limits "
		 "control dashboard tracing certificates parents discovery maps geoip "
		 "analytics store error_pages pac http2 http3 bans",
	.parts = top_parts,
	.n_parts = ARRAY_LEN(top_parts),
};
