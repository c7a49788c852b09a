/* h1_fields.c -- field lines: name, colon, value; and what the special ones say.
 *
 *   Content-Type:  text/plain \r\n        h1_scan() has seen to the line ends and to control bytes
 *   i          colon v        end  cr
 *
 * A known name is right when the table knows it; only the others are looked at byte by byte.
 * Almost all fields then go straight into the list; those of `special` are judged by one function
 * each.  [RFC 9110 §5, §7.6.1, §7.8, §10.1; RFC 9112 §5, §6] */
#include "wire/h1_fields.h"

/* Via, X-Forwarded-* ...; the start line counts too, Host and Connection come out */
#define SPARE_REQUEST  5
#define SPARE_RESPONSE 2

/* --- lists of tokens --- */

/* The next member of a comma list in buf[*i, end), trimmed, empty ones skipped.  No quoted strings:
 * in the lists here they are wrong, and what is cut out of them is no token. */
static bool next_member(const char *buf, uint32_t *i, uint32_t end, struct str *member)
{
	while (*i < end) {
		uint32_t comma = h1_next_char(buf, *i, end, ',');

		*member = str_trim((struct str){ .p = buf + *i, .n = comma - *i });
		*i = comma + 1;
		if (member->n)
			return true;
	}
	return false;
}

/* A walk over the members of one field's value. */
struct members {
	const char *buf;
	uint32_t i, end;
};

static inline struct members members_of(const struct h1_fields *p, const struct field *f)
{
	uint32_t i = (uint32_t)(f->value - p->buf);

	return (struct members){ .buf = p->buf, .i = i, .end = i + f->value_n };
}

static inline bool members_next(struct members *m, struct str *member)
{
	return next_member(m->buf, &m->i, m->end, member);
}

/* --- special fields: 0: keep in the list, 1: taken out, < 0: -enum h1_error --- */

static int on_host(struct h1_fields *p, const struct field *f)
{
	p->n_hosts++;
	p->host = field_value(f);
	return 1;
}

/* 1*DIGIT at *s, moved behind it. */
static bool digits(const char **s, const char *end, uint64_t *out)
{
	const char *from = *s;
	uint64_t v = 0;

	for (; *s < end && (uint8_t)(**s - '0') <= 9; ++*s) {
		if (v > ((uint64_t)INT64_MAX - 9) / 10)
			return false;
		v = v * 10 + (uint8_t)(**s - '0');
	}
	*out = v;
	return *s > from;
}

/* A list of one number: "5", or "5, 5" (RFC 9110 §8.6). */
static int on_length(struct h1_fields *p, const struct field *f)
{
	const char *s = f->value, *end = s + f->value_n;
	uint64_t v;

	for (;;) {
		if (!digits(&s, end, &v) || (p->length_given && v != p->length))
			return -H1_E_CONTENT_LENGTH;
		p->length = v;
		p->length_given = true;
		while (s < end && h1_is_space(*s))
			s++;
		if (s == end)
			return 1;
		if (*s++ != ',')
			return -H1_E_CONTENT_LENGTH;
		while (s < end && h1_is_space(*s))
			s++;
	}
}

/* The name of a coding: up to its parameters. */
static struct str coding_name(struct str coding)
{
	uint32_t n = 0;

	while (n < coding.n && h1_token[(uint8_t)coding.p[n]])
		n++;
	return (struct str){ .p = coding.p, .n = n };
}

static NOINLINE int on_transfer_encoding(struct h1_fields *p, const struct field *f)
{
	struct members m = members_of(p, f);
	struct str coding;

	p->coding_given = true;
	while (members_next(&m, &coding)) {
		struct str name = coding_name(coding), rest;

		rest = str_trim((struct str){ .p = name.p + name.n, .n = coding.n - name.n });
		if (!name.n || (rest.n && rest.p[0] != ';'))
			return -H1_E_TRANSFER_ENCODING;
		p->chunked_last = str_ieq(name, STR("chunked"));
		if (p->chunked_last && coding.n != name.n)
			return -H1_E_TRANSFER_ENCODING; /* it has no parameters */
		p->n_chunked += p->chunked_last;
		p->n_codings++;
	}
	return 1;
}

