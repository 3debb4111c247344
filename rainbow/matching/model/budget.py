"""The budget of a query: time and steps, a fair share of both for every cluster.

step     a move of a search, or a candidate that one looks at
    share    what one cluster may cost in one round; equal for all clusters that are open in it
    round    every open cluster is asked once; what the decided ones left is shared out in the next round

The clock is an argument. Without one time stands still, and steps alone decide, alike on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.model.verdict import Verdict


Clock = Callable[[], float]

WORTH = 2  # a search that begins again needs so many times its last share to get further
LEAST = 1e-4  # seconds that every cluster gets once, however many there are
PROBE = 0.05  # seconds of one match of many
PROBE_STEPS = 20_000
PERIOD = 32  # steps between two looks at the clock


class OutOfBudgetError(Exception):
    """The share is used up."""


def stopped() -> float:
    """Return the time of a clock that stands still."""
    return 0.0


class Meter:
    """What is left of one share. Not for several threads at once."""

    __slots__ = ("_clock", "_due", "_end", "left")

    def __init__(self, clock: Clock = stopped, seconds: float = inf, steps: float = inf) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._due = PERIOD
        self.left = steps

    def step(self, steps: int = 1) -> None:
        """Use up some steps; OutOfBudgetError when there are none left, or no time."""
        self.left -= steps
        self._due -= steps
        if self.left < 0:
            raise OutOfBudgetError
        if self._due <= 0:
            self.check()

    def check(self) -> None:
        """Look at the clock now: for what takes long and is no step."""
        self._due = PERIOD
        if self.is_over:
            raise OutOfBudgetError

    @property
    def is_over(self) -> bool:
        """Return whether the time has ended."""
        return self._clock() > self._end

    @property
    def seconds(self) -> float:
        """Return how much time is left, without end where it stands still."""
        return inf if self._clock is stopped else max(0.0, self._end - self._clock())

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let time stand still for what is done once in a process."""
        began = self._clock()
        yield
        self._end += self._clock() - began

    @contextmanager
    def part(self, steps: float) -> Iterator[Meter]:
        """Give a meter with the same end, for some of the steps that are left; what it does not use comes back."""
        meter = self.timed
        meter.left = min(steps, self.left)
        self.left -= meter.left
        try:
            yield meter
        finally:
            self.left += max(0.0, meter.left)

    def probe(self) -> Budget:
        """Return the budget of one of many small matches before the same end."""
        seconds = min(PROBE, self.seconds)
        return Budget(self._clock, seconds, seconds, PROBE_STEPS, PROBE_STEPS)

    @property
    def timed(self) -> Meter:
        """The same end in time, and any number of steps: for work that does not branch."""
        meter = Meter(self._clock)
        meter._end = self._end
        return meter

    def divided(self, many: int) -> Iterator[Meter]:
        """Yield a meter for each of so many questions; those to come share what one did not use."""
        for remaining in range(many, 0, -1):
            part = Meter(self._clock, (self._end - self._clock()) / remaining, self.left / remaining)
            steps = part.left
            yield part
            self.left -= steps - max(0.0, part.left) if steps < inf else 0


FREE = Meter()  # for what ends by itself


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one cluster, and one query over all clusters, may cost. Seconds count by `clock`."""

    clock: Clock = stopped
    cluster: float = 0.05  # seconds
    query: float = 1.0  # seconds
    cluster_steps: int = 100_000
    query_steps: int = 1_000_000

    def share(self, among: int = 1) -> Meter:
        """Return the share of one of so many clusters in a first round."""
        seconds, steps = min(self.cluster, self.query / among), min(self.cluster_steps, self.query_steps // among)
        return Meter(self.clock, max(LEAST, seconds), max(PERIOD, steps))

    def later(self, among: int = 1) -> Meter:
        """Return the share of one of so many clusters for what is worked out when a verdict is looked at."""
        seconds, steps = max(self.cluster, self.query / 2 / among), max(self.cluster_steps, self.query_steps // among)
        return Meter(self.clock, min(seconds, self.query / 2), steps)

    def decide(self, places: Iterable[int], ask: Callable[[int, Meter], Verdict]) -> dict[int, Verdict]:
        """Ask at every place, the cheap ones first; the undecided again in further rounds, with what is left.

        Within a round all shares are equal, so that an answer does not depend on who is asked before.
        """
        begun, steps = self.clock(), float(self.query_steps)
        seconds, most, last = self.cluster, float(self.cluster_steps), (0.0, 0.0)
        result: dict[int, Verdict] = {}
        unanswered = list(places)
        while unanswered:
            remaining, many = max(0.0, begun + self.query - self.clock()), len(unanswered)
            share = min(seconds, remaining / many), min(most, steps // many)
            if not result:
                share = max(LEAST, share[0]), max(PERIOD, share[1])
            elif share[0] < WORTH * last[0] or share[1] < WORTH * last[1]:
                break
            for place in unanswered:
                meter = Meter(self.clock, *share)
                result[place] = ask(place, meter)
                steps -= share[1] - max(0.0, meter.left)
            unanswered = [place for place in unanswered if result[place].matched is None]
            seconds, most, last = inf, inf, share
        return result


STEPS = Budget()  # no clock: where nobody hands one in


@runtime_checkable
class MatchesAll(Protocol):
    """A backend that answers for many clusters together."""

    def match_all(self, request: Request, clusters: Sequence[Cluster], budget: Budget | None) -> Sequence[Verdict]:
        """Return the verdicts in order of name, within the budget."""
