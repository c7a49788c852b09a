/* splice.c -- a bulk way: the kernel moves the bytes through a pipe of 1 MiB.  Exports: splice_*
 *
 *   link[i]->fd ──splice──► pipe ──splice──► link[!i]->fd
 *
 * Each link has one eye: a poll that waits for what the two ways want of this descriptor.
 *
 *     POLLIN    the way that reads here is spliced, and its pipe is empty
 *     POLLOUT   the way that writes here is spliced, and its pipe holds what this peer takes slowly
 *     nothing   (errors only) the way that reads here waits for the other side's POLLOUT
 *
 * A way takes a pipe when bytes are there and gives it back when it is empty, so an idle way holds
 * none, and a few pipes serve many tunnels.  One wake moves at most what one pipe held and one more
 * filling.
 *
 * The system may refuse the size (fs.pipe-max-size, fs.pipe-user-pages-soft): a smaller pipe still
 * beats copies; none at all: copies, and the system is asked again a second later.
 *
 * The poll column of a descriptor is one op's: while a relay has a bulk way, a copying way beside
 * it pauses by link_quiet() instead of link_pause() (splice_hush()). */
#include "relay/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define PIPE_BYTES   (1024 * 1024)
#define PIPE_LEAST   (64 * 1024) /* no figures speak for a smaller one */
#define ASK_AGAIN_MS 1000
#define CRUMB        4096 /* less in one wake is not bulk */
#define CRUMBS       16   /* so many in a row: copies again */
#define UNARMED      (-1)

struct eye {
	struct op op;
	int32_t events; /* that the armed poll waits for, or UNARMED */
	uint8_t side;
	bool woken; /* without an error while only errors were waited for: not again */
};

struct bulk {
	struct relay *relay;
	struct eye eye[2];
	struct kpipe *pipe[2]; /* by way; NULL: nothing in flight */
	uint8_t crumbs[2];
};

/* --- pipes --- */
static struct kpipe_pool *pipes_of(const struct relay *r)
{
	return &relay_shard(r->loop)->pipes;
}

static bool pipe_widen(int fd)
{
	int n = PIPE_BYTES;

	while (n >= PIPE_LEAST && fcntl(fd, F_SETPIPE_SZ, n) < n)
		n /= 4;
	return n >= PIPE_LEAST;
}

static struct kpipe *pipe_make(struct kpipe_pool *pool, uint64_t now_ms)
{
	struct kpipe *p = NULL;

	if (pool->made < pool->max && now_ms >= pool->ask_ms)
		p = slab_get(&pool->slab);
	if (!p)
		return NULL;
	if (pipe2(p->fd, O_NONBLOCK | O_CLOEXEC))
		goto fail_pipe;
	if (!pipe_widen(p->fd[1]))
		goto fail_size;
	p->held = 0;
	pool->made++;
	return p;

fail_size:
	close(p->fd[0]);
	close(p->fd[1]);
fail_pipe:
	pool->ask_ms = now_ms + ASK_AGAIN_MS;
	slab_put(&pool->slab, p);
	return NULL;
}

static struct kpipe *pipe_take(const struct relay *r)
{
	struct kpipe_pool *pool = pipes_of(r);
	struct kpipe *p = pool->free;

	if (!p)
		return pipe_make(pool, loop_now_ms(r->loop));
	pool->free = p->next;
	return p;
}

static void pipe_close(struct kpipe_pool *pool, struct kpipe *p)
{
	close(p->fd[0]);
	close(p->fd[1]);
	pool->made--;
	slab_put(&pool->slab, p);
}

static void pipe_give(struct kpipe_pool *pool, struct kpipe *p)
{
	must(p->held == 0);
	p->next = pool->free;
	pool->free = p;
}

/* Makes sure that one may be had now. */
static bool pipe_ready(const struct relay *r)
{
	struct kpipe *p = pipe_take(r);

	if (p)
		pipe_give(pipes_of(r), p);
	return p != NULL;
}

void splice_open(struct relay_shard *s, struct loop *l, unsigned pipes_max)
{
	slab_init(&s->bulks, "relay_bulks", sizeof(struct bulk), loop_budget(l));
	slab_init(&s->pipes.slab, "relay_pipes", sizeof(struct kpipe), loop_budget(l));
	s->pipes.max = loop_can_splice(l) ? pipes_max : 0;
}

void splice_close(struct relay_shard *s)
{
	struct kpipe *p;

	while ((p = s->pipes.free)) {
		s->pipes.free = p->next;
		pipe_close(&s->pipes, p);
	}
	must(s->pipes.made == 0);
	slab_close(&s->pipes.slab);
	slab_close(&s->bulks);
}

