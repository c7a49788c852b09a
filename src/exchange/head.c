/* head.c -- the table of known field names, and lists of fields.  Exports: hdr_*, method_*
 *
 * hdr_lookup() is on the path of every field of every message: one hash of the length and two
 * letters, one table entry, one comparison eight bytes at a time. */
#include "exchange/head.h"

#include "base/load.h"

#include <unistd.h>

#define HOP        HDR_F_HOP
#define FRAME      HDR_F_FRAME
#define NO_TRAILER HDR_F_NO_TRAILER
#define IDENT      HDR_F_IDENT
#define SECRET     HDR_F_SECRET
#define KEEP       HDR_F_KEEP

const struct hdr_row hdr_table[HDR_ROWS] = {
#define HDR(id, text, as, f) [HDR_##id] = { .name = STR(text), .canon = STR(as), .flags = (f) },
#include "exchange/head.tbl"
#undef HDR
};

const uint8_t hdr_flags[HDR_ROWS] = {
#define HDR(id, text, as, f) [HDR_##id] = (f),
#include "exchange/head.tbl"
#undef HDR
};

/* clang-format off */
#define HDR(id, text, as, f) | (((f) & (HOP | FRAME)) ? HDR_BIT(HDR_##id) : 0)
const uint64_t hdr_hop_or_frame = 0
#include "exchange/head.tbl"
;
#undef HDR
#define HDR(id, text, as, f) | (((f) & IDENT) ? HDR_BIT(HDR_##id) : 0)
const uint64_t hdr_ident = 0
#include "exchange/head.tbl"
;
#undef HDR
/* clang-format on */

/* --- lookup --- */

#define NAME_MIN 2u
#define NAME_MAX 25u

/* A perfect hash of the names in head.tbl: length, first letter, last letter but one (lower case).
 * A collision is a compile error (an initialiser overridden); a missing slot fails test_head. */
#define SLOTS                   256
#define SLOT(n, first, but_one) (((n) + 11u * (first) + 31u * (but_one)) & (SLOTS - 1))

/* clang-format off */
static const uint8_t slots[SLOTS] = {
	[SLOT(4, 'h', 's')] = HDR_HOST,
	[SLOT(14, 'c', 't')] = HDR_CONTENT_LENGTH,
	[SLOT(17, 't', 'n')] = HDR_TRANSFER_ENCODING,
	[SLOT(10, 'c', 'o')] = HDR_CONNECTION,
	[SLOT(10, 'k', 'v')] = HDR_KEEP_ALIVE,
	[SLOT(16, 'p', 'o')] = HDR_PROXY_CONNECTION,
	[SLOT(2, 't', 't')] = HDR_TE,
	[SLOT(7, 't', 'e')] = HDR_TRAILER,
	[SLOT(7, 'u', 'd')] = HDR_UPGRADE,
	[SLOT(6, 'e', 'c')] = HDR_EXPECT,
	[SLOT(19, 'p', 'o')] = HDR_PROXY_AUTHORIZATION,
	[SLOT(18, 'p', 't')] = HDR_PROXY_AUTHENTICATE,
	[SLOT(25, 'p', 'f')] = HDR_PROXY_AUTHENTICATION_INFO,
	[SLOT(14, 'h', 'g')] = HDR_HTTP2_SETTINGS,
	[SLOT(13, 'a', 'o')] = HDR_AUTHORIZATION,
	[SLOT(16, 'w', 't')] = HDR_WWW_AUTHENTICATE,
	[SLOT(6, 'c', 'i')] = HDR_COOKIE,
	[SLOT(10, 's', 'i')] = HDR_SET_COOKIE,
	[SLOT(3, 'v', 'i')] = HDR_VIA,
	[SLOT(9, 'f', 'e')] = HDR_FORWARDED,
	[SLOT(15, 'x', 'o')] = HDR_X_FORWARDED_FOR,
	[SLOT(17, 'x', 't')] = HDR_X_FORWARDED_PROTO,
	[SLOT(16, 'x', 's')] = HDR_X_FORWARDED_HOST,
	[SLOT(16, 'x', 'r')] = HDR_X_FORWARDED_PORT,
	[SLOT(9, 'x', 'i')] = HDR_X_REAL_IP,
	[SLOT(12, 'x', 'i')] = HDR_X_REQUEST_ID,
	[SLOT(12, 'm', 'd')] = HDR_MAX_FORWARDS,
	[SLOT(4, 'd', 't')] = HDR_DATE,
	[SLOT(6, 's', 'e')] = HDR_SERVER,
	[SLOT(12, 'c', 'p')] = HDR_CONTENT_TYPE,
	[SLOT(16, 'c', 'n')] = HDR_CONTENT_ENCODING,
	[SLOT(13, 'c', 'g')] = HDR_CONTENT_RANGE,
	[SLOT(13, 'c', 'o')] = HDR_CACHE_CONTROL,
	[SLOT(5, 'r', 'g')] = HDR_RANGE,
	[SLOT(6, 'a', 'p')] = HDR_ACCEPT,
	[SLOT(10, 'u', 'n')] = HDR_USER_AGENT,
	[SLOT(7, 'r', 'e')] = HDR_REFERER,
	[SLOT(11, 'r', 'e')] = HDR_RETRY_AFTER,
	[SLOT(8, 'l', 'o')] = HDR_LOCATION,
	[SLOT(5, 'p', 'x')] = HDR_PROXY,
	[SLOT(12, 'p', 'u')] = HDR_PROXY_STATUS,
	[SLOT(3, 'a', 'g')] = HDR_AGE,
	[SLOT(7, 'e', 'e')] = HDR_EXPIRES,
	[SLOT(4, 'v', 'r')] = HDR_VARY,
	[SLOT(15, 'a', 'n')] = HDR_ACCEPT_ENCODING,
	[SLOT(15, 'a', 'g')] = HDR_ACCEPT_LANGUAGE,
	[SLOT(13, 'a', 'e')] = HDR_ACCEPT_RANGES,
	[SLOT(4, 'e', 'a')] = HDR_ETAG,
	[SLOT(13, 'l', 'e')] = HDR_LAST_MODIFIED,
	[SLOT(8, 'i', 'c')] = HDR_IF_MATCH,
	[SLOT(13, 'i', 'c')] = HDR_IF_NONE_MATCH,
	[SLOT(17, 'i', 'c')] = HDR_IF_MODIFIED_SINCE,
	[SLOT(19, 'i', 'c')] = HDR_IF_UNMODIFIED_SINCE,
	[SLOT(8, 'i', 'g')] = HDR_IF_RANGE,
	[SLOT(6, 'o', 'i')] = HDR_ORIGIN,
	[SLOT(6, 'p', 'm')] = HDR_PRAGMA,
	[SLOT(16, 'c', 'g')] = HDR_CONTENT_LANGUAGE,
	[SLOT(7, 'a', 'v')] = HDR_ALT_SVC,
};
/* clang-format on */

