/* str.c -- comparing, trimming and splitting borrowed bytes.  Pure. */
#include "base/str.h"

#define ONES 0x0101010101010101ull

static inline uint64_t load64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

static inline uint32_t load32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

/* Eight bytes at once, A-Z to a-z: bit 7 of each byte becomes "is upper case", and that bit shifted
 * to 0x20 is the difference. */
static inline uint64_t fold64(uint64_t x)
{
	uint64_t low7 = x & (0x7f * ONES);
	uint64_t above_z = low7 + ((0x7f - 'Z') * ONES);
	uint64_t from_a = low7 + ((0x80 - 'A') * ONES);
	uint64_t upper = (from_a ^ above_z) & ~x & (0x80 * ONES);

	return x | upper >> 2;
}

static inline char fold(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool same_folded(const char *a, const char *b, uint32_t n)
{
	uint32_t i = 0;

	if (n >= 8) {
		for (; i + 8 <= n; i += 8)
			if (fold64(load64(a + i)) != fold64(load64(b + i)))
				return false;
		/* the rest, overlapping */
		return fold64(load64(a + n - 8)) == fold64(load64(b + n - 8));
	}
	if (n >= 4) {
		uint64_t x = (uint64_t)load32(a) << 32 | load32(a + n - 4);
		uint64_t y = (uint64_t)load32(b) << 32 | load32(b + n - 4);

		return fold64(x) == fold64(y);
	}
	for (; i < n; i++)
		if (fold(a[i]) != fold(b[i]))
			return false;
	return true;
}

bool str_ieq(struct str a, struct str b)
{
	return a.n == b.n && same_folded(a.p, b.p, a.n);
}

bool str_istarts(struct str s, struct str prefix)
{
	return s.n >= prefix.n && same_folded(s.p, prefix.p, prefix.n);
}

static inline bool is_ows(char c)
{
	return c == ' ' || c == '\t';
}

struct str str_trim(struct str s)
{
	while (s.n && is_ows(s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n && is_ows(s.p[s.n - 1]))
		s.n--;
	return s;
}

/* Where the first element ends: at a comma outside of quotes, or at the end.  An open quote lasts
 * until the end. */
static uint32_t item_end(struct str s)
{
	bool quoted = false;
	uint32_t i;

	for (i = 0; i < s.n; i++) {
		if (s.p[i] == '"')
			quoted = !quoted;
		else if (quoted && s.p[i] == '\\' && i + 1 < s.n)
			i++;
		else if (!quoted && s.p[i] == ',')
			break;
	}
	return i;
}

bool str_next_item(struct str *rest, struct str *item)
{
	while (rest->n) {
		uint32_t end = item_end(*rest);
		uint32_t next = end < rest->n ? end + 1 : end;

		*item = str_trim((struct str){ .p = rest->p, .n = end });
		rest->p += next;
		rest->n -= next;
		if (item->n)
			return true;
	}
	return false;
}

bool str_u64(struct str s, uint64_t *out)
{
	uint64_t v = 0;

	if (!s.n)
		return false;
	for (uint32_t i = 0; i < s.n; i++) {
		uint32_t digit = (uint32_t)(unsigned char)s.p[i] - '0';

		if (digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, digit, &v))
			return false;
	}
	*out = v;
	return true;
}
