/* tunnel.c -- see tunnel.h */
#define _GNU_SOURCE
#include "tunnel.h"
#include "../common/net.h"

#include <err.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void send_connect(int fd, uint16_t target_port)
{
	char head[128];
	int n = snprintf(head, sizeof(head),
			 "CONNECT 127.0.0.1:%u HTTP/1.1\r\n"
			 "Host: 127.0.0.1:%u\r\n"
			 "User-Agent: bench/1\r\n"
			 "\r\n",
			 target_port, target_port);

	if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
		err(1, "CONNECT");
}

/* Nothing follows the head until we have sent something. */
static void read_answer(int fd)
{
	char head[4096] = "";
	size_t got = 0;

	while (!memmem(head, got, "\r\n\r\n", 4)) {
		ssize_t n = recv(fd, head + got, sizeof(head) - 1 - got, 0);

		if (n <= 0)
			errx(1, "the answer to CONNECT ends early: '%s'", head);
		got += (size_t)n;
	}
	if (memcmp(head, "HTTP/1.", 7) || memcmp(head + 8, " 200", 4))
		errx(1, "CONNECT was refused: '%.40s'", head);
}

struct tunnel tunnel_open(const struct tunnel_path *path)
{
	struct tunnel t = { .near = net_dial(path->proxy_port) };

	if (!path->plain) {
		send_connect(t.near, path->target_port);
		read_answer(t.near);
	}
	t.far = accept4(path->listener, NULL, NULL, SOCK_CLOEXEC);
	if (t.far < 0)
		err(1, "accept");
	net_nodelay(t.far);
	return t;
}
