/* digits.h -- decimal numbers into room that is known to do: two digits at a time, nothing checked
 * on the way.  For out.c, addr.c and the access log; everybody else calls out_u64(). */
#ifndef BASE_DIGITS_H
#define BASE_DIGITS_H

#include <stdint.h>
#include <string.h>

#define DIGITS_MAX 20u /* of a uint64_t */

extern const char digits_pairs[201]; /* "00" to "99" */

/* v < 100: always two digits. */
static inline void digits_put2(char *p, unsigned v)
{
	memcpy(p, digits_pairs + 2 * v, 2);
}

char *digits_put_long(char *p, uint64_t v);

/* Writes at most DIGITS_MAX bytes; returns where they end. */
static inline char *digits_put(char *p, uint64_t v)
{
	if (v < 10) {
		*p = (char)('0' + v);
		return p + 1;
	}
	if (v < 100) {
		digits_put2(p, (unsigned)v);
		return p + 2;
	}
	if (v < 1000) {
		*p = (char)('0' + v / 100);
		digits_put2(p + 1, (unsigned)(v % 100));
		return p + 3;
	}
	if (v < 10000) {
		digits_put2(p, (unsigned)(v / 100));
		digits_put2(p + 2, (unsigned)(v % 100));
		return p + 4;
	}
	if (v < 100000) {
		*p = (char)('0' + v / 10000);
		digits_put2(p + 1, (unsigned)(v / 100 % 100));
		digits_put2(p + 3, (unsigned)(v % 100));
		return p + 5;
	}
	return digits_put_long(p, v);
}

#endif
