"""A simulated cluster under the fair-share policy: one recorded scenario, epoch by epoch.

Its rules are those the original was recorded under. A job of kind Job initialises until one of its shares is older
than `init_delay` epochs, 30 s each; from then on 10 s are invested per epoch; work never gets less; what is preempted
ends `exit_delay + 1` epochs later; what stood on a machine that died is gone an epoch later; only jobs go on then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rainbow.matching import Take
from rainbow.scheduling import (
    Elastic,
    FairShare,
    GangView,
    JobProgress,
    JobView,
    Plan,
    RunProgress,
    RunView,
    Start,
    Stop,
    View,
    WorkerView,
    check_plan,
)
from rainbow.state_machine import WorkerState

EPOCH = 10.0
Row = Mapping[str, Any]


@dataclass
class Run:
    """One share that runs."""

    job: int
    number: int
    machine: str
    started: int
    stopped: int | None = None


@dataclass
class Cluster:
    """One scenario, under way."""

    row: Row
    policy: FairShare = field(default_factory=FairShare)
    epoch: int = 0
    memory: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machines = {m["name"]: m for m in self.row["machines"]}
        self.jobs = {j["id"]: j for j in self.row["jobs"]}
        self.classes = {c["name"]: c for c in self.row["classes"]}
        self.states = dict.fromkeys(self.machines, WorkerState.READY)
        self.runs: dict[str, Run] = {}
        self.over: set[int] = set()
        self.ready: set[int] = set()  # jobs that have initialised
        self.settings = settings_of(self.row)
        self.quantum = self.row["quantum_gb"]
        self.whole = sum(m["mem_gb"] // self.quantum for m in self.row["machines"])

    # ── what happens from outside ──

    @property
    def last_change(self) -> int:
        """The last epoch in which something happens from outside."""
        times = [e["epoch"] for e in self.row["events"]]
        times += [j[key] for j in self.row["jobs"] for key in ("arrive", "complete", UNKNOWN) if key in j]
        return max(times, default=0)

    def happen(self) -> None:
        """Let everything of this epoch happen but the plan."""
        for event in self.row["events"]:
            if event["epoch"] == self.epoch:
                self.states[event["node"]] = AFTER[event["op"]]
        for name in [name for name, run in self.runs.items() if self._ended(run)]:
            del self.runs[name]
        for name, run in list(self.runs.items()):
            kind = self.jobs[run.job]["type"]
            died = self._died(run.machine)
            if died is not None and died < self.epoch and kind != "Reservation":
                del self.runs[name]
                if kind != "Job":
                    self.over.add(run.job)
        self.over.update(j["id"] for j in self.row["jobs"] if j.get("complete", self.epoch + 1) <= self.epoch)
        self.runs = {name: run for name, run in self.runs.items() if run.job not in self.over}
        self.ready.update(run.job for run in self.runs.values() if self.initialised(run))

    def _ended(self, run: Run) -> bool:
        return run.stopped is not None and self.epoch > run.stopped + self.row["exit_delay"]

    def _died(self, machine: str) -> int | None:
        deaths = [e["epoch"] for e in self.row["events"] if e["node"] == machine and e["op"] == "node_death"]
        past = [epoch for epoch in deaths if epoch <= self.epoch]
        return max(past) if past and self.states[machine] is WorkerState.LOST else None

    def initialised(self, run: Run) -> bool:
        """Whether a share is ready for work."""
        return self.jobs[run.job]["type"] != "Job" or self.epoch - run.started > self.row["init_delay"]

    def alive(self) -> list[Row]:
        """Jobs that are there now."""
        return [j for j in self.row["jobs"] if j["arrive"] <= self.epoch and j["id"] not in self.over]

    # ── what the policy sees ──

    def order(self, job: Row) -> int:
        """How many quanta one share of a job takes."""
        return -(-job["mem_gb"] // self.quantum)

    def gangs_of(self, job: Row) -> int:
        """How many shares a job has to start, all in all."""
        return min(job["max_shares"], self.whole // self.order(job) + 1) if job["type"] == "Job" else 1

    def view(self) -> View:
        """Freeze the cluster."""
        return View(
            now=self.epoch * EPOCH,
            settings=self.settings,
            workers=[self._worker(m) for m in self.row["machines"]],
            jobs=[self._job(j) for j in sorted(self.alive(), key=lambda j: (j["submit"], job_id(j["id"])))],
            runs=[self._run(name, run) for name, run in sorted(self.runs.items())],
            place=self._place,
            hosts=self._hosts,
            divide=lambda demand, take: [dict(held) for _, held in take.placed],
            memory=self.memory,
        )

    def _worker(self, machine: Row) -> WorkerView:
        name, memory = machine["name"], machine["mem_gb"]
        used = sum(self.jobs[run.job]["mem_gb"] for run in self.runs.values() if run.machine == name)
        free = {"memory": memory - used}
        return WorkerView(name, name, {"memory": memory}, free, self.states[name], pool=machine["pool"])

    def _job(self, job: Row) -> JobView:
        own = {run.number for run in self.runs.values() if run.job == job["id"]}
        name, elastic = job_id(job["id"]), job["type"] == "Job"
        count = self.gangs_of(job)
        gangs = [GangView(name, k, (f"{name}/{k:04}",), name) for k in range(count) if k not in own]
        known = job["id"] in self.ready and self.epoch < job.get(UNKNOWN, self.epoch + 1)
        return JobView(
            name,
            job["user"],
            float(job["submit"]),
            tuple(gangs),
            len(own),
            job_class=job["class"],
            elastic=Elastic(job.get("min_shares", 0), job["max_shares"], job["threads"]) if elastic else None,
            progress=JobProgress(job["items"], 0, job["item_ms"] / 1000 if known else 0.0, job["id"] in self.ready),
            service=str(job.get("service_id") or ""),
        )

    def _run(self, name: str, run: Run) -> RunView:
        job, age = self.jobs[run.job], self.epoch - run.started
        ready = self.initialised(run)
        busy = EPOCH * (age - self.row["init_delay"]) if ready else 0.0
        progress = RunProgress(ready, 30.0 if ready else EPOCH * age, busy)
        placement = {run.machine: {"memory": job["mem_gb"]}}
        stopping = run.stopped is not None
        return RunView(
            name,
            job_id(run.job),
            job["user"],
            run.number,
            placement,
            run.started * EPOCH,
            stopping,
            progress=progress,
        )

    def _hosts(self, demand: str) -> frozenset[str]:
        job = self.jobs[int(demand[1:])]
        named = set(job.get("machines") or self.machines)
        return frozenset(n for n, m in self.machines.items() if n in named and m["mem_gb"] >= job["mem_gb"])

    def _place(self, demand: str, workers: Sequence[str]) -> Take | None:
        hosts = self._hosts(demand)
        amounts = {"memory": self.jobs[int(demand[1:])]["mem_gb"]}
        return next((Take((("share", {w: amounts}),), {}) for w in workers if w in hosts), None)

    # ── steps ──

    def step(self) -> tuple[View, Plan]:
        """Let one epoch pass: what happens, a plan that is checked, and its orders."""
        self.happen()
        view = self.view()
        plan = self.policy.plan(view)
        check_plan(view, plan)
        for order in plan.orders:
            if isinstance(order, Stop):
                self.runs[order.task].stopped = self.epoch
            elif isinstance(order, Start):
                job, number = order.task.split("/")
                self.runs[order.task] = Run(int(job[1:]), int(number), next(iter(order.placement)), self.epoch)
        self.memory = plan.memory
        self.epoch += 1
        return view, plan

    def at_rest(self) -> bool:
        """Whether nothing is on its way: nobody initialises, nothing ends, nothing more happens."""
        waiting = any(run.stopped is not None or not self.initialised(run) for run in self.runs.values())
        return not waiting and self.epoch > self.last_change


UNKNOWN = "item_time_becomes_unknown_at"
AFTER = {
    "vary_off": WorkerState.OFFLINE,
    "vary_on": WorkerState.READY,
    "node_death": WorkerState.LOST,
    "node_return": WorkerState.READY,
}


def job_id(number: int) -> str:
    """Name a recorded job so that names sort as numbers do."""
    return f"j{number:04}"


def settings_of(row: Row) -> Mapping[str, Any]:
    """Write a scenario's settings as the policy reads them."""
    pools = {p["name"]: {"parent": p["parent"], "search_order": p["search_order"], "nodes": []} for p in row["pools"]}
    return FairShare().check(
        {
            "quantum": {"type": "memory", "amount": row["quantum_gb"]},
            "nodepools": pools,
            "classes": dict(_classes(row)),
            "users": {name: {"max_allotment": most} for name, most in row["user_allotment_gb"].items()},
            "allotment": row["global_allotment_gb"],
            "fragmentation_threshold": row["frag_threshold"],
        }
    )


def _classes(row: Row) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    for c in row["classes"]:
        one = {key: c[key] for key in ("policy", "priority", "nodepool")}
        if c["policy"] == "FAIR_SHARE":
            one |= {
                "weight": c["weight"],
                "initialization_cap": c["initialization-cap"],
                "expand_by_doubling": c["expand-by-doubling"],
                "use_prediction": c["use-prediction"],
                "prediction_fudge": c["prediction-fudge"] / 1000,
            }
        yield c["name"], {**one, "default": c["policy"] not in seen}
        seen.add(c["policy"])


def shuffled(view: View, seed: int) -> View:
    """Return the same view in another order."""
    rng = random.Random(seed)
    workers, jobs, runs = list(view.workers), list(view.jobs), list(view.runs)
    for part in (workers, jobs, runs):
        rng.shuffle(part)
    return replace(view, workers=workers, jobs=jobs, runs=runs)
