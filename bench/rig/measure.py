"""Rounds: every contestant once per round, in rotating order, on a machine that is otherwise idle.

A run is thrown away and repeated when something else took part of the two cores while it lasted; a
round in which that did not help is noisy.  Figures of noisy rounds are used only when there are not
enough others, and the report says so.
"""

import dataclasses
import json
import os
import resource
import subprocess
import time

from . import build, machine
from .process import Failed

FOREIGN_SHARE = 0.04            # of the two cores' time during a run
TRIES = 3
LOG_PATIENCE_S = 3


@dataclasses.dataclass
class Sample:
    rate: float                     # requests per second
    cpu_us: float                   # per request, all processes of the contestant
    p50_us: float
    p99_us: float
    bad: int
    reconnects: int
    rss: int
    logged: float                   # log lines per request; None: no log
    driver_busy: float
    foreign: float                  # share of the two cores that others took
    quiet: bool


def _children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def drive(running, workload, arguments, seconds):
    """Runs the driver once; its report."""
    argv = [build.program(workload.program), "--proxy", str(running.port), "--origin", str(running.origin),
            "--seconds", str(seconds), *workload.driver, *running.contestant.driver, *arguments]
    for pid in running.process.pids():
        argv += ["--pid", str(pid)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          preexec_fn=lambda: os.sched_setaffinity(0, {machine.DRIVER_CORE}))
    if done.returncode:
        raise Failed(f"{running.contestant.name}: the driver failed: {done.stderr.strip()}\n"
                     f"{running.process.last_words()}")
    return json.loads(done.stdout)


def _logged(running, requests):
    """Log lines per request; a writer that batches is given a moment."""
    if not running.logs or not requests:
        return None
    deadline = time.monotonic() + LOG_PATIENCE_S
    while running.log_lines() < requests and time.monotonic() < deadline:
        time.sleep(0.1)
    return running.log_lines() / requests


def _run_once(running, workload, arguments, options):
    quiet = machine.wait_idle()
    running.empty_log()
    busy, own = machine.busy_s(), running.process.cpu_s() + _children_s()
    began = time.monotonic()
    report = drive(running, workload, arguments, options.seconds)
    wall = time.monotonic() - began
    own = running.process.cpu_s() + _children_s() - own
    foreign = max(0.0, machine.busy_s() - busy - own) / (2 * wall)
    return Sample(rate=report["rate"], cpu_us=report["cpu_us"], p50_us=report["p50_us"],
                  p99_us=report["p99_us"], bad=report["bad"] + report["origin_bad"],
                  reconnects=report["reconnects"], rss=running.process.rss_bytes(),
                  logged=_logged(running, report["answered"]), driver_busy=report["driver_busy"],
                  foreign=foreign, quiet=quiet and foreign <= FOREIGN_SHARE + running.contestant.own_noise)


def _run(running, workload, arguments, options):
    for _ in range(TRIES):
        sample = _run_once(running, workload, arguments, options)
        if sample.quiet or options.noisy:
            break
        print(f"  {running.contestant.name}: another load took {sample.foreign:.0%}, thrown away")
    return sample


def one_round(number, field, workload, arguments, options):
    """{name: Sample} of one round."""
    turn = number % len(field)
    samples = {}
    for running in field[turn:] + field[:turn]:
        samples[running.contestant.name] = sample = _run(running, workload, arguments, options)
        print(f"  {running.contestant.name:28} {sample.rate:10,.0f}/s {sample.cpu_us:9.2f} us CPU"
              f"  p50 {sample.p50_us:6,.0f}  p99 {sample.p99_us:6,.0f}"
              f"  others {sample.foreign:.0%}  driver {sample.driver_busy:.0%}"
              + (f"  BAD {sample.bad}" if sample.bad else ""), flush=True)
    return samples


def fixed_rate(field, workload, options):
    """Driver arguments for a fixed rate: a share of what HAProxy reaches now."""
    if not workload.rate_share:
        return ()
    ruler = [r for r in field if r.contestant.name == "HAProxy"]
    if not ruler:
        raise Failed("the fixed rate is a share of HAProxy's maximum, and HAProxy is not here")
    rate = round(workload.rate_share * drive(ruler[0], workload, (), options.seconds)["rate"], -2)
    print(f"fixed rate: {rate:,.0f}/s")
    return ("--rate", str(rate))


def rounds(field, workload, options):
    """(rounds, how many of them were noisy).  Quiet ones if there are enough."""
    arguments = fixed_rate(field, workload, options)
    quiet, noisy = [], []
    for number in range(2 * options.rounds):
        if len(quiet) == options.rounds or (options.noisy and len(quiet + noisy) == options.rounds):
            break
        print(f"round {number + 1}")
        samples = one_round(number, field, workload, arguments, options)
        (quiet if all(s.quiet for s in samples.values()) else noisy).append(samples)
    if len(quiet) >= options.rounds:
        return quiet, 0
    return quiet + noisy, len(noisy)
