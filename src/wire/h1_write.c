/* h1_write.c -- heads as HTTP/1.1 bytes.  Exports: h1_write_*
 *
 * Everything is written from the parsed form: start line, Host, what frames the message, what
 * belongs to this connection, then the field list.  Lines of the list that still lie behind one
 * another in the head that was received, spelt exactly as they would be written, are copied in one
 * piece:
 *
 *   Accept: * / *\r\nUser-Agent: x\r\nHost: y\r\nCookie: z\r\n
 *   \_____________ one copy ______/            \_ one ____/        [RFC 9112 §3, §4, §5] */
#include "wire/h1_bytes.h"

/* Lines that the options may ask for, beside the field list; generous. */
#define BOUND_FIXED 512u

static inline uint32_t line_bound(const struct field *f)
{
	return f->name_n + f->value_n + 4u;
}

uint32_t h1_write_bound(const struct head *h)
{
	/* The host twice, in brackets and with a port; a reason of our own is in BOUND_FIXED. */
	uint32_t n = BOUND_FIXED + h->method_text.n + h->scheme.n + 2 * (h->host.n + 8) +
		     h->path.n + h->query.n + h->reason.n + h->upgrade.n;

	for (uint32_t i = 0; i < h->n_fields; i++)
		n += line_bound(&h->fields[i]);
	return n;
}

/* --- the field list --- */

static inline bool is_pair(const char *p, char a, char b)
{
	return p[0] == a && p[1] == b;
}

/* "name: value" lies in memory as it is to be written. */
static inline bool in_place(const struct field *f)
{
	const char *colon = f->name + f->name_n;

	return f->value == colon + 2 && is_pair(colon, ':', ' ');
}

static inline bool follows(const struct field *f, const char *end)
{
	return f->name == end + 2 && is_pair(end, '\r', '\n') && in_place(f);
}

static void write_line(struct out *o, struct str name, struct str value)
{
	uint64_t n = (uint64_t)name.n + value.n + 4;
	char *p = o->p;

	if (__builtin_expect((uint64_t)(o->end - p) < n, 0)) {
		o->over = true;
		return;
	}
	memcpy(p, name.p, name.n);
	p += name.n;
	memcpy(p, ": ", 2);
	if (value.n)
		memcpy(p + 2, value.p, value.n);
	memcpy(p + 2 + value.n, "\r\n", 2);
	o->p += n;
}

void h1_write_fields(struct out *o, const struct head *h)
{
	const struct field *f = h->fields, *last;

	if (!h->n_fields)
		return;
	for (last = f + h->n_fields; f < last;) {
		const char *from = f->name, *end;

		if (!in_place(f)) {
			write_line(o, field_name(f), field_value(f));
			f++;
			continue;
		}
		do {
			end = f->value + f->value_n;
			f++;
		} while (f < last && follows(f, end));
		out_mem(o, from, (size_t)(end - from));
		out_lit(o, "\r\n");
	}
}

/* --- framing and connection --- */

/* Bits of an index: close 1, keep-alive 2, upgrade 4, TE 8.  Close wins over keep-alive. */
#define TE_LINE "TE: trailers\r\n"
static const struct str connection_lines[16] = {
	[0] = STR(""),
	[1] = STR("Connection: close\r\n"),
	[2] = STR("Connection: keep-alive\r\n"),
	[3] = STR("Connection: close\r\n"),
	[4] = STR("Connection: upgrade\r\n"),
	[5] = STR("Connection: close, upgrade\r\n"),
	[6] = STR("Connection: keep-alive, upgrade\r\n"),
	[7] = STR("Connection: close, upgrade\r\n"),
	[8] = STR("Connection: TE\r\n" TE_LINE),
	[9] = STR("Connection: close, TE\r\n" TE_LINE),
	[10] = STR("Connection: keep-alive, TE\r\n" TE_LINE),
	[11] = STR("Connection: close, TE\r\n" TE_LINE),
	[12] = STR("Connection: upgrade, TE\r\n" TE_LINE),
	[13] = STR("Connection: close, upgrade, TE\r\n" TE_LINE),
	[14] = STR("Connection: keep-alive, upgrade, TE\r\n" TE_LINE),
	[15] = STR("Connection: close, upgrade, TE\r\n" TE_LINE),
};

static void write_framing(struct out *o, const struct head *h, const struct h1_write *w)
{
	unsigned i = w->close | w->keep_alive << 1 | w->upgrade << 2 | w->te_trailers << 3;

	must(!(w->chunked && w->length));
	if (w->chunked) {
		out_lit(o, "Transfer-Encoding: chunked\r\n");
	} else if (w->length) {
		out_lit(o, "Content-Length: ");
		out_u64(o, h->length);
		out_lit(o, "\r\n");
	}
	if (i)
		out_str(o, connection_lines[i]);
	if (w->upgrade)
		write_line(o, STR("Upgrade"), h->upgrade);
}

/* --- requests --- */

static void write_authority(struct out *o, const struct head *h)
{
	if (h->host_is_v6)
		out_char(o, '[');
	out_str(o, h->host);
	if (h->host_is_v6)
		out_char(o, ']');
	if (h->port) {
		out_char(o, ':');
		out_u64(o, h->port);
	}
}

static void write_target(struct out *o, const struct head *h, const struct h1_write *w)
{
	if (h->form == TARGET_AUTHORITY) {
		write_authority(o, h);
		return;
	}
	if (w->absolute) {
		out_str(o, h->scheme.n ? h->scheme : STR("http"));
		out_lit(o, "://");
		write_authority(o, h);
	} else if (!h->path.n) {
		out_char(o, '*'); /* OPTIONS about the server itself: RFC 9112 §3.2.4 */
	}
	out_str(o, h->path);
	out_str(o, h->query);
}

void h1_write_request(struct out *o, const struct head *h, const struct h1_write *w)
{
	out_str(o, h->method_text);
	out_char(o, ' ');
	write_target(o, h, w);
	out_lit(o, " HTTP/1.1\r\nHost: ");
	write_authority(o, h);
	out_lit(o, "\r\n");
	write_framing(o, h, w);
	if (h->flags & HEAD_EXPECT_100)
		out_lit(o, "Expect: 100-continue\r\n");
	h1_write_fields(o, h);
	out_lit(o, "\r\n");
}

/* --- responses --- */

void h1_write_response(struct out *o, const struct head *h, const struct h1_write *w)
{
	unsigned s = h->status;
	char line[] = "HTTP/1.1 000 ";

	must(s >= 100 && s <= 999);
	line[9] = (char)('0' + s / 100);
	line[10] = (char)('0' + s / 10 % 10);
	line[11] = (char)('0' + s % 10);
	out_mem(o, line, sizeof(line) - 1);
	out_str(o, h->reason.n ? h->reason : head_reason(s));
	out_lit(o, "\r\n");
	write_framing(o, h, w);
	h1_write_fields(o, h);
	out_lit(o, "\r\n");
}
