/* h1_syntax.h -- HTTP/1 syntax, pure: bytes in, heads out; no I/O, no clock, no memory beyond the
 * arena.  [RFC 9112]
 *
 * Used in two steps: h1_scan() finds the end of a head as its bytes come in, however they are cut,
 * in O(n) over all calls; then the whole head is copied once into the arena and h1_request() /
 * h1_response() / h1_trailers() parse it there, in place: every string of the struct head points
 * into that copy (or to what was merged or lowered in the arena, or to constants).
 *
 * Strict: CRLF only, tokens only, no obs-fold, no bare CR or LF, no NUL or other control, no space
 * before a colon (but a response: there a proxy takes it out, RFC 9112 §5.1).  Any doubt is an
 * error, and any error ends the connection. */
#ifndef WIRE_H1_SYNTAX_H
#define WIRE_H1_SYNTAX_H

#include "exchange/exchange.h"

/* One row per error: id, detail for `http_request_error:<detail>` (requests) and the operational
 * log (responses), row of why.tbl for a request. */
enum h1_error {
	H1_OK = 0,
#define H1_ERROR(id, detail, why) H1_E_##id,
#include "wire/h1_error.tbl"
#undef H1_ERROR
	H1_ERRORS
};
const char *h1_error_detail(enum h1_error);
enum why_id h1_error_why(enum h1_error);

struct h1_limits {
	/* bytes of the whole head, empty line included, skipped bytes not; over it:
	 * H1_E_HEAD_TOO_LARGE, or H1_E_TARGET_TOO_LONG while in the first line of a request */
	uint32_t head;
	uint32_t target; /* bytes of the request target */
	uint32_t fields; /* number of field lines */
};

#define H1_SCAN_ENDS 24u
struct h1_scan {        /* zero it before the first byte of a head */
	uint32_t at;    /* bytes looked at */
	uint32_t line;  /* where the line at hand began */
	uint32_t lines; /* complete lines, start line included, empty line not */
	/* Bytes of a leading empty line that were skipped: 0 or 2 (RFC 9112 §2.2: at most one CRLF
	 * before a request line). */
	uint32_t skip;
	uint16_t ends[H1_SCAN_ENDS]; /* the CR of each of the first lines; 0: beyond 64 KiB */
};

enum h1_role { H1_REQUEST = 0, H1_RESPONSE = 1, H1_TRAILERS = 2 };
#define H1_METHOD_MAX 32u /* bytes of a method: longer is H1_E_METHOD */

/* Goes on where it stopped.  `buf` holds all n bytes of the head so far (it may have moved).  > 0:
 * length of the head, empty line included (s->skip bytes of it come before the start line); 0: more
 * bytes are needed; < 0: -enum h1_error.  Finds what must be answered at once: bare LF, bare CR,
 * controls, a first byte that no method begins with, a response that does not begin with "HTTP/1.",
 * limits.  However the bytes are cut, the result is the same. */
int32_t h1_scan(struct h1_scan *s, enum h1_role role, const struct h1_limits *lim, const char *buf,
		uint32_t n);

/* `buf`: one complete head of n bytes as h1_scan() measured it and found good, without the skipped
 * bytes, in the arena, writable (host is lowered in place).  Fills all of `h`, whatever was in it.
 * 0 or -enum h1_error; after an error method_text and target are there as far as they were read,
 * for the log. */
int h1_request(struct head *h, struct arena *a, char *buf, uint32_t n, const struct h1_scan *s,
	       const struct h1_limits *lim);
/* A response needs to know the request's method for its framing (RFC 9112 §6.3). */
int h1_response(struct head *h, struct arena *a, char *buf, uint32_t n, const struct h1_scan *s,
		const struct h1_limits *lim, enum method method);
/* Keeps only fields that may be in trailers. */
int h1_trailers(struct head *h, struct arena *a, char *buf, uint32_t n, const struct h1_scan *s,
		const struct h1_limits *lim);

/* --- chunked (RFC 9112 §7.1) --- a state machine over the framing only; body bytes are not
 * touched. */
struct h1_chunk {      /* zero it before the first byte */
	uint64_t left; /* body bytes of the chunk at hand still to come */
	uint8_t state;
	uint16_t line; /* bytes of the size line so far: at most H1_CHUNK_LINE_MAX */
	uint64_t ext_total;
	uint64_t chunks;
};
#define H1_CHUNK_LINE_MAX      256u
#define H1_CHUNK_EXT_TOTAL_MAX (16u * 1024) /* bytes of extensions in one body */
enum h1_chunk_step {
	H1_CHUNK_MORE = 0, /* all n bytes used */
	H1_CHUNK_DATA,     /* c->left body bytes follow */
	H1_CHUNK_LAST,     /* the 0 chunk: trailers (or the empty line) follow */
};
/* Reads framing bytes until body bytes or the end follow; *used says how many of the n.  The caller
 * consumes body bytes and lowers c->left; when it is 0 it calls again.  < 0: -enum h1_error. */
int h1_chunk_next(struct h1_chunk *c, const char *buf, uint32_t n, uint32_t *used);

/* --- writing --- */
/* The head as HTTP/1.1 bytes, empty line included.  Framing and connection fields are written from
 * the members of the head and these options. */
struct h1_write {
	bool close;       /* Connection: close */
	bool keep_alive;  /* Connection: keep-alive (to an HTTP/1.0 client that asked for it) */
	bool chunked;     /* Transfer-Encoding: chunked */
	bool length;      /* Content-Length: head->length */
	bool upgrade;     /* Connection: upgrade, Upgrade: head->upgrade */
	bool te_trailers; /* TE: trailers and Connection: TE */
	bool absolute;    /* request: absolute-form (to a parent proxy) */
};
/* An upper bound of what h1_write_* will write. */
uint32_t h1_write_bound(const struct head *h);
/* Host first, from h->host and h->port.  HEAD_EXPECT_100 is written as Expect: 100-continue. */
void h1_write_request(struct out *o, const struct head *h, const struct h1_write *w);
void h1_write_response(struct out *o, const struct head *h, const struct h1_write *w);
typedef void h1_write_fn(struct out *o, const struct head *h, const struct h1_write *w);
/* The field list only (trailers), without an empty line. */
void h1_write_fields(struct out *o, const struct head *h);

/* --- target and authority (RFC 3986 §3.2, RFC 9112 §3.2) --- */
/* "host[:port]" as in Host, CONNECT and absolute-form: lowers in place, takes brackets and one
 * trailing dot off.  Userinfo, empty host, bad port (0, over 65535, more than 5 digits), bytes
 * outside letters, digits, "-._~" / IPv6 literal, empty labels, more than 255 bytes: -H1_E_HOST.
 * *port 0: none given. */
int h1_authority(char *p, uint32_t n, struct str *host, bool *is_v6, uint16_t *port);
/* "$scheme://authority/path?query"; -H1_E_TARGET.  Without a path h->path is empty. */
int h1_absolute(struct head *h, char *p, uint32_t n);

#endif
