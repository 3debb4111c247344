"""One scheduling step of one cluster, in numbered phases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import structlog

from rainbow.jobs import BOOKED, Hold, Task, TaskState, advance
from rainbow.scheduling import (
    Plan,
    Policy,
    Reserve,
    Resume,
    Start,
    Stop,
    Suspend,
    check_plan,
    diagram,
    policies,
    slots_of,
)
from rainbow.scheduling.explaining import every_wait
from rainbow.service.freezing import Frozen, freeze
from rainbow.service.moving import is_away, leave
from rainbow.service.overdue import stop_the_overdue
from rainbow.service.presence import lose_the_silent
from rainbow.service.showing import end
from rainbow.store import clusters, jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord
    from rainbow.store.turns import Turn

T = TaskState
log = structlog.get_logger("rainbow")


def step(service: Service, name: str) -> bool:
    """Take one step for a cluster; tell whether any order was carried out.

    False also while another process has the cluster's turn.
    """
    entry = service.catalogue.get(name)
    if entry is None:
        return False
    with service.turns.of(entry.id) as turn:
        if turn is None:
            return False
        known = lose_the_silent(service, entry)  # 1
        if is_away(worker.state for worker in known.values()):
            leave(service, entry)
        stop_the_overdue(service, entry)
        frozen = freeze(service, entry)  # 2
        service.restless.discard(entry.id)
        if frozen is None:
            return False
        policy = policies.get(frozen.record.policy)
        plan = policy.plan(frozen.view)  # 3
        if os.environ.get("RAINBOW_PRINT_TIMELINE") == "1":
            log.info("timeline", cluster=name, text=diagram(frozen.view, plan).text(frozen.view.now))
        ordered = _carry_out(service, frozen, plan, turn)  # 4, 5
        if frozen.blocked or _awaits_time(policy, frozen, plan):
            service.restless.add(entry.id)
    if ordered:
        service.tell(entry.id)
    return ordered


def _awaits_time(policy: Policy, frozen: Frozen, plan: Plan) -> bool:
    """Tell whether time alone may change what is planned next."""
    if getattr(policy, "rests", False):
        return bool(plan.orders) or dict(plan.memory) != dict(frozen.record.memory)
    return bool(plan.memory) or not getattr(policy, "by_events", False)


def plan_only(service: Service, record: ClusterRecord) -> Plan | None:
    """Say what the next step would do, without doing it; figures even if nothing waits."""
    frozen = freeze(service, service.entry(record), quiet=True)
    return policies.get(frozen.record.policy).plan(frozen.view) if frozen else None


# ── 4 check and write, 5 keep the wait reasons ──


def _carry_out(service: Service, frozen: Frozen, plan: Plan, turn: Turn) -> bool:
    check_plan(frozen.view, plan)
    now = service.clock()
    with turn.write() as connection:
        changed = list(_ordered(connection, frozen, plan, now))
        tasks.save_all(connection, changed, now)
        waits = (*every_wait(frozen.view, plan), *frozen.blocked)
        started = {task.job for task in changed if task.state is T.ASSIGNED}
        for job in sorted(started - {wait.job for wait in waits}):
            jobs.change(connection, job, wait=None)
        if dict(plan.memory) != dict(frozen.record.memory):
            clusters.set_memory(connection, frozen.record.id, plan.memory)
        for wait in waits:
            _keep_wait(connection, frozen.jobs[wait.job], asdict(wait), now)
        for job, why in frozen.doomed.items():
            end(connection, job, now, why)
    return bool(changed or frozen.doomed)


def _ordered(connection: sa.Connection, frozen: Frozen, plan: Plan, now: float) -> Iterator[Task]:
    """Yield the tasks as the orders make them; those that have moved since the view was frozen are left alone."""
    orders = {order.task: order for order in plan.orders if not isinstance(order, Reserve)}
    found = tasks.get(connection, frozen.record.id, orders)
    for name, order in orders.items():
        task = found.get(name)
        if task is None:
            continue
        if isinstance(order, Stop) and task.state in BOOKED and task.state is not T.STOPPING:
            # what no agent has accepted has nothing to stop, and nobody would confirm it
            yield advance(task, T.WAITING if task.state is T.ASSIGNED else T.STOPPING, detail=order.why)
        if isinstance(order, Start) and task.state is T.WAITING:
            yield _started(frozen, task, order, now)
        if isinstance(order, Suspend) and task.state is T.RUNNING and task.hold == Hold.NONE:
            yield replace(task, hold=Hold.POLICY)
        if isinstance(order, Resume) and task.hold == Hold.POLICY:
            yield replace(task, hold=Hold.NONE)


def _started(frozen: Frozen, task: Task, order: Start, now: float) -> Task:
    placement = {worker: dict(amounts) for worker, amounts in order.placement.items()}
    take = frozen.takes.get(task.id)
    slots = slots_of(frozen.labels.get(task.id, ()), take) if take else 1
    return advance(task, T.ASSIGNED, placement=placement, slots=slots, agent="", assigned_at=now, detail="")


def _keep_wait(connection: sa.Connection, job: JobRecord, wait: dict[str, Any], now: float) -> None:
    """Store why a job waits, and since when for this reason; nothing is written when nothing changed."""
    wait.pop("job")
    earlier = job.wait or {}
    since = earlier.get("since", now) if earlier.get("reason") == wait["reason"] else now
    told = {**wait, "facts": dict(wait["facts"]), "since": since}
    if told != earlier:
        jobs.change(connection, job.id, wait=told)
