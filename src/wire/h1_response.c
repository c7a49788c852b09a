/* h1_response.c -- a response head, and trailers.  Exports: h1_response, h1_trailers
 *
 *   HTTP/1.x SP status SP reason CR LF  fields  CR LF        [RFC 9112 §4, §6, §7.1.2]
 *
 * A missing reason, with or without its space, is common and harmless. */
#include "wire/h1_fields.h"

static bool is_digit(char c)
{
	return (uint8_t)(c - '0') <= 9;
}

/* > 0: where the fields begin. */
static int read_line(struct head *h, const char *buf, uint32_t n, const struct h1_scan *s)
{
	uint32_t end = h1_line_end(s, 0, buf, 0, n);
	int version;

	if (end < sizeof("HTTP/1.1 200") - 1)
		return -H1_E_STATUS;
	version = h1_version(buf);
	if (version < 0)
		return version;
	if (buf[8] != ' ' || !is_digit(buf[9]) || buf[9] == '0' || !is_digit(buf[10]) ||
	    !is_digit(buf[11]) || (end > 12 && buf[12] != ' '))
		return -H1_E_STATUS;
	h->version = (uint8_t)version;
	h->status = (uint16_t)((buf[9] - '0') * 100 + (buf[10] - '0') * 10 + (buf[11] - '0'));
	h->reason = (struct str){ .p = buf + 12, .n = 0 };
	if (end > 13)
		h->reason = (struct str){ .p = buf + 13, .n = end - 13 };
	return (int)end + 2;
}

/* RFC 9112 §6.3, in its order: what has no body has none whatever the framing says. */
static int judge_body(struct head *h, const struct h1_fields *f, enum method method)
{
	int coding = h1_fields_coding(f, h);
	bool interim = h->status < 200 || h->status == 204;

	if (coding < 0)
		return coding;
	if (method == METHOD_CONNECT && h->status / 100 == 2)
		return 0;
	/* A length that may not be there is not passed on (RFC 9110 §8.6). */
	if (f->length_given && !interim) {
		h->flags |= HEAD_LENGTH_GIVEN;
		h->length = f->length;
	}
	if (interim || h->status == 304 || method == METHOD_HEAD)
		return 0;
	h->body = coding ? BODY_STREAM : f->length_given ? BODY_LENGTH : BODY_CLOSE;
	return 0;
}

int h1_response(struct head *h, struct arena *a, char *buf, uint32_t n, const struct h1_scan *s,
		const struct h1_limits *lim, enum method method)
{
	struct h1_fields f = { .role = H1_RESPONSE, .buf = buf, .n = n };
	int e;

	must(n >= 4 && H1_IS4(buf + n - 4, "\r\n\r\n"));
	must(s->lines - 1 <= lim->fields);
	mem_zero(h, sizeof(*h));
	e = read_line(h, buf, n, s);
	if (e < 0)
		return e;
	f.scan = s;
	e = h1_fields_parse(&f, h, a, (uint32_t)e);
	return e ? e : judge_body(h, &f, method);
}

int h1_trailers(struct head *h, struct arena *a, char *buf, uint32_t n, const struct h1_scan *s,
		const struct h1_limits *lim)
{
	struct h1_fields f = { .role = H1_TRAILERS, .buf = buf, .n = n, .scan = s };

	must(n >= 2 && buf[n - 2] == '\r' && buf[n - 1] == '\n');
	must(s->lines <= lim->fields);
	mem_zero(h, sizeof(*h));
	h->version = 11;
	return h1_fields_parse(&f, h, a, 0);
}