/* What Connection may say of this connection; the rest are names of fields. */
static void option(struct h1_fields *p, struct head *h, struct str token)
{
	enum hdr_id id = hdr_lookup(token);

	if (id == HDR_KEEP_ALIVE)
		h->flags |= HEAD_KEEP_ALIVE;
	else if (id == HDR_UPGRADE)
		p->upgrade_option = true;
	else if (id == HDR_OTHER && str_ieq(token, STR("close")))
		h->flags |= HEAD_CLOSE;
	else if (!(hdr_table[id].flags & HDR_F_KEEP) && id != HDR_TE)
		p->nominates = true;
}

static NOINLINE int connection_options(struct h1_fields *p, struct head *h, const struct field *f)
{
	struct members m = members_of(p, f);
	struct str token;

	while (members_next(&m, &token)) {
		if (++p->n_options > H1_CONNECTION_MAX)
			return -H1_E_CONNECTION;
		option(p, h, token);
	}
	/* The fields that it names may come after it. */
	return !p->nominates;
}

static inline int on_connection(struct h1_fields *p, struct head *h, const struct field *f)
{
	if (hdr_lookup(field_value(f)) != HDR_KEEP_ALIVE)
		return connection_options(p, h, f);
	h->flags |= HEAD_KEEP_ALIVE; /* nothing else, as a rule */
	return 1;
}

static COLD int on_te(const struct h1_fields *p, struct head *h, const struct field *f)
{
	struct members m = members_of(p, f);
	struct str member;

	while (members_next(&m, &member))
		if (str_ieq(member, STR("trailers")))
			h->flags |= HEAD_TE_TRAILERS;
	return 1;
}

static COLD int on_expect(struct h1_fields *p, const struct field *f)
{
	struct members m = members_of(p, f);
	struct str member;

	while (members_next(&m, &member)) {
		if (str_ieq(member, STR("100-continue")))
			p->expect = true;
		else
			p->expect_other = true;
	}
	return 1;
}

/* Challenges and credentials that authenticate a connection and not a request. */
static NOINLINE int on_authentication(struct head *h, const struct field *f)
{
	static const struct str schemes[] = { STR("NTLM"), STR("Negotiate") };
	struct str rest = field_value(f), item;

	while (str_next_item(&rest, &item))
		for (unsigned i = 0; i < ARRAY_LEN(schemes); i++)
			if (str_istarts(item, schemes[i]) &&
			    (item.n == schemes[i].n || h1_is_space(item.p[schemes[i].n])))
				h->flags |= HEAD_NTLM;
	return 0;
}

#define BIT(id) HDR_BIT(HDR_##id)

static const uint64_t special[] = {
	[H1_REQUEST] = BIT(HOST) | BIT(CONTENT_LENGTH) | BIT(TRANSFER_ENCODING) | BIT(CONNECTION) |
		       BIT(KEEP_ALIVE) | BIT(PROXY_CONNECTION) | BIT(TE) | BIT(UPGRADE) |
		       BIT(EXPECT) | BIT(HTTP2_SETTINGS) | BIT(AUTHORIZATION) |
		       BIT(PROXY_AUTHORIZATION),
	[H1_RESPONSE] = BIT(CONTENT_LENGTH) | BIT(TRANSFER_ENCODING) | BIT(CONNECTION) |
			BIT(KEEP_ALIVE) | BIT(PROXY_CONNECTION) | BIT(TE) | BIT(UPGRADE) |
			BIT(HTTP2_SETTINGS) | BIT(WWW_AUTHENTICATE) | BIT(PROXY_AUTHENTICATE),
	[H1_TRAILERS] = ~(uint64_t)0,
};

/* Trailers keep what neither frames, routes, authenticates, identifies nor sets cookies. */
static bool may_trail(const struct field *f)
{
	return !(f->flags &
		 (HDR_F_NO_TRAILER | HDR_F_HOP | HDR_F_FRAME | HDR_F_IDENT | HDR_F_SECRET)) &&
	       !(f->id == HDR_OTHER && head_field_folds(field_name(f)));
}

