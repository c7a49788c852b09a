/* fuzz_chunked.c -- a chunked body: whole and in pieces the same; chunked anew, the same again. */
#include "h1_fuzz.h"

struct body {
	char *data;
	size_t n;
	int result;      /* H1_CHUNK_MORE, H1_CHUNK_LAST or -enum h1_error */
	size_t consumed; /* with H1_CHUNK_LAST: up to the end of the last chunk's line */
	uint64_t left;   /* of a chunk that the input does not hold */
};

/* Feeds one piece; false: an error or the end. */
static bool feed(struct h1_chunk *c, struct body *b, const char *piece, uint32_t n)
{
	for (uint32_t at = 0;;) {
		uint32_t used = 0, take;

		b->result = h1_chunk_next(c, piece + at, n - at, &used);
		must(used <= n - at);
		must(c->line <= H1_CHUNK_LINE_MAX + 1 &&
		     c->ext_total <= H1_CHUNK_EXT_TOTAL_MAX + 1);
		must(c->left <= INT64_MAX);
		if (b->result < 0)
			return false;
		at += used;
		b->consumed += used;
		if (b->result == H1_CHUNK_LAST)
			return false;
		if (b->result == H1_CHUNK_MORE) {
			must(at == n);
			return true;
		}
		must(c->left > 0);
		take = c->left < n - at ? (uint32_t)c->left : n - at;
		memcpy(b->data + b->n, piece + at, take);
		b->n += take;
		c->left -= take;
		at += take;
		b->consumed += take;
		if (at == n && c->left) {
			b->result = H1_CHUNK_MORE;
			return true;
		}
	}
}

/* c: cut into pieces; NULL: whole. */
static struct body decode(struct chance *c, const char *text, size_t n)
{
	struct body b = { .data = malloc(n ? n : 1) };
	struct h1_chunk state = { 0 };
	bool more = true;

	must(b.data);
	for (size_t at = 0; at < n && more;) {
		uint32_t size =
			c ? chance_below(c, (uint32_t)(n - at) < 64 ? (uint32_t)(n - at) : 64) + 1
			  : (uint32_t)n;
		char *piece = exact_copy(text + at, size);

		more = feed(&state, &b, piece, size);
		at += size;
		free(piece);
	}
	b.left = state.left;
	return b;
}

static void check_chunked_anew(struct chance *c, const struct body *b)
{
	size_t size = 20 * b->n + 8;
	char *text = malloc(size);
	struct body again;
	struct out o;

	must(text);
	out_init(&o, text, size);
	for (size_t at = 0; at < b->n;) {
		uint32_t n = chance_below(c, (uint32_t)(b->n - at)) + 1;

		out_hex(&o, n);
		out_lit(&o, "\r\n");
		out_mem(&o, b->data + at, n);
		out_lit(&o, "\r\n");
		at += n;
	}
	out_lit(&o, "0\r\n");
	must(out_ok(&o));
	again = decode(c, text, out_len(&o));
	must(again.result == H1_CHUNK_LAST && again.n == b->n && again.consumed == out_len(&o));
	must(memcmp(again.data, b->data, b->n) == 0);
	free(again.data);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct chance c = chance_of(data, len);
	struct body whole, pieces;

	if (len > INPUT_MAX)
		return 0;
	whole = decode(NULL, (const char *)data, len);
	pieces = decode(&c, (const char *)data, len);
	must(whole.result == pieces.result && whole.n == pieces.n);
	must(memcmp(whole.data, pieces.data, whole.n) == 0);
	if (whole.result >= 0)
		must(whole.left == pieces.left && whole.consumed == pieces.consumed);
	if (whole.result == H1_CHUNK_LAST)
		check_chunked_anew(&c, &whole);
	free(whole.data);
	free(pieces.data);
	return 0;
}
