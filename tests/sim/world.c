/* world.c -- see world.h. */
#include "world.h"

#include "relay/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_RING   (1u << 20)
#define TURNS_MAX  5000000u
#define HOME       "10.0.0.1"
#define LOG_REAL_S 20 /* the writer thread lives in real time */

const char world_conf[] =
	"workers: 1\n"
	"listeners:\n"
	"  - { name: web, bind: \"" HOME ":80\", serve: web }\n"
	"  - { name: fwd, bind: \"" HOME ":3128\", serve: forward, allow_from: [10.9.0.0/16] }\n"
	"forward: { allow_ports: [80, 443], deny_to_except: [10.1.0.0/16] }\n"
	"sites: [{ name: s, hosts: [\"*\"], routes: [{ match: { prefix: / }, upstream: app }] }]\n"
	"upstreams:\n"
	"  app: { servers: [\"http://" SERVER_1 ":80\", \"http://" SERVER_2 ":80\"] }\n"
	"access_log: { to: ./access.log }\n";

/* ---------------------------------------------------------------- failing */
static char context[128], looking_at[256];

void world_context(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(looking_at, sizeof(looking_at), fmt, ap);
	va_end(ap);
}

static void on_panic(int fd, void *arg)
{
	(void)arg;
	dprintf(fd, "%s %s\n", context, looking_at);
}

/* ---------------------------------------------------------------- the log */
static struct log_sink *sink;
static struct log_ring *ring;
static int log_fd;
static off_t log_read; /* so far */

uint64_t world_seed(void)
{
	const char *text = getenv("CULVERT_SEED");

	return text ? strtoull(text, NULL, 0) : 20260101;
}

int world_group_setup(void **state)
{
	(void)state;
	panic_hook(on_panic, NULL);
	log_fd = memfd_create("access", MFD_CLOEXEC);
	must(log_fd >= 0);
	sink = log_sink_new("access", log_fd);
	must(sink != NULL);
	ring = log_ring_new(sink, LOG_RING);
	must(ring != NULL);
	log_say_open(sink, LOG_ERROR, LOG_JSON);
	print_message("# CULVERT_SEED=%llu\n", (unsigned long long)world_seed());
	return log_writer_start();
}

int world_group_teardown(void **state)
{
	(void)state;
	log_writer_stop();
	return log_sink_dropped(sink) == 0 ? 0 : -1;
}

/* Reads the next line if it has been written. */
static bool next_line(char *to, size_t size)
{
	ssize_t n = pread(log_fd, to, size - 1, log_read);
	char *end = n > 0 ? memchr(to, '\n', (size_t)n) : NULL;

	if (!end)
		return false;
	*end = 0;
	log_read += end - to + 1;
	return true;
}

const char *world_line(struct world *w)
{
	static char line[16384];
	const struct timespec nap = { .tv_nsec = 100000 };

	for (int i = 0; i < LOG_REAL_S * 10000; i++) {
		if (next_line(line, sizeof(line)))
			return line;
		log_writer_poke();
		nanosleep(&nap, NULL);
	}
	world_fail(w, __FILE__, __LINE__, "a line in the access log");
	return "";
}

const char *world_line_now(struct world *w)
{
	static bool marked;
	const char *line;

	if (!marked) {
		char *p = log_ring_reserve(ring, 2);

		assert_non_null(p);
		memcpy(p, "#\n", 2);
		log_ring_commit(ring, 2);
	}
	line = world_line(w);
	marked = line[0] != '#';
	return marked ? line : NULL;
}

const char *world_logged(const char *line, const char *member)
{
	static char values[8][256];
	static unsigned next;
	char key[64], *value = values[next++ % ARRAY_LEN(values)];
	const char *at, *end;

	snprintf(key, sizeof(key), "\"%s\":", member);
	at = strstr(line, key);
	value[0] = 0;
	if (!at)
		return value;
	at += strlen(key);
	end = *at == '"' ? strchr(++at, '"') : at + strcspn(at, ",}");
	if (end)
		snprintf(value, sizeof(values[0]), "%.*s", (int)(end - at), at);
	return value;
}

