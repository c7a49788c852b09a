/* why.h -- the reason for an end: one row of why.tbl gives enum, counter, HTTP status, retry rule,
 * log text. */
#ifndef BASE_WHY_H
#define BASE_WHY_H

#include "base/str.h"

enum why_flag { WHY_RETRY = 1, WHY_CLOSE = 2, WHY_CLIENT = 4, WHY_SERVER = 8, WHY_AFTER = 16 };

enum why_id {
#define WHY(id, ...) WHY_##id,
#include "base/why.tbl"
#undef WHY
	WHY_ROWS
};

struct why {
	uint8_t id;    /* enum why_id */
	uint8_t flags; /* enum why_flag */
	uint16_t status;
	const char *name;         /* as logged */
	const char *proxy_status; /* "" : none */
	const char *text;
};

extern const struct why why_table[WHY_ROWS];
static inline const struct why *why(enum why_id id)
{
	return &why_table[id];
}
/* The row for a failed connect or send: -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -EADDRNOTAVAIL,
 * -EMFILE, -ENOMEM ... */
const struct why *why_of_errno(int neg_errno);

#endif
