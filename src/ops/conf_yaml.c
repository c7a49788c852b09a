/* conf_yaml.c -- from the text of the file to nodes; the only file that knows libfyaml.
 *
 * The tree is built from the parser's events, not from the library's documents: those stop at the
 * first duplicate key, and we want every error at once.  Strict: one document, no anchors, no
 * aliases, no tags, no keys but scalars.  ${NAME} and ${NAME:-default} are expanded here, in
 * values. */
#include "ops/conf.h"

#include <libfyaml.h>
#include <stdlib.h>

#define DEPTH_MAX 32

struct builder {
	struct conf *c;
	struct conf_node *at;  /* the open list or map */
	struct conf_node *key; /* in a map: waits for its value */
	unsigned depth, documents;
	bool stop;
};

/* ---- the text before the parser sees it ---- */

/* Bytes of the UTF-8 sequence at p (RFC 3629), or 0. */
static unsigned utf8_len(const uint8_t *p, size_t left)
{
	unsigned n = p[0] < 0x80                   ? 1
		     : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
		     : (p[0] & 0xf0) == 0xe0       ? 3
		     : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
						   : 0;

	if (n == 0 || n > left)
		return 0;
	for (unsigned i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if (n == 3 && ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)))
		return 0;
	if (n == 4 && ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)))
		return 0;
	return n;
}

static void place(struct conf *c, uint32_t pos, struct conf_note *note)
{
	*note = (struct conf_note){ .line = 1, .column = 1, .pos = pos, .end = pos + 1 };
	for (uint32_t i = 0; i < pos; i++) {
		if (c->text.p[i] == '\n') {
			note->line++;
			note->column = 1;
		} else if ((c->text.p[i] & 0xc0) != 0x80) {
			note->column++;
		}
	}
}

/* The library cuts a text silently where it is not UTF-8: it must never see that. */
static bool text_clean(struct conf *c)
{
	const uint8_t *p = (const uint8_t *)c->text.p;
	struct conf_note note;

	for (uint32_t i = 0; i < c->text.n;) {
		unsigned n = utf8_len(p + i, c->text.n - i);
		bool control = (p[i] < 0x20 && p[i] != '\t' && p[i] != '\n' && p[i] != '\r') ||
			       p[i] == 0x7f;

		if (n && !control) {
			i += n;
			continue;
		}
		place(c, i, &note);
		conf_error_at(c, &note, control ? "a control character" : "not UTF-8");
		return false;
	}
	return true;
}

/* ---- ${NAME} ---- */

static bool name_char(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
	       ch == '_';
}

struct expansion {
	char *p;
	size_t n, cap;
};

static bool add(struct expansion *x, const char *p, size_t n)
{
	if (x->n + n > x->cap) {
		size_t cap = (x->n + n) * 2 + 64;
		char *q = realloc(x->p, cap);

		if (!q)
			return false;
		x->p = q;
		x->cap = cap;
	}
	if (n)
		memcpy(x->p + x->n, p, n);
	x->n += n;
	return true;
}

/* One ${...} at s; returns its length, 0: wrong (told). */
static uint32_t expand_one(struct conf *c, struct conf_node *n, struct str s, struct expansion *x)
{
	const char *close = memchr(s.p, '}', s.n), *value;
	uint32_t len = 2, whole;
	char name[128];

	if (!close) {
		conf_error(c, n, "${ without its }; write $${ for the characters themselves");
		return 0;
	}
	whole = (uint32_t)(close - s.p) + 1;
	while (name_char(s.p[len]))
		len++;
	if (len == 2 || len - 2 >= sizeof(name) || (s.p[2] >= '0' && s.p[2] <= '9') ||
	    (s.p[len] != '}' && strncmp(s.p + len, ":-", 2) != 0)) {
		conf_error(c, n, "\"%.*s\" is no variable; write ${NAME} or ${NAME:-default}",
			   (int)whole, s.p);
		return 0;
	}
	memcpy(name, s.p + 2, len - 2);
	name[len - 2] = '\0';
	value = getenv(name);
	if (s.p[len] == ':' && (!value || !*value)) {
		c->oom |= !add(x, s.p + len + 2, whole - len - 3);
	} else if (!value) {
		conf_error(c, n, "the environment has no %s; set it, or write ${%s:-default}", name,
			   name);
		return 0;
	} else {
		c->oom |= !add(x, value, strlen(value));
	}
	return whole;
}

