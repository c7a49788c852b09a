"""K01-K03, K05-K07: who the client is. Believed only from trusted peers, never from a header that happens to come."""

import pytest

from harness import proxyproto as pp
from harness.client import Eof, request
from harness.fixtures import shared_rig
from harness.net import has_ipv6


def trusting(conf, port):
    conf["trusted_proxies"] = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8:aaaa::/48"]


trusted = shared_rig(trusting)


def client_of(entry):
    """The address of the log's client, with or without a port."""
    client = entry["client"]
    if client.startswith("["):
        return client[1:].partition("]")[0]
    return client.rpartition(":")[0] if client.count(":") == 1 else client


def ask(rig, *fields, **options):
    client = rig.web(**options)
    answer = client.ask(request("GET", "/who", fields=fields))
    return answer, client


def seen(rig, *fields, **options):
    """(request at the origin, client in the log) of one GET with these fields."""
    answer, client = ask(rig, *fields, **options)
    assert answer.status == 200, answer
    return rig.a.last, client_of(rig.log.of(client))


def members(req, name="X-Forwarded-For"):
    return [m.strip() for v in req.all(name) for m in v.split(",")]


# -- K01: X-Forwarded-For

def test_k01_written_anew_for_strangers(rig):
    req, client = seen(rig, "X-Forwarded-For: 10.0.0.1, 1.2.3.4", "X-Forwarded-For: 5.6.7.8",
                       "X-Forwarded-Proto: https",
                       "X-Forwarded-Host: evil.test", "X-Forwarded-Port: 443", "X-Real-IP: 1.2.3.4",
                       "Forwarded: for=1.2.3.4;proto=https;host=evil.test", "X-Forwarded-Server: evil",
                       "X-Forwarded-Prefix: /x",
                       "X-Forwarded-Anything: evil")
    assert client == "127.0.0.1"
    assert members(req) == ["127.0.0.1"]
    assert req.one("X-Forwarded-Proto") == "http"
    text = str(req.fields)
    for lie in ("1.2.3.4", "5.6.7.8", "10.0.0.1", "evil", "https", "443"):
        assert lie not in text, text
    assert not req.has("X-Forwarded-Anything") and not req.has("X-Forwarded-Prefix")


def test_k01_written_without_any(rig):
    req, _ = seen(rig)
    assert members(req) == ["127.0.0.1"]
    assert req.one("X-Forwarded-Proto") == "http"
    assert req.one("X-Forwarded-Host", "web.test") == "web.test"


def test_k01_source_address(rig):
    req, client = seen(rig, source=("127.0.0.9", 0))
    assert members(req) == ["127.0.0.9"] and client == "127.0.0.9"


def test_k01_forward_direction_writes_none(fwd):
    """It adds nothing about the client."""
    assert fwd.get("/").status == 200
    req = fwd.rig.a.last
    for name in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "Forwarded"):
        assert not req.has(name), req.fields


CHAINS = [
    ("10.0.0.1, 1.2.3.4", "1.2.3.4"),                 # the right-most that is not trusted
    ("1.2.3.4, 10.0.0.1", "1.2.3.4"),                 # walk over trusted ones
    ("6.6.6.6, 1.2.3.4, 10.0.0.1, 10.9.9.9", "1.2.3.4"),
    ("1.2.3.4", "1.2.3.4"),
    ("junk, 1.2.3.4", "1.2.3.4"),                     # what is left of the answer does not matter
    ("1.2.3.4, junk", "127.0.0.1"),                   # junk: nothing behind it is believed
    ("1.2.3.4, junk, 10.0.0.1", "10.0.0.1"),
    ("10.0.0.1, 10.0.0.2", "10.0.0.1"),               # all trusted: the left-most
    ("2001:db8::7", "2001:db8::7"),
    ("2001:db8::7, 2001:db8:aaaa::1", "2001:db8::7"),
    ("1.2.3.4,10.0.0.1", "1.2.3.4"),
    (" 1.2.3.4 ,\t10.0.0.1 ", "1.2.3.4"),
    ("1.2.3.4, ", "1.2.3.4"),
]


