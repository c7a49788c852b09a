/* test_conf.c -- the loader: what a file becomes, what is said about a bad one, what is printed. */
#include "unit.h"

#include "base/machine.h"
#include "ops/ops.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SITES \
	"sites: [{ name: s, hosts: [\"*\"], routes: [{ match: { prefix: / }, respond: {} }] }]\n"
#define WEB_LISTENER    "listeners: [{ name: a, bind: \"127.0.0.1:1\", serve: web }]\n"
#define WEB             WEB_LISTENER SITES
#define LISTENERS(rows) "listeners:\n" rows SITES
#define SITE(text)      WEB_LISTENER "sites:\n  - " text
#define ROUTES(rows)                                           \
	SITE("name: s\n    hosts: [\"*\"]\n    routes:\n" rows \
	     "upstreams: { app: { servers: [\"http://a\"] } }\n")
#define UPSTREAMS(text)                               \
	WEB_LISTENER                                  \
	"sites: [{ name: s, hosts: [\"*\"], routes: " \
	"[{ match: { prefix: / }, upstream: app }] }]\nupstreams:\n" text

/* The sample of the interface document, as far as this version has it. */
static const char sample[] =
	"workers: 3\n"
	"io: epoll\n"
	"listeners:\n"
	"  - { name: public, bind: \"*:80\", serve: web, sites: [shop] }\n"
	"  - { name: local, bind: \"unix:/tmp/web.sock\", mode: \"0660\", serve: web }\n"
	"  - { name: lb, bind: \"10.0.0.5:8081\", serve: web,\n"
	"      proxy_protocol: { from: [10.0.0.0/8], timeout: 4s } }\n"
	"  - { name: egress, bind: 10.0.0.5:3128, serve: forward, allow_from: [10.0.0.0/8] }\n"
	"forward:\n"
	"  allow_hosts: [github.com, \"*.GitHub.com\"]\n"
	"  allow_ports: [80, 443, 8443]\n"
	"  deny_to: [203.0.113.0/24]\n"
	"  deny_to_except: [10.20.0.0/16]\n"
	"sites:\n"
	"  - name: shop\n"
	"    hosts: [WWW.example.com, \"*.example.com\"]\n"
	"    routes:\n"
	"      - { match: { exact: /ping }, respond: { status: 200, body: \"ok\\n\" } }\n"
	"      - { match: { exact: /old }, redirect: { to: /new, status: 307 } }\n"
	"      - { name: uploads, match: { prefix: /upload }, upstream: app,\n"
	"          limits: { request_body: 20GiB } }\n"
	"      - { name: reports, match: { prefix: /reports }, upstream: app,\n"
	"          timeouts: { first_byte: 10m } }\n"
	"      - { name: rest, match: { prefix: / }, upstream: app }\n"
	"upstreams:\n"
	"  app:\n"
	"    balance: p2c\n"
	"    servers:\n"
	"      - http://10.0.0.1:8080\n"
	"      - { url: \"http://App.internal\", weight: 2, max_connections: 7 }\n"
	"      - \"unix:/run/app.sock\"\n"
	"      - http://[::1]:81\n"
	"    host: app.internal:99\n"
	"    retry: { attempts: 4 }\n"
	"    eject: { failures: off, time: 11s }\n"
	"trusted_proxies: [10.0.0.0/8, \"::1\"]\n"
	"resolver: { servers: [1.1.1.1, \"[::1]:5353\"], timeout: 1s, attempts: 3,\n"
	"            negative_ttl: off, stale: 2h, prefer: ipv6 }\n"
	"timeouts: { connect: 6s, total: 100ms, tunnel_idle: off }\n"
	"limits: { connections: 77, memory: 100MiB, request_head: 16KiB, upstream_pool: off }\n"
	"client_half_close: abort\n"
	"drain: { delay: 0s, deadline: 21s }\n"
	"access_log: { to: ./access.log, format: combined, query: false }\n"
	"log: { to: ./access.log, level: debug, format: json }\n"
	"admin: { bind: 127.0.0.1:9090, token: \"${CULVERT_TEST_TOKEN}\" }\n";

/* ---- helpers ---- */

