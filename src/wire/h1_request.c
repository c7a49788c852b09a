/* h1_request.c -- a request head.  Exports: h1_request
 *
 *   method SP target SP HTTP/1.x CR LF  fields  CR LF        [RFC 9112 §3, §6; RFC 9110 §7.2,
 *   §10.1.1]
 *
 * h1_scan() has seen that the line ends with SP and a version of ours. */
#include "wire/h1_fields.h"

struct request {
	struct head *h;
	struct arena *a;
	char *buf;
	const struct h1_limits *lim;
	struct h1_fields f;
};

/* The method at the begin of the line: its length with the space, or < 0. */
static int read_method(struct head *h, const char *buf, uint32_t end)
{
	uint32_t n;

	if (H1_IS4(buf, "GET ")) {
		h->method = METHOD_GET;
		h->method_text = (struct str){ .p = buf, .n = 3 };
		return 4;
	}
	n = h1_next_char(buf, 0, end, ' ');
	h->method_text = (struct str){ .p = buf, .n = n };
	if (n > H1_METHOD_MAX || !h1_is_token(buf, n))
		return -H1_E_METHOD;
	h->method = method_lookup(h->method_text);
	return (int)n + 1;
}

/* authority-form, absolute-form, asterisk-form */
static int other_form(struct request *r, char *p, uint32_t n)
{
	struct head *h = r->h;
	char *copy;

	if (h->method != METHOD_CONNECT && n == 1 && p[0] == '*') {
		h->form = TARGET_ASTERISK;
		return h->method == METHOD_OPTIONS ? 0 : -H1_E_TARGET;
	}
	copy = arena_alloc(r->a, n); /* the host is lowered, the target is not */
	if (!copy)
		return -H1_E_MEMORY;
	memcpy(copy, p, n);
	if (h->method == METHOD_CONNECT) {
		h->form = TARGET_AUTHORITY;
		if (h1_authority(copy, n, &h->host, &h->host_is_v6, &h->port) < 0 || !h->port)
			return -H1_E_TARGET;
		return 0;
	}
	if (h1_absolute(h, copy, n) < 0)
		return -H1_E_TARGET;
	/* OPTIONS without path and query asks about the server (RFC 9112 §3.2.4). */
	if (!h->path.n && (h->method != METHOD_OPTIONS || h->query.n))
		h->path = STR("/");
	return 0;
}

/* The target at buf[i, end). */
static int read_target(struct request *r, uint32_t i, uint32_t end)
{
	struct head *h = r->h;
	uint32_t query;

	if (i >= end)
		return -H1_E_TARGET;
	h->target = (struct str){ .p = r->buf + i, .n = end - i };
	if (h1_next_no_target(r->buf, i, end) < end)
		return -H1_E_TARGET;
	if (end - i > r->lim->target)
		return -H1_E_TARGET_TOO_LONG;
	if (r->buf[i] != '/' || h->method == METHOD_CONNECT)
		return other_form(r, r->buf + i, end - i);
	query = h1_next_char(r->buf, i, end, '?');
	h->path = (struct str){ .p = r->buf + i, .n = query - i };
	h->query = (struct str){ .p = r->buf + query, .n = end - query };
	return 0;
}

/* > 0: where the fields begin. */
static int read_line(struct request *r, uint32_t n)
{
	uint32_t end = h1_line_end(r->f.scan, 0, r->buf, 0, n);
	int target, version, e;

	version = h1_version(r->buf + end - 8);
	if (version < 0)
		return version;
	r->h->version = (uint8_t)version;
	target = read_method(r->h, r->buf, end);
	if (target < 0)
		return target;
	e = read_target(r, (uint32_t)target, end - 9);
	return e ? e : (int)end + 2;
}

/* RFC 9112 §3.2: one Host, always; the target's host wins. */
static int judge_host(struct request *r)
{
	struct head *h = r->h;
	struct str host;
	uint16_t port;
	bool is_v6;
	char *p;

	if (r->f.n_hosts != 1) {
		if (r->f.n_hosts)
			return -H1_E_HOST_TWICE;
		if (h->version != 10)
			return -H1_E_HOST_MISSING;
		if (!h->host.n)
			h->flags |= HEAD_NO_HOST;
		return 0;
	}
	p = r->buf + (r->f.host.p - r->buf);
	if (h->form == TARGET_AUTHORITY)
		return 0; /* CONNECT: its value says nothing */
	if (h->form == TARGET_ABSOLUTE)
		return h1_authority(p, r->f.host.n, &host, &is_v6, &port);
	return h1_authority(p, r->f.host.n, &h->host, &h->host_is_v6, &h->port);
}

static int judge_body(struct request *r)
{
	struct head *h = r->h;
	int coding = h1_fields_coding(&r->f, h);

	if (coding < 0)
		return coding;
	if (h->method == METHOD_CONNECT)
		return coding || r->f.length ? -H1_E_CONNECT_BODY : 0;
	if (coding) {
		h->body = BODY_STREAM;
	} else if (r->f.length_given) {
		h->body = BODY_LENGTH;
		h->length = r->f.length;
		h->flags |= HEAD_LENGTH_GIVEN;
	}
	return 0;
}

/* RFC 9110 §10.1.1: not for HTTP/1.0, not without a body. */
static int judge_expect(struct request *r)
{
	struct head *h = r->h;

	if (h->version == 10)
		return 0;
	if (r->f.expect_other)
		return -H1_E_EXPECT;
	if (r->f.expect && (h->body == BODY_STREAM || h->length > 0))
		h->flags |= HEAD_EXPECT_100;
	return 0;
}

int h1_request(struct head *h, struct arena *a, char *buf, uint32_t n, const struct h1_scan *s,
	       const struct h1_limits *lim)
{
	struct request r = { .h = h, .a = a, .buf = buf, .lim = lim };
	int e;

	must(n >= sizeof("M / HTTP/1.1\r\n\r\n") - 1 && H1_IS4(buf + n - 4, "\r\n\r\n"));
	mem_zero(h, sizeof(*h));
	r.f.role = H1_REQUEST;
	r.f.buf = buf;
	r.f.n = n;
	r.f.scan = s;
	e = read_line(&r, n);
	if (e < 0)
		return e;
	e = h1_fields_parse(&r.f, h, a, (uint32_t)e);
	if (!e)
		e = judge_host(&r);
	if (!e)
		e = judge_body(&r);
	return e ? e : judge_expect(&r);
}