bool splice_holds(const struct relay *r, unsigned way)
{
	return r->bulk && r->bulk->pipe[way];
}

/* --- eyes --- */
/* What the two ways want of link i. */
static int32_t wanted(const struct relay *r, unsigned i)
{
	const struct way *in = &r->way[i], *out = &r->way[!i];
	const struct bulk *b = r->bulk;
	int32_t events = UNARMED;

	if (in->state == WAY_SPLICE && !in->eof) {
		if (!b->pipe[i])
			events = POLLIN;
		else if (!b->eye[i].woken)
			events = 0;
	}
	if (out->state == WAY_SPLICE && b->pipe[!i])
		events = events == UNARMED ? POLLOUT : events | POLLOUT;
	return events;
}

/* An armed poll that waits for more than is wanted may stay: it wakes once for nothing. */
static void aim(struct relay *r, unsigned i)
{
	struct eye *e = &r->bulk->eye[i];
	int32_t events = wanted(r, i);

	if (!op_idle(&e->op)) {
		if (events == UNARMED || (events & ~e->events))
			loop_cancel(r->loop, &e->op);
	} else if (events != UNARMED) {
		e->events = events;
		loop_poll(r->loop, &e->op, r->link[i]->fd, (unsigned)events);
	}
}

static void aim_both(struct relay *r)
{
	aim(r, OUT);
	aim(r, BACK);
}

static bool eyes_idle(const struct bulk *b)
{
	return op_idle(&b->eye[OUT].op) && op_idle(&b->eye[BACK].op);
}

static void free_bulk(struct relay *r)
{
	must(!r->bulk->pipe[OUT] && !r->bulk->pipe[BACK]);
	slab_put(&relay_shard(r->loop)->bulks, r->bulk);
	r->bulk = NULL;
}

/* Both ways copy again, and nothing of this file is under way: paused links are watched by link/
 * again. */
static void dissolve(struct relay *r)
{
	for (int i = 0; i < 2; i++)
		if (r->way[i].state != WAY_COPY || r->way[i].hushing)
			return;
	if (!eyes_idle(r->bulk))
		return;
	free_bulk(r);
	for (int i = 0; i < 2; i++)
		if (r->way[i].paused)
			link_pause(r->link[i]);
}

/* --- moving --- */
static void to_copy(struct relay *r, unsigned way)
{
	struct way *w = &r->way[way];

	must(!r->bulk->pipe[way]);
	w->state = WAY_COPY;
	w->quiet = false;
	w->run = 0;
	link_read(r->link[way]);
}

static void let_pipe_go(struct relay *r, unsigned way)
{
	pipe_give(pipes_of(r), r->bulk->pipe[way]);
	r->bulk->pipe[way] = NULL;
}

/* True: the pipe ran empty and is given back.  Else the reader is slow, or the relay is over. */
static bool drain(struct relay *r, unsigned way)
{
	struct kpipe *p = r->bulk->pipe[way];
	int to = r->link[!way]->fd;
	bool moved = false;

	while (p->held > 0) {
		ssize_t n = splice(p->fd[0], NULL, to, NULL, p->held,
				   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			relay_end(r, why(WHY_TUNNEL_RESET));
			return false;
		}
		p->held -= (uint32_t)n;
		moved = true;
	}
	if (p->held == 0)
		let_pipe_go(r, way);
	if (moved)
		relay_settle(r, way);
	return !r->over && !splice_holds(r, way);
}

/* Nothing could be had from the source: n is what splice(2) answered, 0 or -errno. */
static void nothing_came(struct relay *r, unsigned way, int n)
{
	let_pipe_go(r, way);
	if (n == 0) {
		r->way[way].eof = true;
		relay_settle(r, way);
	} else if (n == -EINVAL) {
		r->way[way].plain = true;
		to_copy(r, way);
	} else if (n != -EAGAIN && n != -EINTR) {
		relay_end(r, why(n == -ENOMEM ? WHY_MEMORY : WHY_TUNNEL_RESET));
	}
}

