/* dns.c -- questions to name servers.  The only file that knows c-ares.  Exports: dns_*
 *
 * c-ares brings retries, server rotation, EDNS, TCP after truncation, and checks that an answer
 * comes from the server asked and fits the question.  Its sockets are opened and closed here, so
 * that a descriptor is never closed under an armed poll; its deadlines ring in the loop's wheel.
 *
 *     socket   dns_sock, one poll op each; outlives its channel until the op is idle
 *     query    one type of one name; dropped ones run to their end unheard */
#include "link/names.h"

#include <ares.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/uio.h>

#define EDNS_BYTES 1232 /* what no path fragments (DNS flag day 2020) */

struct dns {
	struct loop *loop;
	ares_channel channel;
	struct alarm alarm;
	struct list socks;
	unsigned running;
	bool inside; /* c-ares is on the stack */
};

struct dns_sock {
	struct dns *dns; /* NULL: closed */
	struct link_shard *shard;
	int fd;
	unsigned want, armed; /* poll events */
	bool busy;
	struct op op;
	struct list node;
};

struct dns_query {
	struct dns *dns;
	struct dns_query **slot;
	dns_fn *fn; /* NULL: dropped */
	void *arg;
	int family;
};

/* --- sockets --- */
static void on_polled(struct op *op, int32_t res);

static void arm(struct dns_sock *s)
{
	if (!op_idle(&s->op) || !s->want)
		return;
	s->armed = s->want;
	loop_poll(s->dns->loop, &s->op, s->fd, s->want);
}

static void free_sock(struct dns_sock *s)
{
	s->shard->n_asking--;
	free(s);
}

static ares_socket_t open_sock(int family, int type, int protocol, void *arg)
{
	struct dns *d = arg;
	struct dns_sock *s = calloc(1, sizeof(*s));

	(void)protocol; /* follows from the type */
	if (!s) {
		errno = ENOMEM;
		return -1;
	}
	s->fd = loop_socket(d->loop, family, type);
	if (s->fd < 0) {
		errno = -s->fd;
		free(s);
		return -1;
	}
	s->dns = d;
	s->shard = link_shard(d->loop);
	s->shard->n_asking++;
	op_init(&s->op, on_polled);
	list_push_tail(&d->socks, &s->node);
	return s->fd;
}

static struct dns_sock *find_sock(struct dns *d, int fd)
{
	for (struct list *n = d->socks.next; n != &d->socks; n = n->next)
		if (container_of(n, struct dns_sock, node)->fd == fd)
			return container_of(n, struct dns_sock, node);
	return NULL;
}

static int close_sock(ares_socket_t fd, void *arg)
{
	struct dns *d = arg;
	struct dns_sock *s = find_sock(d, fd);

	must(s);
	list_remove(&s->node);
	s->dns = NULL;
	s->want = 0;
	loop_close(d->loop, fd);
	if (op_idle(&s->op) && !s->busy)
		free_sock(s);
	return 0;
}

static int connect_sock(ares_socket_t fd, const struct sockaddr *sa, ares_socklen_t n, void *arg)
{
	(void)arg;
	return connect(fd, sa, n);
}

static ares_ssize_t recv_sock(ares_socket_t fd, void *to, size_t n, int flags, struct sockaddr *sa,
			      ares_socklen_t *sa_n, void *arg)
{
	(void)arg;
	return recvfrom(fd, to, n, flags, sa, sa_n);
}

static ares_ssize_t send_sock(ares_socket_t fd, const struct iovec *iov, int n, void *arg)
{
	struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };

	(void)arg;
	return sendmsg(fd, &m, MSG_NOSIGNAL);
}

static const struct ares_socket_functions sock_funcs = {
	.asocket = open_sock,
	.aclose = close_sock,
	.aconnect = connect_sock,
	.arecvfrom = recv_sock,
	.asendv = send_sock,
};

static void on_want(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct dns_sock *s = find_sock(arg, fd);

	if (!s)
		return;
	s->want = (readable ? POLLIN : 0) | (writable ? POLLOUT : 0);
	if (op_idle(&s->op) && !s->busy)
		arm(s);
	else if (!op_idle(&s->op) && s->armed != s->want)
		loop_cancel(s->dns->loop, &s->op);
}

/* --- turning c-ares --- */
static void set_alarm(struct dns *d)
{
	struct timeval tv;

	if (!ares_timeout(d->channel, NULL, &tv)) {
		loop_alarm_off(&d->alarm);
		return;
	}
	loop_alarm(d->loop, &d->alarm, (uint32_t)(tv.tv_sec * 1000 + tv.tv_usec / 1000 + 1));
}

static void process(struct dns *d, int read_fd, int write_fd)
{
	d->inside = true;
	ares_process_fd(d->channel, read_fd, write_fd);
	d->inside = false;
	set_alarm(d);
}

static void on_polled(struct op *op, int32_t res)
{
	struct dns_sock *s = container_of(op, struct dns_sock, op);
	unsigned errors = POLLERR | POLLHUP | POLLNVAL;

	if (s->dns && res > 0) {
		s->busy = true;
		process(s->dns, (unsigned)res & (POLLIN | errors) ? s->fd : ARES_SOCKET_BAD,
			(unsigned)res & (POLLOUT | errors) ? s->fd : ARES_SOCKET_BAD);
		s->busy = false;
	}
	if (s->dns)
		arm(s);
	else
		free_sock(s);
}

