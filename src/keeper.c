/* keeper.c -- the parent process.
 *
 *   bind, open files ──► fork ──► proxy (inherits plan and descriptors, drops privileges)
 *        ▲                 │
 *        └── crashed ◄─────┤ SIGCHLD: forked again at once, then with back-off; the listening
 *                          │ sockets stay open: connections queue meanwhile, none is refused
 *   TERM INT QUIT ── first: drain, second: end at once
 *   USR1 ── the log files are opened again here, with the privileges that the proxy gave away, and
 *           passed over
 *   HUP  ── one log line: reload is not built yet
 *
 * Single-threaded; waits in poll on a signalfd and the socket pair. */
#include "keeper.h"
#include "base/log.h"
#include "base/panic.h"
#include "ops/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 10u
#define BACKOFF_MAX_MS   800u   /* a crashed proxy is back within a second */
#define STABLE_MS        10000u /* a proxy that lived this long had started well */

struct keeper {
	struct config *config;
	const char *version;
	struct bound *bound; /* listeners, then the admin port */
	unsigned n_bound;
	int signals;  /* signalfd */
	int proxy_fd; /* our end of the socket pair; -1: no proxy */
	pid_t proxy;
	bool ready;    /* it has said so once */
	unsigned ends; /* how often we were asked to end */
	uint64_t started_ms, backoff_ms, again_ms;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---------------------------------------------------------------- service manager */
/* sd_notify(3): one datagram to the socket that the environment names. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (n < 2 || n >= sizeof(sun.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(sun.sun_path, path, n);
	if (path[0] == '@')
		sun.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sun,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		log_say(LOG_WARN, "service manager: notify %s: %s", state, strerror(errno));
	close(fd);
}

/* ---------------------------------------------------------------- listening sockets */
static const struct bind_conf *bind_of(const struct keeper *k, unsigned i)
{
	return i < k->config->plan->n_listeners ? &k->config->plan->listeners[i].bind
						: &k->config->admin.bind;
}

/* The admin port lives on one shard. */
static unsigned shards_of(const struct keeper *k, unsigned i)
{
	return i < k->config->plan->n_listeners ? k->config->plan->workers : 1;
}

static int inherit(struct keeper *k)
{
	const struct bind_conf **binds = calloc(k->n_bound + 1, sizeof(*binds));
	char why[LISTEN_WHY] = "out of memory";
	int rc = -ENOMEM;

	for (unsigned i = 0; binds && i < k->n_bound; i++)
		binds[i] = bind_of(k, i);
	if (binds)
		rc = listen_inherit(binds, k->bound, k->n_bound, why);
	free(binds);
	if (rc < 0)
		log_say(LOG_ERROR, "LISTEN_FDS: %s", why);
	return rc;
}

static int bind_all(struct keeper *k)
{
	char why[LISTEN_WHY];

	k->n_bound = k->config->plan->n_listeners + k->config->admin.on;
	k->bound = calloc(k->n_bound + 1, sizeof(*k->bound));
	if (!k->bound || inherit(k) < 0)
		return -1;
	for (unsigned i = 0; i < k->n_bound; i++) {
		if (k->bound[i].n)
			continue;
		if (listen_bind(bind_of(k, i), shards_of(k, i), &k->bound[i], why) < 0) {
			log_say(LOG_ERROR, "cannot listen: %s", why);
			return -1;
		}
	}
	return 0;
}

/* The first n: the listeners come before the admin port. */
static void unbind(struct keeper *k, unsigned n)
{
	for (unsigned i = 0; k->bound && i < n; i++) {
		if (k->bound[i].n)
			listen_unbind(&k->bound[i], bind_of(k, i));
		k->bound[i].n = 0;
	}
}

/* ---------------------------------------------------------------- log files */
static int open_log(const struct log_file *f)
{
	int fd = open(f->path.p, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);

	if (fd < 0)
		log_say(LOG_ERROR, "log file %s: %s", f->path.p, strerror(errno));
	return fd;
}

static bool is_file(const struct log_file *f)
{
	return f->fd != 1 && f->fd != 2;
}

static int open_logs(struct keeper *k)
{
	for (unsigned i = 0; i < k->config->n_files; i++) {
		struct log_file *f = &k->config->files[i];

		if (!is_file(f))
			continue;
		f->fd = open_log(f);
		if (f->fd < 0)
			return -1;
	}
	return 0;
}

static void reopen_logs(struct keeper *k)
{
	unsigned n = 0;

	for (unsigned i = 0; i < k->config->n_files; i++) {
		struct log_file *f = &k->config->files[i];
		int fd = is_file(f) ? open_log(f) : -1;

		if (fd < 0)
			continue;
		close(f->fd);
		f->fd = fd;
		n++;
		if (k->proxy_fd >= 0 && keeper_send(k->proxy_fd, KEEPER_LOG, i, fd) < 0)
			log_say(LOG_ERROR, "log file %s: could not be passed to the proxy: %s",
				f->path.p, strerror(errno));
	}
	log_say(LOG_INFO, "USR1: %u log files were opened again", n);
}

static void close_logs(struct keeper *k)
{
	for (unsigned i = 0; i < k->config->n_files; i++)
		if (is_file(&k->config->files[i]) && k->config->files[i].fd >= 0)
			close(k->config->files[i].fd);
}

/* ---------------------------------------------------------------- the proxy process */
/* In the child: what was inherited for the keeper alone is let go. */
static int be_proxy(struct keeper *k, int fd, pid_t keeper)
{
	struct proxy_params p = { .config = k->config,
				  .bound = k->bound,
				  .keeper_fd = fd,
				  .version = k->version };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		return 1;
	close(k->signals);
	close(k->proxy_fd);
	sigemptyset(&none);
	for (int s = 1; s < 32; s++)
		if (s == SIGTERM || s == SIGINT || s == SIGQUIT || s == SIGHUP || s == SIGUSR1 ||
		    s == SIGUSR2)
			signal(s, SIG_IGN); /* a terminal sends them to both: the keeper decides */
	sigprocmask(SIG_SETMASK, &none, NULL);
	return proxy_run(&p);
}

static int start_proxy(struct keeper *k)
{
	pid_t keeper = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	k->proxy_fd = pair[0];
	k->started_ms = now_ms();
	fflush(NULL);
	k->proxy = fork();
	if (k->proxy == 0)
		_exit(be_proxy(k, pair[1], keeper));
	close(pair[1]);
	if (k->proxy > 0)
		return 0;
	close(k->proxy_fd);
	k->proxy_fd = -1;
	return -errno;
}

static void start_again(struct keeper *k)
{
	int rc = start_proxy(k);

	k->again_ms = 0;
	if (rc < 0) {
		log_say(LOG_ERROR, "the proxy could not be started: %s; trying again",
			strerror(-rc));
		k->again_ms = now_ms() + BACKOFF_MAX_MS;
	}
}

static void tell(const char *how, int n, const char *then)
{
	log_say(LOG_ERROR, "the proxy ended by %s %d; %s", how, n, then);
}

/* Crashed: start another.  Ended by itself: its exit code is ours. */
static bool on_crash(struct keeper *k, int status)
{
	const char *how = WIFSIGNALED(status) ? "signal" : "exit code";
	int n = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);

