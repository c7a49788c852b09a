/* test_addr.c -- addresses: strict to read, one way to print, judged through every disguise. */
#include "unit.h"

#include "base/addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

static struct addr ip(const char *text)
{
	struct addr a;

	if (!addr_parse_ip(str_of(text), 80, &a))
		fail_msg("'%s' was not read", text);
	return a;
}

static struct addr_net net(const char *text)
{
	struct addr_net n;

	if (!addr_parse_net(str_of(text), &n))
		fail_msg("'%s' was not read", text);
	return n;
}

static const char *shown(const struct addr *a, bool port)
{
	static char buf[80];
	struct out o;

	out_init(&o, buf, sizeof(buf) - 1);
	if (port)
		addr_out(&o, a);
	else
		addr_ip_out(&o, a);
	assert_true(out_ok(&o));
	buf[out_len(&o)] = '\0';
	return buf;
}

static void test_parse_ip(void **state)
{
	static const char *const bad[] = { "",
					   "1",
					   "127.1",
					   "1.2.3",
					   "1.2.3.",
					   ".1.2.3",
					   "1.2.3.4.",
					   "1.2.3.4.5",
					   "1.2.3.256",
					   "1.2.3.1000",
					   "01.2.3.4",
					   "1.2.3.00",
					   "0x7f.0.0.1",
					   "0x7f000001",
					   "2130706433",
					   "017700000001",
					   "1.2.3.4 ",
					   " 1.2.3.4",
					   "1.2.3.4/8",
					   "1.2.3.-4",
					   "+1.2.3.4",
					   "[1.2.3.4]",
					   "1.2.3.4:80",
					   "[::1",
					   "::1]",
					   "[]",
					   "[[::1]]",
					   ":",
					   ":::",
					   "::1%lo",
					   "[fe80::1%eth0]",
					   "1::2::3",
					   "12345::",
					   "::ffff:1.2.3",
					   "::ffff:127.1",
					   "::ffff:01.2.3.4",
					   "1:2:3:4:5:6:7:8:9",
					   "example.com",
					   "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000",
					   "localhost",
					   "a",
					   "::g" };
	struct addr a;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
		if (addr_parse_ip(str_of(bad[i]), 80, &a))
			fail_msg("'%s' was read", bad[i]);
	assert_false(addr_parse_ip(STR_NONE, 0, &a));
	assert_false(addr_parse_ip(STR("::1\0"), 0, &a));
	assert_false(addr_parse_ip(STR("1.2.3.4\0"), 0, &a));
	assert_true(addr_parse_ip(STR("1.2.3.4"), 65535, &a));
	assert_int_equal(a.len, sizeof(struct sockaddr_in));
	assert_int_equal(a.u.in.sin_family, AF_INET);
	assert_int_equal(ntohl(a.u.in.sin_addr.s_addr), 0x01020304);
	assert_int_equal(addr_port(&a), 65535);
	assert_true(addr_parse_ip(STR("[2001:DB8::1]"), 0, &a));
	assert_int_equal(a.len, sizeof(struct sockaddr_in6));
	assert_int_equal(a.u.in6.sin6_family, AF_INET6);
	assert_int_equal(addr_port(&a), 0);
	addr_set_port(&a, 443);
	assert_int_equal(addr_port(&a), 443);
	assert_int_equal(a.u.in6.sin6_port, htons(443));
	ip("0.0.0.0");
	ip("255.255.255.255");
	ip("::");
	ip("::ffff:1.2.3.4");
}

