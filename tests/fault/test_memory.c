/* The memory budget runs out at each level: at start, and in each scenario.
 *
 * A run without a limit tells how much a scenario takes; then the budget ends so many bytes above
 * what the idle service holds, from none to that much in steps.  Always must hold: start says no
 * and gives everything back; a request is served, refused with 503, its connection ends, or it
 * waits and goes on when there is memory again; then the next one is served; nothing leaks. */
#include "rig.h"

#define PLENTY     (64u << 20)
#define STEP       4096u  /* the smallest thing that the budget is asked for */
#define START_STEP 16384u /* at start only chunks and rings are */

static void open_again(struct rig *r, enum loop_io io, const struct scenario *s)
{
	memset(r, 0, sizeof(*r));
	rig_must(rig_open(r, io, PLENTY, s));
}

/* How far the budget rises in this scenario.  *keeps: so much more that connections are kept: near
 * its limit they are closed. */
static uint64_t need(enum loop_io io, const struct scenario *s, uint64_t *keeps)
{
	static struct rig r;
	struct outcome o;
	uint64_t idle;

	rig_context("%s, plenty", s->name);
	open_again(&r, io, s);
	idle = r.budget.used;
	o = rig_exchange(&r, s);
	rig_must(o.complete && o.status == s->good);
	rig_close(&r);
	*keeps = o.most_used / 15 + STEP;
	return o.most_used - idle;
}

static void judge(const struct scenario *s, const struct outcome *o)
{
	bool fits = o->status == 0 || o->status == 503 || o->status == s->good;

	if (!fits)
		print_error("status %u\n", o->status);
	rig_must(fits);
	if (o->status == 503)
		rig_must(o->complete || o->over);
}

static bool run(enum loop_io io, const struct scenario *s, uint64_t more)
{
	static struct rig r;
	unsigned before = rig_fds();
	struct outcome o;

	rig_context("%s with %llu bytes", s->name, (unsigned long long)more);
	open_again(&r, io, s);
	r.budget.max = r.budget.used + more;
	r.relief = PLENTY;
	o = rig_exchange(&r, s);
	judge(s, &o);
	rig_must(o.relieved || o.most_used <= r.budget.max);
	r.budget.max = PLENTY;
	r.relief = 0;
	if (!s->drain) {
		struct outcome next = rig_exchange(&r, s);

		rig_must(next.complete && next.status == s->good);
	}
	rig_close(&r);
	rig_must(rig_fds() == before);
	return o.complete && o.status == s->good;
}

/* The start: loop, rooms, acceptors. */
static void sweep_start(enum loop_io io)
{
	static struct rig r;
	unsigned before = rig_fds();
	uint64_t max = 0;
	bool open = false;

	for (; !open; max += START_STEP) {
		memset(&r, 0, sizeof(r));
		rig_context("start with %llu bytes", (unsigned long long)max);
		open = rig_open(&r, io, max, NULL);
		rig_must(max < PLENTY);
		if (open)
			rig_close(&r);
		rig_must(rig_fds() == before);
	}
}

static void sweep(enum loop_io io)
{
	sweep_start(io);
	for (unsigned i = 0; i < rig_n_scenarios; i++) {
		const struct scenario *s = &rig_scenarios[i];
		uint64_t keeps, all = need(io, s, &keeps);

		for (uint64_t more = 0; more < all; more += STEP)
			(void)run(io, s, more);
		rig_must(run(io, s, all + keeps)); /* that is enough */
	}
}

static void test_epoll(void **state)
{
	(void)state;
	sweep(LOOP_EPOLL);
}

static void test_uring(void **state)
{
	char text[128];

	(void)state;
	if (loop_probe_uring(text) < 0)
		skip();
	sweep(LOOP_URING);
}

static void test_log(void **state)
{
	(void)state;
	rig_check_log();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_epoll),
					    cmocka_unit_test(test_uring),
					    cmocka_unit_test(test_log) };

	rig_open_log();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
