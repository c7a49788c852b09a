"""The table of workloads."""

import dataclasses

from .contestants import (CULVERT_EPOLL, CULVERT_URING, FORWARD_EPOLL, FORWARD_URING, HAPROXY, NGINX,
                          RELAY_EPOLL, RELAY_URING, RELAY_URING_BULK, SQUID, TINYPROXY)

PROXIES = (CULVERT_URING, CULVERT_EPOLL, NGINX, HAPROXY)
ALL = PROXIES + (RELAY_URING, RELAY_EPOLL)
BULK = PROXIES + (RELAY_URING_BULK,)


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    title: str
    driver: tuple
    contestants: tuple = ALL
    logs: bool = True
    bytes: int = 0                  # of a body, when the cost is to be told per GB


def _keep_alive(name, connections, **more):
    plural = "s" if connections > 1 else ""
    return Workload(name, f"1,040-byte GET, keep-alive, {connections:,} connection{plural}",
                    ("--connections", str(connections)), **more)


WORKLOADS = {w.name: w for w in (
    _keep_alive("main", 64),
    _keep_alive("m1", 1),
    _keep_alive("m4", 4),
    _keep_alive("m16", 16),
    _keep_alive("m256", 256),
    _keep_alive("m1024", 1024),
    _keep_alive("nolog", 64, logs=False),
    Workload("forward", "1,040-byte GET in absolute form through forward proxies, keep-alive, 64 connections",
             (), contestants=(FORWARD_URING, FORWARD_EPOLL, CULVERT_URING, CULVERT_EPOLL, SQUID, TINYPROXY)),
    Workload("newconn", "1,040-byte GET, a new connection for each, 64 at a time", ("--new-connection",)),
    Workload("body64k", "64 KiB answers, keep-alive, 64 connections", ("--body", str(1 << 16)),
             contestants=BULK, bytes=1 << 16),
    Workload("body1m", "1 MiB answers, keep-alive, 16 connections",
             ("--body", str(1 << 20), "--connections", "16"), contestants=BULK, bytes=1 << 20),
    Workload("post16k", "POST of 16 KiB, 1,040-byte answer, keep-alive, 64 connections",
             ("--post", str(1 << 14)), contestants=BULK),
)}
