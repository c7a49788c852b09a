/* conf_plan.c -- the last step: what is `auto` gets its number, what is inherited its value, sites
 * and routes their tables; then it is a plan.  Exports: conf_plan_*. */
#include "base/machine.h"
#include "ops/conf.h"

#include <grp.h>
#include <ifaddrs.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

/* Descriptors that are no clients' and no servers': listeners, logs, rings, resolvers, pipes. */
#define FDS_RESERVE          400u
#define FDS_PER_CLIENT       2u
#define CONNECTIONS_AUTO_MAX 100000u
#define MEMORY_AUTO_MAX      (1ull << 30)

static void *need(struct conf *c, size_t n)
{
	void *p = arena_zalloc(c->mem, n ? n : 1);

	c->oom |= !p;
	return p;
}

/* ---- numbers ---- */

static uint64_t connections_for(uint64_t fds, unsigned workers, uint32_t listeners)
{
	uint64_t reserve = 64 + (uint64_t)workers * (listeners + 32);

	if (reserve < FDS_RESERVE)
		reserve = FDS_RESERVE;
	if (reserve > fds / 2)
		reserve = fds / 2;
	fds = (fds - reserve) / FDS_PER_CLIENT;
	return fds < 1 ? 1 : fds;
}

static void resolve_numbers(struct conf *c, struct config *config, struct plan *plan)
{
	struct conf_top *top = c->top;
	uint64_t allowed;

	if (top->loop.workers == 0)
		top->loop.workers = cpus_usable() < 256 ? cpus_usable() : 256;
	config->fds_max = fds_usable();
	allowed = connections_for(config->fds_max, top->loop.workers, top->listeners.n_listeners);
	if (top->limits.connections == 0)
		top->limits.connections = allowed < CONNECTIONS_AUTO_MAX ? allowed
									 : CONNECTIONS_AUTO_MAX;
	else if (top->limits.connections > allowed)
		conf_warn(c, conf_fill_get(conf_fill_get(c->root, "limits"), "connections"),
			  "connections: RLIMIT_NOFILE %llu allows %llu; "
			  "raise it (LimitNOFILE=, ulimit -n)",
			  (unsigned long long)config->fds_max, (unsigned long long)allowed);
	if (top->limits.memory == 0) {
		top->limits.memory = memory_usable() / 2;
		if (top->limits.memory > MEMORY_AUTO_MAX)
			top->limits.memory = MEMORY_AUTO_MAX;
	}
	plan->workers = top->loop.workers;
	plan->connections_max = top->limits.connections;
	plan->memory_max = top->limits.memory;
	plan->upstream_pool = top->limits.upstream_pool;
}

/* ---- user ---- */

/* "uid:gid"; false: it is a name. */
static bool user_numbers(struct str s, struct config *config)
{
	const char *colon = memchr(s.p, ':', s.n);
	uint64_t uid, gid;

	if (!colon || !str_u64((struct str){ .p = s.p, .n = (uint32_t)(colon - s.p) }, &uid) ||
	    !str_u64((struct str){ .p = colon + 1, .n = (uint32_t)(s.p + s.n - colon - 1) }, &gid))
		return false;
	if (uid >= UINT32_MAX || gid >= UINT32_MAX)
		return false;
	config->uid = (uid_t)uid;
	config->gid = (gid_t)gid;
	return true;
}

static void resolve_user(struct conf *c, struct config *config)
{
	struct conf_node *at = conf_fill_get(c->root, "user");
	struct str user = c->top->user;
	struct passwd entry, *pw = NULL;
	char name[256], shown[256], room[4096];

	config->uid = geteuid();
	config->gid = getegid();
	if (user.n == 0 && config->uid != 0)
		return;
	if (user.n == 0)
		user = STR("nobody");
	c->top->user = config->user = user;
	if (!user_numbers(user, config)) {
		snprintf(name, sizeof(name), "%.*s", (int)user.n, user.p);
		if (getpwnam_r(name, &entry, room, sizeof(room), &pw) != 0 || !pw) {
			if (at)
				user = at->raw;
			snprintf(shown, sizeof(shown), "%.*s", (int)user.n, user.p);
			conf_error(c, at,
				   "there is no user \"%s\" on this machine; "
				   "write a name or \"uid:gid\"",
				   shown);
			return;
		}
		config->uid = pw->pw_uid;
		config->gid = pw->pw_gid;
	}
	config->drop = geteuid() == 0 && config->uid != 0;
}

/* ---- log files ---- */

