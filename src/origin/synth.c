/* synth.c -- answers that culvert makes itself: error pages, `respond`, `redirect`.
 *
 * They take the same way as every answer: an end that feeds the response pipe.  Pages never show an
 * upstream's address, a query or a credential. */
#include "origin/priv.h"

struct synth { /* in the exchange's arena */
	struct end end;
	struct head head;
	struct str body;
};

static void on_news(struct end *e)
{
	struct synth *s = container_of(e, struct synth, end);
	struct exchange *x = e->x;
	struct bufq body;

	if (x->rsp.state != PIPE_EMPTY)
		return;
	bufq_init(&body, 0);
	pipe_head(&x->rsp, &s->head);
	if (s->head.body == BODY_LENGTH && s->body.n) {
		/* Copied: the kernel may still read it when the arena is gone. */
		if (bufq_put_copy(&body, loop_segs(x->loop, SEG_SMALL), s->body.p, s->body.n))
			pipe_put(&x->rsp, &body, s->body.n);
		else
			exchange_cut(x, why(WHY_MEMORY));
		bufq_free(&body);
	}
	pipe_end(&x->rsp, NULL);
	end_leave(e);
}

static void on_cut(struct end *e, const struct why *cause)
{
	(void)cause;
	end_leave(e);
}

static const struct end_ops synth_ops = { .name = "synth",
					  .on_data = on_news,
					  .on_room = on_news,
					  .on_cut = on_cut };

static bool bodyless(const struct exchange *x, uint16_t status)
{
	return (x->req.head && x->req.head->method == METHOD_HEAD) || status == 204 ||
	       status == 304 || status < 200;
}

static struct synth *begin(struct exchange *x, uint16_t status)
{
	struct synth *s = arena_zalloc(&x->arena, sizeof(*s));

	if (!s)
		return NULL;
	s->end.ops = &synth_ops;
	s->head.version = 11;
	s->head.status = status;
	s->head.reason = head_reason(status);
	return s;
}

static bool add_date(struct exchange *x, struct synth *s)
{
	return head_add_id(&s->head, &x->arena, HDR_DATE,
			   arena_str(&x->arena, loop_http_date(x->loop)));
}

static void finish(struct exchange *x, struct synth *s, bool ok)
{
	if (!s || !ok) {
		exchange_cut(x, why(WHY_MEMORY));
		return;
	}
	s->head.length = s->body.n;
	s->head.body = bodyless(x, s->head.status) ? BODY_NONE : BODY_LENGTH;
	if (s->head.status != 204 && s->head.status != 304)
		s->head.flags |= HEAD_LENGTH_GIVEN;
	x->facts.own_answer = true;
	pipe_reader_gone(&x->req);
	exchange_attach_up(x, &s->end);
}

/* ---------------------------------------------------------------- error pages */
enum page { PAGE_TEXT = 0, PAGE_HTML, PAGE_JSON };

/* The weight of a media range in thousandths (RFC 9110 §12.4.2); what cannot be read weighs
 * nothing. */
static unsigned weight_of(struct str range)
{
	const char *at = memmem(range.p, range.n, "q=", 2);
	unsigned w = 0, scale = 1000;

	if (!at)
		return 1000;
	for (at += 2; at < range.p + range.n; at++) {
		if (*at == '.')
			continue;
		if (*at < '0' || *at > '9')
			break;
		w += (unsigned)(*at - '0') * scale;
		scale /= 10;
	}
	return w;
}

