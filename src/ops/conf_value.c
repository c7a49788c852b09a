/* conf_value.c -- typed scalars: durations, sizes, counts, words, texts.  One row of `types` per
 * type: what it is called, how it is read, how it is written.  Exports: conf_value_*.
 *
 * A parser that says no says why, and what to write instead; the two are kept apart because the
 * second shows the value, which may have come out of the environment. */
#include "ops/conf.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

void conf_value_init(struct conf_value *v, const struct setting *row, struct arena *mem,
		     const char *dir)
{
	v->row = row;
	v->text = STR("");
	v->plain = true;
	v->dir = dir;
	v->mem = mem;
	v->oom = false;
	out_init(&v->why, v->why_room, sizeof(v->why_room));
	out_init(&v->fix, v->fix_room, sizeof(v->fix_room));
}

static void say(struct out *o, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void say(struct out *o, const char *fmt, va_list ap)
{
	int n = vsnprintf(o->base, (size_t)(o->end - o->base), fmt, ap);

	o->p = o->base + (n < 0 ? 0 : n < o->end - o->base ? n : o->end - o->base - 1);
}

bool conf_value_why(struct conf_value *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(&v->why, fmt, ap);
	va_end(ap);
	return false;
}

bool conf_value_fix(struct conf_value *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(&v->fix, fmt, ap);
	va_end(ap);
	return false;
}

/* ---- numbers in members ---- */

uint64_t conf_value_get(const struct setting *row, const void *member)
{
	switch (row->width) {
	case 1: return *(const uint8_t *)member;
	case 2: return *(const uint16_t *)member;
	case 4: return *(const uint32_t *)member;
	default: return *(const uint64_t *)member;
	}
}

void conf_value_set(const struct setting *row, void *member, uint64_t x)
{
	switch (row->width) {
	case 1: *(uint8_t *)member = (uint8_t)x; break;
	case 2: *(uint16_t *)member = (uint16_t)x; break;
	case 4: *(uint32_t *)member = (uint32_t)x; break;
	default: must(row->width == 8); *(uint64_t *)member = x;
	}
}

/* ---- units ---- */

struct unit {
	const char *name;
	uint64_t by;
	const char *also; /* what people write instead */
};

static const struct unit ms_units[] = {
	{ "ms", 1, "msec msecs millis millisecond milliseconds" },
	{ "s", 1000, "sec secs second seconds" },
	{ "m", 60000, "min mins minute minutes" },
	{ "h", 3600000, "hr hrs hour hours" },
	{ "d", 86400000, "day days" },
	{ NULL, 0, NULL },
};

static const struct unit size_units[] = {
	{ "B", 1, "byte bytes" },         { "KiB", 1ull << 10, "k kb ki" },
	{ "MiB", 1ull << 20, "m mb mi" }, { "GiB", 1ull << 30, "g gb gi" },
	{ "TiB", 1ull << 40, "t tb ti" }, { NULL, 0, NULL },
};

static const struct unit no_units[] = { { NULL, 0, NULL } };

static const struct unit *units_of(const struct setting *row)
{
	return row->type == SETTING_MS     ? ms_units
	       : row->type == SETTING_SIZE ? size_units
					   : no_units;
}

const char *conf_value_number(const struct setting *row, uint64_t x, char room[static 32])
{
	const struct unit *best = NULL;

	for (const struct unit *u = units_of(row); u->name; u++)
		if (!best || (x >= u->by && x % u->by == 0))
			best = u;
	if (x == 0 && row->type == SETTING_MS)
		best = &ms_units[1];
	snprintf(room, 32, "%llu%s", (unsigned long long)(best ? x / best->by : x),
		 best ? best->name : "");
	return room;
}

/* The unit that these letters mean, written right or not; NULL: none. */
static const struct unit *unit_meant(const struct unit *units, struct str s)
{
	char low[16];

	if (s.n == 0 || s.n >= sizeof(low))
		return NULL;
	for (uint32_t i = 0; i < s.n; i++)
		low[i] = (char)tolower((uint8_t)s.p[i]);
	for (const struct unit *u = units; u->name; u++)
		if (str_ieq(s, str_of(u->name)) ||
		    conf_listed(u->also, (struct str){ .p = low, .n = s.n }))
			return u;
	return NULL;
}

/* ---- off, auto ---- */

static bool is_off(const struct conf_value *v)
{
	return str_eq(v->text, STR("off")) || (v->plain && str_eq(v->text, STR("false")));
}

static bool means_off(struct str s)
{
	static const char *const words[] = { "off",      "false",    "no",        "none",
					     "never",    "disabled", "unlimited", "infinite",
					     "infinity", "-1" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_ieq(s, str_of(words[i])))
			return true;
	return false;
}

static bool out_of_bounds(struct conf_value *v, uint64_t x)
{
	const struct setting *r = v->row;
	char lo[32], hi[32];

	if (x == 0 && !(r->flags & SETTING_ZERO) && r->flags & SETTING_OFF) {
		conf_value_why(v, "zero is no value here; say off");
		return true;
	}
	if (r->max && (x < r->min || x > r->max)) {
		conf_value_why(v, "must be between %s and %s", conf_value_number(r, r->min, lo),
			       conf_value_number(r, r->max, hi));
		return true;
	}
	return false;
}

/* ---- durations, sizes, counts ---- */

/* 1.5s and the like: whole numbers only, but we can say which. */
static bool fraction(struct conf_value *v, struct str s, const struct unit *units)
{
	char text[64], *end;
	const struct unit *u;
	double x;
	char room[32];

	if (s.n >= sizeof(text))
		return false;
	memcpy(text, s.p, s.n);
	text[s.n] = '\0';
	if (strspn(text, "0123456789.") == 0 || !strchr(text, '.'))
		return false;
	x = strtod(text, &end);
	u = unit_meant(units, str_trim(str_of(end)));
	if (end == text || (units->name && !u))
		return false;
	conf_value_why(v, "whole numbers only");
	x *= u ? (double)u->by : 1;
	if (u && x >= 1 && x < 1e15)
		conf_value_fix(v, "write %s", conf_value_number(v->row, (uint64_t)x, room));
	return true;
}

static bool no_number(struct conf_value *v)
{
	const char *what = conf_value_type(v->row), *such = "";

	if (v->row->flags & SETTING_OFF && means_off(v->text))
		return conf_value_why(v, "to switch it off say off");
	if (v->row->flags & SETTING_ZERO && means_off(v->text))
		conf_value_fix(v, "write 0s");
	if (v->row->type == SETTING_MS)
		such = " such as 30s";
	if (v->row->type == SETTING_SIZE)
		such = " such as 64KiB";
	return conf_value_why(v, "must be %sa %s%s", v->row->flags & SETTING_AUTO ? "auto or " : "",
			      what, such);
}

static bool no_unit(struct conf_value *v, uint64_t x)
{
	char room[32];

	if (x == 0 && v->row->flags & SETTING_ZERO) {
		conf_value_why(v, "a duration needs a unit");
		return conf_value_fix(v, "write 0s");
	}
	if (x == 0 && v->row->flags & SETTING_OFF)
		return conf_value_why(v, "zero is no value here; say off");
	if (v->row->type == SETTING_MS) {
		conf_value_why(v, "a duration needs a unit");
		return conf_value_fix(v, "write %llus or %llums", (unsigned long long)x,
				      (unsigned long long)x);
	}
	conf_value_why(v, "a size needs a unit");
	conf_value_number(v->row, x, room);
	if (room[strlen(room) - 2] == 'i') /* 65536: 64KiB */
		return conf_value_fix(v, "write %s", room);
	return conf_value_fix(v, "write %lluB or %lluKiB", (unsigned long long)x,
			      (unsigned long long)x);
}

/* 100,000 and 100_000: the digits are meant. */
static bool grouped(struct conf_value *v)
{
	char digits[32];
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->text.n; i++) {
		char ch = v->text.p[i];

		if (isdigit((uint8_t)ch) && n < sizeof(digits) - 1)
			digits[n++] = ch;
		else if (ch != ',' && ch != '_' && ch != '\'')
			return false;
	}
	digits[n] = '\0';
	if (n == 0 || n == v->text.n)
		return false;
	conf_value_why(v, "digits only");
	conf_value_fix(v, "write %s", digits);
	return true;
}