void world_fail(struct world *w, const char *file, int line, const char *what)
{
	print_error("%s %s: %.3f s after its mark: not so: %s\n", context, looking_at,
		    (double)(sim_now_us(w->sim) - w->began_us) / 1e6, what);
	if (w->service)
		service_dump(w->service, 2);
	loop_dump(w->loop, 2);
	_fail(file, line);
}

/* ---------------------------------------------------------------- life */
static struct sockaddr_in address(const char *host, uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

	must(inet_pton(AF_INET, host, &sin.sin_addr) == 1);
	return sin;
}

/* A world before this one may have failed and left lines. */
static void forget_lines(struct world *w)
{
	while (world_line_now(w))
		;
}

static void open_plan(struct world *w, const char *conf)
{
	struct conf_report report = { 0 };
	struct plan *plan;

	w->config = config_load_text("world", conf, strlen(conf), &report);
	if (!w->config)
		print_error("%.*s\n", (int)report.n, report.text);
	free(report.text);
	must(w->config != NULL);
	plan = w->config->plan;
	plan->pseudonym = STR("world");
	for (uint32_t i = 0; i < plan->n_upstreams; i++) {
		plan->upstreams[i].live = upstream_new(&plan->upstreams[i], w->shared.metrics, 1);
		assert_non_null(plan->upstreams[i].live);
	}
}

static struct sockaddr_in door_at(enum door door)
{
	return address(HOME, door == WEB ? 80 : 3128);
}

static void open_doors(struct world *w)
{
	for (int d = 0; d < DOORS; d++) {
		struct sockaddr_in at = door_at((enum door)d);

		w->listen[d] = sim_listen(w->sim, (struct sockaddr *)&at, sizeof(at));
	}
}

/* As the main thread does when all shards have stopped. */
static void close_doors(struct world *w)
{
	w->closed = true;
	for (int d = 0; d < DOORS; d++)
		sim_unlisten(w->sim, w->listen[d]);
}

void world_open_faulty(struct world *w, const char *conf, uint64_t seed, bool rough,
		       const struct fault_plan *plan)
{
	static const bool not_shared[DOORS] = { false };
	struct loop_params lp = { .io = LOOP_SIM,
				  .budget = &w->budget,
				  .fds_max = 4096,
				  .fault = plan };
	struct service_params sp = { .listen_fds = w->listen, .listen_shared = not_shared };
	char why[128];

	memset(w, 0, sizeof(*w));
	snprintf(context, sizeof(context), "CULVERT_SEED=%llu%s", (unsigned long long)seed,
		 rough ? ", rough" : "");
	looking_at[0] = 0;
	w->budget.max = 256u << 20;
	w->shared.budget = &w->budget;
	w->shared.metrics = metrics_new(1);
	w->shared.handover = handover_new(1);
	w->sim = lp.sim = sim_new(seed, rough);
	open_doors(w);
	open_plan(w, conf);
	w->loop = sp.loop = loop_new(&lp, why);
	assert_non_null(w->loop);
	sp.plan = w->config->plan;
	sp.shared = &w->shared;
	sp.access = ring;
	w->service = service_open(&sp);
	assert_non_null(w->service);
	world_mark(w);
	forget_lines(w);
}

void world_open_as(struct world *w, const char *conf, uint64_t seed, bool rough)
{
	world_open_faulty(w, conf, seed, rough, NULL);
}

void world_open(struct world *w, const char *more)
{
	char conf[8192];

	snprintf(conf, sizeof(conf), "%s%s", world_conf, more);
	world_open_as(w, conf, world_seed(), false);
}

static void on_ended(void *arg)
{
	*(bool *)arg = true;
}

void world_stop(struct world *w)
{
	if (!w->stopping)
		service_stop(w->service, on_ended, &w->ended);
	w->stopping = true;
}

static void close_plan(struct world *w)
{
	struct plan *plan = w->config->plan;

	for (uint32_t i = 0; i < plan->n_upstreams; i++)
		upstream_free(&plan->upstreams[i].live);
	metrics_free(&w->shared.metrics);
	handover_free(&w->shared.handover);
	config_free(&w->config);
}

