"""O01-O15, O17, O18: what goes wrong at the server.

`quick` has short deadlines for a server that stalls. A cut is always visible to the client: a missing
last chunk, a missing rest of Content-Length, or RST; and `complete` is false in the log.
"""

import hashlib
import threading
import time

import pytest

from harness import websocket
from harness.client import Eof, chunked, request
from harness.fixtures import shared_rig
from harness.net import BlackHole, free_port, wait_until
from harness.origin import Origin, answer_hash, answer_never, answer_ok, answer_raw
from harness.rig import check_own_answer

OK = b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nok"
MIB = 1 << 20


def short_deadlines(conf, port):
    conf["timeouts"] = {"connect": "500ms", "first_byte": "500ms", "response_idle": "500ms", "request_idle": "500ms",
                        "send_idle": "1s"}


quick = shared_rig(short_deadlines)


def failed(rig, client, status, *reasons):
    """culvert's own answer, and its reason in the log."""
    answer = client.read_response()
    check_own_answer(answer, status)
    entry = rig.log.of(client)
    assert entry["status"] == status and entry["reason"] in reasons, str(entry)
    return entry


def cut(rig, client, *reasons, method="GET"):
    """The client sees that its answer is not whole; so does the log."""
    answer = client.read_cut(method)
    entry = rig.log.of(client)
    assert entry["complete"] is False and entry["reason"] in reasons, str(entry)
    return answer


# -- O01: early final answer

def early(how, status=404):
    def script(conn):
        conn.remember(conn.read_head())
        conn.send(f"HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\nearly")
        if how == "stays":
            conn.released.wait(20)      # reads nothing more
            conn.close()
        elif how == "reads":
            conn.wait_end()
        elif how == "closes":
            conn.half_close()
            conn.wait_end()
        elif how == "closes_unread":
            conn.close()
        else:
            conn.rst()
    return script


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("how", ["stays", "reads", "closes", "closes_unread", "rst"])
def test_o01_early_answer(door, how, framing):
    """Delivered whole while half of the 2 MiB is still to come; that connection is never used again."""
    rig = door.rig
    rig.a.on_conns(early(how), answer_ok)
    half = b"x" * MIB
    client = door.client()
    if framing == "length":
        client.send_behind(door.head("POST", "/up", f"Content-Length: {2 * MIB}") + half)
    else:
        client.send_behind(door.head("POST", "/up", "Transfer-Encoding: chunked") + chunked(half, last=False))
    answer = client.read_response()
    assert (answer.status, answer.body) == (404, b"early")
    client.try_send(half if framing == "length" else chunked(half))
    assert rig.log.of(client)["status"] == 404
    assert door.get("/next").text == "a GET /next\n"
    assert len(rig.a.conns) == 2


def test_o01_early_answer_then_the_client_side_is_usable_or_closed(web):
    """A small body that was all sent: its rest is never taken for a request."""
    web.rig.a.on_conns(early("stays"), answer_ok)
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: web.test\r\n\r\n"
    client = web.client()
    client.send(web.head("POST", "/up", f"Content-Length: {len(smuggled) + 100}"))
    assert client.read_response().status == 404
    client.try_send(smuggled + b"x" * 100)
    data, _ = client.drain_to_close() if not client.is_open() else (b"", None)
    assert b"HTTP/1.1 200" not in data
    assert all("smuggled" not in r.target for r in web.rig.a.requests)


# -- O02: keep-alive race

def serve_then_die(conn):
    """The first request is answered; the second is read, and the connection ends without a byte."""
    if conn.requests:
        conn.read_request()
        conn.close()
    else:
        answer_ok(conn)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_o02_idempotent_is_sent_again(door, method):
    """Silently, on a fresh connection (RFC 9110 section 9.2.2)."""
    rig = door.rig
    rig.a.on_conns(serve_then_die, answer_ok)
    assert door.get("/1").status == 200
    client = door.client()
    client.send(door.head(method, "/2"))
    answer = client.read_response(method)
    assert answer.status == 200
    assert [r.target for r in rig.a.requests] == ["/1", "/2", "/2"]
    assert rig.log.of(client)["status"] == 200


def test_o02_get_again_when_reset(door):
    def die(conn):
        if conn.requests:
            conn.read_request()
            conn.rst()
        else:
            answer_ok(conn)
    door.rig.a.on_conns(die, answer_ok)
    assert door.get("/1").status == 200
    assert door.get("/2").text == "a GET /2\n"


def test_o02_post_is_not_sent_again(door):
    """The origin has read it: it may have acted on it."""
    rig = door.rig
    rig.a.on_conns(serve_then_die, answer_ok)
    assert door.get("/1").status == 200
    client = door.client()
    client.send(door.head("POST", "/2", "Content-Length: 5") + b"hello")
    failed(rig, client, 502, "connection_terminated")
    assert [r.target for r in rig.a.requests] == ["/1", "/2"]


def test_o02_idle_connection_that_ended_is_not_used(door):
    """Closed by the origin while idle: even a POST goes well, on a new connection."""
    rig = door.rig
    rig.a.on_conns(answer_raw(OK, "fin"), answer_ok)
    assert door.get("/1").status == 200
    rig.a.conns[0].wait_ended()
    client = door.client()
    assert client.ask(door.head("POST", "/2", "Content-Length: 5") + b"hello").status == 200


