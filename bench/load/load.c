/*
 * load.c -- options, the loop, the phases and the report of the load driver; see load.h
 *
 *   load --proxy PORT --origin PORT [--connections N] [--body BYTES] [--post BYTES] [--absolute]
 *   [--new-connection]
 *        [--warm S] [--seconds S] [--requests N] [--rate R] [--pid PID]...
 *
 * Prints one JSON object.  Exits 1 when it could not run, 3 when nothing moved any more.
 */
#define _GNU_SOURCE
#include "load.h"
#include "../common/net.h"

#include <err.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STALL_S = 10, BULK = 16384, SMALL_BUFFER = 4096, BULK_BUFFER = 65536 };

struct options options = {
	.connections = 64,
	.body_bytes = 1040,
	.warm_s = 0.3,
	.count_s = 2,
};
struct ring ring;
enum phase phase;
double turn_s;

/* What stood on the clocks when the count began; then, after it, the difference. */
static struct sample {
	double at_s;
	uint64_t done, bad, cpu_ns, own_cpu_ns;
} sample;

static double phase_end_s;

static struct sample sample_now(void)
{
	return (struct sample){
		.at_s = turn_s,
		.done = tally.done,
		.bad = tally.bad,
		.cpu_ns = cpu_ns(&options.cpu_of),
		.own_cpu_ns = cpu_own_ns(),
	};
}

static void begin_count(void)
{
	phase = PHASE_COUNT;
	phase_end_s = turn_s + options.count_s;
	meter_reset();
	sample = sample_now();
}

static void end_count(void)
{
	struct sample now = sample_now();

	phase = PHASE_DRAIN;
	sample = (struct sample){
		.at_s = now.at_s - sample.at_s,
		.done = now.done - sample.done,
		.bad = now.bad - sample.bad,
		.cpu_ns = now.cpu_ns - sample.cpu_ns,
		.own_cpu_ns = now.own_cpu_ns - sample.own_cpu_ns,
	};
}

static bool all_answered(void)
{
	return tally.done + tally.bad >= tally.started;
}

static bool count_is_over(void)
{
	if (options.requests)
		return tally.done + tally.bad >= options.requests;
	return turn_s >= phase_end_s;
}

/* Returns false when the run is over. */
static bool next_phase(void)
{
	if (phase == PHASE_WARM && turn_s >= phase_end_s)
		begin_count();
	else if (phase == PHASE_COUNT && count_is_over())
		end_count();
	return phase != PHASE_DRAIN || !all_answered();
}

static void on_completion(const struct io_uring_cqe *cqe)
{
	void *owner = (void *)(uintptr_t)(cqe->user_data & ~(uint64_t)KIND_MASK);

	switch ((enum kind)(cqe->user_data & KIND_MASK)) {
	case CLIENT_CONNECTED: client_on_connected(owner, cqe->res); break;
	case CLIENT_RECEIVED: client_on_received(owner, cqe); break;
	case ORIGIN_ACCEPTED: origin_on_accepted(cqe->res); break;
	case ORIGIN_RECEIVED: origin_on_received(owner, cqe); break;
	case ORIGIN_SENT: origin_on_sent(owner); break;
	case SENT: /* only failures complete, and the receive tells as well */ break;
	}
}

static void turn(void)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	if (options.rate > 0 && phase != PHASE_DRAIN)
		ring_wait_for(&ring, client_start_due());
	else
		ring_wait(&ring);
	turn_s = net_now();
	io_uring_for_each_cqe(&ring.uring, head, cqe)
	{
		n++;
		on_completion(cqe);
	}
	io_uring_cq_advance(&ring.uring, n);
}

static void run(void)
{
	turn_s = net_now();
	origin_open();
	client_open_all();
	if (options.requests)
		begin_count();
	else
		phase_end_s = turn_s + options.warm_s;
	do
		turn();
	while (next_phase());
}

