/* conf_check.c -- what no single row can know: one setting against another.  Exports: conf_check*.
 *
 * Each check walks the structs and the nodes side by side; what was told to be wrong already (a bad
 * node) is passed over, so that one mistake gives one error. */
#include "ops/conf.h"

#include <stdlib.h>
#include <sys/stat.h>

#define SHOW(s) (int)(s).n, (s).p

static struct conf_node *first_of(struct conf_node *parent, const char *key)
{
	struct conf_node *n = conf_fill_get(parent, key);

	return n && n->kind != CONF_SCALAR ? n->first : NULL;
}

/* The value's node if it was read well. */
static struct conf_node *good(struct conf_node *parent, const char *key)
{
	struct conf_node *n = conf_fill_get(parent, key);

	return n && !n->bad ? n : NULL;
}

/* ---- things that must be different ---- */

struct twin {
	struct str s;
	struct conf_node *node;
	const char *kind; /* twins only within one kind; the very same pointer */
};

struct twins {
	struct conf *c;
	struct twin *v;
	uint32_t n, cap;
};

static void twins_add(struct twins *t, const char *kind, struct str s, struct conf_node *node)
{
	if (!node || node->bad || s.n == 0)
		return;
	if (t->n == t->cap) {
		uint32_t cap = t->cap ? t->cap * 2 : 16;
		struct twin *v = realloc(t->v, cap * sizeof(*v));

		if (!v) {
			t->c->oom = true;
			return;
		}
		t->v = v;
		t->cap = cap;
	}
	t->v[t->n++] = (struct twin){ s, node, kind };
}

static int twin_order(const void *a, const void *b)
{
	const struct twin *x = a, *y = b;
	uint32_t n = x->s.n < y->s.n ? x->s.n : y->s.n;
	int d = strcmp(x->kind, y->kind);

	if (d == 0)
		d = memcmp(x->s.p, y->s.p, n);
	if (d == 0 && x->s.n != y->s.n)
		d = x->s.n < y->s.n ? -1 : 1;
	if (d == 0)
		d = x->node->pos < y->node->pos ? -1 : 1;
	return d;
}

/* Tells each one but the first of those that are the same; frees the list. */
static void twins_tell(struct twins *t)
{
	uint32_t first = 0;

	if (t->n > 1)
		qsort(t->v, t->n, sizeof(*t->v), twin_order);
	for (uint32_t i = 1; i < t->n; i++) {
		struct twin *a = &t->v[first], *b = &t->v[i];

		if (!str_eq(a->s, b->s) || strcmp(a->kind, b->kind) != 0)
			first = i;
		else if (!b->node->bad)
			conf_error(t->c, b->node,
				   "%s \"%.*s\" stands here twice; the first is in line %u",
				   b->kind, SHOW(b->node->raw), a->node->line);
	}
	free(t->v);
	t->v = NULL;
	t->n = t->cap = 0;
}

/* ---- names that must be there ---- */

/* The nearest of n names at `names`, each `size` bytes after the other. */
static struct str nearest(struct str s, const struct str *names, uint32_t n, size_t size)
{
	const char *words[2] = { NULL, NULL };
	char room[80];

	for (uint32_t i = 0; i < n; i++) {
		const struct str *name =
			(const struct str *)(const void *)((const char *)names + i * size);

		if (name->n == 0 || name->n >= sizeof(room))
			continue;
		memcpy(room, name->p, name->n);
		room[name->n] = '\0';
		words[0] = room;
		if (conf_near(s, words))
			return *name;
	}
	return STR_NONE;
}

static void no_such(struct conf *c, struct conf_node *at, const char *what, struct str near)
{
	if (near.n)
		conf_error(c, at, "there is no %s \"%.*s\"; did you mean %.*s?", what,
			   SHOW(at->raw), SHOW(near));
	else
		conf_error(c, at, "there is no %s \"%.*s\"", what, SHOW(at->raw));
}

/* ---- files ---- */