def test_o02_dying_first_connection_is_no_race(door):
    """A fresh connection that dies without an answer: 502, sent once."""
    rig = door.rig
    rig.a.on(lambda conn: (conn.read_request(), conn.close()))
    client = door.client()
    client.send(door.head("GET", "/"))
    failed(rig, client, 502, "connection_terminated")
    assert len(rig.a.requests) == 1


def test_o02_half_a_head(door):
    rig = door.rig
    rig.a.on_raw(b"HTTP/1.1 200 X\r\nContent-Le", "close")
    client = door.client()
    client.send(door.head("GET", "/"))
    failed(rig, client, 502, "connection_terminated", "http_response_incomplete", "http_protocol_error")


def test_o02_connections_are_reused(door):
    for i in range(5):
        assert door.get(f"/{i}").status == 200
    assert len(door.rig.a.conns) == 1
    client = door.client()
    client.ask(door.head("GET", "/x"))
    assert door.rig.log.of(client)["reused"] is True


# -- O03: half-close

def test_o03_request_and_fin(door):
    """The answer is delivered."""
    def script(conn):
        conn.read_request()
        conn.released.wait(0.1)
        conn.respond(200, "after the FIN")
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/")).half_close()
    assert client.read_response().text == "after the FIN"
    client.expect_eof()
    assert door.rig.log.of(client)["complete"] is True


def test_o03_body_and_fin(door):
    client = door.client()
    client.send(door.head("POST", "/", "Content-Length: 5") + b"hello").half_close()
    assert client.read_response().status == 200


def test_o03_pipelined_and_fin(door):
    client = door.client()
    client.send(door.head("GET", "/1") + door.head("GET", "/2")).half_close()
    assert [client.read_response().text for _ in range(2)] == ["a GET /1\n", "a GET /2\n"]
    client.expect_eof()


def test_o03_tunnel_client_half_closes(fwd):
    def script(conn):
        data = conn.read_to_end()
        conn.send(b"got " + data)
        conn.close()
    fwd.rig.a.on(script)
    client = fwd.client()
    client.connect(fwd.rig.a.authority)
    client.send(b"upward").half_close()
    assert client.read_to_end() == b"got upward"
    assert fwd.rig.log.of(client)["kind"] == "tunnel"


def test_o03_tunnel_origin_half_closes(fwd):
    """The origin ends its direction while the client still sends."""
    got = []

    def script(conn):
        conn.read_exactly(5)
        conn.send(b"bye")
        conn.half_close()
        got.append(conn.read_to_end())
    fwd.rig.a.on(script)
    client = fwd.client()
    client.connect(fwd.rig.a.authority)
    client.send(b"hello")
    assert client.read_to_end() == b"bye"
    client.send(b"still" * 1000).half_close()
    wait_until(lambda: got, what="the rest of the upload")
    assert got == [b"still" * 1000]


def aborting(conf, port):
    conf["client_half_close"] = "abort"


abort_rig = shared_rig(aborting)


def test_o03_half_close_as_abort(abort_rig):
    abort_rig.a.on(answer_never)
    client = abort_rig.web()
    client.send(request())
    abort_rig.a.wait_received(b"\r\n\r\n")
    client.half_close()
    client.drain_to_close()
    entry = abort_rig.log.of(client)
    assert entry["status"] == 499 and entry["reason"] == "client_abort", str(entry)
    abort_rig.a.conns[0].wait_ended()


# -- O04, O05: resets

@pytest.mark.parametrize("how", ["rst", "close"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_o04_cut_in_the_body(door, framing, how):
    if framing == "length":
        raw = b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n" + b"x" * 50
    else:
        raw = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 50, last=False)

    def script(conn):
        conn.read_request()
        conn.send(raw)
        conn.origin.release.wait(5)
        conn.rst() if how == "rst" else conn.close()
    door.rig.a.release = threading.Event()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    head = client.read_final_head()
    door.rig.a.release.set()
    with pytest.raises(Eof):
        client.read_response_body(head, "GET")
    entry = door.rig.log.of(client)
    assert entry["status"] == 200 and entry["complete"] is False
    assert entry["reason"] == "http_response_incomplete", str(entry)


def test_o04_reset_of_a_close_delimited_answer(door):
    """Its end would be invisible: the client must see RST, or no last chunk."""
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\n\r\npart")
        conn.origin.release.wait(5)
        conn.rst()
    door.rig.a.release = threading.Event()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    head = client.read_final_head()
    door.rig.a.release.set()
    with pytest.raises(Eof):
        client.read_response_body(head, "GET")
    assert door.rig.log.of(client)["complete"] is False


def test_o04_reset_of_a_close_delimited_answer_to_http10(door):
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
        conn.origin.release.wait(5)
        conn.rst()
    door.rig.a.release = threading.Event()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/", version="HTTP/1.0"))
    client.read_final_head()
    door.rig.a.release.set()
    assert client.drain_to_close()[1] == "rst"


def test_o05_answer_then_rst_unread(door):
    """The whole answer came before the reset: it is delivered."""
    def script(conn):
        conn.peek_head()
        conn.remember(None)
        conn.send(OK)
        conn.rst()
    door.rig.a.on(script)
    for _ in range(20):
        client = door.client()
        client.send(door.head("GET", "/"))
        answer = client.read_response()
        assert (answer.status, answer.body) == (200, b"ok")
        client.close()


# -- O06: interim answers

def test_o06_in_order(door):
    door.rig.a.on_raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX: 1\r\n\r\n"
                      b"HTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n" + OK)
    client = door.client()
    answer = client.ask(door.head("GET", "/"))
    assert answer.body == b"ok"
    statuses = [i.status for i in answer.interims]
    # The 100 was not asked for: it may be left out.
    assert statuses in ([100, 103, 103], [103, 103])
    assert [i.one("Link") for i in answer.interims if i.status == 103] == ["</a>", "</b>"]
    assert answer.one("Link") is None