static bool with_unit(struct conf_value *v, uint64_t x, struct str rest, void *member)
{
	const struct unit *units = units_of(v->row), *u;
	struct str name = str_trim(rest);

	u = unit_meant(units, name);
	if (!u && units->name) {
		if (v->row->type == SETTING_MS)
			return conf_value_why(v,
					      "must be one number with one unit: ms, s, m, h or d");
		return conf_value_why(v,
				      "must be one number with one unit: B, KiB, MiB, GiB or TiB");
	}
	if (!u)
		return grouped(v) ? false : no_number(v);
	if (!str_eq(rest, str_of(u->name))) {
		conf_value_why(v, name.n == rest.n ? "there is no such unit"
						   : "no space before the unit");
		return conf_value_fix(v, "write %llu%s", (unsigned long long)x, u->name);
	}
	if (__builtin_mul_overflow(x, u->by, &x) || out_of_bounds(v, x)) {
		if (out_len(&v->why) == 0)
			out_of_bounds(v, UINT64_MAX);
		return false;
	}
	conf_value_set(v->row, member, x);
	return true;
}

static bool parse_number(struct conf_value *v, void *member)
{
	const struct unit *units = units_of(v->row);
	struct str s = v->text;
	uint64_t x = 0;
	uint32_t n = 0;

	if (v->row->flags & SETTING_OFF && is_off(v)) {
		conf_value_set(v->row, member, v->row->off);
		return true;
	}
	if (v->row->flags & SETTING_AUTO && str_eq(s, STR("auto"))) {
		conf_value_set(v->row, member, 0);
		return true;
	}
	while (n < s.n && isdigit((uint8_t)s.p[n]))
		n++;
	if (n > 0 && n <= 18)
		must(str_u64((struct str){ .p = s.p, .n = n }, &x));
	if (n > 18)
		return !out_of_bounds(v, UINT64_MAX);
	if (n < s.n && fraction(v, s, units))
		return false;
	if (n == 0)
		return no_number(v);
	if (n < s.n)
		return with_unit(v, x, (struct str){ .p = s.p + n, .n = s.n - n }, member);
	if (units->name)
		return no_unit(v, x);
	if (out_of_bounds(v, x))
		return false;
	conf_value_set(v->row, member, x);
	return true;
}

