/* priv.h -- inside policy/: a line of the access log between who gathers it and who writes it. */
#ifndef POLICY_PRIV_H
#define POLICY_PRIV_H

#include "policy/policy.h"

#define TEXT_MARK STR("\xe2\x80\xa6") /* …: a text was cut */

enum text {
	TEXT_LISTENER,
	TEXT_SITE,
	TEXT_ROUTE,
	TEXT_METHOD,
	TEXT_SCHEME,
	TEXT_HOST,
	TEXT_TARGET,
	TEXT_UPSTREAM,
	TEXT_SERVER,
	TEXT_AGENT,
	TEXT_REFERER,
	TEXTS
};

/* Everything that a line says.  Strings and addresses are borrowed. */
struct line {
	int64_t wall_us;
	uint64_t conn_id, request_id, bytes_in, bytes_out;
	uint64_t resolve_us, queue_us, connect_us, first_byte_us, total_us;
	unsigned shard;
	uint16_t status, upstream_status, attempts, port;
	uint8_t kind, version;
	bool has_request, host_is_v6, reused, complete;
	const struct why *why;
	const char *detail;
	const struct addr *peer, *client, *address; /* address NULL: none was dialled */
	struct str text[TEXTS];
};

/* Gathers; strings and addresses are the exchange's and the names'. */
void line_take(struct line *, const struct exchange *, const struct access_names *);
/* Writes it into the ring, in the format of the configuration. */
void line_write(struct log_ring *, const struct access_log_conf *, struct line *);
/* At most n bytes, not in the middle of a character. */
struct str text_cut(struct str, uint32_t n);
/* Microseconds; a moment of 0 never was. */
static inline uint64_t line_since(uint64_t moment, uint64_t from)
{
	return moment > from ? moment - from : 0;
}

#endif
