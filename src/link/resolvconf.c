/* resolvconf.c -- resolv.conf(5): servers, search list, ndots; and files that are read anew when
 * they change.  Exports: resolvconf_*, watched_*
 *
 * timeout and attempts are culvert's own settings; sortlist and the other options are passed
 * over. */
#include "link/names.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS   1000
#define NDOTS_MAX 15
#define DNS_PORT  53

/* --- words --- */
static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of the line; n 0: none is left. */
static struct str next_word(struct str *line)
{
	struct str word;

	while (line->n && is_blank(*line->p))
		line->p++, line->n--;
	word = (struct str){ line->p, 0 };
	while (line->n && !is_blank(*line->p))
		line->p++, line->n--, word.n++;
	return word;
}

static struct str next_line(struct str *text)
{
	const char *end = memchr(text->p, '\n', text->n);
	uint32_t n = end ? (uint32_t)(end - text->p) : text->n;
	struct str line = { text->p, n };

	text->p += n + (end != NULL);
	text->n -= n + (end != NULL);
	return line;
}

static void add_server(struct resolvconf *rc, struct str word)
{
	if (rc->n_servers < RESOLVCONF_SERVERS &&
	    addr_parse_ip(word, DNS_PORT, &rc->server[rc->n_servers]))
		rc->n_servers++;
}

/* The last `search` or `domain` line holds. */
static void set_search(struct resolvconf *rc, struct str words)
{
	struct str word;

	rc->n_search = 0;
	while ((word = next_word(&words)).n && rc->n_search < RESOLVCONF_SEARCH) {
		char *to = rc->search[rc->n_search];

		if (word.p[word.n - 1] == '.')
			word.n--;
		if (word.n == 0 || word.n > NAME_MAX_LEN)
			continue;
		for (uint32_t i = 0; i < word.n; i++)
			to[i] = word.p[i] >= 'A' && word.p[i] <= 'Z' ? word.p[i] | 0x20 : word.p[i];
		to[word.n] = '\0';
		rc->n_search++;
	}
}

static void set_options(struct resolvconf *rc, struct str words)
{
	struct str word;
	uint64_t n;

	while ((word = next_word(&words)).n)
		if (str_istarts(word, STR("ndots:")) &&
		    str_u64((struct str){ word.p + 6, word.n - 6 }, &n))
			rc->ndots = n > NDOTS_MAX ? NDOTS_MAX : (uint32_t)n;
}

void resolvconf_parse(struct resolvconf *rc, struct str text)
{
	memset(rc, 0, sizeof(*rc));
	rc->ndots = 1;
	while (text.n) {
		struct str line = next_line(&text);
		struct str key = next_word(&line);

		if (str_eq(key, STR("nameserver")))
			add_server(rc, next_word(&line));
		else if (str_eq(key, STR("search")) || str_eq(key, STR("domain")))
			set_search(rc, line);
		else if (str_eq(key, STR("options")))
			set_options(rc, line);
	}
	if (rc->n_servers == 0)
		add_server(rc, STR("127.0.0.1"));
}

/* --- watched files --- */
bool watched_changed(struct watched *w, uint64_t now_ms)
{
	struct stat st;
	struct watched was = *w;

	if (w->looked && now_ms - w->looked_ms < LOOK_MS)
		return false;
	w->looked = true;
	w->looked_ms = now_ms;
	w->there = w->path[0] && !stat(w->path, &st) && S_ISREG(st.st_mode);
	if (!w->there)
		return was.there || !was.looked;
	w->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	w->size = (uint64_t)st.st_size;
	w->ino = st.st_ino;
	return !was.there || w->mtime_ns != was.mtime_ns || w->size != was.size ||
	       w->ino != was.ino;
}

char *watched_read(const struct watched *w, uint32_t max, uint32_t *n)
{
	int fd = w->there ? open(w->path, O_RDONLY | O_CLOEXEC) : -1;
	char *text = NULL;
	ssize_t got = 1;

	*n = 0;
	if (fd < 0)
		return NULL;
	if (w->size <= max)
		text = malloc(max < w->size + 4096 ? max : w->size + 4096);
	while (text && got > 0 && *n < w->size + 4096 && *n < max) {
		got = read(fd, text + *n, (w->size + 4096 < max ? w->size + 4096 : max) - *n);
		*n += got > 0 ? (uint32_t)got : 0;
	}
	close(fd);
	return text;
}
