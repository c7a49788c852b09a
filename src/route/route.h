/* route.h -- which site and which route answers: hosts, then exact paths, then the longest prefix
 * on a segment border.  The order in the file never decides.  Pure after route_compile(): no I/O,
 * no clock. */
#ifndef ROUTE_ROUTE_H
#define ROUTE_ROUTE_H

#include "exchange/exchange.h"

enum answer_kind { ANSWER_UPSTREAM = 0, ANSWER_RESPOND, ANSWER_REDIRECT };
struct respond_conf {
	uint16_t status;
	struct str type, body;
};
struct redirect_conf {
	struct str to;
	uint16_t status;
};

struct route_conf {
	struct str name;          /* may be empty */
	struct str exact, prefix; /* one of them; in normal form */
	uint8_t answer;           /* enum answer_kind */
	struct respond_conf respond;
	struct redirect_conf redirect;
	bool has_respond, has_redirect;
	struct str upstream_name;
	const struct upstream_conf *upstream; /* by the loader */
	uint32_t index;                       /* among all routes of the plan */
	struct timeouts timeouts;             /* MS_INHERIT where not set */
	struct limits limits;
	bool has_timeouts, has_limits;
};

struct site_conf {
	struct str name;
	/* lower case: "www.example.com", "*.example.com", "*" */
	const struct str *hosts;
	uint32_t n_hosts;
	struct route_conf *routes;
	uint32_t n_routes;
	uint8_t via;       /* 0 inherit, 1 on, 2 off */
	bool keep_slashes; /* merge_slashes: false */
	bool reject_encoded_slash;
	uint32_t index;
	struct route_table *table; /* by route_compile() */
};

struct setting;
extern const struct setting route_conf_sites; /* struct sites_conf */
struct sites_conf {
	struct site_conf *sites;
	uint32_t n_sites;
};

struct route_table; /* one site's paths */
struct host_table;  /* the sites of one listener by host */

/* Memory from the plan's arena; NULL: out of memory.  A clash (two sites with one host, two routes
 * with one path) was refused by the loader. */
struct route_table *route_compile(struct arena *, const struct site_conf *) MUST_CHECK;
const struct route_conf *route_match(const struct route_table *, struct str path);
struct host_table *host_compile(struct arena *, const struct site_conf *const *sites,
				uint32_t n) MUST_CHECK;
/* host: lower case, without port and trailing dot.  Exact, then the longest wildcard, then "*";
 * NULL: none. */
const struct site_conf *host_match(const struct host_table *, struct str host);

#endif
