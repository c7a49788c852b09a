"""The program alone, without origins: for tests of how it starts, crashes, drains and ends.

Life is a Culvert that may be given listening sockets (LISTEN_FDS) and that may crash. in_netns(fn)
runs fn in a network namespace of its own, where ports and sysctls are its own too.
"""

import ctypes
import os
import pathlib
import shutil
import socket
import subprocess
import threading

from .client import Client, request
from .culvert import Culvert, own_user, program

CLONE_NEWNET = 0x40000000
NOBODY = 65534

# Puts the descriptors where sd_listen_fds(3) wants them, then becomes the program.
LAUNCH = """
import os, sys
fds = [int(n) for n in sys.argv[1].split(",")]
high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
    os.close(fd)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)))
os.execv(sys.argv[2], sys.argv[2:])
"""


def life_conf(port, io="epoll", **more):
    """One web listener that answers by itself, and the admin port."""
    conf = {
        "workers": 1, "io": io, **own_user(),
        "listeners": [{"name": "web", "bind": f"127.0.0.1:{port('web')}", "serve": "web"}],
        "sites": [{"name": "main", "hosts": ["*"], "routes": [
            {"match": {"prefix": "/"},
             "respond": {"status": 200, "type": "text/plain", "body": "pong\n"}}]}],
        "drain": {"delay": "0s", "deadline": "5s"},
        "access_log": {"to": "./access.log", "format": "json"},
        "log": {"to": "stderr", "level": "info"},
        "admin": {"bind": f"127.0.0.1:{port('admin')}"},
    }
    conf.update(more)
    return conf


class Life(Culvert):
    """sockets: listening sockets that are passed by LISTEN_FDS. admin: its port, when not a free one."""

    def __init__(self, directory, io="epoll", change=None, sockets=(), admin=None, **options):
        self.admin = admin
        self.pass_fds = tuple(s.fileno() for s in sockets)
        self.crashes = False

        def make(port):
            if self.admin:
                self.port["admin"] = self.admin
            conf = life_conf(port, io)
            return (change(conf, port) or conf) if change else conf
        super().__init__(directory, make, **options)

    def argv(self):
        if not self.pass_fds:
            return super().argv()
        return ["/usr/bin/python3", "-c", LAUNCH, ",".join(map(str, self.pass_fds)), *super().argv()]

    def get(self, target="/", to="web", **options):
        """One GET on a connection of its own."""
        client = Client(self.port.get(to, to), **options)
        try:
            return client.ask(request("GET", target))
        finally:
            client.close()

    def status_of(self, pid=None):
        """/proc/PID/status of every thread: a list of dicts."""
        pid = pid or self.proxy_pid()
        found = []
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            lines = (task / "status").read_text("ascii").splitlines()
            found.append({k: v.strip() for k, _, v in (line.partition(":") for line in lines)})
        return found

    def stop(self, code=0):
        if self.crashes and self.exit_code is None:
            self.signal(15)
            assert self.wait_exit() == code, self.stderr[-4000:]
            self.assert_no_processes()
        else:
            super().stop(code)

    def finish(self):
        """At the end of a test: stopped, whatever state it is in."""
        if self.exit_code is not None:
            return
        try:
            if not self.crashes:
                self.check_sound()
            self.stop()
        finally:
            if self.exit_code is None:
                self.kill()


def in_netns(fn):
    """Runs fn() in a thread with a network namespace of its own; its processes and threads inherit it."""
    outcome = {}

    def run():
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            outcome["result"] = fn()
        except BaseException as error:
            outcome["error"] = error
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome.get("result")


def can_netns():
    try:
        in_netns(lambda: None)
        return True
    except (OSError, subprocess.SubprocessError):
        return False


def set_sysctl(name, value):
    """name: ipv4/ip_local_port_range. Of this thread's network namespace."""
    pathlib.Path("/proc/sys/net", name).write_text(f"{value}\n", "ascii")


def program_for_all(directory):
    """A copy of the program that every user may run."""
    path = pathlib.Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o755)
    shutil.copy(program(), path / "culvert")
    return path / "culvert"


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return False
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:    # it came between the last accept and the close
        return False
