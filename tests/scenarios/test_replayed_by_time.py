"""Recorded jobs through HTTP against a running server under a moved clock: routing by time beside the shortest queue.

`python -m tests.scenarios.test_replayed_by_time WINDOW...` prints the figures of some windows of the long form.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from random import Random
from typing import Any

import pytest

from rainbow.simulation import Arrival, Outcome, read_trace
from rainbow.simulation.comparison import Window, summed
from rainbow.simulation.simulate import Ran
from tests.conftest import REGISTRATION, SHARED
from tests.support.moved_server import Connected, moved_server

START = 1_000_000.0
SHAPES = {"ash": (1.0, 1.0), "elm": (1.0, 1.5), "fir": (0.5, 2.0), "oak": (0.25, 1.0)}  # part of all cores, speed
PACE = 0.27  # of the arrivals: the four have 3.75 times the machine of the trace
BY_TIME, SHORTEST = "eta.finish", "queue.waiting_tasks"
CONFIG = """
scheduler:
  algorithms:
    selection:
      name: constraint
      options:
        priorities:
        - priority: 1
          steps:
          - sort_ascending: {variable}
          - select: first
"""


def node_of(cores: int) -> dict[str, Any]:
    """A cluster of one node, as traces know a machine."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node"}, "k": {"type": "core", "count": cores}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    return {"graph": {"nodes": {key: {"metadata": one} for key, one in vertices.items()}, "edges": edges}}


def jobspec_of(one: Arrival) -> dict[str, Any]:
    """So many cores for at most its limit."""
    slot = {"type": "slot", "count": one.slots, "label": "it", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["true"], "slot": "it", "count": {"total": 1}}
    attributes = {"system": {"duration": max(1.0, one.limit)}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": attributes}


@dataclass
class Replay:
    """Four unlike clusters, and what runs there."""

    server: Connected
    cores: int
    forecasts: bool
    secrets: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    ends: list[tuple[float, str, str, int]] = field(default_factory=list)  # when, where, task, attempt
    submitted: dict[str, tuple[Arrival, str]] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)

    def register(self) -> None:
        """Register the clusters, each with its agent there."""
        for name, (part, _) in SHAPES.items():
            body = {"name": name, "graph": node_of(int(self.cores * part))}
            answer = self.server.ask("POST", "/v1/clusters", body, REGISTRATION)
            self.secrets[name] = answer["secret"]
            self.tokens.append(answer["token"])
            path = f"/v1/clusters/{name}/scheduler"
            self.server.ask("PUT", path, {"policy": "priority"}, answer["secret"])
            self.say(name, "heartbeat", running=[])

    def say(self, name: str, verb: str, **body: Any) -> Any:
        """Send one message of a cluster's agent."""
        return self.server.ask("POST", f"/v1/clusters/{name}/{verb}", {"agent": "a", **body}, self.secrets[name])

    def run(self, arrivals: Sequence[Arrival]) -> Outcome:
        """Let all arrive and run to their ends."""
        remaining = list(reversed(arrivals))
        while remaining or self.ends:
            now = min(
                self.ends[0][0] if self.ends else remaining[-1].submit,
                remaining[-1].submit if remaining else float("inf"),
            )
            self.server.move(now=START + now)
            touched = self.end_until(now)
            while remaining and remaining[-1].submit <= now:
                if self.forecasts:
                    self.server.move(forecast=True)
                touched.add(self.submit(remaining.pop()))
            for name in self.server.move(step=sorted(touched)):
                self.begin(name, now)
        assert len(self.ran) == len(arrivals)
        return Outcome(tuple(self.ran), sum(int(self.cores * part) for part, _ in SHAPES.values()), 0)

    def end_until(self, now: float) -> set[str]:
        """Report what has ended; return where."""
        ended: dict[str, list[dict[str, Any]]] = {}
        while self.ends and self.ends[0][0] <= now:
            _, name, task, attempt = heappop(self.ends)
            event = {"task": task, "attempt": attempt, "event": "ended", "result": "exited", "exit_code": 0}
            ended.setdefault(name, []).append(event)
        for name, events in ended.items():
            self.say(name, "events", events=events)
        return set(ended)

    def submit(self, one: Arrival) -> str:
        """Submit a job to whichever cluster is selected."""
        body = {"jobspec": jobspec_of(one), "requestor": one.requestor or "all", "name": f"w{one.slots}"}
        answer = self.server.ask("POST", "/v1/jobs", body, *self.tokens)
        self.submitted[answer["id"]] = one, answer["cluster"]
        return str(answer["cluster"])

    def begin(self, name: str, now: float) -> None:
        """Take what is offered and say that it has started."""
        offers = self.say(name, "receive", max=1_000)["tasks"]
        named = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
        assert len(self.say(name, "accept", tasks=named)["accepted"]) == len(offers)
        self.say(name, "events", events=[{"task": one["id"], **one, "event": "started"} for one in named])
        for offer in offers:
            one, where = self.submitted[offer["job"]]
            assert where == name
            end = now + min(one.run / SHAPES[name][1], one.limit)
            heappush(self.ends, (end, name, offer["id"], offer["attempt"]))
            self.ran.append(Ran(one.id, one.requestor, "", name, one.slots, one.submit, now, end))


