"""Who has waited in vain for longer than the patience: room is made for one such job at a time, whatever others ask.

waits       since when a job holds nothing; of the oldest jobs that do
    overdue     it has held nothing for the patience, and none of its user's jobs was given a share so since then
    kept        machines that take nothing new until there is room on them for its least number of shares, or its gang
    sheltered   what it then starts with: not preempted until it ends, else it would be the first to lose it again

Shares, priorities and first come, first served may each leave a job with nothing forever: more users than machines,
a better class that is always full, small shares that never leave a machine empty. This bounds what they can do: if
what runs on the machines kept does not end within the patience, others are kept instead, each in its turn. A turn
lasts half as long as the job has waited, so that one is longer than what runs at last, however short the patience is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import KEPT_FOR_ONE_JOB, Job, Machine, World
from rainbow.scheduling.fair_share.settings import Rule
from rainbow.text import rfc3339

if TYPE_CHECKING:
    from rainbow.matching import Take


Place = Callable[[str, Sequence[str]], "Take | None"]
TRACKED = 100  # jobs whose waiting is remembered


class LongestWait:
    """The one job of a tree that room is made for; `job` is None if nobody has waited so long."""

    def __init__(self, world: World, memory: Mapping[str, Any], now: float) -> None:
        self.world, self.now, self.seconds = world, now, world.settings.patience
        self.before: Mapping[str, float] = memory.get("waits", {})
        self.tried: dict[str, list[str]] = dict(memory.get("kept", {}))  # what was kept for the job, and what before
        self.since: float = memory.get("kept_since", now)
        tasks = set(memory.get("sheltered", ()))
        self.shares = [share for job in world.jobs for share in job.shares if tasks & set(share.tasks)]
        for share in self.shares:
            share.pinned = True
        self.sheltered = [task for share in self.shares for task in share.tasks]
        self.waits = self._waits()
        self.job = self._overdue(memory.get("patience", "")) if self.seconds is not None else None

    def _waits(self) -> dict[str, float]:
        if self.seconds is None:
            return {}
        idle = (job for job in self._jobs() if job.gangs and not job.shares)
        return {job.id: self.before.get(job.id, self.now) for job in islice(idle, TRACKED)}

    def _jobs(self) -> list[Job]:
        return sorted([*self.world.jobs, *self.world.wide], key=lambda job: job.rank)

    def _overdue(self, known: str) -> Job | None:
        """Return the job room was made for before, else the one that has waited longest."""
        served = {share.job.user for share in self.shares if self.now - share.started < (self.seconds or 0)}
        late = [
            job
            for job in self._jobs()
            if self.now - self.waits.get(job.id, self.now) >= (self.seconds or 0) and job.user not in served
        ]
        late = [job for job in late if job.id in self.waits and self._hosts(job)]
        return min(late, key=lambda job: (job.id != known, self.waits[job.id], *job.rank), default=None)

    def _hosts(self, job: Job) -> list[Machine]:
        """Return the machines a job may use, those that are sooner free of what cannot be preempted first."""
        wide = job in self.world.wide
        overage = -(-(job.asked + self.world.settings.reserve_overage) // job.pool.quantum)
        most = max(job.order, overage) if job.cls.rule is Rule.RESERVE and not wide else None
        results = [
            machine
            for pool in job.reach()
            for machine in pool.machines
            if machine.open
            and (wide or (machine.kind in job.amounts and machine.order >= job.order))
            and (most is None or machine.order <= most)
        ]
        return sorted(results, key=lambda m: (sum(s.order for s in m.shares if not s.preemptable), m.used, m.id))

    # ── making room ──

    def serve(self, grants: Grants, place: Place) -> None:
        """Keep machines for the job, clear them of what can be preempted, and start it once there is room."""
        job = self.job
        if job is None:
            return
        known, tried = self.tried.get("kept", []), self.tried.get("tried", [])
        turn = max(self.seconds or 0, (self.now - self.waits[job.id]) / 2)
        if known and self.now - self.since >= turn:
            known, tried, self.since = [], [*tried, *known], self.now
        hosts = sorted(self._hosts(job), key=lambda m: (m.id not in known, m.id in tried))
        if job in self.world.wide:
            take, chosen = _together(job, hosts, len(known), place)
        else:
            take, chosen = None, hosts[: max(1, job.least)]
        if not self._allowed(job, chosen, grants):
            self.tried, self.job = {}, None
            return
        if not known:
            self.since = self.now
        names = [machine.id for machine in chosen]
        self.tried = {"kept": names, "tried": tried if len(tried) + len(names) <= len(hosts) else []}
        for machine in chosen:
            machine.open, machine.why_closed = False, KEPT_FOR_ONE_JOB
        if take is not None:
            self._gang(job, take, chosen)
        else:
            self._shares(job, chosen)

    def _allowed(self, job: Job, chosen: Sequence[Machine], grants: Grants) -> bool:
        if not chosen:
            return False
        if job in self.world.wide:
            return grants.whole(job, sum(machine.order for machine in chosen))
        return job.cls.fair or grants.whole(job, max(1, job.least) * job.order)

    def _gang(self, job: Job, take: Take, chosen: Sequence[Machine]) -> None:
        _clear(chosen)
        if all(not machine.used for machine in chosen):
            job.spread.append((job.gangs[0], take))
            self._started(job.gangs[0].tasks)

    def _shares(self, job: Job, chosen: Sequence[Machine]) -> None:
        """Start the least number of shares, once there is room for all of them."""
        least, whole = max(1, job.least), job.cls.rule is Rule.RESERVE
        rooms = [(machine, _room(job, machine, whole)) for machine in chosen]
        if sum(count for _, count in rooms) < least:
            _clear(machine for machine, count in rooms if not count)
            return
        for machine in [machine for machine, count in rooms for _ in range(count)][:least]:
            job.starts.append(machine)
            machine.used += machine.order if whole else job.order
            machine.services.add(job.service)
            for kind, amount in job.amounts.get(machine.kind, {}).items():
                machine.left[kind] = machine.left.get(kind, 0) - amount
        self._started(task for gang in job.gangs[:least] for task in gang.tasks)

    def _started(self, tasks: Iterable[str]) -> None:
        self.sheltered.extend(tasks)
        self.tried = {}

    def settle(self) -> None:
        """Count what was started so, or say what the job waits for."""
        if self.job is None:
            return
        self.job.counted = max(self.job.counted, len(self.job.starts))
        if self.tried:
            since = rfc3339(self.waits[self.job.id])
            self.job.reason, self.job.facts = "patience", {"kept": self.tried["kept"], "since": since}

    def remember(self) -> dict[str, Any]:
        """Say what to remember after this epoch."""
        begun = {job.id for job in self._jobs() if job.starts or job.spread}
        waits = {name: since for name, since in self.waits.items() if name not in begun}
        result = {"waits": waits, "sheltered": sorted(self.sheltered)}
        if self.job is None or not self.tried:
            return result
        return {**result, "patience": self.job.id, "kept": self.tried, "kept_since": self.since}


def _room(job: Job, machine: Machine, whole: bool) -> int:
    """How many shares of a job fit on a machine now; a reservation takes it whole."""
    return int(not machine.used) if whole else job.room(machine, machine.free)


def _clear(machines: Iterable[Machine]) -> None:
    """Tell everything that can be preempted to leave."""
    for machine in machines:
        for share in machine.shares:
            if share.preemptable and not share.leaving:
                share.evict("reservation")


def _together(job: Job, hosts: Sequence[Machine], known: int, place: Place) -> tuple[Take | None, list[Machine]]:
    """Ask the matcher for the first machines that could host a gang together, those kept before alone if they do."""
    by_name = {machine.id: machine for machine in hosts}
    count, result = min(max(1, known), len(hosts)), None
    while count and (result := place(job.gangs[0].demand, [machine.id for machine in hosts[:count]])) is None:
        count = min(2 * count, len(hosts)) if count < len(hosts) else 0
    if result is None:
        return None, []
    workers = sorted({worker for _, held in result.placed for worker in held if worker in by_name})
    return result, [by_name[worker] for worker in workers]