static void test_out(void **state)
{
	static const char *const same[] = { "0.0.0.0",
					    "255.255.255.255",
					    "10.0.200.9",
					    "::",
					    "::1",
					    "1::",
					    "2001:db8::1",
					    "fe80::1:0:0:1",
					    "1:2:3:4:5:6:7:8",
					    "::ffff:1.2.3.4",
					    "0:1:0:1:0:1:0:1",
					    "1:0:2::3",
					    "::2:3:4:5:6:7:8",
					    "1:2:3:4:5:6:7::",
					    "1:0:0:2::3",
					    "0:2:3:4:5:6:7:8",
					    "1:2:3:4:5:6:7:0",
					    "64:ff9b::7f00:1",
					    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" };
	struct addr a;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(same); i++) {
		a = ip(same[i]);
		if (!strcmp(same[i], "::2:3:4:5:6:7:8"))
			/* one zero group is not shortened */
			assert_string_equal(shown(&a, false), "0:2:3:4:5:6:7:8");
		else if (!strcmp(same[i], "1:2:3:4:5:6:7::"))
			assert_string_equal(shown(&a, false), "1:2:3:4:5:6:7:0");
		else
			assert_string_equal(shown(&a, false), same[i]);
	}
	a = ip("2001:0DB8:0000:0000:0001:0000:0000:0001");
	assert_string_equal(shown(&a, false), "2001:db8::1:0:0:1"); /* the first of equal runs */
	assert_string_equal(shown(&a, true), "[2001:db8::1:0:0:1]:80");
	a = ip("1.2.3.4");
	assert_string_equal(shown(&a, true), "1.2.3.4:80");
	memset(&a, 0, sizeof(a));
	assert_string_equal(shown(&a, true), "-");
}

/* What is printed is read back as the same address, and glibc agrees about random ones. */
static void test_out_random(void **state)
{
	char want[INET6_ADDRSTRLEN];

	(void)state;
	srandom(5);
	for (unsigned i = 0; i < 20000; i++) {
		struct addr a = ip("1:2:3:4:5:6:7:8"), b;

		for (unsigned k = 0; k < 16; k += 2)
			if (random() % 2)
				a.u.in6.sin6_addr.s6_addr[k] = a.u.in6.sin6_addr.s6_addr[k + 1] = 0;
			else
				a.u.in6.sin6_addr.s6_addr[k] = (uint8_t)(random() % 300);
		assert_true(addr_parse_ip(str_of(shown(&a, false)), 80, &b));
		assert_memory_equal(&a.u.in6.sin6_addr, &b.u.in6.sin6_addr, 16);
		inet_ntop(AF_INET6, &a.u.in6.sin6_addr, want, sizeof(want));
		if (!strchr(want, '.'))
			assert_string_equal(shown(&a, false), want);
	}
}

static void test_same(void **state)
{
	struct addr a = ip("1.2.3.4"), b = ip("::ffff:1.2.3.4"), c = ip("1.2.3.5");

	(void)state;
	assert_true(addr_same_ip(&a, &b));
	assert_true(addr_same(&a, &b));
	assert_false(addr_same_ip(&a, &c));
	addr_set_port(&b, 81);
	assert_true(addr_same_ip(&a, &b));
	assert_false(addr_same(&a, &b));
	addr_unmap(&b);
	assert_int_equal(b.u.sa.sa_family, AF_INET);
	assert_int_equal(b.len, sizeof(struct sockaddr_in));
	assert_string_equal(shown(&b, true), "1.2.3.4:81");
	addr_unmap(&b);
	assert_string_equal(shown(&b, true), "1.2.3.4:81");
	c = ip("::1.2.3.4");
	addr_unmap(&c); /* compatible, not mapped */
	assert_int_equal(c.u.sa.sa_family, AF_INET6);
}

static void test_parse_net(void **state)
{
	static const char *const bad[] = { "",
					   "/",
					   "/8",
					   "10.0.0.0/",
					   "10.0.0.0/33",
					   "10.0.0.1/8",
					   "10.0.0.0/08",
					   "10.0.0.0/ 8",
					   "10.0.0.0/8/8",
					   "10/8",
					   "10.0.0.0/-1",
					   "::/129",
					   "::1/127",
					   "fd00::/4294967304",
					   "[::1]/128",
					   "10.128.0.0/8",
					   "1.2.3.4/31.",
					   "2001:db8::1/64",
					   "::ffff:10.0.0.1/104" };
	struct addr_net n;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
		if (addr_parse_net(str_of(bad[i]), &n))
			fail_msg("'%s' was read", bad[i]);
	assert_int_equal(net("10.0.0.0/8").bits, 104);
	assert_int_equal(net("0.0.0.0/0").bits, 96);
	assert_int_equal(net("1.2.3.4").bits, 128);
	assert_int_equal(net("1.2.3.4/32").bits, 128);
	assert_int_equal(net("::").bits, 128);
	assert_int_equal(net("::/0").bits, 0);
	assert_int_equal(net("fd00::/8").bits, 8);
	assert_int_equal(net("fe80::/10").bits, 10);
}

