/* head.h -- one message head in one normal form for all protocols.
 *
 * A codec parses bytes into a head whose strings lie in the exchange's arena; another codec writes
 * it out anew.  What frames the message and what belongs to one connection is parsed into the
 * members below and is *not* in the field list; every codec writes its own:
 *
 *   Host                                      host, port (a request)
 *   Content-Length, Transfer-Encoding         body, length, HEAD_LENGTH_GIVEN
 *   Connection, Keep-Alive, Proxy-Connection  HEAD_CLOSE, HEAD_KEEP_ALIVE, HDR_F_NOMINATED
 *   Upgrade, HTTP2-Settings                   HEAD_UPGRADE, upgrade
 *   TE                                        HEAD_TE_TRAILERS
 *   Expect                                    HEAD_EXPECT_100 (a request)
 *
 * All other fields are in the list, in the order in which they came, also Proxy-Authorization and
 * whatever Connection named: the hygiene filter takes them out.  [RFC 9110, RFC 9112] */
#ifndef EXCHANGE_HEAD_H
#define EXCHANGE_HEAD_H

#include "base/mem.h"
#include "base/out.h"

enum hdr_id {
	HDR_OTHER = 0,
#define HDR(id, name, canon, flags) HDR_##id,
#include "exchange/head.tbl"
#undef HDR
	HDR_ROWS
};

enum hdr_flag {
	HDR_F_HOP = 1,
	HDR_F_FRAME = 2,
	HDR_F_NO_TRAILER = 4,
	HDR_F_IDENT = 8,
	HDR_F_SECRET = 16,
	HDR_F_KEEP = 32,
	HDR_F_NOMINATED = 64, /* on a field: Connection named it */
};

struct hdr_row {
	struct str name;  /* lower case */
	struct str canon; /* as we write it: "WWW-Authenticate" */
	uint8_t flags;    /* enum hdr_flag */
};
extern const struct hdr_row hdr_table[HDR_ROWS];
extern const uint8_t hdr_flags[HDR_ROWS]; /* those of hdr_table, close together */
#define HDR_BIT(id) ((uint64_t)1 << (id))
_Static_assert(HDR_ROWS <= 64, "a set of ids is one word");
/* the ids whose row has one of the flags HOP and FRAME; IDENT */
extern const uint64_t hdr_hop_or_frame, hdr_ident;
/* Case-insensitive; HDR_OTHER when unknown.  The name holds no control bytes (parsers have refused
 * them).  `_` and `.` are not folded: see head_field_folds(). */
enum hdr_id hdr_lookup(struct str name);

struct field {
	const char *name, *value; /* value trimmed */
	uint16_t name_n;
	uint8_t id, flags; /* enum hdr_id, hdr_flag of its row */
	uint32_t value_n;
};

static inline struct str field_name(const struct field *f)
{
	return (struct str){ .p = f->name, .n = f->name_n };
}

static inline struct str field_value(const struct field *f)
{
	return (struct str){ .p = f->value, .n = f->value_n };
}

enum method {
	METHOD_OTHER = 0,
	METHOD_GET,
	METHOD_HEAD,
	METHOD_POST,
	METHOD_PUT,
	METHOD_DELETE,
	METHOD_OPTIONS,
	METHOD_PATCH,
	METHOD_TRACE,
	METHOD_CONNECT,
	METHODS
};
enum method method_lookup(struct str text); /* case-sensitive (RFC 9110 §9.1) */
/* Safe or idempotent by RFC 9110 §9.2 (OTHER: neither). */
bool method_safe(enum method);
bool method_idempotent(enum method);

/* RFC 9112 §3.2 */
enum target_form { TARGET_ORIGIN = 0, TARGET_ABSOLUTE, TARGET_AUTHORITY, TARGET_ASTERISK };
enum body_kind {
	BODY_NONE = 0, /* no body, and no framing says otherwise */
	BODY_LENGTH,   /* exactly `length` bytes */
	BODY_STREAM,   /* ends when the sender says so: chunked, END_STREAM */
	BODY_CLOSE,    /* responses only: ends with the connection */
};

enum head_flag {
	HEAD_CLOSE = 1,      /* Connection: close was said */
	HEAD_KEEP_ALIVE = 2, /* Connection: keep-alive was said (HTTP/1.0) */
	HEAD_EXPECT_100 = 4, /* the client waits for 100; also what h1_write_request() writes */
	HEAD_UPGRADE = 8,    /* Connection: upgrade and an Upgrade field: `upgrade` has it */
	HEAD_TE_TRAILERS = 16,
	HEAD_NO_HOST = 32,      /* HTTP/1.0 without Host, nor a host in the target: host is empty */
	HEAD_LENGTH_GIVEN = 64, /* Content-Length was there, maybe without a body (HEAD, 304) */
	HEAD_NTLM = 128,        /* an authentication field says NTLM or Negotiate: pinned */
};