static struct config *load(const char *text)
{
	struct conf_report r;
	struct config *c = config_load_text("/tmp/t.yaml", text, strlen(text), &r);

	if (!c || r.errors || r.warnings)
		fail_msg("was not accepted:\n%.*s", (int)r.n, r.text);
	free(r.text);
	return c;
}

/* The whole report of a text that is not accepted. */
static char *refused(const char *text, size_t n)
{
	struct conf_report r;
	struct config *c = config_load_text("t.yaml", text, n, &r);

	if (c)
		fail_msg("was accepted: %.*s", (int)n, text);
	assert_non_null(r.text);
	return r.text;
}

/* Only the lines that begin with the file's name, without it. */
static char *messages(const struct conf_report *r)
{
	char *out = calloc(1, r->n + 1), *to = out;

	assert_non_null(out);
	for (const char *p = r->text; *p;) {
		size_t n = strcspn(p, "\n") + 1;

		if (strncmp(p, "t.yaml:", 7) == 0) {
			size_t skip = p[7] == ' ' ? 8 : 7;

			memcpy(to, p + skip, n - skip);
			to += n - skip;
		}
		p += n;
	}
	return out;
}

static char *written(void (*write_it)(const struct config *, int), const struct config *c)
{
	int fd = memfd_create("out", MFD_CLOEXEC);
	struct stat st;
	char *text;

	assert_true(fd >= 0);
	write_it(c, fd);
	assert_int_equal(fstat(fd, &st), 0);
	text = calloc(1, (size_t)st.st_size + 1);
	assert_non_null(text);
	assert_int_equal(pread(fd, text, (size_t)st.st_size, 0), st.st_size);
	close(fd);
	return text;
}

static void starter(const struct config *c, int fd)
{
	(void)c;
	config_starter(fd);
}

static void reference(const struct config *c, int fd)
{
	(void)c;
	config_reference(fd);
}

