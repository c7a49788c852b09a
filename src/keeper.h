/* keeper.h -- the parent process: binds, opens, watches; touches no traffic and keeps its
 * privileges. */
#ifndef KEEPER_H
#define KEEPER_H

#include "ops/ops.h"

/* Runs until the proxy has ended.  Takes the configuration.  Returns the exit code that
 * README.md lists. */
int keeper_run(struct config *config, const char *version);

#endif
