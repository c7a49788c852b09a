/* path.c -- the one normal form of a path.  [RFC 3986 §6.2.2, RFC 9112 §3.2, ARCHITECTURE.md: Path]
 *
 * One pass, in place: `r` reads, `w` writes and never overtakes it.  Each segment is copied with
 * its escapes decoded or put into upper case, then judged as a whole:
 *
 *   ""            dropped (// merged), unless PATH_KEEP_SLASHES
 *   "."  ".."     dropped; and the segment before it with it
 *   "..%2Fx"      hides a dot segment from us that a server may see: refused.  So does "..;x",
 *                 which servers that cut off path parameters read as ".."
 *
 * What is decoded is decoded once: %25 stays, so no second round can find a new escape. */
#include "exchange/head.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* --- the quick look --- */

/* Needs care, whatever follows it. */
static inline bool is_odd(char c)
{
	return c == '%' || c == '\\' || c == '#' || c == '?' || (uint8_t)(c - 0x21) > 0x7e - 0x21;
}

#ifdef __SSE2__
#define LOOK 16

/* Whether one of 16 bytes needs care: '%', '\\', what is no path character, or a '/' before '/' or
 * '.' (reads one byte more). */
static inline unsigned look(const char *p)
{
	__m128i b = _mm_loadu_si128((const void *)p), next = _mm_loadu_si128((const void *)(p + 1));
	__m128i slash = _mm_set1_epi8('/');
	__m128i care = _mm_and_si128(_mm_cmpeq_epi8(b, slash),
				     _mm_or_si128(_mm_cmpeq_epi8(next, slash),
						  _mm_cmpeq_epi8(next, _mm_set1_epi8('.'))));

	care = _mm_or_si128(care, _mm_cmpeq_epi8(b, _mm_set1_epi8('%')));
	care = _mm_or_si128(care, _mm_cmpeq_epi8(b, _mm_set1_epi8('\\')));
	care = _mm_or_si128(care, _mm_cmpeq_epi8(b, _mm_set1_epi8('#')));
	care = _mm_or_si128(care, _mm_cmpeq_epi8(b, _mm_set1_epi8('?')));
	/* Signed: 0x21..0x7e become 0x22..0x7f, everything else is below. */
	b = _mm_add_epi8(b, _mm_set1_epi8(1));
	care = _mm_or_si128(care, _mm_cmplt_epi8(b, _mm_set1_epi8(0x22)));
	return (unsigned)_mm_movemask_epi8(care);
}
#else
#define LOOK 1

static inline unsigned look(const char *p)
{
	return is_odd(p[0]) || (p[0] == '/' && (p[1] == '/' || p[1] == '.'));
}
#endif

/* At most a block, with something harmless behind it. */
static NOINLINE bool few_plain(const char *p, uint32_t n)
{
	char pad[LOOK + 1];

	memset(pad, 'a', sizeof(pad));
	memcpy(pad, p, n);
	return look(pad) == 0;
}

/* Whether it begins with '/' and holds nothing that normalising could change or refuse. */
static bool plain(const char *p, uint32_t n)
{
	unsigned care = 0;

	if (n <= LOOK)
		return few_plain(p, n);
	for (uint32_t i = 0; i + LOOK < n; i += LOOK)
		care |= look(p + i);
	/* The last byte, and once more those before it. */
	care |= look(p + n - LOOK - 1);
	return care == 0 && !is_odd(p[n - 1]);
}

/* --- the pass --- */

