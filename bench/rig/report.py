"""The table: medians over the rounds, and ratios that are medians of each round's ratio."""

import os
import statistics
import time

from . import build, machine

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


def _columns(workload, names):
    """[(title, function of (rounds, contestant) to text)]"""
    peers = [n for n in ("HAProxy", "nginx", "Squid", "tinyproxy") if n in names]
    columns = [
        ("requests/s", lambda r, c: _rate(_median(r, c.name, "rate"))),
        ("min–max", lambda r, c: f"{_rate(min(s[c.name].rate for s in r))}–"
                                 f"{_rate(max(s[c.name].rate for s in r))}"),
        ("CPU µs/request", lambda r, c: f"{_median(r, c.name, 'cpu_us'):.2f}"),
    ]
    if workload.bytes:
        columns.append(("CPU s/GB", lambda r, c: f"{_median(r, c.name, 'cpu_us') * 1e3 / workload.bytes:.3f}"))
    for peer in peers:
        columns.append((f"rate ÷ {peer}", lambda r, c, p=peer: _times(_ratio(r, c.name, p, "rate"))))
        columns.append((f"per CPU s ÷ {peer}",
                        lambda r, c, p=peer: _times(_ratio(r, c.name, p, "cpu_us", inverse=True))))
    if any(n.startswith("relay_") for n in names):
        columns.append(("of its bare relay, per CPU s",
                        lambda r, c: _percent(_ratio(r, c.name, c.limit, "cpu_us", inverse=True))))
    columns += [
        ("p50 µs", lambda r, c: f"{_median(r, c.name, 'p50_us'):,.0f}"),
        ("p99 µs", lambda r, c: f"{_median(r, c.name, 'p99_us'):,.0f}"),
        ("RSS MB", lambda r, c: f"{_median(r, c.name, 'rss') / 1e6:.1f}"),
        ("log lines/request", lambda r, c: "–" if _median(r, c.name, "logged") is None
                              else f"{_median(r, c.name, 'logged'):.3f}"),
        ("bad", lambda r, c: str(sum(s[c.name].bad for s in r))),
        ("driver busy", lambda r, c: _percent(_median(r, c.name, "driver_busy"))),
    ]
    return columns


def _table(workload, contestants, rounds):
    columns = _columns(workload, list(rounds[0]))
    lines = ["| | " + " | ".join(title for title, _ in columns) + " |",
             "|---|" + "---:|" * len(columns)]
    for c in contestants:
        lines.append(f"| {c.name} | " + " | ".join(show(rounds, c) for _, show in columns) + " |")
    return "\n".join(lines)


def _conditions(rounds, noisy, options):
    text = (f"{machine.describe()}; {time.strftime('%Y-%m-%d')}. {len(rounds)} rounds of {options.seconds:g} s "
            "per contestant, order rotating; the proxy on core 0, client and origin in one thread on core 1; "
            "every answer's status, length and bytes compared.")
    if noisy:
        text += (f"\n\n**Noisy: in {noisy} of the rounds something else ran on these cores. "
                 "Not a result to quote.**")
    return text


def _versions(contestants, options):
    seen = {}
    for c in contestants:
        seen.setdefault(c.program, (c.describe(options), c.conf))
    return "\n".join(f"* {program}: {version}" + (f" (bench/conf/{conf})" if conf else "")
                     for program, (version, conf) in seen.items())


def text(workload, contestants, rounds, noisy, absent, options):
    parts = [
        f"# {workload.name}: {workload.title}, access logs {'on, to a file' if workload.logs else 'off'}",
        _table(workload, contestants, rounds),
        _conditions(rounds, noisy, options),
        "Figures are medians of the rounds, ratios the medians of each round's ratio (above 1 is better). CPU is the "
        "run time of all threads of all processes of the contestant. Where the driver is busy to 100 %, it and not "
        "the proxy sets the rate: then CPU per request is what counts. A bare relay parses almost nothing and logs "
        "nothing: it is the limit, not a proxy.",
        _versions(contestants, options),
    ]
    if absent:
        parts.append("Not in this run: " + ", ".join(f"{c.name} ({c.missing()})" for c in absent) + ".")
    return "\n\n".join(parts) + "\n"


def write(workload, body, noisy, options):
    """A noisy table does not replace a committed one."""
    folder = options.out or (build.OUT if noisy else RESULTS)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{workload.name}.md")
    with open(path, "w") as f:
        f.write(body)
    return path
