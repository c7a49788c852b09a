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
	const char *web;  /* of the listener's settings */
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

/* Little by little, and the client takes no more of it. */
static void stuck(struct scene *sc, const char *request)
{
	sim_window(sc->w.sim, 64);
	scene_call(sc, request);
	run_until(&sc->w, sc->c->n_got > 0);
	sim_hold(sc->c, true);
	world_pass(&sc->w, 10000);
}

static void a_page_is_stuck(struct scene *sc)
{
	stuck(sc, GET);
}

static void a_page_is_stuck_inside_a_body(struct scene *sc)
{
	stuck(sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n0123456789");
}

static void a_cut_answer_is_stuck(struct scene *sc)
{
	sim_window(sc->w.sim, 64);
	scene_ask(sc, GET);
	sim_hold(sc->c, true);
	world_say(sc->s, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
	world_pass(&sc->w, 10000);
	sim_reset(sc->s);
	world_pass(&sc->w, 10000);
}

static void a_200_is_stuck(struct scene *sc)
{
	sim_window(sc->w.sim, 10);
	scene_call(sc, "CONNECT 10.1.0.1:80 HTTP/1.1\r\nHost: 10.1.0.1:80\r\n\r\n");
	sim_hold(sc->c, true);
	run_until(&sc->w, sc->n_served == 1);
	sc->s = sc->served[0].peer;
	world_pass(&sc->w, 10000);
}

/* ---------------------------------------------------------------- what comes next */
static void take_all(struct scene *sc)
{
	sim_hold(sc->c, false);
}

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
STAGE(no_byte, NULL, WEB, NULL, NULL);
STAGE(half_a_head, NULL, WEB, NULL, NULL);
STAGE(half_a_body, NULL, WEB,
      "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
      NULL);
STAGE(half_a_chunk, NULL, WEB, NULL, NULL);
STAGE(connecting, NULL, WEB, NULL, NULL);
STAGE(awaiting, say_okay, WEB, NULL, NULL);
STAGE(awaiting_100, NULL, WEB, NULL, NULL);
STAGE(after_100, NULL, WEB, "1", NULL);
STAGE(after_103, say_okay, WEB, NULL, NULL);
STAGE(half_an_answer_head, NULL, WEB, NULL, NULL);
STAGE(half_an_answer, say_rest, WEB, NULL, NULL);
STAGE(half_a_chunked_answer, say_rest_of_chunks, WEB, NULL, NULL);
STAGE(an_answer_until_close, say_and_fin, WEB, NULL, NULL);
STAGE(an_answer_until_close_for_an_old_client, say_and_fin, WEB, NULL, NULL);
STAGE(half_an_early_answer, NULL, WEB, NULL, NULL);
STAGE(a_whole_early_answer, NULL, WEB, NULL, NULL);
STAGE(idle, NULL, WEB, NULL, NULL);
STAGE(tunnel, tell_other, FWD, NULL, NULL);
STAGE(upgraded, tell_other, WEB, NULL, NULL);
STAGE(tunnel_after_server_fin, NULL, FWD, NULL, NULL);
STAGE(tunnel_after_client_fin, NULL, FWD, NULL, NULL);

#define DENIED ", allow_from: [10.8.0.0/16]"
STAGE(a_page_is_stuck, take_all, WEB, NULL, DENIED);
STAGE(a_page_is_stuck_inside_a_body, take_all, WEB, NULL, DENIED);
STAGE(a_cut_answer_is_stuck, take_all, WEB, NULL, NULL);
STAGE(a_200_is_stuck, NULL, FWD, NULL, NULL);

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

	{ &a_page_is_stuck_stage, CLIENT_FIN, WHOLE_FIN, NONE, "403", "client_denied", true, true },
	{ &a_page_is_stuck_stage, CLIENT_RST, GONE, NONE, "403", "client_denied", false, false },
	{ &a_page_is_stuck_stage, STOP, WHOLE_FIN, NONE, "403", "client_denied", true, true },
	{ &a_page_is_stuck_stage, CUT, RST, NONE, "403", "client_denied", false, false },
	{ &a_page_is_stuck_inside_a_body_stage, CLIENT_FIN, RST, NONE, "403", "client_denied",
	  false, false },
	{ &a_page_is_stuck_inside_a_body_stage, CLIENT_RST, GONE, NONE, "403", "client_denied",
	  false, false },
	{ &a_page_is_stuck_inside_a_body_stage, CUT, RST, NONE, "403", "client_denied", false,
	  false },

	{ &a_cut_answer_is_stuck_stage, CLIENT_FIN, CUT_BY_FIN, NONE, "200",
	  "http_response_incomplete", false, true },
	{ &a_cut_answer_is_stuck_stage, CLIENT_RST, GONE, NONE, "200", "http_response_incomplete",
	  false, false },
	{ &a_cut_answer_is_stuck_stage, CUT, RST, NONE, "200", "http_response_incomplete", false,
	  false },

	{ &a_200_is_stuck_stage, CLIENT_RST, GONE, ABORTED, "200", "client_abort", false, false },
	{ &a_200_is_stuck_stage, CUT, RST, ABORTED, "200", "shutdown", false, false },
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

	if (r->event == STOP || r->event == CUT || r->stage->web)
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
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"", .web = r->stage->web };
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

/* ---------------------------------------------------------------- dead in the pool */
static const struct again {
	const char *name;
	const char *request;
	const char *first; /* of an answer, before it dies; NULL: no byte */
	bool repeated;
} agains[] = {
	{ "again: GET", GET, NULL, true },
	{ "again: HEAD", "HEAD / HTTP/1.1\r\nHost: s\r\n\r\n", NULL, true },
	{ "again: DELETE", "DELETE / HTTP/1.1\r\nHost: s\r\n\r\n", NULL, true },
	{ "again: PUT without a body", "PUT / HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n",
	  NULL, true },
	{ "once: PUT, its body taken", "PUT / HTTP/1.1\r\nHost: s\r\nContent-Length: 3\r\n\r\nabc",
	  NULL, false },
	{ "once: POST", "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n", NULL, false },
	{ "once: PATCH", "PATCH / HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n", NULL, false },
	{ "once: GET, a byte of its answer had come", GET, "H", false },
	{ "once: GET, an interim answer had come", GET, "HTTP/1.1 103 Early\r\n\r\n", false },
};

static void die(struct scene *sc, enum event how)
{
	if (how == SERVER_FIN)
		sim_fin(sc->s);
	else
		sim_reset(sc->s);
}

/* The request has come to a connection that had served one before; that one dies then. */
static void dies_in_the_pool(const struct again *a, enum event how)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;
	const char *line;

	scene_open(&sc, &k);
	idle(&sc);
	scene_ask(&sc, a->request);
	world_eat_all(sc.s);
	if (a->first) {
		world_say(sc.s, "%s", a->first);
		world_pass(&sc.w, 10000);
		world_eat_all(sc.c);
	}
	die(&sc, how);
	if (a->repeated) {
		run_until(&sc.w, scene_asked(&sc));
		assert_int_equal(sc.n_served, 2);
		world_eat_all(sc.s);
		scene_says(&sc, strncmp(a->request, "HEAD", 4) != 0
					? OKAY
					: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
		assert_int_equal(world_head(sc.c), 200);
	} else {
		run_until(&sc.w, world_head(sc.c));
		scene_page(&sc, 502, false);
		assert_int_equal(sc.n_served, 1);
	}
	line = world_line(&sc.w);
	assert_string_equal(world_logged(line, "attempts"), "1");
	assert_string_equal(world_logged(line, "reused"), a->repeated ? "false" : "true");
	assert_string_equal(world_logged(line, "reason"),
			    a->repeated ? "" : "connection_terminated");
	world_eat_all(sc.c);
	scene_round(&sc);
	scene_close(&sc);
}

static void an_again(void **state)
{
	dies_in_the_pool(*state, SERVER_FIN);
	dies_in_the_pool(*state, SERVER_RST);
}

static void a_fresh_connection_that_dies_is_the_end(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	idle(&sc);
	awaiting(&sc);
	sim_reset(sc.s);
	run_until(&sc.w, scene_asked(&sc));
	world_eat_all(sc.s);
	sim_reset(sc.s);
	run_until(&sc.w, world_head(sc.c));
	scene_page(&sc, 502, false);
	scene_log(&sc, "502", "connection_terminated", true);
	assert_int_equal(sc.n_served, 2);
	scene_close(&sc);
}

/* The server's FIN and the next request cross. */
static void a_fin_that_crosses_the_request_costs_nothing(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	for (int64_t lead = -300; lead <= 300; lead += 50) {
		world_context("lead %lld us", (long long)lead);
		scene_open(&sc, &k);
		idle(&sc);
		if (lead < 0) {
			scene_call(&sc, GET);
			world_pass(&sc.w, (uint64_t)-lead);
			sim_fin(sc.s);
		} else {
			sim_fin(sc.s);
			world_pass(&sc.w, (uint64_t)lead);
			scene_call(&sc, GET);
		}
		world_pass(&sc.w, 10000);
		world_eat_all(sc.served[0].peer);
		run_until(&sc.w, scene_asked(&sc));
		scene_says(&sc, OKAY);
		scene_log(&sc, "200", "", true);
		scene_close(&sc);
	}
}

/* ---------------------------------------------------------------- servers that say too much */
static void bytes_in_the_pool_end_the_connection(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	idle(&sc);
	world_say(sc.s, OKAY);
	run_until(&sc.w, sc.s->eof || sc.s->reset);
	scene_round(&sc);
	assert_int_equal(sc.n_served, 2);
	scene_close(&sc);
}

static void bytes_behind_an_answer_end_the_connection(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	awaiting(&sc);
	scene_says(&sc, OKAY OKAY);
	run_until(&sc.w, sc.s->eof || sc.s->reset);
	world_pass(&sc.w, SECONDS(1));
	assert_string_equal((char *)sc.c->got + sc.c->n_got - 6, "\r\n\r\nok");
	world_eat_all(sc.c);
	scene_log(&sc, "200", "", true);
	scene_round(&sc);
	assert_int_equal(sc.n_served, 2);
	scene_close(&sc);
}

/* Its FIN comes with the answer: delivered, and never pooled. */
static void a_fin_behind_the_answer_is_no_failure(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	awaiting(&sc);
	world_say(sc.s, OKAY);
	sim_fin(sc.s);
	run_until(&sc.w, world_head(sc.c) && sc.s->eof);
	assert_null(world_field(sc.c, "Connection"));
	world_eat_all(sc.c);
	scene_log(&sc, "200", "", true);
	scene_round(&sc);
	assert_int_equal(sc.n_served, 2);
	scene_close(&sc);
}

/* An answer and a reset behind it, while the request still goes out: the answer counts. */
static void an_early_answer_before_a_reset_is_delivered(void **state)
{
	static const char body[300000];
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	scene_ask(&sc, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 300001\r\n\r\n");
	sim_hold(sc.s, true);
	sim_say(sc.c, body, sizeof(body));
	world_pass(&sc.w, SECONDS(1));
	world_say(sc.s, "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno");
	sim_reset(sc.s);
	run_until(&sc.w, world_head(sc.c));
	assert_int_equal(world_head(sc.c), 413);
	assert_null(world_field(sc.c, "Proxy-Status"));
	world_pass(&sc.w, SECONDS(1));
	scene_call(&sc, "x");
	scene_log(&sc, "413", "", true);
	scene_serves(&sc);
	scene_close(&sc);
}

/* ---------------------------------------------------------------- pipelined */
static void behind_a_cut_answer_nothing_is_served(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_ask(&sc, GET "GET /2 HTTP/1.1\r\nHost: s\r\n\r\n");
	world_eat_all(sc.s);
	scene_says(&sc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n01");
	sim_fin(sc.s);
	run_until(&sc.w, sc.c->eof || sc.c->reset);
	scene_log(&sc, "200", "http_response_incomplete", false);
	world_pass(&sc.w, SECONDS(1));
	assert_int_equal(sc.n_served, 1);
	scene_close(&sc);
}

static void behind_a_page_the_next_request_is_served(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_ask(&sc, GET "GET /2 HTTP/1.1\r\nHost: s\r\n\r\n");
	world_eat_all(sc.s);
	sim_fin(sc.s);
	run_until(&sc.w, world_head(sc.c) == 502 && scene_asked(&sc));
	assert_true(strncmp((char *)sc.s->got, "GET /2 ", 7) == 0);
	world_eat_all(sc.s);
	world_eat_all(sc.c);
	scene_says(&sc, OKAY);
	scene_log(&sc, "502", "connection_terminated", true);
	scene_log(&sc, "200", "", true);
	scene_close(&sc);
}

static void behind_a_reset_nothing_was_asked(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_ask(&sc, GET GET);
	sim_reset(sc.c);
	run_until(&sc.w, sc.s->reset);
	scene_log(&sc, "499", "client_abort", false);
	world_pass(&sc.w, SECONDS(1));
	assert_int_equal(sc.n_served, 1);
	scene_close(&sc);
}

static void all_that_a_half_closed_client_has_asked_is_answered(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	scene_call(&sc, GET GET GET);
	sim_fin(sc.c);
	for (int i = 0; i < 3; i++) {
		run_until(&sc.w, scene_asked(&sc));
		world_eat_all(sc.s);
		scene_says(&sc, OKAY);
		if (i < 2)
			assert_null(world_field(sc.c, "Connection"));
		else
			assert_string_equal(world_field(sc.c, "Connection"), "close");
		world_eat_all(sc.c);
		scene_log(&sc, "200", "", true);
	}
	run_until(&sc.w, sc.c->eof);
	scene_close(&sc);
}

/* The client's FIN came while the request before was served: no more of this one can come. */
static void half_a_request_behind_a_whole_one_is_an_abort(void **state)
{
	static const char *const halves[] = {
		GET "GET / HT",
		GET "PUT / HTTP/1.1\r\nHost: s\r\nContent-Length: 3\r\n\r\n01",
		GET "PUT / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n01",
	};
	struct scene sc;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
		world_context("half %zu", i);
		scene_open(&sc, NULL);
		scene_ask(&sc, halves[i]);
		world_eat_all(sc.s);
		sim_fin(sc.c);
		world_pass(&sc.w, SECONDS(1));
		world_mark(&sc.w);
		scene_says(&sc, OKAY);
		scene_log(&sc, "200", "", true);
		must_ring(&sc, sc.c->reset, 0);
		scene_log(&sc, "499", "client_abort", false);
		scene_close(&sc);
	}
}

/* ---------------------------------------------------------------- half_close: abort */
static void half_close_may_be_an_abort(void **state)
{
	static const struct stage *const stages[] = { &awaiting_stage, &after_103_stage,
						      &connecting_stage, &half_an_answer_stage };
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"",
			   .more = "client_half_close: abort" };
	struct scene sc;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
		world_context("%s", stages[i]->name);
		scene_open(&sc, &k);
		stages[i]->reach(&sc);
		happen(&sc, CLIENT_FIN);
		run_until(&sc.w, sc.c->reset && (!sc.s || sc.s->reset));
		world_must(&sc.w, world_ms(&sc.w) <= 1);
		scene_log(&sc, stages[i] == &half_an_answer_stage ? "200" : "499", "client_abort",
			  false);
		scene_serves(&sc);
		scene_close(&sc);
	}
}