/* The folder in which a file will be made must be there. */
static void check_folder(struct conf *c, struct conf_node *at, struct str path)
{
	char folder[4096];
	const char *slash = memrchr(path.p, '/', path.n);
	struct stat st;
	uint32_t n;

	if (!at || !slash || path.n >= sizeof(folder))
		return;
	memcpy(folder, path.p, path.n);
	folder[path.n] = '\0';
	if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) {
		conf_error(c, at, "\"%.*s\" is a folder", SHOW(at->raw));
		return;
	}
	n = slash == path.p ? 1 : (uint32_t)(slash - path.p);
	folder[n] = '\0';
	if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
		conf_error(c, at, "there is no folder %s", at->expanded ? "of this name" : folder);
}

static void check_logs(struct conf *c)
{
	struct str access = c->top->access_log.to, log = c->top->log.to;

	if (memchr(access.p, '/', access.n))
		check_folder(c, good(conf_fill_get(c->root, "access_log"), "to"), access);
	if (memchr(log.p, '/', log.n))
		check_folder(c, good(conf_fill_get(c->root, "log"), "to"), log);
	c->top->access_log.off = str_eq(access, STR("off"));
}

/* ---- listeners ---- */

static void check_allow_hosts(struct conf *c, const struct forward_conf *f,
			      struct conf_node *forward)
{
	struct conf_node *at = first_of(forward, "allow_hosts");

	for (uint32_t i = 0; i < f->n_allow_hosts && at; i++, at = at->next)
		if (str_eq(f->allow_hosts[i], STR("*")))
			conf_error(c, at, "leave allow_hosts out to allow every host");
}

static bool is_any(const struct addr *a)
{
	static const uint8_t zero[16];

	return a->u.sa.sa_family == AF_INET ? a->u.in.sin_addr.s_addr == 0
					    : memcmp(&a->u.in6.sin6_addr, zero, 16) == 0;
}

static void check_forward(struct conf *c, const struct listener_conf *l, struct conf_node *n)
{
	struct conf_node *bind = good(n, "bind"), *sites = conf_fill_get(n, "sites");

	if (sites)
		conf_error(c, sites->key, "sites are for serve: web");
	check_allow_hosts(c, &l->forward, conf_fill_get(n, "forward"));
	if (!bind || l->bind.kind != BIND_TCP || l->open || conf_fill_get(n, "allow_from"))
		return;
	if (is_any(&l->bind.addr) || addr_is_public(&l->bind.addr))
		conf_error(c, bind,
			   "a forward listener on a public address is open to all; "
			   "set allow_from, bind a private address, or insist with open: true");
}

static void check_listener_sites(struct conf *c, struct listener_conf *l, struct conf_node *n,
				 bool *used)
{
	const struct sites_conf *s = &c->top->sites;
	struct conf_node *at = first_of(n, "sites"), *all = conf_fill_get(c->root, "sites");
	uint32_t i, k;

	for (i = 0; i < s->n_sites && l->n_site_names == 0; i++)
		used[i] = true;
	if (all && all->bad)
		return;
	for (i = 0; i < l->n_site_names && at; i++, at = at->next) {
		if (at->bad)
			continue;
		for (k = 0; k < s->n_sites; k++)
			if (str_eq(s->sites[k].name, l->site_names[i]))
				break;
		if (k < s->n_sites)
			used[k] = true;
		else
			no_such(c, at, "site",
				s->n_sites ? nearest(l->site_names[i], &s->sites[0].name,
						     s->n_sites, sizeof(s->sites[0]))
					   : STR_NONE);
	}
}

static void check_web(struct conf *c, struct listener_conf *l, struct conf_node *n, bool *used)
{
	struct conf_node *x = conf_fill_get(n, "forward");

	if (x)
		conf_error(c, x->key, "forward is for serve: forward");
	x = conf_fill_get(n, "open");
	if (x && l->open)
		conf_error(c, x->key, "open is for serve: forward");
	if (c->top->sites.n_sites == 0 && good(n, "serve") && !conf_fill_get(c->root, "sites"))
		conf_error(c, good(n, "serve"), "serve: web needs sites, and there are none");
	check_listener_sites(c, l, n, used);
}

static void check_mode(struct conf *c, const struct bind_conf *b, struct conf_node *n)
{
	struct conf_node *mode = conf_fill_get(n, "mode"), *bind = good(n, "bind");

	if (mode && bind && b->kind != BIND_UNIX)
		conf_error(c, mode->key, "mode is for unix: sockets");
	if (bind && b->kind == BIND_UNIX)
		check_folder(c, bind, b->path);
}

