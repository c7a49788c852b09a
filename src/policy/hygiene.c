/* hygiene.c -- always first: one normal form of the request, nothing of the connection it came on,
 * one true client address.
 *
 *   web      path normalised; identity fields (X-Forwarded-*, Forwarded, X-Real-IP) of untrusted
 *            peers removed and written anew, of trusted ones extended; Via
 *   forward  Host comes from the target; identity is not written; the path is not touched; Via
 *
 * Fields that Connection nominates are dropped from the received set, before anything of ours is
 * added: a client must not name away what we say of it. */
#include "policy/policy.h"

#include <stdio.h>

/* ---------------------------------------------------------------- the client's address */
/* "1.2.3.4", "1.2.3.4:80", "[::1]:80", "::1" */
static bool parse_hop(struct str s, struct addr *out)
{
	uint32_t colon;

	if (addr_parse_ip(s, 0, out))
		return true;
	if (s.n && s.p[0] == '[') {
		for (colon = 1; colon < s.n && s.p[colon] != ']'; colon++)
			;
		return colon < s.n &&
		       addr_parse_ip((struct str){ .p = s.p + 1, .n = colon - 1 }, 0, out);
	}
	for (colon = s.n; colon > 0 && s.p[colon - 1] != ':'; colon--)
		;
	return colon > 1 && addr_parse_ip((struct str){ .p = s.p, .n = colon - 1 }, 0, out);
}

/* The last element of a comma list that ends at *end; moves *end before it. */
static struct str last_item(struct str list, uint32_t *end)
{
	uint32_t from = *end;
	struct str item;

	while (from > 0 && list.p[from - 1] != ',')
		from--;
	item = str_trim((struct str){ .p = list.p + from, .n = *end - from });
	*end = from ? from - 1 : 0;
	return item;
}

/* Walks one X-Forwarded-For line from the right while the hops are trusted.  False: a hop that is
 * not (or is no address) ended the walk. */
static bool walk(const struct identity_conf *id, struct str list, struct addr *client)
{
	uint32_t end = list.n;

	while (end > 0) {
		struct str item = last_item(list, &end);
		struct addr hop;

		if (!item.n)
			continue;
		if (!parse_hop(item, &hop))
			return false;
		*client = hop;
		if (!addr_find_net(&hop, id->trusted, id->n_trusted))
			return false;
	}
	return true;
}

/* The `for` of one Forwarded element (RFC 7239 §4), without its quotes; empty: none. */
static struct str forwarded_for(struct str element)
{
	bool quoted = false;
	uint32_t from = 0;

	for (uint32_t i = 0; i <= element.n; i++) {
		struct str pair;

		if (i < element.n && element.p[i] == '"')
			quoted = !quoted;
		if (i < element.n && (quoted || element.p[i] != ';'))
			continue;
		pair = str_trim((struct str){ .p = element.p + from, .n = i - from });
		from = i + 1;
		if (!str_istarts(pair, STR("for=")))
			continue;
		pair.p += 4;
		pair.n -= 4;
		if (pair.n >= 2 && pair.p[0] == '"' && pair.p[pair.n - 1] == '"')
			return (struct str){ .p = pair.p + 1, .n = pair.n - 2 };
		return pair;
	}
	return STR_NONE;
}

/* As walk(), through Forwarded: elements are found from the left, because commas may be quoted. */
#define FORWARDED_HOPS 64
static bool walk_forwarded(const struct identity_conf *id, struct str list, struct addr *client)
{
	struct str hop[FORWARDED_HOPS];
	uint32_t n = 0;

	for (struct str item; str_next_item(&list, &item); n++)
		hop[n % FORWARDED_HOPS] = forwarded_for(item);
	for (uint32_t left = n < FORWARDED_HOPS ? n : FORWARDED_HOPS; left > 0; left--) {
		struct addr a;

		if (!parse_hop(hop[--n % FORWARDED_HOPS], &a))
			return false;
		*client = a;
		if (!addr_find_net(&a, id->trusted, id->n_trusted))
			return false;
	}
	return true;
}

/* The lines are one list; the last line is nearest to us.  X-Forwarded-For goes before Forwarded:
 * it is what proxies extend. */
static void find_client(struct exchange *x, const struct head *h, const struct identity_conf *id)
{
	bool listed = head_find(h, HDR_X_FORWARDED_FOR) != NULL;

	for (uint32_t i = h->n_fields; i-- > 0;) {
		const struct field *f = &h->fields[i];

		if (listed && f->id == HDR_X_FORWARDED_FOR && !walk(id, field_value(f), &x->client))
			return;
		if (!listed && f->id == HDR_FORWARDED &&
		    !walk_forwarded(id, field_value(f), &x->client))
			return;
	}
}

/* ---------------------------------------------------------------- fields */
static bool keep_for_codec(const struct field *f)
{
	return f->id == HDR_PROXY_AUTHENTICATE || f->id == HDR_PROXY_AUTHORIZATION;
}

