/* list.h -- intrusive doubly linked ring.  A node that is in no list points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_after(struct list *at, struct list *node)
{
	node->prev = at;
	node->next = at->next;
	at->next->prev = node;
	at->next = node;
}

static inline void list_push_head(struct list *l, struct list *node)
{
	list_insert_after(l, node);
}

static inline void list_push_tail(struct list *l, struct list *node)
{
	list_insert_after(l->prev, node);
}

/* Leaves the node pointing to itself: removing twice is harmless. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

static inline struct list *list_pop_head(struct list *l)
{
	struct list *node = l->next;

	if (node == l)
		return NULL;
	list_remove(node);
	return node;
}

#define list_each_safe(node, tmp, l)                                  \
	for ((node) = (l)->next, (tmp) = (node)->next; (node) != (l); \
	     (node) = (tmp), (tmp) = (node)->next)

#endif
