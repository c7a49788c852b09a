/* test_admin.c -- the admin port over real sockets, on both back ends: paths, tokens, who may ask,
 * framing, limits; the pulled series, as promtool reads them. */
#include "link_rig.h"

#include "ops/admin.h"
#include "ops/gauges.h"

#include <sys/wait.h>

struct port {
	struct rig *r;
	struct admin *admin;
	struct admin_conf conf;
	struct service_shared shared;
	int fd;
	uint16_t number;
};

static void port_open(struct port *p, struct rig *r, const struct admin_conf *conf)
{
	memset(p, 0, sizeof(*p));
	p->r = r;
	p->conf = *conf;
	p->shared.metrics = metrics_new(1);
	p->shared.budget = &r->budget;
	atomic_store(&p->shared.started, true);
	p->fd = rig_listen(&p->number);
	assert_int_equal(fcntl(p->fd, F_SETFL, O_NONBLOCK), 0);
	p->admin = admin_open(r->loop, &p->conf, p->fd, false, &p->shared);
	assert_non_null(p->admin);
}

static void port_close(struct port *p)
{
	admin_stop(&p->admin);
	assert_null(p->admin);
	close(p->fd);
	metrics_free(&p->shared.metrics);
}

static const struct admin_conf no_token = { .on = true };
static const struct admin_conf with_token = { .on = true, .token = STR("s3cret") };

/* --- the client --- */

static char got[1 << 20];
static size_t got_n;

/* 1: one more byte or more; 0: closed; -1: nothing yet. */
static int take(int fd)
{
	ssize_t n = recv(fd, got + got_n, sizeof(got) - 1 - got_n, MSG_DONTWAIT);

	if (n > 0) {
		got_n += (size_t)n;
		got[got_n] = '\0';
		return 1;
	}
	return n < 0 && errno == EAGAIN ? -1 : 0;
}

static size_t answer_length(bool head)
{
	const char *end = strstr(got, "\r\n\r\n"), *length = strcasestr(got, "Content-Length: ");

	if (!end)
		return SIZE_MAX;
	assert_non_null(length);
	return (size_t)(end + 4 - got) + (head ? 0 : strtoul(length + 16, NULL, 10));
}

static void say(int fd, const char *bytes)
{
	assert_int_equal(send(fd, bytes, strlen(bytes), MSG_NOSIGNAL), strlen(bytes));
}

static void hear(struct port *p, int fd, bool head)
{
	for (int i = 0; i < 4000 && got_n < answer_length(head); i++) {
		loop_turn(p->r->loop, 5);
		take(fd);
	}
	assert_int_equal(got_n, answer_length(head));
}

/* The whole answer to one request; the connection stays open. */
static const char *ask(struct port *p, int fd, const char *request)
{
	got_n = 0;
	got[0] = '\0';
	say(fd, request);
	hear(p, fd, strncmp(request, "HEAD", 4) == 0);
	return got;
}

static const char *get(struct port *p, const char *path, const char *fields)
{
	static char request[4096];
	int fd = rig_connect(p->number);

	snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path,
		 fields);
	ask(p, fd, request);
	close(fd);
	return got;
}

static void wait_closed(struct port *p, int fd)
{
	int last = -1;

	for (int i = 0; i < 4000 && last; i++) {
		loop_turn(p->r->loop, 5);
		last = take(fd);
	}
	assert_int_equal(last, 0);
	close(fd);
}

#define STATUS(answer, line) \
	assert_int_equal(    \
		strncmp(answer, "HTTP/1.1 " line "\r\n", strlen("HTTP/1.1 " line "\r\n")), 0)
#define HAS(answer, part)   assert_non_null(strstr(answer, part))
#define HASNT(answer, part) assert_null(strstr(answer, part))

/* --- tests --- */

