/* mail.c -- work for another shard's loop: a stack that any thread pushes on and the owner takes
 * whole, oldest first.
 *
 * The poster that finds the box empty writes the eventfd, all others only push: the one that wrote,
 * or is about to, wakes the loop for them.  The loop reads the eventfd before it empties the box
 * (reap comes before mail in a turn), so what is posted between the two is delivered, and what is
 * posted after finds the box empty and writes again.  No wake is lost; a spurious one costs a turn.
 *
 * Who frees a loop has seen to it that no other thread still posts (shards are joined first); what
 * had been posted is opened. */
#include "loop/priv.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct mail shut_mark;
#define MAIL_SHUT (&shut_mark)

static void on_wake(struct op *op, int32_t res)
{
	struct loop *loop = container_of(op, struct loop, box.poll);
	uint64_t n;

	if (res < 0 || loop->box.wake_fd < 0)
		return;
	if (read(loop->box.wake_fd, &n, sizeof(n)) < 0)
		must(errno == EAGAIN);
	mail_arm(loop);
}

void mail_arm(struct loop *loop)
{
	loop_poll(loop, &loop->box.poll, loop->box.wake_fd, POLLIN);
}

int mail_open(struct loop *loop)
{
	atomic_store(&loop->box.head, NULL);
	loop->box.wake_fd = -1;
	op_init(&loop->box.poll, on_wake);
	if (!loop->real_be->real)
		return 0;
	loop->box.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->box.wake_fd < 0)
		return -errno;
	mail_arm(loop);
	return 0;
}

bool loop_post(struct loop *loop, struct mail *m)
{
	static const uint64_t one = 1;
	struct mail *old = atomic_load_explicit(&loop->box.head, memory_order_relaxed);

	do {
		if (old == MAIL_SHUT)
			return false;
		atomic_store_explicit(&m->next, old, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(
		&loop->box.head, &old, m, memory_order_release, memory_order_relaxed));
	/* EAGAIN: the counter is full, so the loop is awake already. */
	if (!old && loop->box.wake_fd >= 0 && write(loop->box.wake_fd, &one, sizeof(one)) < 0)
		must(errno == EAGAIN);
	return true;
}

bool mail_waiting(const struct loop *loop)
{
	return atomic_load_explicit(&loop->box.head, memory_order_relaxed) != NULL;
}

static unsigned open_all(struct loop *loop, struct mail *newest)
{
	struct mail *oldest = NULL;
	unsigned n = 0;

	while (newest) {
		struct mail *next = atomic_load_explicit(&newest->next, memory_order_relaxed);

		atomic_store_explicit(&newest->next, oldest, memory_order_relaxed);
		oldest = newest;
		newest = next;
	}
	while (oldest) {
		struct mail *m = oldest;

		oldest = atomic_load_explicit(&m->next, memory_order_relaxed);
		m->open(loop, m);
		n++;
	}
	return n;
}

unsigned mail_deliver(struct loop *loop)
{
	if (!mail_waiting(loop))
		return 0;
	return open_all(loop,
			atomic_exchange_explicit(&loop->box.head, NULL, memory_order_acquire));
}

void mail_close(struct loop *loop)
{
	int fd = loop->box.wake_fd;

	open_all(loop, atomic_exchange_explicit(&loop->box.head, MAIL_SHUT, memory_order_acq_rel));
	if (fd < 0)
		return;
	loop->box.wake_fd = -1;
	loop_close(loop, fd);
	while (!op_idle(&loop->box.poll)) {
		loop->be->wait(loop, 0);
		loop_reap_deferred(loop);
		loop->be->reap(loop);
	}
}
