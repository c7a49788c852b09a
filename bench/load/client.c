/*
 * client.c -- the clients of the proxy; see load.h
 *
 *   connect -> request -> answer (checked) -> request ...          keep-alive
 *                                          -> close, connect ...   --new-connection, or as the
 *                                                                  proxy said
 *
 * At a fixed rate request k is due at start + k / rate, on whichever connection is idle.  Its
 * latency counts from the moment when it was due: a proxy that stalls pays for all that had to wait
 * meanwhile.
 */
#include "load.h"
#include "../common/net.h"

#include <err.h>
#include <errno.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOURCES = 64 };

struct client {
	int fd;
	unsigned page;
	double start_s;
	bool busy; /* a request is under way */
	bool in_body;
	bool last;           /* the answer said close */
	size_t got;          /* of the body */
	size_t held;         /* of a head that came in pieces */
	struct client *next; /* idle ones, at a fixed rate */
	uint8_t hold[HEAD_MAX];
};

struct tally tally;

static struct sockaddr_in proxy;
static struct client *idle;
static double first_due_s;
static uint64_t due_count;

static bool may_start(void)
{
	return phase != PHASE_DRAIN && (!options.requests || tally.started < options.requests);
}

static void start(struct client *c, double start_s)
{
	const struct message *m = &requests[c->page];
	struct io_uring_sqe *sqe;

	c->start_s = start_s;
	c->busy = true;
	c->in_body = false;
	c->got = c->held = 0;
	tally.started++;
	sqe = ring_send(&ring, c->fd, m->bytes, m->size, load_tag(NULL, SENT));
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
}

/* The connection is free for another request. */
static void on_idle(struct client *c)
{
	if (!may_start())
		return;
	if (options.rate > 0) {
		c->next = idle;
		idle = c;
		return;
	}
	start(c, turn_s);
}

static void receive(struct client *c)
{
	if (options.new_connection) /* so that nothing is armed when the client closes */
		ring_recv_once(&ring, c->fd, load_tag(c, CLIENT_RECEIVED));
	else
		ring_recv(&ring, c->fd, load_tag(c, CLIENT_RECEIVED));
}

/*
 * The client closes first, so each connection leaves its port waiting for a second; with one
 * address the search for a free port costs more than all the rest.
 */
static void spread(int fd)
{
	static unsigned count;
	struct sockaddr_in from = net_loopback(0);
	int one = 1;

	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + count++ % SOURCES);
	if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&from, sizeof(from)))
		err(1, "client: bind");
}

static void dial(struct client *c)
{
	struct io_uring_sqe *sqe;

	c->fd = net_socket();
	net_reno(c->fd);
	if (options.new_connection)
		spread(c->fd);
	c->last = false;
	c->start_s = turn_s;
	sqe = ring_sqe(&ring);
	io_uring_prep_connect(sqe, c->fd, (struct sockaddr *)&proxy, sizeof(proxy));
	sqe->user_data = load_tag(c, CLIENT_CONNECTED);
}

static void redial(struct client *c)
{
	close(c->fd);
	tally.reconnects++;
	if (may_start())
		dial(c);
}

void client_on_connected(void *client, int res)
{
	struct client *c = client;

	if (res < 0)
		errx(1, "client: connect: %s", strerror(-res));
	receive(c);
	if (options.new_connection && may_start())
		start(c, c->start_s); /* the connect is part of what is measured */
	else
		on_idle(c);
}

void client_open_all(void)
{
	proxy = net_loopback(options.proxy_port);
	first_due_s = turn_s;
	for (unsigned i = 0; i < options.connections; i++) {
		struct client *c = calloc(1, sizeof(*c));

		if (!c)
			err(1, "calloc");
		c->page = i % PAGES;
		dial(c);
	}
}

int64_t client_start_due(void)
{
	double due_s;

	for (;;) {
		due_s = first_due_s + (double)due_count / options.rate;
		if (due_s > turn_s || !idle || !may_start())
			break;
		struct client *c = idle;

		idle = c->next;
		due_count++;
		start(c, due_s);
	}
	if (due_s <= turn_s)
		return 100000000; /* no connection is idle: an answer wakes us */
	return (int64_t)((due_s - turn_s) * 1e9);
}

