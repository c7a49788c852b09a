/* deadlines.c -- two moments on one lazy alarm: waiting for bytes, and for the peer to take
 * bytes. */
#include "wire/priv.h"

void deadlines_push(struct loop *l, struct deadlines *d, uint64_t *which, uint32_t ms)
{
	if (ms == MS_OFF) {
		*which = 0;
		return;
	}
	*which = loop_now_ms(l) + ms;
	if (!alarm_on(&d->alarm) || d->alarm.due_ms > *which)
		loop_alarm(l, &d->alarm, ms);
}

static uint64_t *first_passed(struct deadlines *d, uint64_t now)
{
	if (d->recv_ms && d->recv_ms <= now)
		return &d->recv_ms;
	if (d->send_ms && d->send_ms <= now)
		return &d->send_ms;
	return NULL;
}

uint64_t *deadlines_passed(struct loop *l, struct deadlines *d)
{
	uint64_t now = loop_now_ms(l), next = 0;
	uint64_t *passed = first_passed(d, now);

	if (passed)
		*passed = 0;
	if (d->recv_ms)
		next = d->recv_ms;
	if (d->send_ms && (!next || d->send_ms < next))
		next = d->send_ms;
	if (next)
		loop_alarm(l, &d->alarm, next > now ? (uint32_t)(next - now) : 0);
	return passed;
}
