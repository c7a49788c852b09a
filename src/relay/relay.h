/* relay.h -- bytes only, no messages: tunnels (CONNECT, 101) and later L4 streams.
 *
 *   relay      two links and two ways; a way reads one link and writes the other
 *   way        copies through a few segs first; once it proved to be bulk (256 KiB by full
 *              receives) it is spliced through a 1 MiB pipe (smaller where the system refuses
 *              that) from a bounded pool; back to copies when no pipe is to be had, or only crumbs
 *              come
 *   half-close a FIN on one side is passed on when its bytes are out; the relay ends when both
 *              ways have
 *
 * An idle relay holds no buffer and no pipe: two links and one struct.
 *
 * The process ignores SIGPIPE: splice(2) knows no MSG_NOSIGNAL. */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include "base/metric.h"
#include "link/link.h"

struct relay_end {
	const struct why *why;        /* WHY_NONE: both sides ended by FIN */
	uint64_t bytes_in, bytes_out; /* received; in: from down */
};
struct relay_params {
	struct loop *loop;
	struct link *down, *up; /* taken; nothing is being sent on them */
	/* Bytes already read from down, up: moved out of the queues, sent first. */
	struct bufq *down_unread, *up_unread;
	uint32_t idle_ms; /* tunnel_idle; 0: off */
	/* Once, from the loop, never from inside a relay_*() call; the relay is gone then. */
	void (*ended)(void *arg, const struct relay_end *);
	void *arg;
	uint64_t *cells; /* culvert_tunnel_bytes_total; NULL: not counted */
	uint32_t slot_up, slot_down;
};
struct relay;
/* False: out of memory; the links are closed, ended() is not called. */
bool relay_start(const struct relay_params *) MUST_CHECK;
unsigned relay_count(struct loop *); /* that have not ended() yet */
/* Drain's deadline: resets all; ended(cause) comes for each. */
void relay_cut_all(struct loop *, const struct why *cause);
/* pipes_max: 0: no splicing.  0 or -ENOMEM. */
int relay_shard_open(struct loop *, unsigned pipes_max) MUST_CHECK;
void relay_shard_close(struct loop *); /* asserts that nothing is left */
void relay_dump(struct loop *, int fd);

#endif
