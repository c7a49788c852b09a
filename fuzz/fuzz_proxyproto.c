/* fuzz_proxyproto.c -- a PROXY protocol head, whole and cut: the verdict must not depend on how the
 * bytes come in. */
#include "link/link.h"

#include "base/panic.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint32_t n = len > PROXYPROTO_MAX + 16 ? PROXYPROTO_MAX + 16 : (uint32_t)len;
	struct addr src, dst, a, b;
	int whole = proxyproto_parse(data, n, &src, &dst);
	int rc = 0;

	must(whole == -EPROTO || (whole >= 0 && (uint32_t)whole <= n));
	must(whole <= PROXYPROTO_MAX);
	must(whole > 0 || (src.len == 0 && dst.len == 0));
	must((src.len == 0) == (dst.len == 0));
	if (n >= PROXYPROTO_MAX)
		must(whole != 0);
	for (uint32_t cut = 0; cut <= n && rc == 0; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);

		must(copy);
		memcpy(copy, data, cut);
		rc = proxyproto_parse(copy, cut, &a, &b);
		free(copy);
		must(rc <= 0 || (uint32_t)rc == cut);
	}
	must(rc == whole);
	must(rc <= 0 || src.len == 0 || (addr_same(&a, &src) && addr_same(&b, &dst)));
	return 0;
}
