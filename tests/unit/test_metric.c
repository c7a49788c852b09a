/* test_metric.c -- slots, buckets, the text, and threads that count while it is written. */
#include "unit.h"

#include "base/metric.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define L(...) ((const struct str[]){ __VA_ARGS__ })

static char *all;

static void scrape(struct metrics *m)
{
	size_t n = 0;
	char *text = metrics_text(m, &n);

	assert_non_null(text);
	free(all);
	all = calloc(1, n + 2);
	all[0] = '\n'; /* so that every line can be looked for with both ends */
	memcpy(all + 1, text, n);
	free(text);
}

static bool has(const char *line)
{
	char want[512];

	snprintf(want, sizeof(want), "\n%s\n", line);
	return strstr(all, want) != NULL;
}

static void assert_line(const char *line)
{
	if (!has(line))
		fail_msg("'%s' is not in\n%s", line, all);
}

static int teardown(void **state)
{
	(void)state;
	free(all);
	all = NULL;
	return 0;
}

static void test_counter_gauge(void **state)
{
	struct metrics *m = metrics_new(2);
	uint32_t a = metric_slot(m, METRIC_RETRIES, L(STR("app"), STR("connection_refused")));
	uint32_t b = metric_slot(m, METRIC_CONNECTIONS, L(STR("public"), STR("idle")));
	uint64_t *c0 = metric_cells(m, 0), *c1 = metric_cells(m, 1);

	(void)state;
	assert_true(a != 0 && b != 0 && a != b);
	assert_int_equal(metric_slot(m, METRIC_RETRIES, L(STR("app"), STR("connection_refused"))),
			 a);
	assert_true(metric_slot(m, METRIC_RETRIES, L(STR("app"), STR("dns_error"))) != a);
	metric_add(c0, a, 3);
	metric_add(c1, a, 4);
	metric_add(c0, b, 5);            /* up here, */
	metric_add(c1, b, (uint64_t)-2); /* down there */
	assert_int_equal(metric_sum(m, a), 7);
	scrape(m);
	assert_line("# HELP culvert_retries_total Attempts after the first.");
	assert_line("# TYPE culvert_retries_total counter");
	assert_line("culvert_retries_total{upstream=\"app\",reason=\"connection_refused\"} 7");
	assert_line("culvert_retries_total{upstream=\"app\",reason=\"dns_error\"} 0");
	assert_line("# TYPE culvert_connections gauge");
	assert_line("culvert_connections{listener=\"public\",state=\"idle\"} 3");
	assert_null(strstr(all, "culvert_dns_queries_total")); /* no series, no family */
	metric_set(c0, b, 0);
	scrape(m);
	assert_line("culvert_connections{listener=\"public\",state=\"idle\"} -2");
	metrics_free(&m);
	assert_null(m);
	metrics_free(&m);
}

static void test_labels(void **state)
{
	struct metrics *m = metrics_new(1);
	char big[3000];

	(void)state;
	memset(big, 'x', sizeof(big));
	metric_add(metric_cells(m, 0), metric_slot(m, METRIC_DRAINING, NULL), 1);
	metric_slot(m, METRIC_DNS, L(STR("a\"b\\c\nd")));
	/* What could be taken for another series' labels is not. */
	assert_int_not_equal(metric_slot(m, METRIC_RETRIES, L(STR("a\",reason=\"b"), STR("c"))),
			     metric_slot(m, METRIC_RETRIES, L(STR("a"), STR("b\",reason=\"c"))));
	assert_int_equal(metric_slot(m, METRIC_DNS, L((struct str){ .p = big, .n = sizeof(big) })),
			 0);
	scrape(m);
	assert_line("culvert_draining 1");
	assert_line("culvert_dns_queries_total{result=\"a\\\"b\\\\c\\nd\"} 0");
	assert_line("culvert_metric_series_refused_total 1");
	metrics_free(&m);
}

static void test_histogram(void **state)
{
	static const struct {
		uint64_t us;
		unsigned bucket;
	} v[] = {
		{ 0, 0 },
		{ 1, 0 },
		{ 500, 0 },
		{ 501, 1 },
		{ 1000, 1 },
		{ 1001, 2 },
		{ 2000, 2 },
		{ 2001, 3 },
		{ 500ull << 16, 16 },
		{ (500ull << 16) + 1, 17 },
		{ 500ull << 17, 17 },
		{ (500ull << 17) + 1, 18 },
		{ UINT64_MAX, 18 },
	};
	struct metrics *m = metrics_new(2);
	uint32_t slot = metric_slot(m, METRIC_DURATION, L(STR("public")));
	uint32_t other = metric_slot(m, METRIC_DURATION, L(STR("egress")));

	(void)state;
	assert_int_equal(other, slot + HISTOGRAM_CELLS);
	for (unsigned i = 0; i < ARRAY_LEN(v); i++) {
		uint64_t *cells = metric_cells(m, i % 2), before = cells[slot + v[i].bucket],
			 sum = metric_sum(m, slot + HISTOGRAM_BUCKETS);

		metric_observe_us(cells, slot, v[i].us);
		assert_int_equal(cells[slot + v[i].bucket], before + 1);
		assert_true(metric_sum(m, slot + HISTOGRAM_BUCKETS) == sum + v[i].us);
	}
	metric_observe_us(metric_cells(m, 0), other, 1250000);
	metric_observe_us(metric_cells(m, 1), other, 7);
	scrape(m);
	assert_line("# TYPE culvert_request_duration_seconds histogram");
	assert_line("culvert_request_duration_seconds_bucket{listener=\"public\",le=\"0.0005\"} 3");
	assert_line("culvert_request_duration_seconds_bucket{listener=\"public\",le=\"0.001\"} 5");
	assert_line(
		"culvert_request_duration_seconds_bucket{listener=\"public\",le=\"65.536\"} 11");
	assert_line("culvert_request_duration_seconds_bucket{listener=\"public\",le=\"+Inf\"} 13");
	assert_line("culvert_request_duration_seconds_count{listener=\"public\"} 13");
	assert_line("culvert_request_duration_seconds_bucket{listener=\"egress\",le=\"1.024\"} 1");
	assert_line("culvert_request_duration_seconds_bucket{listener=\"egress\",le=\"2.048\"} 2");
	assert_line("culvert_request_duration_seconds_sum{listener=\"egress\"} 1.250007");
	assert_line("culvert_request_duration_seconds_count{listener=\"egress\"} 2");
	metrics_free(&m);
}