static void check_unused_sites(struct conf *c, const bool *used)
{
	struct conf_node *n = first_of(c->root, "sites");

	for (uint32_t i = 0; i < c->top->sites.n_sites && n; i++, n = n->next)
		if (!used[i] && good(n, "name"))
			conf_warn(c, good(n, "name"), "no listener serves the site \"%.*s\"",
				  SHOW(good(n, "name")->raw));
}

static void check_listeners(struct conf *c)
{
	struct conf_node *n = first_of(c->root, "listeners");
	bool *used = arena_zalloc(&c->scratch, c->top->sites.n_sites + 1);
	struct twins names = { .c = c };
	uint32_t i;

	if (!used) {
		c->oom = true;
		return;
	}
	for (i = 0; i < c->top->listeners.n_listeners && n; i++, n = n->next) {
		struct listener_conf *l = &c->top->listeners.listeners[i];

		l->index = i;
		twins_add(&names, "the name", l->name, good(n, "name"));
		check_mode(c, &l->bind, n);
		if (!good(n, "serve"))
			memset(used, 1, c->top->sites.n_sites);
		else if (l->serve == SERVE_FORWARD)
			check_forward(c, l, n);
		else
			check_web(c, l, n, used);
	}
	twins_tell(&names);
	if (conf_fill_get(c->root, "listeners"))
		check_unused_sites(c, used);
}

/* ---- sites ---- */

/* Sites that one listener serves together must not share a host. */
static void check_hosts_of(struct conf *c, const struct listener_conf *l)
{
	struct conf_node *n = first_of(c->root, "sites"), *h;
	struct twins hosts = { .c = c };

	for (uint32_t i = 0; i < c->top->sites.n_sites && n; i++, n = n->next) {
		const struct site_conf *s = &c->top->sites.sites[i];
		bool served = l->n_site_names == 0;

		for (uint32_t k = 0; k < l->n_site_names; k++)
			served |= str_eq(l->site_names[k], s->name);
		h = served ? first_of(n, "hosts") : NULL;
		for (uint32_t k = 0; k < s->n_hosts && h; k++, h = h->next)
			twins_add(&hosts, "the host", s->hosts[k], h);
	}
	twins_tell(&hosts);
}

static const char *path_problem(enum path_error e)
{
	switch (e) {
	case PATH_OK: return NULL;
	case PATH_BAD_ESCAPE: return "has a % without two hex digits";
	case PATH_NUL: return "has a NUL";
	case PATH_BACKSLASH: return "has a backslash";
	case PATH_HIDDEN_DOTS: return "hides a dot segment behind an escape";
	case PATH_ABOVE_ROOT: return "leads above the root";
	case PATH_BAD_CHAR: return "has a character that must be written as %XX";
	case PATH_SLASH: return "has an escaped slash, which this site rejects";
	case PATH_NO_MEMORY: return "is too long to be judged";
	}
	return "is no path";
}

/* Requests are matched in the normal form; a path in another form would never match. */
static void check_path(struct conf *c, const struct site_conf *site, struct conf_node *at,
		       struct str path)
{
	unsigned flags = (site->keep_slashes ? PATH_KEEP_SLASHES : 0) |
			 (site->reject_encoded_slash ? PATH_REJECT_ENCODED_SLASH : 0);
	char *room = arena_alloc(&c->scratch, path.n + 1);
	uint32_t n = path.n;
	const char *wrong;

	if (!room) {
		c->oom = true;
		return;
	}
	memcpy(room, path.p, path.n);
	wrong = path_problem(path_normalise(room, &n, flags));
	if (wrong)
		conf_error(c, at, "the path \"%.*s\" %s", SHOW(at->raw), wrong);
	else if (!str_eq((struct str){ .p = room, .n = n }, path))
		conf_error(c, at, "the path \"%.*s\" is not in its normal form%s%.*s",
			   SHOW(at->raw), at->expanded ? "" : "; write ", at->expanded ? 0 : (int)n,
			   room);
}

