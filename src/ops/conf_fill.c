/* conf_fill.c -- from nodes to structs, by the rows.  Exports: conf_fill*.
 *
 * Every member gets its default first (or "not set here", in a group that inherits), then what the
 * file says.  A wrong value leaves the default and a note behind, so that all errors are found. */
#include "ops/conf.h"

/* How one group is filled. */
struct fill {
	struct conf *c;
	const struct setting_group *g;
	struct conf_node *node; /* NULL: defaults only */
	char *base;
	bool inherit;
};

static void fill_group(const struct fill *f);

/* ---- rows by name ---- */

const struct setting *conf_fill_row(const struct setting_group *g, struct str key, uint32_t *base)
{
	for (unsigned i = 0; i < g->n_parts; i++) {
		const struct setting_part *p = &g->parts[i];

		for (unsigned j = 0; j < p->n; j++) {
			if (!(p->rows[j].flags & SETTING_KEY) &&
			    str_eq(str_of(p->rows[j].name), key)) {
				*base = p->base;
				return &p->rows[j];
			}
		}
	}
	return NULL;
}

#define WORDS_MAX 64
static const char *nearest_key(const struct setting_group *g, struct str key)
{
	const char *words[WORDS_MAX + 1];
	unsigned n = 0;

	for (unsigned i = 0; i < g->n_parts; i++)
		for (unsigned j = 0; j < g->parts[i].n && n < WORDS_MAX; j++)
			if (!(g->parts[i].rows[j].flags & SETTING_KEY))
				words[n++] = g->parts[i].rows[j].name;
	words[n] = NULL;
	return conf_near(key, words);
}

/* "a, b, c": the keys that this group has. */
static void all_keys(const struct setting_group *g, struct out *o)
{
	for (unsigned i = 0; i < g->n_parts; i++) {
		for (unsigned j = 0; j < g->parts[i].n; j++) {
			if (g->parts[i].rows[j].flags & SETTING_KEY)
				continue;
			if (out_len(o))
				out_lit(o, ", ");
			out_str(o, str_of(g->parts[i].rows[j].name));
		}
	}
}

/* Whether the key stands in the group of this name at the top: limits.connections. */
static bool only_at_top(const struct setting_group *g, struct str key)
{
	uint32_t base;
	const struct setting *row =
		g->title ? conf_fill_row(&conf_top_group, str_of(g->title), &base) : NULL;

	return row && row->group && row->group != g && conf_fill_row(row->group, key, &base);
}

static void unknown_key(struct conf *c, const struct setting_group *g, struct conf_node *key)
{
	const char *near = nearest_key(g, key->raw), *in = g->title ? " in " : "";
	char all[400], what[160];
	struct out o;
	uint32_t base;

	snprintf(what, sizeof(what), "\"%.*s\"%s%s", key->raw.n < 80 ? (int)key->raw.n : 80,
		 key->raw.p, in, g->title ? g->title : "");
	if (conf_listed(g->later, key->raw)) {
		conf_error(c, key, "%s: not in this version", what);
	} else if (only_at_top(g, key->raw)) {
		conf_error(c, key, "%s: it stands in the %s at the top level only", what, g->title);
	} else if (near) {
		conf_error(c, key, "unknown key %s; did you mean %s?", what, near);
	} else if (g->title && conf_fill_row(&conf_top_group, key->raw, &base)) {
		conf_error(c, key, "unknown key %s; it stands at the top level", what);
	} else {
		out_init(&o, all, sizeof(all));
		all_keys(g, &o);
		conf_error(c, key, "unknown key %s; there are %.*s", what, (int)out_len(&o), all);
	}
}

/* ---- scalars ---- */

