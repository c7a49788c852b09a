/* Hosts to sites, paths to routes: exact, then the longest prefix on a segment border. */
#include "unit.h"

#include "route/route.h"

#include <stdio.h>

static struct budget budget = { .max = UINT64_MAX };
static struct slab slab;
static struct arena arena;

static int setup(void **state)
{
	(void)state;
	slab_init(&slab, "test", ARENA_FIRST, &budget);
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

static struct route_conf routes[] = {
	{ .name = STR("ping"), .exact = STR("/ping") },
	{ .name = STR("upload"), .prefix = STR("/upload") },
	{ .name = STR("deep"), .prefix = STR("/upload/big/files") },
	{ .name = STR("slash"), .prefix = STR("/dir/") },
	{ .name = STR("exact-upload"), .exact = STR("/upload/x") },
};

static const struct {
	const char *path, *route;
} paths[] = {
	{ "/ping", "ping" },
	{ "/ping/", NULL },
	{ "/pingx", NULL },
	{ "/upload", "upload" },
	{ "/upload/", "upload" },
	{ "/upload/a/b", "upload" },
	{ "/uploads", NULL },
	{ "/upload.x", NULL },
	{ "/upload/big", "upload" },
	{ "/upload/big/filesx", "upload" },
	{ "/upload/big/files", "deep" },
	{ "/upload/big/files/1", "deep" },
	{ "/upload/x", "exact-upload" },
	{ "/upload/x/y", "upload" },
	{ "/dir", NULL },
	{ "/dir/", "slash" },
	{ "/dir/a", "slash" },
	{ "/", NULL },
	{ "/UPLOAD", NULL },
};

static void check_path(const struct route_table *t, const char *path, const char *route)
{
	const struct route_conf *r = route_match(t, str_of(path));

	if (!route) {
		assert_null(r);
		return;
	}
	assert_non_null(r);
	assert_true(str_eq(r->name, str_of(route)));
}

static void test_paths(void **state)
{
	struct site_conf site = { .routes = routes, .n_routes = ARRAY_LEN(routes) };
	const struct route_table *t = route_compile(&arena, &site);

	(void)state;
	assert_non_null(t);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		check_path(t, paths[i].path, paths[i].route);
}

static void test_root_takes_the_rest(void **state)
{
	struct route_conf r[] = { { .name = STR("root"), .prefix = STR("/") },
				  { .name = STR("a"), .prefix = STR("/a") } };
	struct site_conf site = { .routes = r, .n_routes = 2 };
	const struct route_table *t = route_compile(&arena, &site);

	(void)state;
	assert_non_null(t);
	check_path(t, "/", "root");
	check_path(t, "/ab", "root");
	check_path(t, "/a", "a");
	check_path(t, "/a/b", "a");
	check_path(t, "*", NULL);
}

/* More segments than the table looks at: still the right one, or the nearest shorter. */
static void test_many_segments(void **state)
{
	struct route_conf r[] = { { .name = STR("root"), .prefix = STR("/") } };
	struct site_conf site = { .routes = r, .n_routes = 1 };
	const struct route_table *t = route_compile(&arena, &site);
	char path[2001];

	(void)state;
	for (int i = 0; i < 1000; i++)
		memcpy(path + 2 * i, "/a", 2);
	path[2000] = 0;
	check_path(t, path, "root");
}

static void test_ten_thousand_routes(void **state)
{
	static struct route_conf r[10000];
	static char text[10000][16];
	struct site_conf site = { .routes = r, .n_routes = 10000 };
	const struct route_table *t;

	(void)state;
	for (unsigned i = 0; i < 10000; i++) {
		snprintf(text[i], sizeof(text[i]), "/r%u", i);
		r[i] = (struct route_conf){ .index = i };
		if (i % 2)
			r[i].prefix = str_of(text[i]);
		else
			r[i].exact = str_of(text[i]);
	}
	t = route_compile(&arena, &site);
	assert_non_null(t);
	for (unsigned i = 0; i < 10000; i++) {
		const struct route_conf *got = route_match(t, str_of(text[i]));

		assert_non_null(got);
		assert_int_equal(got->index, i);
	}
}

static const struct str shop_hosts[] = { STR("www.example.com"), STR("*.example.com") };
static const struct str deep_hosts[] = { STR("*.api.example.com") };
static const struct str rest_hosts[] = { STR("*") };

static const struct {
	const char *host, *site;
} hosts[] = {
	{ "www.example.com", "shop" },
	{ "a.example.com", "shop" },
	{ "a.b.example.com", "shop" },
	{ "example.com", "rest" },
	{ "x.api.example.com", "deep" },
	{ "api.example.com", "shop" },
	{ "y.x.api.example.com", "deep" },
	{ "xexample.com", "rest" },
	{ "", "rest" },
	{ ".example.com", "rest" },
	{ "www.example.com.evil", "rest" },
};

static void test_hosts(void **state)
{
	struct site_conf shop = { .name = STR("shop"), .hosts = shop_hosts, .n_hosts = 2 };
	struct site_conf deep = { .name = STR("deep"), .hosts = deep_hosts, .n_hosts = 1 };
	struct site_conf rest = { .name = STR("rest"), .hosts = rest_hosts, .n_hosts = 1 };
	const struct site_conf *all[] = { &shop, &deep, &rest };
	const struct host_table *t = host_compile(&arena, all, 3);
	const struct host_table *strict = host_compile(&arena, all, 2);

	(void)state;
	assert_non_null(t);
	assert_non_null(strict);
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		const struct site_conf *got = host_match(t, str_of(hosts[i].host));

		assert_non_null(got);
		assert_true(str_eq(got->name, str_of(hosts[i].site)));
	}
	assert_null(host_match(strict, STR("other.org")));
	assert_null(host_match(strict, STR("")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_root_takes_the_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_segments, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ten_thousand_routes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hosts, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