struct head {
	/* request */
	uint8_t method;  /* enum method */
	uint8_t form;    /* enum target_form */
	uint8_t version; /* HTTP version × 10: 10, 11, 20, 30 */
	uint8_t body;    /* enum body_kind */
	uint16_t status; /* response: 100..999 */
	uint16_t port;   /* of the authority; 0: none given */
	uint32_t flags;  /* enum head_flag */
	struct str method_text;
	struct str scheme; /* absolute form: as sent, lower case; else empty */
	/* Of the target or of Host: lower case, no port, IPv6 without brackets, no trailing dot. */
	struct str host;
	bool host_is_v6; /* was written in brackets */
	/* Begins with '/'; in the web direction in normal form; empty for CONNECT and '*', and for
	 * OPTIONS in absolute form without a path (which is written as '*'). */
	struct str path;
	struct str query;  /* with its '?'; empty if none */
	struct str target; /* as received, for the log */
	/* response */
	struct str reason;
	/* both */
	uint64_t length;    /* BODY_LENGTH; with HEAD_LENGTH_GIVEN what Content-Length said */
	struct str upgrade; /* HEAD_UPGRADE: the offered or chosen protocols (h2c taken out) */
	struct field *fields;
	uint32_t n_fields, cap_fields;
	/* Set of the ids (HDR_BIT) that are in the list, maybe of more: what is not in the set
	 * needs no search.  Who fills the list by hand adds to it. */
	uint64_t ids;
	bool nominated; /* a field of the list has HDR_F_NOMINATED */
};

/* The first field with this id, or NULL.  The next: pass the last one found. */
struct field *head_search(const struct head *h, enum hdr_id id);
static inline struct field *head_find(const struct head *h, enum hdr_id id)
{
	return h->ids & HDR_BIT(id) ? head_search(h, id) : NULL;
}
struct field *head_find_next(const struct head *h, const struct field *after);
struct field *head_find_name(const struct head *h, struct str name);
/* Adds a field whose strings live as long as the head (borrowed).  False: out of memory, or a name
 * of more than 65,535 bytes. */
bool head_add(struct head *h, struct arena *a, struct str name, struct str value) MUST_CHECK;
/* The same with the canonical name: "Via". */
bool head_add_id(struct head *h, struct arena *a, enum hdr_id id, struct str value) MUST_CHECK;
void head_remove(struct head *h, enum hdr_id id); /* all of them */
/* Drops every field any of whose flags is in `mask`. */
void head_remove_flags(struct head *h, uint32_t mask);
/* Whether the name has a '_' or '.' and, with those read as '-', is that of an IDENT, FRAME or HOP
 * row: some servers cannot tell them apart. */
bool head_field_folds(struct str name);
/* The text of a status: "Not Found"; "" when unknown. */
struct str head_reason(unsigned status);
void head_dump(const struct head *h, int fd); /* without SECRET values */

/* --- path: the one normal form (ARCHITECTURE.md: Path; RFC 3986 §6.2.2) --- */
enum path_error {
	PATH_OK = 0,
	PATH_BAD_ESCAPE = -1,
	PATH_NUL = -2,
	PATH_BACKSLASH = -3,
	PATH_HIDDEN_DOTS = -4,
	PATH_ABOVE_ROOT = -5,
	PATH_BAD_CHAR = -6,
	PATH_SLASH = -7, /* does not begin with one; or an encoded one where those are refused */
	PATH_NO_MEMORY = -8,
};
enum path_flag {
	PATH_KEEP_SLASHES = 1, /* do not merge // */
	PATH_REJECT_ENCODED_SLASH = 2,
};
/* In place; *n shrinks.  Unreserved characters decoded, escapes in upper case, dot segments
 * resolved (never above the root: 400), // merged, `%2F` left opaque.  Backslash, NUL, a segment
 * that hides a dot segment behind %2f, %5c or a ';': error, and then the bytes are spoilt.  A path
 * without '%', "//" and "/." is not written to. */
enum path_error path_normalise(char *p, uint32_t *n, unsigned flags);
/* The same for h->path, which is copied into the arena first if it has to change: h->target stays
 * as it was received.  An empty path (CONNECT, '*') is left alone. */
enum path_error path_normalise_head(struct head *h, struct arena *a, unsigned flags);

#endif
