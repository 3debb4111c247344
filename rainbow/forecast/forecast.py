"""When each job of a cluster is expected to start and end, and what that leaves free.

    ahead      the policy's own plans in virtual time: what they start begins, what runs ends when predicted
    one-pass   what the bounds cut off: each gang at its earliest start, in the policy's order
    band       where 8 in 10 starts lie, by how the last 100 forecasts here turned out (adaptive conformal)

Nothing new arrives in a forecast. Where later arrivals delay jobs, the scores of those that were delayed say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import exp, inf, log
from statistics import median
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from rainbow.forecast.lengths import COVER, FEWEST, Length, quantiles
from rainbow.forecast.one_pass import by_submission, one_pass
from rainbow.forecast.room import Room, Use, room_of
from rainbow.forecast.virtual_cluster import Lengths, VirtualCluster
from rainbow.scheduling import Delegate, GangView, JobView, Policy, View
from rainbow.scheduling.qos import Rules
from rainbow.scheduling.rules.running_limits import cores_of, owner_of
from rainbow.text import some

LATEST = 100  # scores that bands and corrections are made of
SOFTENED = 60.0  # seconds added to both waits of a score: a minute more or less is no error
NEVER = "its policy does not start it as it is; see why with rainbow job why"
STEP = 0.01  # by how much of its misses a band becomes wider or narrower with each score
HELD = 0.7  # of the last bands that must have held before another one is shown
WIDEST = 16.0  # times as long until the end of a band as until its beginning, a minute added
MISSES = (0.02, 0.6)  # the least and the most that a band is drawn for
BIASED = 0.1  # a median score from here on corrects what is expected


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a forecast looks: plans, seconds from now, jobs that are named."""

    plans: int = 100
    horizon: float = 14 * 86_400.0
    jobs: int = 10_000


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is expected to start and end; `low` to `high` is where 8 in 10 such starts lie.

    `how`: running, ahead, one-pass or unknown; `text` says why it is unknown. Unknown times are infinite.
    `planned` is the start before it was corrected: scores compare with that, or one correction would undo the next.
    """

    job: str
    start: float
    end: float
    low: float
    high: float
    how: str
    text: str = ""
    planned: float = inf


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How the forecasts of a cluster have turned out: a band is shown where that has earned it.

    `starts`: how many forecasts have turned out; `held`: of the last `bands`, at most 100; `history`: seconds since
    the cluster was registered.
    """

    starts: int = 0
    held: int = 0
    bands: int = 0
    history: float = 0.0

    @property
    def is_earned(self) -> bool:
        """Whether enough starts were seen, and enough bands held."""
        return self.starts >= FEWEST and self.held >= HELD * self.bands

    @property
    def text(self) -> str:
        """Why no band is shown; "" where one may be.

        >>> TrackRecord(history=1800.0).text, TrackRecord(12).text, TrackRecord(200, 52, 100).text
        ('no forecast yet: 30 minutes of history', 'no forecast yet: 12 of 30 starts seen', \
'no band: 52 of the last 100 held')
        """
        if self.is_earned:
            return ""
        if not self.starts:
            return f"no forecast yet: {_span(self.history)} of history"
        if self.starts < FEWEST:
            return f"no forecast yet: {self.starts} of {FEWEST} starts seen"
        return f"no band: {self.held} of the last {self.bands} held"

    def shows(self, low: float, high: float, now: float) -> bool:
        """Return whether a band is shown: it is earned, and narrow enough to say something."""
        return self.is_earned and high - now <= WIDEST * (low - now + SOFTENED)