static NOINLINE int on_special(struct h1_fields *p, struct head *h, const struct field *f)
{
	if (p->role == H1_TRAILERS)
		return !may_trail(f);
	switch (f->id) {
	case HDR_HOST: return on_host(p, f);
	case HDR_CONTENT_LENGTH: return on_length(p, f);
	case HDR_TRANSFER_ENCODING: return on_transfer_encoding(p, f);
	case HDR_CONNECTION: return on_connection(p, h, f);
	case HDR_TE: return on_te(p, h, f);
	case HDR_EXPECT: return on_expect(p, f);
	case HDR_UPGRADE: p->has_upgrade = true; return 0;
	case HDR_AUTHORIZATION:
	case HDR_PROXY_AUTHORIZATION:
	case HDR_WWW_AUTHENTICATE:
	case HDR_PROXY_AUTHENTICATE: return on_authentication(h, f);
	default: return 1; /* Keep-Alive, Proxy-Connection, HTTP2-Settings */
	}
}

/* --- one line --- */

/* The name at buf[i] is none that we know.  > 0: its length, a token; < 0: what is wrong. */
static int other_name(const struct h1_fields *p, uint32_t i, uint32_t colon)
{
	const char *name = p->buf + i;
	uint32_t n = colon - i;

	if (n <= UINT16_MAX && h1_is_token(name, n))
		return (int)n;
	if (h1_is_space(name[0]))
		return -H1_E_OBS_FOLD;
	if (h1_next_char(p->buf, i, colon, '\r') < colon)
		return -H1_E_FIELD_NAME; /* the line has no colon */
	while (n && h1_is_space(name[n - 1]))
		n--;
	if (n == colon - i || n > UINT16_MAX || !h1_is_token(name, n))
		return -H1_E_FIELD_NAME;
	/* In a response a proxy takes it out (RFC 9112 §5.1). */
	return p->role == H1_RESPONSE ? (int)n : -H1_E_SPACE_BEFORE_COLON;
}

/* The line at `at` has a long name, or one that we do not know. */
static NOINLINE int other_line(const struct h1_fields *p, struct field *f, const char *at)
{
	uint32_t i = (uint32_t)(at - p->buf), colon = h1_next_char(p->buf, i, p->n, ':');
	struct str name = { .p = at, .n = colon - i };
	enum hdr_id id = hdr_lookup(name);

	if (id == HDR_OTHER) {
		int n = other_name(p, i, colon);

		if (n < 0)
			return n;
		if ((uint32_t)n != name.n) {
			name.n = (uint32_t)n;
			id = hdr_lookup(name);
		}
	}
	f->id = (uint8_t)id;
	f->name_n = (uint16_t)name.n;
	f->value = p->buf + colon + 1;
	return 0;
}

/* The line from `at` to its CR; the head ends at `end`. */
static inline int line(const struct h1_fields *p, struct field *f, const char *at, const char *cr,
		       const char *end)
{
	uint32_t colons = end - at >= (ptrdiff_t)H1_BLOCK ? h1_mask_char(at, ':') : 0;
	enum hdr_id id = HDR_OTHER;
	const char *v = at;

	if (__builtin_expect(colons != 0, 1)) {
		uint32_t n = (uint32_t)__builtin_ctz(colons);

		id = hdr_lookup((struct str){ .p = at, .n = n });
		f->name_n = (uint16_t)n;
		f->id = (uint8_t)id;
		v = at + n + 1;
	}
	if (id == HDR_OTHER) {
		int e = other_line(p, f, at);

		if (e)
			return e;
		v = f->value;
	}
	/* No name has a CR in it, so the colon is in this line, and `v` stops at its CR. */
	v += *v == ' ';
	if (__builtin_expect((uint8_t)*v <= ' ', 0))
		while (h1_is_space(*v))
			v++;
	/* What is not above ' ' may be a space, or belong to an empty value. */
	if (__builtin_expect((uint8_t)cr[-1] <= ' ', 0))
		while (cr > v && h1_is_space(cr[-1]))
			cr--;
	f->name = at;
	f->value = v;
	f->flags = hdr_flags[f->id];
	f->value_n = (uint32_t)(cr - v);
	return 0;
}

/* --- what needs the whole list --- */

static void nominate(struct head *h, struct str token)
{
	enum hdr_id id = hdr_lookup(token);

	if (hdr_table[id].flags & HDR_F_KEEP)
		return;
	for (uint32_t i = 0; i < h->n_fields; i++) {
		struct field *f = &h->fields[i];

		if (f->id == id && (id != HDR_OTHER || str_ieq(field_name(f), token))) {
			f->flags |= HDR_F_NOMINATED;
			h->nominated = true;
		}
	}
}