static unsigned sink_of(struct config *config, struct str to)
{
	struct log_file *f = config->files;
	unsigned i;

	for (i = 0; i < config->n_files; i++)
		if (str_eq(f[i].path, to))
			return i;
	f[i].path = to;
	f[i].fd = str_eq(to, STR("stdout")) ? 1 : str_eq(to, STR("stderr")) ? 2 : -1;
	config->n_files++;
	return i;
}

static void resolve_files(struct conf *c, struct config *config)
{
	config->files = need(c, 2 * sizeof(*config->files));
	if (!config->files)
		return;
	if (!c->top->access_log.off)
		c->top->access_log.sink = sink_of(config, c->top->access_log.to);
	c->top->log.sink = sink_of(config, c->top->log.to);
}

/* ---- inheritance ---- */

/* A body limit that nobody wrote holds for web listeners only. */
static void resolve_listener(struct conf *c, struct listener_conf *l)
{
	struct conf_node *limits = conf_fill_get(c->root, "limits");

	if (l->serve == SERVE_FORWARD && l->limits.request_body == N_INHERIT &&
	    !conf_fill_get(limits, "request_body"))
		l->limits.request_body = N_OFF;
	conf_fill_merge(&exchange_conf_timeouts_group, &c->top->timeouts, &l->timeouts);
	conf_fill_merge(&exchange_conf_limits_group, &c->top->limits.each, &l->limits);
	if (l->serve == SERVE_FORWARD)
		conf_fill_merge(&policy_conf_forward_group, &c->top->forward, &l->forward);
}

/* What a route says, and the rest as its listener says. */
static void resolve_route(struct conf *c, struct listener_conf *l, const struct route_conf *r)
{
	struct timeouts *t;
	struct limits *m;

	if (r->has_timeouts && (t = need(c, sizeof(*t)))) {
		*t = r->timeouts;
		conf_fill_merge(&exchange_conf_timeouts_group, &l->timeouts, t);
		l->route_timeouts[r->index] = t;
	}
	if (r->has_limits && (m = need(c, sizeof(*m)))) {
		*m = r->limits;
		conf_fill_merge(&exchange_conf_limits_group, &l->limits, m);
		l->route_limits[r->index] = m;
	}
}

static void resolve_routes(struct conf *c, struct listener_conf *l, const struct plan *plan)
{
	l->route_timeouts = need(c, plan->n_routes * sizeof(struct timeouts *));
	l->route_limits = need(c, plan->n_routes * sizeof(struct limits *));
	if (!l->route_timeouts || !l->route_limits)
		return;
	for (uint32_t i = 0; i < plan->n_sites; i++)
		for (uint32_t k = 0; k < plan->sites[i].n_routes; k++)
			resolve_route(c, l, &plan->sites[i].routes[k]);
}

/* ---- own addresses: what no exception of deny_to lifts ---- */

struct own {
	struct addr *v; /* NULL: only counted */
	uint32_t n;
};

static void own_put(struct own *o, const struct addr *a, uint16_t port)
{
	if (o->v) {
		o->v[o->n] = *a;
		addr_set_port(&o->v[o->n], port);
	}
	o->n++;
}

/* A wildcard is every address of the machine; it stands there itself too. */
static void own_any(struct own *o, const struct bind_conf *b, const struct ifaddrs *all)
{
	uint16_t port = addr_port(&b->addr);
	struct addr a;

	if (b->dual) {
		must(addr_parse_ip(STR("0.0.0.0"), port, &a));
		own_put(o, &a, port);
	}
	for (; all; all = all->ifa_next) {
		int family = all->ifa_addr ? all->ifa_addr->sa_family : AF_UNSPEC;

		if (family != AF_INET && family != AF_INET6)
			continue;
		if (!b->dual && family != b->addr.u.sa.sa_family)
			continue;
		memset(&a, 0, sizeof(a));
		a.len = family == AF_INET ? sizeof(a.u.in) : sizeof(a.u.in6);
		memcpy(&a.u, all->ifa_addr, a.len);
		if (family == AF_INET6)
			a.u.in6.sin6_scope_id = 0;
		own_put(o, &a, port);
	}
}

static void own_bind(struct own *o, const struct bind_conf *b, const struct ifaddrs *all)
{
	static const uint8_t zero[16];
	bool any;

	if (b->kind != BIND_TCP)
		return;
	own_put(o, &b->addr, addr_port(&b->addr));
	any = b->addr.u.sa.sa_family == AF_INET ? b->addr.u.in.sin_addr.s_addr == 0
						: memcmp(&b->addr.u.in6.sin6_addr, zero, 16) == 0;
	if (any)
		own_any(o, b, all);
}

