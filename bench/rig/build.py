"""Builds the bench's own C programs, with the plain compiler: they need no configuration."""

import glob
import os
import shutil
import subprocess
import sys

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(BENCH)
OUT = os.path.join(ROOT, "build", "bench")

FLAGS = ["-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
PROGRAMS = {
    "load": ["load/*.c", "common/*.c"],
    "bulk": ["tunnel/bulk.c", "tunnel/tunnel.c", "common/net.c", "common/cpu.c"],
    "idle": ["tunnel/idle.c", "tunnel/tunnel.c", "common/net.c"],
    "relay_uring": ["relay/relay_uring.c", "common/net.c", "common/ring.c"],
    "relay_epoll": ["relay/relay_epoll.c", "common/net.c"],
    "relay_tunnel": ["relay/relay_tunnel.c", "common/net.c"],
}


def program(name):
    return os.path.join(OUT, name)


def _newest(patterns):
    return max(os.path.getmtime(path) for pattern in patterns
               for path in glob.glob(os.path.join(BENCH, pattern)))


def _build(name, patterns):
    sources = [path for pattern in patterns for path in sorted(glob.glob(os.path.join(BENCH, pattern)))]
    target = program(name)
    if os.path.exists(target) and os.path.getmtime(target) > _newest(["*/*.c", "*/*.h"]):
        return
    subprocess.run(["gcc", *FLAGS, "-o", target, *sources, "-luring"], check=True)


def build_all():
    if not shutil.which("gcc") or not os.path.exists("/usr/include/liburing.h"):
        sys.exit("bench: missing: gcc and liburing-dev (./dev build installs them)")
    os.makedirs(OUT, exist_ok=True)
    for name, patterns in PROGRAMS.items():
        _build(name, patterns)
