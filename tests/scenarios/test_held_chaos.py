"""What is held through everything at once: a real server, killed at random, under every policy switched live.

The server runs with RAINBOW_CHECK=1, so that each of its steps compares what it keeps with what is stored; from
outside no vertex is held by two tasks at a time, and in the end every task has ended.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client, Problem
from rainbow.errors import RainbowError
from rainbow.jobspec.hostlist import expand_hosts
from rainbow.testing import backends as shapes
from tests.conftest import REGISTRATION
from tests.scenarios.test_end_to_end import Processes, processes, until
from tests.service.scheduler.test_service_located import ASKED, asking
from tests.support.growing import elastic, settings
from tests.support.ports import free_port

__all__ = ["processes"]  # a fixture
SECONDS = float(os.environ.get("RAINBOW_SOAK_SECONDS", "600"))
BOOKED = ("ASSIGNED", "ACCEPTED", "RUNNING", "SUSPENDED", "STOPPING")
POLICIES: list[dict[str, Any]] = [
    {"policy": "load_based", "settings": {"unit": "core"}},
    {"policy": "load_based", "settings": {"unit": "worker"}},
    {"policy": "fair_share", "settings": settings()},
    {"policy": "priority"},
]


def gang(cores: int) -> dict[str, Any]:
    """Two tasks that start together, each with cores of one socket."""
    socket = {"type": "socket", "with": [{"type": "core", "count": cores}]}
    slot = {"type": "slot", "count": 2, "label": "w", "with": [socket]}
    tasks = [{"command": [name], "slot": "w", "count": {"per_slot": 1}} for name in ("a", "b")]
    return {"version": 1, "resources": [slot], "tasks": tasks, "attributes": {"system": {"duration": 60}}}


def vertices(held: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield (worker, path) of all that a task holds whole; amounts and what floats are counted by the server."""
    for worker, paths in held.items():
        yield from (
            (worker, one)
            for path in paths
            if not re.search("[:~]", path)
            for one in expand_hosts(path, 1_000) or [""]
        )


