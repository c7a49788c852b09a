/*
 * relay_tunnel.c -- the limit for tunnels: everything from PORT goes to ORIGIN_PORT and back.
 *
 *   relay_tunnel copy|splice PORT ORIGIN_PORT BYTES
 *
 * BYTES is the size of the buffer, or of the pipe, of each direction.  One tunnel at a time.
 */
#define _GNU_SOURCE
#include "../common/net.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* from -> store (a buffer or a pipe) -> to */
struct flow {
	int from, to;
	uint8_t *buffer;
	int pipe[2];
	size_t size, held, sent; /* the store holds `held`, of which `sent` are on their way */
	bool ended;
};

static bool splicing;

static ssize_t take_in(struct flow *f)
{
	if (!splicing)
		return recv(f->from, f->buffer, f->size, MSG_DONTWAIT);
	return splice(f->from, NULL, f->pipe[1], NULL, f->size,
		      SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE);
}

static ssize_t give_out(struct flow *f)
{
	if (!splicing)
		return send(f->to, f->buffer + f->sent, f->held - f->sent,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	return splice(f->pipe[0], NULL, f->to, NULL, f->held - f->sent,
		      SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE);
}

static void give(struct flow *f)
{
	ssize_t n = give_out(f);

	if (n < 0 && errno != EAGAIN)
		f->ended = true;
	if (n > 0)
		f->sent += (size_t)n;
	if (f->sent == f->held)
		f->sent = f->held = 0;
}

static void take(struct flow *f)
{
	ssize_t n = take_in(f);

	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		f->ended = true;
	} else if (n > 0) {
		f->held = (size_t)n;
		give(f);
	}
}

static void turn(struct flow *flows)
{
	struct pollfd polled[2];

	for (int i = 0; i < 2; i++) {
		bool full = flows[i].held > 0;

		polled[i].fd = full ? flows[i].to : flows[i].from;
		polled[i].events = full ? POLLOUT : POLLIN;
	}
	if (poll(polled, 2, -1) < 0)
		err(1, "poll");
	for (int i = 0; i < 2; i++) {
		if (!polled[i].revents)
			continue;
		if (flows[i].held)
			give(&flows[i]);
		else
			take(&flows[i]);
	}
}

static struct flow open_store(size_t size)
{
	struct flow f = { .size = size };

	if (!splicing) {
		f.buffer = malloc(size);
		if (!f.buffer)
			err(1, "malloc");
	} else if (pipe(f.pipe) || fcntl(f.pipe[1], F_SETPIPE_SZ, size) < 0) {
		err(1, "pipe of %zu bytes", size);
	}
	return f;
}

static void close_store(struct flow *f)
{
	free(f->buffer);
	if (splicing) {
		close(f->pipe[0]);
		close(f->pipe[1]);
	}
}

static void serve(int near, int far, size_t size)
{
	struct flow flows[2] = { open_store(size), open_store(size) };

	flows[0].from = flows[1].to = near;
	flows[0].to = flows[1].from = far;
	while (!flows[0].ended && !flows[1].ended)
		turn(flows);
	close_store(&flows[0]);
	close_store(&flows[1]);
}

/* Nobody may listen there yet: whoever only tried the port goes away again. */
static void accepted(int near, uint16_t origin_port, size_t size)
{
	struct sockaddr_in at = net_loopback(origin_port);
	int far = net_socket();

	net_nodelay(near);
	if (!connect(far, (struct sockaddr *)&at, sizeof(at)))
		serve(near, far, size);
	close(near);
	close(far);
}

int main(int argc, char **argv)
{
	int listener, near;

	if (argc != 5)
		errx(2, "usage: relay_tunnel copy|splice PORT ORIGIN_PORT BYTES");
	signal(SIGPIPE, SIG_IGN); /* splice(2) knows no MSG_NOSIGNAL */
	splicing = !strcmp(argv[1], "splice");
	listener = net_listen(net_port(argv[2], "PORT"));
	while ((near = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		accepted(near, net_port(argv[3], "ORIGIN_PORT"), (size_t)atol(argv[4]));
	err(1, "accept");
}
