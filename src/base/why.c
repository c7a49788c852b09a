/* why.c -- the table of ends, and which row an errno is. */
#include "base/why.h"

#include "base/panic.h"

#include <errno.h>

const struct why why_table[WHY_ROWS] = {
#define WHY(name_of_id, reason, http, bits, rfc9209, sentence) \
	[WHY_##name_of_id] = { .id = WHY_##name_of_id,         \
			       .flags = (bits),                \
			       .status = (http),               \
			       .name = (reason),               \
			       .proxy_status = (rfc9209),      \
			       .text = (sentence) },
#include "base/why.tbl"
#undef WHY
};

/* clang-format off */
static const struct {
	int err;
	enum why_id id;
} errnos[] = {
	{ ECONNREFUSED,  WHY_REFUSED },
	{ EAGAIN,        WHY_REFUSED },    /* a Unix socket whose queue is full */
	{ ENOENT,        WHY_REFUSED },    /* a Unix socket that is not there, or is no socket */
	{ ENOTSOCK,      WHY_REFUSED },
	{ EPROTOTYPE,    WHY_REFUSED },
	{ ECONNRESET,    WHY_TERMINATED },
	{ ECONNABORTED,  WHY_TERMINATED },
	{ EPIPE,         WHY_TERMINATED },
	{ ENOTCONN,      WHY_TERMINATED },
	{ ETIMEDOUT,     WHY_CONNECT_TIMEOUT },
	{ EHOSTUNREACH,  WHY_UNROUTABLE },
	{ ENETUNREACH,   WHY_UNROUTABLE },
	{ EHOSTDOWN,     WHY_UNROUTABLE },
	{ ENETDOWN,      WHY_UNROUTABLE },
	{ EAFNOSUPPORT,  WHY_UNROUTABLE }, /* no IPv6 on this host */
	{ EACCES,        WHY_UNROUTABLE }, /* a local firewall, or a Unix socket's mode */
	{ EPERM,         WHY_UNROUTABLE },
	{ EINVAL,        WHY_UNROUTABLE }, /* a link-local address without its interface */
	{ EADDRNOTAVAIL, WHY_PORTS },
	{ EADDRINUSE,    WHY_PORTS },
	{ EMFILE,        WHY_DESCRIPTORS },
	{ ENFILE,        WHY_DESCRIPTORS },
	{ ENOMEM,        WHY_MEMORY },
	{ ENOBUFS,       WHY_MEMORY },
};
/* clang-format on */

const struct why *why_of_errno(int neg_errno)
{
	for (unsigned i = 0; i < ARRAY_LEN(errnos); i++)
		if (errnos[i].err == -neg_errno)
			return why(errnos[i].id);
	return why(WHY_INTERNAL);
}
