/* conf_bind.c -- binds against each other.  Exports: conf_bind_*.
 *
 * "*:80" and "[::]:80" take IPv4 and IPv6: they clash with everything on the port.  "0.0.0.0:80"
 * clashes with every IPv4 address on the port.  A Unix path is one socket. */
#include "ops/conf.h"

struct bound_at {
	const struct bind_conf *bind;
	struct conf_node *node;
};

static bool is_any(const struct addr *a)
{
	static const uint8_t zero[16];

	if (a->u.sa.sa_family == AF_INET)
		return a->u.in.sin_addr.s_addr == 0;
	return memcmp(&a->u.in6.sin6_addr, zero, 16) == 0;
}

static bool clash(const struct bind_conf *a, const struct bind_conf *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == BIND_UNIX)
		return str_eq(a->path, b->path);
	if (addr_port(&a->addr) != addr_port(&b->addr))
		return false;
	if (a->dual || b->dual)
		return true;
	if (a->addr.u.sa.sa_family != b->addr.u.sa.sa_family)
		return false;
	return is_any(&a->addr) || is_any(&b->addr) || addr_same_ip(&a->addr, &b->addr);
}

/* All binds that could be read: listeners, then the admin port. */
static uint32_t collect(struct conf *c, struct bound_at *v)
{
	struct conf_node *l = conf_fill_get(c->root, "listeners"), *at;
	uint32_t n = 0, i = 0;

	for (l = l && l->kind == CONF_LIST ? l->first : NULL; l; l = l->next, i++) {
		at = conf_fill_get(l, "bind");
		if (at && !at->bad && i < c->top->listeners.n_listeners)
			v[n++] = (struct bound_at){ &c->top->listeners.listeners[i].bind, at };
	}
	at = conf_fill_get(conf_fill_get(c->root, "admin"), "bind");
	if (at && !at->bad)
		v[n++] = (struct bound_at){ &c->top->admin.bind, at };
	return n;
}

void conf_bind_check(struct conf *c)
{
	struct bound_at *v =
		arena_alloc(&c->scratch, (c->top->listeners.n_listeners + 1) * sizeof(*v));
	uint32_t n;

	if (!v) {
		c->oom = true;
		return;
	}
	n = collect(c, v);
	for (uint32_t i = 1; i < n; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (!clash(v[i].bind, v[j].bind))
				continue;
			conf_error(c, v[i].node, "bind: \"%.*s\" clashes with \"%.*s\" in line %u",
				   (int)v[i].node->raw.n, v[i].node->raw.p, (int)v[j].node->raw.n,
				   v[j].node->raw.p, v[j].node->line);
			break;
		}
	}
}
