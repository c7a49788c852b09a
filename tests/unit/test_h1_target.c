/* test_h1_target.c -- authorities and absolute-form: A12, A13, A14, G03. */
#include "h1_case.h"

struct authority {
	const char *text, *host; /* host NULL: refused */
	unsigned port;
	bool v6;
};

static const struct authority authorities[] = {
	{ "a", "a", 0, false },
	{ "a:80", "a", 80, false },
	{ "a:", "a", 0, false }, /* RFC 3986 §3.2.3 */
	{ "a:65535", "a", 65535, false },
	{ "a:00080", "a", 80, false },
	{ "A.Example", "a.example", 0, false },
	{ "A.EXAMPLE.:8080", "a.example", 8080, false },
	{ "a.", "a", 0, false },
	{ "a-b_c~d.test", "a-b_c~d.test", 0, false },
	{ "www.a-rather-long-name-of-a-host.example.com",
	  "www.a-rather-long-name-of-a-host.example.com", 0, false },
	{ "xn--bcher-kva.test", "xn--bcher-kva.test", 0, false },
	{ "1.2.3.4:1", "1.2.3.4", 1, false },
	{ "2130706433", "2130706433", 0, false },
	{ "0x7f.1", "0x7f.1", 0, false },
	{ "0123456789abcdef", "0123456789abcdef", 0, false },
	{ "0123456789abcde:1", "0123456789abcde", 1, false },
	{ "[::1]", "::1", 0, true },
	{ "[::1]:443", "::1", 443, true },
	{ "[2001:DB8::A]:", "2001:db8::a", 0, true },
	{ "[::ffff:127.0.0.1]", "::ffff:127.0.0.1", 0, true },
	{ "[1111:2222:3333:4444:5555:6666:255.255.255.255]",
	  "1111:2222:3333:4444:5555:6666:255.255.255.255", 0, true },
	{ "", NULL, 0, false },
	{ ":", NULL, 0, false },
	{ ":80", NULL, 0, false },
	{ ".", NULL, 0, false },
	{ "..", NULL, 0, false },
	{ ".a", NULL, 0, false },
	{ "a..b", NULL, 0, false },
	{ "a..", NULL, 0, false },
	{ "A..b", NULL, 0, false },
	{ "a:0", NULL, 0, false },
	{ "a:00000", NULL, 0, false },
	{ "a:65536", NULL, 0, false },
	{ "a:70000", NULL, 0, false },
	{ "a:99999", NULL, 0, false },
	{ "a:000080", NULL, 0, false },
	{ "a:4294967376", NULL, 0, false },
	{ "a:18446744073709551696", NULL, 0, false },
	{ "a:8o", NULL, 0, false },
	{ "a:-1", NULL, 0, false },
	{ "a:+80", NULL, 0, false },
	{ "a: 80", NULL, 0, false },
	{ "a:80 ", NULL, 0, false },
	{ "a:80:80", NULL, 0, false },
	{ "a b", NULL, 0, false },
	{ "a, b", NULL, 0, false },
	{ "a,b", NULL, 0, false },
	{ "u@a", NULL, 0, false },
	{ "u:p@a", NULL, 0, false },
	{ "a/b", NULL, 0, false },
	{ "a?b", NULL, 0, false },
	{ "a#b", NULL, 0, false },
	{ "a\\b", NULL, 0, false },
	{ "a%41", NULL, 0, false },
	{ "b\xc3\xbc.test", NULL, 0, false },
	{ "<a>", NULL, 0, false },
	{ "[::1", NULL, 0, false },
	{ "[::1]x", NULL, 0, false },
	{ "[::1]]", NULL, 0, false },
	{ "[]", NULL, 0, false },
	{ "[", NULL, 0, false },
	{ "[zz]", NULL, 0, false },
	{ "[1.2.3.4]", NULL, 0, false },
	{ "[a.test]", NULL, 0, false }, /* G03 */
	{ "[fe80::1%25eth0]", NULL, 0, false },
	{ "[v1.x]", NULL, 0, false },
	{ "[0000:0000:0000:0000:0000:0000:0000:0000:0000]", NULL, 0, false },
	{ "[::1]:0", NULL, 0, false },
	{ "::1", NULL, 0, false },
	{ "a[::1]", NULL, 0, false },
};

static int read_authority(const char *text, size_t n, struct str *host, bool *v6, uint16_t *port,
			  char **room)
{
	*room = malloc(n ? n : 1);
	assert_non_null(*room);
	memcpy(*room, text, n);
	return h1_authority(*room, (uint32_t)n, host, v6, port);
}

