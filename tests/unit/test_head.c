/* test_head.c -- the table of field names and lists of fields: K05, N04. */
#include "unit.h"

#include "exchange/head.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct slab slab;
static struct arena arena;

static int setup(void **state)
{
	(void)state;
	slab_init(&slab, "test", ARENA_FIRST, NULL);
	arena_init(&arena, &slab);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	arena_free(&arena);
	slab_close(&slab);
	return 0;
}

static void test_every_row_is_found(void **state)
{
	(void)state;
	for (unsigned id = 1; id < HDR_ROWS; id++) {
		struct str name = hdr_table[id].name, canon = hdr_table[id].canon;
		char upper[64];

		if (hdr_lookup(name) != id)
			fail_msg("\"%.*s\" needs a slot in head.c: SLOT(%u, '%c', '%c')",
				 (int)name.n, name.p, name.n, name.p[0], name.p[name.n - 2]);
		assert_int_equal(hdr_lookup(canon), id);
		assert_true(canon.n == name.n && str_ieq(name, canon));
		for (uint32_t i = 0; i < name.n; i++) {
			assert_true(islower(name.p[i]) || isdigit(name.p[i]) || name.p[i] == '-');
			upper[i] = (char)toupper(name.p[i]);
		}
		assert_int_equal(hdr_lookup((struct str){ upper, name.n }), id);
	}
}

/* No other printable byte in any place, no byte less or more, is that name. */
static void test_nothing_else_is_found(void **state)
{
	(void)state;
	for (unsigned id = 1; id < HDR_ROWS; id++) {
		struct str name = hdr_table[id].name;
		char text[64];

		memcpy(text, name.p, name.n);
		text[name.n] = 'x';
		assert_int_not_equal(hdr_lookup((struct str){ text, name.n + 1 }), id);
		assert_int_not_equal(hdr_lookup((struct str){ text, name.n - 1 }), id);
		for (uint32_t i = 0; i < name.n; i++) {
			for (unsigned b = 0x20; b < 0x100; b++) {
				bool is = b == (uint8_t)name.p[i] ||
					  (islower(name.p[i]) && b == (uint8_t)toupper(name.p[i]));

				text[i] = (char)b;
				assert_int_equal(hdr_lookup((struct str){ text, name.n }) == id,
						 is);
			}
			text[i] = name.p[i];
		}
	}
	assert_int_equal(hdr_lookup(STR("")), HDR_OTHER);
	assert_int_equal(hdr_lookup(STR_NONE), HDR_OTHER);
	assert_int_equal(hdr_lookup(STR("x")), HDR_OTHER);
	assert_int_equal(hdr_lookup(STR("x-something-that-nobody-knows-and-that-is-long")),
			 HDR_OTHER);
}

static void test_k05_folding(void **state)
{
	(void)state;
	assert_true(head_field_folds(STR("X_Forwarded_For")));
	assert_true(head_field_folds(STR("X-Forwarded_For")));
	assert_true(head_field_folds(STR("x.real.ip")));
	assert_true(head_field_folds(STR("Content_Length")));
	assert_true(head_field_folds(STR("transfer.encoding")));
	assert_true(head_field_folds(STR("keep_alive")));
	/* the name itself: its row says all */
	assert_false(head_field_folds(STR("X-Forwarded-For")));
	assert_false(head_field_folds(STR("User_Agent")));
	assert_false(head_field_folds(STR("X_Y")));
	assert_false(head_field_folds(STR("")));
	assert_false(head_field_folds(STR("a_name_of_more_than_twenty_five_bytes")));
}

static void test_methods(void **state)
{
	(void)state;
	assert_int_equal(method_lookup(STR("GET")), METHOD_GET);
	assert_int_equal(method_lookup(STR("CONNECT")), METHOD_CONNECT);
	assert_int_equal(method_lookup(STR("get")), METHOD_OTHER);
	assert_int_equal(method_lookup(STR("")), METHOD_OTHER);
	assert_int_equal(method_lookup(STR("GETT")), METHOD_OTHER);
	assert_true(method_safe(METHOD_GET) && method_safe(METHOD_HEAD) &&
		    method_safe(METHOD_OPTIONS));
	assert_false(method_safe(METHOD_PUT) || method_safe(METHOD_POST) ||
		     method_safe(METHOD_OTHER));
	assert_true(method_idempotent(METHOD_PUT) && method_idempotent(METHOD_DELETE));
	assert_false(method_idempotent(METHOD_POST) || method_idempotent(METHOD_PATCH) ||
		     method_idempotent(METHOD_CONNECT) || method_idempotent(METHOD_OTHER));
}

static void names_are(const struct head *h, const char *want)
{
	char text[256] = "";

	for (uint32_t i = 0; i < h->n_fields; i++) {
		strncat(text, h->fields[i].name, h->fields[i].name_n);
		strcat(text, "=");
		strncat(text, h->fields[i].value, h->fields[i].value_n);
		strcat(text, " ");
	}
	assert_string_equal(text, want);
}

static void add(struct head *h, const char *name, const char *value)
{
	assert_true(head_add(h, &arena, str_of(name), str_of(value)));
}

