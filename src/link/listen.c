/* listen.c -- listening sockets, made by the keeper before any thread exists.  Exports: listen_*
 *
 * TCP: one socket per shard on one address.  Only a first bind without SO_REUSEPORT finds out
 * whether another process (or another listener of this one) has the address: with it, strangers of
 * the same user would silently share.  So: bind the first, allow sharing, bind the others, listen
 * on all.  SO_REUSEADDR lets a restart pass connections in TIME_WAIT.
 *
 * Unix: one socket for all shards.  A path that is left over is recognised by connecting to it.
 *
 * What went wrong is told as a sentence that says what to do. */
#include "link/priv.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG          4096
#define LISTEN_FDS_START 3

/* --- sentences --- */
static const char *advice(int err)
{
	switch (err) {
	case EACCES: return ": start as root, or set net.ipv4.ip_unprivileged_port_start";
	case EADDRINUSE: return ": another process or listener has it (ss -ltnp shows which)";
	case EADDRNOTAVAIL:
		return ": no interface of this machine has it (ip addr shows which there are)";
	case EMFILE:
	case ENFILE: return ": raise RLIMIT_NOFILE (ulimit -n)";
	default: return "";
	}
}

static const char *error_name(int err)
{
	switch (err) {
	case EACCES:
	case EPERM: return "permission denied";
	case EADDRINUSE: return "address in use";
	case EADDRNOTAVAIL: return "no such address here";
	default: return strerror(err);
	}
}

static int say(char why[static LISTEN_WHY], const struct bind_conf *c, int err, const char *more)
{
	snprintf(why, LISTEN_WHY, "bind %.*s: %s%s", (int)c->text.n, c->text.p, error_name(err),
		 more);
	return -err;
}