	if (k->ends || !k->ready) {
		tell(how, n, k->ends ? "it was draining" : "it had not started");
		return false;
	}
	if (now_ms() - k->started_ms > STABLE_MS)
		k->backoff_ms = 0;
	tell(how, n, "another one is started");
	k->again_ms = now_ms() + k->backoff_ms;
	k->backoff_ms = k->backoff_ms ? k->backoff_ms * 2 : BACKOFF_FIRST_MS;
	if (k->backoff_ms > BACKOFF_MAX_MS)
		k->backoff_ms = BACKOFF_MAX_MS;
	return true;
}

/* True: *code is the keeper's exit code. */
static bool reap(struct keeper *k, int *code)
{
	int status;

	if (k->proxy <= 0 || waitpid(k->proxy, &status, WNOHANG) != k->proxy)
		return false;
	k->proxy = -1;
	close(k->proxy_fd);
	k->proxy_fd = -1;
	if (WIFEXITED(status) && (k->ends || !k->ready)) {
		*code = WEXITSTATUS(status);
		return true;
	}
	if (on_crash(k, status))
		return false;
	*code = k->ends ? 3 : 1;
	return true;
}

/* ---------------------------------------------------------------- signals */
static void on_end_signal(struct keeper *k)
{
	k->ends++;
	if (k->ends == 1) {
		notify("STOPPING=1");
		log_say(LOG_INFO, "draining; a second signal ends at once");
	}
	if (k->proxy_fd < 0)
		return;
	if (keeper_send(k->proxy_fd, k->ends == 1 ? KEEPER_DRAIN : KEEPER_END, 0, -1) == 0 &&
	    k->ends < 3)
		return;
	if (k->ends > 1) /* it cannot be told, or does not listen */
		kill(k->proxy, SIGKILL);
}

