"""How a cluster goes: at once if it has nothing to do; told to drain, when what runs has ended.

What waits at a draining cluster is placed anew among the clusters that were candidates when it was submitted (those
its tokens covered), or refused: canceled, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict
from rainbow.jobs import Task, TaskState, advance
from rainbow.jobspec import parse_jobspec
from rainbow.matching import match, shown
from rainbow.selection import select
from rainbow.service.access import Caller, own_cluster
from rainbow.service.booking import states_of
from rainbow.service.deciding import archive, written
from rainbow.service.showing import settle
from rainbow.store import clusters, events, jobs, tasks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord

NOT_BEGUN = {TaskState.WAITING, TaskState.ASSIGNED}


def delete(service: Service, who: Caller, name: str, *, drain: bool = False) -> dict[str, Any] | None:
    """Forget a cluster; Conflict while it has live jobs, unless `drain`. Returns what must end before."""
    moved: set[str] = set()
    with service.changing:
        with service.store.write() as connection:
            record = own_cluster(connection, who, name)
            live = jobs.live(connection, record.id)
            if live and not drain:
                raise Conflict(f"cluster {name} has {len(live)} live jobs")
            told = _drain(service, connection, record, live, moved) if live else None
            if told is None or not told["running"]:
                _remove(service, connection, record)
                told = None
        service.compile(name)
    service.tell(record.id, *moved, changed=True)
    return told


def finish(service: Service, record: ClusterRecord) -> None:
    """Remove a draining cluster once nothing runs there."""
    with service.changing:
        with service.store.write() as connection:
            if jobs.live(connection, record.id) or clusters.by_id(connection, record.id) is None:
                return
            _remove(service, connection, record)
        service.compile(record.name)
    service.tell(record.id, changed=True)


def _remove(service: Service, connection: sa.Connection, record: ClusterRecord) -> None:
    archive(service, connection, record)
    events.add(connection, service.clock(), record.id, "cluster", cluster=record.name, state="deleted")
    clusters.remove(connection, record.id)


def _drain(
    service: Service, connection: sa.Connection, record: ClusterRecord, live: list[JobRecord], moved: set[str]
) -> dict[str, Any]:
    clusters.drain(connection, record.id, service.clock())
    told: dict[str, Any] = {"draining": record.name, "placed": [], "refused": [], "running": []}
    for job in live:
        own = tasks.of_job(connection, job.id)
        if any(task.state not in NOT_BEGUN for task in own):
            told["running"].append(job.id)
        elif to := _place_anew(service, connection, record, job, own):
            moved.add(to)
            told["placed"].append(job.id)
        else:
            _refuse(service, connection, job, own)
            told["refused"].append(job.id)
    return told


def _place_anew(
    service: Service, connection: sa.Connection, gone: ClusterRecord, job: JobRecord, own: list[Task]
) -> str | None:
    """Place a job at another of its candidates; return the id of that cluster, None if there is none."""
    before = jobs.decision(connection, job.id)
    names = {each["cluster"] for each in before["candidates"]} - {gone.name}
    among = [entry for name, entry in service.catalogue.items() if name in names]
    request = parse_jobspec(jobs.jobspec(connection, job.id))
    verdicts = match(request, [entry.cluster for entry in among], service.settings.backend)
    settings = service.settings
    states = states_of(service, connection, verdicts)
    choice = select(request, verdicts, states, settings.selector, settings.selector_options, seed=job.id)
    to = clusters.find(connection, choice.cluster) if choice.cluster else None
    if to is None or to.draining_at is not None:
        return None
    decision = {**shown(request, verdicts), "selection": written(choice), "seed": job.id, "moved_from": gone.name}
    nodes = next(v.totals.get("nodes", 0) for v in verdicts if v.cluster == to.name)
    jobs.change(connection, job.id, cluster_id=to.id, cluster=to.name, nodes=nodes, decision=decision, wait=None)
    for task in own:
        if task.state is TaskState.ASSIGNED:
            tasks.save(connection, advance(task, TaskState.WAITING, detail=f"cluster {gone.name} is drained"))
    tasks.move(connection, job.id, to.id)
    events.add(connection, service.clock(), to.id, "job", job=job.id, state=str(job.state), cluster=to.name)
    return to.id


def _refuse(service: Service, connection: sa.Connection, job: JobRecord, own: list[Task]) -> None:
    now = service.clock()
    jobs.change(connection, job.id, canceled_at=now)
    why = f"cluster {job.cluster} was drained, and no other can take it"
    for task in own:
        tasks.save(connection, advance(task, TaskState.CANCELED, placement={}, ended_at=now, detail=why))
    settle(connection, job.id, now)
