/* actors.h -- clients and servers that behave at random, and what must be true of all of them.
 *
 *   request   has a number, which travels in User-Agent (and so into the access log) and X-Id
 *   truth     what is known of that request: what the client sent and saw, what servers got and
 *             did, what the log says
 *   client    one connection with one to four requests, or a tunnel; sends in pieces, stops reading
 *             now and then, hangs up in the middle
 *   server    one connection at a server; answers in every framing, early, with interims, closes,
 *             cuts its answer, says nothing
 *
 * Every byte of a body follows from its request's number, its direction and its place, so a byte
 * that went astray shows.  While they run the actors assert what can be seen at once;
 * actors_check() asserts the rest when all has ended. */
#ifndef TESTS_SIM_ACTORS_H
#define TESTS_SIM_ACTORS_H

#include "world.h"

/* How a server treats a request. */
enum deed {
	DEED_NONE = 0, /* it never came to a server */
	DEED_ANSWER,   /* a whole answer, after the whole request */
	DEED_EARLY,    /* a whole answer, right after the head */
	DEED_CUT,      /* FIN or RST before the answer's end */
	DEED_GARBAGE,
	DEED_SILENT,
	DEED_HANG_UP, /* no answer at all */
	DEED_ECHO     /* a tunnel */
};

struct truth {
	/* the client */
	bool safe;    /* its method may be sent twice (RFC 9110 §9.2.2) */
	bool aborted; /* its client hung up, or stopped reading for good */
	bool tunnel;
	/* Its connection carries more than a lingering close reads away (64 KiB, link.h): a reset
	 * may then overtake an answer after which the connection is closed. */
	bool bulky;
	unsigned status; /* of the final answer it saw */
	bool own;        /* which was culvert's own page */
	bool whole;      /* and it came to its end */
	/* the servers */
	unsigned heads; /* complete heads that servers got */
	enum deed deed; /* of the last one */
	unsigned answer_status;
	/* the log */
	unsigned lines, logged_status;
	bool logged_complete;
	char reason[64];
};

enum mood {
	MOOD_GOOD = 0, /* nobody misbehaves: each request must succeed */
	MOOD_BAD,      /* clients and servers do what they like */
	MOOD_FAULTY,   /* so they do, and the system fails now and then: anything may fail */
	MOOD_POOR      /* so they do, and culvert lacks memory or is cut off: the same */
};

#define ACTORS_REQUESTS 256
struct actors {
	struct world *w;
	struct truth truth[ACTORS_REQUESTS];
	unsigned n_requests, n_clients, n_over;
	uint64_t memory_max; /* the most that was in use between turns */
	enum mood mood;
	unsigned n_nameless; /* lines of the log without a request's number */
	void *mine;          /* what to free */
};

/* The servers of the world get actors; one of the two is dead now and then. */
void actors_open(struct actors *, struct world *, enum mood);
void actors_client(struct actors *);     /* one more, at a random moment soon */
bool actors_over(const struct actors *); /* all clients have ended */
void actors_check(struct actors *);      /* after the world came to rest: truth and log agree */
void actors_close(struct actors *);

#endif
