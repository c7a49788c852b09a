/* Every timeout, to the millisecond: nothing rings before it, what its victim and the other side
 * see then, what the log says, and that the service serves on.
 *
 * The table has one row per situation in which a timeout runs.  Each row is tried with the
 * timeout's default, after a movement that begins it anew, with other values from the top level, a
 * listener and the route (the nearest wins), and switched off; and while the wall clock jumps. */
#include "scene.h"

#include <stdio.h>

/* ---------------------------------------------------------------- what the table says */
enum client_end {            /* what the client sees */
		  C_FIN = 1, /* no byte, FIN */
		  C_KEEPS,   /* a page; the connection stays */
		  C_CLOSES,  /* a page with Connection: close, FIN */
		  C_CUT_FIN, /* an answer that ends too early, by FIN */
		  C_CUT_RST, /* by RST */
		  C_RST,     /* RST */
		  C_STAYS    /* nothing */
};

enum server_end { S_NONE = 0, S_RST, S_FIN };

enum place { TOP = 1, LISTENER = 2, ROUTE = 4, ALL = TOP | LISTENER | ROUTE };

struct row {
	const char *name;
	const char *setting;
	uint64_t ms;     /* its default; 0: off */
	unsigned places; /* where it may stand */
	struct knobs knobs;
	enum door door;
	void (*reach)(struct scene *); /* the situation, ends at a mark */
	void (*move)(struct scene *);  /* begins the time anew; NULL: nothing does */
	enum client_end client;
	enum server_end server;
	const char *status, *reason; /* of the log; NULL: no line */
	bool complete;
	uint64_t slack_ms;
	void (*after)(struct scene *); /* ends what else is under way; NULL: nothing is */
	uint64_t off_ms;               /* rings all the same then, when switched off */
};

/* ---------------------------------------------------------------- situations */
static void call(struct scene *sc, const char *text)
{
	scene_call(sc, text);
	world_mark(&sc->w);
}

static void say_nothing(struct scene *sc)
{
	call(sc, "");
}

static void one_round(struct scene *sc)
{
	scene_ask(sc, GET);
	world_eat_all(sc->s);
	sim_say(sc->s, OKAY, strlen(OKAY));
	run_until(&sc->w, world_head(sc->c));
	world_eat_all(sc->c);
	world_mark(&sc->w);
	scene_log(sc, "200", "", true);
}

static void a_first_byte(struct scene *sc)
{
	call(sc, "G");
}

static void a_second_request_begins(struct scene *sc)
{
	one_round(sc);
	world_pass(&sc->w, SECONDS(1));
	call(sc, "GET / HTTP/1.1\r\nHost:");
}

static void drip(void *arg)
{
	struct scene *sc = arg;

	if (sc->c->eof || sc->c->reset || sc->c->fin)
		return;
	world_say(sc->c, "a:b\r\n");
	sim_at(sc->w.sim, 700000, drip, sc);
}

static void a_head_drips(struct scene *sc)
{
	call(sc, "GET / HTTP/1.1\r\nHost: s\r\n");
	drip(sc);
}

static void half_a_request_behind_another(struct scene *sc)
{
	scene_ask(sc, GET "GET / HT");
	world_eat_all(sc->s);
	world_pass(&sc->w, SECONDS(30)); /* it is not its turn yet */
	sim_say(sc->s, OKAY, strlen(OKAY));
	world_mark(&sc->w);
	run_until(&sc->w, world_head(sc->c));
	world_eat_all(sc->c);
	scene_log(sc, "200", "", true);
}

static void a_body_stalls(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n0123456789");
	world_pass(&sc->w, SECONDS(1) / 2);
	call(sc, "0");
}

static void a_chunk_stalls(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n");
	call(sc, "10\r\n0");
}

static void no_body_comes(struct scene *sc)
{
	scene_call(sc, "");
	world_pass(&sc->w, SECONDS(1));
	call(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n");
	run_until(&sc->w, scene_asked(sc));
}

static void no_body_comes_after_100(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nExpect: 100-continue\r\n"
		      "Content-Length: 9\r\n\r\n");
	scene_says(sc, "HTTP/1.1 100 Continue\r\n\r\n");
	world_eat_all(sc->c);
	call(sc, "0");
}

