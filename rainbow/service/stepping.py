"""One scheduling step of one cluster, in numbered phases."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rainbow.jobs import BOOKED, TaskState, advance
from rainbow.scheduling import Plan, Start, Stop, check_plan, policies, slots_of
from rainbow.service.freezing import Frozen, freeze
from rainbow.service.presence import lose_the_silent
from rainbow.store import clusters, jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord
    from rainbow.store.turns import Turn

T = TaskState


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
        lose_the_silent(service, entry)  # 1
        frozen = freeze(service, entry)  # 2
        if frozen is None:
            return False
        plan = policies.get(frozen.record.policy).plan(frozen.view)  # 3
        ordered = _carry_out(service, frozen, plan, turn)  # 4, 5
    if ordered:
        service.tell(entry.id)
    return ordered


def plan_only(service: Service, record: ClusterRecord) -> Plan | None:
    """Say what the next step would do, without doing it."""
    frozen = freeze(service, service.entry(record))
    return policies.get(frozen.record.policy).plan(frozen.view) if frozen else None


# ── 4 check and write, 5 keep the wait reasons ──


def _carry_out(service: Service, frozen: Frozen, plan: Plan, turn: Turn) -> bool:
    check_plan(frozen.view, plan)
    now = service.clock()
    done = 0
    with turn.write() as connection:
        for order in plan.orders:
            done += _order(connection, frozen, order, now)
        if dict(plan.memory) != dict(frozen.record.memory):
            clusters.set_memory(connection, frozen.record.id, plan.memory)
        for wait in (*plan.waits, *frozen.blocked):
            _keep_wait(connection, frozen.jobs[wait.job], asdict(wait), now)
    return done > 0


def _order(connection: sa.Connection, frozen: Frozen, order: Any, now: float) -> int:
    """Write one order, unless the task has moved since the view was frozen."""
    if isinstance(order, (Start, Stop)):
        task = tasks.get(connection, frozen.record.id, [order.task]).get(order.task)
        if task is None:
            return 0
        if isinstance(order, Stop) and task.state in BOOKED and task.state is not T.STOPPING:
            tasks.save(connection, advance(task, T.STOPPING, detail=order.why))
            return 1
        if isinstance(order, Start) and task.state is T.WAITING:
            placement = {worker: dict(amounts) for worker, amounts in order.placement.items()}
            take = frozen.takes.get(task.id)
            slots = slots_of(frozen.labels.get(task.id, ()), take) if take else 1
            started = advance(
                task, T.ASSIGNED, placement=placement, slots=slots, agent="", assigned_at=now, detail=""
            )
            tasks.save(connection, started)
            jobs.change(connection, task.job, wait=None)
            return 1
    return 0


def _keep_wait(connection: sa.Connection, job: JobRecord, wait: dict[str, Any], now: float) -> None:
    """Store why a job waits, and since when for this reason; nothing is written when nothing changed."""
    wait.pop("job")
    earlier = job.wait or {}
    since = earlier.get("since", now) if earlier.get("reason") == wait["reason"] else now
    told = {**wait, "facts": dict(wait["facts"]), "since": since}
    if told != earlier:
        jobs.change(connection, job.id, wait=told)