static void print_number(FILE *f, const struct setting *row, const void *member)
{
	uint64_t x = conf_value_get(row, member);
	char room[32];

	if (row->flags & SETTING_OFF && x == row->off)
		fputs("off", f);
	else if (row->flags & SETTING_AUTO && x == 0)
		fputs("auto", f);
	else
		fputs(conf_value_number(row, x, room), f);
}

/* ---- words ---- */

static bool parse_bool(struct conf_value *v, void *member)
{
	bool yes = str_eq(v->text, STR("true"));

	if (!yes && !str_eq(v->text, STR("false"))) {
		conf_value_why(v, "must be true or false");
		return false;
	}
	*(bool *)member = yes;
	return true;
}

static void print_bool(FILE *f, const struct setting *row, const void *member)
{
	(void)row;
	fputs(*(const bool *)member ? "true" : "false", f);
}

static bool parse_switch(struct conf_value *v, void *member)
{
	bool on = str_eq(v->text, STR("on")) || (v->plain && str_eq(v->text, STR("true")));

	if (!on && !is_off(v))
		return conf_value_why(v, "must be on or off");
	*(uint8_t *)member = on ? 1 : 2;
	return true;
}

static void print_switch(FILE *f, const struct setting *row, const void *member)
{
	(void)row;
	fputs(*(const uint8_t *)member == 2 ? "off" : "on", f);
}

static bool parse_enum(struct conf_value *v, void *member)
{
	const char *const *words = v->row->words, *near;
	char all[160];
	struct out o;

	for (unsigned i = 0; words[i]; i++) {
		if (str_eq(v->text, str_of(words[i]))) {
			conf_value_set(v->row, member, i);
			return true;
		}
	}
	if (conf_listed(v->row->later, v->text))
		return conf_value_why(v, "not in this version");
	out_init(&o, all, sizeof(all) - 1);
	for (unsigned i = 0; words[i]; i++) {
		out_str(&o, i == 0 ? STR("") : words[i + 1] ? STR(", ") : STR(" or "));
		out_str(&o, str_of(words[i]));
	}
	*o.p = '\0';
	conf_value_why(v, "must be %s", all);
	near = conf_near(v->text, words);
	return near ? conf_value_fix(v, "did you mean %s?", near) : false;
}

static void print_enum(FILE *f, const struct setting *row, const void *member)
{
	fputs(row->words[conf_value_get(row, member)], f);
}

/* ---- texts ---- */

bool conf_value_keep(struct conf_value *v, struct str s, struct str *to)
{
	char *p = arena_cstr(v->mem, s);

	v->oom |= !p;
	*to = p ? (struct str){ .p = p, .n = s.n } : STR("");
	return true;
}

static bool has_control(struct str s)
{
	for (uint32_t i = 0; i < s.n; i++)
		if ((uint8_t)s.p[i] < ' ' || s.p[i] == 0x7f)
			return true;
	return false;
}

static bool parse_text(struct conf_value *v, void *member)
{
	if (v->text.n == 0)
		return conf_value_why(v, "must not be empty");
	if (has_control(v->text))
		return conf_value_why(v, "must not have line breaks or control characters");
	return conf_value_keep(v, v->text, member);
}

