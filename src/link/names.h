/* names.h -- what resolve.c stands on: the name servers (dns.c, the only file that knows c-ares),
 * the hosts file (hosts.c), resolv.conf (resolvconf.c), and what a name is (qname.c). */
#ifndef LINK_NAMES_H
#define LINK_NAMES_H

#include "link/priv.h"

#define NAME_MAX_LEN 253u /* RFC 1035 §3.1, in text, without the last dot */

/* --- resolvconf.c --- pure but for reading the file */
#define RESOLVCONF_SERVERS 8
#define RESOLVCONF_SEARCH  8
struct resolvconf {
	struct addr server[RESOLVCONF_SERVERS]; /* with ports */
	uint32_t n_servers;
	uint32_t n_search;
	char search[RESOLVCONF_SEARCH][NAME_MAX_LEN + 1]; /* lower case, without the last dot */
	uint32_t ndots;
};
/* Fills *rc; what is not understood is passed over; no server: 127.0.0.1, as libc does. */
void resolvconf_parse(struct resolvconf *rc, struct str text);

/* --- qname.c --- pure */
struct qname { /* a name as it was asked for */
	uint8_t n, dots;
	bool absolute;               /* ended in a dot: no search list */
	char text[NAME_MAX_LEN + 1]; /* lower case, no dot at the end */
};
/* Copies the name in lower case into *q, which is zeroed, and counts its dots.  False: not a name
 * that can be asked. */
bool qname_take(struct qname *q, struct str s) MUST_CHECK;
/* The k-th name to be tried, into text (NAME_MAX_LEN + 1 bytes); *n 0: too long with this suffix.
 * rc NULL: no search list.  False: there is none.  [resolv.conf(5): ndots] */
bool qname_candidate(const struct qname *q, const struct resolvconf *rc, uint32_t k, char *text,
		     uint32_t *n);
/* The name is this domain, or in it. */
bool qname_ends_in(struct str name, struct str domain);

/* --- watched files: read anew when they change; looked at once a second at most --- */
struct watched {
	const char *path; /* borrowed */
	uint64_t looked_ms, mtime_ns, size, ino;
	bool looked, there;
};
/* True: the file has changed (or went, or this is the first look), read it now. */
bool watched_changed(struct watched *w, uint64_t now_ms);
/* The whole file, malloc'd; NULL: not there, larger than max, or no memory. */
char *watched_read(const struct watched *w, uint32_t max, uint32_t *n);

/* --- hosts.c --- */
struct hosts;
/* NULL: out of memory.  The path is borrowed; "" is an empty file. */
struct hosts *hosts_new(const char *path, const uint64_t key[2]) MUST_CHECK;
void hosts_free(struct hosts **hp);
/* Addresses of the name (lower case), at most max; 0: not in the file. */
uint32_t hosts_find(struct hosts *h, uint64_t now_ms, struct str name, struct addr *to,
		    uint32_t max);

/* --- dns.c --- */
struct dns;       /* one channel to a set of servers */
struct dns_query; /* one question to them */
struct dns_conf {
	const struct addr *server;
	uint32_t n_servers;
	uint32_t timeout_ms, attempts;
};
struct dns_reply {
	int res; /* 0 (n may be 0: the name has no such address), -ENOENT: NXDOMAIN, -ETIMEDOUT,
		  * -EIO, -ENOMEM */
	uint32_t n, ttl_s;
	struct addr addr[RESOLVE_ADDRS];
};
/* May come from inside dns_ask(); must not close the channel. */
typedef void dns_fn(void *arg, const struct dns_reply *reply);
struct dns *dns_new(struct loop *loop, const struct dns_conf *conf) MUST_CHECK; /* NULL: memory */
/* family: AF_INET or AF_INET6; the name is NUL-terminated.  *slot is the query while it runs (NULL
 * when fn has been called), so that dns_drop(slot) is right at any time.  -ENOMEM: fn is not
 * called. */
struct dns_question {
	const char *name;
	int family;
	dns_fn *fn;
	void *arg;
};
int dns_ask(struct dns *d, const struct dns_question *q, struct dns_query **slot) MUST_CHECK;
void dns_drop(struct dns_query **slot); /* fn is not called any more; NULL inside is accepted */
unsigned dns_running(const struct dns *d);
void dns_close(struct dns **dp); /* queries must be dropped; not from inside fn */

#endif