#define assert_str(s, text)                                                                \
	do {                                                                               \
		struct str s_ = (s);                                                       \
		if (!str_eq(s_, str_of(text)))                                             \
			fail_msg("%s is \"%.*s\", not \"%s\"", #s, (int)s_.n, s_.p, text); \
	} while (0)

/* ---- good files ---- */

static void test_sample_listeners(void **state)
{
	struct config *c = load(sample);
	const struct plan *p = c->plan;
	const struct listener_conf *l = p->listeners;

	(void)state;
	assert_int_equal(p->workers, 3);
	assert_int_equal(p->io, LOOP_EPOLL);
	assert_int_equal(p->n_listeners, 4);
	assert_str(l[0].name, "public");
	assert_str(l[0].bind.text, "*:80");
	assert_true(l[0].bind.dual);
	assert_int_equal(l[0].bind.addr.u.sa.sa_family, AF_INET6);
	assert_int_equal(addr_port(&l[0].bind.addr), 80);
	assert_int_equal(l[0].serve, SERVE_WEB);
	assert_int_equal(l[0].n_site_names, 1);
	assert_str(l[0].site_names[0], "shop");
	assert_int_equal(l[1].bind.kind, BIND_UNIX);
	assert_str(l[1].bind.path, "/tmp/web.sock");
	assert_int_equal(l[1].bind.mode, 0660);
	assert_int_equal(l[1].n_site_names, 0);
	assert_false(l[1].proxy_protocol.on);
	assert_true(l[2].proxy_protocol.on);
	assert_int_equal(l[2].proxy_protocol.timeout_ms, 4000);
	assert_int_equal(l[2].proxy_protocol.n_from, 1);
	assert_int_equal(l[2].proxy_protocol.from[0].bits, 96 + 8);
	assert_int_equal(l[3].serve, SERVE_FORWARD);
	assert_int_equal(l[3].n_allow_from, 1);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(l[i].index, i);
	config_free(&c);
	assert_null(c);
}

static void test_sample_sites(void **state)
{
	struct config *c = load(sample);
	const struct plan *p = c->plan;
	const struct site_conf *s = &p->sites[0];
	const struct route_conf *r = s->routes;

	(void)state;
	assert_int_equal(p->n_sites, 1);
	assert_int_equal(p->n_routes, 5);
	assert_int_equal(s->n_hosts, 2);
	assert_str(s->hosts[0], "www.example.com");
	assert_str(s->hosts[1], "*.example.com");
	assert_false(s->keep_slashes);
	assert_false(s->reject_encoded_slash);
	assert_int_equal(r[0].answer, ANSWER_RESPOND);
	assert_str(r[0].exact, "/ping");
	assert_int_equal(r[0].respond.status, 200);
	assert_str(r[0].respond.type, "text/plain");
	assert_str(r[0].respond.body, "ok\n");
	assert_int_equal(r[1].answer, ANSWER_REDIRECT);
	assert_str(r[1].redirect.to, "/new");
	assert_int_equal(r[1].redirect.status, 307);
	assert_int_equal(r[2].answer, ANSWER_UPSTREAM);
	assert_str(r[2].prefix, "/upload");
	assert_true(r[2].has_limits && !r[2].has_timeouts);
	assert_true(r[3].has_timeouts && !r[3].has_limits);
	assert_ptr_equal(r[4].upstream, &p->upstreams[0]);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(r[i].index, i);
	/* The tables answer. */
	assert_ptr_equal(host_match(p->listeners[0].hosts, STR("www.example.com")), s);
	assert_ptr_equal(host_match(p->listeners[1].hosts, STR("a.b.example.com")), s);
	assert_null(host_match(p->listeners[1].hosts, STR("example.com")));
	assert_ptr_equal(route_match(s->table, STR("/reports/x")), &r[3]);
	assert_ptr_equal(route_match(s->table, STR("/ping")), &r[0]);
	config_free(&c);
}

static void test_sample_upstreams(void **state)
{
	struct config *c = load(sample);
	const struct upstream_conf *u = &c->plan->upstreams[0];
	const struct server_conf *v = u->servers;

	(void)state;
	assert_int_equal(c->plan->n_upstreams, 1);
	assert_str(u->name, "app");
	assert_int_equal(u->balance, BALANCE_P2C);
	assert_str(u->host, "app.internal:99");
	assert_int_equal(u->retry_attempts, 4);
	assert_int_equal(u->eject_failures, 0);
	assert_int_equal(u->eject_ms, 11000);
	assert_int_equal(u->n_servers, 4);
	assert_str(v[0].url, "http://10.0.0.1:8080");
	assert_string_equal(v[0].url.p, "http://10.0.0.1:8080"); /* borrowed as a C string too */
	assert_string_equal(u->name.p, "app");
	assert_true(v[0].literal);
	assert_int_equal(v[0].port, 8080);
	assert_int_equal(addr_port(&v[0].addr), 8080);
	assert_int_equal(v[0].weight, 1);
	assert_false(v[1].literal);
	assert_str(v[1].host, "app.internal");
	assert_int_equal(v[1].port, 80);
	assert_int_equal(v[1].weight, 2);
	assert_int_equal(v[0].max_connections, 0);
	assert_int_equal(v[1].max_connections, 7);
	assert_int_equal(v[2].max_connections, 0);
	assert_str(v[2].path, "/run/app.sock");
	assert_int_equal(v[2].weight, 1);
	assert_true(v[3].literal);
	assert_int_equal(v[3].addr.u.sa.sa_family, AF_INET6);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(v[i].index, i);
	config_free(&c);
}

static void test_sample_rest(void **state)
{
	struct config *c = load(sample);
	const struct plan *p = c->plan;

	(void)state;
	assert_int_equal(p->identity.n_trusted, 2);
	assert_int_equal(p->resolver.n_servers, 2);
	assert_int_equal(addr_port(&p->resolver.servers[0]), 53);
	assert_int_equal(addr_port(&p->resolver.servers[1]), 5353);
	assert_int_equal(p->resolver.timeout_ms, 1000);
	assert_int_equal(p->resolver.attempts, 3);
	assert_int_equal(p->resolver.negative_ttl_ms, 0);
	assert_int_equal(p->resolver.stale_ms, 7200000);
	assert_int_equal(p->resolver.prefer, PREFER_IPV6);
	assert_int_equal(p->timeouts.connect, 6000);
	assert_int_equal(p->timeouts.total, 100);
	assert_int_equal(p->timeouts.tunnel_idle, MS_OFF);
	assert_int_equal(p->timeouts.keep_alive, 75000);
	assert_int_equal(p->connections_max, 77);
	assert_int_equal(p->memory_max, 100 << 20);
	assert_int_equal(p->upstream_pool, 0);
	assert_int_equal(p->limits.request_head, 16384);
	assert_true(p->half_close_abort);
	assert_int_equal(c->drain.delay_ms, 0);
	assert_int_equal(c->drain.deadline_ms, 21000);
	assert_int_equal(p->access_log.format, ACCESS_COMBINED);
	assert_false(p->access_log.query || p->access_log.off);
	assert_int_equal(c->log.level, LOG_DEBUG);
	assert_int_equal(c->log.format, LOG_JSON);
	assert_true(c->admin.on);
	assert_str(c->admin.token, "sesame");
	assert_true(str_istarts(p->pseudonym, STR("culvert-")));
	config_free(&c);
}

/* Both logs go to one file, whose name begins at the folder of the configuration. */
static void test_log_files(void **state)
{
	struct config *c = load(sample);

	(void)state;
	assert_int_equal(c->n_files, 1);
	assert_str(c->files[0].path, "/tmp/./access.log");
	assert_int_equal(c->files[0].fd, -1);
	assert_int_equal(c->plan->access_log.sink, 0);
	assert_int_equal(c->log.sink, 0);
	config_free(&c);

	c = load(WEB);
	assert_int_equal(c->n_files, 2);
	assert_int_equal(c->files[c->plan->access_log.sink].fd, 1);
	assert_int_equal(c->files[c->log.sink].fd, 2);
	config_free(&c);

	c = load(WEB "access_log: { to: off }\n");
	assert_true(c->plan->access_log.off);
	assert_int_equal(c->n_files, 1);
	config_free(&c);
}

static void test_defaults(void **state)
{
	struct config *c = load(WEB);
	const struct plan *p = c->plan;
	const struct timeouts want = { .connect = 5000,
				       .queue = 10000,
				       .request_head = 10000,
				       .request_idle = 60000,
				       .first_byte = 60000,
				       .response_idle = 60000,
				       .send_idle = 60000,
				       .keep_alive = 75000,
				       .upstream_keep_alive = 30000,
				       .tunnel_idle = 3600000,
				       .total = MS_OFF };
	const struct limits limits = { .request_head = 32768,
				       .request_target = 8192,
				       .request_headers = 100,
				       .request_body = 64 << 20,
				       .body_rate_min = 500,
				       .response_head = 65536 };

	(void)state;
	assert_memory_equal(&p->timeouts, &want, sizeof(want));
	assert_memory_equal(&p->listeners[0].timeouts, &want, sizeof(want));
	assert_memory_equal(&p->limits, &limits, sizeof(limits));
	assert_memory_equal(&p->listeners[0].limits, &limits, sizeof(limits));
	assert_int_equal(p->upstream_pool, 512);
	assert_true(p->workers >= 1 && p->workers == cpus_usable());
	assert_true(p->connections_max >= 1 && p->connections_max <= 100000);
	assert_true(p->memory_max <= 1ull << 30);
	assert_int_equal(p->io, LOOP_AUTO);
	assert_int_equal(p->forward.n_allow_ports, 2);
	assert_int_equal(p->forward.allow_ports[0], 80);
	assert_int_equal(p->forward.allow_ports[1], 443);
	assert_false(p->forward.has_allow_hosts);
	assert_int_equal(p->resolver.n_servers, 0);
	assert_int_equal(p->resolver.negative_ttl_ms, 5000);
	assert_false(p->half_close_abort);
	assert_int_equal(c->drain.delay_ms, 5000);
	assert_true(p->access_log.query && p->access_log.format == ACCESS_JSON);
	assert_int_equal(c->log.level, LOG_INFO);
	assert_false(c->admin.on);
	config_free(&c);
}

static void test_nearest_wins(void **state)
{
	struct config *c = load(
		"timeouts: { connect: 1s, first_byte: 2s, total: 9s }\n"
		"listeners:\n"
		"  - { name: a, bind: \"127.0.0.1:1\", serve: web, timeouts: { first_byte: 3s } }\n"
		"  - { name: b, bind: \"127.0.0.1:2\", serve: web,\n"
		"      limits: { request_body: off } }\n"
		"sites:\n"
		"  - name: s\n"
		"    hosts: [\"*\"]\n"
		"    routes:\n"
		"      - { match: { prefix: / }, respond: {} }\n"
		"      - match: { prefix: /x }\n"
		"        respond: {}\n"
		"        timeouts: { total: off }\n"
		"        limits: { body_rate_min: 7 }\n");
	const struct listener_conf *l = c->plan->listeners;

	(void)state;
	assert_int_equal(l[0].timeouts.connect, 1000);
	assert_int_equal(l[0].timeouts.first_byte, 3000);
	assert_int_equal(l[1].timeouts.first_byte, 2000);
	assert_null(l[0].route_timeouts[0]);
	assert_null(l[0].route_limits[0]);
	assert_int_equal(l[0].route_timeouts[1]->total, MS_OFF);
	assert_int_equal(l[0].route_timeouts[1]->first_byte, 3000);
	assert_int_equal(l[1].route_timeouts[1]->first_byte, 2000);
	assert_int_equal(l[0].route_limits[1]->body_rate_min, 7);
	assert_int_equal(l[0].route_limits[1]->request_body, 64 << 20);
	assert_true(l[1].route_limits[1]->request_body == N_OFF);
	config_free(&c);
}

#define FORWARD "listeners: [{ name: f, bind: \"127.0.0.1:1\", serve: forward "
static void test_forward(void **state)
{
	struct config *c = load(FORWARD "}]\n");
	const struct listener_conf *l = c->plan->listeners;

	(void)state;
	assert_true(l->limits.request_body == N_OFF);
	assert_int_equal(c->plan->limits.request_body, 64 << 20);
	assert_int_equal(l->forward.n_allow_ports, 2);
	config_free(&c);

	c = load(FORWARD "}]\nlimits: { request_body: 1MiB }\n");
	assert_int_equal(c->plan->listeners->limits.request_body, 1 << 20);
	config_free(&c);

	/* Key by key; a list is replaced, an empty one too. */
	c = load(FORWARD ", forward: { allow_ports: [22], deny_to_except: [] } }]\n"
			 "forward: { allow_ports: [1, 2], deny_to_except: [10.0.0.0/8], "
			 "deny_to: [1.2.3.4], allow_hosts: [a.b] }\n");
	l = c->plan->listeners;
	assert_int_equal(l->forward.n_allow_ports, 1);
	assert_int_equal(l->forward.allow_ports[0], 22);
	assert_int_equal(l->forward.n_deny_to_except, 0);
	assert_int_equal(l->forward.n_deny_to, 1);
	assert_true(l->forward.has_allow_hosts);
	assert_int_equal(l->forward.n_allow_hosts, 1);
	config_free(&c);

	c = load("listeners: [{ name: f, bind: \"*:1\", serve: forward, open: true }]\n");
	assert_true(c->plan->listeners->open);
	config_free(&c);
}

static bool is_own(const struct forward_conf *f, const char *text, uint16_t port)
{
	struct addr a;

	assert_true(addr_parse_ip(str_of(text), port, &a));
	for (uint32_t i = 0; i < f->n_own; i++)
		if (addr_same(&f->own[i], &a))
			return true;
	return false;
}

/* Admin port and forward listeners stay out of reach, a wildcard on every address. */
static void test_own_addresses(void **state)
{
	struct config *c = load("listeners:\n"
				"  - { name: f, bind: \"*:3128\", serve: forward, open: true }\n"
				"  - { name: w, bind: \"127.0.0.1:8080\", serve: web }\n" SITES
				"admin: { bind: 127.0.0.1:9090 }\n");
	const struct forward_conf *f = &c->plan->listeners[0].forward;
	char text[INET_ADDRSTRLEN];
	struct ifaddrs *all;

	(void)state;
	assert_true(is_own(f, "127.0.0.1", 9090));
	assert_true(is_own(f, "::", 3128));
	assert_true(is_own(f, "0.0.0.0", 3128));
	assert_false(is_own(f, "127.0.0.1", 8080));
	assert_int_equal(getifaddrs(&all), 0);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		assert_non_null(inet_ntop(AF_INET,
					  &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr,
					  text, sizeof(text)));
		assert_true(is_own(f, text, 3128));
	}
	freeifaddrs(all);
	config_free(&c);
}

