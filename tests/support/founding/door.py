"""The doors that a user has: HTTP over TCP at a server whose clock is moved, and the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

from click.testing import CliRunner

from rainbow.cli.main import main
from tests.conftest import ADMIN, REGISTRATION

NOW = 1_774_915_200.0  # Tuesday 2026-03-31 00:00 UTC


class Door:
    """A connection to a server, and its port for the command line."""

    def __init__(self, port: int, now: float = NOW) -> None:
        self.port, self.now = port, now
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, *tokens: str) -> dict[str, Any]:
        """Send a request; return its status with what the answer says."""
        headers = {"Authorization": ", ".join(f"Bearer {one}" for one in tokens)} if tokens else {}
        raw = isinstance(body, str)
        headers["Content-Type"] = "application/yaml" if raw else "application/json"
        self._connection.request(method, path, body if raw else json.dumps(body), headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        try:
            reported = json.loads(text) if text else {}
        except ValueError:
            reported = {"text": text}
        return {"status": answer.status, **(reported if isinstance(reported, Mapping) else {"listed": reported})}

    def good(self, method: str, path: str, body: Any = None, *tokens: str) -> dict[str, Any]:
        """Send a request that must succeed."""
        answer = self.ask(method, path, body, *tokens)
        assert answer["status"] < 300, answer
        return answer

    def move(self, seconds: float = 0.0, *clusters: str, forecast: bool = False) -> list[str]:
        """Let time go by, then step clusters; return those whose step ordered something."""
        self.now += seconds
        answer = self.good("POST", "/moved", {"now": self.now, "step": list(clusters), "forecast": forecast})
        listed: list[str] = answer["listed"]
        return listed

    def register(self, name: str, graph: Any, **more: Any) -> Place:
        """Register a cluster."""
        return Place(
            self, name, self.good("POST", "/v1/clusters", {"name": name, "graph": graph, **more}, REGISTRATION)
        )

    def match(self, jobspec: Any, *tokens: str, **more: Any) -> dict[str, Any]:
        """Match a jobspec with the clusters of some tokens."""
        return self.ask("POST", "/v1/match", {"jobspec": jobspec, **more}, *tokens)

    def run(self, *words: str, **secrets: str) -> dict[str, Any]:
        """Run `rainbow` with some words; return its exit code and what it prints."""
        env = {"RAINBOW_URL": f"http://127.0.0.1:{self.port}", "RAINBOW_TOKEN": None, "COLUMNS": "200", **secrets}
        answer = CliRunner().invoke(main, list(words), env=env)
        return {"code": answer.exit_code, "text": answer.output}

    @property
    def admin(self) -> str:
        """The admin's token."""
        return ADMIN


