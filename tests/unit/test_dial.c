/* test_dial.c -- from a name to a connected link: judging, happy eyeballs, failures, teardown. */
#include "link_rig.h"

#include <sys/un.h>

struct call {
	struct rig *r;
	struct resolver *res;
	struct dial *d;
	struct dial_params p;
	struct link *l;
	struct dial_result result;
	unsigned calls;
	bool inside;
	const char *denied; /* addresses that start so */
	char judged[256];
	/* the fake resolver */
	struct addr addr[4];
	uint32_t n;
	int dns;
	bool mute;
};

static void on_dialled(void *arg, struct link *l, const struct dial_result *result)
{
	struct call *c = arg;

	assert_false(c->inside);
	assert_true((l != NULL) == (result->why->id == WHY_NONE));
	c->calls++;
	c->d = NULL;
	c->l = l;
	c->result = *result;
}

static bool judge(void *arg, const struct addr *a)
{
	struct call *c = arg;
	char text[64];
	struct out o;

	assert_false(c->inside);
	out_init(&o, text, sizeof(text) - 1);
	addr_ip_out(&o, a);
	*o.p = '\0';
	strcat(c->judged, text);
	strcat(c->judged, " ");
	return !c->denied || strncmp(text, c->denied, strlen(c->denied)) != 0;
}

static void on_asked(void *arg, struct str name)
{
	struct call *c = arg;

	if (!c->mute)
		resolver_fake_answer(c->res, name, c->dns, c->addr, c->n, 60);
}

static void call_open(struct call *c, struct rig *r)
{
	struct resolver_conf conf = { .timeout_ms = 2000,
				      .attempts = 2,
				      .negative_ttl_ms = 1000,
				      .hosts_path = "",
				      .resolv_path = "" };

	memset(c, 0, sizeof(*c));
	c->r = r;
	c->res = resolver_new(r->loop, &conf, NULL, NULL);
	assert_non_null(c->res);
	resolver_fake(c->res, on_asked, c);
	c->p = (struct dial_params){ .loop = r->loop,
				     .resolver = c->res,
				     .timeout_ms = 5000,
				     .judge = judge,
				     .done = on_dialled,
				     .arg = c };
}

static void call_close(struct call *c)
{
	dial_cancel(&c->d);
	link_close(&c->l);
	resolver_free(&c->res);
}

#define CALL(c, state) \
	RIG(r, state); \
	struct call c; \
	call_open(&c, r)

static void has(struct call *c, const char *ip)
{
	assert_true(addr_parse_ip(str_of(ip), 0, &c->addr[c->n++]));
}

static void start(struct call *c)
{
	c->inside = true;
	c->d = dial_start(&c->p);
	c->inside = false;
	assert_non_null(c->d);
}

static void finish(struct call *c)
{
	rig_until(c->r, c->calls > 0);
	assert_int_equal(c->calls, 1);
	for (int i = 0; i < 5; i++)
		loop_turn(c->r->loop, 1);
	assert_int_equal(c->calls, 1);
}

static void to_name(struct call *c, const char *name, uint16_t port)
{
	c->p.host = str_of(name);
	c->p.port = port;
	start(c);
}

static void to_literal(struct call *c, const char *ip, uint16_t port)
{
	c->p.literal = true;
	assert_true(addr_parse_ip(str_of(ip), port, &c->p.addr));
	start(c);
}

/* A port of 127.0.0.1 where nobody listens. */
static uint16_t closed_port(void)
{
	uint16_t port;

	close(rig_listen(&port));
	return port;
}

/* A listener whose queue is full: a connect() to it hangs.  Returns its descriptor; *fill keep it
 * so. */
static int full_listener(uint16_t *port, int fill[3])
{
	struct sockaddr_in in = rig_loopback(0);
	socklen_t n = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
	assert_int_equal(listen(fd, 0), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
	*port = ntohs(in.sin_port);
	for (int i = 0; i < 3; i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)!connect(fill[i], (struct sockaddr *)&in, n);
	}
	return fd;
}

static void full_listener_close(int fd, int fill[3])
{
	for (int i = 0; i < 3; i++)
		close(fill[i]);
	close(fd);
}

