/* metric.c -- the table of series, and the text that Prometheus reads.
 *
 *   family (metric.tbl)  ->  series  ->  series ...          in the order in which they were made
 *                              |slot
 *   shard 0   [trash ...][ 0 ][ 0 ][ 7 ]...                   plain cells, one writer each
 *   shard 1   [trash ...][ 3 ][ 0 ][ 1 ]...                   the scrape sums them
 *
 * The first HISTOGRAM_CELLS cells are trash: slot 0 stands for "table full" and may be counted as
 * any type. */
#include "base/metric.h"

#include "base/map.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SHARDS_MAX  1024u
#define CELLS_BYTES (METRIC_SLOTS * sizeof(uint64_t))
#define LABELS_MAX  2048u /* of one series, as they are printed */

static const struct family {
	enum metric_type type;
	const char *name, *labels, *help;
} families[METRIC_ROWS] = {
#define METRIC(id, kind, title, label_names, sentence) \
	[METRIC_##id] = { .type = METRIC_##kind,       \
			  .name = (title),             \
			  .labels = (label_names),     \
			  .help = (sentence) },
#include "base/metric.tbl"
#undef METRIC
};

struct series {
	struct map_node node;
	struct series *next; /* of the family */
	enum metric_id id;
	uint32_t slot;
	double (*value)(void *arg); /* NULL: counted in cells */
	void *arg;
	uint32_t n;
	char labels[]; /* n bytes: a="x",b="y" */
};

struct metrics {
	pthread_mutex_t lock;
	unsigned n_shards;
	uint64_t **cells; /* one array per shard */
	uint32_t next_slot;
	uint64_t refused;
	struct map by_name;
	struct {
		struct series *first, **tail;
	} family[METRIC_ROWS];
};

/* --- life --- */

/* The map's key: the family's number, then the labels. */
static bool same_series(const struct map_node *node, const void *key, uint32_t n)
{
	const struct series *s = container_of(node, const struct series, node);
	const char *p = key;

	return p[0] == (char)s->id && n - 1 == s->n && memcmp(p + 1, s->labels, s->n) == 0;
}

_Static_assert(METRIC_ROWS < 256, "a family's number is one byte of the key");

static bool map_cells(struct metrics *m, unsigned n_shards)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	m->cells = calloc(n_shards, sizeof(uint64_t *));
	if (!m->cells)
		return false;
	for (; m->n_shards < n_shards; m->n_shards++) {
		/* cppcheck-suppress invalidFunctionArg; -1 is right for anonymous memory */
		void *p = mmap(NULL, CELLS_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);

		if (p == MAP_FAILED)
			return false;
		m->cells[m->n_shards] = p;
	}
	return true;
}

static double refused_value(void *arg)
{
	return (double)((struct metrics *)arg)->refused; /* the scrape holds the lock */
}

struct metrics *metrics_new(unsigned n_shards)
{
	static const uint64_t no_stranger[2]; /* chooses these keys */
	struct metrics *m = calloc(1, sizeof(*m));

	must(n_shards > 0 && n_shards <= SHARDS_MAX);
	if (!m)
		return NULL;
	pthread_mutex_init(&m->lock, NULL);
	m->next_slot = HISTOGRAM_CELLS;
	for (unsigned i = 0; i < METRIC_ROWS; i++)
		m->family[i].tail = &m->family[i].first;
	if (!map_init(&m->by_name, no_stranger, same_series) || !map_cells(m, n_shards)) {
		metrics_free(&m);
		return NULL;
	}
	metric_pull(m, METRIC_SLOTS_FULL, NULL, refused_value, m);
	return m;
}

