"""Q01-Q06: names. What c-ares leaves to us, and that what it gets never hurts."""

import itertools
import socket
import struct
import time

import dns.flags
import dns.rrset
import pytest

from harness import net
from harness.client import request
from harness.dnsd import DnsServer, answer, empty
from harness.fixtures import shared_rig
from harness.origin import Origin

COUNTER = itertools.count()


def fresh(prefix="n"):
    """A name that nobody has asked for, so that no cache knows it."""
    return f"{prefix}{next(COUNTER)}-{time.monotonic_ns() % 1000000}.test"


def eager(conf, port):
    conf["resolver"].update(timeout="500ms", attempts=2, negative_ttl="1s")


quick = shared_rig(eager)


def ask(rig, name, path="/x"):
    """One GET through the forward listener; returns (answer, its line of the log)."""
    client = rig.fwd()
    start = time.monotonic()
    got = client.ask(f"GET http://{name}:{rig.a.port}{path} HTTP/1.1\r\nHost: {name}\r\n\r\n")
    took = time.monotonic() - start
    entry = rig.log.of(client)
    client.close()
    assert took < 6, took
    return got, entry


def failed(got, entry):
    assert got.status in (502, 504), got
    assert entry["reason"] in ("dns_error", "dns_timeout"), entry


# -- Q01: packets

def raw_reply(query, answers=b"", counts=(1, 1, 0, 0), flags=0x8180, question=True):
    """A reply by hand."""
    wire = query.to_wire()
    head = struct.pack("!HHHHHH", query.id, flags, *counts)
    return head + (wire[12:wire.index(b"\0", 12) + 5] if question else b"") + answers


def record(name=b"\xc0\x0c", kind=1, ttl=60, data=b"\x7f\x00\x00\x01", length=None):
    return name + struct.pack("!HHIH", kind, 1, ttl, len(data) if length is None else length) + data


PACKETS = {
    "pointer-to-itself": lambda q: raw_reply(q, record(b"\xc0" + bytes([len(q.to_wire()) & 0xff]))),
    "pointer-loop": lambda q: raw_reply(q, record(b"\xc0\x0e")[:0] + b"\xc0\x10\xc0\x0e" + record()),
    "pointer-forward": lambda q: raw_reply(q, record(b"\xc1\xff")),
    "label-type-80": lambda q: raw_reply(q, record(b"\x80abc\x00")),
    "label-type-40": lambda q: raw_reply(q, record(b"\x41abc\x00")),
    "label-too-long-for-the-packet": lambda q: raw_reply(q, b"\x3f" + b"x" * 5),
    "name-over-255": lambda q: raw_reply(q, record(b"".join(b"\x3f" + b"x" * 63 for _ in range(5)) + b"\0")),
    "cname-pointer-loop": lambda q: raw_reply(q, record(kind=5, data=b"\xc0" + bytes([len(q.to_wire()) + 12 & 0xff]))),
    "rdlength-beyond": lambda q: raw_reply(q, record(length=500)),
    "rdlength-odd": lambda q: raw_reply(q, record(data=b"\x7f\x00\x00")),
    "rdlength-zero": lambda q: raw_reply(q, record(data=b"")),
    "counts-lie": lambda q: raw_reply(q, record(), counts=(1, 65535, 65535, 65535)),
    "arcount-lies-and-a-bad-record": lambda q: raw_reply(q, record() + b"\xc0\x0c\x00", counts=(1, 1, 0, 65535)),
    "no-question": lambda q: raw_reply(q, record(), counts=(0, 1, 0, 0), question=False),
    "header-only": lambda q: raw_reply(q, counts=(0, 0, 0, 0), question=False),
    "short": lambda q: raw_reply(q)[:7],
    "empty": lambda q: b"",
    "garbage": lambda q: struct.pack("!H", q.id) + b"\xff" * 600,
    "not-a-response": lambda q: raw_reply(q, record(), flags=0x0100),
    "opcode": lambda q: raw_reply(q, record(), flags=0x8980),
    "ttl-negative": lambda q: raw_reply(q, record(ttl=0x80000000)),
}


@pytest.mark.parametrize("name", sorted(PACKETS))
def test_q01_bad_packets(quick, name):
    """An answer is taken or not; it ends in time, the next name works, nothing crashed."""
    host = fresh("bad")
    quick.dns.on(host, PACKETS[name])
    got, entry = ask(quick, host)
    if got.status != 200:
        failed(got, entry)
    got, _ = ask(quick, fresh("good"))
    assert got.status == 200


