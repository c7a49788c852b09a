/* panic.c -- the last words of the process, then abort().
 *
 *   must() false, panic_fmt()          text, stack, hooks, abort()
 *   SIGSEGV, SIGBUS, SIGFPE, SIGILL    signal, address, stack, hooks, then the default action
 *
 * Any thread may get here, two at once or one twice (a hook may itself be hit by what is broken):
 * the first one speaks, the same thread again goes straight to the end, any other thread waits for
 * the end.  Nothing here allocates. */
#include "base/panic.h"

#include "base/out.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
	void (*dump)(int fd, void *arg);
	void *arg;
} hooks[PANIC_HOOKS];
static unsigned n_hooks;

static int speaking; /* atomic: somebody is at it */
static pthread_t speaker;

static void say(const struct out *o)
{
	if (write(STDERR_FILENO, o->base, out_len(o)) < 0)
		return; /* nobody is left to be told */
}

/* True for the thread that shall speak; false for one that panics while it speaks. */
static bool panic_begin(void)
{
	if (!__atomic_exchange_n(&speaking, 1, __ATOMIC_SEQ_CST)) {
		speaker = pthread_self();
		return true;
	}
	if (pthread_equal(speaker, pthread_self()))
		return false;
	for (;;)
		pause();
}

static void panic_tell(void)
{
	void *stack[64];
	int n = backtrace(stack, ARRAY_LEN(stack));

	backtrace_symbols_fd(stack, n, STDERR_FILENO);
	for (unsigned i = 0; i < n_hooks; i++)
		hooks[i].dump(STDERR_FILENO, hooks[i].arg);
}

static noreturn void panic_end(const struct out *text)
{
	if (panic_begin()) {
		say(text);
		panic_tell();
	} else {
		say(text);
	}
	abort();
}

noreturn void panic_at(const char *file, int line, const char *func, const char *what)
{
	char buf[1024];
	struct out o;

	out_init(&o, buf, sizeof(buf));
	out_lit(&o, "culvert: panic: ");
	out_str(&o, str_of(file));
	out_char(&o, ':');
	out_u64(&o, (uint64_t)line);
	out_lit(&o, ": ");
	out_str(&o, str_of(func));
	out_lit(&o, ": must hold: ");
	out_str(&o, str_of(what));
	out_char(&o, '\n');
	panic_end(&o);
}

noreturn void panic_fmt(const char *fmt, ...)
{
	char buf[1024], text[960];
	struct out o;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	out_init(&o, buf, sizeof(buf));
	out_lit(&o, "culvert: panic: ");
	out_str(&o, str_of(text));
	out_char(&o, '\n');
	panic_end(&o);
}

void panic_hook(void (*dump)(int fd, void *arg), void *arg)
{
	must(n_hooks < PANIC_HOOKS);
	hooks[n_hooks].dump = dump;
	hooks[n_hooks].arg = arg;
	n_hooks++;
}

static const char *signal_name(int sig)
{
	switch (sig) {
	case SIGSEGV: return "SIGSEGV";
	case SIGBUS: return "SIGBUS";
	case SIGFPE: return "SIGFPE";
	default: return "SIGILL";
	}
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	char buf[128];
	struct out o;

	(void)context;
	signal(sig, SIG_DFL);
	out_init(&o, buf, sizeof(buf));
	out_lit(&o, "culvert: panic: ");
	out_str(&o, str_of(signal_name(sig)));
	if (info->si_code > 0) {
		out_lit(&o, " at address 0x");
		out_hex(&o, (uint64_t)(uintptr_t)info->si_addr);
	} else {
		out_lit(&o, " sent by process ");
		out_u64(&o, (uint64_t)info->si_pid);
	}
	out_char(&o, '\n');
	if (panic_begin()) {
		say(&o);
		panic_tell();
	}
	/* A fault strikes again on return, with the registers that a core dump should show; a sent
	 * signal does not. */
	if (info->si_code <= 0)
		raise(sig);
}

void panic_signals(void)
{
	/* the caller's stack may be what overflowed; other threads speak from their own */
	static char alt[65536];
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
	stack_t ss = { .ss_sp = alt, .ss_size = sizeof(alt) };
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	void *warm[1];

	backtrace(warm, 1); /* loads the unwinder now: later is too late for malloc */
	sigaltstack(&ss, NULL);
	sigemptyset(&sa.sa_mask);
	for (unsigned i = 0; i < ARRAY_LEN(sigs); i++)
		sigaction(sigs[i], &sa, NULL);
}