/* --- literals and paths --- */
static void a_literal_takes_no_resolver(void **state)
{
	CALL(c, state);
	uint16_t port;
	int l = rig_listen(&port), v = 0;
	socklen_t n = sizeof(v);

	c.p.resolver = NULL;
	to_literal(&c, "127.0.0.1", port);
	finish(&c);
	assert_non_null(c.l);
	assert_int_equal(addr_port(&c.result.address), port);
	assert_string_equal(c.judged, "127.0.0.1 ");
	assert_int_equal(getsockopt(c.l->fd, IPPROTO_TCP, TCP_NODELAY, &v, &n), 0);
	assert_true(v);
	assert_int_equal(c.result.resolve_us, 0);
	close(l);
	call_close(&c);
}

static void a_literal_as_text_too(void **state)
{
	CALL(c, state);
	uint16_t port;
	int l = rig_listen(&port);

	c.p.resolver = NULL;
	to_name(&c, "127.0.0.1", port);
	finish(&c);
	assert_non_null(c.l);
	assert_int_equal(addr_port(&c.result.address), port);
	close(l);
	call_close(&c);
}

static void a_unix_path(void **state)
{
	CALL(c, state);
	struct bind_conf b = { .kind = BIND_UNIX };
	char dir[] = "/tmp/culvert-dial-XXXXXX", path[64], said[LISTEN_WHY];
	struct bound bound;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	b.path = c.p.path = str_of(path);
	start(&c);
	finish(&c);
	assert_int_equal(c.result.why->id, WHY_REFUSED); /* nothing is there */
	assert_int_equal(listen_bind(&b, 1, &bound, said), 0);
	c.calls = 0;
	start(&c);
	finish(&c);
	assert_non_null(c.l);
	assert_int_equal(c.result.address.u.sa.sa_family, AF_UNIX);
	assert_string_equal(c.judged, "");
	listen_unbind(&bound, &b);
	rmdir(dir);
	call_close(&c);
}

/* A Unix socket whose queue is full is tried again until the time is over. */
static void a_unix_socket_that_is_full(void **state)
{
	CALL(c, state);
	struct bind_conf b = { .kind = BIND_UNIX, .backlog = 1 };
	char dir[] = "/tmp/culvert-dial-XXXXXX", path[64], said[LISTEN_WHY];
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fill[8], n = 0, fd;
	struct bound bound;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	b.path = c.p.path = str_of(path);
	assert_int_equal(listen_bind(&b, 1, &bound, said), 0);
	strcpy(un.sun_path, path);
	for (; n < 8; n++) {
		fill[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect(fill[n], (struct sockaddr *)&un, sizeof(un)))
			break;
	}
	assert_true(n < 8);
	start(&c);
	for (int i = 0; i < 20; i++)
		loop_turn(r->loop, 5);
	assert_int_equal(c.calls, 0);
	fd = accept(bound.fds[0], NULL, NULL);
	assert_true(fd >= 0);
	finish(&c);
	assert_non_null(c.l);
	close(fd);
	for (int i = 0; i <= n; i++)
		close(fill[i]);
	listen_unbind(&bound, &b);
	rmdir(dir);
	call_close(&c);
}

/* --- names --- */
static void a_name_is_resolved_and_timed(void **state)
{
	CALL(c, state);
	uint16_t port;
	int l = rig_listen(&port);

	c.mute = true;
	has(&c, "127.0.0.1");
	to_name(&c, "web.test", port);
	for (int i = 0; i < 10; i++)
		loop_turn(r->loop, 2);
	resolver_fake_answer(c.res, STR("web.test"), 0, c.addr, 1, 60);
	finish(&c);
	assert_non_null(c.l);
	assert_true(c.result.resolve_us > 0);
	assert_in_range(c.result.connect_us, 0, 5000000);
	close(l);
	call_close(&c);
}

static void names_that_fail(void **state)
{
	static const struct {
		int res;
		enum why_id why;
	} rows[] = {
		{ -ENOENT, WHY_DNS },
		{ -EIO, WHY_DNS },
		{ -ETIMEDOUT, WHY_DNS_TIMEOUT },
		{ -ENOMEM, WHY_MEMORY },
	};
	CALL(c, state);
	char name[16];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		snprintf(name, sizeof(name), "n%zu.test", i);
		c.dns = rows[i].res;
		c.calls = 0;
		to_name(&c, name, 80);
		finish(&c);
		assert_int_equal(c.result.why->id, rows[i].why);
		assert_int_equal(c.result.address.len, 0);
	}
	call_close(&c);
}

