/* scene.c -- see scene.h. */
#include "scene.h"

#include <stdio.h>

static const char *text_or(const char *text, const char *other)
{
	return text ? text : other;
}

static void on_peer(struct sim_peer *p, void *arg)
{
	struct desk *d = arg;
	struct scene *sc = d->scene;

	must(sc->n_served < SERVED_MAX);
	sc->served[sc->n_served++] = (struct served){ .peer = p, .server = d->server };
}

void scene_server(struct scene *sc, int server, enum sim_answer answer)
{
	world_serve_as(&sc->w, server == 1 ? SERVER_1 : SERVER_2, answer, on_peer,
		       &sc->desk[server - 1]);
}

void scene_open(struct scene *sc, const struct knobs *k)
{
	static const struct knobs none;
	char conf[8192];
	int n;

	k = k ? k : &none;
	n = snprintf(conf, sizeof(conf),
		     "workers: 1\n"
		     "listeners:\n"
		     "  - { name: web, bind: \"10.0.0.1:80\", serve: web%s }\n"
		     "  - { name: fwd, bind: \"10.0.0.1:3128\", serve: forward,"
		     " allow_from: [10.9.0.0/16]%s }\n"
		     "forward: { allow_ports: [80, 443], deny_to_except: [10.1.0.0/16] }\n"
		     "sites: [{ name: s, hosts: [\"*\"],"
		     " routes: [{ match: { prefix: / }, upstream: app%s }] }]\n"
		     "upstreams:\n"
		     "  app: { servers: [%s]%s }\n"
		     "access_log: { to: ./access.log }\n"
		     "%s\n",
		     text_or(k->web, ""), text_or(k->fwd, ""), text_or(k->route, ""),
		     text_or(k->servers, "\"http://10.1.0.1:80\", \"http://10.1.0.2:80\""),
		     text_or(k->upstream, ""), text_or(k->more, ""));
	must(n > 0 && (size_t)n < sizeof(conf));
	memset(sc, 0, sizeof(*sc));
	world_open_as(&sc->w, conf, world_seed(), false);
	for (int i = 0; i < 2; i++) {
		sc->desk[i] = (struct desk){ .scene = sc, .server = i + 1 };
		scene_server(sc, i + 1, SIM_ACCEPTS);
	}
}

static void leave(struct scene *sc)
{
	if (!sc->c || sc->c->eof || sc->c->reset || sc->c->gone)
		return;
	sim_fin(sc->c);
	run_until(&sc->w, sc->c->eof || sc->c->reset);
}

void scene_close(struct scene *sc)
{
	leave(sc);
	world_close(&sc->w);
}

void scene_call(struct scene *sc, const char *text)
{
	if (!sc->c)
		sc->c = world_call(&sc->w, sc->door);
	sim_say(sc->c, text, strlen(text));
}

bool scene_asked(struct scene *sc)
{
	for (unsigned i = sc->n_served; i-- > 0;) {
		struct served *s = &sc->served[i];

		if (s->peer->reset || s->peer->gone || world_head(s->peer) != 1)
			continue;
		sc->s = s->peer;
		sc->at = s->server;
		return true;
	}
	return false;
}

void scene_ask(struct scene *sc, const char *text)
{
	scene_call(sc, text);
	run_until(&sc->w, scene_asked(sc));
}

void scene_says(struct scene *sc, const char *text)
{
	sim_say(sc->s, text, strlen(text));
	run_until(&sc->w, world_head(sc->c));
}

void scene_page(struct scene *sc, unsigned status, bool closes)
{
	const char *head_end = strstr((char *)sc->c->got, "\r\n\r\n");
	const char *length = world_field(sc->c, "Content-Length");

	assert_int_equal(world_head(sc->c), status);
	assert_non_null(length);
	assert_int_equal((char *)sc->c->got + sc->c->n_got - (head_end + 4),
			 strtoul(length, NULL, 10));
	assert_non_null(world_field(sc->c, "Proxy-Status"));
	assert_string_equal(text_or(world_field(sc->c, "Cache-Control"), ""), "no-store");
	assert_string_equal(text_or(world_field(sc->c, "Connection"), ""), closes ? "close" : "");
}

void scene_log(struct scene *sc, const char *status, const char *reason, bool complete)
{
	const char *line = world_line(&sc->w);

	if (strcmp(world_logged(line, "status"), status) != 0 ||
	    strcmp(world_logged(line, "reason"), reason) != 0 ||
	    strcmp(world_logged(line, "complete"), complete ? "true" : "false") != 0) {
		print_error("%s\n", line);
		world_fail(&sc->w, __FILE__, __LINE__, reason);
	}
}

void scene_serves(struct scene *sc)
{
	struct sim_peer *before = sc->c;

	for (int i = 1; i <= 2; i++)
		scene_server(sc, i, SIM_ACCEPTS);
	for (unsigned i = 0; i < sc->n_served; i++)
		world_eat_all(sc->served[i].peer);
	sc->c = world_call(&sc->w, WEB);
	scene_round(sc);
	leave(sc);
	sc->c = before;
}

void scene_round(struct scene *sc)
{
	scene_ask(sc, GET);
	world_eat_all(sc->s);
	world_eat_all(sc->c);
	scene_says(sc, OKAY);
	assert_int_equal(world_head(sc->c), 200);
	world_eat_all(sc->c);
	scene_log(sc, "200", "", true);
}

void scene_rang(struct scene *sc, uint64_t ms, uint64_t slack, const char *file, int line,
		const char *what)
{
	uint64_t now = world_ms(&sc->w);

	if (now >= ms && now <= ms + slack)
		return;
	print_error("rang after %llu ms, not %llu\n", (unsigned long long)now,
		    (unsigned long long)ms);
	world_fail(&sc->w, file, line, what);
}