static void on_alarm(struct alarm *a)
{
	process(container_of(a, struct dns, alarm), ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

/* --- life --- */
static bool set_servers(struct dns *d, const struct dns_conf *conf)
{
	char text[1024];
	struct out o;

	out_init(&o, text, sizeof(text) - 1);
	for (uint32_t i = 0; i < conf->n_servers; i++) {
		if (i)
			out_char(&o, ',');
		addr_out(&o, &conf->server[i]);
	}
	*o.p = '\0';
	return ares_set_servers_ports_csv(d->channel, text) == ARES_SUCCESS;
}

struct dns *dns_new(struct loop *loop, const struct dns_conf *conf)
{
	char nowhere[] = "/dev/null", servers_only[] = "b";
	struct dns *d = calloc(1, sizeof(*d));
	struct ares_options opt = {
		.flags = ARES_FLAG_EDNS | ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
		.timeout = (int)conf->timeout_ms,
		.tries = (int)conf->attempts,
		.lookups = servers_only,
		.ednspsz = EDNS_BYTES,
		.resolvconf_path = nowhere, /* resolvconf.c has read it */
		.sock_state_cb = on_want,
		.sock_state_cb_data = d,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
		   ARES_OPT_EDNSPSZ | ARES_OPT_RESOLVCONF | ARES_OPT_SOCK_STATE_CB |
		   ARES_OPT_NOROTATE;

	if (!d)
		return NULL;
	d->loop = loop;
	list_init(&d->socks);
	alarm_init(&d->alarm, on_alarm);
	if (ares_init_options(&d->channel, &opt, mask) != ARES_SUCCESS) {
		free(d);
		return NULL;
	}
	ares_set_socket_functions(d->channel, &sock_funcs, d);
	if (set_servers(d, conf))
		return d;
	dns_close(&d);
	return NULL;
}

void dns_close(struct dns **dp)
{
	struct dns *d = *dp;

	*dp = NULL;
	if (!d)
		return;
	must(!d->inside);
	ares_destroy(d->channel);
	must(d->running == 0 && list_empty(&d->socks));
	loop_alarm_off(&d->alarm);
	free(d);
}

unsigned dns_running(const struct dns *d)
{
	return d->running;
}

/* --- queries --- */
static int res_of_status(int status)
{
	switch (status) {
	case ARES_SUCCESS:
	case ARES_ENODATA: return 0;
	case ARES_ENOTFOUND: return -ENOENT;
	case ARES_ETIMEOUT: return -ETIMEDOUT;
	case ARES_ENOMEM: return -ENOMEM;
	default: return -EIO;
	}
}

/* ttl is that of the record, or of an alias on the way to it if that is shorter. */
static void add_addr(struct dns_reply *r, int family, const void *ip, int ttl)
{
	struct addr *a = &r->addr[r->n];
	uint32_t ttl_s = ttl > 0 ? (uint32_t)ttl : 0;

	if (family == AF_INET) {
		a->len = sizeof(a->u.in);
		a->u.in.sin_family = AF_INET;
		memcpy(&a->u.in.sin_addr, ip, 4);
	} else {
		a->len = sizeof(a->u.in6);
		a->u.in6.sin6_family = AF_INET6;
		memcpy(&a->u.in6.sin6_addr, ip, 16);
		addr_unmap(a);
	}
	r->ttl_s = r->n == 0 || ttl_s < r->ttl_s ? ttl_s : r->ttl_s;
	r->n++;
}

static void parse_a(struct dns_reply *r, const unsigned char *p, int n)
{
	struct ares_addrttl rows[RESOLVE_ADDRS];
	int count = RESOLVE_ADDRS;

	r->res = res_of_status(ares_parse_a_reply(p, n, NULL, rows, &count));
	for (int i = 0; r->res == 0 && i < count; i++)
		add_addr(r, AF_INET, &rows[i].ipaddr, rows[i].ttl);
}

static void parse_aaaa(struct dns_reply *r, const unsigned char *p, int n)
{
	struct ares_addr6ttl rows[RESOLVE_ADDRS];
	int count = RESOLVE_ADDRS;

	r->res = res_of_status(ares_parse_aaaa_reply(p, n, NULL, rows, &count));
	for (int i = 0; r->res == 0 && i < count; i++)
		add_addr(r, AF_INET6, &rows[i].ip6addr, rows[i].ttl);
}

static void on_reply(void *arg, int status, int timeouts, unsigned char *p, int n)
{
	struct dns_query *q = arg;
	struct dns_reply r;

	(void)timeouts;
	q->dns->running--;
	if (q->fn) {
		memset(&r, 0, sizeof(r));
		r.res = res_of_status(status);
		if (status == ARES_SUCCESS && q->family == AF_INET)
			parse_a(&r, p, n);
		else if (status == ARES_SUCCESS)
			parse_aaaa(&r, p, n);
		*q->slot = NULL;
		q->fn(q->arg, &r);
	}
	free(q);
}

int dns_ask(struct dns *d, const struct dns_question *question, struct dns_query **slot)
{
	enum { CLASS_IN = 1, TYPE_A = 1, TYPE_AAAA = 28 };
	struct dns_query *q = calloc(1, sizeof(*q));
	bool inside = d->inside;

	if (!q)
		return -ENOMEM;
	q->dns = d;
	q->slot = slot;
	q->fn = question->fn;
	q->arg = question->arg;
	q->family = question->family;
	*slot = q;
	d->running++;
	d->inside = true;
	ares_query(d->channel, question->name, CLASS_IN,
		   question->family == AF_INET ? TYPE_A : TYPE_AAAA, on_reply, q);
	d->inside = inside;
	set_alarm(d);
	return 0;
}

void dns_drop(struct dns_query **slot)
{
	struct dns_query *q = *slot;

	*slot = NULL;
	if (q)
		q->fn = NULL;
}
