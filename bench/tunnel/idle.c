/*
 * idle.c -- opens many tunnels through a proxy and leaves them alone.
 *
 *   idle --proxy PORT --origin PORT --tunnels N [--plain]
 *
 * Prints "open" when all stand and have carried a byte each way, closes them after a line on
 * standard input, prints "closed" and ends after another one.
 */
#define _GNU_SOURCE
#include "tunnel.h"
#include "../common/net.h"

#include <err.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void all_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		err(1, "getrlimit");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		err(1, "setrlimit");
}

static void pass_byte(int from, int to)
{
	char sent = 'x', got = 0;

	if (send(from, &sent, 1, MSG_NOSIGNAL) != 1 || recv(to, &got, 1, 0) != 1 || got != sent)
		errx(1, "a tunnel does not carry bytes");
}

static void next_line(void)
{
	int c;

	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

static const struct option names[] = {
	{ "proxy", required_argument, NULL, 'p' },
	{ "origin", required_argument, NULL, 'o' },
	{ "tunnels", required_argument, NULL, 'n' },
	{ "plain", no_argument, NULL, 't' },
	{ NULL, 0, NULL, 0 },
};

int main(int argc, char **argv)
{
	struct tunnel_path path = { 0 };
	struct tunnel *tunnels;
	size_t n = 1;
	int letter;

	while ((letter = getopt_long_only(argc, argv, "", names, NULL)) != -1) {
		switch (letter) {
		case 'p': path.proxy_port = net_port(optarg, "--proxy"); break;
		case 'o': path.target_port = net_port(optarg, "--origin"); break;
		case 'n': n = strtoul(optarg, NULL, 10); break;
		case 't': path.plain = true; break;
		default: errx(2, "see the head of idle.c");
		}
	}
	all_descriptors();
	path.listener = net_listen(path.target_port);
	tunnels = calloc(n, sizeof(*tunnels));
	if (!tunnels)
		err(1, "calloc");
	for (size_t i = 0; i < n; i++) {
		tunnels[i] = tunnel_open(&path);
		pass_byte(tunnels[i].near, tunnels[i].far);
		pass_byte(tunnels[i].far, tunnels[i].near);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("open");
	next_line();
	for (size_t i = 0; i < n; i++) {
		close(tunnels[i].near);
		close(tunnels[i].far);
	}
	puts("closed");
	next_line();
	return 0;
}
