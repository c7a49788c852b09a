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
	w->chunked = w->head_out = w->done = w->failed = false;
}

void h1_writer_free(struct h1_writer *w)
{
	bufq_free(&w->out);
}

/* A block that holds `bound` bytes; NULL: out of memory or larger than a seg. */
static struct seg *block_for(struct loop *l, uint32_t bound)
{
	struct seg_pool *small = loop_segs(l, SEG_SMALL), *large = loop_segs(l, SEG_LARGE);

	if (bound <= small->cap)
		return seg_get(small);
	return bound <= large->cap ? seg_get(large) : NULL;
}

/* Takes the block with what was written into it. */
static inline bool put_block(struct h1_writer *w, struct seg *seg, const struct out *o)
{
	bool ok;

	seg->used = out_len(o);
	ok = out_ok(o) && bufq_put_seg(&w->out, &seg, 0, seg->used);
	seg_drop(&seg);
	return ok;
}

static COLD bool put_large_head(struct h1_writer *w, struct loop *l, h1_write_fn *write,
				const struct head *h, const struct h1_write *how)
{
	struct seg *seg = block_for(l, h1_write_bound(h));
	struct out o;

	if (!seg)
		return false;
	out_init(&o, seg->data, seg->cap);
	write(&o, h, how);
	return put_block(w, seg, &o);
}

/* Nearly every head fits a small block: how long it may get is asked only when it did not. */
bool h1_writer_head(struct h1_writer *w, struct loop *l, h1_write_fn *write, const struct head *h,
		    const struct h1_write *how)
{
	struct seg *seg = seg_get(loop_segs(l, SEG_SMALL));
	struct out o;

	if (!seg)
		return false;
	out_init(&o, seg->data, seg->cap);
	write(&o, h, how);
	if (__builtin_expect(out_ok(&o), 1))
		return put_block(w, seg, &o);
	seg_drop(&seg);
	return put_large_head(w, l, write, h, how);
}

/* A body that is small next to the head goes into the head's block: one piece to send, and the copy
 * is cheaper than a second iovec. */
#define TUCK_MAX 2048u
static inline bool move_plain(struct h1_writer *w, struct loop *l, struct pipe *p, uint64_t n)
{
	if (n <= TUCK_MAX && w->out.n_spans == 1 &&
	    pipe_take_copy(p, &w->out, loop_segs(l, SEG_SMALL), (uint32_t)n))
		return true;
	return pipe_take(p, &w->out, n) == n;
}

static NOINLINE bool move_chunk(struct h1_writer *w, struct loop *l, struct pipe *p, uint64_t n)
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

static NOINLINE bool end_chunked(struct h1_writer *w, struct loop *l, const struct head *trailers)
{
	struct seg *seg;
	struct out o;

	if (!trailers)
		return bufq_put_const(&w->out, "0\r\n\r\n", 5);
	seg = block_for(l, h1_write_bound(trailers) + 8);
	if (!seg)
		return false;
	out_init(&o, seg->data, seg->cap);
	out_lit(&o, "0\r\n");
	h1_write_fields(&o, trailers);
	out_lit(&o, "\r\n");
	return put_block(w, seg, &o);
}

static bool fail(struct h1_writer *w)
{
	w->failed = true;
	return false;
}

bool h1_writer_move(struct h1_writer *w, struct loop *l, struct pipe *p)
{
	uint64_t room, n;

	if (w->done || !w->head_out)
		return true;
	if (w->failed)
		return false;
	room = w->out.high > w->out.bytes ? w->out.high - w->out.bytes : 0;
	n = p->q.bytes < room ? p->q.bytes : room;
	if (n && !(w->chunked ? move_chunk(w, l, p, n) : move_plain(w, l, p, n)))
		return fail(w);
	if (!pipe_done(p))
		return true;
	if (w->chunked && !end_chunked(w, l, p->trailers))
		return fail(w);
	w->done = true;
	return true;
}
