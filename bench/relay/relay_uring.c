/*
 * relay_uring.c -- the limit: a reverse proxy on io_uring that parses almost nothing.
 *
 *   relay_uring PORT ORIGIN_PORT [BUFFER_SIZE]
 *
 * It looks for the end of a head and for Content-Length, and sends the buffer that the kernel
 * filled as it is; connections to the origin go back to a stack after each answer.  What a full
 * proxy costs above this is its own.  It serves the bench: a head comes in one piece, nobody
 * answers early, nothing is chunked.
 *
 *   client --recv--> [buffer] --send--> origin      a buffer is given back when its send has
 *   completed;
 *   client <--send-- [buffer] <--recv-- origin      one send per connection at a time, later
 *   buffers queue
 */
#define _GNU_SOURCE
#include "../common/net.h"
#include "../common/ring.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bulk is faster with fewer bytes under way: they stay in the cache. */
enum { SMALL = 4096, SMALL_BYTES = 8 << 20, BULK_BYTES = 4 << 20 };
enum { MAX_BUFFERS = SMALL_BYTES / SMALL };

/* A completion's user_data: connection << 16 | buffer << 2 | kind.  Addresses have 47 bits. */
enum kind { ACCEPT, RECV, SEND };
enum { NO_BUFFER = -1 };

struct conn {
	int fd;
	bool is_origin;
	bool ended;        /* no receive is armed any more; freed with the last send */
	struct conn *peer; /* of the request under way, else NULL */
	struct conn *next; /* in a stack */
	/* bytes that are missing of the message that this end sends; 0: a head comes next */
	int64_t left;
	/* queue of buffers to send to this end; the first one is on its way */
	int first, last;
};

static struct {
	int size, next;
} queued[MAX_BUFFERS];

static struct ring ring;
static struct conn *idle_origins, *unused;
static uint16_t origin_port;

static uint64_t tag(struct conn *c, unsigned buffer, enum kind kind)
{
	return (uint64_t)(uintptr_t)c << 16 | buffer << 2 | kind;
}

static struct conn *conn_new(int fd, bool is_origin)
{
	struct conn *c = unused;

	if (c)
		unused = c->next;
	else if (!(c = malloc(sizeof(*c))))
		err(1, "malloc");
	*c = (struct conn){ .fd = fd, .is_origin = is_origin, .first = NO_BUFFER };
	ring_recv(&ring, fd, tag(c, 0, RECV));
	return c;
}

static void conn_free(struct conn *c)
{
	close(c->fd);
	c->next = unused;
	unused = c;
}

static struct conn *take_origin(void)
{
	struct conn *o = idle_origins;

	if (!o)
		return conn_new(net_dial(origin_port), true);
	idle_origins = o->next;
	return o;
}

static void put_origin(struct conn *o)
{
	o->next = idle_origins;
	idle_origins = o;
}

static void forget_origin(struct conn *gone)
{
	for (struct conn **at = &idle_origins; *at; at = &(*at)->next)
		if (*at == gone) {
			*at = gone->next;
			return;
		}
}

/* c's receive is over.  A peer in the middle of a request is of no use any more. */
static void on_end(struct conn *c)
{
	if (c->peer) {
		shutdown(c->peer->fd, SHUT_RDWR);
		c->peer->peer = NULL;
	} else if (c->is_origin) {
		forget_origin(c);
	}
	c->ended = true;
	if (c->first == NO_BUFFER)
		conn_free(c);
}

static void send_first(struct conn *c)
{
	unsigned b = (unsigned)c->first;

	ring_send(&ring, c->fd, ring_buffer(&ring, b), (size_t)queued[b].size, tag(c, b, SEND));
}

static void pass(struct conn *to, unsigned buffer, int size)
{
	queued[buffer].size = size;
	queued[buffer].next = NO_BUFFER;
	if (to->first != NO_BUFFER) {
		queued[to->last].next = (int)buffer;
		to->last = (int)buffer;
		return;
	}
	to->first = to->last = (int)buffer;
	send_first(to);
}

static void on_sent(struct conn *c, unsigned buffer)
{
	c->first = queued[buffer].next;
	ring_recycle(&ring, buffer);
	if (c->first != NO_BUFFER)
		send_first(c);
	else if (c->ended)
		conn_free(c);
}

static int64_t message_length(const uint8_t *bytes, int n)
{
	const uint8_t *end = memmem(bytes, (size_t)n, "\r\n\r\n", 4);
	const uint8_t *field;

	if (!end)
		errx(1, "a head did not come in one piece");
	field = memmem(bytes, (size_t)(end - bytes), "Content-Length: ", 16);
	return end - bytes + 4 + (field ? strtol((const char *)field + 16, NULL, 10) : 0);
}

static void on_bytes(struct conn *c, unsigned buffer, int n)
{
	if (!c->is_origin && !c->peer) {
		c->peer = take_origin();
		c->peer->peer = c;
	}
	if (!c->peer) {
		ring_recycle(&ring, buffer);
		return;
	}
	if (!c->left)
		c->left = message_length(ring_buffer(&ring, buffer), n);
	c->left -= n;
	pass(c->peer, buffer, n);
	if (c->is_origin && !c->left) {
		c->peer->peer = NULL;
		c->peer = NULL;
		put_origin(c);
	}
}

static void on_received(struct conn *c, const struct io_uring_cqe *cqe)
{
	bool more = cqe->flags & IORING_CQE_F_MORE;

	if (cqe->res > 0)
		on_bytes(c, ring_buffer_id(cqe), cqe->res);
	if (more)
		return;
	if (cqe->res > 0 || cqe->res == -ENOBUFS)
		ring_recv(&ring, c->fd, tag(c, 0, RECV));
	else
		on_end(c);
}

static void on_completion(const struct io_uring_cqe *cqe)
{
	struct conn *c = (struct conn *)(uintptr_t)(cqe->user_data >> 16);

	switch ((enum kind)(cqe->user_data & 3)) {
	case ACCEPT:
		if (cqe->res < 0)
			errx(1, "accept: %s", strerror(-cqe->res));
		conn_new(cqe->res, false);
		break;
	case RECV: on_received(c, cqe); break;
	case SEND: on_sent(c, (unsigned)(cqe->user_data >> 2) & (MAX_BUFFERS - 1)); break;
	}
}

int main(int argc, char **argv)
{
	unsigned size = argc == 4 ? (unsigned)atoi(argv[3]) : SMALL;

	if (argc < 3 || argc > 4 || size < SMALL)
		errx(2, "usage: relay_uring PORT ORIGIN_PORT [BUFFER_SIZE]");
	origin_port = net_port(argv[2], "ORIGIN_PORT");
	ring_open(&ring, (size == SMALL ? SMALL_BYTES : BULK_BYTES) / size, size);
	ring_accept(&ring, net_listen(net_port(argv[1], "PORT")), tag(NULL, 0, ACCEPT));
	for (;;) {
		struct io_uring_cqe *cqe;
		unsigned head, n = 0;

		ring_wait(&ring);
		io_uring_for_each_cqe(&ring.uring, head, cqe)
		{
			n++;
			on_completion(cqe);
		}
		io_uring_cq_advance(&ring.uring, n);
	}
}
