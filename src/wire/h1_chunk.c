/* h1_chunk.c -- the framing of a chunked body.  Exports: h1_chunk_*  [RFC 9112 §7.1]
 *
 *            1*HEXDIG          CR            LF
 *     SIZE ------------> SIZE ----> SIZE_LF ----> DATA (left bytes, not ours)
 *      ^                  | ;          ^           | left == 0
 *      |                  v            | CR        v
 *      |                 EXT ----------+        DATA_CR --CR--> DATA_LF
 *      |                  | "                                      | LF
 *      |                 QUOTED <--> ESCAPED                       |
 *      +-----------------------------------------------------------+
 *
 * A size of 0 leads from SIZE_LF to LAST.  Extensions are dropped; they are looked at only to find
 * where they end, and a line end inside a quoted string is refused: some servers see it, some do
 * not. */
#include "wire/h1_bytes.h"

enum chunk_state {
	CHUNK_SIZE = 0, /* the first digit */
	CHUNK_DIGITS,
	CHUNK_EXT,
	CHUNK_QUOTED,
	CHUNK_ESCAPED,
	CHUNK_SIZE_LF,
	CHUNK_DATA, /* left > 0: body bytes; else the CR that ends them */
	CHUNK_DATA_LF,
	CHUNK_LAST,
};

/* The value of a hexadecimal digit, or 255. */
static inline unsigned hex_value(char c)
{
	unsigned d = (uint8_t)(c - '0');

	if (d <= 9)
		return d;
	d = (uint8_t)((c | 0x20) - 'a');
	return d <= 5 ? d + 10 : 255;
}

static int on_digit(struct h1_chunk *c, char b)
{
	unsigned d = hex_value(b);

	if (d == 255)
		return b == '\n' ? -H1_E_BARE_LF : -H1_E_CHUNK_SIZE;
	if (c->left >> 59) /* at most INT64_MAX */
		return -H1_E_CHUNK_SIZE;
	c->left = c->left << 4 | d;
	c->state = CHUNK_DIGITS;
	return 0;
}

static int on_size(struct h1_chunk *c, char b)
{
	if (c->state == CHUNK_DIGITS && b == '\r')
		c->state = CHUNK_SIZE_LF;
	else if (c->state == CHUNK_DIGITS && b == ';')
		c->state = CHUNK_EXT;
	else
		return on_digit(c, b);
	return 0;
}

static int on_extension(struct h1_chunk *c, char b)
{
	if (++c->ext_total > H1_CHUNK_EXT_TOTAL_MAX)
		return -H1_E_CHUNK_EXTENSION;
	if ((uint8_t)b < 0x20 || b == 0x7f) {
		if (b == '\r' && c->state == CHUNK_EXT) {
			c->state = CHUNK_SIZE_LF;
			return 0;
		}
		if (b != '\t')
			return b == '\n' ? -H1_E_BARE_LF : -H1_E_CHUNK_EXTENSION;
	}
	if (c->state == CHUNK_ESCAPED)
		c->state = CHUNK_QUOTED;
	else if (c->state == CHUNK_QUOTED && b == '\\')
		c->state = CHUNK_ESCAPED;
	else if (b == '"')
		c->state = c->state == CHUNK_QUOTED ? CHUNK_EXT : CHUNK_QUOTED;
	return 0;
}

/* One byte of framing. */
static int on_byte(struct h1_chunk *c, char b)
{
	if (c->state <= CHUNK_SIZE_LF && ++c->line > H1_CHUNK_LINE_MAX)
		return -H1_E_CHUNK_LINE;
	switch ((enum chunk_state)c->state) {
	case CHUNK_SIZE:
	case CHUNK_DIGITS: return on_size(c, b);
	case CHUNK_EXT:
	case CHUNK_QUOTED:
	case CHUNK_ESCAPED: return on_extension(c, b);
	case CHUNK_SIZE_LF:
		if (b != '\n')
			return -H1_E_BARE_CR;
		c->state = c->left ? CHUNK_DATA : CHUNK_LAST;
		c->chunks++;
		return 0;
	case CHUNK_DATA:
		if (b != '\r')
			return b == '\n' ? -H1_E_BARE_LF : -H1_E_CHUNK_END;
		c->state = CHUNK_DATA_LF;
		return 0;
	case CHUNK_DATA_LF:
		if (b != '\n')
			return -H1_E_BARE_CR;
		c->state = CHUNK_SIZE;
		c->line = 0;
		return 0;
	case CHUNK_LAST: break;
	}
	panic_fmt("h1_chunk: a byte in state %u", c->state);
}

int h1_chunk_next(struct h1_chunk *c, const char *buf, uint32_t n, uint32_t *used)
{
	for (*used = 0;; ++*used) {
		int e;

		if (c->state == CHUNK_DATA && c->left)
			return H1_CHUNK_DATA;
		if (c->state == CHUNK_LAST)
			return H1_CHUNK_LAST;
		if (*used == n)
			return H1_CHUNK_MORE;
		e = on_byte(c, buf[*used]);
		if (e)
			return e;
	}
}
