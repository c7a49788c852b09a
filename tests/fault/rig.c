/* rig.c -- see rig.h.  The client and the origins are plain sockets that never block; between turns
 * of the loop each takes a step if it can.
 *
 *   client  ── head, body ──► service ──► origin   answers a complete request, or echoes
 *           ◄──── answer ────         ◄── (1 of 2)
 *           ── ping ────────────────────►          tunnels only
 *
 * The name server answers with the origins' address for every A, and with none for every AAAA. */
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
#define MANY      20 /* connections more than another shard's: one is handed over */

const struct scenario rig_scenarios[] = {
	{ "GET", "GET / HTTP/1.1", "", OK_ANSWER, 200, .door = RIG_WEB },
	{ "POST", "POST / HTTP/1.1", "Content-Length: 100000\r\n", OK_ANSWER, 200, .body = true },
	{ "CONNECT", NULL, "", NULL, 200, .door = RIG_FWD, .tunnel = true },
	{ "upgrade", "GET /ws HTTP/1.1", "Connection: upgrade\r\nUpgrade: echo\r\n",
	  "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 101, .tunnel = true },
	{ "two GETs", "GET / HTTP/1.1", "", OK_ANSWER, 200, .twice = true },
	{ "drain", "GET / HTTP/1.1", "", OK_ANSWER, 200, .drain = true },
	{ "name", "", "", OK_ANSWER, 200, .door = RIG_FWD },
	{ "PROXY", "GET / HTTP/1.1", "", OK_ANSWER, 200, .door = RIG_PROXIED },
	{ "handed over", "GET / HTTP/1.1", "", OK_ANSWER, 200, .handed = true },
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
	"workers: %u\n"
	"listeners:\n"
	"  - { name: web, bind: \"" HOST ":1\", serve: web }\n"
	"  - { name: fwd, bind: \"" HOST ":2\", serve: forward }\n"
	"  - { name: lb, bind: \"" HOST
	":3\", serve: web, proxy_protocol: { from: [127.0.0.0/8] } }\n"
	"forward: { allow_ports: [%u], deny_to_except: [" HOST "] }\n"
	"sites: [{ name: s, hosts: [\"*\"], routes: [{ match: { prefix: / }, upstream: o }] }]\n"
	"upstreams:\n"
	"  o: { servers: [\"http://" HOST ":%u\", \"http://" HOST ":%u\"] }\n"
	"resolver: { servers: [\"" HOST ":%u\"], timeout: 100ms, attempts: 2 }\n"
	"access_log: { to: ./access.log }\n";

static struct sockaddr_in address(uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, HOST, &sin.sin_addr), 1);
	return sin;
}

static int bound(int type)
{
	struct sockaddr_in sin = address(0);
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
}

