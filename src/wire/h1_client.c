/* h1_client.c -- one connection to a server: writes an exchange's request, reads its answer.  [RFC
 * 9112]
 *
 *   IDLE (pooled, watching) ── h1_client_begin ──► BUSY:  req pipe ─► writer ─► link
 *                                                         link ─► reader ─► rsp pipe
 *        ▲                                                  │
 *        └── answer complete, request out, nothing behind ──┤
 *                                                           └── anything else ──► CLOSING
 *
 * Servers are untrusted too: any doubt about framing ends the connection, bytes behind an answer
 * are never another's answer. */
#include "wire/priv.h"

#include <errno.h>
#include <stdio.h>

/* After a send has failed: an answer that was on its way is there at once, or there is none. */
#define LAST_WORDS_MS 1000u

enum client_state { CLIENT_IDLE = 0, CLIENT_BUSY, CLIENT_CLOSING };

#define H1_CLIENT_MAGIC 0xc11e57a1u
struct h1_client {
	uint32_t magic;
	uint8_t state; /* enum client_state */
	bool pinned;
	bool head_sent, request_out; /* the head, the whole request went to the link */
	bool send_failed;
	bool got_head;
	bool keep; /* this answer lets the connection live */
	bool paused;
	bool stream; /* text/event-stream: silence is normal */
	struct loop *loop;
	struct link *link;
	struct end end;
	struct h1_reader r;
	struct h1_writer w;
	struct deadlines dl;
	struct task task; /* frees it */
	const struct h1_client_ops *ops;
	void *arg;
	struct client_job job;
};

uint32_t h1_client_size(void)
{
	return sizeof(struct h1_client);
}

bool h1_client_pinned(const struct h1_client *c)
{
	return c->pinned;
}

/* ---------------------------------------------------------------- the end of the connection */
static void on_task(struct task *t)
{
	struct h1_client *c = container_of(t, struct h1_client, task);

	must(c->magic == H1_CLIENT_MAGIC && c->state == CLIENT_CLOSING && !c->end.x);
	c->magic = 0;
	slab_put(wire_clients(c->loop), c);
}

static void close_up(struct h1_client *c)
{
	c->state = CLIENT_CLOSING;
	loop_alarm_off(&c->dl.alarm);
	h1_reader_free(&c->r);
	h1_writer_free(&c->w);
	loop_soon(c->loop, &c->task);
}

/* The answer is not (wholly) used: the server shall stop at once. */
static void spend(struct h1_client *c)
{
	link_abort(&c->link);
	close_up(c);
	c->ops->left(c, c->arg, CLIENT_SPENT);
}

static void fail(struct h1_client *c, const struct why *cause)
{
	end_fail(&c->end, cause);
	spend(c);
}

void h1_client_close(struct h1_client **cp)
{
	struct h1_client *c = *cp;

	*cp = NULL;
	if (!c)
		return;
	must(c->state == CLIENT_IDLE);
	link_close(&c->link);
	close_up(c);
}

/* The answer is complete. */
static void finish(struct h1_client *c)
{
	bool reusable = c->keep && c->request_out && !c->send_failed && bufq_empty(&c->w.out) &&
			bufq_empty(&c->r.in) && !c->link->eof;

	c->dl.recv_ms = c->dl.send_ms = 0;
	end_leave(&c->end);
	if (!reusable) {
		link_close(&c->link);
		close_up(c);
		c->ops->left(c, c->arg, CLIENT_SPENT);
		return;
	}
	c->state = CLIENT_IDLE;
	h1_reader_next(&c->r);
	h1_writer_next(&c->w);
	c->ops->left(c, c->arg, CLIENT_REUSABLE);
}

/* ---------------------------------------------------------------- request out */
static void await_answer(struct h1_client *c, struct exchange *x)
{
	if (c->request_out)
		return;
	c->request_out = true;
	x->facts.sent_us = loop_now_us(c->loop);
	c->dl.send_ms = 0;
	deadlines_push(c->loop, &c->dl, &c->dl.recv_ms, x->timeouts->first_byte);
}

static struct h1_write frame_request(const struct h1_client *c, const struct head *h)
{
	struct h1_write how = { .absolute = c->job.absolute };

	how.chunked = h->body == BODY_STREAM;
	how.length =
		h->body == BODY_LENGTH || (h->flags & HEAD_LENGTH_GIVEN) ||
		(h->body == BODY_NONE && (h->method == METHOD_POST || h->method == METHOD_PUT ||
					  h->method == METHOD_PATCH));
	how.upgrade = (h->flags & HEAD_UPGRADE) && h->body == BODY_NONE;
	how.te_trailers = h->flags & HEAD_TE_TRAILERS;
	return how;
}

