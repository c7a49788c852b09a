/* admin.h -- the admin port: /healthz, /readyz, /metrics.  Off unless configured; one shard; its
 * own connection reserve. */
#ifndef OPS_ADMIN_H
#define OPS_ADMIN_H

#include "ops/ops.h"

struct admin;
/* On shard 0's loop, by its thread, after service_open().  fd is borrowed.  NULL: out of memory. */
struct admin *admin_open(struct loop *, const struct admin_conf *, int fd, bool shared,
			 struct service_shared *) MUST_CHECK;
void admin_stop(struct admin **); /* closes everything at once; NULL inside is accepted */

#endif
