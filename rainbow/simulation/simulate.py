"""Recorded jobs in a world under a virtual clock: match, select, plan and start with the product's own code.

Each cluster is a virtual one (rainbow/forecast): policies are shown limits, tasks end after their recorded lengths or
their limits. What happens at one instant happens in this order: tasks end, a plan is made, and jobs arrive one by
one, with a plan after each. On one cluster, where nothing is selected, jobs of one instant are planned together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from rainbow.errors import SelectionError
from rainbow.forecast import Length, VirtualCluster
from rainbow.forecast.outlook import Arriving
from rainbow.jobspec import Request
from rainbow.scheduling import GangView, JobView, Plan, RunView, View, check_plan
from rainbow.scheduling.qos import Limit
from rainbow.scheduling.rules.running_limits import held_cores, owner_of
from rainbow.selection import read_of, select
from rainbow.selection.choice import Scalar
from rainbow.selection.options import read_options
from rainbow.selection.variables import FORECAST, MATCHED
from rainbow.simulation.arrival import Arrival
from rainbow.simulation.world import Compiled, Forecasts, Requests, World
from rainbow.state_machine import index_of

TOO_WIDE = "wider than every cluster"
NOT_SELECTED = "selected by no rule"
NEVER = "never started"
KNOWN = ("cores_free", "cores", "queue.waiting_tasks", "queue.running_tasks")  # what a cluster says of itself
Watch = Callable[[View, Plan], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that ran: where, and when."""

    id: str
    requestor: str
    job_class: str
    cluster: str
    cores: int
    submit: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a simulation. `cores`: of all clusters; `left_out`: how many jobs did not run, by reason."""

    ran: tuple[Ran, ...]
    cores: int
    plans: int
    left_out: Mapping[str, int] = field(default_factory=dict)


def cores_of(job: JobView) -> int:
    """Return the cores of all slots of a job; where amounts do not say them, one for each task."""
    slots = [group for gang in job.gangs for group in gang.slots]
    return sum(group.least * group.amounts.get("core", 0) for group in slots) or job.tasks


class Recorded:
    """How long jobs run: as recorded."""

    def __init__(self) -> None:
        self.of_job: dict[str, Arrival] = {}

    def of(self, job: JobView, gang: GangView) -> Length:
        """Return a gang's recorded length."""
        seconds = self.of_job[job.id].length(index_of(task) for task in gang.tasks)
        return Length.exactly(seconds, "recorded")

    def left(self, run: RunView, now: float) -> float:
        """Return how long a task still runs: nothing runs at the beginning."""
        return inf


class Site:
    """One cluster of a simulation."""

    def __init__(self, compiled: Compiled, world: World, now: float, lengths: Recorded, watch: Watch) -> None:
        self.name = compiled.cluster.name
        self.compiled = compiled
        self.policy, settings = world.of(self.name).checked()
        rules = world.rules.get(self.name)
        self.virtual = VirtualCluster(compiled.view(now, settings), self.policy, lengths, rules=rules)
        self.watch = watch
        self.plans = 0

    def submit(self, job: JobView) -> None:
        """Let a job arrive."""
        self.virtual.submit(job)

    def advance(self, to: float) -> None:
        """Let time pass, and what ends until then end."""
        self.virtual.advance(to)

    def take_turn(self, now: float) -> None:
        """Plan and carry that out, if anything waits."""
        self.virtual.now = now
        if self.virtual.waiting:
            view = self.virtual.view()
            plan = self.virtual.next_plan(view)
            self.watch(view, plan)
            self.virtual.carry_out(plan)
            self.plans += 1

    @property
    def state(self) -> Mapping[str, Scalar]:
        """What selection may know of it; a cluster that states no nodes_free takes jobs that have to wait."""
        census = self.virtual.census
        free = sum(worker.free.get("core", 0) for worker in census.workers.values())
        waiting, running = len(census.jobs), len(census.runs)
        return {
            "cores_free": free,
            "cores": self.compiled.cores,
            "queue.waiting_tasks": waiting,
            "queue.running_tasks": running,
        }