/* `connect: "30": a duration needs a unit; write 30s or 30ms` */
static void explain(struct conf *c, const char *name, struct conf_node *n,
		    const struct conf_value *v)
{
	bool fix = out_len(&v->fix) && !n->expanded;
	char shown[210] = "";

	if (!(v->row->flags & SETTING_SECRET) || n->expanded)
		snprintf(shown, sizeof(shown), " \"%.*s\":", n->raw.n < 200 ? (int)n->raw.n : 200,
			 n->raw.p);
	conf_error(c, n, "%s:%s %.*s%s%.*s", name, shown, (int)out_len(&v->why), v->why_room,
		   fix ? "; " : "", fix ? (int)out_len(&v->fix) : 0, v->fix_room);
}

static bool is_null(const struct conf_node *n)
{
	return n->kind == CONF_SCALAR && n->plain && !n->expanded &&
	       (n->raw.n == 0 || str_eq(n->raw, STR("~")) || str_ieq(n->raw, STR("null")));
}

static const char *kind_name(const struct conf_node *n)
{
	return n->kind == CONF_MAP ? "a map" : n->kind == CONF_LIST ? "a list" : "one value";
}

/* `name`: how errors call it; that of the list for an element. */
static void fill_scalar(struct conf *c, const struct setting *row, const char *name,
			struct conf_node *n, void *member)
{
	struct conf_value v;

	if (n->bad)
		return;
	if (row->flags & SETTING_SECRET && !n->expanded)
		conf_secret(c, n);
	if (n->kind != CONF_SCALAR) {
		conf_error(c, n, "%s: must be a %s, not %s", name, conf_value_type(row),
			   kind_name(n));
		return;
	}
	conf_value_init(&v, row, c->mem, c->dir);
	v.text = n->text;
	v.plain = n->plain;
	if (!conf_value_parse(&v, member))
		explain(c, name, n, &v);
	c->oom |= v.oom;
}

/* ---- lists ---- */

static void *list_alloc(struct conf *c, const struct setting *row, char *base, uint32_t n)
{
	void *p = arena_zalloc(c->mem, n ? (size_t)n * row->elem_size : 8);

	if (!p) {
		c->oom = true;
		n = 0;
	}
	*(void **)(void *)(base + row->offset) = p;
	*(uint32_t *)(void *)(base + row->n_offset) = n;
	return p;
}

static void fill_elem(struct conf *c, const struct setting *list, struct conf_node *n, char *to)
{
	const struct setting *elem = list->elem;

	if (elem->type == SETTING_GROUP)
		fill_group(&(struct fill){ .c = c, .g = elem->group, .node = n, .base = to });
	else if (is_null(n))
		conf_error(c, n, "%s: there is no value", list->name);
	else
		fill_scalar(c, elem, list->name, n, to);
}

static void fill_list(struct conf *c, const struct setting *row, struct conf_node *n, char *base)
{
	struct conf_node *item;
	char *to;

	if (row->flags & SETTING_AUTO && n->kind == CONF_SCALAR && str_eq(n->text, STR("auto")))
		return;
	if (n->kind != CONF_LIST) {
		if (n->kind == CONF_SCALAR && row->elem->type != SETTING_GROUP)
			conf_error(c, n, "%s: must be a list; write [%.*s]", row->name,
				   (int)n->raw.n, n->raw.p);
		else
			conf_error(c, n, "%s: must be a list, not %s", row->name, kind_name(n));
		return;
	}
	if (n->n == 0 && row->flags & SETTING_SOME)
		conf_error(c, n, "%s: must not be empty", row->name);
	to = list_alloc(c, row, base, n->n);
	for (item = n->first; to && item; item = item->next, to += row->elem_size)
		fill_elem(c, row, item, to);
}

/* The row that takes the key of a map of names. */
static const struct setting *key_row(const struct setting_group *g)
{
	for (unsigned j = 0; j < g->parts[0].n; j++)
		if (g->parts[0].rows[j].flags & SETTING_KEY)
			return &g->parts[0].rows[j];
	panic_fmt("a map of names without a key row: %s", g->title);
}