static void rename_host(struct head *to, const struct head *h, const struct client_job *job)
{
	*to = *h;
	to->host = job->host;
	to->port = job->host_port;
	to->host_is_v6 = job->host_is_v6;
}

static bool write_head(struct h1_client *c, struct head *h)
{
	struct h1_write how = frame_request(c, h);
	struct head renamed;
	const struct head *as = h;

	if (c->job.host.n) {
		rename_host(&renamed, h, &c->job);
		as = &renamed;
	}
	c->w.chunked = how.chunked;
	if (!h1_writer_head(&c->w, c->loop, h1_write_request, as, &how))
		return false;
	c->w.head_out = c->head_sent = true;
	if (h->flags & HEAD_NTLM)
		c->pinned = true;
	return true;
}

static void send_out(struct h1_client *c)
{
	struct exchange *x = c->end.x;

	if (bufq_empty(&c->w.out))
		return;
	c->job.result->any_sent = true;
	if (!link_sending(c->link))
		deadlines_push(c->loop, &c->dl, &c->dl.send_ms, x->timeouts->send_idle);
	link_send(c->link, &c->w.out);
}

/* end_ops.on_data: the request has news. */
static void on_request(struct end *e)
{
	struct h1_client *c = container_of(e, struct h1_client, end);
	struct exchange *x = e->x;
	bool ok = true;

	if (c->send_failed)
		return;
	if (!c->head_sent)
		ok = write_head(c, x->req.head);
	if (!ok || !h1_writer_move(&c->w, c->loop, &x->req)) {
		fail(c, why(WHY_MEMORY));
		return;
	}
	send_out(c);
	if (c->w.done && bufq_empty(&c->w.out))
		await_answer(c, x);
}

static void on_sent(struct link *l, int32_t n)
{
	struct h1_client *c = l->owner;
	struct exchange *x = c->end.x;

	must(c->magic == H1_CLIENT_MAGIC);
	if (n < 0) { /* the answer may be there all the same (RFC 9112 §9.5): reading tells */
		c->send_failed = true;
		bufq_drop(&c->w.out, c->w.out.bytes);
		if (x) {
			if (!pipe_can_rewind(&x->req)) /* else it may yet be sent again */
				pipe_reader_gone(&x->req);
			deadlines_push(c->loop, &c->dl, &c->dl.recv_ms, LAST_WORDS_MS);
		}
		return;
	}
	if (!x)
		return;
	if (!h1_writer_move(&c->w, c->loop, &x->req)) {
		fail(c, why(WHY_MEMORY));
		return;
	}
	if (!bufq_empty(&c->w.out)) {
		deadlines_push(c->loop, &c->dl, &c->dl.send_ms, x->timeouts->send_idle);
		if (!link_sending(l))
			link_send(l, &c->w.out);
		return;
	}
	c->dl.send_ms = 0;
	if (c->w.done)
		await_answer(c, x);
}

/* ---------------------------------------------------------------- answer in */
static struct h1_limits head_limits(const struct limits *l)
{
	return (struct h1_limits){ .head = u32_limit(l->response_head),
				   .target = UINT32_MAX,
				   .fields = 1000 };
}

static const struct why *why_of_error(int err)
{
	if (err == H1_NO_MEMORY)
		return why(WHY_MEMORY);
	return why(-err == H1_E_HEAD_TOO_LARGE ? WHY_RESPONSE_HEAD : WHY_BAD_RESPONSE);
}

static void note_bad_answer(const struct exchange *x, int err)
{
	if (err != H1_NO_MEMORY)
		log_say(LOG_WARN,
			"server %s of upstream %s: its answer is malformed (%s); the connection was closed",
			x->facts.server ? x->facts.server : "?",
			x->facts.upstream ? x->facts.upstream : "-",
			h1_error_detail((enum h1_error) - err));
}

static bool is_event_stream(const struct head *h)
{
	const struct field *f = head_find(h, HDR_CONTENT_TYPE);

	return f && str_istarts(field_value(f), STR("text/event-stream"));
}

static bool server_keeps(const struct head *h)
{
	if (h->flags & HEAD_CLOSE || h->body == BODY_CLOSE)
		return false;
	return h->version >= 11 || (h->flags & HEAD_KEEP_ALIVE);
}

static void arm_body_deadline(struct h1_client *c, const struct exchange *x)
{
	deadlines_push(c->loop, &c->dl, &c->dl.recv_ms,
		       c->stream ? x->timeouts->tunnel_idle : x->timeouts->response_idle);
}

