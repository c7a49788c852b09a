/* test_str.c -- comparing, trimming, splitting. */
#include "unit.h"

#include "base/panic.h"
#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>

static void test_of_and_eq(void **state)
{
	(void)state;
	assert_int_equal(str_of(NULL).n, 0);
	assert_int_equal(str_of("abc").n, 3);
	assert_true(str_eq(STR("abc"), str_of("abc")));
	assert_false(str_eq(STR("abc"), STR("abd")));
	assert_false(str_eq(STR("abc"), STR("ab")));
	assert_true(str_eq(STR_NONE, STR("")));
}

static void test_ieq(void **state)
{
	(void)state;
	assert_true(str_ieq(STR("Content-Length"), STR("content-LENGTH")));
	assert_true(str_ieq(STR_NONE, STR("")));
	assert_false(str_ieq(STR("Content-Length"), STR("content-LENGTI")));
	assert_false(str_ieq(STR("a"), STR("ab")));
	/* neighbours of the letters, and letters with bit 7 set, are not folded */
	assert_false(str_ieq(STR("@@@@@@@@"), STR("````````")));
	assert_false(str_ieq(STR("[[[["), STR("{{{{")));
	assert_false(str_ieq(STR("\xc1\xc1\xc1\xc1"), STR("\xe1\xe1\xe1\xe1")));
}

/* Every pair of bytes at every position and every length up to 20, against tolower(). */
static void test_ieq_all_bytes(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 20; n++) {
		char a[20], b[20];

		memset(a, 'q', sizeof(a));
		memset(b, 'Q', sizeof(b));
		for (unsigned i = 0; i < n; i++) {
			for (unsigned c = 0; c<65536; c += n> 9 ? 7 : 1) {
				a[i] = (char)(c >> 8);
				b[i] = (char)c;
				if (str_ieq((struct str){ a, n }, (struct str){ b, n }) !=
				    (tolower((int)(c >> 8)) == tolower((int)(c & 255))))
					fail_msg("n %u i %u %02x %02x", n, i, c >> 8, c & 255);
			}
			a[i] = 'q';
			b[i] = 'Q';
		}
	}
}

static void test_istarts(void **state)
{
	(void)state;
	assert_true(str_istarts(STR("Bearer xyz"), STR("bearer ")));
	assert_true(str_istarts(STR("x"), STR("")));
	assert_true(str_istarts(STR(""), STR("")));
	assert_false(str_istarts(STR("bear"), STR("bearer ")));
}

static void test_trim(void **state)
{
	(void)state;
	assert_true(str_eq(str_trim(STR(" \t a b\t ")), STR("a b")));
	assert_int_equal(str_trim(STR(" \t ")).n, 0);
	assert_int_equal(str_trim(STR_NONE).n, 0);
	assert_true(str_eq(str_trim(STR("\r\n")), STR("\r\n"))); /* OWS is SP and HTAB only */
}

static void items(const char *list, const char *const *want)
{
	struct str rest = str_of(list), item;

	for (; *want; want++) {
		assert_true(str_next_item(&rest, &item));
		if (!str_eq(item, str_of(*want)))
			fail_msg("'%s': '%.*s' instead of '%s'", list, (int)item.n, item.p, *want);
	}
	assert_false(str_next_item(&rest, &item));
}

static void test_next_item(void **state)
{
	(void)state;
	items("", (const char *[]){ NULL });
	items(" , ,\t", (const char *[]){ NULL });
	items("a", (const char *[]){ "a", NULL });
	items(" a , b,c\t,,", (const char *[]){ "a", "b", "c", NULL });
	items("x=\"1,2\\\",3\", y", (const char *[]){ "x=\"1,2\\\",3\"", "y", NULL });
	items("\"open, b", (const char *[]){ "\"open, b", NULL });
	items("\"end\\", (const char *[]){ "\"end\\", NULL });
	/* a backslash escapes inside of quotes only */
	items("a\\,b", (const char *[]){ "a\\", "b", NULL });
}

static void test_u64(void **state)
{
	uint64_t v = 7;

	(void)state;
	assert_false(str_u64(STR(""), &v));
	assert_false(str_u64(STR("-1"), &v));
	assert_false(str_u64(STR("+1"), &v));
	assert_false(str_u64(STR(" 1"), &v));
	assert_false(str_u64(STR("1 "), &v));
	assert_false(str_u64(STR("0x1"), &v));
	assert_false(str_u64(STR("18446744073709551616"), &v));
	assert_false(str_u64(STR("99999999999999999999"), &v));
	assert_false(str_u64(STR("100000000000000000000000"), &v));
	assert_int_equal(v, 7);
	assert_true(str_u64(STR("0"), &v));
	assert_int_equal(v, 0);
	assert_true(str_u64(STR("000000000000000000000000012"), &v));
	assert_int_equal(v, 12);
	assert_true(str_u64(STR("18446744073709551615"), &v));
	assert_true(v == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_of_and_eq),     cmocka_unit_test(test_ieq),
		cmocka_unit_test(test_ieq_all_bytes), cmocka_unit_test(test_istarts),
		cmocka_unit_test(test_trim),          cmocka_unit_test(test_next_item),
		cmocka_unit_test(test_u64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