/* G02: each address, just before it is dialled. */
static void each_address_is_judged(void **state)
{
	CALL(c, state);
	uint16_t port;
	int l = rig_listen(&port);

	c.denied = "10.";
	has(&c, "10.0.0.1");
	has(&c, "127.0.0.1");
	to_name(&c, "rebind.test", port);
	finish(&c);
	assert_non_null(c.l);
	assert_string_equal(c.judged, "10.0.0.1 127.0.0.1 ");
	close(l);
	call_close(&c);
}

static void all_denied_is_prohibited(void **state)
{
	CALL(c, state);

	c.denied = "10.";
	has(&c, "10.0.0.1");
	has(&c, "10.0.0.2");
	to_name(&c, "inside.test", 80);
	finish(&c);
	assert_int_equal(c.result.why->id, WHY_IP_PROHIBITED);
	assert_int_equal(c.result.address.len, 0);
	call_close(&c);
}

static void a_failure_tells_more_than_a_denial(void **state)
{
	CALL(c, state);

	c.denied = "10.";
	has(&c, "10.0.0.1");
	has(&c, "127.0.0.1");
	to_name(&c, "some.test", closed_port());
	finish(&c);
	assert_int_equal(c.result.why->id, WHY_REFUSED);
	assert_string_equal(c.judged, "10.0.0.1 127.0.0.1 ");
	call_close(&c);
}

/* --- happy eyeballs --- */
static void families_take_turns(void **state)
{
	static const struct {
		uint8_t prefer;
		const char *order;
	} rows[] = {
		{ PREFER_AUTO, "fd00::1 10.0.0.1 fd00::2 10.0.0.2 " },
		{ PREFER_IPV6, "fd00::1 10.0.0.1 fd00::2 10.0.0.2 " },
		{ PREFER_IPV4, "10.0.0.1 fd00::1 10.0.0.2 fd00::2 " },
	};
	CALL(c, state);

	has(&c, "10.0.0.1");
	has(&c, "10.0.0.2");
	has(&c, "fd00::1");
	has(&c, "fd00::2");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		c.denied = ""; /* all */
		c.calls = 0;
		c.judged[0] = '\0';
		c.p.prefer = rows[i].prefer;
		to_name(&c, "both.test", 80);
		finish(&c);
		assert_string_equal(c.judged, rows[i].order);
	}
	call_close(&c);
}

static void a_refused_address_gives_way_at_once(void **state)
{
	CALL(c, state);
	uint16_t port;
	int l = rig_listen(&port);

	has(&c, "127.0.0.2"); /* bound on 127.0.0.1 only: refused */
	has(&c, "127.0.0.1");
	to_name(&c, "half.test", port);
	finish(&c);
	assert_non_null(c.l);
	assert_true(c.result.connect_us < 200000);
	assert_string_equal(c.judged, "127.0.0.2 127.0.0.1 ");
	close(l);
	call_close(&c);
}

static void a_hanging_address_gives_way_after_250_ms(void **state)
{
	CALL(c, state);
	uint16_t port;
	int fill[3], hang = full_listener(&port, fill), l;
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	in.sin_addr.s_addr = htonl(0x7f000003);
	l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(l, 4), 0);
	has(&c, "127.0.0.1"); /* hangs */
	has(&c, "127.0.0.3");
	to_name(&c, "slow.test", port);
	finish(&c);
	assert_non_null(c.l);
	assert_true(c.result.connect_us >= 250000);
	assert_int_equal(c.result.address.u.in.sin_addr.s_addr, in.sin_addr.s_addr);
	close(l);
	full_listener_close(hang, fill);
	call_close(&c); /* the rig finds the loser's descriptor closed */
}

/* --- the end of time --- */
static void the_time_is_over_while_connecting(void **state)
{
	CALL(c, state);
	uint16_t port;
	int fill[3], hang = full_listener(&port, fill);

	c.p.timeout_ms = 50;
	to_literal(&c, "127.0.0.1", port);
	finish(&c);
	assert_int_equal(c.result.why->id, WHY_CONNECT_TIMEOUT);
	assert_true(c.result.connect_us >= 50000);
	assert_int_equal(addr_port(&c.result.address), port);
	full_listener_close(hang, fill);
	call_close(&c);
}

static void the_time_is_over_while_resolving(void **state)
{
	CALL(c, state);

	c.p.timeout_ms = 50;
	c.mute = true;
	to_name(&c, "mute.test", 80);
	finish(&c);
	assert_int_equal(c.result.why->id, WHY_DNS_TIMEOUT);
	assert_true(c.result.resolve_us >= 50000);
	assert_int_equal(c.result.connect_us, 0);
	call_close(&c);
}

