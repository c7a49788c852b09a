/* proxy.c -- the proxy process: drops its privileges, starts the shards, drains them.
 *
 *   main thread    waits for the keeper's words (drain, end, a log file opened again) and drives
 *                  the drain by mail
 *   shard threads  one loop and one service each; shard 0 has the admin port too
 *   log writer     base/log.c
 *
 *   drain:  readiness ─ delay ─► stop accepting, close idle ones ─ deadline ─► cut what still runs
 *                                └──── all ended ────────────────────────────► exit 0 (cut: 3) */
#include "ops/admin.h"
#include "ops/gauges.h"
#include "ops/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ACCESS_RING (1u << 20) /* bytes per shard */

enum order { ORDER_DRAIN = 0, ORDER_STOP, ORDER_CUT, ORDERS };

struct proxy;
struct shard {
	struct proxy *proxy;
	unsigned number;
	pthread_t thread;
	bool started;
	struct loop *loop;
	struct service *service;
	struct admin *admin;
	bool stopped; /* it accepts no more, and has told so */
	bool ended;   /* its service has told so */
	_Atomic unsigned n_cut;
	struct mail order[ORDERS];
	int *listen_fds;
	bool *listen_shared;
	char io_why[128];
};

struct proxy {
	const struct proxy_params *p;
	const struct plan *plan;
	struct service_shared shared;
	struct budget budget;
	struct shard *shard;
	unsigned n_shards;
	struct log_sink **sinks; /* by config->files index */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned n_ready, n_failed, n_stopped, n_ended;
	/* All shards have ended: 1: shard 0 may go, whose admin port reads of all loops; 2: all
	 * may. */
	unsigned leave;
	int wake[2]; /* pipe: a shard's news for the main thread */
};

/* ---------------------------------------------------------------- privileges */
/* While we still may. */
static void drop_bounding_set(void)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

static int drop_privileges(const struct config *c)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (!c->drop)
		return 0;
	drop_bounding_set();
	if (setgroups(0, NULL) < 0 || setresgid(c->gid, c->gid, c->gid) < 0)
		return -errno;
	if (setresuid(c->uid, c->uid, c->uid) < 0)
		return -errno;
	/* A change of user clears it; the keeper's death must still end us. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() == 1)
		return -ESRCH;
	return drop_capabilities();
}

/* ---------------------------------------------------------------- shards */
static void tell_main(struct proxy *x)
{
	char one = 1;
	ssize_t n = write(x->wake[1], &one, 1);

	(void)n; /* full: it has news enough */
}

static void count_up(struct proxy *x, unsigned *what)
{
	pthread_mutex_lock(&x->lock);
	(*what)++;
	pthread_cond_broadcast(&x->changed);
	pthread_mutex_unlock(&x->lock);
	tell_main(x);
}

static void on_service_ended(void *arg)
{
	struct shard *s = arg;

	s->ended = true;
}

static struct shard *shard_of_mail(struct mail *m, enum order o)
{
	return (struct shard *)(void *)((char *)m - offsetof(struct shard, order) -
					(unsigned)o * sizeof(struct mail));
}

static void on_drain(struct loop *l, struct mail *m)
{
	(void)l;
	service_drain(shard_of_mail(m, ORDER_DRAIN)->service);
}

static void on_stop(struct loop *l, struct mail *m)
{
	struct shard *s = shard_of_mail(m, ORDER_STOP);

	(void)l;
	service_stop(s->service, on_service_ended, s);
}

static void on_cut(struct loop *l, struct mail *m)
{
	struct shard *s = shard_of_mail(m, ORDER_CUT);

	(void)l;
	atomic_store(&s->n_cut, service_cut(s->service));
}

static void give_order(struct proxy *x, enum order o)
{
	static void (*const open[ORDERS])(struct loop *, struct mail *) = { on_drain, on_stop,
									    on_cut };

	for (unsigned i = 0; i < x->n_shards; i++) {
		struct shard *s = &x->shard[i];

		s->order[o].open = open[o];
		(void)loop_post(s->loop, &s->order[o]);
	}
}

static struct log_ring *access_ring(struct proxy *x)
{
	if (x->plan->access_log.off)
		return NULL;
	return log_ring_new(x->sinks[x->plan->access_log.sink], ACCESS_RING);
}

