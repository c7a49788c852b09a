/*
 * origin.c -- the server behind the proxy: answers each request with the page that it asks for; see
 * load.h
 *
 * A connection reads heads (whole ones where they come whole, else gathered in `held`) and, for a
 * POST, a body that is compared with what the client sent.
 */
#include "load.h"
#include "../common/net.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct conn {
	int fd;
	unsigned page;
	bool close;       /* the proxy asked for it: close after the answer */
	size_t want, got; /* of the request's body */
	size_t held;
	uint8_t hold[HEAD_MAX];
};

uint64_t origin_bad;

static int listener;

void origin_open(void)
{
	listener = net_listen(options.origin_port);
	net_reno(listener); /* what it accepts inherits it */
	ring_accept(&ring, listener, load_tag(NULL, ORIGIN_ACCEPTED));
}

void origin_on_accepted(int res)
{
	struct conn *c;

	if (res < 0)
		errx(1, "origin: accept: %s", strerror(-res));
	c = malloc(sizeof(*c));
	if (!c)
		err(1, "malloc");
	c->fd = res;
	c->want = c->got = c->held = 0;
	net_nodelay(c->fd);
	ring_recv(&ring, c->fd, load_tag(c, ORIGIN_RECEIVED));
}

static void answer(struct conn *c)
{
	const struct message *m = &answers[c->page];
	struct io_uring_sqe *sqe;

	c->want = c->got = 0;
	if (c->close) {
		ring_send(&ring, c->fd, m->bytes, m->size, load_tag(c, ORIGIN_SENT));
		return;
	}
	sqe = ring_send(&ring, c->fd, m->bytes, m->size, load_tag(NULL, SENT));
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
}

void origin_on_sent(void *conn)
{
	struct conn *c = conn;

	shutdown(c->fd, SHUT_WR); /* its last receive brings the end, and the close */
}

static void refuse(struct conn *c)
{
	origin_bad++;
	shutdown(c->fd, SHUT_RDWR);
}

/* Returns how much of the bytes belonged to the head; 0 when all were kept because it is not
 * complete. */
static size_t read_head(struct conn *c, const uint8_t *bytes, size_t n, struct head *h)
{
	size_t before = c->held;

	if (!before && message_head(h, bytes, n))
		return h->size;
	if (before + n > HEAD_MAX)
		n = HEAD_MAX - before;
	memcpy(c->hold + before, bytes, n);
	c->held += n;
	if (!message_head(h, c->hold, c->held))
		return 0;
	c->held = 0;
	return h->size - before;
}

/* Returns false when the request is not the clients'. */
static bool begin(struct conn *c, const uint8_t *start, size_t n, const struct head *h)
{
	int page = message_page(start, n);

	if (page < 0 || h->coded || h->body != options.post_bytes)
		return false;
	c->page = (unsigned)page;
	c->close = h->close;
	c->want = h->body;
	return true;
}

static size_t read_request_head(struct conn *c, const uint8_t *bytes, size_t n)
{
	const uint8_t *start = c->held ? c->hold : bytes;
	struct head h;
	size_t used = read_head(c, bytes, n, &h);

	if (!used)
		return c->held < HEAD_MAX ? n : 0;
	if (!begin(c, start, h.size, &h))
		return 0;
	if (!c->want)
		answer(c);
	return used;
}

static size_t read_body(struct conn *c, const uint8_t *bytes, size_t n)
{
	if (n > c->want - c->got)
		n = c->want - c->got;
	if (memcmp(bytes, requests[c->page].body + c->got, n))
		return 0;
	c->got += n;
	if (c->got == c->want)
		answer(c);
	return n;
}

static void on_bytes(struct conn *c, const uint8_t *bytes, size_t n)
{
	while (n) {
		size_t used = c->want ? read_body(c, bytes, n) : read_request_head(c, bytes, n);

		if (!used) {
			refuse(c);
			return;
		}
		bytes += used;
		n -= used;
	}
}

void origin_on_received(void *conn, const struct io_uring_cqe *cqe)
{
	struct conn *c = conn;
	bool more = cqe->flags & IORING_CQE_F_MORE;

	if (cqe->res > 0) {
		unsigned id = ring_buffer_id(cqe);

		on_bytes(c, ring_buffer(&ring, id), (size_t)cqe->res);
		ring_recycle(&ring, id);
	}
	if (more)
		return;
	if (cqe->res > 0 || cqe->res == -ENOBUFS) {
		ring_recv(&ring, c->fd, load_tag(c, ORIGIN_RECEIVED));
		return;
	}
	close(c->fd);
	free(c);
}
