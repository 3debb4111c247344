"""Whether a waiting job can ever run, and whether it could run now if it were alone in the queue.

Both are answered by the policy itself, within the rules of its host, on a view that is changed: without anything
running and with every worker ready for the first; with only this job waiting for the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rainbow.scheduling import planner
from rainbow.scheduling.interface import Plan, Policy, Promises, Start, View, Wait
from rainbow.scheduling.qos import Rules
from rainbow.state_machine import WorkerState


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a job can run, and if not what prevents it."""

    can: bool
    text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def can_now(policy: Policy, view: View, job: str, rules: Rules | None = None) -> Answer:
    """Return whether every gang of a job that waits could start now, were it alone in the queue."""
    return _answer(policy, replace(view, jobs=[own for own in view.jobs if own.id == job], census=None), rules)


def can_ever(policy: Policy, view: View, job: str, rules: Rules | None = None) -> Answer:
    """Return whether each gang of a job could start on the empty cluster, all workers ready and without load."""
    alone = replace(rules, elsewhere={}) if rules else None
    idle = [replace(w, free=w.capacity, state=WorkerState.READY, tasks=0, load={}) for w in view.workers]
    free = view.free.empty() if view.free else None
    empty = replace(view, workers=idle, runs=(), consumables=view.outside(), census=None, free=free)
    for own in (own for own in view.jobs if own.id == job):
        for gang in own.gangs:
            answer = _answer(policy, replace(empty, jobs=[replace(own, gangs=(gang,))]), alone, later=True)
            if not answer.can:
                return answer
    return Answer(True)


def _answer(policy: Policy, view: View, rules: Rules | None, later: bool = False) -> Answer:
    promising = policy.promising if later and isinstance(policy, Promises) else None
    if view.free is not None:
        view.free.begin()
    plan = planner.plan(policy, replace(view, settings=promising(view.settings)) if promising else view, rules)
    started = {order.task for order in plan.orders if isinstance(order, Start)}
    requirements = {task for job in view.jobs for gang in job.gangs for task in gang.tasks}
    if started >= requirements or (promising and _promised(plan)):
        return Answer(True)
    wait = plan.waits[0] if plan.waits else plan.rest.of(view.jobs[0].id) if plan.rest else Wait("", "", "it waits")
    return Answer(False, wait.text, wait.facts)


def _promised(plan: Plan) -> bool:
    """Return whether a time was found, such as after closed hours."""
    return any(wait.reason == "reserved" for wait in plan.waits)
