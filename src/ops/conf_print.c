/* conf_print.c -- the effective plan as a configuration file: `check --print`.
 * Exports: config_*.
 *
 * Walks the rows over what they filled; what has no value (no default, not set) is left out.  The
 * output loads again and gives the same plan, but for secrets, which are hidden. */
#include "ops/conf.h"

#include <stdlib.h>
#include <unistd.h>

struct printer {
	FILE *f;
	unsigned indent;
	bool dash; /* the next key stands behind "- " */
};

static void print_group(struct printer *p, const struct setting_group *g, const char *base);

static bool is_empty(const struct setting_group *g, const char *base);

static const char *list_at(const struct setting *row, const char *base)
{
	const char *p;

	memcpy(&p, base + row->offset, sizeof(p));
	return p;
}

static uint32_t list_n(const struct setting *row, const char *base)
{
	uint32_t n;

	memcpy(&n, base + row->n_offset, sizeof(n));
	return n;
}

/* Whether there is nothing to say about this row. */
static bool is_absent(const struct setting *row, const char *base)
{
	const char *member = base + row->offset;

	if (row->flags & SETTING_KEY)
		return true;
	if (row->flags & SETTING_MARK && !*(const bool *)(base + row->mark_offset))
		return true;
	switch (row->type) {
	case SETTING_GROUP: return is_empty(row->group, member);
	case SETTING_LIST:
	case SETTING_NAMES: return !list_at(row, base) && !(row->flags & SETTING_AUTO);
	case SETTING_BIND: return ((const struct bind_conf *)(const void *)member)->text.n == 0;
	case SETTING_SWITCH: return *member == 0;
	case SETTING_BOOL: return !row->def && !*(const bool *)member;
	case SETTING_MODE: return conf_value_get(row, member) == 0;
	case SETTING_MS:
	case SETTING_SIZE:
	case SETTING_COUNT: return row->inherit && conf_value_get(row, member) == row->inherit;
	case SETTING_TEXT:
	case SETTING_BODY:
	case SETTING_NAME:
	case SETTING_HOST:
	case SETTING_PATH: return ((const struct str *)(const void *)member)->n == 0;
	default: return false;
	}
}

static bool is_empty(const struct setting_group *g, const char *base)
{
	for (unsigned i = 0; i < g->n_parts; i++)
		for (unsigned j = 0; j < g->parts[i].n; j++)
			if (!is_absent(&g->parts[i].rows[j], base + g->parts[i].base))
				return false;
	return true;
}

static void start(struct printer *p, const char *key, uint32_t n)
{
	if (p->dash)
		fprintf(p->f, "%*s- ", (int)p->indent - 2, "");
	else
		fprintf(p->f, "%*s", (int)p->indent, "");
	p->dash = false;
	fprintf(p->f, "%.*s:", (int)n, key);
}

static void print_elems(struct printer *p, const struct setting *row, const char *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++, v += row->elem_size) {
		struct printer inner = { .f = p->f, .indent = p->indent + 4, .dash = true };

		print_group(&inner, row->elem->group, v);
	}
}

static void print_list(struct printer *p, const struct setting *row, const char *base)
{
	const char *v = list_at(row, base);
	uint32_t n = list_n(row, base);

	if (!v) {
		fputs(" auto\n", p->f);
		return;
	}
	if (row->elem->type == SETTING_GROUP && n) {
		fputc('\n', p->f);
		print_elems(p, row, v, n);
		return;
	}
	fputs(" [", p->f);
	for (uint32_t i = 0; i < n; i++, v += row->elem_size) {
		if (i)
			fputs(", ", p->f);
		conf_value_print(p->f, row->elem, v);
	}
	fputs("]\n", p->f);
}

static void print_names(struct printer *p, const struct setting *row, const char *base)
{
	const struct setting *key = &row->elem->group->parts[0].rows[0];
	const char *v = list_at(row, base);
	struct printer inner = { .f = p->f, .indent = p->indent + 4 };

	fputs(list_n(row, base) ? "\n" : " {}\n", p->f);
	for (uint32_t i = 0; i < list_n(row, base); i++, v += row->elem_size) {
		fprintf(p->f, "%*s", (int)p->indent + 2, "");
		conf_value_quote(p->f, *(const struct str *)(const void *)(v + key->offset));
		fputs(":\n", p->f);
		print_group(&inner, row->elem->group, v);
	}
}

static void print_row(struct printer *p, const struct setting *row, const char *base)
{
	struct printer inner = { .f = p->f, .indent = p->indent + 2 };

	if (is_absent(row, base))
		return;
	start(p, row->name, (uint32_t)strlen(row->name));
	switch (row->type) {
	case SETTING_GROUP:
		fputc('\n', p->f);
		print_group(&inner, row->group, base + row->offset);
		break;
	case SETTING_LIST: print_list(p, row, base); break;
	case SETTING_NAMES: print_names(p, row, base); break;
	default:
		fputc(' ', p->f);
		conf_value_print(p->f, row, base + row->offset);
		fputc('\n', p->f);
	}
}

static void print_group(struct printer *p, const struct setting_group *g, const char *base)
{
	for (unsigned i = 0; i < g->n_parts; i++)
		for (unsigned j = 0; j < g->parts[i].n; j++)
			print_row(p, &g->parts[i].rows[j], base + g->parts[i].base);
}

void config_print(const struct config *config, int fd)
{
	int own = dup(fd);
	FILE *f = own >= 0 ? fdopen(own, "w") : NULL;

	if (!f) {
		if (own >= 0)
			close(own);
		return;
	}
	print_group(&(struct printer){ .f = f }, &conf_top_group, (const char *)config->top);
	fclose(f);
}
