/* test_listen.c -- binding, inheriting, accepting and the hand-over between shards. */
#include "link_rig.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char said[LISTEN_WHY];

static struct bind_conf tcp(const char *ip, uint16_t port)
{
	struct bind_conf c = { .text = str_of(ip), .kind = BIND_TCP };

	assert_true(addr_parse_ip(str_of(ip), port, &c.addr));
	return c;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in6 sa;
	socklen_t n = sizeof(sa);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
	return ntohs(sa.sin6_port); /* the same place in both families */
}

static int opt(int fd, int level, int name)
{
	int v = -1;
	socklen_t n = sizeof(v);

	assert_int_equal(getsockopt(fd, level, name, &v, &n), 0);
	return v;
}

/* --- binding --- */
static void a_group_shares_one_port(void **state)
{
	struct bind_conf c = tcp("127.0.0.1", 0);
	struct bound b;

	(void)state;
	assert_int_equal(listen_bind(&c, 3, &b, said), 0);
	assert_int_equal(b.n, 3);
	assert_false(b.shared);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(port_of(b.fds[i]), port_of(b.fds[0]));
		assert_true(opt(b.fds[i], SOL_SOCKET, SO_ACCEPTCONN));
		assert_true(opt(b.fds[i], SOL_SOCKET, SO_REUSEPORT));
		assert_true(opt(b.fds[i], IPPROTO_TCP, TCP_NODELAY));
		assert_true(fcntl(b.fds[i], F_GETFL) & O_NONBLOCK);
		assert_true(fcntl(b.fds[i], F_GETFD) & FD_CLOEXEC);
	}
	close(rig_connect(port_of(b.fds[0])));
	listen_unbind(&b, &c);
	assert_int_equal(b.n, 0);
}

/* Whoever has the address, with SO_REUSEPORT or without, is not shared with silently. */
static void a_taken_address_is_an_error(void **state)
{
	struct bind_conf c = tcp("127.0.0.1", 0), again;
	struct bound b, b2;

	(void)state;
	assert_int_equal(listen_bind(&c, 2, &b, said), 0);
	again = tcp("127.0.0.1", port_of(b.fds[0]));
	again.text = STR("127.0.0.1:8080");
	assert_int_equal(listen_bind(&again, 2, &b2, said), -EADDRINUSE);
	assert_non_null(strstr(said, "bind 127.0.0.1:8080: address in use"));
	assert_int_equal(b2.n, 0);
	assert_null(b2.fds);
	listen_unbind(&b, &c);
}

static void dual_takes_both_families(void **state)
{
	struct bind_conf c = tcp("::", 0);
	struct bound b;
	uint16_t port;
	int fd;

	(void)state;
	c.dual = true;
	assert_int_equal(listen_bind(&c, 2, &b, said), 0);
	port = port_of(b.fds[0]);
	fd = rig_connect(port); /* by IPv4 */
	close(fd);
	listen_unbind(&b, &c);
}

static void v6_alone_leaves_v4_free(void **state)
{
	struct bind_conf c = tcp("::1", 0), any = tcp("::", 0);
	struct bound b;

	(void)state;
	if (listen_bind(&c, 1, &b, said)) {
		skip(); /* no IPv6 here */
		return;
	}
	listen_unbind(&b, &c);
	assert_int_equal(listen_bind(&any, 1, &b, said), 0);
	assert_true(opt(b.fds[0], IPPROTO_IPV6, IPV6_V6ONLY));
	listen_unbind(&b, &any);
}

static void an_address_that_is_not_ours(void **state)
{
	struct bind_conf c = tcp("203.0.113.77", 80);
	struct bound b;

	(void)state;
	c.text = STR("203.0.113.77:80");
	assert_int_equal(listen_bind(&c, 1, &b, said), -EADDRNOTAVAIL);
	assert_non_null(strstr(said, "ip addr"));
}

