"""E01-E10: what is slow, many, or too much."""

import os
import random
import re
import resource
import tempfile
import threading
import time

import pytest

from harness import net, proxyproto
from harness.client import Eof, request
from harness.fixtures import new_rig, shared_rig
from harness.life import in_netns, is_refused, set_sysctl
from harness.origin import answer_never, answer_ok
from harness.rig import check_own_answer

MIB = 1 << 20


def short(conf, port):
    conf["timeouts"] = {"request_head": "1s", "request_idle": "1s", "keep_alive": "1s", "send_idle": "1s"}
    conf["listeners"].append({"name": "lb", "bind": f"127.0.0.1:{port('lb')}", "serve": "web",
                              "proxy_protocol": {"from": ["127.0.0.0/8"], "timeout": "1s"}})


quick = shared_rig(short)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        part = file.read().rpartition(")")[2].split()
    return (int(part[11]) + int(part[12])) / os.sysconf("SC_CLK_TCK")


# -- E01: slow heads

@pytest.mark.parametrize("listener", ["web", "fwd"])
def test_e01_slow_head(quick, listener):
    """Each byte is new, the deadline is for the whole head."""
    client = quick.client(listener)
    start = time.monotonic()
    for byte in b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 200:
        client.try_send(bytes([byte]))
        if client.readable(0.1):
            break
    answer, _ = quick.refused(client, 408, "request_head_timeout")
    assert 0.8 < time.monotonic() - start < 4
    assert answer.list("Connection") == ["close"]


def test_e01_second_head_on_a_connection(quick):
    client = quick.web()
    assert client.ask(request("GET", "/ping")).status == 200
    client.send("GET /ping HT")
    assert client.read_response().status == 408
    client.expect_closed()
    assert quick.log.of(client, 2)[1]["reason"] == "request_head_timeout"


def test_e01_empty_lines_are_no_head(quick):
    """CR LF for ever (RFC 9112 section 2.2 lets a server skip at least one)."""
    client = quick.web()
    start = time.monotonic()
    while time.monotonic() - start < 5 and not client.readable(0.1):
        client.try_send(b"\r\n")
    rest, _ = client.drain_to_close()
    assert rest == b"" or rest.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))
    assert time.monotonic() - start < 4


def test_e01_many_at_once(quick):
    """A hundred of them do not slow the others."""
    slow = [quick.web() for _ in range(100)]
    for client in slow:
        client.send("GET / HTTP/1.1\r\n")
    start = time.monotonic()
    assert quick.get("/ping").status == 200
    assert time.monotonic() - start < 0.5
    for client in slow:
        assert client.read_response().status == 408


# -- E02: slow bodies

@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_e02_stalled_body(quick, framing):
    quick.a.on(answer_never)
    client = quick.web()
    head = "Content-Length: 100" if framing == "length" else "Transfer-Encoding: chunked"
    client.send(request("POST", "/", fields=[head]) + (b"abc" if framing == "length" else b"3\r\nabc\r\n"))
    answer = client.read_response()
    check_own_answer(answer, 408)
    client.expect_closed()
    entry = quick.log.of(client)
    assert entry["status"] == 408 and entry["reason"] == "request_idle", entry
    assert quick.a.conns[0].wait_ended()


@pytest.mark.slow
def test_e02_rate(make_rig):
    """Under the idle limit each byte is in time; the rate, judged after 20 s, cuts it. An upload that is
    slow and honest lives."""
    rig = make_rig(lambda conf, port: conf["sites"][0]["routes"].append(
        {"match": {"prefix": "/big"}, "upstream": "b", "limits": {"request_body": "off"}}))
    rig.a.on(answer_never)
    attack, honest = rig.web(), rig.web()
    attack.send(request("POST", "/", fields=["Content-Length: 1000000"]))
    size = 2000 * 240
    honest.send(request("POST", "/big", fields=[f"Content-Length: {size}"]))
    start = time.monotonic()
    cut = None
    for i in range(240):
        honest.send(b"x" * 2000)
        if cut is None and i % 5 == 0:
            attack.try_send(b"y")
        if attack.readable(0.1):
            cut = cut or time.monotonic() - start
            time.sleep(0.1)
    assert cut and 19 < cut < 24, cut
    answer = attack.read_response()
    assert answer.status == 408
    assert rig.log.of(attack)["reason"] == "request_idle"
    assert honest.read_response().status == 200
    assert len(rig.b.last.body) == size


# -- E03: slow readers