static void check_match(struct conf *c, const struct site_conf *s, const struct route_conf *r,
			struct conf_node *n, struct twins *paths)
{
	struct conf_node *match = conf_fill_get(n, "match");
	struct conf_node *exact = conf_fill_get(match, "exact"),
			 *prefix = conf_fill_get(match, "prefix");

	if (!match || match->bad)
		return;
	if (exact && prefix) {
		conf_error(c, prefix->key, "exact and prefix exclude each other");
		return;
	}
	if (!exact && !prefix) {
		if (match->n == 0)
			conf_error(c, match, "match needs exact or prefix");
		return;
	}
	if (exact && !exact->bad)
		check_path(c, s, exact, r->exact);
	if (prefix && !prefix->bad)
		check_path(c, s, prefix, r->prefix);
	twins_add(paths, "the exact path", r->exact, exact);
	twins_add(paths, "the prefix", r->prefix, prefix);
}

static void check_respond(struct conf *c, const struct route_conf *r, struct conf_node *n)
{
	struct conf_node *at = conf_fill_get(n, "respond");
	uint16_t status = r->respond.status;

	if (!good(at, "body") || (status != 204 && status != 205 && status != 304))
		return;
	if (r->respond.body.n)
		conf_error(c, good(at, "body"), "an answer with status %u has no body", status);
}

static void check_redirect(struct conf *c, const struct route_conf *r, struct conf_node *n)
{
	struct conf_node *at = good(conf_fill_get(n, "redirect"), "status");
	uint16_t s = r->redirect.status;

	if (at && s != 301 && s != 302 && s != 303 && s != 307 && s != 308)
		conf_error(c, at, "status: \"%.*s\": must be 301, 302, 303, 307 or 308",
			   SHOW(at->raw));
}

static void check_upstream_name(struct conf *c, struct route_conf *r, struct conf_node *at,
				bool *used)
{
	const struct upstreams_conf *u = &c->top->upstreams;
	const struct conf_node *all = conf_fill_get(c->root, "upstreams");

	if (!at || (all && all->bad))
		return;
	for (uint32_t i = 0; i < u->n_upstreams; i++) {
		if (str_eq(u->upstreams[i].name, r->upstream_name)) {
			r->upstream = &u->upstreams[i];
			used[i] = true;
			return;
		}
	}
	no_such(c, at, "upstream",
		u->n_upstreams ? nearest(r->upstream_name, &u->upstreams[0].name, u->n_upstreams,
					 sizeof(u->upstreams[0]))
			       : STR_NONE);
}

static void check_answer(struct conf *c, struct route_conf *r, struct conf_node *n, bool *used)
{
	struct conf_node *up = conf_fill_get(n, "upstream"), *respond = conf_fill_get(n, "respond"),
			 *redirect = conf_fill_get(n, "redirect"),
			 *last = redirect ? redirect : respond;
	int answers = (up != NULL) + (respond != NULL) + (redirect != NULL);

	if (answers > 1)
		conf_error(c, last->key, "a route has one answer: upstream, respond or redirect");
	else if (answers == 0 && !n->bad)
		conf_error(c, n, "a route needs an answer: upstream, respond or redirect");
	r->answer = redirect ? ANSWER_REDIRECT : respond ? ANSWER_RESPOND : ANSWER_UPSTREAM;
	check_upstream_name(c, r, good(n, "upstream"), used);
	check_respond(c, r, n);
	check_redirect(c, r, n);
}

/* Some settings are judged before the route is known. */
static void check_early(struct conf *c, struct conf_node *route, const char *key,
			const struct setting_group *g)
{
	struct conf_node *n = first_of(route, key);
	uint32_t base;

	for (; n; n = n->next) {
		const struct setting *row = n->key ? conf_fill_row(g, n->key->raw, &base) : NULL;

		if (row && row->flags & SETTING_EARLY)
			conf_warn(c, n->key,
				  "%s is of no use in a route: "
				  "it is judged before the route is known",
				  row->name);
	}
}

