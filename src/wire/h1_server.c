/* h1_server.c -- one client connection: HTTP/1 requests to exchanges, answers back.  [RFC 9112]
 *
 *   link bytes ─► reader ─► req pipe    one request at a time; what is pipelined behind it waits in
 *   link bytes ◄─ writer ◄─ rsp pipe    reader.in (over PIPE_HIGH the link is paused)
 *
 *   NEW/IDLE ── first byte: exchange_new ──► ACTIVE ── answer out, request in ──► IDLE, or the next
 *                                              └── close, cut, lingering close ──► CLOSING
 *
 * What ends it: the peer's FIN while idle, keep_alive, an answer that said close, any doubt about
 * framing, a cut. */
#include "wire/priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

struct h1_conn {
	struct conn c; /* first: serve/ sees this */
	struct link *link;
	struct end end;
	struct h1_reader r;
	struct h1_writer w;
	struct deadlines dl;
	struct task task; /* goes on with what is pipelined; frees a closed connection */
	bool half_close_abort;
	bool eof;         /* the client's FIN came */
	bool broken;      /* no byte of it is read as a request any more */
	bool close_after; /* the answer said so */
	bool paused;
	bool expecting; /* Expect: 100-continue, and no body byte has come */
	/* cut after the head: what was queued goes out, then the connection ends */
	bool flushing;
	bool abort_after; /* … by RST: the end would not be visible otherwise */
	bool tunnel;
	struct head *req;       /* of the request at hand */
	uint64_t body_since_ms; /* for body_rate_min */
	uint64_t body_paused_ms, paused_at_ms;
};

#define RATE_GRACE_MS 20000u /* body_rate_min is judged after this */

uint32_t h1_conn_size(void)
{
	return sizeof(struct h1_conn);
}

static void pump(struct h1_conn *c);
static void conn_close(struct h1_conn *c, const struct why *cause);

/* ---------------------------------------------------------------- states */
static void move_to(struct h1_conn *c, enum conn_state to)
{
	enum conn_state from = c->c.state;

	if (from == to)
		return;
	must(from != CONN_CLOSING);
	c->c.state = (uint8_t)to;
	c->c.ops->moved(&c->c, from);
}

static struct exchange *exchange_of(const struct h1_conn *c)
{
	return c->end.x;
}

static void read_more(struct h1_conn *c)
{
	struct exchange *x = exchange_of(c);

	if (c->eof || c->broken || c->c.state == CONN_CLOSING)
		return;
	if (c->paused) {
		c->body_paused_ms += loop_now_ms(c->c.loop) - c->paused_at_ms;
		c->paused = false;
	}
	link_read(c->link);
	if (x && c->r.state != READ_HEAD && c->r.state != READ_DONE)
		deadlines_push(c->c.loop, &c->dl, &c->dl.recv_ms, x->timeouts->request_idle);
}

static void read_less(struct h1_conn *c)
{
	if (c->paused)
		return;
	c->paused = true;
	c->paused_at_ms = loop_now_ms(c->c.loop);
	c->dl.recv_ms = 0;
	link_pause(c->link);
}

/* ---------------------------------------------------------------- the end of the connection */
static void on_task(struct task *t)
{
	struct h1_conn *c = container_of(t, struct h1_conn, task);

	must(c->c.magic == CONN_MAGIC);
	if (c->c.state != CONN_CLOSING) {
		pump(c);
		return;
	}
	must(!exchange_of(c));
	c->c.magic = 0;
	slab_put(wire_conns(c->c.loop), c);
}

static void close_with(struct h1_conn *c, const struct why *cause)
{
	must(!exchange_of(c));
	loop_alarm_off(&c->dl.alarm);
	if (c->c.pin.held)
		c->c.pin.drop(&c->c.pin);
	h1_reader_free(&c->r);
	h1_writer_free(&c->w);
	move_to(c, CONN_CLOSING);
	c->c.ops->closed(&c->c, cause);
	loop_soon(c->c.loop, &c->task);
}

static void conn_close(struct h1_conn *c, const struct why *cause)
{
	if (c->c.state == CONN_CLOSING)
		return;
	link_close(&c->link);
	close_with(c, cause);
}

static void conn_abort(struct h1_conn *c, const struct why *cause)
{
	if (c->c.state == CONN_CLOSING)
		return;
	link_abort(&c->link);
	close_with(c, cause);
}

/* Bytes of the client may still be on their way: a plain close would answer them with RST, which
 * eats what we sent last. */
