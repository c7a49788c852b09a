"""PROXY protocol in on TCP and Unix listeners, with TCP and Unix servers behind."""

import os

import pytest

from harness import net, proxyproto, websocket
from harness.client import request
from harness.culvert import run_program
from harness.fixtures import shared_rig
from harness.life import life_conf
from harness.origin import Origin
from harness.rig import route


def both(conf, port):
    """Listeners lb (TCP) and lbsock (Unix) want the header, sock (Unix) does not; /unix goes to a Unix server."""
    header = {"from": ["127.0.0.0/8"], "timeout": "1s"}
    conf["listeners"] += [
        {"name": "lb", "bind": f"127.0.0.1:{port('lb')}", "serve": "web", "proxy_protocol": header},
        {"name": "lbfwd", "bind": f"127.0.0.1:{port('lbfwd')}", "serve": "forward", "proxy_protocol": header},
        {"name": "sock", "bind": "unix:./sock", "mode": "0666", "serve": "web"},
        {"name": "fwdsock", "bind": "unix:./fwdsock", "serve": "forward"}]
    conf["upstreams"]["local"] = {"servers": ["unix:./origin.sock"]}
    conf["sites"][0]["routes"].insert(0, route("/unix", "local"))


rigged = shared_rig(both)


@pytest.fixture
def behind(rigged):
    """The Unix server, where the configuration looks for it."""
    path = str(rigged.culvert.dir / "origin.sock")
    if os.path.exists(path):
        os.unlink(path)
    origin = Origin("u", path=path)
    os.chmod(path, 0o777)
    os.chmod(rigged.culvert.dir, 0o711)
    os.chmod(rigged.culvert.dir.parent, 0o711)
    origin.rig = rigged
    yield origin
    origin.close()
    assert not origin.errors, origin.errors
    os.chmod(rigged.culvert.dir, 0o700)
    os.chmod(rigged.culvert.dir.parent, 0o700)


HEADERS = {
    "v1": (proxyproto.v1(), "192.0.2.1"),
    "v1-six": (proxyproto.v1("2001:db8::1", "2001:db8::2"), "2001:db8::1"),
    "v2": (proxyproto.v2(), "192.0.2.1"),
    "v2-six": (proxyproto.v2("2001:db8::1", "2001:db8::2"), "2001:db8::1"),
    "v2-tlvs": (proxyproto.v2(tlvs=proxyproto.tlv(proxyproto.NOOP, b"xxx")), "192.0.2.1"),
    "v2-crc": (proxyproto.v2(crc=True), "192.0.2.1"),
    "local": (proxyproto.v2_local(), "127.0.0.1"),
    "unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
}


def line_of(rig, client, listener):
    """Its peer is the one that the header names: the first line of this listener is meant."""
    return rig.log.wait(lambda e: e["listener"] == listener, since=client.log_mark)


@pytest.mark.parametrize("name", sorted(HEADERS))
@pytest.mark.parametrize("server", ["/", "/unix"])
def test_client_address(behind, name, server):
    """In the log, and in what the server is told."""
    header, client_ip = HEADERS[name]
    rig = behind.rig
    client = rig.client("lb")
    client.send(header + request("GET", server))
    assert client.read_response().status == 200
    entry = line_of(rig, client, "lb")
    assert entry["client"] == client_ip, entry
    got = (behind if server == "/unix" else rig.a).last
    assert got.one("X-Forwarded-For") == client_ip


def test_unix_server(behind):
    """Pooled, logged, streamed as any other."""
    rig = behind.rig
    client = rig.web()
    for _ in range(5):
        assert client.ask(request("GET", "/unix/x")).text == "u GET /unix/x\n"
    assert len(behind.conns) == 1
    entry = rig.log.of(client)
    assert entry["upstream"] == "local" and entry["server"].startswith("unix:"), entry
    body = bytes(range(256)) * 4000
    answer = client.ask(request("POST", "/unix", body=body))
    assert answer.status == 200 and behind.last.body == body


def test_unix_server_is_a_tunnel_too(behind):
    behind.on(websocket.echo)
    client = behind.rig.web()
    assert client.ask(websocket.handshake("/unix/ws")).status == 101
    client.send(websocket.frame(b"z" * 100000, opcode=2, masked=True))
    assert websocket.read_frame(client) == (2, b"z" * 100000)


def test_unix_server_that_is_not_there(behind):
    behind.stop_listening()
    os.unlink(behind.path)
    client = behind.rig.web()
    answer = client.ask(request("GET", "/unix"))
    assert answer.status == 502
    assert behind.rig.log.of(client)["reason"] == "connection_refused"
    assert behind.path not in answer.text


