/* Who hangs up when: at each stage of a request and of a tunnel the client or the server leaves, by
 * FIN or by RST, or the service is drained; what everybody sees, at once, and what the log says
 * (docs/closing.md is the text to this table). */
#include "scene.h"

#include <stdio.h>
#include <time.h>

/* ---------------------------------------------------------------- what the table says */
enum event { CLIENT_FIN = 0, CLIENT_RST, SERVER_FIN, SERVER_RST, STOP, CUT, EVENTS };
static const char *const event_names[EVENTS] = { "client FIN", "client RST",  "server FIN",
						 "server RST", "drain: stop", "drain: cut" };

enum sees {              /* the client */
	    STAYS = 0,   /* nothing happens */
	    FIN,         /* FIN, no bytes */
	    RST,         /* RST, whatever came before */
	    PAGE,        /* a page, the connection stays */
	    LAST_PAGE,   /* a page with Connection: close, FIN */
	    CUT_BY_FIN,  /* an answer without its end, FIN */
	    WHOLE,       /* the whole answer, the connection stays */
	    WHOLE_CLOSE, /* the whole answer with Connection: close, FIN */
	    WHOLE_FIN,   /* the whole answer, FIN: its head had gone before */
	    GONE         /* it has left */
};

enum fate {           /* the server's connection */
	    NONE = 0, /* there is none, or the server has left */
	    ABORTED,  /* RST */
	    ENDED,    /* FIN */
	    KEPT      /* the next request takes it */
};

struct stage {
	const char *name;
	void (*reach)(struct scene *);
	void (*answer)(struct scene *); /* what the server would have done next; NULL: nothing */
	enum door door;
	const char *rest; /* of the request, which is read away after an answer */
};

struct row {
	const struct stage *stage;
	enum event event;
	enum sees sees;
	enum fate fate;
	const char *status, *reason; /* of the log; NULL: no line */
	bool complete;
	bool goes_on; /* first nothing happens, then the stage's answer comes */
};

/* ---------------------------------------------------------------- stages */
static void no_byte(struct scene *sc)
{
	scene_call(sc, "");
	world_pass(&sc->w, 10000);
}

static void half_a_head(struct scene *sc)
{
	scene_call(sc, "GET / HTTP/1.1\r\nHo");
	world_pass(&sc->w, 10000);
}

static void half_a_body(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n0123456789");
	world_pass(&sc->w, 10000);
}

static void half_a_chunk(struct scene *sc)
{
	scene_ask(sc, "PUT / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n01");
	world_pass(&sc->w, 10000);
}

static void connecting(struct scene *sc)
{
	scene_server(sc, 1, SIM_SILENT);
	scene_call(sc, GET);
	world_pass(&sc->w, 10000);
}

static void awaiting(struct scene *sc)
{
	scene_ask(sc, GET);
	world_eat_all(sc->s);
}

static void awaiting_100(struct scene *sc)
{
	scene_ask(sc, "POST / HTTP/1.1\r\nHost: s\r\nExpect: 100-continue\r\n"
		      "Content-Length: 2\r\n\r\n");
	world_eat_all(sc->s);
}

static void after_100(struct scene *sc)
{
	awaiting_100(sc);
	scene_says(sc, "HTTP/1.1 100 Continue\r\n\r\n");
	assert_int_equal(world_head(sc->c), 100);
	world_eat_all(sc->c);
	scene_call(sc, "0");
	world_pass(&sc->w, 10000);
}

static void after_103(struct scene *sc)
{
	awaiting(sc);
	scene_says(sc, "HTTP/1.1 103 Early Hints\r\n\r\n");
	world_eat_all(sc->c);
}

static void half_an_answer_head(struct scene *sc)
{
	awaiting(sc);
	world_say(sc->s, "HTTP/1.1 200 OK\r\nConte");
	world_pass(&sc->w, 10000);
}

static void begun(struct scene *sc, const char *head)
{
	awaiting(sc);
	scene_says(sc, head);
	world_pass(&sc->w, 10000);
}

static void half_an_answer(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n01");
}

