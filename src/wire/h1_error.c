/* h1_error.c -- names and consequences of what can be wrong with an HTTP/1 message
 * (h1_error.tbl). */
#include "wire/h1_syntax.h"

static const struct {
	const char *detail;
	uint8_t why; /* enum why_id */
} errors[H1_ERRORS] = {
	[H1_OK] = { "", WHY_NONE },
#define H1_ERROR(id, text, row) [H1_E_##id] = { text, WHY_##row },
#include "wire/h1_error.tbl"
#undef H1_ERROR
};

const char *h1_error_detail(enum h1_error e)
{
	must(e < H1_ERRORS);
	return errors[e].detail;
}

enum why_id h1_error_why(enum h1_error e)
{
	must(e < H1_ERRORS);
	return errors[e].why;
}
