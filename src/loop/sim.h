/* sim.h -- a world instead of a kernel: the loop's third back end.  Tests only.
 *
 * One thread, no descriptor, no real time.  The world has a clock, a source of randomness, the
 * sockets that the loop opened, and what is on its way between them and the peers that a test
 * plays.
 *
 *   sim      the world; everything in it follows from its seed
 *   peer     the far end of one connection, a client or a server outside culvert
 *   address  where culvert's connects go: it accepts, refuses, is unreachable, or says nothing
 *
 * Time stands still while something can be done at this moment; then it jumps, but not further than
 * the loop wants to wait: to the next event of the world, or to the loop's next alarm.  An hour's
 * timeout takes microseconds, and rings to the millisecond.
 *
 * Calm, bytes need SIM_LATENCY_US, and everything completes whole and in order.  Rough, the world
 * does what kernels and networks may do: bytes come in pieces and at odd moments, sends are short
 * and take their bytes late, multishot ops end with a good result, completions come in any order
 * and some turns late, a cancel loses its race.
 *
 * As with Linux: bytes that arrived before a reset can still be read; the error of a reset is told
 * once, to whoever asks first, then sends say EPIPE and receives end of stream; closing with unread
 * bytes resets; numbers of descriptors are reused, lowest first. */
#ifndef LOOP_SIM_H
#define LOOP_SIM_H

#include "loop/loop.h"

#define SIM_LATENCY_US 100u
#define SIM_WINDOW     65536u /* bytes on their way and unread, each direction: see sim_window() */

struct sim;

/* --- the world --- */
struct sim *sim_new(uint64_t seed, bool rough); /* never NULL: tests end without memory */
void sim_free(struct sim **);                   /* after the loop; peers go with it */
uint64_t sim_now_us(const struct sim *);
/* The wall clock is set by so much, forward or back. */
void sim_set_wall(struct sim *, int64_t by_us);
uint32_t sim_random(struct sim *, uint32_t n); /* 0 .. n-1, n > 0 */
/* Calls fn(arg) once, that much later. */
void sim_at(struct sim *, uint64_t in_us, void (*fn)(void *arg), void *arg);
/* For connections made from now on. */
void sim_window(struct sim *, uint32_t bytes);
unsigned sim_sockets(const struct sim *); /* open ones on culvert's side, listeners included */

/* --- peers --- */
struct sim_peer {
	uint8_t *got; /* what came and was not eaten yet */
	size_t n_got;
	uint64_t n_all; /* bytes that came, in all */
	bool eof;       /* culvert sent FIN */
	bool reset;     /* culvert sent RST */
	/* Something of the above has changed, or all that was said has left; may be NULL. */
	void (*on)(struct sim_peer *);
	void *arg;
	struct sim_wire *wire; /* the world's own from here on */
	size_t room_got;
	uint8_t *out;
	size_t out_at, n_out, room_out;
	bool hold, fin, gone;
};

/* A listening descriptor of culvert's at this address. */
int sim_listen(struct sim *, const struct sockaddr *, socklen_t);
/* The keeper closes it; who waits there is reset, later calls are. */
void sim_unlisten(struct sim *, int listen_fd);
/* A client connects there (both addresses have n bytes). */
struct sim_peer *sim_call(struct sim *, const struct sockaddr *to, const struct sockaddr *from,
			  socklen_t);

enum sim_answer { SIM_REFUSES = 0, SIM_ACCEPTS, SIM_SILENT, SIM_UNREACHABLE };
/* What becomes of connects to this address from now on (else: refused).  on_peer: it was
 * accepted. */
void sim_answer(struct sim *, const struct sockaddr *, socklen_t, enum sim_answer,
		void (*on_peer)(struct sim_peer *, void *arg), void *arg);

/* copies; goes out as the window lets it */
void sim_say(struct sim_peer *, const void *, size_t n);
size_t sim_unsaid(const struct sim_peer *);  /* bytes that have not left yet */
void sim_fin(struct sim_peer *);             /* after what was said */
void sim_reset(struct sim_peer *);           /* now; what has not arrived is lost */
void sim_hold(struct sim_peer *, bool hold); /* takes nothing more, or goes on */
void sim_eat(struct sim_peer *, size_t n);   /* off the head of got */

#endif