static void answers(void **state)
{
	RIG(r, state);
	struct port p;
	int fd;

	port_open(&p, r, &no_token);
	fd = rig_connect(p.number);
	STATUS(ask(&p, fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
	HAS(got, "\r\n\r\nok\n");
	HAS(got, "Cache-Control: no-store\r\n");
	STATUS(ask(&p, fd, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
	HAS(got, "\r\n\r\nready\n");
	atomic_store(&p.shared.draining, true);
	STATUS(ask(&p, fd, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), "503 Service Unavailable");
	HAS(got, "\r\n\r\ndraining\n");
	STATUS(ask(&p, fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
	STATUS(ask(&p, fd, "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
	HAS(got, "Content-Length: 3\r\n");
	STATUS(ask(&p, fd, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"), "404 Not Found");
	STATUS(ask(&p, fd, "DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
	       "405 Method Not Allowed");
	HAS(got, "Allow: GET, HEAD\r\n");
	STATUS(ask(&p, fd, "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
	       "200 OK");
	HAS(got, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
	HAS(got, "Connection: close\r\n");
	HAS(got, "\n# TYPE ");
	wait_closed(&p, fd);
	port_close(&p);
}

static void http10(void **state)
{
	RIG(r, state);
	struct port p;
	int fd;

	port_open(&p, r, &no_token);
	fd = rig_connect(p.number);
	STATUS(ask(&p, fd, "GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), "200 OK");
	HAS(got, "Connection: keep-alive\r\n");
	STATUS(ask(&p, fd, "GET /metrics HTTP/1.0\r\n\r\n"), "200 OK");
	wait_closed(&p, fd);
	port_close(&p);
}

static void token(void **state)
{
	RIG(r, state);
	struct port p;

	port_open(&p, r, &with_token);
	STATUS(get(&p, "/healthz", ""), "200 OK");
	STATUS(get(&p, "/readyz", ""), "200 OK");
	STATUS(get(&p, "/metrics", ""), "401 Unauthorized");
	HAS(got, "WWW-Authenticate: Bearer");
	STATUS(get(&p, "/metrics", "Authorization: Bearer s3creT\r\n"), "401 Unauthorized");
	STATUS(get(&p, "/metrics", "Authorization: Bearer s3cre\r\n"), "401 Unauthorized");
	STATUS(get(&p, "/metrics", "Authorization: Bearer s3cret5\r\n"), "401 Unauthorized");
	STATUS(get(&p, "/metrics", "Authorization: Bearer \r\n"), "401 Unauthorized");
	STATUS(get(&p, "/metrics", "Authorization: Basic s3cret\r\n"), "401 Unauthorized");
	HASNT(got, "s3cret");
	STATUS(get(&p, "/metrics", "Authorization: bearer s3cret\r\n"), "200 OK");
	/* whoever has the token may have any name */
	STATUS(get(&p, "/metrics", "Authorization: Bearer s3cret\r\nOrigin: http://a.example\r\n"),
	       "200 OK");
	port_close(&p);
}

static void pages_of_others(void **state)
{
	static const char *const ours[] = { "localhost:9090", "127.0.0.1:9090", "[::1]:9090",
					    "culvert", "10.0.0.5" };
	static const char *const foreign[] = { "evil.example:9090", "127.0.0.1.evil.example",
					       "localhost.evil.example" };
	RIG(r, state);
	struct port p;
	char request[256];
	int fd;

	port_open(&p, r, &no_token);
	fd = rig_connect(p.number);
	for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
		snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n",
			 ours[i]);
		STATUS(ask(&p, fd, request), "200 OK");
	}
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
		snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n",
			 foreign[i]);
		STATUS(ask(&p, fd, request), "403 Forbidden");
		HASNT(got, "culvert_");
	}
	close(fd);
	STATUS(get(&p, "/metrics", "Origin: null\r\n"), "403 Forbidden");
	STATUS(get(&p, "/metrics", "Origin: http://localhost\r\n"), "403 Forbidden");
	STATUS(get(&p, "/metrics", "Sec-Fetch-Site: cross-site\r\n"), "403 Forbidden");
	STATUS(get(&p, "/metrics", "Sec-Fetch-Site: none\r\n"), "200 OK");
	HASNT(got, "Access-Control");
	port_close(&p);
}

static void allow_from(void **state)
{
	struct addr_net elsewhere, loopback;
	struct admin_conf conf = no_token;
	RIG(r, state);
	struct port p;

	assert_true(addr_parse_net(STR("192.0.2.0/24"), &elsewhere));
	assert_true(addr_parse_net(STR("127.0.0.0/8"), &loopback));
	conf.allow_from = &elsewhere;
	conf.n_allow_from = 1;
	port_open(&p, r, &conf);
	wait_closed(&p, rig_connect(p.number));
	p.conf.allow_from = &loopback;
	STATUS(get(&p, "/metrics", ""), "200 OK");
	port_close(&p);
}

static void pipelined_and_in_pieces(void **state)
{
	static const char both[] =
		"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HTTP/1.1\r\nHost: x\r\n"
		"Connection: close\r\n\r\n";
	RIG(r, state);
	struct port p;
	int fd;

	port_open(&p, r, &no_token);
	for (int whole = 0; whole < 2; whole++) {
		got_n = 0;
		fd = rig_connect(p.number);
		for (const char *c = both; *c && !whole; c++) {
			assert_int_equal(send(fd, c, 1, MSG_NOSIGNAL), 1);
			loop_turn(r->loop, 0);
		}
		if (whole)
			say(fd, both);
		wait_closed(&p, fd);
		HAS(got, "\r\n\r\nok\nHTTP/1.1 200 OK\r\n");
		assert_string_equal(got + got_n - 10, "\r\n\r\nready\n");
	}
	port_close(&p);
}

static void half_closed(void **state)
{
	RIG(r, state);
	struct port p;
	int fd;

	port_open(&p, r, &no_token);
	fd = rig_connect(p.number);
	got_n = 0;
	say(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
	shutdown(fd, SHUT_WR);
	wait_closed(&p, fd);
	HAS(got, "\r\n\r\nok\n");
	fd = rig_connect(p.number); /* and in the middle of a head */
	got_n = 0;
	say(fd, "GET /healthz HTTP/1.1\r\nHost");
	shutdown(fd, SHUT_WR);
	wait_closed(&p, fd);
	assert_int_equal(got_n, 0);
	port_close(&p);
}

static const char *ask_last(struct port *p, const char *request)
{
	int fd = rig_connect(p->number);

	got_n = 0;
	say(fd, request);
	wait_closed(p, fd);
	return got;
}

static void refused(void **state)
{
	static char long_head[40000];
	RIG(r, state);
	struct port p;

	port_open(&p, r, &no_token);
	STATUS(ask_last(&p, "GET /healthz HTTP/1.1\nHost: x\n\n"), "400 Bad Request");
	HAS(got, "Connection: close\r\n");
	STATUS(ask_last(&p, "GET /healthz HTTP/1.1\r\n\r\n"), "400 Bad Request");
	STATUS(ask_last(&p, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"),
	       "405 Method Not Allowed");
	HAS(got, "Connection: close\r\n");
	memset(long_head, 'a', sizeof(long_head) - 1);
	memcpy(long_head, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", 35);
	STATUS(ask_last(&p, long_head), "431 Request Header Fields Too Large");
	memcpy(long_head, "GET /aaaaaa", 11);
	memset(long_head + 11, 'a', 30);
	STATUS(ask_last(&p, long_head), "414 URI Too Long");
	port_close(&p);
}

/* Idle connections take nobody the port away, and its end closes all of them. */
static void more_than_there_are(void **state)
{
	RIG(r, state);
	struct port p;
	int fd[80];

	port_open(&p, r, &no_token);
	for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
		fd[i] = rig_connect(p.number);
		STATUS(ask(&p, fd[i], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
	}
	for (size_t i = 0; i < ARRAY_LEN(fd) - 64; i++)
		wait_closed(&p, fd[i]); /* the oldest made room */
	say(fd[70], "GET /metr");
	STATUS(ask(&p, fd[79], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
	admin_stop(&p.admin);
	for (size_t i = ARRAY_LEN(fd) - 64; i < ARRAY_LEN(fd); i++)
		wait_closed(&p, fd[i]);
	port_close(&p);
}

/* limits.memory is full, and still there is an answer. */
static void no_memory_left(void **state)
{
	RIG(r, state);
	struct port p;
	uint64_t rest;

	port_open(&p, r, &no_token);
	STATUS(get(&p, "/metrics", ""), "200 OK");
	rest = r->budget.max - atomic_load(&r->budget.used);
	assert_true(budget_take(&r->budget, rest));
	STATUS(get(&p, "/metrics", ""), "200 OK");
	budget_give(&r->budget, rest);
	port_close(&p);
}

static void check_by_promtool(const char *metrics)
{
	FILE *f;

	if (access("/usr/bin/promtool", X_OK) < 0)
		return;
	f = popen("/usr/bin/promtool check metrics", "w");
	assert_non_null(f);
	assert_true(fputs(metrics, f) >= 0);
	assert_int_equal(pclose(f), 0);
}

static uint64_t memory_of_all_pools(const char *metrics)
{
	static const char series[] = "\nculvert_memory_bytes{";
	uint64_t sum = 0;

	for (const char *at = metrics; (at = strstr(at, series)); at++)
		sum += strtoull(strchr(at, '}') + 1, NULL, 10);
	return sum;
}

static void gauges(void **state)
{
	RIG(r, state);
	struct log_sink *sinks[] = { log_sink_new("stdout", -1), log_sink_new("./a.log", -1) };
	struct gauges_params g = { .version = "1.2.3",
				   .io = "epoll",
				   .sinks = sinks,
				   .n_sinks = 2,
				   .n_shards = 1 };
	char text[128];
	struct port p;

	port_open(&p, r, &no_token);
	g.shared = &p.shared;
	g.loops[0] = r->loop;
	gauges_open(&g);
	atomic_store(&p.shared.draining, true);
	get(&p, "/metrics", "");
	HAS(got, "\nculvert_draining 1\n");
	HAS(got, "\nculvert_build_info{version=\"1.2.3\",io=\"epoll\"} 1\n");
	HAS(got, "\nculvert_log_dropped_total{sink=\"stdout\"} 0\n");
	HAS(got, "\nculvert_log_dropped_total{sink=\"./a.log\"} 0\n");
	HAS(got, "\nculvert_loop_turns_total{shard=\"0\"} ");
	HASNT(got, "\nculvert_loop_turns_total{shard=\"0\"} 0\n");
	HAS(got, "\nculvert_memory_bytes{pool=\"links\"} ");
	HASNT(got, "\nculvert_memory_bytes{pool=\"all\"} ");
	HASNT(got, "\nculvert_memory_bytes{pool=\"links\"} 0\n");
	assert_int_equal(memory_of_all_pools(got), atomic_load(&r->budget.used));
	/* three of them are ".", ".." and what counts; the client's socket is closed by now */
	snprintf(text, sizeof(text), "\nprocess_open_fds %d\n", rig_count_fds() - 3 + 1);
	HAS(got, text);
	HAS(got, "\nprocess_max_fds ");
	check_by_promtool(strstr(got, "\r\n\r\n") + 4);
	port_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(answers),         RIG_TEST(http10),     RIG_TEST(token),
		RIG_TEST(pages_of_others), RIG_TEST(allow_from), RIG_TEST(pipelined_and_in_pieces),
		RIG_TEST(half_closed),     RIG_TEST(refused),    RIG_TEST(more_than_there_are),
		RIG_TEST(no_memory_left),  RIG_TEST(gauges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