static void expand(struct conf *c, struct conf_node *n)
{
	struct expansion x = { .p = NULL };
	struct str s = n->raw;

	n->text = n->raw;
	if (!memmem(s.p, s.n, "${", 2))
		return;
	while (s.n) {
		uint32_t took = 1;

		if (s.n >= 3 && memcmp(s.p, "$${", 3) == 0) {
			c->oom |= !add(&x, "${", 2);
			took = 3;
		} else if (s.n >= 2 && memcmp(s.p, "${", 2) == 0) {
			n->expanded = true;
			took = expand_one(c, n, s, &x);
			if (!took)
				goto out;
		} else {
			c->oom |= !add(&x, s.p, 1);
		}
		s.p += took;
		s.n -= took;
	}
	n->text = arena_str(&c->scratch, (struct str){ .p = x.p ? x.p : "", .n = (uint32_t)x.n });
	if (!n->text.p) {
		n->text = STR("");
		c->oom = true;
	}
out:
	free(x.p);
}

/* ---- events to nodes ---- */

static struct conf_node *node_new(struct builder *b, enum conf_kind kind, struct fy_event *e)
{
	const struct fy_mark *s = fy_event_start_mark(e), *t = fy_event_end_mark(e);
	struct conf_node *n = arena_zalloc(&b->c->scratch, sizeof(*n));

	if (!n) {
		b->c->oom = b->stop = true;
		return NULL;
	}
	n->kind = (uint8_t)kind;
	n->raw = n->text = STR("");
	if (s) {
		n->line = (uint32_t)s->line + 1;
		n->column = (uint32_t)s->column + 1;
		n->pos = (uint32_t)s->input_pos;
		n->end = t ? (uint32_t)t->input_pos : n->pos;
	} else if (b->key) { /* `key:` and nothing behind it */
		n->line = b->key->line;
		n->column = b->key->column;
		n->pos = b->key->pos;
		n->end = b->key->end;
	} else if (b->at) { /* `-` and nothing behind it */
		n->line = b->at->line;
		n->column = b->at->column;
		n->pos = b->at->pos;
		n->end = b->at->end;
	}
	return n;
}

static struct conf_node *child_named(const struct conf_node *map, struct str name)
{
	for (struct conf_node *n = map->first; n; n = n->next)
		if (str_eq(n->key->raw, name))
			return n;
	return NULL;
}

static void append(struct builder *b, struct conf_node *n)
{
	n->parent = b->at;
	n->key = b->key;
	n->bad |= n->key && n->key->bad;
	b->key = NULL;
	if (!b->at) {
		b->c->root = n;
		return;
	}
	if (b->at->last)
		b->at->last->next = n;
	else
		b->at->first = n;
	b->at->last = n;
	b->at->n++;
}

/* A finished or opened value goes into what is open; in a map each second one is a key. */
static void put(struct builder *b, struct conf_node *n)
{
	struct conf_node *twin;

	if (!b->at || b->at->kind == CONF_LIST || b->key) {
		append(b, n);
		return;
	}
	if (n->kind != CONF_SCALAR) {
		conf_error(b->c, n, "a key must be a word");
		b->stop = true;
		return;
	}
	b->key = n;
	twin = child_named(b->at, n->raw);
	if (twin)
		conf_error(b->c, n, "\"%.*s\" stands here twice; the first is in line %u",
			   (int)n->raw.n, n->raw.p, twin->key->line);
}

static void on_scalar(struct builder *b, struct fy_event *e)
{
	struct fy_token *t = e->scalar.value;
	struct conf_node *n = node_new(b, CONF_SCALAR, e);
	enum fy_scalar_style style = t ? fy_token_scalar_style(t) : FYSS_PLAIN;
	size_t len = 0;
	const char *p = t ? fy_token_get_text(t, &len) : NULL;
	bool is_key = b->at && b->at->kind == CONF_MAP && !b->key;

	if (!n)
		return;
	n->plain = style == FYSS_PLAIN;
	if ((style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED) && n->pos > 0 &&
	    n->column > 1) {
		n->pos--; /* the library's mark stands behind the quote */
		n->column--;
		n->end++;
	}
	if (p)
		n->raw = n->text =
			arena_str(&b->c->scratch, (struct str){ .p = p, .n = (uint32_t)len });
	if (!n->raw.p) {
		n->raw = n->text = STR("");
		b->c->oom = b->stop = true;
	}
	if (e->scalar.anchor || e->scalar.tag)
		conf_error(b->c, n, "no anchors and tags here; write the value out");
	if (!is_key && !b->c->oom)
		expand(b->c, n);
	put(b, n);
}

static void on_open(struct builder *b, struct fy_event *e, enum conf_kind kind)
{
	struct conf_node *n = node_new(b, kind, e);
	bool marked = kind == CONF_MAP ? e->mapping_start.anchor || e->mapping_start.tag
				       : e->sequence_start.anchor || e->sequence_start.tag;

	if (!n)
		return;
	if (marked)
		conf_error(b->c, n, "no anchors and tags here; write the value out");
	put(b, n);
	if (b->stop)
		return;
	b->at = n;
	if (++b->depth > DEPTH_MAX) {
		conf_error(b->c, n, "nested too deeply");
		b->stop = true;
	}
}