struct pass {
	char *p;
	uint32_t r, w, n;
	uint32_t seg; /* where the segment begins, behind its '/' */
	unsigned flags;
	bool hides; /* the segment has a %2F, %5C or ';' */
};

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool unreserved(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

/* An escape: decoded where it only hides an unreserved character. */
static enum path_error escape(struct pass *s)
{
	static const char digit[] = "0123456789ABCDEF";
	int hi, lo, c;

	if (s->n - s->r < 3)
		return PATH_BAD_ESCAPE;
	hi = hex(s->p[s->r + 1]);
	lo = hex(s->p[s->r + 2]);
	if (hi < 0 || lo < 0)
		return PATH_BAD_ESCAPE;
	s->r += 3;
	c = hi << 4 | lo;
	if (c == 0)
		return PATH_NUL;
	if (unreserved(c)) {
		s->p[s->w++] = (char)c;
		return PATH_OK;
	}
	if (c == '/' || c == '\\') {
		if (s->flags & PATH_REJECT_ENCODED_SLASH)
			return PATH_SLASH;
		s->hides = true;
	}
	s->p[s->w++] = '%';
	s->p[s->w++] = digit[hi];
	s->p[s->w++] = digit[lo];
	return PATH_OK;
}

static enum path_error bad_char(char c)
{
	if (c == '\\')
		return PATH_BACKSLASH;
	return c == 0 ? PATH_NUL : PATH_BAD_CHAR;
}

/* Copies up to the next '/' or the end. */
static enum path_error segment(struct pass *s)
{
	s->seg = s->w;
	s->hides = false;
	while (s->r < s->n && s->p[s->r] != '/') {
		char c = s->p[s->r];

		if (c == '%') {
			enum path_error e = escape(s);

			if (e)
				return e;
			continue;
		}
		if (c <= ' ' || c >= 0x7f || c == '\\' || c == '#' || c == '?')
			return bad_char(c);
		s->hides |= c == ';';
		s->p[s->w++] = c;
		s->r++;
	}
	return PATH_OK;
}

static bool is_dots(const char *p, uint32_t n)
{
	return (n == 1 || n == 2) && p[0] == '.' && p[n - 1] == '.';
}

/* Whether a part of the segment, between %2F and %5C and without its parameters, is "." or "..". */
static bool hides_dots(const char *p, uint32_t n)
{
	uint32_t from = 0, i = 0;
	uint32_t end = n; /* of the part, where a ';' cuts it */

	while (i < n) {
		if (p[i] == ';' && end == n) {
			end = i;
		} else if (p[i] == '%' && (!memcmp(p + i, "%2F", 3) || !memcmp(p + i, "%5C", 3))) {
			if (is_dots(p + from, (end < i ? end : i) - from))
				return true;
			i += 2;
			from = i + 1;
			end = n;
		}
		i++;
	}
	return is_dots(p + from, end - from);
}

/* The segment is complete: takes it back where it only moves. */
static enum path_error settle(struct pass *s)
{
	const char *p = s->p + s->seg;
	uint32_t n = s->w - s->seg;
	bool last = s->r == s->n;

	if (n == 0 && !(s->flags & PATH_KEEP_SLASHES)) {
		s->w = last ? s->seg : s->seg - 1;
	} else if (is_dots(p, n)) {
		s->w = s->seg - 1;
		if (n == 2) {
			if (s->w == 0)
				return PATH_ABOVE_ROOT;
			while (s->p[--s->w] != '/')
				;
		}
		if (last)
			s->w++; /* "/a/." is "/a/" */
	} else if (s->hides && hides_dots(p, n)) {
		return PATH_HIDDEN_DOTS;
	}
	return PATH_OK;
}

static enum path_error normalise(char *p, uint32_t *n, unsigned flags)
{
	struct pass s = { .p = p, .n = *n, .flags = flags };

	while (s.r < s.n) {
		enum path_error e;

		s.r++;
		p[s.w++] = '/';
		e = segment(&s);
		if (!e)
			e = settle(&s);
		if (e)
			return e;
	}
	*n = s.w;
	return PATH_OK;
}

enum path_error path_normalise(char *p, uint32_t *n, unsigned flags)
{
	if (*n == 0 || p[0] != '/')
		return PATH_SLASH;
	return plain(p, *n) ? PATH_OK : normalise(p, n, flags);
}

enum path_error path_normalise_head(struct head *h, struct arena *a, unsigned flags)
{
	uint32_t n = h->path.n;
	enum path_error e;
	char *copy;

	if (n == 0)
		return PATH_OK;
	if (h->path.p[0] != '/')
		return PATH_SLASH;
	if (plain(h->path.p, n))
		return PATH_OK;
	copy = arena_alloc(a, n);
	if (!copy)
		return PATH_NO_MEMORY;
	memcpy(copy, h->path.p, n);
	e = normalise(copy, &n, flags);
	if (!e)
		h->path = (struct str){ .p = copy, .n = n };
	return e;
}