/* ---------------------------------------------------------------- never the server's fault */
/* A server that is left out shows: the other one gets all. */
static void assert_both_serve(struct scene *sc)
{
	unsigned n[2] = { 0, 0 };

	for (int i = 0; i < 4; i++) {
		sc->c = world_call(&sc->w, WEB);
		scene_round(sc);
		n[sc->at - 1]++;
		sim_fin(sc->c);
		run_until(&sc->w, sc->c->eof);
	}
	assert_int_equal(n[0], 2);
	assert_int_equal(n[1], 2);
}

static void nothing_but_a_failed_connect_counts_against_a_server(void **state)
{
	static const struct {
		const struct stage *stage;
		enum event event;
	} tries[] = {
		{ &connecting_stage, CLIENT_RST },     { &awaiting_stage, CLIENT_RST },
		{ &half_a_body_stage, CLIENT_RST },    { &half_an_answer_stage, CLIENT_RST },
		{ &awaiting_stage, SERVER_RST },       { &half_an_answer_head_stage, SERVER_FIN },
		{ &half_an_answer_stage, SERVER_RST },
	};
	struct knobs k = { .upstream = ", eject: { failures: 1, time: 1h }" };
	struct scene sc;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
		world_context("%s, %s", tries[i].stage->name, event_names[tries[i].event]);
		scene_open(&sc, &k);
		if (tries[i].stage == &connecting_stage)
			scene_server(&sc, 2, SIM_SILENT);
		for (int n = 0; n < 2; n++) { /* each server once */
			sc.c = sc.s = NULL;
			tries[i].stage->reach(&sc);
			happen(&sc, tries[i].event);
			world_pass(&sc.w, 10000);
			if (!sc.c->gone) {
				sim_reset(sc.c);
				world_pass(&sc.w, 10000);
			}
			(void)world_line(&sc.w);
		}
		scene_server(&sc, 1, SIM_ACCEPTS);
		scene_server(&sc, 2, SIM_ACCEPTS);
		assert_both_serve(&sc);
		scene_close(&sc);
	}
}