static void cancelling_at_every_moment(void **state)
{
	CALL(c, state);
	uint16_t port;
	int fill[3], hang = full_listener(&port, fill);

	has(&c, "127.0.0.1");
	for (int turns = 0; turns < 6; turns++) {
		to_name(&c, "x.test", port);
		for (int i = 0; i < turns; i++)
			loop_turn(r->loop, 1);
		dial_cancel(&c.d);
		assert_null(c.d);
	}
	for (int i = 0; i < 5; i++)
		loop_turn(r->loop, 1);
	assert_int_equal(c.calls, 0);
	full_listener_close(hang, fill);
	call_close(&c);
}

/* --- our own resources --- */
static const struct {
	uint8_t kind;
	int res;
	enum why_id why;
} faults[] = {
	{ FAULT_SOCKET, -EMFILE, WHY_DESCRIPTORS },
	{ FAULT_SOCKET, -ENFILE, WHY_DESCRIPTORS },
	{ FAULT_SOCKET, -ENOBUFS, WHY_MEMORY },
	{ OP_CONNECT, -EADDRNOTAVAIL, WHY_PORTS }, /* E07 */
	{ OP_CONNECT, -ECONNREFUSED, WHY_REFUSED },
	{ OP_CONNECT, -ECONNRESET, WHY_TERMINATED },
	{ OP_CONNECT, -ENETUNREACH, WHY_UNROUTABLE },
	{ OP_CONNECT, -EHOSTUNREACH, WHY_UNROUTABLE },
	{ OP_CONNECT, -ETIMEDOUT, WHY_CONNECT_TIMEOUT },
};

static void failures_have_their_reason(void **state)
{
	RIG(r, state);
	uint16_t port;
	int l = rig_listen(&port);

	r->fds_before++; /* l */
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		struct fault_plan plan = { .n_rules = 1 };
		struct call c;

		rig_close(r);
		plan.rules[0] = (struct fault_rule){ .kind = faults[i].kind,
						     .nth = 1,
						     .res = faults[i].res };
		r->fault = &plan;
		assert_int_equal(rig_open(r), 0);
		call_open(&c, r);
		to_literal(&c, "127.0.0.1", port);
		finish(&c);
		assert_int_equal(c.result.why->id, faults[i].why);
		c.calls = 0;
		start(&c); /* and the next one is well */
		finish(&c);
		assert_non_null(c.l);
		call_close(&c);
		rig_close(r);
		r->fault = NULL;
		assert_int_equal(rig_open(r), 0);
	}
	close(l);
	r->fds_before--;
}

/* No route for one family tells less than what the server of the other did. */
static void the_most_telling_failure_is_told(void **state)
{
	RIG(r, state);
	struct fault_plan plan = { .n_rules = 2 };
	struct call c;

	rig_close(r);
	plan.rules[0] = (struct fault_rule){ .kind = OP_CONNECT, .nth = 1, .res = -ECONNREFUSED };
	plan.rules[1] = (struct fault_rule){ .kind = OP_CONNECT, .nth = 2, .res = -EADDRNOTAVAIL };
	r->fault = &plan;
	assert_int_equal(rig_open(r), 0);
	call_open(&c, r);
	c.p.prefer = PREFER_IPV4;
	has(&c, "127.0.0.1");
	has(&c, "::1");
	to_name(&c, "both.test", 1);
	finish(&c);
	assert_int_equal(c.result.why->id, WHY_REFUSED);
	call_close(&c);
	rig_close(r);
	r->fault = NULL;
	assert_int_equal(rig_open(r), 0);
}

/* --- somebody counts the sockets --- */
struct counter {
	struct hold hold;
	unsigned let_go;
};

static void on_let_go(struct hold *h, struct loop *l)
{
	(void)l;
	container_of(h, struct counter, hold)->let_go++;
}

/* The link has it, until its descriptor is closed. */
static void the_link_takes_the_hold(void **state)
{
	CALL(c, state);
	struct counter n = { .hold = { on_let_go } };
	uint16_t port;
	int l = rig_listen(&port), peer;
	char byte;

	c.p.hold = &n.hold;
	to_literal(&c, "127.0.0.1", port);
	finish(&c);
	assert_ptr_equal(c.l->hold, &n.hold);
	peer = accept(l, NULL, NULL);
	assert_true(peer >= 0);
	link_read(c.l);
	loop_turn(r->loop, 0);
	link_close(&c.l);
	assert_int_equal(n.let_go, 0);
	rig_until(r, n.let_go == 1);
	assert_int_equal(recv(peer, &byte, 1, MSG_DONTWAIT), 0); /* FIN is there */
	close(peer);
	close(l);
	call_close(&c);
	assert_int_equal(n.let_go, 1);
}

