/* fuzz_trailers.c -- trailers: scanned in pieces, parsed, written anew, parsed again. */
#include "h1_fuzz.h"

static void check_kept(const struct head *h)
{
	const uint32_t never = HDR_F_HOP | HDR_F_FRAME | HDR_F_NO_TRAILER | HDR_F_IDENT |
			       HDR_F_SECRET;

	for (uint32_t i = 0; i < h->n_fields; i++)
		must(!(h->fields[i].flags & never) && !head_field_folds(field_name(&h->fields[i])));
	must(h->flags == 0 && h->body == BODY_NONE);
}

static void check_written(struct chance *c, struct slab *slab, const struct head *h)
{
	const struct h1_limits wide = { .head = UINT32_MAX, .target = 0, .fields = UINT32_MAX };
	uint32_t bound = h1_write_bound(h) + 2, n;
	char *text = malloc(bound), *buf;
	struct arena arena;
	struct h1_scan s;
	struct head again;
	struct out o;

	must(text);
	out_init(&o, text, bound);
	h1_write_fields(&o, h);
	out_lit(&o, "\r\n");
	must(out_ok(&o));
	n = out_len(&o);
	must(scan_cut(c, &s, H1_TRAILERS, &wide, (struct str){ text, n }) == (int32_t)n);
	arena_init(&arena, slab);
	buf = exact_copy(text, n);
	must(h1_trailers(&again, &arena, buf, n, &s, &wide) == 0);
	check_same_fields(h, &again);
	arena_free(&arena);
	free(buf);
	free(text);
}

static void run(struct chance *c, struct str text, const struct h1_limits *lim)
{
	struct slab slab;
	struct arena arena;
	struct h1_scan s;
	struct head h;
	int32_t n = scan_cut(c, &s, H1_TRAILERS, lim, text);
	char *buf;

	if (n <= 0)
		return;
	must(s.skip == 0 && (uint32_t)n <= lim->head && s.lines <= lim->fields);
	slab_init(&slab, "fuzz", ARENA_FIRST, NULL);
	arena_init(&arena, &slab);
	buf = exact_copy(text.p, (uint32_t)n);
	if (h1_trailers(&h, &arena, buf, (uint32_t)n, &s, lim) == 0) {
		check_fields(&h, buf, (uint32_t)n);
		check_kept(&h);
		check_written(c, &slab, &h);
	}
	arena_free(&arena);
	free(buf);
	slab_close(&slab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct chance c = chance_of(data, len);
	struct h1_limits lim = { .head = 32768, .fields = 100 };
	struct str text = { (const char *)data, (uint32_t)len };

	if (len > INPUT_MAX)
		return 0;
	run(&c, text, &lim);
	lim = (struct h1_limits){ .head = 2 + chance_below(&c, 200),
				  .fields = chance_below(&c, 6) };
	run(&c, text, &lim);
	return 0;
}
