/*
 * relay_epoll.c -- the limit on epoll: the same bare reverse proxy as relay_uring.c, each
 * descriptor registered once, edge-triggered, one receive and one send per message.
 *
 *   relay_epoll PORT ORIGIN_PORT
 *
 * It serves the bench's small messages only; one that does not leave in one piece ends it.
 */
#define _GNU_SOURCE
#include "../common/net.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_SIZE = 65536, EVENTS = 512 };

struct conn {
	int fd;
	bool is_origin;
	struct conn *peer; /* of the request under way, else NULL */
	struct conn *next; /* in a stack */
	/* bytes that are missing of the message that this end sends; 0: a head comes next */
	int64_t left;
};

static struct conn *idle_origins, *unused;
static int epoll_fd;
static uint16_t origin_port;
static uint8_t buffer[BUFFER_SIZE];

static struct conn *conn_new(int fd, bool is_origin)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET };
	struct conn *c = unused;

	if (c)
		unused = c->next;
	else if (!(c = malloc(sizeof(*c))))
		err(1, "malloc");
	*c = (struct conn){ .fd = fd, .is_origin = is_origin };
	event.data.ptr = c;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
		err(1, "epoll_ctl");
	return c;
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

/* A peer in the middle of a request is of no use any more: its own end follows from the
 * shutdown. */
static void on_end(struct conn *c)
{
	if (c->peer) {
		shutdown(c->peer->fd, SHUT_RDWR);
		c->peer->peer = NULL;
	} else if (c->is_origin) {
		forget_origin(c);
	}
	close(c->fd);
	c->next = unused;
	unused = c;
}

static int64_t message_length(const uint8_t *bytes, ssize_t n)
{
	const uint8_t *end = memmem(bytes, (size_t)n, "\r\n\r\n", 4);
	const uint8_t *field;

	if (!end)
		errx(1, "a head did not come in one piece");
	field = memmem(bytes, (size_t)(end - bytes), "Content-Length: ", 16);
	return end - bytes + 4 + (field ? strtol((const char *)field + 16, NULL, 10) : 0);
}

static void on_bytes(struct conn *c, ssize_t n)
{
	if (!c->is_origin && !c->peer) {
		c->peer = take_origin();
		c->peer->peer = c;
	}
	if (!c->peer)
		return;
	if (!c->left)
		c->left = message_length(buffer, n);
	c->left -= n;
	if (send(c->peer->fd, buffer, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
		errx(1, "a message did not leave in one piece");
	if (c->is_origin && !c->left) {
		c->peer->peer = NULL;
		c->peer = NULL;
		put_origin(c);
	}
}

/*
 * One receive per event is enough while it does not fill the buffer: what comes later is a new
 * edge.  An end that was already there with the bytes is not, so it is looked for.
 */
static void on_readable(struct conn *c, unsigned events)
{
	ssize_t n;

	do {
		n = recv(c->fd, buffer, sizeof(buffer), MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			on_end(c);
			return;
		}
		on_bytes(c, n);
	} while (n == BUFFER_SIZE || events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
}

static void on_connections(int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		conn_new(fd, false);
	if (errno != EAGAIN && errno != ECONNABORTED)
		err(1, "accept");
}

static int open_listener(uint16_t port)
{
	struct epoll_event event = { .events = EPOLLIN }; /* level: a NULL pointer marks it */
	int fd = net_listen(port);

	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		err(1, "O_NONBLOCK");
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
		err(1, "epoll_ctl");
	return fd;
}

int main(int argc, char **argv)
{
	struct epoll_event events[EVENTS];
	int listener;

	if (argc != 3)
		errx(2, "usage: relay_epoll PORT ORIGIN_PORT");
	origin_port = net_port(argv[2], "ORIGIN_PORT");
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	listener = open_listener(net_port(argv[1], "PORT"));
	for (;;) {
		int n = epoll_wait(epoll_fd, events, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				on_readable(events[i].data.ptr, events[i].events);
			else
				on_connections(listener);
		}
	}
}
