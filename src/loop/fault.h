/* fault.h -- a decorator of any back end: ops fail, come late or send short, as a plan says.  Tests
 * only.
 *
 * Ops are counted per kind from 1, as they are submitted.  The rules are looked through in order,
 * and the first that fits an op is applied to it.  The loop's own wake-up poll is not counted and
 * never fails. */
#ifndef LOOP_FAULT_H
#define LOOP_FAULT_H

#include "loop/loop.h"

enum fault_kind { FAULT_ANY = 0, FAULT_SOCKET = OP_POLL + 1, FAULT_KINDS }; /* and enum op_kind */

struct fault_rule {
	uint8_t kind;      /* enum op_kind or fault_kind */
	uint32_t nth;      /* the first that is meant; FAULT_ANY counts over all kinds */
	uint32_t times;    /* how many in a row from there on: a storm; 0: one */
	int32_t res;       /* < 0: it finishes with this and the back end never sees it */
	uint32_t delay;    /* else: so many turns pass before the back end gets it */
	uint32_t send_max; /* SEND: so many bytes at most are handed on; 0: all */
};

#define FAULT_RULES 8
struct fault_plan {
	bool single_shot; /* no multishot: every accept and recv ends with its first report */
	bool no_limit;    /* io_uring: as on kernels that cannot limit a multishot receive */
	uint32_t n_rules;
	struct fault_rule rules[FAULT_RULES];
};

/* borrows the plan; 0 or -ENOMEM */
int fault_open(struct loop *loop, const struct fault_plan *plan);
void fault_close(struct loop *loop); /* no-op without a plan */
/* ops of this kind so far; FAULT_ANY: all */
uint32_t fault_seen(const struct loop *loop, uint8_t kind);
uint32_t fault_hits(const struct loop *loop); /* rules applied so far */

#endif
