"""S1 to S9 of the host as a machine: jobs come, workers come and go, the server is killed, in any order.

S1  a worker holds one gang or is idle, never neither      S5  stopping twice blocks nobody
S8  waiting, running and ended tasks are all tasks         S9  what completed never runs again, what is lost does

Beyond these: shared workers hold no more than they have; a task that depends on another never runs before its time;
a job that moves to another cluster is never taken by the one it has left.
"""

import os
import tempfile
from itertools import count as numbered
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rainbow.service.core.memory import SHARED
from rainbow.service.jobs import jobspecs
from rainbow.service.live_state.mirror import Mirrors
from rainbow.service.placement import submit as placement_submit
from rainbow.service.scheduler.loop import step_safely
from rainbow.state_machine import BOOKED, ENDED, TaskState, WorkerState
from rainbow.store import tasks, workers
from tests.conftest import ADMIN, WHOLE_WORKERS, Api, Clock, grid, open_service_at, snapshot

NODES = [f"n{k}" for k in range(4)]
CORES = 2
SETTINGS = {
    "classes": {"a": 50, "b": 49, "c": 1},
    "default_class": "c",
    "requestors": [{"match": "ann", "class": "a"}, {"match": "bob", "class": "b"}],
    "rebalance_threshold": 10,
    "rebalance_minimum_duration": 1,
}


def bag(count, retries):
    """A jobspec of independent tasks of one node each."""
    slot = {"type": "node", "replicas": 1, "with": [{"type": "core", "count": 1}]}
    entries = [{"name": f"t{k}", "command": ["true"], "resources": "work"} for k in range(count)]
    return {"resources": {"work": slot}, "tasks": entries, "attributes": {"system": {"max_retries": retries}}}


def counted(frozen):
    """All that a policy may ask of a view and its census, and of what the host keeps beside them."""
    view, census, mirror = frozen.view, frozen.view.census, frozen.mirror
    named = [(job.id, [gang.tasks for gang in job.gangs], job.tasks, job.running) for job in view.jobs]
    groups = [census.kinds, census.idle, census.queues, *census.rooms.values()]
    ranked = [{key: one.items() for key, one in group.items()} for group in groups]
    amounts = [{k: n for k, n in c.items() if n} for c in (census.capacity, census.free, mirror.agents)]
    numbers = [
        census.ready,
        census.stopping,
        census.held,
        census.mixed,
        census.gangs,
        census.waiting,
        view.consumables,
    ]
    stored = [
        mirror.blocked,
        mirror.waiting,
        mirror.workers,
        mirror.doomed,
    ]
    return [named, list(view.runs), list(view.workers), census.everyone(), ranked, amounts, numbers, stored]


