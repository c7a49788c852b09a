/* Who may ask, and what the forward direction may reach. */
#include "unit.h"

#include "policy/policy.h"

static struct addr ip(const char *text, uint16_t port)
{
	struct addr a;

	assert_true(addr_parse_ip(str_of(text), port, &a));
	return a;
}

static struct addr_net net(const char *text)
{
	struct addr_net n;

	assert_true(addr_parse_net(str_of(text), &n));
	return n;
}

static bool may_dial(const struct forward_conf *f, const char *text, uint16_t port)
{
	struct addr a = ip(text, port);

	return access_dial(f, &a);
}

static void test_g01_private_ranges_are_denied(void **state)
{
	static const char *const denied[] = { "127.0.0.1",
					      "127.1.2.3",
					      "10.0.0.1",
					      "172.16.0.1",
					      "192.168.1.1",
					      "169.254.169.254",
					      "100.64.0.1",
					      "0.0.0.0",
					      "224.0.0.1",
					      "255.255.255.255",
					      "::1",
					      "::",
					      "fe80::1",
					      "fd00::1",
					      "::ffff:127.0.0.1",
					      "64:ff9b::7f00:1",
					      "2002:7f00:1::1",
					      "ff02::1" };
	struct forward_conf f = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(denied); i++)
		assert_false(may_dial(&f, denied[i], 80));
	assert_true(may_dial(&f, "93.184.216.34", 80));
	assert_true(may_dial(&f, "2606:2800:220:1::1", 443));
}

static void test_most_specific_wins_and_a_tie_denies(void **state)
{
	struct addr_net deny[] = { net("203.0.114.0/24"), net("10.20.30.0/24"), net("8.8.8.0/24") };
	struct addr_net except[] = { net("10.20.0.0/16"), net("8.8.8.0/24"), net("10.20.30.40") };
	struct forward_conf f = { .deny_to = deny,
				  .n_deny_to = 3,
				  .deny_to_except = except,
				  .n_deny_to_except = 3 };

	(void)state;
	assert_true(may_dial(&f, "10.20.1.1", 80));
	assert_false(may_dial(&f, "10.20.30.1", 80));
	assert_true(may_dial(&f, "10.20.30.40", 80));
	assert_false(may_dial(&f, "10.21.0.1", 80));
	assert_false(may_dial(&f, "203.0.114.9", 80));
	assert_false(may_dial(&f, "8.8.8.8", 80));
	assert_true(may_dial(&f, "8.8.4.4", 80));
}

static void test_own_ports_stay_denied(void **state)
{
	struct addr own[] = { ip("127.0.0.1", 9090), ip("0.0.0.0", 3128) };
	struct addr_net except[] = { net("127.0.0.0/8") };
	struct forward_conf f = { .deny_to_except = except,
				  .n_deny_to_except = 1,
				  .own = own,
				  .n_own = 2 };

	(void)state;
	assert_true(may_dial(&f, "127.0.0.1", 8080));
	assert_false(may_dial(&f, "127.0.0.1", 9090));
	assert_false(may_dial(&f, "127.0.0.1", 3128));
	assert_false(may_dial(&f, "::ffff:127.0.0.1", 9090));
}

static void test_g03_g04_targets(void **state)
{
	static const struct str hosts[] = { STR("github.com"), STR("*.github.com"),
					    STR("192.0.2.7") };
	static const uint16_t ports[] = { 80, 443 };
	struct forward_conf f = { .allow_ports = ports, .n_allow_ports = 2 };

	(void)state;
	assert_int_equal(access_target(&f, STR("example.com"), false, 443)->id, WHY_NONE);
	assert_int_equal(access_target(&f, STR("example.com"), false, 25)->id, WHY_PORT_DENIED);
	f.allow_hosts = hosts;
	f.n_allow_hosts = 3;
	f.has_allow_hosts = true;
	assert_int_equal(access_target(&f, STR("github.com"), false, 443)->id, WHY_NONE);
	assert_int_equal(access_target(&f, STR("api.github.com"), false, 443)->id, WHY_NONE);
	assert_int_equal(access_target(&f, STR("a.b.github.com"), false, 443)->id, WHY_NONE);
	assert_int_equal(access_target(&f, STR("xgithub.com"), false, 443)->id, WHY_HOST_DENIED);
	assert_int_equal(access_target(&f, STR(".github.com"), false, 443)->id, WHY_HOST_DENIED);
	assert_int_equal(access_target(&f, STR("github.com.evil"), false, 443)->id,
			 WHY_HOST_DENIED);
	assert_int_equal(access_target(&f, STR("192.0.2.7"), true, 443)->id, WHY_NONE);
	assert_int_equal(access_target(&f, STR("192.0.2.8"), true, 443)->id, WHY_HOST_DENIED);
}

static void test_clients(void **state)
{
	struct addr_net nets[] = { net("10.0.0.0/8") };
	struct addr in = ip("10.1.2.3", 1), out = ip("11.0.0.1", 1),
		    mapped = ip("::ffff:10.1.2.3", 1);

	(void)state;
	assert_true(access_from(nets, 0, &out));
	assert_true(access_from(nets, 1, &in));
	assert_true(access_from(nets, 1, &mapped));
	assert_false(access_from(nets, 1, &out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_g01_private_ranges_are_denied),
		cmocka_unit_test(test_most_specific_wins_and_a_tie_denies),
		cmocka_unit_test(test_own_ports_stay_denied),
		cmocka_unit_test(test_g03_g04_targets),
		cmocka_unit_test(test_clients),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
