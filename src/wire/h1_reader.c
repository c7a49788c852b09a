/* h1_reader.c -- takes an HTTP/1 message apart as its bytes come, however they are cut.
 *
 *   in: [seg…][seg…]          READ_HEAD      scanned until the empty line, copied once into the
 *                             arena
 *        └ head ┘└ body …     READ_LENGTH    moved to the pipe, span by span, nothing copied
 *                             READ_CHUNK     framing read and dropped, data moved
 *                             READ_TRAILERS  like a head
 *                             READ_CLOSE     moved until the connection ends
 *                             READ_DONE      what is left in `in` belongs to the next message */
#include "wire/priv.h"

void h1_reader_init(struct h1_reader *r)
{
	memset(r, 0, offsetof(struct h1_reader, in));
	bufq_init(&r->in, 0);
}

void h1_reader_next(struct h1_reader *r)
{
	memset(r, 0, offsetof(struct h1_reader, in));
}

void h1_reader_free(struct h1_reader *r)
{
	bufq_free(&r->in);
}

/* Heads and framing lines that come in pieces are gathered by copying small pieces behind each
 * other, so that a peer who sends single bytes costs neither a seg per byte nor quadratic work. */
bool h1_reader_put(struct h1_reader *r, struct loop *l, struct seg **seg, uint32_t n)
{
	bool ok;

	if (bufq_empty(&r->in) || n >= SEG_SMALL_BLOCK / 2)
		return bufq_put_seg(&r->in, seg, 0, n);
	ok = bufq_put_copy(&r->in, loop_segs(l, SEG_SMALL), (*seg)->data, n);
	seg_drop(seg);
	return ok;
}

/* Makes the head of `in` one run of bytes, as far as one seg can hold. */
static COLD bool flatten(struct bufq *in, struct loop *l)
{
	struct seg_pool *pool =
		loop_segs(l, in->bytes * 2 <= SEG_SMALL_BLOCK ? SEG_SMALL : SEG_LARGE);
	struct seg *seg = seg_get(pool);
	struct bufq rest;
	bool ok;

	if (!seg)
		return false;
	seg->used = bufq_peek(in, seg->data, seg->cap);
	bufq_drop(in, seg->used);
	bufq_init(&rest, 0);
	bufq_move(&rest, in, in->bytes);
	ok = bufq_put_seg(in, &seg, 0, seg->used) &&
	     bufq_move(in, &rest, rest.bytes) < UINT64_MAX && bufq_empty(&rest);
	seg_drop(&seg);
	bufq_free(&rest);
	return ok;
}

/* Scans the front; where the head goes on in a second span, gathers first. */
static int32_t scan(struct h1_reader *r, struct loop *l, enum h1_role role,
		    const struct h1_limits *lim)
{
	struct str front = bufq_front(&r->in);
	int32_t n;

	if (!front.n)
		return 0;
	n = h1_scan(&r->scan, role, lim, front.p, front.n);
	if (n != 0 || front.n == r->in.bytes)
		return n;
	if (!flatten(&r->in, l))
		return H1_NO_MEMORY;
	front = bufq_front(&r->in);
	n = h1_scan(&r->scan, role, lim, front.p, front.n);
	/* more than a seg holds */
	return n == 0 && front.n < r->in.bytes ? -H1_E_HEAD_TOO_LARGE : n;
}

int32_t h1_reader_head(struct h1_reader *r, struct loop *l, struct arena *a, enum h1_role role,
		       const struct h1_limits *lim, char **head)
{
	int32_t n = scan(r, l, role, lim);
	uint32_t skip = r->scan.skip;

	if (n <= 0)
		return n;
	*head = arena_alloc(a, (uint32_t)n - skip);
	if (!*head)
		return H1_NO_MEMORY;
	memcpy(*head, bufq_front(&r->in).p + skip, (uint32_t)n - skip);
	bufq_drop(&r->in, (uint32_t)n);
	return n - (int32_t)skip;
}

void h1_reader_body(struct h1_reader *r, enum body_kind kind, uint64_t length)
{
	static const uint8_t state[] = { [BODY_NONE] = READ_DONE,
					 [BODY_LENGTH] = READ_LENGTH,
					 [BODY_STREAM] = READ_CHUNK,
					 [BODY_CLOSE] = READ_CLOSE };

	r->state = kind == BODY_LENGTH && length == 0 ? READ_DONE : state[kind];
	r->left = length;
	memset(&r->chunk, 0, sizeof(r->chunk));
	memset(&r->scan, 0, sizeof(r->scan));
}

static int move_length(struct h1_reader *r, struct pipe *p)
{
	uint64_t n = r->in.bytes < r->left ? r->in.bytes : r->left;
	bool more;

	if (n == 0)
		return H1_NEED_BYTES;
	more = pipe_put(p, &r->in, n);
	r->left -= n;
	if (r->left)
		return more ? H1_NEED_BYTES : H1_PIPE_FULL;
	r->state = READ_DONE;
	pipe_end(p, NULL);
	return H1_COMPLETE;
}

/* One piece of framing, or the data of a chunk as far as it is there. */
static NOINLINE int move_chunk(struct h1_reader *r, struct pipe *p)
{
	struct str front = bufq_front(&r->in);
	uint32_t used = 0;
	uint64_t n;
	int step;

	if (r->in_chunk) {
		n = r->in.bytes < r->chunk.left ? r->in.bytes : r->chunk.left;
		r->chunk.left -= n;
		r->in_chunk = r->chunk.left > 0;
		return pipe_put(p, &r->in, n) ? H1_NEED_BYTES : H1_PIPE_FULL;
	}
	step = h1_chunk_next(&r->chunk, front.p, front.n, &used);
	if (step < 0)
		return step;
	bufq_drop(&r->in, used);
	r->in_chunk = step == H1_CHUNK_DATA;
	if (step == H1_CHUNK_LAST)
		r->state = READ_TRAILERS;
	return H1_NEED_BYTES;
}

static NOINLINE int read_trailers(struct h1_reader *r, struct loop *l, struct pipe *p,
				  const struct h1_limits *lim)
{
	struct arena *a = &p->x->arena;
	struct head *h;
	char *text;
	int32_t n = h1_reader_head(r, l, a, H1_TRAILERS, lim, &text);

	if (n <= 0)
		return n;
	h = arena_alloc(a, sizeof(*h));
	if (!h)
		return H1_NO_MEMORY;
	n = h1_trailers(h, a, text, (uint32_t)n, &r->scan, lim);
	if (n < 0)
		return n;
	r->state = READ_DONE;
	pipe_end(p, h->n_fields ? h : NULL);
	return H1_COMPLETE;
}

int h1_reader_move(struct h1_reader *r, struct loop *l, struct pipe *p,
		   const struct h1_limits *trailers)
{
	int rc = H1_NEED_BYTES;

	while (r->state != READ_DONE && !bufq_empty(&r->in)) {
		if (!pipe_wants(p))
			return H1_PIPE_FULL;
		switch (r->state) {
		case READ_LENGTH: rc = move_length(r, p); break;
		case READ_CHUNK: rc = move_chunk(r, p); break;
		case READ_TRAILERS:
			rc = read_trailers(r, l, p, trailers);
			if (rc == H1_NEED_BYTES)
				return rc;
			break;
		default:
			rc = pipe_put(p, &r->in, r->in.bytes) ? H1_NEED_BYTES : H1_PIPE_FULL;
			break;
		}
		if (rc < 0 || rc == H1_COMPLETE)
			return rc;
	}
	return r->state == READ_DONE ? H1_COMPLETE : rc;
}