class Site:
    """A server, its cluster, and the agent of it; what happens is drawn by chance."""

    def __init__(self, processes: Processes, seed: int) -> None:
        self.processes, self.chance, self.port = processes, random.Random(seed), free_port()
        self.database = str(processes.folder / "rainbow.db")
        self.url = f"http://127.0.0.1:{self.port}"
        self.serve()
        graph = shapes.document("cluster(node*3(socket*2(core*4 gpu memory:16)))")
        registration = Client(self.url, REGISTRATION).register_cluster("oak", graph)
        self.user, self.owner = Client(self.url, registration["token"]), Client(self.url, registration["secret"])
        self.running: dict[str, int] = {}
        self.gone: list[dict[str, Any]] = []  # cores taken out of the graph, to be put back
        self.counts: dict[str, int] = {}

    def serve(self) -> None:
        serve = ("serve", "--port", str(self.port), "--database", self.database)
        self.server = self.processes.start(*serve, RAINBOW_CHECK="1")
        until(Client(self.url).ready, seconds=180)  # beside other campaigns

    def happen(self) -> None:
        """Let one thing happen, let the agent speak, and look."""
        acts = [self.ask] * 5 + [self.end] * 6 + [self.cancel, self.switch, self.delta, self.away]
        act = self.kill if self.chance.random() < 0.02 else self.chance.choice(acts)
        self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
        with suppress(Problem):  # a conflict, as a worker that has gone already
            act()
        self.speak()
        self.look()

    def ask(self) -> None:
        specs = [asking(job) for job in ASKED] + [gang(2), elastic(1, 6)]
        self.user.submit(self.chance.choice(specs), requestor=self.chance.choice(["ann", "bob", "eve"]))

    def end(self) -> None:
        if self.running:
            self.tell(self.chance.choice(sorted(self.running)), "exited", self.chance.choice([0, 0, 0, 1]))

    def tell(self, task: str, result: str, code: int | None) -> None:
        event = {"task": task, "attempt": self.running.pop(task), "event": "ended", "result": result}
        self.owner.events("oak", "a", [{**event, "exit_code": code, "output": ""}])  # type: ignore[list-item]

    def cancel(self) -> None:
        live = [job["id"] for job in self.user.all_jobs(state="WAITING,RUNNING")]
        if live:
            self.user.cancel(self.chance.choice(live))

    def switch(self) -> None:
        chosen = self.chance.choice(POLICIES)
        self.owner.set_scheduler("oak", chosen)

    def delta(self) -> None:
        if self.gone and self.chance.random() < 0.6:
            self.owner.patch_graph("oak", [self.gone.pop()])
            return
        core = f"core{self.chance.randrange(24)}"
        graph = self.owner.graph("oak")["graph"]
        edges = [edge for edge in graph["edges"] if edge["target"] == core]
        if edges:
            self.owner.patch_graph("oak", [{"op": "remove", "vertex": core}])
            self.gone.append({"op": "add", "nodes": {core: graph["nodes"][core]}, "edges": edges})

    def away(self) -> None:
        self.owner.move_worker("oak", f"node{self.chance.randrange(3)}", self.chance.choice(["drain", "reinstate"]))

    def kill(self) -> None:
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.serve()

    def speak(self) -> None:
        """Say what runs, take what is offered, end what is to stop."""
        runs: list[Any] = [{"id": task, "attempt": attempt} for task, attempt in self.running.items()]
        answer = self.owner.heartbeat("oak", "a", runs)
        for stop in answer["stop"]:
            if self.running.get(stop["id"]) == stop["attempt"]:
                self.tell(stop["id"], "stopped", None)
        offers: list[Any] = [
            {"id": one["id"], "attempt": one["attempt"]} for one in self.owner.receive("oak", "a", 100, 0.1)["tasks"]
        ]
        taken = self.owner.accept("oak", "a", offers)["accepted"] if offers else []
        self.running.update({one["id"]: one["attempt"] for one in offers if one["id"] in taken})

    def look(self) -> None:
        """No step has failed, and no vertex is held twice."""
        assert self.owner.scheduler("oak")["fault"] is None
        held: dict[tuple[str, str], str] = {}
        for job in self.user.all_jobs(state="WAITING,RUNNING"):
            for task in self.user.job(job["id"])["tasks"]:
                for worker, path in vertices(task["held"] or {}) if task["state"] in BOOKED else ():
                    assert held.setdefault((worker, path), task["id"]) == task["id"], (worker, path)
        for (worker, path), task in held.items():
            above = [""] * bool(path) + ["/".join(path.split("/")[:k]) for k in range(1, path.count("/") + 1)]
            assert all(held.get((worker, one), task) == task for one in above), (worker, path)

    def finish(self) -> None:
        """Bring everything back and let it all end."""
        for node in range(3):
            with suppress(Problem):
                self.owner.move_worker("oak", f"node{node}", "reinstate")
        for change in self.gone:
            self.owner.patch_graph("oak", [change])
        end = time.monotonic() + 120
        while jobs := list(self.user.all_jobs(state="WAITING,RUNNING")):
            assert time.monotonic() < end, [(job["id"], job["wait"]) for job in jobs]
            self.speak()
            for task in list(self.running):
                self.tell(task, "exited", 0)
            with suppress(RainbowError):
                self.owner.step("oak")
        self.look()


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 900)
def test_nothing_is_held_twice_through_kills_deltas_drains_gangs_and_all_policies(
    tmp_path: Path, processes: Processes
) -> None:
    site, end = Site(processes, seed=int(os.environ.get("RAINBOW_SOAK_SEED", "1"))), time.monotonic() + SECONDS
    while time.monotonic() < end:
        site.happen()
    site.finish()
    print(f"{SECONDS:.0f} s: {dict(sorted(site.counts.items()))}")
    log = (processes.folder / "serve.log").read_text()
    assert "Traceback" not in log
    assert "step-failed" not in log
