/* test_path.c -- the one normal form of a path: J01, A14, A15, I01. */
#include "unit.h"

#include "exchange/head.h"

#include <stdio.h>
#include <stdlib.h>

/* Normalises a copy that is exactly as long as its bytes. */
static enum path_error normalise(const char *from, size_t n, unsigned flags, char **to,
				 uint32_t *len)
{
	*to = malloc(n ? n : 1);
	assert_non_null(*to);
	memcpy(*to, from, n);
	*len = (uint32_t)n;
	return path_normalise(*to, len, flags);
}

static void path_is(const char *from, size_t n, unsigned flags, const char *want, enum path_error e)
{
	char *to;
	uint32_t len;
	enum path_error got = normalise(from, n, flags, &to, &len);

	if (got != e || (!e && (len != strlen(want) || memcmp(to, want, len) != 0)))
		fail_msg("\"%s\": %d \"%.*s\", expected %d \"%s\"", from, got, got ? 0 : (int)len,
			 to, e, want ? want : "");
	if (!got) {
		char *again;
		uint32_t n2;

		assert_int_equal(normalise(to, len, flags, &again, &n2), PATH_OK);
		assert_int_equal(n2, len);
		assert_memory_equal(again, to, len);
		free(again);
	}
	free(to);
}
#define IS(from, want)   path_is(from, sizeof(from) - 1, 0, want, PATH_OK)
#define KEEP(from, want) path_is(from, sizeof(from) - 1, PATH_KEEP_SLASHES, want, PATH_OK)
#define BAD(from, error) path_is(from, sizeof(from) - 1, 0, NULL, error)

static void test_normal_already(void **state)
{
	static const char *const same[] = { "/",
					    "/a",
					    "/a/",
					    "/a/b.c",
					    "/a/b.c/..d/e.",
					    "/...",
					    "/a/.../b",
					    "/.a",
					    "/a;b=c/d",
					    "/a~b_c-d",
					    "/!$&'()*+,;=:@",
					    "/a|b^c{d}[e]\"<>`",
					    "/%2F",
					    "/a%2Fb",
					    "/%20",
					    "/%C3%A9",
					    "/a%25b",
					    "/%2525",
					    "/index.html",
					    "/a%5Cb",
					    "/.well-known/x",
					    "/a%2F...",
					    "/%3B",
					    "/..a",
					    "/a..%2Fb" };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(same); i++)
		path_is(same[i], strlen(same[i]), 0, same[i], PATH_OK);
}

static void test_j01_normal_form(void **state)
{
	(void)state;
	IS("/public/../admin", "/admin");
	IS("/%61dmin", "/admin");
	IS("/%61%64%6D%69%6e", "/admin");
	IS("//admin", "/admin");
	IS("/admin%2f", "/admin%2F");
	IS("/admin;x", "/admin;x");
	BAD("/user/..;x=y/admin", PATH_HIDDEN_DOTS);
	IS("/ADMIN", "/ADMIN");
	IS("/./admin", "/admin");
	BAD("/admin%00", PATH_NUL);
	BAD("/admin#", PATH_BAD_CHAR);
	BAD("/public/..%2fadmin", PATH_HIDDEN_DOTS);
	IS("/%7euser", "/~user");
	IS("/%2e%2e%2e", "/...");
	IS("/a%c3%a9", "/a%C3%A9");
	IS("/%252e%252e/x", "/%252e%252e/x"); /* decoded once, never twice */
}

static void test_dot_segments(void **state)
{
	(void)state;
	IS("/.", "/");
	IS("/./", "/");
	IS("/a/.", "/a/");
	IS("/a/..", "/");
	IS("/a/../", "/");
	IS("/a/b/..", "/a/");
	IS("/a/b/../", "/a/");
	IS("/a/b/../c", "/a/c");
	IS("/a/b/../../c", "/c");
	IS("/a/./././b", "/a/b");
	IS("/a/%2e/b", "/a/b");
	IS("/a/%2E%2e/b", "/b");
	IS("/a/.%2e/b", "/b");
	IS("/a/%2f/../b", "/a/b");
	BAD("/..", PATH_ABOVE_ROOT);
	BAD("/../", PATH_ABOVE_ROOT);
	BAD("/../../etc/passwd", PATH_ABOVE_ROOT);
	BAD("/%2e%2e/x", PATH_ABOVE_ROOT);
	BAD("/a/../..", PATH_ABOVE_ROOT);
	BAD("/a/../../b", PATH_ABOVE_ROOT);
	BAD("/./..", PATH_ABOVE_ROOT);
}

static void test_slashes(void **state)
{
	(void)state;
	IS("//", "/");
	IS("///a////b//", "/a/b/");
	IS("//etc/passwd", "/etc/passwd");
	IS("/a//../b", "/b");
	IS("/a//.", "/a/");
	IS("/a/.//b", "/a/b");
	KEEP("//", "//");
	KEEP("//a///b/", "//a///b/");
	KEEP("/a//../b", "/a/b");
	KEEP("/a//..", "/a/");
	KEEP("//./a", "//a");
	path_is("//..", 4, PATH_KEEP_SLASHES, "/", PATH_OK);
	path_is("/a%2fb", 6, PATH_REJECT_ENCODED_SLASH, NULL, PATH_SLASH);
	path_is("/a%5Cb", 6, PATH_REJECT_ENCODED_SLASH, NULL, PATH_SLASH);
	path_is("/a%2eb", 6, PATH_REJECT_ENCODED_SLASH, "/a.b", PATH_OK);
}

