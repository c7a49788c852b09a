"""The life of the program: command line, start, signals, drain, crash, end."""

import itertools
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import pytest

from harness import net
from harness.client import Client, request
from harness.culvert import StartFailed, environment, program, run_program, write_conf
from harness.http import Eof
from harness.life import Life, NOBODY, in_netns, is_refused, life_conf, program_for_all, set_sysctl

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root can change to another user")
COUNTER = itertools.count()


@pytest.fixture
def make_life(work_dir, io):
    """make_life(change, **options) -> Life; stopped at the end of the test, cleanly."""
    lives = []

    def make(change=None, **options):
        lives.append(Life(work_dir / f"life{next(COUNTER)}", io, change, **options))
        return lives[-1]
    yield make
    for life in lives:
        life.finish()


@pytest.fixture
def public_program():
    """A copy of the program, in a directory that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="culvert-e2e-public-") as path:
        yield program_for_all(path)


def fixed_conf(io="epoll", **more):
    """For `check`, that binds nothing."""
    return life_conf({"web": 8080, "admin": 9090}.get, io, **more)


# -- command line

def test_help_fits_one_screen():
    got = run_program("--help")
    assert got.returncode == 0 and got.stderr == ""
    lines = got.stdout.rstrip("\n").split("\n")
    assert len(lines) <= 24 and max(len(line) for line in lines) <= 80, got.stdout
    for word in ("run", "check", "init", "demo", "--version", "--print", "--strict", "-c FILE", "exit codes",
                 "TERM", "INT", "QUIT", "USR1", "HUP"):
        assert word in got.stdout, word
    for code in "0123":
        assert re.search(rf"^\s+{code}\s", got.stdout, re.MULTILINE), code


@pytest.mark.parametrize("argv", [[], ["help"], ["-h"]])
def test_other_ways_to_the_help(argv):
    got = run_program(*argv)
    assert got.returncode == 0 and got.stdout == run_program("--help").stdout


def test_version():
    got = run_program("--version")
    assert got.returncode == 0 and re.fullmatch(r"culvert \d+\.\d+\.\d+\n", got.stdout)


@pytest.mark.parametrize("argv", [["nonsense"], ["run", "--nonsense"], ["run", "-c"], ["check", "-x"],
                                  ["demo", "x"], ["init", "a", "b"], ["init", "-c"], ["status"], ["reload"]])
def test_bad_usage(argv, tmp_path):
    got = run_program(*argv, directory=tmp_path)
    assert got.returncode == 2, got
    assert got.stdout == "" and got.stderr.startswith("culvert: "), got
    assert not list(tmp_path.iterdir())


def test_check_of_a_good_file(tmp_path):
    got = run_program("check", conf=fixed_conf(), directory=tmp_path)
    assert got.returncode == 0, got
    assert re.search(r"culvert\.yaml: ok: 1 listener, 1 site, 1 route, 0 upstreams; workers 1; connections [\d,]+ "
                     r"\(RLIMIT_NOFILE [\d,]+\)", got.stdout), got.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["culvert.yaml"], "check creates nothing"


def test_check_binds_nothing(tmp_path):
    """It is good also while another one has the ports."""
    with net.listen_tcp() as sock:
        conf = life_conf({"web": sock.getsockname()[1], "admin": net.free_port()}.get)
        assert run_program("check", conf=conf, directory=tmp_path).returncode == 0


def test_check_lists_every_error(tmp_path):
    text = ("listeners:\n"
            "  - { name: web, bind: \"127.0.0.1:8080\", serve: web, colour: red }\n"
            "sites: [{ name: main, hosts: [\"*\"], routes: [{ match: { prefix: / }, redirect: { to: /x } }] }]\n"
            "timeouts: { connect: 30, first_byte: 0s }\n"
            "limits: { request_body: 64MB }\n")
    got = run_program("check", conf=text, directory=tmp_path)
    assert got.returncode == 2
    found = re.findall(r"^\S*culvert\.yaml:(\d+):(\d+): error: ", got.stderr, re.MULTILINE)
    assert sorted(int(line) for line, _ in found) == [2, 4, 4, 5], got.stderr
    assert "^" in got.stderr and re.search(r"^4 errors", got.stderr, re.MULTILINE), got.stderr


def test_run_refuses_the_same(tmp_path):
    got = run_program("run", conf="listeners: [{ name: web }]\n", directory=tmp_path)
    assert got.returncode == 2 and "error: " in got.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_no_such_file(command, tmp_path):
    got = run_program(command, "-c", str(tmp_path / "none.yaml"))
    assert got.returncode == 2 and "none.yaml" in got.stderr and "no such file" in got.stderr


def test_strict(tmp_path):
    """An unused upstream is a warning."""
    conf = fixed_conf(upstreams={"unused": {"servers": ["http://127.0.0.1:1"]}})
    got = run_program("check", conf=conf, directory=tmp_path)
    assert got.returncode == 0 and "warning: " in got.stderr and "unused" in got.stderr
    got = run_program("check", "--strict", conf=conf, directory=tmp_path)
    assert got.returncode == 2 and "unused" in got.stderr


def test_print(tmp_path):
    conf = fixed_conf(admin={"bind": "127.0.0.1:9090", "token": "${TOKEN}"})
    got = run_program("check", "--print", conf=conf, directory=tmp_path, env={"TOKEN": "the-secret-word"})
    assert got.returncode == 0
    assert "keep_alive: 75s" in got.stdout and "request_target: 8KiB" in got.stdout, got.stdout
    assert "the-secret-word" not in got.stdout + got.stderr
    again = run_program("check", "--print", conf=got.stdout, directory=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout == got.stdout, "what is printed is a configuration, of the same effect"


def test_init(tmp_path):
    got = run_program("init", directory=tmp_path)
    assert got.returncode == 0 and "culvert.yaml" in got.stdout
    text = (tmp_path / "culvert.yaml").read_text("utf-8")
    assert text.startswith("#") and "listeners:" in text
    assert run_program("check", "-c", "culvert.yaml", directory=tmp_path).returncode == 0
    got = run_program("init", directory=tmp_path)
    assert got.returncode == 1 and "exists" in got.stderr, "never over a file that is there"
    assert (tmp_path / "culvert.yaml").read_text("utf-8") == text


def test_demo(tmp_path):
    if any(not is_refused(port) for port in (8080, 3128, 9090)):
        pytest.skip("a port of the demo is taken")
    demo = subprocess.Popen([program(), "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(), cwd=tmp_path)
    try:
        net.wait_until(lambda: not is_refused(8080) and not is_refused(9090), what="the demo listens")
        client = Client(8080)
        got = {client.ask(request("GET", "/")).text for _ in range(6)}
        assert len(got) == 3, got
        proxy = Client(3128)
        line = demo.stdout.readline()
        while "absolute-form" not in line:
            line = demo.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:3128 (http://\S+)", line).group(1)
        assert proxy.ask(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n").text.startswith("hello from origin")
        tunnel = Client(3128)
        assert tunnel.connect(url.split("/")[2]).status == 200
        assert Client(9090).ask(request("GET", "/healthz")).status == 200
    finally:
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=20)
    assert demo.returncode in (0, 3), err


# -- start

def test_port_in_use(tmp_path):
    with net.listen_tcp() as sock:
        conf = life_conf({"web": sock.getsockname()[1], "admin": net.free_port()}.get)
        got = run_program("run", conf=conf, directory=tmp_path)
    assert got.returncode == 1, got
    assert "in use" in got.stderr and "127.0.0.1:" in got.stderr, got.stderr


def test_two_culverts_do_not_share_a_port(make_life, tmp_path):
    """SO_REUSEPORT groups are not open to a second process."""
    life = make_life(lambda conf, port: conf.update(workers=2))
    conf = life_conf({"web": life.port["web"], "admin": net.free_port()}.get)
    conf["workers"] = 2
    got = run_program("run", conf=conf, directory=tmp_path)
    assert got.returncode == 1 and "in use" in got.stderr


def test_log_file_that_cannot_be_opened(tmp_path):
    conf = life_conf({"web": net.free_port(), "admin": net.free_port()}.get)
    conf["access_log"]["to"] = "./none/access.log"
    got = run_program("check", conf=conf, directory=tmp_path)
    assert got.returncode == 2 and "no folder" in got.stderr and "none" in got.stderr, got.stderr
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "access.log").symlink_to("access.log")
    got = run_program("run", conf=conf, directory=tmp_path)
    assert got.returncode == 1 and "none/access.log" in got.stderr and "ymbolic links" in got.stderr, got.stderr


@needs_root
def test_bind_without_permission_says_what_to_do(public_program):
    conf = life_conf({"web": 80, "admin": net.free_port()}.get)
    conf["access_log"]["to"] = "stdout"
    del conf["user"]
    file = write_conf(public_program.parent / "culvert.yaml", conf)

    def run():
        set_sysctl("ipv4/ip_unprivileged_port_start", 1024)
        return subprocess.run([public_program, "run", "-c", str(file)], capture_output=True, text=True, timeout=20,
                              check=False, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    try:
        got = in_netns(run)
    except PermissionError:
        pytest.skip("no network namespaces here")
    assert got.returncode == 1, got
    assert "127.0.0.1:80" in got.stderr and "ermission denied" in got.stderr
    assert "start as root" in got.stderr and "ip_unprivileged_port_start" in got.stderr


def test_started_says_io_and_workers(make_life, io):
    life = make_life()
    line = next(line for line in life.stderr.splitlines() if "serves" in line)
    assert "workers 1" in line and io in line, line


# -- signals

def test_terms_end_it(make_life):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        life = make_life()
        assert life.get().status == 200
        life.signal(number)
        assert life.wait_exit() == 0
        life.assert_no_processes()
        assert len(life.log.read()) == 1


def test_hup_is_one_line_and_no_end(make_life):
    life = make_life()
    life.signal(signal.SIGHUP)
    life.wait_stderr("HUP")
    assert life.get().status == 200
    lines = [line for line in life.stderr.splitlines() if "HUP" in line]
    assert len(lines) == 1 and "reload" in lines[0], lines


def test_usr2_does_nothing(make_life):
    life = make_life()
    life.signal(signal.SIGUSR2)
    assert life.get().status == 200


def test_signals_of_a_terminal_reach_both_and_drain_once(make_life):
    """Ctrl-C goes to the whole group: the keeper decides, the proxy is not killed."""
    life = make_life()
    client = Client(life.port["web"])
    assert client.ask(request("GET", "/")).status == 200
    os.killpg(life.pid, signal.SIGINT)
    assert life.wait_exit() == 0
    client.expect_eof()


def test_usr1_opens_the_logs_again(make_life):
    """Also after the privileges are gone: nobody cannot enter the directory."""
    def change(conf, port):
        conf["log"]["to"] = "./culvert.log"
    life = make_life(change)
    assert life.get("/before").status == 200
    net.wait_until(lambda: "/before" in (life.dir / "access.log").read_text("utf-8"), what="the first line")
    os.rename(life.dir / "access.log", life.dir / "access.1")
    os.rename(life.dir / "culvert.log", life.dir / "culvert.1")
    assert life.get("/between").status == 200
    life.signal(signal.SIGUSR1)
    net.wait_until((life.dir / "access.log").exists, what="a new access log")
    net.wait_until((life.dir / "culvert.log").exists, what="a new operational log")

    def written():
        assert life.get("/after").status == 200
        return "/after" in (life.dir / "access.log").read_text("utf-8")
    net.wait_until(written, what="lines in the new file")
    life.stop()
    old = (life.dir / "access.1").read_text("utf-8")
    new = (life.dir / "access.log").read_text("utf-8")
    assert "/before" in old
    assert (old + new).count("/between") == 1, "nothing is lost in between"
    assert "drained" in (life.dir / "culvert.log").read_text("utf-8")
    assert stat.S_IMODE(os.stat(life.dir / "access.log").st_mode) == 0o640


def test_usr1_again_and_again(make_life):
    life = make_life()
    fds = life.open_fds()
    for i in range(50):
        life.signal(signal.SIGUSR1)
        assert life.get(f"/{i}").status == 200
    net.wait_until(lambda: life.open_fds() <= fds, what="no descriptor is left over")
    life.stop()
    assert [e["target"] for e in life.log.read()] == [f"/{i}" for i in range(50)]


def test_usr1_that_fails_keeps_the_old_file(make_life):
    life = make_life()
    moved = life.dir.with_name(life.dir.name + ".moved")
    os.rename(life.dir, moved)
    try:
        life.signal(signal.SIGUSR1)
        net.wait_until(lambda: "No such file" in (moved / "stderr.log").read_text("utf-8"), what="an error line")
        assert life.get("/still").status == 200
        net.wait_until(lambda: "/still" in (moved / "access.log").read_text("utf-8"), what="the line in the old file")
    finally:
        os.rename(moved, life.dir)


# -- drain

def held(rig):
    """A request that origin a holds; returns (client, let it go)."""
    go = threading.Event()
    rig.a.on(lambda conn: (conn.read_request(), go.wait(20), conn.respond(200, "late\n")))
    client = rig.web()
    client.send(request("GET", "/held"))
    rig.a.wait_requests(1)
    return client, go


def test_drain_in_order(make_rig):
    """Readiness, delay, no more accepting, what runs is finished."""
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "1500ms", "deadline": "10s"}))
    idle = rig.web()
    assert idle.ask(request("GET", "/ping")).status == 200
    client, go = held(rig)
    rig.culvert.signal(signal.SIGTERM)
    net.wait_until(lambda: rig.culvert.admin_get("/readyz").status == 503, what="readiness turns")
    assert rig.culvert.admin_get("/healthz").status == 200
    assert rig.metrics().value("culvert_draining") == 1
    # It still accepts and serves, and asks clients to leave.
    answer = rig.get("/ping")
    assert answer.status == 200 and "close" in answer.list("Connection"), answer.fields
    idle.expect_eof()
    net.wait_until(lambda: is_refused(rig.port["web"]), what="accepting stops")
    assert rig.culvert.process.poll() is None
    go.set()
    answer = client.read_response()
    assert answer.text == "late\n" and "close" in answer.list("Connection"), answer.fields
    client.expect_eof()
    assert rig.culvert.wait_exit() == 0
    assert rig.log.of(client)["status"] == 200


def test_drain_serves_idle_connections_until_they_close(make_rig):
    """Within the delay a kept connection is answered with Connection: close, not cut."""
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "3s", "deadline": "10s"}))
    idle = rig.web()
    assert idle.ask(request("GET", "/ping")).status == 200
    rig.culvert.signal(signal.SIGTERM)
    net.wait_until(lambda: rig.culvert.admin_get("/readyz").status == 503, what="readiness turns")
    answer = idle.ask(request("GET", "/ping"))
    assert answer.status == 200 and "close" in answer.list("Connection")
    idle.expect_eof()
    assert rig.culvert.wait_exit() == 0


def test_drain_deadline_cuts(make_rig):
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "0s", "deadline": "1s"}))
    client, go = held(rig)
    rig.culvert.signal(signal.SIGTERM)
    assert rig.culvert.wait_exit() == 3
    client.drain_to_close()
    go.set()
    assert "deadline" in rig.culvert.stderr
    entry = rig.log.of(client)
    assert entry["complete"] is False and entry["reason"] == "shutdown", entry


def test_drain_deadline_cuts_tunnels(make_rig):
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "0s", "deadline": "1s"}))
    client = rig.fwd()
    rig.a.on(lambda conn: conn.wait_end())
    assert client.connect(rig.a.authority).status == 200
    rig.culvert.signal(signal.SIGTERM)
    assert rig.culvert.wait_exit() == 3
    client.drain_to_close()
    entry = rig.log.of(client)
    assert entry["kind"] == "tunnel" and entry["reason"] == "shutdown", entry


def test_drain_lets_tunnels_finish(make_rig):
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "0s", "deadline": "20s"}))
    rig.a.on(lambda conn: (conn.send(conn.read_exactly(4)), conn.wait_end()))
    client = rig.fwd()
    assert client.connect(rig.a.authority).status == 200
    rig.culvert.signal(signal.SIGTERM)
    net.wait_until(lambda: is_refused(rig.port["fwd"]), what="accepting stops")
    client.send(b"ping")
    assert client.read_exactly(4) == b"ping"
    client.close()
    assert rig.culvert.wait_exit() == 0


def test_drain_ends_a_half_written_head(make_rig):
    """Neither idle nor a request: it may be finished, or the deadline cuts it."""
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "0s", "deadline": "10s"}))
    client = rig.web()
    client.send("GET /ping HTTP/1.1\r\nHost: web")
    net.wait_consumed(rig.port["web"], client.port)
    rig.culvert.signal(signal.SIGTERM)
    net.wait_until(lambda: is_refused(rig.port["web"]), what="accepting stops")
    client.send(".test\r\n\r\n")
    assert client.read_response().status == 200
    client.expect_eof()
    assert rig.culvert.wait_exit() == 0


def test_second_signal_ends_at_once(make_rig):
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "60s", "deadline": "60s"}))
    client, go = held(rig)
    rig.culvert.signal(signal.SIGTERM)
    net.wait_until(lambda: rig.culvert.admin_get("/readyz").status == 503, what="readiness turns")
    start = time.monotonic()
    rig.culvert.signal(signal.SIGINT)
    assert rig.culvert.wait_exit() == 3
    assert time.monotonic() - start < 2
    client.drain_to_close()
    go.set()
    rig.culvert.assert_no_processes()


def test_third_signal_ends_a_proxy_that_hangs(make_life):
    """Stopped, it hears nothing."""
    life = make_life()
    os.kill(life.proxy_pid(), signal.SIGSTOP)
    for _ in range(3):
        life.signal(signal.SIGTERM)
        time.sleep(0.05)
    assert life.wait_exit(5) == 3
    life.assert_no_processes()


def test_second_signal_with_nothing_running_is_clean(make_life):
    life = make_life(lambda conf, port: conf.update(drain={"delay": "60s", "deadline": "60s"}))
    assert life.get().status == 200
    life.signal(signal.SIGTERM)
    net.wait_until(lambda: life.admin_get("/readyz").status == 503, what="readiness turns")
    # The admin connection of the test is none of the clients.
    life.signal(signal.SIGTERM)
    assert life.wait_exit() == 0
    assert len(life.log.read()) == 1


def test_a_drain_loses_no_log_line_and_no_answer(make_rig):
    """Clients hammer until they are refused: every answered request has its line."""
    # No deadline: a shard that misses the end of its last exchange would never end.
    rig = make_rig(lambda conf, port: conf.update(workers=2, drain={"delay": "200ms", "deadline": "off"}))
    answered, problems = [], []

    def hammer():
        while True:
            try:
                client = Client(rig.port["web"])
            except OSError:
                return
            try:
                for _ in range(20):
                    answer = client.ask(request("GET", "/x"))
                    answered.append(answer.status)
                    if "close" in answer.list("Connection"):
                        break
            except Eof:
                pass      # a kept connection may be closed between two requests
            except (OSError, AssertionError) as error:
                if not isinstance(error, (BrokenPipeError, ConnectionResetError)):
                    problems.append(repr(error))
            finally:
                client.close()
    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    net.wait_until(lambda: len(answered) > 300, what="some load")
    rig.culvert.signal(signal.SIGTERM)
    for thread in threads:
        thread.join(20)
    assert rig.culvert.wait_exit() == 0
    assert not problems, problems[:3]
    lines = [e["status"] for e in rig.log.read()]
    for status in set(answered):
        assert lines.count(status) >= answered.count(status), status


# -- service manager

@pytest.mark.parametrize("abstract", [False, True])
def test_sd_notify(make_life, tmp_path, abstract):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        name = f"culvert-e2e-{os.getpid()}-{next(COUNTER)}" if abstract else str(tmp_path / "notify")
        sock.bind("\0" + name if abstract else name)
        life = make_life(env={"NOTIFY_SOCKET": ("@" if abstract else "") + name})
        assert sock.recv(4096).decode().split("\n")[0] == "READY=1"
        assert life.get().status == 200
        life.signal(signal.SIGTERM)
        assert sock.recv(4096).decode().split("\n")[0] == "STOPPING=1"
        assert life.wait_exit() == 0
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(4096)


def test_no_ready_without_a_start(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, net.listen_tcp() as taken:
        sock.bind(str(tmp_path / "notify"))
        conf = life_conf({"web": taken.getsockname()[1], "admin": net.free_port()}.get)
        got = run_program("run", conf=conf, directory=tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert got.returncode == 1
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(4096)


def test_inherited_sockets_by_address(make_life):
    """The second of two sockets belongs to the first listener: the address decides, not the order."""
    one, two = net.listen_tcp(), net.listen_tcp()

    def change(conf, port):
        web = conf["listeners"][0]
        web["bind"] = f"127.0.0.1:{two.getsockname()[1]}"
        conf["listeners"].append(dict(web, name="other", bind=f"127.0.0.1:{one.getsockname()[1]}"))
        conf["workers"] = 2
    life = make_life(change, sockets=(one, two))
    port_one, port_two = one.getsockname()[1], two.getsockname()[1]
    for port, name in ((port_one, "other"), (port_two, "web")):
        mark = life.log.mark()
        assert life.get(to=port).status == 200
        assert life.log.wait(lambda e: True, since=mark)["listener"] == name
    # While it drains, the socket still belongs to the service manager: nobody is refused.
    life.stop()
    Client(port_one).close()
    one.close()
    two.close()


def test_inherited_unix_socket(make_life, tmp_path):
    path = str(tmp_path / "web.sock")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    sock.listen(64)

    def change(conf, port):
        conf["listeners"][0]["bind"] = f"unix:{path}"
    life = make_life(change, sockets=(sock,))
    assert life.get(to=path).status == 200
    life.stop()
    assert os.path.exists(path), "it is not ours to remove"
    sock.close()


def test_inherited_admin_socket(make_life):
    sock = net.listen_tcp()

    def change(conf, port):
        conf["admin"]["bind"] = f"127.0.0.1:{sock.getsockname()[1]}"
    life = make_life(change, sockets=(sock,), admin=sock.getsockname()[1])
    assert life.admin_get("/readyz").status == 200
    life.stop()
    sock.close()


def test_leftover_inherited_socket_is_an_error(make_life):
    sock = net.listen_tcp()
    with pytest.raises(StartFailed) as failed:
        make_life(sockets=(sock,))
    assert failed.value.code in (1, 2)
    assert str(sock.getsockname()[1]) in failed.value.stderr and "LISTEN_FDS" in failed.value.stderr
    sock.close()


def test_listen_fds_of_another_process_are_ignored(make_life):
    life = make_life(env={"LISTEN_FDS": "3", "LISTEN_PID": "1"})
    assert life.get().status == 200


# -- privileges

def wanted(status, uid, gid):
    assert status["Uid"].split() == [str(uid)] * 4, status["Uid"]
    assert status["Gid"].split() == [str(gid)] * 4, status["Gid"]
    assert status["Groups"] == "", "no supplementary groups"
    assert status["NoNewPrivs"] == "1"
    for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, (name, status[name])


@needs_root
@pytest.mark.parametrize("user, uid, gid", [(None, NOBODY, NOBODY), ("nobody", NOBODY, NOBODY),
                                            ("12345:23456", 12345, 23456)])
def test_p06_the_proxy_drops_privileges(make_life, user, uid, gid):
    def change(conf, port):
        conf["workers"] = 2
        del conf["user"]
        if user:
            conf["user"] = user
    life = make_life(change)
    # A thread that has our first thread's name and is another one belongs to a sanitizer.
    statuses = [s for s in life.status_of() if s["Name"] != "culvert" or s["Pid"] == s["Tgid"]]
    assert len(statuses) >= 3, "main, shards, log writer"
    for status in statuses:
        wanted(status, uid, gid)
    assert life.get().status == 200
    keeper = life.status_of(life.pid)
    assert len(keeper) == 1, "the keeper has one thread"
    assert keeper[0]["Uid"].split() == ["0"] * 4


@needs_root
def test_p06_root_must_be_asked_for(make_life):
    life = make_life(lambda conf, port: conf.update(user="root"))
    status = life.status_of()[0]
    assert status["Uid"].split() == ["0"] * 4 and status["NoNewPrivs"] == "1"
    assert life.get().status == 200


@pytest.mark.parametrize("user", ["no-such-user-here", "1:", ":1", "-1:1"])
def test_p06_unknown_user(tmp_path, user):
    got = run_program("check", conf=fixed_conf(user=user), directory=tmp_path)
    assert got.returncode == 2 and "user" in got.stderr, got.stderr


@needs_root
def test_p06_as_nobody_it_starts_without_a_drop(public_program):
    conf = life_conf({"web": net.free_port(), "admin": net.free_port()}.get)
    conf["access_log"]["to"] = "stdout"
    del conf["user"]
    file = write_conf(public_program.parent / "culvert.yaml", conf)
    process = subprocess.Popen([public_program, "run", "-c", str(file)], user=NOBODY, group=NOBODY, extra_groups=[],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
    try:
        port = int(conf["listeners"][0]["bind"].rpartition(":")[2])
        net.wait_until(lambda: process.poll() is not None or not is_refused(port), what="a start")
        assert Client(port).ask(request("GET", "/")).status == 200
    finally:
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert process.returncode in (0, 3), err


# -- crash

@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_p03_a_crashed_proxy_is_back_within_a_second(make_life, number):
    life = make_life(lambda conf, port: conf.update(workers=2))
    life.crashes = True
    refused, answered, stop = [], [], threading.Event()

    def hammer():
        while not stop.is_set():
            try:
                client = Client(life.port["web"], timeout=10)
            except OSError as error:
                refused.append(repr(error))
                return
            try:
                assert client.ask(request("GET", "/")).status == 200
                answered.append(time.monotonic())
            except (Eof, OSError):
                pass            # it was accepted by the one that crashed
            finally:
                client.close()
    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    net.wait_until(lambda: len(answered) > 100, what="some load")
    old = life.proxy_pid()
    crashed = time.monotonic()
    os.kill(old, number)
    net.wait_until(lambda: life.proxy_pid() not in (None, old), what="another proxy")
    net.wait_until(lambda: answered[-1] > crashed + 0.3, what="answers of the new one")
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not refused, refused[:3]
    after = [t for t in answered if t > crashed + 0.02]
    assert min(after) - crashed < 1.0, f"back after {min(after) - crashed:.3f} s"
    assert "another one is started" in life.stderr
    life.first_proxy = life.proxy_pid()
    life.stop()


def test_p03_the_dump_says_where(make_rig):
    """Signal, stack, shard, and what it was doing; the log lines before it are not lost."""
    rig = make_rig()
    assert rig.get("/before").status == 200
    rig.log.wait(lambda e: e["target"] == "/before")
    client, go = held(rig)
    os.kill(rig.culvert.proxy_pid(), signal.SIGSEGV)
    client.drain_to_close()
    go.set()
    rig.culvert.wait_stderr("another one is started")
    text = rig.culvert.stderr
    assert "SIGSEGV" in text and "shard 0" in text and "/held" in text, text
    assert re.search(r"culvert\(.*\+0x[0-9a-f]+\)", text), "a stack"
    assert re.search(r"loop 0 \w+: turn \d+.*\n  fd \d+: ", text), "the ops that were under way"
    rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, "again\n")))
    assert rig.get("/after").text == "again\n"
    rig.culvert.signal(signal.SIGTERM)
    assert rig.culvert.wait_exit() == 0
    rig.culvert.assert_no_processes()


def test_p03_log_lines_in_the_ring_are_written(make_life):
    """What was answered just before the crash is in the log."""
    life = make_life()
    life.crashes = True
    client = Client(life.port["web"])
    client.send(request("GET", "/x") * 500)
    for _ in range(500):
        assert client.read_response().status == 200
    os.kill(life.proxy_pid(), signal.SIGSEGV)
    life.wait_stderr("another one is started")
    assert len([e for e in life.log.read() if e["target"] == "/x"]) == 500
    life.stop()


def test_p03_again_and_again_with_back_off(make_life):
    life = make_life()
    life.crashes = True
    for _ in range(4):
        old = life.proxy_pid()
        os.kill(old, signal.SIGKILL)
        # Until its end its ring may still accept, and what it accepted ends with it.
        net.wait_until(lambda: life.proxy_pid() != old, what="the end of the old one")
        assert life.get(timeout=10).status == 200, "queued, not refused"
    life.stop()


def test_p03_log_files_go_on_after_a_crash(make_life):
    life = make_life()
    life.crashes = True
    assert life.get("/one").status == 200
    os.rename(life.dir / "access.log", life.dir / "access.1")
    life.signal(signal.SIGUSR1)
    net.wait_until((life.dir / "access.log").exists, what="a new file")
    old = life.proxy_pid()
    os.kill(old, signal.SIGKILL)
    net.wait_until(lambda: life.proxy_pid() not in (None, old), what="another proxy")
    assert life.get("/two").status == 200
    life.stop()
    assert "/two" in (life.dir / "access.log").read_text("utf-8")


def test_p03_crash_while_draining(make_rig):
    rig = make_rig(lambda conf, port: conf.update(drain={"delay": "60s", "deadline": "60s"}))
    client, go = held(rig)
    rig.culvert.signal(signal.SIGTERM)
    net.wait_until(lambda: rig.culvert.admin_get("/readyz").status == 503, what="readiness turns")
    os.kill(rig.culvert.proxy_pid(), signal.SIGKILL)
    assert rig.culvert.wait_exit() == 3
    client.drain_to_close()
    go.set()


def test_p03_term_while_it_is_starting_again(make_life):
    """The back-off is at work: no proxy stands when the signal comes."""
    life = make_life()
    life.crashes = True
    for _ in range(8):
        pid = life.proxy_pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    life.signal(signal.SIGTERM)
    assert life.wait_exit() in (0, 3)
    life.assert_no_processes()


def test_the_proxy_does_not_outlive_its_keeper(make_life):
    life = make_life()
    proxy = life.proxy_pid()
    os.kill(life.pid, signal.SIGKILL)
    life.wait_exit()
    net.wait_until(lambda: not pathlib.Path(f"/proc/{proxy}").exists(), timeout=3, what="the proxy is gone too")


# -- Unix sockets

def test_unix_socket_is_removed_at_the_end(make_life):
    def change(conf, port):
        conf["listeners"].append({"name": "local", "bind": "unix:./local.sock", "mode": "0606", "serve": "web"})
    life = make_life(change)
    sock = life.dir / "local.sock"
    assert stat.S_IMODE(os.stat(sock).st_mode) == 0o606
    assert life.get(to=str(sock)).status == 200
    life.stop()
    assert not sock.exists()


def test_stale_unix_socket_is_taken_over(make_life):
    def change(conf, port):
        conf["listeners"].append({"name": "local", "bind": "unix:./local.sock", "serve": "web"})
    life = make_life(change)
    life.kill()
    assert (life.dir / "local.sock").exists()
    net.wait_until(lambda: is_refused(life.port["web"]), what="its ring lets go of the sockets")
    life.start()
    life.first_proxy = life.proxy_pid()
    assert life.get(to=str(life.dir / "local.sock")).status == 200


# -- two shards

def two_shards(conf, port):
    conf["workers"] = 2


@pytest.mark.multishard
def test_both_shards_serve_and_metrics_sum(make_rig):
    rig = make_rig(two_shards)
    clients = [rig.web() for _ in range(40)]
    for client in clients:
        assert client.ask(request("GET", "/")).status == 200
        assert client.ask(request("GET", "/ping")).status == 200
    metrics = rig.metrics()
    by_shard = [metrics.value("culvert_shard_connections", shard=n) for n in "01"]
    assert sum(by_shard) == 40 and min(by_shard) > 0, by_shard
    assert metrics.value("culvert_requests_total", code="2xx") == 80
    assert metrics.value("culvert_connections", listener="web", state="idle") == 40
    shards = {rig.log.of(client, 2)[0]["shard"] for client in clients}
    assert shards == {0, 1}


@pytest.mark.multishard
def test_two_shards_on_a_shared_socket(make_rig):
    """A Unix socket is one for all: single-shot accepts spread it."""
    def change(conf, port):
        two_shards(conf, port)
        conf["listeners"].append({"name": "local", "bind": "unix:./local.sock", "serve": "web"})
    rig = make_rig(change)
    path = str(rig.culvert.dir / "local.sock")
    clients = []
    for _ in range(40):
        clients.append(rig.client(path))
        assert clients[-1].ask(request("GET", "/ping")).status == 200
    metrics = rig.metrics()
    by_shard = [metrics.value("culvert_shard_connections", shard=n) for n in "01"]
    assert sum(by_shard) == 40 and min(by_shard) >= 10, by_shard


@pytest.mark.multishard
def test_two_shards_drain(make_rig):
    rig = make_rig(two_shards)
    clients = [rig.web() for _ in range(20)]
    for client in clients:
        assert client.ask(request("GET", "/")).status == 200
    rig.culvert.stop()
    for client in clients:
        client.expect_eof()


def test_workers_auto_respects_the_affinity(make_life):
    """One core allowed: one shard."""
    core = min(os.sched_getaffinity(0))
    life = make_life(lambda conf, port: conf.update(workers="auto"),
                     preexec=lambda: os.sched_setaffinity(0, {core}))
    assert "workers 1" in life.stderr


# -- descriptors

def test_rlimit_is_raised_to_the_hard_limit(make_life):
    import resource
    life = make_life(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 5000)))
    assert life.metrics().value("process_max_fds") == 5000


def test_locked_memory_is_no_limit_for_rings(rig):
    """Rings of a proxy that crashed are given back late: the next one must not be refused for them."""
    raised = subprocess.run(["/usr/bin/python3", "-c", "import resource as r; "
                             "r.setrlimit(r.RLIMIT_MEMLOCK, (r.RLIM_INFINITY, r.RLIM_INFINITY))"],
                            capture_output=True, check=False)
    if raised.returncode:
        pytest.skip("this user may not raise RLIMIT_MEMLOCK here")
    with open(f"/proc/{rig.culvert.proxy_pid()}/limits", encoding="ascii") as file:
        line = next(text for text in file if text.startswith("Max locked memory"))
    assert line.split()[3:5] == ["unlimited", "unlimited"], line
