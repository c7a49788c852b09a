"""N01-N04, N07: logs that cannot be forged, limits with the right codes, borders, lengths."""

import json
import re

import pytest

from harness.client import Client, request
from harness.fixtures import shared_rig
from harness.rig import check_own_answer
from harness import proxyproto

NASTY = [
    b"plain\x1b[31mred", b"quote\"quote", b"back\\slash", b"\xff\xfe\xfd", b"\xc3\x28", b"\xed\xa0\x80",
    b"tab\there", b"\xe2\x80\xa8line-separator", "snowman ☃".encode(), b"</script>", b"%n%s%x", b"\xf4\x90\x80\x80",
    b"\xc0\xaf", b"{\"status\":200}", b"x" * 3000, b"\\u000a", b"a\xc2\x85b", b"\x80" * 2000]


def lines_of(rig):
    return (rig.culvert.dir / "access.log").read_bytes().split(b"\n")


# -- N01: injection

@pytest.mark.parametrize("value", NASTY)
def test_n01_user_agent_and_referer(rig, value):
    client = rig.web()
    client.send(b"GET /ping HTTP/1.1\r\nHost: x\r\nUser-Agent: " + value + b"\r\nReferer: " + value + b"\r\n\r\n")
    answer = client.read_response()
    entry = rig.log.of(client)            # strict JSON, or this fails
    assert entry["status"] == answer.status
    raw = next(line for line in reversed(lines_of(rig)) if f":{client.port}\"".encode() in line)
    assert all(byte >= 0x20 and byte != 0x7f for byte in raw), raw
    raw.decode("utf-8")
    if answer.status == 200:
        kept = value.decode("utf-8", "replace")
        assert entry["user_agent"][:8] == kept[:8], entry["user_agent"]


@pytest.mark.parametrize("target", ["/a%0d%0aSet-Cookie:%20x", "/%1b%5b31m", "/\"q\"", "/%ff%fe", "/x?%00", "/%22%7d"])
def test_n01_target(rig, target):
    client = rig.web()
    client.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
    client.read_response()
    entry = rig.log.of(client)
    assert entry["target"].startswith("/"), entry
    raw = next(line for line in reversed(lines_of(rig)) if f":{client.port}\"".encode() in line)
    assert all(0x20 <= byte < 0x7f for byte in raw), raw


@pytest.mark.parametrize("raw", [b"GET /\xff\xfe\x1b HTTP/1.1\r\nHost: x\r\n\r\n",
                                 b"\x1b[2J / HTTP/1.1\r\nHost: x\r\n\r\n",
                                 b"GET / HTTP/1.1\r\nHost: a\"b\r\n\r\n", b"GET / HTTP/1.1\r\nHost: \x1b[2J\r\n\r\n"])
def test_n01_refused_requests_too(rig, raw):
    client = rig.web()
    client.send(raw)
    assert client.read_response().status in (400, 501)
    entry = rig.log.of(client)
    assert entry["status"] in (400, 501) and entry["reason"].startswith("http_request_error"), entry


def combined(conf, port):
    conf["access_log"]["format"] = "combined"


@pytest.fixture
def combined_rig(make_rig):
    return make_rig(combined)


COMBINED = re.compile(r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] '
                      r'"((?:[^"\\]|\\.)*)" (\d{3}) (\d+) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"\Z')


def test_n01_combined(combined_rig):
    """Each nasty value is one well-formed line."""
    rig = combined_rig
    for value in NASTY:
        client = Client(rig.port["web"])
        client.send(b"GET /ping HTTP/1.1\r\nHost: x\r\nUser-Agent: " + value + b"\r\nReferer: " + value + b"\r\n\r\n")
        client.read_response()
        client.close()
    rig.culvert.stop()
    lines = lines_of(rig)
    assert lines.pop() == b"" and len(lines) == len(NASTY)
    for line in lines:
        assert all(0x20 <= byte < 0x7f for byte in line), line
        assert COMBINED.match(line.decode("ascii")), line