static void on_alias(struct builder *b, struct fy_event *e)
{
	struct conf_node *n = node_new(b, CONF_SCALAR, e);

	if (!n)
		return;
	conf_error(b->c, n, "no aliases here; a value that begins with * needs quotes");
	put(b, n);
}

static void on_event(struct builder *b, struct fy_event *e)
{
	switch (e->type) {
	case FYET_SCALAR: on_scalar(b, e); break;
	case FYET_MAPPING_START: on_open(b, e, CONF_MAP); break;
	case FYET_SEQUENCE_START: on_open(b, e, CONF_LIST); break;
	case FYET_ALIAS: on_alias(b, e); break;
	case FYET_MAPPING_END:
	case FYET_SEQUENCE_END:
		b->at = b->at ? b->at->parent : NULL;
		b->depth--;
		break;
	case FYET_DOCUMENT_START:
		if (++b->documents > 1) {
			struct conf_node *n = node_new(b, CONF_SCALAR, e);

			if (n)
				conf_error(b->c, n, "a second document begins here; one is all");
			b->stop = true;
		}
		break;
	default: break;
	}
}

/* ---- the parser ---- */

/* `{ a: ${X} }`: in flow style the brace ends the scalar.  A frequent mistake, told badly by
 * YAML. */
static bool has_bare_dollar(struct str line)
{
	bool quoted = false, flow = false;

	for (uint32_t i = 0; i + 1 < line.n; i++) {
		if (line.p[i] == '"')
			quoted = !quoted;
		if (flow && !quoted && line.p[i] == '$' && line.p[i + 1] == '{')
			return true;
		flow |= line.p[i] == '{' || line.p[i] == '[';
	}
	return false;
}

static void syntax_error(struct conf *c, const struct fy_diag_error *e)
{
	struct conf_note n = { .line = e->line > 0 ? (uint32_t)e->line : 1,
			       .column = e->column > 0 ? (uint32_t)e->column : 1 };
	uint32_t start = 0, len;
	char text[256];

	for (uint32_t l = 1; l < n.line && start < c->text.n; start++)
		l += c->text.p[start] == '\n';
	for (len = 0; start + len < c->text.n && c->text.p[start + len] != '\n';)
		len++;
	n.pos = start + n.column - 1;
	n.end = n.pos + 1;
	snprintf(text, sizeof(text), "%s%s", e->msg,
		 has_bare_dollar((struct str){ .p = c->text.p + start, .n = len })
			 ? "; inside { } and [ ] a ${NAME} needs quotes"
			 : "");
	conf_error_at(c, &n, text);
}

static void syntax_errors(struct conf *c, struct fy_diag *diag)
{
	struct fy_diag_error *e;
	void *it = NULL;

	while ((e = fy_diag_errors_iterate(diag, &it)))
		if (e->type == FYET_ERROR)
			syntax_error(c, e);
	if (c->errors == 0)
		conf_error_at(c, &(struct conf_note){ .line = 1, .column = 1 }, "this is no YAML");
}

static void run(struct conf *c, struct fy_parser *p, struct fy_diag *diag)
{
	struct builder b = { .c = c };
	struct fy_event *e;

	while (!b.stop && (e = fy_parser_parse(p))) {
		on_event(&b, e);
		fy_parser_event_free(p, e);
	}
	if (!b.stop && fy_parser_get_stream_error(p))
		syntax_errors(c, diag);
	else if (!b.stop)
		return;
	c->root = NULL; /* half a file is not judged */
}

void conf_yaml_parse(struct conf *c)
{
	struct fy_diag_cfg diag_cfg;
	struct fy_parse_cfg cfg = { .flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_1_2 |
					     FYPCF_JSON_NONE };
	struct fy_parser *p;

	if (c->text.n == 0 || !text_clean(c))
		return;
	fy_diag_cfg_default(&diag_cfg);
	diag_cfg.fp = NULL;
	cfg.diag = fy_diag_create(&diag_cfg);
	p = cfg.diag ? fy_parser_create(&cfg) : NULL;
	if (p) {
		fy_diag_set_collect_errors(cfg.diag, true);
		if (fy_parser_set_string(p, c->text.p, c->text.n) == 0)
			run(c, p, cfg.diag);
		else
			c->oom = true;
		fy_parser_destroy(p);
	} else {
		c->oom = true;
	}
	if (cfg.diag)
		fy_diag_destroy(cfg.diag);
}