class Place:
    """A registered cluster: its credentials, its owner and the one agent that says what it is told to."""

    def __init__(self, door: Door, name: str, answer: Mapping[str, Any]) -> None:
        self.door, self.name, self.told = door, name, dict(answer)
        self.token, self.secret = str(answer["token"]), str(answer["secret"])
        self.runs: dict[str, dict[str, Any]] = {}  # what runs there, by task
        self.stopped: list[str] = []  # every task that was told to stop, in order

    # ── its owner ──

    def set(self, policy: str, limits: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
        """Set the policy."""
        body = {"policy": policy, "settings": settings, **({"limits": dict(limits)} if limits else {})}
        return self.door.ask("PUT", f"/v1/clusters/{self.name}/scheduler", body, self.secret)

    def change(self, **parts: Any) -> dict[str, Any]:
        """Change parts of the settings, limits or policy."""
        return self.door.ask("PATCH", f"/v1/clusters/{self.name}/scheduler", parts, self.secret)

    def shown(self) -> dict[str, Any]:
        """Show policy, settings and figures."""
        return self.door.good("GET", f"/v1/clusters/{self.name}/scheduler", None, self.secret)

    def figures(self) -> Any:
        """Return the figures of the moment."""
        return self.shown()["figures"]

    def get(self, part: str) -> dict[str, Any]:
        """Read something of the cluster."""
        return self.door.good("GET", f"/v1/clusters/{self.name}/{part}", None, self.secret)

    def post(self, part: str, body: Any = None) -> dict[str, Any]:
        """Do something at the cluster; a part that begins with a colon is a verb of its own."""
        slash = "" if part.startswith(":") else "/"
        return self.door.ask("POST", f"/v1/clusters/{self.name}{slash}{part}", body, self.secret)

    # ── its users ──

    def submit(self, jobspec: Any, who: str = "ann", **more: Any) -> dict[str, Any]:
        """Submit a job."""
        return self.door.ask("POST", "/v1/jobs", {"jobspec": jobspec, "requestor": who, **more}, self.token)

    def job(self, job: str) -> dict[str, Any]:
        """Show a job."""
        return self.door.good("GET", f"/v1/jobs/{job}", None, self.token)

    def why(self, job: str) -> dict[str, Any]:
        """Ask why a job waits."""
        return self.door.good("GET", f"/v1/jobs/{job}/why", None, self.token)

    def wait(self, job: str) -> dict[str, Any]:
        """Return the wait of a job."""
        results: dict[str, Any] = self.why(job)["wait"]
        return results

    def cancel(self, job: str) -> dict[str, Any]:
        """Cancel a job."""
        return self.door.ask("DELETE", f"/v1/jobs/{job}", None, self.token)

    # ── its agent ──

    def say(self, verb: str, agent: str = "a", **body: Any) -> dict[str, Any]:
        """Send one message of an agent."""
        return self.door.good("POST", f"/v1/clusters/{self.name}/{verb}", {"agent": agent, **body}, self.secret)

    def beat(self, **body: Any) -> dict[str, Any]:
        """Send a heartbeat."""
        running = [{"id": one["id"], "attempt": one["attempt"]} for one in self.runs.values()]
        return self.say("heartbeat", running=running, **body)

    def take(self, seconds: float = 0.0, confirm: bool = True, start: bool = True) -> list[dict[str, Any]]:
        """Step, end what is told to stop, start what is offered; return that."""
        self.door.move(seconds, self.name)
        answer = self.say("receive", max=1000)
        if confirm:
            self.confirm(answer["stop"])
        offers: list[dict[str, Any]] = answer["tasks"]
        refs = [{"id": one["id"], "attempt": one["attempt"]} for one in offers]
        if refs:
            self.say("accept", tasks=refs)
        if refs and start:
            events = [{"task": r["id"], "attempt": r["attempt"], "event": "started"} for r in refs]
            self.say("events", events=events)
        self.runs |= {one["id"]: one for one in offers}
        return offers

    def confirm(self, stops: list[dict[str, Any]]) -> None:
        """Say that what was told to stop has stopped."""
        for ref in stops:
            self.stopped.append(ref["id"])
            self.runs.pop(ref["id"], None)
        events = [
            {"task": ref["id"], "attempt": ref["attempt"], "event": "ended", "result": "stopped", "output": ""}
            for ref in stops
        ]
        if events:
            self.say("events", events=events)

    def settle(self, most: int = 30) -> list[dict[str, int]]:
        """Step until nothing is ordered; return what each job held after each step."""
        story: list[dict[str, int]] = []
        for _ in range(most):
            before = dict(self.runs)
            self.take()
            story.append(self.held())
            if before == self.runs:
                return story
        raise AssertionError(f"still moving after {most} steps: {story}")

    def held(self) -> dict[str, int]:
        """Count what runs, by job."""
        counts: dict[str, int] = {}
        for one in self.runs.values():
            counts[one["job"]] = counts.get(one["job"], 0) + 1
        return counts

    def end(self, task: str, code: int = 0, result: str = "exited") -> None:
        """Say that a task has ended."""
        ran = self.runs.pop(task)
        answer = {"event": "ended", "result": result, "exit_code": code, "output": ""}
        self.say("events", events=[{"task": ran["id"], "attempt": ran["attempt"], **answer}])

    def end_all(self) -> None:
        """Say that all that runs has ended."""
        for task in [*self.runs]:
            self.end(task)


# ── graphs and jobspecs ──


def machines(cores: Mapping[str, int], **more: int) -> dict[str, Any]:
    """A graph of nodes with so many cores each; `more` adds so much of other types to each node."""
    nodes: dict[str, Any] = {"c": {"metadata": {"type": "cluster", "name": "c"}}}
    edges = []
    for name, count in cores.items():
        nodes[name] = {"metadata": {"type": "node", "name": name}}
        edges.append({"source": "c", "target": name})
        for kind, amount in {"core": count, **more}.items():
            if not amount:
                continue
            shape = {"count": amount} if kind in ("core", "gpu") else {"size": amount}
            nodes[f"{name}-{kind}"] = {"metadata": {"type": kind, **shape}}
            edges.append({"source": name, "target": f"{name}-{kind}"})
    return {"graph": {"nodes": nodes, "edges": edges}}


def grid(nodes: int, cores: int, **more: int) -> dict[str, Any]:
    """A graph of nodes n0, n1, ... that are alike."""
    return machines({f"n{k}": cores for k in range(nodes)}, **more)


def slots(count: Any = 1, cores: int = 1, seconds: float = 0, **system: Any) -> dict[str, Any]:
    """A jobspec of slots of some cores, one gang."""
    slot = {"type": "slot", "count": count, "label": "s", "with": [{"type": "core", "count": cores}]}
    task = {"command": ["true"], "slot": "s", "count": {"per_slot": 1}}
    return {
        "version": 1,
        "resources": [slot],
        "tasks": [task],
        "attributes": {"system": {"duration": seconds, **system}},
    }


def bag(count: int, cores: int = 1, seconds: float = 0, **system: Any) -> dict[str, Any]:
    """A jobspec of slots that are tasks of their own."""
    return slots(count, cores, seconds, scatter=True, **system)


def elastic(least: int, most: int, cores: int = 1, **system: Any) -> dict[str, Any]:
    """A jobspec of shares that come and go."""
    return slots({"min": least, "max": most, "operator": "+", "operand": 1}, cores, elastic=True, **system)
