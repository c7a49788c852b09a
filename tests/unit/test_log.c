/* test_log.c -- rings and the writer thread, with sinks that are quick, blocked, full, torn and
 * swapped; the operational log. */
#include "unit.h"

#include "base/log.h"
#include "base/panic.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char text[8 << 20];

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

#define WAIT_FOR(cond)                                             \
	do {                                                       \
		uint64_t until_ = now_ms() + 20000;                \
		while (!(cond)) {                                  \
			if (now_ms() > until_)                     \
				fail_msg("never came: %s", #cond); \
			nap();                                     \
		}                                                  \
	} while (0)

static int temp_file(void)
{
	char name[] = "/tmp/test_log.XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	return fd;
}

static const char *file_text(int fd)
{
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

static void assert_has(const char *all, const char *part)
{
	if (!strstr(all, part))
		fail_msg("'%s' is not in '%s'", part, all);
}

static bool line(struct log_ring *r, const char *s)
{
	uint32_t n = (uint32_t)strlen(s);
	char *p = log_ring_reserve(r, n);

	if (!p)
		return false;
	memcpy(p, s, n);
	log_ring_commit(r, n);
	return true;
}

/* Its pages go when all is written, and what is not yet written stays. */
static void test_ring_calm(void **state)
{
	struct log_sink *sink = log_sink_new("calm", temp_file());
	struct log_ring *r = log_ring_new(sink, 1 << 16);
	unsigned char in_core[16];
	uintptr_t page;
	char *first, *p;

	(void)state;
	first = log_ring_reserve(r, 30000);
	memset(first, 'x', 29999);
	first[29999] = '\n';
	page = ((uintptr_t)first + 4095) & ~(uintptr_t)4095;
	log_ring_commit(r, 30000);
	log_ring_calm(r); /* nobody has written it yet */
	assert_int_equal(first[20000], 'x');
	assert_int_equal(log_writer_start(), 0);
	WAIT_FOR(log_sink_written(sink) == 1);
	assert_int_equal(mincore((void *)page, 8192, in_core), 0);
	assert_true(in_core[0] & 1);
	log_ring_calm(r);
	assert_int_equal(mincore((void *)page, 8192, in_core), 0);
	assert_false(in_core[0] & 1);
	p = log_ring_reserve(r, 3);
	assert_ptr_equal(p, first + 30000);
	memcpy(p, "ab\n", 3);
	log_ring_commit(r, 3);
	WAIT_FOR(log_sink_written(sink) == 2);
	log_writer_stop();
	assert_int_equal(log_sink_dropped(sink), 0);
}

static void test_ring_full(void **state)
{
	int fd = temp_file();
	struct log_sink *s = log_sink_new("full", fd);
	struct log_ring *r = log_ring_new(s, 4096);
	char *p;

	(void)state;
	assert_string_equal(log_sink_name(s), "full");
	assert_null(log_ring_reserve(r, 4097));
	for (unsigned i = 0; i < 64; i++) /* 64 lines of 64 bytes: filled to the last byte */
		assert_true(line(
			r, "012345678901234567890123456789012345678901234567890123456789012\n"));
	assert_false(line(r, "x\n"));
	assert_null(log_ring_reserve(r, 1));
	assert_int_equal(log_sink_dropped(s), 3);
	assert_int_equal(log_sink_written(s), 0);
	assert_int_equal(log_writer_start(), 0);
	WAIT_FOR(log_sink_written(s) == 64);
	assert_true(line(r, "more\n"));
	p = log_ring_reserve(r, 2000); /* reserved, then given up */
	assert_non_null(p);
	log_ring_commit(r, 0);
	p = log_ring_reserve(r, 2000);
	memcpy(p, "less\n", 5);
	log_ring_commit(r, 5);
	log_writer_stop();
	assert_int_equal(log_sink_written(s), 66);
	assert_int_equal(log_sink_dropped(s), 3);
	assert_int_equal(strlen(file_text(fd)), 64 * 64 + 10);
	assert_string_equal(text + 64 * 64, "more\nless\n");
}

/* --- many producers --- */

struct producer {
	pthread_t thread;
	struct log_ring *ring;
	unsigned id, lines;
	bool wait; /* for room instead of dropping */
	uint64_t sent;
};

/* "id number xxx." with a number of x that the number tells; returns its length. */
static uint32_t numbered(char buf[400], unsigned id, unsigned i)
{
	char pad[300];
	int n;

	memset(pad, 'x', sizeof(pad));
	n = snprintf(buf, 400, "%u %u %.*s.\n", id, i, (int)(i * 7919 % 300), pad);
	return (uint32_t)n;
}

static void *produce(void *arg)
{
	struct producer *p = arg;

	for (unsigned i = 0; i < p->lines; i++) {
		char *at;

		do {
			/* more than is used, as the access log does */
			at = log_ring_reserve(p->ring, 400);
			if (!at && p->wait)
				nap();
		} while (!at && p->wait);
		if (!at)
			continue;
		log_ring_commit(p->ring, numbered(at, p->id, i));
		p->sent++;
	}
	return NULL;
}

/* Every line whole, and those of one producer in order; returns how many. */
static uint64_t check_lines(const char *all, unsigned producers)
{
	uint64_t n = 0;
	int last[8];

	memset(last, -1, sizeof(last));
	while (*all) {
		const char *end = strchr(all, '\n');
		unsigned id, i;
		int pos = 0;

		assert_non_null(end);
		if (sscanf(all, "%u %u %n", &id, &i, &pos) != 2 || id >= producers)
			fail_msg("torn: %.60s", all);
		if ((size_t)(end - all) != (size_t)pos + i * 7919 % 300 + 1 || end[-1] != '.')
			fail_msg("torn: %.60s", all);
		assert_true((int)i > last[id]);
		last[id] = (int)i;
		all = end + 1;
		n++;
	}
	return n;
}

static void run_producer(struct producer *p, unsigned id, struct log_sink *sink, unsigned lines,
			 bool wait)
{
	*p = (struct producer){ .id = id,
				.lines = lines,
				.wait = wait,
				.ring = log_ring_new(sink, 16384) };
	assert_int_equal(pthread_create(&p->thread, NULL, produce, p), 0);
}

static void test_producers(void **state)
{
	int fd = temp_file();
	struct log_sink *s = log_sink_new("file", fd);
	struct producer p[3];
	uint64_t drops;
	char one[400];

	(void)state;
	assert_int_equal(log_writer_start(), 0);
	for (unsigned i = 0; i < 3; i++)
		run_producer(&p[i], i, s, 4000, true);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(p[i].thread, NULL);
	log_writer_stop();
	assert_int_equal(check_lines(file_text(fd), 3), 12000);
	assert_int_equal(log_sink_written(s), 12000);
	drops = log_sink_dropped(s); /* each attempt that found no room */
	log_writer_stop();           /* again: nothing */
	assert_int_equal(log_writer_start(), 0);
	numbered(one, 0, 4000);
	assert_true(line(p[0].ring, one));
	log_writer_stop();
	assert_int_equal(log_sink_written(s), 12001);
	assert_int_equal(log_sink_dropped(s), drops);
}

/* --- a pipe that blocks --- */

static size_t drain_pipe(int fd, size_t n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t k;

	while (poll(&p, 1, 0) > 0 && (k = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)k;
	text[n] = '\0';
	return n;
}

static void test_blocked_pipe(void **state)
{
	struct log_sink *slow, *quick;
	int fd = temp_file(), pipe_fd[2];
	struct producer p[2];
	char one[400];
	size_t n = 0;

	(void)state;
	assert_int_equal(pipe(pipe_fd), 0);
	assert_true(fcntl(pipe_fd[1], F_SETPIPE_SZ, 4096) >= 4096); /* less than the ring */
	slow = log_sink_new("pipe", pipe_fd[1]);
	quick = log_sink_new("file", fd);
	assert_int_equal(log_writer_start(), 0);
	run_producer(&p[0], 0, slow, 4000, false);
	run_producer(&p[1], 1, quick, 4000, true);
	pthread_join(p[0].thread, NULL);
	pthread_join(p[1].thread, NULL);
	/* Nobody reads the pipe: it and the ring are full, the rest was dropped; the other sink
	 * goes on. */
	WAIT_FOR(log_sink_written(quick) == p[1].sent);
	assert_true(log_sink_dropped(slow) > 0);
	assert_int_equal(log_sink_dropped(slow), 4000 - p[0].sent);
	assert_true(log_sink_written(slow) < p[0].sent);
	/* Now somebody does. */
	WAIT_FOR((n = drain_pipe(pipe_fd[0], n)) > 0 && log_sink_written(slow) == p[0].sent);
	numbered(one, 0, 4000);
	assert_true(line(p[0].ring, one));
	log_writer_stop();
	drain_pipe(pipe_fd[0], n);
	assert_int_equal(check_lines(text, 1), p[0].sent + 1);
	close(pipe_fd[0]);
}

static void test_end_with_blocked_pipe(void **state)
{
	struct log_sink *slow;
	struct log_ring *r;
	uint64_t sent = 0;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	assert_true(fcntl(p[1], F_SETPIPE_SZ, 4096) >= 4096);
	slow = log_sink_new("pipe", p[1]);
	r = log_ring_new(slow, 4096);
	assert_int_equal(log_writer_start(), 0);
	while (log_sink_dropped(slow) < 10) {
		if (line(r, "0123456789012345678901234567890123456789\n"))
			sent++;
		nap();
	}
	log_writer_stop(); /* comes back, although nobody reads */
	assert_int_equal(log_sink_written(slow) + log_sink_dropped(slow), sent + 10);
	assert_true(log_sink_dropped(slow) > 10);
	close(p[0]);
}

static void test_reader_gone(void **state)
{
	struct log_sink *s;
	struct log_ring *r;
	int p[2], fd = temp_file();

	(void)state;
	assert_int_equal(pipe(p), 0);
	s = log_sink_new("gone", p[1]);
	r = log_ring_new(s, 4096);
	close(p[0]);
	assert_int_equal(log_writer_start(), 0);
	assert_true(line(r, "nobody\n"));
	WAIT_FOR(log_sink_dropped(s) == 1); /* and SIGPIPE killed nobody */
	assert_int_equal(log_sink_swap_fd(s, fd), p[1]);
	close(p[1]);
	assert_true(line(r, "somebody\n"));
	log_writer_stop();
	assert_string_equal(file_text(fd), "somebody\n");
	assert_int_equal(log_sink_written(s), 1);
}

static void test_socket(void **state)
{
	struct log_sink *s;
	struct producer p;
	size_t n = 0;
	int sv[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	s = log_sink_new("socket", sv[0]);
	assert_int_equal(log_writer_start(), 0);
	/* more than the socket holds: sends are cut anywhere */
	run_producer(&p, 0, s, 6000, false);
	pthread_join(p.thread, NULL);
	WAIT_FOR((n = drain_pipe(sv[1], n)) > 0 && log_sink_written(s) == p.sent);
	log_writer_stop();
	drain_pipe(sv[1], n);
	assert_int_equal(check_lines(text, 1), p.sent);
	assert_int_equal(log_sink_dropped(s), 6000 - p.sent);
	close(sv[0]);
	close(sv[1]);
}

static void test_dev_full(void **state)
{
	int full = open("/dev/full", O_WRONLY), fd = temp_file();
	struct log_sink *s = log_sink_new("full", full);
	struct log_ring *r = log_ring_new(s, 4096);

	(void)state;
	assert_int_equal(log_writer_start(), 0);
	for (unsigned i = 0; i < 100; i++) {
		WAIT_FOR(line(r, "lost\n"));
		if (i % 10 == 0)
			nap();
	}
	WAIT_FOR(log_sink_dropped(s) == 100);
	assert_int_equal(log_sink_written(s), 0);
	assert_int_equal(log_sink_swap_fd(s, fd), full); /* room again */
	close(full);
	assert_true(line(r, "kept\n"));
	WAIT_FOR(log_sink_written(s) == 1);
	log_writer_stop();
	assert_string_equal(file_text(fd), "kept\n");
	assert_int_equal(log_sink_dropped(s), 100);
}

static void test_swap(void **state)
{
	int fd[20];
	struct log_sink *s;
	struct producer p;
	uint64_t n = 0;

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		fd[i] = temp_file();
	s = log_sink_new("swap", fd[0]);
	assert_int_equal(log_writer_start(), 0);
	run_producer(&p, 0, s, 20000, true);
	for (unsigned i = 1; i < 20; i++) {
		WAIT_FOR(log_sink_written(s) >= i * 900);
		assert_int_equal(log_sink_swap_fd(s, fd[i]), fd[i - 1]);
	}
	pthread_join(p.thread, NULL);
	log_writer_stop();
	for (unsigned i = 0; i < 20; i++) {
		n += check_lines(file_text(fd[i]), 1);
		close(fd[i]);
	}
	assert_int_equal(n, 20000);
}

/* --- in a child: limits and panics are for the whole process --- */

static int child(void (*what)(int fd), int fd)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		signal(SIGABRT, SIG_DFL); /* cmocka's own handler */
		what(fd);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* The disk is full in the middle of a line, then has room again. */
static void do_torn(int fd)
{
	struct log_sink *s = log_sink_new("torn", fd);
	struct log_ring *r = log_ring_new(s, 4096);

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 25, RLIM_INFINITY });
	if (log_writer_start() || !line(r, "123456789\n"))
		_exit(1);
	while (log_sink_written(s) < 1)
		nap();
	for (unsigned i = 0; i < 5; i++)
		if (!line(r, "abcdefghi\n"))
			_exit(2);
	while (log_sink_written(s) + log_sink_dropped(s) < 6)
		nap();
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
	if (!line(r, "after\n"))
		_exit(3);
	log_writer_stop();
	_exit(log_sink_dropped(s) == 4 && log_sink_written(s) == 3 ? 0 : 4);
}

static void test_torn(void **state)
{
	int fd = temp_file(), status = child(do_torn, fd);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_string_equal(file_text(fd), "123456789\nabcdefghi\nabcde\nafter\n");
}

static void do_panic(int fd)
{
	struct log_sink *s = log_sink_new("last", fd);
	int null = open("/dev/null", O_WRONLY);

	dup2(null, STDERR_FILENO);
	log_say_open(s, LOG_INFO, LOG_TEXT);
	if (log_writer_start())
		_exit(1);
	log_say(LOG_ERROR, "the last %s", "words");
	must(!"now");
}

static void test_panic(void **state)
{
	int fd = temp_file(), status = child(do_panic, fd);

	(void)state;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_has(file_text(fd), " error the last words\n");
}

/* --- operational log --- */

static void do_stderr(int fd)
{
	dup2(fd, STDERR_FILENO);
	log_say(LOG_DEBUG, "not shown");
	log_say(LOG_INFO, "keeper: %d %s\n\x1b", 7, "sockets \"bound\"");
}

static void test_say_stderr(void **state)
{
	int fd = temp_file();

	(void)state;
	assert_int_equal(child(do_stderr, fd), 0);
	file_text(fd);
	assert_int_equal(strspn(text, "0123456789-T:.Z"), 27);
	assert_string_equal(text + 27, " info keeper: 7 sockets \"bound\"\\x0a\\x1b\n");
}

static void test_say_levels_and_json(void **state)
{
	int fd = temp_file();
	struct log_sink *s = log_sink_new("say", fd);
	char big[3000];

	(void)state;
	log_say_open(s, LOG_WARN, LOG_JSON);
	assert_true(log_say_on(LOG_ERROR) && log_say_on(LOG_WARN) && !log_say_on(LOG_INFO));
	log_say(LOG_INFO, "not shown %d", 1);
	log_say(LOG_WARN, "no writer \"%d\"\n", 1); /* at once, as no writer runs */
	assert_has(file_text(fd),
		   "\",\"level\":\"warn\",\"message\":\"no writer \\\"1\\\"\\n\"}\n");
	assert_int_equal(log_writer_start(), 0);
	log_say_level(LOG_DEBUG);
	log_say(LOG_DEBUG, "d%d", 1);
	memset(big, '\1', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	log_say(LOG_INFO, "%s", big); /* cut, and the longest line there is */
	log_writer_stop();
	file_text(fd);
	assert_memory_equal(text, "{\"time\":\"20", 11);
	assert_has(text, "\"level\":\"debug\",\"message\":\"d1\"}\n");
	assert_has(text, "\\u0001\xe2\x80\xa6\"}\n");
	log_say_open(NULL, LOG_INFO, LOG_TEXT);
}

static unsigned occurs(const char *all, const char *part)
{
	unsigned n = 0;

	while ((all = strstr(all, part)) != NULL) {
		n++;
		all += strlen(part);
	}
	return n;
}

static void test_say_folds(void **state)
{
	int fd = temp_file();
	struct log_sink *s = log_sink_new("say", fd);

	(void)state;
	log_say_open(s, LOG_INFO, LOG_TEXT);
	assert_int_equal(log_writer_start(), 0);
	for (int i = 0; i < 3; i++)
		log_say(LOG_INFO, "listening on %d", i); /* information: other text, other line */
	for (int i = 0; i < 42; i++)
		log_say(LOG_WARN, "server %d refused", i); /* a warning: the format counts */
	for (int i = 0; i < 5; i++)
		log_say(LOG_INFO, "same");
	/* by itself, a second later */
	WAIT_FOR(strstr(file_text(fd), "server 0 refused \xe2\x80\xa6 (41 more like this)\n"));
	WAIT_FOR(strstr(file_text(fd), "info same \xe2\x80\xa6 (4 more like this)\n"));
	log_say(LOG_WARN, "server %d refused", 99);
	log_writer_stop();
	file_text(fd);
	assert_int_equal(occurs(text, "listening on"), 3);
	assert_int_equal(occurs(text, "refused\n"), 2);
	assert_int_equal(occurs(text, "same\n"), 1);
	assert_has(text, "warn server 0 refused\n");
	log_say_open(NULL, LOG_INFO, LOG_TEXT);
}

static void test_say_folds_told_at_end(void **state)
{
	int fd = temp_file();
	struct log_sink *s = log_sink_new("say", fd);

	(void)state;
	log_say_open(s, LOG_INFO, LOG_JSON);
	assert_int_equal(log_writer_start(), 0);
	for (int i = 0; i < 8; i++)
		log_say(LOG_ERROR, "disk %d", i);
	log_writer_stop();
	assert_has(file_text(fd), "\"message\":\"disk 0\"}\n");
	assert_has(text, "\"message\":\"disk 0\",\"more\":7}\n");
	log_say_open(NULL, LOG_INFO, LOG_TEXT);
}

static void *say_much(void *arg)
{
	for (int i = 0; i < 500; i++)
		log_say(LOG_INFO, "thread %p line %d", arg, i);
	return NULL;
}

static void test_say_threads(void **state)
{
	int fd = temp_file();
	struct log_sink *s = log_sink_new("say", fd);
	pthread_t t[3];

	(void)state;
	log_say_open(s, LOG_INFO, LOG_TEXT);
	assert_int_equal(log_writer_start(), 0);
	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, say_much, t + i + 1), 0);
	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		pthread_join(t[i], NULL);
	log_writer_stop();
	assert_int_equal(log_sink_written(s) + log_sink_dropped(s), 1500);
	assert_int_equal(occurs(file_text(fd), "\n"), log_sink_written(s));
	log_say_open(NULL, LOG_INFO, LOG_TEXT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_say_stderr),
		cmocka_unit_test(test_ring_calm),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_producers),
		cmocka_unit_test(test_blocked_pipe),
		cmocka_unit_test(test_end_with_blocked_pipe),
		cmocka_unit_test(test_reader_gone),
		cmocka_unit_test(test_socket),
		cmocka_unit_test(test_dev_full),
		cmocka_unit_test(test_swap),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_panic),
		cmocka_unit_test(test_say_levels_and_json),
		cmocka_unit_test(test_say_folds),
		cmocka_unit_test(test_say_folds_told_at_end),
		cmocka_unit_test(test_say_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
