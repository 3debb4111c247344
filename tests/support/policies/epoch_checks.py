"""The invariants of fair-share schedules: what holds in every epoch, and what holds when everything rests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rainbow.scheduling import FairShare, Plan, Start, Stop, View
from rainbow.state_machine import WorkerState
from tests.support.policies.epochs import Cluster, Row, Run, job_id, shuffled

BOUND = 40  # epochs after the last change from outside by which everything rests
SINGLE = ("Service", "Reservation")


@dataclass
class Play:
    """One scenario being played; `goals` counts what is only a goal: #9 where sizes or nodepools differ, and #13."""

    row: Row
    policy: FairShare = field(default_factory=FairShare)
    last_order: int = 0
    goals: Counter[str] = field(default_factory=Counter)
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.row, self.policy)

    def run(self) -> Iterator[str]:
        """Play until three epochs pass without an order, or the bound is reached."""
        quiet = 0
        while quiet < 3:
            epoch = self.cluster.epoch
            if epoch > self.cluster.last_change + BOUND:
                yield f"still moving {BOUND} epochs after the last change"
                return
            yield from (f"epoch {epoch}: {fault}" for fault in self._epoch())
            quiet = quiet + 1 if self.cluster.at_rest() and self.last_order < epoch else 0
        yield from self._rest()

    def _epoch(self) -> Iterator[str]:
        cluster = self.cluster
        cluster.happen()
        before = {name: Run(**vars(run)) for name, run in cluster.runs.items()}
        memory = cluster.memory
        view, plan = cluster.step()
        self.figures = plan.figures
        if plan.orders:
            self.last_order = cluster.epoch - 1
        again = cluster.policy.plan(shuffled(view, cluster.epoch))
        if (again.orders, again.memory) != (plan.orders, plan.memory):
            yield "#15 another order of workers, jobs and runs gives another plan"
        if cluster.memory is memory:
            yield "the plan leaves no memory"
        yield from self._space()
        yield from self._accounts(plan)
        yield from self._kept(plan, before)
        yield from self._starts(view, plan)
        yield from self._stops(plan, before)
        yield from self._counts(before)
        yield from self._reasons(plan)

    # ── #1, #2 ──

    def _space(self) -> Iterator[str]:
        cluster = self.cluster
        for name, machine in cluster.machines.items():
            runs = [run for run in cluster.runs.values() if run.machine == name]
            used = sum(cluster.order(cluster.jobs[run.job]) for run in runs)
            if used > machine["order"]:
                yield f"#1 {name} of order {machine['order']} holds {used}"
            whole = [run for run in runs if self._rule(run.job) == "RESERVE"]
            if whole and (len(runs) > 1 or cluster.order(cluster.jobs[whole[0].job]) != machine["order"]):
                yield f"#2 the reservation on {name} is not alone or not of its order"

    # ── #7, #12 ──

    def _accounts(self, plan: Plan) -> Iterator[str]:
        """What the figures say of machines equals a count of what stands there."""
        answer = plan.figures["machines"]
        for name in self.cluster.machines:
            runs = [run for run in self.cluster.runs.values() if run.machine == name]
            used = sum(self.cluster.order(self.cluster.jobs[run.job]) for run in runs)
            if answer.get(name, {"used": 0})["used"] != used:
                yield f"#7 {used} quanta of {name} are held, the figures say {answer.get(name)}"

    def _kept(self, plan: Plan, before: Mapping[str, Run]) -> Iterator[str]:
        """What was told to stop goes on to, holds its space until it has ended, and is not told again."""
        for task, run in before.items():
            now = self.cluster.runs.get(task)
            if run.stopped is not None and (now is None or now.stopped != run.stopped):
                yield f"#12 {task} was told to stop in epoch {run.stopped}, and that did not stay so"

    def _rule(self, job: int) -> str:
        return str(self.cluster.classes[self.cluster.jobs[job]["class"]]["policy"])

    # ── #4, #5, #17 ──

    def _starts(self, view: View, plan: Plan) -> Iterator[str]:
        for task in [order.task for order in plan.orders if isinstance(order, Start)]:
            run = self.cluster.runs[task]
            job, machine = self.cluster.jobs[run.job], self.cluster.machines[run.machine]
            if self.cluster.states[run.machine] is not WorkerState.READY:
                yield f"#4 {task} starts on {run.machine}, which is not ready"
            if machine["pool"] not in self._reach(job):
                yield f"#4 {task} starts in {machine['pool']}, out of its reach"
            if job.get("machines") and run.machine not in job["machines"]:
                yield f"#4 {task} starts on {run.machine}, which it did not name"
        yield from self._minima(plan)
        for job in self.cluster.row["jobs"]:
            if job["type"] in SINGLE and sum(run.job == job["id"] for run in self.cluster.runs.values()) > 1:
                yield f"#5 {job['id']} has more than one share"
        started = {self.cluster.runs[o.task].job for o in plan.orders if isinstance(o, Start)}
        for user in {self.cluster.jobs[k]["user"] for k in started if self._rule(k) != "FAIR_SHARE"}:
            yield from self._allotment(user)

    def _minima(self, plan: Plan) -> Iterator[str]:
        """What starts anew starts with as many shares as it can work with."""
        begun = Counter(self.cluster.runs[order.task].job for order in plan.orders if isinstance(order, Start))
        for number, starts in begun.items():
            job = self.cluster.jobs[number]
            held = sum(run.job == number and run.stopped is None for run in self.cluster.runs.values())
            if held == starts < min(job.get("min_shares", 0), self.cluster.gangs_of(job)):
                yield f"{number} starts with {starts}, and works with no fewer than {job['min_shares']}"

    def _reach(self, job: Row) -> set[str]:
        pool = self.cluster.classes[job["class"]]["nodepool"]
        reach = {pool}
        while self._rule(job["id"]) == "FAIR_SHARE":
            more = {p["name"] for p in self.row["pools"] if p["parent"] in reach} - reach
            if not more:
                break
            reach |= more
        return reach

    def _allotment(self, user: str) -> Iterator[str]:
        limit = self.row["user_allotment_gb"].get(user, self.row["global_allotment_gb"])
        own = [self.cluster.jobs[r.job] for r in self.cluster.runs.values()]
        fixed = [j for j in own if j["user"] == user and self._rule(j["id"]) != "FAIR_SHARE"]
        held = sum(self.cluster.order(j) for j in fixed) * self.row["quantum_gb"]
        if limit is not None and held > limit:
            yield f"#17 {user} holds {held} of an allotment of {limit}"

    # ── #6, #11 ──

    def _stops(self, plan: Plan, before: Mapping[str, Run]) -> Iterator[str]:
        stops = {order.task: order.why for order in plan.orders if isinstance(order, Stop)}
        for task in stops:
            if self._rule(before[task].job) != "FAIR_SHARE":
                yield f"#6 {task} cannot be preempted and is stopped: {stops[task]}"
        for job in {before[task].job for task in stops if stops[task] == "shrink"}:
            there = {n: r for n, r in before.items() if r.job == job and r.stopped is None}
            shrunk = [self._investment(r) for n, r in there.items() if stops.get(n) == "shrink"]
            stored = [
                self._investment(r) for n, r in there.items() if stops.get(n, "defragmentation") == "defragmentation"
            ]
            if stored and max(shrunk) > min(stored):
                yield f"#11 {job} gives up a share in which more is invested than in one it keeps"

    def _investment(self, run: Run) -> tuple[bool, float, int, int, int]:
        cluster = self.cluster
        age = cluster.epoch - 1 - run.started
        ready = cluster.jobs[run.job]["type"] != "Job" or age > self.row["init_delay"]
        spent = age - self.row["init_delay"] if ready else age
        machine = cluster.machines[run.machine]
        return ready, spent, -self._depth(machine["pool"]), -machine["mem_gb"], -run.started

    def _depth(self, pool: str) -> int:
        parent = next(p["parent"] for p in self.row["pools"] if p["name"] == pool)
        return 0 if parent is None else 1 + self._depth(parent)

    # ── #3, #8, #16 ──

    def _counts(self, before: Mapping[str, Run]) -> Iterator[str]:
        by_top: dict[str, int] = {}
        for job in self.cluster.alive():
            result = self.figures["jobs"].get(job_id(job["id"]))
            if result is None:
                continue
            if result["counted"] > result["cap"]:
                yield f"#3 {job['id']} is counted {result['counted']}, its cap is {result['cap']}"
            top = self._top(self.cluster.classes[job["class"]]["nodepool"])
            by_top[top] = by_top.get(top, 0) + result["counted"] * result["order"]
            if self._rule(job["id"]) == "FAIR_SHARE":
                held = sum(run.job == job["id"] and run.stopped is None for run in before.values())
                yield from self._growth(job, result["counted"], held)
        for top, counted in by_top.items():
            there = sum(m["order"] for m in self.row["machines"] if self._top(m["pool"]) == top)
            if counted > there:
                yield f"#8 {counted} quanta are counted in {top}, which has {there}"

    def _growth(self, job: Row, counted: int, held: int) -> Iterator[str]:
        cls = self.cluster.classes[job["class"]]
        first = max(1, cls["initialization-cap"], job.get("min_shares", 0))
        if job["id"] not in self.cluster.ready and cls["initialization-cap"] and counted > max(first, held):
            yield f"#16 {job['id']} initialises and is counted {counted}, the cap is {cls['initialization-cap']}"
        if cls["expand-by-doubling"] and job["id"] in self.cluster.ready and counted > max(first, 2 * held):
            yield f"#16 {job['id']} holds {held} and is counted {counted}"

    def _top(self, pool: str) -> str:
        parent = next(p["parent"] for p in self.row["pools"] if p["name"] == pool)
        return pool if parent is None else self._top(parent)

    # ── #19, #20 ──

    def _reasons(self, plan: Plan) -> Iterator[str]:
        answer = {wait.job: wait.text for wait in plan.waits}
        for name, job in plan.figures["jobs"].items():
            lacks = job["counted"] < job["cap"] or job["held"] < job["counted"]
            if lacks and not (job["reason"] and answer.get(name.partition("/")[0])):
                yield f"#20 {name} lacks shares and no reason is given"

    # ── at rest: #3, #9, #13, #18 ──

    def _rest(self) -> Iterator[str]:
        cluster = self.cluster
        for job in cluster.alive():
            result = self.figures["jobs"].get(job_id(job["id"]))
            if result and self._rule(job["id"]) == "FAIR_SHARE" and result["held"] > result["counted"]:
                yield f"#3 at rest {job['id']} holds {result['held']} and is counted {result['counted']}"
        trees = cluster.memory.get("fair_share", {}).get("trees", {})
        turned = any(tree["settling"]["turns"] for tree in trees.values())
        stored = json.loads(json.dumps(dict(cluster.memory))) if turned else {}
        restarted = cluster.policy.plan(replace(cluster.view(), memory=stored))
        if stops := [order.task for order in restarted.orders if isinstance(order, Stop)]:
            yield f"#18 a restart stops {stops}"
        unfair = list(self._unfair())
        if len(self.row["pools"]) == 1 and all(cluster.order(j) == 1 for j in self.row["jobs"]):
            yield from unfair
        self.goals["users further than one share apart (#9)"] = len(unfair)
        self.goals["needy jobs while others are rich (#13)"] = sum(1 for _ in self._needy_while_rich())

    def _unfair(self) -> Iterator[str]:
        """A user of a class who could use more has no less than any other, but for one share."""
        for cls in self.cluster.classes.values():
            users: dict[str, list[Row]] = {}
            for job in self.cluster.alive():
                if (
                    job_id(job["id"]) in self.figures["jobs"]
                    and self.figures["jobs"][job_id(job["id"])]["order"]  # it fits on some machine
                    and job["class"] == cls["name"]
                    and cls["policy"] == "FAIR_SHARE"
                ):
                    figures = self.figures["jobs"][job_id(job["id"])]
                    users.setdefault(job["user"], []).append({**figures, "named": job.get("machines")})
            counted = {user: sum(j["counted"] * j["order"] for j in jobs) for user, jobs in users.items()}
            largest = max((j["order"] for jobs in users.values() for j in jobs), default=0)
            for user, jobs in users.items():
                lacks = any(j["counted"] < j["cap"] and not j["named"] for j in jobs)
                if lacks and counted[user] < max(counted.values()) - largest:
                    yield f"#9 in {cls['name']} {user} is counted {counted[user]} of {counted}"

    def _needy_while_rich(self) -> Iterator[str]:
        threshold = self.row["frag_threshold"]
        for job in self.cluster.alive():
            result = self.figures["jobs"].get(job_id(job["id"]))
            if result is None or self._rule(job["id"]) != "FAIR_SHARE":
                continue
            if result["held"] < min(threshold, result["deserved"], result["counted"]) and self._could_clear(
                job, threshold
            ):
                yield str(job["id"])

    def _could_clear(self, job: Row, threshold: int) -> bool:
        cluster, priority = self.cluster, self.cluster.classes[job["class"]]["priority"]
        for name, machine in cluster.machines.items():
            named = not job.get("machines") or name in job["machines"]
            ready = cluster.states[name] is WorkerState.READY
            if not named or not ready or machine["pool"] not in self._reach(job):
                continue
            runs = [run for run in cluster.runs.values() if run.machine == name]
            room = machine["order"] - sum(cluster.order(cluster.jobs[run.job]) for run in runs)
            spare: dict[int, int] = {}
            for run in runs:
                giver = cluster.jobs[run.job]
                remaining = spare.setdefault(run.job, self.figures["jobs"][job_id(run.job)]["held"] - threshold)
                rule, other = self._rule(run.job), cluster.classes[giver["class"]]["priority"]
                if rule == "FAIR_SHARE" and run.job != job["id"] and remaining > 0 and other >= priority:
                    spare[run.job] -= 1
                    room += cluster.order(giver)
            if room >= cluster.order(job):
                return True
        return False
