/* uring_compat.h -- what liburing 2.3 and the kernel headers of its time do not have yet, or hide
 * in a library call.
 *
 * The submission queue is flushed and entered by hand: io_uring_submit_and_wait_timeout() of 2.3
 * may sleep its timeout twice, and one io_uring_enter per turn has to submit, wait and run the
 * deferred work.  For that the index array is filled once with the identity, so that publishing the
 * tail is all there is to a flush (what later liburings do themselves). */
#ifndef LOOP_URING_COMPAT_H
#define LOOP_URING_COMPAT_H

#include <liburing.h>

#include <stddef.h>
#include <stdint.h>

#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#ifndef IORING_ENTER_REGISTERED_RING
#define IORING_ENTER_REGISTERED_RING (1U << 4)
#endif
#ifndef IORING_RECV_MULTISHOT
#define IORING_RECV_MULTISHOT (1U << 1)
#endif

/* Most bytes that one multishot receive brings over its life, then it ends (Linux 6.18).  The
 * member is called optlen in later headers. */
static inline void uring_set_recv_limit(struct io_uring_sqe *sqe, uint32_t bytes)
{
	_Static_assert(offsetof(struct io_uring_sqe, file_index) == 44, "optlen");
	sqe->file_index = bytes;
}

static inline void uring_identity_array(struct io_uring *io)
{
	if (io->sq.array)
		for (unsigned i = 0; i < io->sq.ring_entries; i++)
			io->sq.array[i] = i;
}

/* Publishes what was prepared; returns how many entries the kernel has not taken yet. */
static inline unsigned uring_flush(struct io_uring *io)
{
	unsigned tail = io->sq.sqe_tail;

	io->sq.sqe_head = tail;
	io_uring_smp_store_release(io->sq.ktail, tail);
	return tail - *io->sq.khead;
}

static inline unsigned uring_unsubmitted(const struct io_uring *io)
{
	return io->sq.sqe_tail - *io->sq.khead;
}

#endif