/* The answer is over, for good or bad. */
static void on_answered(struct client *c, bool good)
{
	c->busy = false;
	if (good) {
		tally.done++;
		meter_add(turn_s - c->start_s);
	} else {
		tally.bad++;
		c->last = true;
	}
	if (options.new_connection)
		redial(c);
	else if (!good)
		shutdown(c->fd, SHUT_RDWR); /* the end of the receive redials */
	else if (!c->last)
		on_idle(c);
}

static bool good_head(const uint8_t *start, const struct head *h)
{
	return h->size > 12 && !memcmp(start, "HTTP/1.1 200", 12) && !h->coded &&
	       h->body == options.body_bytes;
}

/* Returns the bytes that the head used; SIZE_MAX: it is not the one that was expected. */
static size_t read_head(struct client *c, const uint8_t *bytes, size_t n)
{
	const uint8_t *start_of_head = bytes;
	size_t before = c->held;
	struct head h;

	if (before || !message_head(&h, bytes, n)) {
		if (before + n > HEAD_MAX)
			n = HEAD_MAX - before;
		memcpy(c->hold + before, bytes, n);
		c->held += n;
		if (!message_head(&h, c->hold, c->held))
			return c->held < HEAD_MAX ? n : SIZE_MAX;
		start_of_head = c->hold;
	}
	if (!good_head(start_of_head, &h))
		return SIZE_MAX;
	c->in_body = true;
	c->last = h.close;
	return h.size - before;
}

static void on_bytes(struct client *c, const uint8_t *bytes, size_t n)
{
	if (!c->busy) {
		if (!c->last)
			tally.bad++; /* bytes that nobody asked for */
		return;
	}
	if (!c->in_body) {
		size_t used = read_head(c, bytes, n);

		if (used == SIZE_MAX) {
			on_answered(c, false);
			return;
		}
		bytes += used;
		n -= used;
		if (!c->in_body)
			return;
	}
	if (n > options.body_bytes - c->got || memcmp(bytes, answers[c->page].body + c->got, n)) {
		on_answered(c, false);
		return;
	}
	c->got += n;
	if (c->got == options.body_bytes)
		on_answered(c, true);
}

static void forget_idle(struct client *gone)
{
	for (struct client **at = &idle; *at; at = &(*at)->next)
		if (*at == gone) {
			*at = gone->next;
			return;
		}
}

/* The proxy closed: cut in the middle, or after an answer that said so, or an idle connection. */
static void on_end(struct client *c)
{
	if (c->busy) {
		c->busy = false;
		tally.bad++;
	} else {
		forget_idle(c);
	}
	redial(c);
}

static void on_received_once(struct client *c, const struct io_uring_cqe *cqe)
{
	if (cqe->res <= 0 && cqe->res != -ENOBUFS) {
		on_end(c);
		return;
	}
	if (cqe->res > 0) {
		unsigned id = ring_buffer_id(cqe);
		uint64_t answered = tally.done + tally.bad;

		on_bytes(c, ring_buffer(&ring, id), (size_t)cqe->res);
		ring_recycle(&ring, id);
		if (answered != tally.done + tally.bad)
			return; /* closed already */
	}
	receive(c);
}

void client_on_received(void *client, const struct io_uring_cqe *cqe)
{
	struct client *c = client;
	bool more = cqe->flags & IORING_CQE_F_MORE;

	if (options.new_connection) {
		on_received_once(c, cqe);
		return;
	}
	if (cqe->res > 0) {
		unsigned id = ring_buffer_id(cqe);

		on_bytes(c, ring_buffer(&ring, id), (size_t)cqe->res);
		ring_recycle(&ring, id);
	}
	if (more)
		return;
	if (cqe->res > 0 || cqe->res == -ENOBUFS)
		receive(c);
	else
		on_end(c);
}
