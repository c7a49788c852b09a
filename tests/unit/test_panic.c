/* test_panic.c -- each panic in a child whose standard error is read. */
#include "unit.h"

#include "base/panic.h"
#include "base/str.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[65536];

/* Runs what() in a child; returns how it ended, its words in said[]. */
static int child(void (*what)(void))
{
	const struct rlimit no_core = { 0, 0 };
	size_t n = 0;
	int p[2], status;
	ssize_t k;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGABRT, SIG_DFL); /* cmocka's own handlers */
		signal(SIGSEGV, SIG_DFL);
		dup2(p[1], STDERR_FILENO);
		what();
		_exit(0);
	}
	close(p[1]);
	while ((k = read(p[0], said + n, sizeof(said) - 1 - n)) > 0)
		n += (size_t)k;
	said[n] = '\0';
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void assert_said(const char *text)
{
	if (!strstr(said, text))
		fail_msg("'%s' is not in '%s'", text, said);
}

static void dump(int fd, void *arg)
{
	if (write(fd, arg, strlen(arg)) < 0)
		_exit(9);
}

static void do_must(void)
{
	panic_hook(dump, (char[]){ "first hook\n" });
	panic_hook(dump, (char[]){ "second hook\n" });
	must(1 + 1 == 2);
	must(1 + 1 == 3);
}

static void test_must(void **state)
{
	int status = child(do_must);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_said("culvert: panic: ");
	assert_said("test_panic.c:");
	assert_said(": do_must: must hold: 1 + 1 == 3\n");
	assert_said("first hook\nsecond hook\n");
}

static void do_fmt(void)
{
	panic_fmt("%s %d", "slot", 17);
}

static void test_fmt(void **state)
{
	int status = child(do_fmt);

	(void)state;
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_said("culvert: panic: slot 17\n");
}

static void broken_dump(int fd, void *arg)
{
	(void)fd;
	(void)arg;
	must(!"inside");
}

static void do_twice(void)
{
	panic_hook(broken_dump, NULL);
	must(!"outside");
}

static void test_panic_in_hook(void **state)
{
	int status = child(do_twice);

	(void)state;
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_said("outside");
	assert_said("inside");
}

static void *volatile nowhere = (void *)4096;

static void do_segv(void)
{
	panic_hook(dump, (char[]){ "hook\n" });
	panic_signals();
	*(volatile char *)nowhere = 1;
}

static void test_segv(void **state)
{
	int status = child(do_segv);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	assert_said("culvert: panic: SIGSEGV at address 0x1000\n");
	assert_said("hook\n");
}

static void do_sent(void)
{
	panic_signals();
	kill(getpid(), SIGBUS);
}

static void test_sent(void **state)
{
	int status = child(do_sent);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
	assert_said("culvert: panic: SIGBUS sent by process ");
}

static void *panic_too(void *arg)
{
	(void)arg;
	must(!"thread");
	return NULL;
}

static void do_threads(void)
{
	pthread_t t[4];

	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		if (pthread_create(&t[i], NULL, panic_too, NULL))
			_exit(9);
	pthread_join(t[0], NULL);
}

static void test_threads(void **state)
{
	int status = child(do_threads);
	const char *first = said, *second;

	(void)state;
	assert_int_equal(WTERMSIG(status), SIGABRT);
	first = strstr(said, "culvert: panic: ");
	assert_non_null(first);
	second = strstr(first + 1, "culvert: panic: ");
	assert_null(second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_must),          cmocka_unit_test(test_fmt),
		cmocka_unit_test(test_panic_in_hook), cmocka_unit_test(test_segv),
		cmocka_unit_test(test_sent),          cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