def chain(query, length):
    """CNAMEs one after another, then an address."""
    reply = empty(query)
    name = query.question[0].name.to_text()
    for i in range(length):
        target = f"c{i}.test."
        reply.answer.append(dns.rrset.from_text(name, 60, "IN", "CNAME", target))
        name = target
    if query.question[0].rdtype == 1:
        reply.answer.append(dns.rrset.from_text(name, 60, "IN", "A", "127.0.0.1"))
    return reply


@pytest.mark.parametrize("length", [1, 5, 8, 20, 200])
def test_q01_cname_chain(quick, length):
    host = fresh("chain")
    quick.dns.on(host, lambda query: chain(query, length))
    got, entry = ask(quick, host)
    if length <= 8:
        assert got.status == 200, entry
    elif got.status != 200:
        failed(got, entry)


def test_q01_cname_loop(quick):
    host = fresh("loop")

    def rule(query):
        reply = empty(query)
        name = query.question[0].name.to_text()
        reply.answer.append(dns.rrset.from_text(name, 60, "IN", "CNAME", "b.loop.test."))
        reply.answer.append(dns.rrset.from_text("b.loop.test.", 60, "IN", "CNAME", name))
        return reply
    quick.dns.on(host, rule)
    failed(*ask(quick, host))


def test_q01_many_addresses(quick):
    """More than are kept: one of them is used."""
    host = fresh("many")

    def rule(query):
        if quick.dns.peer:
            reply = empty(query)
            reply.flags |= dns.flags.TC
            return reply
        return answer(query, [f"127.0.1.{i}" for i in range(1, 120)], 60)
    quick.dns.on(host, rule)
    got, entry = ask(quick, host)
    assert got.status == 502 and entry["reason"] == "connection_refused", entry
    assert entry["address"].startswith("127.0.1."), entry


# -- Q02: spoofing

def spoofed(rig, change):
    """The true server says 127.0.0.1 a little later than somebody who says 127.0.0.66."""
    host = fresh("spoof")

    def rule(query):
        if query.question[0].rdtype == 1 and rig.dns.peer:
            change(query, rig.dns.peer)
            time.sleep(0.1)
        return answer(query, ["127.0.0.1"], 60)
    rig.dns.on(host, rule)
    got, entry = ask(rig, host)
    assert got.status == 200 and entry["address"] == f"127.0.0.1:{rig.a.port}", entry


def wrong(query):
    return answer(query, ["127.0.0.66"], 3600)


def test_q02_other_port(quick):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        spoofed(quick, lambda query, peer: sock.sendto(wrong(query).to_wire(), peer))


def test_q02_other_address(quick):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.9", quick.dns.port))
        spoofed(quick, lambda query, peer: sock.sendto(wrong(query).to_wire(), peer))


def test_q02_other_id(quick):
    def send(query, peer):
        wire = bytearray(wrong(query).to_wire())
        for i in range(50):
            wire[0:2] = struct.pack("!H", (query.id + 1 + i) & 0xffff)
            quick.dns.udp.sendto(bytes(wire), peer)
    spoofed(quick, send)


def test_q02_other_question(quick):
    def send(query, peer):
        wire = wrong(query).to_wire()
        at = wire.index(b"\x04test")
        quick.dns.udp.sendto(wire[:at] + b"\x04evil" + wire[at + 5:], peer)
    spoofed(quick, send)


def test_q02_records_of_other_names_are_not_cached(quick):
    """An answer that also says where another name is."""
    victim, host = fresh("victim"), fresh("glue")

    def rule(query):
        reply = answer(query, ["127.0.0.1"], 60)
        reply.additional.append(dns.rrset.from_text(victim + ".", 3600, "IN", "A", "127.0.0.66"))
        reply.answer.append(dns.rrset.from_text(victim + ".", 3600, "IN", "A", "127.0.0.66"))
        return reply
    quick.dns.on(host, rule)
    ask(quick, host)
    got, entry = ask(quick, victim)
    assert got.status == 200 and entry["address"].startswith("127.0.0.1:"), entry


def test_q02_ids_and_ports_are_not_guessable(quick):
    seen = []

    def rule(query):
        seen.append((query.id, quick.dns.peer))
        return answer(query, ["127.0.0.1"], 60)
    for _ in range(20):
        host = fresh("id")
        quick.dns.on(host, rule)
        ask(quick, host)
    ids = [i for i, _ in seen]
    assert len(set(ids)) > len(ids) * 0.9
    steps = {(b - a) & 0xffff for a, b in zip(ids, ids[1:])}
    assert len(steps) > len(ids) // 2, "not a counter"


