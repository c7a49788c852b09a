/*
 * net.h -- sockets of the bench programs: loopback only, Nagle off, and any failure ends the
 * program (a bench that limps on measures the wrong thing).
 */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#include <stdint.h>

struct sockaddr_in;

/* 127.0.0.1:port, as connect and bind want it. */
struct sockaddr_in net_loopback(uint16_t port);

/* A listening socket on 127.0.0.1:port, with SO_REUSEADDR and a long backlog. */
int net_listen(uint16_t port);

/* A new blocking socket, Nagle off, not yet connected. */
int net_socket(void);

/* A blocking socket connected to 127.0.0.1:port. */
int net_dial(uint16_t port);

void net_nodelay(int fd);
/* The cheapest congestion control: the driver is not what is measured. */
void net_reno(int fd);

/* A decimal port from the command line; what it is called goes into the complaint. */
uint16_t net_port(const char *text, const char *what);

/* Seconds on the monotonic clock. */
double net_now(void);

#endif
