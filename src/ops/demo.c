/* demo.c -- `culvert demo`: a configuration and three origins that need nothing else.
 *
 * The origins are plain blocking threads of a child process: they are there to be looked at, not to
 * be fast. */
#include "ops/ops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ORIGINS 3

struct origin {
	int listen_fd;
	uint16_t port;
	unsigned number;
};

static const char template[] =
	"# the built-in demo\n"
	"listeners:\n"
	"  - { name: web, bind: \"127.0.0.1:8080\", serve: web }\n"
	"  - { name: forward, bind: \"127.0.0.1:3128\", serve: forward }\n"
	"forward:\n"
	"  allow_ports: [80, 443, %u, %u, %u]\n"
	"  deny_to_except: [127.0.0.1]\n"
	"sites:\n"
	"  - name: demo\n"
	"    hosts: [\"*\"]\n"
	"    routes:\n"
	"      - { match: { exact: /ping }, respond: { status: 200, type: text/plain, body: \"pong\\n\" } }\n"
	"      - { match: { prefix: / }, upstream: origins }\n"
	"upstreams:\n"
	"  origins:\n"
	"    servers: [\"http://127.0.0.1:%u\", \"http://127.0.0.1:%u\", \"http://127.0.0.1:%u\"]\n"
	"drain: { delay: 0s, deadline: 5s }\n"
	"admin: { bind: \"127.0.0.1:9090\" }\n";

static const char hints[] =
	"culvert demo: two proxies, three small origins, one admin port. Try:\n"
	"  curl http://127.0.0.1:8080/                               reverse: balanced over the origins\n"
	"  curl http://127.0.0.1:8080/ping                           an answer of culvert's own\n"
	"  curl -x http://127.0.0.1:3128 http://127.0.0.1:%u/     forward, absolute-form\n"
	"  curl -p -x http://127.0.0.1:3128 http://127.0.0.1:%u/  forward, CONNECT\n"
	"  curl -x http://127.0.0.1:3128 https://www.debian.org/     forward, CONNECT, with internet\n"
	"  curl 127.0.0.1:9090/healthz 127.0.0.1:9090/readyz 127.0.0.1:9090/metrics\n"
	"Ctrl-C drains and ends.\n";

/* ---------------------------------------------------------------- origins */
static int listen_any(uint16_t *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(fd, 64) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sin, &n) < 0)
		return -1;
	*port = ntohs(sin.sin_port);
	return fd;
}

static bool read_head(int fd)
{
	char buf[4096];
	size_t n = 0;

	while (n < sizeof(buf)) {
		ssize_t r = read(fd, buf + n, sizeof(buf) - n);

		if (r <= 0)
			return false;
		n += (size_t)r;
		if (memmem(buf, n, "\r\n\r\n", 4))
			return true;
	}
	return false;
}

static bool answer(int fd, unsigned number)
{
	char text[256], body[64];
	int n = snprintf(body, sizeof(body), "hello from origin %u\n", number);

	n = snprintf(text, sizeof(text),
		     "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
		     n, body);
	return write(fd, text, (size_t)n) == n;
}

struct visit {
	int fd;
	unsigned number;
};

static void *serve_visit(void *arg)
{
	struct visit v = *(struct visit *)arg;

	free(arg);
	while (read_head(v.fd) && answer(v.fd, v.number))
		;
	close(v.fd);
	return NULL;
}

static void *serve_origin(void *arg)
{
	struct origin *o = arg;
	pthread_t thread;

	for (;;) {
		int fd = accept(o->listen_fd, NULL, NULL);
		struct visit *v = fd >= 0 ? malloc(sizeof(*v)) : NULL;

		if (!v)
			continue;
		*v = (struct visit){ .fd = fd, .number = o->number };
		if (pthread_create(&thread, NULL, serve_visit, v) == 0)
			pthread_detach(thread);
	}
	return NULL;
}

static pid_t start_origins(struct origin *o)
{
	pthread_t thread[ORIGINS];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN); /* Ctrl-C is for the proxy: it drains first */
	for (unsigned i = 0; i < ORIGINS; i++)
		if (pthread_create(&thread[i], NULL, serve_origin, &o[i]) != 0)
			_exit(1);
	for (;;)
		pause();
}

/* ---------------------------------------------------------------- the demo */
static struct config *make_config(const struct origin *o)
{
	struct conf_report r = { 0 };
	char text[sizeof(template) + 64];
	int n = snprintf(text, sizeof(text), template, o[0].port, o[1].port, o[2].port, o[0].port,
			 o[1].port, o[2].port);
	struct config *c = config_load_text("demo", text, (size_t)n, &r);

	if (!c && r.text)
		fwrite(r.text, 1, r.n, stderr);
	free(r.text);
	return c;
}

int demo_run(const char *version, int (*run)(struct config *, const char *version))
{
	struct origin o[ORIGINS];
	struct config *c;
	pid_t pid;
	int code;

	for (unsigned i = 0; i < ORIGINS; i++) {
		o[i].number = i + 1;
		o[i].listen_fd = listen_any(&o[i].port);
		if (o[i].listen_fd < 0) {
			perror("culvert demo: an origin cannot listen");
			return 1;
		}
	}
	pid = start_origins(o);
	for (unsigned i = 0; i < ORIGINS; i++)
		close(o[i].listen_fd);
	c = pid > 0 ? make_config(o) : NULL;
	if (!c)
		return 2;
	printf(hints, o[0].port, o[0].port);
	fflush(stdout);
	code = run(c, version);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return code;
}
