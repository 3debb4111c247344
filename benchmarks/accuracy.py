"""How forecasts of starts turn out on a trace: `python -m benchmarks.accuracy TRACE.swf.gz --cores 128`.

Every third job that waits is forecast when it comes, with the lengths and scores known by then. As a part of all
benchmarks: four traces and drawn arrivals under three policies, beside the targets; `python -m benchmarks held_out`
does the same on later parts of the traces, on which nothing was chosen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from math import inf, log, nan, pi, sin
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.simulating import TRACES
from benchmarks.timing import heading, row
from rainbow.forecast import Bounds, Expected, Length, forecast
from rainbow.forecast.forecast import score
from rainbow.forecast.lengths import RUNS, Key, RunHistory, left, length_of
from rainbow.scheduling import GangView, JobView, RunView
from rainbow.simulation import Arrival, World, read_trace
from rainbow.simulation.simulate import Simulation
from rainbow.simulation.world import Governed, machine


@dataclass
class Learned:
    """Lengths learned from the jobs that have ended."""

    arrivals: dict[str, Arrival] = field(default_factory=dict)
    recent: dict[Key, list[float]] = field(default_factory=dict)

    def _key(self, job: str) -> Key:
        one = self.arrivals[job]
        return Key("machine", one.requestor, str(one.slots), "job", one.slots)

    def of(self, job: JobView, gang: GangView) -> Length:
        """Predict a gang that waits."""
        return length_of(RunHistory(self.recent), self._key(job.id), gang.expected)

    def left(self, run: RunView, now: float) -> float:
        """Predict how many more seconds a task runs."""
        limit = run.until - run.started if run.until else 0.0
        return left(RunHistory(self.recent), self._key(run.job), now - run.started, limit)

    def ended(self, job: str, seconds: float) -> None:
        """Learn from a job that has ended."""
        for level, _ in self._key(job).levels():
            self.recent[level] = [*self.recent.get(level, ()), seconds][-RUNS:]


class Trial:
    """One trace under one policy."""

    def __init__(self, arrivals: list[Arrival], cores: int, governed: Governed) -> None:
        self.arrivals, self.learned = arrivals, Learned({one.id: one for one in arrivals})
        world = World([machine(cores)], {"": governed})
        self.simulation = Simulation(world, arrivals[0].submit, 0, lambda view, plan: None)
        self.site = self.simulation.sites["machine"]
        self.told: dict[str, tuple[float, Expected, bool]] = {}
        self.scores: list[float] = []
        self.missed: list[float] = []
        self.results: list[tuple[float, bool, bool]] = []  # score, whether inside, whether bands were typical
        self.running: set[str] = set()

    def run(self) -> None:
        """Let all arrive, and look at what happened before each."""
        waited = 0
        for one in self.arrivals:
            self.simulation.advance(one.submit)
            self.simulation.arrive(one)
            self.simulation._plan()
            self._look()
            if one.id in self.site.virtual.spans or one.id not in self.simulation.arrived:
                self.running |= {one.id} & self.site.virtual.spans.keys()
                continue
            self.running.add(one.id)
            waited += 1
            if waited % 3 == 0:
                self._forecast(one)
        self.simulation.advance(inf)
        self._look()

    def _forecast(self, one: Arrival) -> None:
        view = replace(self.site.virtual.view(), census=None)
        waits = {job: answer for job, answer in self.told.items() if job not in self.site.virtual.spans}
        late = {job: (at, said.planned) for job, (at, said, _) in waits.items() if said.planned < one.submit}
        past = [1.0 for _, said, typical in waits.values() if typical and said.high < one.submit]
        missed = [*self.missed, *past]  # as the server does
        made = forecast(view, self.site.policy, self.learned, self.scores, Bounds(), late=late, missed=missed)
        expected = made.jobs[one.id]
        if expected.start < inf:
            self.told[one.id] = one.submit, expected, made.typical

    def _look(self) -> None:
        """Learn from what has started and ended."""
        spans, runs = self.site.virtual.spans, {run.job for run in self.site.virtual.census.runs.values()}
        for job in sorted(job for job in self.running if job in spans):  # sets have no order
            if job in self.told:
                self._score(job, spans[job].start)
            if job not in runs:
                self.running.discard(job)
                self.learned.ended(job, spans[job].end - spans[job].start)

    def _score(self, job: str, start: float) -> None:
        at, expected, typical = self.told.pop(job)
        self.scores.append(score(start - at, expected.planned - at))
        inside = expected.low - 1 <= start <= expected.high + 1
        self.missed += [float(not inside)] * typical
        self.results.append((score(start - at, expected.start - at), inside, typical))

    def turned_out(self) -> TurnedOut:
        """Say how forecasts turned out, once bands were made of 30 scores or more."""
        counted = [one for one in self.results if one[2]] or self.results
        if not counted:  # no job of the trace waits
            return TurnedOut(0, 0, nan, nan, nan)
        scores, number = [one[0] for one in counted], len(counted)
        near = sum(abs(one) <= log(2) for one in scores) / number
        return TurnedOut(len(self.results), number, sum(one[1] for one in counted) / number, near, median(scores))


@dataclass(frozen=True)
class TurnedOut:
    """How the forecasts of a trial turned out; `counted`: with bands of 30 scores or more."""

    forecasts: int
    counted: int
    inside: float
    near: float
    bias: float

    def __str__(self) -> str:
        text = f"{self.forecasts} forecasts, {self.counted} with bands of 30 scores or more"
        ways = f"{self.inside:.0%} inside the 80 % band, {self.near:.0%} within a factor of 2"
        return f"{text}: {ways}, bias {self.bias:+.2f}"


def read(path: Path, jobs: int, pace: float, inflate: float, site: str, after: int = 0) -> Iterator[Arrival]:
    """Read jobs of a trace (of one of its clusters), after the first so many, with arrivals and limits changed."""
    chance = Random(1 + after)
    own = (one for one in read_trace(path) if not site or one.cluster == site)
    for one in islice(own, after, after + jobs):
        limit = one.run * chance.uniform(1, inflate) if inflate else one.limit
        yield replace(one, submit=one.submit * pace, limit=limit)


def drawn(jobs: int, seed: int = 1) -> list[Arrival]:
    """Draw jobs of 40 users with habits of their own, more by day than by night; limits are round and mostly long."""
    chance, now, made = Random(seed), 0.0, list[Arrival]()
    habits = [(chance.lognormvariate(6.5, 1.2), 2 ** chance.randint(0, 6)) for _ in range(40)]
    for k in range(jobs):
        now += chance.expovariate(1 / 330) / (1 + 0.8 * sin(2 * pi * now / 86_400))
        user = min(int(chance.expovariate(0.1)), 39)
        seconds, slots = habits[user]
        run = max(1.0, seconds * chance.lognormvariate(0, 0.7))
        limit = next((one for one in LIMITS if one > run * chance.uniform(1, 4)), LIMITS[-1])
        made.append(Arrival(f"{k}", now, slots, min(run, limit), limit, f"u{user}"))
    return made


LIMITS = (900.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0)
# trace, cores, handed over at once; jobs, factor of the times of arrival, limits up to so many run times, its cluster
TRIALS = (
    ("lublin_256", 256, 10, 1_500, 1.0, 5.0, ""),
    ("lublin-aaroh", 256, 10, 1_500, 0.045, 5.0, ""),
    ("NASA-iPSC-1993-3.1-cln", 128, 8, 1_500, 0.42, 5.0, ""),
    ("LCG-2005", 90, 80, 3_000, 1.0, 0.0, "12"),
    ("drawn", 128, 8, 1_500, 1.0, 0.0, ""),
)


HELD_OUT = (  # the same, and how many jobs of the trace are left out before; or the seed of those that are drawn
    ("lublin_256", 256, 10, 1_500, 1.0, 5.0, "", 1_500),
    ("lublin-aaroh", 256, 10, 1_500, 0.045, 5.0, "", 3_000),
    ("NASA-iPSC-1993-3.1-cln", 128, 8, 1_500, 0.42, 5.0, "", 3_000),
    ("drawn", 128, 8, 1_500, 1.0, 0.0, "", 2),
    ("drawn", 128, 8, 1_500, 1.0, 0.0, "", 3),
)


def turning_out(folder: Path = TRACES) -> None:
    """Print how predictions of run times, and the forecasts of each trace under each policy, turn out."""
    predicting(folder)
    _turning_out(folder, TRIALS)


def held_out(folder: Path = TRACES) -> None:
    """Print the same of parts of the traces on which nothing was chosen."""
    _turning_out(folder, HELD_OUT)


def _turning_out(folder: Path, trials: Iterable[Any]) -> None:
    heading("forecasts at submit; targets 0.75 to 0.90, -0.15 to 0.15", *COLUMNS)
    for name, cores, together, jobs, *rest in trials:
        path = folder / f"{name}.swf.gz"
        if name != "drawn" and not path.exists():
            print(f"no {path}")
            continue
        arrivals = drawn(jobs, *rest[3:]) if name == "drawn" else list(read(path, jobs, *rest))
        fitting = [one for one in arrivals if one.slots <= cores]
        governed = {"priority": {}, "load_based": {"unit": "core"}, "delegate": {"max_handed_over": together}}
        for policy, settings in governed.items():
            trial = Trial(fitting, cores, Governed(policy, settings))
            trial.run()
            turned_out = trial.turned_out()
            row(
                name[:12],
                policy,
                turned_out.counted,
                *(f"{one:.2f}" for one in (turned_out.inside, turned_out.near, turned_out.bias)),
            )


def predicting(folder: Path = TRACES) -> None:
    """Print how far predicted lengths are from what ran, beside the rival: the limits that users state."""
    heading("run times of LCG-2005, s; target: a median error below a tenth of the limits'", *PREDICTED)
    path = folder / "LCG-2005.swf.gz"
    if not path.exists():
        print(f"no {path}")
        return
    arrivals = [one for one in islice(read_trace(path), 20_000) if one.limit]
    learned, errors, near = Learned({one.id: one for one in arrivals}), list[tuple[float, float]](), [0, 0]
    ends: list[tuple[float, str, float]] = []
    for one in arrivals:
        while ends and ends[0][0] <= one.submit:
            learned.ended(*heappop(ends)[1:])
        heappush(ends, (one.submit + one.run, one.id, one.run))
        answers = length_of(RunHistory(learned.recent), learned._key(one.id), one.limit).seconds, one.limit
        errors.append((abs(answers[0] - one.run), abs(answers[1] - one.run)))
        near = [n + (max(one.run, 1) / 2 <= t <= 2 * max(one.run, 1)) for n, t in zip(near, answers, strict=True)]
    for which, own, within in zip(("predicted", "limit"), zip(*errors, strict=True), near, strict=True):
        row(which, len(arrivals), median(own), f"{within / len(arrivals):.2f}")


PREDICTED = ("by", "jobs", "median error", "within 2")
COLUMNS = ("trace", "policy", "forecasts", "inside 80 %", "factor of 2", "bias")


def main() -> None:
    """Run one trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cores", type=int, default=256)
    parser.add_argument("--jobs", type=int, default=1_500)
    parser.add_argument("--pace", type=float, default=1.0, help="factor of the times of arrival")
    parser.add_argument("--inflate", type=float, default=0.0, help="limits: up to so many times the run time")
    parser.add_argument("--site", default="", help="one cluster of the trace")
    parser.add_argument("--policy", default="priority")
    parser.add_argument("--settings", type=json.loads, default={}, help="the policy's, as JSON")
    inputs = parser.parse_args()
    arrivals = list(read(inputs.trace, inputs.jobs, inputs.pace, inputs.inflate, inputs.site))
    trial = Trial(arrivals, inputs.cores, Governed(inputs.policy, inputs.settings))
    trial.run()
    print(f"{inputs.trace.name} {inputs.policy}: {trial.turned_out()}")


if __name__ == "__main__":
    main()
