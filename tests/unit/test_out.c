/* test_out.c -- numbers, escapes, dates, and the bound. */
#include "unit.h"

#include "base/out.h"
#include "base/panic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char buf[4096];
static struct out o;

static void fresh(void)
{
	memset(buf, '#', sizeof(buf));
	out_init(&o, buf, sizeof(buf));
}

static void assert_out(const char *want)
{
	assert_true(out_ok(&o));
	if (out_len(&o) != strlen(want) || memcmp(buf, want, strlen(want)))
		fail_msg("'%.*s' instead of '%s'", (int)out_len(&o), buf, want);
	assert_int_equal(buf[out_len(&o)], '#');
}

static void test_u64(void **state)
{
	char want[32];
	uint64_t v = 1;

	(void)state;
	for (int i = 0; i < 20; i++, v *= 10) {
		for (int d = -1; d <= 1; d++) {
			fresh();
			out_u64(&o, v + (uint64_t)d);
			snprintf(want, sizeof(want), "%" PRIu64, v + (uint64_t)d);
			assert_out(want);
		}
	}
	fresh();
	out_u64(&o, UINT64_MAX);
	assert_out("18446744073709551615");
}

static void test_hex_ms(void **state)
{
	(void)state;
	fresh();
	out_hex(&o, 0);
	out_char(&o, ' ');
	out_hex(&o, 0xdeadbeef);
	out_char(&o, ' ');
	out_hex(&o, UINT64_MAX);
	assert_out("0 deadbeef ffffffffffffffff");
	fresh();
	out_ms(&o, 0);
	out_char(&o, ' ');
	out_ms(&o, 7);
	out_char(&o, ' ');
	out_ms(&o, 1000);
	out_char(&o, ' ');
	out_ms(&o, 12345);
	out_char(&o, ' ');
	out_ms(&o, UINT64_MAX);
	assert_out("0.000 0.007 1.000 12.345 18446744073709551.615");
}

static void test_bound(void **state)
{
	(void)state;
	for (size_t room = 0; room < 40; room++) {
		fresh();
		out_init(&o, buf, room);
		out_json(&o, STR("0123456789abcdef\"\n\x01\xc3\xa4\xff~"));
		out_u64(&o, 12345);
		assert_int_equal(out_ok(&o), room >= 16 + 2 + 2 + 6 + 2 + 6 + 1 + 5);
		assert_true(out_len(&o) <= room);
		for (size_t i = room; i < 64; i++)
			assert_int_equal(buf[i], '#');
	}
	out_init(&o, buf, 3);
	out_lit(&o, "abc");
	assert_true(out_ok(&o));
	out_char(&o, 'd');
	assert_false(out_ok(&o));
	assert_int_equal(out_len(&o), 3);
}

static void json(const char *in, size_t n, const char *want)
{
	fresh();
	out_json(&o, (struct str){ .p = in, .n = (uint32_t)n });
	assert_out(want);
}
#define JSON(lit, want) json(lit, sizeof(lit) - 1, want)

static void test_json(void **state)
{
	(void)state;
	JSON("", "");
	JSON("plain ~ /?&<>'", "plain ~ /?&<>'");
	JSON("a\"b\\c", "a\\\"b\\\\c");
	JSON("\r\n\t\b\0\x1b[2J\x7f", "\\r\\n\\t\\u0008\\u0000\\u001b[2J\\u007f");
	JSON("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
	     "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
	JSON("\xc2\x9b", "\\u009b"); /* C1: CSI */
	JSON("\xc2\xa0", "\xc2\xa0");
	JSON("\x80", "\\ufffd"); /* a lone tail */
	JSON("\xc3", "\\ufffd"); /* cut short */
	JSON("\xc3(", "\\ufffd(");
	JSON("\xc0\xaf", "\\ufffd\\ufffd"); /* overlong */
	JSON("\xc1\xbf", "\\ufffd\\ufffd");
	JSON("\xe0\x9f\xbf", "\\ufffd\\ufffd\\ufffd");
	JSON("\xe0\xa0\x80", "\xe0\xa0\x80");
	JSON("\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"); /* a surrogate */
	JSON("\xed\x9f\xbf", "\xed\x9f\xbf");
	JSON("\xf0\x8f\xbf\xbf", "\\ufffd\\ufffd\\ufffd\\ufffd");
	JSON("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf");
	JSON("\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd");
	JSON("\xf5\x80\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd");
	JSON("\xf0\x9f\x98", "\\ufffd\\ufffd\\ufffd");
	JSON("\xff\xfe", "\\ufffd\\ufffd");
	JSON("0123456789abcdef0123456789abcdef0123456", "0123456789abcdef0123456789abcdef0123456");
}

/* One dirty byte at every place of strings of every length: the block copy must stop exactly
 * there. */
static void test_json_places(void **state)
{
	char in[70], want[80];

	(void)state;
	for (uint32_t n = 1; n <= 66; n++) {
		for (uint32_t i = 0; i < n; i++) {
			for (uint32_t k = 0; k < n; k++)
				in[k] = (char)('A' + k % 26);
			memcpy(want, in, i);
			in[i] = '"';
			memcpy(want + i, "\\\"", 2);
			memcpy(want + i + 2, in + i + 1, n - i - 1);
			want[n + 1] = '\0';
			json(in, n, want);
		}
	}
}

static void test_json_every_byte(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		char in[33], got;

		memset(in, 'x', sizeof(in));
		in[20] = (char)c;
		fresh();
		out_json(&o, (struct str){ .p = in, .n = sizeof(in) });
		assert_true(out_ok(&o));
		got = buf[20];
		assert_int_equal(got == (char)c && out_len(&o) == 33,
				 c >= 0x20 && c < 0x7f && c != '"' && c != '\\');
		for (uint32_t i = 0; i < out_len(&o); i++)
			assert_in_range((uint8_t)buf[i], 0x20, 0x7e);
	}
}

