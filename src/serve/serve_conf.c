/* serve_conf.c -- the settings of listeners: where culvert listens, and what it does there. */
#include "base/setting.h"
#include "serve/serve.h"

/* The order is that of enum serve_kind. */
static const char *const serve_words[] = { "web", "forward", NULL };

static const struct setting site_name_elem = {
	.name = "sites",
	.type = SETTING_NAME,
};

static const struct setting name_rows[] = {
	{
		.name = "name",
		.type = SETTING_NAME,
		SETTING_AT(listener_conf, name),
		.flags = SETTING_REQUIRED,
		.doc = "Its name in logs and metrics.",
	},
};

static const struct setting listener_rows[] = {
	{
		.name = "mode",
		.type = SETTING_MODE,
		SETTING_AT(listener_conf, bind.mode),
		.example = "\"0660\"",
		.doc = "Permissions of a Unix socket. Default: 0666 less the umask.",
	},
	{
		.name = "serve",
		.type = SETTING_ENUM,
		SETTING_AT(listener_conf, serve),
		.flags = SETTING_REQUIRED,
		.words = serve_words,
		.later = "stream udp tproxy socks redirect",
		.example = "web",
		.doc = "`web`: sites and routes (reverse proxy). `forward`: forward proxy for "
		       "HTTP and CONNECT.",
	},
	{
		.name = "sites",
		.type = SETTING_LIST,
		SETTING_LIST_AT(listener_conf, site_names, &site_name_elem),
		.flags = SETTING_SOME,
		.example = "[main]",
		.doc = "Web: names of the sites served here. Default: all.",
	},
	{
		.name = "proxy_protocol",
		.type = SETTING_GROUP,
		SETTING_AT(listener_conf, proxy_protocol),
		.group = &link_conf_proxy_protocol,
		.mark_offset = offsetof(struct listener_conf, proxy_protocol.on),
		.flags = SETTING_MARK,
		.doc = "The client's address comes in a PROXY header.",
	},
	{
		.name = "allow_from",
		.type = SETTING_LIST,
		SETTING_LIST_AT(listener_conf, allow_from, &policy_conf_net),
		.flags = SETTING_SOME,
		.example = "[10.0.0.0/8]",
		.doc = "Only clients of these networks are served, by the peer's (or PROXY's) "
		       "address, never by a header. Default: all.",
	},
	{
		.name = "open",
		.type = SETTING_BOOL,
		SETTING_AT(listener_conf, open),
		.doc = "Forward: `true` insists on a public address without `allow_from`. "
		       "Default: false.",
	},
	{
		.name = "via",
		.type = SETTING_SWITCH,
		SETTING_AT(listener_conf, via),
		.doc = "`off`: no Via field is written. Default: on.",
	},
	{
		.name = "forward",
		.type = SETTING_GROUP,
		SETTING_AT(listener_conf, forward),
		.group = &policy_conf_forward_group,
		.flags = SETTING_INHERIT,
		.doc = "Forward: replaces the top-level `forward` key by key.",
	},
	{
		.name = "timeouts",
		.type = SETTING_GROUP,
		SETTING_AT(listener_conf, timeouts),
		.group = &exchange_conf_timeouts_group,
		.flags = SETTING_INHERIT,
		.doc = "Timeouts of this listener.",
	},
	{
		.name = "limits",
		.type = SETTING_GROUP,
		SETTING_AT(listener_conf, limits),
		.group = &exchange_conf_limits_group,
		.flags = SETTING_INHERIT,
		.doc = "Limits of this listener.",
	},
};

static const struct setting_part listener_parts[] = {
	{ name_rows, 1, 0 },
	{ &link_conf_bind, 1, offsetof(struct listener_conf, bind) },
	{ listener_rows, sizeof(listener_rows) / sizeof(listener_rows[0]), 0 },
};

static const struct setting_group listener_group = {
	.title = "a listener",
	.later = "tls users auth http2 http3 h2c quic socks transparent upstream rate_limit "
		 "access connections alt_svc backlog",
	.parts = listener_parts,
	.n_parts = 3,
};

static const struct setting listener_elem = {
	.name = "listeners",
	.type = SETTING_GROUP,
	.group = &listener_group,
};

const struct setting serve_conf_listeners = {
	.name = "listeners",
	.type = SETTING_LIST,
	SETTING_LIST_AT(listeners_conf, listeners, &listener_elem),
	.flags = SETTING_REQUIRED | SETTING_SOME,
	.example = "\n"
		   "  - { name: egress, bind: \"127.0.0.1:3128\", serve: forward }\n"
		   "  - { name: web, bind: \"127.0.0.1:8080\", serve: web }\n",
	.doc = "Where culvert listens, and what it does there.",
};
