/* hosts.c -- hosts(5), read by culvert itself: c-ares answers from servers only.  Exports: hosts_*
 *
 * One entry per name and address, entries of one name in a chain, in the order of the file.  Block
 * lists with 100,000 lines are common, so an entry is small. */
#include "link/names.h"

#include "base/log.h"
#include "base/map.h"

#include <stdlib.h>

#define HOSTS_BYTES_MAX (16u * 1024 * 1024)

struct host {
	struct map_node node;
	struct host *more; /* the same name's next address */
	uint8_t ip[16];
	uint8_t n;
	char name[]; /* lower case */
};

struct hosts {
	struct map names;
	struct watched file;
	uint64_t key[2];
};

static bool same_name(const struct map_node *node, const void *key, uint32_t n)
{
	const struct host *h = container_of(node, const struct host, node);

	return h->n == n && !memcmp(h->name, key, n);
}

struct hosts *hosts_new(const char *path, const uint64_t key[2])
{
	struct hosts *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->file.path = path;
	h->key[0] = key[0];
	h->key[1] = key[1];
	if (map_init(&h->names, key, same_name))
		return h;
	free(h);
	return NULL;
}

static void free_host(struct map_node *node, void *arg)
{
	struct host *h = container_of(node, struct host, node), *more;

	map_remove(arg, node);
	for (; h; h = more) {
		more = h->more;
		free(h);
	}
}

void hosts_free(struct hosts **hp)
{
	struct hosts *h = *hp;

	*hp = NULL;
	if (!h)
		return;
	map_each(&h->names, free_host, &h->names);
	map_close(&h->names);
	free(h);
}

/* --- reading --- */
static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool add_host(struct hosts *h, struct str name, const uint8_t ip[16])
{
	struct host *host, **tail;
	struct map_node *first;

	if (name.n && name.p[name.n - 1] == '.')
		name.n--;
	if (name.n == 0 || name.n > NAME_MAX_LEN)
		return true;
	host = calloc(1, sizeof(*host) + name.n);
	if (!host)
		return false;
	memcpy(host->ip, ip, 16);
	host->n = (uint8_t)name.n;
	for (uint32_t i = 0; i < name.n; i++)
		host->name[i] = lower(name.p[i]);
	first = map_find(&h->names, host->name, host->n);
	if (!first) {
		if (map_add(&h->names, &host->node, host->name, host->n))
			return true;
		free(host);
		return false;
	}
	tail = &container_of(first, struct host, node)->more;
	while (*tail)
		tail = &(*tail)->more;
	*tail = host;
	return true;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct str word_of(struct str *line)
{
	struct str word;

	while (line->n && is_space(*line->p))
		line->p++, line->n--;
	word = (struct str){ line->p, 0 };
	while (line->n && !is_space(*line->p))
		line->p++, line->n--, word.n++;
	return word;
}

/* "address name name ... # comment" */
static bool add_line(struct hosts *h, struct str line)
{
	const char *comment = line.n ? memchr(line.p, '#', line.n) : NULL;
	struct str word;
	struct addr addr;
	uint8_t ip[16];

	if (comment)
		line.n = (uint32_t)(comment - line.p);
	if (!addr_parse_ip(word_of(&line), 0, &addr))
		return true;
	addr_ip16(&addr, ip);
	while ((word = word_of(&line)).n)
		if (!add_host(h, word, ip))
			return false;
	return true;
}

static bool add_text(struct hosts *h, struct str text)
{
	while (text.n) {
		const char *end = memchr(text.p, '\n', text.n);
		uint32_t n = end ? (uint32_t)(end - text.p) : text.n;

		if (!add_line(h, (struct str){ text.p, n }))
			return false;
		n += end != NULL;
		text.p += n;
		text.n -= n;
	}
	return true;
}

static void read_again(struct hosts *h)
{
	uint32_t n;
	char *text = watched_read(&h->file, HOSTS_BYTES_MAX, &n);

	map_each(&h->names, free_host, &h->names);
	if (text && !add_text(h, (struct str){ text, n }))
		log_say(LOG_WARN, "%s: out of memory: names at its end are not known",
			h->file.path);
	if (!text && h->file.there)
		log_say(LOG_WARN, "%s: cannot be read, or is larger than 16 MiB: passed over",
			h->file.path);
	free(text);
}

/* --- asking --- */
static void addr_of_ip16(struct addr *a, const uint8_t ip[16])
{
	memset(a, 0, sizeof(*a));
	a->len = sizeof(a->u.in6);
	a->u.in6.sin6_family = AF_INET6;
	memcpy(&a->u.in6.sin6_addr, ip, 16);
	addr_unmap(a);
}

uint32_t hosts_find(struct hosts *h, uint64_t now_ms, struct str name, struct addr *to,
		    uint32_t max)
{
	struct map_node *node;
	uint32_t n = 0;

	if (watched_changed(&h->file, now_ms))
		read_again(h);
	node = map_find(&h->names, name.p, name.n);
	if (!node)
		return 0;
	for (const struct host *host = container_of(node, struct host, node); host && n < max;
	     host = host->more)
		addr_of_ip16(&to[n++], host->ip);
	return n;
}
