"""A05-A07 (in bodies), A16-A23, A25, A26: what surrounds and follows a body, through both listeners."""

import pytest

from harness.client import Eof, chunked, request
from harness.rig import check_own_answer

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: web.test\r\n\r\n"


def ids(values):
    return [str(i) for i in range(len(values))]


def no_smuggling(rig):
    assert all("smuggled" not in r.target for r in rig.a.requests + rig.b.requests)


# -- A05, A06, A07, A21, A22: chunks of requests

BAD_SIZES = [b"+5", b"-5", b"0x5", b" 5", b"5 ", b"5\t", b"5_", b"5z", b"", b"FFFFFFFFFFFFFFFFF", b"FFFFFFFFFFFFFFFF",
             b"8000000000000000", b"10000000000000005", b"5\0", b"5.0", b"g", b"\x0b5", b"5\xa0"]


@pytest.mark.parametrize("size", BAD_SIZES, ids=ids(BAD_SIZES))
def test_a05_chunk_size(door, size):
    door.refused_body(door.head("POST", "/", "Transfer-Encoding: chunked") + size + b"\r\nhello\r\n0\r\n\r\n"
                      + SMUGGLED)


@pytest.mark.parametrize("size", BAD_SIZES[:12], ids=ids(BAD_SIZES[:12]))
def test_a05_second_chunk_size(door, size):
    door.refused_body(door.head("POST", "/", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n" + size
                      + b"\r\nhello\r\n0\r\n\r\n" + SMUGGLED)


def test_a05_four_gib_is_no_overflow(door):
    """100000000 is 2^32: never read as 0 or as 5. It waits for its bytes."""
    client = door.client()
    client.send(door.head("POST", "/", "Transfer-Encoding: chunked") + b"100000005\r\nhello\r\n0\r\n\r\n" + SMUGGLED)
    door.rig.a.wait_received(b"hello\r\n0\r\n\r\nGET /smuggled")
    client.rst()
    door.rig.a.conns[0].wait_ended()
    assert not door.rig.a.requests


def test_a05_leading_zeros(door):
    """Legal; a thousand of them are refused or read as what they are."""
    client = door.client()
    client.send(door.head("POST", "/z", "Transfer-Encoding: chunked") + b"0005\r\nhello\r\n000\r\n\r\n")
    assert client.read_response().status == 200
    assert door.rig.a.last.body == b"hello"
    client.send(door.head("POST", "/zz", "Transfer-Encoding: chunked") + b"0" * 1000 + b"5\r\nhello\r\n0\r\n\r\n"
                + door.head("GET", "/next"))
    answer = client.read_response()
    if answer.status == 400:
        client.expect_closed()
        assert len(door.rig.a.requests) == 1
    else:
        assert answer.status == 200 and door.rig.a.requests[1].body == b"hello"
        assert client.read_response().text == "a GET /next\n"


BAD_CHUNKS = {
    "a06_b_size_line": b"5\nhello\r\n0\r\n\r\n",
    "a06_c_data_end": b"5\r\nhello\n0\r\n\r\n",
    "a06_d_trailer_end": b"0\r\n\n",
    "a06_last_size": b"5\r\nhello\r\n0\n\r\n",
    "a06_trailer_line": b"0\r\nX: y\n\r\n",
    "a07_cr_cr": b"5\r\rhello\r\n0\r\n\r\n",
    "a07_data_end": b"5\r\nhello\r\r\n0\r\n\r\n",
    "a07_trailer": b"0\r\nX: a\rb\r\n\r\n",
    "a07_trailer_end": b"0\r\n\rX",
    "a08_trailer_fold": b"0\r\nX: a\r\n b\r\n\r\n",
    "a09_trailer_space": b"0\r\nX : a\r\n\r\n",
    "a10_trailer_name": b"0\r\n: a\r\n\r\n",
    "a10_trailer_no_colon": b"0\r\nXX\r\n\r\n",
    "a11_trailer_nul": b"0\r\nX: a\0b\r\n\r\n",
    "a21_lf_in_extension": b"5;\nhello\r\n0\r\n\r\n",
    "a21_lf_after_name": b"5;a\nhello\r\n0\r\n\r\n",
    "a21_quoted_crlf": b'5;a="x\r\n0\r\n\r\n' + SMUGGLED,
    "a21_nul": b"5;a\0b\r\nhello\r\n0\r\n\r\n",
    "a21_cr": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "a21_on_last": b"5\r\nhello\r\n0;\n\r\n",
    "a22_no_crlf": b"5\r\nhelloX",
    "a22_spill": b"5\r\nhello!!0\r\n\r\n",
    "a22_after_last": b"0\r\nXX\r\n\r\n",
    "a22_missing": b"5\r\nhello0\r\n\r\n",
}


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_a06_a07_a21_a22_chunk_framing(door, body):
    door.refused_body(door.head("POST", "/", "Transfer-Encoding: chunked") + body + SMUGGLED)


def test_a21_long_extension(door):
    door.refused_body(door.head("POST", "/", "Transfer-Encoding: chunked") + b"5;" + b"x" * 65536
                      + b"\r\nhello\r\n0\r\n\r\n")


def test_a21_extensions_are_dropped(door):
    client = door.client()
    body = b'1;a=b\r\nA\r\n1;c="d;e"\r\nB\r\n1;f\r\nC\r\n0;last=1\r\n\r\n'
    assert client.ask(door.head("POST", "/", "Transfer-Encoding: chunked") + body).status == 200
    assert door.rig.a.last.body == b"ABC"
    assert b";" not in bytes(door.rig.a.conns[0].received).partition(b"\r\n\r\n")[2]


def test_a21_extensions_without_end(door):
    """A kilobyte of extension for every byte of body is no body."""
    client = door.client()
    client.send(door.head("POST", "/", "Transfer-Encoding: chunked"))
    for size in (200, 1000):
        for _ in range(200):
            client.try_send(b"1;a=" + b"x" * size + b"\r\nA\r\n")
    assert client.read_response().status == 400
    client.expect_closed()
    assert door.rig.log.of(client)["reason"] == "http_request_error:chunk_extension"
    assert not door.rig.a.requests


# -- A16: a body that nobody wanted

def local_answers(door):
    """(target, status) of what culvert answers by itself."""
    if door.name == "web":
        return [("/ping", 200), ("/old", 308), ("/admin", 403)]
    return [("http://a.test:25/", 403), ("http://192.0.2.1:%d/" % door.rig.a.port, None)][:1]


@pytest.mark.parametrize("late", [False, True], ids=["with_head", "after_answer"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a16_local_answer_eats_the_body(door, framing, late):
    for target, status in local_answers(door):
        client = door.client()
        if framing == "length":
            line, body = f"Content-Length: {len(SMUGGLED)}", SMUGGLED
        else:
            line, body = "Transfer-Encoding: chunked", chunked(SMUGGLED)
        head = f"POST {target} HTTP/1.1\r\nHost: {door.host}\r\n{line}\r\n\r\n".encode()
        rest = body + door.head("GET", "/next")
        client.send(head if late else head + rest)
        answer = client.read_response()
        assert answer.status == status, answer
        if late:
            client.try_send(rest)
        try:
            second = client.read_response()
        except Eof:
            assert not client.buf
        else:
            assert "close" not in answer.list("Connection")
            assert second.text == "a GET /next\n"
        no_smuggling(door.rig)


def test_a16_admin_eats_the_body(rig):
    client = rig.client("admin")
    client.send(request("POST", "/healthz", body=SMUGGLED) + request("GET", "/readyz"))
    first = client.read_response()
    assert first.status in (200, 405)
    try:
        second = client.read_response()
    except Eof:
        return
    assert second.status == 200
    assert not client.readable(0.05)


def test_a16_0cl_get_with_body(door):
    """The mirror image: a body on GET goes on with its length, whole."""
    client = door.client()
    client.send(door.head("GET", "/g", f"Content-Length: {len(SMUGGLED)}") + SMUGGLED + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    assert [r.target for r in door.rig.a.requests] == ["/g", "/next"]
    assert door.rig.a.requests[0].body == SMUGGLED


def test_a16_upstream_error_eats_the_body(door):
    """502 for a bad answer while the body is under way."""
    door.rig.a.on_raw("junk\r\n\r\n", "close", whole=False)
    client = door.client()
    client.send(door.head("POST", "/", f"Content-Length: {len(SMUGGLED) + 10}"))
    answer = client.read_response()
    check_own_answer(answer, 502)
    client.try_send(SMUGGLED)
    if "close" in answer.list("Connection"):
        client.expect_closed()
    no_smuggling(door.rig)


# -- A17: Expect

def test_a17_final_answer_without_100(door):
    """The body was withheld; what comes next is body or nothing, never a request."""
    def script(conn):
        conn.remember(conn.read_head())
        conn.respond(401, "no\n", ["WWW-Authenticate: Basic realm=x"])
        conn.wait_end()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/up", "Expect: 100-continue", "Content-Length: 10"))
    answer = client.read_response()
    assert answer.status == 401 and not answer.interims
    client.try_send(SMUGGLED)
    data, _ = client.drain_to_close()
    assert not data or data.startswith(b"HTTP/1.1 400 "), data
    assert [r.target for r in door.rig.a.requests] == ["/up"]
    no_smuggling(door.rig)
    assert b"GET /smuggled" not in door.rig.a.received


@pytest.mark.parametrize("value", ["x", "100-continue, x", "200-ok", "100-continue=1", "100"])
def test_a17_unknown_expectation(door, value):
    client = door.client()
    client.send(door.head("POST", "/", f"Expect: {value}", "Content-Length: 5") + b"hello")
    answer = client.read_response()
    check_own_answer(answer, 417)
    assert door.rig.log.of(client)["reason"] == "expect_unknown"
    door.rig.a.assert_untouched()


@pytest.mark.parametrize("lines", [("Expect: 100-continue, 100-continue",),
                                   ("Expect: 100-continue", "Expect: 100-continue")])
def test_a17_twice(door, lines):
    client = door.client()
    client.send(door.head("POST", "/", *lines, "Content-Length: 5") + b"hello")
    answer = client.read_response()
    assert answer.status in (200, 400, 417)
    assert (len(door.rig.a.requests) == 1) == (answer.status == 200)


def test_a17_expect_any_case(door):
    def script(conn):
        head = conn.read_head()
        assert head.list("Expect") == ["100-continue"]
        conn.send("HTTP/1.1 100 Continue\r\n\r\n")
        conn.remember(conn.read_body(head))
        conn.respond(200)
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/", "Expect: 100-Continue", "Content-Length: 5"))
    assert client.read_head().status == 100
    assert client.ask(b"hello").status == 200


def test_a17_get_without_body(door):
    client = door.client()
    assert client.ask(door.head("GET", "/1", "Expect: 100-continue")).status == 200
    assert client.ask(door.head("GET", "/2")).text == "a GET /2\n"


def test_a17_http10_ignores_it(door):
    def script(conn):
        head = conn.read_head()
        if head.has("Expect"):
            conn.send("HTTP/1.1 100 Continue\r\n\r\n")
        conn.remember(conn.read_body(head))
        conn.respond(200)
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("POST", "/", "Expect: 100-continue", "Content-Length: 5", version="HTTP/1.0") + b"hello")
    answer = client.read_response()
    assert answer.status == 200 and not answer.interims
    assert door.rig.a.last.body == b"hello"


# -- A18: Upgrade before 101

def test_a18_refused_upgrade_stays_http(web):
    """The second request is culvert's to judge: /admin is refused, not relayed."""
    client = web.client()
    client.send(web.head("GET", "/", "Connection: Upgrade", "Upgrade: foo") + web.head("GET", "/admin"))
    assert client.read_response().status == 200
    assert client.read_response().status == 403
    assert [r.target for r in web.rig.a.requests] == ["/"]
    assert b"/admin" not in web.rig.a.received


def test_a18_refused_upgrade_forward(fwd):
    client = fwd.client()
    client.send(fwd.head("GET", "/", "Connection: Upgrade", "Upgrade: foo")
                + f"GET http://{fwd.rig.a.host}:25/smuggled HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert client.read_response().status == 200
    assert client.read_response().status == 403
    assert len(fwd.rig.a.requests) == 1


def test_a18_bytes_after_the_request_wait_for_101(door):
    """Early bytes of the new protocol are held until the origin has switched."""
    def script(conn):
        req = conn.read_request()
        assert req.one("Upgrade") == "foo" and "upgrade" in req.list("Connection")
        assert not conn.buf and not conn.readable(0.1), "bytes came before the 101"
        conn.send("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
        assert conn.read_exactly(5) == b"early"
        conn.send(b"late!")
        conn.wait_end()
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/", "Connection: Upgrade", "Upgrade: foo") + b"early")
    answer = client.read_response()
    assert answer.status == 101 and answer.one("Upgrade") == "foo" and "upgrade" in answer.list("Connection")
    assert client.read_exactly(5) == b"late!"


def test_a18_upgrade_with_body(door):
    """Either the whole body first, or no Upgrade goes on; the origin's 200 keeps it HTTP."""
    client = door.client()
    client.send(door.head("POST", "/up", "Connection: Upgrade", "Upgrade: foo", "Content-Length: 5") + b"hello"
                + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == b"hello"


def test_a18_connection_upgrade_without_upgrade(door):
    client = door.client()
    assert client.ask(door.head("GET", "/1", "Connection: upgrade")).status == 200
    assert "upgrade" not in door.rig.a.last.list("Connection")
    assert client.ask(door.head("GET", "/2")).text == "a GET /2\n"


def test_a18_upgrade_without_connection(door):
    """Upgrade is hop by hop: without Connection it means nothing and is not sent on."""
    assert door.get("/", "Upgrade: foo").status == 200
    assert not door.rig.a.last.has("Upgrade")


def test_a18_h2c_is_dropped(door):
    assert door.get("/", "Connection: Upgrade", "Upgrade: foo, h2c", "Upgrade: bar").status == 200
    assert "h2c" not in door.rig.a.last.list("Upgrade")
    assert door.get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
                    "HTTP2-Settings: AAMAAABk").status == 200
    assert not door.rig.a.last.has("Upgrade") and not door.rig.a.last.has("HTTP2-Settings")
    assert "upgrade" not in door.rig.a.last.list("Connection")


@pytest.mark.parametrize("asked", [(), ("Connection: Upgrade", "Upgrade: bar")], ids=["unasked", "other"])
def test_a18_101_only_as_asked(door, asked):
    door.rig.a.on_raw("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nraw")
    client = door.client()
    client.send(door.head("GET", "/", *asked))
    answer = client.read_response()
    check_own_answer(answer, 502)
    door.rig.a.conns[0].wait_ended()


def test_a18_101_to_http10(door):
    """Upgrade in HTTP/1.0 is ignored (RFC 9110 section 7.8)."""
    client = door.client()
    client.send(door.head("GET", "/", "Connection: Upgrade", "Upgrade: foo", version="HTTP/1.0"))
    assert client.read_response().status == 200
    assert not door.rig.a.last.has("Upgrade")


# -- A19: bytes after CONNECT

def test_a19_early_data_of_a_refused_connect(fwd):
    """What came with a refused CONNECT was meant for somebody else: the connection ends."""
    client = fwd.client()
    client.send(f"CONNECT {fwd.rig.a.host}:25 HTTP/1.1\r\nHost: x\r\n\r\n".encode() + fwd.head("GET", "/smuggled"))
    answer = client.read_response("CONNECT")
    check_own_answer(answer, 403)
    client.expect_closed()
    fwd.rig.a.assert_untouched()


def test_a19_early_data_of_a_failed_connect(fwd):
    fwd.rig.b.stop_listening()
    try:
        client = fwd.client()
        client.send(f"CONNECT {fwd.rig.b.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                    + fwd.head("GET", "/smuggled"))
        answer = client.read_response("CONNECT")
        check_own_answer(answer, 502)
        client.expect_closed()
        fwd.rig.a.assert_untouched()
    finally:
        fwd.rig.b.listen_again()


def test_a19_early_data_of_a_good_connect(fwd):
    """Goes into the tunnel."""
    client = fwd.client()
    answer = client.connect(fwd.rig.a.authority, early=b"GET /early HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.status == 200
    assert client.read_response().text == "a GET /early\n"


@pytest.mark.parametrize("framing", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a19_connect_with_body(fwd, framing):
    fwd.refused(f"CONNECT {fwd.rig.a.authority} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode() + b"hello",
                method="CONNECT")


# -- A20: trailers of requests

def test_a20_request_trailers(door):
    bad = ["Content-Length: 5", "Host: evil", "Authorization: x", "X-Forwarded-For: 1.1.1.1", "Forwarded: for=1.1.1.1",
           "Transfer-Encoding: chunked", "Cookie: a=b", "Connection: close", "X-Real-IP: 1.1.1.1", "Via: 1.1 evil",
           "Proxy-Authorization: x", "Content-Encoding: gzip", "Content-Type: a/b", "Trailer: X", "TE: gzip",
           "X-Forwarded-Proto: https", "Upgrade: foo", "Expect: 100-continue", "Max-Forwards: 1"]
    client = door.client()
    client.send(door.head("POST", "/", "Transfer-Encoding: chunked", "Trailer: X-Check")
                + chunked(b"hello", trailers=["X-Check: 1"] + bad + ["X-Other: 2"]) + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    first = door.rig.a.requests[0]
    assert first.trailers == [("X-Check", "1"), ("X-Other", "2")]
    assert first.body == b"hello"
    assert not first.has("X-Check") and not first.has("Authorization") and not first.has("Cookie")
    assert "1.1.1.1" not in str(first.fields)


# -- A23: hop by hop

def test_a23_nominated_fields_are_dropped(door):
    assert door.get("/", "Connection: X-One, x-two", "X-One: 1", "X-Two: 2", "X-Three: 3").status == 200
    req = door.rig.a.last
    assert not req.has("X-One") and not req.has("X-Two") and req.one("X-Three") == "3"
    assert "x-one" not in req.list("Connection")


def test_a23_nominating_what_matters(door):
    """Framing, Host, credentials and what culvert adds cannot be nominated away."""
    client = door.client()
    client.send(door.head("POST", "/up",
                          "Connection: Host, Content-Length, Transfer-Encoding, Authorization, Via, Cookie",
                          "Authorization: Basic eDp5", "Content-Length: 5") + b"hello" + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    first = door.rig.a.requests[0]
    assert first.body == b"hello" and first.one("Host") == door.host
    assert first.one("Authorization") == "Basic eDp5"
    assert first.has("Via")


def test_a23_nominating_transfer_encoding(door):
    client = door.client()
    client.send(door.head("POST", "/up", "Connection: Transfer-Encoding", "Transfer-Encoding: chunked")
                + chunked(b"hello") + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == b"hello"


def test_a23_hop_by_hop_of_requests(door):
    assert door.get("/", "Connection: keep-alive", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive",
                    "Proxy-Authorization: Basic c2VjcmV0", "TE: trailers, gzip", "Proxy-Authenticate: x").status == 200
    req = door.rig.a.last
    for name in ("Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate"):
        assert not req.has(name), req.fields
    assert req.list("TE") in ([], ["trailers"])
    assert b"c2VjcmV0" not in door.rig.a.received


@pytest.mark.parametrize("limit", [None, "0", "5"])
def test_a23_trace(door, limit):
    """Refused by default; credentials are never echoed."""
    client = door.client()
    lines = ["Authorization: Basic c2VjcmV0", "Cookie: s3cret"] + ([f"Max-Forwards: {limit}"] if limit else [])
    client.send(door.head("TRACE", "/", *lines))
    answer = client.read_response()
    assert answer.status in (403, 405, 501), answer
    assert "c2VjcmV0" not in answer.text and "s3cret" not in answer.text
    door.rig.a.assert_untouched()


def test_a23_max_forwards(door):
    client = door.client()
    assert client.ask(door.head("OPTIONS", "/", "Max-Forwards: 3")).status == 200
    assert door.rig.a.last.one("Max-Forwards") == "2"
    answer = client.ask(door.head("OPTIONS", "/", "Max-Forwards: 0"))
    assert answer.status in (200, 204, 405), answer
    if answer.status == 405:
        assert answer.has("Allow"), answer.fields
        client.close()
        client = door.client()
    assert len(door.rig.a.requests) == 1
    assert client.ask(door.head("GET", "/", "Max-Forwards: 0")).status == 200
    assert len(door.rig.a.requests) == 2


# -- A25: pipelining and order

def test_a25_answers_in_order(web):
    """The second is answered at once by culvert itself, and still waits its turn."""
    client = web.client()
    client.send(web.head("GET", "/1") + web.head("GET", "/ping") + web.head("GET", "/3"))
    assert [client.read_response().text for _ in range(3)] == ["a GET /1\n", "pong\n", "a GET /3\n"]


def test_a25_many(door):
    client = door.client()
    client.send(b"".join(door.head("GET", f"/{i}") for i in range(100)))
    assert [client.read_response().text for _ in range(100)] == [f"a GET /{i}\n" for i in range(100)]


def test_a25_chunked_post_and_get_in_one_write(door):
    client = door.client()
    client.send(door.head("POST", "/up", "Transfer-Encoding: chunked") + chunked(b"hel", b"lo")
                + door.head("GET", "/next"))
    assert client.read_response().text == "a POST /up\n"
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == b"hello"


@pytest.mark.parametrize("kind", ["length", "chunked"])
def test_a25_split_everywhere(door, kind):
    """The same result wherever the bytes are cut."""
    if kind == "length":
        data = door.head("POST", "/up", "Content-Length: 5", "X: y") + b"hello" + door.head("GET", "/next")
    else:
        data = door.head("POST", "/up", "Transfer-Encoding: chunked") + \
            chunked(b"hel", b"lo", trailers=["X-T: 1"]) + door.head("GET", "/next")
    for at in range(1, len(data)):
        client = door.client()
        client.send_split(data, at)
        assert client.read_response().text == "a POST /up\n", at
        assert client.read_response().text == "a GET /next\n", at
        client.close()
        assert door.rig.a.requests[-2].body == b"hello", at


def test_a25_byte_by_byte(door):
    client = door.client()
    data = door.head("POST", "/up", "Transfer-Encoding: chunked") + chunked(b"hello") + door.head("GET", "/next")
    for i in range(len(data)):
        client.send(data[i:i + 1])
    assert client.read_response().text == "a POST /up\n"
    assert client.read_response().text == "a GET /next\n"


def test_a25_pipelined_behind_a_slow_one(door):
    """While the first is not answered, the second is not sent on the same origin connection."""
    def script(conn):
        req = conn.read_request()
        if req.target == "/slow":
            assert not conn.readable(0.15), "the next request was pipelined to the origin"
        conn.respond(200, req.target)
    door.rig.a.on(script)
    client = door.client()
    client.send(door.head("GET", "/slow") + door.head("GET", "/fast"))
    assert [client.read_response().text for _ in range(2)] == ["/slow", "/fast"]


# -- A26: HTTP/1.0

def test_a26_post_without_length_has_no_body(door):
    client = door.client()
    client.send(door.head("POST", "/up", version="HTTP/1.0") + SMUGGLED)
    assert client.read_response().text == "a POST /up\n"
    client.expect_closed()
    assert door.rig.a.last.body == b""
    assert [r.target for r in door.rig.a.requests] == ["/up"]
    assert b"smuggled" not in door.rig.a.received


def test_a26_post_without_length_11(door):
    """In 1.1 too: no body, and what follows is a request."""
    client = door.client()
    client.send(door.head("POST", "/up") + door.head("GET", "/next"))
    assert client.read_response().text == "a POST /up\n"
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == b""


def test_a26_closes_without_keep_alive(door):
    client = door.client()
    assert client.ask(door.head("GET", "/1", version="HTTP/1.0")).status == 200
    client.expect_eof()


def test_a26_keep_alive_with_length(door):
    client = door.client()
    for i in range(2):
        answer = client.ask(door.head("GET", f"/{i}", "Connection: keep-alive", version="HTTP/1.0"))
        assert answer.framing == "length" and "keep-alive" in answer.list("Connection"), answer.fields


def test_a26_keep_alive_without_length(door):
    """An answer of unknown length ends a 1.0 connection, whatever was asked."""
    door.rig.a.on_raw("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n")
    client = door.client()
    answer = client.ask(door.head("GET", "/", "Connection: keep-alive", version="HTTP/1.0"))
    assert answer.framing == "close" and answer.body == b"hello"
    assert "keep-alive" not in answer.list("Connection")
    assert not answer.has("Transfer-Encoding") and not answer.has("Trailer")


def test_a26_request_goes_on_as_11(door):
    client = door.client()
    client.ask(door.head("GET", "/", version="HTTP/1.0"))
    assert door.rig.a.last.version == "HTTP/1.1"