/* ---------------------------------------------------------------- drain */
/* Readiness has turned: what comes is served, and told to go elsewhere. */
static void draining_serves_and_says_close(void **state)
{
	struct knobs k = { .servers = "\"http://" SERVER_1 ":80\"" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	idle(&sc);
	service_drain(sc.w.service);
	world_pass(&sc.w, SECONDS(1));
	assert_false(sc.c->eof);      /* an idle client may still ask */
	assert_true(sc.s->eof);       /* an idle server will not be asked */
	for (int i = 0; i < 2; i++) { /* on the old connection, on a new one */
		scene_ask(&sc, GET);
		world_eat_all(sc.s);
		scene_says(&sc, OKAY);
		assert_string_equal(world_field(sc.c, "Connection"), "close");
		run_until(&sc.w, sc.c->eof && sc.s->eof);
		scene_log(&sc, "200", "", true);
		sc.c = NULL;
	}
	scene_close(&sc);
}

static void stopping_resets_who_comes_late(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	awaiting(&sc);
	world_stop(&sc.w);
	world_pass(&sc.w, SECONDS(1));
	assert_true(sc.w.closed); /* though a request is still awaited */
	assert_true(world_call(&sc.w, WEB) != NULL);
	world_pass(&sc.w, SECONDS(1));
	assert_false(sc.w.ended);
	scene_says(&sc, OKAY);
	scene_log(&sc, "200", "", true);
	scene_close(&sc);
}

/* Pipelined requests behind the one at hand are not begun any more. */
static void stopping_ends_after_the_answer_at_hand(void **state)
{
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_ask(&sc, GET GET);
	world_eat_all(sc.s);
	world_stop(&sc.w);
	world_pass(&sc.w, SECONDS(1));
	scene_says(&sc, OKAY);
	assert_string_equal(world_field(sc.c, "Connection"), "close");
	run_until(&sc.w, sc.c->eof);
	scene_log(&sc, "200", "", true);
	assert_int_equal(sc.n_served, 1);
	scene_close(&sc);
}

static void cutting_leaves_out_no_preface(void **state)
{
	struct knobs k = { .web = ", proxy_protocol: { from: [10.9.0.0/16], timeout: 1h }" };
	struct scene sc;

	(void)state;
	scene_open(&sc, &k);
	scene_call(&sc, "PROXY");
	world_pass(&sc.w, 10000);
	world_stop(&sc.w);
	world_pass(&sc.w, SECONDS(1));
	assert_false(sc.c->eof);
	(void)service_cut(sc.w.service);
	run_until(&sc.w, sc.c->eof);
	assert_string_equal(world_logged(world_line(&sc.w), "reason"), "shutdown");
	scene_close(&sc);
}

/* ---------------------------------------------------------------- the wall clock */
static time_t date_of(const struct scene *sc)
{
	struct tm tm;
	const char *date = world_field(sc->c, "Date");

	memset(&tm, 0, sizeof(tm));
	assert_non_null(date);
	assert_non_null(strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm));
	return timegm(&tm);
}