def test_n01_error_page_does_not_echo(rig):
    client = rig.web()
    client.send("GET /<script>alert(1)</script> HTTP/1.1\r\nHost: <b>\r\nAccept: text/html\r\n\r\n")
    answer = client.read_response()
    assert "<script>" not in answer.text and "alert" not in answer.text and "<b>" not in answer.text


def test_n01_credentials_are_not_logged(rig):
    client = rig.fwd()
    client.ask(f"GET http://user:hunter2@{rig.a.authority}/ HTTP/1.1\r\nHost: {rig.a.authority}\r\n"
               "Authorization: Basic aHVudGVyMg==\r\nProxy-Authorization: Basic aHVudGVyMg==\r\n"
               "Cookie: s=hunter2\r\n\r\n")
    rig.log.of(client)
    text = (rig.culvert.dir / "access.log").read_text("utf-8") + rig.culvert.stderr
    assert "hunter2" not in text and "aHVudGVyMg" not in text


def test_n01_query_off(make_rig):
    rig = make_rig(lambda conf, port: conf["access_log"].update(query=False))
    assert rig.get("/ping?token=hunter2").status == 200
    entry = rig.log.wait(lambda e: e["status"] == 200)
    assert entry["target"] == "/ping" and "hunter2" not in json.dumps(entry)


def test_n01_operational_log(make_rig):
    """Names that strangers choose in lines for people."""
    rig = make_rig(lambda conf, port: conf["log"].update(level="debug"))
    client = rig.fwd()
    client.send(b"GET http://nope\x1b[31m.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n")
    client.read_response()
    client = rig.fwd()
    client.send("CONNECT nope.invalid:443 HTTP/1.1\r\nHost: nope.invalid\r\n\r\n")
    client.read_response("CONNECT")
    assert "\x1b" not in rig.culvert.stderr


# -- N02: limits and their codes

def limits(conf, port):
    conf["limits"] = {"request_head": "4KiB", "request_target": "1KiB", "request_headers": 20, "request_body": "10KiB",
                      "response_head": "4KiB"}


tight = shared_rig(limits)


def get_of(rig, client_of="web", **kw):
    client = rig.client(client_of)
    client.try_send(request("GET", **kw))
    return client, client.read_response()


@pytest.mark.parametrize("listener", ["web", "fwd"])
@pytest.mark.parametrize("length", [1025, 2000, 4000, 100000])
def test_n02_target(tight, listener, length):
    client = tight.client(listener)
    start = "/" if listener == "web" else f"http://{tight.a.authority}/"
    client.try_send(request("GET", start + "a" * (length - len(start)), host=tight.a.authority))
    tight.refused(client, 414, "target_too_long")


def test_n02_head(tight):
    client = tight.web()
    client.try_send(request("GET", fields=["X: " + "y" * 5000]))
    tight.refused(client, 431, "head_too_large")


def test_n02_head_that_never_ends(tight):
    client = tight.web()
    client.send("GET / HTTP/1.1\r\nHost: x\r\nX: ")
    client.send_behind(b"y" * (1 << 20))
    tight.refused(client, 431, "head_too_large")


def test_n02_count(tight):
    client = tight.web()
    client.try_send(request("GET", fields=[f"X{i}: y" for i in range(20)]))   # and Host
    tight.refused(client, 431, "too_many_headers")


def test_n02_body_by_length(tight):
    """At once: no byte of the body is awaited, none reaches the origin."""
    client = tight.web()
    client.send(request("POST", fields=["Content-Length: 10241"]))
    tight.refused(client, 413, "body_too_large", "POST")


def test_n02_body_chunked(tight):
    client = tight.web()
    client.send(request("POST", fields=["Transfer-Encoding: chunked"]))
    client.send_behind(b"1000\r\n" + b"x" * 4096 + b"\r\n" + b"1801\r\n" + b"x" * 0x1801 + b"\r\n0\r\n\r\n")
    answer = client.read_response()
    check_own_answer(answer, 413)
    client.drain_to_close()
    assert tight.log.of(client)["reason"] == "body_too_large"
    assert not tight.a.requests, "no origin has seen a whole request"