static void half_a_chunked_answer(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n01");
}

static void an_answer_until_close(struct scene *sc)
{
	begun(sc, "HTTP/1.1 200 OK\r\n\r\n01");
}

static void an_answer_until_close_for_an_old_client(struct scene *sc)
{
	scene_ask(sc, "GET / HTTP/1.0\r\nHost: s\r\n\r\n");
	world_eat_all(sc->s);
	scene_says(sc, "HTTP/1.1 200 OK\r\n\r\n01");
}

static void half_an_early_answer(struct scene *sc)
{
	half_a_body(sc);
	scene_says(sc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n01");
}

static void a_whole_early_answer(struct scene *sc)
{
	half_a_body(sc);
	scene_says(sc, OKAY);
	world_pass(&sc->w, 10000);
}

static void idle(struct scene *sc)
{
	scene_round(sc);
	world_pass(&sc->w, 10000);
}

static void tunnel(struct scene *sc)
{
	scene_call(sc, "CONNECT 10.1.0.1:80 HTTP/1.1\r\nHost: 10.1.0.1:80\r\n\r\n");
	run_until(&sc->w, world_head(sc->c) == 200);
	world_eat_all(sc->c);
	sc->s = sc->served[0].peer;
	world_pass(&sc->w, 10000);
}

static void upgraded(struct scene *sc)
{
	scene_ask(sc, "GET / HTTP/1.1\r\nHost: s\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
	world_eat_all(sc->s);
	scene_says(sc, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
		       "Upgrade: echo\r\n\r\n");
	world_eat_all(sc->c);
	world_pass(&sc->w, 10000);
}

static void tunnel_after_server_fin(struct scene *sc)
{
	tunnel(sc);
	sim_fin(sc->s);
	run_until(&sc->w, sc->c->eof);
	world_pass(&sc->w, 10000);
}

static void tunnel_after_client_fin(struct scene *sc)
{
	tunnel(sc);
	sim_fin(sc->c);
	run_until(&sc->w, sc->s->eof);
	world_pass(&sc->w, 10000);
}

/* ---------------------------------------------------------------- what comes next */
static void say_okay(struct scene *sc)
{
	if (!sc->s) {
		scene_server(sc, 1, SIM_ACCEPTS);
		return;
	}
	world_say(sc->s, OKAY);
}

static void say_rest(struct scene *sc)
{
	world_say(sc->s, "23");
}

static void say_rest_of_chunks(struct scene *sc)
{
	world_say(sc->s, "23\r\n0\r\n\r\n");
}

static void say_and_fin(struct scene *sc)
{
	world_say(sc->s, "23");
	sim_fin(sc->s);
}

static void tell(struct scene *sc, struct sim_peer *from, struct sim_peer *to)
{
	world_say(from, "late words");
	run_until(&sc->w, to->n_got > 0);
	assert_true(world_takes(to, "late words"));
	sim_fin(from);
}

static void tell_other(struct scene *sc)
{
	if (!sc->s->fin)
		tell(sc, sc->s, sc->c);
	else
		tell(sc, sc->c, sc->s);
}

#define STAGE(s, ...) static const struct stage s##_stage = { #s, s, __VA_ARGS__ }
STAGE(no_byte, NULL, WEB, NULL);
STAGE(half_a_head, NULL, WEB, NULL);
STAGE(half_a_body, NULL, WEB,
      "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789");
STAGE(half_a_chunk, NULL, WEB, NULL);
STAGE(connecting, NULL, WEB, NULL);
STAGE(awaiting, say_okay, WEB, NULL);
STAGE(awaiting_100, NULL, WEB, NULL);
STAGE(after_100, NULL, WEB, "1");
STAGE(after_103, say_okay, WEB, NULL);
STAGE(half_an_answer_head, NULL, WEB, NULL);
STAGE(half_an_answer, say_rest, WEB, NULL);
STAGE(half_a_chunked_answer, say_rest_of_chunks, WEB, NULL);
STAGE(an_answer_until_close, say_and_fin, WEB, NULL);
STAGE(an_answer_until_close_for_an_old_client, say_and_fin, WEB, NULL);
STAGE(half_an_early_answer, NULL, WEB, NULL);
STAGE(a_whole_early_answer, NULL, WEB, NULL);
STAGE(idle, NULL, WEB, NULL);
STAGE(tunnel, tell_other, FWD, NULL);
STAGE(upgraded, tell_other, WEB, NULL);
STAGE(tunnel_after_server_fin, NULL, FWD, NULL);
STAGE(tunnel_after_client_fin, NULL, FWD, NULL);

/* ---------------------------------------------------------------- the table */
static const struct row rows[] = {
	{ &no_byte_stage, CLIENT_FIN, FIN, NONE, NULL, NULL, false, false },
	{ &no_byte_stage, CLIENT_RST, GONE, NONE, NULL, NULL, false, false },
	{ &no_byte_stage, STOP, FIN, NONE, NULL, NULL, false, false },

	{ &half_a_head_stage, CLIENT_FIN, RST, NONE, "499", "client_abort", false, false },
	{ &half_a_head_stage, CLIENT_RST, GONE, NONE, "499", "client_abort", false, false },
	{ &half_a_head_stage, CUT, RST, NONE, "503", "shutdown", false, false },

	{ &half_a_body_stage, CLIENT_FIN, RST, ABORTED, "499", "client_abort", false, false },
	{ &half_a_body_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false, false },
	{ &half_a_body_stage, SERVER_FIN, PAGE, ABORTED, "502", "connection_terminated", true,
	  false },
	{ &half_a_body_stage, SERVER_RST, PAGE, NONE, "502", "connection_terminated", true, false },
	{ &half_a_body_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &half_a_chunk_stage, CLIENT_FIN, RST, ABORTED, "499", "client_abort", false, false },
	{ &half_a_chunk_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false, false },
	{ &half_a_chunk_stage, SERVER_FIN, LAST_PAGE, ABORTED, "502", "connection_terminated", true,
	  false },
	{ &half_a_chunk_stage, SERVER_RST, LAST_PAGE, NONE, "502", "connection_terminated", true,
	  false },
	{ &half_a_chunk_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &connecting_stage, CLIENT_FIN, LAST_PAGE, NONE, "504", "connection_timeout", true, true },
	{ &connecting_stage, CLIENT_RST, GONE, NONE, "499", "client_abort", false, false },
	{ &connecting_stage, STOP, LAST_PAGE, NONE, "504", "connection_timeout", true, true },
	{ &connecting_stage, CUT, RST, NONE, "503", "shutdown", false, false },

	{ &awaiting_stage, CLIENT_FIN, WHOLE_CLOSE, KEPT, "200", "", true, true },
	{ &awaiting_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false, false },
	{ &awaiting_stage, SERVER_FIN, PAGE, ABORTED, "502", "connection_terminated", true, false },
	{ &awaiting_stage, SERVER_RST, PAGE, NONE, "502", "connection_terminated", true, false },
	{ &awaiting_stage, STOP, WHOLE_CLOSE, ENDED, "200", "", true, true },
	{ &awaiting_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &awaiting_100_stage, CLIENT_FIN, RST, ABORTED, "499", "client_abort", false, false },
	{ &awaiting_100_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false, false },
	{ &awaiting_100_stage, SERVER_FIN, LAST_PAGE, ABORTED, "502", "connection_terminated", true,
	  false },
	{ &awaiting_100_stage, SERVER_RST, LAST_PAGE, NONE, "502", "connection_terminated", true,
	  false },
	{ &awaiting_100_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &after_100_stage, CLIENT_FIN, RST, ABORTED, "499", "client_abort", false, false },
	{ &after_100_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false, false },
	{ &after_100_stage, SERVER_FIN, PAGE, ABORTED, "502", "connection_terminated", true,
	  false },
	{ &after_100_stage, SERVER_RST, PAGE, NONE, "502", "connection_terminated", true, false },
	{ &after_100_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &after_103_stage, CLIENT_FIN, WHOLE_CLOSE, KEPT, "200", "", true, true },
	{ &after_103_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false, false },
	{ &after_103_stage, SERVER_FIN, PAGE, ABORTED, "502", "connection_terminated", true,
	  false },
	{ &after_103_stage, SERVER_RST, PAGE, NONE, "502", "connection_terminated", true, false },
	{ &after_103_stage, STOP, WHOLE_CLOSE, ENDED, "200", "", true, true },
	{ &after_103_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &half_an_answer_head_stage, CLIENT_RST, GONE, ABORTED, "499", "client_abort", false,
	  false },
	{ &half_an_answer_head_stage, SERVER_FIN, PAGE, ABORTED, "502", "connection_terminated",
	  true, false },
	{ &half_an_answer_head_stage, SERVER_RST, PAGE, NONE, "502", "connection_terminated", true,
	  false },
	{ &half_an_answer_head_stage, CUT, RST, ABORTED, "503", "shutdown", false, false },

	{ &half_an_answer_stage, CLIENT_FIN, WHOLE_FIN, KEPT, "200", "", true, true },
	{ &half_an_answer_stage, CLIENT_RST, GONE, ABORTED, "200", "client_abort", false, false },
	{ &half_an_answer_stage, SERVER_FIN, CUT_BY_FIN, ABORTED, "200", "http_response_incomplete",
	  false, false },
	{ &half_an_answer_stage, SERVER_RST, CUT_BY_FIN, NONE, "200", "http_response_incomplete",
	  false, false },
	{ &half_an_answer_stage, STOP, WHOLE_FIN, ENDED, "200", "", true, true },
	{ &half_an_answer_stage, CUT, RST, ABORTED, "200", "shutdown", false, false },

	{ &half_a_chunked_answer_stage, CLIENT_FIN, WHOLE_FIN, KEPT, "200", "", true, true },
	{ &half_a_chunked_answer_stage, CLIENT_RST, GONE, ABORTED, "200", "client_abort", false,
	  false },
	{ &half_a_chunked_answer_stage, SERVER_FIN, CUT_BY_FIN, ABORTED, "200",
	  "http_response_incomplete", false, false },
	{ &half_a_chunked_answer_stage, SERVER_RST, CUT_BY_FIN, NONE, "200",
	  "http_response_incomplete", false, false },
	{ &half_a_chunked_answer_stage, CUT, RST, ABORTED, "200", "shutdown", false, false },

	{ &an_answer_until_close_stage, CLIENT_FIN, WHOLE_FIN, NONE, "200", "", true, true },
	{ &an_answer_until_close_stage, CLIENT_RST, GONE, ABORTED, "200", "client_abort", false,
	  false },
	{ &an_answer_until_close_stage, SERVER_FIN, WHOLE, ENDED, "200", "", true, false },
	{ &an_answer_until_close_stage, SERVER_RST, CUT_BY_FIN, NONE, "200",
	  "http_response_incomplete", false, false },
	{ &an_answer_until_close_stage, CUT, RST, ABORTED, "200", "shutdown", false, false },

	{ &an_answer_until_close_for_an_old_client_stage, SERVER_FIN, WHOLE_CLOSE, ENDED, "200", "",
	  true, false },
	{ &an_answer_until_close_for_an_old_client_stage, SERVER_RST, RST, NONE, "200",
	  "http_response_incomplete", false, false },

	{ &half_an_early_answer_stage, CLIENT_FIN, RST, ABORTED, "200", "client_abort", false,
	  false },
	{ &half_an_early_answer_stage, CLIENT_RST, GONE, ABORTED, "200", "client_abort", false,
	  false },
	{ &half_an_early_answer_stage, SERVER_FIN, CUT_BY_FIN, ABORTED, "200",
	  "http_response_incomplete", false, false },
	{ &half_an_early_answer_stage, CUT, RST, ABORTED, "200", "shutdown", false, false },

	{ &a_whole_early_answer_stage, CLIENT_FIN, RST, ENDED, "200", "client_abort", true, false },
	{ &a_whole_early_answer_stage, CLIENT_RST, GONE, ENDED, "200", "client_abort", true,
	  false },
	{ &a_whole_early_answer_stage, CUT, RST, ENDED, "200", "shutdown", true, false },

	{ &idle_stage, CLIENT_FIN, FIN, KEPT, NULL, NULL, false, false },
	{ &idle_stage, CLIENT_RST, GONE, KEPT, NULL, NULL, false, false },
	{ &idle_stage, SERVER_FIN, STAYS, ENDED, NULL, NULL, false, false },
	{ &idle_stage, SERVER_RST, STAYS, NONE, NULL, NULL, false, false },
	{ &idle_stage, STOP, FIN, ENDED, NULL, NULL, false, false },

	{ &tunnel_stage, CLIENT_FIN, FIN, ENDED, "200", "", true, true },
	{ &tunnel_stage, SERVER_FIN, FIN, ENDED, "200", "", true, true },
	{ &tunnel_stage, CLIENT_RST, GONE, ABORTED, "200", "tunnel_reset", false, false },
	{ &tunnel_stage, SERVER_RST, RST, NONE, "200", "tunnel_reset", false, false },
	{ &tunnel_stage, STOP, FIN, ENDED, "200", "", true, true },
	{ &tunnel_stage, CUT, RST, ABORTED, "200", "shutdown", false, false },

	{ &upgraded_stage, CLIENT_FIN, FIN, ENDED, "101", "", true, true },
	{ &upgraded_stage, SERVER_FIN, FIN, ENDED, "101", "", true, true },
	{ &upgraded_stage, CLIENT_RST, GONE, ABORTED, "101", "tunnel_reset", false, false },
	{ &upgraded_stage, SERVER_RST, RST, NONE, "101", "tunnel_reset", false, false },
	{ &upgraded_stage, CUT, RST, ABORTED, "101", "shutdown", false, false },

	{ &tunnel_after_server_fin_stage, CLIENT_FIN, FIN, ENDED, "200", "", true, false },
	{ &tunnel_after_server_fin_stage, CLIENT_RST, GONE, ABORTED, "200", "tunnel_reset", false,
	  false },
	{ &tunnel_after_client_fin_stage, SERVER_FIN, FIN, ENDED, "200", "", true, false },
	{ &tunnel_after_client_fin_stage, SERVER_RST, RST, NONE, "200", "tunnel_reset", false,
	  false },
};

/* ---------------------------------------------------------------- trying a row */
static void happen(struct scene *sc, enum event e)
{
	world_mark(&sc->w);
	switch (e) {
	case CLIENT_FIN: sim_fin(sc->c); break;
	case CLIENT_RST: sim_reset(sc->c); break;
	case SERVER_FIN: sim_fin(sc->s); break;
	case SERVER_RST: sim_reset(sc->s); break;
	case STOP: world_stop(&sc->w); break;
	case CUT:
		world_stop(&sc->w);
		(void)service_cut(sc->w.service);
		break;
	case EVENTS: break;
	}
}

static bool answer_is_whole(const struct scene *sc)
{
	const char *got = (const char *)sc->c->got;
	const char *body = strstr(got, "\r\n\r\n");
	const char *length = world_field(sc->c, "Content-Length");

	if (!body)
		return false;
	if (length)
		return strlen(body + 4) == strtoul(length, NULL, 10);
	if (world_field(sc->c, "Transfer-Encoding"))
		return strstr(body, "\r\n0\r\n\r\n") != NULL;
	return sc->c->eof;
}

static bool client_saw(const struct scene *sc, enum sees sees)
{
	switch (sees) {
	case STAYS:
	case GONE: return true;
	case FIN:
	case CUT_BY_FIN: return sc->c->eof;
	case RST: return sc->c->reset;
	case PAGE:
	case WHOLE: return answer_is_whole(sc);
	case LAST_PAGE:
	case WHOLE_CLOSE:
	case WHOLE_FIN: return sc->c->eof && answer_is_whole(sc);
	}
	return false;
}

static bool server_saw(const struct scene *sc, enum fate fate)
{
	switch (fate) {
	case NONE:
	case KEPT: return true;
	case ABORTED: return sc->s->reset;
	case ENDED: return sc->s->eof;
	}
	return false;
}

static void look(struct scene *sc, const struct row *r)
{
	unsigned status = r->status ? (unsigned)strtoul(r->status, NULL, 10) : 0;

	switch (r->sees) {
	case STAYS:
	case FIN: assert_int_equal(sc->c->n_got, 0); break;
	case PAGE:
	case LAST_PAGE: scene_page(sc, status, r->sees == LAST_PAGE); break;
	case CUT_BY_FIN:
		assert_int_equal(world_head(sc->c), 200);
		assert_false(answer_is_whole(sc));
		break;
	case WHOLE:
	case WHOLE_FIN: assert_null(world_field(sc->c, "Connection")); break;
	case WHOLE_CLOSE: assert_string_equal(world_field(sc->c, "Connection"), "close"); break;
	case RST:
	case GONE: break;
	}
	assert_int_equal(sc->c->reset, r->sees == RST);
	if (r->sees == GONE)
		return;
	assert_int_equal(sc->c->eof, r->sees == FIN || r->sees == LAST_PAGE ||
					     r->sees == CUT_BY_FIN || r->sees == WHOLE_CLOSE ||
					     r->sees == WHOLE_FIN);
}

/* Nothing happens to anybody while the answer is awaited; then it comes. */
static void go_on(struct scene *sc, const struct row *r)
{
	world_pass(&sc->w, SECONDS(1));
	assert_false(sc->c->reset || (sc->c->eof && r->event != SERVER_FIN));
	assert_false(sc->s && (sc->s->reset || (sc->s->eof && r->event != CLIENT_FIN)));
	if (r->stage->answer)
		r->stage->answer(sc);
	if (r->stage->answer == tell_other && r->event == STOP)
		sim_fin(sc->c);
	world_mark(&sc->w);
}

static void afterwards(struct scene *sc, const struct row *r)
{
	unsigned n = sc->n_served;

	if (r->event == STOP || r->event == CUT)
		return;
	if (r->sees == STAYS || r->sees == PAGE || r->sees == WHOLE) {
		world_eat_all(sc->c);
		scene_round(sc);
	}
	scene_serves(sc);
	if (r->fate == KEPT)
		assert_int_equal(sc->n_served, n);
	else if (r->stage->door == WEB)
		assert_int_equal(sc->n_served, n + 1);
}

static void a_row(void **state)
{
	const struct row *r = *state;
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;
	uint64_t patience = r->stage == &connecting_stage && r->goes_on ? 5000 : 2;

	scene_open(&sc, &k);
	sc.door = r->stage->door;
	r->stage->reach(&sc);
	happen(&sc, r->event);
	if (r->goes_on)
		go_on(&sc, r);
	run_until(&sc.w, client_saw(&sc, r->sees) && server_saw(&sc, r->fate));
	world_must(&sc.w, world_ms(&sc.w) <= patience);
	world_pass(&sc.w, SECONDS(1)); /* and nothing else */
	look(&sc, r);
	if (r->fate == KEPT)
		assert_false(sc.s->eof || sc.s->reset);
	if (r->sees == PAGE && r->stage->rest) {
		scene_call(&sc, r->stage->rest);
		world_pass(&sc.w, 10000);
	}
	if (r->status)
		scene_log(&sc, r->status, r->reason, r->complete);
	afterwards(&sc, r);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- all of them */
int main(void)
{
	static const struct CMUnitTest singles[] = {};
	static char names[ARRAY_LEN(rows)][80];
	struct CMUnitTest tests[ARRAY_LEN(rows) + ARRAY_LEN(singles)];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		snprintf(names[i], sizeof(names[i]), "%s: %s", rows[i].stage->name,
			 event_names[rows[i].event]);
		tests[i] = (struct CMUnitTest){ names[i], a_row, NULL, NULL, (void *)&rows[i] };
	}
	memcpy(tests + ARRAY_LEN(rows), singles, sizeof(singles));
	return cmocka_run_group_tests_name("aborts", tests, world_group_setup,
					   world_group_teardown);
}
