/* why.c -- the table of ends, and which row an errno is. */
#include "base/why.h"

#include <errno.h>

const struct why why_table[WHY_ROWS] = {
#define WHY(name_of_id, reason, http, bits, rfc9209, sentence) \
	[WHY_##name_of_id] = { .id = WHY_##name_of_id, .flags = (bits), .status = (http), .name = (reason), \
		.proxy_status = (rfc9209), .text = (sentence) },
#include "base/why.tbl"
#undef WHY
};

const struct why *why_of_errno(int neg_errno)
{
	switch (-neg_errno) {
	case ECONNREFUSED:
	case EAGAIN: /* connect to a Unix socket whose queue is full */
	case ENOENT: /* a Unix socket that is not there, or is no socket */
	case ENOTSOCK:
	case EPROTOTYPE:
		return why(WHY_REFUSED);
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ENOTCONN:
		return why(WHY_TERMINATED);
	case ETIMEDOUT:
		return why(WHY_CONNECT_TIMEOUT);
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EHOSTDOWN:
	case ENETDOWN:
	case EAFNOSUPPORT: /* no IPv6 on this host */
	case EACCES:       /* a local firewall, or a Unix socket's mode */
	case EPERM:
	case EINVAL:       /* a link-local address without its interface */
		return why(WHY_UNROUTABLE);
	case EADDRNOTAVAIL:
	case EADDRINUSE:
		return why(WHY_PORTS);
	case EMFILE:
	case ENFILE:
		return why(WHY_DESCRIPTORS);
	case ENOMEM:
	case ENOBUFS:
		return why(WHY_MEMORY);
	default:
		return why(WHY_INTERNAL);
	}
}