def test_e03_slow_readers_hold_little_and_are_cut(make_rig, io):
    """100 readers that take nothing of 8 MiB each: bounded memory, then send_idle."""
    rig = make_rig(lambda conf, port: conf.update(timeouts={"send_idle": "2s"}))
    body = b"x" * (8 * MIB)
    rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, body)))
    before = rig.culvert.rss()
    clients = [rig.web(rcvbuf=4096) for _ in range(100)]
    for client in clients:
        client.send(request("GET", "/big"))
    rig.a.wait_conns(100)
    net.wait_until(lambda: all(c.readable() for c in clients), what="all have begun")
    held = rig.culvert.rss() - before
    assert held < 64 * MIB, f"{held / MIB:.0f} MiB for 100 slow readers"
    assert rig.get("/ping").status == 200
    entry = rig.log.of(clients[0], timeout=15)
    assert entry["reason"] == "send_idle" and entry["complete"] is False, entry
    for client in clients[:5]:
        rig.log.of(client, timeout=15)
        with pytest.raises(Eof):
            client.read_response()


def test_e03_one_byte_at_a_time_lives(quick):
    """It takes little, but it takes."""
    quick.a.on(lambda conn: (conn.read_request(), conn.respond(200, b"x" * 300000)))
    client = quick.web(rcvbuf=4096)
    client.send(request("GET", "/"))
    start = time.monotonic()
    while time.monotonic() - start < 2.5:
        client.buf += client.sock.recv(3000)
        time.sleep(0.05)
    assert client.read_response().body == b"x" * 300000


# -- E04: silence

def test_e04_silence_is_closed_silently(quick):
    client = quick.web()
    mark = quick.log.mark()
    before = quick.metrics().value("culvert_ends_total", reason="idle_close")
    client.expect_eof()
    assert quick.metrics().value("culvert_ends_total", reason="idle_close") == before + 1
    assert not [e for e in quick.log.read()[mark:] if str(e["peer"]).endswith(f":{client.port}")]


@pytest.mark.parametrize("part", [b"", b"PROX", proxyproto.v1()[:-2], proxyproto.v2()[:14], proxyproto.v2()[:-1]])
def test_e04_half_a_proxy_line(quick, part):
    client = quick.client("lb")
    start = time.monotonic()
    client.send(part)
    client.expect_closed()
    assert time.monotonic() - start < 4


def test_e04_proxy_line_drips(quick):
    """The deadline is for the whole header."""
    client = quick.client("lb")
    start = time.monotonic()
    for byte in proxyproto.v1()[:-1]:
        client.try_send(bytes([byte]))
        if client.readable(0.1):
            break
    client.expect_closed()
    assert time.monotonic() - start < 4


def test_e04_nothing_behind_a_proxy_line(quick):
    client = quick.client("lb")
    client.send(proxyproto.v1())
    client.expect_eof()


# -- E05: at the connection limit

def few(conf, port):
    conf["limits"] = {"connections": 20}


crowded = shared_rig(few)


def test_e05_the_idlest_makes_room(crowded):
    idle = [crowded.web() for _ in range(20)]
    for client in idle:
        assert client.ask(request("GET", "/ping")).status == 200
    assert idle[0].ask(request("GET", "/ping")).status == 200, "now the second is the idlest"
    new = crowded.web()
    assert new.ask(request("GET", "/ping")).status == 200
    idle[1].expect_eof()
    assert idle[2].ask(request("GET", "/ping")).status == 200
    assert idle[0].ask(request("GET", "/ping")).status == 200


def test_e05_none_is_idle(crowded):
    go = threading.Event()
    crowded.a.on(lambda conn: (conn.read_request(), go.wait(20), conn.respond(200, "late")))
    busy = [crowded.web() for _ in range(20)]
    for client in busy:
        client.send(request("GET", "/"))
    crowded.a.wait_requests(20)
    extra = crowded.web()
    answer = extra.send(request("GET", "/ping")).read_response()
    check_own_answer(answer, 503)
    assert answer.has("Retry-After") and "close" in answer.list("Connection")
    extra.expect_closed()
    entry = crowded.log.of(extra)
    assert entry["kind"] == "refused" and entry["reason"] == "connection_limit_reached", entry
    go.set()
    for client in busy:
        assert client.read_response().text == "late"
        client.close()
    crowded.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 0)
    assert crowded.get("/ping").status == 200


def test_e05_silent_connections_make_room_too(crowded):
    """Those that never sent a byte are idle as well, when they have had a moment to send one."""
    silent = [crowded.web() for _ in range(20)]
    crowded.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 20)
    net.wait_until(lambda: crowded.web().ask(request("GET", "/ping")).status == 200, what="the first is idle")
    net.wait_until(lambda: all(crowded.web().ask(request("GET", "/ping")).status == 200 for _ in range(5)),
                   what="the first five are idle")
    assert sum(client.readable(0) for client in silent) >= 5


