"""What selection by time and later moves gain: recorded jobs over four unlike clusters, in virtual time.

The rival of `eta.finish` is the shortest queue, the best rule without time; of moves it is `eta.finish` without them.
Lengths are learned from what has ended at each cluster. Moves are looked for every ten minutes, not every minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from math import inf
from statistics import median
from typing import Any

import numpy as np

from benchmarks.accuracy import Learned
from benchmarks.simulating import TRACES
from benchmarks.timing import heading, row
from rainbow.forecast import Bounds, Forecast, Length, eta, forecast, length_of, ratios, stacked
from rainbow.forecast.lengths import Known
from rainbow.jobspec import Request
from rainbow.scheduling import GangView, JobView
from rainbow.selection.choice import Scalar
from rainbow.service.placement.replacement import LOOKED_AT, WHY, Rules
from rainbow.service.scheduler.forecaster import STALE
from rainbow.simulation import Arrival, Outcome, World, machine, summed
from rainbow.simulation.simulate import Recorded, Simulation, Site
from tests.scenarios.test_replayed_by_time import BY_TIME, SHAPES, SHORTEST, recorded

WINDOWS, JOBS, CORES = 6, 500, 256
RULES = Rules(gain=0.25, least=300, most=3, apart=600, every=600)
VARIANTS: Mapping[str, tuple[str, Rules | None]] = {
    "shortest queue": (SHORTEST, None),
    "eta.finish": (BY_TIME, None),
    "and moves": (BY_TIME, RULES),
}


class Faster(Recorded):
    """Recorded lengths on a cluster of some speed."""

    def __init__(self, recorded: Recorded, speed: float) -> None:
        self.of_job, self.speed = recorded.of_job, speed

    def of(self, job: JobView, gang: GangView) -> Length:
        """Return how long a gang runs here."""
        seconds = super().of(job, gang).seconds / self.speed
        return Length.exactly(seconds, "recorded")


class Forecasting(Site):
    """A cluster that is forecast when somebody asks, after something has happened there."""

    learned: Learned
    made: Forecast | None = None
    finish: float | None = None  # of the job that is to be placed

    def advance(self, to: float) -> None:
        """Let time pass, and learn from what ends."""
        before = {run.job for run in self.virtual.census.runs.values()}
        super().advance(to)
        for job in before - {run.job for run in self.virtual.census.runs.values()}:
            span = self.virtual.spans[job]
            self.learned.ended(job, span.end - span.start)
        self.made = None

    def plan(self, now: float) -> None:
        """Let the policy plan."""
        super().plan(now)
        self.made = None

    def look_ahead(self, now: float) -> Forecast:
        """Forecast it, unless that was done a moment ago and nothing has happened since."""
        if self.made is None or now > self.made.at + STALE:
            view = replace(self.virtual.view(), now=now, census=None)
            self.made = forecast(view, self.policy, self.learned, (), Bounds())
        return self.made

    elsewhere: Callable[[Arrival], float | None]

    def seconds(self, one: Arrival) -> float:
        """Predict how long a job runs here: by runs like it here, else elsewhere, as the server does."""
        found = length_of(Known(self.learned.recent), self.learned._key(one.id), one.limit)
        told = None if found.source == "name" else self.elsewhere(one)
        return found.seconds if told is None else min(told, one.limit or inf)

    def book(self, one: Arrival, end: float) -> None:
        """Take a job out of the room until the next forecast."""
        if self.made and end < inf:
            room = self.made.room.book({"core": one.slots}, 0, end - self.seconds(one), end)
            self.made = replace(self.made, room=room)

    @property
    def state(self) -> Mapping[str, Scalar]:
        """What selection may know of it."""
        return {**super().state, **({} if self.finish is None else {"eta.finish": self.finish})}


class Routing(Simulation):
    """Four unlike clusters: where jobs go, and whether they move later."""

    sites: dict[str, Forecasting]  # type: ignore[assignment]

    def __init__(self, variable: str, rules: Rules | None, arrivals: Sequence[Arrival]) -> None:
        steps = [{"sort_ascending": variable}, {"select": "first"}]
        clusters = [machine(int(CORES * part), name) for name, (part, _) in SHAPES.items()]
        options = {"priorities": [{"priority": 1, "steps": steps}]}
        world = World(clusters, selector="constraint", options=options)
        super().__init__(world, arrivals[0].submit, 0, lambda view, plan: None)
        self.by_time, self.rules, self.looked = variable == BY_TIME, rules, self.now
        self.moves: dict[str, list[Mapping[str, Any]]] = {}
        known = {one.id: one for one in arrivals}
        for name, site in self.sites.items():
            lengths = Faster(self.lengths, SHAPES[name][1])
            self.sites[name] = Forecasting(site.compiled, world, self.now, lengths, site.watch)
            self.sites[name].learned = Learned(known)
            self.sites[name].elsewhere = partial(self.elsewhere, name)

    def elsewhere(self, name: str, one: Arrival) -> float | None:
        """Predict by the clusters that have run jobs like it, each by the ratio of its speed to this one's."""
        recent = {other: site.learned.recent for other, site in self.sites.items()}
        key = self.sites[name].learned._key(one.id)
        keys = {key for runs in recent.values() for key in runs if key.slots}
        medians = [{other: median(runs[each]) for other, runs in recent.items() if each in runs} for each in keys]
        seen = [
            median(runs[key]) * ratios(medians, other).get(name, 1.0) for other, runs in recent.items() if key in runs
        ]
        return median(seen) if seen else None

    def ends(self, one: Arrival) -> dict[str, float]:
        """Return when a job would end at each cluster."""
        rooms = stacked([site.look_ahead(self.now).room for site in self.sites.values()])
        seconds = np.array([site.seconds(one) for site in self.sites.values()])
        found = eta(rooms, one.slots, {"core": 1}, seconds, self.now)[1]
        return dict(zip(self.sites, found.tolist(), strict=True))

    def arrive(self, arrival: Arrival) -> None:
        """Let a job arrive, and book it."""
        super().arrive(arrival)
        if self.by_time and arrival.id in self.arrived:
            site = self.sites[self.arrived[arrival.id][1]]
            site.book(arrival, site.finish or inf)

    def _selected(self, arrival: Arrival, request: Request) -> Site | None:
        for name, end in self.ends(arrival).items() if self.by_time else ():
            self.sites[name].finish = end
        return super()._selected(arrival, request)

    # ── moves ──

    def advance(self, until: float) -> None:
        """Let everything happen before a time, and jobs move on the way."""
        while self.rules and self.looked + self.rules.every < until and (until < inf or self.unended):
            self.looked += self.rules.every
            super().advance(self.looked)
            self._plan()
            for site in list(self.sites.values()):
                self.look(site, self.rules)
        super().advance(until)

    @property
    def unended(self) -> bool:
        """Whether anything waits."""
        return any(site.virtual.waiting for site in self.sites.values())

    def look(self, site: Forecasting, rules: Rules) -> None:
        """Move what would end sooner elsewhere, as `limits.replace` says."""
        for job, gain, to in sorted(self.gains(site, rules), key=lambda found: -found[1]):
            one, ends = self.arrived[job][0], self.ends(self.arrived[job][0])
            if gain > 0 and rules.pays(site.look_ahead(self.now).jobs[job].end, ends[to], self.now):
                self.move(one, site, self.sites[to], ends[to])

    def gains(self, site: Forecasting, rules: Rules) -> Iterator[tuple[str, float, str]]:
        """Yield the jobs of a cluster that gain by a move, how many seconds, and where to."""
        for job in list(site.virtual.census.jobs)[:LOOKED_AT]:
            expected = site.look_ahead(self.now).jobs.get(job)
            if (
                expected is None
                or job in site.virtual.promised
                or not rules.allows(self.moves.get(job, []), self.now)
            ):
                continue
            ends = {name: end for name, end in self.ends(self.arrived[job][0]).items() if name != site.name}
            to = min(ends, key=ends.__getitem__)
            if expected.end < inf and rules.pays(expected.end, ends[to], self.now):
                yield job, expected.end - ends[to], to

    def move(self, one: Arrival, left: Forecasting, to: Forecasting, end: float) -> None:
        """Let a job wait elsewhere as if it had come there first."""
        waits = left.virtual.jobs[one.id]
        left.virtual._put(replace(waits, gangs=()))
        there = to.compiled.job(one, self.requests.of(one))
        to.virtual._gangs |= {task: (there, gang) for gang in there.gangs for task in gang.tasks}
        to.virtual._put(there)
        to.book(one, end)
        self.arrived[one.id] = one, to.name, self.arrived[one.id][2]
        self.moves.setdefault(one.id, []).append({"why": WHY, "at": self.now})
        self.unplanned |= {left.name, to.name}


