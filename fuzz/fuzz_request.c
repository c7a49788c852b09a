/* fuzz_request.c -- a request head: scanned in pieces, parsed, written anew, parsed again. */
#include "h1_fuzz.h"

struct parsed {
	struct head h;
	struct arena arena;
	char *buf;
};

/* 0: parsed; it is freed by drop() in any case. */
static int parse(struct parsed *p, struct slab *slab, struct str text, const struct h1_scan *s,
		 const struct h1_limits *lim)
{
	arena_init(&p->arena, slab);
	p->buf = exact_copy(text.p, text.n);
	return h1_request(&p->h, &p->arena, p->buf, text.n, s, lim);
}

static void drop(struct parsed *p)
{
	arena_free(&p->arena);
	free(p->buf);
}

static void check_host(const struct head *h)
{
	for (uint32_t i = 0; i < h->host.n; i++) {
		char c = h->host.p[i];

		must((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
		     c == '_' || c == '~' || (c == ':' && h->host_is_v6));
	}
	must(h->host.n <= 255);
	must(h->host.n || h->flags & HEAD_NO_HOST);
}

static void check_head(const struct parsed *p, uint32_t n)
{
	const struct head *h = &p->h;

	must(is_within(h->method_text, p->buf, n) && h->method_text.n > 0);
	must(is_within(h->target, p->buf, n) && h->target.n > 0);
	must(h->version == 10 || h->version == 11);
	must(h->body != BODY_CLOSE && !(h->version == 10 && h->body == BODY_STREAM));
	must(h->method != METHOD_CONNECT ||
	     (h->form == TARGET_AUTHORITY && h->port && h->body == BODY_NONE && !h->path.n));
	must(h->path.n == 0 || h->path.p[0] == '/');
	must(h->query.n == 0 || h->query.p[0] == '?');
	must(!(h->flags & HEAD_EXPECT_100) || h->body != BODY_NONE);
	must(!(h->flags & HEAD_UPGRADE) || h->upgrade.n);
	check_host(h);
	check_value(h->upgrade);
	check_fields(h, p->buf, n);
	must(!head_find(h, HDR_HOST) && !head_find(h, HDR_EXPECT));
	check_memory(&p->arena, n);
}

static void check_same(const struct head *a, const struct head *b)
{
	must(a->method == b->method && str_eq(a->method_text, b->method_text));
	must(str_eq(a->host, b->host) && a->port == b->port && a->host_is_v6 == b->host_is_v6);
	must(str_eq(a->path, b->path) && str_eq(a->query, b->query));
	must(a->body == b->body && a->length == b->length && str_eq(a->upgrade, b->upgrade));
	must(((a->flags ^ b->flags) & ~(uint32_t)HEAD_KEEP_ALIVE) == 0);
	check_same_fields(a, b);
}

static uint32_t write_head(const struct head *h, char **text, bool absolute)
{
	struct h1_write w = write_as_read(h);
	struct out o;

	w.absolute = absolute && h->form != TARGET_ASTERISK;
	*text = malloc(h1_write_bound(h));
	must(*text);
	out_init(&o, *text, h1_write_bound(h));
	h1_write_request(&o, h, &w);
	must(out_ok(&o));
	return out_len(&o);
}

static void check_written(struct chance *c, struct slab *slab, const struct head *h)
{
	const struct h1_limits wide = { .head = UINT32_MAX,
					.target = UINT32_MAX,
					.fields = UINT32_MAX };
	struct parsed again;
	struct h1_scan s;
	char *text, *twice;
	uint32_t n = write_head(h, &text, chance_below(c, 2)), n2;

	must(scan_cut(c, &s, H1_REQUEST, &wide, (struct str){ text, n }) == (int32_t)n);
	must(parse(&again, slab, (struct str){ text, n }, &s, &wide) == 0);
	check_head(&again, n);
	check_same(h, &again.h);
	n2 = write_head(&again.h, &twice, again.h.form == TARGET_ABSOLUTE);
	must(n2 == n && memcmp(text, twice, n) == 0);
	drop(&again);
	free(twice);
	free(text);
}

static void run(struct chance *c, struct str text, const struct h1_limits *lim)
{
	struct slab slab;
	struct h1_scan s;
	struct parsed p;
	int32_t n = scan_cut(c, &s, H1_REQUEST, lim, text);

	if (n <= 0)
		return;
	must(s.skip == 0 || s.skip == 2);
	must((uint32_t)n - s.skip <= lim->head && s.lines - 1 <= lim->fields);
	slab_init(&slab, "fuzz", ARENA_FIRST, NULL);
	text = (struct str){ text.p + s.skip, (uint32_t)n - s.skip };
	if (parse(&p, &slab, text, &s, lim) == 0) {
		must(p.h.target.n <= lim->target);
		check_head(&p, text.n);
		if (p.h.flags & HEAD_NO_HOST) { /* HTTP/1.1 needs one */
			p.h.host = STR("x");
			p.h.flags &= ~(uint32_t)HEAD_NO_HOST;
		}
		if (p.h.version == 10) /* which had no 100-continue, and no meaning for these */
			p.h.flags &= ~(uint32_t)HEAD_UPGRADE;
		check_written(c, &slab, &p.h);
	}
	drop(&p);
	slab_close(&slab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct chance c = chance_of(data, len);
	struct h1_limits lim = { .head = 32768, .target = 8192, .fields = 100 };
	struct str text = { (const char *)data, (uint32_t)len };

	if (len > INPUT_MAX)
		return 0;
	run(&c, text, &lim);
	lim = (struct h1_limits){ .head = 20 + chance_below(&c, 500),
				  .target = chance_below(&c, 60),
				  .fields = chance_below(&c, 12) };
	run(&c, text, &lim);
	return 0;
}
