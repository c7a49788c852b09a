/* conf.c -- the loader: reads a file, judges all of it, makes a plan or a list of errors.
 * Exports: config_*.
 *
 *   config_load --> text --> conf_yaml_parse --> conf_fill --> conf_check --> conf_plan_build
 *
 * Nothing is bound, resolved, created.  A plan that failed is dropped with all its memory. */
#include "ops/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_MAX_BYTES (16u << 20)

/* ---- text to config ---- */

static struct config *judge(struct conf *c, struct plan *plan)
{
	struct config *config = arena_zalloc(c->mem, sizeof(*config));

	c->top = arena_zalloc(c->mem, sizeof(*c->top));
	if (!config || !c->top) {
		c->oom = true;
		return NULL;
	}
	config->plan = plan;
	config->file = str_of(arena_cstr(c->mem, str_of(c->name)));
	c->oom |= !config->file.p;
	conf_yaml_parse(c);
	if (!c->root && c->errors == 0 && !c->oom)
		conf_error_at(c, &(struct conf_note){ .line = 1, .column = 1 },
			      "the file is empty; `culvert init` writes one to start from");
	if (!c->root || c->oom)
		return NULL;
	conf_fill(c);
	if (c->root->kind == CONF_MAP)
		conf_check(c);
	conf_plan_build(c, config, plan);
	return c->errors || c->oom ? NULL : config;
}

/* Loads what c->text holds, or only reports what is in c already. */
static struct config *finish(struct conf *c, struct slab *slab, struct conf_report *r)
{
	struct plan *plan = plan_new();
	const struct plan *drop = plan;
	struct config *config = NULL;

	if (plan && c->errors == 0) {
		c->mem = plan->mem;
		config = judge(c, plan);
	}
	if (!plan || c->oom)
		conf_error_at(c, &(struct conf_note){ .line = 1, .column = 1 }, "out of memory");
	if (!conf_report_render(c, r) && r->errors == 0)
		r->errors = 1; /* not even memory to say so */
	if (r->errors)
		config = NULL;
	if (!config)
		plan_drop(&drop);
	arena_free(&c->scratch);
	slab_close(slab);
	return config;
}

/* Where relative names begin: the folder of the file, from the root. */
static void folder_of(const char *path, char *dir, size_t size)
{
	const char *slash = strrchr(path, '/');
	size_t n = 0;

	dir[0] = '\0';
	if (path[0] != '/') {
		if (!getcwd(dir, size - 1))
			dir[0] = '\0';
		n = strlen(dir);
		if (n && dir[n - 1] != '/')
			dir[n++] = '/';
		dir[n] = '\0';
	}
	if (slash && n + (size_t)(slash - path) + 2 <= size) {
		memcpy(dir + n, path, (size_t)(slash - path) + 1);
		dir[n + (size_t)(slash - path) + 1] = '\0';
	}
}

struct config *config_load_text(const char *name, const char *text, size_t n, struct conf_report *r)
{
	struct budget budget = { .max = UINT64_MAX };
	struct conf c = { .name = name, .text = { .p = text, .n = (uint32_t)n } };
	struct slab slab;
	char dir[4096];

	folder_of(name, dir, sizeof(dir));
	c.dir = dir;
	slab_init(&slab, "configuration", ARENA_FIRST, &budget);
	arena_init(&c.scratch, &slab);
	if (n > FILE_MAX_BYTES) {
		c.text.n = 0;
		conf_error_at(&c, &(struct conf_note){ .line = 0 }, "more than 16 MiB");
	}
	return finish(&c, &slab, r);
}

static struct config *fail_file(const char *path, const char *why, struct conf_report *r)
{
	struct budget budget = { .max = UINT64_MAX };
	struct conf c = { .name = path, .dir = "" };
	struct slab slab;

	slab_init(&slab, "configuration", ARENA_FIRST, &budget);
	arena_init(&c.scratch, &slab);
	conf_error_at(&c, &(struct conf_note){ .line = 0 }, why);
	return finish(&c, &slab, r);
}

/* The whole file, malloc'd; NULL: *why. */
static char *read_file(const char *path, size_t *n, const char **why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t cap = 64 * 1024;
	char *text = fd >= 0 ? malloc(cap) : NULL;
	ssize_t got = -1;

	*n = 0;
	while (text && (got = read(fd, text + *n, cap - *n)) > 0) {
		*n += (size_t)got;
		if (*n == cap && cap <= FILE_MAX_BYTES) {
			char *more = realloc(text, cap *= 2);

			if (!more)
				got = -1;
			if (!more)
				break;
			text = more;
		}
	}
	if (got != 0 && *n <= FILE_MAX_BYTES) {
		*why = errno == ENOENT
			       ? "there is no such file; `culvert init` writes one to start from"
			       : strerror(errno);
		free(text);
		text = NULL;
	}
	if (fd >= 0)
		close(fd);
	return text;
}

struct config *config_load(const char *path, struct conf_report *r)
{
	struct config *config;
	const char *why = NULL;
	size_t n;
	char *text = read_file(path, &n, &why);

	if (!text)
		return fail_file(path, why, r);
	config = config_load_text(path, text, n, r);
	free(text);
	return config;
}

void config_free(struct config **cp)
{
	const struct plan *plan = *cp ? (*cp)->plan : NULL;

	*cp = NULL;
	plan_drop(&plan);
}

/* ---- the line for a good file ---- */

/* 9800 -> "9,800" */
static const char *grouped(uint64_t x, char room[static 32])
{
	char digits[24];
	int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)x);
	char *to = room;

	for (int i = 0; i < n; i++) {
		if (i > 0 && (n - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return room;
}

static void count(FILE *f, const char *before, uint32_t n, const char *what)
{
	char room[32];

	fprintf(f, "%s%s %s%s", before, grouped(n, room), what, n == 1 ? "" : "s");
}

static void summary(FILE *f, const struct config *config)
{
	const struct plan *p = config->plan;
	char a[32], b[32];

	fprintf(f, "%.*s: ok: ", (int)config->file.n, config->file.p);
	count(f, "", p->n_listeners, "listener");
	count(f, ", ", p->n_sites, "site");
	count(f, ", ", p->n_routes, "route");
	count(f, ", ", p->n_upstreams, "upstream");
	fprintf(f, "; workers %u; connections %s (RLIMIT_NOFILE %s)\n", p->workers,
		grouped(p->connections_max, a), grouped(config->fds_max, b));
}

void config_summary(const struct config *config, int fd)
{
	FILE *f = fdopen(dup(fd), "w");

	if (!f)
		return;
	summary(f, config);
	fclose(f);
}
