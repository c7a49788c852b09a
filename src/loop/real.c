/* real.c -- the kernel's clocks, random bytes and plain socket calls: what both real back ends give
 * as their own.  Exports: loop_real_* */
#include "loop/priv.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

void loop_real_clock(struct loop *loop, uint64_t *mono_us, int64_t *wall_us)
{
	uint64_t now = clock_us(CLOCK_MONOTONIC);

	if (now - loop->wall_read_us >= LOOP_WALL_EVERY_US) {
		loop->wall_off_us = (int64_t)clock_us(CLOCK_REALTIME) - (int64_t)now;
		loop->wall_read_us = now;
	}
	*mono_us = now;
	*wall_us = (int64_t)now + loop->wall_off_us;
}

void loop_real_random(struct loop *loop, void *p, size_t n)
{
	uint8_t *to = p;

	while (n > 0) {
		size_t take = n < loop->n_random ? n : loop->n_random;

		if (take == 0) {
			if (getrandom(loop->random, LOOP_RANDOM, 0) != LOOP_RANDOM)
				panic_fmt("getrandom: %s", strerror(errno));
			loop->n_random = LOOP_RANDOM;
			continue;
		}
		loop->n_random -= (uint32_t)take;
		memcpy(to, loop->random + loop->n_random, take);
		/* never given twice, never found in a dump */
		memset(loop->random + loop->n_random, 0, take);
		to += take;
		n -= take;
	}
}

int loop_real_socket(struct loop *loop, int family, int type)
{
	int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	(void)loop;
	if (fd < 0)
		return -errno;
	return fd; /* cppcheck-suppress resourceLeak ; the caller's */
}

int loop_real_sockopt(struct loop *loop, int fd, int level, int name, const void *val, socklen_t n)
{
	(void)loop;
	return setsockopt(fd, level, name, val, n) ? -errno : 0;
}

int loop_real_sockname(struct loop *loop, int fd, bool peer, struct sockaddr *sa, socklen_t *n)
{
	int rc = peer ? getpeername(fd, sa, n) : getsockname(fd, sa, n);

	(void)loop;
	return rc ? -errno : 0;
}

int loop_real_shutdown(struct loop *loop, int fd, int how)
{
	(void)loop;
	return shutdown(fd, how) ? -errno : 0;
}
