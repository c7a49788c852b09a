/* conf_report.c -- errors and warnings: collected while the file is judged, shown in its order.
 * Exports: conf_*.
 *
 *   culvert.yaml:3:12: error: timeouts.connect: ...; write 30s or 30ms
 *     connect: 30
 *              ^~
 *
 * What the file keeps secret is masked in the lines that are shown. */
#include "ops/conf.h"

#include <stdarg.h>
#include <stdlib.h>

#define NOTES_MAX  200 /* shown; all are counted */
#define SOURCE_MAX 160 /* columns of a source line that are shown */

struct conf_secret {
	struct conf_secret *next;
	uint32_t pos, end;
};

/* ---- collecting ---- */

static void note_add(struct conf *c, const struct conf_note *at, bool warning, struct str text)
{
	struct conf_note *n;

	if (warning)
		c->warnings++;
	else
		c->errors++;
	n = arena_alloc(&c->scratch, sizeof(*n));
	if (!n) {
		c->oom = true;
		return;
	}
	*n = *at;
	n->warning = warning;
	n->text = arena_str(&c->scratch, text);
	c->oom |= !n->text.p;
	n->next = c->notes;
	c->notes = n;
}

static void note_fmt(struct conf *c, const struct conf_node *at, bool warning, const char *fmt,
		     va_list ap) __attribute__((format(printf, 4, 0)));

static void note_fmt(struct conf *c, const struct conf_node *at, bool warning, const char *fmt,
		     va_list ap)
{
	struct conf_note place = { .line = 1, .column = 1 };
	char text[1024];
	int n = vsnprintf(text, sizeof(text), fmt, ap);

	if (at)
		place = (struct conf_note){ .line = at->line,
					    .column = at->column,
					    .pos = at->pos,
					    .end = at->end };
	if (n < 0)
		n = 0;
	if ((size_t)n >= sizeof(text))
		n = sizeof(text) - 1;
	note_add(c, &place, warning, (struct str){ .p = text, .n = (uint32_t)n });
}

void conf_error(struct conf *c, struct conf_node *at, const char *fmt, ...)
{
	va_list ap;

	if (at)
		at->bad = true;
	va_start(ap, fmt);
	note_fmt(c, at, false, fmt, ap);
	va_end(ap);
}

void conf_warn(struct conf *c, struct conf_node *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	note_fmt(c, at, true, fmt, ap);
	va_end(ap);
}

void conf_error_at(struct conf *c, const struct conf_note *place, const char *text)
{
	note_add(c, place, false, str_of(text));
}

void conf_secret(struct conf *c, const struct conf_node *n)
{
	struct conf_secret *s = arena_alloc(&c->scratch, sizeof(*s));

	if (!s) {
		c->oom = true;
		return;
	}
	*s = (struct conf_secret){ .next = c->secrets, .pos = n->pos, .end = n->end };
	c->secrets = s;
}

/* ---- words ---- */

/* Optimal string alignment: insertions, deletions, changes, swaps of neighbours; case costs
 * nothing. */
static unsigned distance(struct str a, const char *b, unsigned nb)
{
	unsigned row[3][40];

	for (unsigned j = 0; j <= nb; j++)
		row[0][j] = j;
	for (unsigned i = 1; i <= a.n; i++) {
		unsigned *now = row[i % 3], *up = row[(i - 1) % 3], *up2 = row[(i + 1) % 3];

		now[0] = i;
		for (unsigned j = 1; j <= nb; j++) {
			bool same = (a.p[i - 1] | 0x20) == (b[j - 1] | 0x20);
			unsigned best = up[j - 1] + !same;

			best = up[j] + 1 < best ? up[j] + 1 : best;
			best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a.p[i - 1] == b[j - 2] && a.p[i - 2] == b[j - 1] &&
			    up2[j - 2] + 1 < best)
				best = up2[j - 2] + 1;
			now[j] = best;
		}
	}
	return row[a.n % 3][nb];
}

const char *conf_near(struct str s, const char *const *words)
{
	const char *best = NULL;
	unsigned best_d = UINT32_MAX;

	if (s.n == 0 || s.n > 38)
		return NULL;
	for (; *words; words++) {
		unsigned n = (unsigned)strlen(*words), d, longer = n > s.n ? n : s.n;

		if (n > 38)
			continue;
		d = distance(s, *words, n);
		if (d < best_d && d <= (longer < 4 ? 1u : 1 + longer / 4)) {
			best = *words;
			best_d = d;
		}
	}
	return best;
}

