/* policy_conf.c -- the settings of filters: where a forward listener may go, whose headers are
 * believed, the access log. */
#include "base/setting.h"
#include "policy/policy.h"

const struct setting policy_conf_net = {
	.name = "network",
	.type = SETTING_NET,
};

static const struct setting host_elem = {
	.name = "allow_hosts",
	.type = SETTING_HOSTS,
};

static const struct setting port_elem = {
	.name = "allow_ports",
	.type = SETTING_COUNT,
	.width = sizeof(uint16_t),
	.min = 1,
	.max = 65535,
};

static const struct setting forward_rows[] = {
	{
		.name = "allow_hosts",
		.type = SETTING_LIST,
		SETTING_LIST_AT(forward_conf, allow_hosts, &host_elem),
		.mark_offset = offsetof(struct forward_conf, has_allow_hosts),
		.flags = SETTING_MARK,
		.example = "[github.com, \"*.github.com\"]",
		.doc = "If present, only these hosts may be reached; judged before resolving. "
		       "An address literal must be listed itself.",
	},
	{
		.name = "allow_ports",
		.type = SETTING_LIST,
		SETTING_LIST_AT(forward_conf, allow_ports, &port_elem),
		.def = "[80, 443]",
		.doc = "Only these ports may be reached, by CONNECT and absolute-form alike.",
	},
	{
		.name = "deny_to",
		.type = SETTING_LIST,
		SETTING_LIST_AT(forward_conf, deny_to, &policy_conf_net),
		.example = "[203.0.113.0/24]",
		.doc = "Networks that may not be reached, besides those that are always "
		       "denied: private, loopback, link-local, CGNAT, multicast, unspecified, "
		       "metadata services, and IPv6 forms that hide such an address.",
	},
	{
		.name = "deny_to_except",
		.type = SETTING_LIST,
		SETTING_LIST_AT(forward_conf, deny_to_except, &policy_conf_net),
		.example = "[10.20.0.0/16]",
		.doc = "Networks that may be reached nevertheless. The most specific prefix "
		       "wins, a tie denies; the admin port and forward listeners stay denied.",
	},
};

const struct setting_group policy_conf_forward_group = {
	.title = "forward",
	.later =
		"users auth parents upstream quota bandwidth egress bind_to tls_intercept icap pac",
	SETTING_ROWS(forward_rows),
};

const struct setting policy_conf_forward = {
	.name = "forward",
	.type = SETTING_GROUP,
	.group = &policy_conf_forward_group,
	.doc = "Where forward listeners may go. A listener's own `forward` replaces it key by "
	       "key; lists are never merged.",
};

const struct setting policy_conf_trusted = {
	.name = "trusted_proxies",
	.type = SETTING_LIST,
	SETTING_LIST_AT(identity_conf, trusted, &policy_conf_net),
	.example = "[10.0.0.0/8]",
	.doc = "Networks whose X-Forwarded-* and Forwarded fields are believed and extended. "
	       "From all others they are removed and written anew. Default: none.",
};

/* ---- access log ---- */

static const char *const format_words[] = { "json", "combined", NULL };

static const struct setting access_log_rows[] = {
	{
		.name = "to",
		.type = SETTING_SINK,
		SETTING_AT(access_log_conf, to),
		.def = "stdout",
		.flags = SETTING_OFF,
		.doc = "`stdout`, `stderr`, `off`, or the name of a file, with a `/` in it.",
	},
	{
		.name = "format",
		.type = SETTING_ENUM,
		SETTING_AT(access_log_conf, format),
		.def = "json",
		.words = format_words,
		.doc = "`json`: one object per line with every field; `combined`: as other "
		       "servers write it.",
	},
	{
		.name = "query",
		.type = SETTING_BOOL,
		SETTING_AT(access_log_conf, query),
		.def = "true",
		.doc = "Whether the query of a target is logged.",
	},
};

static const struct setting_group access_log_group = {
	.title = "access_log",
	.later = "syslog sample fields",
	SETTING_ROWS(access_log_rows),
};

const struct setting policy_conf_access_log = {
	.name = "access_log",
	.type = SETTING_GROUP,
	.group = &access_log_group,
	.doc = "One line per request, tunnel or refused connection.",
};