def test_unix_server_drops_a_reused_connection(behind):
    """The silent retry works there as well."""
    rig = behind.rig
    assert rig.get("/unix").status == 200

    def die_once(conn):
        conn.read_request()
        if conn.number == 0:
            conn.close()
        else:
            conn.respond(200, "second\n")
    behind.on(die_once)
    assert rig.get("/unix").text == "second\n"


def test_unix_listener(behind):
    """A peer without an address: nothing is invented."""
    rig = behind.rig
    client = rig.client(str(rig.culvert.dir / "sock"))
    for target, origin in (("/x", rig.a), ("/unix", behind)):
        assert client.ask(request("GET", target)).status == 200
        value = origin.last.one("X-Forwarded-For")
        assert value in (None, "unknown", "unix"), value
    entry = rig.log.wait(lambda e: e["listener"] == "sock")
    assert entry["peer"] == "unix", entry
    assert entry["status"] == 200


def test_unix_listener_ends(behind):
    rig = behind.rig
    client = rig.client(str(rig.culvert.dir / "sock"))
    client.send("GET /x HTTP/1.1\r\nHost: x")
    client.half_close()
    got, _ = client.drain_to_close()
    assert got == b"" or got.startswith(b"HTTP/1.1 400")
    client = rig.client(str(rig.culvert.dir / "sock"))
    client.send(request("GET", "/x"))
    client.half_close()
    assert client.read_response().status == 200
    client.expect_eof()


def test_unix_forward_listener(behind):
    rig = behind.rig
    client = rig.client(str(rig.culvert.dir / "fwdsock"))
    assert client.ask(f"GET {rig.a.url}/x HTTP/1.1\r\nHost: x\r\n\r\n").status == 200
    client = rig.client(str(rig.culvert.dir / "fwdsock"))
    assert client.connect(rig.b.authority).status == 200
    assert client.ask(request("GET", "/t", host=rig.b.authority)).text == "b GET /t\n"


@pytest.mark.parametrize("name", ["v1", "v2", "local"])
def test_forward_listener(behind, name):
    header, client_ip = HEADERS[name]
    rig = behind.rig
    client = rig.client("lbfwd")
    client.send(header)
    assert client.connect(rig.a.authority).status == 200
    assert client.ask(request("GET", "/t", host=rig.a.authority)).status == 200
    client.close()
    entry = line_of(rig, client, "lbfwd")
    assert entry["kind"] == "tunnel" and entry["client"] == client_ip, entry


@pytest.mark.parametrize("first", [1, 7, 12, 13, 16, 20])
def test_split(behind, first):
    for name in ("v1", "v2"):
        client = behind.rig.client("lb")
        client.send_split(HEADERS[name][0] + request("GET", "/"), first)
        assert client.read_response().status == 200


def test_many_requests_behind_one_header(behind):
    client = behind.rig.client("lb")
    client.send(HEADERS["v2"][0] + request("GET", "/1") + request("GET", "/2") + request("GET", "/unix"))
    for _ in range(3):
        assert client.read_response().status == 200
    lines = net.wait_until(lambda: len(behind.rig.log.read()) >= client.log_mark + 3 and behind.rig.log.read())
    assert {e["client"] for e in lines[client.log_mark:]} == {"192.0.2.1"}


def test_bad_header_is_closed_without_a_word(behind):
    rig = behind.rig
    before = rig.metrics().value("culvert_ends_total", reason="proxy_protocol_error")
    for raw in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PROXY TCP4 1.2.3.4\r\n", proxyproto.v2()[:13] + b"\x31" * 40):
        client = rig.client("lb")
        client.send(raw)
        client.expect_closed()
    rig.culvert.wait_metric(lambda m: m.value("culvert_ends_total", reason="proxy_protocol_error") >= before + 3)
    rig.a.assert_untouched()


def test_on_a_unix_listener_it_is_said_what_it_means(tmp_path):
    """`from` lists networks; a Unix peer has no address: accepted or refused, never half."""
    conf = life_conf({"web": 8080, "admin": 9090}.get)
    conf["listeners"].append({"name": "s", "bind": "unix:./s", "serve": "web",
                              "proxy_protocol": {"from": ["127.0.0.0/8"], "timeout": "1s"}})
    got = run_program("check", conf=conf, directory=tmp_path)
    assert got.returncode in (0, 2)
    if got.returncode == 2:
        assert "proxy_protocol" in got.stderr