static void test_spellings(void **state)
{
	static const char *const off[] = { "off", "\"off\"", "'off'", "false",
					   "${CULVERT_TEST_OFF}" };
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(off); i++) {
		struct config *c;

		snprintf(text, sizeof(text), WEB "timeouts:\n  connect: %s\n", off[i]);
		c = load(text);
		assert_int_equal(c->plan->timeouts.connect, MS_OFF);
		config_free(&c);
	}
}

static void test_units(void **state)
{
	struct config *c =
		load(WEB "timeouts: { connect: 250ms, queue: 2m, first_byte: 3h, total: 30d }\n"
			 "limits: { request_head: 2048B, request_target: 1KiB, memory: 2GiB,\n"
			 "          request_body: 1TiB }\n");

	(void)state;
	assert_int_equal(c->plan->timeouts.connect, 250);
	assert_int_equal(c->plan->timeouts.queue, 120000);
	assert_int_equal(c->plan->timeouts.first_byte, 10800000);
	assert_int_equal(c->plan->timeouts.total, 2592000000);
	assert_int_equal(c->plan->limits.request_head, 2048);
	assert_int_equal(c->plan->limits.request_target, 1024);
	assert_int_equal(c->plan->memory_max, 2ull << 30);
	assert_int_equal(c->plan->limits.request_body, 1ull << 40);
	config_free(&c);
}

