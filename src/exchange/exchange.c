/* exchange.c -- the driver: runs the steps of an exchange and calls its ends.
 *
 *   wake ──► task (run queue) ──► drive:  ends that are due: on_cut | on_data, on_room  ┐ while
 *                                         the step at hand, and the next ones           ┘ due
 *                                         STEP_DONE: freed
 *
 *   refuse:  up (if there) hears on_cut and leaves ─► step = answer (the page)
 *   cut:     both ends hear on_cut and leave       ─► step = flow (waits for that), log, free */
#include "exchange/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DRIVE_ROUNDS 64 /* then the rest of the turn belongs to others */

struct exchange_shard {
	struct slab slab;
	struct list all;
	unsigned n;
	uint64_t next_id;
};

static struct exchange_shard *shard_of(struct loop *l)
{
	return loop_slot(l, SLOT_EXCHANGE);
}

int exchange_shard_open(struct loop *l)
{
	struct exchange_shard *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	slab_init(&s->slab, "exchanges", sizeof(struct exchange), loop_budget(l));
	list_init(&s->all);
	loop_random(l, &s->next_id, sizeof(s->next_id));
	loop_set_slot(l, SLOT_EXCHANGE, s);
	return 0;
}

void exchange_shard_close(struct loop *l)
{
	struct exchange_shard *s = shard_of(l);

	must(s->n == 0);
	slab_close(&s->slab);
	free(s);
	loop_set_slot(l, SLOT_EXCHANGE, NULL);
}

unsigned exchange_count(struct loop *l)
{
	return shard_of(l)->n;
}

void exchange_each(struct loop *l, void (*visit)(struct exchange *, void *), void *arg)
{
	struct list *node, *tmp;

	list_each_safe(node, tmp, &shard_of(l)->all)
		visit(container_of(node, struct exchange, node), arg);
}

/* ---------------------------------------------------------------- life */
static void on_total(struct alarm *a)
{
	struct exchange *x = container_of(a, struct exchange, total);

	if (x->rsp.state == PIPE_EMPTY && !x->refused)
		exchange_refuse(x, why(WHY_TOTAL), NULL);
	else
		exchange_cut(x, why(WHY_TOTAL));
}

void exchange_retimed(struct exchange *x)
{
	uint64_t spent = (loop_now_us(x->loop) - x->facts.open_us) / 1000;
	uint32_t total = x->timeouts->total;

	if (total == MS_OFF)
		loop_alarm_off(&x->total);
	else
		loop_alarm(x->loop, &x->total, total > spent ? total - (uint32_t)spent : 0);
}

static void drive(struct task *t);

static void note_start(struct exchange *x)
{
	x->facts.open_us = loop_now_us(x->loop);
	x->facts.wall_us = loop_wall_us(x->loop);
	exchange_retimed(x);
}

struct exchange *exchange_new(struct loop *l, const struct exchange_params *p)
{
	struct exchange_shard *s = shard_of(l);
	struct exchange *x = slab_get(&s->slab);

	if (!x)
		return NULL;
	mem_zero(x, offsetof(struct exchange, req));
	x->magic = EXCHANGE_MAGIC;
	x->loop = l;
	x->steps = p->steps;
	x->plan = p->plan;
	x->listener = p->listener;
	x->timeouts = p->timeouts;
	x->limits = p->limits;
	x->conn_id = p->conn_id;
	x->request_id = s->next_id++;
	x->peer = x->client = *p->peer;
	x->pin = p->pin;
	x->forward = p->forward;
	x->secure = p->secure;
	x->why = x->try_why = why(WHY_NONE);
	arena_init(&x->arena, loop_arenas(l));
	pipe_open(&x->req, x, PIPE_HIGH);
	pipe_open(&x->rsp, x, PIPE_HIGH);
	task_init(&x->task, drive);
	alarm_init(&x->total, on_total);
	x->down = x->req.feeder = x->rsp.reader = p->down;
	p->down->x = x;
	p->down->due = 0;
	p->down->cut_heard = false;
	list_push_tail(&s->all, &x->node);
	s->n++;
	note_start(x);
	exchange_wake(x);
	return x;
}

static void destroy(struct exchange *x)
{
	struct exchange_shard *s = shard_of(x->loop);

	must(!x->down && !x->up);
	loop_alarm_off(&x->total);
	loop_task_off(x->loop, &x->task);
	if (x->steps->freed)
		x->steps->freed(x);
	pipe_close(&x->req);
	pipe_close(&x->rsp);
	arena_free(&x->arena);
	list_remove(&x->node);
	s->n--;
	x->magic = 0;
	slab_put(&s->slab, x);
}

/* ---------------------------------------------------------------- wakes */
void exchange_wake(struct exchange *x)
{
	hot_must(x->magic == EXCHANGE_MAGIC);
	x->woken = true;
	if (!x->running)
		loop_soon(x->loop, &x->task);
}

void exchange_due(struct end *e, enum due bit)
{
	if (!e || !e->x)
		return;
	e->due |= (uint8_t)bit;
	exchange_wake(e->x);
}

/* ---------------------------------------------------------------- ends */
void exchange_attach_up(struct exchange *x, struct end *e)
{
	must(!x->up && !x->cut);
	x->up = x->req.reader = x->rsp.feeder = e;
	e->x = x;
	e->cut_heard = false;
	e->due = 0;
	exchange_due(e, DUE_DATA);
}