static void a_body_stalls_while_answered(struct scene *sc)
{
	a_body_stalls(sc);
	world_pass(&sc->w, 100000);
	scene_says(sc, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n01234");
}

static void to_a_dead_end(struct scene *sc)
{
	scene_server(sc, 1, SIM_SILENT);
	call(sc, GET);
}

static void to_a_dead_target(struct scene *sc)
{
	scene_server(sc, 1, SIM_SILENT);
	call(sc, "GET http://10.1.0.1/ HTTP/1.1\r\nHost: 10.1.0.1\r\n\r\n");
}

static void connect_to_a_dead_target(struct scene *sc)
{
	scene_server(sc, 1, SIM_SILENT);
	call(sc, "CONNECT 10.1.0.1:80 HTTP/1.1\r\nHost: 10.1.0.1:80\r\n\r\n");
}

static void no_answer(struct scene *sc)
{
	call(sc, GET);
	run_until(&sc->w, scene_asked(sc));
}

static void no_answer_on_a_pooled_one(struct scene *sc)
{
	one_round(sc);
	no_answer(sc);
}

static void no_answer_after_a_slow_request(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 3\r\n\r\n0");
	world_pass(&sc->w, SECONDS(1) / 2);
	scene_call(sc, "1");
	world_pass(&sc->w, SECONDS(1) / 2);
	call(sc, "2");
}

static void half_a_head(struct scene *sc)
{
	no_answer(sc);
	world_pass(&sc->w, SECONDS(1) / 2);
	world_say(sc->s, "HTTP/1.1 200 OK\r\nA:");
}

static void only_interims(struct scene *sc)
{
	no_answer(sc);
	world_pass(&sc->w, SECONDS(1) / 2);
	scene_says(sc, "HTTP/1.1 103 Early Hints\r\n\r\n");
	world_eat_all(sc->c);
}

static void begun(struct scene *sc, const char *head)
{
	scene_ask(sc, GET);
	scene_says(sc, head);
	world_mark(&sc->w);
	world_say(sc->s, "1");
}

static void half_an_answer(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
}

static void half_a_chunked_answer(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n");
}

static void half_an_answer_until_close(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\n\r\n");
}

static void half_an_answer_for_an_old_client(struct scene *sc)
{
	scene_ask(sc, "GET / HTTP/1.0\r\nHost: s\r\n\r\n");
	scene_says(sc, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	world_mark(&sc->w);
	world_say(sc->s, "100\r\n1");
}

static void an_event_stream(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
}

static const uint8_t bulk[1 << 20];

static void a_reader_stops(struct scene *sc)
{
	scene_ask(sc, GET);
	scene_says(sc, "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n");
	sim_hold(sc->c, true);
	world_mark(&sc->w);
	sim_say(sc->s, bulk, sizeof(bulk));
}

static void a_server_stops_reading(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 1048576\r\n\r\n");
	sim_hold(sc->s, true);
	world_mark(&sc->w);
	sim_say(sc->c, bulk, sizeof(bulk));
}

static void a_tunnel(struct scene *sc)
{
	scene_call(sc, "CONNECT 10.1.0.1:80 HTTP/1.1\r\nHost: 10.1.0.1:80\r\n\r\n");
	run_until(&sc->w, world_head(sc->c) == 200);
	sc->s = sc->served[0].peer;
	world_mark(&sc->w);
}

static void a_switch(struct scene *sc)
{
	scene_ask(sc, "GET / HTTP/1.1\r\nHost: s\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
	scene_says(sc, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
		       "Upgrade: echo\r\n\r\n");
	assert_int_equal(world_head(sc->c), 101);
	world_mark(&sc->w);
}

static void a_half_closed_tunnel(struct scene *sc)
{
	a_tunnel(sc);
	world_pass(&sc->w, SECONDS(1));
	world_mark(&sc->w);
	sim_fin(sc->s);
	run_until(&sc->w, sc->c->eof);
}

/* Another client has the server's only connection. */
static void all_are_busy(struct scene *sc)
{
	scene_ask(sc, GET);
	world_eat_all(sc->s);
	sc->c = NULL;
	call(sc, GET);
}

static void answer_the_busy_one(struct scene *sc)
{
	world_say(sc->s, OKAY);
	world_pass(&sc->w, 10000);
	scene_log(sc, "200", "", true);
}

/* ---------------------------------------------------------------- movements */
static void client_says_one(struct scene *sc)
{
	call(sc, "1");
}

static void server_says_one(struct scene *sc)
{
	world_mark(&sc->w);
	world_say(sc->s, "1");
}

static void reader_takes_some(struct scene *sc)
{
	world_mark(&sc->w);
	sim_hold(sc->c, false);
	sim_hold(sc->c, true);
}

static void server_takes_some(struct scene *sc)
{
	world_mark(&sc->w);
	sim_hold(sc->s, false);
	sim_hold(sc->s, true);
}

/* ---------------------------------------------------------------- the table */
#define LOGGED_WHOLE(s, r) .status = (s), .reason = (r), .complete = true
#define LOGGED_CUT(s, r)   .status = (s), .reason = (r)
#define AT_ANY_RATE        .more = "limits: { body_rate_min: off }"
#define NOTHING_ELSE       "connect: off, first_byte: off, "
#define ONE_CONNECTION     .servers = "{ url: \"http://" SERVER_1 ":80\", max_connections: 1 }"
#define ONE_SERVER         .servers = "\"http://" SERVER_1 ":80\""

static const struct row rows[] = {
	{ "keep_alive: a client that says nothing", "keep_alive", 75000, TOP | LISTENER,
	  .reach = say_nothing, .client = C_FIN },
	{ "keep_alive: between two requests", "keep_alive", 75000, TOP | LISTENER,
	  .reach = one_round, .move = one_round, .client = C_FIN },
	{ "request_head: from the first byte", "request_head", 10000, TOP | LISTENER,
	  .reach = a_first_byte, .client = C_CLOSES, LOGGED_WHOLE("408", "request_head_timeout") },
	{ "request_head: of a second request", "request_head", 10000, TOP | LISTENER,
	  .reach = a_second_request_begins, .client = C_CLOSES,
	  LOGGED_WHOLE("408", "request_head_timeout") },
	{ "request_head: a head that drips", "request_head", 10000, TOP | LISTENER,
	  .reach = a_head_drips, .client = C_CLOSES, LOGGED_WHOLE("408", "request_head_timeout") },
	{ "request_head: behind another request", "request_head", 10000, TOP | LISTENER,
	  .reach = half_a_request_behind_another, .client = C_CLOSES,
	  LOGGED_WHOLE("408", "request_head_timeout") },
	{ "request_idle: a body stalls", "request_idle", 60000, ALL, .reach = a_body_stalls,
	  .move = client_says_one, .knobs = { AT_ANY_RATE }, .client = C_CLOSES, .server = S_RST,
	  LOGGED_WHOLE("408", "request_idle") },
	{ "request_idle: a chunk stalls", "request_idle", 60000, ALL, .reach = a_chunk_stalls,
	  .move = client_says_one, .knobs = { AT_ANY_RATE }, .client = C_CLOSES, .server = S_RST,
	  LOGGED_WHOLE("408", "request_idle") },
	{ "request_idle: no body comes", "request_idle", 60000, ALL, .reach = no_body_comes,
	  .move = client_says_one, .knobs = { AT_ANY_RATE }, .client = C_CLOSES, .server = S_RST,
	  LOGGED_WHOLE("408", "request_idle") },
	{ "request_idle: a body stalls after its 100", "request_idle", 60000, ALL,
	  .reach = no_body_comes_after_100, .move = client_says_one, .knobs = { AT_ANY_RATE },
	  .client = C_CLOSES, .server = S_RST, LOGGED_WHOLE("408", "request_idle") },
	{ "request_idle: a body stalls while it is answered", "request_idle", 60000, ALL,
	  .reach = a_body_stalls_while_answered, .knobs = { AT_ANY_RATE }, .client = C_CUT_RST,
	  .server = S_RST, LOGGED_CUT("200", "request_idle") },
	{ "connect: a server that says nothing", "connect", 5000, ALL, .reach = to_a_dead_end,
	  .knobs = { ONE_SERVER }, .client = C_KEEPS, LOGGED_WHOLE("504", "connection_timeout") },
	{ "connect: a target that says nothing", "connect", 5000, TOP | LISTENER,
	  .reach = to_a_dead_target, .door = FWD, .client = C_KEEPS,
	  LOGGED_WHOLE("504", "connection_timeout") },
	{ "connect: CONNECT to a target that says nothing", "connect", 5000, TOP | LISTENER,
	  .reach = connect_to_a_dead_target, .door = FWD, .client = C_KEEPS,
	  LOGGED_WHOLE("504", "connection_timeout") },
	{ "first_byte: no answer", "first_byte", 60000, ALL, .reach = no_answer, .client = C_KEEPS,
	  .server = S_RST, LOGGED_WHOLE("504", "http_response_timeout") },
	{ "first_byte: no answer on a pooled connection", "first_byte", 60000, ALL,
	  .reach = no_answer_on_a_pooled_one, .client = C_KEEPS, .server = S_RST,
	  LOGGED_WHOLE("504", "http_response_timeout") },
	{ "first_byte: from the last byte of the request", "first_byte", 60000, ALL,
	  .reach = no_answer_after_a_slow_request, .client = C_KEEPS, .server = S_RST,
	  LOGGED_WHOLE("504", "http_response_timeout") },
	{ "first_byte: half a head", "first_byte", 60000, ALL, .reach = half_a_head,
	  .client = C_KEEPS, .server = S_RST, LOGGED_WHOLE("504", "http_response_timeout") },
	{ "first_byte: interims are no answer", "first_byte", 60000, ALL, .reach = only_interims,
	  .client = C_KEEPS, .server = S_RST, LOGGED_WHOLE("504", "http_response_timeout") },
	{ "response_idle: by length", "response_idle", 60000, ALL, .reach = half_an_answer,
	  .move = server_says_one, .client = C_CUT_FIN, .server = S_RST,
	  LOGGED_CUT("200", "response_idle") },
	{ "response_idle: chunked", "response_idle", 60000, ALL, .reach = half_a_chunked_answer,
	  .move = server_says_one, .client = C_CUT_FIN, .server = S_RST,
	  LOGGED_CUT("200", "response_idle") },
	{ "response_idle: until close", "response_idle", 60000, ALL,
	  .reach = half_an_answer_until_close, .move = server_says_one, .client = C_CUT_FIN,
	  .server = S_RST, LOGGED_CUT("200", "response_idle") },
	{ "response_idle: for a client of HTTP/1.0", "response_idle", 60000, ALL,
	  .reach = half_an_answer_for_an_old_client, .move = server_says_one, .client = C_CUT_RST,
	  .server = S_RST, LOGGED_CUT("200", "response_idle") },
	{ "tunnel_idle: an event stream", "tunnel_idle", 3600000, ALL, .reach = an_event_stream,
	  .move = server_says_one, .client = C_CUT_FIN, .server = S_RST,
	  LOGGED_CUT("200", "response_idle") },
	{ "send_idle: a reader that takes nothing", "send_idle", 60000, ALL,
	  .reach = a_reader_stops, .move = reader_takes_some, .client = C_CUT_RST, .server = S_RST,
	  LOGGED_CUT("200", "send_idle"), .slack_ms = 3 },
	{ "send_idle: a server that takes nothing", "send_idle", 60000, ALL,
	  .reach = a_server_stops_reading, .move = server_takes_some, .client = C_CLOSES,
	  .server = S_RST, LOGGED_WHOLE("504", "connection_write_timeout"), .slack_ms = 3 },
	{ "upstream_keep_alive: in the pool", "upstream_keep_alive", 30000, ALL, .reach = one_round,
	  .move = one_round, .knobs = { ONE_SERVER }, .client = C_STAYS, .server = S_FIN,
	  .off_ms = 30 * 60000 },
	{ "tunnel_idle: CONNECT, the client moves", "tunnel_idle", 3600000, TOP | LISTENER,
	  .reach = a_tunnel, .move = client_says_one, .door = FWD, .client = C_RST, .server = S_RST,
	  LOGGED_CUT("200", "tunnel_idle") },
	{ "tunnel_idle: CONNECT, the server moves", "tunnel_idle", 3600000, TOP | LISTENER,
	  .reach = a_tunnel, .move = server_says_one, .door = FWD, .client = C_RST, .server = S_RST,
	  LOGGED_CUT("200", "tunnel_idle") },
	{ "tunnel_idle: half-closed", "tunnel_idle", 3600000, TOP | LISTENER,
	  .reach = a_half_closed_tunnel, .move = client_says_one, .door = FWD, .client = C_RST,
	  .server = S_RST, LOGGED_CUT("200", "tunnel_idle") },
	{ "tunnel_idle: 101, the client moves", "tunnel_idle", 3600000, ALL, .reach = a_switch,
	  .move = client_says_one, .client = C_RST, .server = S_RST,
	  LOGGED_CUT("101", "tunnel_idle") },
	{ "tunnel_idle: 101, the server moves", "tunnel_idle", 3600000, ALL, .reach = a_switch,
	  .move = server_says_one, .client = C_RST, .server = S_RST,
	  LOGGED_CUT("101", "tunnel_idle") },
	{ "queue: the only connection is taken", "first_byte: off, queue", 10000, ALL,
	  .reach = all_are_busy, .after = answer_the_busy_one, .knobs = { ONE_CONNECTION },
	  .client = C_KEEPS, LOGGED_WHOLE("503", "queue_timeout") },
	{ "total: no answer", NOTHING_ELSE "total", 0, ALL, .reach = no_answer, .client = C_CLOSES,
	  .server = S_RST, LOGGED_WHOLE("504", "total_timeout") },
	{ "total: the server cannot be reached", NOTHING_ELSE "total", 0, ALL,
	  .reach = to_a_dead_end, .knobs = { ONE_SERVER }, .client = C_CLOSES,
	  LOGGED_WHOLE("504", "total_timeout") },
};

/* ---------------------------------------------------------------- trying a row */
static bool client_ended(const struct scene *sc, enum client_end how)
{
	switch (how) {
	case C_FIN:
	case C_CUT_FIN: return sc->c->eof;
	case C_KEEPS: return world_head(sc->c) >= 400;
	case C_CLOSES: return world_head(sc->c) >= 400 && sc->c->eof;
	case C_CUT_RST:
	case C_RST: return sc->c->reset;
	case C_STAYS: return sc->s->eof;
	}
	return false;
}

static void look_at_client(struct scene *sc, const struct row *r)
{
	switch (r->client) {
	case C_FIN: assert_int_equal(sc->c->n_got, 0); break;
	case C_KEEPS:
	case C_CLOSES:
		scene_page(sc, (unsigned)strtoul(r->status, NULL, 10), r->client == C_CLOSES);
		break;
	case C_CUT_FIN:
	case C_CUT_RST:
		assert_int_equal(world_head(sc->c), 200);
		assert_null(strstr((char *)sc->c->got, "\r\n0\r\n\r\n"));
		break;
	case C_RST:
	case C_STAYS: break;
	}
	assert_int_equal(sc->c->reset, r->client == C_CUT_RST || r->client == C_RST);
}

static void look_at_server(struct scene *sc, const struct row *r)
{
	uint64_t rang = sim_now_us(sc->w.sim);

	switch (r->server) {
	case S_NONE: return;
	case S_RST: run_until(&sc->w, sc->s->reset); break;
	case S_FIN: run_until(&sc->w, sc->s->eof); break;
	}
	world_must(&sc->w, sim_now_us(sc->w.sim) - rang < 1000); /* it learns it at once */
}

static void goes_on(struct scene *sc, const struct row *r)
{
	if (r->after)
		r->after(sc);
	world_eat_all(sc->c);
	if ((r->client == C_KEEPS || r->client == C_STAYS) && sc->door == WEB) {
		scene_server(sc, 1, SIM_ACCEPTS);
		scene_round(sc);
	}
	scene_serves(sc);
}

static struct knobs with(const struct row *r, char *text, size_t size, const char *value)
{
	struct knobs k = r->knobs;

	snprintf(text, size, "timeouts: { %s: %s }\n%s", r->setting, value, k.more ? k.more : "");
	k.more = text;
	return k;
}

static void ring(const struct row *r, const struct knobs *k, uint64_t ms)
{
	struct scene sc;

	scene_open(&sc, k);
	sc.door = r->door;
	r->reach(&sc);
	must_ring_within(&sc, client_ended(&sc, r->client), ms,
			 r->slack_ms ? r->slack_ms : SLACK_MS);
	look_at_client(&sc, r);
	look_at_server(&sc, r);
	if (r->status)
		scene_log(&sc, r->status, r->reason, r->complete);
	goes_on(&sc, r);
	scene_close(&sc);
}

/* Just before it rings something moves, twice. */
static void ring_after_movements(const struct row *r, uint64_t ms)
{
	struct scene sc;

	scene_open(&sc, &r->knobs);
	sc.door = r->door;
	r->reach(&sc);
	for (int i = 0; i < 2; i++) {
		world_pass(&sc.w, (ms - 2) * 1000 - (sim_now_us(sc.w.sim) - sc.w.began_us));
		assert_false(client_ended(&sc, r->client));
		r->move(&sc);
	}
	must_ring_within(&sc, client_ended(&sc, r->client), ms,
			 r->slack_ms ? r->slack_ms : SLACK_MS);
	if (r->status)
		scene_log(&sc, r->status, r->reason, r->complete);
	scene_close(&sc);
}

/* The wall clock is set by hours, forward and back. */
static void ring_while_the_clock_jumps(const struct row *r, uint64_t ms)
{
	struct scene sc;

	scene_open(&sc, &r->knobs);
	sc.door = r->door;
	r->reach(&sc);
	sim_set_wall(sc.w.sim, (int64_t)HOURS(7));
	world_pass(&sc.w, ms * 1000 / 3);
	sim_set_wall(sc.w.sim, -(int64_t)HOURS(11));
	must_ring_within(&sc, client_ended(&sc, r->client), ms,
			 r->slack_ms ? r->slack_ms : SLACK_MS);
	if (r->status)
		scene_log(&sc, r->status, r->reason, r->complete);
	if (r->after)
		r->after(&sc);
	scene_close(&sc);
}

static void never_ring(const struct row *r)
{
	struct scene sc;
	char text[100];
	struct knobs k = with(r, text, sizeof(text), "off");

	scene_open(&sc, &k);
	sc.door = r->door;
	r->reach(&sc);
	if (r->off_ms) {
		must_ring(&sc, client_ended(&sc, r->client), r->off_ms);
	} else {
		world_pass(&sc.w, HOURS(10));
		assert_false(client_ended(&sc, r->client));
	}
	sim_reset(sc.c);
	world_pass(&sc.w, SECONDS(1));
	if (r->status)
		(void)world_line(&sc.w);
	if (r->after)
		r->after(&sc);
	scene_close(&sc);
}

static void try_places(const struct row *r)
{
	char top[100], listener[100], route[100];
	struct knobs k = with(r, top, sizeof(top), "4s");

	world_context("at the top level");
	ring(r, &k, 4000);
	snprintf(listener, sizeof(listener), ", timeouts: { %s: 3s }", r->setting);
	k.web = k.fwd = listener;
	world_context("in the listener");
	ring(r, &k, 3000);
	if (!(r->places & ROUTE))
		return;
	snprintf(route, sizeof(route), ", timeouts: { %s: 2s }", r->setting);
	k.route = route;
	world_context("in the route");
	ring(r, &k, 2000);
	k.web = NULL;
	world_context("in the route, not in the listener");
	ring(r, &k, 2000);
}

static void a_row(void **state)
{
	const struct row *r = *state;

	if (r->ms) {
		world_context("by default");
		ring(r, &r->knobs, r->ms);
	}
	if (r->ms) {
		world_context("while the clock jumps");
		ring_while_the_clock_jumps(r, r->ms);
	}
	if (r->ms && r->move) {
		world_context("after movements");
		ring_after_movements(r, r->ms);
	}
	if (r->reach != a_head_drips) {
		world_context("off");
		never_ring(r);
	}
	try_places(r);
}

/* ---------------------------------------------------------------- keep_alive */
static void empty_lines_do_not_prolong_keep_alive(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	say_nothing(&sc);
	world_pass(&sc.w, SECONDS(40));
	scene_call(&sc, "\r\n");
	must_ring(&sc, sc.c->eof, 75000);
	assert_int_equal(sc.c->n_got, 0);
	scene_close(&sc);
}

/* A body that is read away behind its answer keeps the connection; then keep_alive runs. */
static void keep_alive_runs_when_the_rest_of_a_body_is_read_away(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	a_body_stalls(&sc);
	scene_says(&sc, OKAY);
	assert_null(world_field(sc.c, "Connection"));
	world_pass(&sc.w, SECONDS(1));
	call(&sc, "0123456789012345678901234567890123456789012345678901234567890123456789"
		  "0123456789012345678");
	must_ring(&sc, sc.c->eof, 75000);
	scene_log(&sc, "200", "", true);
	scene_close(&sc);
}

static void the_rest_of_a_body_has_request_idle(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_ask(&sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n0");
	scene_says(&sc, OKAY);
	world_mark(&sc.w);
	must_ring(&sc, sc.c->reset, 60000);
	scene_log(&sc, "200", "request_idle", true);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- body_rate_min */
struct trickle {
	struct scene *sc;
	unsigned bytes, left;
	uint64_t every_us;
};

static void trickle(void *arg)
{
	static const char nothing[20000];
	struct trickle *t = arg;
	unsigned n = t->bytes < t->left ? t->bytes : t->left;

	if (t->sc->c->eof || t->sc->c->reset || n == 0)
		return;
	sim_say(t->sc->c, nothing, n);
	t->left -= n;
	sim_at(t->sc->w.sim, t->every_us, trickle, t);
}

/* The server takes all of it. */
static bool uploaded(struct scene *sc, const struct trickle *t)
{
	world_eat_all(sc->s);
	return t->left == 0 || sc->c->eof || sc->c->reset;
}

static const struct rate {
	const char *name;
	unsigned bytes, of; /* so much each time, of a body of so much */
	uint64_t every_us;
	uint64_t dies_ms; /* 0: it does not */
	const char *min;
} rates[] = {
	{ "body_rate_min: a byte every nine seconds dies", 1, 1000, SECONDS(9), 27000, NULL },
	{ "body_rate_min: 499 a second die at 20 s", 499, 50000, SECONDS(1), 20000, NULL },
	{ "body_rate_min: 550 a second live", 550, 33000, SECONDS(1), 0, NULL },
	{ "body_rate_min: a slow one that is over in 19 s lives", 1, 20, SECONDS(1), 0, NULL },
	{ "body_rate_min: off", 1, 100, SECONDS(9), 0, "off" },
	{ "body_rate_min: as it is set", 550, 50000, SECONDS(1), 20000, "600" },
};

static void a_rate(void **state)
{
	const struct rate *r = *state;
	char more[100], head[200];
	struct knobs k = { .more = more };
	struct scene sc;
	struct trickle t = { &sc, r->bytes, r->of, r->every_us };

	snprintf(more, sizeof(more), "limits: { body_rate_min: %s }", r->min ? r->min : "500");
	scene_open(&sc, r->min ? &k : NULL);
	snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: %u\r\n\r\n",
		 r->of);
	scene_ask(&sc, head);
	world_mark(&sc.w);
	sim_at(sc.w.sim, r->every_us, trickle, &t);
	if (r->dies_ms) {
		must_ring_within(&sc, uploaded(&sc, &t), r->dies_ms, 3);
		scene_page(&sc, 408, true);
		run_until(&sc.w, sc.s->reset);
		scene_log(&sc, "408", "request_idle", true);
	} else {
		run_until(&sc.w, uploaded(&sc, &t));
		scene_says(&sc, OKAY);
		assert_int_equal(world_head(sc.c), 200);
		scene_log(&sc, "200", "", true);
	}
	scene_close(&sc);
}

/* A client that may not send because the server does not take is neither idle nor slow. */
static void a_client_held_up_by_the_server_is_not_blamed(void **state)
{
	struct scene sc;
	struct knobs k = { .more = "timeouts: { request_idle: 1s, send_idle: 5m }" };

	(void)state;
	scene_open(&sc, &k);
	a_server_stops_reading(&sc);
	world_pass(&sc.w, MINUTES(4));
	sim_hold(sc.s, false);
	run_until(&sc.w, sc.s->n_all > sizeof(bulk));
	world_pass(&sc.w, SECONDS(1));
	world_eat_all(sc.s);
	scene_says(&sc, OKAY);
	assert_int_equal(world_head(sc.c), 200);
	scene_log(&sc, "200", "", true);
	scene_close(&sc);
}

/* And a server that may not send because the client does not take is not, either. */
static void a_server_held_up_by_the_client_is_not_blamed(void **state)
{
	struct scene sc;
	struct knobs k = { .more = "timeouts: { response_idle: 1s, send_idle: 5m }" };

	(void)state;
	scene_open(&sc, &k);
	a_reader_stops(&sc);
	world_pass(&sc.w, MINUTES(4));
	sim_hold(sc.c, false);
	run_until(&sc.w, sc.c->n_all > sizeof(bulk));
	scene_log(&sc, "200", "", true);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- connect, retry, eject */
static void after_connect_another_server_is_tried(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_server(&sc, 1, SIM_SILENT);
	scene_server(&sc, 2, SIM_SILENT);
	call(&sc, GET);
	world_pass(&sc.w, SECONDS(1));
	scene_server(&sc, 1, SIM_ACCEPTS); /* whichever was not tried yet */
	scene_server(&sc, 2, SIM_ACCEPTS);
	must_ring(&sc, scene_asked(&sc), 5000);
	scene_says(&sc, OKAY);
	assert_int_equal(world_head(sc.c), 200);
	assert_string_equal(world_logged(world_line(&sc.w), "attempts"), "2");
	scene_close(&sc);
}

static void each_server_has_its_own_connect(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_server(&sc, 1, SIM_SILENT);
	scene_server(&sc, 2, SIM_SILENT);
	call(&sc, GET);
	must_ring(&sc, world_head(sc.c), 10000);
	scene_page(&sc, 504, false);
	scene_log(&sc, "504", "connection_timeout", true);
	assert_int_equal(sim_sockets(sc.w.sim), DOORS + 1);
	scene_serves(&sc);
	scene_close(&sc);
}

/* One request; which server got it, or 0 if a page came. */
static int where_it_goes(struct scene *sc)
{
	int at = 0;

	sc->c = world_call(&sc->w, WEB);
	scene_call(sc, "GET / HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n");
	run_until(&sc->w, scene_asked(sc) || world_head(sc->c));
	if (!world_head(sc->c)) {
		at = sc->at;
		world_eat_all(sc->s);
		scene_says(sc, OKAY);
	}
	run_until(&sc->w, sc->c->eof);
	(void)world_line(&sc->w);
	return at;
}

/* Of as many requests as make the round twice. */
static unsigned share_of_first(struct scene *sc)
{
	unsigned n = 0;

	for (int i = 0; i < 4; i++)
		n += where_it_goes(sc) == 1;
	return n;
}

static void an_ejected_server_is_out_for_exactly_that_long(void **state)
{
	struct scene sc;
	struct knobs k = { .upstream = ", eject: { failures: 2, time: 7s }" };

	(void)state;
	scene_open(&sc, &k);
	assert_int_equal(share_of_first(&sc), 2);
	world_pass(&sc.w, SECONDS(31)); /* none is pooled any more */
	scene_server(&sc, 1, SIM_REFUSES);
	assert_int_equal(where_it_goes(&sc), 2);
	assert_int_equal(where_it_goes(&sc), 2);
	scene_server(&sc, 1, SIM_ACCEPTS);
	assert_int_equal(share_of_first(&sc), 2); /* one failure is none */
	world_pass(&sc.w, SECONDS(31));
	scene_server(&sc, 1, SIM_REFUSES);
	assert_int_equal(share_of_first(&sc), 0);
	scene_server(&sc, 1, SIM_ACCEPTS);
	world_mark(&sc.w); /* a few ms after the second failure */
	assert_int_equal(share_of_first(&sc), 0);
	world_pass(&sc.w, SECONDS(7) - 30000);
	assert_int_equal(share_of_first(&sc), 0);
	world_pass(&sc.w, 30000);
	assert_int_equal(share_of_first(&sc), 2);
	scene_close(&sc);
}

static void the_last_server_is_never_ejected(void **state)
{
	struct scene sc;
	struct knobs k = { .upstream = ", eject: { failures: 1, time: 1h }" };

	(void)state;
	scene_open(&sc, &k);
	scene_server(&sc, 1, SIM_REFUSES);
	scene_server(&sc, 2, SIM_REFUSES);
	for (int i = 0; i < 4; i++)
		assert_int_equal(where_it_goes(&sc), 0);
	scene_server(&sc, 2, SIM_ACCEPTS);
	assert_int_equal(where_it_goes(&sc), 2);
	scene_server(&sc, 2, SIM_REFUSES);
	scene_server(&sc, 1, SIM_ACCEPTS); /* when it must, an ejected one serves */
	world_pass(&sc.w, SECONDS(31));
	assert_int_equal(where_it_goes(&sc), 1);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- the pool */
static const struct reuse {
	const char *name;
	const char *request;
	uint64_t idle_us; /* since the answer before */
	bool reused;
} reuses[] = {
	{ "pool: GET after 29.9 s takes the idle connection", GET, 29900000, true },
	{ "pool: POST after 1.9 s takes it",
	  "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n", 1900000, true },
	{ "pool: POST after 2.1 s does not",
	  "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n", 2100000, false },
	{ "pool: PUT with a body after 1.9 s takes it",
	  "PUT / HTTP/1.1\r\nHost: s\r\nContent-Length: 1\r\n\r\n0", 1900000, true },
	{ "pool: PUT with a body after 2.1 s does not",
	  "PUT / HTTP/1.1\r\nHost: s\r\nContent-Length: 1\r\n\r\n0", 2100000, false },
	{ "pool: DELETE after 2.1 s takes it", "DELETE / HTTP/1.1\r\nHost: s\r\n\r\n", 2100000,
	  true },
};

static void a_reuse(void **state)
{
	const struct reuse *r = *state;
	struct knobs k = { ONE_SERVER };
	struct scene sc;
	const char *line;

	scene_open(&sc, &k);
	one_round(&sc);
	world_pass(&sc.w, r->idle_us);
	assert_false(sc.s->eof);
	scene_ask(&sc, r->request);
	world_eat_all(sc.s);
	scene_says(&sc, OKAY);
	line = world_line(&sc.w);
	assert_string_equal(world_logged(line, "reused"), r->reused ? "true" : "false");
	assert_int_equal(sc.n_served, r->reused ? 1 : 2);
	scene_close(&sc);
}

/* The connection goes from a route that keeps it long to one that does not, and back. */
static void the_latest_request_says_how_long_a_connection_is_kept(void **state)
{
	struct knobs k = {
		ONE_SERVER,
		.route = ", timeouts: { upstream_keep_alive: 60s } },"
			 " { match: { prefix: /short }, upstream: app,"
			 " timeouts: { upstream_keep_alive: 2s }",
	};
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	one_round(&sc);
	scene_ask(&sc, "GET /short HTTP/1.1\r\nHost: s\r\n\r\n");
	world_eat_all(sc.s);
	scene_says(&sc, OKAY);
	world_eat_all(sc.c);
	scene_log(&sc, "200", "", true);
	world_pass(&sc.w, SECONDS(1));
	one_round(&sc);
	assert_int_equal(sc.n_served, 1);
	must_ring(&sc, sc.s->eof, 60000);
	one_round(&sc);
	scene_ask(&sc, "GET /short HTTP/1.1\r\nHost: s\r\n\r\n");
	world_eat_all(sc.s);
	world_mark(&sc.w);
	scene_says(&sc, OKAY);
	scene_log(&sc, "200", "", true);
	assert_int_equal(sc.n_served, 2);
	must_ring(&sc, sc.s->eof, 2000);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- total */
static void drip_answer(void *arg)
{
	struct scene *sc = arg;

	if (sc->s->reset)
		return;
	world_say(sc->s, "1");
	sim_at(sc->w.sim, 300000, drip_answer, sc);
}

static void total_cuts_an_answer_under_way(void **state)
{
	struct knobs k = { .more = "timeouts: { total: 9s }" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	call(&sc, GET);
	run_until(&sc.w, scene_asked(&sc));
	world_pass(&sc.w, SECONDS(1));
	scene_says(&sc, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
	drip_answer(&sc);
	must_ring(&sc, sc.c->eof, 9000);
	assert_false(sc.c->reset);
	run_until(&sc.w, sc.s->reset);
	scene_log(&sc, "200", "total_timeout", false);
	scene_serves(&sc);
	scene_close(&sc);
}

static void total_begins_with_the_first_byte_of_the_head(void **state)
{
	struct knobs k = { .more = "timeouts: { total: 9s }" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	scene_call(&sc, "");
	world_pass(&sc.w, SECONDS(30));
	call(&sc, "GET / HTTP/1.1\r\n");
	world_pass(&sc.w, SECONDS(5));
	scene_ask(&sc, "Host: s\r\n\r\n");
	must_ring(&sc, world_head(sc.c), 9000);
	scene_page(&sc, 504, true);
	scene_log(&sc, "504", "total_timeout", true);
	scene_close(&sc);
}

static void total_covers_all_tries(void **state)
{
	struct knobs k = { .more = "timeouts: { total: 9s }" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	scene_server(&sc, 1, SIM_SILENT);
	scene_server(&sc, 2, SIM_SILENT);
	call(&sc, GET);
	must_ring(&sc, world_head(sc.c) && sc.c->eof, 9000);
	scene_page(&sc, 504, true);
	scene_log(&sc, "504", "total_timeout", true);
	scene_close(&sc);
}

static void total_is_over_when_a_tunnel_runs(void **state)
{
	struct knobs k = { .more = "timeouts: { total: 9s }" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	sc.door = FWD;
	a_tunnel(&sc);
	must_ring(&sc, sc.c->reset, 3600000);
	scene_log(&sc, "200", "tunnel_idle", false);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- PROXY header */
static const struct preface_case {
	const char *name, *text;
	const char *reason; /* NULL: no line */
} prefaces[] = {
	{ "proxy_protocol: nothing comes", "", NULL },
	{ "proxy_protocol: half a header v1", "PROXY TCP4 10.", "proxy_protocol_error" },
	{ "proxy_protocol: half a header v2", "\r\n\r\n", "proxy_protocol_error" },
};

static void a_preface(void **state)
{
	const struct preface_case *p = *state;
	struct knobs k = { .web = ", proxy_protocol: { from: [10.9.0.0/16], timeout: 4s }" };
	struct scene sc;

	scene_open(&sc, &k);
	call(&sc, p->text);
	must_ring(&sc, sc.c->eof, 4000);
	assert_int_equal(sc.c->n_got, 0);
	if (p->reason) {
		const char *line = world_line(&sc.w);

		assert_string_equal(world_logged(line, "kind"), "refused");
		assert_string_equal(world_logged(line, "reason"), p->reason);
	}
	sc.c = NULL;
	scene_ask(&sc, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" GET);
	scene_says(&sc, OKAY);
	assert_string_equal(world_logged(world_line(&sc.w), "client"), "192.0.2.1");
	scene_close(&sc);
}

static void keep_alive_runs_behind_a_proxy_header(void **state)
{
	struct knobs k = { .web = ", proxy_protocol: { from: [10.9.0.0/16] }" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	scene_call(&sc, "PROXY TCP4");
	world_pass(&sc.w, SECONDS(2));
	call(&sc, " 192.0.2.1 192.0.2.2 1 2\r\n");
	must_ring(&sc, sc.c->eof, 75000);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- lingering */
static void an_early_answer(struct scene *sc)
{
	scene_call(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 99999999999\r\n\r\n");
	run_until(&sc->w, sc->c->eof);
	scene_page(sc, 413, true);
	scene_log(sc, "413", "body_too_large", true);
	world_mark(&sc->w);
}

static void poke(void *arg)
{
	struct scene *sc = arg;

	if (sc->c->reset)
		return;
	world_say(sc->c, "x");
	sim_at(sc->w.sim, 500, poke, sc);
}

static void lingering_ends_after_two_seconds(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	an_early_answer(&sc);
	poke(&sc);
	must_ring(&sc, sc.c->reset, 1999); /* the page took 100 us to come here */
	assert_int_equal(sim_sockets(sc.w.sim), DOORS);
	scene_close(&sc);
}

static void lingering_ends_after_64_kib(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	an_early_answer(&sc);
	sim_say(sc.c, bulk, 65536);
	world_pass(&sc.w, SECONDS(1));
	assert_int_equal(sim_unsaid(sc.c), 0);
	assert_false(sc.c->reset);
	sim_say(sc.c, bulk, 1);
	world_pass(&sc.w, 10000);
	assert_int_equal(sim_sockets(sc.w.sim), DOORS);
	sim_say(sc.c, bulk, 1);
	run_until(&sc.w, sc.c->reset);
	scene_close(&sc);
}

static void lingering_ends_with_the_client(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	an_early_answer(&sc);
	world_say(sc.c, "0123456789");
	sim_fin(sc.c);
	world_pass(&sc.w, 1000);
	assert_int_equal(sim_sockets(sc.w.sim), DOORS);
	assert_false(sc.c->reset);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- all of them */
#define MANY(array, fn)                                                                    \
	do {                                                                               \
		for (size_t i = 0; i < ARRAY_LEN(array); i++)                              \
			tests[n++] = (struct CMUnitTest){ (array)[i].name, fn, NULL, NULL, \
							  (void *)&(array)[i] };           \
	} while (0)

int main(void)
{
	static const struct CMUnitTest singles[] = {
		cmocka_unit_test(empty_lines_do_not_prolong_keep_alive),
		cmocka_unit_test(keep_alive_runs_when_the_rest_of_a_body_is_read_away),
		cmocka_unit_test(the_rest_of_a_body_has_request_idle),
		cmocka_unit_test(a_client_held_up_by_the_server_is_not_blamed),
		cmocka_unit_test(a_server_held_up_by_the_client_is_not_blamed),
		cmocka_unit_test(after_connect_another_server_is_tried),
		cmocka_unit_test(each_server_has_its_own_connect),
		cmocka_unit_test(an_ejected_server_is_out_for_exactly_that_long),
		cmocka_unit_test(the_last_server_is_never_ejected),
		cmocka_unit_test(the_latest_request_says_how_long_a_connection_is_kept),
		cmocka_unit_test(total_cuts_an_answer_under_way),
		cmocka_unit_test(total_begins_with_the_first_byte_of_the_head),
		cmocka_unit_test(total_covers_all_tries),
		cmocka_unit_test(total_is_over_when_a_tunnel_runs),
		cmocka_unit_test(keep_alive_runs_behind_a_proxy_header),
		cmocka_unit_test(lingering_ends_after_two_seconds),
		cmocka_unit_test(lingering_ends_after_64_kib),
		cmocka_unit_test(lingering_ends_with_the_client),
	};
	struct CMUnitTest tests[ARRAY_LEN(rows) + ARRAY_LEN(rates) + ARRAY_LEN(reuses) +
				ARRAY_LEN(prefaces) + ARRAY_LEN(singles)];
	size_t n = 0;

	MANY(rows, a_row);
	MANY(rates, a_rate);
	MANY(reuses, a_reuse);
	MANY(prefaces, a_preface);
	memcpy(tests + n, singles, sizeof(singles));
	return cmocka_run_group_tests_name("timeouts", tests, world_group_setup,
					   world_group_teardown);
}
