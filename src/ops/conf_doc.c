/* conf_doc.c -- what people read before they write: the starter file and docs/configuration.md,
 * both from the rows; and the metrics, from theirs.  Exports: config_*. */
#include "base/metric.h"
#include "ops/conf.h"

#include <stdlib.h>
#include <unistd.h>

#define COLUMNS 100

static FILE *open_out(int fd)
{
	int own = dup(fd);
	FILE *f = own >= 0 ? fdopen(own, "w") : NULL;

	if (!f && own >= 0)
		close(own);
	return f;
}

/* Words of the text, wrapped: the first line goes on where `column` is, the others begin with
 * `before`. */
static void wrap(FILE *f, const char *text, const char *before, unsigned column)
{
	while (*text) {
		unsigned n = (unsigned)strcspn(text, " ");

		if (column + n > COLUMNS - 2) {
			fprintf(f, "\n%s", before);
			column = (unsigned)strlen(before);
		}
		fprintf(f, "%.*s", (int)n, text);
		text += n;
		column += n + 1;
		if (*text == ' ') {
			text++;
			if (column + strcspn(text, " ") <= COLUMNS - 2)
				fputc(' ', f);
		}
	}
	fputc('\n', f);
}

/* ---- the starter file ---- */

static const char starter_head[] =
	"# culvert: a file to start from.  Lines that begin with #name: show settings with\n"
	"# their defaults; take the # away to change one.  `culvert check -c FILE` tells what\n"
	"# is wrong with a file.\n"
	"# Every setting is described in docs/configuration.md.\n";

static const char *shown_value(const struct setting *row)
{
	return row->example ? row->example : row->def;
}

/* "#  connect: 5s               # All tries to connect ..." */
static void starter_key(FILE *f, const struct setting *row)
{
	const char *value = shown_value(row);
	int n = fprintf(f, "#  %s: %s", row->name, value ? value : "");

	n += fprintf(f, "%*s# ", n < 38 ? 38 - n : 1, "");
	wrap(f, row->doc, "#                                       ", (unsigned)n);
}

/* What the elements of a list of maps have. */
static void starter_elem(FILE *f, const struct setting_group *g)
{
	fprintf(f, "#\n# %c%s has:\n", g->title[0] - 'a' + 'A', g->title + 1);
	for (unsigned i = 0; i < g->n_parts; i++) {
		for (unsigned j = 0; j < g->parts[i].n; j++) {
			const struct setting *row = &g->parts[i].rows[j];
			int n;

			if (row->flags & SETTING_KEY)
				continue;
			n = fprintf(f, "#   %-15s ", row->name);
			wrap(f, row->doc, "#                   ", (unsigned)n);
		}
	}
}

static void starter_row(FILE *f, const struct setting *row)
{
	fputs("\n# ", f);
	wrap(f, row->doc, "# ", 2);
	if (row->type == SETTING_GROUP) {
		fprintf(f, "#%s:\n", row->name);
		for (unsigned i = 0; i < row->group->n_parts; i++)
			for (unsigned j = 0; j < row->group->parts[i].n; j++)
				starter_key(f, &row->group->parts[i].rows[j]);
	} else if (row->elem && row->elem->type == SETTING_GROUP) {
		starter_elem(f, row->elem->group);
		fprintf(f, "%s:%s", row->name, row->example);
	} else {
		fprintf(f, "#%s: %s\n", row->name, shown_value(row));
	}
}

void config_starter(int fd)
{
	const struct setting_group *top = &conf_top_group;
	FILE *f = open_out(fd);

	if (!f)
		return;
	fputs(starter_head, f);
	for (unsigned i = 0; i < top->n_parts; i++)
		for (unsigned j = 0; j < top->parts[i].n; j++)
			starter_row(f, &top->parts[i].rows[j]);
	fclose(f);
}

/* ---- the reference ---- */

static const char reference_head[] =
	"# Configuration\n"
	"\n"
	"<!-- Made from the tables in src/*/*_conf.c and src/base/metric.tbl; do not\n"
	"     edit.  tests/unit/test_conf.c compares it, and writes it anew when\n"
	"     CULVERT_WRITE_DOCS is set. -->\n"
	"\n"
	"One YAML file, read strictly: an unknown key, a wrong unit, a duplicate, a missing\n"
	"upstream, clashing binds are errors, all told at once with their place; what is only\n"
	"suspicious is a warning. `culvert check -c FILE` judges a file without starting\n"
	"anything, `--print` shows it with every default filled in, `--strict` makes warnings\n"
	"errors. `culvert init` writes a file to start from.\n"
	"\n"
	"* **Durations** have a unit: `ms`, `s`, `m`, `h`, `d`. **Sizes** have one: `B`,\n"
	"  `KiB`, `MiB`, `GiB`, `TiB`. Zero is never \"without bound\": say `off` where the\n"
	"  table allows it.\n"
	"* **Words** such as `on` and `off` need no quotes; what begins with `*` does:\n"
	"  `\"*:80\"`.\n"
	"* **Environment**: `${NAME}` and `${NAME:-default}` are replaced inside values (in\n"
	"  `{ }` and `[ ]` they need quotes); `$${` stands for `${`. A name that is not set\n"
	"  is an error; errors show what was written, never the value.\n"
	"* **Files**: relative names begin at the folder of the configuration file; the name\n"
	"  of a log file has a `/`.\n"
	"* **Anchors, aliases, tags** and a second document are refused.\n"
	"* **Reload**: `live` settings will take effect with a reload, which is not there yet;\n"
	"  today every change needs a restart.\n";

