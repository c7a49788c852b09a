/* Every malloc of culvert's own code fails, once or from then on: at start, and in each scenario.
 *
 * The linker puts the functions below in the place of malloc and its like (--wrap), for culvert's
 * objects; c-ares is given them by its own hook.  Only calls of the shard's thread count, from
 * inside a start or a turn.  Always must hold what test_memory.c says. */
#include "rig.h"

#include <ares.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PLENTY (64u << 20)
#define N_MAX  200u

static struct {
	bool on, for_ever;
	unsigned nth, seen, hits;
	const struct rig *r; /* whose relief ends it */
} plan;

static bool refused(void)
{
	bool hit;

	if (!rig_inside || !plan.on || plan.r->o.relieved)
		return false;
	plan.seen++;
	hit = plan.for_ever ? plan.seen >= plan.nth : plan.seen == plan.nth;
	plan.hits += hit;
	return hit;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mremap(void *at, size_t n, size_t to, int flags);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
void *__wrap_mremap(void *at, size_t n, size_t to, int flags);

void *__wrap_malloc(size_t n)
{
	return refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return refused() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return refused() ? NULL : __real_aligned_alloc(align, n);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	return refused() ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, off);
}

void *__wrap_mremap(void *at, size_t n, size_t to, int flags)
{
	return refused() ? MAP_FAILED : __real_mremap(at, n, to, flags);
}

static void arm(const struct rig *r, unsigned nth, bool for_ever)
{
	plan.on = true;
	plan.for_ever = for_ever;
	plan.nth = nth;
	plan.seen = plan.hits = 0;
	plan.r = r;
}

/* True: a call was refused. */
static bool start(enum loop_io io, unsigned nth, bool for_ever)
{
	static struct rig r;
	unsigned before = rig_fds();
	bool open;

	memset(&r, 0, sizeof(r));
	rig_context("start, malloc %u%s", nth, for_ever ? " and on" : "");
	arm(&r, nth, for_ever);
	open = rig_open(&r, io, PLENTY, NULL);
	plan.on = false;
	rig_must(open || plan.hits);
	if (open)
		rig_close(&r);
	rig_must(rig_fds() == before);
	return plan.hits > 0;
}

static void judge(const struct scenario *s, const struct outcome *o)
{
	bool fits = o->status == 0 || o->status == 503 || o->status == s->good;

	if (!fits)
		print_error("status %u\n", o->status);
	rig_must(fits);
	rig_must(plan.hits || (o->complete && o->status == s->good));
}

static bool run(enum loop_io io, const struct scenario *s, unsigned nth, bool for_ever)
{
	static struct rig r;
	unsigned before = rig_fds();
	struct outcome o;

	memset(&r, 0, sizeof(r));
	rig_context("%s, malloc %u%s", s->name, nth, for_ever ? " and on" : "");
	rig_must(rig_open(&r, io, PLENTY, s));
	r.relief = PLENTY;
	arm(&r, nth, for_ever);
	o = rig_exchange(&r, s);
	plan.on = false;
	judge(s, &o);
	if (plan.hits && !s->drain) {
		struct outcome next = rig_exchange(&r, s);

		rig_must(next.complete && next.status == s->good);
	}
	rig_close(&r);
	rig_must(rig_fds() == before);
	return plan.hits > 0;
}

static void sweep(enum loop_io io, bool for_ever)
{
	unsigned nth = 1;

	while (nth < N_MAX && start(io, nth, for_ever))
		nth++;
	rig_must(nth > 1 && nth < N_MAX);
	for (unsigned i = 0; i < rig_n_scenarios; i++) {
		nth = 1;
		while (nth < N_MAX && run(io, &rig_scenarios[i], nth, for_ever))
			nth++;
		rig_must(nth > 1 && nth < N_MAX);
	}
}

static void test_epoll(void **state)
{
	(void)state;
	sweep(LOOP_EPOLL, false);
	sweep(LOOP_EPOLL, true);
}

static void test_uring(void **state)
{
	char text[128];

	(void)state;
	if (loop_probe_uring(text) < 0)
		skip();
	sweep(LOOP_URING, false);
	sweep(LOOP_URING, true);
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
	must(ares_library_init_mem(ARES_LIB_INIT_ALL, __wrap_malloc, free, __wrap_realloc) ==
	     ARES_SUCCESS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
