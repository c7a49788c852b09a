/* digits.h -- decimal numbers into room that is known to do: two digits at a time, nothing checked
 * on the way.  For out.c, addr.c and the access log; everybody else calls out_u64(). */
#ifndef BASE_DIGITS_H
#define BASE_DIGITS_H

#include "base/panic.h"

#include <stdint.h>
#include <string.h>

#define DIGITS_MAX 20u /* of a uint64_t */

extern const char digits_pairs[201]; /* "00" to "99" */

/* v < 100: always two digits. */
static inline void digits_put2(char *p, unsigned v)
{
	memcpy(p, digits_pairs + 2 * v, 2);
}

COLD char *digits_put_long(char *p, uint64_t v);

/* Writes at most DIGITS_MAX bytes; returns where they end. */
static inline char *digits_put(char *p, uint64_t v)
{
	unsigned few = (unsigned)v;

	if (v >= 100000)
		return digits_put_long(p, v);
	if (few >= 1000) {
		if (few >= 10000)
			*p++ = (char)('0' + few / 10000);
		digits_put2(p, few / 100 % 100);
		digits_put2(p + 2, few % 100);
		return p + 4;
	}
	if (few >= 100) {
		*p++ = (char)('0' + few / 100);
		few %= 100;
	} else if (few < 10) {
		*p = (char)('0' + few);
		return p + 1;
	}
	digits_put2(p, few);
	return p + 2;
}

#endif
