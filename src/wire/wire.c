/* wire.c -- what one shard keeps for its codecs: the memory of connections, to clients and to
 * servers. */
#include "wire/priv.h"

#include <errno.h>
#include <stdlib.h>

struct wire_shard {
	struct slab conns, clients;
};

static struct wire_shard *shard_of(struct loop *l)
{
	return loop_slot(l, SLOT_WIRE);
}

int wire_shard_open(struct loop *l)
{
	struct wire_shard *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	slab_init(&s->conns, "h1_conns", h1_conn_size(), loop_budget(l));
	slab_init(&s->clients, "h1_clients", h1_client_size(), loop_budget(l));
	loop_set_slot(l, SLOT_WIRE, s);
	return 0;
}

void wire_shard_close(struct loop *l)
{
	struct wire_shard *s = shard_of(l);

	slab_close(&s->conns);
	slab_close(&s->clients);
	free(s);
	loop_set_slot(l, SLOT_WIRE, NULL);
}

struct slab *wire_conns(struct loop *l)
{
	return &shard_of(l)->conns;
}

struct slab *wire_clients(struct loop *l)
{
	return &shard_of(l)->clients;
}
