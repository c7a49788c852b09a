/* h1_fields.h -- the field lines of a head, shared by h1_request.c and h1_response.c.
 *
 * h1_fields_parse() fills h->fields and takes out the fields that frame a message or belong to one
 * connection; what those said is kept here until the whole head is known. */
#ifndef WIRE_H1_FIELDS_H
#define WIRE_H1_FIELDS_H

#include "wire/h1_bytes.h"

#define H1_CONNECTION_MAX 100u /* tokens of Connection: each is looked for among all fields */

struct h1_fields {
	/* set by the caller */
	enum h1_role role;
	const char *buf; /* the whole head, n bytes, without what the scan skipped */
	uint32_t n;
	const struct h1_scan *scan;
	/* what was said */
	uint32_t n_hosts;
	struct str host;    /* of the last Host line */
	uint32_t n_options; /* tokens of Connection */
	uint32_t n_codings; /* of Transfer-Encoding */
	uint32_t n_chunked;
	bool chunked_last;
	bool coding_given;
	bool length_given;
	uint64_t length;
	bool expect, expect_other;
	bool upgrade_option; /* Connection: upgrade */
	bool has_upgrade;    /* Upgrade lines are in the list until the end */
	bool nominates;      /* Connection lines that name fields are in the list until the end */
};

/* Parses the field lines from p->buf + i on, the empty line last, into h->fields, with room for
 * some that will be added.  0 or -enum h1_error. */
int h1_fields_parse(struct h1_fields *p, struct head *h, struct arena *a, uint32_t i);
/* Judges Transfer-Encoding and Content-Length together (RFC 9112 §6.1-6.3): 0: there is no coding;
 * 1: chunked; < 0: -enum h1_error. */
int h1_fields_coding(const struct h1_fields *p, const struct head *h);

#endif
