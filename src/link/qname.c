/* qname.c -- a name that is asked for: whether it is one, and which names it may stand for.
 *
 * Pure.  Strangers choose names: what a name server must never see, or what inet_aton() would take
 * for an address, ends here. */
#include "link/names.h"

#include <stdio.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Letters, digits, hyphen, and the underscore that people use all the same. */
static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}

/* "1", "0x7f": what inet_aton() would take for a number, and no top-level domain. */
static bool is_number(struct str label)
{
	uint32_t i = 0;

	if (label.n >= 2 && label.p[0] == '0' && label.p[1] == 'x')
		return true;
	while (i < label.n && is_digit(label.p[i]))
		i++;
	return i == label.n;
}

bool qname_take(struct qname *q, struct str s)
{
	uint32_t label = 0;

	q->absolute = s.n > 1 && s.p[s.n - 1] == '.';
	s.n -= q->absolute;
	if (s.n == 0 || s.n > NAME_MAX_LEN)
		return false;
	for (uint32_t i = 0; i < s.n; i++) {
		char c = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] | 0x20) : s.p[i];

		q->text[i] = c;
		if (c == '.' && (i == label || i + 1 == s.n))
			return false;
		if (c == '.') {
			q->dots++;
			label = i + 1;
		} else if (!is_name_char(c) || i - label >= 63) {
			return false;
		}
	}
	q->n = (uint8_t)s.n;
	return !is_number((struct str){ q->text + label, s.n - label });
}

bool qname_ends_in(struct str s, struct str domain)
{
	if (s.n < domain.n || memcmp(s.p + s.n - domain.n, domain.p, domain.n) != 0)
		return false;
	return s.n == domain.n || s.p[s.n - domain.n - 1] == '.';
}

bool qname_candidate(const struct qname *q, const struct resolvconf *rc, uint32_t k, char *text,
		     uint32_t *n)
{
	bool search = rc && !q->absolute;
	uint32_t n_search = search ? rc->n_search : 0;
	uint32_t plain_at = search && q->dots < rc->ndots ? n_search : 0;
	int len;

	if (k > n_search)
		return false;
	if (k == plain_at)
		len = snprintf(text, NAME_MAX_LEN + 1, "%.*s", (int)q->n, q->text);
	else
		len = snprintf(text, NAME_MAX_LEN + 1, "%.*s.%s", (int)q->n, q->text,
			       rc->search[k > plain_at ? k - 1 : k]);
	*n = len > (int)NAME_MAX_LEN ? 0 : (uint32_t)len;
	return true;
}
