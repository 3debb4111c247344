"""Elastic jobs and services at a real service: what the tests of fair_share in the service ask for and look at."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rainbow.service.scheduler.step import step
from tests.conftest import Api, Cluster, grid

EAGER = {"expand_by_doubling": False, "initialization_cap": 0, "use_prediction": False}
FAIR = {"policy": "FAIR_SHARE", "default": True, **EAGER}
FIXED = {"policy": "FIXED_SHARE", "default": True}


def settings(**more: Any) -> dict[str, Any]:
    """Settings that count cores, with a fair and a fixed class."""
    return {"quantum": {"type": "core"}, "classes": {"fair": FAIR, "fixed": FIXED}, **more}


def elastic(least: int, most: int, **system: Any) -> dict[str, Any]:
    """A jobspec of `least` to `most` shares of one core."""
    count = {"min": least, "max": most, "operator": "+", "operand": 1}
    slot = {"type": "slot", "count": count, "label": "w", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["true"], "slot": "w", "count": {"per_slot": 1}}
    request = {"system": {"elastic": True, **system}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": request}


def bag(count: int, **system: Any) -> dict[str, Any]:
    """A jobspec of so many tasks of one core, which are not elastic."""
    slot = {"type": "slot", "count": count, "label": "w", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["true"], "slot": "w", "count": {"per_slot": 1}}
    request = {"system": {"scatter": True, **system}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": request}


class Site:
    """A cluster under fair_share whose one agent says what it is told to."""

    def __init__(self, api: Api, cluster: Cluster) -> None:
        self.api, self.cluster = api, cluster
        self.runs: dict[tuple[str, int], str] = {}  # what runs there, and its job
        cluster.say("heartbeat", running=[])

    def submit(self, who: str, spec: dict[str, Any], **more: Any) -> str:
        """Submit a job and return its id."""
        body = {"jobspec": spec, "requestor": who, **more}
        return str(self.api.good("POST", "/v1/jobs", body, self.cluster.token)["id"])

    def job(self, job: str) -> Any:
        """Show a job."""
        return self.api.good("GET", f"/v1/jobs/{job}", None, self.cluster.token)

    def step(self, confirm: bool = True) -> bool:
        """Take a step, start what it starts, and end what it stops."""
        ordered = step(self.api.service, self.cluster.name)
        self.start()
        if confirm:
            self.confirm()
        return ordered

    def start(self) -> None:
        """Accept what is offered and say that it runs."""
        offers = self.cluster.say("receive", max=1000)["tasks"]
        requirements = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
        self.cluster.say("accept", tasks=requirements)
        self.cluster.say(
            "events", events=[{"task": r["id"], "attempt": r["attempt"], "event": "started"} for r in requirements]
        )
        self.runs |= {(offer["id"], offer["attempt"]): offer["job"] for offer in offers}

    def confirm(self) -> int:
        """Say that what was told to stop has stopped; return how many that were."""
        stops = [(ref["id"], ref["attempt"]) for ref in self.cluster.say("receive", max=0)["stop"]]
        for run in stops:
            self.end(run, "stopped")
        return len(stops)

    def end(self, run: tuple[str, int], result: str = "exited", code: int | None = 0) -> None:
        """Say that a run has ended."""
        answer = {
            "event": "ended",
            "result": result,
            "exit_code": None if result == "stopped" else code,
            "output": "",
        }
        self.cluster.say("events", events=[{"task": run[0], "attempt": run[1], **answer}])
        self.runs.pop(run, None)

    def settle(self, most: int = 40) -> int:
        """Step until nothing is ordered; return how many steps that took."""
        for count in range(most):
            if not self.step():
                return count
        raise AssertionError(f"still moving after {most} steps")

    def held(self) -> Counter[str]:
        """Count what runs, by job."""
        return Counter(self.runs.values())

    def figures(self) -> Any:
        """Return the figures of the scheduler."""
        return self.api.good("GET", "/v1/clusters/one/scheduler", None, self.cluster.secret)["figures"]


def site(api: Api, nodes: int = 4, cores: int = 4, **more: Any) -> Site:
    """Register cluster one under fair_share; `more` are settings of the policy."""
    policy = {"name": "fair_share", "settings": settings(**more)}
    return Site(api, api.register("one", grid(nodes, cores), policy=policy))


@pytest.fixture
def there(api: Api) -> Site:
    """Four machines of four cores."""
    return site(api)


def states(there: Site, job: str) -> list[str]:
    """Return the states of a job's tasks, sorted."""
    return sorted(task["state"] for task in there.job(job)["tasks"])