static bool parse_body(struct conf_value *v, void *member)
{
	return conf_value_keep(v, v->text, member);
}

#define NAME_MAX_LEN 64
static bool parse_name(struct conf_value *v, void *member)
{
	if (v->text.n == 0)
		return conf_value_why(v, "must not be empty");
	if (v->text.n > NAME_MAX_LEN)
		return conf_value_why(v, "a name has at most %d characters", NAME_MAX_LEN);
	for (uint32_t i = 0; i < v->text.n; i++) {
		uint8_t ch = (uint8_t)v->text.p[i];

		if (!isalnum(ch) && !strchr("_.-", ch))
			return conf_value_why(v, "a name is made of letters, digits and _ . -");
	}
	return conf_value_keep(v, v->text, member);
}

static bool parse_path(struct conf_value *v, void *member)
{
	if (v->text.n == 0 || v->text.p[0] != '/') {
		conf_value_why(v, "a path begins with /");
		return v->text.n ? conf_value_fix(v, "write /%.*s", (int)v->text.n, v->text.p)
				 : false;
	}
	if (memchr(v->text.p, '?', v->text.n) || memchr(v->text.p, '#', v->text.n))
		return conf_value_why(v, "a path has no query and no fragment");
	return conf_value_keep(v, v->text, member);
}

static bool parse_location(struct conf_value *v, void *member)
{
	struct str s = v->text;

	if (s.n == 0 ||
	    (s.p[0] != '/' && !str_istarts(s, STR("http://")) && !str_istarts(s, STR("https://"))))
		return conf_value_why(
			v, "must be a path that begins with /, or a URL with http:// or https://");
	for (uint32_t i = 0; i < s.n; i++)
		if ((uint8_t)s.p[i] <= ' ' || (uint8_t)s.p[i] >= 0x7f)
			return conf_value_why(v, "must not have spaces or characters beyond ASCII; "
						 "write them as %%XX");
	return conf_value_keep(v, s, member);
}

static bool parse_sink(struct conf_value *v, void *member)
{
	char path[4096];
	struct out o;

	if (v->row->flags & SETTING_OFF && is_off(v))
		return conf_value_keep(v, STR("off"), member);
	if (str_eq(v->text, STR("stdout")) || str_eq(v->text, STR("stderr")))
		return conf_value_keep(v, v->text, member);
	if (v->text.n == 0 || has_control(v->text) || !memchr(v->text.p, '/', v->text.n)) {
		conf_value_why(v, "must be stdout, stderr%s or a file's name with a / in it",
			       v->row->flags & SETTING_OFF ? ", off" : "");
		if (v->text.n == 0 || has_control(v->text) || means_off(v->text))
			return false;
		return conf_value_fix(v, "write ./%.*s for a file", (int)v->text.n, v->text.p);
	}
	if (v->text.p[v->text.n - 1] == '/')
		return conf_value_why(v, "this is a folder");
	out_init(&o, path, sizeof(path));
	if (v->text.p[0] != '/')
		out_str(&o, str_of(v->dir));
	out_str(&o, v->text);
	if (!out_ok(&o))
		return conf_value_why(v, "the name is too long");
	return conf_value_keep(v, (struct str){ .p = path, .n = out_len(&o) }, member);
}

static bool parse_mode(struct conf_value *v, void *member)
{
	uint32_t mode = 0;

	for (uint32_t i = 0; i < v->text.n; i++) {
		if (v->text.p[i] < '0' || v->text.p[i] > '7' || i > 3)
			return conf_value_why(v, "must be octal permissions such as \"0660\"");
		mode = mode * 8 + (uint32_t)(v->text.p[i] - '0');
	}
	if (mode == 0 || mode > 0777)
		return conf_value_why(v, "must be octal permissions such as \"0660\"");
	*(uint32_t *)member = mode;
	return true;
}

static void print_mode(FILE *f, const struct setting *row, const void *member)
{
	(void)row;
	fprintf(f, "\"%04o\"", *(const uint32_t *)member);
}

/* Whether YAML and culvert read it back as this very text without quotes. */
static bool is_plain(struct str s)
{
	static const char *const not_plain[] = { "true", "false", "on",   "off",
						 "yes",  "no",    "null", "auto" };

	if (s.n == 0 || (!isalpha((uint8_t)s.p[0]) && s.p[0] != '/' && s.p[0] != '.'))
		return false;
	for (uint32_t i = 0; i < s.n; i++)
		if (!isalnum((uint8_t)s.p[i]) && !strchr("_./-", s.p[i]))
			return false;
	for (size_t i = 0; i < ARRAY_LEN(not_plain); i++)
		if (str_ieq(s, str_of(not_plain[i])))
			return false;
	return true;
}