/* False: nothing came. */
static bool fill(struct relay *r, unsigned way)
{
	struct bulk *b = r->bulk;
	struct kpipe *p = b->pipe[way];
	ssize_t n = splice(r->link[way]->fd, NULL, p->fd[1], NULL, PIPE_BYTES,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	if (n <= 0) {
		nothing_came(r, way, n ? -errno : 0);
		return false;
	}
	p->held = (uint32_t)n;
	pipes_of(r)->spliced += (uint64_t)n;
	b->eye[way].woken = false;
	b->crumbs[way] = n < CRUMB ? b->crumbs[way] + 1 : 0;
	relay_moved(r, way, (uint64_t)n);
	return true;
}

/* First what the pipe holds, then one more filling. */
static void pump(struct relay *r, unsigned way)
{
	struct bulk *b = r->bulk;

	if (b->pipe[way] && !drain(r, way))
		return;
	b->pipe[way] = pipe_take(r);
	if (!b->pipe[way]) {
		to_copy(r, way);
		return;
	}
	if (fill(r, way) && drain(r, way) && b->crumbs[way] >= CRUMBS)
		to_copy(r, way);
}

/* What the poll of link i saw. */
static void look(struct relay *r, unsigned i, int32_t seen)
{
	struct bulk *b = r->bulk;

	if (seen < 0) {
		if (seen != -ECANCELED && seen != -EAGAIN && seen != -EINTR)
			relay_end(r, why(WHY_MEMORY));
		return;
	}
	if (seen & POLLERR) {
		relay_end(r, why(WHY_TUNNEL_RESET));
		return;
	}
	if (b->eye[i].events == 0)
		b->eye[i].woken = true;
	if (r->way[i].state == WAY_SPLICE && !r->way[i].eof && !b->pipe[i] && (seen & ~POLLOUT))
		pump(r, i);
	if (!r->over && (seen & (POLLOUT | POLLHUP)) && r->way[!i].state == WAY_SPLICE &&
	    b->pipe[!i])
		pump(r, !i);
}

static void on_eye(struct op *op, int32_t res)
{
	struct eye *e = container_of(op, struct eye, op);
	struct bulk *b = container_of(e - e->side, struct bulk, eye[0]);
	struct relay *r = b->relay;

	must(r->magic == RELAY_MAGIC && r->bulk == b);
	if (!r->over)
		look(r, e->side, res);
	if (r->over) {
		relay_gone(r);
		return;
	}
	relay_assert(r);
	aim_both(r);
	dissolve(r);
}

/* --- turning --- */
static bool need_bulk(struct relay *r)
{
	struct bulk *b;

	if (r->bulk)
		return true;
	b = slab_get(&relay_shard(r->loop)->bulks);
	if (!b)
		return false;
	memset(b, 0, sizeof(*b));
	b->relay = r;
	for (uint8_t i = 0; i < 2; i++) {
		op_init(&b->eye[i].op, on_eye);
		b->eye[i].side = i;
	}
	r->bulk = b;
	return true;
}

static void on_quiet(struct link *l)
{
	struct relay *r = l->owner;
	struct way *w = &r->way[l == r->link[BACK]];

	must(r->magic == RELAY_MAGIC && !r->over && r->bulk);
	if (w->state == WAY_TURNING) {
		w->quiet = true;
	} else {
		w->hushing = false;
		if (!w->paused)
			link_read(l);
	}
	splice_go(r, OUT);
	splice_go(r, BACK);
	dissolve(r);
}

void splice_hush(struct relay *r, unsigned way)
{
	r->way[way].hushing = true;
	link_quiet(r->link[way], on_quiet);
}

bool splice_turn(struct relay *r, unsigned way)
{
	struct way *w = &r->way[way];
	const struct link *beside = r->link[!way];
	bool watched = beside->watching ||
		       (!op_idle(&beside->recv) && beside->recv.kind == OP_POLL);

	must(w->state == WAY_COPY && !w->paused);
	if (w->plain || w->hushing || !pipe_ready(r) || !need_bulk(r)) {
		w->run = 0; /* asked again after as many bytes */
		return false;
	}
	w->state = WAY_TURNING;
	link_quiet(r->link[way], on_quiet);
	if (watched && !r->way[!way].hushing)
		splice_hush(r, !way);
	return true;
}

void splice_go(struct relay *r, unsigned way)
{
	struct way *w = &r->way[way];

	if (w->state != WAY_TURNING || !w->quiet || w->q || r->way[!way].hushing)
		return;
	w->state = WAY_SPLICE;
	r->bulk->crumbs[way] = 0;
	aim_both(r);
}

/* --- the end --- */
void splice_end(struct relay *r)
{
	for (int i = 0; r->bulk && i < 2; i++) {
		if (r->bulk->pipe[i])
			pipe_close(pipes_of(r), r->bulk->pipe[i]);
		r->bulk->pipe[i] = NULL;
	}
}

bool splice_gone(struct relay *r)
{
	if (!r->bulk)
		return true;
	if (!eyes_idle(r->bulk))
		return false;
	free_bulk(r);
	return true;
}

void splice_dump(const struct relay *r, int fd)
{
	const struct bulk *b = r->bulk;

	for (int i = 0; b && i < 2; i++)
		dprintf(fd, "    eye %d events %d state %u, pipe holds %u\n", i, b->eye[i].events,
			b->eye[i].op.state, b->pipe[i] ? b->pipe[i]->held : 0);
}
