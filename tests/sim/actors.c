/* actors.c -- see actors.h. */
#include "actors.h"

#include <stdio.h>

#define SERVERS 2
#define ECHO    "10.1.0.3"

/* ---------------------------------------------------------------- messages */
enum framing { NO_BODY, LENGTH, CHUNKED, UNTIL_END };
enum side { REQUEST = 3, RESPONSE = 5 };

static uint8_t body_byte(unsigned id, enum side side, uint64_t at)
{
	return (uint8_t)(id * 31 + side * 17 + at * 7 + (at >> 8));
}

/* A message as it comes in: an own, simple reader. */
struct incoming {
	enum side side;
	bool head, done, to_head; /* to_head: it answers HEAD */
	unsigned status, id;      /* id 0: it has none */
	char method[12];
	enum framing framing;
	bool close, expects;
	uint64_t left, n_body; /* left: of the length, or of the chunk */
	bool in_chunk;
};

static bool has(const char *value, const char *word)
{
	return value && strcasestr(value, word);
}

static void read_fields(struct incoming *m, const struct sim_peer *p)
{
	const char *v = world_field(p, "X-Id");
	bool no_body = m->to_head || m->status == 204 || m->status == 304 || m->status / 100 == 1;

	m->id = v ? (unsigned)strtoul(v, NULL, 10) : 0;
	m->close = has(world_field(p, "Connection"), "close");
	m->expects = has(world_field(p, "Expect"), "100-continue");
	m->framing = m->side == REQUEST ? NO_BODY : UNTIL_END;
	v = world_field(p, "Content-Length");
	if (v) {
		m->left = strtoull(v, NULL, 10);
		m->framing = m->left ? LENGTH : NO_BODY;
	}
	if (has(world_field(p, "Transfer-Encoding"), "chunked"))
		m->framing = CHUNKED;
	if (no_body || (m->side == RESPONSE && m->status == 200 && !strcmp(m->method, "CONNECT")))
		m->framing = NO_BODY;
	m->done = m->framing == NO_BODY;
}

/* False: it is not all there. */
static bool read_head(struct incoming *m, struct sim_peer *p)
{
	const char *end = memmem(p->got, p->n_got, "\r\n\r\n", 4);

	if (!end)
		return false;
	if (m->side == RESPONSE)
		m->status = world_head(p);
	else
		snprintf(m->method, sizeof(m->method), "%.*s",
			 (int)strcspn((const char *)p->got, " "), (const char *)p->got);
	read_fields(m, p);
	m->head = true;
	sim_eat(p, (size_t)(end + 4 - (const char *)p->got));
	return true;
}

static void read_bytes(struct world *w, struct incoming *m, struct sim_peer *p, uint64_t max)
{
	size_t n = p->n_got < max ? p->n_got : (size_t)max;

	for (size_t i = 0; m->id && i < n; i++)
		world_must(w, p->got[i] == body_byte(m->id, m->side, m->n_body + i));
	m->n_body += n;
	m->left -= m->framing == UNTIL_END ? 0 : n;
	sim_eat(p, n);
}

/* The line that begins or ends a chunk, or the end; false: it is not there yet. */
static bool read_chunk_line(struct world *w, struct incoming *m, struct sim_peer *p)
{
	const char *end = memmem(p->got, p->n_got, "\r\n", 2);
	size_t n = end ? (size_t)(end - (const char *)p->got) : 0;
	char *stop;

	if (!end)
		return false;
	if (m->in_chunk) {
		world_must(w, n == 0);
		m->in_chunk = false;
		sim_eat(p, 2);
		return true;
	}
	m->left = strtoull((const char *)p->got, &stop, 16);
	world_must(w, stop != (const char *)p->got);
	if (m->left == 0) { /* no trailers here */
		if (p->n_got < n + 4)
			return false;
		world_must(w, !memcmp(p->got + n, "\r\n\r\n", 4));
		sim_eat(p, n + 4);
		m->done = true;
		return false;
	}
	m->in_chunk = true;
	sim_eat(p, n + 2);
	return true;
}

