"""The earliest start of each gang in a given order, beside what holds space and what was placed before it.

What lies outside all workers is one more worker, "". So is each limit of running cores that may bind, under a name
that no worker has: its cores are those that may still run under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

import numpy as np

from rainbow.forecast.lengths import Length
from rainbow.forecast.room import Use
from rainbow.scheduling import GangView, JobView, SlotsView, View
from rainbow.scheduling.free_matrix import Group, Ints, Slots
from rainbow.scheduling.gangs import summed
from rainbow.scheduling.qos import Limit, Rules
from rainbow.scheduling.resource_timeline import Timeline
from rainbow.scheduling.rules.running_limits import cores_of, held_cores, owner_of, used_cores
from rainbow.scheduling.snapshot import Placement
from rainbow.state_machine import WorkerState

UNDER_LIMIT = "\0running"  # the type of what a limit still lets run: no graph has it
MOST = 30_000_000  # numbers in a matrix: what is left then is not placed
SlotRequests = Sequence[tuple[Group, Slots]]  # what a gang wants, and of which workers


@dataclass(frozen=True, slots=True)
class Pass:
    """When each job starts and ends, infinite for what fits nowhere; and what that books."""

    starts: Mapping[str, float]
    ends: Mapping[str, float]
    booked: Sequence[Use]


def one_pass(
    view: View,
    lengths: Callable[[JobView, GangView], Length],
    order: Iterable[tuple[JobView, GangView]],
    uses: Iterable[Use],
    rules: Rules | None = None,
) -> Pass:
    """Place gangs one after the other, each at its earliest start beside what holds space and those before it.

    `lengths` says how long each runs; `rules` which limits of running cores hold.
    """
    space = Space(view, uses, rules)
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for job, gang in order:
        if space.matrix.size > MOST:
            break
        length = lengths(job, gang)
        start = space.book(job, gang, length.mean)
        starts[job.id] = min(starts.get(job.id, inf), start)
        ends[job.id] = max(ends.get(job.id, 0.0), start + length.seconds)
    return Pass(starts, ends, space.booked)


def by_submission(view: View) -> Iterator[tuple[JobView, GangView]]:
    """Yield the gangs that wait, those of a higher priority first, then by submission."""
    for job in sorted(view.jobs, key=attrgetter("priority"), reverse=True):
        yield from ((job, gang) for gang in job.gangs)


class Space:
    """What is free of a view's ready workers from now on, beside what holds space."""

    def __init__(self, view: View, uses: Iterable[Use], rules: Rules | None = None) -> None:
        self.view = view
        self.rules = rules
        self.booked: list[Use] = []
        self._kinds = {worker.id: worker.kind for worker in view.workers if worker.state is WorkerState.READY}
        held = [use for use in uses if use.end > view.now]
        begun = summed([{"": view.consumables}, *_beside(held, view.now)])
        ready = {worker.id: worker.capacity for worker in view.workers if worker.id in self._kinds}
        self._limits = {limit: f"\0{limit}" for limit in self._binding()}
        room = {
            name: {UNDER_LIMIT: max(0, int(limit.most - rules.elsewhere.get(limit, 0)))}
            for limit, name in self._limits.items()
            if rules
        }
        timeline = Timeline({**ready, **begun, **room})
        timeline.fill((use.placement, max(use.start, view.now), use.end) for use in [*held, *self._counted(held)])
        self.matrix = timeline.matrix([*ready, "", *room], view.now)
        self._outside = self.matrix.group([""])
        self._under = {limit: self.matrix.group([name]) for limit, name in self._limits.items()}
        self._groups: dict[frozenset[str], Group] = {}

    def _binding(self) -> list[Limit]:
        """Return the limits that what runs and waits would pass if all of it ran at once."""
        if self.rules is None or not self.rules.has_limits:
            return []
        requirements: Counter[Limit] = used_cores(self.rules, self.view.runs)
        for job in self.view.jobs:
            cores = sum(map(cores_of, job.gangs))
            requirements.update(dict.fromkeys(self.rules.limits(owner_of(job)), cores))
        return sorted(
            limit for limit, cores in requirements.items() if limit.kind != "guarantee" and cores > limit.most
        )

    def _counted(self, held: Sequence[Use]) -> Iterator[Use]:
        """Yield what each use takes of the limits that its job is under."""
        if self.rules is None or not self._limits:
            return
        for use in held:
            names = [self._limits[one] for one in self.rules.limits(use.owner) if one in self._limits]
            cores = held_cores(use.placement)
            yield from (Use({name: {UNDER_LIMIT: cores}}, use.start, use.end) for name in names)

    def book(self, job: JobView, gang: GangView, seconds: float) -> float:
        """Book a gang of a job at its earliest start and return that, infinite if there is none."""
        requests = [*self._within(job, gang), *self._asked(gang)]
        for start, counts in self.matrix.starts(*requests[0], seconds) if requests else ():
            placement = (
                self._fitted(requests, start, start + seconds) if len(requests) > 1 else _alone(*requests[0], counts)
            )
            if placement is not None:
                self.matrix.add(placement, start, start + seconds)
                self.booked.append(Use(placement, start, start + seconds, owner_of(job)))
                return start
        return inf

    def _within(self, job: JobView, gang: GangView) -> Iterator[tuple[Group, Slots]]:
        """Yield what a gang takes of each limit: first, so that only times with room under one are tried."""
        cores = cores_of(gang)
        for limit in self.rules.limits(owner_of(job)) if self._limits and self.rules and cores else ():
            if limit in self._under:
                yield self._under[limit], Slots(((UNDER_LIMIT, cores),), 1)

    def _asked(self, gang: GangView) -> SlotRequests:
        hosts = self.view.hosts(gang.demand)
        if hosts not in self._groups:
            able = [name for name, kind in self._kinds.items() if kind in hosts]
            self._groups[hosts] = self.matrix.group(able)
        own, request = self._groups[hosts], list[tuple[Group, Slots]]()
        for one in gang.slots or self._as_matched(gang, own):
            request.append((own, Slots(_some(one.amounts, 1), one.least, apart=one.apart)))
            if any(one.outside.values()):
                request.append((self._outside, Slots(_some(one.outside, one.least), 1)))
        return request

    def _as_matched(self, gang: GangView, able: Group) -> Iterator[SlotsView]:
        """Say what only the matcher can place by what it would hold on the empty cluster, each worker apart."""
        take = self.view.place(gang.demand, able.names) if able.names else None
        held = summed(placed for _, placed in take.placed) if take else {}
        alike = Counter(tuple(sorted(amounts.items())) for worker, amounts in held.items() if worker and amounts)
        return (SlotsView("", dict(amounts), count, count, apart=True) for amounts, count in alike.items())

    def _fitted(self, request: SlotRequests, start: float, end: float) -> Placement | None:
        """Return where the slots lie over a time, the first workers first; None if not all of them fit."""
        kinds = {kind for _, slots in request for kind, _ in slots.amounts}
        remaining = {kind: self.matrix.least(kind, start, end) for kind in kinds}
        placement: dict[str, dict[str, int]] = {}
        for group, slots in request:
            counts = slots.given(
                {kind: remaining[kind][group.columns] for kind, _ in slots.amounts}, group.columns.shape
            )
            if counts.sum() < slots.count:
                return None
            taken = _place(placement, group, slots, counts)
            for kind, amount in slots.amounts:
                remaining[kind][group.columns] -= taken * amount
        return placement


def _alone(group: Group, slots: Slots, counts: Ints) -> Placement:
    placement: dict[str, dict[str, int]] = {}
    _place(placement, group, slots, counts)
    return placement


def _place(placement: dict[str, dict[str, int]], group: Group, slots: Slots, counts: Ints) -> Ints:
    """Add slots on workers that give so many each, the first workers first; return how many lie on each."""
    taken: Ints = np.clip(slots.count - (np.cumsum(counts) - counts), 0, counts)
    for worker, count in group.left(taken).items():
        of = placement.setdefault(worker, {})
        of.update((kind, of.get(kind, 0) + count * amount) for kind, amount in slots.amounts)
    return taken


def _beside(held: Iterable[Use], now: float) -> Iterator[Placement]:
    """Yield what is held now of what lies outside all workers."""
    return ({"": use.placement[""]} for use in held if use.start <= now and "" in use.placement)


def _some(amounts: Mapping[str, int], times: int) -> tuple[tuple[str, int], ...]:
    return tuple((kind, amount * times) for kind, amount in amounts.items() if amount)