static void fill_names(struct conf *c, const struct setting *row, struct conf_node *n, char *base)
{
	const struct setting *key = key_row(row->elem->group);
	struct conf_node *item;
	char *to;

	if (n->kind != CONF_MAP) {
		conf_error(c, n, "%s: must be a map of names, not %s", row->name, kind_name(n));
		return;
	}
	to = list_alloc(c, row, base, n->n);
	for (item = n->first; to && item; item = item->next, to += row->elem_size) {
		fill_elem(c, row, item, to);
		fill_scalar(c, key, key->name, item->key, to + key->offset);
	}
}

/* ---- defaults ---- */

static void default_scalar(struct conf *c, const struct setting *row, struct str text, void *member)
{
	struct conf_value v;

	conf_value_init(&v, row, c->mem, c->dir);
	v.text = text;
	if (!conf_value_parse(&v, member))
		panic_fmt("default of %s: %.*s", row->name, (int)out_len(&v.why), v.why_room);
	c->oom |= v.oom;
}

/* "[80, 443]" */
static void default_list(struct conf *c, const struct setting *row, char *base)
{
	struct str rest = str_of(row->def), item;
	uint32_t n = 1;
	char *to;

	if (rest.p[0] != '[')
		return; /* auto */
	rest = (struct str){ .p = rest.p + 1, .n = rest.n - 2 };
	for (uint32_t i = 0; i < rest.n; i++)
		n += rest.p[i] == ',';
	to = list_alloc(c, row, base, n);
	for (; to && str_next_item(&rest, &item); to += row->elem_size)
		default_scalar(c, row->elem, item, to);
}

static void default_row(const struct fill *f, const struct setting *row, char *base)
{
	void *member = base + row->offset;

	if (row->type == SETTING_GROUP) {
		if (!(row->flags & SETTING_MARK) || row->flags & SETTING_INHERIT)
			fill_group(&(struct fill){ .c = f->c,
						   .g = row->group,
						   .base = member,
						   .inherit = f->inherit ||
							      row->flags & SETTING_INHERIT });
	} else if (f->inherit) {
		if (row->type == SETTING_MS || row->type == SETTING_SIZE ||
		    row->type == SETTING_COUNT)
			conf_value_set(row, member, row->inherit);
	} else if (row->type == SETTING_LIST && row->def) {
		default_list(f->c, row, base);
	} else if (row->def) {
		default_scalar(f->c, row, str_of(row->def), member);
	}
}

static void defaults(const struct fill *f)
{
	for (unsigned i = 0; i < f->g->n_parts; i++)
		for (unsigned j = 0; j < f->g->parts[i].n; j++)
			default_row(f, &f->g->parts[i].rows[j], f->base + f->g->parts[i].base);
}

/* ---- groups ---- */

static void fill_row(const struct fill *f, const struct setting *row, struct conf_node *n,
		     char *base)
{
	char *member = base + row->offset;

	if (is_null(n)) {
		conf_error(f->c, n, "%s: there is no value", row->name);
		return;
	}
	if (row->flags & SETTING_MARK)
		*(bool *)(base + row->mark_offset) = true;
	switch (row->type) {
	case SETTING_GROUP:
		fill_group(&(struct fill){ .c = f->c,
					   .g = row->group,
					   .node = n,
					   .base = member,
					   .inherit = row->flags & SETTING_INHERIT });
		break;
	case SETTING_LIST: fill_list(f->c, row, n, base); break;
	case SETTING_NAMES: fill_names(f->c, row, n, base); break;
	default: fill_scalar(f->c, row, row->name, n, member);
	}
}

static void missing_keys(const struct fill *f)
{
	for (unsigned i = 0; i < f->g->n_parts; i++) {
		for (unsigned j = 0; j < f->g->parts[i].n; j++) {
			const struct setting *row = &f->g->parts[i].rows[j];

			if (row->flags & SETTING_REQUIRED && !conf_fill_get(f->node, row->name))
				conf_error(f->c, f->node, "\"%s\" is missing%s%s", row->name,
					   f->g->title ? " in " : "",
					   f->g->title ? f->g->title : "");
		}
	}
}