def test_e05_a_burst_is_answered(crowded):
    """Who comes while all places are taken by others that have just come hears so: none makes room
    whose request is under way."""
    crowded.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 0)
    clients = []
    for _ in range(100):
        client = crowded.web()
        client.try_send(request("GET", "/ping"))
        clients.append(client)
    answers = [client.read_response().status for client in clients]
    assert answers.count(200) >= 20 and set(answers) <= {200, 503}, answers


@pytest.mark.multishard
def test_e05_the_limit_is_of_all_shards(make_rig):
    def change(conf, port):
        few(conf, port)
        conf["workers"] = 2
    rig = make_rig(change)
    for _ in range(60):
        client = rig.web()
        assert client.ask(request("GET", "/ping")).status in (200, 503)
    assert rig.metrics().value("culvert_shard_connections") <= 21


# -- E06: descriptors

def low_fds():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def settle(rig):
    rig.close_clients()
    rig.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 0)
    assert rig.get("/ping").status == 200
    assert rig.get("/").status == 200


def open_many(rig, n):
    clients = []
    for _ in range(n):
        try:
            clients.append(rig.web(timeout=3))
        except OSError:
            break
    return clients


def test_e06_auto_limit_leaves_room(make_rig):
    """The limit that follows from RLIMIT_NOFILE: 500 clients that each want an upstream connection."""
    rig = make_rig(preexec=low_fds)
    go = threading.Event()
    rig.a.on(lambda conn: (conn.read_request(), go.wait(20), conn.respond(200, "late")))
    clients = open_many(rig, 500)
    for client in clients:
        client.try_send(request("GET", "/"))
    net.wait_until(lambda: any(c.readable() for c in clients), what="some are refused")
    assert rig.culvert.admin_get("/readyz").status == 200
    go.set()
    statuses = set()
    for client in clients:
        try:
            statuses.add(client.read_response().status)
        except (Eof, OSError, AssertionError):
            statuses.add(None)
    assert 200 in statuses and statuses <= {200, 503, None}, statuses
    settle(rig)


def test_e06_out_of_descriptors(make_rig):
    """More connections are allowed than there are descriptors: accepting pauses, upstream sockets fail with
    503, logs and the admin port go on; nothing spins."""
    def change(conf, port):
        conf["limits"] = {"connections": 5000}
    rig = make_rig(change, preexec=low_fds)
    clients = open_many(rig, 400)
    net.wait_until(lambda: rig.culvert.open_fds() >= 200, what="many descriptors")
    first = clients[:40]
    statuses = set()
    for client in first:
        client.try_send(request("GET", "/"))
    for client in first:
        try:
            answer = client.read_response()
            statuses.add(answer.status)
            if answer.status == 503:
                assert rig.log.of(client)["reason"] in ("descriptors", "connection_limit_reached")
        except (Eof, OSError):
            pass
    assert statuses <= {200, 503} and statuses, statuses
    pid = rig.culvert.proxy_pid()
    before, start = cpu_seconds(pid), time.monotonic()
    time.sleep(1)
    used = (cpu_seconds(pid) - before) / (time.monotonic() - start)
    assert used < 0.3, f"spins: {used:.0%} of a core"
    settle(rig)


# -- E07: local ports

def test_e07_no_local_port(work_dir, io):
    """All local ports to one origin are taken: 503, not a hang; it recovers."""
    def run():
        set_sysctl("ipv4/ip_local_port_range", "40000 40009")
        rig = new_rig(work_dir, io)
        try:
            go = threading.Event()
            rig.a.on(lambda conn: (conn.read_request(), go.wait(20), conn.respond(200, "late")))
            clients = []
            for i in range(20):
                clients.append(rig.web(source=("127.0.0.1", 20000 + i)))
                clients[-1].send(request("GET", "/"))
            net.wait_until(lambda: sum(c.readable() for c in clients) + len(rig.a.conns) == len(clients),
                           what="each is refused or at the origin")
            refused = [c for c in clients if c.readable()]
            assert len(refused) >= 5
            for client in refused:
                answer = client.read_response()
                assert answer.status == 503 and answer.has("Retry-After"), answer
            entry = rig.log.wait(lambda e: e["status"] == 503)
            assert entry["reason"] == "ports", entry
            go.set()
            for client in clients:
                if client not in refused:
                    assert client.read_response().status == 200
            again = rig.web(source=("127.0.0.1", 20100))
            assert again.ask(request("GET", "/")).status == 200
            for client in clients + [again]:
                net.linger_zero(client.sock)
        finally:
            rig.stop()
    try:
        in_netns(run)
    except PermissionError:
        pytest.skip("no network namespaces here")