/* The names once more, each where its id says: one load less than through hdr_table. */
static const struct {
	char text[NAME_MAX + 6];
	uint8_t n;
} names[HDR_ROWS] = {
#define HDR(id, str, as, f) [HDR_##id] = { .text = str, .n = sizeof(str) - 1 },
#include "exchange/head.tbl"
#undef HDR
};

/* What differs between eight bytes and eight of a name [a-z0-9-]: with bit 0x20 set, letters of any
 * case are the name's; of other bytes only controls could become one, and there are none. */
static inline uint64_t differ(const char *p, const char *name)
{
	return (load64(p) | 0x2020202020202020u) ^ load64(name);
}

static inline uint32_t differ4(const char *p, const char *name)
{
	return (load32(p) | 0x20202020u) ^ load32(name);
}

/* p and name: n bytes each, n >= 2.  Overlapping loads cover every length without a loop over
 * bytes. */
static inline bool same(const char *p, const char *name, uint32_t n)
{
	uint64_t d;

	if (n >= 8) {
		d = differ(p, name) | differ(p + n - 8, name + n - 8);
		for (uint32_t i = 8; i < n - 8; i += 8)
			d |= differ(p + i, name + i);
		return d == 0;
	}
	if (n >= 4)
		return (differ4(p, name) | differ4(p + n - 4, name + n - 4)) == 0;
	return ((p[0] | 0x20) ^ name[0]) == 0 && ((p[1] | 0x20) ^ name[1]) == 0 &&
	       ((p[n - 1] | 0x20) ^ name[n - 1]) == 0;
}

enum hdr_id hdr_lookup(struct str name)
{
	uint8_t id;

	if (name.n - NAME_MIN > NAME_MAX - NAME_MIN)
		return HDR_OTHER;
	id = slots[SLOT(name.n, (uint8_t)name.p[0] | 0x20u, (uint8_t)name.p[name.n - 2] | 0x20u)];
	return names[id].n == name.n && same(name.p, names[id].text, name.n) ? id : HDR_OTHER;
}

