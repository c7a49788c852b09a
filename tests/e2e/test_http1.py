"""Ordinary HTTP/1.1 in both directions."""

import asyncio
import hashlib
import json
import os
import random
import re
import tempfile
import threading

import pytest
import websockets

from harness import websocket
from harness.client import Client, chunked, request
from harness.fixtures import shared_rig
from harness.net import free_port, wait_until
from harness.origin import Origin, answer_hash, answer_never, answer_ok
from harness.rig import check_own_answer

MIB = 1 << 20


# -- the main job

def test_round_robin(rig):
    assert [rig.get("/pair").one("X-Origin") for _ in range(6)] in (["a", "b"] * 3, ["b", "a"] * 3)


def test_round_robin_on_one_connection(rig):
    client = rig.web()
    got = [client.ask(request("GET", "/pair")).one("X-Origin") for _ in range(6)]
    assert got in (["a", "b"] * 3, ["b", "a"] * 3)


def test_weights(make_rig):
    def change(conf, port):
        a, b = conf["upstreams"]["pair"]["servers"]
        conf["upstreams"]["pair"]["servers"] = [{"url": a, "weight": 3}, b]
    rig = make_rig(change)
    got = [rig.get("/pair").one("X-Origin") for _ in range(8)]
    assert got.count("a") == 6 and got.count("b") == 2
    assert "aaaa" not in "".join(got), "smooth: never all of one in a row"


@pytest.mark.parametrize("balance", ["least_connections", "p2c"])
def test_balance_avoids_the_busy_server(make_rig, balance):
    def change(conf, port):
        conf["upstreams"]["pair"]["balance"] = balance
    rig = make_rig(change)
    busy = threading.Event()
    rig.a.on(lambda conn: (conn.read_request(), busy.wait(10), conn.respond(200, "a", ["X-Origin: a"])))
    stuck = []
    while not rig.a.conns and len(stuck) < 20:
        stuck.append(rig.web())
        stuck[-1].send(request("GET", "/pair"))
        wait_until(lambda: rig.a.conns or stuck[-1].readable(), what="a request at one of the two")
    assert rig.a.conns, "never chosen"
    clients = []
    for _ in range(8):
        clients.append(rig.web())
        clients[-1].send(request("GET", "/pair"))
        clients[-1].readable(0.3)       # the busy one will not answer
    busy.set()
    got = [client.read_response().one("X-Origin") for client in clients]
    # Of two random servers both may be the same one, so p2c also meets the busy one.
    assert got.count("b") >= (8 if balance == "least_connections" else 2), got


def test_absolute_form(rig):
    client = rig.fwd()
    for origin in (rig.a, rig.b, rig.a):
        answer = client.ask(f"GET {origin.url}/x?y HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n")
        assert answer.one("X-Origin") == origin.name
        assert origin.last.start == "GET /x?y HTTP/1.1"
        assert origin.last.one("Host") == origin.authority


def test_absolute_form_by_name(rig):
    client = rig.fwd()
    assert client.ask(f"GET http://some.test:{rig.a.port}/ HTTP/1.1\r\nHost: some.test\r\n\r\n").status == 200
    assert rig.a.last.one("Host") == f"some.test:{rig.a.port}"
    entry = rig.log.of(client)
    assert entry["address"].startswith("127.0.0.1") and entry["host"].startswith("some.test")


