/* dns_peer.h -- a name server for tests: rows of names, served between two turns of the loop, on
 * UDP and TCP of one free port of 127.0.0.1. */
#ifndef TESTS_DNS_PEER_H
#define TESTS_DNS_PEER_H

#include "link_rig.h"

#include <arpa/inet.h>

enum { DNS_A = 1, DNS_AAAA = 28, DNS_CNAME = 5 };
enum dns_how {
	DNS_PLAIN = 0,
	DNS_SILENT,
	DNS_TRUNCATE,       /* over UDP: no answer and TC */
	DNS_SPOOF_ID,       /* first a wrong id, then the truth */
	DNS_SPOOF_QUESTION, /* first an answer to another question, then the truth */
	DNS_SPOOF_SOURCE,   /* first from another port, then the truth */
	DNS_RAW,            /* row->raw behind the question, and nothing else */
};

struct dns_row {
	const char *name;
	int type;
	int rcode;
	uint32_t ttl;
	const char *ip[4];
	const char *cname; /* then ip belongs to it */
	uint32_t cname_ttl;
	enum dns_how how;
	const void *raw;
	unsigned raw_n, raw_count; /* raw_count: ANCOUNT */
	unsigned asked, asked_tcp;
};

struct dns_peer {
	int udp, other, tcp, conn;
	uint16_t port;
	struct dns_row *rows;
	unsigned n_rows;
	unsigned asked; /* all questions */
};

static inline int dns_peer_bind(int type, uint16_t *port)
{
	struct sockaddr_in in = rig_loopback(*port);
	socklen_t n = sizeof(in);
	int one = 1, fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&in, n)) {
		close(fd);
		return -1;
	}
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
	*port = ntohs(in.sin_port);
	return fd;
}

static inline void dns_peer_open(struct dns_peer *d, struct dns_row *rows, unsigned n)
{
	uint16_t other = 0;

	memset(d, 0, sizeof(*d));
	d->rows = rows;
	d->n_rows = n;
	d->conn = -1;
	do { /* a port that is free for both */
		d->port = 0;
		d->udp = dns_peer_bind(SOCK_DGRAM, &d->port);
		d->tcp = dns_peer_bind(SOCK_STREAM, &d->port);
		if (d->tcp < 0)
			close(d->udp);
	} while (d->tcp < 0);
	d->other = dns_peer_bind(SOCK_DGRAM, &other);
	assert_int_equal(listen(d->tcp, 8), 0);
}

static inline void dns_peer_close(struct dns_peer *d)
{
	close(d->udp);
	close(d->tcp);
	close(d->other);
	if (d->conn >= 0)
		close(d->conn);
}

/* The question's name as text; returns the offset behind the question. */
static inline unsigned dns_peer_question(const uint8_t *p, char *name, int *type)
{
	unsigned at = 12, to = 0;

	while (p[at]) {
		memcpy(name + to, p + at + 1, p[at]);
		to += p[at];
		name[to++] = '.';
		at += p[at] + 1u;
	}
	name[to ? to - 1 : 0] = '\0';
	*type = p[at + 1] << 8 | p[at + 2];
	return at + 5;
}

static inline unsigned dns_peer_put_name(uint8_t *p, const char *name)
{
	unsigned at = 0;

	while (*name) {
		unsigned n = (unsigned)strcspn(name, ".");

		p[at] = (uint8_t)n;
		memcpy(p + at + 1, name, n);
		at += n + 1;
		name += n + (name[n] == '.');
	}
	p[at] = 0;
	return at + 1;
}

static inline unsigned dns_peer_put_rr(uint8_t *p, const char *name, int type, uint32_t ttl,
				       unsigned rdata)
{
	unsigned at = dns_peer_put_name(p, name);
	uint8_t fixed[10] = { 0,
			      (uint8_t)type,
			      0,
			      1,
			      (uint8_t)(ttl >> 24),
			      (uint8_t)(ttl >> 16),
			      (uint8_t)(ttl >> 8),
			      (uint8_t)ttl,
			      0,
			      (uint8_t)rdata };

	memcpy(p + at, fixed, 10);
	return at + 10;
}

/* The answer section; returns its end. */
static inline unsigned dns_peer_answers(const struct dns_row *row, uint8_t *p, unsigned at,
					unsigned *count)
{
	const char *owner = row->cname ? row->cname : row->name;

	if (row->cname) {
		uint8_t target[256];
		unsigned n = dns_peer_put_name(target, row->cname);

		at += dns_peer_put_rr(p + at, row->name, DNS_CNAME, row->cname_ttl, n);
		memcpy(p + at, target, n);
		at += n;
		(*count)++;
	}
	for (unsigned i = 0; i < 4 && row->ip[i]; i++) {
		bool v6 = row->type == DNS_AAAA;

		at += dns_peer_put_rr(p + at, owner, row->type, row->ttl, v6 ? 16 : 4);
		assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, row->ip[i], p + at), 1);
		at += v6 ? 16 : 4;
		(*count)++;
	}
	return at;
}

