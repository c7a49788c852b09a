/*
 * tunnel.h -- opens tunnels through a proxy: what the two drivers of tunnels share.
 *
 *   near --- proxy --- far      near is this program's connection to the proxy, far what it accepts
 *                               from the proxy as the target
 */
#ifndef BENCH_TUNNEL_H
#define BENCH_TUNNEL_H

#include <stdbool.h>
#include <stdint.h>

struct tunnel_path {
	uint16_t proxy_port, target_port;
	int listener; /* of the target */
	bool plain;   /* the proxy forwards everything (mode tcp): no CONNECT is sent */
};

struct tunnel {
	int near, far;
};

/* Opens one and waits until it stands; ends the program when it is refused. */
struct tunnel tunnel_open(const struct tunnel_path *path);

#endif