static void read_chunked(struct world *w, struct incoming *m, struct sim_peer *p)
{
	while (p->n_got > 0 && !m->done) {
		if (m->left > 0)
			read_bytes(w, m, p, m->left);
		else if (!read_chunk_line(w, m, p))
			return;
	}
}

/* Takes what is there.  True: the message has come to its end. */
static bool read_message(struct world *w, struct incoming *m, struct sim_peer *p)
{
	if (!m->head && !read_head(m, p))
		return false;
	if (m->framing == CHUNKED && !m->done)
		read_chunked(w, m, p);
	else if (!m->done)
		read_bytes(w, m, p, m->framing == LENGTH ? m->left : UINT64_MAX);
	if (m->framing == LENGTH && m->left == 0)
		m->done = true;
	return m->done;
}

/* ---------------------------------------------------------------- text that grows */
struct text {
	char *p;
	size_t n, room;
};

/* Room for n bytes more, which count as put. */
static char *more(struct text *t, size_t n)
{
	if (t->n + n > t->room) {
		t->room = (t->n + n) * 2;
		t->p = realloc(t->p, t->room);
		must(t->p != NULL);
	}
	t->n += n;
	return t->p + t->n - n;
}

static void __attribute__((format(printf, 2, 3))) putf(struct text *t, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	must(n >= 0 && (size_t)n < sizeof(line));
	memcpy(more(t, (size_t)n), line, (size_t)n);
}

static void put_body(struct text *t, unsigned id, enum side side, size_t from, size_t n)
{
	char *to = more(t, n);

	for (size_t i = 0; i < n; i++)
		to[i] = (char)body_byte(id, side, from + i);
}

static void put_framed(struct sim *s, struct text *t, unsigned id, enum side side,
		       enum framing framing, size_t n)
{
	size_t at = 0;

	if (framing != CHUNKED) {
		put_body(t, id, side, 0, n);
		return;
	}
	while (at < n) {
		size_t part = 1 + sim_random(s, (uint32_t)(n - at));

		putf(t, "%zx\r\n", part);
		put_body(t, id, side, at, part);
		putf(t, "\r\n");
		at += part;
	}
	putf(t, "0\r\n\r\n");
}

static size_t body_size(struct sim *s)
{
	static const uint32_t most[] = { 10, 2000, 9000, 200000 };

	if (sim_random(s, 60) == 0)
		return 1 + sim_random(s, 8000000);
	return 1 + sim_random(s, most[sim_random(s, ARRAY_LEN(most))]);
}

static uint64_t moment(struct sim *s)
{
	return sim_random(s, 5) ? sim_random(s, 2000) : sim_random(s, 3000000);
}

/* ---------------------------------------------------------------- clients */
enum { PIPELINED = 4 };

struct asked {
	unsigned id;
	char method[12];
	size_t ends; /* of its bytes in what the client says */
};

struct client {
	struct actors *a;
	struct client *next;
	struct sim_peer *p;
	struct text says;
	size_t said;
	struct asked asked[PIPELINED];
	unsigned n_asked, n_answered;
	struct incoming in;
	size_t hangs_up_at; /* bytes said; SIZE_MAX: never */
	bool resets;        /* how it hangs up */
	bool stops_reading; /* for good, after the first bytes */
	bool over, hung_up;
	/* a tunnel */
	bool tunnel, open;
	size_t echo_all, echo_got;
};

static struct truth *truth_of(struct client *c, unsigned i)
{
	return &c->a->truth[c->asked[i].id];
}

/* What was not answered up to here is not owed any more. */
static void forgo(struct client *c)
{
	for (unsigned i = c->n_answered; i < c->n_asked; i++)
		truth_of(c, i)->aborted = true;
}

static void client_over(struct client *c)
{
	if (c->over)
		return;
	c->over = true;
	c->a->n_over++;
}

static void hang_up(struct client *c)
{
	if (c->hung_up)
		return;
	c->hung_up = true;
	forgo(c);
	if (c->resets)
		sim_reset(c->p);
	else
		sim_fin(c->p);
	if (c->resets)
		client_over(c);
}