static int open_shard(struct shard *s)
{
	struct proxy *x = s->proxy;
	struct loop_params lp = { .io = (enum loop_io)x->plan->io,
				  .budget = &x->budget,
				  .shard = s->number,
				  .fds_max = (uint32_t)x->p->config->fds_max };
	struct service_params sp = { .plan = x->plan,
				     .shared = &x->shared,
				     .listen_fds = s->listen_fds,
				     .listen_shared = s->listen_shared };

	s->loop = loop_new(&lp, s->io_why);
	if (!s->loop) {
		log_say(LOG_ERROR, "shard %u: no event loop: %s", s->number, s->io_why);
		return -1;
	}
	sp.loop = s->loop;
	sp.access = access_ring(x);
	if (!sp.access && !x->plan->access_log.off)
		return -1;
	s->service = service_open(&sp);
	if (!s->service)
		log_say(LOG_ERROR, "shard %u: out of memory at start", s->number);
	return s->service ? 0 : -1;
}

static int open_admin(struct shard *s)
{
	struct proxy *x = s->proxy;
	const struct config *c = x->p->config;
	const struct bound *b = &x->p->bound[x->plan->n_listeners];

	if (s->number != 0 || !c->admin.on)
		return 0;
	s->admin = admin_open(s->loop, &c->admin, b->fds[0], b->shared, &x->shared);
	if (!s->admin)
		log_say(LOG_ERROR, "admin port %s: out of memory", c->admin.bind.text.p);
	return s->admin ? 0 : -1;
}

/* Shard 0 outlives the others' services: the admin port answers until the end. */
static bool wait_to_leave(struct shard *s)
{
	struct proxy *x = s->proxy;
	bool leave;

	pthread_mutex_lock(&x->lock);
	leave = x->leave > (s->number > 0);
	pthread_mutex_unlock(&x->lock);
	return leave;
}

/* The members of a group of sockets close together: what queues at one that closes alone is
 * reset. */
static void tell_stopped(struct shard *s)
{
	if (s->stopped || !service_stopped(s->service))
		return;
	s->stopped = true;
	count_up(s->proxy, &s->proxy->n_stopped);
}

static void run_shard(struct shard *s)
{
	while (!s->ended) {
		loop_turn(s->loop, 1000);
		tell_stopped(s);
	}
	count_up(s->proxy, &s->proxy->n_ended);
	while (!wait_to_leave(s))
		loop_turn(s->loop, 10);
}

static void close_shard(struct shard *s)
{
	admin_stop(&s->admin);
	if (s->service)
		service_close(&s->service);
	loop_free(&s->loop);
}

static void *shard_main(void *arg)
{
	struct shard *s = arg;
	struct proxy *x = s->proxy;
	char name[16];

	snprintf(name, sizeof(name), "shard %u", s->number);
	pthread_setname_np(pthread_self(), name);
	if (open_shard(s) < 0 || open_admin(s) < 0) {
		count_up(x, &x->n_failed);
		return NULL; /* the process ends as it is: its start has failed */
	}
	count_up(x, &x->n_ready);
	run_shard(s);
	close_shard(s);
	return NULL;
}

static bool share_out(struct proxy *x, struct shard *s)
{
	unsigned n = x->plan->n_listeners;

	s->listen_fds = calloc(n + 1, sizeof(*s->listen_fds));
	s->listen_shared = calloc(n + 1, sizeof(*s->listen_shared));
	if (!s->listen_fds || !s->listen_shared)
		return false;
	for (unsigned i = 0; i < n; i++) {
		const struct bound *b = &x->p->bound[i];

		s->listen_fds[i] = b->fds[b->n > s->number ? s->number : 0];
		s->listen_shared[i] = b->shared;
	}
	return true;
}

static int start_shards(struct proxy *x)
{
	x->n_shards = x->plan->workers;
	x->shard = calloc(x->n_shards, sizeof(*x->shard));
	if (!x->shard)
		return -ENOMEM;
	for (unsigned i = 0; i < x->n_shards; i++) {
		struct shard *s = &x->shard[i];

		s->proxy = x;
		s->number = i;
		if (!share_out(x, s) || pthread_create(&s->thread, NULL, shard_main, s) != 0)
			return -ENOMEM;
		s->started = true;
	}
	pthread_mutex_lock(&x->lock);
	while (x->n_ready + x->n_failed < x->n_shards)
		pthread_cond_wait(&x->changed, &x->lock);
	pthread_mutex_unlock(&x->lock);
	return x->n_failed ? -EIO : 0;
}

static void may_leave(struct proxy *x, unsigned who)
{
	pthread_mutex_lock(&x->lock);
	x->leave = who;
	pthread_mutex_unlock(&x->lock);
}

