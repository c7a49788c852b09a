/* h1_target.c -- authority and absolute-form.  Exports: h1_authority, h1_absolute
 * [RFC 3986 §3.1, §3.2; RFC 9112 §3.2.2; RFC 9110 §4.2.4, §7.2]
 *
 * Narrower than the grammar: a host is an IPv6 literal in brackets or labels of letters, digits and
 * "-_~", so that no two spellings of one host exist beyond case and a trailing dot. */
#include "wire/h1_bytes.h"

#include <arpa/inet.h>

#define HOST_MAX 255u

/* The byte in lower case, 0 for what is not in a host's name. */
/* clang-format off */
static const char host_char[256] = {
	['-'] = '-', ['.'] = '.', ['_'] = '_', ['~'] = '~',
	['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4',
	['5'] = '5', ['6'] = '6', ['7'] = '7', ['8'] = '8', ['9'] = '9',
	['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd', ['e'] = 'e', ['f'] = 'f', ['g'] = 'g',
	['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k', ['l'] = 'l', ['m'] = 'm', ['n'] = 'n',
	['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r', ['s'] = 's', ['t'] = 't', ['u'] = 'u',
	['v'] = 'v', ['w'] = 'w', ['x'] = 'x', ['y'] = 'y', ['z'] = 'z',
	['A'] = 'a', ['B'] = 'b', ['C'] = 'c', ['D'] = 'd', ['E'] = 'e', ['F'] = 'f', ['G'] = 'g',
	['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k', ['L'] = 'l', ['M'] = 'm', ['N'] = 'n',
	['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r', ['S'] = 's', ['T'] = 't', ['U'] = 'u',
	['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y', ['Z'] = 'z',
};
/* clang-format on */

#ifdef __SSE2__
/* Bits of the bytes of a block that are within [from, from + more]. */
static inline __m128i within(__m128i b, char from, char more)
{
	b = _mm_sub_epi8(b, _mm_set1_epi8(from));
	return _mm_cmpeq_epi8(_mm_min_epu8(b, _mm_set1_epi8(more)), b);
}

/* A name of up to 16 bytes that is as it should be: [a-z0-9-] and dots, none first and no two
 * together.  Its length up to the port, or 0: look again. */
static inline uint32_t plain_name(const char *p, uint32_t n)
{
	char block[16];
	uint32_t name, dot;
	__m128i b;

	if (n > sizeof(block))
		return 0;
	memset(block, 0, sizeof(block));
	memcpy(block, p, n);
	b = _mm_loadu_si128((const void *)block);
	dot = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8('.')));
	name = (uint32_t)_mm_movemask_epi8(_mm_or_si128(within(b, 'a', 25), within(b, '0', 9)));
	name |= dot | (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8('-')));
	name = (uint32_t)__builtin_ctz(~name);
	return (dot & (dot << 1 | 1)) == 0 && (name == n || p[name] == ':') ? name : 0;
}
#else
static inline uint32_t plain_name(const char *p, uint32_t n)
{
	(void)p;
	(void)n;
	return 0;
}
#endif

/* Lowers a name at p[0, n) up to the first byte that belongs to none; its length, 0: it is
 * wrong. */
static uint32_t name_end(char *p, uint32_t n)
{
	uint32_t i = plain_name(p, n);
	char before = '.', c;

	if (i)
		return i;
	for (; i < n && (c = host_char[(uint8_t)p[i]]); i++) {
		if (c == '.' && before == '.')
			return 0; /* an empty label */
		p[i] = before = c;
	}
	return i;
}

/* "[v6]" at p[0, n): its length with the brackets, 0: it is wrong. */
static uint32_t literal_end(char *p, uint32_t n)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr addr;
	uint32_t i;

	for (i = 1; i < n && p[i] != ']'; i++) {
		if (i == sizeof(text) || !(host_char[(uint8_t)p[i]] || p[i] == ':'))
			return 0;
		if (p[i] != ':')
			p[i] = host_char[(uint8_t)p[i]];
		text[i - 1] = p[i];
	}
	if (i >= n)
		return 0;
	text[i - 1] = '\0';
	return inet_pton(AF_INET6, text, &addr) == 1 ? i + 1 : 0;
}

/* ":port" at p[0, n), all of it; an empty port is none (RFC 3986 §3.2.3). */
static bool read_port(const char *p, uint32_t n, uint16_t *port)
{
	uint32_t v = 0;

	if (p[0] != ':' || n > sizeof("65535"))
		return false;
	if (n == 1)
		return true;
	for (uint32_t i = 1; i < n; i++) {
		if ((uint8_t)(p[i] - '0') > 9)
			return false;
		v = v * 10 + (uint8_t)(p[i] - '0');
	}
	*port = (uint16_t)v;
	return v > 0 && v <= UINT16_MAX;
}

int h1_authority(char *p, uint32_t n, struct str *host, bool *is_v6, uint16_t *port)
{
	uint32_t end;

	*port = 0;
	*is_v6 = n > 0 && p[0] == '[';
	end = *is_v6 ? literal_end(p, n) : name_end(p, n);
	if (end == 0 || end > HOST_MAX || (end < n && !read_port(p + end, n - end, port)))
		return -H1_E_HOST;
	*host = (struct str){ .p = p, .n = end };
	if (*is_v6)
		*host = (struct str){ .p = p + 1, .n = end - 2 };
	else if (p[end - 1] == '.')
		host->n--; /* never empty: "." begins with an empty label */
	return 0;
}

/* "scheme://" at p[0, n), lowered; its length, 0: it is wrong. */
static uint32_t scheme_end(char *p, uint32_t n)
{
	uint32_t i = 0;

	for (; i < n && p[i] != ':'; i++) {
		char c = host_char[(uint8_t)p[i]];

		if (!(c >= 'a' && c <= 'z') &&
		    (i == 0 || !((c >= '0' && c <= '9') || c == '-' || c == '.' || p[i] == '+')))
			return 0;
		p[i] = c ? c : p[i];
	}
	return i > 0 && n - i > 3 && p[i + 1] == '/' && p[i + 2] == '/' ? i + 3 : 0;
}

int h1_absolute(struct head *h, char *p, uint32_t n)
{
	uint32_t from = scheme_end(p, n), to, query;

	if (!from || h1_next_no_target(p, 0, n) < n)
		return -H1_E_TARGET;
	query = h1_next_char(p, from, n, '?');
	to = h1_next_char(p, from, query, '/');
	if (h1_authority(p + from, to - from, &h->host, &h->host_is_v6, &h->port) < 0)
		return -H1_E_TARGET;
	h->form = TARGET_ABSOLUTE;
	h->scheme = (struct str){ .p = p, .n = from - 3 };
	h->path = (struct str){ .p = p + to, .n = query - to };
	h->query = (struct str){ .p = p + query, .n = n - query };
	return 0;
}
