/* fuzz_path.c -- the normal form of a path: one form, and no dot segment whoever reads it. */
#include "exchange/head.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static char *exact_copy(const void *p, size_t n)
{
	char *copy = calloc(1, n ? n : 1);

	must(copy);
	if (n)
		memcpy(copy, p, n);
	return copy;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Only path characters; escapes in upper case, and none of an unreserved character. */
static void check_bytes(const char *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		must(p[i] > ' ' && p[i] < 0x7f && !strchr("\\#?", p[i]));
		if (p[i] == '%') {
			int c;

			must(n - i >= 3 && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0);
			c = hex(p[i + 1]) << 4 | hex(p[i + 2]);
			must(c != 0 && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
			     !(c >= '0' && c <= '9') && !strchr("-._~", c));
		}
	}
}

/* As a careless server reads it: %2F and %5C are slashes, parameters are cut off. */
static void check_no_dots(const char *p, uint32_t n)
{
	char *plain = malloc(n + 1u), *s, *end;
	uint32_t k = 0;

	must(plain);
	for (uint32_t i = 0; i < n; i++) {
		if (n - i >= 3 && (!memcmp(p + i, "%2F", 3) || !memcmp(p + i, "%5C", 3))) {
			plain[k++] = '/';
			i += 2;
		} else {
			plain[k++] = p[i];
		}
	}
	plain[k] = '\0';
	for (s = plain + 1; s <= plain + k; s = end + 1) {
		size_t size;

		end = strchr(s, '/');
		if (!end)
			end = plain + k;
		size = strcspn(s, ";/");
		must(!(size == 1 && s[0] == '.') && !(size == 2 && s[0] == '.' && s[1] == '.'));
	}
	free(plain);
}

static void check_result(const char *p, uint32_t n, unsigned flags)
{
	char *again = exact_copy(p, n);
	uint32_t n2 = n;

	must(n > 0 && p[0] == '/');
	check_bytes(p, n);
	check_no_dots(p, n);
	for (uint32_t i = 1; i < n && !(flags & PATH_KEEP_SLASHES); i++)
		must(!(p[i] == '/' && p[i - 1] == '/'));
	for (uint32_t i = 0; i + 3 <= n && flags & PATH_REJECT_ENCODED_SLASH; i++)
		must(memcmp(p + i, "%2F", 3) != 0 && memcmp(p + i, "%5C", 3) != 0);
	must(path_normalise(again, &n2, flags) == PATH_OK);
	must(n2 == n && memcmp(again, p, n) == 0);
	free(again);
}

/* The same through a head: the target that was received is left as it is. */
static void check_head(const char *p, uint32_t n, unsigned flags, enum path_error want,
		       struct str form)
{
	struct slab slab;
	struct arena arena;
	struct head h = { .path = { p, n } };
	enum path_error e;
	char *before = exact_copy(p, n);

	slab_init(&slab, "fuzz", ARENA_FIRST, NULL);
	arena_init(&arena, &slab);
	e = path_normalise_head(&h, &arena, flags);
	must(e == (n ? want : PATH_OK));
	if (n && !e)
		must(str_eq(h.path, form));
	must(memcmp(before, p, n) == 0);
	arena_free(&arena);
	slab_close(&slab);
	free(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len > 65536)
		return 0;
	for (unsigned flags = 0; flags < 4; flags++) {
		char *p = exact_copy(data, len), *received = exact_copy(data, len);
		uint32_t n = (uint32_t)len;
		enum path_error e = path_normalise(p, &n, flags);

		if (e == PATH_OK) {
			must(n <= len);
			check_result(p, n, flags);
		}
		check_head(received, (uint32_t)len, flags, e, (struct str){ p, n });
		free(received);
		free(p);
	}
	return 0;
}