static void join_shards(struct proxy *x)
{
	may_leave(x, 1);
	for (unsigned i = 0; i < x->n_shards; i++) {
		pthread_join(x->shard[i].thread, NULL);
		if (i == 0)
			may_leave(x, 2);
		free(x->shard[i].listen_fds);
		free(x->shard[i].listen_shared);
	}
	free(x->shard);
}

/* ---------------------------------------------------------------- what is shared */
static int open_sinks(struct proxy *x)
{
	const struct config *c = x->p->config;

	x->sinks = calloc(c->n_files + 1, sizeof(struct log_sink *));
	if (!x->sinks)
		return -ENOMEM;
	for (unsigned i = 0; i < c->n_files; i++) {
		x->sinks[i] = log_sink_new(c->files[i].path.p, c->files[i].fd);
		if (!x->sinks[i])
			return -ENOMEM;
	}
	log_say_open(x->sinks[c->log.sink], (enum log_level)c->log.level,
		     (enum log_format)c->log.format);
	return 0;
}

static struct plan *writable(const struct plan *p)
{
	return (struct plan *)(uintptr_t)p;
}

static int open_upstreams(struct proxy *x)
{
	struct plan *plan = writable(x->plan);

	for (uint32_t i = 0; i < plan->n_upstreams; i++) {
		plan->upstreams[i].live =
			upstream_new(&plan->upstreams[i], x->shared.metrics, plan->workers);
		if (!plan->upstreams[i].live)
			return -ENOMEM;
	}
	return 0;
}

