"""Shares converge: accounts at 50:30:20 over three clusters under a virtual clock, jobs of mixed sizes."""

from __future__ import annotations

import heapq
import random

import pytest

from rainbow.service.scheduler.step import step
from rainbow.store.accounts import charges
from tests.conftest import ADMIN, grid

SHARES = {"bio": 50, "cfd": 30, "qcd": 20}
LENGTHS = (10.0, 30.0, 60.0, 120.0)
WAITING = 20  # jobs of each account that wait on each cluster while there are any: more make steps no truer
CLUSTERS = {"oak": (2, 8), "elm": (4, 4), "ash": (1, 16)}


def jobspec(cores: int, seconds: float) -> dict:
    slot = {"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": cores}]}
    task = {"command": ["true"], "slot": "s", "count": {"per_slot": 1}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": seconds}}}


class World:
    """Three clusters whose tasks run exactly as long as they ask for."""

    def __init__(self, api, clock, policy) -> None:
        self.api, self.clock, self.ends, self.count = api, clock, [], 0
        more = {"policy": policy} if policy else {}
        self.clusters = [api.register(name, grid(*size), **more) for name, size in CLUSTERS.items()]
        self.seconds: dict[str, float] = {}
        self.accounts: dict[str, str] = {}  # by job
        self.waiting: dict[tuple[str, str], int] = {}  # by cluster and account

    def top_up(self, most: int, chance: random.Random) -> int:
        """Submit so many jobs at most where few of an account wait; return how many."""
        lacking = [
            (account, cluster)
            for cluster in self.clusters
            for account in SHARES
            if (there := self.waiting.get((cluster.name, account), 0)) <= WAITING // 2
            for _ in range(WAITING - there)
        ][:most]
        if lacking:
            self.submit([account for account, _ in lacking], [cluster for _, cluster in lacking], chance)
        return len(lacking)

    def submit(self, accounts: list[str], where: list, chance: random.Random) -> None:
        """Submit a job for each of these accounts to each of these clusters, together."""
        cores, lengths = (chance.choices(values, k=len(accounts)) for values in ((1, 2, 3, 4), LENGTHS))
        jobs = [
            {
                "jobspec": jobspec(*request),
                "requestor": f"of-{account}",
                "clusters": [{"name": cluster.name, "token": cluster.token}],
            }
            for account, cluster, *request in zip(accounts, where, cores, lengths, strict=True)
        ]
        made = self.api.good("POST", "/v1/jobs:batch", {"jobs": jobs}, where[0].token)["answers"]
        for one, account, cluster, seconds in zip(made, accounts, where, lengths, strict=True):
            self.seconds[one["id"]], self.accounts[one["id"]] = seconds, account
            key = cluster.name, account
            self.waiting[key] = self.waiting.get(key, 0) + 1

    def start(self, accounts: dict[str, str]) -> None:
        """Step each cluster and start what its policy assigns."""
        for cluster in self.clusters:
            step(self.api.service, cluster.name)
            offers = cluster.say("receive", max=100)["tasks"]
            if offers:
                named = [{"id": one["id"], "attempt": one["attempt"]} for one in offers]
                cluster.say("accept", tasks=named)
                cluster.say("events", events=[{"task": o["id"], "attempt": 1, "event": "started"} for o in offers])
            for one in offers:
                self.count += 1
                self.waiting[cluster.name, accounts[one["job"]]] -= 1
                heapq.heappush(self.ends, (self.clock.now + self.seconds[one["job"]], self.count, cluster, one))

    def advance(self) -> None:
        """Let everything end that ends next."""
        self.clock.now = self.ends[0][0]
        ended: dict[str, list] = {}
        by_name = {cluster.name: cluster for cluster in self.clusters}
        while self.ends and self.ends[0][0] <= self.clock.now:
            _, _, cluster, one = heapq.heappop(self.ends)
            answer = {
                "task": one["id"],
                "attempt": 1,
                "event": "ended",
                "result": "exited",
                "exit_code": 0,
                "output": "",
            }
            ended.setdefault(cluster.name, []).append(answer)
        for name, events in ended.items():
            by_name[name].say("events", events=events)
        for cluster in self.clusters:
            cluster.say("heartbeat", workers=[f"n{k}" for k in range(CLUSTERS[cluster.name][0])])


def run(api, clock, jobs: int, policy=None) -> tuple[dict[str, float], World]:
    """Submit jobs to all accounts, run them until one has nothing waiting somewhere; return their parts of usage."""
    world, chance = World(api, clock, policy), random.Random(7)
    api.good("PUT", "/v1/accounts/root", {"half_life": 0}, ADMIN)
    for name, shares in SHARES.items():
        api.good("PUT", f"/v1/accounts/{name}", {"shares": shares, "users": {f"of-{name}": {}}}, ADMIN)
    for cluster in world.clusters:
        cluster.say("heartbeat", workers=[f"n{k}" for k in range(CLUSTERS[cluster.name][0])])
    while True:
        jobs -= world.top_up(jobs, chance)
        world.start(world.accounts)
        if not jobs and not all(world.waiting.values()):
            break
        world.advance()
    with api.service.store.read() as connection:
        used = charges.recent(connection, clock.now)
    whole = sum(used.values())
    return {account: amount / whole for (account, _), amount in used.items()}, world


EXPECTED = {name: shares / 100 for name, shares in SHARES.items()}
PRIORITY = {"name": "priority", "settings": {"weights": {"fair_share": 10.0}}}


def test_usage_comes_near_the_shares_while_all_have_work(api, clock):
    parts, _ = run(api, clock, 120)
    assert parts == pytest.approx(EXPECTED, abs=0.1)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(("policy", "jobs"), [(None, 5_000), (PRIORITY, 1_000)], ids=["load_based", "priority"])
def test_usage_is_within_3_percent_of_the_shares_and_none_starves(api, clock, policy, jobs):
    parts, world = run(api, clock, jobs, policy)
    print(parts)
    assert parts == pytest.approx(EXPECTED, abs=0.03)
    while world.ends:
        world.advance()
        world.start(world.accounts)
    assert not any(world.waiting.values())
