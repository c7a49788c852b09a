/* fuzz_target.c -- an authority, and an absolute-form: what is accepted has one spelling. */
#include "h1_fuzz.h"

static void check_host(struct str host, bool is_v6)
{
	char before = '.';

	must(host.n > 0 && host.n <= 255);
	for (uint32_t i = 0; i < host.n; i++) {
		char c = host.p[i];

		must((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
		     c == '_' || c == '~' || (is_v6 && c == ':'));
		must(is_v6 || c != '.' || before != '.');
		before = c;
	}
	must(is_v6 || before != '.');
}

static void put_authority(struct out *o, struct str host, bool is_v6, uint16_t port)
{
	out_str(o, is_v6 ? STR("[") : STR(""));
	out_str(o, host);
	out_str(o, is_v6 ? STR("]") : STR(""));
	if (port) {
		out_char(o, ':');
		out_u64(o, port);
	}
}

static void check_authority(const char *text, uint32_t n)
{
	char *room = exact_copy(text, n), again[300];
	struct str host, host2;
	uint16_t port, port2;
	bool v6, v62;
	struct out o;
	int e = h1_authority(room, n, &host, &v6, &port);

	must(e == 0 || e == -H1_E_HOST);
	if (e == 0) {
		check_host(host, v6);
		must(is_within(host, room, n));
		out_init(&o, again, sizeof(again));
		put_authority(&o, host, v6, port);
		must(out_ok(&o) && out_len(&o) <= n);
		must(h1_authority(again, out_len(&o), &host2, &v62, &port2) == 0);
		must(str_eq(host, host2) && v6 == v62 && port == port2);
	}
	free(room);
}

static void check_absolute(const char *text, uint32_t n)
{
	char *room = exact_copy(text, n), *again = malloc((size_t)n + 16);
	struct head h, h2;
	struct out o;
	int e;

	must(again);
	memset(&h, 0, sizeof(h));
	memset(&h2, 0, sizeof(h2));
	e = h1_absolute(&h, room, n);
	must(e == 0 || e == -H1_E_TARGET);
	if (e == 0) {
		check_host(h.host, h.host_is_v6);
		must(h.scheme.n > 0 && is_within(h.path, room, n) && is_within(h.query, room, n));
		must(h.path.n == 0 || h.path.p[0] == '/');
		must(h.query.n == 0 || h.query.p[0] == '?');
		out_init(&o, again, (size_t)n + 16);
		out_str(&o, h.scheme);
		out_lit(&o, "://");
		put_authority(&o, h.host, h.host_is_v6, h.port);
		out_str(&o, h.path);
		out_str(&o, h.query);
		must(out_ok(&o) && out_len(&o) <= n);
		must(h1_absolute(&h2, again, out_len(&o)) == 0);
		must(str_eq(h.scheme, h2.scheme) && str_eq(h.host, h2.host) && h.port == h2.port);
		must(str_eq(h.path, h2.path) && str_eq(h.query, h2.query));
	}
	free(again);
	free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len > INPUT_MAX)
		return 0;
	check_authority((const char *)data, (uint32_t)len);
	check_absolute((const char *)data, (uint32_t)len);
	return 0;
}