static inline struct dns_row *dns_peer_row(struct dns_peer *d, const char *name, int type,
					   bool *known)
{
	*known = false;
	for (unsigned i = 0; i < d->n_rows; i++) {
		if (strcmp(d->rows[i].name, name) != 0)
			continue;
		*known = true;
		if (d->rows[i].type == type)
			return &d->rows[i];
	}
	return NULL;
}

/* Builds the answer to the n bytes of query in p, in place (EDNS goes); returns its length. */
static inline unsigned dns_peer_reply(struct dns_peer *d, uint8_t *p, bool tcp,
				      struct dns_row **rowp)
{
	char name[256];
	bool known;
	int type;
	unsigned at = dns_peer_question(p, name, &type), count = 0;
	struct dns_row *row = dns_peer_row(d, name, type, &known);

	*rowp = row;
	d->asked++;
	p[2] = 0x84 | (p[2] & 1); /* answer, authoritative */
	p[3] = 0x80 | (uint8_t)(row ? row->rcode : known ? 0 : 3);
	if (row) {
		row->asked++;
		row->asked_tcp += tcp;
		if (row->how == DNS_TRUNCATE && !tcp) {
			p[2] |= 2;
		} else if (row->how == DNS_RAW) {
			memcpy(p + at, row->raw, row->raw_n);
			at += row->raw_n;
			count = row->raw_count;
		} else if (!row->rcode) {
			at = dns_peer_answers(row, p, at, &count);
		}
	}
	p[6] = (uint8_t)(count >> 8);
	p[7] = (uint8_t)count;
	memset(p + 8, 0, 4);
	return at;
}

static inline void dns_peer_spoof(struct dns_peer *d, struct dns_row *row, const uint8_t *p,
				  unsigned n, const struct sockaddr_in *to)
{
	uint8_t q[2048];

	memcpy(q, p, n);
	q[n - 1] ^= 1; /* the lie: another address */
	if (row->how == DNS_SPOOF_ID)
		q[0] ^= 1;
	if (row->how == DNS_SPOOF_QUESTION)
		q[13] ^= 1;
	sendto(row->how == DNS_SPOOF_SOURCE ? d->other : d->udp, q, n, 0,
	       (const struct sockaddr *)to, sizeof(*to));
}

static inline void dns_peer_serve_tcp(struct dns_peer *d)
{
	uint8_t buf[4096];
	struct dns_row *row;
	unsigned n;

	if (d->conn < 0)
		d->conn = accept4(d->tcp, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (d->conn < 0)
		return;
	if (recv(d->conn, buf, 2, MSG_PEEK) == 0) {
		close(d->conn);
		d->conn = -1;
	} else if (recv(d->conn, buf, sizeof(buf), 0) > 14) {
		n = dns_peer_reply(d, buf + 2, true, &row);
		buf[0] = (uint8_t)(n >> 8);
		buf[1] = (uint8_t)n;
		if (!row || row->how != DNS_SILENT)
			assert_int_equal(write(d->conn, buf, n + 2), n + 2);
	}
}

/* Answers what has been asked; call it between two turns. */
static inline void dns_peer_serve(struct dns_peer *d)
{
	uint8_t buf[4096];
	struct sockaddr_in from;
	struct dns_row *row;
	unsigned n;

	for (;;) {
		socklen_t from_n = sizeof(from);

		if (recvfrom(d->udp, buf, sizeof(buf), 0, (struct sockaddr *)&from, &from_n) < 12)
			break;
		n = dns_peer_reply(d, buf, false, &row);
		if (row && row->how == DNS_SILENT)
			continue;
		if (row && row->how >= DNS_SPOOF_ID && row->how <= DNS_SPOOF_SOURCE)
			dns_peer_spoof(d, row, buf, n, &from);
		sendto(d->udp, buf, n, 0, (struct sockaddr *)&from, from_n);
	}
	dns_peer_serve_tcp(d);
}

#define dns_until(r, d, cond)                                  \
	do {                                                   \
		for (int i_ = 0; i_ < 4000 && !(cond); i_++) { \
			loop_turn((r)->loop, 2);               \
			dns_peer_serve(d);                     \
		}                                              \
		assert_true(cond);                             \
	} while (0)

#endif
