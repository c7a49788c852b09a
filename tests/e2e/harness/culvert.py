"""The program under test.

Culvert starts `culvert run -c FILE` in a directory that only its owner may enter, waits until it is
ready, reads its logs and metrics, and at the end stops it with TERM and insists on a clean end: exit
code 0, no sanitizer report, no panic, no process left behind.
"""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

from . import net
from .client import Client

ROOT = pathlib.Path(__file__).resolve().parents[3]
BAD_TEXT = re.compile(r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|MemorySanitizer|UndefinedBehavior"
                      r"|runtime error:|\bpanic\b|assertion failed|Assertion .* failed", re.IGNORECASE)
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99:abort_on_error=0", "TSAN_OPTIONS": "exitcode=98",
              "UBSAN_OPTIONS": "print_stacktrace=1"}


def program():
    return os.path.abspath(os.environ.get("CULVERT", ROOT / "build" / "culvert"))


def own_user():
    """The setting `user:` for one more program started as root, as a dict: rings are charged to the user
    (RLIMIT_MEMLOCK), and all that run at the same time as nobody would share one small budget."""
    if os.geteuid() != 0:
        return {}
    number = random.randint(20000, 60000)
    return {"user": f"{number}:{number}"}


def environment(extra=None):
    env = dict(os.environ)
    for name, value in SANITIZERS.items():
        env[name] = value + (":" + env[name] if name in env else "")
    env.update(extra or {})
    return env


class Metrics:
    """Prometheus text, parsed."""

    LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)\Z')
    LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        self.text = text
        self.samples = []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, labels, value = self.LINE.match(line).groups()
                self.samples.append((name, dict(self.LABEL.findall(labels or "")), float(value)))

    def get(self, name, **labels):
        """The sum of all samples of this name whose labels contain these; None if there is none."""
        found = [v for n, have, v in self.samples
                 if n == name and all(have.get(k) == str(w) for k, w in labels.items())]
        return sum(found) if found else None

    def value(self, name, **labels):
        """As get(), 0 for one that has never been counted."""
        return self.get(name, **labels) or 0

    def labels(self, name):
        return [have for n, have, _ in self.samples if n == name]


class AccessLog:
    """The JSON access log, read as it grows."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.entries = []
        self.offset = 0
        self.rest = b""

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return self.entries
        self.offset += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        self.entries += [json.loads(line) for line in lines]
        return self.entries

    def mark(self):
        """A point in the log, for since=."""
        return len(self.read())

    def wait(self, match, since=0, timeout=5.0, what="an access log line"):
        """The first line since the mark for which match(entry) holds."""
        def found():
            return next((e for e in self.read()[since:] if match(e)), None)
        try:
            return net.wait_until(found, timeout, what)
        except AssertionError:
            lines = "\n".join(json.dumps(e) for e in self.entries[since:][-20:])
            raise AssertionError(f"no {what}; since the mark there are:\n{lines}") from None

    def of(self, client, n=1, timeout=5.0):
        """The first n lines of this client's connection; one line: not in a list."""
        end = f":{client.port}"
        since = getattr(client, "log_mark", 0)   # an earlier connection may have had the same port

        def found():
            mine = [e for e in self.read()[since:] if str(e.get("peer", "")).endswith(end)]
            return mine if len(mine) >= n else None
        try:
            mine = net.wait_until(found, timeout, f"{n} access log lines of peer {end}")
        except AssertionError as error:
            lines = "\n".join(json.dumps(e) for e in self.entries[-10:])
            raise AssertionError(f"{error}; the last lines are:\n{lines}") from None
        return mine[0] if n == 1 else mine[:n]


class StartFailed(Exception):
    def __init__(self, code, stderr):
        super().__init__(f"culvert ended with {code} instead of starting:\n{stderr}")
        self.code = code
        self.stderr = stderr


