/* fuzz_response.c -- a response head: scanned in pieces, parsed, written anew, parsed again. */
#include "h1_fuzz.h"

static void check_head(const struct head *h, const char *buf, uint32_t n, enum method method)
{
	bool bodiless = h->status < 200 || h->status == 204 || h->status == 304 ||
			method == METHOD_HEAD || (method == METHOD_CONNECT && h->status / 100 == 2);

	must(h->status >= 100 && h->status <= 999);
	must(h->version == 10 || h->version == 11);
	must(is_within(h->reason, buf, n));
	must(bodiless == (h->body == BODY_NONE));
	must(!(h->version == 10 && h->body == BODY_STREAM));
	must(h->body != BODY_LENGTH || h->flags & HEAD_LENGTH_GIVEN);
	must(!(h->flags & HEAD_UPGRADE) || h->upgrade.n);
	check_value(h->reason);
	check_value(h->upgrade);
	check_fields(h, buf, n);
}

static void check_written(struct chance *c, struct slab *slab, const struct head *h,
			  enum method method)
{
	const struct h1_limits wide = { .head = UINT32_MAX, .target = 0, .fields = UINT32_MAX };
	struct h1_write w = write_as_read(h);
	uint32_t bound = h1_write_bound(h), n;
	char *text = malloc(bound), *buf;
	struct arena arena;
	struct h1_scan s;
	struct head again;
	struct out o;

	must(text);
	out_init(&o, text, bound);
	h1_write_response(&o, h, &w);
	must(out_ok(&o));
	n = out_len(&o);
	must(scan_cut(c, &s, H1_RESPONSE, &wide, (struct str){ text, n }) == (int32_t)n);
	arena_init(&arena, slab);
	buf = exact_copy(text, n);
	must(h1_response(&again, &arena, buf, n, &s, &wide, method) == 0);
	check_head(&again, buf, n, method);
	must(again.status == h->status && again.body == h->body && again.length == h->length);
	must(str_eq(again.reason, h->reason.n ? h->reason : head_reason(h->status)));
	must(str_eq(again.upgrade, h->upgrade));
	must(((again.flags ^ h->flags) & ~(uint32_t)HEAD_KEEP_ALIVE &
	      ~(uint32_t)HEAD_TE_TRAILERS) == 0);
	check_same_fields(h, &again);
	arena_free(&arena);
	free(buf);
	free(text);
}

static void run(struct chance *c, struct str text, const struct h1_limits *lim, enum method method)
{
	struct slab slab;
	struct arena arena;
	struct h1_scan s;
	struct head h;
	int32_t n = scan_cut(c, &s, H1_RESPONSE, lim, text);
	char *buf;

	if (n <= 0)
		return;
	must(s.skip == 0 && (uint32_t)n <= lim->head && s.lines - 1 <= lim->fields);
	slab_init(&slab, "fuzz", ARENA_FIRST, NULL);
	arena_init(&arena, &slab);
	buf = exact_copy(text.p, (uint32_t)n);
	if (h1_response(&h, &arena, buf, (uint32_t)n, &s, lim, method) == 0) {
		check_head(&h, buf, (uint32_t)n, method);
		check_memory(&arena, (uint32_t)n);
		check_written(c, &slab, &h, method);
	}
	arena_free(&arena);
	free(buf);
	slab_close(&slab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const enum method methods[] = { METHOD_GET, METHOD_HEAD, METHOD_CONNECT };
	struct chance c = chance_of(data, len);
	struct h1_limits lim = { .head = 65536, .fields = 100 };
	struct str text = { (const char *)data, (uint32_t)len };

	if (len > INPUT_MAX)
		return 0;
	for (unsigned i = 0; i < ARRAY_LEN(methods); i++)
		run(&c, text, &lim, methods[i]);
	lim = (struct h1_limits){ .head = 16 + chance_below(&c, 500),
				  .fields = chance_below(&c, 12) };
	run(&c, text, &lim, METHOD_GET);
	return 0;
}
