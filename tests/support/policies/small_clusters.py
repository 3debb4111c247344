"""Small clusters for fair-share tests, in the form of the recorded scenarios: say only what matters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rainbow.scheduling import FairShare, Plan, View, check_plan
from tests.support.policies.epochs import Cluster, Run

FAIR = {"policy": "FAIR_SHARE", "priority": 10, "weight": 100, "nodepool": "top", "prediction-fudge": 0}
EAGER = {**FAIR, "initialization-cap": 0, "expand-by-doubling": False, "use-prediction": False}
FIXED = {"policy": "FIXED_SHARE", "priority": 5, "nodepool": "top"}
RESERVE = {"policy": "RESERVE", "priority": 1, "nodepool": "top"}


def job(number: int, user: str, cls: str, order: int = 1, **more: Any) -> dict[str, Any]:
    """A job that could use anything, of shares of `order` quanta."""
    plain = {"type": "Job", "threads": 1, "max_shares": 1_000_000, "items": 100_000, "item_ms": 1000, "arrive": 0}
    return {"id": number, "user": user, "class": cls, "mem_gb": order, "submit": 10 * number, **plain, **more}


def cluster(
    orders: list[int], classes: dict[str, dict[str, Any]], jobs: list[dict[str, Any]], **more: Any
) -> Cluster:
    """A cluster of machines of these orders in one nodepool; quantum 1."""
    row = {
        "quantum_gb": 1,
        "frag_threshold": 2,
        "global_allotment_gb": None,
        "exit_delay": 0,
        "init_delay": 0,
        "pools": [{"name": "top", "parent": None, "search_order": 100}],
        "machines": [
            {"name": f"m{k}", "mem_gb": order, "order": order, "pool": "top"} for k, order in enumerate(orders)
        ],
        "classes": [{"name": name, **cls} for name, cls in classes.items()],
        "user_allotment_gb": {},
        "jobs": jobs,
        "events": [],
        **more,
    }
    return Cluster(row)


def put(there: Cluster, number: int, *machines: str) -> None:
    """Let shares of a job run on machines already."""
    for k, machine in enumerate(machines):
        there.runs[f"j{number:04}/{k:04}"] = Run(number, k, machine, -10 - k)
    there.ready.add(number)


def held(there: Cluster) -> dict[int, dict[str, int]]:
    """Shares by job and machine, those that are ending left out."""
    shares: dict[int, dict[str, int]] = {}
    for run in there.runs.values():
        if run.stopped is None:
            on = shares.setdefault(run.job, {})
            on[run.machine] = on.get(run.machine, 0) + 1
    return shares


def counts(there: Cluster) -> dict[int, int]:
    """How many shares every job holds."""
    return {number: sum(on.values()) for number, on in held(there).items()}


def play(there: Cluster, epochs: int = 8) -> Cluster:
    """Let so many epochs pass."""
    for _ in range(epochs):
        there.step()
    return there


def reconfigured(there: Cluster, **settings: Any) -> Cluster:
    """Change settings of the policy."""
    there.settings = FairShare().check({**there.settings, **settings})
    return there


def seen(there: Cluster, **changes: Any) -> View:
    """The view, every job of it changed."""
    view = there.view()
    return replace(view, jobs=[replace(one, **changes) for one in view.jobs])


def orders(view: View) -> Plan:
    """Plan once; the plan is one that may be carried out."""
    plan = FairShare().plan(view)
    check_plan(view, plan)
    return plan