def test_n02_trailers(tight):
    """They count like a head."""
    client = tight.web()
    client.send(request("POST", fields=["Transfer-Encoding: chunked"]) + b"1\r\nx\r\n0\r\n")
    client.send_behind(b"".join(b"X-%d: y\r\n" % i for i in range(3000)) + b"\r\n")
    answer = client.read_response()
    assert answer.status == 431, answer
    client.drain_to_close()
    assert not tight.a.requests


@pytest.mark.parametrize("fields", [["X: " + "y" * 5000], [f"X{i}: " + "y" * 50 for i in range(100)]])
def test_n02_response_head(tight, fields):
    tight.a.on(lambda conn: (conn.read_request(), conn.respond(200, "x", fields)))
    client, answer = get_of(tight)
    check_own_answer(answer, 502)
    assert tight.log.of(client)["reason"] == "response_head_too_large"


def test_n02_expect(tight):
    client = tight.web()
    client.send(request("POST", fields=["Expect: 200-ok", "Content-Length: 0"]))
    tight.refused(client, 417, "expect_unknown", "POST")


def test_n02_defaults(rig):
    """As INTERFACE says: 8 KiB of target, 32 KiB of head, 100 fields."""
    client, answer = get_of(rig, target="/" + "a" * 8191)
    assert answer.status == 200
    client, answer = get_of(rig, target="/" + "a" * 8192)
    assert answer.status == 414
    client, answer = get_of(rig, fields=[f"X{i}: y" for i in range(99)])
    assert answer.status == 200
    client, answer = get_of(rig, fields=[f"X{i}: y" for i in range(100)])
    assert answer.status == 431
    client, answer = get_of(rig, fields=["X: " + "y" * 40000])
    assert answer.status == 431


# -- N03: borders

@pytest.mark.parametrize("delta, status", [(-1, 200), (0, 200), (1, 414)])
def test_n03_target(tight, delta, status):
    _, answer = get_of(tight, target="/" + "a" * (1023 + delta))
    assert answer.status == status


@pytest.mark.parametrize("delta, status", [(-1, 200), (0, 200), (1, 431)])
def test_n03_head(tight, delta, status):
    """The limit counts the whole head, with its empty line."""
    base = len(request("GET", fields=["X: "]))
    _, answer = get_of(tight, fields=["X: " + "y" * (4096 - base + delta)])
    assert answer.status == status


@pytest.mark.parametrize("delta, status", [(-1, 200), (0, 200), (1, 431)])
def test_n03_count(tight, delta, status):
    _, answer = get_of(tight, fields=[f"X{i}: y" for i in range(19 + delta)])
    assert answer.status == status


@pytest.mark.parametrize("delta, status", [(-1, 200), (0, 200), (1, 413)])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_n03_body(tight, framing, delta, status):
    n = 10240 + delta
    client = tight.web()
    if framing == "length":
        client.try_send(request("POST", body=b"x" * n))
    else:
        client.try_send(request("POST", fields=["Transfer-Encoding: chunked"])
                        + b"%x\r\n" % n + b"x" * n + b"\r\n0\r\n\r\n")
    assert client.read_response().status == status


def routes(conf, port):
    """Routes that allow less and more than their listener's 10 KiB."""
    limits(conf, port)
    conf["sites"][0]["routes"] += [
        {"match": {"prefix": "/less"}, "upstream": "app", "limits": {"request_body": "10B"}},
        {"match": {"prefix": "/more"}, "upstream": "app", "limits": {"request_body": "20KiB"}}]


routed = shared_rig(routes)


@pytest.mark.parametrize("path, n, status", [("/less", 10, 200), ("/less", 11, 413), ("/less", 10240, 413),
                                             ("/more", 20480, 200), ("/more", 20481, 413)])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_n03_body_of_a_route(routed, framing, path, n, status):
    """The route's limit counts, and only that: when the whole body comes with its head, too."""
    client = routed.web()
    head = request("POST", path, fields=[f"Content-Length: {n}" if framing == "length"
                                         else "Transfer-Encoding: chunked"])
    body = b"x" * n if framing == "length" else b"%x\r\n" % n + b"x" * n + b"\r\n0\r\n\r\n"
    client.try_send(head + body)
    assert client.read_response().status == status
    if status == 413:
        assert routed.log.of(client)["reason"] == "body_too_large"