static void conn_linger(struct h1_conn *c, const struct why *cause)
{
	if (c->eof) {
		conn_close(c, cause);
		return;
	}
	link_close_lingering(&c->link, &c->w.out);
	close_with(c, cause);
}

static void go_idle(struct h1_conn *c)
{
	bool stays = c->c.ops->may_keep(&c->c);

	if (c->eof || !stays) {
		conn_close(c, why(c->eof ? WHY_PEER_CLOSED : WHY_SHUTDOWN));
		return;
	}
	move_to(c, c->c.requests ? CONN_IDLE : CONN_NEW);
	deadlines_push(c->c.loop, &c->dl, &c->dl.recv_ms, c->c.timeouts->keep_alive);
	read_more(c);
}

/* ---------------------------------------------------------------- an exchange ends */
/* Everything of this answer has gone out. */
static void finish(struct h1_conn *c)
{
	struct exchange *x = exchange_of(c);

	x->facts.complete = true;
	x->facts.end_us = loop_now_us(c->c.loop);
	end_leave(&c->end);
	c->dl.recv_ms = c->dl.send_ms = 0;
	c->req = NULL;
	if (c->broken || c->r.state != READ_DONE) {
		conn_linger(c, why(WHY_NONE));
		return;
	}
	if (c->close_after) {
		if (bufq_empty(&c->r.in))
			conn_close(c, why(WHY_NONE));
		else
			conn_linger(c, why(WHY_NONE));
		return;
	}
	h1_reader_next(&c->r);
	h1_writer_next(&c->w);
	if (bufq_empty(&c->r.in)) {
		go_idle(c);
		return;
	}
	loop_soon(c->c.loop, &c->task);
}

/* The answer is out; the rest of the request's body is read away if it is little, so that the
 * connection lives on. */
static void answer_is_out(struct h1_conn *c)
{
	if (c->r.state == READ_DONE || c->close_after || c->broken || c->eof) {
		finish(c);
		return;
	}
	read_more(c);
	pump(c);
}

/* Cut after the head: what was queued is out, or nobody waits for it any more. */
static void flush_cut(struct h1_conn *c)
{
	end_leave(&c->end);
	if (c->abort_after)
		conn_abort(c, why(WHY_NONE));
	else
		conn_close(c, why(WHY_NONE));
}

/* The client is gone; a connection that was flushing has nobody to flush to. */
static void client_is_gone(struct h1_conn *c)
{
	if (c->flushing) {
		c->abort_after = true;
		flush_cut(c);
	} else {
		exchange_cut(exchange_of(c), why(WHY_CLIENT_ABORT));
	}
}

/* ---------------------------------------------------------------- answers out */
static void out_of_memory(struct h1_conn *c)
{
	exchange_cut(exchange_of(c), why(WHY_MEMORY));
}

static void send_out(struct h1_conn *c)
{
	if (bufq_empty(&c->w.out) || c->c.state == CONN_CLOSING)
		return;
	if (!link_sending(c->link))
		deadlines_push(c->c.loop, &c->dl, &c->dl.send_ms,
			       exchange_of(c)->timeouts->send_idle);
	link_send(c->link, &c->w.out);
}

static bool write_head(struct h1_conn *c, const struct head *h, const struct h1_write *how)
{
	return h1_writer_head(&c->w, c->c.loop, h1_write_response, h, how);
}

/* What is left of the request must be known to be little, or the connection cannot be used
 * again. */
static bool rest_is_small(const struct h1_conn *c)
{
	if (c->r.state == READ_DONE)
		return true;
	if (c->broken || c->eof || c->expecting)
		return false;
	return c->r.state == READ_LENGTH && c->r.left <= PIPE_DISCARD_MAX;
}

static bool client_keeps(const struct h1_conn *c)
{
	if (!c->req || (c->req->flags & HEAD_CLOSE))
		return false;
	return c->req->version >= 11 || (c->req->flags & HEAD_KEEP_ALIVE);
}

/* The client's FIN came behind this request; or bytes that were meant for a tunnel that does not
 * come: they must not be read as a request with the proxy's trust. */
static bool nothing_may_follow(const struct h1_conn *c)
{
	bool more = !bufq_empty(&c->r.in);

	return (c->eof && !more) || (c->req->method == METHOD_CONNECT && more);
}