class Culvert:
    """make_conf(port): port("name") gives a free port, which is then culvert.port["name"]."""

    def __init__(self, directory, make_conf, env=None, ready="admin", tries=5, preexec=None):
        self.dir = pathlib.Path(directory)
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = env
        self.preexec = preexec
        self.exit_code = None
        self.stderr_file = self.dir / "stderr.log"
        for left in reversed(range(tries)):
            self.port = {}
            self.conf = make_conf(self.new_port)
            try:
                self.start(ready)
                break
            except StartFailed as error:
                # Between learning a port and binding it somebody else may have taken it.
                if not left or "in use" not in error.stderr:
                    raise
        self.log = AccessLog(self.dir / "access.log")
        self.first_proxy = self.proxy_pid()

    def new_port(self, name):
        while name not in self.port:
            port = net.free_port()
            if port not in self.port.values():
                self.port[name] = port
        return self.port[name]

    # -- start

    pass_fds = ()

    def argv(self):
        return [program(), "run", "-c", str(self.file)]

    def start(self, ready="admin"):
        self.file = write_conf(self.dir / "culvert.yaml", self.conf)
        with open(self.stderr_file, "ab") as err, open(self.dir / "stdout.log", "ab") as out:
            self.process = subprocess.Popen(
                self.argv(), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.dir,
                env=environment(self.env), start_new_session=True, preexec_fn=self.preexec,
                pass_fds=self.pass_fds)
        self.pid = self.process.pid
        self.exit_code = None
        end = time.monotonic() + 20
        while not self.is_ready(ready):
            if self.process.poll() is not None:
                self.exit_code = self.process.returncode
                raise StartFailed(self.exit_code, self.stderr)
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"culvert is not ready after 20 s:\n{self.stderr}")
            time.sleep(0.005)

    def is_ready(self, how):
        if how == "admin":
            try:
                return self.admin_get("/readyz").status == 200
            except (OSError, Exception):
                return False
        for name, port in self.port.items():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                return False
        return True

    # -- looking in

    @property
    def stderr(self):
        try:
            return self.stderr_file.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def admin_get(self, target, fields=(), timeout=5.0):
        client = Client(self.port["admin"], timeout=timeout)
        try:
            lines = "".join(f"{f}\r\n" for f in fields)
            return client.ask(f"GET {target} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n{lines}\r\n")
        finally:
            client.close()

    def metrics(self):
        answer = self.admin_get("/metrics")
        assert answer.status == 200, answer
        return Metrics(answer.text)

    def wait_metric(self, test, what="a metric", timeout=5.0):
        """Scrapes until test(metrics) holds."""
        return net.wait_until(lambda: test(self.metrics()), timeout, what)

    def proxy_pid(self):
        """The proxy process: the keeper's child."""
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], check=False,
                                  capture_output=True, text=True).stdout.split()
        return int(children[0]) if children else None

    def rss(self):
        """Resident bytes of the proxy process."""
        with open(f"/proc/{self.proxy_pid()}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024

    def sanitized(self):
        """Whether this is a build with a sanitizer."""
        with open(f"/proc/{self.proxy_pid()}/maps", encoding="utf-8") as file:
            return bool(re.search(r"lib[at]san|clang_rt", file.read()))

    def open_fds(self):
        return len(os.listdir(f"/proc/{self.proxy_pid()}/fd"))

    def wait_stderr(self, text, timeout=5.0):
        net.wait_until(lambda: text in self.stderr, timeout, f"{text!r} on stderr")

    def check_sound(self):
        """It runs, nothing has crashed, no sanitizer complained."""
        text = self.stderr
        bad = BAD_TEXT.search(text)
        assert not bad, f"culvert's stderr:\n{text[max(0, bad.start() - 2000):bad.start() + 6000]}"
        assert self.process.poll() is None, f"culvert ended with {self.process.returncode}:\n{text[-4000:]}"
        assert self.proxy_pid() == self.first_proxy, f"the proxy process was restarted:\n{text[-4000:]}"

    # -- end

    def signal(self, number):
        os.kill(self.pid, number)

    def wait_exit(self, timeout=30.0):
        self.exit_code = self.process.wait(timeout)
        return self.exit_code

    def stop(self, code=0):
        """TERM; insists on a clean end with this exit code."""
        if self.exit_code is not None:
            return
        self.signal(signal.SIGTERM)
        try:
            got = self.wait_exit()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"culvert does not end on TERM:\n{self.stderr[-4000:]}") from None
        assert not BAD_TEXT.search(self.stderr), f"culvert's stderr:\n{self.stderr[-8000:]}"
        assert got == code, f"exit code {got}, not {code}:\n{self.stderr[-4000:]}"
        self.assert_no_processes()

    def assert_no_processes(self):
        """Nothing of its process group is left."""
        def gone():
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return True
            return False
        net.wait_until(gone, 2.0, "all processes of culvert are gone")

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.exit_code = self.process.returncode


def write_conf(path, conf):
    """conf: a dict (written as JSON, which is YAML), or the text of a file."""
    path = pathlib.Path(path)
    path.write_text(conf if isinstance(conf, str) else json.dumps(conf, indent=1) + "\n", encoding="utf-8")
    return path


def run_program(*args, conf=None, directory=None, env=None, timeout=20):
    """Runs culvert to its end. With conf, its file's name is appended as -c FILE."""
    argv = [program(), *args]
    if conf is not None:
        argv += ["-c", str(write_conf(pathlib.Path(directory) / "culvert.yaml", conf))]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=directory,
                          env=environment(env), timeout=timeout, check=False)
