"""The smallest change with which a waiting job starts now, each found by planning and by nothing else.

    limit     the longest time limit that starts it: one of the times at which something kept is needed
    cluster   another one where it starts as it is
    nodes     the most of its outermost count that starts; `slots` where it asks for no nodes there
    without   a requirement left out

A change is offered only if the policy starts all of the changed job, in its place, in the view of the plan in force.
Two changes at once are not searched. `Budget` ends the search: what was found until then is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from rainbow.scheduling import planner
from rainbow.scheduling.interface import Plan, Policy, Reserve, ReservedBlock, Start, View
from rainbow.scheduling.qos import Rules
from rainbow.scheduling.snapshot import JobView, Rows

LEAST = 60.0  # seconds: no shorter limit is offered
UNIT = 60.0  # seconds to which a limit is rounded down
FARTHEST = 30 * 86_400.0  # seconds: the longest limit that is tried where nothing says when space is needed
MOST = 3  # changes that are offered
IN_ORDER = ("limit", "cluster", "nodes", "slots", "without")  # as they are offered


@dataclass(frozen=True, slots=True)
class Change:
    """A change that starts a job now: of this kind, to this value; in words, and as a command."""

    kind: str  # limit, cluster, nodes, slots or without
    value: float | int | str
    text: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a search may cost: plans, and seconds of a processor."""

    plans: int = 12
    seconds: float = 0.1


@dataclass(frozen=True, slots=True)
class Sooner:
    """What was found; `complete`: everything was tried that is searched."""

    changes: tuple[Change, ...]
    plans: int
    complete: bool


class Spent(Exception):
    """The budget of a search is over."""


@dataclass
class Trial:
    """Plans of one view in which one job is another one; the view, its census and what is free stay as they are."""

    policy: Policy
    view: View
    rules: Rules | None
    job: JobView
    budget: Budget = field(default_factory=Budget)
    clock: Callable[[], float] = lambda: 0.0  # seconds of a processor; without one plans alone are counted
    plans: int = 0

    def __post_init__(self) -> None:
        self._end = self.clock() + self.budget.seconds

    def starts(self, changed: JobView) -> bool:
        """Return whether all of a job starts that is shown in place of the one that waits; Spent ends a search."""
        if self.plans >= self.budget.plans or (self.plans and self.clock() >= self._end):
            raise Spent
        self.plans += 1
        requirements = {task for gang in changed.gangs for task in gang.tasks}
        return requirements <= started_by(self.replan(changed))

    def replan(self, changed: JobView) -> Plan:
        """Plan quietly with a job in its place, by the time of its submit, instead of the one that waits, if any."""
        jobs, census = self.view.jobs, self.view.census
        before = any(one.id == changed.id for one in jobs)

        def in_place() -> list[JobView]:
            if before:
                return [changed if one.id == changed.id else one for one in jobs]
            return sorted([*jobs, changed], key=lambda one: (one.submitted, one.id))

        shown = Rows(in_place, len(jobs) + (not before))
        view = replace(self.view, jobs=shown, quiet=True)
        if census is None:
            return planner.plan(self.policy, view, self.rules)
        with census.showing([changed]):
            return planner.plan(self.policy, view, self.rules)


def started_by(plan: Plan) -> set[str]:
    """Return the tasks that a plan starts."""
    return {order.task for order in plan.orders if isinstance(order, Start)}


# ── limit ──


def with_limit(job: JobView, seconds: float) -> JobView:
    """Return a job whose gangs end within so many seconds."""
    return replace(job, gangs=tuple(replace(gang, expected=seconds) for gang in job.gangs))


def limit_of(job: JobView) -> float:
    """Return the longest time that a gang of a job may run; infinite without a limit."""
    return max((gang.expected or inf for gang in job.gangs), default=inf)


def times_kept(view: View, plan: Plan) -> list[float]:
    """Return in how many seconds something kept, promised or reserved is needed, ascending."""
    times = {one.until for one in plan.kept if one.job}
    times |= {order.at for order in plan.orders if isinstance(order, Reserve)}
    times |= {one.at for one in plan.promises} | {one.start for one in view.reservations}
    return sorted({time - view.now for time in times if isfinite(time) and time - view.now >= LEAST})


def longest_limit(trial: Trial, plan: Plan) -> float | None:
    """Return the longest limit, in whole units, with which a job starts now; None: none does.

    The times at which something kept is needed are tried. Where none of them says more than the least limit does, the
    longest is found by halving, as behind a calendar or under a policy that names no times.
    """
    own = limit_of(trial.job)
    known = [seconds for seconds in map(_rounded, times_kept(trial.view, plan)) if LEAST <= seconds < own]
    known = list(dict.fromkeys(known))
    if not (own > LEAST and trial.starts(with_limit(trial.job, LEAST))):
        return None
    low, high = -1, len(known)
    if known and trial.starts(with_limit(trial.job, known[-1])):
        low = high - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if trial.starts(with_limit(trial.job, known[middle])) else (low, middle)
    if low >= 0 and (low == len(known) - 1 or not _starts_longer(trial, known[low])):
        return known[low]
    begin = known[low] if low >= 0 else LEAST
    return _halved(trial, begin, known[high] if high < len(known) else min(_rounded(own), FARTHEST))


def _starts_longer(trial: Trial, seconds: float) -> bool:
    return trial.starts(with_limit(trial.job, seconds + UNIT))


def _halved(trial: Trial, low: float, high: float) -> float:
    """Return the longest limit that starts, between one that does and one that does not."""
    try:
        while high - low > UNIT:
            middle = _rounded((low + high) / 2)
            low, high = (middle, high) if trial.starts(with_limit(trial.job, middle)) else (low, middle)
    except Spent:
        return low
    return low


def _rounded(seconds: float) -> float:
    return seconds // UNIT * UNIT if isfinite(seconds) else seconds


# ── size ──


def most_that_starts(trial: Trial, most: int, sized: Callable[[int], JobView]) -> int | None:
    """Return the largest count below `most` with which a job starts now, by halving; one more is tried at the end."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if trial.starts(sized(middle)) else (low, middle)
    if low and low + 2 < most and trial.starts(sized(low + 2)):  # sizes that start need not be one row
        low += 2
    return low or None


def without_one(trial: Trial, left_out: Iterable[tuple[str, Callable[[], JobView]]]) -> Iterator[str]:
    """Yield by name what a job starts without."""
    for name, made in left_out:
        if trial.starts(made()):
            yield name


# ── in words ──


def in_limit(seconds: float) -> str:
    """Write a limit as it is typed.

    >>> [in_limit(seconds) for seconds in (1_440.0, 7_200.0, 6_420.0)]
    ['24m', '2h', '107m']
    """
    return f"{seconds / 3600:.0f}h" if seconds % 3600 == 0 else f"{seconds / 60:.0f}m"


def limit_change(job: str, seconds: float) -> Change:
    """Return the offer of a shorter limit."""
    typed = in_limit(seconds)
    words = typed.replace("m", " min").replace("h", " h")
    return Change("limit", seconds, f"a limit of {words} or less", ("rainbow", "job", "update", job, "-t", typed))


def kept_by_others(plan: Plan, job: str) -> list[ReservedBlock]:
    """Return what is free and kept for others than a job, the soonest needed first."""
    return sorted((one for one in plan.kept if one.job != job), key=lambda one: (one.until, one.job))


def offered(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the first changes in the order in which they are offered, as many as are shown."""
    return tuple(sorted(changes, key=lambda one: IN_ORDER.index(one.kind)))[:MOST]
