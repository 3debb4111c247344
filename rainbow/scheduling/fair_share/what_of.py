"""What Of: where the counted shares can go now; wide gangs; and reserved space.

Machines are tried by what they have free, the tightest first (best fit), so that large holes stay. Space that is
being left is still occupied. Space cleared for a needy job stays reserved from epoch to epoch: otherwise another job
could take it before the evicted work has ended, and the same eviction would be ordered again.

For a gang that needs several machines at the same time, whole machines are gathered until it can start. DUCC has no
such work. It is served before everything else of its tree, by priority and submission, out of the
machines of its own nodepool that hold nothing but what can be preempted: these are closed to others and emptied, and
chosen again in the next epoch, until the gang starts on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.fair_share.grants import Grants
from rainbow.scheduling.fair_share.model import CLUSTER, KEPT_FOR_ONE_JOB, Job, Machine, Pool, World
from rainbow.scheduling.fair_share.settings import Rule
from rainbow.scheduling.gangs import summed
from rainbow.scheduling.interface import Free
from rainbow.scheduling.snapshot import GangView

if TYPE_CHECKING:
    from rainbow.matching import Take


Claims = dict[str, dict[str, int]]


def restore(world: World, space: MachineSpace, reserved: Mapping[str, Any]) -> None:
    """Keep again what was kept, as far as it is still needed and can still become free."""
    machines = {machine.id: machine for machine in world.machines}
    for job in world.jobs:
        reach = set(job.reach())
        for name, count in sorted(reserved.get(job.id, {}).items()):
            machine = machines.get(name)
            if machine is None or not machine.open or machine.pool not in reach or job.cls.rule is Rule.RESERVE:
                continue
            most = min(count, job.need - sum(job.claims.values()), machine.eventual // job.order)
            if most > 0 and machine.kind in job.amounts:
                space.claim(job, machine, most)


def to_keep(world: World) -> Claims:
    """What is to be kept in the next epoch."""
    return {
        job.id: {
            machine.id: count for machine, count in sorted(job.claims.items(), key=lambda reserved: reserved[0].id)
        }
        for job in world.jobs
        if job.claims and job.cls.rule is not Rule.RESERVE
    }


class FreeShares:
    """Machines by nodepool, some size of theirs, and kind."""

    def __init__(self, machines: Iterable[Machine], size: Callable[[Machine], int]) -> None:
        self.size = size
        self.filed: dict[Machine, int] = {}
        self.by_size: dict[Pool, dict[int, dict[str, dict[Machine, None]]]] = {}
        for machine in machines:
            if machine.open:
                self.file(machine)

    def file(self, machine: Machine) -> None:
        """Put a machine where its size says now."""
        sizes = self.by_size.setdefault(machine.pool, {})
        if machine in self.filed:
            del sizes[self.filed[machine]][machine.kind][machine]
        size = self.filed[machine] = self.size(machine)
        sizes.setdefault(size, {}).setdefault(machine.kind, {})[machine] = None

    def tightest(self, pool: Pool, job: Job) -> Iterator[Machine]:
        """Yield machines of a pool that might take a share of the job, the tightest first."""
        sizes = self.by_size.get(pool, {})
        for size in sorted(size for size in sizes if size >= job.order):
            for kind in sorted(job.amounts.keys() & sizes[size].keys()):
                yield from sizes[size][kind]


class MachineSpace:
    """What is free and kept on all machines; `shelves` sorts them by what is neither used nor kept."""

    def __init__(self, machines: Iterable[Machine], free: Free | None = None) -> None:
        self.shelves = FreeShares(machines, lambda machine: machine.unclaimed)
        self._free = free
        self._located: dict[Job, list[tuple[Machine, int]]] = {}

    def locate(self, job: Job, machine: Machine, count: int) -> int:
        """Take the vertices of so many shares of the job there; return how many were found."""
        if self._free is None:
            return count
        own = self._located.setdefault(job, [])
        for result in range(count):
            gang = job.gangs[min(len(own), len(job.gangs) - 1)]
            taken = self._free.take(gang.demand, among=[machine.id])
            if taken is None:
                job.fragmented(self._free.why(gang.demand))
                return result
            own.append((machine, taken.number))
        return count

    def spread(self, job: Job, gang: GangView, grants: Grants) -> Take | None:
        """Take what a gang holds of several machines that nobody was promised, beside others."""
        machines = {m.id: m for pool in job.reach() for m in pool.machines if m.open and m.unclaimed}
        taken = self._free.take(gang.demand, among=machines) if self._free else None
        if taken is None or self._free is None:
            return None
        held = {machines[name]: amounts for name, amounts in summed(taken.placements).items() if name != CLUSTER}
        quanta = {machine: machine.quanta(amounts) for machine, amounts in held.items()}
        fits = all(quanta[machine] <= machine.unclaimed for machine in held)
        if not fits or not grants.whole(job, sum(quanta.values())):
            self._free.give_back(taken.number)
            return None
        for machine, amounts in held.items():
            machine.used += quanta[machine]
            machine.left.update({kind: machine.left.get(kind, 0) - amount for kind, amount in amounts.items()})
            self.shelves.file(machine)
        return taken.take

    def book(self, job: Job, machine: Machine, count: int = 1) -> None:
        """Start so many shares of the job there."""
        order = machine.order if job.cls.rule is Rule.RESERVE else job.order
        self._take(job, machine, count * order, count)
        job.starts.extend([machine] * count)
        machine.services.add(job.service)

    def give_back(self, job: Job, machine: Machine) -> None:
        """Take back one start of this epoch that nobody has heard of yet."""
        job.starts.remove(machine)
        own = self._located.get(job, [])
        if self._free is not None and (at := [k for k, (there, _) in enumerate(own) if there is machine]):
            self._free.give_back(own.pop(at[-1])[1])
        self._take(job, machine, -job.order, -1)

    def _take(self, job: Job, machine: Machine, quanta: int, count: int) -> None:
        machine.used += quanta
        for kind, amount in job.amounts.get(machine.kind, {}).items():
            machine.left[kind] = machine.left.get(kind, 0) - amount * count
        self.shelves.file(machine)

    def claim(self, job: Job, machine: Machine, count: int = 1) -> None:
        """Keep space for shares of the job, there now or when what is leaving has left."""
        order = machine.order if job.cls.rule is Rule.RESERVE else job.order
        job.claims[machine] = job.claims.get(machine, 0) + count
        machine.claimed += count * order
        self.shelves.file(machine)

    def release(self, job: Job, machine: Machine, count: int) -> None:
        """Give up what was kept."""
        order = machine.order if job.cls.rule is Rule.RESERVE else job.order
        count = min(count, job.claims.get(machine, 0))
        machine.claimed -= count * order
        job.claims[machine] = job.claims.get(machine, 0) - count
        if not job.claims[machine]:
            del job.claims[machine]
        self.shelves.file(machine)


def what_of(world: World, space: MachineSpace, needy: Collection[str]) -> None:
    """Place what can be placed: first what the last epoch left needy, then by priority."""
    for top in world.tops:
        groups = list(world.priorities(top))
        for jobs in groups:
            for job in jobs:
                if job.claims or job.id in needy:
                    place(job, space)
        for jobs in groups:
            for job in sorted(jobs, key=_turn):
                place(job, space)


def _turn(job: Job) -> tuple[int, int, float, str]:
    """Deepest nodepools first, as their jobs have nowhere else to go; in a pool the largest shares first."""
    return (-job.pool.depth, -job.order, *job.rank) if job.cls.fair else (0, 0, *job.rank)


def place(job: Job, space: MachineSpace) -> None:
    """Start what the job lacks where it fits now; a job starts with no fewer than it can work with."""
    before = len(job.starts)
    if job.startable:
        _place_kept(job, space)
    if job.startable and job.cls.rule is not Rule.RESERVE:  # a reservation's machines are all kept for it
        if job.service:
            _place_apart(job, space)
        for pool in job.reach():
            _place_in(job, pool, space)
    if job.held < job.least:
        for machine in job.starts[before:]:
            space.give_back(job, machine)


def _place_kept(job: Job, space: MachineSpace) -> None:
    """Use what was kept for the job as far as it is free."""
    for machine, count in list(job.claims.items()):
        order = machine.order if job.cls.rule is Rule.RESERVE else job.order
        others = machine.claimed - count * order
        fit = min(count, job.startable, job.room(machine, max(0, machine.free - others)))
        if fit > 0 and machine.open and (job.cls.rule is not Rule.RESERVE or not machine.used):
            fit = space.locate(job, machine, fit)
            space.release(job, machine, fit)
            space.book(job, machine, fit)


def _place_apart(job: Job, space: MachineSpace) -> None:
    """Instances of one service stand on different machines where they can."""
    for machine in [m for pool in job.reach() for m in space.shelves.tightest(pool, job)]:
        if job.startable and job.service not in machine.services and job.room(machine, machine.unclaimed):
            space.book(job, machine, space.locate(job, machine, 1))


def _place_in(job: Job, pool: Pool, space: MachineSpace) -> None:
    chosen: list[tuple[Machine, int]] = []
    need = job.startable
    for machine in space.shelves.tightest(pool, job):
        if need <= 0:
            break
        fit = space.locate(job, machine, max(0, min(need, job.room(machine, machine.unclaimed))))
        if fit > 0:
            chosen.append((machine, fit))
            need -= fit
    for machine, fit in chosen:
        space.book(job, machine, fit)


SHORT = {"", "no-space", "fragmented", "defragmentation"}  # reasons for which several machines may do


def spread_out(world: World, space: MachineSpace, grants: Grants) -> None:
    """Start what fits on no single machine now on several, beside others: it is no share, and stays where it is."""
    for job in world.jobs:
        alone = job.elastic or job.service or job.cls.rule is not Rule.FIXED_SHARE
        while not alone and job.reason in SHORT and len(job.gangs) > len(job.starts):
            gang = job.gangs[len(job.starts)]
            if (take := space.spread(job, gang, grants)) is None:
                break
            job.gangs.remove(gang)
            job.spread.append((gang, take))
            job.cap, job.counted = job.cap - 1, min(job.counted, job.cap - 1)


Place = Callable[[str, Sequence[str]], "Take | None"]


def gather(
    world: World, grants: Grants, place: Place, reserved: Mapping[str, Any], served: Job | None = None
) -> dict[str, list[str]]:
    """Choose machines for every such gang in turn, but for the job that is `served` otherwise.

    Return what is kept for those that cannot start yet.
    """
    keeping: dict[str, list[str]] = {}
    for job in world.wide:
        if job is served:
            continue
        job.reason, job.facts, job.wanted = "", {}, 1
        for gang in job.gangs:
            results = _choose(world, job, gang, place, set(reserved.get(job.id, ())))
            if results is None or not _granted(grants, job, results[1]):
                job.reason = job.reason or "no-space"
                break
            take, machines = results
            for machine in machines:
                _close(machine)
            if all(not machine.used for machine in machines):
                job.spread.append((gang, take))
            else:
                keeping.setdefault(job.id, []).extend(machine.id for machine in machines)
                job.reason = "preemptions"
    return keeping


def _choose(
    world: World, job: Job, gang: GangView, place: Place, reserved: set[str]
) -> tuple[Take, list[Machine]] | None:
    """Ask the matcher: first for what was kept, then for empty machines, then for those that can be emptied."""
    usable = {
        m.id: m for m in world.machines if m.open and m.pool is job.pool and all(s.preemptable for s in m.shares)
    }
    empty = [name for name, machine in usable.items() if not machine.used]
    for names in (sorted(reserved & usable.keys()), empty, list(usable)):
        take = place(gang.demand, names) if names else None
        if take is not None:
            workers = {worker for _, held in take.placed for worker in held if worker != CLUSTER}
            return take, [usable[name] for name in sorted(workers)]
    return None


def _granted(grants: Grants, job: Job, machines: Sequence[Machine]) -> bool:
    return grants.whole(job, sum(machine.order for machine in machines))


def _close(machine: Machine) -> None:
    machine.open, machine.why_closed = False, KEPT_FOR_ONE_JOB
    for share in machine.shares:
        if not share.leaving:
            share.evict("reservation")