static void client_done(struct client *c)
{
	forgo(c);
	sim_fin(c->p);
	c->hung_up = true;
	client_over(c);
}

static void say_more(void *arg)
{
	struct client *c = arg;
	struct sim *s = c->a->w->sim;
	size_t most = c->tunnel && !c->open ? c->asked[0].ends : c->says.n, n;

	if (c->over || c->hung_up || c->said == c->says.n)
		return;
	if (most > c->hangs_up_at)
		most = c->hangs_up_at;
	n = most - c->said;
	if (n > 1 && sim_random(s, 2))
		n = 1 + sim_random(s, (uint32_t)n);
	if (n > 0)
		sim_say(c->p, c->says.p + c->said, n);
	c->said += n;
	if (c->said == c->hangs_up_at)
		hang_up(c);
	else if (c->said < most || (!c->tunnel && c->said < c->says.n))
		sim_at(s, moment(s), say_more, c);
}

static void saw_final(struct client *c)
{
	struct world *w = c->a->w;
	struct truth *t = truth_of(c, c->n_answered);
	bool connected = c->in.status == 200 && !strcmp(c->in.method, "CONNECT");

	t->status = c->in.status;
	t->own = c->in.id == 0 && !connected;
	if (connected) {
		t->deed = DEED_ECHO;
	} else if (!t->own) {
		world_must(w, c->in.id == c->asked[c->n_answered].id);
		world_must(w, t->heads > 0 && t->answer_status == t->status);
		world_must(w, t->deed != DEED_GARBAGE && t->deed != DEED_HANG_UP);
	}
}

static void next_answer(struct client *c)
{
	const char *method = c->asked[c->n_answered].method;

	memset(&c->in, 0, sizeof(c->in));
	c->in.side = RESPONSE;
	c->in.to_head = !strcmp(method, "HEAD");
	memcpy(c->in.method, method, sizeof(c->in.method));
}

/* An answer has come to its end: is that true? */
static void check_whole(struct client *c)
{
	struct truth *t = truth_of(c, c->n_answered);

	t->whole = true;
	t->aborted = t->aborted || c->said < c->asked[c->n_answered].ends;
	world_must(c->a->w, t->own || t->deed != DEED_CUT);
}

static void hear_echo(struct client *c)
{
	struct sim_peer *p = c->p;

	for (size_t i = 0; i < p->n_got; i++)
		world_must(c->a->w,
			   p->got[i] == body_byte(c->asked[0].id, REQUEST, c->echo_got + i));
	c->echo_got += p->n_got;
	world_eat_all(p);
	world_must(c->a->w, c->echo_got <= c->echo_all);
	if (c->echo_got == c->echo_all)
		client_done(c);
}

static void tunnel_opens(struct client *c)
{
	c->open = true;
	c->n_answered++;
	say_more(c);
}

/* Whether the connection goes on. */
static bool hear_one(struct client *c)
{
	struct world *w = c->a->w;
	bool had_head = c->in.head, done = read_message(w, &c->in, c->p);

	if (c->in.head && !had_head && c->in.status >= 200)
		saw_final(c);
	if (c->in.head && c->in.status == 101) {
		world_must(w, c->tunnel);
		saw_final(c);
		check_whole(c);
		tunnel_opens(c);
		return false;
	}
	if (!done)
		return false;
	if (c->in.status < 200) {
		next_answer(c);
		return true;
	}
	check_whole(c);
	if (c->tunnel && c->in.status == 200) {
		tunnel_opens(c);
		return false;
	}
	c->n_answered++;
	if (c->n_answered == c->n_asked || c->in.close) {
		client_done(c);
		return false;
	}
	next_answer(c);
	return true;
}

static void client_ends(struct client *c)
{
	bool in_body = c->in.head && !c->in.done && c->in.status >= 200;

	if (in_body && c->in.framing == UNTIL_END && c->p->eof && !c->p->reset)
		check_whole(c);
	sim_fin(c->p);
	client_over(c);
}

static void give_up(void *arg)
{
	struct client *c = arg;

	if (!c->over)
		sim_reset(c->p);
	client_over(c);
}