static void nominate_all(const struct h1_fields *p, struct head *h)
{
	struct str token;

	for (struct field *f = head_find(h, HDR_CONNECTION); f; f = head_find_next(h, f)) {
		struct members m = members_of(p, f);

		while (members_next(&m, &token))
			nominate(h, token);
	}
	head_remove(h, HDR_CONNECTION);
}

/* All protocols of all Upgrade lines but h2c, which is for one hop (RFC 9110 §7.8). */
static int join_upgrade(const struct h1_fields *p, struct head *h, struct arena *a)
{
	uint32_t size = 0;
	struct str protocol;
	struct out o;
	char *to;

	for (struct field *f = head_find(h, HDR_UPGRADE); f; f = head_find_next(h, f))
		size += f->value_n + 2 + f->value_n; /* each ',' may become ", " */
	to = arena_alloc(a, size);
	if (!to)
		return -H1_E_MEMORY;
	out_init(&o, to, size);
	for (struct field *f = head_find(h, HDR_UPGRADE); f; f = head_find_next(h, f)) {
		struct members m = members_of(p, f);

		while (members_next(&m, &protocol)) {
			if (str_ieq(protocol, STR("h2c")))
				continue;
			if (out_len(&o))
				out_lit(&o, ", ");
			out_str(&o, protocol);
		}
	}
	must(out_ok(&o));
	h->upgrade = (struct str){ .p = to, .n = out_len(&o) };
	return 0;
}

static int finish_upgrade(const struct h1_fields *p, struct head *h, struct arena *a)
{
	if (p->upgrade_option && h->version != 10) {
		int e = join_upgrade(p, h, a);

		if (e)
			return e;
		if (h->upgrade.n)
			h->flags |= HEAD_UPGRADE;
	}
	head_remove(h, HDR_UPGRADE);
	return 0;
}

/* --- all lines --- */

static bool make_list(struct head *h, struct arena *a, uint32_t cap)
{
	h->cap_fields = cap;
	if (cap)
		h->fields = arena_alloc(a, cap * sizeof(*h->fields));
	return h->fields || !cap;
}

int h1_fields_parse(struct h1_fields *p, struct head *h, struct arena *a, uint32_t i)
{
	static const uint8_t spare[] = { [H1_REQUEST] = SPARE_REQUEST,
					 [H1_RESPONSE] = SPARE_RESPONSE,
					 [H1_TRAILERS] = 0 };
	const uint64_t specials = special[p->role];
	const struct h1_scan *s = p->scan;
	const char *const buf = p->buf, *const end = buf + p->n, *at = buf + i;
	const uint32_t lines = s->lines, n = p->n;
	uint64_t ids = 0;
	struct field *f;

	if (!make_list(h, a, lines + spare[p->role]))
		return -H1_E_MEMORY;
	f = h->fields;
	for (uint32_t k = p->role != H1_TRAILERS; k < lines; k++) {
		const char *cr = buf + h1_line_end(s, k, buf, (uint32_t)(at - buf), n);
		int e = line(p, f, at, cr, end);

		if (__builtin_expect(e, 0))
			return e;
		at = cr + 2;
		if (specials >> f->id & 1) {
			e = on_special(p, h, f);
			if (e < 0)
				return e;
			if (e)
				continue;
		}
		ids |= HDR_BIT(f->id);
		f++;
	}
	must(at + 2 == end); /* the scan was of these bytes */
	h->n_fields = (uint32_t)(f - h->fields);
	h->ids = ids;
	if (__builtin_expect(p->nominates, 0))
		nominate_all(p, h);
	return __builtin_expect(p->has_upgrade, 0) ? finish_upgrade(p, h, a) : 0;
}

int h1_fields_coding(const struct h1_fields *p, const struct head *h)
{
	if (!p->coding_given)
		return 0;
	if (h->version == 10)
		return -H1_E_TRANSFER_ENCODING; /* faulty framing: RFC 9112 §6.1 */
	if (p->length_given)
		return -H1_E_LENGTH_AND_CODING;
	if (p->n_chunked != 1 || !p->chunked_last)
		return -H1_E_TRANSFER_ENCODING;
	return p->n_codings == 1 ? 1 : -H1_E_CODING;
}