class Host(RuleBasedStateMachine):
    """A server over one file, and an agent that does as it is told, late and more than once."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        # ids by number: the cluster a job is sent to is drawn from its id, and a run must be repeatable
        numbers, self.new_id = numbered(1), placement_submit.new_id
        placement_submit.new_id = lambda: f"{next(numbers):024x}"
        next(one for one in SHARED if isinstance(one, jobspecs.ByJob)).clear()
        self.clock = Clock()
        self.service = open_service_at(Path(self.folder.name), self.clock)
        self.api = Api(self.service)
        self.oak = self.api.register("oak", grid(len(NODES), CORES), policy=WHOLE_WORKERS)
        self.elm = self.api.register("elm", grid(1, CORES))  # where jobs may go when oak is away; it only accepts
        self.shared = False  # whether oak's workers have ever been shared
        self.after = {}  # job → the jobs it waits for, by scheme
        self.elms = set()  # tasks elm's agent has accepted
        self.api.good("PATCH", "/v1/clusters/oak/scheduler", {"settings": SETTINGS}, self.oak.secret)
        self.up = set(NODES)
        self.held = {}  # task → attempt, as the agent knows it
        self.told = []  # ends that were reported, to be reported again
        self.jobs = {}  # id → number of tasks
        self.completed = set()
        self.heartbeat()

    def teardown(self):
        """Whatever happened: with all workers up, every job comes to its end."""
        self.up = set(NODES)
        for node in NODES:
            self.operator_speaks(node, "reinstate")
        for _ in range(10 + 6 * sum(self.jobs.values())):
            self.clock.now += 1  # what was lost rests for some seconds
            self.heartbeat()
            self.elm_works()
            self.step()
            self.accept()
            for task in list(self.held):
                self.end(task, "exited", 0)
            if all(task.state in ENDED for task in self.all()):
                break
        placement_submit.new_id = self.new_id
        remaining = [task for task in self.all() if task.state not in ENDED]
        self.service.close()
        self.folder.cleanup()
        assert remaining == []

    def all(self):
        """Return every task there is."""
        with self.service.store.read() as connection:
            return [task for job in self.jobs for task in tasks.of_job(connection, job)]

    # ── what happens ──

    @rule(requestor=st.sampled_from(["ann", "bob", "eve"]), count=st.integers(1, 4), retries=st.integers(0, 1))
    def submit(self, requestor, count, retries):
        body = {"jobspec": bag(count, retries), "requestor": requestor}
        self.jobs[self.api.good("POST", "/v1/jobs", body, self.oak.token)["id"]] = count

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), scheme=st.sampled_from(["after", "afterany", "afterok", "afternotok"]))
    def submit_dependent(self, data, scheme):
        other = data.draw(st.sampled_from(sorted(self.jobs)))
        spec = bag(1, 0)
        spec["attributes"]["system"]["dependencies"] = [{"scheme": scheme, "value": other}]
        job = self.api.good("POST", "/v1/jobs", {"jobspec": spec}, self.oak.token, self.elm.token)["id"]
        self.jobs[job], self.after[job] = 1, (scheme, other)

    @rule(count=st.integers(1, 5))
    def submit_where_it_may_move(self, count):
        slot = {"type": "slot", "count": count, "label": "w", "with": [{"type": "core", "count": 1}]}
        task = {"command": ["true"], "slot": "w", "count": {"per_slot": 1}}
        spec = {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"scatter": True}}}
        body = {"jobspec": spec, "requestor": "ann"}
        self.jobs[self.api.good("POST", "/v1/jobs", body, self.oak.token, self.elm.token)["id"]] = count

    @rule(unit=st.sampled_from(["worker", "core"]))
    def operator_changes_the_unit(self, unit):
        self.api.good("PATCH", "/v1/clusters/oak/scheduler", {"settings": {"unit": unit}}, self.oak.secret)
        self.shared = self.shared or unit == "core"

    @rule()
    def elm_works(self):
        self.elm.say("heartbeat", running=[])
        for offer in self.elm.take():
            assert offer["id"] not in self.held
            self.check_its_time(offer["job"])
            self.elms.add(offer["id"])
            self.elm.end(offer)
            self.completed.add(offer["id"])

    @rule()
    def step(self):
        step_safely(self.service, "oak")
        assert self.service.faults == {}

    @rule()
    def heartbeat(self):
        running = [{"id": task, "attempt": attempt} for task, attempt in self.held.items()]
        answer = self.oak.say("heartbeat", workers=sorted(self.up), running=running)
        self.held = {task: attempt for task, attempt in self.held.items() if task not in answer["stale"]}
        for stop in answer["stop"]:
            if stop["id"] in self.held:
                self.end(stop["id"], "stopped", None)

    @rule()
    def accept(self):
        offers = self.oak.say("receive", max=10)["tasks"]
        requirements = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
        accepted = set(self.oak.say("accept", tasks=requirements)["accepted"])
        for offer in offers:
            if offer["id"] in accepted:
                assert offer["id"] not in self.completed | self.elms
                self.check_its_time(offer["job"])
                self.held[offer["id"]] = offer["attempt"]

    def check_its_time(self, job):
        """What a job waits for has come before it starts; `after` may have ended since."""
        scheme, other = self.after.get(job, ("", ""))
        requirements = {"afterok": {"COMPLETED"}, "afternotok": {"FAILED", "CANCELED"}}
        requirements["afterany"] = {"COMPLETED", "FAILED", "CANCELED"}
        if scheme in requirements:
            assert self.api.good("GET", f"/v1/jobs/{other}", None, ADMIN)["state"] in requirements[scheme]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from([("exited", 0), ("exited", 0), ("exited", 1), ("failed", None)]))
    def some_end(self, data, how):
        self.end(data.draw(st.sampled_from(sorted(self.held))), *how)

    def end(self, task, result, code):
        event = {"task": task, "attempt": self.held.pop(task), "event": "ended", "result": result, "exit_code": code}
        recorded = self.oak.say("events", events=[event])["recorded"]
        self.told.append(event)
        if recorded and (result, code) == ("exited", 0):
            self.completed.add(task)

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def end_is_told_again(self, data):
        self.oak.say("events", events=[data.draw(st.sampled_from(self.told))])

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data):
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        assert self.api.call("DELETE", f"/v1/jobs/{job}", None, ADMIN).status_code in (200, 409)

    @rule(node=st.sampled_from(NODES))
    def worker_goes_or_comes_back(self, node):
        self.up ^= {node}
        self.heartbeat()

    @rule(node=st.sampled_from(NODES), verb=st.sampled_from(["offline", "drain", "reinstate"]))
    def operator_speaks(self, node, verb):
        answer = self.api.call("POST", f"/v1/clusters/oak/workers/{node}:{verb}", None, self.oak.secret)
        assert answer.status_code in (200, 409)

    @rule(seconds=st.sampled_from([1, 30, 59, 61, 90]))
    def time_passes(self, seconds):
        self.clock.now += seconds

    @rule()
    def server_is_killed_and_starts_again(self):
        self.service = open_service_at(Path(self.folder.name), self.clock)
        self.api.service, self.api.app = self.service, Api(self.service).app

    # ── what holds ──

    @invariant()
    def a_worker_holds_one_gang_or_is_idle(self):
        frozen = snapshot(self.service, "oak")
        with self.service.store.read() as connection:
            booked = tasks.of_cluster(connection, self.service.catalogue["oak"].id, BOOKED)
        held = [worker for task in booked for worker in task.placement]
        assert len(held) == len(booked)
        assert self.shared or len(held) == len(set(held))
        assert all(0 <= w.free["core"] <= CORES for w in frozen.view.workers)
        assert {w.id for w in frozen.view.workers if w.tasks} == set(held)
        assert {w.id for w in frozen.view.workers if w.tasks == 0} == set(NODES) - set(held)
        assert sorted(run.task for run in frozen.view.runs) == sorted(task.id for task in booked)

    @invariant()
    def all_tasks_are_somewhere(self):
        result = self.all()
        assert len(result) == sum(self.jobs.values())
        assert not {task.id for task in result if task.id in self.held and task.id in self.elms}
        assert all((task.state in BOOKED) == bool(task.placement) for task in result if task.state not in ENDED)
        assert all(task.retries_left >= 0 for task in result)

    @invariant()
    def what_completed_stays_so(self):
        assert {task.id for task in self.all() if task.state is TaskState.COMPLETED} >= self.completed

    @invariant()
    def the_mirror_says_what_the_store_says(self):
        """What was followed change by change is what one reads who begins anew."""
        entry = self.service.catalogue["oak"]
        stored = snapshot(self.service, "oak")
        mirrors = self.service.state(Mirrors)
        known = mirrors.pop(entry.id)
        fresh = snapshot(self.service, "oak")
        for was, now in zip(counted(stored), counted(fresh), strict=True):
            assert was == now
        mirrors[entry.id] = known

    @invariant()
    def nothing_new_starts_on_what_is_not_ready(self):
        with self.service.store.read() as connection:
            states = workers.of_cluster(connection, self.service.catalogue["oak"].id)
        view = snapshot(self.service, "oak").view
        assert {w.id: w.state for w in view.workers} == {name: record.state for name, record in states.items()}
        assert WorkerState.QUARANTINED not in {record.state for record in states.values()}


SOAK = bool(os.environ.get("RAINBOW_SOAK"))
TestHost = Host.TestCase
TestHost.settings = settings(max_examples=200 if SOAK else 6, stateful_step_count=60 if SOAK else 25, deadline=None)