/* In the middle of a request the clock is set by hours: no timeout moves, and Date and the log
 * follow at once. */
static void a_clock_that_jumps_moves_no_timeout(void **state)
{
	static const int64_t hours[] = { 5, -5, 24 * 365, -24 * 365 };
	struct scene sc;
	time_t before, after;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hours); i++) {
		world_context("%lld hours", (long long)hours[i]);
		scene_open(&sc, NULL);
		scene_call(&sc, "GET / HTTP/1.1\r\n\r\n"); /* no Host: a page of our own */
		run_until(&sc.w, sc.c->eof);
		before = date_of(&sc);
		scene_log(&sc, "400", "http_request_error:host_missing", true);
		sc.c = NULL;
		world_mark(&sc.w);
		awaiting(&sc);
		world_pass(&sc.w, SECONDS(30));
		sim_set_wall(sc.w.sim, (int64_t)HOURS(1) * hours[i]);
		must_ring(&sc, world_head(sc.c), 60000);
		after = date_of(&sc);
		assert_true(after - before >= hours[i] * 3600 + 60 &&
			    after - before <= hours[i] * 3600 + 61);
		scene_log(&sc, "504", "http_response_timeout", true);
		world_eat_all(sc.c);
		world_mark(&sc.w);
		sim_set_wall(sc.w.sim, -(int64_t)HOURS(1) * hours[i]);
		must_ring(&sc, sc.c->eof, 75000);
		scene_close(&sc);
	}
}

