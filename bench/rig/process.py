"""A contestant's processes: started pinned, found, measured, and always ended."""

import ctypes
import os
import signal
import socket
import subprocess
import time

from . import machine

READY_S = 10
STOP_S = 5
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)
_running = []


class Failed(Exception):
    pass


def _stat(pid):
    """(parent, start time) of a process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] == "Z":
        return None
    return int(fields[1]), int(fields[19])


def _cpu_clock(pid):
    """The clock that clock_getcpuclockid(3) names."""
    return (~pid << 3) | 2


def _prepare(core):
    """Runs in the child: a contestant must not outlive the bench, even when that is killed."""
    def prepare():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.sched_setaffinity(0, {core})
    return prepare


class Process:
    """One started program with its descendants.  Its standard output is appended to a file."""

    def __init__(self, name, argv, folder, core, stdout="stdout"):
        self.name = name
        self.folder = folder
        self.known = {}                 # pid -> start time
        with open(os.path.join(folder, stdout), "ab") as out, \
             open(os.path.join(folder, "stderr"), "ab") as errors:
            self.leader = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=errors, start_new_session=True,
                                           preexec_fn=_prepare(core))
        _running.append(self)

    def pids(self):
        """Those of the leader and of all that it has started and that live."""
        stats = {int(p): _stat(p) for p in os.listdir("/proc") if p.isdigit()}
        family = [self.leader.pid]
        for pid in family:
            family += [child for child, stat in stats.items() if stat and stat[0] == pid]
        alive = [pid for pid in family if stats.get(pid)]
        self.known.update((pid, stats[pid][1]) for pid in alive)
        return alive

    def last_words(self):
        for name in ("stderr", "error.log", "cache.log", "stdout"):
            path = os.path.join(self.folder, name)
            if os.path.exists(path) and os.path.getsize(path):
                with open(path, errors="replace") as f:
                    return f.read()[-800:].strip()
        return "(no message)"

    def wait_ready(self, port):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.leader.poll() is not None:
                raise Failed(f"{self.name} ended with {self.leader.returncode}: {self.last_words()}")
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        raise Failed(f"{self.name} does not listen on {port}: {self.last_words()}")

    def rss_bytes(self):
        total = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/statm") as f:
                total += int(f.read().split()[1])
        return total * os.sysconf("SC_PAGE_SIZE")

    def private_bytes(self):
        total = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("Private_"))
        return total * 1024

    def cpu_s(self):
        """Run time of all threads, living and ended, of all its processes."""
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in self.pids())

    def _survivors(self):
        return [pid for pid, start in self.known.items() if (_stat(pid) or (0, None))[1] == start]

    def stop(self, patience_s=STOP_S):
        """TERM to the leader; what still lives after a while is killed, each by its pid."""
        self.pids()
        if self.leader.poll() is None:
            self.leader.terminate()
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and (self.leader.poll() is None or self._survivors()):
            time.sleep(0.02)
        for pid in self._survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.leader.wait()
        if self in _running:
            _running.remove(self)


def stop_all():
    for process in list(_running):
        process.stop(patience_s=1)