static int open_shared(struct proxy *x)
{
	x->budget.max = x->plan->memory_max;
	x->shared.budget = &x->budget;
	x->shared.metrics = metrics_new(x->plan->workers);
	x->shared.handover = handover_new(x->plan->workers);
	if (!x->shared.metrics || !x->shared.handover)
		return -ENOMEM;
	if (open_upstreams(x) < 0)
		return -ENOMEM;
	return pipe2(x->wake, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0;
}

static void close_shared(struct proxy *x)
{
	struct plan *plan = writable(x->plan);

	metrics_free(&x->shared.metrics);
	for (uint32_t i = 0; i < plan->n_upstreams; i++)
		upstream_free(&plan->upstreams[i].live);
	handover_free(&x->shared.handover);
	free(x->sinks);
	close(x->wake[0]);
	close(x->wake[1]);
}

static void dump_all(int fd, void *arg)
{
	const struct proxy *x = arg;

	for (unsigned i = 0; i < x->n_shards; i++) {
		if (x->shard[i].service)
			service_dump(x->shard[i].service, fd);
		if (x->shard[i].loop)
			loop_dump(x->shard[i].loop, fd);
	}
}

static void open_gauges(struct proxy *x)
{
	struct gauges_params g = { .shared = &x->shared,
				   .version = x->p->version,
				   .io = loop_io_name(x->shard[0].loop),
				   .sinks = x->sinks,
				   .n_sinks = x->p->config->n_files,
				   .n_shards = x->n_shards };

	for (unsigned i = 0; i < x->n_shards && i < GAUGES_SHARDS; i++)
		g.loops[i] = x->shard[i].loop;
	gauges_open(&g);
}

/* ---------------------------------------------------------------- the main thread */
static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

enum phase { RUNNING = 0, READINESS, STOPPING, CUTTING };
struct drain {
	enum phase phase;
	uint64_t due_ms; /* of the next phase; 0: none */
	bool doors_closed;
};

static void begin_drain(struct proxy *x, struct drain *d)
{
	if (d->phase != RUNNING)
		return;
	d->phase = READINESS;
	d->due_ms = now_ms() + x->p->config->drain.delay_ms;
	atomic_store(&x->shared.draining, true);
	give_order(x, ORDER_DRAIN);
}

static void next_phase(struct proxy *x, struct drain *d)
{
	uint32_t deadline = x->p->config->drain.deadline_ms;

	d->due_ms = 0;
	if (d->phase == READINESS) {
		d->phase = STOPPING;
		d->due_ms = deadline ? now_ms() + deadline : 0;
		give_order(x, ORDER_STOP);
	} else if (d->phase == STOPPING) {
		d->phase = CUTTING;
		give_order(x, ORDER_CUT);
	}
}

static void swap_log(struct proxy *x, unsigned index, int fd)
{
	int old;

	if (index >= x->p->config->n_files || fd < 0)
		return;
	old = log_sink_swap_fd(x->sinks[index], fd);
	if (old > 2)
		close(old);
}

/* False: the process shall end now. */
static bool on_keeper(struct proxy *x, struct drain *d)
{
	unsigned index = 0;
	int fd = -1;

	switch (keeper_recv(x->p->keeper_fd, &index, &fd)) {
	case KEEPER_DRAIN: begin_drain(x, d); return true;
	case KEEPER_LOG: swap_log(x, index, fd); return true;
	default: /* KEEPER_END, or the keeper is gone */ return false;
	}
}

static bool all_have(struct proxy *x, const unsigned *what)
{
	bool all;

	pthread_mutex_lock(&x->lock);
	all = *what == x->n_shards;
	pthread_mutex_unlock(&x->lock);
	return all;
}

/* From now on new connections are refused.  The admin port stays; a Unix socket's path is the
 * keeper's. */
static void close_doors(struct proxy *x, struct drain *d)
{
	if (d->doors_closed || !all_have(x, &x->n_stopped))
		return;
	d->doors_closed = true;
	for (unsigned i = 0; i < x->plan->n_listeners; i++)
		listen_unbind(&x->p->bound[i], NULL);
	(void)keeper_send(x->p->keeper_fd, KEEPER_STOPPED, 0, -1);
}

static int wait_ms(const struct drain *d)
{
	uint64_t now = now_ms();

	if (!d->due_ms)
		return -1;
	return d->due_ms > now ? (int)(d->due_ms - now) : 0;
}

static unsigned how_many_cut(const struct proxy *x)
{
	unsigned n = 0;

	for (unsigned i = 0; i < x->n_shards; i++)
		n += atomic_load(&x->shard[i].n_cut);
	return n;
}

/* 0: drained; 3: something was cut; -1: end at once. */
static int serve_until_drained(struct proxy *x)
{
	struct drain d = { .phase = RUNNING };
	char news[64];

	for (;;) {
		struct pollfd p[2] = { { .fd = x->p->keeper_fd, .events = POLLIN },
				       { .fd = x->wake[0], .events = POLLIN } };

		if (poll(p, 2, wait_ms(&d)) < 0 && errno != EINTR)
			return -1;
		while (p[1].revents && read(x->wake[0], news, sizeof(news)) > 0)
			;
		close_doors(x, &d);
		if (all_have(x, &x->n_ended))
			return how_many_cut(x) ? 3 : 0;
		if (p[0].revents && !on_keeper(x, &d))
			return -1;
		if (d.due_ms && now_ms() >= d.due_ms)
			next_phase(x, &d);
	}
}

static void say_started(const struct proxy *x)
{
	log_say(LOG_INFO, "culvert %s serves: %u listeners, workers %u, io %s", x->p->version,
		x->plan->n_listeners, x->n_shards, x->shard[0].io_why);
}

static int start(struct proxy *x)
{
	int rc = open_sinks(x);

	if (rc == 0)
		rc = drop_privileges(x->p->config);
	if (rc < 0) {
		log_say(LOG_ERROR, "start: privileges could not be dropped: %s", strerror(-rc));
		return rc;
	}
	rc = open_shared(x);
	if (rc == 0)
		rc = log_writer_start();
	panic_signals();
	panic_hook(dump_all, x);
	if (rc == 0)
		rc = start_shards(x);
	if (rc < 0)
		log_say(LOG_ERROR, "start failed: %s", strerror(-rc));
	return rc;
}

static noreturn void end_at_once(struct proxy *x)
{
	unsigned long long n = atomic_load(&x->shared.n_connections);

	log_say(LOG_WARN, "ended at once: %llu connections were cut", n);
	log_writer_stop();
	_exit(n ? 3 : 0);
}

int proxy_run(const struct proxy_params *p)
{
	struct proxy x = { .p = p, .plan = p->config->plan };
	int code;

	pthread_mutex_init(&x.lock, NULL);
	pthread_cond_init(&x.changed, NULL);
	if (start(&x) < 0) {
		log_writer_stop();
		return 1;
	}
	open_gauges(&x);
	atomic_store_explicit(&x.shared.started, true, memory_order_release);
	say_started(&x);
	(void)keeper_send(p->keeper_fd, KEEPER_READY, 0, -1);
	code = serve_until_drained(&x);
	if (code < 0)
		end_at_once(&x);
	join_shards(&x);
	log_say(LOG_INFO, code ? "the drain's deadline cut what still ran" : "drained");
	log_writer_stop();
	close_shared(&x);
	return code;
}