static int listener(void)
{
	int fd = bound(SOCK_STREAM);

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
	char text[1200];
	int n = snprintf(text, sizeof(text), template, r->n_shards, p0, p0, p1, port_of(r->names));
	struct plan *plan;

	r->config = config_load_text("test", text, (size_t)n, &report);
	if (!r->config)
		print_error("%.*s\n", (int)report.n, report.text);
	assert_non_null(r->config);
	free(report.text);
	plan = r->config->plan;
	plan->pseudonym = STR("test");
	for (uint32_t i = 0; i < plan->n_upstreams; i++) {
		plan->upstreams[i].live =
			upstream_new(&plan->upstreams[i], r->shared.metrics, r->n_shards);
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
	for (unsigned i = 0; i < r->n_shards; i++)
		for (unsigned d = 0; d < RIG_DOORS; d++)
			close(r->shard[i].listen[d]);
	close(r->origin[0]);
	close(r->origin[1]);
	close(r->names);
	rig_must(r->budget.used == 0);
}

static bool open_shard(struct rig *r, enum loop_io io, unsigned number)
{
	static const bool not_shared[RIG_DOORS];
	struct rig_shard *sh = &r->shard[number];
	struct loop_params lp = { .io = io,
				  .budget = &r->budget,
				  .shard = number,
				  .fds_max = 256,
				  .fault = &r->plan };
	struct service_params sp = { .shared = &r->shared,
				     .plan = r->config->plan,
				     .listen_fds = sh->listen,
				     .listen_shared = not_shared,
				     .access = ring };
	char text[128];

	sh->loop = loop_new(&lp, text);
	if (!sh->loop)
		return false;
	sp.loop = sh->loop;
	sh->service = service_open(&sp);
	if (sh->service)
		return true;
	loop_free(&sh->loop);
	return false;
}

static void open_sockets(struct rig *r)
{
	for (unsigned i = 0; i < r->n_shards; i++)
		for (unsigned d = 0; d < RIG_DOORS; d++)
			r->shard[i].listen[d] = listener();
	r->origin[0] = listener();
	r->origin[1] = listener();
	r->names = bound(SOCK_DGRAM);
}

bool rig_open(struct rig *r, enum loop_io io, uint64_t budget_max, const struct scenario *s)
{
	bool open;

	r->budget.max = budget_max;
	r->n_shards = s && s->handed ? 2 : 1;
	r->client = -1;
	for (unsigned i = 0; i < RIG_PEERS; i++)
		r->peers[i].fd = -1;
	r->shared.budget = &r->budget;
	r->shared.metrics = metrics_new(r->n_shards);
	r->shared.handover = handover_new(r->n_shards);
	open_sockets(r);
	open_plan(r);
	rig_inside = true;
	open = open_shard(r, io, 0);
	rig_inside = false;
	if (r->n_shards > 1) {
		assert_true(open && open_shard(r, io, 1));
		handover_count(r->shared.handover, 0, MANY);
	}
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
	for (unsigned i = 0; i < r->n_shards && !r->stopping; i++)
		service_stop(r->shard[i].service, on_ended, &r->shard[i].ended);
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

/* ---------------------------------------------------------------- the name server */
static bool names_step(struct rig *r)
{
	static const uint8_t answer[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4 };
	uint8_t msg[512 + sizeof(answer) + 4];
	struct sockaddr_in from, at = address(0);
	socklen_t from_n = sizeof(from);
	ssize_t n = recvfrom(r->names, msg, 512, 0, (struct sockaddr *)&from, &from_n);
	const uint8_t *name = msg + 12;
	bool is_a;

	if (n < 12 + 5)
		return false;
	name += strlen((const char *)name) + 1;
	assert_true(name + 4 <= msg + n);
	is_a = name[1] == 1;
	n = name + 4 - msg;
	msg[2] = 0x84; /* an authoritative answer */
	msg[3] = 0x80;
	memset(msg + 6, 0, 6);
	msg[7] = is_a; /* one answer */
	if (is_a) {
		memcpy(msg + n, answer, sizeof(answer));
		n += (ssize_t)sizeof(answer);
		memcpy(msg + n, &at.sin_addr, 4);
		n += 4;
	}
	(void)!sendto(r->names, msg, (size_t)n, 0, (struct sockaddr *)&from, from_n);
	return true;
}

/* ---------------------------------------------------------------- the client */
static void start_line(const struct rig *r, char *to, size_t size)
{
	const char *start = r->s->start;
	unsigned port = port_of(r->origin[0]);

	if (!start)
		snprintf(to, size, "CONNECT " HOST ":%u HTTP/1.1", port);
	else if (!start[0])
		snprintf(to, size, "GET http://n%u.test:%u/ HTTP/1.1", r->tag, port);
	else
		snprintf(to, size, "%s", start);
}

static void ask(struct rig *r)
{
	const struct scenario *s = r->s;
	bool proxied = s->door == RIG_PROXIED && r->stage == 0;
	char start[64];

	must(n_tags < TAGS_MAX);
	r->tag = n_tags++;
	mark(r->tag);
	start_line(r, start, sizeof(start));
	r->n_asked = (uint32_t)snprintf(
		r->asked, sizeof(r->asked), "%s%s\r\nHost: a\r\nUser-Agent: r%u\r\n%s\r\n",
		proxied ? "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" : "", start, r->tag, s->fields);
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
	struct sockaddr_in sin = address(port_of(r->shard[0].listen[r->s->door]));

	r->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(r->client >= 0);
	assert_int_equal(connect(r->client, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(fcntl(r->client, F_SETFL, O_NONBLOCK), 0);
}

/* ---------------------------------------------------------------- the run */
uint32_t rig_hits(const struct rig *r)
{
	uint32_t hits = 0;

	for (unsigned i = 0; i < r->n_shards; i++)
		hits += fault_hits(r->shard[i].loop);
	return hits;
}

static bool kills(const struct fault_rule *rule)
{
	return rule->kind == OP_SEND && (rule->res == -EPIPE || rule->res == -ECONNRESET);
}

/* The kernel has said that a connection is dead: then an origin that waits for the rest of a
 * request sees its end, too.  (Else culvert waits a second for the answer that may be there.) */
static void end_dead(struct rig *r)
{
	uint32_t hits = rig_hits(r);
	bool any = false;

	if (hits == r->hits_seen)
		return;
	r->hits_seen = hits;
	for (uint32_t i = 0; i < r->plan.n_rules; i++)
		any |= kills(&r->plan.rules[i]);
	if (!any)
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
	n = loop_turn(r->shard[0].loop, *moved || r->n_shards > 1 ? 0 : 1);
	if (r->n_shards > 1)
		n += loop_turn(r->shard[1].loop, *moved || n ? 0 : 1);
	rig_inside = false;
	r->o.handed |= r->n_shards > 1 && service_connections(r->shard[1].service) > 0;
	end_dead(r);
	*moved = origins_step(r) | names_step(r);
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
	for (unsigned i = 0; i < r->n_shards; i++) {
		service_dump(r->shard[i].service, 2);
		loop_dump(r->shard[i].loop, 2);
	}
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

static bool is_busy(const struct rig *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n_shards; i++) {
		const struct rig_shard *sh = &r->shard[i];

		n += service_connections(sh->service) + exchange_count(sh->loop) +
		     relay_count(sh->loop);
	}
	return n > 0;
}

void rig_settle(struct rig *r)
{
	int64_t until = now_ms() + RIG_LIMIT_MS;
	bool moved = true;

	while (is_busy(r)) {
		check_time(r, until);
		turn(r, &moved);
	}
}

static bool has_ended(const struct rig *r)
{
	for (unsigned i = 0; i < r->n_shards; i++)
		if (!r->shard[i].ended || link_count(r->shard[i].loop))
			return false;
	return true;
}

static void close_shard(struct rig_shard *sh)
{
	rig_must(service_stopped(sh->service));
	rig_must(exchange_count(sh->loop) == 0);
	service_close(&sh->service);
	loop_free(&sh->loop);
}

void rig_close(struct rig *r)
{
	int64_t until = now_ms() + RIG_LIMIT_MS;
	bool moved = true;

	for (unsigned i = 0; i < RIG_PEERS; i++)
		reset(&r->peers[i].fd);
	stop(r);
	while (!has_ended(r)) {
		check_time(r, until);
		turn(r, &moved);
	}
	for (unsigned i = 0; i < RIG_PEERS; i++)
		reset(&r->peers[i].fd);
	for (unsigned i = 0; i < r->n_shards; i++)
		close_shard(&r->shard[i]);
	close_plan(r);
}