/* The page for a media range; -1: none of ours. */
static int page_of(struct str range)
{
	static const struct {
		struct str type;
		enum page page;
	} types[] = {
		{ STR("text/html"), PAGE_HTML },
		{ STR("application/xhtml+xml"), PAGE_HTML },
		{ STR("application/json"), PAGE_JSON },
		{ STR("application/problem+json"), PAGE_JSON },
		{ STR("text/plain"), PAGE_TEXT },
		{ STR("text/*"), PAGE_TEXT },
		{ STR("*/*"), PAGE_TEXT },
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (str_istarts(range, types[i].type))
			return (int)types[i].page;
	return -1;
}

/* What Accept weighs most; the first of equals. */
static enum page page_for(const struct exchange *x)
{
	const struct field *f = x->req.head ? head_find(x->req.head, HDR_ACCEPT) : NULL;
	struct str rest = f ? field_value(f) : STR_NONE, item;
	enum page best = PAGE_TEXT;
	unsigned most = 0;

	while (str_next_item(&rest, &item)) {
		unsigned w = weight_of(item);
		int page = page_of(item);

		if (page >= 0 && w > most) {
			best = (enum page)page;
			most = w;
		}
	}
	return best;
}

static void reason_out(struct out *o, const struct exchange *x)
{
	out_str(o, str_of(x->why->name));
	if (x->facts.detail && x->why->id == WHY_BAD_REQUEST) {
		out_char(o, ':');
		out_str(o, str_of(x->facts.detail));
	}
}

static void request_id_out(struct out *o, const struct exchange *x)
{
	out_fmt(o, "%016llx", (unsigned long long)x->request_id);
}

static void page_text(struct out *o, const struct exchange *x, const struct synth *s)
{
	out_u64(o, s->head.status);
	out_char(o, ' ');
	out_str(o, s->head.reason);
	out_lit(o, "\n\n");
	out_str(o, str_of(x->why->text));
	out_lit(o, "\nreason: ");
	reason_out(o, x);
	out_lit(o, "\nrequest: ");
	request_id_out(o, x);
	out_char(o, '\n');
}

static void page_html(struct out *o, const struct exchange *x, const struct synth *s)
{
	out_lit(o, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>");
	out_u64(o, s->head.status);
	out_char(o, ' ');
	out_html(o, s->head.reason);
	out_lit(o, "</title>\n<h1>");
	out_u64(o, s->head.status);
	out_char(o, ' ');
	out_html(o, s->head.reason);
	out_lit(o, "</h1>\n<p>");
	out_html(o, str_of(x->why->text));
	out_lit(o, "</p>\n<p><small>reason: ");
	reason_out(o, x);
	out_lit(o, ", request: ");
	request_id_out(o, x);
	out_lit(o, "</small></p>\n</html>\n");
}

static void page_json(struct out *o, const struct exchange *x, const struct synth *s)
{
	out_lit(o, "{\"status\":");
	out_u64(o, s->head.status);
	out_lit(o, ",\"reason\":\"");
	reason_out(o, x);
	out_lit(o, "\",\"request_id\":\"");
	request_id_out(o, x);
	out_lit(o, "\"}\n");
}

static const struct {
	struct str type;
	void (*write)(struct out *, const struct exchange *, const struct synth *);
} pages[] = {
	[PAGE_TEXT] = { STR("text/plain; charset=utf-8"), page_text },
	[PAGE_HTML] = { STR("text/html; charset=utf-8"), page_html },
	[PAGE_JSON] = { STR("application/json"), page_json },
};

#define PAGE_MAX 1024u
static bool write_page(struct exchange *x, struct synth *s, enum page page)
{
	char *text = arena_alloc(&x->arena, PAGE_MAX);
	struct out o;

	if (!text)
		return false;
	out_init(&o, text, PAGE_MAX);
	pages[page].write(&o, x, s);
	must(out_ok(&o));
	s->body = (struct str){ .p = text, .n = out_len(&o) };
	return true;
}

static bool add_proxy_status(struct exchange *x, struct synth *s)
{
	char *text;
	struct out o;

	if (!*x->why->proxy_status)
		return true;
	text = arena_alloc(&x->arena, 96);
	if (!text)
		return false;
	out_init(&o, text, 96);
	out_lit(&o, "culvert; error=");
	out_str(&o, str_of(x->why->proxy_status));
	must(out_ok(&o));
	return head_add_id(&s->head, &x->arena, HDR_PROXY_STATUS,
			   (struct str){ .p = text, .n = out_len(&o) });
}

static bool add_error_fields(struct exchange *x, struct synth *s, enum page page)
{
	struct arena *a = &x->arena;
	bool ok = head_add_id(&s->head, a, HDR_CONTENT_TYPE, pages[page].type) &&
		  head_add_id(&s->head, a, HDR_CACHE_CONTROL, STR("no-store")) &&
		  add_proxy_status(x, s);

	if (ok && (x->why->flags & WHY_AFTER))
		ok = head_add_id(&s->head, a, HDR_RETRY_AFTER, STR("5"));
	if (ok && s->head.status == 405)
		ok = head_add(&s->head, a, STR("Allow"),
			      STR("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
	return ok;
}

void synth_error(struct exchange *x)
{
	enum page page = page_for(x);
	struct synth *s = begin(x, x->why->status ? x->why->status : 500);

	finish(x, s, s && add_date(x, s) && add_error_fields(x, s, page) && write_page(x, s, page));
}

/* ---------------------------------------------------------------- configured answers */
void synth_respond(struct exchange *x, const struct respond_conf *conf)
{
	struct synth *s = begin(x, conf->status);
	bool ok = s && add_date(x, s);

	if (ok && conf->type.n && conf->body.n)
		ok = head_add_id(&s->head, &x->arena, HDR_CONTENT_TYPE, conf->type);
	if (ok)
		s->body = conf->body;
	finish(x, s, ok);
}

static struct str location(struct exchange *x, struct str to)
{
	struct str query = x->req.head->query;
	char *text = arena_alloc(&x->arena, to.n + query.n);

	if (!text)
		return STR_NONE;
	memcpy(text, to.p, to.n);
	if (query.n)
		memcpy(text + to.n, query.p, query.n);
	return (struct str){ .p = text, .n = to.n + query.n };
}

void synth_redirect(struct exchange *x, const struct redirect_conf *conf)
{
	struct synth *s = begin(x, conf->status);
	struct str to = location(x, conf->to);

	finish(x, s,
	       s && to.p && add_date(x, s) && head_add_id(&s->head, &x->arena, HDR_LOCATION, to));
}