void world_close(struct world *w)
{
	char line[4096];

	world_stop(w);
	run_until(w, w->ended && link_count(w->loop) == 0);
	world_must(w, w->closed);
	world_must(w, exchange_count(w->loop) == 0 && relay_count(w->loop) == 0);
	service_close(&w->service);
	loop_turn(w->loop, 0); /* the last closes */
	assert_int_equal(sim_sockets(w->sim), 0);
	loop_free(&w->loop);
	sim_free(&w->sim);
	close_plan(w);
	assert_int_equal(atomic_load(&w->budget.used), 0);
	if (next_line(line, sizeof(line)))
		fail_msg("a line that nobody expected: %s", line);
}

/* ---------------------------------------------------------------- people */
struct sim_peer *world_call(struct world *w, enum door door)
{
	struct sockaddr_in from = address("10.9.0.1", (uint16_t)(20000 + w->n_clients % 40000));
	struct sockaddr_in to = door_at(door);

	w->n_clients++;
	return sim_call(w->sim, (struct sockaddr *)&to, (struct sockaddr *)&from, sizeof(from));
}

void world_serve_as(struct world *w, const char *server, enum sim_answer answer,
		    void (*on_peer)(struct sim_peer *, void *arg), void *arg)
{
	struct sockaddr_in at = address(server, 80);

	sim_answer(w->sim, (struct sockaddr *)&at, sizeof(at), answer, on_peer, arg);
}

static void on_peer(struct sim_peer *p, void *arg)
{
	struct world *w = arg;

	w->server = p;
	w->n_served++;
}

void world_serve(struct world *w, const char *server, enum sim_answer answer)
{
	world_serve_as(w, server, answer, on_peer, w);
}

void world_say(struct sim_peer *p, const char *fmt, ...)
{
	char text[16384];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	must(n >= 0 && (size_t)n < sizeof(text));
	sim_say(p, text, (size_t)n);
}

bool world_takes(struct sim_peer *p, const char *text)
{
	size_t n = strlen(text);

	if (p->n_got < n || memcmp(p->got, text, n) != 0)
		return false;
	sim_eat(p, n);
	return true;
}

static const char *head_end(const struct sim_peer *p)
{
	return memmem(p->got, p->n_got, "\r\n\r\n", 4);
}

unsigned world_head(const struct sim_peer *p)
{
	if (!head_end(p))
		return 0;
	if (memcmp(p->got, "HTTP/1.", 7) != 0)
		return 1;
	return (unsigned)strtoul((const char *)p->got + 9, NULL, 10);
}

const char *world_field(const struct sim_peer *p, const char *name)
{
	static char value[1024];
	const char *end = head_end(p), *at = (const char *)p->got;
	size_t n = strlen(name);

	while (end && (at = memmem(at, (size_t)(end - at), "\r\n", 2))) {
		at += 2;
		if (strncasecmp(at, name, n) != 0 || at[n] != ':')
			continue;
		at += n + 1 + strspn(at + n + 1, " ");
		snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
		return value;
	}
	return NULL;
}

void world_eat_all(struct sim_peer *p)
{
	sim_eat(p, p->n_got);
}

double world_metric(struct world *w, const char *series)
{
	size_t n, len = strlen(series);
	char *text = metrics_text(w->shared.metrics, &n);
	double value = 0;

	must(text != NULL);
	for (const char *at = text; (at = strstr(at, series)); at += len)
		if ((at == text || at[-1] == '\n') && at[len] == ' ')
			value = strtod(at + len, NULL);
	free(text);
	return value;
}

/* ---------------------------------------------------------------- time */
static void turn(struct world *w, uint32_t wait_ms)
{
	loop_turn(w->loop, wait_ms);
	if (w->stopping && !w->closed && service_stopped(w->service))
		close_doors(w);
}

void world_turn(struct world *w)
{
	if (++w->turns > TURNS_MAX)
		world_fail(w, __FILE__, __LINE__, "it comes to rest");
	turn(w, 60 * 1000);
}

void world_pass(struct world *w, uint64_t us)
{
	uint64_t until = sim_now_us(w->sim) + us;

	while (sim_now_us(w->sim) < until) {
		uint64_t left_ms = (until - sim_now_us(w->sim) + 999) / 1000;

		w->turns++;
		turn(w, (uint32_t)(left_ms < 60000 ? left_ms : 60000));
	}
}

void world_mark(struct world *w)
{
	w->began_us = sim_now_us(w->sim);
}

uint64_t world_ms(const struct world *w)
{
	return (sim_now_us(w->sim) - w->began_us) / 1000;
}