static void check_routes(struct conf *c, struct site_conf *s, struct conf_node *site, bool *used)
{
	struct conf_node *n = first_of(site, "routes");
	struct twins paths = { .c = c }, names = { .c = c };

	for (uint32_t i = 0; i < s->n_routes && n; i++, n = n->next) {
		struct route_conf *r = &s->routes[i];

		if (n->kind != CONF_MAP)
			continue;
		twins_add(&names, "the route", r->name, good(n, "name"));
		check_match(c, s, r, n, &paths);
		check_answer(c, r, n, used);
		check_early(c, n, "timeouts", &exchange_conf_timeouts_group);
		check_early(c, n, "limits", &exchange_conf_limits_group);
	}
	twins_tell(&paths);
	twins_tell(&names);
}

static void check_sites(struct conf *c, bool *used)
{
	struct conf_node *n = first_of(c->root, "sites"), *h;
	struct twins names = { .c = c }, hosts = { .c = c };

	for (uint32_t i = 0; i < c->top->sites.n_sites && n; i++, n = n->next) {
		struct site_conf *s = &c->top->sites.sites[i];

		s->index = i;
		twins_add(&names, "the site", s->name, good(n, "name"));
		h = first_of(n, "hosts");
		for (uint32_t k = 0; k < s->n_hosts && h; k++, h = h->next)
			twins_add(&hosts, "the host", s->hosts[k], h);
		twins_tell(&hosts);
		check_routes(c, s, n, used);
	}
	twins_tell(&names);
	for (uint32_t i = 0; i < c->top->listeners.n_listeners; i++)
		if (c->top->listeners.listeners[i].serve == SERVE_WEB)
			check_hosts_of(c, &c->top->listeners.listeners[i]);
}

/* ---- upstreams ---- */

/* Of a request it is remembered, server by server, where it may go while it waits. */
static void check_limited(struct conf *c, const struct upstream_conf *u, struct conf_node *servers)
{
	bool limited = false;

	for (uint32_t i = 0; i < u->n_servers; i++)
		limited |= u->servers[i].max_connections != 0;
	if (limited && u->n_servers > LIMITED_SERVERS_MAX)
		conf_error(c, servers,
			   "servers: an upstream with max_connections has at most %u servers",
			   LIMITED_SERVERS_MAX);
}

static void check_upstreams(struct conf *c, const bool *used)
{
	struct conf_node *n = first_of(c->root, "upstreams"), *sn;
	struct twins servers = { .c = c };
	uint32_t index = 0;

	for (uint32_t i = 0; i < c->top->upstreams.n_upstreams && n; i++, n = n->next) {
		struct upstream_conf *u = &c->top->upstreams.upstreams[i];

		u->index = i;
		if (!used[i] && !n->key->bad && !n->bad)
			conf_warn(c, n->key, "no route uses the upstream \"%.*s\"",
				  SHOW(n->key->raw));
		check_limited(c, u, conf_fill_get(n, "servers"));
		sn = first_of(n, "servers");
		for (uint32_t k = 0; k < u->n_servers && sn; k++, sn = sn->next) {
			u->servers[k].index = index++;
			twins_add(&servers, "the server", u->servers[k].url,
				  sn->kind == CONF_SCALAR ? sn : good(sn, "url"));
		}
		twins_tell(&servers);
	}
}

/* ---- admin, limits ---- */

static void check_admin(struct conf *c)
{
	struct conf_node *n = conf_fill_get(c->root, "admin"), *bind = good(n, "bind");
	const struct admin_conf *a = &c->top->admin;

	if (!bind)
		return;
	check_mode(c, &a->bind, n);
	if (a->bind.kind == BIND_TCP && !addr_is_loopback(&a->bind.addr) &&
	    !conf_fill_get(n, "token") && !conf_fill_get(n, "allow_from"))
		conf_error(c, bind, "the admin port off loopback needs a token or allow_from");
}

void conf_check(struct conf *c)
{
	bool *used = arena_zalloc(&c->scratch, c->top->upstreams.n_upstreams + 1);

	if (!used) {
		c->oom = true;
		return;
	}
	check_allow_hosts(c, &c->top->forward, conf_fill_get(c->root, "forward"));
	check_listeners(c);
	conf_bind_check(c);
	check_sites(c, used);
	check_upstreams(c, used);
	check_logs(c);
	check_admin(c);
}
