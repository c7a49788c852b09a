/* rig.h -- one shard's real service on a real loop, its clients, two origins and a name server, all
 * turned by one thread over loopback.
 *
 * Who calls it: the tests of this suite.  A run is
 *
 *   rig_open      service, its listeners, an upstream of two servers; for the scenario at hand a
 *                 second shard, too, to which connections are handed over
 *   rig_exchange  one scenario to its end; what the client saw
 *   rig_settle    until nothing of it is left in the service
 *   rig_close     stops the service and asserts that everything was given back
 *
 * Nothing waits for time: each step has a condition and RIG_LIMIT_MS to reach it.  One thing needs
 * a measure of silence: a connection that finds no memory to receive into waits for some; `relief`
 * comes after RIG_QUIET turns.
 *
 * What the rig itself asserts for every exchange: it ends; an answer that looks whole is whole; the
 * access log has exactly one line for each request that was answered or that reached an origin, at
 * most one for any other (rig_check_log, after all runs). */
#ifndef TESTS_FAULT_RIG_H
#define TESTS_FAULT_RIG_H

#include "../unit/unit.h"

#include "base/log.h"
#include "loop/fault.h"
#include "ops/ops.h"

#define RIG_BODY     100000u
#define RIG_LIMIT_MS 8000
#define RIG_PEERS    8
#define RIG_QUIET    30u

enum rig_door { RIG_WEB = 0, RIG_FWD, RIG_PROXIED, RIG_DOORS };

struct scenario {
	const char *name;
	/* Of the head; start NULL: CONNECT to the first origin; "": GET of it, by its name. */
	const char *start, *fields;
	const char *answer; /* the origin's; NULL: none, it echoes at once */
	unsigned good;      /* the status without a fault */
	enum rig_door door;
	bool body;
	bool tunnel; /* after the answer: a ping, and the origin echoes */
	bool twice;  /* a second request on the same connection */
	bool drain;  /* the service is stopped when the origin has the request */
	bool handed; /* the first shard hands the connection over to a second one */
};
extern const struct scenario rig_scenarios[];
extern const unsigned rig_n_scenarios;

struct peer { /* a connection at an origin */
	int fd;
	char head[2048];
	uint32_t n; /* bytes of this request */
	bool echo;
};

struct outcome {
	unsigned status;    /* of the first answer; 0: none */
	bool complete;      /* everything that was asked came */
	bool over;          /* the end was seen before that */
	bool reached;       /* an origin had the head */
	bool handed;        /* the second shard had the connection */
	bool relieved;      /* it went on only when there was memory again */
	uint64_t most_used; /* the budget's highest level between turns */
};

struct rig {
	struct budget budget;
	unsigned n_shards;
	struct rig_shard {
		struct loop *loop;
		struct service *service;
		int listen[RIG_DOORS];
		bool ended;
	} shard[2];
	struct config *config;
	struct service_shared shared;
	struct fault_plan plan;
	int origin[2], names;
	int client; /* -1: none */
	struct peer peers[RIG_PEERS];
	const struct scenario *s;
	char asked[512], got[8192];
	uint32_t n_asked, n_asked_sent, n_got, n_body_sent;
	unsigned tag, stage;
	uint32_t hits_seen;
	uint64_t relief; /* != 0: the budget's limit once client and origins see nothing more */
	unsigned n_quiet;
	bool stopping;
	struct outcome o;
};

/* False: loop or service refused to open for lack of memory (budget_max); all is given back. */
bool rig_open(struct rig *, enum loop_io, uint64_t budget_max, const struct scenario *);
uint32_t rig_hits(const struct rig *); /* faults met */
struct outcome rig_exchange(struct rig *, const struct scenario *);
void rig_settle(struct rig *);
void rig_close(struct rig *);
/* This thread is in culvert's code, not the rig's: in its start, or in a turn of the loop. */
extern _Thread_local bool rig_inside;
unsigned rig_fds(void); /* open descriptors of this process */

/* What the run at hand is, in words: shown when it fails. */
void rig_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void rig_fail(const char *file, int line, const char *what);
#define rig_must(cond) ((cond) ? (void)0 : rig_fail(__FILE__, __LINE__, #cond))

/* Once per program, before the first run and after the last. */
void rig_open_log(void);
void rig_check_log(void);

#endif
