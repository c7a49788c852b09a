/* scene.h -- one client, two servers, and the steps that most tests of a world (world.h) are made
 * of.
 *
 *   scene_open     a world whose configuration differs in a few places
 *   scene_ask      the client says something, and a server has got a request's head: sc->s
 *   scene_says     the server says something, and the client has got a head
 *   must_ring      a condition comes true so many ms after the mark: not before, and at once
 *   scene_log      the next line of the access log has this status, reason and completeness
 *   scene_serves   another client is served as if nothing had been
 *   scene_close    the client leaves, the world ends
 *
 * Both servers accept; a test says what they answer. */
#ifndef TESTS_SIM_SCENE_H
#define TESTS_SIM_SCENE_H

#include "world.h"

#define GET        "GET / HTTP/1.1\r\nHost: s\r\n\r\n"
#define OKAY       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define MINUTES(n) SECONDS((n)*60)
#define HOURS(n)   SECONDS((n)*3600)
/* Bytes are 100 us on their way, alarms are rounded up to a whole ms. */
#define SLACK_MS 2

struct knobs {                 /* text put into the configuration; NULL: none */
	const char *web, *fwd; /* listeners: ", key: value" */
	const char *route;     /* the one route */
	const char *servers;   /* instead of both servers */
	const char *upstream;  /* the one upstream */
	const char *more;      /* further top-level settings */
};

struct scene;
struct served { /* a connection at a server */
	struct sim_peer *peer;
	int server; /* 1, 2 */
};
struct desk {
	struct scene *scene;
	int server;
};

#define SERVED_MAX 64
struct scene {
	struct world w;
	struct sim_peer *c; /* NULL: the next scene_ask() calls */
	struct sim_peer *s; /* who got the latest head */
	int at;             /* its server */
	struct served served[SERVED_MAX];
	unsigned n_served; /* connections so far */
	struct desk desk[2];
	enum door door; /* where scene_ask() calls */
};

void scene_open(struct scene *, const struct knobs *); /* knobs NULL: none */
void scene_close(struct scene *);
void scene_server(struct scene *, int server, enum sim_answer); /* 1 or 2 */
void scene_call(struct scene *, const char *text);              /* does not wait */
void scene_ask(struct scene *, const char *text);
bool scene_asked(struct scene *); /* whether a server has a head now: sc->s */
void scene_says(struct scene *, const char *text);
/* An own page of culvert's has come: whole, of this status, and it says whether it closes. */
void scene_page(struct scene *, unsigned status, bool closes);
void scene_log(struct scene *, const char *status, const char *reason, bool complete);
void scene_serves(struct scene *);
/* A request and its answer on the client's connection, the line read. */
void scene_round(struct scene *);

#define must_ring_within(sc, cond, ms, slack)                             \
	do {                                                              \
		run_until(&(sc)->w, cond);                                \
		scene_rang(sc, (ms), (slack), __FILE__, __LINE__, #cond); \
	} while (0)
#define must_ring(sc, cond, ms) must_ring_within(sc, cond, ms, SLACK_MS)
void scene_rang(struct scene *, uint64_t ms, uint64_t slack, const char *file, int line,
		const char *what);

#endif