static void report(void)
{
	double requests_all = (double)(sample.done ? sample.done : 1);

	printf("{\"requests\": %" PRIu64 ", \"seconds\": %.3f, \"rate\": %.1f, \"bad\": %" PRIu64
	       ", \"origin_bad\": %" PRIu64 ", \"reconnects\": %" PRIu64 ", \"answered\": %" PRIu64
	       ", \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"cpu_us\": %.3f"
	       ", \"driver_busy\": %.3f}\n",
	       sample.done, sample.at_s, (double)sample.done / sample.at_s, tally.bad, origin_bad,
	       tally.reconnects, tally.done, meter_us(0.5), meter_us(0.99), meter_us(1),
	       (double)sample.cpu_ns / 1e3 / requests_all,
	       (double)sample.own_cpu_ns / 1e9 / sample.at_s);
}

static void on_stall(int sig)
{
	static const char text[] = "load: stalled: requests were not answered\n";

	(void)sig;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

static double number(const char *text, const char *what)
{
	char *rest;
	double value = strtod(text, &rest);

	if (rest == text || *rest || value < 0)
		errx(2, "--%s: '%s' is no number", what, text);
	return value;
}

static const struct option names[] = {
	{ "proxy", required_argument, NULL, 'p' },
	{ "origin", required_argument, NULL, 'o' },
	{ "connections", required_argument, NULL, 'c' },
	{ "body", required_argument, NULL, 'b' },
	{ "post", required_argument, NULL, 'P' },
	{ "absolute", no_argument, NULL, 'a' },
	{ "new-connection", no_argument, NULL, 'n' },
	{ "warm", required_argument, NULL, 'w' },
	{ "seconds", required_argument, NULL, 's' },
	{ "requests", required_argument, NULL, 'r' },
	{ "rate", required_argument, NULL, 'R' },
	{ "pid", required_argument, NULL, 'i' },
	{ NULL, 0, NULL, 0 },
};

static void set_option(int letter, const char *value, const char *name)
{
	switch (letter) {
	case 'p': options.proxy_port = net_port(value, name); break;
	case 'o': options.origin_port = net_port(value, name); break;
	case 'c': options.connections = (unsigned)number(value, name); break;
	case 'b': options.body_bytes = (size_t)number(value, name); break;
	case 'P': options.post_bytes = (size_t)number(value, name); break;
	case 'a': options.form = FORM_ABSOLUTE; break;
	case 'n': options.new_connection = true; break;
	case 'w': options.warm_s = number(value, name); break;
	case 's': options.count_s = number(value, name); break;
	case 'r': options.requests = (uint64_t)number(value, name); break;
	case 'R': options.rate = number(value, name); break;
	case 'i': cpu_add(&options.cpu_of, value); break;
	default: errx(2, "see the head of load.c");
	}
}

static void read_options(int argc, char **argv)
{
	int letter, index = 0;

	while ((letter = getopt_long_only(argc, argv, "", names, &index)) != -1)
		set_option(letter, optarg, names[index].name);
	if (!options.proxy_port || !options.origin_port || !options.connections || optind != argc)
		errx(2, "--proxy, --origin and at least one connection are needed");
	if (options.new_connection && options.rate > 0)
		errx(2, "--rate goes with keep-alive only");
}

/* Enough buffers for an answer on each connection, few enough to stay in the cache. */
static void open_ring(void)
{
	bool bulk = options.body_bytes > BULK || options.post_bytes > BULK;
	unsigned want = bulk ? 64 : 256, most = bulk ? 512 : 4096;

	while (want < most && want < options.connections * 4)
		want *= 2;
	ring_open(&ring, want, bulk ? BULK_BUFFER : SMALL_BUFFER);
}

int main(int argc, char **argv)
{
	read_options(argc, argv);
	message_prepare();
	prctl(PR_SET_TIMERSLACK, 1L); /* a fixed rate is to be met to the microsecond */
	signal(SIGALRM, on_stall);
	alarm((unsigned)(options.warm_s + options.count_s) + STALL_S +
	      (unsigned)(options.requests / 500));
	open_ring();
	run();
	report();
	return 0;
}
