"""What selection by time gains: recorded jobs over four unlike clusters, by the product's own simulation.

The rival of `eta.finish` is the shortest queue, the best rule without time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import inf
from typing import Any

from benchmarks.simulating import TRACES
from benchmarks.timing import heading, row
from rainbow.forecast import Length
from rainbow.scheduling import GangView, JobView
from rainbow.simulation import Arrival, Outcome, World, machine, summed
from rainbow.simulation.simulate import Recorded, Simulation
from tests.scenarios.test_replayed_by_time import BY_TIME, SHAPES, SHORTEST, recorded

WINDOWS, JOBS, CORES = 6, 500, 256


class Faster(Recorded):
    """Recorded lengths on a cluster of some speed."""

    def __init__(self, recorded: Recorded, speed: float) -> None:
        self.of_job, self.speed = recorded.of_job, speed

    def of(self, job: JobView, gang: GangView) -> Length:
        """Return how long a gang runs here."""
        seconds = super().of(job, gang).seconds / self.speed
        return Length.exactly(seconds, "recorded")


def ran(variable: str, arrivals: Sequence[Arrival]) -> Outcome:
    """Return what came of a window where clusters are sorted by a variable."""
    steps = [{"sort_ascending": variable}, {"select": "first"}]
    clusters = [machine(int(CORES * part), name) for name, (part, _) in SHAPES.items()]
    world = World(clusters, selector="constraint", options={"priorities": [{"priority": 1, "steps": steps}]})
    made = Simulation(world, arrivals[0].submit, 0, lambda view, plan: None)
    for name, (_, speed) in SHAPES.items():
        made.sites[name].virtual.lengths = Faster(made.lengths, speed)
    for one in arrivals:
        made.advance(one.submit)
        made.arrive(one)
    made.advance(inf)
    return made.outcome()


def routing() -> None:
    """Print the ratios of slowdown and response to the rival's, with their intervals over the windows."""
    columns = ("beside", "slowdown", "interval", "response", "interval")
    heading("lublin_256 over four unlike clusters; target: slowdown 0.5", "by", *columns)
    if not TRACES.is_dir():
        print(f"no traces in {TRACES}")
        return
    windows = recorded(WINDOWS, JOBS)
    with ProcessPoolExecutor(2) as pool:
        old, new = (list(pool.map(partial(ran, name), windows)) for name in (SHORTEST, BY_TIME))
    compared = summed(list(zip(old, new, strict=True)), windows)
    row(BY_TIME, SHORTEST, *(cell for name in ("slowdown", "response") for cell in _cells(compared.of(name))))


def _cells(ratio: Any) -> tuple[str, str]:
    return f"{ratio.ratio:.2f}", f"{ratio.low:.2f}-{ratio.high:.2f}"


if __name__ == "__main__":
    routing()