static void own_all(struct own *o, const struct conf_top *top, const struct ifaddrs *all)
{
	o->n = 0;
	if (top->admin.on)
		own_bind(o, &top->admin.bind, all);
	for (uint32_t i = 0; i < top->listeners.n_listeners; i++)
		if (top->listeners.listeners[i].serve == SERVE_FORWARD)
			own_bind(o, &top->listeners.listeners[i].bind, all);
}

static void resolve_own(struct conf *c)
{
	struct own own = { .v = NULL };
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all) != 0)
		all = NULL;
	own_all(&own, c->top, all);
	own.v = need(c, own.n * sizeof(*own.v));
	if (own.v)
		own_all(&own, c->top, all);
	if (all)
		freeifaddrs(all);
	c->top->forward.own = own.v;
	c->top->forward.n_own = own.v ? own.n : 0;
	for (uint32_t i = 0; i < c->top->listeners.n_listeners; i++) {
		c->top->listeners.listeners[i].forward.own = c->top->forward.own;
		c->top->listeners.listeners[i].forward.n_own = c->top->forward.n_own;
	}
}

/* ---- tables ---- */

static void compile_sites(struct conf *c, struct plan *plan)
{
	for (uint32_t i = 0; i < plan->n_sites; i++) {
		plan->sites[i].table = route_compile(c->mem, &plan->sites[i]);
		c->oom |= !plan->sites[i].table;
	}
}

static void compile_hosts(struct conf *c, struct listener_conf *l, const struct plan *plan)
{
	const struct site_conf **sites = need(c, plan->n_sites * sizeof(struct site_conf *));
	uint32_t n = 0;

	if (!sites)
		return;
	for (uint32_t i = 0; i < plan->n_sites; i++) {
		bool served = l->n_site_names == 0;

		for (uint32_t k = 0; k < l->n_site_names; k++)
			served |= str_eq(l->site_names[k], plan->sites[i].name);
		if (served)
			sites[n++] = &plan->sites[i];
	}
	l->hosts = host_compile(c->mem, sites, n);
	c->oom |= !l->hosts;
}

static void number_routes(struct plan *plan)
{
	for (uint32_t i = 0; i < plan->n_sites; i++)
		for (uint32_t k = 0; k < plan->sites[i].n_routes; k++)
			plan->sites[i].routes[k].index = plan->n_routes++;
}

/* Who we are in Via: two culverts in a chain are no loop.  A proxy that the keeper starts again is
 * the same one. */
static void name_us(struct conf *c, struct plan *plan)
{
	uint32_t x = (uint32_t)getpid();
	char name[32];

	if (getrandom(&x, sizeof(x), GRND_NONBLOCK) != sizeof(x))
		x ^= (uint32_t)(uintptr_t)plan;
	snprintf(name, sizeof(name), "culvert-%08x", x);
	plan->pseudonym = str_of(arena_cstr(c->mem, str_of(name)));
	c->oom |= !plan->pseudonym.p;
}

static void copy_top(const struct conf_top *top, struct config *config, struct plan *plan)
{
	plan->io = top->loop.io;
	plan->listeners = top->listeners.listeners;
	plan->n_listeners = top->listeners.n_listeners;
	plan->forward = top->forward;
	plan->sites = top->sites.sites;
	plan->n_sites = top->sites.n_sites;
	plan->upstreams = top->upstreams.upstreams;
	plan->n_upstreams = top->upstreams.n_upstreams;
	plan->identity = top->identity;
	plan->resolver = top->resolver;
	plan->timeouts = top->timeouts;
	plan->limits = top->limits.each;
	plan->half_close_abort = top->half_close == 1;
	plan->access_log = top->access_log;
	config->drain = top->drain;
	config->log = top->log;
	config->admin = top->admin;
	config->top = top;
}

void conf_plan_build(struct conf *c, struct config *config, struct plan *plan)
{
	resolve_numbers(c, config, plan);
	resolve_user(c, config);
	if (c->errors || c->oom)
		return;
	resolve_files(c, config);
	for (uint32_t i = 0; i < c->top->listeners.n_listeners; i++)
		resolve_listener(c, &c->top->listeners.listeners[i]);
	resolve_own(c);
	name_us(c, plan);
	copy_top(c->top, config, plan);
	number_routes(plan);
	if (c->oom)
		return;
	compile_sites(c, plan);
	for (uint32_t i = 0; i < plan->n_listeners && !c->oom; i++) {
		resolve_routes(c, &plan->listeners[i], plan);
		compile_hosts(c, &plan->listeners[i], plan);
	}
}
