/* steps.c -- the path of a request, step by step.
 *
 *   open    waits for the whole head
 *   screen  who may ask, and the request's one normal form (policy/: access, hygiene)
 *   route   which site and route, or which target (route/)
 *   begin   puts the answerer in place (origin/), or the page of a refusal
 *   flow    bytes move; another try, a tunnel, or waiting until both ends have left
 *   log     one line, counters
 *
 * A refusal anywhere goes to `begin`, a further try to `route`, a cut to `flow`. */
#include "serve/priv.h"

static enum verdict refuse(struct exchange *x, enum why_id id, const char *detail)
{
	exchange_refuse(x, why(id), detail);
	return STEP_PARK;
}

static enum verdict open_request(struct exchange *x)
{
	return x->req.state == PIPE_EMPTY ? STEP_PARK : STEP_NEXT;
}

/* ---------------------------------------------------------------- screen */
static bool via_is_on(const struct exchange *x)
{
	if (x->site && x->site->via)
		return x->site->via == 1;
	return x->listener->via != 2;
}

static struct hygiene_params hygiene_of(const struct exchange *x)
{
	return (struct hygiene_params){ .identity = x->plan->identity,
					.via = via_is_on(x),
					.pseudonym = x->plan->pseudonym,
					.merge_slashes = !x->site || !x->site->keep_slashes,
					.reject_encoded_slash = x->site &&
								x->site->reject_encoded_slash };
}

static enum verdict screen_web(struct exchange *x, struct head *h)
{
	const struct host_table *hosts = x->listener->hosts;
	struct hygiene_params p;
	const struct why *w;

	if (h->method == METHOD_CONNECT)
		return refuse(x, WHY_METHOD_DENIED, NULL);
	if (h->form == TARGET_ABSOLUTE && !str_eq(h->scheme, STR("http")) &&
	    !str_eq(h->scheme, STR("https")))
		return refuse(x, WHY_SCHEME, NULL);
	x->site = host_match(hosts, h->host);
	p = hygiene_of(x);
	w = hygiene_web(x, h, &p);
	return w->id ? refuse(x, (enum why_id)w->id, x->facts.detail) : STEP_NEXT;
}

static enum verdict screen_forward(struct exchange *x, struct head *h)
{
	struct hygiene_params p = hygiene_of(x);
	const struct why *w;

	if (h->form != TARGET_ABSOLUTE && h->form != TARGET_AUTHORITY)
		return refuse(x, WHY_BAD_REQUEST, "target");
	if (h->form == TARGET_ABSOLUTE && !str_eq(h->scheme, STR("http")))
		return refuse(x, WHY_SCHEME, NULL);
	w = hygiene_forward(x, h, &p);
	return w->id ? refuse(x, (enum why_id)w->id, x->facts.detail) : STEP_NEXT;
}

static enum verdict screen(struct exchange *x)
{
	const struct listener_conf *l = x->listener;

	if (!access_from(l->allow_from, l->n_allow_from, &x->peer))
		return refuse(x, WHY_CLIENT_DENIED, NULL);
	return x->forward ? screen_forward(x, x->req.head) : screen_web(x, x->req.head);
}

/* ---------------------------------------------------------------- route */
static void take_route_settings(struct exchange *x)
{
	const struct listener_conf *l = x->listener;
	uint32_t i = x->route->index;

	if (l->route_timeouts && l->route_timeouts[i]) {
		x->timeouts = l->route_timeouts[i];
		exchange_retimed(x);
	}
	if (l->route_limits && l->route_limits[i])
		x->limits = l->route_limits[i];
}

/* A route may allow less than its listener, or more: nobody judges before it is known, and some of
 * the body may be there by then. */
static enum verdict judge_body(struct exchange *x)
{
	const struct head *h = x->req.head;
	uint64_t n = h->body == BODY_LENGTH ? h->length : x->req.total;

	x->body_limited = true;
	return n <= x->limits->request_body ? STEP_NEXT : refuse(x, WHY_BODY_TOO_LARGE, NULL);
}

static enum verdict route_web(struct exchange *x)
{
	if (!x->site)
		return refuse(x, WHY_NO_SITE, NULL);
	x->route = route_match(x->site->table, x->req.head->path);
	if (!x->route)
		return refuse(x, WHY_NO_ROUTE, NULL);
	take_route_settings(x);
	return judge_body(x);
}

