/*
 * ring.h -- one io_uring and one ring of provided buffers, set up in the way that measured fastest:
 * a single thread issues and completions are run when it waits (SINGLE_ISSUER, DEFER_TASKRUN), one
 * io_uring_enter per turn, multishot receives that take a buffer only when bytes have come.
 *
 *   ring_wait()  submits what was prepared and waits for a completion
 *   buffer       `count` blocks of `size` bytes; a completed receive names one by its id, its owner
 *                gives it back with ring_recycle().  The kernel hands them out first-in-first-out,
 *                so all of them become resident: few buffers stay in the cache.
 */
#ifndef BENCH_RING_H
#define BENCH_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

struct ring {
	struct io_uring uring;
	struct io_uring_buf_ring *slots;
	uint8_t *memory;
	unsigned count, size;
};

/* count: a power of two, at most 32,768.  Ends the program when the kernel refuses. */
void ring_open(struct ring *r, unsigned count, unsigned size);

/* Submits, then blocks until there is at least one completion. */
void ring_wait(struct ring *r);

/* The same, but for `ns` at most. */
void ring_wait_for(struct ring *r, int64_t ns);

/* A cleared entry of the submission queue; what is already in it is submitted when it is full. */
static inline struct io_uring_sqe *ring_sqe(struct ring *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	while (!sqe) {
		io_uring_submit(&r->uring);
		sqe = io_uring_get_sqe(&r->uring);
	}
	return sqe;
}

/* The id of the buffer that a receive with IORING_CQE_F_BUFFER filled. */
static inline unsigned ring_buffer_id(const struct io_uring_cqe *cqe)
{
	return cqe->flags >> IORING_CQE_BUFFER_SHIFT;
}

static inline uint8_t *ring_buffer(const struct ring *r, unsigned id)
{
	return r->memory + (size_t)id * r->size;
}

static inline void ring_recycle(struct ring *r, unsigned id)
{
	io_uring_buf_ring_add(r->slots, ring_buffer(r, id), r->size, (unsigned short)id,
			      io_uring_buf_ring_mask(r->count), 0);
	io_uring_buf_ring_advance(r->slots, 1);
}

/* Receives on fd until it ends; the completion without IORING_CQE_F_MORE is the last one. */
static inline void ring_recv(struct ring *r, int fd, uint64_t tag)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = 0;
	sqe->user_data = tag;
}

/* One receive of what has come. */
static inline void ring_recv_once(struct ring *r, int fd, uint64_t tag)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_recv(sqe, fd, NULL, r->size, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = 0;
	sqe->user_data = tag;
}

/* Sends all of it; the bytes are borrowed until the completion. */
static inline struct io_uring_sqe *ring_send(struct ring *r, int fd, const void *bytes, size_t n,
					     uint64_t tag)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_send(sqe, fd, bytes, n, MSG_NOSIGNAL | MSG_WAITALL);
	sqe->user_data = tag;
	return sqe;
}

static inline void ring_accept(struct ring *r, int fd, uint64_t tag)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_multishot_accept(sqe, fd, NULL, NULL, 0);
	sqe->user_data = tag;
}

#endif
