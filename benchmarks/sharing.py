"""Two users with elastic jobs on the demo's cluster willow under fair_share, step by step: a trace and a plot of it.

`python -m benchmarks.sharing [OUT.svg]` prints the trace that docs/fair-share.md shows, and writes its plot.
Service and store are real; the agent says what it is told to, and time stands still, so that every run is alike.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rainbow.cli.demo import examples
from tests.conftest import Api, Clock, open_service_at
from tests.support.growing import Site

CLUSTER = "willow"  # 4 nodes of 64 GB
SHARE = 16  # GB
STEPS = 20
ARRIVES, LEAVES = 6, 15  # steps in which the second user's job comes and goes
COLOURS = {"ann": "#3b6ea5", "leaving": "#c9c9c9", "bob": "#d98032"}


@dataclass(frozen=True)
class Moment:
    """How many shares both hold after a step; `leaving` were told to stop and have not ended."""

    step: int
    ann: int
    leaving: int
    bob: int


def share_job(least: int, most: int) -> dict[str, Any]:
    """A job of `least` to `most` shares of 16 GB."""
    count = {"min": least, "max": most, "operator": "+", "operand": 1}
    inside = [{"type": "core", "count": 1}, {"type": "memory", "count": SHARE, "unit": "GB"}]
    slot = {"type": "slot", "count": count, "label": "share", "with": inside}
    task = {"command": ["work"], "slot": "share", "count": {"per_slot": 1}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"elastic": True}}}


def play(folder: Path) -> Iterator[Moment]:
    """Let the first user's job grow until it has everything, then the second's arrive, and leave."""
    there = examples.clusters()
    willow = next(cluster for cluster in there if cluster.name == CLUSTER)
    service = open_service_at(folder, Clock())
    policy = {"name": "fair_share", "settings": {"quantum": {"type": "memory", "amount": SHARE}}}
    api = Api(service)
    site = Site(api, api.register(CLUSTER, dict(willow.graph), policy=policy))
    ann, bob = site.submit("ann", share_job(2, 32)), ""
    for step in range(STEPS):
        if step == ARRIVES:
            bob = site.submit("bob", share_job(2, 32))
        if step == LEAVES:
            api.good("DELETE", f"/v1/jobs/{bob}", None, site.cluster.token)
        site.step(confirm=False)
        states = {job: [task["state"] for task in site.job(job)["tasks"]] for job in (ann, bob) if job}
        leaving = sum(result.count("STOPPING") for result in states.values())
        yield Moment(step, states[ann].count("RUNNING"), leaving, states.get(bob, []).count("RUNNING"))
        site.confirm()
    service.close()


def trace(moments: Sequence[Moment]) -> str:
    """Write one line for every step: a letter for every share, a dot for one that is leaving."""
    lines = [f"{'step':>4} {'ann':>4} {'bob':>4}"]
    lines += [f"{m.step:>4} {m.ann:>4} {m.bob:>4}  {'a' * m.ann}{'.' * m.leaving}{'b' * m.bob}" for m in moments]
    return "\n".join(lines)


def plot(moments: Sequence[Moment]) -> str:
    """Draw the shares of both as bars, one for every step."""
    width, height, unit = 30, 12, 16
    foot = 40 + unit * height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{80 + width * len(moments)}" height="{foot + 40}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="40" y="20">shares of 16 GB on willow, by step: ann blue, bob orange, leaving grey</text>',
    ]
    for m in moments:
        x, below = 40 + width * m.step, foot
        for who, count in (("ann", m.ann), ("leaving", m.leaving), ("bob", m.bob)):
            below -= count * height
            bar = f'<rect x="{x}" y="{below}" width="{width - 4}" height="{count * height}" fill="{COLOURS[who]}"/>'
            parts += [bar] if count else []
        parts.append(f'<text x="{x + 8}" y="{foot + 16}">{m.step}</text>')
    parts += [f'<text x="14" y="{foot - n * height + 4}">{n}</text>' for n in (0, 4, 8, 12, 16)]
    return "\n".join([*parts, "</svg>\n"])


def main(arguments: Sequence[str]) -> int:
    """Print the trace; write the plot where that is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        moments = list(play(Path(folder)))
    print(trace(moments))
    if arguments:
        Path(arguments[0]).write_text(plot(moments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
