/* priv.h -- what the files of link/ share: the shard's slabs and lists. */
#ifndef LINK_PRIV_H
#define LINK_PRIV_H

#include "link/link.h"

#include "base/panic.h"

#include <errno.h>

#define LINK_SHARD_MAGIC 0x115aa4d0u
struct link_shard {
	uint32_t magic;
	struct loop *loop;
	struct slab links;
	struct slab lingers;
	struct slab graves; /* bytes of closed links that the kernel still reads */
	struct slab dials, attempts;
	struct grave *spare;   /* so that a close never fails for memory */
	struct list lingering; /* of last_words.node */
	struct list hungry;    /* of link.hungry */
	struct alarm feed;     /* the next look at the hungry */
	struct list acceptors; /* of acceptor.node */
	unsigned n_asking;     /* sockets towards name servers whose memory lives */
};

static inline struct link_shard *link_shard(const struct loop *loop)
{
	struct link_shard *s = loop_slot(loop, SLOT_LINK);

	hot_must(s && s->magic == LINK_SHARD_MAGIC);
	return s;
}

uint32_t dial_size(void);
uint32_t dial_attempt_size(void);

#endif