static void on_client(struct sim_peer *p)
{
	struct client *c = p->arg;

	if (c->over)
		return;
	if (c->stops_reading && p->n_all > 0 && !p->hold) {
		forgo(c);
		sim_hold(p, true);
		sim_at(c->a->w->sim, sim_random(c->a->w->sim, 200000000), give_up, c);
	}
	while (!c->open && c->n_answered < c->n_asked && hear_one(c))
		;
	if (c->open && !c->over)
		hear_echo(c);
	if (!c->over && (p->eof || p->reset))
		client_ends(c);
}

static const struct {
	const char *name;
	bool safe, body;
} methods[] = {
	{ "GET", true, false }, { "GET", true, false },    { "HEAD", true, false },
	{ "PUT", true, true },  { "DELETE", true, false }, { "POST", false, true },
};

static void ask(struct client *c)
{
	struct sim *s = c->a->w->sim;
	unsigned id = ++c->a->n_requests, m = sim_random(s, ARRAY_LEN(methods));
	struct asked *q = &c->asked[c->n_asked++];
	size_t n = methods[m].body && sim_random(s, 4) ? body_size(s) : 0;
	enum framing framing = n == 0 ? NO_BODY : sim_random(s, 2) ? LENGTH : CHUNKED;

	must(id < ACTORS_REQUESTS);
	q->id = id;
	snprintf(q->method, sizeof(q->method), "%s", methods[m].name);
	c->a->truth[id].safe = methods[m].safe;
	putf(&c->says, "%s /%u HTTP/1.1\r\nHost: s\r\nUser-Agent: r%u\r\nX-Id: %u\r\n", q->method,
	     id, id, id);
	if (framing == LENGTH)
		putf(&c->says, "Content-Length: %zu\r\n", n);
	else if (framing == CHUNKED)
		putf(&c->says, "Transfer-Encoding: chunked\r\n");
	else if (methods[m].body)
		putf(&c->says, "Content-Length: 0\r\n");
	if (n > 0 && sim_random(s, 4) == 0)
		putf(&c->says, "Expect: 100-continue\r\n");
	putf(&c->says, "\r\n");
	if (n > 0)
		put_framed(s, &c->says, id, REQUEST, framing, n);
	q->ends = c->says.n;
}

static void ask_tunnel(struct client *c, bool connect)
{
	struct sim *s = c->a->w->sim;
	unsigned id = ++c->a->n_requests;
	struct asked *q = &c->asked[c->n_asked++];

	must(id < ACTORS_REQUESTS);
	q->id = id;
	c->a->truth[id].tunnel = c->tunnel = true;
	c->a->truth[id].safe = !connect;
	snprintf(q->method, sizeof(q->method), "%s", connect ? "CONNECT" : "GET");
	if (connect)
		putf(&c->says,
		     "CONNECT " ECHO ":80 HTTP/1.1\r\nHost: " ECHO ":80\r\nUser-Agent: r%u\r\n\r\n",
		     id);
	else
		putf(&c->says,
		     "GET /%u HTTP/1.1\r\nHost: s\r\nConnection: upgrade\r\nUpgrade: echo\r\n"
		     "User-Agent: r%u\r\nX-Id: %u\r\n\r\n",
		     id, id, id);
	q->ends = c->says.n;
	c->echo_all = body_size(s);
	put_body(&c->says, id, REQUEST, 0, c->echo_all);
}

static void misbehave(struct client *c)
{
	struct sim *s = c->a->w->sim;

	c->hangs_up_at = SIZE_MAX;
	if (c->a->mood == MOOD_GOOD)
		return;
	if (sim_random(s, 5) == 0)
		c->hangs_up_at = sim_random(s, (uint32_t)c->says.n + 1);
	c->resets = sim_random(s, 2);
	c->stops_reading = sim_random(s, 16) == 0;
}

