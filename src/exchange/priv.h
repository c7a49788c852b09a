/* priv.h -- shared inside exchange/: what the pipes need of the driver and the other way round. */
#ifndef EXCHANGE_PRIV_H
#define EXCHANGE_PRIV_H

#include "exchange/exchange.h"

enum due { DUE_DATA = 1, DUE_ROOM = 2, DUE_CUT = 4 };

/* Marks the end and wakes the driver; NULL is accepted: nobody stands there. */
void exchange_due(struct end *, enum due);

void pipe_open(struct pipe *, struct exchange *, uint32_t high);
void pipe_close(struct pipe *);
void pipe_cut(struct pipe *);
void pipe_recall(struct pipe *); /* empty again; nothing of it may have been seen but interims */

#endif
