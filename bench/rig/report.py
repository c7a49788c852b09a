"""The table: medians over the rounds, and ratios that are medians of each round's ratio."""

import os
import statistics
import time

from . import build, machine

PEERS = ("HAProxy", "nginx", "Squid", "tinyproxy")
RESULTS = os.path.join(build.BENCH, "results")


def _median(rounds, name, what):
    values = [getattr(r[name], what) for r in rounds]
    return None if None in values else statistics.median(values)


def _ratio(rounds, name, other, what, inverse=False):
    """By how much `name` is ahead of `other`; None when that did not run."""
    if other not in rounds[0]:
        return None
    pairs = [(getattr(r[name], what), getattr(r[other], what)) for r in rounds]
    return statistics.median(b / a if inverse else a / b for a, b in pairs if a and b)


def _times(value):
    return "–" if value is None else f"{value:.2f} ×"


def _percent(value):
    return "–" if value is None else f"{value:.0%}"


def _rate(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"


def _median_column(title, what, show):
    def cell(rounds, contestant):
        value = _median(rounds, contestant.name, what)
        return "–" if value is None else show(value)
    return title, cell


def _cost_columns(workload):
    columns = []
    if workload.unit == "request":
        columns.append(_median_column("CPU µs/request", "cpu_us", "{:.2f}".format))
    if workload.bytes:
        columns.append(_median_column("CPU s/GB", "cpu_us", lambda us: f"{us * 1e3 / workload.bytes:.3f}"))
    if workload.unit == "MB":
        columns.append(_median_column("CPU s/GB", "cpu_us", lambda us: f"{us / 1e3:.3f}"))
    return columns


def _peer_columns(workload, names):
    columns = []
    for peer in (name for name in names if name.startswith(PEERS)):
        if workload.rate_share:
            columns.append((f"p99, {peer} ÷ it",
                            lambda r, c, p=peer: _times(_ratio(r, c.name, p, "p99_us", inverse=True))))
        else:
            columns.append((f"rate ÷ {peer}", lambda r, c, p=peer: _times(_ratio(r, c.name, p, "rate"))))
        columns.append((f"per CPU s ÷ {peer}",
                        lambda r, c, p=peer: _times(_ratio(r, c.name, p, "cpu_us", inverse=True))))
    return columns


def _columns(workload, contestants):
    """[(title, function of (rounds, contestant) to text)]"""
    names = [c.name for c in contestants]
    columns = [
        _median_column(f"{workload.unit}s/s" if workload.unit == "request" else "MB/s", "rate", _rate),
        ("min–max", lambda r, c: f"{_rate(min(s[c.name].rate for s in r))}–"
                                 f"{_rate(max(s[c.name].rate for s in r))}"),
        *_cost_columns(workload),
        *_peer_columns(workload, names),
    ]
    if any(c.limit in names for c in contestants):
        columns.append(("of its limit, per CPU s",
                        lambda r, c: _percent(_ratio(r, c.name, c.limit, "cpu_us", inverse=True))))
    if workload.unit == "request":
        columns += [
            _median_column("p50 µs", "p50_us", "{:,.0f}".format),
            _median_column("p99 µs", "p99_us", "{:,.0f}".format),
            _median_column("log lines/request", "logged", "{:.3f}".format),
        ]
    return columns + [
        _median_column("RSS MB", "rss", lambda b: f"{b / 1e6:.1f}"),
        ("bad", lambda r, c: str(sum(s[c.name].bad for s in r))),
        _median_column("driver busy", "driver_busy", _percent),
        _median_column("others", "foreign", _percent),
    ]


def _table(workload, contestants, rounds):
    columns = _columns(workload, contestants)
    lines = ["| | " + " | ".join(title for title, _ in columns) + " |",
             "|---|" + "---:|" * len(columns)]
    for c in contestants:
        lines.append(f"| {c.name} | " + " | ".join(show(rounds, c) for _, show in columns) + " |")
    return "\n".join(lines)


def _conditions(workload, rounds, noisy, options):
    text = (f"{machine.describe()}; {time.strftime('%Y-%m-%d')}. {len(rounds)} rounds of "
            f"{options.seconds:g} s per contestant, order rotating; the proxy on core 0, client and "
            "origin in one thread on core 1; every byte of every answer compared.")
    if workload.rate_share:
        rate = statistics.median(s.rate for r in rounds for s in r.values())
        text += f" Fixed rate: {rate:,.0f} requests/s; late starts are charged."
    if noisy:
        text += (f"\n\n**Noisy: in {noisy} of the rounds something else ran on these cores. "
                 "Not a result to quote.**")
    return text


def versions(contestants, options):
    seen = {}
    for c in contestants:
        seen.setdefault((c.program, c.conf), c.describe(options))
    return "\n".join(f"* {program}: {version}" + (f" (bench/conf/{conf})" if conf else "")
                     for (program, conf), version in seen.items())


def not_here(absent):
    return "Not in this run: " + ", ".join(f"{c.name} ({c.missing()})" for c in absent) + "."


HOW_TO_READ = """\
Figures are medians of the rounds, ratios the medians of each round's ratio (above 1 is better). CPU is the run time of
all processes of the contestant with all their threads. Where the driver is busy to 100 %, it and not the proxy sets the
rate: then the cost in CPU is what counts. Others: the share of the two cores that ran neither the contestant nor the
driver, such as threads of the kernel. A limit is a bare relay that parses almost nothing and logs nothing."""


def text(workload, contestants, rounds, noisy, absent, options):
    logs = ", access logs on, to a file" if workload.logs else ", access logs off"
    parts = [
        f"# {workload.name}: {workload.title}{logs}",
        _table(workload, contestants, rounds),
        _conditions(workload, rounds, noisy, options),
        HOW_TO_READ,
        versions(contestants, options),
    ]
    if absent:
        parts.append(not_here(absent))
    return "\n\n".join(parts) + "\n"


def write(workload, body, noisy, options):
    """A noisy table does not replace a committed one."""
    folder = options.out or (build.OUT if noisy else RESULTS)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{workload.name}.md")
    with open(path, "w") as f:
        f.write(body)
    return path