static double pulled(void *arg)
{
	return *(double *)arg;
}

static void test_pull(void **state)
{
	struct metrics *m = metrics_new(1);
	double a = 1234567890123.0, b = 0.25;

	(void)state;
	metric_pull(m, METRIC_OPEN_FDS, NULL, pulled, &b);
	metric_pull(m, METRIC_OPEN_FDS, NULL, pulled, &a); /* replaces */
	metric_pull(m, METRIC_MEMORY, L(STR("segs")), pulled, &b);
	scrape(m);
	assert_line("process_open_fds 1234567890123");
	assert_line("culvert_memory_bytes{pool=\"segs\"} 0.25");
	metrics_free(&m);
}

/* More series than there are cells: the rest counts nowhere, and harms nobody. */
static void test_full(void **state)
{
	struct metrics *m = metrics_new(1);
	uint32_t first = metric_slot(m, METRIC_DRAINING, NULL), slot = 1, refused = 0;
	uint64_t *cells = metric_cells(m, 0);
	char name[32];

	(void)state;
	for (unsigned i = 0; i < METRIC_SLOTS + 100; i++) {
		uint32_t n = (uint32_t)snprintf(name, sizeof(name), "u%u", i);

		slot = metric_slot(m, METRIC_UP_REUSES,
				   L((struct str){ .p = name, .n = n }, STR("s")));
		refused += slot == 0;
		assert_true(slot == 0 || slot > first);
	}
	assert_int_equal(slot, 0);
	assert_int_equal(refused, 100 + HISTOGRAM_CELLS + 1);
	assert_int_equal(metric_slot(m, METRIC_DURATION, L(STR("x"))), 0);
	metric_observe_us(cells, 0, UINT64_MAX);
	metric_observe_us(cells, 0, 1);
	assert_int_equal(metric_sum(m, first), 0);
	assert_int_equal(metric_slot(m, METRIC_DRAINING, NULL), first);
	scrape(m);
	snprintf(name, sizeof(name), "%u", refused + 1);
	assert_non_null(strstr(all, "\nculvert_metric_series_refused_total "));
	assert_memory_equal(strstr(all, "\nculvert_metric_series_refused_total ") + 37, name,
			    strlen(name));
	assert_line("culvert_upstream_reuses_total{upstream=\"u0\",server=\"s\"} 0");
	metrics_free(&m);
}

/* --- threads --- */

struct counter {
	pthread_t thread;
	struct metrics *m;
	unsigned shard;
	uint32_t slot, histogram;
};

static void *count(void *arg)
{
	struct counter *c = arg;
	uint64_t *cells = metric_cells(c->m, c->shard);

	for (unsigned i = 0; i < 100000; i++) {
		metric_add(cells, c->slot, 1);
		metric_observe_us(cells, c->histogram, i);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct metrics *m = metrics_new(2);
	struct counter c[2];
	char name[32];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		c[i] = (struct counter){ .m = m,
					 .shard = i,
					 .slot = metric_slot(m, METRIC_DRAINING, NULL),
					 .histogram =
						 metric_slot(m, METRIC_DURATION, L(STR("x"))) };
		assert_int_equal(pthread_create(&c[i].thread, NULL, count, &c[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++) { /* series are made, and texts, while they count */
		uint32_t n = (uint32_t)snprintf(name, sizeof(name), "r%u", i);

		assert_true(metric_slot(m, METRIC_DNS, L((struct str){ .p = name, .n = n })) != 0);
		scrape(m);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(c[i].thread, NULL);
	scrape(m);
	assert_line("culvert_draining 200000");
	assert_line("culvert_request_duration_seconds_count{listener=\"x\"} 200000");
	assert_line("culvert_request_duration_seconds_sum{listener=\"x\"} 9999.9");
	metrics_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counter_gauge), cmocka_unit_test(test_labels),
		cmocka_unit_test(test_histogram),     cmocka_unit_test(test_pull),
		cmocka_unit_test(test_full),          cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
