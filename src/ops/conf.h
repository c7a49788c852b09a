/* conf.h -- the loader's own words; only src/ops/conf*.c include it.
 *
 *   node    one piece of the file: scalar, list or map, with its place (conf_yaml.c)
 *   note    one error or warning at a place (conf_report.c)
 *   value   a scalar on its way into a member (conf_value.c, conf_net.c)
 *   top     what the rows fill (conf_fill.c): one member per top-level setting
 *   check   what no row can know: one setting against another (conf_check.c)
 *   plan    top, resolved and compiled (conf_plan.c)
 *
 *   file --> text --> nodes --> top --> checks --> plan          all notes, sorted, --> report
 *
 * Memory: nodes and notes in the loader's own arena, everything else in the plan's.  Out of memory
 * sets conf.oom and leaves zeroes behind; the load fails at its end. */
#ifndef OPS_CONF_H
#define OPS_CONF_H

#include "base/setting.h"
#include "ops/ops.h"

#include <stdio.h>

enum conf_kind { CONF_SCALAR = 0, CONF_LIST, CONF_MAP };

struct conf_node {
	uint8_t kind;          /* enum conf_kind */
	bool plain;            /* scalar without quotes */
	bool expanded;         /* ${...} was in it: its value is not shown */
	bool bad;              /* an error was told: later checks pass it over */
	uint32_t line, column; /* from 1 */
	uint32_t pos, end;     /* bytes of the text */
	struct str text;       /* scalar: its value */
	struct str raw;        /* as written, before expansion */
	struct conf_node *key; /* in a map: the key's node */
	struct conf_node *first, *last, *next, *parent;
	uint32_t n;
};

struct conf_note {
	struct conf_note *next;
	uint32_t line, column, pos, end;
	bool warning;
	struct str text;
};

struct conf_top {
	struct loop_conf loop;
	struct str user;
	struct listeners_conf listeners;
	struct forward_conf forward;
	struct sites_conf sites;
	struct upstreams_conf upstreams;
	struct identity_conf identity;
	struct resolver_conf resolver;
	struct timeouts timeouts;
	struct limits_conf limits;
	uint8_t half_close; /* 0 deliver, 1 abort */
	struct drain_conf drain;
	struct access_log_conf access_log;
	struct log_conf log;
	struct admin_conf admin;
};
extern const struct setting_group conf_top_group; /* ops_conf.c */

struct conf {
	const char *name; /* of the file, as given */
	const char *dir;  /* where relative file names begin, with its '/'; "" */
	struct str text;
	struct arena *mem; /* the plan's */
	struct arena scratch;
	struct conf_node *root;
	struct conf_top *top;
	struct conf_note *notes;
	struct conf_secret *secrets;
	unsigned errors, warnings;
	bool oom;
};

/* --- conf_yaml.c --- */
/* Fills c->root (NULL: nothing there, or broken). Problems of the syntax and of ${...} become
 * notes. */
void conf_yaml_parse(struct conf *c);

/* --- conf_report.c --- */
/* A note at this node; an error marks the node bad. */
void conf_error(struct conf *c, struct conf_node *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void conf_warn(struct conf *c, struct conf_node *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void conf_error_at(struct conf *c, const struct conf_note *place, const char *text);
void conf_secret(struct conf *c,
		 const struct conf_node *n); /* masked wherever the source is shown */
/* The nearest of the words (NULL-terminated), or NULL when none is near. */
const char *conf_near(struct str s, const char *const *words);
bool conf_listed(const char *list, struct str word); /* in "a b c" */
/* Renders all notes, in the order of the file, and the count line. False: no memory. */
bool conf_report_render(struct conf *c, struct conf_report *r);

/* --- conf_value.c, conf_net.c: pure --- */
struct conf_value {
	const struct setting *row;
	struct str text;
	bool plain;
	const char *dir;
	struct arena *mem;
	bool oom;
	struct out why,
		fix; /* why it is wrong; what to write instead (not shown for expanded values) */
	char why_room[256], fix_room[256];
};
void conf_value_init(struct conf_value *v, const struct setting *row, struct arena *mem,
		     const char *dir);
/* Parses v->text into the member.  False: v->why and v->fix tell. */
bool conf_value_parse(struct conf_value *v, void *member);
bool conf_value_why(struct conf_value *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3))); /* false */
bool conf_value_fix(struct conf_value *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3))); /* false */
/* Copies into the plan; with a NUL behind it, for those who borrow names as C strings.  True. */
bool conf_value_keep(struct conf_value *v, struct str s, struct str *to);
uint64_t conf_value_get(const struct setting *row, const void *member);
void conf_value_set(const struct setting *row, void *member, uint64_t x);
/* The member as it would be written. */
void conf_value_print(FILE *f, const struct setting *row, const void *member);
/* A number of the row's type, as it would be written: 90000 -> "90s". */
const char *conf_value_number(const struct setting *row, uint64_t x, char room[static 32]);
void conf_value_quote(FILE *f, struct str s);
const char *conf_value_type(const struct setting *row); /* "duration", ... for the reference */

bool conf_net_parse_net(struct conf_value *v, void *member);
bool conf_net_parse_addr(struct conf_value *v, void *member);
bool conf_net_parse_bind(struct conf_value *v, void *member);
bool conf_net_parse_server(struct conf_value *v, void *member);
bool conf_net_parse_host(struct conf_value *v, void *member);
bool conf_net_parse_hosts(struct conf_value *v, void *member);
void conf_net_print_net(struct out *o, const struct addr_net *n);

/* --- conf_fill.c --- */
void conf_fill(struct conf *c);
/* What `inner` does not say is taken from `outer`. */
void conf_fill_merge(const struct setting_group *g, const void *outer, void *inner);
/* Lookup for the checks; NULL in, NULL out. */
struct conf_node *conf_fill_get(struct conf_node *map, const char *key);
const struct setting *conf_fill_row(const struct setting_group *g, struct str key, uint32_t *base);

/* --- conf_check.c --- */
void conf_check(struct conf *c);
/* --- conf_bind.c --- */
void conf_bind_check(struct conf *c);

/* --- conf_plan.c --- */
/* Resolves and compiles; c->errors tells whether it went well. */
void conf_plan_build(struct conf *c, struct config *config, struct plan *plan);

#endif