static bool was_offered(const struct head *req, const struct head *rsp)
{
	struct str rest = req->upgrade, item;

	if (!(req->flags & HEAD_UPGRADE) || req->body != BODY_NONE || !(rsp->flags & HEAD_UPGRADE))
		return false;
	while (str_next_item(&rest, &item))
		if (str_ieq(item, rsp->upgrade))
			return true;
	return false;
}

/* 101: only when asked, and behind the whole request, and then both links belong to a tunnel. */
static bool take_switch(struct h1_client *c, struct exchange *x, struct head *h)
{
	if (link_sending(c->link) || !was_offered(x->req.head, h)) {
		fail(c, why(WHY_BAD_RESPONSE));
		return false;
	}
	c->got_head = true;
	c->r.state = READ_DONE;
	c->dl.recv_ms = c->dl.send_ms = 0;
	x->tunnel = true;
	x->facts.upstream_status = 101;
	pipe_head(&x->rsp, h);
	return false;
}

static void take_final(struct h1_client *c, struct exchange *x, struct head *h)
{
	c->got_head = true;
	c->keep = server_keeps(h);
	c->stream = is_event_stream(h);
	if (h->flags & HEAD_NTLM)
		c->pinned = true;
	x->facts.upstream_status = h->status;
	h1_reader_body(&c->r, (enum body_kind)h->body, h->length);
	pipe_head(&x->rsp, h);
	if (c->r.state == READ_DONE)
		pipe_end(&x->rsp, NULL);
}

static bool take_head(struct h1_client *c, struct exchange *x, struct head *h)
{
	if (h->status == 101)
		return take_switch(c, x, h);
	if (h->status >= 200) {
		take_final(c, x, h);
		return true;
	}
	h1_reader_next(&c->r);
	if (!pipe_inform(&x->rsp, h)) {
		fail(c, why(WHY_BAD_RESPONSE));
		return false;
	}
	return true;
}

/* False: more bytes are needed, or it is over. */
static bool read_head(struct h1_client *c, struct exchange *x)
{
	struct h1_limits lim = head_limits(x->limits);
	struct head *h;
	char *text;
	int32_t n = h1_reader_head(&c->r, c->loop, &x->arena, H1_RESPONSE, &lim, &text);

	if (n == 0)
		return false;
	h = n > 0 ? arena_alloc(&x->arena, sizeof(*h)) : NULL;
	if (n > 0)
		n = h ? h1_response(h, &x->arena, text, (uint32_t)n, &c->r.scan, &lim,
				    (enum method)x->req.head->method)
		      : H1_NO_MEMORY;
	if (n < 0) {
		note_bad_answer(x, n);
		fail(c, why_of_error(n));
		return false;
	}
	return take_head(c, x, h);
}

static void read_body(struct h1_client *c, struct exchange *x)
{
	struct h1_limits lim = head_limits(x->limits);
	int rc = h1_reader_move(&c->r, c->loop, &x->rsp, &lim);

	if (rc < 0) {
		note_bad_answer(x, rc);
		fail(c, why(rc == H1_NO_MEMORY ? WHY_MEMORY : WHY_INCOMPLETE));
	} else if (rc == H1_COMPLETE) {
		finish(c);
	} else if (rc == H1_PIPE_FULL) {
		c->paused = true;
		c->dl.recv_ms = 0;
		link_pause(c->link);
	} else {
		arm_body_deadline(c, x);
	}
}

static void pump(struct h1_client *c)
{
	struct exchange *x = c->end.x;

	while (!c->got_head)
		if (!read_head(c, x))
			return;
	if (x->tunnel)
		return;
	if (c->r.state == READ_DONE)
		finish(c);
	else
		read_body(c, x);
}

static void on_bytes(struct h1_client *c, struct seg **seg, uint32_t n)
{
	struct exchange *x = c->end.x;

	if (!c->job.result->any_received) {
		c->job.result->any_received = true;
		x->facts.first_byte_us = loop_now_us(c->loop);
	}
	if (!h1_reader_put(&c->r, c->loop, seg, n)) {
		fail(c, why(WHY_MEMORY));
		return;
	}
	if (x->tunnel) {
		if (c->r.in.bytes >= PIPE_HIGH)
			link_pause(c->link);
		return;
	}
	pump(c);
}

/* The server's FIN or RST while an answer is awaited or under way. */
static void on_over(struct h1_client *c, int32_t res)
{
	struct exchange *x = c->end.x;

	if (x->tunnel)
		return; /* relay/ finds it on the link */
	if (res == 0 && c->got_head && c->r.state == READ_CLOSE) {
		pipe_end(&x->rsp, NULL);
		finish(c);
		return;
	}
	fail(c, why(c->got_head ? WHY_INCOMPLETE : WHY_TERMINATED));
}