void metrics_free(struct metrics **mp)
{
	struct metrics *m = *mp;

	*mp = NULL;
	if (!m)
		return;
	for (unsigned i = 0; i < METRIC_ROWS; i++) {
		while (m->family[i].first) {
			struct series *s = m->family[i].first;

			m->family[i].first = s->next;
			free(s);
		}
	}
	for (unsigned i = 0; i < m->n_shards; i++)
		munmap(m->cells[i], CELLS_BYTES);
	free(m->cells);
	map_close(&m->by_name);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

uint64_t *metric_cells(struct metrics *m, unsigned shard)
{
	must(shard < m->n_shards);
	return m->cells[shard];
}

/* --- series --- */

static void out_escaped(struct out *o, struct str s, bool quotes)
{
	for (uint32_t i = 0; i < s.n; i++) {
		if (s.p[i] == '\\')
			out_lit(o, "\\\\");
		else if (s.p[i] == '\n')
			out_lit(o, "\\n");
		else if (s.p[i] == '"' && quotes)
			out_lit(o, "\\\"");
		else
			out_char(o, s.p[i]);
	}
}

/* a="x",b="y" */
static void out_labels(struct out *o, const char *names, const struct str *values)
{
	struct str rest = str_of(names), name;

	for (unsigned i = 0; str_next_item(&rest, &name); i++) {
		if (i)
			out_char(o, ',');
		out_str(o, name);
		out_lit(o, "=\"");
		out_escaped(o, values[i], true);
		out_char(o, '"');
	}
}

static struct series *series_add(struct metrics *m, enum metric_id id, const struct out *key)
{
	uint32_t n = out_len(key) - 1;
	struct series *s = malloc(sizeof(*s) + n);

	if (!s)
		return NULL;
	*s = (struct series){ .id = id, .n = n };
	memcpy(s->labels, key->base + 1, n);
	if (!map_add(&m->by_name, &s->node, key->base, n + 1)) {
		free(s);
		return NULL;
	}
	*m->family[id].tail = s;
	m->family[id].tail = &s->next;
	return s;
}

/* The series of this name, made when new; NULL: labels too long, or no memory. */
static struct series *series_get(struct metrics *m, enum metric_id id, const struct str *labels)
{
	char buf[LABELS_MAX];
	struct map_node *node;
	struct out key;

	must(id < METRIC_ROWS);
	out_init(&key, buf, sizeof(buf));
	out_char(&key, (char)id);
	out_labels(&key, families[id].labels, labels);
	if (!out_ok(&key))
		return NULL;
	node = map_find(&m->by_name, buf, out_len(&key));
	return node ? container_of(node, struct series, node) : series_add(m, id, &key);
}

static bool slot_take(struct metrics *m, struct series *s)
{
	uint32_t n = families[s->id].type == METRIC_HISTOGRAM ? HISTOGRAM_CELLS : 1;

	if (n > METRIC_SLOTS - m->next_slot)
		return false;
	s->slot = m->next_slot;
	m->next_slot += n;
	return true;
}

uint32_t metric_slot(struct metrics *m, enum metric_id id, const struct str *labels)
{
	struct series *s;
	uint32_t slot = 0;

	pthread_mutex_lock(&m->lock);
	s = series_get(m, id, labels);
	if (s && (s->slot || slot_take(m, s)))
		slot = s->slot;
	else
		m->refused++;
	pthread_mutex_unlock(&m->lock);
	return slot;
}

void metric_pull(struct metrics *m, enum metric_id id, const struct str *labels,
		 double (*value)(void *arg), void *arg)
{
	struct series *s;

	must(families[id].type != METRIC_HISTOGRAM);
	pthread_mutex_lock(&m->lock);
	s = series_get(m, id, labels);
	if (s) {
		s->value = value;
		s->arg = arg;
	} else {
		m->refused++;
	}
	pthread_mutex_unlock(&m->lock);
}

/* --- cells --- */

/* The smallest k with us <= 500 * 2^k. */
void metric_observe_us(uint64_t *cells, uint32_t slot, uint64_t us)
{
	uint64_t q = us ? (us - 1) / 500 : 0;
	unsigned k = q ? 64 - (unsigned)__builtin_clzll(q) : 0;

	if (k > HISTOGRAM_BUCKETS - 1)
		k = HISTOGRAM_BUCKETS - 1;
	metric_add(cells, slot + k, 1);
	metric_add(cells, slot + HISTOGRAM_BUCKETS, us);
}

uint64_t metric_sum(const struct metrics *m, uint32_t slot)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < m->n_shards; i++)
		sum += __atomic_load_n(&m->cells[i][slot], __ATOMIC_RELAXED);
	return sum;
}

/* --- text --- */