bool conf_listed(const char *list, struct str word)
{
	while (list && *list) {
		size_t n = strcspn(list, " ");

		if (n == word.n && memcmp(list, word.p, n) == 0)
			return true;
		list += n + strspn(list + n, " ");
	}
	return false;
}

/* ---- showing ---- */

static bool masked(const struct conf *c, uint32_t pos)
{
	for (const struct conf_secret *s = c->secrets; s; s = s->next)
		if (pos >= s->pos && pos < s->end)
			return true;
	return false;
}

/* The line that the note stands in, and the caret under it. */
static void render_source(FILE *f, const struct conf *c, const struct conf_note *n)
{
	const char *t = c->text.p;
	uint32_t pos = n->pos < c->text.n ? n->pos : c->text.n, start = pos, end = pos, shown;

	while (start > 0 && t[start - 1] != '\n')
		start--;
	while (end < c->text.n && t[end] != '\n' && t[end] != '\r')
		end++;
	while (start < pos && (t[start] == ' ' || t[start] == '\t'))
		start++;
	/* A caret far to the right: the line begins near it. */
	if (pos - start > SOURCE_MAX / 2)
		start = pos - SOURCE_MAX / 4;
	shown = end - start > SOURCE_MAX ? SOURCE_MAX : end - start;
	if (shown == 0)
		return;
	while (start > 0 && (t[start] & 0xc0) == 0x80)
		start--;
	fputs("    ", f);
	for (uint32_t i = start; i < start + shown || (i < end && (t[i] & 0xc0) == 0x80); i++)
		fputc(masked(c, i) ? '*' : (uint8_t)t[i] < ' ' ? ' ' : t[i], f);
	fputs("\n    ", f);
	for (uint32_t i = start; i < pos; i++)
		if ((t[i] & 0xc0) != 0x80)
			fputc(' ', f);
	fputc('^', f);
	for (uint32_t i = pos + 1; i < n->end && i < end && i < start + shown; i++)
		if ((t[i] & 0xc0) != 0x80)
			fputc('~', f);
	fputc('\n', f);
}

static int by_place(const void *a, const void *b)
{
	const struct conf_note *x = *(const struct conf_note *const *)a,
			       *y = *(const struct conf_note *const *)b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	if (x->column != y->column)
		return x->column < y->column ? -1 : 1;
	return 0;
}

static void render_count(FILE *f, unsigned errors, unsigned warnings)
{
	if (errors)
		fprintf(f, "%u error%s", errors, errors == 1 ? "" : "s");
	if (errors && warnings)
		fputs(", ", f);
	if (warnings)
		fprintf(f, "%u warning%s", warnings, warnings == 1 ? "" : "s");
	if (errors || warnings)
		fputc('\n', f);
}

/* What comes out of the file and its environment must not move a terminal's cursor. */
static void put_plain(FILE *f, struct str s)
{
	for (uint32_t i = 0; i < s.n; i++)
		fputc((uint8_t)s.p[i] < ' ' || s.p[i] == 0x7f ? '?' : s.p[i], f);
}

static void render_all(FILE *f, struct conf *c, struct conf_note **sorted, unsigned n)
{
	for (unsigned i = 0; i < n && i < NOTES_MAX; i++) {
		const struct conf_note *note = sorted[i];

		fputs(c->name, f);
		if (note->line) /* 0: the file as a whole */
			fprintf(f, ":%u:%u", note->line, note->column);
		fputs(note->warning ? ": warning: " : ": error: ", f);
		put_plain(f, note->text);
		fputc('\n', f);
		if (note->line)
			render_source(f, c, note);
	}
	if (n > NOTES_MAX)
		fprintf(f, "... and %u more\n", n - NOTES_MAX);
	render_count(f, c->errors, c->warnings);
}

bool conf_report_render(struct conf *c, struct conf_report *r)
{
	struct conf_note **sorted;
	unsigned n = 0, i;
	FILE *f;

	for (const struct conf_note *note = c->notes; note; note = note->next)
		n++;
	*r = (struct conf_report){ .errors = c->errors, .warnings = c->warnings };
	sorted = calloc(n + 1, sizeof(struct conf_note *));
	f = sorted ? open_memstream(&r->text, &r->n) : NULL;
	if (!f) {
		free(sorted);
		return false;
	}
	i = n; /* the list is newest first; the sort must keep the order of equals */
	for (struct conf_note *note = c->notes; note; note = note->next)
		sorted[--i] = note;
	qsort(sorted, n, sizeof(struct conf_note *), by_place);
	render_all(f, c, sorted, n);
	free(sorted);
	if (fclose(f) != 0) {
		free(r->text);
		r->text = NULL;
		r->n = 0;
		return false;
	}
	return true;
}
