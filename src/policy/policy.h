/* policy.h -- filters: what is judged, edited and recorded on the way of a request, by phase.
 *
 *   screen   hygiene (always first): hop-by-hop fields, normal form of the path, client identity,
 *            loops; then access rules
 *   dial     destination policy: judged on each address just before it is dialled
 *   log      the access log
 *
 * A filter answers with a row of why.tbl; why(WHY_NONE) means: go on. */
#ifndef POLICY_POLICY_H
#define POLICY_POLICY_H

#include "base/log.h"
#include "exchange/exchange.h"

/* --- settings (policy_conf.c describes them) --- */
struct forward_conf { /* forward: */
	/* exclusive if present; lower case; "*.x" = one or more labels */
	const struct str *allow_hosts;
	uint32_t n_allow_hosts;
	bool has_allow_hosts;
	/* exclusive; default 80, 443 */
	const uint16_t *allow_ports;
	uint32_t n_allow_ports;
	const struct addr_net *deny_to;
	uint32_t n_deny_to;
	const struct addr_net *deny_to_except;
	uint32_t n_deny_to_except;
	/* filled by the loader: our own listening addresses that stay denied whatever the
	 * exceptions say (admin port, forward listeners) */
	const struct addr *own;
	uint32_t n_own;
};

enum access_format { ACCESS_JSON = 0, ACCESS_COMBINED };
struct access_log_conf {
	struct str to;
	uint8_t format;
	bool off;
	bool query;
	unsigned sink; /* index among the plan's log files, by the loader */
};

struct identity_conf {
	const struct addr_net *trusted;
	uint32_t n_trusted;
}; /* trusted_proxies */

struct setting;
struct setting_group;
extern const struct setting_group policy_conf_forward_group; /* struct forward_conf */
extern const struct setting policy_conf_forward, policy_conf_access_log;
extern const struct setting policy_conf_trusted; /* struct identity_conf */
extern const struct setting policy_conf_net;     /* element of every list of networks */

/* --- screen --- */
struct hygiene_params {
	struct identity_conf identity;
	bool via;             /* write Via */
	struct str pseudonym; /* of this process, in Via */
	bool merge_slashes;
	bool reject_encoded_slash;
};
/* Request, web direction: path to its normal form, x->client by trusted_proxies, identity fields
 * removed or extended, hop-by-hop and nominated fields removed, TRACE/Max-Forwards, Via loop and
 * Via. */
const struct why *hygiene_web(struct exchange *, struct head *, const struct hygiene_params *);
/* Request, forward direction: Host from the target, no identity fields written, path untouched. */
const struct why *hygiene_forward(struct exchange *, struct head *, const struct hygiene_params *);
/* Response on its way down (both directions): hop-by-hop and nominated fields removed, Via.
 * False: no memory. */
bool hygiene_response(struct exchange *, struct head *, const struct hygiene_params *);
/* Name and port, by allow_hosts and allow_ports, before resolving. */
const struct why *access_target(const struct forward_conf *, struct str host, bool is_literal,
				uint16_t port);
/* Judges one address that is about to be dialled, in the forward direction. */
bool access_dial(const struct forward_conf *, const struct addr *);
/* allow_from of a listener: true if n is 0. */
bool access_from(const struct addr_net *nets, uint32_t n, const struct addr *client);

/* --- access log --- */
enum log_kind { LOG_KIND_REQUEST = 0, LOG_KIND_TUNNEL, LOG_KIND_REFUSED };
struct access_names {
	struct str listener, site, route;
}; /* borrowed for the call */
/* What a tunnel keeps after its exchange is gone: all that its line will say, packed; some 120
 * bytes.  Returns how many (record.c). */
#define ACCESS_PACKED_MAX 4608u
uint32_t access_pack(uint8_t to[static ACCESS_PACKED_MAX], const struct exchange *,
		     const struct access_names *);
struct access_end {
	const struct why *why;
	uint64_t bytes_in, bytes_out;
	uint64_t end_us;
};
/* Writes the line of a tunnel that has ended. */
void access_log_packed(struct log_ring *, const struct access_log_conf *, const uint8_t *packed,
		       const struct access_end *);
void access_log_exchange(struct log_ring *, const struct access_log_conf *, const struct exchange *,
			 const struct access_names *);
/* A refused connection: no exchange ever was. */
struct access_refused {
	int64_t wall_us;
	uint64_t conn_id;
	unsigned shard;
	const struct addr *peer;
	const struct why *why;
	struct str listener;
};
void access_log_refused(struct log_ring *, const struct access_log_conf *,
			const struct access_refused *);

#endif
