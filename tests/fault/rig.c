/* rig.c -- see rig.h.  The client and the origins are plain sockets that never block; between turns
 * of the loop each takes a step if it can.
 *
 *   client  ── head, body ──► service ──► origin   answers a complete request, or echoes
 *           ◄──── answer ────         ◄── (1 of 2)
 *           ── ping ────────────────────►          tunnels only */
#include "rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define HOST      "127.83.0.1" /* of our own: thousands of its ports are used within seconds */
#define TAGS_MAX  32768u
#define LOG_RING  (1u << 20)

const struct scenario rig_scenarios[] = {
	{ "GET", "GET / HTTP/1.1", "", OK_ANSWER, 200, .forward = false },
	{ "POST", "POST / HTTP/1.1", "Content-Length: 100000\r\n", OK_ANSWER, 200, .body = true },
	{ "CONNECT", NULL, "", NULL, 200, .forward = true, .tunnel = true },
	{ "upgrade", "GET /ws HTTP/1.1", "Connection: upgrade\r\nUpgrade: echo\r\n",
	  "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 101, .tunnel = true },
	{ "two GETs", "GET / HTTP/1.1", "", OK_ANSWER, 200, .twice = true },
	{ "drain", "GET / HTTP/1.1", "", OK_ANSWER, 200, .drain = true },
};
const unsigned rig_n_scenarios = ARRAY_LEN(rig_scenarios);

_Thread_local bool rig_inside;

static const char ping[] = "ping pong ping";

/* ---------------------------------------------------------------- failing */
static char context[256];

void rig_context(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(context, sizeof(context), fmt, ap);
	va_end(ap);
}

void rig_fail(const char *file, int line, const char *what)
{
	print_error("%s: not so: %s\n", context, what);
	_fail(file, line);
}

static void on_panic(int fd, void *arg)
{
	(void)arg;
	dprintf(fd, "%s\n", context);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

unsigned rig_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---------------------------------------------------------------- the access log */
/* One request each, by its User-Agent "r<tag>"; a head for which there was no memory is known by
 * the mark before it. */
static struct {
	uint16_t status; /* what the client saw; 0: nothing */
	bool must;       /* it was read: exactly one line */
	uint16_t lines;
	uint16_t logged; /* the line's status */
} tags[TAGS_MAX];
static unsigned n_tags;
static struct log_sink *sink;
static struct log_ring *ring;
static int log_fd;

void rig_open_log(void)
{
	panic_hook(on_panic, NULL);
	log_fd = memfd_create("access", MFD_CLOEXEC);
	must(log_fd >= 0);
	sink = log_sink_new("access", log_fd);
	must(sink != NULL);
	ring = log_ring_new(sink, LOG_RING);
	must(ring != NULL);
	log_say_open(sink, LOG_ERROR, LOG_JSON);
	must(log_writer_start() == 0);
}

/* Says in the log itself which request is being asked from here on. */
static void mark(unsigned tag)
{
	char *p = log_ring_reserve(ring, 32);

	assert_non_null(p);
	log_ring_commit(ring, (uint32_t)snprintf(p, 32, "#%u\n", tag));
}

static void read_line(const char *line, unsigned *marked)
{
	const char *agent = strstr(line, "\"user_agent\":\"r");
	const char *status = strstr(line, "\"status\":");
	unsigned long tag = agent ? strtoul(agent + 15, NULL, 10) : *marked;

	if (line[0] == '#') {
		*marked = (unsigned)strtoul(line + 1, NULL, 10);
		return;
	}
	if (!agent && !strstr(line, "\"kind\":\"request\""))
		return; /* of a connection that brought no request */
	assert_true(tag < n_tags);
	tags[tag].lines++;
	tags[tag].logged = status ? (uint16_t)strtoul(status + 9, NULL, 10) : 0;
}

static void read_log(void)
{
	struct stat st;
	char *text, *line, *end;
	unsigned marked = 0;

	log_writer_stop();
	assert_int_equal(log_sink_dropped(sink), 0);
	assert_int_equal(fstat(log_fd, &st), 0);
	text = malloc((size_t)st.st_size + 1);
	assert_non_null(text);
	assert_int_equal(pread(log_fd, text, (size_t)st.st_size, 0), st.st_size);
	text[st.st_size] = 0;
	for (line = text; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		read_line(line, &marked);
	}
	free(text);
}

void rig_check_log(void)
{
	unsigned wrong = 0;

	read_log();
	for (unsigned i = 0; i < n_tags; i++) {
		bool bad = tags[i].lines > 1 || (tags[i].must && tags[i].lines != 1) ||
			   (tags[i].status && tags[i].logged != tags[i].status);

		if (bad && ++wrong <= 5)
			print_error("request r%u: %u lines, status %u; the client saw %u\n", i,
				    tags[i].lines, tags[i].logged, tags[i].status);
	}
	assert_int_equal(wrong, 0);
	print_message("# %u requests\n", n_tags);
}

/* ---------------------------------------------------------------- the service */
static const char template[] =
	"workers: 1\n"
	"listeners:\n"
	"  - { name: web, bind: \"" HOST ":1\", serve: web }\n"
	"  - { name: fwd, bind: \"" HOST ":2\", serve: forward }\n"
	"forward: { allow_ports: [%u], deny_to_except: [" HOST "] }\n"
	"sites: [{ name: s, hosts: [\"*\"], routes: [{ match: { prefix: / }, upstream: o }] }]\n"
	"upstreams:\n"
	"  o: { servers: [\"http://" HOST ":%u\", \"http://" HOST ":%u\"] }\n"
	"access_log: { to: ./access.log }\n";

static struct sockaddr_in address(uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, HOST, &sin.sin_addr), 1);
	return sin;
}