/* Hop-by-hop and nominated fields; what folds to a name that frames or identifies (K05). */
static void strip(struct head *h, bool request)
{
	uint32_t out = 0;

	if (!(h->ids & (hdr_hop_or_frame | HDR_BIT(HDR_OTHER))) && !h->nominated)
		return; /* nearly always */
	for (uint32_t i = 0; i < h->n_fields; i++) {
		const struct field *f = &h->fields[i];
		bool drop = f->flags & (HDR_F_HOP | HDR_F_FRAME | HDR_F_NOMINATED);

		if (request && f->id == HDR_OTHER && head_field_folds(field_name(f)))
			drop = true;
		if (!request && keep_for_codec(f))
			drop = false;
		if (!drop)
			h->fields[out++] = h->fields[i];
	}
	h->n_fields = out;
}

static bool has_pseudonym(struct str via, struct str pseudonym)
{
	struct str item;

	while (str_next_item(&via, &item)) {
		uint32_t at = 0;

		while (at < item.n && item.p[at] != ' ')
			at++;
		item = str_trim((struct str){ .p = item.p + at, .n = item.n - at });
		if (item.n >= pseudonym.n && memcmp(item.p, pseudonym.p, pseudonym.n) == 0 &&
		    (item.n == pseudonym.n || item.p[pseudonym.n] == ' '))
			return true;
	}
	return false;
}

static bool is_loop(const struct head *h, struct str pseudonym)
{
	for (const struct field *f = head_find(h, HDR_VIA); f; f = head_find_next(h, f))
		if (has_pseudonym(field_value(f), pseudonym))
			return true;
	return false;
}

/* All Via lines become one, ours behind (RFC 9110 §7.6.3). */
static NOINLINE bool join_via(struct exchange *x, struct head *h, struct str pseudonym)
{
	uint32_t n = pseudonym.n + 8;
	struct out o;
	char *text;

	for (const struct field *f = head_find(h, HDR_VIA); f; f = head_find_next(h, f))
		n += f->value_n + 2;
	text = arena_alloc(&x->arena, n);
	if (!text)
		return false;
	out_init(&o, text, n);
	for (const struct field *f = head_find(h, HDR_VIA); f; f = head_find_next(h, f)) {
		out_str(&o, field_value(f));
		out_lit(&o, ", ");
	}
	out_str(&o, h->version >= 11 ? STR("1.1 ") : STR("1.0 "));
	out_str(&o, pseudonym);
	must(out_ok(&o));
	head_remove(h, HDR_VIA);
	return head_add_id(h, &x->arena, HDR_VIA, (struct str){ .p = text, .n = out_len(&o) });
}

static bool add_via(struct exchange *x, struct head *h, struct str pseudonym)
{
	uint32_t n = pseudonym.n + 4;
	char *text;

	if (head_find(h, HDR_VIA))
		return join_via(x, h, pseudonym);
	text = arena_alloc(&x->arena, n);
	if (!text)
		return false;
	memcpy(text, h->version >= 11 ? "1.1 " : "1.0 ", 4);
	memcpy(text + 4, pseudonym.p, pseudonym.n);
	return head_add_id(h, &x->arena, HDR_VIA, (struct str){ .p = text, .n = n });
}

/* TRACE would echo credentials; Max-Forwards 0 is for us to answer (RFC 9110 §9.3.8, §7.6.2). */
static const struct why *screen_method(struct exchange *x, struct head *h)
{
	struct field *f = head_find(h, HDR_MAX_FORWARDS);
	uint64_t n;
	char *text;

	if (h->method == METHOD_TRACE)
		return why(WHY_METHOD_DENIED);
	if (h->method != METHOD_OPTIONS || !f)
		return why(WHY_NONE);
	if (!str_u64(field_value(f), &n)) {
		x->facts.detail = "max_forwards";
		return why(WHY_BAD_REQUEST);
	}
	if (n == 0)
		return why(WHY_METHOD_DENIED);
	text = arena_alloc(&x->arena, 24);
	if (!text)
		return why(WHY_MEMORY);
	f->value_n = (uint32_t)snprintf(text, 24, "%llu", (unsigned long long)(n - 1));
	f->value = text;
	return why(WHY_NONE);
}

/* ---------------------------------------------------------------- identity towards the servers */
static struct str peer_ip(struct exchange *x)
{
	char *text = arena_alloc(&x->arena, INET6_ADDRSTRLEN + 8);
	struct out o;

	if (!text)
		return STR_NONE;
	out_init(&o, text, INET6_ADDRSTRLEN + 8);
	if (x->peer.u.sa.sa_family == AF_UNIX)
		out_lit(&o, "unix");
	else
		addr_ip_out(&o, &x->peer);
	return (struct str){ .p = text, .n = out_len(&o) };
}

