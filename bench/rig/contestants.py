"""The table of contestants: how each is found, configured and started."""

import dataclasses
import os
import re
import shutil
import subprocess
import tempfile

from . import build, machine
from .process import Failed, Process

CONF = os.path.join(build.BENCH, "conf")


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    program: str                    # searched in PATH, unless it is one of ours
    argv: tuple                     # after the program; @words@ are replaced
    conf: str = ""                  # its configuration in bench/conf
    log: str = "access.log"         # where its access log goes; "": it has none
    version: tuple = ()             # arguments that print a version
    package: str = ""               # of Debian
    limit: str = "relay_epoll"      # the bare relay that it is compared with
    words: tuple = ()               # further replacements: (word, value)
    marks: tuple = ()               # which marked lines of its configuration stand
    driver: tuple = ()              # further arguments for the driver
    own_noise: float = 0            # share of the cores that the kernel uses for it in no process' name

    @property
    def is_ours(self):
        return self.program == "culvert"

    def path(self, options):
        if self.is_ours:
            found = options.culvert
        elif self.program.startswith("relay_"):
            found = build.program(self.program)
        else:
            found = shutil.which(self.program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        return found if found and os.access(found, os.X_OK) else None

    def missing(self):
        if self.is_ours:
            return "not built yet (./dev build)"
        return f"not installed (apt-get install {self.package})"

    def describe(self, options):
        if not self.version:
            return "the bench's own"
        done = subprocess.run([self.path(options), *self.version], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return (done.stdout.strip().splitlines() or ["unknown"])[0].strip()


def _culvert(io, log="json", **more):
    name = f"culvert, {io}" + (f", {log}" if log != "json" else "")
    return Contestant(name, "culvert", ("run", "-c", "@dir@/@conf@"), conf="culvert.yaml",
                      version=("--version",), words=(("io", io), ("format", log)),
                      limit="relay_uring" if io == "io_uring" else "relay_epoll", **more)


CULVERT_URING = _culvert("io_uring")
CULVERT_EPOLL = _culvert("epoll")
# Its log as nginx writes it: a third of the bytes of the JSON that is culvert's default.
CULVERT_URING_COMBINED = _culvert("io_uring", "combined")
CULVERT_EPOLL_COMBINED = _culvert("epoll", "combined")
NGINX = Contestant("nginx", "nginx", ("-p", "@dir@", "-c", "@dir@/@conf@", "-e", "@dir@/error.log"),
                   conf="nginx.conf", version=("-v",), package="nginx")
HAPROXY = Contestant("HAProxy", "haproxy", ("-db", "-f", "@dir@/@conf@"), conf="haproxy.cfg",
                     log="stdout", version=("-v",), package="haproxy")
RELAY_URING = Contestant("relay_uring", "relay_uring", ("@port@", "@origin@"), log="",
                         limit="relay_uring")
RELAY_URING_BULK = dataclasses.replace(RELAY_URING, argv=("@port@", "@origin@", "65536"))
RELAY_EPOLL = Contestant("relay_epoll", "relay_epoll", ("@port@", "@origin@"), log="")

FORWARD_URING = dataclasses.replace(CULVERT_URING, name="culvert forward, io_uring",
                                    conf="culvert-forward.yaml", limit="culvert, io_uring",
                                    driver=("--absolute",))
FORWARD_EPOLL = dataclasses.replace(CULVERT_EPOLL, name="culvert forward, epoll",
                                    conf="culvert-forward.yaml", limit="culvert, epoll",
                                    driver=("--absolute",))
SQUID = Contestant("Squid", "squid", ("-N", "-f", "@dir@/@conf@"), conf="squid.conf",
                   version=("-v",), package="squid", driver=("--absolute",))
# It closes after each answer, and starts and ends a thread for each connection.
TINYPROXY = Contestant("tinyproxy", "tinyproxy", ("-d", "-c", "@dir@/@conf@"), conf="tinyproxy.conf",
                       version=("-v",), package="tinyproxy-bin", own_noise=0.15,
                       driver=("--absolute", "--new-connection"))

# Tunnels.  What splice moves is freed by threads of the kernel.
SPLICE_NOISE = 0.2
CONNECT_URING = dataclasses.replace(FORWARD_URING, name="culvert CONNECT, io_uring",
                                    limit="splice, pipe of 1 MiB", own_noise=SPLICE_NOISE, driver=())
CONNECT_EPOLL = dataclasses.replace(FORWARD_EPOLL, name="culvert CONNECT, epoll",
                                    limit="splice, pipe of 1 MiB", own_noise=SPLICE_NOISE, driver=())
HAPROXY_TCP = dataclasses.replace(HAPROXY, name="HAProxy mode tcp", conf="haproxy-tcp.cfg",
                                  limit="copy, 64 KiB", marks=("COPY",), driver=("--plain",))
HAPROXY_SPLICE = dataclasses.replace(HAPROXY_TCP, name="HAProxy mode tcp, splice", marks=("SPLICE",),
                                     limit="splice, pipe of 1 MiB", own_noise=SPLICE_NOISE)
SQUID_CONNECT = dataclasses.replace(SQUID, name="Squid CONNECT", limit="copy, 64 KiB", driver=())
RELAY_COPY = Contestant("copy, 64 KiB", "relay_tunnel", ("copy", "@port@", "@origin@", "65536"),
                        log="", limit="copy, 64 KiB", driver=("--plain",))
RELAY_SPLICE = Contestant("splice, pipe of 1 MiB", "relay_tunnel",
                          ("splice", "@port@", "@origin@", "1048576"),
                          log="", limit="splice, pipe of 1 MiB", own_noise=SPLICE_NOISE,
                          driver=("--plain",))


def culvert_with_routes(count):
    rows = (f"      - {{ name: r{i}, match: {{ prefix: /app{i}/part }}, upstream: origin }}"
            for i in range(1, count))
    return dataclasses.replace(CULVERT_URING, name=f"culvert, {count:,} route{'s' * (count > 1)}",
                               conf="culvert-routes.yaml", limit="culvert, 1 route",
                               words=(("io", "io_uring"), ("routes", "\n".join(rows))))


def _choose_lines(text, marks):
    """Drops the lines that end in "# MARK" with a mark that is not among these."""
    lines = []
    for line in text.splitlines():
        marked = re.search(r"\s+# ([A-Z]+)$", line)
        if not marked or marked[1] in marks:
            lines.append(line[:marked.start()] if marked else line)
    return "\n".join(lines) + "\n"


class Running:
    """A contestant that has been started."""

    def __init__(self, contestant, workload, options, under=()):
        """under: a program and its arguments that run the contestant, such as valgrind."""
        self.contestant = contestant
        self.port = machine.free_port()
        self.origin = machine.free_port()
        self.folder = tempfile.mkdtemp(prefix="bench-")
        os.chmod(self.folder, 0o777)            # Squid writes as its own user
        self.logs = workload.logs and bool(contestant.log)
        self.process = None
        try:
            self._write_conf(workload.logs)
            argv = [*map(self._fill, under), contestant.path(options),
                    *map(self._fill, contestant.argv)]
            self.process = Process(contestant.name, argv, self.folder, machine.PROXY_CORE)
            self.process.wait_ready(self.port)
        except BaseException:
            self.stop()
            raise

    def _fill(self, text):
        words = {"port": self.port, "origin": self.origin, "dir": self.folder,
                 "conf": self.contestant.conf, **dict(self.contestant.words)}
        return re.sub("@([a-z]+)@", lambda m: str(words[m[1]]), text)

    def _write_conf(self, logs):
        if not self.contestant.conf:
            return
        with open(os.path.join(CONF, self.contestant.conf)) as f:
            text = _choose_lines(f.read(), ("LOG" if logs else "NOLOG", *self.contestant.marks))
        with open(os.path.join(self.folder, self.contestant.conf), "w") as f:
            f.write(self._fill(text))

    def log_path(self):
        return os.path.join(self.folder, self.contestant.log)

    def log_lines(self):
        lines = 0
        with open(self.log_path(), "rb") as f:
            while block := f.read(1 << 20):
                lines += block.count(b"\n")
        return lines

    def empty_log(self):
        if self.logs and os.path.exists(self.log_path()):
            os.truncate(self.log_path(), 0)

    def stop(self):
        if self.process:
            self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(contestant, workload, options):
    """A running contestant, or None with a note."""
    if not contestant.path(options):
        print(f"bench: {contestant.name}: {contestant.missing()}, left out")
        return None
    try:
        return Running(contestant, workload, options)
    except Failed as failure:
        print(f"bench: {failure}\nbench: {contestant.name} left out")
        return None
