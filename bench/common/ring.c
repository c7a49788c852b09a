/* ring.c -- see ring.h */
#define _GNU_SOURCE
#include "ring.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { SUBMISSIONS = 2048, COMPLETIONS = 16384 };

static void *pages(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		err(1, "mmap");
	return at;
}

static void open_uring(struct ring *r)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL,
		.cq_entries = COMPLETIONS,
	};
	int res = io_uring_queue_init_params(SUBMISSIONS, &r->uring, &p);

	if (res)
		errx(1, "io_uring: %s", strerror(-res));
	(void)io_uring_register_ring_fd(&r->uring); /* a percent where it works */
}

static void open_buffers(struct ring *r)
{
	struct io_uring_buf_reg reg = { .ring_entries = r->count, .bgid = 0 };
	int mask = io_uring_buf_ring_mask(r->count);
	int res;

	r->memory = pages((size_t)r->count * r->size);
	r->slots = pages(r->count * sizeof(struct io_uring_buf));
	reg.ring_addr = (uint64_t)(uintptr_t)r->slots;
	res = io_uring_register_buf_ring(&r->uring, &reg, 0);
	if (res)
		errx(1, "provided buffers: %s", strerror(-res));
	io_uring_buf_ring_init(r->slots);
	for (unsigned i = 0; i < r->count; i++)
		io_uring_buf_ring_add(r->slots, ring_buffer(r, i), r->size, (unsigned short)i, mask,
				      (int)i);
	io_uring_buf_ring_advance(r->slots, (int)r->count);
}

void ring_open(struct ring *r, unsigned count, unsigned size)
{
	*r = (struct ring){ .count = count, .size = size };
	open_uring(r);
	open_buffers(r);
}

static void check(int res)
{
	if (res < 0 && res != -EINTR && res != -ETIME && res != -EBUSY)
		errx(1, "io_uring_enter: %s", strerror(-res));
}

void ring_wait(struct ring *r)
{
	check(io_uring_submit_and_wait(&r->uring, 1));
}

void ring_wait_for(struct ring *r, int64_t ns)
{
	struct __kernel_timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	struct io_uring_cqe *cqe;

	check(io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, &t, NULL));
}
