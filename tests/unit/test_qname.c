/* test_qname.c -- what may be asked for as a name, and which names it stands for. */
#include "unit.h"

#include "link/names.h"

#include <string.h>

static bool takes(const char *text, struct qname *q)
{
	memset(q, 0, sizeof(*q));
	return qname_take(q, str_of(text));
}

static void test_names(void **state)
{
	struct qname q;

	(void)state;
	assert_true(takes("WWW.Example.COM", &q));
	assert_string_equal(q.text, "www.example.com");
	assert_int_equal(q.n, 15);
	assert_int_equal(q.dots, 2);
	assert_false(q.absolute);
	assert_true(takes("a_b.example.", &q)); /* the dot at the end is not part of it */
	assert_string_equal(q.text, "a_b.example");
	assert_int_equal(q.dots, 1);
	assert_true(q.absolute);
	assert_true(takes("1.2.3.4a", &q));
	assert_true(takes("localhost", &q));
}

static void test_no_names(void **state)
{
	static const char *const v[] = { "",         ".",       "..",    ".a",    "a..b",
					 "a..",      "a b",     "a/b",   "a:80",  "a@b",
					 "\xc3\xa4", "1.2.3.4", "127.1", "1",     "0x7f000001",
					 "a.0X7F",   "a.1",     "a.1.",  "[::1]", "a\n" };
	struct qname q;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(v); i++)
		if (takes(v[i], &q))
			fail_msg("\"%s\" was taken", v[i]);
	assert_false(qname_take(&q, (struct str){ .p = "a\0b", .n = 3 }));
}

static void test_lengths(void **state)
{
	char text[300];
	struct qname q;

	(void)state;
	memset(text, 'a', sizeof(text));
	text[63] = '\0';
	assert_true(takes(text, &q)); /* a label */
	text[63] = 'a';
	text[64] = '\0';
	assert_false(takes(text, &q));
	for (unsigned i = 0; i < sizeof(text); i++)
		text[i] = i % 50 == 49 ? '.' : 'a';
	text[NAME_MAX_LEN] = '\0';
	assert_true(takes(text, &q));
	text[NAME_MAX_LEN] = 'a';
	text[NAME_MAX_LEN + 1] = '\0';
	assert_false(takes(text, &q));
	text[NAME_MAX_LEN] = '.'; /* of the last dot nothing is sent */
	assert_true(takes(text, &q));
}

static const char *nth(const struct qname *q, const struct resolvconf *rc, uint32_t k)
{
	static char text[NAME_MAX_LEN + 1];
	uint32_t n;

	if (!qname_candidate(q, rc, k, text, &n))
		return NULL;
	return n ? text : "too long";
}

static void test_candidates(void **state)
{
	struct resolvconf rc = { .n_search = 2, .search = { "one.example", "two" }, .ndots = 1 };
	struct qname q;

	(void)state;
	assert_true(takes("db", &q)); /* fewer dots than ndots: as it is comes last */
	assert_string_equal(nth(&q, &rc, 0), "db.one.example");
	assert_string_equal(nth(&q, &rc, 1), "db.two");
	assert_string_equal(nth(&q, &rc, 2), "db");
	assert_null(nth(&q, &rc, 3));
	assert_true(takes("db.x", &q));
	assert_string_equal(nth(&q, &rc, 0), "db.x");
	assert_string_equal(nth(&q, &rc, 1), "db.x.one.example");
	assert_string_equal(nth(&q, &rc, 2), "db.x.two");
	assert_string_equal(nth(&q, NULL, 0), "db.x"); /* a stranger's name: no search list */
	assert_null(nth(&q, NULL, 1));
	assert_true(takes("db.", &q));
	assert_string_equal(nth(&q, &rc, 0), "db");
	assert_null(nth(&q, &rc, 1));
}

static void test_candidate_too_long(void **state)
{
	struct resolvconf rc = { .n_search = 1, .search = { "example" }, .ndots = 9 };
	char text[NAME_MAX_LEN + 1];
	struct qname q;

	(void)state;
	for (unsigned i = 0; i < NAME_MAX_LEN - 7; i++)
		text[i] = i % 50 == 49 ? '.' : 'a';
	text[NAME_MAX_LEN - 7] = '\0';
	assert_true(takes(text, &q)); /* with the suffix one more than a name may have */
	assert_string_equal(nth(&q, &rc, 0), "too long");
	assert_string_equal(nth(&q, &rc, 1), text);
	text[NAME_MAX_LEN - 8] = '\0';
	assert_true(takes(text, &q));
	assert_int_equal(strlen(nth(&q, &rc, 0)), NAME_MAX_LEN);
}

static void test_domains(void **state)
{
	(void)state;
	assert_true(qname_ends_in(STR("localhost"), STR("localhost")));
	assert_true(qname_ends_in(STR("a.localhost"), STR("localhost")));
	assert_false(qname_ends_in(STR("mylocalhost"), STR("localhost")));
	assert_false(qname_ends_in(STR("localhost.example"), STR("localhost")));
	assert_false(qname_ends_in(STR("host"), STR("localhost")));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_no_names),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_candidates),
		cmocka_unit_test(test_candidate_too_long),
		cmocka_unit_test(test_domains),
	};

	return cmocka_run_group_tests_name("qname", tests, NULL, NULL);
}
