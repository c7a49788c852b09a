/* gauges.h -- series that are asked for at the scrape instead of counted. */
#ifndef OPS_GAUGES_H
#define OPS_GAUGES_H

#include "ops/ops.h"

#define GAUGES_SHARDS 256u
struct gauges_params {
	struct service_shared *shared;
	const char *version, *io;
	struct log_sink **sinks;
	unsigned n_sinks;
	unsigned n_shards;
	struct loop *loops[GAUGES_SHARDS]; /* those above are not shown */
};
/* Once, when all shards run; what it is given lives as long as the process. */
void gauges_open(const struct gauges_params *);

#endif