def test_o06_each_at_once(door):
    """An interim answer does not wait for the final one."""
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        conn.origin.release.wait(5)
        conn.send(OK)
    door.rig.a.release = threading.Event()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    assert client.read_head().status == 103
    door.rig.a.release.set()
    assert client.read_response().body == b"ok"


def test_o06_hundred_pass(door):
    door.rig.a.on_raw(b"HTTP/1.1 103 X\r\n\r\n" * 100 + OK)
    answer = door.get("/")
    assert answer.status == 200 and len(answer.interims) == 100


@pytest.mark.parametrize("n", [101, 20000])
def test_o06_too_many(door, n):
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 103 X\r\n\r\n" * n + OK)
        conn.wait_end()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    answer = client.read_response()
    check_own_answer(answer, 502)
    assert len(answer.interims) <= 100
    assert door.rig.log.of(client)["reason"] == "http_protocol_error"
    door.rig.a.conns[0].wait_ended()


def test_o06_interim_with_framing_fields(door):
    """They mean nothing there, are not sent on, and no body is read (RFC 9112 section 6.3)."""
    door.rig.a.on_raw(b"HTTP/1.1 103 X\r\nContent-Length: 5\r\nLink: </a>\r\n\r\n" + OK)
    client = door.client()
    client.send(door.head("GET", "/"))
    answer = client.read_response()
    assert answer.status == 502 or answer.body == b"ok"


