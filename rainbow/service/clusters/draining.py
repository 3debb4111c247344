"""How a cluster goes: at once if nothing of its own is left; told to drain, when what runs has ended.

What waits there is placed anew (moving.py). Told to drain, what was offered and not accepted is too, and what fits
nowhere else is refused: canceled, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict
from rainbow.jobs import Task, TaskState, advance
from rainbow.scheduling.english import some
from rainbow.service.access import Caller, own_cluster
from rainbow.service.jobs.showing import end
from rainbow.service.submits.moving import evacuate, place_anew
from rainbow.store import clusters, events, jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord

NOT_BEGUN = {TaskState.WAITING, TaskState.ASSIGNED}


def delete(service: Service, who: Caller, name: str, *, drain: bool = False) -> dict[str, Any] | None:
    """Forget a cluster; Conflict, and nothing changed, while it has live jobs, unless `drain`.

    Returns what must end before.
    """
    with service.changing:
        with service.store.write() as connection:
            record = own_cluster(connection, who, name)
            before = [job.id for job in jobs.live(connection, record.id)]
            left = evacuate(service, connection, record.id)
            if left and not drain:
                raise Conflict(f"cluster {name} has {some(len(left), 'live job')}")
            told = _drain(service, connection, record, before, left) if before and drain else None
            if told is None or not told["running"]:
                _remove(service, connection, record)
                told = None
        service.compile(name)
    service.tell(changed=True)
    return told


def finish(service: Service, record: ClusterRecord) -> None:
    """Remove a draining cluster once nothing runs there."""
    with service.changing:
        with service.store.write() as connection:
            if jobs.live(connection, record.id) or clusters.get(connection, record.id) is None:
                return
            _remove(service, connection, record)
        service.compile(record.name)
    service.tell(record.id, changed=True)


def _remove(service: Service, connection: sa.Connection, record: ClusterRecord) -> None:
    events.add(connection, service.clock(), record.id, "cluster", cluster=record.name, state="deleted")
    clusters.remove(connection, record.id)


def _drain(
    service: Service, connection: sa.Connection, record: ClusterRecord, before: list[str], left: list[JobRecord]
) -> dict[str, Any]:
    clusters.drain(connection, record.id, service.clock())
    moved = set(before) - {job.id for job in left}
    told: dict[str, Any] = {"draining": record.name, "placed": sorted(moved), "refused": [], "running": []}
    for job in left:
        own = tasks.of_job(connection, job.id)
        if any(task.state not in NOT_BEGUN for task in own):
            told["running"].append(job.id)
            continue
        _take_back(connection, record, own, service.clock())
        if place_anew(service, connection, job, "its cluster was deleted"):
            told["placed"].append(job.id)
        else:
            why = f"cluster {record.name} was drained, and no other can take it"
            end(connection, job.id, service.clock(), why)
            told["refused"].append(job.id)
    return told


def _take_back(connection: sa.Connection, record: ClusterRecord, own: list[Task], now: float) -> None:
    """Offer no more what nobody has accepted."""
    why = f"cluster {record.name} is drained"
    offered = [advance(task, TaskState.WAITING, detail=why) for task in own if task.state is TaskState.ASSIGNED]
    tasks.save_all(connection, offered, now)
