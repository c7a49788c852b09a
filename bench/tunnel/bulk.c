/*
 * bulk.c -- bytes through one tunnel, as fast as they go; every byte is compared.
 *
 *   bulk --proxy PORT --origin PORT [--plain] [--up] [--down] [--warm S] [--seconds S] [--pid
 *   PID]...
 *
 * A flow sends a pattern from one end and compares what arrives at the other; --up is from the
 * client to the target, --down back, both together are two flows in one tunnel.  Prints one JSON
 * object; its unit is the megabyte (10^6 bytes).
 */
#define _GNU_SOURCE
#include "tunnel.h"
#include "../common/cpu.h"
#include "../common/net.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The pattern is a prime long, so that a piece that is lost or doubled never fits. */
enum { PATTERN = 1048573, PIECE = 262144, STALL_MS = 5000 };

struct flow {
	int from, to;
	uint64_t sent, received;
};

static uint8_t pattern[PATTERN + PIECE], arrived[PIECE];
static uint64_t bad;

static void fill_pattern(void)
{
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < PATTERN; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pattern[i] = (uint8_t)(x >> 32);
	}
	memcpy(pattern + PATTERN, pattern, PIECE);
}

static void push(struct flow *f)
{
	ssize_t n = send(f->from, pattern + f->sent % PATTERN, PIECE, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN)
		err(1, "send");
	if (n > 0)
		f->sent += (uint64_t)n;
}

static void pull(struct flow *f)
{
	ssize_t n = recv(f->to, arrived, PIECE, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		errx(1, "the tunnel ended");
	if (n < 0)
		return;
	if (memcmp(arrived, pattern + f->received % PATTERN, (size_t)n))
		bad++;
	f->received += (uint64_t)n;
}

static void turn(struct flow *flows, unsigned n)
{
	struct pollfd polled[4];

	for (unsigned i = 0; i < n; i++) {
		polled[2 * i] = (struct pollfd){ .fd = flows[i].from, .events = POLLOUT };
		polled[2 * i + 1] = (struct pollfd){ .fd = flows[i].to, .events = POLLIN };
	}
	if (poll(polled, 2 * n, STALL_MS) <= 0)
		errx(3, "stalled: no byte moved for %d ms", STALL_MS);
	for (unsigned i = 0; i < n; i++) {
		if (polled[2 * i + 1].revents)
			pull(&flows[i]);
		if (polled[2 * i].revents)
			push(&flows[i]);
	}
}

struct sample {
	double at_s;
	uint64_t bytes, cpu_ns, own_ns;
};

static struct sample run_for(double seconds, struct flow *flows, unsigned n,
			     const struct cpu_of *of)
{
	struct sample s = { 0 };
	double end_s = net_now() + seconds;

	do {
		turn(flows, n);
		s.at_s = net_now();
	} while (s.at_s < end_s);
	for (unsigned i = 0; i < n; i++)
		s.bytes += flows[i].received;
	s.cpu_ns = cpu_ns(of);
	s.own_ns = cpu_own_ns();
	return s;
}

static void report(const struct sample *a, const struct sample *b)
{
	double seconds = b->at_s - a->at_s;
	double mb = (double)(b->bytes - a->bytes) / 1e6;

	printf("{\"rate\": %.1f, \"cpu_us\": %.4f, \"p50_us\": 0, \"p99_us\": 0, \"bad\": %llu"
	       ", \"origin_bad\": 0, \"reconnects\": 0, \"answered\": 0, \"driver_busy\": %.3f}\n",
	       mb / seconds, (double)(b->cpu_ns - a->cpu_ns) / 1e3 / mb, (unsigned long long)bad,
	       (double)(b->own_ns - a->own_ns) / 1e9 / seconds);
}

static const struct option names[] = {
	{ "proxy", required_argument, NULL, 'p' },
	{ "origin", required_argument, NULL, 'o' },
	{ "plain", no_argument, NULL, 't' },
	{ "up", no_argument, NULL, 'u' },
	{ "down", no_argument, NULL, 'd' },
	{ "warm", required_argument, NULL, 'w' },
	{ "seconds", required_argument, NULL, 's' },
	{ "pid", required_argument, NULL, 'i' },
	{ NULL, 0, NULL, 0 },
};

int main(int argc, char **argv)
{
	struct tunnel_path path = { 0 };
	struct cpu_of of = { 0 };
	struct flow flows[2];
	unsigned n = 0;
	bool up = false, down = false;
	double warm_s = 0.3, count_s = 2;
	struct sample before, after;
	struct tunnel t;
	int letter;

	while ((letter = getopt_long_only(argc, argv, "", names, NULL)) != -1) {
		switch (letter) {
		case 'p': path.proxy_port = net_port(optarg, "--proxy"); break;
		case 'o': path.target_port = net_port(optarg, "--origin"); break;
		case 't': path.plain = true; break;
		case 'u': up = true; break;
		case 'd': down = true; break;
		case 'w': warm_s = atof(optarg); break;
		case 's': count_s = atof(optarg); break;
		case 'i': cpu_add(&of, optarg); break;
		default: errx(2, "see the head of bulk.c");
		}
	}
	fill_pattern();
	path.listener = net_listen(path.target_port);
	t = tunnel_open(&path);
	if (up || !down)
		flows[n++] = (struct flow){ .from = t.near, .to = t.far };
	if (down)
		flows[n++] = (struct flow){ .from = t.far, .to = t.near };
	before = run_for(warm_s, flows, n, &of);
	after = run_for(count_s, flows, n, &of);
	report(&before, &after);
	return 0;
}