static void a_failed_dial_lets_go(void **state)
{
	CALL(c, state);
	struct counter n = { .hold = { on_let_go } };

	c.p.hold = &n.hold;
	to_literal(&c, "127.0.0.1", closed_port());
	finish(&c);
	assert_int_equal(n.let_go, 1);
	c.p.literal = false;
	c.dns = -ENOENT;
	c.calls = 0;
	to_name(&c, "none.test", 1);
	finish(&c);
	assert_int_equal(n.let_go, 2);
	call_close(&c);
}

/* Never two sockets at once: the address that hangs is dropped when its share is over. */
static void a_hanging_address_is_dropped_first(void **state)
{
	CALL(c, state);
	struct counter n = { .hold = { on_let_go } };
	uint16_t port;
	int fill[3], hang = full_listener(&port, fill);
	struct sockaddr_in in = rig_loopback(port);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), before;

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	assert_int_equal(bind(l, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(l, 4), 0);
	c.p.hold = &n.hold;
	c.p.timeout_ms = 1000;
	has(&c, "127.0.0.1");
	has(&c, "127.0.0.2");
	to_name(&c, "two.test", port);
	rig_until(r, !c.d || c.judged[0]);
	before = rig_count_fds();
	while (!c.calls) {
		loop_turn(r->loop, 5);
		assert_true(rig_count_fds() <= before);
	}
	finish(&c);
	assert_non_null(c.l);
	assert_true(c.result.connect_us >= 500000);
	assert_int_equal(n.let_go, 0);
	link_close(&c.l);
	rig_until(r, n.let_go == 1);
	close(l);
	full_listener_close(hang, fill);
	call_close(&c);
}

/* Cancelled while it hangs, or while what was dropped has not gone: once, when the socket has. */
static void a_cancelled_dial_lets_go_later(void **state)
{
	CALL(c, state);
	struct counter n = { .hold = { on_let_go } };
	uint16_t port;
	int fill[3], hang = full_listener(&port, fill);

	c.p.hold = &n.hold;
	to_literal(&c, "127.0.0.1", port);
	dial_cancel(&c.d); /* before its socket is made */
	assert_int_equal(n.let_go, 1);
	start(&c);
	rig_until(r, c.judged[0]);
	dial_cancel(&c.d);
	assert_int_equal(n.let_go, 1);
	rig_until(r, n.let_go == 2);
	full_listener_close(hang, fill);
	call_close(&c);
	assert_int_equal(n.let_go, 2);
}

static void no_memory_is_said_at_once(void **state)
{
	CALL(c, state);
	struct counter n = { .hold = { on_let_go } };

	r->budget.max = 0;
	c.p.literal = true;
	assert_null(dial_start(&c.p));
	c.p.hold = &n.hold;
	assert_null(dial_start(&c.p));
	assert_int_equal(n.let_go, 1);
	r->budget.max = 256u << 20;
	call_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(a_literal_takes_no_resolver),
		RIG_TEST(a_literal_as_text_too),
		RIG_TEST(a_unix_path),
		RIG_TEST(a_unix_socket_that_is_full),
		RIG_TEST(a_name_is_resolved_and_timed),
		RIG_TEST(names_that_fail),
		RIG_TEST(each_address_is_judged),
		RIG_TEST(all_denied_is_prohibited),
		RIG_TEST(a_failure_tells_more_than_a_denial),
		RIG_TEST(families_take_turns),
		RIG_TEST(a_refused_address_gives_way_at_once),
		RIG_TEST(a_hanging_address_gives_way_after_250_ms),
		RIG_TEST(the_time_is_over_while_connecting),
		RIG_TEST(the_time_is_over_while_resolving),
		RIG_TEST(cancelling_at_every_moment),
		RIG_TEST(failures_have_their_reason),
		RIG_TEST(the_most_telling_failure_is_told),
		RIG_TEST(the_link_takes_the_hold),
		RIG_TEST(a_failed_dial_lets_go),
		RIG_TEST(a_hanging_address_is_dropped_first),
		RIG_TEST(a_cancelled_dial_lets_go_later),
		RIG_TEST(no_memory_is_said_at_once),
	};

	return cmocka_run_group_tests_name("dial", tests, NULL, NULL);
}
