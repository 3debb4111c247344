"""The lines of a run's resource diagram: what is booked on them, and which of them an item's slots need.

worker                 its amounts               "queue q@worker"     slots of a queue there, and its resources
""                     the cluster's consumables "pe name"            slots of a parallel environment
"quota set/rule/..."   a quota (quotas.py)       "in id@worker"       what an advance reservation keeps there
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import Any

from rainbow.cache import cached_property
from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.config.calendar import ON
from rainbow.scheduling.priority.config.load_formulas import WorkerLoads, evaluate, read_formula
from rainbow.scheduling.priority.config.queues import Tag, instances, named, read_queues, tag
from rainbow.scheduling.priority.config.quotas import read_quotas
from rainbow.scheduling.priority.config.settings import GRID_ENGINE
from rainbow.scheduling.priority.config.time_zones import zone_of
from rainbow.scheduling.priority.model import Environment, Item, Need, QueueInstance, read_asks
from rainbow.scheduling.priority.placement.free_space import SlotRequest, add_needs
from rainbow.scheduling.resource_timeline import Timeline
from rainbow.scheduling.snapshot import Placement, ReservationView, RunView, SlotsView, amounts_by_worker
from rainbow.state_machine import WorkerState

CLUSTER = ""
UNLIMITED_SLOTS = 2**53  # slots of a queue that does not limit them


def queue_line(spot: QueueInstance) -> str:
    """Name the line of a queue on a worker."""
    return f"queue {spot.queue}@{spot.worker}"


def reserved_line(reservation: str, worker: str) -> str:
    """Name the line of what an advance reservation keeps of a worker, or of the cluster."""
    return f"in {reservation}@{worker}"


UNREPORTED = 40.0  # seconds after its start in which a task may not be in its worker's report: two heartbeats


def used_outside(view: View, settings: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return {worker: amounts} that others than Rainbow's tasks use: not booked, and reported as not there.

    What is left of a type is reported under its name, or worked out by its formula of `load_values`, in the units of
    the graph (Grid Engine's load values of consumables, less what fresh tasks will use).
    """
    if not any(worker.load for worker in view.workers):
        return {}
    fresh = amounts_by_worker(run.placement for run in view.runs if view.now - run.started < UNREPORTED)
    formulas = {kind: read_formula(written) for kind, written in settings["load_values"].items()}
    outside: dict[str, dict[str, int]] = {}
    for worker in view.workers:
        for kind, free in worker.free.items() if worker.load else ():
            formula = formulas.get(kind, ((kind, 1.0),))
            if all(name in worker.load for name, _ in formula if name):
                reported = int(evaluate(formula, worker.load) * view.units.get(kind, 1))
                remaining = max(0, reported - (fresh[worker.id][kind] if worker.id in fresh else 0))
                if remaining < free:
                    outside.setdefault(worker.id, {})[kind] = free - remaining
    return outside


