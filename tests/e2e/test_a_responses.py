"""A01-A11, A20-A23: framing and syntax of answers. Servers are as little trusted as clients.

A bad head is answered with 502 and http_protocol_error; a body that turns bad after the head has gone
is cut visibly (or the whole answer is a 502, if nothing had gone). In both cases the connection to the
origin ends, and nothing of it reaches the next client.
"""

import pytest

from harness.client import Eof, chunked
from harness.rig import check_own_answer

POISON = b"HTTP/1.1 200 X\r\nContent-Length: 6\r\n\r\nPOISON"


def ids(values):
    return [str(i) for i in range(len(values))]


def bad_head(web, raw, reason="http_protocol_error"):
    """This answer becomes a 502; the connection is gone; the next request is answered well."""
    rig = web.rig
    rig.a.on_raw(raw if isinstance(raw, bytes) else raw.encode("latin-1"))
    client = web.client()
    client.send(web.head("GET", "/1"))
    answer = client.read_response()
    check_own_answer(answer, 502)
    entry = rig.log.of(client)
    assert entry["reason"] == reason, str(entry)
    rig.a.conns[0].wait_ended()
    rig.a.on_raw(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nok")
    assert web.get("/2").text == "ok"


def bad_body(web, raw):
    """This answer is cut where it turns bad; the next request is answered well."""
    rig = web.rig
    rig.a.on_raw(raw)
    client = web.client()
    client.send(web.head("GET", "/1"))
    try:
        answer = client.read_response()
    except Eof as error:
        answer = error.response
        assert answer.status == 200
        entry = rig.log.of(client)
        assert entry["complete"] is False, str(entry)
        assert entry["reason"] in ("http_protocol_error", "http_response_incomplete"), str(entry)
    else:
        check_own_answer(answer, 502)
    assert b"POISON" not in client.received
    rig.a.conns[0].wait_ended()
    rig.a.on_raw(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nok")
    assert web.get("/2").text == "ok"


def good(web, raw, body=b"hello"):
    web.rig.a.on_raw(raw if isinstance(raw, bytes) else raw.encode("latin-1"))
    answer = web.get("/1")
    assert answer.status == 200 and answer.body == body, answer
    return answer


def with_lines(*lines, body=b"hello"):
    return b"\r\n".join([b"HTTP/1.1 200 X"] + [x if isinstance(x, bytes) else x.encode("latin-1") for x in lines]) \
        + b"\r\n\r\n" + body


@pytest.mark.parametrize("lines", [("Content-Length: 5", "Transfer-Encoding: chunked"),
                                   ("Transfer-Encoding: chunked", "Content-Length: 5")])
def test_a01_a02_cl_and_te(web, lines):
    bad_head(web, with_lines(*lines, body=b"0\r\n\r\n" + POISON))


REFUSED_TE = [b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: \xa0chunked", b"Transfer-Encoding: chunked\0",
              b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
              b"Transfer-Encoding: xchunked", b'Transfer-Encoding: "chunked"', b"Transfer-Encoding: chunked;q=1",
              b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked, identity",
              b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding:", b"Transfer-Encoding:\r\n chunked",
              b"Foo: x\nTransfer-Encoding: chunked"]


@pytest.mark.parametrize("line", REFUSED_TE, ids=ids(REFUSED_TE))
def test_a03_te(web, line):
    bad_head(web, with_lines(line, body=b"5\r\nhello\r\n0\r\n\r\n" + POISON))


@pytest.mark.parametrize("line", ["Transfer-Encoding:\tchunked", "Transfer-Encoding: Chunked",
                                  "transfer-encoding: CHUNKED "])
def test_a03_te_valid(web, line):
    good(web, with_lines(line, body=chunked(b"hello")))


def test_a03_te_in_http10(web):
    """Faulty framing (RFC 9112 section 6.1): refused, or read and the connection never used again."""
    rig = web.rig
    rig.a.on_raw(b"HTTP/1.0 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    answer = web.get("/1")
    assert answer.status == 502 or answer.body == b"hello"
    rig.a.conns[0].wait_ended()


BAD_CL = ["+5", "-1", "0x5", "5_0", "5 5", "5, 6", "", "5;", "18446744073709551617", "5\0", "5.0", "\x0b5", "a"]


@pytest.mark.parametrize("value", BAD_CL, ids=ids(BAD_CL))
def test_a04_cl(web, value):
    bad_head(web, with_lines(f"Content-Length: {value}", body=b"hello" + POISON))


@pytest.mark.parametrize("lines", [("Content-Length: 5", "Content-Length: 6"),
                                   ("Content-Length:", "Content-Length: 5")])
def test_a04_two_cl(web, lines):
    bad_head(web, with_lines(*lines, body=b"hello" + POISON))


@pytest.mark.parametrize("lines", [("Content-Length: 005",), ("Content-Length: \t5 ",)])
def test_a04_cl_valid(web, lines):
    assert good(web, with_lines(*lines)).one("Content-Length") == "5"


BAD_SIZES = [b"+5", b"-5", b"0x5", b" 5", b"5 ", b"5\t", b"5_", b"5z", b"", b"FFFFFFFFFFFFFFFFF", b"FFFFFFFFFFFFFFFF",
             b"5\0"]
BAD_CHUNKS = [b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n\n", b"5\r\nhello\r\n0\n\r\n",
              b"5\r\rhello\r\n0\r\n\r\n", b"5;\nhello\r\n0\r\n\r\n", b'5;a="x\r\n0\r\n\r\n',
              b"5;a\0b\r\nhello\r\n0\r\n\r\n",
              b"5;" + b"x" * 65536 + b"\r\nhello\r\n0\r\n\r\n", b"5\r\nhelloX0\r\n\r\n", b"5\r\nhello!!0\r\n\r\n",
              b"5\r\nhello\r\n0\r\nXX\r\n\r\n", b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
              b"5\r\nhello\r\n0\r\n: a\r\n\r\n"]


@pytest.mark.parametrize("size", BAD_SIZES, ids=ids(BAD_SIZES))
def test_a05_chunk_size(web, size):
    bad_body(web, with_lines("Transfer-Encoding: chunked", body=size + b"\r\nhello\r\n0\r\n\r\n" + POISON))


@pytest.mark.parametrize("size", BAD_SIZES, ids=ids(BAD_SIZES))
def test_a05_second_chunk_size(web, size):
    bad_body(web, with_lines("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n" + size + b"\r\nhello\r\n0\r\n\r\n"
                             + POISON))


def test_a05_four_gib_is_no_overflow(web):
    """2^32 and 5 more: the five bytes pass, nothing ends the body, the origin's end is a cut."""
    web.rig.a.on_raw(with_lines("Transfer-Encoding: chunked", body=b"100000005\r\nhello\r\n0\r\n\r\n"), "close")
    client = web.client()
    client.send(web.head("GET", "/"))
    answer = client.read_final_head()
    if answer.status == 200:
        with pytest.raises(Eof):
            client.read_response_body(answer, "GET")
    else:
        assert answer.status == 502
    assert web.rig.log.of(client)["reason"] == "http_response_incomplete"


@pytest.mark.parametrize("body", BAD_CHUNKS, ids=ids(BAD_CHUNKS))
def test_a06_a07_a21_a22_chunk_framing(web, body):
    bad_body(web, with_lines("Transfer-Encoding: chunked", body=body + POISON))


@pytest.mark.parametrize("raw", [
    b"HTTP/1.1 200 X\nContent-Length: 5\n\nhello", b"HTTP/1.1 200 X\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 X\r\nContent-Length: 5\n\r\nhello", b"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\nhello",
    b"HTTP/1.1 200 X\r\nX: a\nb\r\nContent-Length: 5\r\n\r\nhello"])
def test_a06_bare_lf_in_head(web, raw):
    bad_head(web, raw)


@pytest.mark.parametrize("raw", [
    b"HTTP/1.1 200 X\r\nX: a\rEvil: b\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 X\r\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\rX\r\n\r\nhello"])
def test_a07_bare_cr(web, raw):
    bad_head(web, raw)


@pytest.mark.parametrize("lines", [("X: 1\r\n  2", "Content-Length: 5"), ("Content-Length:\r\n 5",),
                                   ("Content-Length: 5\r\n ",)])
def test_a08_obs_fold(web, lines):
    bad_head(web, with_lines(*lines))


def test_a09_space_before_colon_is_stripped(web):
    """RFC 9112 section 5.1: in an answer a proxy removes it."""
    answer = good(web, with_lines("X-A : 1", "Content-Length : 5"))
    assert answer.one("X-A") == "1"


@pytest.mark.parametrize("lines", [(" X: y", "Content-Length: 5"), ("Content-Length 5",)])
def test_a09_other_white_space(web, lines):
    bad_head(web, with_lines(*lines))


NAMES = [b": y", b":x: y", b"a\x85: b", b"a b: c", b'"a": b', b"a\0b: c", b"a(b: c"]


@pytest.mark.parametrize("line", NAMES, ids=ids(NAMES))
def test_a10_names(web, line):
    bad_head(web, with_lines(line, "Content-Length: 5"))


@pytest.mark.parametrize("line", [b"X: a\0b", b"X: \x01"])
def test_a11_control_in_value(web, line):
    bad_head(web, with_lines(line, "Content-Length: 5"))


def test_a11_obs_text_passes(web):
    assert good(web, with_lines(b"X: \xc3\xa9\tb", "Content-Length: 5")).one("X") == "\xc3\xa9\tb"


def test_a20_response_trailers(web):
    bad = ["Content-Length: 5", "Transfer-Encoding: chunked", "Set-Cookie: a=b", "Connection: close", "Location: /x",
           "Content-Type: a/b", "Content-Encoding: gzip", "WWW-Authenticate: x", "Cache-Control: max-age=9", "Host: x",
           "Proxy-Authenticate: x", "Trailer: y"]
    web.rig.a.on_raw(with_lines("Transfer-Encoding: chunked", "Trailer: X-Check",
                                body=chunked(b"hello", trailers=["X-Check: 1"] + bad + ["Server-Timing: x"])))
    client = web.client()
    answer = client.ask(web.head("GET", "/", "TE: trailers", "Connection: TE"))
    assert answer.body == b"hello"
    names = [n.lower() for n, _ in answer.trailers]
    assert "x-check" in names and "server-timing" in names
    for line in bad[:4] + bad[7:8]:
        assert line.partition(":")[0].lower() not in names
    assert not answer.has("X-Check") and not answer.has("Set-Cookie") and not answer.has("Location")
    assert client.ask(web.head("GET", "/ping")).status == 200


def test_a21_extensions_are_dropped(web):
    good(web, with_lines("Transfer-Encoding: chunked", body=b'1;a=b\r\nh\r\n4;c="d"\r\nello\r\n0;e\r\n\r\n'))


def test_a23_hop_by_hop_of_answers(web):
    """Of the two hops each has its own; the origin's close does not end the client's connection."""
    web.rig.a.on_raw(with_lines("Connection: close, X-One", "X-One: 1", "X-Two: 2", "Keep-Alive: timeout=5",
                                "Proxy-Connection: x", "Content-Length: 5"), "close")
    client = web.client()
    answer = client.ask(web.head("GET", "/"))
    for name in ("X-One", "Keep-Alive", "Proxy-Connection"):
        assert not answer.has(name), answer.fields
    assert answer.one("X-Two") == "2" and "close" not in answer.list("Connection")
    assert client.ask(web.head("GET", "/ping")).status == 200


def test_a23_nominating_what_matters_in_answers(web):
    web.rig.a.on_raw(with_lines("Connection: Content-Length, Content-Type", "Content-Type: text/x",
                                "Content-Length: 5"))
    client = web.client()
    answer = client.ask(web.head("GET", "/"))
    assert answer.body == b"hello" and answer.framing in ("length", "chunked")
    assert client.ask(web.head("GET", "/ping")).status == 200