def test_default_port_80(make_rig):
    """http:// without a port; Host goes without one too."""
    host = f"127.0.{random.randint(1, 254)}.{random.randint(1, 254)}"
    try:
        origin = Origin("eighty", host=host, port=80)
    except OSError:
        pytest.skip("port 80 cannot be bound here")

    def change(conf, port):
        conf["forward"] = {"deny_to_except": ["127.0.0.0/8"]}
    rig = make_rig(change)
    client = rig.fwd()
    for target in (f"http://{host}/", f"http://{host}:80/", f"http://{host}"):
        assert client.ask(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").status == 200
        assert origin.last.one("Host") in (host, f"{host}:80")
    origin.close()


def test_connect(rig):
    client = rig.fwd()
    assert client.connect(rig.a.authority).status == 200
    for i in range(3):
        assert client.ask(f"GET /{i} HTTP/1.1\r\nHost: {rig.a.authority}\r\n\r\n").text == f"a GET /{i}\n"
    assert not rig.a.last.has("Via")
    client.close()
    entry = rig.log.of(client)
    assert entry["kind"] == "tunnel" and entry["method"] == "CONNECT" and entry["status"] == 200
    assert entry["bytes_in"] >= 3 * 30 and entry["bytes_out"] >= 3 * 30
    assert entry["address"] == rig.a.authority


def test_connect_ends_when_the_origin_ends(rig):
    rig.a.on_raw("bye", "close", whole=False)
    client = rig.fwd()
    client.connect(rig.a.authority)
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.read_to_end() == b"bye"


def test_server_speaks_first_in_a_tunnel(rig):
    client = rig.fwd()
    client.connect(rig.b.authority)
    rig.b.wait_conns(1)
    rig.b.conns[0].send(b"220 ready\r\n")
    assert client.read_exactly(11) == b"220 ready\r\n"


def test_tunnel_reset_is_passed_on(rig):
    rig.a.on(lambda conn: (conn.read_exactly(4), conn.rst()))
    client = rig.fwd()
    client.connect(rig.a.authority)
    client.send(b"ping")
    client.expect_closed()
    assert rig.log.of(client)["kind"] == "tunnel"


# -- upgrade and WebSocket

def test_websocket_raw(door):
    door.rig.a.on(websocket.echo)
    client = door.client()
    answer = client.ask(websocket.handshake(door.target("/ws"), door.host))
    assert answer.status == 101
    assert answer.one("Sec-WebSocket-Accept") == websocket.accept_of("dGhlIHNhbXBsZSBub25jZQ==")
    for payload in (b"x", b"y" * 200, b"z" * 70000):
        client.send(websocket.frame(payload, opcode=2, masked=True))
        assert websocket.read_frame(client) == (2, payload)
    client.send(websocket.frame(b"\x03\xe8", opcode=8, masked=True))
    assert websocket.read_frame(client) == (8, b"\x03\xe8")
    client.expect_eof()
    client.close()
    entry = door.rig.log.of(client)
    assert entry["kind"] == "tunnel" and entry["status"] == 101
    assert entry["bytes_in"] > 70000 and entry["bytes_out"] > 70000


def test_websocket_frame_with_the_101(door):
    """The origin's first frame comes in one segment with its 101."""
    def script(conn):
        req = conn.read_request()
        key = websocket.accept_of(req.one("Sec-WebSocket-Key"))
        conn.send(("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   f"Sec-WebSocket-Accept: {key}\r\n\r\n").encode() + websocket.frame(b"hello"))
        conn.wait_end()
    door.rig.a.on(script)
    client = door.client()
    assert client.ask(websocket.handshake(door.target("/ws"), door.host)).status == 101
    assert websocket.read_frame(client) == (1, b"hello")


def test_websocket_after_other_requests(door):
    """On a connection that has carried plain requests, on both sides."""
    door.rig.a.on(lambda conn: answer_ok(conn) if not conn.requests else websocket.echo(conn))
    client = door.client()
    assert client.ask(door.head("GET", "/1")).status == 200
    assert client.ask(websocket.handshake(door.target("/ws"), door.host)).status == 101
    client.send(websocket.frame(b"x", masked=True))
    assert websocket.read_frame(client) == (1, b"x")


@pytest.mark.parametrize("way", ["web", "connect"])
def test_websocket_of_a_library(rig, way):
    """A client that is not ours."""
    rig.a.on(websocket.echo)

    async def talk():
        if way == "web":
            uri, sock = f"ws://127.0.0.1:{rig.port['web']}/ws", None
        else:
            tunnel = Client(rig.port["fwd"])
            assert tunnel.connect(rig.a.authority).status == 200
            tunnel.sock.setblocking(False)
            uri, sock = f"ws://{rig.a.authority}/ws", tunnel.sock
        async with websockets.connect(uri, sock=sock, compression=None) as ws:
            for text in ("hello", "x" * 100000):
                await ws.send(text)
                assert await ws.recv() == text
    asyncio.run(talk())


def test_upgrade_to_another_protocol(door):
    def script(conn):
        conn.read_request()
        conn.send("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n")
        while True:
            conn.send(conn.read_exactly(1))
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/", "Connection: upgrade, x-y", "Upgrade: echo/1", "X-Y: 1"))
    assert client.read_response().status == 101
    assert not door.rig.a.last.has("X-Y")
    client.send(b"\0\xff\r\n")
    assert client.read_exactly(4) == b"\0\xff\r\n"


# -- connections

def test_keep_alive_on_both_sides(door):
    client = door.client()
    for i in range(10):
        answer = client.ask(door.head("GET", f"/{i}"))
        assert answer.text == f"a GET /{i}\n" and "close" not in answer.list("Connection")
    assert len(door.rig.a.conns) == 1
    assert "close" not in door.rig.a.last.list("Connection")


def test_connection_close_of_the_client(door):
    client = door.client()
    answer = client.ask(door.head("GET", "/", "Connection: close"))
    assert "close" in answer.list("Connection")
    client.expect_eof()
    assert "close" not in door.rig.a.last.list("Connection")
    assert door.get("/2").status == 200
    assert len(door.rig.a.conns) == 1, "the client's close is not the upstream's"


def test_requests_after_close_are_not_answered(door):
    client = door.client()
    client.send(door.head("GET", "/1", "Connection: close") + door.head("GET", "/2"))
    assert client.read_response().text == "a GET /1\n"
    client.expect_closed()
    assert [r.target for r in door.rig.a.requests] == ["/1"]


def test_pool_is_shared_by_clients(door):
    for _ in range(5):
        assert door.get("/").status == 200
    assert len(door.rig.a.conns) == 1


def test_parallel_requests_have_connections_of_their_own(door):
    go = threading.Event()
    door.rig.a.on(lambda conn: (conn.read_request(), go.wait(5), conn.respond(200)))
    clients = [door.client() for _ in range(4)]
    for client in clients:
        client.send(door.head("GET", "/"))
    door.rig.a.wait_conns(4)
    door.rig.a.wait_requests(4)
    go.set()
    assert [c.read_response().status for c in clients] == [200] * 4


def test_idle_connection_is_closed_silently(make_rig):
    def change(conf, port):
        conf["timeouts"] = {"keep_alive": "400ms"}
    rig = make_rig(change)
    client = rig.web()
    client.expect_eof()
    client = rig.web()
    assert client.ask(request()).status == 200
    client.expect_eof()


# -- bodies

@pytest.mark.parametrize("method", ["GET", "POST"])
def test_head_204_304(door, method):
    door.rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, "", ["ETag: \"x\""])))
    client = door.client()
    answer = client.ask(door.head("HEAD", "/"), "HEAD")
    assert answer.status == 200 and answer.one("ETag") == '"x"'
    for status in (204, 304):
        door.rig.a.on_raw(f"HTTP/1.1 {status} X\r\nETag: \"y\"\r\n\r\n")
        answer = client.ask(door.head(method, "/"))
        assert answer.status == status and answer.one("ETag") == '"y"'
    door.rig.a.on(answer_ok)
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