/* name{labels,more} and a space; without braces where there is neither. */
static void out_series(struct out *o, const struct series *s, const char *suffix, struct str more)
{
	out_str(o, str_of(families[s->id].name));
	out_str(o, str_of(suffix));
	if (s->n || more.n) {
		out_char(o, '{');
		out_mem(o, s->labels, s->n);
		if (s->n && more.n)
			out_char(o, ',');
		out_str(o, more);
		out_char(o, '}');
	}
	out_char(o, ' ');
}

/* Microseconds as seconds, without zeros at the end: 500 is 0.0005. */
static void out_seconds(struct out *o, uint64_t us)
{
	char part[7];
	uint64_t rest = us % 1000000;
	uint32_t n = sizeof(part);

	part[0] = '.';
	for (unsigned i = 6; i > 0; i--, rest /= 10)
		part[i] = (char)('0' + rest % 10);
	while (n > 1 && part[n - 1] == '0')
		n--;
	n = n == 1 ? 0 : n;
	out_u64(o, us / 1000000);
	out_mem(o, part, n);
}

/* Cells are counts per bucket; the text wants them summed up. */
static void out_histogram(struct out *o, const struct metrics *m, const struct series *s)
{
	uint64_t count = 0;

	for (unsigned k = 0; k < HISTOGRAM_BUCKETS; k++) {
		char buf[40];
		struct out le;

		out_init(&le, buf, sizeof(buf));
		out_lit(&le, "le=\"");
		if (k < HISTOGRAM_BUCKETS - 1)
			out_seconds(&le, 500ull << k);
		else
			out_lit(&le, "+Inf");
		out_char(&le, '"');
		count += metric_sum(m, s->slot + k);
		out_series(o, s, "_bucket", (struct str){ .p = buf, .n = out_len(&le) });
		out_u64(o, count);
		out_char(o, '\n');
	}
	out_series(o, s, "_sum", STR_NONE);
	out_seconds(o, metric_sum(m, s->slot + HISTOGRAM_BUCKETS));
	out_char(o, '\n');
	out_series(o, s, "_count", STR_NONE);
	out_u64(o, count);
	out_char(o, '\n');
}

static void out_value(struct out *o, const struct metrics *m, const struct series *s)
{
	uint64_t v;

	out_series(o, s, "", STR_NONE);
	if (s->value) {
		out_fmt(o, "%.15g\n", s->value(s->arg));
		return;
	}
	v = metric_sum(m, s->slot);
	/* one shard counted up, another down */
	if (families[s->id].type == METRIC_GAUGE && v > INT64_MAX) {
		out_char(o, '-');
		v = -v;
	}
	out_u64(o, v);
	out_char(o, '\n');
}

static void out_family(struct out *o, const struct metrics *m, enum metric_id id)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };
	const struct family *f = &families[id];

	if (!m->family[id].first)
		return;
	out_lit(o, "# HELP ");
	out_str(o, str_of(f->name));
	out_char(o, ' ');
	out_escaped(o, str_of(f->help), false);
	out_lit(o, "\n# TYPE ");
	out_str(o, str_of(f->name));
	out_char(o, ' ');
	out_str(o, str_of(types[f->type]));
	out_char(o, '\n');
	for (const struct series *s = m->family[id].first; s; s = s->next) {
		if (!s->value && !s->slot)
			continue; /* refused: counted in the trash */
		if (f->type == METRIC_HISTOGRAM)
			out_histogram(o, m, s);
		else
			out_value(o, m, s);
	}
}

static char *text_try(struct metrics *m, size_t room, struct out *o)
{
	char *buf = malloc(room);

	if (!buf)
		return NULL;
	out_init(o, buf, room);
	for (unsigned id = 0; id < METRIC_ROWS; id++)
		out_family(o, m, id);
	return buf;
}

char *metrics_text(struct metrics *m, size_t *n)
{
	size_t room = 32768;
	struct out o;
	char *buf;

	pthread_mutex_lock(&m->lock);
	while ((buf = text_try(m, room, &o)) != NULL && !out_ok(&o)) {
		free(buf);
		room *= 2;
	}
	pthread_mutex_unlock(&m->lock);
	if (buf)
		*n = out_len(&o);
	return buf;
}