/* How this answer is framed for this client (RFC 9112 §6). */
static struct h1_write frame_answer(struct h1_conn *c, const struct exchange *x,
				    const struct head *h)
{
	bool old = !c->req || c->req->version < 11;
	struct h1_write how = { 0 };

	if (x->tunnel) {
		how.upgrade = h->status == 101;
		return how;
	}
	switch (h->body) {
	case BODY_NONE: how.length = h->flags & HEAD_LENGTH_GIVEN; break;
	case BODY_LENGTH: how.length = true; break;
	default:
		how.chunked = !old;
		c->close_after |= old;
		break;
	}
	if (x->refused && (x->why->flags & WHY_CLOSE))
		c->close_after = true;
	if (!client_keeps(c) || !rest_is_small(c) || !c->c.ops->may_keep(&c->c) ||
	    nothing_may_follow(c))
		c->close_after = true;
	how.close = c->close_after;
	how.keep_alive = old && !c->close_after;
	return how;
}

static void begin_answer(struct h1_conn *c, struct exchange *x)
{
	const struct head *h = x->rsp.head;
	struct h1_write how = frame_answer(c, x, h);

	x->facts.status = h->status;
	c->tunnel = x->tunnel;
	c->w.chunked = how.chunked;
	if (!write_head(c, h, &how)) {
		out_of_memory(c); /* no body without its head */
		return;
	}
	c->w.head_out = true;
}

static void send_interims(struct h1_conn *c, struct exchange *x)
{
	static const struct h1_write plain = { 0 };
	struct interim *i;

	while ((i = pipe_take_interim(&x->rsp)) != NULL) {
		if (c->req && c->req->version < 11)
			continue;
		if (!write_head(c, &i->head, &plain)) {
			out_of_memory(c);
			return;
		}
	}
}

/* end_ops.on_data: the answer has news. */
static void on_answer(struct end *e)
{
	struct h1_conn *c = container_of(e, struct h1_conn, end);
	struct exchange *x = e->x;

	if (c->flushing)
		return;
	send_interims(c, x);
	if (!c->w.head_out && x->rsp.state >= PIPE_HEAD && x->rsp.state != PIPE_CUT)
		begin_answer(c, x);
	if (x->cut)
		return;
	if (!c->tunnel && !h1_writer_move(&c->w, c->c.loop, &x->rsp)) {
		out_of_memory(c);
		return;
	}
	send_out(c);
	if (c->w.done && bufq_empty(&c->w.out))
		answer_is_out(c); /* the end came alone, behind bytes that are out */
}

static void on_sent(struct link *l, int32_t n)
{
	struct h1_conn *c = l->owner;
	struct exchange *x = exchange_of(c);

	must(c->c.magic == CONN_MAGIC && x);
	if (n < 0) {
		client_is_gone(c);
		return;
	}
	x->facts.bytes_out += (uint32_t)n;
	if (!c->flushing && !c->tunnel && !h1_writer_move(&c->w, c->c.loop, &x->rsp)) {
		out_of_memory(c);
		return;
	}
	if (!bufq_empty(&c->w.out)) {
		deadlines_push(c->c.loop, &c->dl, &c->dl.send_ms, x->timeouts->send_idle);
		if (!link_sending(l))
			link_send(l, &c->w.out);
		return;
	}
	c->dl.send_ms = 0;
	if (c->flushing)
		flush_cut(c);
	else if (c->tunnel) {
		x->tunnel_ready = true;
		exchange_wake(x);
	} else if (c->w.done)
		answer_is_out(c);
}

/* ---------------------------------------------------------------- requests in */
static void refuse_head(struct h1_conn *c, struct exchange *x, int err)
{
	c->broken = true;
	link_pause(c->link);
	c->dl.recv_ms = 0;
	if (err == H1_NO_MEMORY)
		exchange_refuse(x, why(WHY_MEMORY), NULL);
	else
		exchange_refuse(x, why(h1_error_why((enum h1_error) - err)),
				h1_error_detail((enum h1_error) - err));
}

static struct h1_limits head_limits(const struct limits *l)
{
	return (struct h1_limits){ .head = u32_limit(l->request_head),
				   .target = u32_limit(l->request_target),
				   .fields = u32_limit(l->request_headers) };
}