void end_leave(struct end *e)
{
	struct exchange *x = e->x;

	must(x && x->magic == EXCHANGE_MAGIC);
	e->x = NULL;
	e->due = 0;
	if (x->up == e) {
		x->up = x->rsp.feeder = NULL;
		x->req.reader = NULL;
		if (x->rsp.ended) /* an early answer: nobody will take the rest of the request */
			pipe_reader_gone(&x->req);
	} else {
		must(x->down == e);
		x->down = x->req.feeder = NULL;
		x->rsp.reader = NULL;
	}
	exchange_wake(x);
}

void end_fail(struct end *e, const struct why *cause)
{
	struct exchange *x = e->x;

	must(x && x->up == e);
	end_leave(e);
	x->try_why = cause;
	if (!x->answer_seen)
		pipe_recall(&x->rsp);
	if (x->rsp.state != PIPE_EMPTY && x->rsp.state != PIPE_CUT)
		exchange_cut(x, cause);
}

void exchange_refuse(struct exchange *x, const struct why *cause, const char *detail)
{
	if (x->refused || x->cut)
		return;
	if (x->rsp.state != PIPE_EMPTY) {
		exchange_cut(x, cause);
		return;
	}
	x->refused = true;
	x->why = cause;
	x->facts.detail = detail;
	pipe_reader_gone(&x->req);
	exchange_due(x->up, DUE_CUT);
	exchange_wake(x);
}

void exchange_cut(struct exchange *x, const struct why *cause)
{
	if (x->cut)
		return;
	x->cut = true;
	if (!x->refused)
		x->why = cause;
	pipe_cut(&x->req);
	pipe_cut(&x->rsp);
	exchange_due(x->up, DUE_CUT);
	exchange_due(x->down, DUE_CUT);
	exchange_wake(x);
}

/* One end's news; it may leave during any of the calls. */
static void call_end(struct exchange *x, struct end *e)
{
	uint8_t due = e->due;

	e->due = 0;
	if (e->cut_heard)
		return;
	if (due & DUE_CUT) {
		e->cut_heard = true;
		e->ops->on_cut(e, x->why);
		return;
	}
	if (due & DUE_DATA)
		e->ops->on_data(e);
	if ((due & DUE_ROOM) && (x->up == e || x->down == e) && !(e->due & DUE_CUT))
		e->ops->on_room(e);
}

/* A refusal waits until the answerer of before has gone. */
static void choose_step(struct exchange *x)
{
	if (x->cut && x->step < x->steps->flow)
		x->step = x->steps->flow;
	if (x->refused && !x->answering && !x->cut && !x->up) {
		x->answering = true;
		x->step = x->steps->answer;
	}
}

/* False: the exchange is gone. */
static bool run_steps(struct exchange *x)
{
	for (;;) {
		choose_step(x);
		must(x->step < x->steps->n);
		switch (x->steps->step[x->step].run(x)) {
		case STEP_NEXT: x->step++; break;
		case STEP_AGAIN: x->step = x->steps->again; break;
		case STEP_PARK: return true;
		case STEP_DONE: destroy(x); return false;
		}
	}
}

static void screen_answer(struct exchange *x)
{
	x->answer_seen = true;
	if (x->steps->answer_head)
		x->steps->answer_head(x);
}

static void drive(struct task *t)
{
	struct exchange *x = container_of(t, struct exchange, task);
	unsigned rounds = 0;

	hot_must(x->magic == EXCHANGE_MAGIC && !x->running);
	x->running = true;
	do {
		x->woken = false;
		if (x->up && x->up->due)
			call_end(x, x->up);
		if (x->rsp.head && !x->answer_seen)
			screen_answer(x);
		if (x->down && x->down->due)
			call_end(x, x->down);
		if (!run_steps(x))
			return;
	} while (x->woken && ++rounds < DRIVE_ROUNDS);
	x->running = false;
	if (x->woken)
		loop_soon(x->loop, &x->task);
}

/* ---------------------------------------------------------------- looks */
void exchange_assert(const struct exchange *x)
{
	must(x->magic == EXCHANGE_MAGIC);
	must(!x->down || x->down->x == x);
	must(!x->up || x->up->x == x);
	must(x->step < x->steps->n);
	must(!x->cut || (x->req.state == PIPE_CUT && x->rsp.state == PIPE_CUT));
	pipe_assert(&x->req);
	pipe_assert(&x->rsp);
}

static void dump_pipe(const char *name, const struct pipe *p, int fd)
{
	static const char *const state[] = { "EMPTY", "HEAD", "BODY", "ENDED", "CUT" };

	dprintf(fd, "    %s %s%s stops %#x queued %llu total %llu%s\n", name, state[p->state],
		p->ended ? " ended" : "", p->stops, (unsigned long long)p->q.bytes,
		(unsigned long long)p->total, p->reader_gone ? " reader gone" : "");
	if (p->head)
		head_dump(p->head, fd);
}

void exchange_dump(const struct exchange *x, int fd)
{
	dprintf(fd, "  exchange %016llx conn %llx step %s why %s%s%s\n",
		(unsigned long long)x->request_id, (unsigned long long)x->conn_id,
		x->steps->step[x->step].name, x->why->name, x->cut ? " cut" : "",
		x->refused ? " refused" : "");
	dump_pipe("req", &x->req, fd);
	dump_pipe("rsp", &x->rsp, fd);
	if (x->down && x->down->ops->dump)
		x->down->ops->dump(x->down, fd);
	if (x->up && x->up->ops->dump)
		x->up->ops->dump(x->up, fd);
}