static void call(void *arg)
{
	struct client *c = arg;
	struct sim *s = c->a->w->sim;
	uint32_t kind = sim_random(s, 8);

	if (kind < 2)
		ask_tunnel(c, kind == 0);
	else
		for (unsigned n = 1 + sim_random(s, PIPELINED); n > 0; n--)
			ask(c);
	for (unsigned i = 0; i < c->n_asked; i++)
		truth_of(c, i)->bulky = c->says.n > 64u << 10;
	misbehave(c);
	next_answer(c);
	c->p = world_call(c->a->w, kind == 0 ? FWD : WEB);
	c->p->arg = c;
	c->p->on = on_client;
	say_more(c);
}

/* ---------------------------------------------------------------- servers */
struct server {
	struct actors *a;
	struct server *next;
	struct sim_peer *p;
	struct incoming in;
	struct text says;
	size_t said;
	enum deed deed;
	bool acted;  /* on the request at hand */
	bool closes; /* after the answer */
	bool resets; /* instead of a FIN */
	bool gone, echoes;
};

struct mine { /* of struct actors */
	struct client *clients;
	struct server *servers;
};

static struct truth *truth_at(struct server *v)
{
	return &v->a->truth[v->in.id];
}

static void server_ends(struct server *v)
{
	v->gone = true;
	if (v->resets)
		sim_reset(v->p);
	else
		sim_fin(v->p);
}

static void next_request(struct server *v)
{
	memset(&v->in, 0, sizeof(v->in));
	v->in.side = REQUEST;
	v->acted = false;
	v->says.n = v->said = 0;
}

static void on_server(struct sim_peer *p);

static void answer_said(struct server *v)
{
	if (v->closes || v->deed == DEED_CUT || v->deed == DEED_GARBAGE) {
		server_ends(v);
		return;
	}
	if (!v->in.done) /* the rest of the request is still to come */
		return;
	next_request(v);
	on_server(v->p);
}

static void answer_more(void *arg)
{
	struct server *v = arg;
	struct sim *s = v->a->w->sim;
	size_t n = v->says.n - v->said;

	if (v->gone || v->p->reset)
		return;
	if (n > 1 && sim_random(s, 2))
		n = 1 + sim_random(s, (uint32_t)n);
	sim_say(v->p, v->says.p + v->said, n);
	v->said += n;
	if (v->said < v->says.n)
		sim_at(s, moment(s), answer_more, v);
	else
		answer_said(v);
}

static void put_answer(struct server *v)
{
	struct sim *s = v->a->w->sim;
	static const unsigned statuses[] = { 200, 200, 200, 200, 404, 204, 304, 500 };
	unsigned status = statuses[sim_random(s, ARRAY_LEN(statuses))], id = v->in.id;
	enum framing framing = 1 + sim_random(s, UNTIL_END);
	size_t n = body_size(s);
	bool bodyless = status == 204 || status == 304 || !strcmp(v->in.method, "HEAD");

	truth_at(v)->answer_status = status;
	if (sim_random(s, 6) == 0)
		putf(&v->says, "HTTP/1.1 103 Early\r\nLink: <a>\r\n\r\n");
	putf(&v->says, "HTTP/1.1 %u X\r\nX-Id: %u\r\n", status, id);
	if (framing == LENGTH && status != 204)
		putf(&v->says, "Content-Length: %zu\r\n", n);
	else if (framing == CHUNKED && !bodyless)
		putf(&v->says, "Transfer-Encoding: chunked\r\n");
	v->closes = framing == UNTIL_END && !bodyless ? true : sim_random(s, 5) == 0;
	if (v->closes && (v->a->mood == MOOD_GOOD || sim_random(s, 2)))
		putf(&v->says, "Connection: close\r\n");
	putf(&v->says, "\r\n");
	v->resets = false;
	if (!bodyless)
		put_framed(s, &v->says, id, RESPONSE, framing, n);
}

/* Some bytes of it are missing, and what ends with the connection is cut by a reset; or its last
 * chunk is none. */
static void cut_answer(struct server *v)
{
	static const char end[] = "0\r\n\r\n";
	size_t n = strlen(end);

	if (v->says.n > n && !memcmp(v->says.p + v->says.n - n, end, n) &&
	    sim_random(v->a->w->sim, 2)) {
		memcpy(v->says.p + v->says.n - n, "zz\r\n", 4);
		return;
	}
	v->says.n--;
	v->says.n -= sim_random(v->a->w->sim, (uint32_t)v->says.n);
	v->resets = true;
}

