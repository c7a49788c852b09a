/* panic.h -- what happens when culvert itself is wrong.
 *
 * Three kinds of wrong take three paths: a bug ends here; the world's faults are negative errnos or
 * a row of why.tbl; a limit is a refusal with its own reason.  must() stays on in production;
 * hot_must() is compiled out when NDEBUG is set and is only for the inner loops.
 *
 * A panic prints the text, then lets every registered hook print what it owns (shard, exchange,
 * link, buffers), then abort()s: the whole process ends and the keeper starts it again. */
#ifndef BASE_PANIC_H
#define BASE_PANIC_H

#include <stdint.h>
#include <stdnoreturn.h>

noreturn void panic_at(const char *file, int line, const char *func, const char *what);
noreturn void panic_fmt(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Adds a hook; it may only read memory and write to fd 2.  At most PANIC_HOOKS of them, at
 * start. */
#define PANIC_HOOKS 8
void panic_hook(void (*dump)(int fd, void *arg), void *arg);
/* Catches SIGSEGV, SIGBUS, SIGFPE, SIGILL and turns them into panics (dump, then the default
 * action). */
void panic_signals(void);

#define must(cond) \
	(__builtin_expect(!!(cond), 1) ? (void)0 : panic_at(__FILE__, __LINE__, __func__, #cond))
#ifdef NDEBUG
#define hot_must(cond) ((void)0)
#else
#define hot_must(cond) must(cond)
#endif

#define MUST_CHECK __attribute__((warn_unused_result))
/* The rare way out of a hot function: kept out of it, so that it saves no registers. */
#define COLD __attribute__((noinline, cold))
/* Not rare, but its registers and buffers shall not burden the function that calls it. */
#define NOINLINE __attribute__((noinline))
#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - __builtin_offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
