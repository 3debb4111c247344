"""A mirror compared with its store, as RAINBOW_CHECK=1 asks: a change that is lost on the way would stay unseen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rainbow.errors import PlanError
from rainbow.matching import Occupancy
from rainbow.state_machine import BOOKED, Task
from rainbow.store import jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.scheduling.cluster_index import ClusterIndex
    from rainbow.service.live_state.live_job import LiveJob

MOST_JOBS = 500  # of a cluster that is compared at every step
COMPARED = [one.name for one in fields(Task) if one.name not in ("output", "errors", "detail")]


def compare(
    connection: sa.Connection, cluster_id: str, live: Mapping[str, LiveJob], booked: Mapping[str, Task]
) -> None:
    """Raise PlanError, naming job or task and field, unless a mirror has what is stored of its cluster."""
    if len(live) > MOST_JOBS:
        return
    stored = {record.id: record for record in jobs.live(connection, cluster_id)}
    held = {task.id: task for task in tasks.of_cluster(connection, cluster_id, BOOKED)}
    waiting = {job: set(one.indexes) for job, one in tasks.waiting_at(connection, cluster_id).items()}
    _raise_for(
        "job", {job: one.record for job, one in live.items()}, stored, [one.name for one in fields(jobs.JobRecord)]
    )
    _raise_for("task", {name: task for name, task in booked.items() if task.job in stored}, held, COMPARED)
    for job, one in live.items():
        if {*one.order, *one.resting} != waiting.get(job, set()):
            raise PlanError(
                f"job {job}: tasks {sorted({*one.order, *one.resting})[:10]} wait in memory, not in the store"
            )


def _raise_for(kind: str, known: Mapping[str, Any], stored: Mapping[str, Any], names: list[str]) -> None:
    for said in _differences(known, stored, names):
        raise PlanError(f"{kind} {said}: memory and store differ")


def _differences(known: Mapping[str, Any], stored: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    for one in sorted(known.keys() | stored.keys()):
        if one not in stored or one not in known:
            yield f"{one} is only in {'memory' if one in known else 'the store'}"
            continue
        for name in names:
            if getattr(known[one], name) != getattr(stored[one], name):
                yield f"{one}, {name}: {getattr(known[one], name)!r} in memory, {getattr(stored[one], name)!r} stored"


def check_space(
    cluster: Cluster,
    occupancy: Occupancy,
    census: ClusterIndex,
    capacity: Mapping[str, Mapping[str, int]],
    booked: Collection[Task],
) -> None:
    """Raise PlanError unless what is held is what the booked tasks say, vertex by vertex and by amounts."""
    again = Occupancy(cluster)
    for task in booked:
        again.book(task.id, task.held, task.placement)
    for name in capacity:
        free, counted = occupancy.free(name), census.less_held(name, capacity[name])
        leaves = {kind: max(0, amount) for kind, amount in counted.items() if kind not in again.containers(name)}
        twice = is_held_twice(occupancy, name) and not occupancy.was_overfull(name)
        if twice or not occupancy.is_like(again, name):
            text = "; ".join(
                f"{task} {reserved}, stored {stored}" for task, reserved, stored in unlike(occupancy, again)
            )
            raise PlanError(f"{name}: {dict(free)} is kept, {dict(again.free(name))} rebuilt; {text}")
        if census.workers[name].free != free:
            raise PlanError(f"{name}: {census.workers[name].free} is indexed, {dict(free)} located")
        if any(free[kind] > amount for kind, amount in leaves.items()):  # a socket that is held whole may have grown
            raise PlanError(f"{name}: {dict(free)} is located, {leaves} counted")


def is_held_twice(occupancy: Occupancy, worker: str) -> bool:
    """Return whether several hold more of some vertex of a worker than there is; what floats is of no vertex."""
    seen: dict[int, list[int]] = {}
    number = occupancy.workers.numbers[worker]
    inside = occupancy.states[number].stand.layout
    for pieces in occupancy.held.values():
        held = {i: whole for _, at, part in pieces if at == number for i, _, whole in part.amounts if i >= 0}
        tops = {at for i, whole in held.items() if whole for at in range(i, inside.last[i])}
        amounts = {i: n for _, at, part in pieces if at == number for i, n, whole in part.amounts if not whole}
        for i in tops:
            seen.setdefault(i, []).append(inside.amount(i))
        for i in held.keys() - tops:
            seen.setdefault(i, []).append(amounts[i])
    return any(sum(shares) > inside.amount(i) for i, shares in seen.items())


def unlike(one: Occupancy, other: Occupancy) -> Iterator[tuple[Any, Any, Any]]:
    """Yield what is held otherwise in another occupancy of a cluster, and how in each."""
    for key in one.held.keys() | other.held.keys():
        here, there = one.words(one.held.get(key, ())), other.words(other.held.get(key, ()))
        if here != there:
            yield key, here, there
