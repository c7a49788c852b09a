"""The table of workloads."""

import dataclasses

from .contestants import (CONNECT_EPOLL, CONNECT_URING, CULVERT_EPOLL, CULVERT_EPOLL_COMBINED,
                          CULVERT_URING, CULVERT_URING_COMBINED, FORWARD_EPOLL, FORWARD_URING,
                          HAPROXY, HAPROXY_SPLICE, HAPROXY_TCP, NGINX, RELAY_COPY, RELAY_EPOLL,
                          RELAY_SPLICE, RELAY_URING, RELAY_URING_BULK, SQUID, SQUID_CONNECT,
                          TINYPROXY, culvert_with_routes)

PROXIES = (CULVERT_URING, CULVERT_EPOLL, NGINX, HAPROXY)
ALL = PROXIES + (RELAY_URING, RELAY_EPOLL)
MAIN = ALL + (CULVERT_URING_COMBINED, CULVERT_EPOLL_COMBINED)
BULK = PROXIES + (RELAY_URING_BULK,)
FORWARD = (FORWARD_URING, FORWARD_EPOLL, CULVERT_URING, CULVERT_EPOLL, SQUID, TINYPROXY)
TUNNEL = (CONNECT_URING, CONNECT_EPOLL, HAPROXY_TCP, HAPROXY_SPLICE, SQUID_CONNECT, RELAY_COPY,
          RELAY_SPLICE)


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    title: str
    driver: tuple
    contestants: tuple = ALL
    logs: bool = True
    bytes: int = 0                  # of a body, when the cost is to be told per GB
    program: str = "load"           # the driver
    unit: str = "request"           # what rates and costs count
    rate_share: float = 0           # fixed rate: this share of what HAProxy reaches at full speed


def _keep_alive(name, connections, **more):
    plural = "s" if connections > 1 else ""
    return Workload(name, f"1,040-byte GET, keep-alive, {connections:,} connection{plural}",
                    ("--connections", str(connections)), **more)


WORKLOADS = {w.name: w for w in (
    _keep_alive("main", 64, contestants=MAIN),
    _keep_alive("m1", 1),
    _keep_alive("m4", 4),
    _keep_alive("m16", 16),
    _keep_alive("m256", 256),
    _keep_alive("m1024", 1024),
    _keep_alive("nolog", 64, logs=False),
    Workload("rate", "1,040-byte GET at a fixed rate of 60 % of HAProxy's maximum, 64 connections",
             ("--connections", "64"), contestants=ALL, rate_share=0.6),
    Workload("forward", "1,040-byte GET in absolute form through forward proxies, 64 connections",
             ("--connections", "64"), contestants=FORWARD),
    Workload("routes", "1,040-byte GET with 1, 100 and 10,000 routes, 64 connections",
             ("--connections", "64"),
             contestants=tuple(culvert_with_routes(n) for n in (1, 100, 10000))),
    Workload("newconn", "1,040-byte GET, a new connection for each, 64 at a time", ("--new-connection",)),
    Workload("body64k", "64 KiB answers, keep-alive, 64 connections", ("--body", str(1 << 16)),
             contestants=BULK, bytes=1 << 16),
    Workload("body1m", "1 MiB answers, keep-alive, 16 connections",
             ("--body", str(1 << 20), "--connections", "16"), contestants=BULK, bytes=1 << 20),
    Workload("post16k", "POST of 16 KiB, 1,040-byte answer, keep-alive, 64 connections",
             ("--post", str(1 << 14)), contestants=BULK),
    Workload("connect", "bulk through one tunnel, both ways at once", ("--up", "--down"),
             contestants=TUNNEL, program="bulk", unit="MB"),
    Workload("connect-up", "bulk through one tunnel, to the target", ("--up",),
             contestants=TUNNEL, program="bulk", unit="MB"),
    Workload("connect-down", "bulk through one tunnel, to the client", ("--down",),
             contestants=TUNNEL, program="bulk", unit="MB"),
    Workload("idle", "memory of 9,000 idle tunnels", ("--tunnels", "9000"),
             contestants=(CONNECT_URING, CONNECT_EPOLL, HAPROXY_TCP), program="idle"),
)}