static enum deed choose_deed(struct server *v)
{
	struct sim *s = v->a->w->sim;

	if (v->a->mood == MOOD_GOOD || sim_random(s, 3))
		return sim_random(s, 6) ? DEED_ANSWER : DEED_EARLY;
	return DEED_CUT + sim_random(s, DEED_HANG_UP - DEED_CUT + 1);
}

static void got_head(struct server *v)
{
	struct world *w = v->a->w;
	struct truth *t = truth_at(v);

	world_must(w, v->in.id > 0 && v->in.id <= v->a->n_requests);
	t->heads++;
	world_must(w, t->heads == 1 || t->safe);
	t->deed = v->deed = t->tunnel ? DEED_ECHO : choose_deed(v);
}

static void act(struct server *v)
{
	struct sim *s = v->a->w->sim;

	v->acted = true;
	switch (v->deed) {
	case DEED_ECHO:
		putf(&v->says,
		     "HTTP/1.1 101 X\r\nX-Id: %u\r\nConnection: upgrade\r\nUpgrade: echo"
		     "\r\n\r\n",
		     v->in.id);
		truth_at(v)->answer_status = 101;
		sim_say(v->p, v->says.p, v->says.n);
		v->echoes = true;
		return;
	case DEED_SILENT: return;
	case DEED_HANG_UP:
		v->resets = sim_random(s, 2);
		server_ends(v);
		return;
	case DEED_GARBAGE: putf(&v->says, "HTTP/9.9 what\r\n\r\n"); break;
	case DEED_CUT:
		put_answer(v);
		cut_answer(v);
		break;
	default: put_answer(v); break;
	}
	sim_at(s, moment(s), answer_more, v);
}

static void echo(struct server *v)
{
	struct sim_peer *p = v->p;

	if (p->n_got > 0)
		sim_say(p, p->got, p->n_got);
	world_eat_all(p);
	if (p->eof) {
		v->gone = true;
		sim_fin(p);
	}
}

static void serve(struct server *v)
{
	struct world *w = v->a->w;
	bool had_head = v->in.head, done = v->in.done || read_message(w, &v->in, v->p);

	if (v->in.head && !had_head)
		got_head(v);
	if (!v->in.head || v->acted)
		return;
	if (v->in.expects && !v->in.n_body && !done && v->deed != DEED_EARLY) {
		v->in.expects = false;
		world_say(v->p, "HTTP/1.1 100 Continue\r\n\r\n");
	}
	if (done || v->deed == DEED_EARLY)
		act(v);
}

static void on_server(struct sim_peer *p)
{
	struct server *v = p->arg;

	if (v->gone) {
		world_eat_all(p);
		return;
	}
	if (p->reset)
		return;
	if (v->echoes) {
		echo(v);
		return;
	}
	serve(v);
	if (v->echoes)
		echo(v);
	else if (v->acted && v->in.done && v->says.n > 0 && v->said == v->says.n && !v->gone)
		answer_said(v); /* an early answer's request has ended */
	if (p->eof && !v->gone && !v->acted)
		server_ends(v);
}

static struct server *new_server(struct sim_peer *p, void *arg)
{
	struct actors *a = arg;
	struct mine *m = a->mine;
	struct server *v = calloc(1, sizeof(*v));

	must(v != NULL);
	v->a = a;
	v->p = p;
	v->next = m->servers;
	m->servers = v;
	p->arg = v;
	p->on = on_server;
	next_request(v);
	return v;
}

static void on_peer(struct sim_peer *p, void *arg)
{
	(void)new_server(p, arg);
}

static void on_tunnel(struct sim_peer *p, void *arg)
{
	new_server(p, arg)->echoes = true;
}

