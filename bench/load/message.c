/*
 * message.c -- what travels, prepared once; see load.h
 *
 * Everything is one buffer per page, so that a request or an answer is one send.  Bodies are bytes
 * of a generator that starts differently for each page: no two pages agree, no offset looks like
 * another.
 */
#define _GNU_SOURCE
#include "load.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATH "/some/path/page" /* followed by the page as one hexadecimal digit */

struct message requests[PAGES], answers[PAGES];

static void fill(uint8_t *body, size_t n, unsigned page)
{
	uint64_t x = 0x9e3779b97f4a7c15u * (page + 1);

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		body[i] = (uint8_t)(x >> 32);
	}
}

static struct message build(const char *head, size_t body_bytes, unsigned page)
{
	size_t head_bytes = strlen(head);
	struct message m = { .size = head_bytes + body_bytes };

	m.bytes = malloc(m.size);
	if (!m.bytes)
		err(1, "malloc");
	memcpy(m.bytes, head, head_bytes);
	m.body = m.bytes + head_bytes;
	fill(m.bytes + head_bytes, body_bytes, page);
	return m;
}

static struct message build_request(unsigned page)
{
	char target[64] = "", host[32] = "bench.example", length[48] = "", head[512];

	if (options.form == FORM_ABSOLUTE) {
		snprintf(host, sizeof(host), "127.0.0.1:%u", options.origin_port);
		snprintf(target, sizeof(target), "http://%s", host);
	}
	if (options.post_bytes)
		snprintf(length, sizeof(length), "Content-Length: %zu\r\n", options.post_bytes);
	snprintf(head, sizeof(head),
		 "%s %s" PATH "%x.html HTTP/1.1\r\n"
		 "Host: %s\r\n"
		 "User-Agent: bench/1\r\n"
		 "%s"
		 "Accept: */*\r\n"
		 "\r\n",
		 options.post_bytes ? "POST" : "GET", target, page, host, length);
	return build(head, options.post_bytes, page);
}

static struct message build_answer(unsigned page)
{
	char head[512];

	snprintf(head, sizeof(head),
		 "HTTP/1.1 200 OK\r\n"
		 "Server: origin\r\n"
		 "Date: Mon, 30 Nov 2026 18:00:00 GMT\r\n"
		 "Content-Type: text/plain\r\n"
		 "Content-Length: %zu\r\n"
		 "Connection: keep-alive\r\n"
		 "\r\n",
		 options.body_bytes);
	return build(head, options.body_bytes, page);
}

void message_prepare(void)
{
	for (unsigned page = 0; page < PAGES; page++) {
		requests[page] = build_request(page);
		answers[page] = build_answer(page);
	}
}

static bool named(const uint8_t *field, size_t n, const char *name)
{
	size_t len = strlen(name);

	return n > len && !strncasecmp((const char *)field, name, len);
}

/* The three fields that matter begin with two letters; the others are passed by after one look. */
static void read_field(struct head *h, const uint8_t *field, size_t n)
{
	uint8_t first = field[0] | 0x20;

	if (first != 'c' && first != 't')
		return;
	if (named(field, n, "content-length:"))
		h->body = strtoull((const char *)field + 15, NULL, 10);
	else if (named(field, n, "connection:"))
		h->close = memmem(field, n, "close", 5);
	else if (named(field, n, "transfer-encoding:"))
		h->coded = true;
}

bool message_head(struct head *h, const uint8_t *bytes, size_t n)
{
	const uint8_t *at = bytes, *end = bytes + n, *newline;

	*h = (struct head){ 0 };
	while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
		if (newline - at <= 1) {
			h->size = (unsigned)(newline + 1 - bytes);
			return true;
		}
		read_field(h, at, (size_t)(newline - at));
		at = newline + 1;
	}
	return false;
}

int message_page(const uint8_t *request, size_t n)
{
	const char *start = options.post_bytes ? "POST " PATH : "GET " PATH;
	size_t len = strlen(start);
	uint8_t digit;

	if (n <= len || memcmp(request, start, len))
		return -1;
	digit = request[len];
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}
