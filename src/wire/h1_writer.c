/* h1_writer.c -- puts an HTTP/1 message together: the head written anew, then the body's spans as
 * they were received, with chunk framing where the length is not known.
 *
 *   out: [head][body span][body span]            a known length
 *   out: [head][1a4\r\n][span][span][\r\n]…[0\r\n trailers \r\n] */
#include "wire/priv.h"

void h1_writer_init(struct h1_writer *w)
{
	memset(w, 0, sizeof(*w));
	bufq_init(&w->out, H1_OUT_HIGH);
}

void h1_writer_next(struct h1_writer *w)
{
	w->chunked = w->head_out = w->done = false;
}

void h1_writer_free(struct h1_writer *w)
{
	bufq_free(&w->out);
}

struct seg *h1_writer_block(struct loop *l, uint32_t bound)
{
	struct seg_pool *small = loop_segs(l, SEG_SMALL), *large = loop_segs(l, SEG_LARGE);

	if (bound <= small->cap)
		return seg_get(small);
	return bound <= large->cap ? seg_get(large) : NULL;
}

bool h1_writer_put(struct h1_writer *w, struct seg **seg, uint32_t n)
{
	(*seg)->used = n;
	return bufq_put_seg(&w->out, seg, 0, n);
}

/* A body that is small next to the head goes into the head's block: one piece to send, and the copy
 * is cheaper than a second iovec. */
#define TUCK_MAX 2048u
static bool tuck(struct h1_writer *w, struct loop *l, struct bufq *body)
{
	struct str s = bufq_front(body);

	if (body->bytes > TUCK_MAX || s.n != body->bytes || w->out.n_spans != 1)
		return false;
	if (!bufq_put_copy(&w->out, loop_segs(l, SEG_SMALL), s.p, s.n))
		return false;
	bufq_drop(body, s.n);
	return true;
}

static bool move_plain(struct h1_writer *w, struct loop *l, struct pipe *p, uint64_t n)
{
	struct bufq part;
	bool ok;

	if (n > TUCK_MAX || w->out.n_spans != 1)
		return pipe_take(p, &w->out, n) == n;
	bufq_init(&part, 0);
	pipe_take(p, &part, n);
	ok = tuck(w, l, &part) || bufq_move(&w->out, &part, n) == n;
	bufq_free(&part);
	return ok;
}

static bool move_chunk(struct h1_writer *w, struct loop *l, struct pipe *p, uint64_t n)
{
	struct seg_pool *pool = loop_segs(l, SEG_SMALL);
	char line[24];
	struct out o;

	out_init(&o, line, sizeof(line));
	out_hex(&o, n);
	out_lit(&o, "\r\n");
	return bufq_put_copy(&w->out, pool, line, out_len(&o)) && pipe_take(p, &w->out, n) == n &&
	       bufq_put_const(&w->out, "\r\n", 2);
}

static bool end_chunked(struct h1_writer *w, struct loop *l, const struct head *trailers)
{
	struct seg *seg;
	struct out o;
	bool ok;

	if (!trailers)
		return bufq_put_const(&w->out, "0\r\n\r\n", 5);
	seg = h1_writer_block(l, h1_write_bound(trailers) + 8);
	if (!seg)
		return false;
	out_init(&o, seg->data, seg->cap);
	out_lit(&o, "0\r\n");
	h1_write_fields(&o, trailers);
	out_lit(&o, "\r\n");
	ok = out_ok(&o) && h1_writer_put(w, &seg, out_len(&o));
	seg_drop(&seg);
	return ok;
}

bool h1_writer_move(struct h1_writer *w, struct loop *l, struct pipe *p)
{
	uint64_t room = w->out.high > w->out.bytes ? w->out.high - w->out.bytes : 0;
	uint64_t n = p->q.bytes < room ? p->q.bytes : room;

	if (w->done || !w->head_out)
		return true;
	if (n && !(w->chunked ? move_chunk(w, l, p, n) : move_plain(w, l, p, n)))
		return false;
	if (!pipe_done(p))
		return true;
	w->done = true;
	return !w->chunked || end_chunked(w, l, p->trailers);
}