# -- E08: memory

def memory_held(metrics):
    return sum(v for n, labels, v in metrics.samples if n == "culvert_memory_bytes")


@pytest.mark.parametrize("workers", [1, 2])
def test_e08_memory_limit(make_rig, workers):
    """More slow readers than the budget carries: refusals, no end, and all of it comes back, to
    whichever shard asks next."""
    def change(conf, port):
        conf.update(limits={"memory": "16MiB"}, workers=workers)
    rig = make_rig(change)
    rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, b"x" * (4 * MIB))))
    clients = [rig.web(rcvbuf=4096) for _ in range(150)]
    for client in clients:
        client.send(request("GET", "/big"))
    net.wait_until(lambda: sum(c.readable() for c in clients) >= 100, what="most have an answer")
    assert memory_held(rig.metrics()) <= 17 * MIB
    assert rig.culvert.admin_get("/healthz").status == 200
    rig.close_clients()
    rig.culvert.wait_metric(lambda m: m.value("culvert_shard_connections") == 0
                            and memory_held(m) <= 15 * MIB)
    rig.a.on(answer_ok)
    assert [rig.get("/after").status for _ in range(20)] == [200] * 20


# -- E09: a log that cannot be written

def test_e09_full_disk(make_rig):
    """Traffic goes on, what is lost is counted, and one line says so."""
    def change(conf, port):
        conf["access_log"]["to"] = "/dev/full"
    rig = make_rig(change)
    for _ in range(50):
        assert rig.get("/ping").status == 200
    metrics = rig.culvert.wait_metric(lambda m: m.value("culvert_log_dropped_total") > 0 and m)
    assert metrics.labels("culvert_log_dropped_total")
    rig.culvert.wait_stderr("No space left")
    assert rig.culvert.stderr.count("No space left") < 10, "folded"
    assert rig.get("/").status == 200


def test_e09_log_pipe_that_nobody_reads(make_rig):
    """A FIFO that is full blocks the writer thread only."""
    paths = []

    def change(conf, port):
        conf["access_log"]["to"] = paths[0]

    directory = tempfile.mkdtemp()
    paths.append(os.path.join(directory, "fifo"))
    os.mkfifo(paths[0])
    reader = os.open(paths[0], os.O_RDONLY | os.O_NONBLOCK)
    try:
        rig = make_rig(change)
        client = rig.web()
        slow = 0.0
        for _ in range(3000):
            start = time.monotonic()
            assert client.ask(request("GET", "/ping", fields=["User-Agent: " + "u" * 1000])).status == 200
            slow = max(slow, time.monotonic() - start)
        assert slow < 1.0, slow
        rig.culvert.wait_metric(lambda m: m.value("culvert_log_dropped_total") > 0)
    finally:
        # Let the writer go, so that it can end.
        stop = threading.Event()

        def drain():
            while not stop.is_set():
                try:
                    if not os.read(reader, 1 << 16):
                        time.sleep(0.01)
                except BlockingIOError:
                    time.sleep(0.01)
        thread = threading.Thread(target=drain, daemon=True)
        thread.start()
        rig.culvert.stop()
        stop.set()
        thread.join()
        os.close(reader)
        os.unlink(paths[0])
        os.rmdir(directory)


# -- E10: cost per byte

def roomy(conf, port):
    conf["limits"] = {"request_head": "64KiB", "request_headers": 10000, "request_body": "64MiB"}
    conf["trusted_proxies"] = ["127.0.0.0/8"]


big = shared_rig(roomy)

def fill(piece, sep="", total=60000):
    """As many pieces as fit; piece may hold {} for their number."""
    out, size, i = [], 0, 0
    while size < total:
        out.append(piece.format(i))
        size += len(out[-1]) + len(sep)
        i += 1
    return sep.join(out)


