"""Whatever comes to a cluster under fair_share, in any order: no step fails, and every job ends in the end."""

import random

import pytest

from rainbow.service.scheduler.loop import step_safely
from tests.conftest import Api, Clock, grid, open_service_at
from tests.support.growing import FAIR, FIXED, Site, bag, elastic, settings

DOUBLING = {"policy": "FAIR_SHARE", "default": True}
RESERVE = {"policy": "RESERVE", "default": True}
EVENTS = 50
ROUNDS = 300  # by then everything has ended


class Chaos:
    """A small cluster to which things happen by chance."""

    def __init__(self, folder, seed):
        self.chance, self.clock = random.Random(seed), Clock()
        self.api = Api(open_service_at(folder, self.clock))
        self.nodes = self.chance.choice([2, 4])
        classes = {"fair": self.chance.choice([FAIR, DOUBLING]), "fixed": FIXED, "whole": RESERVE}
        policy = {"name": "fair_share", "settings": settings(classes=classes)}
        self.there = Site(self.api, self.api.register("one", grid(self.nodes, 4), policy=policy))
        self.jobs, self.away = [], set()

    def run(self):
        """Let things happen, then let everything end; return what has not ended."""
        happenings = [self.submit] * 4 + [self.end] * 4 + [self.step] * 8 + [self.there.confirm] * 2
        happenings += [self.vary, self.cancel, self.pass_time]
        for _ in range(EVENTS):
            self.chance.choice(happenings)()
        for worker in sorted(self.away):
            self.tell(worker, "reinstate")
        self.beat()
        for _ in range(ROUNDS):
            if not self.left():
                break
            self.finish()
        self.api.service.close()
        return self.left()

    def left(self):
        return [job for job in self.jobs if self.there.job(job)["ended_at"] is None]

    def finish(self):
        """Let a few tasks end well; services end when they are canceled."""
        self.step()
        self.there.start()
        self.there.confirm()
        for run in sorted(self.there.runs)[:4]:
            self.there.end(run)
        for job in self.left():
            if self.there.job(job)["name"] == "service":
                self.api.good("DELETE", f"/v1/jobs/{job}", None, self.there.cluster.token)

    # ── what happens ──

    def submit(self):
        least, kind = (
            self.chance.randint(1, 4),
            self.chance.choice(["elastic"] * 3 + ["bag", "service", "whole", "wide"]),
        )
        machine = bag(1, **{"class": "whole"})
        machine["resources"][0]["with"][0]["count"] = 4
        slot = {"type": "node", "replicas": 2, "with": [{"type": "core", "count": 2}]}
        specs = {
            "elastic": elastic(least, least + self.chance.randint(0, 12)),
            "bag": bag(least),
            "service": bag(2, service=self.chance.choice([True, "web"])),
            "whole": machine,
            "wide": {"resources": {"w": slot}, "tasks": [{"command": ["true"], "resources": "w"}]},
        }
        self.jobs.append(self.there.submit(self.chance.choice(["ann", "bob", "eve"]), specs[kind], name=kind))

    def end(self):
        if self.there.runs:
            self.there.end(self.chance.choice(sorted(self.there.runs)), code=self.chance.choice([0, 0, 0, 1]))

    def step(self):
        service = self.api.service
        step_safely(service, "one")
        assert service.faults == {}
        if self.chance.random() < 0.9:
            self.there.start()

    def vary(self):
        worker = f"n{self.chance.randrange(self.nodes)}"
        self.tell(worker, "reinstate" if worker in self.away else "offline")
        self.away ^= {worker}

    def tell(self, worker, verb):
        self.api.good("POST", f"/v1/clusters/one/workers/{worker}:{verb}", None, self.there.cluster.secret)

    def cancel(self):
        if self.jobs:
            self.api.call("DELETE", f"/v1/jobs/{self.chance.choice(self.jobs)}", None, self.there.cluster.token)

    def pass_time(self):
        self.clock.now += self.chance.choice([5, 30, 70])  # 70: longer than a lease
        self.beat()

    def beat(self):
        running = [{"id": task, "attempt": attempt} for task, attempt in self.there.runs]
        stale = set(self.there.cluster.say("heartbeat", running=running)["stale"])
        self.there.runs = {run: job for run, job in self.there.runs.items() if run[0] not in stale}


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_no_step_fails_and_all_work_ends(tmp_path, seed):
    assert Chaos(tmp_path, seed).run() == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 100))
def test_many_times_whatever_happens_no_step_fails_and_all_work_ends(tmp_path, seed):
    assert Chaos(tmp_path, seed).run() == []