def test_head_keeps_the_length(door):
    door.rig.a.on_raw("HTTP/1.1 200 X\r\nContent-Length: 12345\r\n\r\n")
    client = door.client()
    assert client.ask(door.head("HEAD", "/"), "HEAD").one("Content-Length") == "12345"


@pytest.mark.parametrize("trailers", [(), ("X-Sum: 1", "X-Sum: 2", "X-End: z")])
def test_chunked_up(door, trailers):
    client = door.client()
    answer = client.ask(door.head("POST", "/", "Transfer-Encoding: chunked", "Trailer: X-Sum")
                        + chunked(b"a", b"bc", b"d" * 10000, trailers=trailers))
    assert answer.status == 200
    req = door.rig.a.last
    assert req.body == b"abc" + b"d" * 10000 and req.framing == "chunked"
    assert [f"{n}: {v}" for n, v in req.trailers] == list(trailers)


@pytest.mark.parametrize("trailers", [(), ("X-Sum: 1", "X-Sum: 2", "X-End: z")])
def test_chunked_down(door, trailers):
    door.rig.a.on_raw(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                      + chunked(b"a", b"bc", b"d" * 10000, trailers=trailers))
    client = door.client()
    answer = client.ask(door.head("GET", "/", "TE: trailers", "Connection: TE"))
    assert answer.body == b"abc" + b"d" * 10000 and answer.framing == "chunked"
    assert [f"{n}: {v}" for n, v in answer.trailers] == list(trailers)
    assert client.ask(door.head("GET", "/2")).body == answer.body


