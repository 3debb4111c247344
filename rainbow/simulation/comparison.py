"""Two worlds over the same windows of jobs: ratios of their figures with intervals, and whom a change touches.

Windows are paired: each is simulated in both worlds with the same seed. A ratio is the geometric mean of new / old
over the windows, its interval that of Student's t over their logarithms; one that contains 1 shows no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, inf, log, sqrt
from statistics import fmean, stdev

from rainbow.simulation.arrival import Arrival
from rainbow.simulation.figures import NAMES, Figures, counted, figures, figures_of, offered_load
from rainbow.simulation.simulate import Outcome, Ran, simulate
from rainbow.simulation.world import World

FEWEST = 6  # windows below which an interval says little
FULL = 0.95  # offered load above which the backlog grows
LATE = 600.0  # seconds by which an end differs noticeably, if also by a tenth of the old response
PART = 0.1
SOFTENED = 1.0  # seconds added to waits, so that none is zero

Window = tuple[Outcome, Outcome]
Each = Callable[[Callable[[Sequence[Arrival]], Window], Iterable[Sequence[Arrival]]], Iterable[Window]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """new / old of a figure: its geometric mean over windows, and the 95 % interval."""

    name: str
    old: float
    new: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Say lower, higher, or that no difference is shown."""
        return "lower" if self.high < 1.0 else "higher" if self.low > 1.0 else "no difference shown"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a change comes to. `by`: slowdown by requestor and class; `moved`: (later, earlier) ends by requestor."""

    windows: int
    jobs: int
    ratios: Sequence[Ratio]
    by: Mapping[str, Sequence[Ratio]] = field(default_factory=dict)
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def of(self, name: str) -> Ratio:
        """Return the ratio of a figure."""
        return next(one for one in self.ratios if one.name == name)


def compare(
    old: World, new: World, windows: Sequence[Sequence[Arrival]], seed: int = 0, each: Each = map
) -> Comparison:
    """Simulate every window in both worlds and compare; `each` is `map`, or one that works in several processes."""
    return summed(list(each(partial(_both, old, new, seed), windows)), windows)


def _both(old: World, new: World, seed: int, window: Sequence[Arrival]) -> Window:
    return simulate(old, window, seed), simulate(new, window, seed)


def summed(outcomes: Sequence[Window], windows: Sequence[Sequence[Arrival]]) -> Comparison:
    """Compare outcomes that are already there."""
    pairs = [(figures(old), figures(new)) for old, new in outcomes]
    ratios = [_ratio(name, [(getattr(a, name), getattr(b, name)) for a, b in pairs]) for name in NAMES]
    left_out = sum((Counter(new.left_out) for _, new in outcomes), Counter())
    jobs = sum(one.jobs for one, _ in pairs)
    by = {part: list(_by(outcomes, part)) for part in ("requestor", "job_class")}
    warnings = list(_warnings(outcomes, windows))
    return Comparison(len(pairs), jobs, ratios, by, _moved(outcomes), dict(left_out), warnings)


def _ratio(name: str, values: Sequence[tuple[float, float]]) -> Ratio:
    softened = SOFTENED if "wait" in name else 0.0
    logs = [log((new + softened) / (old + softened)) for old, new in values if old + softened > 0 < new + softened]
    old, new = (fmean(side) for side in zip(*values, strict=True)) if values else (0.0, 0.0)
    if not logs:
        return Ratio(name, old, new, 1.0, 0.0, inf)
    middle = fmean(logs)
    if len(logs) < 2:
        return Ratio(name, old, new, exp(middle), 0.0, inf)
    half = t_95(len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    return Ratio(name, old, new, exp(middle), exp(middle - half), exp(middle + half))


_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_Z = 1.959964


def t_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t.

    >>> [round(t_95(n), 3) for n in (1, 9, 20, 60)]
    [12.706, 2.262, 2.086, 2.0]
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _Z  # Cornish and Fisher's expansion, right to a thousandth from here on
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _by(outcomes: Sequence[Window], part: str) -> Iterable[Ratio]:
    """Yield the ratio of slowdown for each requestor or class, over the windows in which it has jobs."""
    values: dict[str, list[tuple[float, float]]] = {}
    for old, new in outcomes:
        sides = _divided(old, part), _divided(new, part)
        for name in sides[0].keys() & sides[1].keys():
            values.setdefault(name, []).append((sides[0][name].slowdown, sides[1][name].slowdown))
    for name in sorted(values):
        if name:
            yield _ratio(name, values[name])


def _divided(outcome: Outcome, part: str) -> dict[str, Figures]:
    groups: dict[str, list[Ran]] = {}
    for one in counted(outcome):
        groups.setdefault(getattr(one, part), []).append(one)
    return {name: figures_of(jobs, outcome) for name, jobs in groups.items()}


def _moved(outcomes: Sequence[Window]) -> dict[str, tuple[int, int]]:
    """Count the jobs of each requestor that end noticeably later, and earlier."""
    results: dict[str, list[int]] = {}
    for old, new in outcomes:
        after = {one.id: one for one in counted(new)}
        for one in counted(old):
            other = after.get(one.id)
            if other is not None and abs(other.end - one.end) > max(LATE, PART * (one.end - one.submit)):
                results.setdefault(one.requestor, [0, 0])[other.end < one.end] += 1
    return {name: (later, earlier) for name, (later, earlier) in sorted(results.items())}


def _warnings(outcomes: Sequence[Window], windows: Sequence[Sequence[Arrival]]) -> Iterable[str]:
    """Yield what makes the figures less than they seem."""
    if len(windows) < FEWEST:
        yield f"{len(windows)} windows: intervals of fewer than {FEWEST} say little; pass more jobs or --windows"
    loads = [offered_load(old) for old, _ in outcomes]
    if loads and fmean(loads) > FULL:
        yield f"offered load {fmean(loads):.2f}: above {FULL} the backlog grows with the window, and waits with it"
    if any(one.limit == one.run for window in windows for one in window):
        yield "some limits are equal to run times: real limits are larger, and backfilling gains less with them"
    yield "users react to shorter waits, and a simulation's do not"
