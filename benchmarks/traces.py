"""Replay workload traces (SWF) through the priority policy under a virtual clock: waits, slowdown, utilisation.

`python -m benchmarks.traces FOLDER [OUT]` reads NASA-iPSC and lublin_256 of the folder, prints a table, and with OUT
writes a plot of it (SVG). A machine is one pool of processors, as in the traces' own literature.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rainbow.scheduling import Priority
from rainbow.simulation import read_trace
from tests.support.policies.dispatching import Job, replay

TRACES = (("NASA-iPSC-1993-3.1-cln", 128), ("lublin_256", 256))
DISCIPLINES = ("fcfs", "easy", "conservative")
FIRST = {"fcfs": 32}  # nobody passes the first who waits: those far behind need not be shown
BOUND = 10.0  # seconds: shorter jobs count as this long, so that they do not rule the slowdown


@dataclass(frozen=True)
class Figures:
    """What one replay comes to."""

    trace: str
    discipline: str
    jobs: int
    wait: float
    slowdown: float
    utilisation: float
    plans: int
    seconds: float


def read_swf(path: Path) -> Iterator[Job]:
    """Yield the jobs of a trace by submission."""
    for one in read_trace(path):
        yield Job(one.id.zfill(7), one.submit, one.slots, one.length(), one.limit)


def _unseen(*_: object) -> None:
    """The plans are not looked at."""


def measure(trace: str, processors: int, jobs: list[Job], discipline: str) -> Figures:
    """Replay one trace under one discipline."""
    begin = time.process_time()
    fitting = [job for job in jobs if job.least <= processors]
    done = replay(
        Priority(),
        {"machine": {"core": processors}},
        fitting,
        {"discipline": discipline},
        _unseen,
        FIRST.get(discipline),
    )
    waits = [done.start[job.id] - job.submit for job in fitting]
    slow = [max(1.0, (w + job.runtime) / max(job.runtime, BOUND)) for w, job in zip(waits, fitting, strict=True)]
    first, last = fitting[0].submit, max(done.start[job.id] + job.runtime for job in fitting)
    used = sum(job.least * job.runtime for job in fitting) / (processors * (last - first))
    mean = (sum(waits) / len(waits), sum(slow) / len(slow))
    return Figures(trace, discipline, len(fitting), *mean, used, done.plans, time.process_time() - begin)


def plot(rows: list[Figures]) -> str:
    """Draw mean waits as bars, one for every trace and discipline."""
    height = 30 + 24 * len(rows)
    most = max(row.wait for row in rows) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<text x="8" y="18">mean wait in seconds, and mean bounded slowdown</text>',
    ]
    for k, row in enumerate(rows):
        y = 30 + 24 * k
        parts.append(f'<text x="8" y="{y + 14}">{row.trace[:10]} {row.jobs:,} {row.discipline}</text>')
        parts.append(
            f'<rect x="200" y="{y}" width="{max(1.0, 380 * row.wait / most):.1f}" height="18" fill="#3b6ea5"/>'
        )
        label = f"{row.wait:,.0f} s, {row.slowdown:,.1f}"
        parts.append(f'<text x="{206 + 380 * row.wait / most:.0f}" y="{y + 14}">{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(arguments: list[str]) -> int:
    """Print the table; 2 for wrong usage."""
    if not arguments or not Path(arguments[0]).is_dir():
        print("usage: python -m benchmarks.traces FOLDER [OUT.svg]", file=sys.stderr)
        return 2
    rows = []
    print("| trace | discipline | jobs | mean wait (s) | bounded slowdown | utilisation | plans | replayed in (s) |")
    print("|---|---|---|---|---|---|---|---|")
    for trace, processors in TRACES:
        jobs = list(read_swf(Path(arguments[0]) / f"{trace}.swf.gz"))
        for discipline in DISCIPLINES:
            row = measure(trace, processors, jobs, discipline)
            rows.append(row)
            print(
                f"| {trace} | {discipline} | {row.jobs:,} | {row.wait:,.1f} | {row.slowdown:,.2f} "
                f"| {row.utilisation:.1%} | {row.plans:,} | {row.seconds:.0f} |",
                flush=True,
            )
    if len(arguments) > 1:
        Path(arguments[1]).write_text(plot(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