/* The head stands: its body's framing decides how reading goes on. */
static void take_head(struct h1_conn *c, struct exchange *x, struct head *h)
{
	c->req = h;
	x->facts.head_us = loop_now_us(c->c.loop);
	c->expecting = h->flags & HEAD_EXPECT_100;
	c->dl.recv_ms = 0;
	h1_reader_body(&c->r, (enum body_kind)h->body, h->length);
	c->body_since_ms = loop_now_ms(c->c.loop);
	c->body_paused_ms = 0;
	/* A pause that began in the request before counts from here. */
	c->paused_at_ms = c->body_since_ms;
	pipe_head(&x->req, h);
	if (c->r.state == READ_DONE) {
		pipe_end(&x->req, NULL);
		return;
	}
	deadlines_push(c->c.loop, &c->dl, &c->dl.recv_ms, x->timeouts->request_idle);
}

/* False: more bytes are needed, or it is refused. */
static bool read_head(struct h1_conn *c, struct exchange *x)
{
	struct h1_limits lim = head_limits(x->limits);
	uint32_t before = (uint32_t)c->r.in.bytes;
	struct head *h;
	char *text;
	int32_t n = h1_reader_head(&c->r, c->c.loop, &x->arena, H1_REQUEST, &lim, &text);

	if (n == 0 && c->eof) {
		exchange_cut(x, why(WHY_CLIENT_ABORT));
		return false;
	}
	if (n == 0) {
		if (c->paused) /* since the request before it: what was read ahead has run out */
			read_more(c);
		if (!c->dl.recv_ms)
			deadlines_push(c->c.loop, &c->dl, &c->dl.recv_ms,
				       x->timeouts->request_head);
		return false;
	}
	x->facts.bytes_in += before - (uint32_t)c->r.in.bytes;
	h = n > 0 ? arena_alloc(&x->arena, sizeof(*h)) : NULL;
	if (n > 0)
		n = h ? h1_request(h, &x->arena, text, (uint32_t)n, &c->r.scan, &lim)
		      : H1_NO_MEMORY;
	if (n < 0) {
		if (h && h->target.p)
			c->req = x->req.head = h;
		refuse_head(c, x, n);
		return false;
	}
	take_head(c, x, h);
	return true;
}

static bool open_exchange(struct h1_conn *c)
{
	struct exchange_params p = { .down = &c->end,
				     .conn_id = c->c.id,
				     .peer = &c->c.peer,
				     .pin = &c->c.pin };

	c->c.ops->fill(&c->c, &p);
	if (!exchange_new(c->c.loop, &p)) {
		conn_abort(c, why(WHY_MEMORY));
		return false;
	}
	c->c.requests++;
	c->dl.recv_ms = c->dl.send_ms = 0;
	c->close_after = c->expecting = c->tunnel = c->flushing = false;
	move_to(c, CONN_ACTIVE);
	return true;
}

/* Slow honest uploads live, one byte every nine seconds dies. */
static bool too_slow(const struct h1_conn *c, const struct exchange *x)
{
	uint64_t ms = loop_now_ms(c->c.loop) - c->body_since_ms - c->body_paused_ms;

	if (x->limits->body_rate_min == N_OFF || ms < RATE_GRACE_MS)
		return false;
	return x->req.total * 1000 < x->limits->body_rate_min * ms;
}

static void read_body(struct h1_conn *c, struct exchange *x)
{
	struct h1_limits lim = head_limits(x->limits);
	uint64_t before = c->r.in.bytes;
	int rc = h1_reader_move(&c->r, c->c.loop, &x->req, &lim);

	x->facts.bytes_in += before - c->r.in.bytes;
	if (before != c->r.in.bytes)
		c->expecting = false;
	if (rc < 0) {
		refuse_head(c, x, rc);
		return;
	}
	if (x->body_limited && x->req.total > x->limits->request_body) {
		c->broken = true;
		exchange_refuse(x, why(WHY_BODY_TOO_LARGE), NULL);
		read_less(c);
		return;
	}
	if (rc == H1_PIPE_FULL)
		read_less(c);
	else if (rc == H1_COMPLETE)
		c->dl.recv_ms = 0;
	else if (c->eof)
		exchange_cut(x, why(WHY_CLIENT_ABORT));
	else if (too_slow(c, x))
		exchange_refuse(x, why(WHY_REQUEST_IDLE), NULL);
	else if (c->paused)
		read_more(c);
	else
		deadlines_push(c->c.loop, &c->dl, &c->dl.recv_ms, x->timeouts->request_idle);
}

/* An empty line behind a request of an old client is no request (RFC 9112 §2.2). */
static bool skip_stray_line(struct h1_conn *c)
{
	char two[2];

	if (c->r.in.bytes == 2 && bufq_peek(&c->r.in, two, 2) == 2 && two[0] == '\r' &&
	    two[1] == '\n') {
		bufq_drop(&c->r.in, 2);
		return true;
	}
	return false;
}