/* X-Forwarded-For: what trusted peers wrote, then the peer itself. */
static bool extend_list(struct exchange *x, struct head *h, struct str peer)
{
	uint32_t n = peer.n + 2;
	struct out o;
	char *text;

	if (!head_find(h, HDR_X_FORWARDED_FOR))
		return head_add_id(h, &x->arena, HDR_X_FORWARDED_FOR, peer);
	for (const struct field *f = head_find(h, HDR_X_FORWARDED_FOR); f; f = head_find_next(h, f))
		n += f->value_n + 2;
	text = arena_alloc(&x->arena, n);
	if (!text)
		return false;
	out_init(&o, text, n);
	for (const struct field *f = head_find(h, HDR_X_FORWARDED_FOR); f;
	     f = head_find_next(h, f)) {
		out_str(&o, field_value(f));
		out_lit(&o, ", ");
	}
	out_str(&o, peer);
	head_remove(h, HDR_X_FORWARDED_FOR);
	return head_add_id(h, &x->arena, HDR_X_FORWARDED_FOR,
			   (struct str){ .p = text, .n = out_len(&o) });
}

static struct str host_text(struct exchange *x, const struct head *h)
{
	struct out o;
	char *text;

	if (!h->host_is_v6 && !h->port)
		return h->host;
	text = arena_alloc(&x->arena, h->host.n + 10);
	if (!text)
		return STR_NONE;
	out_init(&o, text, h->host.n + 10);
	if (h->host_is_v6)
		out_char(&o, '[');
	out_str(&o, h->host);
	if (h->host_is_v6)
		out_char(&o, ']');
	if (h->port) {
		out_char(&o, ':');
		out_u64(&o, h->port);
	}
	return (struct str){ .p = text, .n = out_len(&o) };
}

static bool write_identity(struct exchange *x, struct head *h, bool trusted)
{
	struct str peer = peer_ip(x);
	struct arena *a = &x->arena;

	if (!peer.p || !extend_list(x, h, peer))
		return false;
	if (!(trusted && head_find(h, HDR_X_FORWARDED_PROTO)) &&
	    !head_add_id(h, a, HDR_X_FORWARDED_PROTO, x->secure ? STR("https") : STR("http")))
		return false;
	if (h->host.n && !(trusted && head_find(h, HDR_X_FORWARDED_HOST))) {
		struct str host = host_text(x, h);

		return host.p && head_add_id(h, a, HDR_X_FORWARDED_HOST, host);
	}
	return true;
}

/* What a stranger says about who it is, under known names and any other X-Forwarded-*. */
static void drop_claims(struct head *h)
{
	uint32_t out = 0;

	if (!(h->ids & (hdr_ident | HDR_BIT(HDR_OTHER))))
		return;
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (!(h->fields[i].flags & HDR_F_IDENT) &&
		    !str_istarts(field_name(&h->fields[i]), STR("x-forwarded-")))
			h->fields[out++] = h->fields[i];
	h->n_fields = out;
}

static const struct why *identify(struct exchange *x, struct head *h,
				  const struct identity_conf *id)
{
	bool trusted = addr_find_net(&x->peer, id->trusted, id->n_trusted) != NULL;

	if (trusted)
		find_client(x, h, id);
	else
		drop_claims(h);
	return why(write_identity(x, h, trusted) ? WHY_NONE : WHY_MEMORY);
}

/* ---------------------------------------------------------------- path */
static const char *path_detail(enum path_error e)
{
	static const char *const details[] = {
		"",          "path_escape",     "path_nul",       "path_backslash",
		"path_dots", "path_above_root", "path_character", "path_slash"
	};

	return details[-(int)e];
}

static const struct why *normalise(struct exchange *x, struct head *h,
				   const struct hygiene_params *p)
{
	unsigned flags = (p->merge_slashes ? 0 : PATH_KEEP_SLASHES) |
			 (p->reject_encoded_slash ? PATH_REJECT_ENCODED_SLASH : 0);
	enum path_error e;

	if (h->form == TARGET_ASTERISK)
		return why(WHY_NONE);
	e = path_normalise_head(h, &x->arena, flags);
	if (__builtin_expect(e == PATH_OK, 1))
		return why(WHY_NONE);
	if (e == PATH_NO_MEMORY)
		return why(WHY_MEMORY);
	x->facts.detail = path_detail(e);
	return why(WHY_BAD_REQUEST);
}

/* ---------------------------------------------------------------- entry */
static const struct why *common(struct exchange *x, struct head *h, const struct hygiene_params *p)
{
	const struct why *w = screen_method(x, h);

	if (w->id)
		return w;
	if (is_loop(h, p->pseudonym))
		return why(WHY_LOOP);
	strip(h, true);
	return w;
}

const struct why *hygiene_web(struct exchange *x, struct head *h, const struct hygiene_params *p)
{
	const struct why *w = common(x, h, p);

	if (!w->id)
		w = normalise(x, h, p);
	if (!w->id)
		w = identify(x, h, &p->identity);
	if (!w->id && p->via && !add_via(x, h, p->pseudonym))
		w = why(WHY_MEMORY);
	return w;
}

const struct why *hygiene_forward(struct exchange *x, struct head *h,
				  const struct hygiene_params *p)
{
	const struct why *w = common(x, h, p);

	if (!w->id && p->via && !add_via(x, h, p->pseudonym))
		w = why(WHY_MEMORY);
	return w;
}

bool hygiene_response(struct exchange *x, struct head *h, const struct hygiene_params *p)
{
	strip(h, false);
	return !p->via || add_via(x, h, p->pseudonym);
}