static void test_lists(void **state)
{
	struct head h = { 0 };
	struct field *f;

	(void)state;
	add(&h, "A", "1");
	add(&h, "cookie", "2");
	add(&h, "b", "3");
	add(&h, "Cookie", "4");
	assert_true(head_add_id(&h, &arena, HDR_WWW_AUTHENTICATE, STR("5")));
	names_are(&h, "A=1 cookie=2 b=3 Cookie=4 WWW-Authenticate=5 ");
	f = head_find(&h, HDR_COOKIE);
	assert_ptr_equal(f, &h.fields[1]);
	assert_int_equal(f->flags, HDR_F_NO_TRAILER | HDR_F_SECRET | HDR_F_KEEP);
	f = head_find_next(&h, f);
	assert_ptr_equal(f, &h.fields[3]);
	assert_null(head_find_next(&h, f));
	assert_null(head_find(&h, HDR_VIA));
	assert_ptr_equal(head_find_name(&h, STR("COOKIE")), &h.fields[1]);
	assert_ptr_equal(head_find_name(&h, STR("B")), &h.fields[2]);
	assert_null(head_find_name(&h, STR("C")));
	head_remove(&h, HDR_VIA);
	assert_int_equal(h.n_fields, 5);
	head_remove(&h, HDR_COOKIE);
	names_are(&h, "A=1 b=3 WWW-Authenticate=5 ");
	h.fields[0].flags |= HDR_F_NOMINATED;
	head_remove_flags(&h, HDR_F_SECRET | HDR_F_HOP);
	assert_int_equal(h.n_fields, 3);
	head_remove_flags(&h, HDR_F_NOMINATED | HDR_F_KEEP);
	names_are(&h, "b=3 ");
	head_remove_flags(&h, 0xff);
	assert_int_equal(h.n_fields, 1);
	head_remove(&h, HDR_OTHER);
	assert_int_equal(h.n_fields, 0);
	head_remove(&h, HDR_OTHER);
}

static void test_a_list_grows(void **state)
{
	struct head h = { 0 };

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		add(&h, i % 2 ? "a" : "Accept", "x");
	assert_int_equal(h.n_fields, 1000);
	assert_true(h.cap_fields >= 1000 && h.cap_fields <= 2048);
	assert_int_equal(h.fields[0].id, HDR_ACCEPT);
	assert_int_equal(h.fields[999].id, HDR_OTHER);
}

static void test_n04_a_name_too_long(void **state)
{
	static char name[70000];
	struct head h = { 0 };

	(void)state;
	memset(name, 'n', sizeof(name));
	assert_true(head_add(&h, &arena, (struct str){ name, 65535 }, STR("")));
	assert_int_equal(h.fields[0].name_n, 65535);
	assert_false(head_add(&h, &arena, (struct str){ name, 65536 }, STR("")));
	assert_false(head_add(&h, &arena, (struct str){ name, 65537 }, STR("")));
	assert_int_equal(h.n_fields, 1);
}

static void test_out_of_memory(void **state)
{
	struct budget none = { .max = 0 };
	struct slab empty;
	struct arena a;
	struct head h = { 0 };

	(void)state;
	slab_init(&empty, "empty", ARENA_FIRST, &none);
	arena_init(&a, &empty);
	assert_false(head_add(&h, &a, STR("A"), STR("1")));
	assert_int_equal(h.n_fields, 0);
	slab_close(&empty);
}

static void test_reasons(void **state)
{
	(void)state;
	assert_true(str_eq(head_reason(200), STR("OK")));
	assert_true(str_eq(head_reason(404), STR("Not Found")));
	assert_true(str_eq(head_reason(511), STR("Network Authentication Required")));
	assert_int_equal(head_reason(499).n, 0);
	assert_int_equal(head_reason(0).n, 0);
	assert_int_equal(head_reason(99).n, 0);
	assert_int_equal(head_reason(512).n, 0);
	assert_int_equal(head_reason(999).n, 0);
	assert_non_null(head_reason(999).p);
}

static void test_dump_hides_secrets(void **state)
{
	struct head h = { .method_text = STR("GET"),
			  .path = STR("/p"),
			  .query = STR("?key=hunter1") };
	char text[4096];
	FILE *f = tmpfile();
	ssize_t n;

	(void)state;
	assert_non_null(f);
	add(&h, "Authorization", "Basic hunter2");
	add(&h, "Cookie", "hunter3");
	add(&h, "X-Odd", "a\nb\x1b");
	head_dump(&h, fileno(f));
	n = pread(fileno(f), text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = 0;
	assert_null(strstr(text, "hunter"));
	assert_null(strchr(text, 0x1b));
	assert_non_null(strstr(text, "Authorization: (secret)"));
	assert_non_null(strstr(text, "/p"));
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row_is_found),
		cmocka_unit_test(test_nothing_else_is_found),
		cmocka_unit_test(test_k05_folding),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_a_list_grows),
		cmocka_unit_test(test_n04_a_name_too_long),
		cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_dump_hides_secrets),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
