/* digits.c -- decimal numbers.  Pure. */
#include "base/digits.h"

/* clang-format off */
const char digits_pairs[201] =
	"00010203040506070809" "10111213141516171819" "20212223242526272829" "30313233343536373839"
	"40414243444546474849" "50515253545556575859" "60616263646566676869" "70717273747576777879"
	"80818283848586878889" "90919293949596979899";
/* clang-format on */

/* A hundred thousand and more: from the back. */
char *digits_put_long(char *p, uint64_t v)
{
	char text[DIGITS_MAX], *end = text + sizeof(text), *d = end;

	for (; v >= 100; v /= 100)
		digits_put2(d -= 2, (unsigned)(v % 100));
	if (v >= 10)
		digits_put2(d -= 2, (unsigned)v);
	else
		*--d = (char)('0' + v);
	memcpy(p, d, (size_t)(end - d));
	return p + (end - d);
}
