/* route_conf.c -- the settings of sites and routes. */
#include "base/setting.h"
#include "route/route.h"

/* ---- a route ---- */

static const struct setting match_rows[] = {
	{
		.name = "exact",
		.type = SETTING_PATH,
		SETTING_AT(route_conf, exact),
		.doc = "This path and no other.",
	},
	{
		.name = "prefix",
		.type = SETTING_PATH,
		SETTING_AT(route_conf, prefix),
		.doc = "This path and all below it; it ends on a segment border. The longest "
		       "wins.",
	},
};

static const struct setting_group match_group = {
	.title = "match",
	.later = "regex method methods header headers query cookie from sni",
	SETTING_ROWS(match_rows),
};

static const struct setting respond_rows[] = {
	{
		.name = "status",
		.type = SETTING_COUNT,
		SETTING_AT(respond_conf, status),
		.def = "200",
		.min = 200,
		.max = 599,
		.unit = "HTTP status",
		.doc = "Status of the answer.",
	},
	{
		.name = "type",
		.type = SETTING_TEXT,
		SETTING_AT(respond_conf, type),
		.def = "text/plain",
		.doc = "Its Content-Type.",
	},
	{
		.name = "body",
		.type = SETTING_BODY,
		SETTING_AT(respond_conf, body),
		.doc = "Its content. Default: none.",
	},
};

static const struct setting_group respond_group = {
	.title = "respond",
	.later = "headers file",
	SETTING_ROWS(respond_rows),
};

static const struct setting redirect_rows[] = {
	{
		.name = "to",
		.type = SETTING_LOCATION,
		SETTING_AT(redirect_conf, to),
		.flags = SETTING_REQUIRED,
		.doc = "A path or a whole URL; the query of the request is kept.",
	},
	{
		.name = "status",
		.type = SETTING_COUNT,
		SETTING_AT(redirect_conf, status),
		.def = "308",
		.min = 301,
		.max = 308,
		.unit = "HTTP status",
		.doc = "301, 302, 303, 307 or 308.",
	},
};

static const struct setting_group redirect_group = {
	.title = "redirect",
	SETTING_ROWS(redirect_rows),
};

static const struct setting route_rows[] = {
	{
		.name = "name",
		.type = SETTING_NAME,
		SETTING_AT(route_conf, name),
		.doc = "Its name in logs and metrics; without one it carries its site's.",
	},
	{
		.name = "match",
		.type = SETTING_GROUP,
		.group = &match_group,
		.flags = SETTING_REQUIRED,
		.doc = "Which requests: one of `exact` and `prefix`.",
	},
	{
		.name = "upstream",
		.type = SETTING_NAME,
		SETTING_AT(route_conf, upstream_name),
		.doc = "Answer: the servers of this upstream.",
	},
	{
		.name = "respond",
		.type = SETTING_GROUP,
		SETTING_AT(route_conf, respond),
		.group = &respond_group,
		.mark_offset = offsetof(struct route_conf, has_respond),
		.flags = SETTING_MARK,
		.doc = "Answer: a small text of its own.",
	},
	{
		.name = "redirect",
		.type = SETTING_GROUP,
		SETTING_AT(route_conf, redirect),
		.group = &redirect_group,
		.mark_offset = offsetof(struct route_conf, has_redirect),
		.flags = SETTING_MARK,
		.doc = "Answer: another place.",
	},
	{
		.name = "timeouts",
		.type = SETTING_GROUP,
		SETTING_AT(route_conf, timeouts),
		.group = &exchange_conf_timeouts_group,
		.mark_offset = offsetof(struct route_conf, has_timeouts),
		.flags = SETTING_INHERIT | SETTING_MARK,
		.doc = "Timeouts of this route.",
	},
	{
		.name = "limits",
		.type = SETTING_GROUP,
		SETTING_AT(route_conf, limits),
		.group = &exchange_conf_limits_group,
		.mark_offset = offsetof(struct route_conf, has_limits),
		.flags = SETTING_INHERIT | SETTING_MARK,
		.doc = "Limits of this route.",
	},
};

static const struct setting_group route_group = {
	.title = "a route",
	.later =
		"rewrite strip_prefix headers request_headers response_headers cache compress auth "
		"users allow_from deny_from rate_limit concurrency error_pages files static root "
		"mirror split cors access forward_auth fcgi grpc",
	SETTING_ROWS(route_rows),
};

/* ---- a site ---- */

static const struct setting host_elem = {
	.name = "hosts",
	.type = SETTING_HOSTS,
};

static const struct setting route_elem = {
	.name = "routes",
	.type = SETTING_GROUP,
	.group = &route_group,
};

static const char *const slash_words[] = { "keep", "reject", NULL };
/* bool keep_slashes reads the other way round: the words are an enum over the same byte. */
static const char *const merge_words[] = { "true", "false", NULL };

static const struct setting site_rows[] = {
	{
		.name = "name",
		.type = SETTING_NAME,
		SETTING_AT(site_conf, name),
		.flags = SETTING_REQUIRED,
		.doc = "Its name in listeners, logs and metrics.",
	},
	{
		.name = "hosts",
		.type = SETTING_LIST,
		SETTING_LIST_AT(site_conf, hosts, &host_elem),
		.flags = SETTING_REQUIRED | SETTING_SOME,
		.doc = "Host names. `*.example.com`: one or more labels before it, not the "
		       "bare name; `*` alone: the default site.",
	},
	{
		.name = "routes",
		.type = SETTING_LIST,
		SETTING_LIST_AT(site_conf, routes, &route_elem),
		.flags = SETTING_REQUIRED | SETTING_SOME,
		.doc = "Exact paths win, then the longest prefix; their order never decides. "
		       "One answer each: `upstream`, `respond` or `redirect`.",
	},
	{
		.name = "via",
		.type = SETTING_SWITCH,
		SETTING_AT(site_conf, via),
		.doc = "`off`: no Via field is written for this site. Default: as the "
		       "listener.",
	},
	{
		.name = "merge_slashes",
		.type = SETTING_ENUM,
		SETTING_AT(site_conf, keep_slashes),
		.words = merge_words,
		.def = "true",
		.doc = "Whether `//` in a path counts as `/`.",
	},
	{
		.name = "encoded_slash",
		.type = SETTING_ENUM,
		SETTING_AT(site_conf, reject_encoded_slash),
		.words = slash_words,
		.def = "keep",
		.doc = "A `%2F` in a path: `keep` it as it is, or `reject` the request with "
		       "400.",
	},
};

static const struct setting_group site_group = {
	.title = "a site",
	.later = "tls cache compress auth users headers error_pages rate_limit access cors "
		 "alt_svc security_headers files root",
	SETTING_ROWS(site_rows),
};

static const struct setting site_elem = {
	.name = "sites",
	.type = SETTING_GROUP,
	.group = &site_group,
};

const struct setting route_conf_sites = {
	.name = "sites",
	.type = SETTING_LIST,
	SETTING_LIST_AT(sites_conf, sites, &site_elem),
	.example = "\n"
		   "  - name: main\n"
		   "    hosts: [\"*\"]\n"
		   "    routes:\n"
		   "      - { match: { exact: /ping }, respond: { body: \"ok\\n\" } }\n"
		   "      - { name: rest, match: { prefix: / }, upstream: app }\n",
	.doc = "What web listeners serve: hosts, and for each path who answers.",
};