static bool in(const char *a, const char *n)
{
	struct addr addr = ip(a);
	struct addr_net in_net = net(n);

	return addr_in_net(&addr, &in_net);
}

static void test_in_net(void **state)
{
	(void)state;
	assert_true(in("10.255.0.1", "10.0.0.0/8"));
	assert_false(in("11.0.0.0", "10.0.0.0/8"));
	assert_true(in("172.31.255.255", "172.16.0.0/12"));
	assert_false(in("172.32.0.0", "172.16.0.0/12"));
	assert_true(in("::ffff:10.1.2.3", "10.0.0.0/8"));
	assert_true(in("10.1.2.3", "::ffff:10.0.0.0/104"));
	assert_true(in("1.2.3.4", "0.0.0.0/0"));
	assert_false(in("::1", "0.0.0.0/0"));
	assert_true(in("::1", "::/0"));
	assert_false(in("1.2.3.4", "::/0"));
	assert_true(in("febf::1", "fe80::/10"));
	assert_false(in("fec0::1", "fe80::/10"));
	assert_true(in("1.2.3.4", "1.2.3.4"));
	assert_false(in("1.2.3.5", "1.2.3.4"));
}

static void test_find_net(void **state)
{
	struct addr_net nets[] = { net("10.0.0.0/8"), net("::/0"), net("10.20.0.0/16"),
				   net("0.0.0.0/0"), net("10.20.0.0/16") };
	struct addr a = ip("10.20.1.1"), b = ip("10.21.1.1"), c = ip("9.9.9.9"), d = ip("2001::1");

	(void)state;
	assert_ptr_equal(addr_find_net(&a, nets, 5), &nets[2]);
	assert_ptr_equal(addr_find_net(&b, nets, 5), &nets[0]);
	assert_ptr_equal(addr_find_net(&c, nets, 5), &nets[3]);
	assert_ptr_equal(addr_find_net(&d, nets, 5), &nets[1]);
	assert_null(addr_find_net(&d, nets, 1));
	assert_null(addr_find_net(&d, NULL, 0));
}

static void test_loopback(void **state)
{
	static const char *const yes[] = { "127.0.0.1", "127.255.255.255", "::1",
					   "::ffff:127.0.0.1" };
	static const char *const no[] = { "126.255.255.255", "128.0.0.0", "0.0.0.0", "::", "::2",
					  "::127.0.0.1",     "fe80::1" };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(yes); i++) {
		struct addr a = ip(yes[i]);

		assert_true(addr_is_loopback(&a));
	}
	for (unsigned i = 0; i < ARRAY_LEN(no); i++) {
		struct addr a = ip(no[i]);

		assert_false(addr_is_loopback(&a));
	}
}

/* First and last address of every special IPv4 range, and the neighbours outside. */
static const struct {
	const char *first, *last;
} special[] = {
	{ "0.0.0.0", "0.255.255.255" },       { "10.0.0.0", "10.255.255.255" },
	{ "100.64.0.0", "100.127.255.255" },  { "127.0.0.0", "127.255.255.255" },
	{ "168.63.129.16", "168.63.129.16" }, { "169.254.0.0", "169.254.255.255" },
	{ "172.16.0.0", "172.31.255.255" },   { "192.0.0.0", "192.0.0.255" },
	{ "192.0.2.0", "192.0.2.255" },       { "192.88.99.0", "192.88.99.255" },
	{ "192.168.0.0", "192.168.255.255" }, { "198.18.0.0", "198.19.255.255" },
	{ "198.51.100.0", "198.51.100.255" }, { "203.0.113.0", "203.0.113.255" },
	{ "224.0.0.0", "255.255.255.255" },
};