static void on_signal(struct keeper *k)
{
	struct signalfd_siginfo si;

	while (read(k->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		switch (si.ssi_signo) {
		case SIGTERM:
		case SIGINT:
		case SIGQUIT: on_end_signal(k); break;
		case SIGUSR1: reopen_logs(k); break;
		case SIGHUP:
			log_say(LOG_WARN,
				"HUP: reload is not in this version; the configuration in use goes on");
			break;
		default: break;
		}
	}
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGCHLD);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -1;
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* ---------------------------------------------------------------- watch */
static void on_proxy_message(struct keeper *k)
{
	unsigned index;
	int fd = -1;
	int kind = keeper_recv(k->proxy_fd, &index, &fd);

	if (fd >= 0)
		close(fd);
	if (kind == KEEPER_READY && !k->ready) {
		k->ready = true;
		notify("READY=1");
	}
	if (kind == KEEPER_STOPPED)
		unbind(k, k->config->plan->n_listeners);
	if (kind == KEEPER_READY && k->ends) /* it came up while we were asked to end */
		(void)keeper_send(k->proxy_fd, KEEPER_DRAIN, 0, -1);
}

static int wait_ms(const struct keeper *k)
{
	uint64_t now = now_ms();

	if (!k->again_ms)
		return -1;
	return k->again_ms > now ? (int)(k->again_ms - now) : 0;
}

static int watch(struct keeper *k)
{
	int code = 1;

	for (;;) {
		struct pollfd p[2] = { { .fd = k->signals, .events = POLLIN },
				       { .fd = k->proxy_fd, .events = POLLIN } };

		if (poll(p, 2, wait_ms(k)) < 0 && errno != EINTR)
			return 1;
		if (p[0].revents)
			on_signal(k);
		if (p[1].revents & POLLIN)
			on_proxy_message(k);
		if (reap(k, &code))
			return code;
		if (k->proxy < 0 && k->ends)
			return code == 1 ? 0 : code;
		if (k->again_ms && now_ms() >= k->again_ms)
			start_again(k);
		if (p[1].revents & POLLHUP && k->proxy > 0)
			poll(p, 1, 50); /* its SIGCHLD is on its way */
	}
}

static void raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == r.rlim_max)
		return;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0)
		log_say(LOG_WARN, "RLIMIT_NOFILE stays at its soft limit: %s", strerror(errno));
}

/* io_uring's rings are charged to the user that the proxy becomes, and those of a proxy that
 * crashed are given back late: the next one must not be refused because of them. */
static void raise_locked_memory(void)
{
	struct rlimit r = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };

	if (setrlimit(RLIMIT_MEMLOCK, &r) == 0 || getrlimit(RLIMIT_MEMLOCK, &r) < 0)
		return;
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &r); /* less is enough, or epoll is */
}

int keeper_run(struct config *config, const char *version)
{
	struct keeper k = { .config = config, .version = version, .proxy_fd = -1, .proxy = -1 };
	int code = 1;

	raise_descriptors();
	raise_locked_memory();
	k.signals = open_signals();
	if (k.signals >= 0 && bind_all(&k) == 0 && open_logs(&k) == 0) {
		if (start_proxy(&k) == 0)
			code = watch(&k);
		else
			log_say(LOG_ERROR, "the proxy could not be started: %s", strerror(errno));
	}
	close_logs(&k);
	unbind(&k, k.n_bound);
	free(k.bound);
	if (k.signals >= 0)
		close(k.signals);
	config_free(&k.config);
	return code;
}