static void test_text(void **state)
{
	(void)state;
	fresh();
	out_text(&o, STR("a\"b\\c\n\x1b\x7f gr\xc3\xbc\xc3\x9f \xff \xc2\x9b."));
	assert_out("a\"b\\c\\x0a\\x1b\\x7f gr\xc3\xbc\xc3\x9f \\xff \\xc2\\x9b.");
}

static void test_html(void **state)
{
	(void)state;
	fresh();
	out_html(&o, STR("<a href=\"x\">'&'\r\n\x01\x7f gr\xc3\xbc\xc3\x9f"));
	assert_out("&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39; gr\xc3\xbc\xc3\x9f");
}

static void test_quoted_log(void **state)
{
	(void)state;
	fresh();
	out_quoted_log(&o, STR("GET /\"\\ \r\n\x7f\x80\xff HTTP"));
	assert_out("GET /\\\"\\\\ \\x0d\\x0a\\x7f\\x80\\xff HTTP");
}

static void test_dates(void **state)
{
	(void)state;
	fresh();
	out_time_rfc3339(&o, 0);
	assert_out("1970-01-01T00:00:00.000000Z");
	fresh();
	out_time_rfc3339(&o, 1796061600123456);
	assert_out("2026-11-30T18:00:00.123456Z");
	fresh();
	out_time_http(&o, 784111777000000);
	assert_out("Sun, 06 Nov 1994 08:49:37 GMT");
	fresh();
	out_time_clf(&o, 1796061600999999);
	assert_out("30/Nov/2026:18:00:00 +0000");
	fresh();
	out_time_rfc3339(&o, -1);
	assert_out("1969-12-31T23:59:59.999999Z");
	fresh();
	out_time_rfc3339(&o, INT64_MAX);
	assert_out("9999-12-31T23:59:59.999999Z");
	fresh();
	out_time_rfc3339(&o, INT64_MIN);
	assert_out("0000-01-01T00:00:00.000000Z");
}

/* Every day from 1890 to 2110 and some thousand moments of ten thousand years, against the C
 * library. */
static void check_date(int64_t sec)
{
	time_t t = (time_t)sec;
	char want[64];
	struct tm tm;

	gmtime_r(&t, &tm);
	if (tm.tm_year + 1900 < 1000)
		return; /* strftime does not pad such years */
	fresh();
	out_time_http(&o, sec * 1000000 + 5);
	out_char(&o, '|');
	out_time_clf(&o, sec * 1000000 + 5);
	strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT|%d/%b/%Y:%H:%M:%S +0000", &tm);
	assert_out(want);
}

static void test_dates_many(void **state)
{
	(void)state;
	srandom(2);
	for (int64_t day = -29220; day < 51500; day++)
		check_date(day * 86400 + random() % 86400);
	for (int i = 0; i < 20000; i++)
		check_date((int64_t)(random() % 3652000 - 719000) * 86400 + random() % 86400);
}

static void test_fmt(void **state)
{
	(void)state;
	fresh();
	out_fmt(&o, "%s=%d", "x", 42);
	out_fmt(&o, "%s", "");
	assert_true(out_ok(&o));
	assert_int_equal(out_len(&o), 4);
	assert_memory_equal(buf, "x=42", 4);
	out_init(&o, buf, 4); /* to the last byte */
	out_fmt(&o, "%s=%d", "x", 42);
	assert_true(out_ok(&o));
	assert_memory_equal(buf, "x=42", 4);
	out_fmt(&o, "%s", "");
	assert_true(out_ok(&o));
	out_init(&o, buf, 3);
	out_fmt(&o, "%s=%d", "x", 42);
	assert_false(out_ok(&o));
	assert_int_equal(out_len(&o), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_u64),         cmocka_unit_test(test_hex_ms),
		cmocka_unit_test(test_bound),       cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_places), cmocka_unit_test(test_json_every_byte),
		cmocka_unit_test(test_text),        cmocka_unit_test(test_html),
		cmocka_unit_test(test_quoted_log),  cmocka_unit_test(test_dates),
		cmocka_unit_test(test_dates_many),  cmocka_unit_test(test_fmt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