static int listener(void)
{
	struct sockaddr_in sin = address(0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in sin;
	socklen_t n = sizeof(sin);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
	return ntohs(sin.sin_port);
}

static void open_plan(struct rig *r)
{
	uint16_t p0 = port_of(r->origin[0]), p1 = port_of(r->origin[1]);
	struct conf_report report = { 0 };
	char text[1024];
	int n = snprintf(text, sizeof(text), template, p0, p0, p1);
	struct plan *plan;

	r->config = config_load_text("test", text, (size_t)n, &report);
	if (!r->config)
		print_error("%.*s\n", (int)report.n, report.text);
	assert_non_null(r->config);
	free(report.text);
	plan = r->config->plan;
	plan->pseudonym = STR("test");
	for (uint32_t i = 0; i < plan->n_upstreams; i++) {
		plan->upstreams[i].live = upstream_new(&plan->upstreams[i], r->shared.metrics, 1);
		assert_non_null(plan->upstreams[i].live);
	}
}

static void close_plan(struct rig *r)
{
	struct plan *plan = r->config->plan;

	for (uint32_t i = 0; i < plan->n_upstreams; i++)
		upstream_free(&plan->upstreams[i].live);
	metrics_free(&r->shared.metrics);
	handover_free(&r->shared.handover);
	config_free(&r->config);
	for (int i = 0; i < 2; i++) {
		close(r->listen[i]);
		close(r->origin[i]);
	}
	rig_must(r->budget.used == 0);
}

static bool open_service(struct rig *r, enum loop_io io)
{
	static const bool not_shared[2] = { false, false };
	struct loop_params lp = { .io = io,
				  .budget = &r->budget,
				  .fds_max = 256,
				  .fault = &r->plan };
	struct service_params sp = { .shared = &r->shared,
				     .plan = r->config->plan,
				     .listen_fds = r->listen,
				     .listen_shared = not_shared,
				     .access = ring };
	char text[128];

	r->loop = loop_new(&lp, text);
	if (!r->loop)
		return false;
	sp.loop = r->loop;
	r->service = service_open(&sp);
	if (r->service)
		return true;
	loop_free(&r->loop);
	return false;
}

bool rig_open(struct rig *r, enum loop_io io, uint64_t budget_max)
{
	bool open;

	r->budget.max = budget_max;
	r->client = -1;
	for (unsigned i = 0; i < RIG_PEERS; i++)
		r->peers[i].fd = -1;
	r->shared.budget = &r->budget;
	r->shared.metrics = metrics_new(1);
	r->shared.handover = handover_new(1);
	for (int i = 0; i < 2; i++) {
		r->origin[i] = listener();
		r->listen[i] = listener();
	}
	open_plan(r);
	rig_inside = true;
	open = open_service(r, io);
	rig_inside = false;
	if (!open)
		close_plan(r);
	return open;
}

static void on_ended(void *arg)
{
	*(bool *)arg = true;
}

static void stop(struct rig *r)
{
	if (!r->stopping)
		service_stop(r->service, on_ended, &r->ended);
	r->stopping = true;
}

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* With a reset, which leaves no TIME_WAIT behind. */
static void reset(int *fd)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (*fd >= 0)
		(void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	shut(fd);
}

/* ---------------------------------------------------------------- the origins */
static bool accept_peer(struct rig *r, int fd)
{
	for (unsigned i = 0; i < RIG_PEERS; i++) {
		struct peer *p = &r->peers[i];

		if (p->fd >= 0)
			continue;
		p->fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		p->n = 0;
		p->echo = r->s && !r->s->answer;
		return p->fd >= 0;
	}
	return false;
}

/* The request's head is all there; *body: bytes behind it. */
static bool peer_head(const struct peer *p, uint32_t *body)
{
	uint32_t kept = p->n < sizeof(p->head) ? p->n : (uint32_t)sizeof(p->head);
	const char *end = memmem(p->head, kept, "\r\n\r\n", 4);

	*body = end ? p->n - (uint32_t)(end + 4 - p->head) : 0;
	return end != NULL;
}

static void peer_answer(struct rig *r, struct peer *p)
{
	uint32_t body;

	if (!peer_head(p, &body))
		return;
	r->o.reached = true;
	tags[r->tag].must = true;
	if (r->s->drain)
		stop(r);
	if (r->s->body && body < RIG_BODY)
		return;
	(void)!send(p->fd, r->s->answer, strlen(r->s->answer), MSG_NOSIGNAL);
	p->echo = r->s->tunnel;
	p->n = 0;
}

static bool peer_step(struct rig *r, struct peer *p)
{
	static char buf[65536];
	ssize_t n = recv(p->fd, buf, sizeof(buf), 0);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		shut(&p->fd);
		return true;
	}
	if (p->echo) {
		(void)!send(p->fd, buf, (size_t)n, MSG_NOSIGNAL);
		return true;
	}
	for (ssize_t i = 0; i < n && p->n + (size_t)i < sizeof(p->head); i++)
		p->head[p->n + (size_t)i] = buf[i];
	p->n += (uint32_t)n;
	peer_answer(r, p);
	return true;
}

