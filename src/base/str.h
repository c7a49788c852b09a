/* str.h -- a borrowed run of bytes: pointer and length, never NUL-terminated, never owned. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
	const char *p;
	uint32_t n;
};

#define STR(lit) ((struct str){ .p = (lit), .n = sizeof(lit) - 1 })
#define STR_NONE ((struct str){ .p = NULL, .n = 0 })

static inline struct str str_of(const char *s)
{
	return (struct str){ .p = s, .n = s ? (uint32_t)strlen(s) : 0 };
}

static inline bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_ieq(struct str a, struct str b);          /* ASCII case folded */
bool str_istarts(struct str s, struct str prefix); /* ASCII case folded */
/* SP and HTAB off both ends (OWS, RFC 9110 §5.6.3) */
struct str str_trim(struct str s);
/* The next element of a comma list, trimmed, empty elements skipped (RFC 9110 §5.6.1.2); quoted
 * strings are kept whole.  Moves *rest on; false at the end. */
bool str_next_item(struct str *rest, struct str *item);
/* 1*DIGIT and nothing else; false on anything else or overflow. */
bool str_u64(struct str s, uint64_t *out);

#endif
