"""The siege: one owner, user, policy or kill against a real server, and what clients notice beside it (`make soak`).

Other attacks have campaigns of their own: connections (test_strangers.py), waiting agents (test_crowd.py), fencing
(test_fencing.py), poison (test_poison.py), jobs of 100,000 tasks (test_soak.py). The short forms are named in
docs/reliability.md.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rainbow.client import Client, Problem
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_soak import Others
from tests.scenarios.test_two_processes import SPEC, Processes
from tests.service.core.test_regex import SLOW_BEFORE
from tests.support.ports import free_port
from tests.unit.api.test_api_server import server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
SECONDS = float(os.environ.get("RAINBOW_SIEGE_SECONDS", "20"))
HANGS = """
from rainbow.scheduling import policies

class Hangs(type(policies.get("load_based"))):
    def plan(self, view):
        while True:
            pass
"""


class Town:
    """A server, and a cluster oak with an agent that beats."""

    def __init__(self, port: int, parent: int) -> None:
        self.url, self.parent = f"http://127.0.0.1:{port}", parent
        self.oak = self.register("oak")
        self.beating = {"oak": self.oak["secret"]}
        threading.Thread(target=self._beat, daemon=True).start()

    def register(self, name: str, graph: Any = None, **more: Any) -> dict[str, Any]:
        return Client(self.url, REGISTRATION).register_cluster(name, graph or grid(8, 2), **more)

    def _beat(self) -> None:
        while True:
            for name, secret in list(self.beating.items()):
                try:
                    Client(self.url, secret).heartbeat(name, "a")
                except Exception:
                    break
            time.sleep(1)

    def longest(self, attack: Callable[[], object], threads: int = 1, seconds: float = SECONDS) -> tuple[float, ...]:
        """Return the median submit alone, and the median and the longest beside an attack that is repeated."""
        with Others(self.url, self.oak["token"]) as alone:
            time.sleep(3)
        over = threading.Event()

        def repeat() -> None:
            while not over.is_set():
                attack()

        attackers = [threading.Thread(target=repeat, daemon=True) for _ in range(threads)]
        for each in attackers:
            each.start()
        with Others(self.url, self.oak["token"]) as beside:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                began = time.monotonic()
                assert httpx.get(f"{self.url}/livez", timeout=5).status_code == 200
                assert time.monotonic() - began < 2
                time.sleep(0.5)
        over.set()
        for each in attackers:
            each.join(60)
        times = sorted(beside.times)
        return sorted(alone.times)[len(alone.times) // 2], times[len(times) // 2], times[-1]


@contextmanager
def town(folder: Path, config: str = "{}\n") -> Iterator[Town]:
    port = free_port()
    with server(folder, port, config) as process:
        yield Town(port, process.pid)


def told(what: str, alone: float, median: float, longest: float) -> None:
    print(f"\n{what}: submits beside it {median * 1e3:.0f} ms (alone {alone * 1e3:.0f}), longest {longest:.2f} s")


def test_expressions_that_took_for_ever_stop_nobody(tmp_path: Path) -> None:
    with town(tmp_path) as here:
        elm = here.register("elm")
        here.beating["elm"] = elm["secret"]
        owner, user, turn = Client(here.url, elm["secret"]), Client(here.url, elm["token"]), count()

        def attack() -> None:
            match = SLOW_BEFORE[next(turn) % len(SLOW_BEFORE)]
            owner.set_scheduler("elm", {"settings": {"requestors": [{"match": match, "class": "default"}]}})
            user.submit(SPEC, requestor="a" * 200)

        figures = here.longest(attack)
        assert owner.scheduler("elm")["fault"] is None
    told("expressions", *figures)
    assert figures[2] < 1.0


def test_policies_that_never_return_stop_their_own_clusters_alone(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    info = tmp_path / "hangs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hangs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rainbow.policies]\nhangs = hangs:Hangs\n")
    with town(tmp_path, "scheduler: {step_seconds: 1}\n") as here:
        hung = {name: here.register(name, policy={"name": "hangs"}) for name in ("elm", "fir", "yew")}
        for name, made in hung.items():
            here.beating[name] = made["secret"]
            Client(here.url, made["token"]).submit(SPEC)
        agent = Client(here.url, here.oak["secret"])
        figures = here.longest(lambda: time.sleep(1))
        until(lambda: bool(agent.receive("oak", "a", wait=1)["tasks"]), seconds=30)
        for name, made in hung.items():
            until(lambda n=name, m=made: "has not come back" in str(Client(here.url, m["secret"]).scheduler(n)), 30)
    told("three policies that compute for ever", *figures)
    assert figures[2] < 2.0


def test_a_billion_processes_are_refused_each_time(tmp_path: Path) -> None:
    slot = [{"type": "slot", "label": "s", "count": 1, "with": [{"type": "core", "count": 1}]}]
    tasks = [{"command": ["true"], "slot": "s", "count": {"total": 10**9}}]
    bomb = {"version": 1, "resources": slot, "tasks": tasks, "attributes": {"system": {"duration": 60}}}
    with town(tmp_path) as here:
        user = Client(here.url, here.oak["token"])

        def attack() -> None:
            with pytest.raises(Problem, match="1,000,000,000 processes"):
                user.submit(bomb)

        figures = here.longest(attack)
    told("billions of processes", *figures)
    assert figures[2] < 1.0


def test_a_lost_cluster_with_thousands_of_jobs_keeps_nobody_waiting(tmp_path: Path) -> None:
    with town(tmp_path, "scheduler: {lease: 6, grace: 1}\n") as here:
        elm = here.register("elm")
        here.beating["elm"] = elm["secret"]
        time.sleep(2)
        user = Client(here.url, [here.oak["token"], elm["token"]], timeout=120)
        jobs = {one["id"] for _ in range(50) for one in user.submit_batch([{"jobspec": SPEC}] * 100)["answers"]}
        there = {job["id"] for job in user.all_jobs(cluster="elm")}
        del here.beating["elm"]
        figures = here.longest(lambda: time.sleep(1), seconds=max(SECONDS, 30))
        remaining = {job["id"] for job in user.all_jobs(cluster="elm")}
        assert remaining < there  # they go a few at a time, for minutes
        assert {job["id"] for job in user.all_jobs()} >= jobs
    told(f"a lost cluster with {len(there):,} jobs, {len(there - remaining):,} moved", *figures)
    assert figures[2] < 1.0


def test_hard_searches_of_one_user_leave_others_their_turn(tmp_path: Path) -> None:
    nodes: dict[str, Any] = {"c": {"metadata": {"type": "cluster"}}}
    edges = []
    for k in range(20):
        for kind, above, size in (("node", "c", 1), ("core", f"node{k}", 600), ("memory", f"node{k}", 100 + k)):
            nodes[f"{kind}{k}"] = {"metadata": {"type": kind, "size": size}}
            edges.append({"source": above, "target": f"{kind}{k}"})
    sizes = count(17)

    def attack() -> None:
        resources = [
            {"type": "slot", "label": f"s{k}", "count": 1, "with": [{"type": "core", "count": 17 + next(sizes) % 83}]}
            for k in range(200)
        ]
        tasks = [{"command": ["true"], "slot": f"s{k}", "count": {"per_slot": 1}} for k in range(200)]
        hard = {"version": 1, "resources": resources, "tasks": tasks, "attributes": {"system": {"duration": 60}}}
        user.match(hard)

    with town(tmp_path) as here:
        user = Client(
            here.url, here.register("elm", {"graph": {"nodes": nodes, "edges": edges}})["token"], timeout=60
        )
        figures = here.longest(attack, threads=4)
    told("four hard searches", *figures)
    assert figures[1] < max(0.1, 5 * figures[0])


def test_a_worker_that_is_killed_at_any_moment_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with town(tmp_path) as here:
        stored: list[str] = []
        over, keys = threading.Event(), count()

        def submit() -> None:
            user = Client(here.url, here.oak["token"], timeout=20, tries=20)
            while not over.is_set():
                stored.append(user.submit(SPEC, idempotency_key=f"{threading.get_ident()}-{next(keys)}")["id"])

        users = [threading.Thread(target=submit) for _ in range(4)]
        for each in users:
            each.start()
        kills, end, chance = 0, time.monotonic() + 2 * SECONDS, random.Random(1)
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 4))
            for one in psutil.Process(here.parent).children():
                one.kill()
                kills += 1
        over.set()
        for each in users:
            each.join(120)
            assert not each.is_alive()
        assert sorted(stored) == sorted(job["id"] for job in Client(here.url, ADMIN).all_jobs())
    print(f"\n{kills} kills of the worker: {len(stored):,} submits, none lost, none doubled")
    assert kills >= 3


def test_a_graph_that_another_server_replaces_is_never_matched_again(tmp_path: Path, postgres_server: Any) -> None:
    """One server replaces nodes of two cores by nodes of four and back, the other is asked for four cores."""
    slot = {"type": "node", "replicas": 1, "with": [{"type": "core", "count": 4}]}
    wide = {"resources": {"w": slot}, "tasks": [{"command": ["true"], "resources": "w"}]}
    processes = Processes(tmp_path, postgres_server.new_database())
    try:
        here, there = processes.serve(), processes.serve()
        for url in (here, there):
            until(Client(url, tries=1).ready)
        oak = Client(here, REGISTRATION).register_cluster("oak", grid(2, 4))
        owner, user = Client(here, oak["secret"]), Client(there, oak["token"])
        until(lambda: user.submit(wide)["cluster"] == "oak", 20)
        accepted = refused = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for cores in (2, 4):
                owner.put_graph("oak", grid(2, cores))
                for _ in range(3):
                    if cores == 4:
                        accepted += user.submit(wide)["cluster"] == "oak"
                        continue
                    with pytest.raises(Problem, match="no eligible cluster can run this job"):
                        user.submit(wide)
                    refused += 1
    finally:
        processes.end()
    print(
        f"\ngraphs replaced by another server: {accepted} jobs accepted, {refused} refused, all by the graph in force"
    )
    assert accepted
    assert refused
