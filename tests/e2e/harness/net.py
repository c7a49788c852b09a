"""Ports, and waiting for conditions."""

import ctypes
import random
import socket
import struct
import time

# Below the kernel's ephemeral range (32768-60999): no outgoing connection takes one of these.
PORT_MIN, PORT_MAX = 11000, 31999


def wait_until(condition, timeout=10.0, what="condition"):
    """Polls condition() until it returns something true, and returns that."""
    end = time.monotonic() + timeout
    pause = 0.0005
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_port(host="127.0.0.1"):
    """A port that nobody has at this moment, for both TCP and UDP."""
    for _ in range(200):
        port = random.randint(PORT_MIN, PORT_MAX)
        with socket.socket(family_of(host), socket.SOCK_STREAM) as tcp, \
             socket.socket(family_of(host), socket.SOCK_DGRAM) as udp:
            try:
                tcp.bind((host, port))
                udp.bind((host, port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port found")


def listen_tcp(host="127.0.0.1", port=0, backlog=512):
    """A listening socket; without a port, on a free one."""
    for _ in range(200):
        sock = socket.socket(family_of(host), socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port or random.randint(PORT_MIN, PORT_MAX)))
            sock.listen(backlog)
            return sock
        except OSError:
            sock.close()
            if port:
                raise
    raise RuntimeError("no free port found")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
            return True
    except OSError:
        return False


class BlackHole:
    """A port where a connection attempt hangs: its accept queue is full, SYNs are dropped."""

    def __init__(self, host="127.0.0.1"):
        self.sock = listen_tcp(host, backlog=0)
        self.port = self.sock.getsockname()[1]
        self.host = host
        self.fillers = []
        # Fill until an attempt hangs.
        for _ in range(8):
            filler = socket.socket(family_of(host), socket.SOCK_STREAM)
            filler.settimeout(0.3)
            self.fillers.append(filler)
            try:
                filler.connect((host, self.port))
            except (TimeoutError, socket.timeout):
                return
        raise RuntimeError("the accept queue does not fill")

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def open(self):
        """Takes what queues, so that a hanging attempt gets through."""
        taken = []
        self.sock.settimeout(5)
        for _ in range(3):
            taken.append(self.sock.accept()[0])
        return taken

    def close(self):
        for sock in self.fillers + [self.sock]:
            sock.close()


def tcp_rows(port):
    """Rows of /proc/net/tcp whose local port is this: (state, rx_queue, remote port)."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            part = line.split()
            if int(part[1].rpartition(":")[2], 16) != port:
                continue
            yield int(part[3], 16), int(part[4].split(":")[1], 16), \
                int(part[2].rpartition(":")[2], 16)


def wait_consumed(server_port, client_port):
    """Waits until the program has taken all bytes of this connection out of its socket."""
    def consumed():
        for _, queued, remote in tcp_rows(server_port):
            if remote == client_port:
                return queued == 0
        return True
    wait_until(consumed, what="sent bytes are read by the program")


def reset_now(sock):
    """RST at once, also while another thread hangs in recv() and would keep a closed socket alive:
    connect() to no family disconnects."""
    ctypes.CDLL(None).connect(sock.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16)


def linger_zero(sock):
    """The next close() sends RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
