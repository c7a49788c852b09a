/* relay.h -- bytes only, no messages: tunnels (CONNECT, 101) and later L4 streams.
 *
 *   relay      two links and two directions; a direction reads one link and writes the other
 *   direction  copies through a few segs first; once it proved to be bulk (RELAY_BULK bytes with full receives) it is spliced through a
 *              1 MiB pipe from a bounded pool; back to copies when no pipe is to be had
 *   half-close a FIN on one side is passed on when its bytes are out; the relay ends when both directions have
 *
 * An idle relay holds no buffer and no pipe: two links and one struct. */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include "base/metric.h"
#include "link/link.h"

struct relay_end { const struct why *why; uint64_t bytes_in, bytes_out; }; /* why(WHY_NONE): both sides ended by FIN; in: from down */
struct relay_params {
	struct loop *loop;
	struct link *down, *up;       /* taken */
	struct bufq *down_unread;     /* bytes already read from down, moved out of the queue: go to up first */
	struct bufq *up_unread;
	uint32_t idle_ms;             /* tunnel_idle; 0: off */
	void (*ended)(void *arg, const struct relay_end *); /* once, from the loop; the relay is gone then */
	void *arg;
	uint64_t *cells; uint32_t slot_up, slot_down; /* culvert_tunnel_bytes_total */
};
struct relay;
/* False: out of memory; the links are closed, ended() is not called. */
bool relay_start(const struct relay_params *) MUST_CHECK;
unsigned relay_count(struct loop *);
/* Drain's deadline: cuts all; ended(WHY_SHUTDOWN) for each. */
void relay_cut_all(struct loop *, const struct why *);
int relay_shard_open(struct loop *, unsigned pipes_max) MUST_CHECK;
void relay_shard_close(struct loop *);
void relay_dump(struct loop *, int fd);

#endif