static bool origins_step(struct rig *r)
{
	bool moved = accept_peer(r, r->origin[0]);

	moved |= accept_peer(r, r->origin[1]);
	for (unsigned i = 0; i < RIG_PEERS; i++)
		if (r->peers[i].fd >= 0)
			moved |= peer_step(r, &r->peers[i]);
	return moved;
}

/* ---------------------------------------------------------------- the client */
static void ask(struct rig *r)
{
	const struct scenario *s = r->s;
	char start[64];

	must(n_tags < TAGS_MAX);
	r->tag = n_tags++;
	mark(r->tag);
	snprintf(start, sizeof(start), "CONNECT " HOST ":%u HTTP/1.1", port_of(r->origin[0]));
	r->n_asked = (uint32_t)snprintf(r->asked, sizeof(r->asked),
					"%s\r\nHost: a\r\nUser-Agent: r%u\r\n%s\r\n",
					s->start ? s->start : start, r->tag, s->fields);
	r->n_asked_sent = r->n_body_sent = r->n_got = 0;
	r->got[0] = 0;
}

static bool client_send(struct rig *r)
{
	static const char body[RIG_BODY];
	ssize_t n = 0;

	if (r->n_asked_sent < r->n_asked) {
		n = send(r->client, r->asked + r->n_asked_sent, r->n_asked - r->n_asked_sent,
			 MSG_NOSIGNAL);
		r->n_asked_sent += n > 0 ? (uint32_t)n : 0;
	} else if (r->s->body && r->n_body_sent < RIG_BODY) {
		n = send(r->client, body, RIG_BODY - r->n_body_sent, MSG_NOSIGNAL);
		r->n_body_sent += n > 0 ? (uint32_t)n : 0;
	}
	return n > 0;
}

static unsigned status_of(const struct rig *r)
{
	return strstr(r->got, "\r\n\r\n") ? (unsigned)strtoul(r->got + 9, NULL, 10) : 0;
}

/* Bytes of the whole answer; 0: its head is not there yet. */
static uint32_t answer_bytes(const struct rig *r)
{
	const char *end = strstr(r->got, "\r\n\r\n");
	const char *length = strcasestr(r->got, "\r\nContent-Length:");
	uint32_t head;

	if (!end)
		return 0;
	head = (uint32_t)(end + 4 - r->got);
	if (!length || length > end)
		return head;
	return head + (uint32_t)strtoul(length + 17, NULL, 10);
}

/* What has come is whole: what comes next? */
static void on_answer(struct rig *r)
{
	unsigned status = status_of(r);

	tags[r->tag].must = true;
	tags[r->tag].status = (uint16_t)status;
	if (r->stage == 0)
		r->o.status = status;
	r->stage++;
	if (status != r->s->good) {
		r->o.complete = true;
	} else if (r->s->twice && r->stage == 1) {
		ask(r);
	} else if (r->s->tunnel) {
		r->stage = 2;
		r->n_asked = (uint32_t)snprintf(r->asked, sizeof(r->asked), "%s", ping);
		r->n_asked_sent = r->n_got = 0;
	} else {
		rig_must(strcmp(r->got + r->n_got - 2, "ok") == 0);
		r->o.complete = true;
	}
}