def ran(variant: str, arrivals: Sequence[Arrival]) -> tuple[Outcome, int]:
    """Return what came of a window, and how many moves there were."""
    made = Routing(*VARIANTS[variant], arrivals)
    for one in arrivals:
        made.advance(one.submit)
        made.arrive(one)
    made.advance(inf)
    return made.outcome(), sum(map(len, made.moves.values()))


def routing() -> None:
    """Print the ratios of slowdown and response to the rival's, with their intervals over the windows."""
    columns = ("beside", "slowdown", "interval", "response", "interval", "moves a job")
    heading("lublin_256 over four unlike clusters; targets: slowdown 0.5, response of moves below 1", "by", *columns)
    if not TRACES.is_dir():
        print(f"no traces in {TRACES}")
        return
    windows = recorded(WINDOWS, JOBS)
    with ProcessPoolExecutor(2) as pool:
        found = {name: list(pool.map(partial(ran, name), windows)) for name in VARIANTS}
    for old, new in (("shortest queue", "eta.finish"), ("eta.finish", "and moves")):
        pairs = [(before, after) for (before, _), (after, _) in zip(found[old], found[new], strict=True)]
        compared, moves = summed(pairs, windows), sum(count for _, count in found[new])
        cells = [cell for name in ("slowdown", "response") for cell in _cells(compared.of(name))]
        row(new, old, *cells, f"{moves / (WINDOWS * JOBS):.2f}")


def _cells(ratio: Any) -> tuple[str, str]:
    return f"{ratio.ratio:.2f}", f"{ratio.low:.2f}-{ratio.high:.2f}"


if __name__ == "__main__":
    routing()
