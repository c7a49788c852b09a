/* Memory that lacks for a moment, just when bytes have come: who is told what. */
#include "scene.h"

/* The pool of small segs has n left, and nothing more is to be had. */
struct shortage {
	struct seg *held[512];
	unsigned n;
	uint64_t max;
};

static void only_segs(struct scene *sc, struct shortage *h, unsigned n)
{
	struct seg_pool *pool = loop_segs(sc->w.loop, SEG_SMALL);

	h->n = 0;
	h->max = sc->w.budget.max;
	sc->w.budget.max = atomic_load(&sc->w.budget.used);
	while (h->n < ARRAY_LEN(h->held) && (h->held[h->n] = seg_get(pool)))
		h->n++;
	assert_true(h->n >= n && h->n < ARRAY_LEN(h->held));
	while (n--)
		seg_drop(&h->held[--h->n]);
}

static void plenty(struct scene *sc, struct shortage *h)
{
	while (h->n)
		seg_drop(&h->held[--h->n]);
	sc->w.budget.max = h->max;
}

/* Whoever gets an answer gets it from its first byte on: a body without its head would be taken for
 * one by its text. */
static void no_body_alone(const struct scene *sc)
{
	if (sc->c->n_got > 0)
		assert_memory_equal(sc->c->got, "HTTP/1.1 503 ", 13);
}

/* The first receive has filled its seg; the second one's bytes find room nowhere. */
static void the_head_of_a_request(void **state)
{
	static char part[4064];
	struct shortage h;
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_round(&sc);
	memset(part, 'a', sizeof(part));
	memcpy(part, "GET /", 5);
	sim_say(sc.c, part, sizeof(part));
	world_pass(&sc.w, SECONDS(1));
	only_segs(&sc, &h, 1);
	world_say(sc.c, " HTTP/1.1\r\n");
	world_pass(&sc.w, SECONDS(1));
	plenty(&sc, &h);
	run_until(&sc.w, sc.c->reset || sc.c->eof);
	no_body_alone(&sc);
	scene_log(&sc, "503", "memory", sc.c->n_got > 0);
	scene_serves(&sc);
	scene_close(&sc);
}

static void the_head_of_an_answer(void **state)
{
	static char part[4064];
	struct shortage h;
	struct scene sc;

	(void)state;
	scene_open(&sc, NULL);
	scene_ask(&sc, GET);
	memset(part, 'a', sizeof(part));
	memcpy(part, "HTTP/1.1 200 OK\r\nA: ", 20);
	sim_say(sc.s, part, sizeof(part));
	world_pass(&sc.w, SECONDS(1));
	only_segs(&sc, &h, 1);
	world_say(sc.s, "\r\n\r\n");
	run_until(&sc.w, sc.s->reset);
	plenty(&sc, &h);
	run_until(&sc.w, sc.c->eof || sc.c->reset);
	no_body_alone(&sc);
	scene_log(&sc, "503", "memory", sc.c->n_got > 0);
	scene_serves(&sc);
	scene_close(&sc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_head_of_a_request),
		cmocka_unit_test(the_head_of_an_answer),
	};

	return cmocka_run_group_tests_name("memory", tests, world_group_setup,
					   world_group_teardown);
}
