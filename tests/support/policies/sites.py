"""A site without a store: jobs arrive, a policy plans, tasks end; the checks of every plan are the host's own."""

from dataclasses import dataclass, field, replace

from rainbow.scheduling import LoadBased, RunView, Start, Stop, check_plan
from tests.support.policies.views import job, view


@dataclass
class Site:
    """Equal workers, or kinds of them; `ask` says of a job how wide its gangs are and how long they take."""

    workers: int
    settings: dict = field(default_factory=dict)
    kinds: dict = field(default_factory=dict)
    policy: object = field(default_factory=LoadBased)
    now: float = 0.0
    jobs: dict = field(default_factory=dict)
    runs: dict = field(default_factory=dict)
    ends: dict = field(default_factory=dict)  # task → when it really ends
    memory: dict = field(default_factory=dict)
    started: dict = field(default_factory=dict)  # job → when its first gang started
    lasts: dict = field(default_factory=dict)  # job → how long a gang of it really runs
    plan: object = None

    def submit(self, name, *sizes, requestor="user", lasts=60.0, limit=0.0, kind="any", priority=0):
        made = job(name, *sizes, requestor=requestor, submitted=self.now, kind=kind, priority=priority)
        gangs = tuple(replace(gang, expected=limit) for gang in made.gangs)
        self.jobs[name] = replace(made, gangs=gangs)
        self.lasts[name] = lasts

    def view(self):
        runs = list(self.runs.values())
        return view(
            sorted((j for j in self.jobs.values() if j.gangs), key=lambda j: (j.submitted, j.id)),
            self.workers,
            runs,
            self.settings,
            now=self.now,
            memory=self.memory,
            kinds=self.kinds,
        )

    def step(self):
        """Plan once, and carry it out."""
        of = self.view()
        self.plan = self.policy.plan(of)
        check_plan(of, self.plan)
        self.memory = dict(self.plan.memory)
        for order in self.plan.orders:
            if isinstance(order, Start):
                self._start(order)
            if isinstance(order, Stop):
                self._end(order.task)
        held = [worker for run in self.runs.values() for worker in run.placement]
        assert len(held) == len(set(held)), "a worker serves two gangs"

    def _start(self, order):
        name, _, number = order.task.rpartition("-")
        one = self.jobs[name]
        gang = next(gang for gang in one.gangs if order.task in gang.tasks)
        remaining = tuple(other for other in one.gangs if other is not gang)
        self.jobs[name] = replace(one, gangs=remaining, running=one.running + 1)
        until = self.now + gang.expected if gang.expected else 0.0
        run = RunView(order.task, name, one.requestor, int(number), order.placement, self.now, until=until)
        self.runs[order.task] = run
        self.ends[order.task] = self.now + self.lasts[name]
        self.started.setdefault(name, self.now)

    def _end(self, task):
        run = self.runs.pop(task)
        del self.ends[task]
        self.jobs[run.job] = replace(self.jobs[run.job], running=self.jobs[run.job].running - 1)

    def go_to(self, now):
        """Move the clock, planning at every end on the way."""
        while self.ends and min(self.ends.values()) <= now:
            self.now = max(self.now, min(self.ends.values()))
            for task in [task for task, end in self.ends.items() if end <= self.now]:
                self._end(task)
            self.step()
        self.now = now
        self.step()

    def idle(self):
        return self.workers - sum(len(run.placement) for run in self.runs.values())

    def wait_of(self, name):
        """Why a job waits, as the last plan says."""
        named = next((wait for wait in self.plan.waits if wait.job == name), None)
        return named or self.plan.rest.of(name)