@pytest.mark.parametrize("value,expected", CHAINS)
def test_k01_walk_from_the_right(trusted, value, expected):
    req, client = seen(trusted, f"X-Forwarded-For: {value}")
    assert client == expected
    got = members(req)
    assert got[-1] == "127.0.0.1", "the peer is appended"
    assert [m for m in got[:-1] if m] == [m.strip() for m in value.split(",") if m.strip()]


def test_k01_two_lines_are_one_list(trusted):
    req, client = seen(trusted, "X-Forwarded-For: 6.6.6.6, 1.2.3.4", "X-Other: x", "X-Forwarded-For: 10.0.0.1")
    assert client == "1.2.3.4"
    assert members(req) == ["6.6.6.6", "1.2.3.4", "10.0.0.1", "127.0.0.1"]


def test_k01_many_hops(trusted):
    """Two thousand hops are walked; ten thousand are more than a head may hold."""
    req, client = seen(trusted, "X-Forwarded-For: " + ", ".join(["1.2.3.4"] + ["10.0.0.1"] * 2000))
    assert client == "1.2.3.4"
    assert len(members(req)) == 2002
    answer, _ = ask(trusted, "X-Forwarded-For: " + ", ".join(["1.2.3.4"] * 10000))
    assert answer.status == 431


def test_k01_trusted_proto_and_host_are_kept(trusted):
    req, _ = seen(trusted, "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Forwarded-Host: public.test")
    assert req.one("X-Forwarded-Proto") == "https"
    assert req.one("X-Forwarded-Host") == "public.test"


def test_k01_trust_is_by_peer(trusted):
    """127.0.0.0/8 is trusted here, so a stranger must come from elsewhere: by the default, nobody is trusted."""
    req, client = seen(trusted, source=("127.9.9.9", 0))
    assert client == "127.9.9.9" and members(req) == ["127.9.9.9"]


# -- K02: Forwarded

@pytest.mark.parametrize("value,expected", [
    ("for=1.2.3.4", "1.2.3.4"),
    ('for="1.2.3.4:567"', "1.2.3.4"),
    ('for="[2001:db8::1]:80"', "2001:db8::1"),
    ('for="[2001:db8::1]"', "2001:db8::1"),
    ("For=1.2.3.4;proto=http;by=10.0.0.1", "1.2.3.4"),
    ("proto=http; for=1.2.3.4", "1.2.3.4"),
    ("for=6.6.6.6, for=1.2.3.4, for=10.0.0.1", "1.2.3.4"),
    ('for=1.2.3.4;host="a,b;for=9.9.9.9"', "1.2.3.4"),
    ("for=_x", "127.0.0.1"),
    ("for=unknown", "127.0.0.1"),
    ("for=1.2.3.4, for=_hidden", "127.0.0.1"),
    ("for=1.2.3.4, for=_hidden, for=10.0.0.1", "10.0.0.1"),
    ('for="[2001:db8::1', "127.0.0.1"),
    ("for=", "127.0.0.1"),
    ("junk", "127.0.0.1"),
])
def test_k02_forwarded(trusted, value, expected):
    _, client = seen(trusted, f"Forwarded: {value}")
    assert client == expected


def test_k02_forwarded_of_strangers_is_removed(rig):
    req, client = seen(rig, 'Forwarded: for="[2001:db8::1]:80"')
    assert client == "127.0.0.1"
    assert "2001:db8" not in str(req.fields)


# -- K03: PROXY protocol