static void not_a_map(const struct fill *f)
{
	const struct setting_group *g = f->g;
	const struct conf_node *n = f->node;
	const char *title = g->title ? g->title : "the file";

	/* A small group: its first key was probably meant. */
	if (n->kind == CONF_SCALAR && !is_null(n) && !n->expanded && g->n_parts == 1 &&
	    g->parts[0].n <= 3)
		conf_error(f->c, f->node, "%s: must be a map, not one value; write { %s: %.*s }",
			   title, g->parts[0].rows[0].name, (int)n->raw.n, n->raw.p);
	else
		conf_error(f->c, f->node, "%s: must be a map, not %s", title,
			   is_null(n) ? "nothing" : kind_name(n));
}

/* `servers: [http://...]`: a bare value stands for one key. */
static void fill_short(const struct fill *f)
{
	const struct setting *row;
	uint32_t base = 0;

	if (!f->g->scalar || is_null(f->node)) {
		not_a_map(f);
		return;
	}
	row = conf_fill_row(f->g, str_of(f->g->scalar), &base);
	fill_row(f, row, f->node, f->base + base);
}

static void fill_group(const struct fill *f)
{
	const struct setting *row;
	uint32_t base = 0;

	defaults(f);
	if (!f->node || f->node->bad)
		return;
	if (f->node->kind == CONF_SCALAR) {
		fill_short(f);
		return;
	}
	if (f->node->kind != CONF_MAP) {
		not_a_map(f);
		return;
	}
	for (struct conf_node *n = f->node->first; n; n = n->next) {
		if (n->key->bad) /* a second one: the first counts, in the checks too */
			continue;
		row = conf_fill_row(f->g, n->key->raw, &base);
		if (row)
			fill_row(f, row, n, f->base + base);
		else
			unknown_key(f->c, f->g, n->key);
	}
	missing_keys(f);
}

void conf_fill(struct conf *c)
{
	fill_group(&(struct fill){ .c = c,
				   .g = &conf_top_group,
				   .node = c->root,
				   .base = (char *)c->top });
}

/* ---- inheritance ---- */

static void merge_row(const struct setting *row, const char *outer, char *inner)
{
	switch (row->type) {
	case SETTING_MS:
	case SETTING_SIZE:
	case SETTING_COUNT:
		if (conf_value_get(row, inner + row->offset) == row->inherit)
			conf_value_set(row, inner + row->offset,
				       conf_value_get(row, outer + row->offset));
		break;
	case SETTING_LIST:
		if (*(void **)(void *)(inner + row->offset))
			break;
		*(const void **)(void *)(inner + row->offset) =
			*(const void *const *)(const void *)(outer + row->offset);
		*(uint32_t *)(void *)(inner + row->n_offset) =
			*(const uint32_t *)(const void *)(outer + row->n_offset);
		if (row->flags & SETTING_MARK)
			inner[row->mark_offset] = outer[row->mark_offset];
		break;
	default: panic_fmt("%s cannot be inherited", row->name);
	}
}

void conf_fill_merge(const struct setting_group *g, const void *outer, void *inner)
{
	for (unsigned i = 0; i < g->n_parts; i++)
		for (unsigned j = 0; j < g->parts[i].n; j++)
			merge_row(&g->parts[i].rows[j], (const char *)outer + g->parts[i].base,
				  (char *)inner + g->parts[i].base);
}

/* ---- lookups ---- */

struct conf_node *conf_fill_get(struct conf_node *map, const char *key)
{
	if (!map || map->kind != CONF_MAP)
		return NULL;
	for (struct conf_node *n = map->first; n; n = n->next)
		if (str_eq(n->key->raw, str_of(key)))
			return n;
	return NULL;
}