def capacity(view: View, outside: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return what workers and cluster have: no more than what is free there and what their tasks hold."""
    result = {worker.id: dict(worker.free) for worker in view.workers}
    for name, amounts in outside.items():
        for kind, amount in amounts.items():
            result[name][kind] -= amount
    result[CLUSTER] = dict(view.consumables)
    for run in view.runs:
        for line, amounts in run.placement.items():
            held = result.setdefault(line, {})
            for kind, amount in amounts.items():
                held[kind] = held.get(kind, 0) + amount
    return result


def limit(run: RunView, settings: Mapping[str, Any]) -> float:
    """When a running task must have ended: one without a duration has the default one; inf: it may run forever."""
    if run.until:
        return run.until
    return run.started + float(settings["default_duration"]) if settings["default_duration"] else inf


def end_of(run: RunView, now: float, settings: Mapping[str, Any]) -> float:
    """When a running task is taken to end: one that is over its time ends within the next interval."""
    until, soon = limit(run, settings), now + float(settings["schedule_interval"])
    if settings["compat"] == GRID_ENGINE:
        return max(until, soon)
    return until if until > now else soon


class ResourceLines:
    """The resource diagram of one run and the needs of slots on it."""

    def __init__(self, view: View, settings: Mapping[str, Any], environments: Iterable[Environment] = ()) -> None:
        self.view = view
        self.settings = settings
        self.queues = read_queues(settings)
        self.zone = zone_of(settings)
        self.quotas = read_quotas(settings)
        self.load = WorkerLoads(view, settings)
        self.workers = {worker.id: worker for worker in view.workers}
        self.reservations = {reserved.id: reserved for reserved in view.reservations}
        self.limits = {f"pe {env.name}": {"slots": env.slots} for env in environments if env.slots}
        self.outside = used_outside(view, settings)
        self.timeline = Timeline(capacity(view, self.outside))
        self.timeline.capacity.update(self.limits)
        self.spots = self._usable()
        self._wanted: dict[Hashable, SlotRequest] = {}
        self._shapes: dict[Hashable, int] = {}
        self._shape_of: dict[Hashable, int] = {}
        self._reachable: dict[Hashable, Reachable] = {}
        self._book_queues()
        for reserved in view.reservations:
            self._book_reservation(reserved)
        self.ends = [end_of(run, view.now, settings) for run in view.runs]
        ended = zip(view.runs, self.ends, strict=True)
        self.timeline.fill((self.booking(run), min(run.started, view.now), end) for run, end in ended)

    @cached_property
    def by_workers(self) -> bool:
        """Return whether only workers limit slots that ask for nothing outside them."""
        return not (self.queues or self.quotas.sets or self.limits or self.settings["consumables"])

    # ── what is booked from the start ──

    def _usable(self) -> list[QueueInstance]:
        """Return the spots that are ready and not over a threshold, in the order they are tried."""
        ready = [worker for worker in self.view.workers if worker.state is WorkerState.READY]
        if not self.queues and self.load.is_even:
            return instances(self.queues, ready)
        place = {worker.id: k for k, worker in enumerate(ready)}
        spots = [spot for spot in instances(self.queues, ready) if not self.overloaded(spot)]

        def key(spot: QueueInstance) -> tuple[Any, ...]:
            number = self.queues[spot.queue].given["seq_no"] if self.queues else 0
            load = self.load.of(spot.worker)
            first = (number, load) if self.settings["queue_sort_method"] == "seqno" else (load, number)
            return (*first, place[spot.worker], spot.queue)

        return sorted(spots, key=key)

    def sort_out(self, suspended: set[QueueInstance]) -> bool:
        """Drop spots that are suspended or overloaded, order the rest again; return whether anything changed."""
        spots = [spot for spot in self._usable() if spot not in suspended]
        if spots == self.spots:
            return False
        self.spots = spots
        self._reachable.clear()
        return True

    @property
    def reacts(self) -> bool:
        """Return whether a start can change which spots are usable, or their order."""
        sensitive = any(q.given["load_thresholds"] or q.given["subordinates"] for q in self.queues.values())
        return sensitive or bool(self.settings["load_adjustments"])

    def forget_reach(self) -> None:
        """Forget which spots items reach, after the spots or their order have changed."""
        self._reachable = {}

    def overloaded(self, spot: QueueInstance) -> bool:
        """Return whether a queue's load threshold is reached on a worker, by load or by what of a type is left."""
        if not self.queues:
            return False
        queue, values = self.queues[spot.queue], self.load.values[spot.worker]
        return queue.alarmed(values) or any(
            self.timeline.free_at(spot.worker, kind, self.view.now) <= least
            for kind, least in queue.given["load_thresholds"].items()
            if kind in self.workers[spot.worker].capacity and kind not in values
        )

    def _book_queues(self) -> None:
        closed = {name: queue.calendar.closed(self.view.now, zone=self.zone) for name, queue in self.queues.items()}
        for spot in instances(self.queues, self.view.workers) if self.queues else ():
            queue = self.queues[spot.queue]
            slots = queue.given["slots"] or UNLIMITED_SLOTS
            line = queue_line(spot)
            self.timeline.capacity[line] = {"slots": slots, **queue.given["resources"]}
            for begin, end in closed[spot.queue]:
                self.timeline.add({line: {"slots": slots}}, begin, end)

    def open_now(self, name: str) -> bool:
        """Return whether a queue's calendar has it on at this moment."""
        return not name or self.queues[name].calendar.state(self.view.now, self.zone) == ON

    def _book_reservation(self, reserved: ReservationView) -> None:
        """Keep its space on the workers for it, and open lines of its own for its jobs while it lasts."""
        self.timeline.add(reserved.placement, reserved.start, reserved.end)
        for worker, amounts in reserved.placement.items():
            line = reserved_line(reserved.id, worker)
            self.timeline.capacity[line] = self._kept_there(reserved, worker)
            self.timeline.add({line: amounts}, min(self.view.now, reserved.start), reserved.start)
            self.timeline.add({line: amounts}, reserved.end, inf)

    def _kept_there(self, reserved: ReservationView, worker: str) -> dict[str, int]:
        """What its jobs may hold of a worker: no more than is really there, whatever else still runs on it."""
        if reserved.start > self.view.now or worker not in self.workers:
            return dict(reserved.placement[worker])
        there = Counter(self.workers[worker].free)
        for run in self.view.runs:
            if read_asks(run).reservation == reserved.id:
                there.update(run.placement.get(worker, {}))
        return {kind: min(amount, there[kind]) for kind, amount in reserved.placement[worker].items()}

    def booking(self, run: RunView) -> Placement:
        """What a running task holds of every line."""
        asks = read_asks(run)
        if not (asks.reservation or self.queues or self.limits or self.quotas.sets):
            return run.placement
        known = self.view.memory.get("running", {}).get(run.task, {})
        spots = known.get("spots") or [
            [worker, "", amounts.get(self.settings["slot_type"], 0) or 1]
            for worker, amounts in run.placement.items()
            if worker
        ]
        inside = asks.reservation in self.reservations
        booking: dict[str, dict[str, int]] = {}
        for worker, amounts in run.placement.items():
            line = reserved_line(asks.reservation, worker) if inside else worker
            add_needs(booking, [Need(line, kind, amount) for kind, amount in amounts.items() if amount], 1)
        owners = (run.requestor, asks.project, asks.reservation)
        for worker, queue, count in spots:
            needs = self._limits(owners, known.get("pe", ""), QueueInstance(worker, queue), {})
            add_needs(booking, [need for need in needs if need.line in self.timeline.capacity], count)
        return booking

    # ── what an item may use ──

    def reachable(self, item: Item, environment: Environment) -> Reachable:
        """Return the spots that may ever hold a slot of an item, the most suitable first."""
        asks = item.asks
        plain = not (self.queues or asks.soft or asks.reservation)
        key: Hashable = item.kinds if plain else (item.category, environment.name)
        if key not in self._reachable:
            spots = [s for s in self.spots if self.workers[s.worker].kind in item.kinds]
            if asks.reservation:
                reserved = self.reservations.get(asks.reservation)
                spots = [s for s in spots if reserved is not None and s.worker in reserved.placement]
            spots = [s for s in spots if tag(item, environment, s, self.queues) is not Tag.NONE]
            if not plain:
                spots.sort(key=lambda s: violations(item, s, self))
            self._reachable[key] = Reachable(spots)
        return self._reachable[key]

    def masters(self, item: Item, environment: Environment) -> frozenset[QueueInstance] | None:
        """Return the spots for the master's slot, None if any will do."""
        if not self.queues or not item.asks.master_queues:
            return None
        spots = self.reachable(item, environment).spots
        return frozenset(s for s in spots if Tag.MASTER in tag(item, environment, s, self.queues))

    def slaves(self, item: Item, environment: Environment) -> dict[str, list[QueueInstance]]:
        """Return the spots for all slots but the master's, by worker."""
        spots = self.reachable(item, environment).spots
        return Reachable([s for s in spots if Tag.SLAVE in tag(item, environment, s, self.queues)]).by_worker

    def wanted(self, item: Item, k: int, spot: QueueInstance, environment: Environment) -> SlotRequest:
        """Return what a slot of an item's k-th group takes at a spot."""
        key = (self.shape(item, k, environment), spot)
        if key not in self._wanted:
            self._wanted[key] = self._needs(item, item.groups[k], spot, environment)
        return self._wanted[key]

    def shape(self, item: Item, k: int, environment: Environment) -> int:
        """Number what decides about the needs of a slot of an item's k-th group: equal numbers need the same."""
        own = (item.category, k, environment.name)
        if own not in self._shape_of:
            self._shape_of[own] = self._shape(item, item.groups[k], environment)
        return self._shape_of[own]

    def _shape(self, item: Item, group: SlotsView, environment: Environment) -> int:
        amounts = tuple(sorted(group.amounts.items())), tuple(sorted(group.outside.items()))
        limits = (
            (environment.name, item.user, item.asks.project)
            if self.quotas.sets
            else environment.slots and environment.name
        )
        return self._shapes.setdefault((*amounts, item.asks.reservation, limits), len(self._shapes))

    def _needs(self, item: Item, group: SlotsView, spot: QueueInstance, environment: Environment) -> SlotRequest:
        needs: dict[str, list[Need]] = {"slot": [], "worker": [], "job": []}
        inside = item.asks.reservation
        amounts_of = {spot.worker: dict(group.amounts), CLUSTER: dict(group.outside)}
        for kind, amount in self._defaults(group).items():
            amounts_of[spot.worker if kind in self.workers[spot.worker].capacity else CLUSTER][kind] = amount
        for holder, amounts in amounts_of.items():
            line = reserved_line(inside, holder) if inside else holder
            for kind, amount in amounts.items():
                if amount:
                    needs[self._per(kind)].append(Need(line, kind, amount, holder))
        owners = (item.user, item.asks.project, inside)
        needs["slot"] += self._limits(
            owners, environment.name, spot, {**amounts_of[spot.worker], **amounts_of[CLUSTER]}
        )
        return SlotRequest(tuple(needs["slot"]), tuple(needs["worker"]), tuple(needs["job"]))

    def _limits(
        self, owners: tuple[str, str, str], environment: str, spot: QueueInstance, amounts: Mapping[str, int]
    ) -> list[Need]:
        """What one slot takes of what limits without being a resource: its queue, environment and quotas."""
        needs: list[Need] = []
        if spot.queue:
            line = queue_line(spot)
            kinds = self.timeline.capacity.get(line, {})
            needs.extend(Need(line, kind, n) for kind, n in {**amounts, "slots": 1}.items() if n and kind in kinds)
        if f"pe {environment}" in self.limits:
            needs.append(Need(f"pe {environment}", "slots", 1))
        if self.quotas.sets and not owners[2]:  # what an advance reservation keeps is not counted against quotas
            needs.extend(self._quotas(owners, environment, spot, amounts))
        return needs

    def _quotas(
        self, owners: tuple[str, str, str], environment: str, spot: QueueInstance, amounts: Mapping[str, int]
    ) -> list[Need]:
        """What one slot takes of the resource quotas."""
        user, project, _ = owners
        subjects = {
            "users": user,
            "projects": project or None,
            "pes": environment or None,
            "queues": spot.queue or None,
            "hosts": spot.worker,
        }
        values = {
            "num_proc": float(self.load.processors.get(spot.worker, 1)),
            **self.load.values.get(spot.worker, {}),
        }
        needs = self.quotas.needs(subjects, self.settings["groups"].get(user), amounts, values)
        self.timeline.capacity.update(self.quotas.limits)
        return needs

    def _defaults(self, group: SlotsView) -> dict[str, int]:
        """Return what a slot takes of types that it does not ask for."""
        options = self.settings["consumables"]
        request = {**group.amounts, **group.outside}
        return {kind: one["default"] for kind, one in options.items() if one["default"] and kind not in request}

    def _per(self, kind: str) -> str:
        return str(self.settings["consumables"].get(kind, {}).get("per", "slot"))


class Reachable:
    """Spots in the order they are tried, and by worker."""

    def __init__(self, spots: list[QueueInstance]) -> None:
        self.spots = spots
        self.by_worker: dict[str, list[QueueInstance]] = {}
        for spot in spots:
            self.by_worker.setdefault(spot.worker, []).append(spot)
        self.workers = frozenset(self.by_worker)


def violations(item: Item, spot: QueueInstance, lines: ResourceLines) -> int:
    """Count the soft requests of an item that a spot does not meet."""
    asks = item.asks
    has, units = lines.workers[spot.worker].capacity, lines.view.units
    unmet = sum(1 for kind, amount in asks.soft.items() if has.get(kind, 0) < amount * units.get(kind, 1))
    return unmet + (1 if asks.soft_queues and not named(asks.soft_queues, spot) else 0)