/* ---------------------------------------------------------------- all of them */
void actors_open(struct actors *a, struct world *w, enum mood mood)
{
	static const char *const at[SERVERS] = { SERVER_1, SERVER_2 };

	memset(a, 0, sizeof(*a));
	a->w = w;
	a->mood = mood;
	a->mine = calloc(1, sizeof(struct mine));
	must(a->mine != NULL);
	for (int i = 0; i < SERVERS; i++)
		world_serve_as(w, at[i], SIM_ACCEPTS, on_peer, a);
	world_serve_as(w, ECHO, SIM_ACCEPTS, on_tunnel, a);
	if (mood != MOOD_GOOD && sim_random(w->sim, 4) == 0)
		world_serve_as(w, SERVER_2, SIM_REFUSES + 2 * sim_random(w->sim, 2), on_peer, a);
}

void actors_client(struct actors *a)
{
	struct mine *m = a->mine;
	struct client *c = calloc(1, sizeof(*c));

	must(c != NULL);
	c->a = a;
	c->next = m->clients;
	m->clients = c;
	a->n_clients++;
	sim_at(a->w->sim, moment(a->w->sim), call, c);
}

bool actors_over(const struct actors *a)
{
	return a->n_over == a->n_clients;
}

static void read_line(struct actors *a, const char *line)
{
	const char *agent = world_logged(line, "user_agent");
	unsigned id = agent[0] == 'r' ? (unsigned)strtoul(agent + 1, NULL, 10) : 0;
	struct truth *t = &a->truth[id];

	if (id == 0) {
		a->n_nameless++;
		return;
	}
	world_must(a->w, id <= a->n_requests);
	t->lines++;
	t->logged_status = (unsigned)strtoul(world_logged(line, "status"), NULL, 10);
	t->logged_complete = !strcmp(world_logged(line, "complete"), "true");
	snprintf(t->reason, sizeof(t->reason), "%s", world_logged(line, "reason"));
}

/* What must be so of every request, whatever happened. */
static void check(struct actors *a, const struct truth *t)
{
	struct world *w = a->w;

	world_must(w, t->lines <= 1);
	world_must(w, t->lines == 1 || t->heads == 0);
	/* What ended before its head was read has a line that does not name it. */
	if (t->lines == 0 && t->status)
		world_must(w, a->n_nameless-- > 0);
	if (t->status && t->lines && !t->aborted)
		world_must(w, t->logged_status == t->status);
	if (t->deed == DEED_CUT && t->logged_status == t->answer_status)
		world_must(w, !t->logged_complete);
}

/* What must be so where culvert had all it needs, and the client wanted its answer. */
static void check_service(struct actors *a, const struct truth *t)
{
	struct world *w = a->w;
	bool answered = t->deed == DEED_ANSWER || t->deed == DEED_EARLY || t->deed == DEED_ECHO;

	if (a->mood > MOOD_BAD || t->aborted || t->bulky)
		return;
	if (t->status && !t->whole)
		world_must(w, !t->logged_complete && t->reason[0]);
	if (t->status)
		world_must(w, t->lines == 1);
	if (t->whole && !t->tunnel)
		world_must(w, t->logged_complete);
	if (answered)
		world_must(w, t->whole && !t->own);
	if (a->mood == MOOD_GOOD)
		world_must(w, answered);
}

void actors_check(struct actors *a)
{
	const char *line;

	while ((line = world_line_now(a->w)))
		read_line(a, line);
	for (unsigned id = 1; id <= a->n_requests; id++) {
		const struct truth *t = &a->truth[id];

		world_context(
			"request r%u (%s%s%s; %u heads, deed %d with %u; the client saw %u%s%s; "
			"%u lines, %u \"%s\")",
			id, t->safe ? "safe" : "unsafe", t->tunnel ? ", tunnel" : "",
			t->aborted ? ", aborted" : "", t->heads, (int)t->deed, t->answer_status,
			t->status, t->own ? " own" : "", t->whole ? " whole" : "", t->lines,
			t->logged_status, t->reason);
		check(a, t);
		check_service(a, t);
	}
}

void actors_close(struct actors *a)
{
	struct mine *m = a->mine;

	for (struct client *c = m->clients, *next; c; c = next) {
		next = c->next;
		free(c->says.p);
		free(c);
	}
	for (struct server *v = m->servers, *next; v; v = next) {
		next = v->next;
		free(v->says.p);
		free(v);
	}
	free(m);
}
