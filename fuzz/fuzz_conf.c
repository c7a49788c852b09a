/*
 * fuzz_conf.c -- the loader on any text.
 *
 * Whatever comes in: a plan, or errors that are counted and shown, never both, and all memory goes.
 * A plan that is printed loads again and prints the same (secrets apart, which are hidden alike).
 */
#include "ops/ops.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* libfyaml 0.7.12 loses a buffer of its own on some syntax errors; ours to find are our own. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfyaml.so";
}

static struct config *load(const char *text, size_t n)
{
	struct conf_report r;
	struct config *c = config_load_text("/fuzz.yaml", text, n, &r);

	must(!c == (r.errors > 0));
	must(r.text != NULL && (r.n > 0) == (r.errors + r.warnings > 0));
	free(r.text);
	return c;
}

/* malloc'd */
static char *printed(const struct config *c, size_t *n)
{
	int fd = memfd_create("print", MFD_CLOEXEC);
	struct stat st;
	char *text;

	must(fd >= 0);
	config_print(c, fd);
	must(fstat(fd, &st) == 0);
	*n = (size_t)st.st_size;
	text = malloc(*n + 1);
	must(text && pread(fd, text, *n, 0) == (ssize_t)*n);
	close(fd);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct config *c = load((const char *)data, len), *again;
	size_t n, m;
	char *first, *second;

	if (!c)
		return 0;
	first = printed(c, &n);
	config_free(&c);
	again = load(first, n);
	must(again != NULL);
	second = printed(again, &m);
	must(n == m && memcmp(first, second, n) == 0);
	config_free(&again);
	free(first);
	free(second);
	return 0;
}