# -- Q03: changes

def make_moving(make_rig, ttl):
    """A rig whose upstream is a name; returns (rig, host, origin at .1, origin at .2)."""
    host = fresh("up")
    one = Origin("one")
    two = Origin("two", host="127.0.0.2", port=one.port)

    def change(conf, port):
        eager(conf, port)
        conf["upstreams"]["app"] = {"servers": [f"http://{host}:{one.port}"]}
    rig = make_rig(change, prepare=lambda r: r.dns.a(host, "127.0.0.1", ttl=ttl))
    return rig, host, one, two


def test_q03_ttl_zero(make_rig):
    """Each new connection asks again; the answer in hand is still used."""
    rig, host, one, two = make_moving(make_rig, 0)
    one.on(lambda conn: (conn.read_request(), conn.respond(200, "x", ["X-Origin: one"], close=True)))
    for _ in range(3):
        assert rig.get("/").one("X-Origin") == "one"
    rig.dns.a(host, "127.0.0.2", ttl=0)
    net.wait_until(lambda: rig.get("/").one("X-Origin") == "two", timeout=5, what="the new address")
    one.close()
    two.close()


@pytest.mark.parametrize("code", ["SERVFAIL", "NXDOMAIN", "REFUSED"])
def test_q03_keeps_the_last_good_answer(make_rig, code):
    """An upstream's name that fails for a while: its last answer is used on."""
    rig, host, one, two = make_moving(make_rig, 1)
    one.on(lambda conn: (conn.read_request(), conn.respond(200, "x", close=True)))
    assert rig.get("/").status == 200
    rig.dns.rcode(host, code)
    asked = rig.dns.count(host)
    for _ in range(10):
        assert rig.get("/").status == 200
        time.sleep(0.2)
    assert rig.dns.count(host) > asked, "it was asked again"
    assert rig.metrics().value("culvert_dns_queries_total", result="stale") > 0
    one.close()
    two.close()


def test_q03_keeps_it_when_the_resolver_is_silent(make_rig):
    rig, host, one, two = make_moving(make_rig, 1)
    one.on(lambda conn: (conn.read_request(), conn.respond(200, "x", close=True)))
    assert rig.get("/").status == 200
    rig.dns.silent(host)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert rig.get("/").status == 200
        time.sleep(0.2)
    one.close()
    two.close()


def test_q03_negative_answers_are_cached_for_a_while(quick):
    host = fresh("none")
    quick.dns.rcode(host, "NXDOMAIN")
    for _ in range(5):
        failed(*ask(quick, host))
    asked = quick.dns.count(host)
    assert asked <= 4, asked
    quick.dns.a(host, "127.0.0.1")
    net.wait_until(lambda: ask(quick, host)[0].status == 200, timeout=4, what="it exists now")


def test_q03_single_flight(quick):
    """Fifty requests for one new name at once: one question per type."""
    host = fresh("flight")

    def rule(query):
        time.sleep(0.2)
        return answer(query, ["127.0.0.1"], 60)
    quick.dns.on(host, rule)
    clients = [quick.fwd() for _ in range(50)]
    for client in clients:
        client.send(f"GET http://{host}:{quick.a.port}/x HTTP/1.1\r\nHost: {host}\r\n\r\n")
    for client in clients:
        assert client.read_response().status == 200
    assert quick.dns.count(host) <= 2, quick.dns.queries


def test_q03_timeout(quick):
    host = fresh("silent")
    quick.dns.silent(host)
    got, entry = ask(quick, host)
    assert got.status == 504 and entry["reason"] == "dns_timeout", entry


def test_q03_one_family_is_silent(quick):
    """AAAA is never answered: A is enough."""
    host = fresh("half")
    quick.dns.on(host, lambda query: answer(query, ["127.0.0.1"], 60) if query.question[0].rdtype == 1 else None)
    got, entry = ask(quick, host)
    assert got.status == 200, entry


# -- Q04: down at start