static void test_variables(void **state)
{
	struct config *c = load(
		WEB "workers: ${CULVERT_TEST_TWO}\n"
		    "admin: { bind: \"127.0.0.1:${CULVERT_TEST_UNSET:-90}${CULVERT_TEST_TWO}\","
		    " token: \"$${x}-$-${CULVERT_TEST_EMPTY:-y}-${CULVERT_TEST_EMPTY}.\" }\n");

	(void)state;
	assert_int_equal(c->plan->workers, 2);
	assert_int_equal(addr_port(&c->admin.bind.addr), 902);
	assert_str(c->admin.token, "${x}-$-y-.");
	config_free(&c);
}

static void test_site_switches(void **state)
{
	struct config *c =
		load(SITE("{ name: s, hosts: [\"*\", \"[::1]\", 10.0.0.1], via: off,\n"
			  "      merge_slashes: false, encoded_slash: reject,\n"
			  "      routes: [{ match: { prefix: /a//b }, respond: {} }] }\n"));
	const struct site_conf *s = c->plan->sites;

	(void)state;
	assert_int_equal(s->via, 2);
	assert_true(s->keep_slashes && s->reject_encoded_slash);
	assert_str(s->hosts[1], "::1");
	assert_str(s->routes[0].prefix, "/a//b");
	config_free(&c);
}