static void client_judge(struct rig *r)
{
	bool tunnel = r->s->tunnel && r->stage == 2;
	uint32_t whole = tunnel ? (uint32_t)strlen(ping) : answer_bytes(r);

	if (r->o.complete || !whole || r->n_got < whole)
		return;
	rig_must(r->n_got == whole);
	if (!tunnel) {
		on_answer(r);
		return;
	}
	rig_must(strcmp(r->got, ping) == 0);
	r->o.complete = true;
}

static bool client_step(struct rig *r)
{
	bool moved = client_send(r);
	ssize_t n = recv(r->client, r->got + r->n_got, sizeof(r->got) - 1 - r->n_got, 0);

	if (n < 0 && errno == EAGAIN)
		return moved;
	if (n <= 0) {
		r->o.over = true;
		if (r->stage == 0)
			r->o.status = status_of(r); /* maybe cut within its body */
		return true;
	}
	r->n_got += (uint32_t)n;
	r->got[r->n_got] = 0;
	client_judge(r);
	return true;
}

static void client_open(struct rig *r)
{
	struct sockaddr_in sin = address(port_of(r->listen[r->s->forward]));

	r->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(r->client >= 0);
	assert_int_equal(connect(r->client, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(fcntl(r->client, F_SETFL, O_NONBLOCK), 0);
}

/* ---------------------------------------------------------------- the run */
/* The kernel has said that a connection is dead: then an origin that waits for the rest of a
 * request sees its end, too.  (Else culvert waits a second for the answer that may be there.) */
static void end_dead(struct rig *r)
{
	const struct fault_rule *rule = &r->plan.rules[0];
	uint32_t hits = fault_hits(r->loop);

	if (hits == r->hits_seen)
		return;
	r->hits_seen = hits;
	if (rule->kind != OP_SEND || (rule->res != -EPIPE && rule->res != -ECONNRESET))
		return;
	while (accept_peer(r, r->origin[0]) || accept_peer(r, r->origin[1]))
		;
	for (unsigned i = 0; i < RIG_PEERS; i++)
		shut(&r->peers[i].fd);
}

static void relieve(struct rig *r, bool moved)
{
	r->n_quiet = moved ? 0 : r->n_quiet + 1;
	if (!r->relief || r->n_quiet < RIG_QUIET)
		return;
	r->budget.max = r->relief;
	r->relief = 0;
	r->o.relieved = true;
}

/* Turns everything once; the loop waits only when nobody else has anything to do. */
static void turn(struct rig *r, bool *moved)
{
	int n;

	rig_inside = true;
	n = loop_turn(r->loop, *moved ? 0 : 1);
	rig_inside = false;
	end_dead(r);
	*moved = origins_step(r);
	if (r->client >= 0)
		*moved |= client_step(r);
	relieve(r, *moved);
	if (r->budget.used > r->o.most_used)
		r->o.most_used = r->budget.used;
	*moved |= n > 0;
}

static void check_time(struct rig *r, int64_t until)
{
	if (now_ms() < until)
		return;
	service_dump(r->service, 2);
	loop_dump(r->loop, 2);
	rig_must(!"it ends");
}

struct outcome rig_exchange(struct rig *r, const struct scenario *s)
{
	int64_t until = now_ms() + RIG_LIMIT_MS;
	bool moved = true;

	r->s = s;
	r->o = (struct outcome){ 0 };
	r->stage = 0;
	client_open(r);
	ask(r);
	while (!r->o.complete && !r->o.over) {
		check_time(r, until);
		turn(r, &moved);
	}
	if (r->tag % 8)
		reset(&r->client);
	else
		shut(&r->client);
	rig_settle(r);
	return r->o;
}

void rig_settle(struct rig *r)
{
	int64_t until = now_ms() + RIG_LIMIT_MS;
	bool moved = true;

	while (service_connections(r->service) || exchange_count(r->loop) || relay_count(r->loop)) {
		check_time(r, until);
		turn(r, &moved);
	}
}

void rig_close(struct rig *r)
{
	int64_t until = now_ms() + RIG_LIMIT_MS;
	bool moved = true;

	for (unsigned i = 0; i < RIG_PEERS; i++)
		reset(&r->peers[i].fd);
	stop(r);
	while (!r->ended || link_count(r->loop)) {
		check_time(r, until);
		turn(r, &moved);
	}
	for (unsigned i = 0; i < RIG_PEERS; i++)
		reset(&r->peers[i].fd);
	rig_must(service_stopped(r->service));
	rig_must(exchange_count(r->loop) == 0);
	service_close(&r->service);
	loop_free(&r->loop);
	close_plan(r);
}
