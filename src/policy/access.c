/* access.c -- who may ask, and what the forward direction may reach.
 *
 * Names are judged before resolving (allow_hosts, allow_ports); addresses just before each is
 * dialled, so that no name and no second answer leads around it.  Pure. */
#include "policy/policy.h"

bool access_from(const struct addr_net *nets, uint32_t n, const struct addr *client)
{
	if (n == 0 || client->u.sa.sa_family == AF_UNIX)
		return true;
	return addr_find_net(client, nets, n) != NULL;
}

/* "*.example.com": one or more labels before it, not the bare name. */
static bool host_matches(struct str pattern, struct str host)
{
	if (str_eq(pattern, STR("*")))
		return true;
	if (pattern.n < 2 || pattern.p[0] != '*')
		return str_eq(pattern, host);
	pattern.p++;
	pattern.n--;
	return host.n > pattern.n &&
	       memcmp(host.p + host.n - pattern.n, pattern.p, pattern.n) == 0 && host.p[0] != '.';
}

static bool host_allowed(const struct forward_conf *f, struct str host, bool is_literal)
{
	for (uint32_t i = 0; i < f->n_allow_hosts; i++) {
		if (is_literal ? str_eq(f->allow_hosts[i], host)
			       : host_matches(f->allow_hosts[i], host))
			return true;
	}
	return false;
}

static bool port_allowed(const struct forward_conf *f, uint16_t port)
{
	for (uint32_t i = 0; i < f->n_allow_ports; i++)
		if (f->allow_ports[i] == port)
			return true;
	return false;
}

const struct why *access_target(const struct forward_conf *f, struct str host, bool is_literal,
				uint16_t port)
{
	if (!port_allowed(f, port))
		return why(WHY_PORT_DENIED);
	if (f->has_allow_hosts && !host_allowed(f, host, is_literal))
		return why(WHY_HOST_DENIED);
	return why(WHY_NONE);
}

static bool is_own(const struct forward_conf *f, const struct addr *a)
{
	uint8_t ip[16], mine[16], any[16] = { 0 }, any4[16] = { 0 };

	any4[10] = any4[11] = 0xff;
	addr_ip16(a, ip);
	for (uint32_t i = 0; i < f->n_own; i++) {
		bool local = addr_is_loopback(a);

		if (addr_port(&f->own[i]) != addr_port(a))
			continue;
		addr_ip16(&f->own[i], mine);
		if (memcmp(mine, ip, 16) == 0)
			return true;
		if ((memcmp(mine, any, 16) == 0 || memcmp(mine, any4, 16) == 0) &&
		    (local || !addr_is_public(a)))
			return true;
	}
	return false;
}

/* The most specific prefix wins; at a tie the denial. */
bool access_dial(const struct forward_conf *f, const struct addr *a)
{
	const struct addr_net *deny = addr_find_net(a, f->deny_to, f->n_deny_to);
	const struct addr_net *except = addr_find_net(a, f->deny_to_except, f->n_deny_to_except);

	if (is_own(f, a))
		return false;
	if (except && (!deny || except->bits > deny->bits))
		return true;
	return !deny && addr_is_public(a);
}