static void test_summary(void **state)
{
	struct config *c = load(sample);
	char want[200], fds[32], *text = written(config_summary, c);
	unsigned long long n = (unsigned long long)fds_usable();

	(void)state;
	if (n >= 1000000)
		snprintf(fds, sizeof(fds), "%llu,%03llu,%03llu", n / 1000000, n / 1000 % 1000,
			 n % 1000);
	else if (n >= 1000)
		snprintf(fds, sizeof(fds), "%llu,%03llu", n / 1000, n % 1000);
	else
		snprintf(fds, sizeof(fds), "%llu", n);
	snprintf(want, sizeof(want),
		 "/tmp/t.yaml: ok: 4 listeners, 1 site, 5 routes, 1 upstream; workers 3; "
		 "connections 77 (RLIMIT_NOFILE %s)\n",
		 fds);
	assert_string_equal(text, want);
	free(text);
	config_free(&c);
}

/* ---- bad files ---- */

static const struct bad {
	const char *text, *says;
} bad[] = {
#define BAD(text, says) { text, says },
#include "conf_bad.tbl"
#undef BAD
};

static void test_bad(void **state)
{
	unsigned wrong = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct conf_report r;
		struct config *c = config_load_text("t.yaml", bad[i].text, strlen(bad[i].text), &r);
		char *says = messages(&r);

		if (strcmp(says, bad[i].says) != 0 || !c != (r.errors > 0)) {
			print_message("%s---- says\n%s---- should say\n%s\n", bad[i].text, says,
				      bad[i].says);
			wrong++;
		}
		free(says);
		free(r.text);
		config_free(&c);
	}
	assert_int_equal(wrong, 0);
}