static enum verdict route_forward(struct exchange *x)
{
	const struct head *h = x->req.head;
	uint16_t port = h->port ? h->port : 80;
	struct addr literal;
	const struct why *w = access_target(&x->listener->forward, h->host,
					    addr_parse_ip(h->host, port, &literal), port);

	return w->id ? refuse(x, (enum why_id)w->id, NULL) : judge_body(x);
}

static enum verdict route(struct exchange *x)
{
	return x->forward ? route_forward(x) : route_web(x);
}

/* ---------------------------------------------------------------- begin */
static bool may_dial(void *arg, const struct addr *address)
{
	return access_dial(arg, address);
}

static void begin_forward(struct exchange *x)
{
	struct dial_policy policy = { .judge = may_dial,
				      .arg = (void *)(uintptr_t)&x->listener->forward };

	if (x->req.head->method == METHOD_CONNECT)
		tunnel_begin(x, &policy);
	else
		target_begin(x, &policy);
}

static void begin_web(struct exchange *x)
{
	switch (x->route->answer) {
	case ANSWER_RESPOND: synth_respond(x, &x->route->respond); break;
	case ANSWER_REDIRECT: synth_redirect(x, &x->route->redirect); break;
	default: upstream_begin(x, x->route->upstream); break;
	}
}

static enum verdict begin(struct exchange *x)
{
	if (x->refused)
		synth_error(x);
	else if (x->forward)
		begin_forward(x);
	else
		begin_web(x);
	return STEP_NEXT;
}

/* ---------------------------------------------------------------- flow */
/* A configured server whose name has no address is a server that is not there. */
static const struct why *final_cause(const struct exchange *x)
{
	bool no_name = x->try_why->id == WHY_DNS || x->try_why->id == WHY_DNS_TIMEOUT;

	if (!x->try_why->id)
		return why(WHY_INTERNAL);
	return no_name && !x->forward ? why(WHY_NO_SERVER) : x->try_why;
}

static COLD enum verdict begin_tunnel(struct exchange *x)
{
	if (!handoff_tunnel(service_of(x->loop), x))
		exchange_cut(x, why(WHY_MEMORY));
	return STEP_PARK;
}

static COLD enum verdict no_answer(struct exchange *x)
{
	if (origin_may_retry(x))
		return STEP_AGAIN;
	exchange_refuse(x, final_cause(x), NULL);
	return STEP_PARK;
}

static enum verdict flow(struct exchange *x)
{
	if (x->cut || !x->down)
		return x->up || x->down ? STEP_PARK : STEP_NEXT;
	if (x->tunnel_ready && x->up)
		return begin_tunnel(x);
	if (!x->up && x->rsp.state == PIPE_EMPTY && !x->refused)
		return no_answer(x);
	return STEP_PARK;
}

/* An answer's head on its way down. */
static void answer_head(struct exchange *x)
{
	struct hygiene_params p = hygiene_of(x);

	if (!x->facts.own_answer && !hygiene_response(x, x->rsp.head, &p))
		exchange_cut(x, why(WHY_MEMORY));
}

/* ---------------------------------------------------------------- log */
static enum verdict log_request(struct exchange *x)
{
	if (!x->logged)
		account_exchange(service_of(x->loop), x);
	return STEP_DONE;
}

/* An exchange may outlive its connection by a task. */
static void request_freed(struct exchange *x)
{
	service_ended_one(service_of(x->loop));
}

enum { STEP_OPEN = 0, STEP_SCREEN, STEP_ROUTE, STEP_BEGIN, STEP_FLOW, STEP_LOG };
static const struct step path[] = {
	[STEP_OPEN] = { "open", open_request }, [STEP_SCREEN] = { "screen", screen },
	[STEP_ROUTE] = { "route", route },      [STEP_BEGIN] = { "begin", begin },
	[STEP_FLOW] = { "flow", flow },         [STEP_LOG] = { "log", log_request },
};

const struct steps serve_steps = { .step = path,
				   .n = sizeof(path) / sizeof(path[0]),
				   .again = STEP_ROUTE,
				   .answer = STEP_BEGIN,
				   .flow = STEP_FLOW,
				   .answer_head = answer_head,
				   .freed = request_freed };
