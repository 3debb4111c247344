"""The load-based policy: classes share the workers by percent, and lend what they do not use.

    1 count      workers each class holds and waits for
    2 reserve    the gang that has waited longest in vain comes first, beyond its class's target (patience.py)
    3 grant      entitlements, then loans (counting.py)
    4 pick       round robin: the next gang of the job that runs least (queues.py)
    5 place      the matcher says where; a gang that lacks workers has what its class is granted reserved
    6 again      what a class could not use is granted to the others
    7 lend       what is reserved serves tasks that end before it is needed
    8 rebalance  if the classes have long been far from their targets, the newest loans are stopped (victims.py)

With `unit: worker` a worker serves one gang at a time, and a gang costs as many workers as its slots pack into; with
any other unit workers are shared, and a gang costs what it takes of that type (sharing.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import Any

from rainbow.scheduling import wait_reasons as reasons
from rainbow.scheduling.census import Census, census_of
from rainbow.scheduling.classes import CLASSIC, WORKER, Classes, check_settings, classes_of
from rainbow.scheduling.counting import Classic, Counting, Exact
from rainbow.scheduling.figures import figures, waits
from rainbow.scheduling.patience import Patience
from rainbow.scheduling.placing import Placing
from rainbow.scheduling.policy import GangView, JobView, Order, Plan, View, Wait
from rainbow.scheduling.progress import ClassCount
from rainbow.scheduling.queues import Queue
from rainbow.scheduling.reserved import Reserved
from rainbow.scheduling.sharing import Sharing
from rainbow.scheduling.victims import Exchange, Unit, given_back, units

LOOKED_AT = 1_000  # jobs of a class that are looked at for what is reserved
TINY = 1e-9  # in place of a percent of nothing


class LoadBased:
    """Plans by class load percents."""

    by_events = True  # time alone changes no plan, unless something is remembered
    by_census = True  # what exists is not looked at one by one
    needs_workers = True

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return the classes there are."""
        return {"class": classes_of(settings).percents}

    def plan(self, view: View) -> Plan:
        """Start what the classes are entitled to, then what can be lent; stop loans that have lasted too long."""
        round_ = Round(view, census_of(view), classes_of(view.settings))
        round_.reserve_for_the_first()
        while round_.grant_and_place() and round_.counting.repeats:
            pass
        round_.lend()
        orders = (*round_.placing.orders, *round_.stops())
        return Plan(orders, tuple(waits(round_)), figures(round_), round_.memory(), reasons.rest_of(round_))