def test_chunks_are_not_held_back(door):
    """Each reaches the other side before the next is sent."""
    def script(conn):
        head = conn.read_head()
        for expected in (b"one", b"two"):
            assert conn.read_exactly(int(conn.read_line(), 16)) == expected
            conn.read_line()
            conn.send(chunked(expected.upper(), last=False) if expected == b"two" else
                      b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"ONE", last=False))
        conn.read_chunked(head)
        conn.send(chunked())
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/", "Transfer-Encoding: chunked") + chunked(b"one", last=False))
    head = client.read_final_head()
    assert client.read_line() == b"3" and client.read_exactly(5) == b"ONE\r\n"
    client.send(chunked(b"two", last=False))
    assert client.read_line() == b"3" and client.read_exactly(5) == b"TWO\r\n"
    client.send(chunked())
    client.read_response_body(head, "GET")
    assert head.body == b""


def test_empty_bodies(door):
    client = door.client()
    assert client.ask(door.head("POST", "/1", "Content-Length: 0")).status == 200
    assert door.rig.a.last.all("Content-Length") == ["0"], "a server may insist on it (RFC 9110 section 8.6)"
    assert client.ask(door.head("POST", "/2", "Transfer-Encoding: chunked") + chunked()).status == 200
    assert door.rig.a.last.body == b""
    door.rig.a.on_raw(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert client.ask(door.head("GET", "/3")).body == b""
    door.rig.a.on_raw(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")
    assert client.ask(door.head("GET", "/4")).body == b""


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 16384, 65535, 65536, 65537, 131072, 262145])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_sizes_around_buffers(door, size, framing):
    body = hashlib.sha256(str(size).encode()).digest() * (size // 32 + 1)
    body = body[:size]

    def script(conn):
        req = conn.read_request()
        if framing == "length":
            conn.respond(200, req.body)
        else:
            conn.send(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(req.body))
    door.rig.a.on(script)
    client = door.client()
    if framing == "length":
        client.send_behind(door.head("POST", "/", f"Content-Length: {size}") + body)
    else:
        client.send_behind(door.head("POST", "/", "Transfer-Encoding: chunked") + \
                           chunked(body[:size // 2], body[size // 2:]))
    answer = client.read_response()
    assert answer.status == 200 and answer.body == body


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_large_upload(door, framing):
    """64 MiB, just what the web listener's limit allows."""
    door.rig.a.on(answer_hash)
    part = bytes(range(256)) * 4096
    digest = hashlib.sha256()
    for _ in range(64):
        digest.update(part)
    client = door.client()
    lines = f"Content-Length: {64 * MIB}" if framing == "length" else "Transfer-Encoding: chunked"

    def upload():
        client.try_send(door.head("POST", "/", lines))
        for _ in range(64):
            client.try_send(part if framing == "length" else chunked(part, last=False))
        if framing == "chunked":
            client.try_send(chunked())
    threading.Thread(target=upload, daemon=True).start()
    client.sock.settimeout(40)
    assert client.read_response().text == f"{64 * MIB} {digest.hexdigest()}"
    assert door.rig.log.of(client)["bytes_in"] >= 64 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_large_download(door, framing):
    part = bytes(range(256)) * 4096
    digest = hashlib.sha256()
    for _ in range(64):
        digest.update(part)

    def script(conn):
        conn.read_request()
        conn.send({"length": f"HTTP/1.1 200 X\r\nContent-Length: {64 * MIB}\r\n\r\n",
                   "chunked": "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n",
                   "close": "HTTP/1.1 200 X\r\n\r\n"}[framing])
        for _ in range(64):
            conn.send(chunked(part, last=False) if framing == "chunked" else part)
        if framing == "chunked":
            conn.send(chunked())
        if framing == "close":
            conn.close()
    door.rig.a.on(script)
    client = door.client()
    client.sock.settimeout(40)
    client.send(door.head("GET", "/"))
    got = hashlib.sha256()
    answer = client.read_response(sink=got)
    assert answer.status == 200 and got.hexdigest() == digest.hexdigest()
    assert door.rig.log.of(client)["bytes_out"] >= 64 * MIB
    door.rig.a.on(answer_ok)
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


@pytest.mark.slow
def test_large_tunnel(fwd):
    """64 MiB each way through CONNECT."""
    part = bytes(range(256)) * 4096

    def script(conn):
        got = hashlib.sha256()
        conn.read_exactly(64 * MIB, got)
        for _ in range(64):
            conn.send(part)
        conn.send(got.digest())
    fwd.rig.a.on(script)
    client = fwd.client()
    client.sock.settimeout(40)
    client.connect(fwd.rig.a.authority)
    digest = hashlib.sha256()
    for _ in range(64):
        client.send(part)
        digest.update(part)
    got = hashlib.sha256()
    client.read_exactly(64 * MIB, got)
    assert got.digest() == digest.digest() == client.read_exactly(32)
    client.close()
    entry = fwd.rig.log.of(client)
    assert 0 <= entry["bytes_in"] - 64 * MIB < 200, "the head and the bytes"
    assert 0 <= entry["bytes_out"] - 64 * MIB - 32 < 200
    moved = fwd.rig.metrics()
    assert moved.value("culvert_tunnel_bytes_total") >= 128 * MIB


# -- interim answers

def test_100_continue_end_to_end(door):
    """The origin decides: its 100 reaches the client, then the body flows."""
    def script(conn):
        head = conn.read_head()
        assert head.list("Expect") == ["100-continue"]
        assert not conn.buf and not conn.readable(0.05), "the body came before the 100"
        conn.send("HTTP/1.1 100 Continue\r\n\r\n")
        conn.remember(conn.read_body(head))
        conn.respond(200, "thanks")
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/", "Expect: 100-continue", "Content-Length: 5"))
    assert client.read_head().status == 100
    assert client.ask(b"hello").text == "thanks"
    assert door.rig.a.last.body == b"hello"
    door.rig.a.on(answer_ok)
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


def test_100_continue_client_does_not_wait(door):
    def script(conn):
        head = conn.read_head()
        conn.send("HTTP/1.1 100 Continue\r\n\r\n")
        conn.remember(conn.read_body(head))
        conn.respond(200, "thanks")
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/", "Expect: 100-continue", "Content-Length: 5") + b"hello")
    assert client.read_response().text == "thanks"


def test_100_continue_server_that_knows_none(door):
    """It waits for the body without a 100: culvert must not deadlock for ever when the client sends at last."""
    client = door.client()
    client.send(door.head("POST", "/", "Expect: 100-continue", "Content-Length: 5"))
    door.rig.a.wait_received(b"\r\n\r\n")
    client.send(b"hello")
    assert client.read_response().status == 200
    assert door.rig.a.last.body == b"hello"


def test_final_answer_instead_of_100(door):
    def script(conn):
        conn.remember(conn.read_head())
        conn.respond(413, "too much", close=True)
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/", "Expect: 100-continue", "Content-Length: 1000000"))
    answer = client.read_response()
    assert answer.status == 413 and answer.text == "too much"


def test_103_passes(door):
    door.rig.a.on_raw("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
                      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    answer = door.get("/")
    assert answer.text == "ok"
    assert [(i.status, i.one("Link")) for i in answer.interims] == [(103, "</style.css>; rel=preload")]


# -- fields

def test_fields_pass_as_they_are(door):
    """Case, order, repetition, empty values."""
    lines = ["X-B: 2", "X-a: 1", "X-B: 3", "X-Empty:", "Accept: text/html;q=0.8, */*", "Cookie: a=b; c=d",
             "User-Agent: test/1 (x)", "Authorization: Bearer t", "Range: bytes=0-1", "If-None-Match: \"x\"",
             "Referer: http://r/"]
    assert door.get("/", *lines).status == 200
    got = [f"{n}: {v}".rstrip() for n, v in door.rig.a.last.fields]
    assert [g for g in got if g in [x.rstrip() for x in lines]] == [x.rstrip() for x in lines]


def test_answer_fields_pass_as_they_are(door):
    lines = ["Set-Cookie: a=1; Path=/", "Set-Cookie: b=2", "X-b: 2", "Server: origin/1",
             "Date: Sun, 06 Nov 1994 08:49:37 GMT",
             "WWW-Authenticate: Basic realm=\"x\"", "Content-Type: text/x; charset=y", "Vary: a, b",
             "Location: http://other/x"]
    door.rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, "ok", lines, reason="Fine, thanks")))
    answer = door.get("/")
    got = [f"{n}: {v}" for n, v in answer.fields]
    assert [g for g in got if g in lines] == lines
    assert answer.start == "HTTP/1.1 200 Fine, thanks"


def test_via(door):
    assert door.get("/").status == 200
    own = door.rig.a.last.one("Via")
    assert re.fullmatch(r"1\.1 \S+", own), own
    door.rig.a.on_raw("HTTP/1.1 200 X\r\nVia: 1.1 inner\r\nContent-Length: 2\r\n\r\nok")
    answer = door.get("/", "Via: 1.0 outer")
    assert [v.strip() for v in ", ".join(door.rig.a.last.all("Via")).split(",")] == ["1.0 outer", own]
    assert [v.strip() for v in ", ".join(answer.all("Via")).split(",")] == ["1.1 inner", own]


def test_via_says_the_received_version(door):
    client = door.client()
    client.ask(door.head("GET", "/", version="HTTP/1.0"))
    assert door.rig.a.last.one("Via").startswith("1.0 ")


def no_via(conf, port):
    conf["sites"][0]["via"] = "off"
    conf["listeners"][1]["via"] = "off"


vialess = shared_rig(no_via)


@pytest.mark.parametrize("listener", ["web", "fwd"])
def test_via_off(vialess, listener):
    client = vialess.client(listener)
    target = "/" if listener == "web" else f"{vialess.a.url}/"
    answer = client.ask(f"GET {target} HTTP/1.1\r\nHost: web.test\r\n\r\n")
    assert answer.status == 200
    assert not vialess.a.last.has("Via") and not answer.has("Via")


def test_host_stays_in_the_web_direction(rig):
    rig.get("/", host="Shop.Example:8443")
    assert rig.a.last.one("Host").lower() == "shop.example:8443"
    assert rig.a.last.fields[0][0] == "Host", "first, as RFC 9110 section 7.2 recommends"


def test_host_of_the_upstream(make_rig):
    def change(conf, port):
        conf["upstreams"]["app"]["host"] = "app.internal"
    rig = make_rig(change)
    rig.get("/", host="shop.example")
    assert rig.a.last.one("Host") == "app.internal"
    assert rig.a.last.one("X-Forwarded-Host", "shop.example") == "shop.example"


def test_host_is_rewritten_in_the_forward_direction(fwd):
    client = fwd.client()
    client.ask(f"GET {fwd.rig.a.url}/ HTTP/1.1\r\nHost: something.else\r\n\r\n")
    assert fwd.rig.a.last.one("Host") == fwd.rig.a.authority


# -- own answers

@pytest.fixture
def unreachable(make_rig):
    def change(conf, port):
        conf["upstreams"]["app"]["servers"] = [f"http://127.0.0.1:{free_port()}"]
    return make_rig(change)


@pytest.mark.parametrize("accept,kind", [("text/html", "text/html"), ("text/html,application/xhtml+xml,*/*;q=0.8",
                                                                      "text/html"),
                                         ("application/json", "application/json"), ("text/plain", "text/plain"),
                                         ("*/*", "text/plain"), (None, "text/plain"), ("image/png", "text/plain"),
                                         ("application/json;q=0.2, text/html", "text/html"),
                                         ("text/html;q=0, application/json", "application/json")])
def test_error_page_by_accept(rig, fwd, accept, kind):
    client = fwd.client()
    client.send(request("GET", "http://127.0.0.1:25/", host="127.0.0.1:25",
                        fields=[f"Accept: {accept}"] if accept else []))
    answer = client.read_response()
    check_own_answer(answer, 403)
    assert answer.one("Content-Type").partition(";")[0] == kind
    entry = rig.log.of(client)
    if kind == "application/json":
        page = json.loads(answer.body)
        assert page == {"status": 403, "reason": "port_denied", "request_id": entry["request_id"]}
    elif kind == "text/html":
        assert answer.text.lstrip().lower().startswith("<!doctype html>") and "403" in answer.text
    else:
        assert "403" in answer.text or "port" in answer.text
    assert entry["request_id"] in answer.text


def test_error_page_for_head(fwd):
    """No body, and the connection goes on or ends well."""
    client = fwd.client()
    client.send(request("HEAD", "http://127.0.0.1:25/", host="127.0.0.1:25"))
    answer = client.read_response("HEAD")
    check_own_answer(answer, 403)
    if "close" in answer.list("Connection"):
        client.expect_eof()
    else:
        assert client.ask(fwd.head("GET", "/next")).text == "a GET /next\n"


def test_proxy_status(fwd, unreachable):
    client = fwd.client()
    client.send(request("GET", "http://127.0.0.1:25/", host="x"))
    assert re.search(r"\bculvert\b.*; ?error=http_request_denied", client.read_response().one("Proxy-Status"))
    answer = unreachable.get("/")
    assert answer.status == 502
    assert re.search(r"\bculvert\b.*; ?error=connection_refused", answer.one("Proxy-Status"))


def test_origin_errors_pass_untouched(door):
    """A 502 of the origin is not culvert's: no page, no Proxy-Status of ours."""
    door.rig.a.on(lambda conn: (conn.read_request(), conn.respond(502, "mine", ["Proxy-Status: inner; error=x"])))
    answer = door.get("/")
    assert answer.status == 502 and answer.text == "mine"
    assert answer.all("Proxy-Status") == ["inner; error=x"]
    assert not answer.has("Cache-Control")


def test_unresolvable_upstream(make_rig):
    """Its routes answer 503 with Retry-After, others serve; it recovers when the name resolves."""
    def change(conf, port):
        conf["upstreams"]["b"]["servers"] = [f"http://later.test:{rig_port[0]}"]
        conf["resolver"]["negative_ttl"] = "1s"
    rig_port = [free_port()]
    later = Origin("later", port=rig_port[0])
    rig = make_rig(change, prepare=lambda rig: rig.dns.rcode("later.test", "NXDOMAIN"))
    assert rig.get("/").status == 200
    client = rig.web()
    client.send(request("GET", "/b"))
    answer = client.read_response()
    check_own_answer(answer, 503)
    assert int(answer.one("Retry-After")) > 0
    assert rig.log.of(client)["reason"] in ("no_server", "dns_error")
    rig.dns.a("later.test", "127.0.0.1")
    wait_until(lambda: rig.get("/b").status == 200, timeout=8, what="the name resolves at last")
    later.close()


def test_respond_and_redirect(rig):
    answer = rig.get("/ping")
    assert (answer.status, answer.text, answer.one("Content-Type").partition(";")[0]) == (200, "pong\n", "text/plain")
    client = rig.web()
    answer = client.ask(request("HEAD", "/ping"), "HEAD")
    assert answer.status == 200 and answer.one("Content-Length") == "5"
    answer = client.ask(request("GET", "/old"))
    assert answer.status == 308 and answer.one("Location").endswith("/new")
    rig.a.assert_untouched()


# -- Unix sockets

def test_unix_upstream_and_listener(make_rig):
    """Both ends by path; the socket's mode is as configured and its file is gone after the end."""
    folder = tempfile.mkdtemp(prefix="culvert-unix-")
    os.chmod(folder, 0o755)
    origin = Origin("unix", path=f"{folder}/origin.sock")
    os.chmod(f"{folder}/origin.sock", 0o666)

    def change(conf, port):
        conf["upstreams"]["app"]["servers"] = [origin.url]
        conf["listeners"].append({"name": "local", "bind": f"unix:{folder}/web.sock", "mode": "0660", "serve": "web"})
    rig = make_rig(change)
    client = rig.client(f"{folder}/web.sock")
    assert client.ask(request("GET", "/u")).text == "unix GET /u\n"
    assert os.stat(f"{folder}/web.sock").st_mode & 0o777 == 0o660
    rig.stop()
    assert not os.path.exists(f"{folder}/web.sock")
    origin.close()
    os.unlink(f"{folder}/origin.sock")
    os.rmdir(folder)


# -- the log of an ordinary request

def test_access_log_of_a_request(rig):
    rig.get("/warm")
    client = rig.web()
    answer = client.ask(request("POST", "/b/x?q=1", body=b"hello",
                                fields=["User-Agent: agent/1", "Referer: http://r/"]))
    entry = rig.log.of(client)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["time"])
    expected = {"kind": "request", "listener": "web", "site": "main", "route": "b", "method": "POST", "scheme": "http",
                "target": "/b/x?q=1", "status": 200, "upstream_status": 200, "upstream": "b", "attempts": 1,
                "complete": True, "user_agent": "agent/1", "referer": "http://r/", "peer": f"127.0.0.1:{client.port}",
                "address": rig.b.authority, "reused": False}
    assert {k: entry.get(k) for k in expected} == expected
    assert entry["proto"] == "HTTP/1.1" and entry["host"].startswith("web.test")
    assert entry["bytes_out"] >= len(answer.body) and entry["bytes_in"] >= 5
    for name in ("first_byte_ms", "total_ms", "connect_ms"):
        assert 0 <= entry[name] < 10000
    assert entry["first_byte_ms"] <= entry["total_ms"]
    again = rig.web()
    again.ask(request("GET", "/b/y"))
    second = rig.log.of(again)
    assert second["reused"] is True and second["request_id"] != entry["request_id"]
    assert second["conn_id"] != entry["conn_id"]


def test_request_metrics(rig):
    before = rig.metrics()
    for target in ("/", "/", "/ping", "/admin"):
        rig.get(target)

    def counted(now):
        def grew(**labels):
            return now.value("culvert_requests_total", **labels) - before.value("culvert_requests_total", **labels)
        return grew(listener="web", site="main", route="rest", code="2xx") == 2 and \
            grew(listener="web", site="main", route="admin", code="4xx") == 1 and \
            grew(listener="web", site="main", route="main", code="2xx") == 1
    rig.culvert.wait_metric(counted, "requests counted by route and class")
    after = rig.metrics()
    assert after.value("culvert_request_duration_seconds_count", listener="web") \
        - before.value("culvert_request_duration_seconds_count", listener="web") == 4
    assert after.value("culvert_upstream_connects_total", upstream="app") \
        > before.value("culvert_upstream_connects_total", upstream="app")


def test_the_back_end_that_was_asked_for(rig):
    assert rig.metrics().value("culvert_build_info", io=rig.io) == 1


# -- two shards

def two_workers(conf, port):
    conf["workers"] = 2


two = shared_rig(two_workers)


@pytest.mark.multishard
def test_two_shards_serve(two):
    """Many connections: both shards take part, every answer is right."""
    clients = [two.web() for _ in range(64)]
    for i, client in enumerate(clients):
        client.send(request("GET", f"/{i}"))
    for i, client in enumerate(clients):
        assert client.read_response().text == f"a GET /{i}\n"
    shards = {two.log.of(client)["shard"] for client in clients}
    assert len(shards) == 2, shards


@pytest.mark.multishard
def test_two_shards_share_counters(two):
    before = two.metrics().value("culvert_requests_total", listener="web")
    for _ in range(40):
        assert two.get("/").status == 200
    two.culvert.wait_metric(lambda m: m.value("culvert_requests_total", listener="web") - before == 40,
                            "the sum of both shards")


@pytest.mark.multishard
def test_two_shards_tunnels_and_uploads(two):
    two.a.on(answer_hash)
    body = bytes(range(256)) * 4096
    expected = f"{len(body)} {hashlib.sha256(body).hexdigest()}"
    clients = [two.web() for _ in range(8)] + [two.fwd() for _ in range(8)]
    for client in clients[8:]:
        assert client.connect(two.a.authority).status == 200
    for client in clients:
        client.send_behind(request("POST", "/up", body=body))
    assert [client.read_response().text for client in clients] == [expected] * 16


@pytest.mark.multishard
def test_two_shards_aborts(two):
    """Clients that go away in the middle, on both shards, while others are served."""
    two.a.on(lambda conn: answer_ok(conn) if b"/good" in conn.peek_head() else answer_never(conn))
    for i in range(40):
        client = two.web()
        client.send(request("GET", "/never"))
        client.rst()
        assert two.get("/good").status == 200
    two.culvert.wait_metric(lambda m: m.value("culvert_connections", listener="web", state="active") == 0,
                            "all are gone")


@pytest.mark.multishard
def test_two_shards_round_robin_together(two):
    got = [two.get("/pair").one("X-Origin") for _ in range(40)]
    assert 10 <= got.count("a") <= 30