def test_q04_resolver_down_at_start(make_rig):
    """It starts, says 503 with a reason on these routes only, and recovers."""
    dns_port = net.free_port()
    host = fresh("late")
    late = Origin("late")

    def change(conf, port):
        eager(conf, port)
        conf["resolver"]["servers"] = [f"127.0.0.1:{dns_port}"]
        conf["upstreams"]["b"] = {"servers": [f"http://{host}:{late.port}"]}
    rig = make_rig(change)
    assert rig.get("/").status == 200 and rig.get("/ping").status == 200
    client = rig.web()
    got = client.ask(request("GET", "/b"))
    assert got.status == 503 and got.has("Retry-After"), got
    assert rig.log.of(client)["reason"] == "no_server"
    server = DnsServer(port=dns_port)       # now it is there
    net.wait_until(lambda: rig.get("/b").status == 200, timeout=8, what="it recovers")
    server.close()
    late.close()


def test_q04_nxdomain_at_start(make_rig):
    host = fresh("nx")
    late = Origin("late")

    def change(conf, port):
        eager(conf, port)
        conf["upstreams"]["b"] = {"servers": [f"http://{host}:{late.port}"]}
    rig = make_rig(change, prepare=lambda r: r.dns.rcode(host, "NXDOMAIN"))
    client = rig.web()
    assert client.ask(request("GET", "/b")).status == 503
    assert rig.log.of(client)["reason"] == "no_server"
    rig.dns.a(host, "127.0.0.1")
    net.wait_until(lambda: rig.get("/b").status == 200, timeout=8, what="it recovers")
    late.close()


# -- Q05: sizes

def test_q05_truncated_then_tcp(quick):
    """TC: asked again by TCP (RFC 7766)."""
    host = fresh("tc")
    by = []

    def rule(query):
        by.append("udp" if quick.dns.peer else "tcp")
        if quick.dns.peer:
            reply = empty(query)
            reply.flags |= dns.flags.TC
            return reply
        return answer(query, ["127.0.0.1"], 60)
    quick.dns.on(host, rule)
    got, entry = ask(quick, host)
    assert got.status == 200, entry
    assert "tcp" in by


def test_q05_truncated_and_tcp_is_dead(quick):
    host = fresh("tcdead")

    def rule(query):
        reply = empty(query)
        reply.flags |= dns.flags.TC
        return reply if quick.dns.peer else None
    quick.dns.on(host, rule)
    got, entry = ask(quick, host)
    failed(got, entry)


def test_q05_edns(quick):
    """A size is announced (RFC 6891), a modest one; an answer of that size is taken."""
    host = fresh("edns")
    sizes = []

    def rule(query):
        sizes.append(query.payload)
        return answer(query, ["127.0.0.1"], 60)
    quick.dns.on(host, rule)
    assert ask(quick, host)[0].status == 200
    assert all(size == 0 or 512 <= size <= 4096 for size in sizes), sizes


# -- Q06: names

@pytest.mark.parametrize("spell", [str.upper, lambda n: n + ".", str.title])
def test_q06_one_name_in_any_spelling(quick, spell):
    host = fresh("canon")
    assert ask(quick, host)[0].status == 200
    asked = quick.dns.count(host)
    got, entry = ask(quick, spell(host))
    assert got.status == 200, entry
    assert quick.dns.count(host) == asked, "one entry in the cache"


@pytest.mark.parametrize("host", ["under_score.test", "_srv.under.test", "xn--bcher-kva.test",
                                  "a" * 63 + ".test", "1.2.test",
                                  "-dash.test"])
def test_q06_odd_names_that_are_names(quick, host):
    got, entry = ask(quick, host)
    assert got.status in (200, 400), entry
    assert got.status == 400 or quick.dns.count(host) > 0


@pytest.mark.parametrize("host", ["a" * 64 + ".test", ".".join(["a" * 63] * 4) + ".test", "a..test",
                                  ".test", "bücher.test"])
def test_q06_no_names(quick, host):
    """Refused before anybody is asked."""
    client = quick.fwd()
    client.send(f"GET http://{host}:{quick.a.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    got = client.read_response()
    assert got.status in (400, 502), got
    assert not [q for q in quick.dns.queries if q[0].startswith(("aaaaaa", "a..", "b"))]


def test_q06_hosts_file_is_asked_first(quick):
    """localhost never goes to the network."""
    got, entry = ask(quick, "localhost")
    assert got.status == 200 and entry["address"].startswith(("127.0.0.1:", "[::1]:")), entry
    assert quick.dns.count("localhost") == 0


def test_q06_forward_targets_do_not_use_the_search_list(quick):
    """A bare name is asked as it stands or not at all."""
    failed(*ask(quick, f"bare{next(COUNTER)}"))
    assert all(name.count(".") == 0 for name, _ in quick.dns.queries if name.startswith("bare")), quick.dns.queries
