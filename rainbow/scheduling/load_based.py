"""The load-based policy: classes share the workers by percent, and lend what they do not use.

    1 count      workers each class holds and waits for
    2 grant      entitlements, then loans (counting.py)
    3 pick       round robin: the next gang of the job that runs least (queues.py)
    4 place      the matcher says where; a gang that lacks workers keeps what its class is granted
    5 again      what a class could not use is granted to the others
    6 rebalance  if the classes have long been far from their targets, the newest loans are stopped (victims.py)

With `unit: worker` a worker serves one gang at a time, and a gang costs as many workers as its slots pack into; with
any other unit workers are shared, and a gang costs what it takes of that type (sharing.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rainbow.scheduling.census import Census, census_of
from rainbow.scheduling.classes import CLASSIC, WORKER, Classes, check_settings, classes_of
from rainbow.scheduling.counting import Classic, Counting, Exact
from rainbow.scheduling.figures import figures, rest_of, waits
from rainbow.scheduling.placing import Placing
from rainbow.scheduling.policy import GangView, JobView, Order, Plan, View
from rainbow.scheduling.progress import ClassCount
from rainbow.scheduling.queues import Queue
from rainbow.scheduling.sharing import Sharing
from rainbow.scheduling.victims import Exchange, Unit, given_back, units


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
        while round_.grant_and_place() and round_.counting.repeats:
            pass
        orders = (*round_.placing.orders, *round_.stops())
        return Plan(orders, tuple(waits(round_)), figures(round_), round_.memory(), rest_of(round_))


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
        self.blocked: set[str] = set()  # classes whose head keeps what it is granted
        earned = view.memory.get("credit", {})
        units_ = self.placing.total
        self.counting: Counting = Classic(units_) if classes.rounding == CLASSIC else Exact(units_, earned)
        self.before = self.counts(self.placing.left + 1)
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
            ClassCount(name, weight, self.held[name], self._waiting(name, most))
            for name, weight in self.classes.weights.items()
        ]

    def _waiting(self, name: str, most: int) -> int:
        if name in self.blocked or not self.placing.ready:
            return 0
        return self.queues[name].waiting(self.placing.cost, most)

    def _timer(self) -> tuple[bool, float | None]:
        """Tell whether to rebalance; not before the victims of the last time have ended."""
        excess = self.view.memory.get("over_since")
        due, since = self.classes.rebalance.due(self.spread, excess, self.view.now, clears=self.counting.clears)
        if due and self.census.stopping:
            return False, excess
        return due, since

    # ── 2 grant, 3 pick, 4 place ──

    def grant_and_place(self) -> bool:
        """Grant idle workers to classes and start what fits; return whether that leaves anything else to grant."""
        before = self._progress()
        counts = self.counts(self.placing.total if self.rebalancing else self.placing.left + 1)
        granted = self.counting.starts(self.placing.left, counts, rebalancing=self.rebalancing)
        for name in sorted(granted, key=lambda n: (-self.classes.weights[n], n)):
            self._start_class(name, min(granted[name], self.placing.left))
        return self._progress() > before

    def _progress(self) -> int:
        stuck = sum(len(queue.stuck) for queue in self.queues.values())
        return len(self.placing.orders) + stuck + len(self.blocked)

    def _start_class(self, name: str, granted: int) -> None:
        queue = self.queues[name]
        while self.placing.ready and (head := queue.head()) is not None:
            job, gang = head
            cost = self.placing.cost(gang)
            if not cost:
                queue.give_up(self.placing.unhosted(job))
            elif granted <= 0:
                return
            elif took := self.placing.start(gang, granted):
                granted -= took
                self.held[name] += took
                queue.advance()
            elif self._keep(name, job, gang, min(granted, cost)):
                return

    def _keep(self, name: str, job: JobView, gang: GangView, most: int) -> bool:
        """Let the head of a class keep what it is granted until the sum is there; without any, others may go on."""
        kept = self.placing.keep(gang, most)
        self.queues[name].give_up(self.placing.busy(job, gang, name, kept))
        self.held[name] += kept
        if kept:
            self.blocked.add(name)
        return bool(kept)

    # ── 6 rebalance ──

    def stops(self) -> Iterator[Order]:
        """Yield what must end so that classes below their targets come to their own."""
        if not self.rebalancing:
            return
        stops, needs = self.counting.stops(self.before, self.counts(self.placing.total))
        found = [unit for name in stops for unit in given_back(self._units(name), stops[name])]
        found.sort(key=lambda unit: (-unit.started, unit.tasks))
        yield from Exchange(self.placing, found).stops(self.queues, needs)

    def _units(self, name: str) -> list[Unit]:
        own = (run for run in self.view.runs if self.classes.of(run.requestor) == name)
        return units([run for run in own if not run.stopping], self.placing.held)

    # ── what is remembered ──

    def _granted(self) -> dict[str, int]:
        return {c.name: self.held[c.name] - c.running for c in self.before}

    def memory(self) -> dict[str, Any]:
        """Return the next memory: credit by class, and since when the spread is over the threshold."""
        credit = dict(self.counting.credit(self.before, self._granted()))
        kept: dict[str, Any] = {"credit": credit} if credit else {}
        return kept if self.excess is None else {**kept, "over_since": self.excess}