bool head_field_folds(struct str name)
{
	char buf[NAME_MAX];
	bool folded = false;
	enum hdr_id id;

	if (name.n > sizeof(buf))
		return false;
	for (uint32_t i = 0; i < name.n; i++) {
		bool odd = name.p[i] == '_' || name.p[i] == '.';

		buf[i] = odd ? '-' : name.p[i];
		folded |= odd;
	}
	if (!folded)
		return false;
	id = hdr_lookup((struct str){ .p = buf, .n = name.n });
	return id != HDR_OTHER && (hdr_table[id].flags & (IDENT | FRAME | HOP));
}

/* --- methods --- */

static const struct {
	struct str text;
	bool safe, idempotent;
} methods[METHODS] = {
	[METHOD_GET] = { STR("GET"), true, true },
	[METHOD_HEAD] = { STR("HEAD"), true, true },
	[METHOD_POST] = { STR("POST"), false, false },
	[METHOD_PUT] = { STR("PUT"), false, true },
	[METHOD_DELETE] = { STR("DELETE"), false, true },
	[METHOD_OPTIONS] = { STR("OPTIONS"), true, true },
	[METHOD_PATCH] = { STR("PATCH"), false, false },
	[METHOD_TRACE] = { STR("TRACE"), true, true },
	[METHOD_CONNECT] = { STR("CONNECT"), false, false },
};

enum method method_lookup(struct str text)
{
	for (unsigned m = METHOD_GET; m < METHODS; m++)
		if (str_eq(text, methods[m].text))
			return m;
	return METHOD_OTHER;
}

bool method_safe(enum method m)
{
	return methods[m].safe;
}

bool method_idempotent(enum method m)
{
	return methods[m].idempotent;
}

/* --- field lists --- */

static struct field *find_from(const struct head *h, uint32_t i, enum hdr_id id)
{
	for (; i < h->n_fields; i++)
		if (h->fields[i].id == id)
			return &h->fields[i];
	return NULL;
}

struct field *head_search(const struct head *h, enum hdr_id id)
{
	return find_from(h, 0, id);
}

struct field *head_find_next(const struct head *h, const struct field *after)
{
	return find_from(h, (uint32_t)(after - h->fields) + 1, after->id);
}

struct field *head_find_name(const struct head *h, struct str name)
{
	enum hdr_id id = hdr_lookup(name);

	if (id != HDR_OTHER)
		return head_find(h, id);
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (h->fields[i].id == HDR_OTHER && str_ieq(field_name(&h->fields[i]), name))
			return &h->fields[i];
	return NULL;
}

/* Room for one more, doubling; the old array stays in the arena. */
static COLD bool make_room(struct head *h, struct arena *a)
{
	uint32_t cap = h->cap_fields < 4 ? 8 : 2 * h->cap_fields;
	struct field *to = arena_alloc(a, cap * sizeof(*to));

	if (!to)
		return false;
	if (h->n_fields)
		memcpy(to, h->fields, h->n_fields * sizeof(*to));
	h->fields = to;
	h->cap_fields = cap;
	return true;
}

static inline bool add(struct head *h, struct arena *a, enum hdr_id id, struct str name,
		       struct str value)
{
	struct field *f;

	if (name.n > UINT16_MAX || (h->n_fields == h->cap_fields && !make_room(h, a)))
		return false;
	f = &h->fields[h->n_fields++];
	f->name = name.p;
	f->value = value.p;
	f->name_n = (uint16_t)name.n;
	f->id = (uint8_t)id;
	f->flags = hdr_flags[id];
	f->value_n = value.n;
	h->ids |= HDR_BIT(id);
	return true;
}

bool head_add(struct head *h, struct arena *a, struct str name, struct str value)
{
	return add(h, a, hdr_lookup(name), name, value);
}

bool head_add_id(struct head *h, struct arena *a, enum hdr_id id, struct str value)
{
	return add(h, a, id, hdr_table[id].canon, value);
}

void head_remove(struct head *h, enum hdr_id id)
{
	uint32_t to = 0;

	if (!(h->ids & HDR_BIT(id)))
		return;
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (h->fields[i].id != id && to++ != i)
			h->fields[to - 1] = h->fields[i];
	h->n_fields = to;
	h->ids &= ~HDR_BIT(id);
}

void head_remove_flags(struct head *h, uint32_t mask)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < h->n_fields; i++)
		if (!(h->fields[i].flags & mask) && to++ != i)
			h->fields[to - 1] = h->fields[i];
	h->n_fields = to;
}

/* --- reasons (RFC 9110 §15 and the IANA registry) --- */

#define STATUS_MIN 100u