/* ---------------------------------------------------------------- all of them */
int main(void)
{
	static const struct CMUnitTest singles[] = {
		cmocka_unit_test(a_fresh_connection_that_dies_is_the_end),
		cmocka_unit_test(a_fin_that_crosses_the_request_costs_nothing),
		cmocka_unit_test(bytes_in_the_pool_end_the_connection),
		cmocka_unit_test(bytes_behind_an_answer_end_the_connection),
		cmocka_unit_test(a_fin_behind_the_answer_is_no_failure),
		cmocka_unit_test(an_early_answer_before_a_reset_is_delivered),
		cmocka_unit_test(behind_a_cut_answer_nothing_is_served),
		cmocka_unit_test(behind_a_page_the_next_request_is_served),
		cmocka_unit_test(behind_a_reset_nothing_was_asked),
		cmocka_unit_test(all_that_a_half_closed_client_has_asked_is_answered),
		cmocka_unit_test(half_a_request_behind_a_whole_one_is_an_abort),
		cmocka_unit_test(half_close_may_be_an_abort),
		cmocka_unit_test(nothing_but_a_failed_connect_counts_against_a_server),
		cmocka_unit_test(draining_serves_and_says_close),
		cmocka_unit_test(stopping_resets_who_comes_late),
		cmocka_unit_test(stopping_ends_after_the_answer_at_hand),
		cmocka_unit_test(cutting_leaves_out_no_preface),
		cmocka_unit_test(a_clock_that_jumps_moves_no_timeout),
	};
	static char names[ARRAY_LEN(rows)][80];
	struct CMUnitTest tests[ARRAY_LEN(rows) + ARRAY_LEN(agains) + ARRAY_LEN(singles)];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		snprintf(names[i], sizeof(names[i]), "%s: %s", rows[i].stage->name,
			 event_names[rows[i].event]);
		tests[n++] = (struct CMUnitTest){ names[i], a_row, NULL, NULL, (void *)&rows[i] };
	}
	for (size_t i = 0; i < ARRAY_LEN(agains); i++)
		tests[n++] = (struct CMUnitTest){ agains[i].name, an_again, NULL, NULL,
						  (void *)&agains[i] };
	memcpy(tests + n, singles, sizeof(singles));
	return cmocka_run_group_tests_name("aborts", tests, world_group_setup,
					   world_group_teardown);
}
