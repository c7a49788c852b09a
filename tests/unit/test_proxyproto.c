/* test_proxyproto.c -- PROXY protocol heads, versions 1 and 2 (K03). */
#include "unit.h"

#include "link/link.h"

#include <errno.h>
#include <stdlib.h>

static struct addr src, dst;

static int parse(const void *p, uint32_t n)
{
	/* Exactly n bytes, so that a sanitizer sees the first one read beyond them. */
	uint8_t *copy = malloc(n ? n : 1);
	int rc;

	assert_non_null(copy);
	memcpy(copy, p, n);
	rc = proxyproto_parse(copy, n, &src, &dst);
	free(copy);
	return rc;
}

static int parse_text(const char *s)
{
	return parse(s, (uint32_t)strlen(s));
}

static const char *text(const struct addr *a)
{
	static char buf[2][64];
	static unsigned turn;
	char *to = buf[turn++ & 1];
	struct out o;

	out_init(&o, to, 63);
	if (a->len)
		addr_out(&o, a);
	*o.p = '\0';
	return to;
}

/* Every shorter piece of a good head asks for more. */
static void assert_grows(const void *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(parse(p, i), 0);
	assert_int_equal(parse(p, n), n);
}

/* --- version 1 --- */
static void v1_gives_both_addresses(void **state)
{
	static const char v4[] = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
	static const char v6[] = "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
	static const char mapped[] = "PROXY TCP6 ::ffff:192.0.2.9 ::1 80 80\r\n";

	(void)state;
	assert_grows(v4, sizeof(v4) - 1);
	assert_string_equal(text(&src), "192.0.2.1:56324");
	assert_string_equal(text(&dst), "198.51.100.2:443");
	assert_grows(v6, sizeof(v6) - 1);
	assert_string_equal(text(&src), "[2001:db8::1]:1");
	assert_string_equal(text(&dst), "[2001:db8::2]:65535");
	assert_grows(mapped, sizeof(mapped) - 1);
	assert_string_equal(text(&src), "192.0.2.9:80");
}

static void v1_ends_where_the_payload_begins(void **state)
{
	(void)state;
	assert_int_equal(parse_text("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\n"), 32);
}

static void v1_unknown_means_the_socket(void **state)
{
	static const char longest[] = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
				      "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";

	(void)state;
	assert_int_equal(sizeof(longest) - 1, 107);
	assert_grows(longest, sizeof(longest) - 1);
	assert_int_equal(src.len, 0);
	assert_int_equal(parse_text("PROXY UNKNOWN\r\n"), 15);
	assert_int_equal(src.len, 0);
	assert_int_equal(parse_text("PROXY UNKNOWNX\r\n"), -EPROTO);
}

static void v1_is_strict(void **state)
{
	static const char *const bad[] = {
		"PROXY TCP4 999.0.0.1 1.2.3.4 1 2\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
		"PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
		"PROXY TCP4 1.2.3.4 1.2.3.4\r\n",
		"PROXY TCP4 ::1 ::1 1 2\r\n",
		"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
		"PROXY TCP6 [::1] [::1] 1 2\r\n",
		"PROXY TCP4 0x7f.1 1.2.3.4 1 2\r\n",
		"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
		"PROXY\r\n",
		"PROXY \r\n",
		"PROXY TCP4\r\n",
		"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
		"GET / HTTP/1.1\r\n",
		"PROXX",
		"P ",
		"\x16\x03\x01",
	};
	char endless[200] = "PROXY TCP4 ";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(parse_text(bad[i]), -EPROTO);
		assert_int_equal(src.len, 0);
		assert_int_equal(dst.len, 0);
	}
	memset(endless + 11, '1', sizeof(endless) - 11);
	assert_int_equal(parse(endless, 106), 0);
	assert_int_equal(parse(endless, 107), -EPROTO); /* 107 bytes and no CRLF */
	assert_int_equal(parse(endless, 108), -EPROTO);
}

/* --- version 2 --- */
static const uint8_t signature[12] = { 13, 10, 13, 10, 0, 13, 10, 'Q', 'U', 'I', 'T', 10 };

/* A head in buf: verb, family, length as given, then the bytes of body; returns its length. */
static uint32_t v2(uint8_t *buf, uint8_t verb, uint8_t family, const void *body, uint16_t n)
{
	memcpy(buf, signature, 12);
	buf[12] = verb;
	buf[13] = family;
	buf[14] = (uint8_t)(n >> 8);
	buf[15] = (uint8_t)n;
	if (body)
		memcpy(buf + 16, body, n);
	return 16u + n;
}

static const uint8_t four[12] = { 192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb };

static void v2_gives_both_addresses(void **state)
{
	uint8_t buf[128], six[36] = { 0x20, 0x01, 0x0d,     0xb8, [15] = 1, 0x20, 0x01,
				      0x0d, 0xb8, [31] = 2, 0,    80,       1,    0xbb };

	(void)state;
	assert_grows(buf, v2(buf, 0x21, 0x11, four, 12));
	assert_string_equal(text(&src), "192.0.2.1:56324");
	assert_string_equal(text(&dst), "198.51.100.2:443");
	assert_grows(buf, v2(buf, 0x21, 0x21, six, 36));
	assert_string_equal(text(&src), "[2001:db8::1]:80");
	assert_string_equal(text(&dst), "[2001:db8::2]:443");
}