static void test_hidden_dots(void **state)
{
	(void)state;
	BAD("/..%2f", PATH_HIDDEN_DOTS);
	BAD("/a/..%2F..%2Fb", PATH_HIDDEN_DOTS);
	BAD("/a%2f..", PATH_HIDDEN_DOTS);
	BAD("/a%2f../b", PATH_HIDDEN_DOTS);
	BAD("/a%2f.%2fb", PATH_HIDDEN_DOTS);
	BAD("/a%5c..", PATH_HIDDEN_DOTS);
	BAD("/..%5Cb", PATH_HIDDEN_DOTS);
	BAD("/a%2f%2e%2e", PATH_HIDDEN_DOTS);
	BAD("/.%2f", PATH_HIDDEN_DOTS);
	BAD("/..;/x", PATH_HIDDEN_DOTS);
	BAD("/.;x", PATH_HIDDEN_DOTS);
	BAD("/a%2f..;b", PATH_HIDDEN_DOTS);
	BAD("/%2e%2e;/x", PATH_HIDDEN_DOTS);
	BAD("/a;b%2f../c", PATH_HIDDEN_DOTS);
	IS("/a%2f...", "/a%2F...");
	IS("/a;..", "/a;..");
	IS("/%2f", "/%2F");
}

static void test_refused(void **state)
{
	(void)state;
	BAD("", PATH_SLASH);
	BAD("a", PATH_SLASH);
	BAD("*", PATH_SLASH);
	BAD("%2f", PATH_SLASH);
	BAD("/a\\b", PATH_BACKSLASH);
	BAD("/..\\x", PATH_BACKSLASH);
	BAD("/a/%00.html", PATH_NUL);
	BAD("/a\0b", PATH_NUL);
	BAD("/%", PATH_BAD_ESCAPE);
	BAD("/%4", PATH_BAD_ESCAPE);
	BAD("/%4g", PATH_BAD_ESCAPE);
	BAD("/%g4", PATH_BAD_ESCAPE);
	BAD("/%%", PATH_BAD_ESCAPE);
	BAD("/%u0041", PATH_BAD_ESCAPE);
	BAD("/a b", PATH_BAD_CHAR);
	BAD("/a\x7f", PATH_BAD_CHAR);
	BAD("/\x80", PATH_BAD_CHAR);
	BAD("/a?b", PATH_BAD_CHAR);
	BAD("/a\tb", PATH_BAD_CHAR);
	BAD("/a\nb", PATH_BAD_CHAR);
}

/* What needs care is found in every place of every block, and what follows is right. */
static void test_every_place(void **state)
{
	(void)state;
	for (unsigned n = 2; n < 70; n++) {
		for (unsigned at = 1; at < n; at++) {
			char text[96], want[96];

			memset(text, 'a', sizeof(text));
			text[0] = '/';
			memcpy(want, text, sizeof(want));
			want[n] = 0;
			memcpy(text + at, "%41", 3);
			want[at] = 'A';
			text[n + 2] = 0;
			path_is(text, n + 2, 0, want, PATH_OK);
			memset(text, 'a', sizeof(text));
			text[0] = '/';
			text[n] = 0;
			text[at] = '\\';
			path_is(text, n, 0, NULL, PATH_BACKSLASH);
			text[at] = (char)0xff;
			path_is(text, n, 0, NULL, PATH_BAD_CHAR);
			text[at] = '/';
			if (at > 1) {
				char *to;
				uint32_t len;

				text[at - 1] = '/';
				assert_int_equal(normalise(text, n, 0, &to, &len), PATH_OK);
				assert_int_equal(len, n - (at == 2 ? 2 : 1));
				free(to);
			}
		}
	}
}

static void test_of_a_head(void **state)
{
	static const char target[] = "/a/./b%7E?q";
	struct slab slab;
	struct arena arena;
	struct head h = { .target = STR("/a/./b%7E?q"), .path = { target, 9 } };

	(void)state;
	slab_init(&slab, "test", ARENA_FIRST, NULL);
	arena_init(&arena, &slab);
	assert_int_equal(path_normalise_head(&h, &arena, 0), PATH_OK);
	assert_true(str_eq(h.path, STR("/a/b~")));
	assert_true(str_eq(h.target, STR("/a/./b%7E?q")));
	h.path = STR("/plain"); /* constant bytes: not written to, not copied */
	assert_int_equal(path_normalise_head(&h, &arena, 0), PATH_OK);
	assert_true(str_eq(h.path, STR("/plain")));
	h.path = STR("");
	assert_int_equal(path_normalise_head(&h, &arena, 0), PATH_OK);
	h.path = STR("/..");
	assert_int_equal(path_normalise_head(&h, &arena, 0), PATH_ABOVE_ROOT);
	assert_true(str_eq(h.path, STR("/..")));
	h.path = STR("x");
	assert_int_equal(path_normalise_head(&h, &arena, 0), PATH_SLASH);
	arena_free(&arena);
	slab_close(&slab);
}

/* Linear: dots that climb again and again. */
static void test_long_paths(void **state)
{
	size_t n = 3 * 1000 * 1000;
	char *text = malloc(n), *to;
	uint32_t len;

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i < n / 2; i += 3)
		memcpy(text + i, "/aa", 3);
	for (size_t i = n / 2; i < n; i += 3)
		memcpy(text + i, "/..", 3);
	assert_int_equal(normalise(text, n, 0, &to, &len), PATH_OK);
	assert_int_equal(len, 1);
	free(to);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_normal_already), cmocka_unit_test(test_j01_normal_form),
		cmocka_unit_test(test_dot_segments),   cmocka_unit_test(test_slashes),
		cmocka_unit_test(test_hidden_dots),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_every_place),    cmocka_unit_test(test_of_a_head),
		cmocka_unit_test(test_long_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