/* a.b.c.d in every IPv6 dress that carries it. */
static bool public_in_all(uint32_t v4, bool *all_same)
{
	uint8_t b[4] = { (uint8_t)(v4 >> 24), (uint8_t)(v4 >> 16), (uint8_t)(v4 >> 8),
			 (uint8_t)v4 };
	char quad[20], text[64];
	bool first;
	struct addr a;

	snprintf(quad, sizeof(quad), "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
	a = ip(quad);
	first = addr_is_public(&a);
	*all_same = true;
	for (unsigned i = 0; i < 6; i++) {
		switch (i) {
		case 0: snprintf(text, sizeof(text), "::ffff:%s", quad); break;
		case 1: snprintf(text, sizeof(text), "::%s", quad); break;
		case 2: snprintf(text, sizeof(text), "64:ff9b::%s", quad); break;
		case 3: snprintf(text, sizeof(text), "64:ff9b:1::%s", quad); break;
		case 4: snprintf(text, sizeof(text), "2002:%x:%x::1", v4 >> 16, v4 & 0xffff); break;
		default: /* Teredo: a public server, this client */
			snprintf(text, sizeof(text), "2001:0:808:808:0:0:%x:%x", ~v4 >> 16,
				 ~v4 & 0xffff);
		}
		a = ip(text);
		if (addr_is_public(&a) != first) {
			print_error("%s: %s is judged otherwise\n", quad, text);
			*all_same = false;
		}
	}
	return first;
}

static uint32_t v4_of(const char *text)
{
	return ntohl(ip(text).u.in.sin_addr.s_addr);
}

static bool is_special(uint32_t v4)
{
	for (unsigned i = 0; i < ARRAY_LEN(special); i++)
		if (v4 >= v4_of(special[i].first) && v4 <= v4_of(special[i].last))
			return true;
	return false;
}

static void check_v4(uint32_t v4)
{
	bool same;

	if (public_in_all(v4, &same) != !is_special(v4))
		fail_msg("%08x is judged wrong", v4);
	assert_true(same);
}

static void test_public_v4(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(special); i++) {
		check_v4(v4_of(special[i].first));
		check_v4(v4_of(special[i].last));
		check_v4(v4_of(special[i].first) - 1);
		check_v4(v4_of(special[i].last) + 1);
	}
	srandom(6);
	for (unsigned i = 0; i < 3000; i++)
		check_v4((uint32_t)random() << 1 ^ (uint32_t)random());
}

static void test_public_v6(void **state)
{
	static const char *const no[] = { "::",
					  "::1",
					  "::2",
					  "1::",
					  "100::1",
					  "100:0:0:1::1",
					  "64:ff9b:2::8.8.8.8",
					  "64:ff9b:1:7f00:0:100::",
					  "64:ff9b:1:808:8:800::",
					  "64:ff9b:0:1::8.8.8.8",
					  "200::1",
					  "1fff:ffff::1",
					  "2001::1",
					  "2001:1::1",
					  "2001:2::1",
					  "2001:10::1",
					  "2001:20::1",
					  "2001:1ff::1",
					  "2001:db8::1",
					  "2001:db8:ffff::1",
					  "3fff::1",
					  "3fff:fff::1",
					  "4000::1",
					  "5f00::1",
					  "fc00::1",
					  "fd00:ec2::254",
					  "fdff::1",
					  "fe80::1",
					  "febf::1",
					  "fec0::1",
					  "feff::1",
					  "ff02::1",
					  "ff0e::1",
					  "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
					  "2001:0:7f00:1:0:0:f7f7:f7f7",
					  "2002:a00:1::1",
					  "2002::1" };
	static const char *const yes[] = { "2001:200::1",      "2001:4860:4860::8888",
					   "2000::1",          "2606:4700::1111",
					   "2001:db7:ffff::1", "2001:db9::1",
					   "3ffe::1",          "3fff:1000::1",
					   "2002:808:808::1",  "2001:0:808:808:0:0:f7f7:f7f7",
					   "64:ff9b::808:808", "::ffff:8.8.8.8",
					   "2003::1",          "2a00:1450::1" };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(no); i++) {
		struct addr a = ip(no[i]);

		if (addr_is_public(&a))
			fail_msg("%s", no[i]);
	}
	for (unsigned i = 0; i < ARRAY_LEN(yes); i++) {
		struct addr a = ip(yes[i]);

		if (!addr_is_public(&a))
			fail_msg("%s", yes[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_ip),   cmocka_unit_test(test_out),
		cmocka_unit_test(test_out_random), cmocka_unit_test(test_same),
		cmocka_unit_test(test_parse_net),  cmocka_unit_test(test_in_net),
		cmocka_unit_test(test_find_net),   cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_public_v4),  cmocka_unit_test(test_public_v6),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
