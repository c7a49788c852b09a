/* world.h -- one shard's real service in a simulated world (loop/sim.h): the test plays its clients
 * and its servers, and time passes at once.
 *
 *   world_open    the service as a configuration says, on addresses that exist only here
 *   world_call    a client connects to a listener
 *   SERVER(1..)   servers' addresses, refused until world_serve() says what they do
 *   run_until     turns the loop until a condition holds; the world's time bounds it, no real time
 *   world_line    the next line of the access log
 *   world_close   stops the service and asserts that everything was given back: memory, sockets,
 *                 exchanges; and that no line of the log is left that the test did not read
 *
 * The configuration of world_conf: listeners `web` and `fwd`, one site, upstream `app` of two
 * servers.  Times are those of the program's defaults where a test does not set them.  The seed of
 * everything random is the environment's CULVERT_SEED, else fixed; it is printed when a test
 * fails. */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "../unit/unit.h"

#include "base/log.h"
#include "loop/fault.h"
#include "loop/sim.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define SECONDS(n) ((n)*1000000ull)
/* Longer than every default timeout: what has not come true by then never will. */
#define WORLD_PATIENCE SECONDS(3 * 3600)

enum door { WEB = 0, FWD, DOORS };

struct world {
	struct sim *sim;
	struct budget budget;
	struct loop *loop;
	struct config *config;
	struct service_shared shared;
	struct service *service;
	int listen[DOORS];
	bool stopping, closed, ended;
	uint64_t turns, began_us;
	unsigned n_clients;
	struct sim_peer *server; /* the newest that world_serve() has accepted */
	unsigned n_served;
};

extern const char world_conf[];
#define SERVER_1 "10.1.0.1"
#define SERVER_2 "10.1.0.2"

/* Appends `more`, further top-level settings, to world_conf. */
void world_open(struct world *, const char *more);
/* The same, every setting its own, a seed and rough (loop/sim.h). */
void world_open_as(struct world *, const char *conf, uint64_t seed, bool rough);
/* And ops that fail (loop/fault.h); borrowed until world_close(). */
void world_open_faulty(struct world *, const char *conf, uint64_t seed, bool rough,
		       const struct fault_plan *);
void world_close(struct world *);

struct sim_peer *world_call(struct world *, enum door);
/* What connects to SERVER_n:80 find; accepted ones become w->server, or go to on_peer. */
void world_serve(struct world *, const char *server, enum sim_answer);
void world_serve_as(struct world *, const char *server, enum sim_answer,
		    void (*on_peer)(struct sim_peer *, void *arg), void *arg);
void world_say(struct sim_peer *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What came begins with this, and it is eaten. */
bool world_takes(struct sim_peer *, const char *text);
/* A whole head has come: its status (of a response), or 1 (of a request); 0: not yet. */
unsigned world_head(const struct sim_peer *);
/* The value of a field in the head, or NULL; static, valid until the next call. */
const char *world_field(const struct sim_peer *, const char *name);
void world_eat_all(struct sim_peer *);

void world_turn(struct world *);
void world_pass(struct world *, uint64_t us); /* turns until so much time has passed */
#define run_until(w, cond)                                               \
	do {                                                             \
		uint64_t until_ = sim_now_us((w)->sim) + WORLD_PATIENCE; \
		while (!(cond) && sim_now_us((w)->sim) < until_)         \
			world_turn(w);                                   \
		if (!(cond))                                             \
			world_fail(w, __FILE__, __LINE__, #cond);        \
	} while (0)
void world_fail(struct world *, const char *file, int line, const char *what);
/* An assertion that shows the world when it fails. */
#define world_must(w, cond) ((cond) ? (void)0 : world_fail(w, __FILE__, __LINE__, #cond))
void world_stop(struct world *); /* the last phase of a drain begins */

/* Time that has passed since world_mark(). */
void world_mark(struct world *);
uint64_t world_ms(const struct world *);

/* The next line of the access log, waited for; static, valid until the next call. */
const char *world_line(struct world *);
/* A member of that line's JSON, as text without quotes; "" if it is not there. */
const char *world_logged(const char *line, const char *member);
/* The same without waiting for one that is still to be written: NULL when none is left. */
const char *world_line_now(struct world *);
/* What is being looked at, in words: shown when it fails. */
void world_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The value of a series, given as in the text format; 0: it is not there. */
double world_metric(struct world *, const char *series);

uint64_t world_seed(void);
int world_group_setup(void **state);    /* opens the log: give it to cmocka_run_group_tests */
int world_group_teardown(void **state); /* and closes it */

#endif
