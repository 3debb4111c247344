"""What starts beside others has cores, sockets and devices that nobody else holds, under every policy."""

import copy
import random

import pytest
import yaml

from rainbow.service.live_state.mirror import Mirrors, mirrored
from rainbow.service.scheduler.step import step
from rainbow.testing import backends as shapes
from tests.support.jobspecs import ROOT

KNOWN = yaml.load((ROOT / "tests/cases/scheduler/occupied.yaml").read_text(), yaml.CSafeLoader)["cases"]
POLICIES = {
    "load_based": {"name": "load_based", "settings": {"unit": "core"}},
    "fair_share": {
        "name": "fair_share",
        "settings": {
            "quantum": {"type": "core", "amount": 1},
            "classes": {"fixed": {"policy": "FIXED_SHARE", "default": True}},
        },
    },
    "priority": {"name": "priority"},
}


def asking(job):
    """A jobspec of one task in some slots, or over a group."""
    if "group" in job:
        tasks = [{"command": ["true"], "resources": "it"}]
        return {"version": 1, "resources": {"it": job["group"]}, "tasks": tasks}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": job.get("slots", 1), "label": "it", "with": [job["asks"]]}],
        "tasks": [{"command": ["true"], "slot": "it", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0}},
    }


def site(api, case, policy):
    hung = {"subsystems": shapes.subsystems(case["hung"])} if "hung" in case else {}
    there = api.register("oak", shapes.document(case["shape"]), policy=POLICIES[policy], **hung)
    there.say("heartbeat", running=[])
    return there


def submit(api, there, job):
    return api.good("POST", "/v1/jobs", {"jobspec": asking(job), "requestor": "ann"}, there.token)["id"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["name"])
def test_starts_where_it_fits_and_says_why_it_does_not(api, case, policy):
    there = site(api, case, policy)
    for job in case["jobs"]:
        answer = submit(api, there, job)
        offers = {offer["job"]: offer["placement"] for offer in there.take()}
        if "holds" in job:
            assert offers == {answer: job["holds"]}
        else:
            assert offers == {}
            wait = api.good("GET", f"/v1/jobs/{answer}/why", None, there.token)["wait"]
            assert job["waits"] in wait["text"]
            assert wait["facts"]["fragmented"]["worker"] == "node0"


ASKED = [
    {"asks": {"type": "core", "count": 1}},
    {"asks": {"type": "core", "count": 3}, "slots": 2},
    {"asks": {"type": "socket", "with": [{"type": "core", "count": 2}]}},
    {"asks": {"type": "socket", "exclusive": True, "with": [{"type": "core", "count": 1}]}},
    {"asks": {"type": "socket", "count": 2, "with": [{"type": "gpu"}]}},
    {"asks": {"type": "node", "with": [{"type": "memory", "count": 5}]}},
    {"asks": {"type": "node"}},
]


class Site:
    """A cluster on which things happen by chance; every step checks what is kept against what is stored."""

    def __init__(self, api, seed):
        self.api, self.chance, self.running = api, random.Random(seed), {}
        self.graph = shapes.document("cluster(node*3(socket*2(core*4 gpu memory:16)))")
        self.there = api.register("oak", self.graph, policy=POLICIES["load_based"])

    def happen(self):
        """Let one thing happen, then step."""
        others = [self.policy, self.restart, self.core, self.away]
        self.chance.choice([self.ask, self.ask, self.end, self.end, *others])()
        self.there.say("heartbeat", running=[{"id": o["id"], "attempt": o["attempt"]} for o in self.running.values()])
        for offer in self.there.take():
            self.running[offer["id"]] = offer

    def ask(self):
        submit(self.api, self.there, self.chance.choice(ASKED))

    def end(self):
        if self.running:
            self.there.end(self.running.pop(self.chance.choice(sorted(self.running))))

    def policy(self):
        policy = POLICIES[self.chance.choice(sorted(POLICIES))]
        answer = {"policy": policy["name"], "settings": policy.get("settings", {})}
        self.api.good("PUT", "/v1/clusters/oak/scheduler", answer, self.there.secret)

    def restart(self):
        """Forget what is kept, as a process that begins anew."""
        self.api.service.state(Mirrors).clear()

    def core(self):
        """Take a core out of the graph, or put back what was there at first."""
        graph, gone = copy.deepcopy(self.graph), f"core{self.chance.randrange(24)}"
        if self.chance.random() < 0.6:
            del graph["graph"]["nodes"][gone]
            graph["graph"]["edges"] = [edge for edge in graph["graph"]["edges"] if edge["target"] != gone]
        self.api.good("PUT", "/v1/clusters/oak/graph", graph, self.there.secret)

    def away(self):
        """Drain a worker, or bring it back."""
        worker, verb = f"node{self.chance.randrange(3)}", self.chance.choice(["drain", "reinstate"])
        self.api.call("POST", f"/v1/clusters/oak/workers/{worker}:{verb}", {}, self.there.secret)

    def finish(self):
        """Let all that runs end; then nothing is held."""
        while self.running:
            self.end()
        step(self.api.service, "oak")
        with mirrored(self.api.service, self.api.service.catalogue["oak"]) as mirror:
            mirror.occupancy.end()
            assert mirror.occupancy.held.keys() == mirror.booked.keys()


@pytest.mark.parametrize("seed", range(3))
def test_no_vertex_is_held_twice_whatever_happens_and_rebuilt_is_kept(api, seed):
    site = Site(api, seed)
    for _ in range(40):
        site.happen()
    site.finish()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
def test_no_vertex_is_held_twice_for_long(api, seed):
    site = Site(api, seed)
    for _ in range(300):
        site.happen()
    site.finish()
