"""What would start a job now: a change is offered only if the policy, asked about the changed job, starts it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rainbow.graph import read_cluster
from rainbow.jobspec import parse_jobspec
from rainbow.matching import consumables
from rainbow.scheduling import Begins, JobView, RunView, Start, View, WorkerView, gangs, planner, policies
from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.snapshot import Rows
from rainbow.scheduling.sooner import Budget, Trial, limit_of, started_by, with_limit
from rainbow.service.jobs.jobspecs import altered, read_request
from rainbow.service.live_state.matcher_cache import MatcherCache
from rainbow.service.scheduler.changes import sooner
from rainbow.service.scheduler.view import gang_view
from rainbow.state_machine import WorkerState
from tests.conftest import LONG
from tests.support.asking import shared_folder

NOW = 1_000_000.0


class World:
    """A cluster with what runs and what waits, frozen as a step freezes it."""

    def __init__(self, policy, settings, cluster, running=(), waiting=()):
        self.policy, self.placing = policies.get(policy), MatcherCache(cluster, "index")
        self.census = census = ClusterIndex()
        booked = {}
        for run in running:
            for worker, amounts in run["placement"].items():
                booked.setdefault(worker, []).append(amounts)
        for name, capacity in self.placing.capacity.items():
            held = booked.get(name, [])
            free = {kind: n - sum(one.get(kind, 0) for one in held) for kind, n in capacity.items()}
            kind, ready = self.placing.kinds[name], WorkerState.READY
            census.put_worker(WorkerView(name, kind, capacity, free, ready, tasks=len(held)))
        for run in running:
            until = NOW + run["ends_by"] if run["ends_by"] > 0 else 0.0
            census.put_run(RunView(f"{run['job']}-0", run["job"], run["user"], 0, run["placement"], 0.0, until=until))
        self.jobs = {}
        for one in waiting:
            self.put(one["name"], one["user"], one["waited"], parse_jobspec(one["jobspec"]))
        census.gang_of = self.gang_of
        if isinstance(self.policy, Begins):  # as a new cluster begins
            settings = self.policy.begin(settings, {}, [*self.placing.capacity.values()])
        self.view = View(
            NOW,
            self.policy.check(settings),
            Rows(census.workers.values, len(census.workers)),
            Rows(lambda: sorted(census.jobs.values(), key=lambda job: (job.submitted, job.id)), len(census.jobs)),
            Rows(census.runs.values, len(census.runs)),
            self.placing.place,
            self.placing.hosts,
            self.placing.divide,
            consumables=dict(consumables(cluster)),
            units=self.placing.units,
            census=census,
        )
        mirror = SimpleNamespace(census=census, jobs=self.jobs)
        record = SimpleNamespace(policy=policy)
        self.seen = SimpleNamespace(mirror=mirror, record=record, view=self.view, rules=None, placing=self.placing)
        self.plan = planner.plan(self.policy, self.view, None)

    def put(self, name, user, waited, request):
        read = read_request(request)
        own = tuple(gang_view(self.placing, name, gang) for gang in gangs(request))
        system = request.attributes.get("system", {})
        self.census.put_job(JobView(name, user, NOW - waited, own, attributes=system, waiting=len(own)))
        self.jobs[name] = SimpleNamespace(
            read=read, booked=set(), order=[*read.tasks], record=SimpleNamespace(overrides=None)
        )

    def gang_of(self, task):
        job = self.census.jobs.get(task.rpartition("-")[0])
        return next((gang for gang in job.gangs if task in gang.tasks), None) if job else None

    def sooner(self, job):
        return sooner(self.seen, self.plan, job, Budget(seconds=60.0))

    def starts(self, job):
        """Return whether all of a job starts that is shown in place of the one that waits."""
        plan = Trial(self.policy, self.view, None, self.census.jobs[job.id]).replan(job)
        return {task for gang in job.gangs for task in gang.tasks} <= started_by(plan)


def recorded(name):
    world = json.loads((shared_folder() / "inputs" / "whynow" / "worlds" / f"{name}.json").read_text())
    types = {"c": {"type": "cluster"}}
    edges = []
    for n in range(world["nodes"]):
        types |= {f"n{n}": {"type": "node", "name": f"n{n}"}, f"k{n}": {"type": "core", "count": 16}}
        edges += [{"source": "c", "target": f"n{n}"}, {"source": f"n{n}", "target": f"k{n}"}]
        if f"n{n}" in world["gpu_on_nodes"]:
            types[f"g{n}"] = {"type": "gpu", "count": 1}
            edges.append({"source": f"n{n}", "target": f"g{n}"})
    graph = {"nodes": {key: {"metadata": data} for key, data in types.items()}, "edges": edges}
    cluster = read_cluster({"graph": graph}, name="oak")
    return world, World(world["policy"], world["settings"], cluster, world["running"], world["waiting"])


@pytest.mark.parametrize("name", ["load_based-1", "priority-1"])
def test_recorded_worlds_offer_what_starts_and_nothing_else(name, monkeypatch):
    monkeypatch.setenv("RAINBOW_CHECK", "1")
    expected, world = recorded(name)
    stored = [{"for": one.job, "amounts": dict(one.amounts), "until": one.until - NOW} for one in world.plan.kept]
    assert stored == expected["expected"]["kept"]
    for job, answer in expected["expected"]["changes"].items():
        result = world.sooner(job)
        by_kind = {change.kind: change for change in result.changes}
        limit = by_kind["limit"].value if "limit" in by_kind else None
        longest = answer["longest_limit"]
        assert limit == (None if longest is None else longest // 60 * 60), job
        if limit:
            own = world.census.jobs[job]
            assert world.starts(with_limit(own, limit))
            assert not world.starts(with_limit(own, longest + 600))
        most = next((by_kind[kind].value for kind in ("nodes", "slots") if kind in by_kind), None)
        assert (most or 0) >= (answer["nodes_or_slots_that_start"] or 0), job
        without = [change.text for change in result.changes if change.kind == "without"]
        assert without == answer["starts"], job


# ── worlds by chance, and a search of every limit ──

POLICIES = {
    "cores": ("load_based", {"unit": "core"}),
    "workers": ("load_based", {"unit": "worker"}),
    "easy": ("priority", {}),
    "conservative": ("priority", {"discipline": "conservative"}),
    "fair_share": ("fair_share", {}),
}
WORLDS = 200 if LONG else 8


def spec(kind, nodes, cores, gpu, limit):
    within = [{"type": "core", "count": cores}, *([{"type": "gpu", "count": 1}] if gpu else [])]
    slot = within if kind == "core" else [{"type": "node", "count": 1, "with": within}]
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": nodes, "label": "s", "with": slot}],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": limit} if limit else {}},
    }


def by_chance(policy, seed):
    """Return a world with some nodes, of which some have a GPU, a few jobs that run, and some that wait."""
    chance = random.Random(seed)
    nodes = chance.randint(2, 6)
    types, edges = {"c": {"type": "cluster"}}, []
    for n in range(nodes):
        types |= {f"n{n}": {"type": "node", "name": f"n{n}"}, f"k{n}": {"type": "core", "count": 4}}
        edges += [{"source": "c", "target": f"n{n}"}, {"source": f"n{n}", "target": f"k{n}"}]
        if n < 2:
            types[f"g{n}"] = {"type": "gpu", "count": 1}
            edges.append({"source": f"n{n}", "target": f"g{n}"})
    graph = {"nodes": {key: {"metadata": data} for key, data in types.items()}, "edges": edges}
    running = [
        {
            "job": f"r{n}",
            "user": chance.choice("abc"),
            "placement": {f"n{n}": {"core": chance.choice([2, 4])}},
            "ends_by": chance.choice([0, *[60 * chance.randint(2, 90)] * 4]),
        }
        for n in range(nodes)
        if chance.random() < 0.7
    ]
    waiting = []
    for k in range(chance.randint(2, 7)):
        kind = chance.choice(["core", "node"])
        limit = chance.choice([0, 0, 60 * chance.randint(1, 120)])
        one = spec(kind, chance.randint(1, nodes), chance.choice([1, 2, 4]), chance.random() < 0.2, limit)
        waiting.append({"name": f"w{k}", "user": chance.choice("abc"), "waited": 7_000 - 900 * k, "jobspec": one})
    cluster = read_cluster({"graph": graph}, name="oak")
    chosen, settings = POLICIES[policy]
    return World(chosen, settings, cluster, running, waiting)


def order(plan):
    return [(order.task, order.placement) for order in plan.orders if isinstance(order, Start)]


@pytest.mark.parametrize("policy", POLICIES)
def test_in_any_world_what_is_offered_starts_and_no_longer_limit_does(policy, monkeypatch):
    monkeypatch.setenv("RAINBOW_CHECK", "1")
    offers = 0
    for seed in range(WORLDS):
        world = by_chance(policy, seed)
        begun = started_by(world.plan)
        for name, own in list(world.census.jobs.items()):
            if {task for gang in own.gangs for task in gang.tasks} & begun:
                continue
            before = order(planner.plan(world.policy, world.view, None))
            result = world.sooner(name)
            assert order(planner.plan(world.policy, world.view, None)) == before, (seed, name)
            limits = [change.value for change in result.changes if change.kind == "limit"]
            offers += len(result.changes)
            if result.complete:
                every = [60.0 * k for k in range(1, 140) if 60.0 * k < limit_of(own)]
                best = max((s for s in every if world.starts(with_limit(own, s))), default=None)
                assert (limits or [None]) == [best], (seed, name)
            again = by_chance(policy, seed)
            for change in result.changes:
                assert carried_out(again, name, change), (seed, name, change)
    assert offers


def carried_out(world, name, change):
    """Return whether a job starts in a world in which it asks for what was offered."""
    own, read = world.census.jobs[name], world.jobs[name].read
    if change.kind == "limit":
        return world.starts(with_limit(own, change.value))
    read = altered(read, None, **{"without" if change.kind == "without" else "nodes": change.value})
    again = tuple(gang_view(world.placing, name, gang) for gang in read.gangs)
    return world.starts(replace(own, gangs=again, waiting=len(again)))