/* In a child, as an ordinary user. */
static void a_low_port_says_what_to_do(void **state)
{
	struct bind_conf c = tcp("127.0.0.1", 1);
	struct bound b;
	int status;
	pid_t pid;

	(void)state;
	if (getuid() != 0) {
		skip();
		return;
	}
	pid = fork();
	if (pid == 0) {
		if (setgid(65534) || setuid(65534))
			_exit(1);
		_exit(listen_bind(&c, 1, &b, said) == -EACCES &&
				      strstr(said, "net.ipv4.ip_unprivileged_port_start")
			      ? 0
			      : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 2) { /* this machine allows it to everybody */
		skip();
		return;
	}
	assert_int_equal(status, 0);
}

/* --- Unix --- */
struct folder {
	char dir[64], path[96];
	struct bind_conf c;
};

static void folder_open(struct folder *f)
{
	memset(f, 0, sizeof(*f));
	strcpy(f->dir, "/tmp/culvert-listen-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/sock", f->dir);
	f->c = (struct bind_conf){ .kind = BIND_UNIX, .path = str_of(f->path) };
	f->c.text = f->c.path;
}

static void folder_close(struct folder *f)
{
	unlink(f->path);
	assert_int_equal(rmdir(f->dir), 0);
}

static void a_unix_socket_has_its_mode_and_goes(void **state)
{
	struct folder f;
	struct stat st;
	struct bound b;
	mode_t mask = umask(0077);

	(void)state;
	folder_open(&f);
	f.c.mode = 0660;
	assert_int_equal(listen_bind(&f.c, 4, &b, said), 0);
	umask(mask);
	assert_int_equal(b.n, 1);
	assert_true(b.shared);
	assert_int_equal(stat(f.path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	listen_unbind(&b, &f.c);
	assert_int_equal(stat(f.path, &st), -1);
	folder_close(&f);
}

static void a_left_over_socket_is_replaced_a_live_one_is_not(void **state)
{
	struct folder f;
	struct bound b, b2;

	(void)state;
	folder_open(&f);
	assert_int_equal(listen_bind(&f.c, 1, &b, said), 0);
	assert_int_equal(listen_bind(&f.c, 1, &b2, said), -EADDRINUSE);
	assert_non_null(strstr(said, "another process listens there"));
	listen_unbind(&b, NULL); /* as if it had died: the path stays */
	assert_int_equal(access(f.path, F_OK), 0);
	assert_int_equal(listen_bind(&f.c, 1, &b, said), 0);
	listen_unbind(&b, &f.c);
	folder_close(&f);
}

static void a_file_at_the_path_is_not_removed(void **state)
{
	struct folder f;
	struct bound b;
	int fd;

	(void)state;
	folder_open(&f);
	fd = open(f.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	assert_int_equal(listen_bind(&f.c, 1, &b, said), -EADDRINUSE);
	assert_int_equal(access(f.path, F_OK), 0);
	folder_close(&f);
}

static void a_path_that_is_too_long(void **state)
{
	char path[200];
	struct bind_conf c = { .kind = BIND_UNIX, .path = { path, 108 } };
	struct bound b;

	(void)state;
	memset(path, 'x', sizeof(path));
	assert_int_equal(listen_bind(&c, 1, &b, said), -ENAMETOOLONG);
}

/* --- LISTEN_FDS --- */
/* Runs `child` with two passed sockets, at 3 and 4: TCP on *port and the Unix path. */
static void with_passed(struct folder *f, uint16_t *port, bool (*child)(struct folder *, uint16_t))
{
	struct bind_conf t = tcp("127.0.0.1", 0);
	struct bound a, b;
	char pid_text[16];
	int status;
	pid_t pid;

	assert_int_equal(listen_bind(&t, 1, &a, said), 0);
	assert_int_equal(listen_bind(&f->c, 1, &b, said), 0);
	*port = port_of(a.fds[0]);
	pid = fork();
	if (pid == 0) {
		int one = fcntl(a.fds[0], F_DUPFD, 100), two = fcntl(b.fds[0], F_DUPFD, 100);

		dup2(one, 3);
		dup2(two, 4);
		snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
		setenv("LISTEN_PID", pid_text, 1);
		setenv("LISTEN_FDS", "2", 1);
		_exit(child(f, *port) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	listen_unbind(&a, &t);
	listen_unbind(&b, &f->c);
	assert_int_equal(status, 0);
}

static bool inherits_all(struct folder *f, uint16_t port)
{
	struct bind_conf other = { .kind = BIND_TCP }, t = { .kind = BIND_TCP };
	const struct bind_conf *binds[3] = { &other, &f->c, &t };
	struct bound b[3];

	if (!addr_parse_ip(STR("127.0.0.1"), port, &t.addr) ||
	    !addr_parse_ip(STR("127.0.0.2"), port, &other.addr))
		return false;
	return listen_inherit(binds, b, 3, said) == 0 && b[0].n == 0 && b[1].n == 1 &&
	       b[1].fds[0] == 4 && b[1].passed && b[1].shared && b[2].n == 1 && b[2].fds[0] == 3 &&
	       (fcntl(3, F_GETFD) & FD_CLOEXEC) && (fcntl(3, F_GETFL) & O_NONBLOCK) &&
	       !getenv("LISTEN_FDS");
}

static bool refuses_a_leftover(struct folder *f, uint16_t port)
{
	const struct bind_conf *binds[1] = { &f->c };
	char text[64];
	struct bound b[1];

	snprintf(text, sizeof(text), "descriptor 3 (127.0.0.1:%u)", port);
	return listen_inherit(binds, b, 1, said) == -EINVAL && strstr(said, text) && b[0].n == 0;
}

static bool ignores_what_is_for_another(struct folder *f, uint16_t port)
{
	const struct bind_conf *binds[1] = { &f->c };
	struct bound b[1];

	(void)port;
	setenv("LISTEN_PID", "1", 1);
	return listen_inherit(binds, b, 1, said) == 0 && b[0].n == 0;
}

static void listen_fds_are_matched_by_address(void **state)
{
	struct folder f;
	uint16_t port;

	(void)state;
	folder_open(&f);
	with_passed(&f, &port, inherits_all);
	with_passed(&f, &port, refuses_a_leftover);
	with_passed(&f, &port, ignores_what_is_for_another);
	folder_close(&f);
}

/* --- accepting --- */
struct door {
	struct rig *r;
	struct acceptor *a;
	unsigned n, max;
	int fds[64];
	struct addr peer;
	bool closed;
};

static void on_accept(struct acceptor *a, int fd, const struct addr *peer)
{
	struct door *d = acceptor_owner(a);

	assert_in_range(d->n, 0, 63);
	d->fds[d->n++] = fd;
	d->peer = *peer;
}

static bool may(struct acceptor *a)
{
	struct door *d = acceptor_owner(a);

	return d->n < d->max;
}

static void on_closed(void *owner)
{
	struct door *d = owner;

	d->closed = true;
}

static const struct acceptor_ops door_ops = { .on_accept = on_accept, .may = may };

static void door_shut(struct door *d, int *peers, unsigned n)
{
	acceptor_stop(&d->a, on_closed);
	assert_false(d->closed);
	rig_until(d->r, d->closed);
	while (d->n)
		loop_close(d->r->loop, d->fds[--d->n]);
	while (n)
		close(peers[--n]);
}

static void accepts_and_tells_the_peer(void **state)
{
	RIG(r, state);
	struct door d = { .r = r, .max = 64 };
	struct bind_conf c = tcp("::", 0);
	struct sockaddr_in in;
	socklen_t n = sizeof(in);
	struct bound b;
	int peers[3];

	c.dual = true;
	assert_int_equal(listen_bind(&c, 1, &b, said), 0);
	d.a = acceptor_new(r->loop, b.fds[0], false, &door_ops, &d);
	assert_non_null(d.a);
	for (int i = 0; i < 3; i++)
		peers[i] = rig_connect(port_of(b.fds[0]));
	rig_until(r, d.n == 3);
	assert_int_equal(d.peer.u.sa.sa_family, AF_INET); /* not v4-mapped */
	assert_int_equal(getsockname(peers[2], (struct sockaddr *)&in, &n), 0);
	assert_int_equal(addr_port(&d.peer), ntohs(in.sin_port));
	door_shut(&d, peers, 3);
	listen_unbind(&b, &c);
}

static void a_unix_peer_has_no_name(void **state)
{
	RIG(r, state);
	struct door d = { .r = r, .max = 64 };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct folder f;
	struct bound b;
	int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	folder_open(&f);
	assert_int_equal(listen_bind(&f.c, 1, &b, said), 0);
	d.a = acceptor_new(r->loop, b.fds[0], b.shared, &door_ops, &d);
	strcpy(un.sun_path, f.path);
	assert_int_equal(connect(peer, (struct sockaddr *)&un, sizeof(un)), 0);
	rig_until(r, d.n == 1);
	assert_int_equal(d.peer.u.sa.sa_family, AF_UNIX);
	door_shut(&d, &peer, 1);
	listen_unbind(&b, &f.c);
	folder_close(&f);
}

/* Single-shot accepts: what is not taken stays for the others. */
static void may_stops_and_go_goes_on(void **state)
{
	RIG(r, state);
	struct door d = { .r = r, .max = 1 };
	struct bind_conf c = tcp("127.0.0.1", 0);
	struct bound b;
	int peers[4];

	assert_int_equal(listen_bind(&c, 1, &b, said), 0);
	d.a = acceptor_new(r->loop, b.fds[0], true, &door_ops, &d);
	for (int i = 0; i < 4; i++)
		peers[i] = rig_connect(port_of(b.fds[0]));
	rig_until(r, d.n == 1);
	for (int i = 0; i < 5; i++)
		loop_turn(r->loop, 1);
	assert_int_equal(d.n, 1);
	d.max = 3;
	acceptors_go(r->loop);
	rig_until(r, d.n == 3);
	d.max = 64;
	rig_until(r, d.n == 4); /* nobody says go: it looks again by itself */
	door_shut(&d, peers, 4);
	listen_unbind(&b, &c);
}

static void stopping_takes_what_queues(void **state)
{
	RIG(r, state);
	struct door d = { .r = r, .max = 0 };
	struct bind_conf c = tcp("127.0.0.1", 0);
	struct bound b;
	int peers[20];

	assert_int_equal(listen_bind(&c, 1, &b, said), 0);
	d.a = acceptor_new(r->loop, b.fds[0], false, &door_ops, &d);
	loop_turn(r->loop, 1);
	for (int i = 0; i < 20; i++)
		peers[i] = rig_connect(port_of(b.fds[0]));
	loop_turn(r->loop, 1);
	assert_int_equal(d.n, 0);
	acceptor_stop(&d.a, on_closed);
	rig_until(r, d.closed);
	assert_int_equal(d.n, 20);
	while (d.n)
		loop_close(r->loop, d.fds[--d.n]);
	for (int i = 0; i < 20; i++)
		close(peers[i]);
	listen_unbind(&b, &c);
}

/* E06: out of descriptors the acceptor rests and does not spin, and goes on by itself. */
static void no_descriptors_means_a_rest(void **state)
{
	RIG(r, state);
	struct fault_plan plan = { .n_rules = 1 };
	struct door d = { .r = r, .max = 64 };
	struct bind_conf c = tcp("127.0.0.1", 0);
	struct bound b;
	int peer;

	rig_close(r);
	plan.rules[0] =
		(struct fault_rule){ .kind = OP_ACCEPT, .nth = 1, .times = 2, .res = -EMFILE };
	r->fault = &plan;
	assert_int_equal(rig_open(r), 0);
	assert_int_equal(listen_bind(&c, 1, &b, said), 0);
	d.a = acceptor_new(r->loop, b.fds[0], false, &door_ops, &d);
	peer = rig_connect(port_of(b.fds[0]));
	rig_until(r, fault_seen(r->loop, OP_ACCEPT) == 1);
	for (int i = 0; i < 20; i++)
		loop_turn(r->loop, 0);
	assert_int_equal(fault_seen(r->loop, OP_ACCEPT), 1);
	acceptors_go(r->loop); /* a connection closed: the second one fails too */
	rig_until(r, fault_seen(r->loop, OP_ACCEPT) == 2);
	rig_until(r, d.n == 1);
	door_shut(&d, &peer, 1);
	listen_unbind(&b, &c);
	rig_close(r);
	r->fault = NULL;
	assert_int_equal(rig_open(r), 0);
}

/* --- hand-over --- */
static void only_a_much_less_loaded_shard_gets_it(void **state)
{
	RIG(r, state);
	struct handover *h = handover_new(2);
	struct loop_params par = { .io = LOOP_EPOLL,
				   .budget = &r->budget,
				   .shard = 1,
				   .fds_max = 999 };
	struct loop *other = loop_new(&par, said);

	assert_non_null(other);
	handover_join(h, r->loop);
	handover_count(h, 0, 100);
	handover_count(h, 1, 1);
	assert_int_equal(handover_pick(h, 0), 0); /* shard 1 takes no part */
	assert_null(handover_loop(h, 1));
	handover_join(h, other);
	assert_ptr_equal(handover_loop(h, 1), other);
	assert_int_equal(handover_pick(h, 0), 1);
	assert_int_equal(handover_pick(h, 1), 1);
	handover_count(h, 1, 79);
	assert_int_equal(handover_pick(h, 0), 0); /* 100 to 80: 1.25, not more */
	handover_count(h, 0, 1);
	assert_int_equal(handover_pick(h, 0), 1);
	handover_count(h, 0, -92);
	handover_count(h, 1, -79);
	assert_int_equal(handover_pick(h, 0), 0); /* 9 to 1: not more than 8 apart */
	handover_count(h, 0, 1);
	assert_int_equal(handover_pick(h, 0), 1);
	handover_leave(h, other);
	assert_int_equal(handover_pick(h, 0), 0);
	handover_free(&h);
	loop_free(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_shares_one_port),
		cmocka_unit_test(a_taken_address_is_an_error),
		cmocka_unit_test(dual_takes_both_families),
		cmocka_unit_test(v6_alone_leaves_v4_free),
		cmocka_unit_test(an_address_that_is_not_ours),
		cmocka_unit_test(a_low_port_says_what_to_do),
		cmocka_unit_test(a_unix_socket_has_its_mode_and_goes),
		cmocka_unit_test(a_left_over_socket_is_replaced_a_live_one_is_not),
		cmocka_unit_test(a_file_at_the_path_is_not_removed),
		cmocka_unit_test(a_path_that_is_too_long),
		cmocka_unit_test(listen_fds_are_matched_by_address),
		RIG_TEST(accepts_and_tells_the_peer),
		RIG_TEST(a_unix_peer_has_no_name),
		RIG_TEST(may_stops_and_go_goes_on),
		RIG_TEST(stopping_takes_what_queues),
		RIG_TEST(no_descriptors_means_a_rest),
		RIG_TEST(only_a_much_less_loaded_shard_gets_it),
	};

	return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
