"""The machine: its two cores, what else runs on it, ports, memory, its description."""

import os
import random
import socket
import time

PROXY_CORE = 0
DRIVER_CORE = 1

IDLE_WINDOW_S = 0.25
IDLE_SHARE = 0.06               # of one core: what counts as nobody else
IDLE_PATIENCE_S = 20
HZ = os.sysconf("SC_CLK_TCK")

_ports = set()


def busy_s():
    """Seconds that all cores together have been busy since boot, or were taken away by the host."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / HZ


def wait_idle():
    """Waits until nothing else runs.  False: it did not happen."""
    deadline = time.monotonic() + IDLE_PATIENCE_S
    while time.monotonic() < deadline:
        before = busy_s()
        time.sleep(IDLE_WINDOW_S)
        if busy_s() - before <= IDLE_SHARE * IDLE_WINDOW_S + 1 / HZ:
            return True
    return False


def free_port():
    """A port that nobody has, below the range from which the system gives them away."""
    while True:
        port = random.randrange(10000, 30000)
        if port in _ports:
            continue
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _ports.add(port)
        return port


def describe():
    with open("/proc/cpuinfo") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    uname = os.uname()
    model = models[0] if models else uname.machine
    return f"{uname.sysname} {uname.release}, {os.cpu_count()} × {model}"