/* More was thrown away of this request than an answered one is worth. */
static bool nobody_takes_the_rest(const struct exchange *x)
{
	return x->req.reader_gone && (x->req.stops & STOP_FULL);
}

/* Goes as far as the bytes that are there allow. */
static void pump(struct h1_conn *c)
{
	struct exchange *x;

	if (c->c.state == CONN_CLOSING || c->flushing)
		return;
	if (!exchange_of(c)) {
		if (bufq_empty(&c->r.in) || skip_stray_line(c)) {
			/* else its deadline runs: empty lines do not prolong it */
			if (c->c.state == CONN_ACTIVE)
				go_idle(c);
			return;
		}
		if (!open_exchange(c))
			return;
	}
	x = exchange_of(c);
	if (c->broken) {
		bufq_drop(&c->r.in, c->r.in.bytes);
		return;
	}
	if (c->r.state == READ_HEAD && !read_head(c, x))
		return;
	if (c->r.state != READ_DONE)
		read_body(c, x);
	if (c->w.done && bufq_empty(&c->w.out) &&
	    (c->r.state == READ_DONE || nobody_takes_the_rest(x))) {
		finish(c);
		return;
	}
	if (c->r.state == READ_DONE && c->r.in.bytes >= PIPE_HIGH)
		read_less(c);
}

static void on_eof(struct h1_conn *c)
{
	struct exchange *x = exchange_of(c);

	c->eof = true;
	c->dl.recv_ms = 0;
	if (!x) {
		if (!task_queued(&c->task))
			conn_close(c, why(WHY_PEER_CLOSED));
		return;
	}
	if (c->r.state == READ_DONE && (c->tunnel || !c->half_close_abort))
		return; /* a tunnel's is passed on by relay/ */
	if (!c->broken)
		exchange_cut(x, why(WHY_CLIENT_ABORT));
}

static void on_broken_link(struct h1_conn *c)
{
	c->eof = true; /* also when an answer that was on its way goes out before the cut */
	if (exchange_of(c))
		client_is_gone(c);
	else
		conn_abort(c, why(WHY_CLIENT_ABORT));
}

/* What came is lost, and with it the framing. */
static void on_lost_bytes(struct h1_conn *c)
{
	struct exchange *x = exchange_of(c);

	if (x)
		refuse_head(c, x, H1_NO_MEMORY);
	else
		conn_abort(c, why(WHY_MEMORY));
}

static void on_recv(struct link *l, int32_t res, struct seg **seg)
{
	struct h1_conn *c = l->owner;

	must(c->c.magic == CONN_MAGIC);
	if (res == 0) {
		on_eof(c);
	} else if (res < 0) {
		on_broken_link(c);
	} else if (!h1_reader_put(&c->r, c->c.loop, seg, (uint32_t)res)) {
		on_lost_bytes(c);
	} else if (!task_queued(&c->task)) {
		pump(c);
	}
}

/* end_ops.on_room: the request pipe takes bytes again. */
static void on_room(struct end *e)
{
	struct h1_conn *c = container_of(e, struct h1_conn, end);

	if (c->flushing || c->broken)
		return;
	read_more(c);
	pump(c);
}

/* ---------------------------------------------------------------- cuts, deadlines, tunnels */
static bool end_is_visible(const struct h1_conn *c, const struct exchange *x)
{
	return c->w.chunked || (x->rsp.head && x->rsp.head->body == BODY_LENGTH);
}

/* end_ops.on_cut: after the head, what the server sent still goes out; then the cut must be
 * visible. */
static void on_cut(struct end *e, const struct why *cause)
{
	struct h1_conn *c = container_of(e, struct h1_conn, end);
	struct exchange *x = e->x;

	if (!c->w.head_out || (cause->flags & WHY_CLIENT) || c->w.done ||
	    cause->id == WHY_SHUTDOWN) {
		x->facts.complete = c->w.done && bufq_empty(&c->w.out);
		end_leave(e);
		conn_abort(c, why(WHY_NONE));
		return;
	}
	c->flushing = true;
	c->abort_after = !end_is_visible(c, x);
	c->dl.recv_ms = 0;
	link_pause(c->link);
	if (!h1_writer_move(&c->w, c->c.loop, &x->rsp) || bufq_empty(&c->w.out)) {
		flush_cut(c);
		return;
	}
	send_out(c);
}