def test_o06_unasked_101(door):
    door.rig.a.on_raw(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nraw" + OK)
    client = door.client()
    client.send(door.head("GET", "/"))
    check_own_answer(client.read_response(), 502)
    assert b"raw" not in client.received
    door.rig.a.conns[0].wait_ended()


def test_o06_interims_for_http10_clients_are_dropped(door):
    door.rig.a.on_raw(b"HTTP/1.1 103 X\r\n\r\n" + OK)
    client = door.client()
    answer = client.ask(door.head("GET", "/", version="HTTP/1.0"))
    assert answer.status == 200 and not answer.interims


# -- O07: answers without a body

NO_BODY = {
    "head_chunked": ("HEAD", b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "head_length": ("HEAD", b"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n"),
    "304_length": ("GET", b"HTTP/1.1 304 X\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n"),
    "304_chunked": ("GET", b"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "204_length": ("GET", b"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n"),
    "204_plain": ("GET", b"HTTP/1.1 204 X\r\n\r\n"),
    "head_404": ("HEAD", b"HTTP/1.1 404 X\r\nContent-Length: 1000000\r\n\r\n"),
    "205_zero": ("GET", b"HTTP/1.1 205 X\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("method,raw", NO_BODY.values(), ids=NO_BODY.keys())
def test_o07_no_body(door, method, raw):
    """And the next answer on both connections is read from its start."""
    door.rig.a.on(lambda conn: answer_ok(conn) if conn.requests else answer_raw(raw)(conn))
    client = door.client()
    answer = client.ask(door.head(method, "/"), method)
    assert answer.status == int(raw.split()[1]) and answer.body == b""
    if method == "HEAD" and b"Content-Length" in raw:
        assert answer.one("Content-Length") == raw.partition(b"Length: ")[2].split()[0].decode()
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


def test_o07_body_after_204(door):
    """Bytes that belong to nothing: dropped with the connection, never the start of the next answer."""
    door.rig.a.on_conns(answer_raw(b"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\nhello"), answer_ok)
    client = door.client()
    assert client.ask(door.head("GET", "/")).status == 204
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


def test_o07_body_after_head(door):
    door.rig.a.on_conns(answer_raw(b"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nhello"), answer_ok)
    client = door.client()
    assert client.ask(door.head("HEAD", "/"), "HEAD").status == 200
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


# -- O08: more than the answer

@pytest.mark.parametrize("raw", [b"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nhello" + b"more",
                                 OK + b"HTTP/1.1 200 X\r\nContent-Length: 6\r\n\r\nPOISON",
                                 b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore"])
def test_o08_extra_bytes(door, raw):
    door.rig.a.on_conns(answer_raw(raw), answer_ok)
    assert door.get("/1").body in (b"hello", b"ok")
    assert door.get("/2").text == "a GET /2\n"
    assert len(door.rig.a.conns) == 2
    door.rig.a.conns[0].wait_ended()


def test_o08_bytes_on_an_idle_connection(door):
    """Whatever comes while nobody asked ends the connection; the next client gets its own answer."""
    door.rig.a.on_conns(answer_ok, answer_ok)
    assert door.get("/1").status == 200
    first = door.rig.a.conns[0]
    first.send(b"HTTP/1.1 200 X\r\nContent-Length: 6\r\n\r\nPOISON")
    first.wait_ended()
    assert door.get("/2").text == "a GET /2\n"
    assert len(door.rig.a.conns) == 2


def test_o08_408_on_an_idle_connection(door):
    """As some servers do when they end an idle connection."""
    assert door.get("/1").status == 200
    first = door.rig.a.conns[0]
    first.send(b"HTTP/1.1 408 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").half_close()
    first.wait_ended()
    assert door.get("/2").text == "a GET /2\n"


# -- O09: junk

JUNK = [b"HTTP/1.1 2000 X\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 99 X\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/2 200 X\r\nContent-Length: 2\r\n\r\nok", b"HTTP/2.0 200 X\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 X\nContent-Length: 2\n\nok", b"HTTP/1.1 20x X\r\n\r\n", b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 -200 X\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 \r\n\r\n",
        b"hello world, this is HTTP/0.9\r\n\r\n", b"ICY 200 OK\r\n\r\n", b"\r\n\r\n\r\n", b"\0\0\0\0\0\0\r\n\r\n",
        b"HTTP/1.1 200 X\0\r\n\r\n", b"HTTP/1.1 200 X\r\nbad line\r\n\r\n", b"http/1.1 200 X\r\n\r\n",
        b"HTTP/1.1  200 X\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200\tX\r\n\r\n", b"HTTP/1.1 000 X\r\n\r\n"]


@pytest.mark.parametrize("raw", JUNK, ids=[str(i) for i in range(len(JUNK))])
def test_o09_junk(door, raw):
    def script(conn):
        conn.read_request()
        conn.send(raw)
        conn.half_close()
        conn.wait_end()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    failed(door.rig, client, 502, "http_protocol_error")
    door.rig.a.conns[0].wait_ended()


@pytest.mark.parametrize("raw,reason", [(b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok", ""),
                                        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", ""),
                                        (b"HTTP/1.1 299 Caf\xe9\r\nContent-Length: 2\r\n\r\nok", None)])
def test_o09_reason_phrase(door, raw, reason):
    """Without a reason: valid. Without even the space: so common that it is accepted."""
    door.rig.a.on_raw(raw)
    answer = door.get("/")
    assert answer.status == int(raw[9:12]) and answer.body == b"ok"


def test_o09_split_status_line(door):
    def script(conn):
        conn.read_request()
        for i in range(len(OK)):
            conn.send(OK[i:i + 1])
    door.rig.a.on(script)
    assert door.get("/").body == b"ok"


@pytest.mark.parametrize("raw", [b"HTTP/1.1 200 X\r\nX: " + b"x" * MIB, b"HTTP/1.1 200 " + b"x" * MIB,
                                 b"HTTP/1.1 200 X\r\n" + b"X: yyyyyyyy\r\n" * 100000], ids=["value", "reason", "count"])
def test_o09_huge_head(door, raw):
    def script(conn):
        conn.read_request()
        conn.send(raw + b"\r\n\r\n")
        conn.wait_end()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    failed(door.rig, client, 502, "response_head_too_large", "http_protocol_error")
    door.rig.a.conns[0].wait_ended()


def test_o09_unknown_status_passes(door):
    door.rig.a.on_raw(b"HTTP/1.1 599 X\r\nContent-Length: 2\r\n\r\nok")
    assert door.get("/").status == 599


# -- O10: framing conflicts (more in test_a_responses.py)

@pytest.mark.parametrize("lines", [b"Content-Length: 2\r\nTransfer-Encoding: chunked",
                                   b"Content-Length: 2\r\nContent-Length: 3",
                                   b"Transfer-Encoding: gzip", b"X: a\r\n b"])
def test_o10_conflicts(door, lines):
    door.rig.a.on_raw(b"HTTP/1.1 200 X\r\n" + lines + b"\r\n\r\nok")
    client = door.client()
    client.send(door.head("GET", "/"))
    failed(door.rig, client, 502, "http_protocol_error")
    door.rig.a.conns[0].wait_ended()


def test_o10_conflict_in_an_error_answer(door):
    door.rig.a.on_raw(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    client = door.client()
    client.send(door.head("GET", "/"))
    failed(door.rig, client, 502, "http_protocol_error")


# -- O11: close-delimited

@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("body", [b"", b"hello", b"x" * 300000], ids=["empty", "small", "large"])
def test_o11_close_delimited(door, version, body):
    """Chunked towards a 1.1 client, whose connection goes on."""
    door.rig.a.on_conns(answer_raw(f"{version} 200 X\r\n\r\n".encode() + body, "close"), answer_ok)
    client = door.client()
    answer = client.ask(door.head("GET", "/"))
    assert answer.framing == "chunked" and answer.body == body
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


def test_o11_close_delimited_to_http10(door):
    door.rig.a.on_raw(b"HTTP/1.0 200 X\r\n\r\nhello", "close")
    client = door.client()
    answer = client.ask(door.head("GET", "/", version="HTTP/1.0"))
    assert answer.framing == "close" and answer.body == b"hello"


def test_o11_http10_server_is_answered_as_11(door):
    door.rig.a.on_raw(b"HTTP/1.0 200 X\r\nContent-Length: 2\r\n\r\nok", "close")
    answer = door.get("/")
    assert answer.version == "HTTP/1.1" and answer.body == b"ok"


def test_o11_http10_server_is_not_reused_without_keep_alive(door):
    door.rig.a.on_conns(answer_raw(b"HTTP/1.0 200 X\r\nContent-Length: 2\r\n\r\nok"), answer_ok)
    assert door.get("/1").body == b"ok"
    assert door.get("/2").text == "a GET /2\n"
    assert len(door.rig.a.conns) == 2


def test_o11_connection_close_of_the_server(door):
    door.rig.a.on_conns(answer_raw(b"HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), answer_ok)
    client = door.client()
    assert client.ask(door.head("GET", "/1")).body == b"ok"
    assert client.ask(door.head("GET", "/2")).text == "a GET /2\n"
    assert len(door.rig.a.conns) == 2


# -- O12: endless

def test_o12_no_answer(quick):
    quick.a.on(answer_never)
    client = quick.web()
    client.send(request())
    entry = failed(quick, client, 504, "http_response_timeout")
    assert 400 < entry["total_ms"] < 5000
    quick.a.conns[0].wait_ended()


def test_o12_no_answer_after_interim(quick):
    quick.a.on_raw(b"HTTP/1.1 103 X\r\n\r\n")
    client = quick.web()
    client.send(request())
    failed(quick, client, 504, "http_response_timeout")


def test_o12_head_for_ever(quick):
    """A byte now and then does not help: the head as a whole has its deadline."""
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nX: ")
        while not conn.released.wait(0.1):
            conn.send(b"x")
    quick.a.on(script)
    client = quick.web()
    client.send(request())
    failed(quick, client, 504, "http_response_timeout", "response_idle")
    quick.a.conns[0].wait_ended()


@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_o12_body_stalls(quick, framing):
    quick.a.on_raw(b"HTTP/1.1 200 X\r\n" + framing + b"\r\n\r\n"
                   + (b"5\r\nhello\r\n" if b"chunked" in framing else b"hello"))
    client = quick.web()
    client.send(request())
    cut(quick, client, "response_idle")
    quick.a.conns[0].wait_ended()


def test_o12_slow_body_lives(quick):
    """Bytes keep coming within the limit: the answer may take as long as it takes."""
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nContent-Length: 8\r\n\r\n")
        for _ in range(8):
            conn.released.wait(0.15)
            conn.send(b"x")
    quick.a.on(script)
    assert quick.get("/").body == b"x" * 8


def test_o12_total(make_rig):
    """`total` cuts what never stalls and never ends."""
    def change(conf, port):
        conf["timeouts"] = {"total": "700ms"}
    rig = make_rig(change)

    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not conn.released.wait(0.05):
            conn.send(b"1\r\nx\r\n")
    rig.a.on(script)
    client = rig.web()
    client.send(request())
    cut(rig, client, "total_timeout")
    rig.a.conns[0].wait_ended()


def test_o12_event_stream_may_be_silent(quick):
    """text/event-stream has tunnel_idle, not response_idle."""
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        conn.send(chunked(b"data: 1\n\n", last=False))
        conn.released.wait(1.2)
        conn.send(chunked(b"data: 2\n\n"))
    quick.a.on(script)
    client = quick.web()
    client.send(request())
    head = client.read_final_head()
    assert client.read_line() == b"9" and client.read_exactly(11) == b"data: 1\n\n\r\n", "held back"
    client.read_response_body(head, "GET")
    assert head.body == b"data: 2\n\n"


# -- O13: retries

def dead_first(conf, port):
    """Upstream pair: one server that refuses, one that lives; each request starts afresh."""
    conf["upstreams"]["pair"]["servers"][0] = f"http://127.0.0.1:{port('dead')}"
    conf["upstreams"]["pair"]["eject"] = {"failures": "off"}
    conf["upstreams"]["app"] = {"servers": [f"http://127.0.0.1:{port('dead')}"]}


half_dead = shared_rig(dead_first)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH"])
def test_o13_next_server_when_refused(half_dead, method):
    """No byte was sent: any method may go to the other server. The counters say so."""
    body = b"hello" if method != "GET" else None
    before = half_dead.metrics().value("culvert_retries_total", upstream="pair")
    attempts = []
    for _ in range(4):
        client = half_dead.web()
        answer = client.ask(request(method, "/pair", body=body))
        assert answer.one("X-Origin") == "b"
        attempts.append(half_dead.log.of(client)["attempts"])
    assert sorted(set(attempts)) in ([1, 2], [2]), attempts
    assert half_dead.metrics().value("culvert_retries_total", upstream="pair") > before
    assert len(half_dead.b.requests) == 4
    assert all(r.body == (body or b"") for r in half_dead.b.requests)


def test_o13_large_body_after_a_refusal(half_dead):
    """The body is only taken when a server stands: it arrives whole at the second."""
    half_dead.b.on(answer_hash)
    body = bytes(range(256)) * 8192
    for _ in range(2):
        client = half_dead.web()
        client.send_behind(request("POST", "/pair", body=body))
        assert client.read_response().text == f"{len(body)} {hashlib.sha256(body).hexdigest()}"


def test_o13_all_refuse(half_dead):
    client = half_dead.web()
    client.send(request("POST", "/", body=b"hello"))
    entry = failed(half_dead, client, 502, "connection_refused")
    assert entry["attempts"] == 1


def test_o13_no_retry_once_sent(rig):
    """The server read the request and died: another one is not asked, its counters are not touched."""
    for origin in (rig.a, rig.b):
        origin.on(lambda conn: (conn.read_request(), conn.close()))
    client = rig.web()
    client.send(request("POST", "/pair", body=b"x"))
    failed(rig, client, 502, "connection_terminated")
    assert len(rig.a.requests) + len(rig.b.requests) == 1


def test_o13_no_retry_after_an_error_answer(rig):
    """A 503 of a server is an answer."""
    for origin in (rig.a, rig.b):
        origin.on_raw(b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\nno")
    answer = rig.get("/pair")
    assert answer.status == 503 and answer.body == b"no"
    assert len(rig.a.requests) + len(rig.b.requests) == 1


def test_o13_dead_server_is_ejected(make_rig):
    def change(conf, port):
        conf["upstreams"]["pair"]["servers"][0] = f"http://127.0.0.1:{port('dead')}"
        conf["upstreams"]["pair"]["eject"] = {"failures": 3, "time": "60s"}
    rig = make_rig(change)
    for _ in range(20):
        assert rig.get("/pair").one("X-Origin") == "b"
    dead = f"127.0.0.1:{rig.port['dead']}"
    up = {labels["server"]: value for name, labels, value in rig.metrics().samples
          if name == "culvert_upstream_server_up" and labels["upstream"] == "pair"}
    assert [value for server, value in up.items() if dead in server] == [0]
    assert rig.metrics().value("culvert_retries_total", upstream="pair") <= 4


def test_o13_never_ejects_the_last_server(half_dead):
    """Single server that refuses: always 502 of it, never "no server"; back at once when it listens again."""
    for _ in range(6):
        client = half_dead.web()
        client.send(request())
        failed(half_dead, client, 502, "connection_refused")


# -- O14: client aborts

def expect_499(rig, client):
    entry = rig.log.of(client)
    assert entry["status"] == 499 and entry["reason"] == "client_abort" and entry["complete"] is False, str(entry)
    return entry


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_o14_rst_while_waiting(door, method):
    rig = door.rig
    rig.a.on(answer_never)
    client = door.client()
    body = b"Content-Length: 3\r\n\r\nabc" if method == "POST" else b"\r\n"
    client.send(door.head(method, "/")[:-2] + body)
    rig.a.wait_received(b"\r\n\r\n")
    client.rst()
    rig.a.conns[0].wait_ended()
    expect_499(rig, client)


@pytest.mark.parametrize("how", ["rst", "fin"])
@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_o14_inside_a_request_body(door, framing, how):
    """FIN inside a request is an abort too; the origin never takes what it got for whole."""
    rig = door.rig
    rig.a.on(answer_never)
    client = door.client()
    client.send(door.head("POST", "/", framing) + (b"3\r\nabc\r\n" if "chunked" in framing else b"abc"))
    rig.a.wait_received(b"abc")
    client.rst() if how == "rst" else client.half_close()
    rig.a.conns[0].wait_ended()
    assert not rig.a.received.endswith(b"0\r\n\r\n")
    expect_499(rig, client)


def test_o14_inside_a_head(door):
    client = door.client()
    client.send(door.head("GET", "/")[:-4])
    client.half_close()
    client.drain_to_close()
    entry = door.rig.log.of(client)
    assert entry["reason"] == "client_abort", str(entry)
    door.rig.a.assert_untouched()


def test_o14_while_streaming(door):
    """The client goes while the answer flows: the origin is told."""
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not conn.released.is_set():
            conn.send(b"400\r\n" + b"x" * 1024 + b"\r\n")
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/"))
    client.read_final_head()
    client.rst()
    wait_until(lambda: door.rig.a.conns[0].done.is_set(), what="the origin's connection ends")
    entry = door.rig.log.of(client)
    assert entry["complete"] is False and entry["reason"] == "client_abort", str(entry)
    assert entry["status"] in (200, 499)


def test_o14_while_connecting(make_rig):
    hole = BlackHole()

    def change(conf, port):
        conf["upstreams"]["app"]["servers"] = [hole.url]
    rig = make_rig(change)
    client = rig.web()
    client.send(request())
    rig.culvert.wait_metric(lambda m: m.value("culvert_connections", listener="web", state="active") == 1,
                            "an active request")
    client.rst()
    expect_499(rig, client)
    rig.culvert.wait_metric(lambda m: m.value("culvert_connections", listener="web", state="active") == 0,
                            "it is gone")
    hole.close()


def test_o14_connect_while_connecting(make_rig):
    hole = BlackHole()

    def change(conf, port):
        conf["forward"]["allow_ports"].append(hole.port)
    rig = make_rig(change)
    client = rig.fwd()
    client.send(f"CONNECT 127.0.0.1:{hole.port} HTTP/1.1\r\nHost: x\r\n\r\n")
    rig.culvert.wait_metric(lambda m: m.value("culvert_connections", listener="fwd", state="active") == 1,
                            "an active request")
    client.rst()
    expect_499(rig, client)
    hole.close()


def test_o14_while_resolving(rig):
    rig.dns.silent("slow.test")
    client = rig.fwd()
    client.send(f"GET http://slow.test:{rig.a.port}/ HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: rig.dns.count("slow.test"), what="the question")
    client.rst()
    expect_499(rig, client)


def test_o14_rst_at_once(rig):
    """A reset in any phase, often before the server's connection stands: nothing is left over."""
    rig.a.on(lambda conn: answer_ok(conn) if b"/good" in conn.peek_head() else answer_never(conn))
    for n in range(60):
        client = rig.web()
        client.send(request("GET", "/never"))
        if n % 3 == 0:
            assert rig.get("/good").status == 200
        client.rst()
    rig.culvert.wait_metric(lambda m: m.value("culvert_connections", listener="web", state="active") == 0,
                            "all are gone")
    assert rig.get("/good").status == 200


def test_o14_never_counts_against_the_server(make_rig):
    """However many clients go, the server stays."""
    rig = make_rig()
    rig.a.on(answer_never)
    for n in range(8):
        client = rig.web()
        client.send(request())
        wait_until(lambda: len(rig.a.conns) > n, what="the request at the server")
        client.rst()
        rig.log.of(client)
    assert rig.metrics().value("culvert_upstream_server_up", upstream="app") == 1
    rig.a.on(answer_ok)
    assert rig.get("/").status == 200


def test_o14_pipelined_rest_is_not_started(door):
    rig = door.rig
    rig.a.on(answer_never)
    client = door.client()
    client.send(door.head("GET", "/1") + door.head("GET", "/2"))
    rig.a.wait_received(b"\r\n\r\n")
    client.rst()
    rig.a.conns[0].wait_ended()
    expect_499(rig, client)
    assert b"/2" not in rig.a.received


# -- connect failures

def test_o_connect_refused_forward(make_rig):
    dead = free_port()

    def change(conf, port):
        conf["forward"]["allow_ports"].append(dead)
    rig = make_rig(change)
    for head in (f"CONNECT 127.0.0.1:{dead}", f"GET http://127.0.0.1:{dead}/"):
        client = rig.fwd()
        client.send(f"{head} HTTP/1.1\r\nHost: x\r\n\r\n")
        failed(rig, client, 502, "connection_refused")


def test_o_connect_timeout(make_rig):
    hole = BlackHole()

    def change(conf, port):
        conf["timeouts"] = {"connect": "400ms"}
        conf["upstreams"]["app"]["servers"] = [hole.url]
        conf["forward"]["allow_ports"].append(hole.port)
    rig = make_rig(change)
    client = rig.web()
    client.send(request())
    failed(rig, client, 504, "connection_timeout")
    client = rig.fwd()
    client.send(f"CONNECT 127.0.0.1:{hole.port} HTTP/1.1\r\nHost: x\r\n\r\n")
    failed(rig, client, 504, "connection_timeout")
    hole.close()


@pytest.mark.parametrize("code,status,reason", [("NXDOMAIN", 502, "dns_error"), ("SERVFAIL", 502, "dns_error"),
                                                ("REFUSED", 502, "dns_error")])
def test_o_name_errors(fwd, code, status, reason):
    fwd.rig.dns.rcode(f"{code.lower()}.test", code)
    client = fwd.client()
    client.send(f"GET http://{code.lower()}.test:{fwd.rig.a.port}/ HTTP/1.1\r\nHost: x\r\n\r\n")
    failed(fwd.rig, client, status, reason)


# -- O15: back-pressure

STUCK = 24
# Marks of 64 KiB on the request's or answer's pipe and on what is being sent, one receive beyond each.
BOUND = STUCK * 600 * 1024


def memory_of(rig):
    """What culvert counts as held, and what the kernel says (a sanitizer's own memory is no measure)."""
    rig.get("/ping")
    return rig.metrics().value("culvert_memory_bytes"), 0 if rig.culvert.sanitized() else rig.culvert.rss()


def check_bounded(rig, base):
    """When nothing moves any more, only what the marks allow is held."""
    last = [base, time.monotonic()]

    def standstill():
        """Looking costs a little memory itself: what counts is a change of more than that."""
        now = memory_of(rig)
        if max(abs(a - b) for a, b in zip(now, last[0])) > 256 * 1024:
            last[:] = [now, time.monotonic()]
        return time.monotonic() - last[1] > 0.5
    wait_until(standstill, what="a standstill")
    grown = [now - before for now, before in zip(memory_of(rig), base)]
    assert max(grown) < BOUND, f"per connection (counted, resident): {[g // STUCK // 1024 for g in grown]} KiB"


@pytest.mark.slow
def test_o15_upload_faster_than_the_origin(make_rig):
    """While the origin reads nothing, culvert takes only what its marks allow; then all of it arrives."""
    rig = make_rig(origin=lambda name: Origin(name, rcvbuf=65536))
    go = threading.Event()

    def script(conn):
        conn.read_exactly(1)
        go.wait(20)
        conn.buf[:0] = b"P"
        answer_hash(conn)
    rig.a.on(script)
    body = bytes(range(256)) * 4 * 4096          # 4 MiB
    base = memory_of(rig)
    clients = [rig.web(sndbuf=65536) for _ in range(STUCK)]
    for client in clients:
        client.send_behind(request("POST", "/up", body=body))
    wait_until(lambda: len(rig.a.conns) == STUCK, what="all uploads at the origin")
    check_bounded(rig, base)
    go.set()
    expected = f"{len(body)} {hashlib.sha256(body).hexdigest()}"
    for client in clients:
        assert client.read_response().text == expected


@pytest.mark.slow
def test_o15_download_faster_than_the_client(make_rig):
    rig = make_rig()
    body = bytes(range(256)) * 4 * 4096
    digest = hashlib.sha256(body).hexdigest()
    rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, body)))
    base = memory_of(rig)
    clients = [rig.web(rcvbuf=16384) for _ in range(STUCK)]
    for client in clients:
        client.send(request("GET", "/down"))
    for client in clients:
        client.read_exactly(1)
        client.buf[:0] = b"H"
    check_bounded(rig, base)
    for client in clients:
        answer = client.read_response()
        assert hashlib.sha256(answer.body).hexdigest() == digest


@pytest.mark.slow
def test_o15_tunnel_both_ways_at_once(fwd):
    """Each side sends 8 MiB before it reads: a relay that waits for one direction would hang."""
    up, down = b"u" * (8 * MIB), b"d" * (8 * MIB)

    def script(conn):
        writer = threading.Thread(target=conn.send, args=(down,), daemon=True)
        writer.start()
        got = hashlib.sha256(conn.read_exactly(len(up)))
        writer.join()
        conn.send(got.hexdigest())
    fwd.rig.a.on(script)
    client = fwd.client()
    client.connect(fwd.rig.a.authority)
    client.send_behind(up)
    assert client.read_exactly(len(down)) == down
    assert client.read_exactly(64).decode() == hashlib.sha256(up).hexdigest()


def test_o15_slow_reader_is_cut_at_last(quick):
    """A client that takes nothing for send_idle."""
    body = b"x" * (32 * MIB)
    quick.a.on(lambda conn: (conn.read_request(), conn.respond(200, body)))
    client = quick.web(rcvbuf=4096)
    client.send(request())
    entry = quick.log.wait(lambda e: str(e["peer"]).endswith(f":{client.port}"), timeout=8)
    assert entry["reason"] == "send_idle" and entry["complete"] is False, str(entry)
    wait_until(lambda: quick.a.conns[0].done.is_set(), what="the origin's connection ends")


def read_head_only(conn):
    conn.remember(conn.read_head())
    conn.released.wait(20)


def test_o15_server_that_takes_nothing(quick):
    """A server that takes no more of a request for send_idle: 504, with a reason of its own."""
    quick.a.on_conns(read_head_only, answer_ok)
    client = quick.web()
    sender = client.send_behind(request("POST", body=b"x" * (32 * MIB)))
    entry = failed(quick, client, 504, "connection_write_timeout")
    assert entry["complete"] is True and entry["attempts"] == 1, str(entry)
    client.close()
    sender.join()


# -- O17: refused upgrade

@pytest.mark.parametrize("status", [200, 426, 403])
def test_o17_refused_upgrade_stays_http(door, status):
    def script(conn):
        req = conn.read_request()
        if req.target == "/ws":
            assert req.one("Upgrade") == "websocket"
            conn.respond(status, "no websocket here", ["Upgrade: websocket"] if status == 426 else [])
        else:
            conn.respond(200, req.target)
    door.rig.a.on(script)
    client = door.client()
    answer = client.ask(websocket.handshake(door.target("/ws"), door.host))
    assert answer.status == status and answer.text == "no websocket here"
    assert client.ask(door.head("GET", "/next")).text == "/next"


# -- O18: the server's address changes

@pytest.mark.slow
def test_o18_follows_the_ttl(make_rig):
    old = Origin("old")
    new = Origin("new", host="127.0.0.2", port=old.port)

    def change(conf, port):
        conf["upstreams"]["app"] = {"servers": [f"http://moving.test:{old.port}"]}
    rig = make_rig(change, prepare=lambda rig: rig.dns.a("moving.test", "127.0.0.1", ttl=1))
    assert rig.get("/").one("X-Origin") == "old"
    rig.dns.a("moving.test", "127.0.0.2", ttl=1)
    wait_until(lambda: rig.get("/").one("X-Origin") == "new", timeout=8, what="the new address is used")
    for _ in range(3):
        assert rig.get("/").one("X-Origin") == "new"
    old.close()
    new.close()


def test_o18_asks_again_at_once_after_a_connect_failure(make_rig):
    """The TTL is an hour, but the server refuses: the name is asked again without delay."""
    old = Origin("old")
    new = Origin("new", host="127.0.0.2", port=old.port)

    def change(conf, port):
        conf["upstreams"]["app"] = {"servers": [f"http://moving.test:{old.port}"]}
    rig = make_rig(change, prepare=lambda rig: rig.dns.a("moving.test", "127.0.0.1", ttl=3600))
    assert rig.get("/").one("X-Origin") == "old"
    rig.dns.a("moving.test", "127.0.0.2", ttl=3600)
    old.stop_listening()
    old.reset()
    wait_until(lambda: rig.get("/").one("X-Origin") == "new", timeout=5, what="the new address is used")
    new.close()


def test_o18_keeps_the_last_good_answer(make_rig):
    """The DNS fails later: what was known goes on being used."""
    server = Origin("old")

    def change(conf, port):
        conf["upstreams"]["app"] = {"servers": [f"http://moving.test:{server.port}"]}
    rig = make_rig(change, prepare=lambda rig: rig.dns.a("moving.test", "127.0.0.1", ttl=1))
    assert rig.get("/").status == 200
    rig.dns.rcode("moving.test", "SERVFAIL")
    asked = rig.dns.count("moving.test")
    end = time.monotonic() + 8
    while rig.dns.count("moving.test") == asked and time.monotonic() < end:
        assert rig.get("/").status == 200
        time.sleep(0.02)
    for _ in range(3):
        server.reset()
        assert rig.get("/").status == 200
    server.close()


def test_o04_cut_while_the_client_reads_slowly_and_then_goes(make_rig):
    """The server dies in mid-body, the rest waits for a slow client, the client goes: the connection ends with it."""
    rig = make_rig()
    part = b"x" * (8 * MIB)

    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % (len(part) + 1))
        conn.sock.settimeout(1)         # of one send: it takes nothing more, the client does not read
        left = memoryview(part)
        try:
            while left:
                left = left[conn.sock.send(left[:65536]):]
        except TimeoutError:
            pass
        conn.rst()
    rig.a.on(script)
    client = rig.web(rcvbuf=16384)
    client.send(request())
    client.read_exactly(1)
    rig.culvert.wait_metric(lambda m: m.value("culvert_upstream_connections", upstream="app", state="active") == 0,
                            "the server's connection is gone")
    assert rig.metrics().value("culvert_connections", listener="web", state="active") == 1
    client.rst()
    rig.culvert.wait_metric(lambda m: m.value("culvert_connections", listener="web", state="active") == 0,
                            "the client's connection is gone")
    entry = rig.log.of(client)
    assert entry["complete"] is False and entry["reason"] == "http_response_incomplete"
