/*
 * load.h -- the load driver: HTTP/1.1 clients of a proxy and the origin behind it, in one thread on
 * one io_uring, so that one core drives more requests than a proxy on another core can carry.
 *
 *   client.c   --request-->  the proxy under test  --request-->   origin.c
 *              <--answer---                        <--answer---
 *   message.c  the prepared requests and answers, and the little reading of heads that both ends
 *              need
 *   meter.c    latencies
 *   load.c     options, the loop, the phases, the report
 *
 * Words:
 *   page      one of PAGES answers that differ in every byte of the body; a client always asks for
 *             its own page, so that an answer given to the wrong client is seen
 *   checked   status, announced length, and every byte of the body against what the origin sent
 *   warm      before the count begins; drain: no new requests, those under way are waited for, so
 *             that a proxy sees no abort and its log has one line per request
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "../common/cpu.h"
#include "../common/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- options ---- */

enum form {
	FORM_ORIGIN,   /* GET /path: a reverse proxy */
	FORM_ABSOLUTE, /* GET http://127.0.0.1:ORIGIN/path: a forward proxy */
};

struct options {
	uint16_t proxy_port, origin_port;
	enum form form;
	unsigned connections;
	size_t body_bytes; /* of each answer */
	size_t post_bytes; /* of each request; 0: GET */
	double warm_s, count_s;
	uint64_t requests;    /* > 0: this many in place of a time, and no warm phase */
	double rate;          /* > 0: requests per second at fixed times, late starts charged */
	bool new_connection;  /* one request per connection, which the client closes */
	struct cpu_of cpu_of; /* the contestant's processes */
};

extern struct options options;

/* ---- the loop, load.c ---- */

enum phase { PHASE_WARM, PHASE_COUNT, PHASE_DRAIN };

/* The kind stands in the lowest bits of user_data, above it the address of its client or of the
 * origin's connection. */
enum kind {
	CLIENT_CONNECTED,
	CLIENT_RECEIVED,
	ORIGIN_ACCEPTED,
	ORIGIN_RECEIVED,
	ORIGIN_SENT,
	SENT
};
enum { KIND_MASK = 7 };

extern struct ring ring;
extern enum phase phase;
extern double turn_s; /* the clock, read once per turn */

static inline uint64_t load_tag(const void *owner, enum kind kind)
{
	return (uint64_t)(uintptr_t)owner | kind;
}

/* ---- messages, message.c ---- */

enum { PAGES = 16, HEAD_MAX = 4096 };

struct message {
	uint8_t *bytes; /* head and body, sent as one */
	size_t size;
	const uint8_t *body;
};

struct head {
	unsigned size; /* with the empty line */
	uint64_t body; /* Content-Length, 0 without */
	bool close;    /* Connection: close */
	bool coded;    /* Transfer-Encoding: none of ours has one */
};

extern struct message requests[PAGES], answers[PAGES];

/* Prepares requests and answers as the options say. */
void message_prepare(void);

/* Reads the fields of a head.  False: its end has not come. */
bool message_head(struct head *h, const uint8_t *bytes, size_t n);

/* Which page a request asks for; -1 when it is not what the clients send. */
int message_page(const uint8_t *request, size_t n);

/* ---- clients, client.c ---- */

struct tally {
	uint64_t started, done, bad, reconnects;
};

extern struct tally tally;

void client_open_all(void);
void client_on_connected(void *client, int res);
void client_on_received(void *client, const struct io_uring_cqe *cqe);

/* Fixed rate: starts what is due now; returns the nanoseconds until the next one is. */
int64_t client_start_due(void);

/* ---- the origin, origin.c ---- */

void origin_open(void);
void origin_on_accepted(int res);
void origin_on_received(void *conn, const struct io_uring_cqe *cqe);
void origin_on_sent(void *conn);

/* Requests that were not what the clients sent. */
extern uint64_t origin_bad;

/* ---- meter, meter.c ---- */

void meter_reset(void);
void meter_add(double seconds);

/* The latency that this share of the requests did not exceed, in microseconds; share 1: the
 * longest. */
double meter_us(double share);

#endif
