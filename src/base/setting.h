/* setting.h -- one row per setting: the only description of the configuration.
 *
 * A room writes the rows of its own settings in <room>_conf.c; ops/ joins them.  From the rows come
 * parsing, defaults, bounds, `check --print`, the starter file and docs/configuration.md.
 *
 *   row     one key: its type, bounds, default, where its value lies in the room's struct
 *   group   the keys that may stand in one map; its parts are tables of rows with a base each
 *   list    a row whose elements are described by another row
 *   names   a map whose keys are free names (upstreams): the elements are groups with a name
 *
 * A row knows offsets, not structs: base/ knows no room. */
#ifndef BASE_SETTING_H
#define BASE_SETTING_H

#include <stddef.h>
#include <stdint.h>

/* What the member is, by type.  Parsers and printers: ops/conf_value.c and conf_net.c. */
enum setting_type {
	SETTING_GROUP = 0, /* .group; the room's struct at the offset */
	SETTING_LIST,      /* .elem; pointer at the offset, uint32_t count at .n_offset */
	SETTING_NAMES,     /* .elem is a group; as LIST, the key goes to the row with SETTING_KEY */
	SETTING_BOOL,      /* bool */
	SETTING_SWITCH,    /* uint8_t: 0 not set, 1 on, 2 off */
	SETTING_ENUM,      /* uint8_t: index in .words */
	SETTING_COUNT,     /* unsigned of .width bytes */
	SETTING_SIZE,      /* uint64_t, bytes */
	SETTING_MS,        /* uint32_t, milliseconds */
	SETTING_MODE,      /* uint32_t, octal permissions */
	SETTING_TEXT,      /* struct str, no control characters */
	SETTING_BODY,      /* struct str, any text */
	SETTING_NAME,      /* struct str, letters, digits and _ . - */
	SETTING_HOST,      /* struct str, host name or address, maybe with a port */
	SETTING_HOSTS,     /* struct str, lower case: a host, "*.domain" or "*" */
	SETTING_PATH,      /* struct str, begins with '/'; its normal form is judged later */
	SETTING_LOCATION,  /* struct str, what a redirect says: path or URL */
	SETTING_SINK,      /* struct str: stdout, stderr or the whole name of a log file */
	SETTING_ADDR,      /* struct addr, port 53 unless given */
	SETTING_NET,       /* struct addr_net */
	SETTING_BIND,      /* struct bind_conf (all but .mode) */
	SETTING_SERVER,    /* struct server_conf (all but .weight and .index) */
	SETTING_TYPES
};

enum setting_flag {
	SETTING_REQUIRED = 1,
	SETTING_OFF = 2,      /* may be `off`: the member becomes .off */
	SETTING_ZERO = 4,     /* zero is a value like others */
	SETTING_AUTO = 8,     /* may be `auto`: zero, or an empty list */
	SETTING_SECRET = 16,  /* never printed */
	SETTING_RESTART = 32, /* a change takes effect with a restart; all others are live */
	SETTING_INHERIT = 64, /* group: what is not set here comes from the next outer place */
	SETTING_KEY = 128,    /* of a SETTING_NAMES element: the key itself */
	SETTING_EARLY = 256,  /* judged before the route is known: of no use in a route */
	SETTING_SOME = 512,   /* list: at least one element */
	SETTING_MARK = 1024,  /* the bool at .mark_offset becomes true when the key is there */
};

struct setting_group;
struct setting {
	const char *name;
	const char *doc;          /* a sentence */
	const char *def;          /* default, as it would be written; NULL: none */
	const char *unit;         /* for the reference; NULL: by type */
	const char *example;      /* for the starter file, where the default does not serve */
	const char *const *words; /* ENUM: NULL-terminated */
	const char *later;        /* ENUM: words of later versions, separated by spaces */
	const struct setting_group *group;
	const struct setting *elem;
	uint64_t min, max;     /* inclusive; max 0: no bounds */
	uint64_t off, inherit; /* values of `off` and of "not set here" */
	uint32_t offset, n_offset, mark_offset, elem_size;
	uint16_t flags;
	uint8_t type, width;
};

struct setting_part {
	const struct setting *rows;
	unsigned n;
	uint32_t base; /* added to the rows' offsets */
};

struct setting_group {
	const char *title;  /* "a listener"; NULL: the top level */
	const char *later;  /* keys of later versions, separated by spaces */
	const char *scalar; /* the key that a bare value stands for; NULL: it must be a map */
	const struct setting_part *parts;
	unsigned n_parts;
};

/* In a row: where the member lies. */
#define SETTING_AT(type_, member_) \
	.offset = offsetof(struct type_, member_), .width = sizeof(((struct type_ *)0)->member_)
/* In a row of a list: pointer, count, elements of this row. */
#define SETTING_LIST_AT(type_, member_, elem_)           \
	.offset = offsetof(struct type_, member_),       \
	.n_offset = offsetof(struct type_, n_##member_), \
	.elem_size = sizeof(*((struct type_ *)0)->member_), .elem = (elem_)
/* In a group: one table. */
/* clang-format off */
#define SETTING_ROWS(rows_) \
	.n_parts = 1, \
	.parts = (const struct setting_part[]){ { (rows_), sizeof(rows_) / sizeof((rows_)[0]), 0 } }
/* clang-format on */

#endif