static void on_recv_late(struct h1_conn *c)
{
	struct exchange *x = exchange_of(c);

	if (!x) {
		conn_close(c, why(WHY_IDLE_CLOSE));
		return;
	}
	c->broken = true;
	link_pause(c->link);
	exchange_refuse(x, why(c->r.state == READ_HEAD ? WHY_HEAD_TIMEOUT : WHY_REQUEST_IDLE),
			NULL);
}

static void on_alarm(struct alarm *a)
{
	struct h1_conn *c = container_of(a, struct h1_conn, dl.alarm);
	uint64_t *passed = deadlines_passed(c->c.loop, &c->dl);

	if (passed == &c->dl.recv_ms)
		on_recv_late(c);
	else if (passed && exchange_of(c) && c->flushing)
		flush_cut(c);
	else if (passed && exchange_of(c))
		exchange_cut(exchange_of(c), why(WHY_SEND_IDLE));
}

/* end_ops.detach: the tunnel takes the link and what was read behind the request's head. */
static struct link *detach(struct end *e, struct bufq *unread)
{
	struct h1_conn *c = container_of(e, struct h1_conn, end);
	struct link *l = c->link;

	bufq_move(unread, &c->r.in, c->r.in.bytes);
	c->link = NULL;
	end_leave(e);
	close_with(c, why(WHY_NONE));
	return l;
}

static void drain(struct conn *conn)
{
	struct h1_conn *c = container_of(conn, struct h1_conn, c);

	if (!exchange_of(c) && !task_queued(&c->task))
		conn_close(c, why(WHY_SHUTDOWN));
}

static void cut(struct conn *conn, const struct why *cause)
{
	struct h1_conn *c = container_of(conn, struct h1_conn, c);

	if (c->flushing)
		client_is_gone(c); /* it had its time */
	else if (exchange_of(c) && !exchange_of(c)->cut)
		exchange_cut(exchange_of(c), cause);
	else if (!exchange_of(c))
		conn_abort(c, cause);
}

static void dump_conn(const struct conn *conn, int fd)
{
	const struct h1_conn *c = container_of(conn, struct h1_conn, c);

	dprintf(fd, "  h1 conn %llx state %u requests %llu reading %u in %llu out %llu%s%s%s\n",
		(unsigned long long)c->c.id, c->c.state, (unsigned long long)c->c.requests,
		c->r.state, (unsigned long long)c->r.in.bytes, (unsigned long long)c->w.out.bytes,
		c->eof ? " eof" : "", c->broken ? " broken" : "", c->paused ? " paused" : "");
}

static void dump_end(const struct end *e, int fd)
{
	dump_conn(&container_of(e, struct h1_conn, end)->c, fd);
}

static const struct end_ops server_end = { .name = "h1",
					   .on_data = on_answer,
					   .on_room = on_room,
					   .on_cut = on_cut,
					   .detach = detach,
					   .dump = dump_end };

/* ---------------------------------------------------------------- begin */
static void set_up(struct h1_conn *c, const struct conn_params *p)
{
	c->c = (struct conn){ .magic = CONN_MAGIC,
			      .state = CONN_NEW,
			      .since_ms = loop_now_ms(p->loop),
			      .ops = p->ops,
			      .owner = p->owner,
			      .loop = p->loop,
			      .timeouts = p->timeouts,
			      .limits = p->limits,
			      .id = p->id,
			      .peer = p->peer,
			      .drain = drain,
			      .cut = cut,
			      .dump = dump_conn };
	list_init(&c->c.node);
	c->half_close_abort = p->half_close_abort;
	c->end.ops = &server_end;
	h1_reader_init(&c->r);
	h1_writer_init(&c->w);
	alarm_init(&c->dl.alarm, on_alarm);
	task_init(&c->task, on_task);
}

struct conn *h1_serve(const struct conn_params *p, struct bufq *first)
{
	struct h1_conn *c = slab_get(wire_conns(p->loop));
	struct link *link = p->link;

	if (!c) {
		link_abort(&link);
		return NULL;
	}
	memset(c, 0, sizeof(*c));
	set_up(c, p);
	c->link = link;
	link->owner = c;
	link->on_recv = on_recv;
	link->on_sent = on_sent;
	deadlines_push(p->loop, &c->dl, &c->dl.recv_ms, p->timeouts->keep_alive);
	if (first && !bufq_empty(first)) {
		bufq_move(&c->r.in, first, first->bytes);
		loop_soon(p->loop, &c->task);
	}
	link_read(link);
	return &c->c;
}