static void test_a12_authority(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(authorities); i++) {
		const struct authority *a = &authorities[i];
		struct str host = STR_NONE;
		uint16_t port = 7;
		bool v6 = false;
		char *room;
		int e = read_authority(a->text, strlen(a->text), &host, &v6, &port, &room);

		if (e != (a->host ? 0 : -H1_E_HOST))
			fail_msg("\"%s\": %d", a->text, e);
		if (a->host) {
			str_is_at(host, a->host, (int)i);
			assert_int_equal(port, a->port);
			assert_int_equal(v6, a->v6);
		}
		free(room);
	}
}

static void test_a12_every_byte(void **state)
{
	(void)state;
	for (unsigned b = 0; b < 256; b++) {
		bool good = (b >= '0' && b <= '9') || b == '-' || b == '.' || b == '_' ||
			    b == '~' || (b < 0x80 && (b | 0x20) >= 'a' && (b | 0x20) <= 'z');

		for (unsigned n = 3; n < 40; n += 7) {
			char text[40], *room;
			struct str host;
			uint16_t port;
			bool v6;
			int e;

			memset(text, 'a', sizeof(text));
			text[n / 2] = (char)b;
			if (b == ':')
				continue;
			e = read_authority(text, n, &host, &v6, &port, &room);
			if (e != (good ? 0 : -H1_E_HOST))
				fail_msg("byte %#x in %u: %d", b, n, e);
			free(room);
		}
	}
}

static void test_a12_length(void **state)
{
	char text[300], *room;
	struct str host;
	uint16_t port;
	bool v6;

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_int_equal(read_authority(text, 255, &host, &v6, &port, &room), 0);
	assert_int_equal(host.n, 255);
	free(room);
	assert_int_equal(read_authority(text, 256, &host, &v6, &port, &room), -H1_E_HOST);
	free(room);
	memcpy(text + 255, ":65535", 6);
	assert_int_equal(read_authority(text, 261, &host, &v6, &port, &room), 0);
	assert_int_equal(port, 65535);
	free(room);
}

static void test_a13_absolute(void **state)
{
	static const struct {
		const char *text, *scheme, *host, *path, *query;
	} good[] = {
		{ "http://a", "http", "a", "", "" },
		{ "http://a/", "http", "a", "/", "" },
		{ "HTTP://A:80/B?C", "http", "a", "/B", "?C" },
		{ "http://a?x=1", "http", "a", "", "?x=1" },
		{ "http://a/b/?", "http", "a", "/b/", "?" },
		{ "http://a?/x//y?z", "http", "a", "", "?/x//y?z" },
		{ "https://[::1]:8/x", "https", "::1", "/x", "" },
		{ "a+b-c.9://x", "a+b-c.9", "x", "", "" },
		{ "http://a/http://b@c/", "http", "a", "/http://b@c/", "" },
	};
	static const char *const bad[] = { "",
					   "http",
					   "http:",
					   "http:/",
					   "http://",
					   "http:///x",
					   "http://?x",
					   "://a/",
					   "9http://a/",
					   "-a://b",
					   "h_t://a",
					   "ht tp://a",
					   "http:a",
					   "http:/a",
					   "http://a b/",
					   "http://a\x80/",
					   "http://a/\x80",
					   "http://a/b c",
					   "http://a#f",
					   "http://a/#f",
					   "http://a?#",
					   "http://u@a/",
					   "http://a:99999/",
					   "http://a:0",
					   "http://:80/",
					   "http://a,b/",
					   "http://a\\b/",
					   "http://%61/",
					   "http://[::1/",
					   "h\0ttp://a" };
	struct head h;
	char room[128];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(good); i++) {
		memset(&h, 0, sizeof(h));
		memcpy(room, good[i].text, strlen(good[i].text));
		assert_int_equal(h1_absolute(&h, room, (uint32_t)strlen(good[i].text)), 0);
		str_is_at(h.scheme, good[i].scheme, (int)i);
		str_is_at(h.host, good[i].host, (int)i);
		str_is_at(h.path, good[i].path, (int)i);
		str_is_at(h.query, good[i].query, (int)i);
		assert_int_equal(h.form, TARGET_ABSOLUTE);
	}
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
		memset(&h, 0, sizeof(h));
		memcpy(room, bad[i], strlen(bad[i]));
		if (h1_absolute(&h, room, (uint32_t)strlen(bad[i])) != -H1_E_TARGET)
			fail_msg("accepted: %s", bad[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a12_authority),
		cmocka_unit_test(test_a12_every_byte),
		cmocka_unit_test(test_a12_length),
		cmocka_unit_test(test_a13_absolute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