def proxied(conf, port):
    base = {"serve": "web", "sites": ["main"]}
    conf["listeners"] += [
        {"name": "lb", "bind": f"127.0.0.1:{port('lb')}", **base,
         "proxy_protocol": {"from": ["127.0.0.0/8"], "timeout": "700ms"}},
        {"name": "far", "bind": f"127.0.0.1:{port('far')}", **base, "proxy_protocol": {"from": ["10.0.0.0/8"]}},
        {"name": "lbfwd", "bind": f"127.0.0.1:{port('lbfwd')}", "serve": "forward", "allow_from": ["192.0.2.0/24"],
         "proxy_protocol": {"from": ["127.0.0.0/8"]}}]


lb = shared_rig(proxied)


def through(rig, header, listener="lb", split=False):
    """The client of the log, and the request at the origin, of a GET behind this header."""
    mark = rig.log.mark()
    client = rig.client(listener)
    data = header + request("GET", "/who")
    if split:
        for i in range(len(data)):
            client.send(data[i:i + 1])
    else:
        client.send(data)
    assert client.read_response().status == 200
    return client_of(rig.log.wait(lambda e: e["listener"] == listener, since=mark)), rig.a.last


GOOD = {
    "v1_tcp4": (pp.v1(), "192.0.2.1"),
    "v1_tcp6": (pp.v1("2001:db8::9", "2001:db8::1"), "2001:db8::9"),
    "v1_tcp6_longest": (b"PROXY TCP6 ffff:f0f0:ffff:ffff:ffff:ffff:ffff:ffff "
                        b"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                        "ffff:f0f0:ffff:ffff:ffff:ffff:ffff:ffff"),
    "v1_unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    "v1_unknown_with_rest": (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "127.0.0.1"),
    "v2_tcp4": (pp.v2(), "192.0.2.1"),
    "v2_tcp6": (pp.v2("2001:db8::9", "2001:db8::1"), "2001:db8::9"),
    "v2_local": (pp.v2_local(), "127.0.0.1"),
    "v2_local_with_payload": (pp.v2_raw(pp.LOCAL, 0x11, pp.v2_addresses("6.6.6.6", "6.6.6.6", 1, 1)), "127.0.0.1"),
    "v2_unspec": (pp.v2_raw(pp.PROXY, 0x00), "127.0.0.1"),
    "v2_tlvs": (pp.v2(tlvs=pp.tlv(pp.NOOP, b"xx") + pp.tlv(0xEA, b"y" * 300)), "192.0.2.1"),
    "v2_crc": (pp.v2(crc=True), "192.0.2.1"),
    "v2_crc_and_tlv": (pp.v2(tlvs=pp.tlv(0xEA, b"vpce-1"), crc=True), "192.0.2.1"),
}


@pytest.mark.parametrize("header,expected", GOOD.values(), ids=GOOD.keys())
def test_k03_good(lb, header, expected):
    client, req = through(lb, header)
    assert client == expected
    assert members(req) == [expected]


@pytest.mark.parametrize("name", ["v1_tcp4", "v2_tcp4", "v2_crc", "v1_unknown"])
def test_k03_byte_by_byte(lb, name):
    header, expected = GOOD[name]
    assert through(lb, header, split=True)[0] == expected


def test_k03_unix_is_the_real_peer_or_refused(lb):
    """AF_UNIX names no address that culvert could judge by."""
    client = lb.client("lb")
    client.send(pp.v2_raw(pp.PROXY, 0x31, b"/x".ljust(108, b"\0") * 2) + request("GET", "/who"))
    try:
        assert client.read_response().status == 200
    except Eof:
        lb.a.assert_untouched()
    else:
        assert client_of(lb.log.of(client)) == "127.0.0.1"


BAD = {
    "absent": b"",
    "v1_108_bytes": b"PROXY TCP4 " + b"1" * 97,
    "v1_address": b"PROXY TCP4 999.1.1.1 1.1.1.1 1 1\r\n",
    "v1_port": b"PROXY TCP4 1.1.1.1 1.1.1.1 65536 1\r\n",
    "v1_port_zeros": b"PROXY TCP4 1.1.1.1 1.1.1.1 0x1 1\r\n",
    "v1_family": b"PROXY TCP5 1.1.1.1 1.1.1.1 1 1\r\n",
    "v1_mixed": b"PROXY TCP4 ::1 ::1 1 1\r\n",
    "v1_mixed6": b"PROXY TCP6 1.1.1.1 1.1.1.1 1 1\r\n",
    "v1_short": b"PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n",
    "v1_more": b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1 1\r\n",
    "v1_spaces": b"PROXY TCP4  1.1.1.1 1.1.1.1 1 1\r\n",
    "v1_lf": b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n",
    "v1_lower": b"proxy tcp4 1.1.1.1 1.1.1.1 1 1\r\n",
    "v1_bare": b"PROXY\r\n",
    "v2_empty": pp.v2_raw(pp.PROXY, 0x11, b""),
    "v2_short": pp.v2_raw(pp.PROXY, 0x11, b"\x01\x02\x03\x04\x05"),
    "v2_length_max": pp.v2_raw(pp.PROXY, 0x11, pp.v2_addresses("1.1.1.1", "1.1.1.1", 1, 1), length=65535)
    + b"x" * 8000,
    "v2_version": pp.v2_raw(pp.PROXY, 0x11, pp.v2_addresses("1.1.1.1", "1.1.1.1", 1, 1), version=3),
    "v2_command": pp.v2_raw(2, 0x11, pp.v2_addresses("1.1.1.1", "1.1.1.1", 1, 1)),
    "v2_tlv_length": pp.v2(tlvs=b"\xEA\xFF\xFFxx"),
    "v2_tlv_cut": pp.v2(tlvs=b"\xEA\x00"),
    "v2_crc_bad": pp.v2(tlvs=pp.tlv(pp.CRC32C, b"\1\2\3\4")),
    "v2_crc_length": pp.v2(tlvs=pp.tlv(pp.CRC32C, b"\1\2")),
    "v2_signature": pp.V2_SIGNATURE[:-1] + b"\r" + pp.v2()[12:],
}


def cut_silently(rig, client):
    """Not a byte of an answer; logged as refused; nothing at the origin."""
    data, _ = client.drain_to_close()
    assert data == b"", data
    entry = rig.log.of(client)
    assert entry["kind"] == "refused" and entry["reason"] == "proxy_protocol_error", str(entry)
    rig.a.assert_untouched()


@pytest.mark.parametrize("header", BAD.values(), ids=BAD.keys())
def test_k03_bad(lb, header):
    client = lb.client("lb")
    client.try_send(header + request("GET", "/who"))
    cut_silently(lb, client)


@pytest.mark.parametrize("header", [b"PROXY TCP4 1.1.1.1 1.1", pp.v2()[:14], pp.V2_SIGNATURE[:5], b"P"])
def test_k03_half_a_header_times_out(lb, header):
    client = lb.client("lb")
    client.send(header)
    cut_silently(lb, client)


@pytest.mark.parametrize("header", [pp.v1(), pp.v2(), b""])
def test_k03_untrusted_sender(lb, header):
    """From elsewhere than `from`: refused, with a header or without."""
    client = lb.client("far")
    client.try_send(header + request("GET", "/who"))
    cut_silently(lb, client)


@pytest.mark.parametrize("header", [pp.v1(), pp.v2()])
def test_k03_never_guessed_on_a_plain_listener(lb, header):
    client = lb.web()
    client.try_send(header + request("GET", "/who"))
    lb.refused(client, 400, "http_request_error")


def test_k03_only_one_header(lb):
    client = lb.client("lb")
    client.send(pp.v1() + pp.v1("6.6.6.6") + request("GET", "/who"))
    assert client.read_response().status == 400
    lb.a.assert_untouched()


def test_k03_keep_alive_keeps_the_client(lb):
    client = lb.client("lb")
    client.send(pp.v2())
    for _ in range(3):
        assert client.ask(request("GET", "/who")).status == 200
        assert members(lb.a.last) == ["192.0.2.1"]


def test_k03_allow_from_judges_the_proxy_address(lb):
    target = lb.a.authority
    client = lb.client("lbfwd")
    client.send(pp.v1("192.0.2.77"))
    assert client.connect(target).status == 200
    mark = lb.log.mark()
    stranger = lb.client("lbfwd")
    stranger.send(pp.v1("198.51.100.1"))
    assert stranger.connect(target).status == 403
    entry = lb.log.wait(lambda e: e["status"] == 403, since=mark)
    assert entry["reason"] == "client_denied" and entry["peer"] == "198.51.100.1:1111", str(entry)


def test_k03_port_is_logged(lb):
    mark = lb.log.mark()
    client = lb.client("lb")
    assert client.ask(pp.v2("2001:db8::9", "2001:db8::1", sport=777) + request("GET", "/who")).status == 200
    assert lb.log.wait(lambda e: e["listener"] == "lb", since=mark)["peer"] == "[2001:db8::9]:777"


# -- K05: names that fold into others

@pytest.mark.parametrize("line", ["X_Forwarded_For: 6.6.6.6", "X_Real_IP: 6.6.6.6", "X-Forwarded_For: 6.6.6.6",
                                  "x_forwarded_for: 6.6.6.6", "X_FORWARDED_PROTO: https"])
def test_k05_underscore_twins_of_identity(rig, line):
    """A CGI-like backend would take them for ours: dropped, or the request is refused."""
    client = rig.web()
    client.send(request("GET", "/who", fields=[line]))
    answer = client.read_response()
    if answer.status == 400:
        rig.a.assert_untouched()
        return
    assert answer.status == 200
    assert client_of(rig.log.of(client)) == "127.0.0.1"
    assert "6.6.6.6" not in str(rig.a.last.fields) and "https" not in str(rig.a.last.fields)


def test_k05_underscore_twins_of_framing(door):
    client = door.client()
    client.send(door.head("POST", "/up", "Content_Length: 50", "Content-Length: 5") + b"hello"
                + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == b"hello"


def test_k05_other_underscores_pass(rig):
    req, _ = seen(rig, "X_Custom: 1", "my_field: 2")
    assert req.one("X_Custom") == "1" and req.one("my_field") == "2"


# -- K06: httpoxy; K07: nominated away

@pytest.mark.parametrize("name", ["Proxy", "proxy", "PROXY"])
def test_k06_proxy_is_dropped(door, name):
    assert door.get("/", f"{name}: http://evil.test").status == 200
    assert not door.rig.a.last.has("Proxy")


@pytest.mark.parametrize("nominated", ["X-Forwarded-For", "x-forwarded-for, X-Forwarded-Proto, X-Real-IP, Forwarded",
                                       "Via",
                                       "close, X-Forwarded-For"])
def test_k07_identity_cannot_be_nominated_away(rig, nominated):
    req, client = seen(rig, f"Connection: {nominated}", "X-Forwarded-For: 6.6.6.6")
    assert client == "127.0.0.1"
    assert members(req) == ["127.0.0.1"]
    assert req.one("X-Forwarded-Proto") == "http" and req.has("Via")


def test_k07_not_even_by_trusted_peers(trusted):
    req, client = seen(trusted, "Connection: X-Forwarded-For", "X-Forwarded-For: 1.2.3.4")
    assert members(req)[-1] == "127.0.0.1"
    assert client in ("1.2.3.4", "127.0.0.1")


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on loopback")
def test_k01_ipv6_peer(make_rig):
    def change(conf, port):
        conf["listeners"].append({"name": "six", "bind": f"[::1]:{port('six')}", "serve": "web"})
    rig = make_rig(change)
    client = rig.client(("::1", rig.port["six"]))
    assert client.ask(request("GET", "/who")).status == 200
    assert members(rig.a.last) == ["::1"]