class Round:
    """One planning round: what is held, who waits, what was decided."""

    def __init__(self, view: View, census: Census, classes: Classes) -> None:
        self.view = view
        self.census = census
        self.classes = classes
        whole = classes.unit == WORKER
        self.placing = Placing(view, census) if whole else Sharing(view, census, classes.unit)
        self.queues = {name: Queue(census, own) for name, own in self._by_class(census.queues).items()}
        holders = self._by_class(census.held)
        self.held = {name: self.placing.held_by(own) for name, own in holders.items()}
        self.running = {name: sum(census.held[one].tasks for one in own) for name, own in holders.items()}
        self.reserved: list[Reserved] = []
        self.passed: dict[tuple[str, int | str], Wait] = {}  # what cannot start in this round, by class
        self.promised = dict.fromkeys(self.held, 0)  # what is granted to gangs that cannot start yet
        self.patience = Patience.of(classes.patience, view.now, view.memory, census)
        earned = view.memory.get("credit", {})
        units_ = self.placing.total
        self.counting: Counting = Classic(units_) if classes.rounding == CLASSIC else Exact(units_, earned)
        self.before = self.counts(self.placing.left + 1)
        self.target = self.counting.targets(self.before)
        self.spread = self.counting.spread(self.before)
        self.rebalancing, self.excess = self._timer()
        if self.rebalancing:
            self.before = self.counts(self.placing.total)

    # ── 1 count ──

    def _by_class(self, requestors: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.classes.weights}
        for requestor in requestors:
            found[self.classes.of(requestor)].append(requestor)
        return found

    def counts(self, most: int) -> list[ClassCount]:
        """Count by class what is held and waited for, the latter no further than `most`."""
        return [
            ClassCount(name, weight, self.held[name] + self.promised[name], self._waiting(name, most))
            for name, weight in self.classes.weights.items()
        ]

    def _waiting(self, name: str, most: int) -> int:
        if not self.placing.ready:
            return 0
        return self.queues[name].waiting(self.placing.cost, most)

    def _timer(self) -> tuple[bool, float | None]:
        """Tell whether to rebalance; not before the victims of the last time have ended."""
        excess = self.view.memory.get("over_since")
        due, since = self.classes.rebalance.due(self.spread, excess, self.view.now, clears=self.counting.clears)
        if due and self.census.stopping:
            return False, excess
        return due, since

    # ── 2 reserve ──

    def reserve_for_the_first(self) -> None:
        """Start the gang that has waited longest in vain, or reserve what it can have of what is idle."""
        for job in self.patience.first(self.census) if self.counting.repeats else ():
            gang, name = job.gangs[0], self.classes.of(job.requestor)
            cost = self.placing.cost(gang)
            if took := self.placing.start(gang, cost) if cost else 0:
                self.held[name] += took
                self.queues[name].begin(job)
                target = self.target[name]
                self.patience.begins(job, gang, name, min(took, self.held[name] - target), target)
            elif cost:
                self._reserve_first(job, gang, name)
                return

    def _reserve_first(self, job: JobView, gang: GangView, name: str) -> None:
        lacking = self.placing.lacks_outside(gang)
        held = self.placing.reserve(job, gang, self.placing.cost(gang))
        if lacking:
            self.placing.reserve_outside(held)
        self._note(held, name, held.units)
        self.queues[name].leave_out(job, reasons.first_in_line(self, held, lacking))

    def _note(self, held: Reserved, name: str, promised: int) -> None:
        held.owner = name
        self.reserved.append(held)
        self.promised[name] += promised

    # ── 3 grant, 4 pick, 5 place, 6 again ──

    def grant_and_place(self) -> bool:
        """Grant idle workers to classes and start what fits; return whether that leaves anything else to grant."""
        before = self._progress()
        counts = self.counts(self.placing.total if self.rebalancing else self.placing.left + 1)
        granted = self.counting.starts(self.placing.left, counts, rebalancing=self.rebalancing)
        for name in sorted(granted, key=lambda n: (-self.classes.weights[n], n)):
            self._start_class(name, min(granted[name], self.placing.left))
        return self._progress() > before

    def _progress(self) -> int:
        return len(self.placing.orders) + sum(queue.left_out for queue in self.queues.values())

    def _start_class(self, name: str, granted: int) -> None:
        queue = self.queues[name]
        while self.placing.ready and (head := queue.head()) is not None:
            job, gang = head
            if granted <= 0 and self.placing.cost(gang):
                return
            if (name, gang.question) in self.passed:
                queue.give_up(None)
            elif not self.placing.cost(gang):
                self._give_up(name, gang, reasons.unhosted(self, job))
            elif took := self.placing.start(gang, granted):
                granted -= took
                self.held[name] += took
                self.patience.serves(job)
                queue.advance()
            else:
                granted -= self._pass_over(name, job, gang, granted)

    def _pass_over(self, name: str, job: JobView, gang: GangView, granted: int) -> int:
        """Leave the head of a class out of the round; return how much of what is granted is reserved for it.

        A gang beyond its class's target waits for its place in the line: what the class is granted would never do.
        """
        cost = self.placing.cost(gang)
        most = min(granted, cost)
        lacking = self.placing.lacks_outside(gang) if most == cost else {}
        held = Reserved(job, gang)
        if not lacking and (cost <= self.target[name] or not self.counting.repeats):
            held = self.placing.reserve(job, gang, most)
        wait = reasons.passed_over(self, name, held, lacking)
        if self.counting.repeats:
            self.patience.wait_in_vain(job, name)
        if not held.units:
            self._give_up(name, gang, wait)
            return 0
        self.queues[name].give_up(wait)
        self._note(held, name, most)
        return most

    def _give_up(self, name: str, gang: GangView, wait: Wait) -> None:
        """Leave the head of a class out of the round, and with it all of its class that ask for the same."""
        self.queues[name].give_up(wait)
        self.passed[name, gang.question] = wait

    # ── 7 lend ──

    def lend(self) -> None:
        """Start what certainly ends before what is reserved can be used, the classes that hold least first."""
        lenders = [held for held in self.reserved if held.units and self.view.now < held.at < inf]
        if not lenders:
            return
        latest = max(held.at for held in lenders) - self.view.now
        short = {name: self._short(queue, latest) for name, queue in self.queues.items()}
        while short:
            name = min(short, key=lambda n: (self.held[n] / max(self.classes.weights[n], TINY), n))
            job = next(short[name], None)
            if job is None:
                del short[name]
            else:
                self._start_short(name, job, lenders)

    def _short(self, queue: Queue, latest: float) -> Iterator[JobView]:
        """Yield the jobs in turn whose next gang has a limit that may do; of very many the first are looked at."""
        for job in islice(queue.in_turn(), LOOKED_AT):
            if 0 < queue.next_of(job).expected <= latest:
                yield job

    def _start_short(self, name: str, job: JobView, lenders: list[Reserved]) -> None:
        queue = self.queues[name]
        while queue.has_left(job):
            gang = queue.next_of(job)
            end = self.view.now + gang.expected
            usable = [held for held in lenders if held.units and held.job is not job and end <= held.at]
            if not (usable and self.placing.cost(gang) and (took := self.placing.lend(usable, gang))):
                return
            self.held[name] += took
            self.patience.serves(job)
            queue.begin(job)

    # ── 8 rebalance ──

    def stops(self) -> Iterator[Order]:
        """Yield what must end so that classes below their targets come to their own."""
        if not self.rebalancing:
            return
        stops, needs = self.counting.stops(self.before, self.counts(self.placing.total))
        found = [unit for name in stops for unit in given_back(self._units(name), stops[name])]
        found.sort(key=lambda unit: (-unit.started, unit.tasks))
        yield from Exchange(self.placing, found).stops(self.queues, needs)

    def _units(self, name: str) -> list[Unit]:
        spared = self.patience.spared
        own = (r for r in self.view.runs if self.classes.of(r.requestor) == name and (r.job, r.gang) not in spared)
        return units([run for run in own if not run.stopping], self.placing.held)

    # ── what is remembered ──

    def _granted(self) -> dict[str, int]:
        return {c.name: self.held[c.name] + self.promised[c.name] - c.running for c in self.before}

    def memory(self) -> dict[str, Any]:
        """Return the next memory: credit by class, and since when the spread is over the threshold."""
        credit = dict(self.counting.credit(self.before, self._granted()))
        kept: dict[str, Any] = {"credit": credit} if credit else {}
        kept |= self.patience.memory(self.census)
        return kept if self.excess is None else {**kept, "over_since": self.excess}
