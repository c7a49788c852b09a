/* test_why.c -- the table is whole. */
#include "unit.h"

#include "base/panic.h"
#include "base/why.h"

#include <errno.h>

static void test_rows(void **state)
{
	(void)state;
	for (unsigned i = 1; i < WHY_ROWS; i++) {
		const struct why *y = why(i);

		assert_int_equal(y->id, i);
		assert_true(y->name[0] && y->text[0] && y->proxy_status);
		assert_true(y->status == 0 || (y->status >= 400 && y->status < 600));
		assert_false((y->flags & WHY_CLIENT) && (y->flags & WHY_SERVER));
		for (unsigned k = 1; k < i; k++)
			assert_string_not_equal(y->name, why(k)->name);
	}
	assert_string_equal(why(WHY_NONE)->name, "");
	assert_int_equal(why(WHY_BAD_REQUEST)->status, 400);
	assert_string_equal(why(WHY_CLIENT_ABORT)->name, "client_abort");
	assert_int_equal(why(WHY_CLIENT_ABORT)->status, 499);
}

static void test_errno(void **state)
{
	static const struct {
		int err;
		enum why_id id;
	} v[] = {
		{ ECONNREFUSED, WHY_REFUSED },
		{ ENOENT, WHY_REFUSED },
		{ ETIMEDOUT, WHY_CONNECT_TIMEOUT },
		{ EHOSTUNREACH, WHY_UNROUTABLE },
		{ ENETUNREACH, WHY_UNROUTABLE },
		{ EADDRNOTAVAIL, WHY_PORTS },
		{ EMFILE, WHY_DESCRIPTORS },
		{ ENFILE, WHY_DESCRIPTORS },
		{ ENOMEM, WHY_MEMORY },
		{ ENOBUFS, WHY_MEMORY },
		{ ECONNRESET, WHY_TERMINATED },
		{ EPIPE, WHY_TERMINATED },
		{ EBADF, WHY_INTERNAL },
		{ 0, WHY_INTERNAL },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(v); i++)
		assert_ptr_equal(why_of_errno(-v[i].err), why(v[i].id));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows),
					    cmocka_unit_test(test_errno) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