static const struct str reasons[512 - STATUS_MIN] = {
#define REASON(status, text) [(status)-STATUS_MIN] = STR(text)
	REASON(100, "Continue"),
	REASON(101, "Switching Protocols"),
	REASON(102, "Processing"),
	REASON(103, "Early Hints"),
	REASON(200, "OK"),
	REASON(201, "Created"),
	REASON(202, "Accepted"),
	REASON(203, "Non-Authoritative Information"),
	REASON(204, "No Content"),
	REASON(205, "Reset Content"),
	REASON(206, "Partial Content"),
	REASON(207, "Multi-Status"),
	REASON(208, "Already Reported"),
	REASON(226, "IM Used"),
	REASON(300, "Multiple Choices"),
	REASON(301, "Moved Permanently"),
	REASON(302, "Found"),
	REASON(303, "See Other"),
	REASON(304, "Not Modified"),
	REASON(305, "Use Proxy"),
	REASON(307, "Temporary Redirect"),
	REASON(308, "Permanent Redirect"),
	REASON(400, "Bad Request"),
	REASON(401, "Unauthorized"),
	REASON(402, "Payment Required"),
	REASON(403, "Forbidden"),
	REASON(404, "Not Found"),
	REASON(405, "Method Not Allowed"),
	REASON(406, "Not Acceptable"),
	REASON(407, "Proxy Authentication Required"),
	REASON(408, "Request Timeout"),
	REASON(409, "Conflict"),
	REASON(410, "Gone"),
	REASON(411, "Length Required"),
	REASON(412, "Precondition Failed"),
	REASON(413, "Content Too Large"),
	REASON(414, "URI Too Long"),
	REASON(415, "Unsupported Media Type"),
	REASON(416, "Range Not Satisfiable"),
	REASON(417, "Expectation Failed"),
	REASON(421, "Misdirected Request"),
	REASON(422, "Unprocessable Content"),
	REASON(423, "Locked"),
	REASON(424, "Failed Dependency"),
	REASON(425, "Too Early"),
	REASON(426, "Upgrade Required"),
	REASON(428, "Precondition Required"),
	REASON(429, "Too Many Requests"),
	REASON(431, "Request Header Fields Too Large"),
	REASON(451, "Unavailable For Legal Reasons"),
	REASON(500, "Internal Server Error"),
	REASON(501, "Not Implemented"),
	REASON(502, "Bad Gateway"),
	REASON(503, "Service Unavailable"),
	REASON(504, "Gateway Timeout"),
	REASON(505, "HTTP Version Not Supported"),
	REASON(506, "Variant Also Negotiates"),
	REASON(507, "Insufficient Storage"),
	REASON(508, "Loop Detected"),
	REASON(511, "Network Authentication Required"),
#undef REASON
};

struct str head_reason(unsigned status)
{
	struct str r = STR_NONE;

	if (status - STATUS_MIN < ARRAY_LEN(reasons))
		r = reasons[status - STATUS_MIN];
	return r.p ? r : STR("");
}

/* --- dump --- */

static void dump_line(int fd, struct out *o)
{
	ssize_t n = write(fd, o->base, out_len(o));

	(void)n; /* a dump that cannot be written is not worth a second one */
	o->p = o->base;
	o->over = false;
}

static void put_clipped(struct out *o, struct str s)
{
	s.n = s.n < 200 ? s.n : 200;
	out_quoted_log(o, s);
}

static void dump_field(struct out *o, const struct field *f)
{
	bool secret = f->flags & SECRET;

	out_lit(o, "    ");
	put_clipped(o, field_name(f));
	out_lit(o, ": ");
	put_clipped(o, secret ? STR("(secret)") : field_value(f));
	if (f->flags & HDR_F_NOMINATED)
		out_lit(o, "   [nominated]");
	out_char(o, '\n');
}

void head_dump(const struct head *h, int fd)
{
	char buf[2048];
	struct out o;

	out_init(&o, buf, sizeof(buf));
	out_fmt(&o, "  head %p: version %u body %u length %llu flags %#x", (const void *)h,
		h->version, h->body, (unsigned long long)h->length, h->flags);
	if (h->status) {
		out_fmt(&o, " status %u\n", h->status);
	} else {
		out_fmt(&o, " form %u method ", h->form);
		put_clipped(&o, h->method_text);
		out_lit(&o, " host ");
		put_clipped(&o, h->host);
		out_fmt(&o, " port %u path ", h->port);
		put_clipped(&o, h->path); /* never the query: it may hold a credential */
		out_char(&o, '\n');
	}
	dump_line(fd, &o);
	for (uint32_t i = 0; i < h->n_fields; i++) {
		dump_field(&o, &h->fields[i]);
		dump_line(fd, &o);
	}
}