static void test_report(void **state)
{
	static const char text[] = "wrokers: 2 # no\r\n"
				   "listeners:\r\n"
				   "  - { name: a, bind: \"127.0.0.1:1\", serve: web }\r\n"
				   "sites: [{ name: ä, hosts: [\"münchen.de\"], routes: 5 }]\r\n"
				   "upstreams: { u: { servers: [\"http://a\"] } }\r\n";
	char *r = refused(text, strlen(text));

	(void)state;
	assert_string_equal(
		r, "t.yaml:1:1: error: unknown key \"wrokers\"; did you mean workers?\n"
		   "    wrokers: 2 # no\n"
		   "    ^~~~~~~\n"
		   "t.yaml:4:17: error: name: \"ä\": a name is made of letters, digits and _ . -\n"
		   "    sites: [{ name: ä, hosts: [\"münchen.de\"], routes: 5 }]\n"
		   "                    ^\n"
		   "t.yaml:4:28: error: hosts: \"münchen.de\": "
		   "write an international name in its xn-- form\n"
		   "    sites: [{ name: ä, hosts: [\"münchen.de\"], routes: 5 }]\n"
		   "                               ^~~~~~~~~~~~\n"
		   "t.yaml:4:51: error: routes: must be a list, not one value\n"
		   "    sites: [{ name: ä, hosts: [\"münchen.de\"], routes: 5 }]\n"
		   "                                                      ^\n"
		   "t.yaml:5:14: warning: no route uses the upstream \"u\"\n"
		   "    upstreams: { u: { servers: [\"http://a\"] } }\n"
		   "                 ^\n"
		   "4 errors, 1 warning\n");
	free(r);
}

/* What is secret stays so, in every line that is shown. */
static void test_secrets(void **state)
{
	static const char text[] = WEB
		"admin: { bind: \"*:1\", token: 'open sesame' }\nworkers: x\n";
	static const char two_lines[] = WEB
		"admin:\n  bind: x\n  token: open\n    sesame\n  y: 1\n";
	static const char expanded[] = WEB "log: { level: \"${CULVERT_TEST_TOKEN}\" }\n";
	struct config *c;
	char *r;

	(void)state;
	r = refused(text, strlen(text));
	assert_null(strstr(r, "sesame"));
	free(r);
	r = refused(two_lines, strlen(two_lines));
	assert_null(strstr(r, "open"));
	assert_null(strstr(r, "sesame"));
	free(r);
	r = refused(expanded, strlen(expanded));
	assert_null(strstr(r, "sesame"));
	free(r);
	c = load(sample);
	r = written(config_print, c);
	assert_null(strstr(r, "sesame"));
	assert_non_null(strstr(r, "token: \"(hidden)\""));
	free(r);
	config_free(&c);
}

static void test_warning_only(void **state)
{
	static const char text[] = UPSTREAMS("  app: { servers: [\"http://a\"] }\n"
					     "  old: { servers: [\"http://b\"] }\n");
	struct conf_report r;
	struct config *c = config_load_text("t.yaml", text, strlen(text), &r);

	(void)state;
	assert_non_null(c);
	assert_int_equal(r.errors, 0);
	assert_int_equal(r.warnings, 1);
	assert_string_equal(r.text, "t.yaml:5:3: warning: no route uses the upstream \"old\"\n"
				    "    old: { servers: [\"http://b\"] }\n"
				    "    ^~~\n"
				    "1 warning\n");
	free(r.text);
	config_free(&c);
}

