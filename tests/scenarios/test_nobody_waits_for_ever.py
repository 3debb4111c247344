"""With the host and a moved clock: no job that fits waits for ever, whatever others submit.

Jobs without limits among them; others always wait. One service for all examples, a cluster for each.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import grid

CLASSES = {"classes": {"a": 30, "b": 70}, "default_class": "b", "requestors": [{"match": "ann", "class": "a"}]}
AS_IT_COMES = [("load_based", {}), ("load_based", CLASSES), ("load_based", {**CLASSES, "unit": "core"})]
PATIENCE = 600.0


def asked(nodes, cores, seconds):
    """One gang of so many nodes, or of cores on one; 0 seconds: without a limit."""
    inside = {"type": "node", "count": 1, "with": [{"type": "core", "count": cores}]}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": nodes, "label": "s", "with": [inside]}],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": seconds} if seconds else {}},
    }


class Flood:
    """A cluster on which others always wait; every task ends after a while."""

    def __init__(self, api, clock, name, policy, rng):
        self.api, self.clock, self.rng = api, clock, rng
        self.nodes = rng.randint(2, 5)
        body = {"policy": {"name": policy[0], "settings": policy[1]}}
        self.site = api.register(name, grid(self.nodes, 2), **body)
        self.ends, self.started, self.waiting = {}, set(), set()

    def submit(self, requestor, nodes, cores, seconds):
        body = {"jobspec": asked(nodes, cores, seconds), "requestor": requestor}
        return self.api.good("POST", "/v1/jobs", body, self.site.token)["id"]

    def step(self, seconds=40.0):
        """Let others submit, the clock go on, and what is over end."""
        while len(self.waiting) < 2 * self.nodes:
            limit = self.rng.choice([0, 30, 90])
            self.waiting.add(self.submit(self.rng.choice(["ann", "bob"]), 1, self.rng.randint(1, 2), limit))
        self.site.say("heartbeat", running=[])
        for offer in self.site.take():
            self.waiting.discard(offer["job"])
            self.started.add(offer["job"])
            self.site.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
            self.ends[offer["id"]] = self.clock.now + self.rng.uniform(5.0, 30.0), offer
        self.clock.now += seconds
        for task, (end, offer) in list(self.ends.items()):
            if end <= self.clock.now and self.rng.random() < 0.7:
                del self.ends[task]
                self.site.end(offer)


NAMED = zip(AS_IT_COMES, ["load_based", "classes", "cores"], strict=True)
LONG = {"classes", "load_based"}  # the same gangs under other settings


@pytest.mark.parametrize(
    "policy",
    [pytest.param(policy, id=name, marks=[pytest.mark.soak] if name in LONG else []) for policy, name in NAMED],
)
def test_no_gang_waits_for_ever_while_others_always_wait(api, clock, policy):
    @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 10**6))
    def run(seed):
        flood = Flood(api, clock, f"c{seed}-{len(api.service.catalogue)}", policy, random.Random(seed))
        for _ in range(4):
            flood.step()
        mine = {flood.submit(who, n, 2, 0) for who, n in (("ann", flood.nodes), ("bob", flood.nodes), ("ann", 2))}
        rounds = 0
        while not mine <= flood.started:
            flood.step()
            rounds += 1
            assert rounds * 40.0 < 3 * PATIENCE + 1_200, [
                flood.api.good("GET", f"/v1/jobs/{job}/why", None, flood.site.token)["wait"] for job in mine
            ]

    run()