HOSTILE = {
    "accept-encoding": ["Accept-Encoding: " + fill("gzip;q=0.1", ",")],
    "commas": ["Accept: " + "," * 60000],
    "cookie": ["Cookie: " + ";" * 60000],
    "xff": ["X-Forwarded-For: " + fill("127.0.0.1", ",")],
    "forwarded": ["Forwarded: " + fill("for=127.0.0.1", ", ")],
    "forwarded-quotes": ["Forwarded: for=\"" + "\\\"" * 30000],
    "via": ["Via: " + fill("1.1 x", ", ")],
    "connection": ["Connection: " + fill("x{}", ", ")],
    "connection-one": ["Connection: " + fill("keep-alive", ", ")],
    "connection-names-fields": ["Connection: " + fill("x-{}", ", ", 25000)] + [f"X-{i}: y" for i in range(3000)],
    "fields": [f"X-{i}: y" for i in range(5000)],
    "same-fields": ["X-Same: y"] * 5000,
    "spaces": ["X-Space: " + " " * 60000 + "x"],
    "te": ["TE: " + fill("trailers;q=0.5", ", ")],
    "accept-many": ["Accept: " + fill("a/b{};q=0.5", ", ")],
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_e10_hostile_fields_cost_little(big, name):
    """60 KB of each, twenty times: linear work is far below 50 ms per request."""
    pid = big.culvert.proxy_pid()
    raw = request("GET", "/", fields=HOSTILE[name])
    before = cpu_seconds(pid)
    client = big.web()
    for _ in range(20):
        answer = client.send(raw).read_response()
        if "close" in answer.list("Connection"):
            client = big.web()
        assert answer.status in (200, 400, 431, 502), answer
    used = cpu_seconds(pid) - before
    assert used < 1.0, f"{used / 20 * 1000:.0f} ms per request"


def test_e10_tiny_chunks(big):
    """100,000 chunks of one byte, in few segments."""
    pid = big.culvert.proxy_pid()
    before = cpu_seconds(pid)
    client = big.web()
    client.send(request("POST", "/", fields=["Transfer-Encoding: chunked"]))
    client.send_behind(b"1\r\nx\r\n" * 100000 + b"0\r\n\r\n")
    assert client.read_response().status == 200
    assert big.a.last.body == b"x" * 100000
    assert cpu_seconds(pid) - before < 2.0


def test_e10_tiny_chunks_of_the_answer(big):
    big.a.on(lambda conn: (conn.read_request(),
                           conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                     + b"1\r\nx\r\n" * 100000 + b"0\r\n\r\n")))
    pid = big.culvert.proxy_pid()
    before = cpu_seconds(pid)
    assert big.get("/").body == b"x" * 100000
    assert cpu_seconds(pid) - before < 2.0


def test_e10_head_byte_by_byte(big):
    """A head in 2,000 segments is not parsed 2,000 times from its begin."""
    pid = big.culvert.proxy_pid()
    before = cpu_seconds(pid)
    client = big.web()
    client.send(b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: ")
    for _ in range(2000):
        client.send(b"y" * 25)
    client.send(b"\r\n\r\n")
    assert client.read_response().status in (200, 431)
    assert cpu_seconds(pid) - before < 2.0


def test_e10_pipelined_requests(big):
    """2,000 in one write: answered in order, fairly, at little cost."""
    client = big.web()
    client.send_behind(request("GET", "/ping") * 2000)
    other = big.web()
    start = time.monotonic()
    assert other.ask(request("GET", "/ping")).status == 200
    assert time.monotonic() - start < 1.0
    for _ in range(2000):
        assert client.read_response().text == "pong\n"


@pytest.mark.parametrize("body", [b"", b"x" * 3000])
def test_e10_read_ahead_stops_and_goes_on(quick, body):
    """More pipelined requests than are read ahead, with heads and bodies across every border of a read."""
    client = quick.web()
    one = request("POST", "/ping", body=body, fields=["X-Pad: " + "p" * 61])
    n = 300000 // len(one)
    client.send_behind(one * n)
    for _ in range(n):
        assert client.read_response().text == "pong\n"


def test_e10_error_page_accept(big):
    """The choice of the page's type."""
    pid = big.culvert.proxy_pid()
    before = cpu_seconds(pid)
    for _ in range(20):
        client = big.fwd()
        client.send(f"GET http://127.0.0.1:{big.port['admin']}/ HTTP/1.1\r\nHost: x\r\n"
                    f"Accept: {','.join(['text/html;q=0.1'] * 3500)}\r\n\r\n")
        assert client.read_response().status == 403
    assert cpu_seconds(pid) - before < 1.0


def test_random_garbage_never_hurts(quick):
    """Bytes that are nothing: an answer or an end, and it lives."""
    rng = random.Random(7)
    for _ in range(100):
        client = quick.web()
        client.try_send(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 400))) + b"\r\n\r\n")
        client.half_close()
        rest, _ = client.drain_to_close()
        assert rest == b"" or re.match(rb"HTTP/1\.1 (4\d\d|505)", rest), rest[:100]
    assert not is_refused(quick.port["web"])
