"""Memory of tunnels that do nothing: before, while they stand, after they have closed."""

import dataclasses
import os
import subprocess
import time

from . import build, contestants, machine, report
from .process import Failed

STILL_S = 0.4
CALM_S = 5                          # some give memory back only after a while
PATIENCE_S = 30


@dataclasses.dataclass
class Row:
    contestant: object
    tunnels: int
    start: int                      # private bytes of the processes, before any tunnel
    open: int
    closed: int
    kernel: int                     # growth of the slab, with the driver's share


def _kernel_bytes():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Slab:"))


def _settled(process, still_s=STILL_S):
    """Private memory once it has stood still for so long."""
    deadline = time.monotonic() + PATIENCE_S
    since, before = time.monotonic(), process.private_bytes()
    while time.monotonic() < min(deadline, since + still_s):
        time.sleep(STILL_S / 2)
        now = process.private_bytes()
        if now != before:
            since, before = time.monotonic(), now
    return before


def _expect(driver, word):
    line = driver.stdout.readline().strip()
    if line != word:
        driver.kill()
        raise Failed(f"the driver failed: {driver.stderr.read().strip()}")


def _tell(driver):
    driver.stdin.write("\n")
    driver.stdin.flush()


def _measure(running, workload):
    argv = [build.program("idle"), "--proxy", str(running.port), "--origin", str(running.origin),
            *workload.driver, *running.contestant.driver]
    row = Row(running.contestant, int(workload.driver[1]), _settled(running.process), 0, 0, 0)
    kernel = _kernel_bytes()
    with subprocess.Popen(argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          preexec_fn=lambda: os.sched_setaffinity(0, {machine.DRIVER_CORE})) as driver:
        try:
            _expect(driver, "open")
            row.open = _settled(running.process)
            row.kernel = _kernel_bytes() - kernel
            _tell(driver)
            _expect(driver, "closed")
            row.closed = _settled(running.process, CALM_S)
            _tell(driver)
        finally:
            driver.kill()
    return row


def _table(rows):
    lines = ["| | tunnels | private at start, MB | bytes per tunnel | private after they closed, MB | "
             "kernel (slab), bytes per tunnel, driver's half included |",
             "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        lines.append(f"| {row.contestant.name} | {row.tunnels:,} | {row.start / 1e6:.2f} | "
                     f"{(row.open - row.start) / row.tunnels:,.0f} | {row.closed / 1e6:.2f} | "
                     f"{row.kernel / row.tunnels:,.0f} |")
    return "\n".join(lines)


def _warm_up(chosen, workload, options):
    """The kernel keeps the memory of the first sockets: whoever comes first would pay for all."""
    for contestant in chosen[:1]:
        running = contestants.start(contestant, workload, options)
        if running:
            try:
                _measure(running, workload)
            finally:
                running.stop()


def run(chosen, workload, options):
    rows, absent = [], []
    _warm_up(chosen, workload, options)
    for contestant in chosen:
        running = contestants.start(contestant, workload, options)
        if not running:
            absent.append(contestant)
            continue
        try:
            rows.append(_measure(running, workload))
            print(_table(rows[-1:]).splitlines()[-1], flush=True)
        except Failed as failure:
            print(f"bench: {contestant.name} left out: {failure}")
        finally:
            running.stop()
    parts = [
        f"# {workload.name}: {workload.title}",
        _table(rows),
        f"{machine.describe()}; {time.strftime('%Y-%m-%d')}. Each tunnel has carried one byte each way. Private "
        "memory is Private_Clean + Private_Dirty of /proc/PID/smaps_rollup over all processes.",
        report.versions([row.contestant for row in rows], options),
    ]
    if absent:
        parts.append(report.not_here(absent))
    return "\n\n".join(parts) + "\n"