/* --- TCP --- */
static int set_on(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

enum bind_how { DUAL = 1 /* v6 that takes v4 too */, ONE_MORE = 2 /* of the group */ };

/* A socket bound to addr; how: set of enum bind_how.  fd or -errno. */
static int bind_tcp(const struct addr *addr, unsigned how)
{
	int fd = socket(addr->u.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (addr->u.sa.sa_family == AF_INET6)
		err = set_on(fd, IPPROTO_IPV6, IPV6_V6ONLY, !(how & DUAL));
	if (!err)
		err = set_on(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!err && (how & ONE_MORE))
		err = set_on(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (!err && bind(fd, &addr->u.sa, addr->len))
		err = -errno;
	if (!err)
		err = set_on(fd, IPPROTO_TCP, TCP_NODELAY, 1); /* accepted sockets inherit it */
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* The first one; a dual-stack bind falls back to plain IPv4 where the host has no IPv6.  *addr
 * becomes what was bound, a free port filled in. */
static int bind_first(const struct bind_conf *c, struct addr *addr)
{
	int fd;

	*addr = c->addr;
	fd = bind_tcp(addr, c->dual ? DUAL : 0);
	if (c->dual && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) {
		memset(addr, 0, sizeof(*addr));
		addr->u.in.sin_family = AF_INET;
		addr->len = sizeof(addr->u.in);
		addr_set_port(addr, addr_port(&c->addr));
		fd = bind_tcp(addr, 0);
	}
	if (fd >= 0 && addr_port(addr) == 0) {
		addr->len = sizeof(addr->u);
		if (getsockname(fd, &addr->u.sa, &addr->len)) {
			int err = errno;

			close(fd);
			return -err;
		}
	}
	return fd;
}

static void close_all(struct bound *b)
{
	for (unsigned i = 0; i < b->n; i++)
		close(b->fds[i]);
	free(b->fds);
	memset(b, 0, sizeof(*b));
}

static int listen_all(const struct bind_conf *c, const struct bound *b)
{
	for (unsigned i = 0; i < b->n; i++)
		if (listen(b->fds[i], c->backlog ? (int)c->backlog : BACKLOG))
			return -errno;
	return 0;
}

static int bind_group(const struct bind_conf *c, unsigned shards, struct bound *b)
{
	struct addr addr;
	int fd = bind_first(c, &addr);
	int err = 0;

	if (fd < 0)
		return fd;
	b->fds[b->n++] = fd;
	if (shards > 1)
		err = set_on(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	while (!err && b->n < shards) {
		fd = bind_tcp(&addr, ONE_MORE | (c->dual ? DUAL : 0));
		if (fd < 0)
			err = fd;
		else
			b->fds[b->n++] = fd;
	}
	return err ? err : listen_all(c, b);
}

/* --- Unix --- */
static int unix_name(struct str path, struct sockaddr_un *un)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	if (path.n == 0 || path.n >= sizeof(un->sun_path))
		return -ENAMETOOLONG;
	memcpy(un->sun_path, path.p, path.n);
	return 0;
}

/* Whether nobody listens on the socket at this path: it was left over by a process that died. */
static bool is_left_over(const struct sockaddr_un *un)
{
	struct stat st;
	bool left = false;
	int fd;

	if (lstat(un->sun_path, &st) || !S_ISSOCK(st.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (connect(fd, (const struct sockaddr *)un, sizeof(*un)))
		left = errno == ECONNREFUSED;
	close(fd);
	return left;
}

/* The mode is set on the socket before the bind, cut by the umask, and then in full: the path is
 * never open to more than it shall be. */
static int bind_unix(const struct bind_conf *c, const struct sockaddr_un *un, struct bound *b)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const struct sockaddr *sa = (const struct sockaddr *)un;
	int err = 0;

	if (fd < 0)
		return -errno;
	b->fds[b->n++] = fd;
	b->shared = true;
	if (c->mode && fchmod(fd, c->mode))
		return -errno;
	if (bind(fd, sa, sizeof(*un)))
		err = errno;
	if (err == EADDRINUSE && is_left_over(un) && !unlink(un->sun_path))
		err = bind(fd, sa, sizeof(*un)) ? errno : 0;
	if (err)
		return -err;
	if ((c->mode && chmod(un->sun_path, c->mode)) || (err = listen_all(c, b))) {
		err = err ? err : -errno;
		unlink(un->sun_path);
	}
	return err;
}

static const char *unix_advice(int err)
{
	switch (err) {
	case EADDRINUSE: return ": another process listens there, or the path is no socket";
	case ENAMETOOLONG: return ": at most 107 bytes";
	case ENOENT: return ": the directory does not exist";
	case EACCES: return ": the directory must be writable for the user that starts culvert";
	default: return "";
	}
}

/* --- both --- */
int listen_bind(const struct bind_conf *c, unsigned shards, struct bound *out,
		char why[static LISTEN_WHY])
{
	struct sockaddr_un un;
	int err;

	must(shards > 0);
	memset(out, 0, sizeof(*out));
	out->fds = calloc(shards, sizeof(*out->fds));
	if (!out->fds)
		return say(why, c, ENOMEM, "");
	if (c->kind == BIND_UNIX) {
		err = unix_name(c->path, &un);
		err = err ? err : bind_unix(c, &un, out);
	} else {
		err = bind_group(c, shards, out);
	}
	if (!err)
		return 0;
	close_all(out);
	return say(why, c, -err, c->kind == BIND_UNIX ? unix_advice(-err) : advice(-err));
}

void listen_unbind(struct bound *b, const struct bind_conf *c)
{
	struct sockaddr_un un;
	bool passed = b->passed;

	if (b->fds)
		close_all(b);
	if (c && c->kind == BIND_UNIX && !passed && !unix_name(c->path, &un))
		unlink(un.sun_path);
}

/* --- LISTEN_FDS [sd_listen_fds(3)] --- */
/* How many were passed to this very process; the variables are taken out of the environment. */
static unsigned passed_fds(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	uint64_t p = 0, n = 0;
	bool mine = pid && fds && str_u64(str_of(pid), &p) && str_u64(str_of(fds), &n) &&
		    p == (uint64_t)getpid();

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return mine && n <= 4096 ? (unsigned)n : 0;
}

struct passed_name {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	} u;
	socklen_t len;
	bool v6only;
};

static bool is_listening_stream(int fd, struct passed_name *name)
{
	int type = 0, listening = 0, v6only = 0;
	socklen_t n = sizeof(type), m = sizeof(listening), k = sizeof(v6only);

	memset(name, 0, sizeof(*name));
	name->len = sizeof(name->u);
	if (getsockname(fd, &name->u.sa, &name->len) ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &m))
		return false;
	if (name->u.sa.sa_family == AF_INET6)
		(void)getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &k);
	name->v6only = v6only != 0;
	return type == SOCK_STREAM && listening;
}

static bool names_bind(const struct passed_name *name, const struct bind_conf *c)
{
	static const struct in6_addr any6;
	struct addr a;

	if (c->kind == BIND_UNIX)
		return name->u.sa.sa_family == AF_UNIX &&
		       str_eq(str_of(name->u.un.sun_path), c->path);
	if (name->u.sa.sa_family != AF_INET && name->u.sa.sa_family != AF_INET6)
		return false;
	memset(&a, 0, sizeof(a));
	a.len = name->len;
	memcpy(&a.u, &name->u, sizeof(a.u));
	if (!c->dual)
		return addr_same(&a, &c->addr);
	if (addr_port(&a) != addr_port(&c->addr))
		return false;
	if (a.u.sa.sa_family == AF_INET)
		return a.u.in.sin_addr.s_addr == htonl(INADDR_ANY);
	return !memcmp(&a.u.in6.sin6_addr, &any6, sizeof(any6));
}

static void name_out(struct out *o, const struct passed_name *name)
{
	struct addr a;

	if (name->u.sa.sa_family == AF_UNIX) {
		out_lit(o, "unix:");
		out_str(o, str_of(name->u.un.sun_path));
	} else if (name->u.sa.sa_family == AF_INET || name->u.sa.sa_family == AF_INET6) {
		memset(&a, 0, sizeof(a));
		a.len = name->len;
		memcpy(&a.u, &name->u, sizeof(a.u));
		addr_out(o, &a);
	} else {
		out_lit(o, "no stream socket that listens");
	}
}

static int left_over(char why[static LISTEN_WHY], int fd, const struct passed_name *name)
{
	char text[128];
	struct out o;

	out_init(&o, text, sizeof(text) - 1);
	name_out(&o, name);
	*o.p = '\0';
	snprintf(why, LISTEN_WHY,
		 "LISTEN_FDS: descriptor %d (%s) belongs to no listener: make the socket unit and "
		 "`bind` agree",
		 fd, text);
	return -EINVAL;
}

static int adopt(int fd, struct bound *b, bool tcp)
{
	b->fds = calloc(1, sizeof(*b->fds));
	if (!b->fds)
		return -ENOMEM;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK)) {
		free(b->fds);
		b->fds = NULL;
		return -errno;
	}
	if (tcp)
		(void)set_on(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	b->fds[0] = fd;
	b->n = 1;
	b->shared = b->passed = true;
	return 0;
}

/* The bind that this descriptor is for and that has none yet; n: none. */
static unsigned match(const struct passed_name *name, const struct bind_conf *const *binds,
		      const struct bound *bound, unsigned n)
{
	unsigned i = 0;

	while (i < n && (bound[i].n || !names_bind(name, binds[i])))
		i++;
	return i;
}

int listen_inherit(const struct bind_conf *const *binds, struct bound *bound, unsigned n,
		   char why[static LISTEN_WHY])
{
	unsigned fds = passed_fds(), i;
	struct passed_name name;
	int err = 0;

	memset(bound, 0, n * sizeof(*bound));
	for (unsigned k = 0; k < fds && !err; k++) {
		int fd = LISTEN_FDS_START + (int)k;
		bool ok = is_listening_stream(fd, &name);

		if (!ok)
			name.u.sa.sa_family = AF_UNSPEC;
		i = ok ? match(&name, binds, bound, n) : n;
		if (i == n)
			err = left_over(why, fd, &name);
		else if ((err = adopt(fd, &bound[i], binds[i]->kind == BIND_TCP)))
			snprintf(why, LISTEN_WHY, "LISTEN_FDS: descriptor %d: %s", fd,
				 strerror(-err));
	}
	for (i = 0; err && i < n; i++)
		if (bound[i].n)
			close_all(&bound[i]);
	return err;
}