@pytest.mark.parametrize("delta, status", [(-1, 200), (0, 200), (1, 502)])
def test_n03_response_head(tight, delta, status):
    def script(conn):
        conn.read_request()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: "
        conn.send(head + b"y" * (4096 - len(head) - 4 + delta) + b"\r\n\r\nok")
    tight.a.on(script)
    _, answer = get_of(tight)
    assert answer.status == status


@pytest.mark.parametrize("size", [4064, 4096, 65536, 69600, 69632])
def test_n03_request_that_ends_at_a_buffer(rig, size):
    """Head and body together exactly as long as a buffer, one less, one more; a second one follows."""
    for n in (size - 1, size, size + 1):
        head = request("POST", "/", fields=[f"Content-Length: {n - 200}"])
        pad = 200 - len(request("POST", "/", fields=[f"Content-Length: {n - 200}", "X: "]))
        whole = head[:-2] + b"X: " + b"p" * pad + b"\r\n\r\n" + b"b" * (n - 200)
        assert len(whole) == n
        client = rig.web()
        client.send(whole)
        assert client.read_response().status == 200
        assert len(rig.a.last.body) == n - 200
        client.send(whole + whole)
        assert client.read_response().status == 200 and client.read_response().status == 200


def test_n03_head_split_at_every_offset(rig):
    """Two writes; the second comes when the first has been read."""
    raw = request("POST", "/s", fields=["X-A: 1", "Content-Length: 3"]) + b"abc"
    client = rig.web()
    for at in range(1, len(raw)):
        client.send_split(raw, at)
        assert client.read_response().status == 200, at
        assert rig.a.last.body == b"abc"


def test_n03_answer_split_at_every_offset(rig):
    raw = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
    at = [1]

    def script(conn):
        conn.read_request()
        conn.send(raw[:at[0]])
        conn.released.wait(0.003)
        conn.send(raw[at[0]:])
    rig.a.on(script)
    client = rig.web()
    for at[0] in range(1, len(raw)):
        answer = client.ask(request("GET", "/"))
        assert answer.status == 200 and answer.body == b"abc", at[0]


# -- N04: lengths that do not fit

def wide(conf, port):
    conf["limits"] = {"request_head": "64KiB", "request_target": "64KiB", "request_headers": 10000,
                      "response_head": "64KiB"}


roomy = shared_rig(wide)


@pytest.mark.parametrize("n", [255, 256, 257, 32767, 32768, 60000])
def test_n04_field_name(roomy, n):
    name = "x" * n
    client, answer = get_of(roomy, fields=[f"{name}: v"])
    if answer.status == 200:
        assert roomy.a.last.one(name) == "v", "never wrapped or cut"
    else:
        assert answer.status in (400, 431), answer


@pytest.mark.parametrize("n", [255, 256, 32767, 32768, 60000, 65000])
def test_n04_field_value(roomy, n):
    client, answer = get_of(roomy, fields=["X-Big: " + "v" * n])
    assert answer.status == 200, "the limit lets it pass"
    assert roomy.a.last.one("X-Big") == "v" * n


@pytest.mark.parametrize("n", [65535, 65536, 65537, 65792, 131072 + 10, (1 << 20) + 5])
def test_n04_beyond_16_bits(roomy, n):
    client = roomy.web()
    client.try_send(request("GET", fields=["Content-Length: 0", "X-Big: " + "v" * n]))
    roomy.refused(client, 431, "head_too_large")
    client = roomy.web()
    client.try_send(request("GET", fields=["x" * n + ": v"]))
    answer = client.read_response()
    assert answer.status in (400, 431)
    client.expect_closed()
    roomy.a.assert_untouched()


