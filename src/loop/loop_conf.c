/* loop_conf.c -- the settings of the shards: how many, and on which back end. */
#include "base/setting.h"
#include "loop/loop.h"

const struct setting loop_conf_workers = {
	.name = "workers",
	.type = SETTING_COUNT,
	SETTING_AT(loop_conf, workers),
	.def = "auto",
	.min = 1,
	.max = 256,
	.flags = SETTING_AUTO | SETTING_RESTART,
	.unit = "threads",
	.doc = "How many shards (threads with an event loop of their own) serve. `auto`: one "
	       "per core that the process may use, by CPU affinity and cgroup quota.",
};

/* The order is that of enum loop_io; the sim is no choice. */
static const char *const io_words[] = { "auto", "io_uring", "epoll", NULL };

const struct setting loop_conf_io = {
	.name = "io",
	.type = SETTING_ENUM,
	SETTING_AT(loop_conf, io),
	.def = "auto",
	.words = io_words,
	.flags = SETTING_RESTART,
	.doc = "The kernel's interface for sockets. `auto`: io_uring where the kernel allows "
	       "it, else epoll; the first line of the log says which one runs and why.",
};