static const char metrics_head[] =
	"\n## Metrics\n\n"
	"What `/metrics` of the `admin:` port shows. Labels come from configured names and fixed\n"
	"words, never from traffic. `reason` is that of the access log\n"
	"([closing.md](closing.md)): requests that waited too long in a queue are\n"
	"`culvert_ends_total{reason=\"queue_timeout\"}`, tunnels that died `tunnel_reset` or\n"
	"`tunnel_idle`.\n\n"
	"| name | type | labels | |\n|---|---|---|---|\n";

/* Escapes what would end a cell. */
static void cell(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			fputc('\\', f);
		fputc(*text, f);
	}
}

/* Lists: what they are lists of. */
static const char *plural(const struct setting *elem)
{
	switch (elem->type) {
	case SETTING_GROUP: return "maps";
	case SETTING_NET: return "networks";
	case SETTING_ADDR: return "addresses";
	case SETTING_HOSTS: return "hosts";
	case SETTING_NAME: return "names";
	case SETTING_COUNT: return "numbers";
	default: panic_fmt("no plural for the elements of %s", elem->name);
	}
}

static void cell_type(FILE *f, const struct setting *row)
{
	if (row->type == SETTING_ENUM)
		for (unsigned i = 0; row->words[i]; i++)
			fprintf(f, "%s`%s`", i ? ", " : "", row->words[i]);
	else if (row->type == SETTING_LIST)
		fprintf(f, "list of %s", plural(row->elem));
	else
		fputs(row->unit ? row->unit : conf_value_type(row), f);
	if (row->flags & SETTING_AUTO && row->type != SETTING_ENUM)
		fputs(", or `auto`", f);
	if (row->flags & SETTING_OFF && row->type != SETTING_SINK)
		fputs(", or `off`", f);
}

static void cell_bounds(FILE *f, const struct setting *row)
{
	char lo[32], hi[32];

	if (row->max)
		fprintf(f, "%s – %s", conf_value_number(row, row->min, lo),
			conf_value_number(row, row->max, hi));
}

static void table_row(FILE *f, const struct setting *row)
{
	if (row->flags & SETTING_KEY)
		return;
	fprintf(f, "| `%s` | ", row->name);
	cell_type(f, row);
	fputs(" | ", f);
	if (row->flags & SETTING_REQUIRED)
		fputs("*required*", f);
	else if (row->def)
		fprintf(f, "`%s`", row->def);
	fputs(" | ", f);
	cell_bounds(f, row);
	fprintf(f, " | %s | ", row->flags & SETTING_RESTART ? "restart" : "live");
	cell(f, row->doc);
	fputs(row->flags & SETTING_SECRET ? " Secret: never shown. |\n" : " |\n", f);
}

static void section(FILE *f, const char *path, const struct setting_group *g);

/* The sections of the maps inside; those that stand at the top too are described there. */
static void sections_inside(FILE *f, const char *path, const struct setting_group *g)
{
	char inner[128];

	for (unsigned i = 0; i < g->n_parts; i++) {
		for (unsigned j = 0; j < g->parts[i].n; j++) {
			const struct setting *row = &g->parts[i].rows[j];

			if (row->flags & SETTING_INHERIT)
				continue;
			snprintf(inner, sizeof(inner), "%s%s%s%s", path, *path ? "." : "",
				 row->name,
				 row->type == SETTING_NAMES  ? ".NAME"
				 : row->type == SETTING_LIST ? "[]"
							     : "");
			if (row->type == SETTING_GROUP)
				section(f, inner, row->group);
			else if (row->elem && row->elem->type == SETTING_GROUP)
				section(f, inner, row->elem->group);
		}
	}
}

static void table(FILE *f, const struct setting_group *g)
{
	fputs("| key | type | default | bounds | reload | |\n|---|---|---|---|---|---|\n", f);
	for (unsigned i = 0; i < g->n_parts; i++)
		for (unsigned j = 0; j < g->parts[i].n; j++)
			table_row(f, &g->parts[i].rows[j]);
}

static void section(FILE *f, const char *path, const struct setting_group *g)
{
	fprintf(f, "\n## %s\n\n", path);
	table(f, g);
	sections_inside(f, path, g);
}

static void metrics(FILE *f)
{
	static const char *const words[] = { [METRIC_COUNTER] = "counter",
					     [METRIC_GAUGE] = "gauge",
					     [METRIC_HISTOGRAM] = "histogram" };
	static const struct {
		const char *name, *labels, *help;
		enum metric_type type;
	} rows[] = {
#define METRIC(id, kind, family, label_names, text) \
	{ .name = (family), .labels = (label_names), .help = (text), .type = METRIC_##kind },
#include "base/metric.tbl"
#undef METRIC
	};

	fputs(metrics_head, f);
	for (unsigned i = 0; i < ARRAY_LEN(rows); i++)
		fprintf(f, "| `%s` | %s | %s | %s |\n", rows[i].name, words[rows[i].type],
			rows[i].labels, rows[i].help);
}

void config_reference(int fd)
{
	FILE *f = open_out(fd);

	if (!f)
		return;
	fputs(reference_head, f);
	fputs("\n## Top level\n\n", f);
	table(f, &conf_top_group);
	sections_inside(f, "", &conf_top_group);
	metrics(f);
	fclose(f);
}
