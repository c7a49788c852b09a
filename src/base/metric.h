/* metric.h -- counters and histograms: one table of families, plain cells per shard, summed at the
 * scrape.
 *
 *   family   one row of metric.tbl: name, type, label names, help
 *   slot     the index of one series (family × label values); made while the plan is loaded, before
 *            shards count
 *   cells    one shard's array of uint64_t, written by that shard only (relaxed), read by the
 *            scraper
 *
 * Label values come only from configured names, never from traffic. */
#ifndef BASE_METRIC_H
#define BASE_METRIC_H

#include "base/mem.h"
#include "base/out.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
enum metric_id {
#define METRIC(id, type, name, labels, help) METRIC_##id,
#include "base/metric.tbl"
#undef METRIC
	METRIC_ROWS
};

/* all series of the process */
struct metrics;
struct metrics *metrics_new(unsigned n_shards); /* NULL: out of memory */
void metrics_free(struct metrics **m);
/* The slot of this series, made when new (idempotent).  `labels`: one value per label name of the
 * family, in its order.  Cold path, any thread (locked).  A histogram takes HISTOGRAM_CELLS cells
 * from its slot on.  Capacity is METRIC_SLOTS cells; beyond it slot 0 (a trash cell) is returned
 * and counted. */
#define METRIC_SLOTS 65536u
uint32_t metric_slot(struct metrics *m, enum metric_id id, const struct str *labels);
/* One shard's cells: lazily mapped zero pages. */
uint64_t *metric_cells(struct metrics *m, unsigned shard);

static inline void metric_add(uint64_t *cells, uint32_t slot, uint64_t n)
{
	__atomic_store_n(&cells[slot], __atomic_load_n(&cells[slot], __ATOMIC_RELAXED) + n,
			 __ATOMIC_RELAXED);
}

/* gauges: the scrape sums the shards */
static inline void metric_set(uint64_t *cells, uint32_t slot, uint64_t v)
{
	__atomic_store_n(&cells[slot], v, __ATOMIC_RELAXED);
}

/* Buckets: le = 0.0005 · 2^k seconds, k = 0..17, then +Inf; sum in microseconds. */
#define HISTOGRAM_BUCKETS 19
#define HISTOGRAM_CELLS   (HISTOGRAM_BUCKETS + 1)
void metric_observe_us(uint64_t *cells, uint32_t slot, uint64_t us);
/* A series whose value is asked for at the scrape instead of counted; again for the same series:
 * replaces.  value() runs on the scraping thread, under the table's lock: it may not call
 * metric_slot or metric_pull. */
void metric_pull(struct metrics *m, enum metric_id id, const struct str *labels,
		 double (*value)(void *arg), void *arg);
uint64_t metric_sum(const struct metrics *m, uint32_t slot); /* over all shards */
/* Prometheus text format 0.0.4 into a malloc'd buffer; the caller frees it; NULL: out of memory. */
char *metrics_text(struct metrics *m, size_t *n);

#endif