@pytest.mark.parametrize("n", [32767, 32768, 60000])
def test_n04_target(roomy, n):
    client, answer = get_of(roomy, target="/" + "t" * (n - 1))
    assert answer.status == 200 and roomy.a.last.target == "/" + "t" * (n - 1)


@pytest.mark.parametrize("n", [32768, 60000])
def test_n04_answer_value(roomy, n):
    roomy.a.on(lambda conn: (conn.read_request(), conn.respond(200, "x", [("X-Big", "v" * n)])))
    _, answer = get_of(roomy)
    assert answer.status == 200 and answer.one("X-Big") == "v" * n


def test_n04_answer_beyond(roomy):
    for n in (65536, 70000, 131072 + 10):
        roomy.a.on(lambda conn, n=n: (conn.read_request(), conn.respond(200, "x", [("X-Big", "v" * n)])))
        _, answer = get_of(roomy)
        check_own_answer(answer, 502)


def test_n04_many_fields(roomy):
    """More than an 8- or 12-bit count."""
    fields = [f"X-{i}: {i}" for i in range(4500)]
    _, answer = get_of(roomy, fields=fields)
    assert answer.status == 200
    got = [v for n, v in roomy.a.last.fields if n.startswith("X-") and n[2:].isdigit()]
    assert got == [str(i) for i in range(4500)]


# -- N07: captures and rewrites

@pytest.mark.parametrize("path", ["/old?" + "%25" * 2000, "/old?" + "%" * 3000, "/old?a=%s%n%x$1$&\\1",
                                  "/old?" + "q" * 7000,
                                  "/old?%0d%0aX:%20y", "/old?"])
def test_n07_redirect_keeps_the_query(rig, path):
    client, answer = get_of(rig, target=path)
    query = path.partition("?")[2]
    if answer.status == 308:
        assert answer.one("Location") == "/new" + ("?" + query if "?" in path else ""), answer.fields
        assert not answer.has("X")
    else:
        assert answer.status == 400, answer


def test_n07_normal_form_of_a_long_path(rig):
    """A path that shrinks and one that would grow when it is brought into its normal form."""
    _, answer = get_of(rig, target="/" + "%41" * 2600)
    assert answer.status == 200 and rig.a.last.target == "/" + "A" * 2600
    _, answer = get_of(rig, target="/" + "./" * 4000 + "x")
    assert answer.status == 200 and rig.a.last.target == "/x"
    _, answer = get_of(rig, target="/" + "%2f" * 2700)
    assert answer.status in (200, 400)
    _, answer = get_of(rig, target="/" + "a/../" * 1600)
    assert answer.status == 200 and rig.a.last.target == "/"


def test_n07_forwarded_fields_of_long_hosts(rig):
    """What is added to a head near its limit still fits."""
    host = "h" * 250 + ".test"
    for pad in range(31900, 32600, 37):
        client = rig.web()
        client.try_send(request("GET", host=host, fields=["X-Pad: " + "p" * pad]))
        assert client.read_response().status in (200, 400, 431)


def test_n07_v2_header_with_a_long_tlv(make_rig):
    """Also what comes before the head has its limit."""
    def change(conf, port):
        conf["listeners"].append({"name": "lb", "bind": f"127.0.0.1:{port('lb')}", "serve": "web",
                                  "proxy_protocol": {"from": ["127.0.0.0/8"], "timeout": "1s"}})
    rig = make_rig(change)
    for n, good in ((100, True), (4000, True), (4096, False), (60000, False)):
        client = rig.client("lb")
        client.try_send(proxyproto.v2(tlvs=proxyproto.tlv(0xe0, b"x" * n)) + request("GET", "/ping"))
        if good:
            assert client.read_response().status == 200, n
        else:
            client.expect_closed()


def test_a_malformed_answer_is_told_in_the_operational_log(make_rig):
    """Which server, and what is wrong with it; the page says neither."""
    rig = make_rig()
    rig.a.on_raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n")
    answer = rig.get("/")
    assert answer.status == 502 and str(rig.a.port) not in answer.text
    rig.culvert.wait_stderr(f"127.0.0.1:{rig.a.port} of upstream app: its answer is malformed (")