class Simulation:
    """All clusters under one clock."""

    def __init__(self, world: World, now: float, seed: int, watch: Watch) -> None:
        self.world = world
        self.seed = seed
        self.requests = Requests(world.clusters)
        self.lengths = Recorded()
        self._reads = read_of(world.selector, world.options, FORECAST) if len(world.clusters) > 1 else []
        self._arriving: Arriving | None = None
        compiled = (Compiled(cluster) for cluster in world.clusters)
        self.sites = {one.cluster.name: Site(one, world, now, self.lengths, watch) for one in compiled}
        clusters = {name: site.virtual for name, site in self.sites.items()}
        self.forecasts = Forecasts(clusters, self.lengths.of_job)
        self._has_shared_limits = any(rules.has_shared_limits for rules in world.rules.values())
        self.left_out: Counter[str] = Counter()
        self.arrived: dict[str, tuple[Arrival, str, int]] = {}
        self.now = now
        self.unplanned: set[str] = set()  # sites where something has happened since their last plan
        self._changed = set(self.sites)  # and since their states were taken
        self._states: dict[str, Mapping[str, Scalar]] = {}
        self._times: list[tuple[float, str]] = []  # when something may happen at a site
        self._next: dict[str, float | None] = {}

    def arrive(self, arrival: Arrival) -> None:
        """Let a job arrive at the cluster that is selected for it."""
        if len(self.sites) > 1:
            self._plan()  # after the ends, and after each job that arrives: selection knows what was started
        request = self.requests.of(arrival)
        site = self._selected(arrival, request)
        if site is None:
            return
        self.lengths.of_job[arrival.id] = arrival
        job = site.compiled.job(arrival, request)
        self.arrived[arrival.id] = arrival, site.name, cores_of(job)
        if self._arriving is not None:
            self._arriving.book(site.name)
        site.submit(job)
        self.unplanned.add(site.name)

    def _selected(self, arrival: Arrival, request: Request) -> Site | None:
        self._arriving = None
        fitting = self.requests.fitting(request)
        if not fitting:
            self.left_out[TOO_WIDE] += 1
            return None
        if self.world.recorded and arrival.cluster in fitting:
            return self.sites[arrival.cluster]
        if len(self.sites) == 1:
            return next(iter(self.sites.values()))
        self._states.update((name, self.sites[name].state) for name in self._changed)
        self._changed.clear()
        every = len(fitting) == len(self._states)
        states: Mapping[str, Mapping[str, Scalar]] = self._states
        states = states if every else {name: self._states[name] for name in fitting}
        if self._reads:
            states = self._with_etas(arrival, request, states)
        seed, world = f"{self.seed}:{arrival.id}", self.world
        choice = select(request, [*fitting.values()], states, world.selector, world.options, seed=seed)
        if choice.cluster is None:
            self.left_out[NOT_SELECTED] += 1
        return self.sites.get(choice.cluster or "")

    def _with_etas(
        self, arrival: Arrival, request: Request, states: Mapping[str, Mapping[str, Scalar]]
    ) -> Mapping[str, Mapping[str, Scalar]]:
        """Return states with when the job would start and end on each cluster."""
        self.lengths.of_job[arrival.id] = arrival
        own = {name: dict(state) for name, state in states.items()}

        def job_on(name: str) -> JobView:
            return self.sites[name].compiled.job(arrival, request)

        self._arriving = self.forecasts.arriving(arrival, job_on, [*own], self._reads, self.now)
        self._arriving.tell(own)
        return own

    def advance(self, until: float) -> None:
        """Let everything happen before a time, and what ends at it end; plans at that time are still due."""
        while True:
            following = self._following()
            if self.unplanned and self.now < min(following, until):
                self._plan()
            elif following > until or following == inf:
                break
            else:
                self.now, name = heappop(self._times)
                self._next[name] = None
                self._end(self.sites[name])
                self.unplanned |= set(self.sites) if self._has_shared_limits else {name}
        self.now = until

    def _end(self, site: Site) -> None:
        """Let time pass at a cluster, and learn from what ends."""
        before = {run.job for run in site.virtual.census.runs.values()} if self._reads else set()
        site.advance(self.now)
        if self._reads:
            self.forecasts.ended(site.name, before - {run.job for run in site.virtual.census.runs.values()})

    def _following(self) -> float:
        """Return when something happens next."""
        while self._times and self._next.get(self._times[0][1]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else inf

    def _plan(self) -> None:
        """Plan where something has happened."""
        for name in sorted(self.unplanned):
            site = self.sites[name]
            self._share_limits(site)
            site.take_turn(self.now)
            self._next[name] = following = site.virtual.next_time()
            if following is not None:
                heappush(self._times, (following, name))
        self._changed |= self.unplanned
        self.forecasts.changed |= self.unplanned
        self.unplanned.clear()

    def _share_limits(self, site: Site) -> None:
        """Tell a cluster what runs on the others under the limits over all of them."""
        rules = site.virtual.rules
        if rules is None or not rules.has_shared_limits:
            return
        used: Counter[Limit] = Counter()
        for other in self.sites.values():
            for run in other.virtual.census.runs.values() if other is not site else ():
                over_all = [limit for limit in rules.counted(owner_of(run)) if not limit.cluster]
                used.update(dict.fromkeys(over_all, held_cores(run.placement)))
        site.virtual.rules = replace(rules, elsewhere=dict(used))

    def outcome(self) -> Outcome:
        """Say what came of it."""
        ran = []
        for job, (arrival, name, cores) in self.arrived.items():
            site = self.sites[name]
            span = site.virtual.spans.get(job)
            if span is None or span.end == inf:
                self.left_out[NEVER] += 1
                continue
            owner = (arrival.requestor, arrival.job_class)
            ran.append(Ran(job, *owner, name, cores, arrival.submit, span.start, span.end))
        plans = sum(site.plans for site in self.sites.values())
        whole = sum(site.compiled.cores for site in self.sites.values())
        return Outcome(tuple(ran), whole, plans, dict(self.left_out))


def check_variables(world: World, arrivals: Sequence[Arrival]) -> None:
    """Raise SelectionError for the first variable that selection reads and nothing in a simulation gives."""
    if world.recorded or len(world.clusters) < 2 or world.selector != "constraint":
        return
    known = {*KNOWN, *FORECAST, *(f"matched.{name}" for name in MATCHED)}
    jobspecs = {str(one.jobspec): one for one in arrivals if one.jobspec is not None}
    requests = Requests(world.clusters)
    known.update(*(requests.of(one).parameters for one in jobspecs.values()))
    for priority in read_options(world.options).priorities:
        for at, step in enumerate(priority.steps):
            for name in step.expression.names if step.expression else ():
                if name not in known:
                    pointer = f"/priorities/{priority.index}/steps/{at}/{step.kind}"
                    raise SelectionError(f"{name} is not known here", pointer=pointer)
            known.update([step.variable] if step.variable else [])


def simulate(world: World, arrivals: Iterable[Arrival], seed: int = 0, watch: Watch = check_plan) -> Outcome:
    """Return when and where each job of a list (by submission) runs; `watch` sees every plan.

    The same seed gives the same outcome.
    """
    arrivals = list(arrivals)
    check_variables(world, arrivals)
    simulation: Simulation | None = None
    for arrival in arrivals:
        simulation = simulation or Simulation(world, arrival.submit, seed, watch)
        simulation.advance(arrival.submit)
        simulation.arrive(arrival)
    if simulation is None:
        return Outcome((), 0, 0)
    simulation.advance(inf)
    return simulation.outcome()