void conf_value_quote(FILE *f, struct str s)
{
	if (is_plain(s)) {
		fprintf(f, "%.*s", (int)s.n, s.p);
		return;
	}
	fputc('"', f);
	for (uint32_t i = 0; i < s.n; i++) {
		uint8_t ch = (uint8_t)s.p[i];

		if (ch == '"' || ch == '\\')
			fprintf(f, "\\%c", ch);
		else if (ch == '\n')
			fputs("\\n", f);
		else if (ch < ' ' || ch == 0x7f)
			fprintf(f, "\\x%02x", ch);
		else if (ch == '$' && i + 1 < s.n && s.p[i + 1] == '{')
			fputs("$$", f);
		else
			fputc(ch, f);
	}
	fputc('"', f);
}

static void print_text(FILE *f, const struct setting *row, const void *member)
{
	if (row->flags & SETTING_SECRET)
		fputs("\"(hidden)\"", f);
	else
		conf_value_quote(f, *(const struct str *)member);
}

/* What was a word of the file is written as one: stdout, off. */
static void print_sink(FILE *f, const struct setting *row, const void *member)
{
	struct str s = *(const struct str *)member;

	if (str_eq(s, STR("off")))
		fputs("off", f);
	else
		print_text(f, row, member);
}

/* ---- addresses ---- */

static void print_net(FILE *f, const struct setting *row, const void *member)
{
	char room[80];
	struct out o;

	(void)row;
	out_init(&o, room, sizeof(room));
	conf_net_print_net(&o, member);
	conf_value_quote(f, (struct str){ .p = room, .n = out_len(&o) });
}

static void print_addr(FILE *f, const struct setting *row, const void *member)
{
	char room[80];
	struct out o;

	(void)row;
	out_init(&o, room, sizeof(room));
	addr_out(&o, member);
	conf_value_quote(f, (struct str){ .p = room, .n = out_len(&o) });
}

static void print_bind(FILE *f, const struct setting *row, const void *member)
{
	(void)row;
	conf_value_quote(f, ((const struct bind_conf *)member)->text);
}

static void print_server(FILE *f, const struct setting *row, const void *member)
{
	(void)row;
	conf_value_quote(f, ((const struct server_conf *)member)->url);
}

static const struct {
	const char *name;
	bool (*parse)(struct conf_value *v, void *member);
	void (*print)(FILE *f, const struct setting *row, const void *member);
} types[SETTING_TYPES] = {
	[SETTING_GROUP] = { "map", NULL, NULL },
	[SETTING_LIST] = { "list", NULL, NULL },
	[SETTING_NAMES] = { "map of names", NULL, NULL },
	[SETTING_BOOL] = { "true or false", parse_bool, print_bool },
	[SETTING_SWITCH] = { "on or off", parse_switch, print_switch },
	[SETTING_ENUM] = { "word", parse_enum, print_enum },
	[SETTING_COUNT] = { "number", parse_number, print_number },
	[SETTING_SIZE] = { "size", parse_number, print_number },
	[SETTING_MS] = { "duration", parse_number, print_number },
	[SETTING_MODE] = { "octal number", parse_mode, print_mode },
	[SETTING_TEXT] = { "text", parse_text, print_text },
	[SETTING_BODY] = { "text", parse_body, print_text },
	[SETTING_NAME] = { "name", parse_name, print_text },
	[SETTING_HOST] = { "host", conf_net_parse_host, print_text },
	[SETTING_HOSTS] = { "host or *.domain", conf_net_parse_hosts, print_text },
	[SETTING_PATH] = { "path", parse_path, print_text },
	[SETTING_LOCATION] = { "path or URL", parse_location, print_text },
	[SETTING_SINK] = { "word or file", parse_sink, print_sink },
	[SETTING_ADDR] = { "address", conf_net_parse_addr, print_addr },
	[SETTING_NET] = { "network", conf_net_parse_net, print_net },
	[SETTING_BIND] = { "address or socket", conf_net_parse_bind, print_bind },
	[SETTING_SERVER] = { "URL", conf_net_parse_server, print_server },
};

const char *conf_value_type(const struct setting *row)
{
	return types[row->type].name;
}

bool conf_value_parse(struct conf_value *v, void *member)
{
	must(types[v->row->type].parse != NULL);
	return types[v->row->type].parse(v, member);
}

void conf_value_print(FILE *f, const struct setting *row, const void *member)
{
	must(types[row->type].print != NULL);
	types[row->type].print(f, row, member);
}
