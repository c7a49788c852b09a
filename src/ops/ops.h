/* ops.h -- running culvert: configuration, the proxy process, signals' consequences, admin port,
 * metrics. */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "serve/serve.h"

struct drain_conf {
	uint32_t delay_ms, deadline_ms;
};
struct log_conf {
	struct str to;
	uint8_t level, format;
	unsigned sink;
};
struct admin_conf {
	bool on;
	struct bind_conf bind;
	struct str token; /* secret; empty: none */
	const struct addr_net *allow_from;
	uint32_t n_allow_from;
};
/* A file that the keeper opens (and opens again on USR1); "stdout" and "stderr" are 1 and 2. */
struct log_file {
	struct str path;
	int fd;
};

struct config {
	struct plan *plan;
	struct drain_conf drain;
	struct log_conf log;
	struct admin_conf admin;
	struct str user; /* "nobody", "root", "uid:gid"; empty: not set */
	uid_t uid;
	gid_t gid;
	bool drop; /* resolved */
	struct log_file *files;
	unsigned n_files;
	struct str file; /* name of the configuration file, for messages */
	/* hard RLIMIT_NOFILE that the connections were judged by */
	uint64_t fds_max;
	/* what the rows filled, defaults and all; for config_print() */
	const struct conf_top *top;
};
struct conf_top;

/* --- conf.c --- */
/* text: malloc'd; file:line:column: error: … with caret, then the count line */
struct conf_report {
	unsigned errors, warnings;
	char *text;
	size_t n;
};
/* Reads and checks everything; nothing is bound, resolved, created.  NULL: errors, in the
 * report. */
struct config *config_load(const char *path, struct conf_report *) MUST_CHECK;
struct config *config_load_text(const char *name, const char *text, size_t n,
				struct conf_report *) MUST_CHECK;
void config_free(struct config **);
/* --print: the effective plan, secrets hidden */
void config_print(const struct config *, int fd);
void config_summary(const struct config *, int fd); /* "culvert.yaml: ok: 3 listeners, …" */
/* the commented starter file, from the tables */
void config_starter(int fd);
void config_reference(int fd); /* docs/configuration.md, from the tables */

/* --- keeper_wire.c: what keeper and proxy say to each other over their socket pair --- */
enum keeper_word {
	KEEPER_READY = 1, /* proxy: all shards serve */
	KEEPER_DRAIN,     /* keeper: readiness first, delay, stop accepting, finish, deadline */
	KEEPER_END,       /* keeper: at once */
	KEEPER_STOPPED,   /* proxy: no shard accepts any more; the listening sockets may close */
	KEEPER_LOG,       /* keeper: config->files[index] was opened again; with its descriptor */
};
int keeper_send(int sock, enum keeper_word, unsigned index, int fd); /* fd -1: none; 0 or -errno */
/* The next word (> 0), 0 at the end, or -errno; *fd: -1, or a descriptor that is now the
 * caller's. */
int keeper_recv(int sock, unsigned *index, int *fd);

/* --- demo.c --- */
/* The built-in demo: origins in a child process of their own, a configuration, a few lines that say
 * what to try.  Exit code as of `run`. */
int demo_run(const char *version, int (*run)(struct config *, const char *version));

/* --- proxy.c: the proxy process --- */
struct proxy_params {
	const struct config *config;
	/* by listener; the last one is the admin port when on */
	struct bound *bound;
	int keeper_fd; /* socket pair to the keeper */
	const char *version;
};
/* Runs until drained.  0: clean; 1: the start failed; 3: something was cut at the end. */
int proxy_run(const struct proxy_params *);

#endif
