/* net.c -- see net.h */
#include "net.h"

#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { BACKLOG = 4096 };

struct sockaddr_in net_loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

void net_nodelay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		err(1, "TCP_NODELAY");
}

void net_reno(int fd)
{
	static const char name[] = "reno";

	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name) - 1))
		err(1, "TCP_CONGESTION");
}

int net_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		err(1, "socket");
	net_nodelay(fd);
	return fd;
}

int net_listen(uint16_t port)
{
	struct sockaddr_in at = net_loopback(port);
	int fd = net_socket();
	int one = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		err(1, "SO_REUSEADDR");
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)))
		err(1, "bind 127.0.0.1:%u", port);
	if (listen(fd, BACKLOG))
		err(1, "listen 127.0.0.1:%u", port);
	return fd;
}

int net_dial(uint16_t port)
{
	struct sockaddr_in at = net_loopback(port);
	int fd = net_socket();

	if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
		err(1, "connect 127.0.0.1:%u", port);
	return fd;
}

uint16_t net_port(const char *text, const char *what)
{
	char *rest;
	unsigned long port = strtoul(text, &rest, 10);

	if (*rest || port < 1 || port > 65535)
		errx(2, "%s: '%s' is no port", what, text);
	return (uint16_t)port;
}

double net_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