/* Everything is counted, not everything is shown. */
static void test_many_errors(void **state)
{
	static char text[40000];
	size_t n = 0;
	char *r;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "key_%u: 1\n", i);
	r = refused(text, n);
	assert_non_null(strstr(r, "\n... and 801 more\n1001 errors\n"));
	free(r);
}

static void test_files(void **state)
{
	struct conf_report r;
	struct config *c;
	char name[] = "/tmp/culvert-test-XXXXXX";
	int fd = mkstemp(name);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, sample, strlen(sample)), (ssize_t)strlen(sample));
	c = config_load(name, &r);
	assert_non_null(c);
	free(r.text);
	config_free(&c);
	assert_int_equal(ftruncate(fd, (16 << 20) + 1), 0);
	assert_null(config_load(name, &r));
	assert_non_null(strstr(r.text, ": error: more than 16 MiB\n1 error\n"));
	free(r.text);
	unlink(name);
	close(fd);
	assert_null(config_load("/nonexistent.yaml", &r));
	assert_string_equal(r.text, "/nonexistent.yaml: error: there is no such file; "
				    "`culvert init` writes one to start from\n1 error\n");
	free(r.text);
	assert_null(config_load("/tmp", &r));
	assert_string_equal(r.text, "/tmp: error: Is a directory\n1 error\n");
	free(r.text);
}

/* ---- what is printed ---- */

static void test_print(void **state)
{
	struct config *c = load(sample);
	char *first = written(config_print, c), *second;

	(void)state;
	config_free(&c);
	c = load(first);
	second = written(config_print, c);
	assert_string_equal(first, second);
	assert_non_null(strstr(first, "\n      - match:\n          exact: /ping\n"));
	assert_non_null(strstr(first, "\n  tunnel_idle: off\n"));
	config_free(&c);
	free(first);
	free(second);
}

static void test_starter(void **state)
{
	char *text = written(starter, NULL);
	struct config *c = load(text);

	(void)state;
	assert_int_equal(c->plan->n_listeners, 2);
	config_free(&c);
	free(text);
}

/* docs/configuration.md is what the tables say.  CULVERT_WRITE_DOCS=1 writes it anew. */
static void test_reference(void **state)
{
	char *text = written(reference, NULL), path[4096], *there;
	const char *root = getenv("CULVERT_ROOT");
	size_t n = strlen(text);
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/docs/configuration.md", root ? root : ".");
	if (getenv("CULVERT_WRITE_DOCS")) {
		f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(text, 1, n, f), n);
		fclose(f);
	}
	f = fopen(path, "r");
	if (!f)
		fail_msg("%s: set CULVERT_ROOT", path);
	there = calloc(1, n + 2);
	assert_int_equal(fread(there, 1, n + 1, f), n);
	assert_string_equal(there, text);
	fclose(f);
	free(there);
	free(text);
}

/* ---- plans ---- */

static void test_plan_counts(void **state)
{
	struct config *c = load(sample);
	const struct plan *p = c->plan;

	(void)state;
	plan_ref(p);
	config_free(&c);
	assert_str(p->sites[0].name, "shop"); /* still there */
	plan_drop(&p);
	assert_null(p);
	plan_drop(&p); /* NULL is accepted */
	config_free(&c);
}

static int set_environment(void **state)
{
	(void)state;
	setenv("CULVERT_TEST_TOKEN", "sesame", 1);
	setenv("CULVERT_TEST_WORD", "word", 1);
	setenv("CULVERT_TEST_TWO", "2", 1);
	setenv("CULVERT_TEST_OFF", "off", 1);
	setenv("CULVERT_TEST_EMPTY", "", 1);
	unsetenv("CULVERT_TEST_UNSET");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sample_listeners),
		cmocka_unit_test(test_sample_sites),
		cmocka_unit_test(test_sample_upstreams),
		cmocka_unit_test(test_sample_rest),
		cmocka_unit_test(test_log_files),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_nearest_wins),
		cmocka_unit_test(test_forward),
		cmocka_unit_test(test_own_addresses),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_site_switches),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_warning_only),
		cmocka_unit_test(test_many_errors),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_starter),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_plan_counts),
	};

	return cmocka_run_group_tests(tests, set_environment, NULL);
}
