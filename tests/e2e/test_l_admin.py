"""L01, L02, L06: the admin port."""

import os
import shutil
import subprocess

import pytest

from harness import net
from harness.client import Client, request
from harness.culvert import run_program
from harness.fixtures import shared_rig
from harness.life import is_refused, life_conf


def fixed_conf(**admin):
    return life_conf({"web": 8080, "admin": 9090}.get, admin=admin)


# -- L01: exposure

@pytest.mark.parametrize("bind", ["0.0.0.0:9090", "*:9090", "[::]:9090", "192.0.2.1:9090", "[2001:db8::1]:9090"])
def test_l01_off_loopback_needs_a_token_or_a_list(tmp_path, bind):
    got = run_program("check", conf=fixed_conf(bind=bind), directory=tmp_path)
    assert got.returncode == 2 and "token" in got.stderr and "allow_from" in got.stderr, got.stderr


@pytest.mark.parametrize("more", [{"token": "a-long-enough-secret"}, {"allow_from": ["10.0.0.0/8"]}])
def test_l01_off_loopback_with_one(tmp_path, more):
    got = run_program("check", conf=fixed_conf(bind="0.0.0.0:9090", **more), directory=tmp_path)
    assert got.returncode == 0, got.stderr


def without_admin_port(port):
    """The harness shall not wait for it; returns its number."""
    return port.__self__.port.pop("admin")


def test_l01_off_unless_set(make_rig):
    """No admin key: no port."""
    ports = []

    def change(conf, port):
        del conf["admin"]
        ports.append(without_admin_port(port))
    rig = make_rig(change, ready="ports")
    assert is_refused(ports[-1])
    assert rig.get("/ping").status == 200
    for target in ("/metrics", "/healthz", "/readyz"):
        assert not rig.get(target).text.startswith("# HELP")


def test_l01_not_through_the_proxy(rig):
    """The admin port stays denied, though loopback is lifted and the port is allowed."""
    client = rig.fwd()
    authority = f"127.0.0.1:{rig.port['admin']}"
    assert client.connect(authority).status == 403
    client = rig.fwd()
    assert client.ask(f"GET http://{authority}/metrics HTTP/1.1\r\nHost: {authority}\r\n\r\n").status == 403


def secret(conf, port):
    conf["admin"]["token"] = "${ADMIN_TOKEN}"


@pytest.fixture
def guarded(make_rig):
    return make_rig(secret, env={"ADMIN_TOKEN": "open-sesame-4711"})


@pytest.mark.parametrize("fields, status", [
    ([], 401), (["Authorization: Bearer wrong"], 401), (["Authorization: Bearer open-sesame-471"], 401),
    (["Authorization: Bearer open-sesame-47111"], 401), (["Authorization: Bearer "], 401),
    (["Authorization: Basic open-sesame-4711"], 401), (["Authorization: Bearer open-sesame-4711"], 200),
    (["authorization: bearer open-sesame-4711"], 200),
    (["Authorization: Bearer wrong", "Authorization: Bearer open-sesame-4711"], 401)])
def test_l01_token(guarded, fields, status):
    answer = guarded.culvert.admin_get("/metrics", fields)
    assert answer.status == status, answer
    if status == 401:
        assert answer.one("WWW-Authenticate", "").startswith("Bearer")
        assert "culvert_" not in answer.text


def test_l01_health_needs_no_token(guarded):
    assert guarded.culvert.admin_get("/healthz").status == 200
    assert guarded.culvert.admin_get("/readyz").status == 200
    assert guarded.culvert.admin_get("/").status in (401, 404)


def test_l01_the_token_is_nowhere(guarded):
    guarded.culvert.admin_get("/metrics", ["Authorization: Bearer open-sesame-4711"])
    assert "open-sesame" not in guarded.culvert.stderr
    guarded.get("/ping")
    guarded.log.wait(lambda e: True)
    assert "open-sesame" not in (guarded.culvert.dir / "access.log").read_text("utf-8")


def test_l01_allow_from(make_rig):
    rig = make_rig(lambda conf, port: conf["admin"].update(allow_from=["127.0.0.0/24"]))
    assert rig.culvert.admin_get("/metrics").status == 200
    stranger = rig.client("admin", source=("127.0.1.1", 0))
    stranger.try_send("GET /metrics HTTP/1.1\r\nHost: admin\r\n\r\n")
    stranger.expect_closed()


