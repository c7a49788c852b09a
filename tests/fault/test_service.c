/* Every op of the loop fails once, at each place of a GET, a POST with a body, a CONNECT and an
 * upgrade, on both back ends.
 *
 * One thread plays all: it turns the loop of a real service, and between turns the client and the
 * origin, which are plain sockets.  For each (scenario, kind of op, error) the n-th op of that kind
 * fails, n = 1, 2, … until a run has met no fault.  Always must hold: it ends in bounded time, the
 * client sees an answer or the end, the next request works, everything is given back. */
#include "../unit/unit.h"

#include "base/log.h"
#include "loop/fault.h"
#include "ops/ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BODY     100000u
#define N_MAX    60u
#define LIMIT_MS 8000 /* of one exchange; a fault may cost a rest of 100 ms, never seconds */

struct scenario {
	const char *name;
	bool forward, body;
	const char *head; /* what the client sends; NULL: CONNECT to the origin */
	/* what the origin says to a complete request; NULL: it echoes (a tunnel) */
	const char *answer;
	unsigned good; /* the status without a fault */
};

static const struct scenario scenarios[] = {
	{ "GET", false, false, "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200 },
	{ "POST", false, true, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
	  "HTTP/1.1 201 OK\r\nContent-Length: 2\r\n\r\nok", 201 },
	{ "CONNECT", true, false, NULL, NULL, 200 },
	{ "upgrade", false, false,
	  "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
	  "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 101 },
};

static const struct {
	uint8_t kind;
	int32_t res;
	uint32_t send_max, delay;
	const char *name;
} faults[] = {
	{ OP_ACCEPT, -EMFILE, 0, 0, "accept EMFILE" },
	{ OP_ACCEPT, -ECONNABORTED, 0, 0, "accept ECONNABORTED" },
	{ OP_CONNECT, -ECONNREFUSED, 0, 0, "connect refused" },
	{ OP_CONNECT, -ETIMEDOUT, 0, 0, "connect timeout" },
	{ OP_CONNECT, -EADDRNOTAVAIL, 0, 0, "connect no port" },
	{ OP_RECV, -ECONNRESET, 0, 0, "recv reset" },
	{ OP_RECV, -ENOBUFS, 0, 0, "recv no buffers" },
	{ OP_SEND, -EPIPE, 0, 0, "send broken pipe" },
	{ OP_SEND, 0, 7, 0, "short send" },
	{ OP_SEND, 0, 0, 3, "late send" },
	{ OP_RECV, 0, 0, 3, "late recv" },
	{ OP_POLL, -ENOMEM, 0, 0, "poll no memory" },
	{ FAULT_SOCKET, -EMFILE, 0, 0, "socket EMFILE" },
};

struct world {
	struct budget budget;
	struct loop *loop;
	struct config *config;
	struct service_shared shared;
	struct service *service;
	struct fault_plan plan;
	int listen[2], origin;
	int client, server; /* -1: none */
	bool done;
	char got[4096], asked[BODY + 4096];
	uint32_t n_got, n_asked, n_sent;
	bool client_over, answered;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int listener(uint16_t *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
	*port = ntohs(sin.sin_port);
	return fd;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in sin;
	socklen_t n = sizeof(sin);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
	return ntohs(sin.sin_port);
}

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- the service ---- */
static const char template[] =
	"workers: 1\n"
	"listeners:\n"
	"  - { name: web, bind: \"127.0.0.1:1\", serve: web }\n"
	"  - { name: fwd, bind: \"127.0.0.1:2\", serve: forward }\n"
	"forward: { allow_ports: [%u], deny_to_except: [127.0.0.1] }\n"
	"sites: [{ name: s, hosts: [\"*\"], routes: [{ match: { prefix: / }, upstream: o }] }]\n"
	"upstreams: { o: { servers: [\"http://127.0.0.1:%u\"] } }\n"
	"access_log: { to: off }\n";

static void load(struct world *w, uint16_t port)
{
	struct conf_report r = { 0 };
	char text[1024];
	struct plan *plan;
	int n = snprintf(text, sizeof(text), template, port, port);

	w->config = config_load_text("test", text, (size_t)n, &r);
	if (!w->config)
		fprintf(stderr, "%.*s\n", (int)r.n, r.text);
	assert_non_null(w->config);
	free(r.text);
	plan = w->config->plan;
	plan->pseudonym = STR("test");
	for (uint32_t i = 0; i < plan->n_upstreams; i++) {
		plan->upstreams[i].live = upstream_new(&plan->upstreams[i], w->shared.metrics);
		assert_non_null(plan->upstreams[i].live);
	}
}

static void world_open(struct world *w, enum loop_io io)
{
	static const bool not_shared[2] = { false, false };
	struct loop_params lp = { .io = io,
				  .budget = &w->budget,
				  .fds_max = 256,
				  .fault = &w->plan };
	struct service_params sp = { .shared = &w->shared,
				     .listen_fds = w->listen,
				     .listen_shared = not_shared };
	uint16_t port;
	char text[128];

	w->budget.max = 64 << 20;
	w->client = w->server = -1;
	w->shared.budget = &w->budget;
	w->shared.metrics = metrics_new(1);
	w->shared.handover = handover_new(1);
	w->origin = listener(&port);
	load(w, port);
	w->listen[0] = listener(&port);
	w->listen[1] = listener(&port);
	w->loop = loop_new(&lp, text);
	assert_non_null(w->loop);
	sp.loop = w->loop;
	sp.plan = w->config->plan;
	w->service = service_open(&sp);
	assert_non_null(w->service);
}

static void on_done(void *arg)
{
	*(bool *)arg = true;
}

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void world_close(struct world *w)
{
	bool done = false;
	int64_t until = now_ms() + LIMIT_MS;
	struct plan *plan = w->config->plan;

	shut(&w->client);
	shut(&w->server);
	service_stop(w->service, on_done, &done);
	while (!done && now_ms() < until)
		loop_turn(w->loop, 5);
	assert_true(done);
	service_close(&w->service);
	loop_free(&w->loop);
	for (uint32_t i = 0; i < plan->n_upstreams; i++)
		upstream_free(&plan->upstreams[i].live);
	metrics_free(&w->shared.metrics);
	handover_free(&w->shared.handover);
	config_free(&w->config);
	close(w->listen[0]);
	close(w->listen[1]);
	close(w->origin);
	assert_int_equal(w->budget.used, 0);
}

/* ---- the peers ---- */
static void client_open(struct world *w, const struct scenario *s)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char head[512];
	int n;

	if (s->head)
		n = snprintf(head, sizeof(head), "%s", s->head);
	else
		n = snprintf(head, sizeof(head), "CONNECT 127.0.0.1:%u HTTP/1.1\r\nHost: a\r\n\r\n",
			     port_of(w->origin));
	w->n_got = w->n_asked = w->n_sent = 0;
	w->client_over = w->answered = false;
	w->got[0] = 0;
	sin.sin_port = htons(port_of(w->listen[s->forward]));
	w->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(w->client, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(fcntl(w->client, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(send(w->client, head, (size_t)n, MSG_NOSIGNAL), n);
}

static void client_step(struct world *w, const struct scenario *s)
{
	static char body[BODY];
	ssize_t n;

	if (s->body && w->n_sent < BODY) {
		n = send(w->client, body, BODY - w->n_sent, MSG_NOSIGNAL);
		w->n_sent += n > 0 ? (uint32_t)n : 0;
	}
	n = recv(w->client, w->got + w->n_got, sizeof(w->got) - 1 - w->n_got, 0);
	if (n > 0)
		w->n_got += (uint32_t)n;
	if (n == 0 || (n < 0 && errno != EAGAIN))
		w->client_over = true;
	w->got[w->n_got] = 0;
}

static bool request_complete(const struct world *w, const struct scenario *s)
{
	const char *end = memmem(w->asked, w->n_asked, "\r\n\r\n", 4);

	return end && (!s->body || w->n_asked - (uint32_t)(end + 4 - w->asked) >= BODY);
}

static void server_step(struct world *w, const struct scenario *s)
{
	ssize_t n;

	if (w->server < 0) {
		w->server = accept4(w->origin, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		w->n_asked = 0;
	}
	if (w->server < 0)
		return;
	n = recv(w->server, w->asked + w->n_asked, sizeof(w->asked) - w->n_asked, 0);
	if (n > 0)
		w->n_asked += (uint32_t)n;
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		shut(&w->server);
		return;
	}
	if (s->answer && !w->answered && request_complete(w, s)) {
		w->answered = true;
		(void)!send(w->server, s->answer, strlen(s->answer), MSG_NOSIGNAL);
	}
}

static bool has_head(const struct world *w)
{
	return strstr(w->got, "\r\n\r\n") != NULL;
}

static unsigned status_of(const struct world *w)
{
	return has_head(w) ? (unsigned)strtoul(w->got + 9, NULL, 10) : 0;
}

/* One request, to its answer or its end; 0: the client saw the end and no answer. */
static unsigned exchange(struct world *w, const struct scenario *s)
{
	int64_t until = now_ms() + LIMIT_MS;
	unsigned status;

	client_open(w, s);
	while (!has_head(w) && !w->client_over) {
		if (now_ms() >= until)
			service_dump(w->service, 2);
		assert_true(now_ms() < until);
		loop_turn(w->loop, 2);
		server_step(w, s);
		client_step(w, s);
	}
	status = status_of(w);
	shut(&w->client);
	if (!s->answer || s->good == 101)
		shut(&w->server);
	for (int i = 0; i < 20; i++) {
		loop_turn(w->loop, 1);
		server_step(w, s);
	}
	return status;
}

/* True: the fault was met. */
static bool run(enum loop_io io, const struct scenario *s, unsigned fault, unsigned nth)
{
	static struct world w;
	unsigned before = open_fds(), hits;

	memset(&w, 0, sizeof(w));
	w.plan.n_rules = 1;
	print_message("# %s, %s, the %u.\n", s->name, faults[fault].name, nth);
	w.plan.rules[0] = (struct fault_rule){ .kind = faults[fault].kind,
					       .nth = nth,
					       .res = faults[fault].res,
					       .delay = faults[fault].delay,
					       .send_max = faults[fault].send_max };
	world_open(&w, io);
	(void)exchange(&w, s);
	hits = fault_hits(w.loop);
	shut(&w.server);
	w.answered = false;
	if (hits) { /* the fault is over: the next one is served */
		unsigned status = exchange(&w, s);

		if (status != s->good)
			print_error("%s, %s, the %u.: then %u: %s\n", s->name, faults[fault].name,
				    nth, status, w.got);
		assert_int_equal(status, s->good);
	}
	world_close(&w);
	assert_int_equal(open_fds(), before);
	return hits > 0;
}

static void sweep(enum loop_io io, const struct scenario *s)
{
	for (unsigned f = 0; f < ARRAY_LEN(faults); f++) {
		unsigned nth = 1;

		while (nth < N_MAX && run(io, s, f, nth))
			nth++;
		assert_true(nth < N_MAX);
	}
}

static void sweep_all(enum loop_io io)
{
	for (unsigned i = 0; i < ARRAY_LEN(scenarios); i++)
		sweep(io, &scenarios[i]);
}

static void test_epoll(void **state)
{
	(void)state;
	sweep_all(LOOP_EPOLL);
}

static void test_uring(void **state)
{
	char text[128];

	(void)state;
	if (loop_probe_uring(text) < 0)
		skip();
	sweep_all(LOOP_URING);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_epoll),
					    cmocka_unit_test(test_uring) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