def _span(seconds: float) -> str:
    for unit, each in (("day", 86_400.0), ("hour", 3_600.0)):
        if seconds >= 2 * each:
            return f"{seconds // each:.0f} {unit}s"
    return some(int(seconds // 60), "minute")


def track_record(scores: Sequence[float], missed: Sequence[float], history: float = 0.0) -> TrackRecord:
    """Return how forecasts have turned out, by their scores and by which of the last bands were missed."""
    last = missed[-LATEST:]
    return TrackRecord(len(scores), sum(not one for one in last), len(last), history)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A cluster's forecast. `reached`: how far plans were run ahead; `cut`: all, plans, seconds, horizon or stuck.

    `typical`: whether the bands are made of at least 30 scores.
    """

    at: float
    jobs: Mapping[str, Expected]
    room: Room
    reached: float
    cut: str
    typical: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """The cluster as its policy's plans leave it, and why they end there."""

    cluster: VirtualCluster
    cut: str
    plans: int


@runtime_checkable
class Ranks(Protocol):
    """What a policy has beside, if it can say in which order it tries what waits."""

    def ranked(self, view: View) -> Sequence[tuple[str, int]]:
        """Return (job, number of its gang), who is tried first at first."""


def _always() -> bool:
    return True


def ahead(
    view: View,
    policy: Policy,
    lengths: Lengths,
    bounds: Bounds,
    proceed: Callable[[], bool] = _always,
    again: Iterable[JobView] = (),
    rules: Rules | None = None,
) -> Ahead:
    """Run a policy's plans ahead of time until nothing waits or will again; `proceed` is asked after each plan."""
    cluster, until = VirtualCluster(view, policy, lengths, again, rules), view.now + bounds.horizon
    for plans in range(1, bounds.plans + 1):
        cluster.carry_out(cluster.next_plan())
        following = cluster.next_time() if cluster.waiting else cluster.interruption()
        if not cluster.waiting and following is None:
            return Ahead(cluster, "all", plans)
        if following is None or following > until:
            return Ahead(cluster, "stuck" if following is None else "horizon", plans)
        if not proceed():
            return Ahead(cluster, "seconds", plans)
        cluster.advance(following)
    return Ahead(cluster, "plans", bounds.plans)


def forecast(
    view: View,
    policy: Policy,
    lengths: Lengths,
    scores: Sequence[float],
    bounds: Bounds,
    proceed: Callable[[], bool] = _always,
    again: Iterable[JobView] = (),
    late: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    missed: Sequence[float] = (),
    rules: Rules | None = None,
) -> Forecast:
    """Return when every job is expected to start and end, with a band, and what that leaves free.

    `rules`: the limits and rights to preempt that the cluster's steps obey.

    `again`: jobs with the gangs of theirs that run and that a maintenance may make wait again. `late`: what waits
    past its first forecast, with when that was made and what it said: it counts as if it will start as said now.
    `missed`: whether the start was outside the band that was told, of the last jobs and of those past theirs.
    """
    if isinstance(policy, Delegate):
        results = _handed_over(view, policy, lengths)
        room = room_of(view.workers, view.consumables, (), view.now)
        counted = [*scores, *_so_far(results, view.now, late)]
        return Forecast(
            view.now, _banded(results, view.now, counted, missed), room, inf, "all", len(counted) >= FEWEST
        )
    run = ahead(view, policy, lengths, bounds, proceed, again, rules)
    running = {held.job for held in view.runs}
    results = {
        job: Expected(job, span.start, span.end, 0, 0, "running" if job in running else "ahead")
        for job, span in run.cluster.spans.items()
    }
    uses = [*run.cluster.uses(), *_kept(view)]
    if run.cluster.waiting:
        uses = _add_pass(run, policy, lengths, bounds, results, uses, proceed)
    room = room_of(view.workers, view.outside(), uses, view.now)
    counted = [*scores, *_so_far(results, view.now, late)]
    answer = _banded(results, view.now, counted, missed)
    return Forecast(view.now, answer, room, run.cluster.now, run.cut, len(counted) >= FEWEST)


def _so_far(results: Mapping[str, Expected], now: float, late: Mapping[str, tuple[float, float]]) -> Iterator[float]:
    """Yield how first forecasts of what is late turn out, by when it is expected now, else by its wait so far."""
    for job, (at, planned) in late.items():
        start = results[job].start if job in results else inf
        yield score((start if now <= start < inf else now) - at, planned - at)


def _kept(view: View) -> Iterator[Use]:
    """Yield what is kept in advance."""
    for one in view.reservations:
        yield Use(one.placement, one.start, one.end)


def _add_pass(
    run: Ahead,
    policy: Policy,
    lengths: Lengths,
    bounds: Bounds,
    results: dict[str, Expected],
    uses: list[Use],
    proceed: Callable[[], bool],
) -> list[Use]:
    """Place what the plans did not reach; return everything that holds space then."""
    then = run.cluster.view()
    order = list(_limited(_in_order(policy, then), bounds.jobs))

    def length(job: JobView, gang: GangView) -> Length:
        proceed()
        return lengths.of(job, gang)

    rules = run.cluster.rules
    made, tried = one_pass(then, length, order, uses, rules), {job.id for job, _ in order}
    endless = sum(use.end == inf for use in uses)
    for job in then.jobs:
        if not job.gangs:
            continue
        start, before = made.starts.get(job.id, inf), results.get(job.id)
        # the policy goes by time limits: what it keeps space for later does not start before, however short it may be
        promised = run.cluster.promised.get(job.id, start)
        later = promised - start if start < promised < inf else 0.0
        start += later
        end = max(made.ends.get(job.id, inf) + later, before.end if before else 0.0)
        if before is not None:
            results[job.id] = replace(before, end=end)
        elif start < inf:
            results[job.id] = Expected(job.id, start, end, 0, 0, "one-pass")
        else:
            left_out = job.id not in tried and len(order) < bounds.jobs
            text = _short_of(rules, job) or (NEVER if left_out else _unknown(job.id in made.starts, endless, bounds))
            results[job.id] = Expected(job.id, inf, inf, inf, inf, "unknown", text)
    return [*uses, *made.booked]


def _short_of(rules: Rules | None, job: JobView) -> str:
    """Say under which limit a job has no room whatever ends here; "": under none."""
    limits = rules.limits(owner_of(job)) if rules else ()
    cores = max((max(cores_of(gang), 1) for gang in job.gangs), default=0)
    held = {limit: rules.elsewhere.get(limit, 0.0) for limit in limits} if rules else {}
    limit = min((one for one in limits if one.most - held[one] < cores), default=None)
    if limit is None:
        return ""
    elsewhere = f", and {held[limit]:g} in use on other clusters" if held[limit] else ""
    return f"{limit}; {cores} needed{elsewhere}"


def _limited(order: Iterable[tuple[JobView, GangView]], most: int) -> Iterator[tuple[JobView, GangView]]:
    for k, one in enumerate(order):
        if k >= most:
            return
        yield one


def _in_order(policy: Policy, view: View) -> Iterable[tuple[JobView, GangView]]:
    """Return what waits in the order in which a policy tries it, else by priority and submission."""
    if not isinstance(policy, Ranks):
        return by_submission(view)
    gangs = {(job.id, gang.number): (job, gang) for job in view.jobs for gang in job.gangs}
    return [gangs[one] for one in policy.ranked(view) if one in gangs]


def _unknown(placed: bool, endless: int, bounds: Bounds) -> str:
    if not placed:
        return f"behind the first {bounds.jobs} gangs, which are as many as a forecast looks at"
    if endless:
        return f"{some(endless, 'running task has', 'running tasks have')} no known end"
    return "it does not fit what the ready workers have"


# ── delegate: whole jobs are handed over, so many at a time ──


def _handed_over(view: View, policy: Delegate, lengths: Lengths) -> dict[str, Expected]:
    """Return when each job is handed over: as soon as one of those before it has ended."""
    most = policy.check(view.settings)["max_handed_over"]
    ends: dict[str, float] = {}
    started: dict[str, float] = {}
    for run in view.runs:
        ends[run.job] = max(ends.get(run.job, 0.0), view.now + lengths.left(run, view.now))
        started[run.job] = min(started.get(run.job, inf), run.started)
    result = {job: Expected(job, started[job], end, 0, 0, "running") for job, end in ends.items()}
    free = [*ends.values()]
    heapify(free)
    for job in view.jobs:
        if job.id in ends:
            continue
        start = view.now if len(free) < most else heappop(free)
        each = [lengths.of(job, gang) for gang in job.gangs]
        seconds = max((length.seconds for length in each), default=0.0)
        heappush(free, start + max((length.mean for length in each), default=0.0))
        text = "" if start < inf else _unknown(True, len(free), Bounds())
        result[job.id] = Expected(job.id, start, start + seconds, 0, 0, "ahead" if start < inf else "unknown", text)
    return result


# ── bands ──


def _banded(
    results: Mapping[str, Expected], now: float, scores: Sequence[float], missed: Iterable[float]
) -> dict[str, Expected]:
    bias, around = bias_of(scores), spread(scores, COVER, missed)
    return {job: _with_band(one, now, bias, around) for job, one in results.items()}


def _with_band(one: Expected, now: float, bias: float, around: tuple[float, float]) -> Expected:
    if one.how == "running" or one.start <= now or one.start == inf:
        return replace(one, low=one.start, high=one.start, planned=one.start)
    wait = wait_of(one.start - now, bias)
    low, high = (wait_of(one.start - now, logarithm) for logarithm in around)
    start = now + wait
    end = one.end + start - one.start
    return replace(one, start=start, end=end, low=now + min(low, wait), high=now + max(high, wait), planned=one.start)


def score(waited: float, expected: float) -> float:
    """Return how a forecast turned out: the logarithm of what was waited over what was expected.

    >>> round(score(540.0, 240.0), 3)
    0.693
    """
    return log((max(0.0, waited) + SOFTENED) / (max(0.0, expected) + SOFTENED))


def wait_of(expected: float, logarithm: float) -> float:
    """Return the wait that gives a score where so much is expected: the inverse of `score`.

    >>> wait_of(600.0, -log(4)), wait_of(600.0, log(4))
    (105.0, 2580.0)
    """
    return max(0.0, (expected + SOFTENED) * exp(logarithm) - SOFTENED)


def bias_of(scores: Sequence[float]) -> float:
    """Return the logarithm by which waits are corrected, 0 while the last forecasts were right on the whole."""
    bias = median(scores[-LATEST:]) if len(scores) >= FEWEST else 0.0
    return bias if abs(bias) > BIASED else 0.0


def spread(scores: Sequence[float], cover: float, missed: Iterable[float] = ()) -> tuple[float, float]:
    """Return between which logarithms the next score should lie.

    Each start outside its band makes what follows wider, one inside makes it narrower, so that in the long run as
    many lie inside as should, however the load changes (Gibbs and Candès, "Adaptive conformal inference under
    distribution shift", 2021). What counts is the band that was told: others have started since, and one drawn with
    their scores would be right more often.
    """
    aim = miss = 1 - cover
    for one in missed:
        miss = min(max(miss + STEP * (aim - one), MISSES[0]), MISSES[1])
    return quantiles(scores[-LATEST:], 1 - miss)
