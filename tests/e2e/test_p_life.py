"""P04, P07, P08, P09: ends at any moment, long counters, no stale memory, signals and time.
(P03 and P06, crash and privileges, are in test_life.py.)"""

import ctypes
import itertools
import os
import random
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import net, websocket
from harness.client import Client, Eof, chunked, request
from harness.culvert import environment, program, write_conf
from harness.fixtures import shared_rig
from harness.life import life_conf
from harness.origin import answer_ok

GIB = 1 << 30


# -- P04: an end in each phase, on each side, in each way

def ways(conn, how):
    {"fin": conn.close, "rst": conn.rst, "half": conn.half_close}[how]()


def phases():
    """(name, script of the origin, what the client sends, when the client ends)"""
    post = request("POST", "/", fields=["Content-Length: 100000"])
    chunks = request("POST", "/", fields=["Transfer-Encoding: chunked"]) + b"5\r\nhello\r\n"
    never = lambda conn: conn.wait_end()                                              # noqa: E731
    part = lambda conn: (conn.read_request(),                                         # noqa: E731
                         conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\npart"), conn.wait_end())
    head = lambda conn: (conn.read_request(), conn.send(b"HTTP/1.1 200 O"), conn.wait_end())       # noqa: E731
    interim = lambda conn: (conn.read_request(), conn.send(b"HTTP/1.1 103 X\r\nLink: x\r\n\r\n"),  # noqa: E731
                            conn.wait_end())
    stream = lambda conn: (conn.read_request(),                                       # noqa: E731
                           conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
                           conn.wait_end())
    return {
        "in-the-head": (never, b"GET / HTTP/1.1\r\nHost: x\r\n"),
        "waiting": (never, request("GET", "/")),
        "in-the-body": (never, post + b"x" * 1000),
        "in-a-large-body": (never, post + b"x" * 90000),
        "in-a-chunk": (never, chunks + b"ff\r\nxx"),
        "expecting": (never, request("POST", "/", fields=["Content-Length: 10", "Expect: 100-continue"])),
        "half-an-answer-head": (head, request("GET", "/")),
        "behind-an-interim": (interim, request("GET", "/")),
        "in-the-answer": (part, request("GET", "/")),
        "in-a-chunked-answer": (stream, request("GET", "/")),
        "pipelined": (part, request("GET", "/") * 5),
        "own-answer": (never, request("GET", "/ping")),
        "refused": (never, b"GET / HTTP/1.1\r\n\r\n"),
        "too-large": (never, request("POST", "/", fields=["Content-Length: 999999999"])),
    }


PHASES = phases()


def nothing_else(conf, port):
    """The standard configuration, of a culvert that no other test has used: its connections are counted."""


alone = shared_rig(nothing_else)


def wait_nobody(rig):
    """No client is left. A FIN behind a whole request is no abort: the origin must end, on each connection."""
    def gone():
        for conn in list(rig.a.conns):
            conn.close()
        return rig.metrics().value("culvert_shard_connections") == 0
    net.wait_until(gone, what="no client connection is left")


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("side", ["client", "origin"])
@pytest.mark.parametrize("name", sorted(PHASES))
def test_p04_end_in_each_phase(alone, name, side, how):
    rig = alone
    script, raw = PHASES[name]
    rig.a.on(script)
    client = rig.web()
    client.try_send(raw)
    net.wait_consumed(rig.port["web"], client.port)
    if side == "client":
        ways(client, how)
    else:
        if name not in ("in-the-head", "own-answer", "refused", "too-large"):
            net.wait_until(lambda: rig.a.conns or client.readable(), what="a connection to the origin")
        for conn in list(rig.a.conns):
            ways(conn, how)
    client.close()
    wait_nobody(rig)
    rig.a.on(answer_ok)
    assert rig.get("/after").status == 200


def test_p04_random_ends(make_rig):
    """Thousands of exchanges, each ended by somebody at a random moment; nothing is left over."""
    rig = make_rig(lambda conf, port: conf.update(workers=2))
    rng = random.Random(4)
    fds = rig.culvert.open_fds()

    def script(conn):
        dice = random.random()
        if dice < 0.1:
            conn.rst()
            return
        conn.read_request()
        if dice < 0.2:
            conn.rst()
        elif dice < 0.3:
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + b"x" * random.randrange(50000))
            ways(conn, random.choice(["fin", "rst", "half"]))
        elif dice < 0.4:
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 5000, last=False))
            ways(conn, random.choice(["fin", "rst", "half"]))
        elif dice < 0.5:
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * random.randrange(9000))
            ways(conn, random.choice(["fin", "rst", "half"]))
        else:
            conn.respond(200, b"z" * random.randrange(20000))

    def run(seed):
        mine = random.Random(seed)
        for _ in range(150):
            try:
                client = Client(rig.port["web"], timeout=5)
                path = mine.choice(["/", "/b", "/pair"])
                body = mine.choice([None, b"", b"q" * mine.randrange(30000)])
                raw = request("POST" if body is not None else "GET", path, body=body)
                cut = mine.random() < 0.2
                client.try_send(raw[:mine.randrange(len(raw))] if cut else raw)
                dice = 1.0 if cut else mine.random()
                if dice < 0.5:
                    client.read_response()
                elif dice < 0.6:
                    select.select([client.sock], [], [], mine.random() * 0.01)
                ways(client, mine.choice(["fin", "rst", "half"]))
                client.close()
            except (Eof, OSError, AssertionError):
                client.close()
    rig.a.on(script)
    rig.b.on(script)
    threads = [threading.Thread(target=run, args=(rng.random(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    rig.a.reset()
    rig.b.reset()
    rig.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 0)
    net.wait_until(lambda: rig.culvert.open_fds() <= fds + 2, what="descriptors are given back")
    metrics = rig.metrics()
    assert metrics.value("culvert_connections", state="active") == 0
    assert metrics.value("culvert_upstream_connections", state="active") == 0
    assert rig.get("/").status == 200


def test_p04_tunnels_at_random(make_rig):
    rig = make_rig(lambda conf, port: conf.update(workers=2))
    fds = rig.culvert.open_fds()

    def script(conn):
        try:
            while True:
                conn.fill()
                data = conn.take(len(conn.buf))
                conn.send(data)
                if random.random() < 0.1:
                    ways(conn, random.choice(["fin", "rst", "half"]))
                    return
        except (Eof, OSError):
            pass
    rig.a.on(script)

    def run(seed):
        mine = random.Random(seed)
        for _ in range(80):
            client = Client(rig.port["fwd"], timeout=5)
            try:
                assert client.connect(rig.a.authority).status == 200
                for _ in range(mine.randrange(6)):
                    client.send(b"t" * mine.randrange(1, 60000))
                    if mine.random() < 0.7:
                        client.fill()
                ways(client, mine.choice(["fin", "rst", "half"]))
            except (Eof, OSError):
                pass
            finally:
                client.close()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    rig.a.reset()
    rig.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 0)
    net.wait_until(lambda: rig.culvert.open_fds() <= fds + 2, what="descriptors are given back")
    assert rig.metrics().value("culvert_connections", state="tunnel") == 0


# -- P07: more than 4 GiB

BLOCK = b"0123456789abcdef" * 65536             # 1 MiB


def pour(sock, total):
    """total bytes of the pattern, as fast as they are taken."""
    view = memoryview(BLOCK)
    left = total
    while left:
        left -= sock.send(view[:min(left, len(view))])


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.recv.restype = ctypes.c_ssize_t
LIBC.recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def discard(sock, limit):
    """recv(MSG_TRUNC) of libc: bytes are dropped, not copied; 0: none is there."""
    n = LIBC.recv(sock.fileno(), None, min(limit, 8 << 20), socket.MSG_TRUNC | socket.MSG_DONTWAIT)
    return max(n, 0)


def swallow(peer, total):
    """Counts total bytes; with MSG_TRUNC the kernel throws most of them away uncopied."""
    got = len(peer.buf)
    peer.buf.clear()
    room = bytearray(1 << 16)
    while got < total:
        n = peer.sock.recv_into(room, min(len(room), total - got))
        if not n:
            raise Eof(f"FIN after {got} of {total} bytes")
        got += n
        if total - got > 1 << 20:
            got += discard(peer.sock, total - got - (1 << 16))
    assert got == total


def swallow_chunks(peer):
    """Reads chunks to the last one; how many bytes they were."""
    got = 0
    while size := int(peer.read_line(), 16):
        if size > 1 << 20:
            swallow(peer, size)
        else:
            peer.read_exactly(size)
        assert peer.read_exactly(2) == b"\r\n"
        got += size
    assert peer.read_line() == b""
    return got


def unlimited(conf, port):
    conf["limits"] = {"request_body": "off"}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_p07_answer_over_4_gib(make_rig, framing):
    total = 5 * GIB + 7
    rig = make_rig(unlimited)

    def script(conn):
        conn.read_request()
        if framing == "length":
            conn.send(f"HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n")
            pour(conn.sock, total)
        else:
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            conn.send(b"%x\r\n" % total)
            pour(conn.sock, total)
            conn.send(b"\r\n0\r\n\r\n")
    rig.a.on(script)
    client = rig.web(timeout=60)
    client.send(request("GET", "/"))
    head = client.read_final_head()
    if framing == "length":
        assert head.one("Content-Length") == str(total)
        swallow(client, total)
    else:
        assert swallow_chunks(client) == total
    assert client.ask(request("GET", "/ping")).status == 200
    entry = rig.log.of(client, 2)[0]
    assert entry["bytes_out"] > total and entry["complete"] is True, entry


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_p07_request_over_4_gib(make_rig, framing):
    total = 4 * GIB + 100
    rig = make_rig(unlimited)
    done = []

    def script(conn):
        head = conn.read_head()
        if framing == "length":
            assert head.one("Content-Length") == str(total)
            swallow(conn, total)
        else:
            assert swallow_chunks(conn) == total
        done.append(total)
        conn.respond(200, "all")
    rig.a.on(script)
    client = rig.web(timeout=60)
    if framing == "length":
        client.send(request("POST", "/", fields=[f"Content-Length: {total}"]))
        pour(client.sock, total)
    else:
        client.send(request("POST", "/", fields=["Transfer-Encoding: chunked"]) + b"%x\r\n" % total)
        pour(client.sock, total)
        client.send(b"\r\n0\r\n\r\n")
    assert client.read_response().text == "all" and done == [total]
    entry = rig.log.of(client)
    assert total < entry["bytes_in"] < total + 1000, entry
    assert client.ask(request("GET", "/ping")).status == 200


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_p07_tunnel_over_4_gib(make_rig):
    """Both counters of a tunnel, of the log and of the metrics."""
    total = 4 * GIB + 100
    rig = make_rig()

    def script(conn):
        swallow(conn, total)
        pour(conn.sock, total + 1)
    rig.a.on(script)
    client = rig.fwd(timeout=60)
    client.connect(rig.a.authority)
    pour(client.sock, total)
    swallow(client, total + 1)
    client.close()
    entry = rig.log.of(client)
    # what follows the heads: the CONNECT and its 200 are counted, too
    assert total < entry["bytes_in"] < total + 1000, entry
    assert total < entry["bytes_out"] < total + 1000, entry
    metrics = rig.metrics()
    moved = [metrics.value("culvert_tunnel_bytes_total", direction=way) for way in ("up", "down")]
    assert moved == [total, total + 1]


@pytest.mark.parametrize("length", [2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53, 2**62])
def test_p07_lengths_that_are_only_said(make_rig, length):
    """The counter is wide: the first bytes pass, nothing is taken for the end."""
    rig = make_rig(unlimited)
    rig.a.on(lambda conn: (conn.read_request(), conn.send(
        f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nfirst"), conn.wait_end()))
    client = rig.web()
    client.send(request("GET", "/"))
    head = client.read_final_head()
    assert head.one("Content-Length") == str(length)
    assert client.read_exactly(5) == b"first"
    assert not client.readable(0.1)
    client.rst()


def test_p07_length_beyond_64_bits(rig):
    for length in (2**64, 2**64 + 5, 10**30):
        client = rig.web()
        client.send(request("POST", "/", fields=[f"Content-Length: {length}"]))
        rig.refused(client, 400 if length >= 2**64 else 413, "http_request_error", "POST")
        rig.a.on(lambda conn, n=length: (conn.read_request(),
                                         conn.send(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\nxxxxx")))
        assert rig.get("/").status == 502
        rig.a.reset()


# -- P08: no stale memory

SECRET = "s3cr3t-of-somebody-else"


def test_p08_error_pages_hold_nothing_of_others(rig):
    """Buffers that carried a secret are reused for every kind of own answer."""
    for _ in range(20):
        client = rig.web()
        client.ask(request("POST", f"/{SECRET}?{SECRET}", body=(SECRET * 2000).encode(),
                           fields=[f"Cookie: {SECRET}", f"X-Pad: {SECRET * 100}"]))
        client.close()
    odd = [b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n\r\n\r\nX\r\n\r\n", b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
           b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", b"GET " + b"/" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
           b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
           b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
           b"GET /old HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /old?a HTTP/1.0\r\n\r\n",
           b"HEAD /admin HTTP/1.1\r\nHost: x\r\n\r\n",
           b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"TRACE / HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n",
           b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /../../x HTTP/1.1\r\nHost: x\r\n\r\n"]
    accepts = [b"", b"Accept: text/html\r\n", b"Accept: application/json\r\n"]
    for raw, accept in itertools.product(odd, accepts):
        for listener in ("web", "fwd"):
            client = rig.client(listener)
            client.try_send(raw.replace(b"\r\n\r\n", b"\r\n" + accept + b"\r\n") if accept else raw)
            client.half_close()
            got, _ = client.drain_to_close()
            assert SECRET.encode() not in got, got
            assert b"\0" not in got, got
            client.close()


def test_p08_cut_answers_hold_nothing_of_others(rig):
    """An answer that ends early is cut, not filled up."""
    rig.get(f"/{SECRET}")
    rig.a.on(lambda conn: (conn.read_request(),
                           conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\nshort"),
                           conn.released.wait(0.1), conn.close()))
    client = rig.web()
    client.send(request("GET", "/"))
    head = client.read_final_head()
    assert head.one("Content-Length") == "60000"
    got, _ = client.drain_to_close()
    assert got == b"short"


# -- P09: signals and time

def test_p09_signal_storm(make_rig):
    """HUP, USR1, USR2 a thousand times under load: every request is answered."""
    rig = make_rig()
    stop, bad, good = threading.Event(), [], []

    def load():
        client = Client(rig.port["web"])
        while not stop.is_set():
            try:
                answer = client.ask(request("GET", "/"))
                (good if answer.status == 200 else bad).append(answer)
            except Exception as error:
                bad.append(error)
                return
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in itertools.islice(itertools.cycle([signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]), 1000):
        rig.culvert.signal(number)
    net.wait_until(lambda: len(good) > 200, what="load")
    stop.set()
    for thread in threads:
        thread.join(10)
    assert not bad, bad[:3]
    assert rig.culvert.stderr.count("HUP") < 50, "folded"


def test_p09_term_storm(make_rig):
    for _ in range(3):
        rig = make_rig(lambda conf, port: conf.update(workers=2))
        assert rig.get("/").status == 200
        for _ in range(20):
            try:
                rig.culvert.signal(signal.SIGTERM)
            except ProcessLookupError:
                break
        assert rig.culvert.wait_exit() in (0, 3)
        rig.culvert.assert_no_processes()


def test_p09_term_during_the_start(work_dir, io):
    """At each moment of the start: it ends, and soon."""
    for pause in (0.0, 0.005, 0.01, 0.02, 0.03, 0.05):
        directory = work_dir / f"start{pause}"
        directory.mkdir(exist_ok=True)
        conf = life_conf({"web": net.free_port(), "admin": net.free_port()}.get, io)
        file = write_conf(directory / "culvert.yaml", conf)
        process = subprocess.Popen([program(), "run", "-c", str(file)], stderr=subprocess.PIPE, env=environment())
        time.sleep(pause)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
        assert process.returncode in (0, -signal.SIGTERM), (pause, process.returncode, err)


def test_p09_suspended_and_resumed(make_rig):
    """Stopped for longer than its time-outs: what then is there is judged by what has come, it goes on."""
    rig = make_rig(lambda conf, port: conf.update(timeouts={"first_byte": "1s", "keep_alive": "1s"}))
    idle, busy = rig.web(), rig.web()
    assert idle.ask(request("GET", "/ping")).status == 200
    rig.a.on(lambda conn: (conn.read_request(), conn.released.wait(0.3), conn.respond(200, "late")))
    busy.send(request("GET", "/"))
    rig.a.wait_requests(1)
    proxy = rig.culvert.proxy_pid()
    os.kill(proxy, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(proxy, signal.SIGCONT)
    assert busy.read_response().status in (200, 504)
    idle.expect_eof()
    assert rig.get("/ping").status == 200


def test_p09_websocket_lives_through_it(rig):
    rig.a.on(websocket.echo)
    client = rig.web()
    assert client.ask(websocket.handshake("/ws")).status == 101
    proxy = rig.culvert.proxy_pid()
    for _ in range(5):
        os.kill(proxy, signal.SIGSTOP)
        time.sleep(0.05)
        client.send(websocket.frame(b"x", masked=True))
        os.kill(proxy, signal.SIGCONT)
        assert websocket.read_frame(client) == (1, b"x")