static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct h1_client *c = l->owner;

	must(c->magic == H1_CLIENT_MAGIC);
	if (c->state == CLIENT_BUSY) {
		if (res > 0)
			on_bytes(c, seg, (uint32_t)res);
		else
			on_over(c, res);
		return;
	}
	/* Idle: whatever comes, this connection answers nobody any more: it could be
	 * taken for the next request's answer. */
	if (res > 0)
		seg_drop(seg);
	link_close(&c->link);
	close_up(c);
	c->ops->died(c, c->arg);
}

/* end_ops.on_room: the answer's pipe takes bytes again. */
static void on_room(struct end *e)
{
	struct h1_client *c = container_of(e, struct h1_client, end);

	if (!c->got_head || c->r.state == READ_DONE)
		return;
	if (c->paused) {
		c->paused = false;
		link_read(c->link);
	}
	read_body(c, e->x);
}

static void on_cut(struct end *e, const struct why *cause)
{
	struct h1_client *c = container_of(e, struct h1_client, end);

	(void)cause;
	end_leave(e);
	spend(c);
}

/* The server reads no more of the request.  When it answers all the same, the rest is thrown away
 * and the answer goes on. */
static void on_nothing_taken(struct h1_client *c)
{
	if (!c->got_head) {
		fail(c, why(WHY_REQUEST_SEND));
		return;
	}
	c->send_failed = true;
	pipe_reader_gone(&c->end.x->req);
}

static void on_alarm(struct alarm *a)
{
	struct h1_client *c = container_of(a, struct h1_client, dl.alarm);
	uint64_t *passed = deadlines_passed(c->loop, &c->dl);

	if (!passed || !c->end.x)
		return;
	if (passed == &c->dl.send_ms)
		on_nothing_taken(c);
	else if (c->send_failed && !c->got_head)
		fail(c, why(WHY_TERMINATED));
	else
		fail(c, why(c->got_head ? WHY_RESPONSE_IDLE : WHY_FIRST_BYTE));
}

static struct link *detach(struct end *e, struct bufq *unread)
{
	struct h1_client *c = container_of(e, struct h1_client, end);
	struct link *l = c->link;

	bufq_move(unread, &c->r.in, c->r.in.bytes);
	c->link = NULL;
	end_leave(e);
	close_up(c);
	c->ops->left(c, c->arg, CLIENT_DETACHED);
	return l;
}

static void dump_end(const struct end *e, int fd)
{
	const struct h1_client *c = container_of(e, struct h1_client, end);

	dprintf(fd, "  h1 client fd %d state %u reading %u in %llu out %llu%s%s%s\n",
		c->link ? c->link->fd : -1, c->state, c->r.state, (unsigned long long)c->r.in.bytes,
		(unsigned long long)c->w.out.bytes, c->request_out ? " request out" : "",
		c->got_head ? " got head" : "", c->paused ? " paused" : "");
}

static const struct end_ops client_end = { .name = "h1 client",
					   .on_data = on_request,
					   .on_room = on_room,
					   .on_cut = on_cut,
					   .detach = detach,
					   .dump = dump_end };

/* ---------------------------------------------------------------- begin */
struct h1_client *h1_client_new(struct loop *l, struct link *link, const struct h1_client_ops *ops,
				void *arg)
{
	struct h1_client *c = slab_get(wire_clients(l));

	if (!c) {
		link_abort(&link);
		return NULL;
	}
	memset(c, 0, sizeof(*c));
	c->magic = H1_CLIENT_MAGIC;
	c->loop = l;
	c->link = link;
	c->ops = ops;
	c->arg = arg;
	c->end.ops = &client_end;
	h1_reader_init(&c->r);
	h1_writer_init(&c->w);
	alarm_init(&c->dl.alarm, on_alarm);
	task_init(&c->task, on_task);
	link->owner = c;
	link->on_recv = on_recv;
	link->on_sent = on_sent;
	return c;
}

void h1_client_begin(struct h1_client *c, struct exchange *x, const struct client_job *job)
{
	must(c->state == CLIENT_IDLE);
	c->state = CLIENT_BUSY;
	c->job = *job;
	*job->result = (struct client_result){ 0 };
	c->head_sent = c->request_out = c->send_failed = c->got_head = c->keep = c->paused =
		c->stream = false;
	exchange_attach_up(x, &c->end);
	link_read(c->link);
}

bool h1_client_usable(const struct h1_client *c)
{
	return c->state == CLIENT_IDLE && link_idle_ok(c->link);
}

void h1_client_idle(struct h1_client *c)
{
	must(c->state == CLIENT_IDLE);
	link_read(c->link);
}
