/* priv.h -- shared by the HTTP/1 server and client sides: deadlines, the reader of messages, the
 * writer of messages; and the shard's memory of every codec. */
#ifndef WIRE_PRIV_H
#define WIRE_PRIV_H

#include "wire/h1_syntax.h"
#include "base/log.h"
#include "wire/wire.h"

/* --- deadlines: one alarm, two moments; pushing one on is one store (the wheel is lazy) --- */
struct deadlines {
	struct alarm alarm;
	uint64_t recv_ms, send_ms; /* moments; 0: not waiting */
};
/* ms 0: off */
void deadlines_push(struct loop *, struct deadlines *, uint64_t *which, uint32_t ms);
/* In the alarm's ring(): which one has passed (its moment is cleared), or NULL; arms the alarm
 * again for what is left. */
uint64_t *deadlines_passed(struct loop *, struct deadlines *);

/* --- reader: bytes of the peer -> head, body, trailers --- */
enum h1_reading { READ_HEAD = 0, READ_LENGTH, READ_CHUNK, READ_TRAILERS, READ_CLOSE, READ_DONE };
struct h1_reader {
	uint8_t state; /* enum h1_reading */
	bool in_chunk; /* READ_CHUNK: chunk.left bytes of data follow, not framing */
	struct h1_scan scan;
	struct h1_chunk chunk;
	uint64_t left;  /* READ_LENGTH */
	struct bufq in; /* what has arrived and is not yet read */
};
void h1_reader_init(struct h1_reader *);
void h1_reader_next(struct h1_reader *); /* for the next message; `in` stays */
void h1_reader_free(struct h1_reader *);
/* Takes the seg's first n bytes.  False: out of memory. */
bool h1_reader_put(struct h1_reader *, struct loop *, struct seg **, uint32_t n) MUST_CHECK;
/* READ_HEAD: > 0: a complete head of that many bytes was copied into the arena at *head, and is
 * taken out of `in`; 0: more bytes are needed; < 0: -enum h1_error; H1_NO_MEMORY. */
#define H1_NO_MEMORY (-1000)
int32_t h1_reader_head(struct h1_reader *, struct loop *, struct arena *, enum h1_role,
		       const struct h1_limits *, char **head);
void h1_reader_body(struct h1_reader *, enum body_kind, uint64_t length); /* after the head */
enum h1_progress { H1_NEED_BYTES = 0, H1_PIPE_FULL = 1, H1_COMPLETE = 2 };
/* Moves body bytes into the pipe.  enum h1_progress; < 0: -enum h1_error or H1_NO_MEMORY. */
int h1_reader_move(struct h1_reader *, struct loop *, struct pipe *,
		   const struct h1_limits *trailers);

/* --- writer: head, body, trailers -> bytes --- */
#define H1_OUT_HIGH (64u * 1024)
struct h1_writer {
	struct bufq out;
	bool chunked, head_out, done;
	bool failed; /* in the middle of a chunk, maybe: nothing may follow */
};
void h1_writer_init(struct h1_writer *);
void h1_writer_next(struct h1_writer *);
void h1_writer_free(struct h1_writer *);
/* h1_write_request() or h1_write_response().  False: out of memory, or larger than a seg. */
bool h1_writer_head(struct h1_writer *, struct loop *, h1_write_fn *, const struct head *,
		    const struct h1_write *) MUST_CHECK;
/* Takes body bytes, and at its end the last chunk and trailers, from the pipe, up to the high mark
 * of `out`.  False: out of memory, now or before. */
bool h1_writer_move(struct h1_writer *, struct loop *, struct pipe *) MUST_CHECK;

/* A configured limit, which may be `off`, for a parser. */
static inline uint32_t u32_limit(uint64_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* --- per shard (wire.c) --- */
uint32_t h1_conn_size(void);
uint32_t h1_client_size(void);
struct slab *wire_conns(struct loop *);
struct slab *wire_clients(struct loop *);

#endif