def test_l01_unix_socket(make_rig):
    def change(conf, port):
        conf["admin"] = {"bind": "unix:./admin.sock", "mode": "0600"}
        without_admin_port(port)
    rig = make_rig(change, ready="ports")
    path = rig.culvert.dir / "admin.sock"
    assert os.stat(path).st_mode & 0o777 == 0o600
    answer = Client(str(path)).ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 200 and "culvert_build_info" in answer.text


# -- L02: from a browser's page

@pytest.mark.parametrize("host", ["evil.example", "evil.example:9090", "127.0.0.1.evil.example"])
def test_l02_rebinding(rig, host):
    """A name of somebody else's that points here."""
    answer = rig.client("admin").ask(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")
    assert answer.status in (403, 421) and "culvert_" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9090", "[::1]", "127.0.0.1:9090"])
def test_l02_own_names(rig, host):
    assert rig.client("admin").ask(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
def test_l02_only_reading(rig, method):
    client = rig.client("admin")
    client.send(f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    answer = client.read_response()
    assert answer.status in (400, 405, 501) and "culvert_" not in answer.text
    assert not answer.has("Access-Control-Allow-Origin")


# -- the port itself

def test_admin_is_http(rig):
    client = rig.client("admin")
    for target, status in (("/healthz", 200), ("/readyz", 200), ("/nothing", 404), ("/metrics", 200), ("/", 404)):
        answer = client.ask(request("GET", target, host="localhost"))
        assert answer.status == status, (target, answer)
        assert answer.one("Cache-Control") == "no-store"
    head = client.ask(request("HEAD", "/metrics", host="localhost"), "HEAD")
    assert head.status == 200 and int(head.one("Content-Length")) > 1000
    got = client.ask(request("GET", "/healthz?verbose", host="localhost"))
    assert got.status == 200


def test_admin_pipelined(rig):
    client = rig.client("admin")
    client.send(request("GET", "/healthz", host="localhost") * 20)
    for _ in range(20):
        assert client.read_response().status == 200


def test_admin_http10(rig):
    client = rig.client("admin")
    assert client.ask("GET /healthz HTTP/1.0\r\n\r\n").text == "ok\n"
    client.expect_eof()


@pytest.mark.parametrize("raw", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
                                 b"GET /metrics HTTP/1.1\r\n\r\n", b"x" * 100000, b"GET /\n\n",
                                 b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 40000 + b"\r\n\r\n"])
def test_admin_garbage(rig, raw):
    client = rig.client("admin")
    client.try_send(raw)
    client.half_close()
    got, _ = client.drain_to_close()
    assert not got or got.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505")), got[:200]
    assert b"culvert_" not in got
    assert rig.culvert.admin_get("/healthz").status == 200


def test_metrics_are_clean(rig):
    """promtool has no complaint."""
    tool = shutil.which("promtool")
    if not tool:
        pytest.skip("no promtool here")
    assert rig.get("/ping").status == 200 and rig.get("/").status == 200 and rig.get("/b").status == 200
    client = rig.fwd()
    assert client.connect(rig.a.authority).status == 200
    client.close()
    text = rig.culvert.admin_get("/metrics").text
    got = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert got.returncode == 0 and not got.stdout.strip() and not got.stderr.strip(), got.stdout + got.stderr


# -- L06: starvation

def few(conf, port):
    conf["limits"] = {"connections": 10}


crowded = shared_rig(few)


def test_l06_the_data_plane_is_full(crowded):
    """No room for clients: the admin port has its own."""
    crowded.a.on(lambda conn: conn.wait_end())
    busy = [crowded.web() for _ in range(10)]
    for client in busy:
        client.send(request("GET", "/"))
    crowded.a.wait_conns(10)
    extra = crowded.web()
    assert extra.ask(request("GET", "/ping")).status == 503
    for target in ("/healthz", "/readyz", "/metrics"):
        assert crowded.culvert.admin_get(target).status == 200


def test_l06_the_admin_port_is_full(rig):
    """And the other way round: hundreds of silent admin connections cost the data plane nothing."""
    silent = []
    for _ in range(200):
        try:
            silent.append(rig.client("admin", timeout=2))
        except OSError:
            break
    assert rig.get("/ping").status == 200
    for client in silent:
        client.close()
    net.wait_until(lambda: rig.culvert.is_ready("admin"), what="the admin port answers again")


def test_l06_draining(make_rig):
    """While it drains the admin port answers to the end."""
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "1s", "deadline": "10s"}))
    rig.culvert.signal(15)
    net.wait_until(lambda: rig.culvert.admin_get("/readyz").status == 503, what="readiness turns")
    assert rig.culvert.admin_get("/healthz").status == 200
    assert rig.metrics().value("culvert_draining") == 1
    assert rig.culvert.wait_exit() == 0