def replayed(variable: str, arrivals: Sequence[Arrival], cores: int, alone: bool = True) -> Outcome:
    """Replay a window against a server of its own whose configuration sorts by this variable."""
    first = arrivals[0].submit
    with moved_server(CONFIG.format(variable=variable), START, alone=alone) as server:
        made = Replay(server, cores, variable == BY_TIME)
        made.register()
        return made.run([replace(one, submit=one.submit - first) for one in arrivals])


def both(windows: Sequence[Sequence[Arrival]], cores: int, *, alone: bool = True) -> list[Window]:
    """Replay windows by the shortest queue, and by time; where each has a server of its own, two replays at once."""
    requests = [(variable, window, cores, alone) for window in windows for variable in (SHORTEST, BY_TIME)]
    with ProcessPoolExecutor(2) if alone else nullcontext() as pool:
        done = list((pool.map if pool else map)(replayed, *zip(*requests, strict=True)))
    return list(zip(done[::2], done[1::2], strict=True))


def recorded(windows: int, each: int) -> list[list[Arrival]]:
    """Windows of lublin_256, arrivals pressed to about what the four take, limits up to five times the run."""
    chance = Random(7)
    trace = islice(read_trace(SHARED / "traces" / "lublin_256.swf.gz"), windows * each)
    results = [replace(one, submit=PACE * one.submit, limit=one.run * chance.uniform(1, 5)) for one in trace]
    return [results[k : k + each] for k in range(0, len(results), each)]


def drawn() -> Iterator[Arrival]:
    """Draw long jobs that fill the three clusters they fit, then short ones: a queue may be short and yet last."""
    chance, now = Random(11), 0.0
    for k in range(13):
        now += chance.expovariate(1 / 20)
        long = k < 5
        run = chance.uniform(3_000, 6_000) if long else chance.uniform(20, 60)
        yield Arrival(str(k), now, 4 if long else 1, run, run * chance.uniform(1, 5), "long" if long else "short")


def test_routing_by_time_halves_the_slowdown_of_the_shortest_queue_over_http() -> None:
    jobs = list(drawn())
    ratio = summed(both([jobs], 8, alone=False), [jobs]).of("slowdown")
    assert ratio.ratio <= 0.5, (ratio.old, ratio.new)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_three_thousand_jobs_replayed_over_http_wait_half_as_long_for_their_length_by_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not (SHARED / "traces").is_dir():
        pytest.skip("the shared traces are not beside this repository")
    windows = recorded(6, 500)
    compared = summed(both(windows, 256), windows)
    with capsys.disabled():
        print("", *map(compared.of, ("slowdown", "wait", "response")), sep="\n")
    ratio = compared.of("slowdown")
    assert ratio.ratio <= 0.5, ratio
    assert ratio.verdict == "lower", ratio


if __name__ == "__main__":
    chosen = [recorded(6, 500)[int(number)] for number in sys.argv[1:]]
    found = summed(both(chosen, 256), chosen)
    for name in ("slowdown", "wait", "response"):
        print(found.of(name))