static void v2_what_is_no_stream_over_ip_means_the_socket(void **state)
{
	uint8_t buf[512], zeros[216] = { 0 };

	(void)state;
	assert_grows(buf, v2(buf, 0x20, 0x00, NULL, 0)); /* LOCAL, length 0 */
	assert_int_equal(src.len, 0);
	assert_grows(buf, v2(buf, 0x20, 0x11, four, 12)); /* LOCAL: addresses do not count */
	assert_int_equal(src.len, 0);
	assert_grows(buf, v2(buf, 0x21, 0x00, zeros, 5)); /* UNSPEC: passed over */
	assert_int_equal(src.len, 0);
	assert_grows(buf, v2(buf, 0x21, 0x31, zeros, 216)); /* AF_UNIX */
	assert_int_equal(src.len, 0);
	assert_grows(buf, v2(buf, 0x21, 0x12, four, 12)); /* UDP */
	assert_int_equal(src.len, 0);
}

static void v2_is_strict(void **state)
{
	uint8_t buf[PROXYPROTO_MAX + 64], zeros[64] = { 0 };

	(void)state;
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x11, NULL, 0)), -EPROTO); /* no addresses */
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x11, zeros, 11)), -EPROTO);
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x21, zeros, 35)), -EPROTO);
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x31, zeros, 36)), -EPROTO);
	v2(buf, 0x11, 0x11, four, 12); /* version 1 in the binary form */
	assert_int_equal(parse(buf, 13), -EPROTO);
	v2(buf, 0x22, 0x11, four, 12); /* command 2 */
	assert_int_equal(parse(buf, 13), -EPROTO);
	v2(buf, 0x21, 0x41, four, 12);
	assert_int_equal(parse(buf, 14), -EPROTO);
	v2(buf, 0x21, 0x13, four, 12);
	assert_int_equal(parse(buf, 14), -EPROTO);
	v2(buf, 0x21, 0x11, NULL, 65535);
	assert_int_equal(parse(buf, 16), -EPROTO);
	memset(buf, 0, sizeof(buf));
	v2(buf, 0x21, 0x00, NULL, PROXYPROTO_MAX - 16); /* the longest */
	assert_int_equal(parse(buf, PROXYPROTO_MAX - 1), 0);
	assert_int_equal(parse(buf, PROXYPROTO_MAX + 1), PROXYPROTO_MAX);
	v2(buf, 0x21, 0x00, NULL, PROXYPROTO_MAX - 15);
	assert_int_equal(parse(buf, 16), -EPROTO);
	memcpy(buf, signature, 12);
	buf[5] = 'x';
	assert_int_equal(parse(buf, 6), -EPROTO);
}

static void v2_tlvs_must_fit(void **state)
{
	uint8_t buf[128], body[40];

	(void)state;
	memcpy(body, four, 12);
	memcpy(body + 12, "\x04\x00\x03\x00\x00\x00", 6); /* NOOP, 3 bytes */
	assert_grows(buf, v2(buf, 0x21, 0x11, body, 18));
	assert_string_equal(text(&src), "192.0.2.1:56324");
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x11, body, 17)), -EPROTO);
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x11, body, 14)), -EPROTO);
	body[13] = 0xff;
	assert_int_equal(parse(buf, v2(buf, 0x21, 0x11, body, 18)), -EPROTO);
}

/* An independent CRC-32C (RFC 3720 appendix B.4), by table-free division of the reflected bits. */
static uint32_t crc_of(const uint8_t *p, uint32_t n)
{
	uint32_t crc = 0xffffffff;

	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = (crc >> 1) ^ (0x82f63b78 & (0u - (crc & 1)));
	}
	return ~crc;
}

static void v2_a_checksum_must_be_right(void **state)
{
	uint8_t buf[128], body[40];
	uint32_t n, crc;

	(void)state;
	assert_int_equal(crc_of((const uint8_t *)"123456789", 9), 0xe3069283);
	memcpy(body, four, 12);
	memcpy(body + 12, "\x03\x00\x04\x00\x00\x00\x00", 7);
	n = v2(buf, 0x21, 0x11, body, 19);
	crc = crc_of(buf, n);
	for (int i = 0; i < 4; i++)
		buf[16 + 12 + 3 + i] = (uint8_t)(crc >> (24 - 8 * i));
	assert_grows(buf, n);
	assert_string_equal(text(&src), "192.0.2.1:56324");
	buf[16] ^= 1;
	assert_int_equal(parse(buf, n), -EPROTO);
	buf[16] ^= 1;
	buf[16 + 12 + 3] ^= 1;
	assert_int_equal(parse(buf, n), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(v1_gives_both_addresses),
		cmocka_unit_test(v1_ends_where_the_payload_begins),
		cmocka_unit_test(v1_unknown_means_the_socket),
		cmocka_unit_test(v1_is_strict),
		cmocka_unit_test(v2_gives_both_addresses),
		cmocka_unit_test(v2_what_is_no_stream_over_ip_means_the_socket),
		cmocka_unit_test(v2_is_strict),
		cmocka_unit_test(v2_tlvs_must_fit),
		cmocka_unit_test(v2_a_checksum_must_be_right),
	};

	return cmocka_run_group_tests_name("proxyproto", tests, NULL, NULL);
}
