"""Wait reasons outside of policies: the tasks are on their way to an agent, or back from one.

WAITING    no scheduling cycle has looked at it yet, or the last one failed
    ASSIGNED   no agent has accepted it: none is connected, or it has not asked yet
    ACCEPTED   the agent has it; its resource manager says why it does not start, if the executor can say so
    STOPPING   the agent has not confirmed the end
    SUSPENDED  it is held in place

An agent that is silent comes before all of this: nothing is known of its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rainbow.scheduling import traits_of
from rainbow.service.core.heartbeats import PULLS, alive
from rainbow.state_machine import TaskState
from rainbow.store import clusters, tasks, workers
from rainbow.store.jobs import LIVE
from rainbow.text import rfc3339, some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord
    from rainbow.store.tasks import TasksInState


T = TaskState
NAMED = 5  # agents that are called by name


@dataclass(frozen=True, slots=True)
class ClusterPresence:
    """What is known of a cluster: when each agent was last seen, and its scheduler's fault.

    `living` are those whose lease is not over, `serving` those of them that have not said that no worker is up.
    """

    name: str
    seen: Mapping[str, float]
    living: frozenset[str]
    serving: frozenset[str]
    delegates: bool = False
    fault: str = ""


def waits_of(service: Service, connection: sa.Connection, records: Sequence[JobRecord]) -> dict[str, dict[str, Any]]:
    """Return {job: why it waits} of the jobs of which no policy says it."""
    open_ = [record for record in records if record.state in LIVE and record.wait is None]
    standing = tasks.standing(connection, [record.id for record in open_])
    at = {record.cluster_id: record for record in open_}  # one job of each cluster: a cluster is read once
    sites = {cluster_id: _site(service, connection, record) for cluster_id, record in at.items()}
    found = ((r.id, wait_of(r, standing.get(r.id, {}), sites[r.cluster_id])) for r in open_)
    return {job: wait for job, wait in found if wait is not None}


def unserved(service: Service, connection: sa.Connection, record: JobRecord) -> dict[str, Any] | None:
    """Say that no agent serves the cluster of a job in its queue; None if one does, or some worker is there."""
    site = _site(service, connection, record)
    if site.serving or site.delegates or record.cluster_id not in workers.unattended(connection, [record.cluster_id]):
        return None
    return _no_agent(site, record.submitted_at)


def _site(service: Service, connection: sa.Connection, record: JobRecord) -> ClusterPresence:
    signs = workers.agents_of(connection, record.cluster_id)
    cluster = clusters.get(connection, record.cluster_id)
    living = alive(service.heartbeats, service.settings.lease, record.cluster_id, signs)
    return ClusterPresence(
        record.cluster,
        {name: sign.seen_at for name, sign in signs.items()},
        frozenset(living),
        frozenset(name for name, sign in living.items() if sign.workers is None or sign.workers),
        cluster is not None and traits_of(cluster.policy).hands_over,
        service.faults.get(record.cluster_id, ""),
    )


def wait_of(
    record: JobRecord, standing: Mapping[TaskState, TasksInState], site: ClusterPresence
) -> dict[str, Any] | None:
    """Say why a job waits; None if all that is left of it runs."""
    for state, say in _SAID.items():
        if state in standing and (wait := say(record, standing[state], site)) is not None:
            return wait
    if T.RUNNING in standing:
        return None
    if site.fault:
        text = f"the last scheduling cycle of {site.name} failed: {site.fault}"
        return _wait("step-failed", text, record.submitted_at, fault=site.fault)
    return _wait("next-cycle", f"the next scheduling cycle of {site.name} decides", record.submitted_at)


def _wait(reason: str, text: str, since: float | None, /, **facts: Any) -> dict[str, Any]:
    return {"reason": reason, "text": text, "facts": facts, "since": since}


def _silent(_: JobRecord, of: TasksInState, site: ClusterPresence) -> dict[str, Any] | None:
    if of.agent in site.living or of.agent.startswith(PULLS):
        return None
    seen = site.seen.get(of.agent)
    since = f"silent since {rfc3339(seen)}" if seen is not None else "not known any more"
    text = f"{some(of.number, 'task')} at agent {of.agent}, {since}; requeued when its lease and grace are over"
    return _wait("agent-silent", text, seen, agent=of.agent, tasks=of.number)


def _assigned(_: JobRecord, of: TasksInState, site: ClusterPresence) -> dict[str, Any]:
    if site.serving:
        names = sorted(site.serving)[:NAMED]
        may = some(len(site.serving), "connected agent")
        text = f"{some(of.number, 'task')} assigned; {may} of {site.name} may accept"
        return _wait("not-accepted", text, of.since, tasks=of.number, agents=names)
    return _no_agent(site, of.since, tasks=of.number)


def _no_agent(site: ClusterPresence, since: float | None, **facts: Any) -> dict[str, Any]:
    """Say that no agent serves a cluster."""
    last = max(site.seen.values(), default=None)
    seen = f"the last was seen at {rfc3339(last)}" if last is not None else "none was ever seen"
    pull = ", none has received it" if site.delegates else ""
    none = "connected agents of {} serve a worker" if site.living else "agents of {} are connected"
    text = f"0 {none.format(site.name)}{pull}; {seen}; start one with rainbow agent"
    return _wait("no-agent", text, since, **facts, last_seen=None if last is None else rfc3339(last))


def _accepted(record: JobRecord, of: TasksInState, site: ClusterPresence) -> dict[str, Any]:
    if (wait := _silent(record, of, site)) is not None:
        return wait
    if of.pending:
        facts = {**of.pending.get("facts", {}), "code": of.pending["code"], "agent": of.agent, "tasks": of.number}
        return _wait("pending", of.pending["text"], of.pending["since"], **facts)
    text = f"{some(of.number, 'task')} accepted by agent {of.agent} and not started; it reports no reason"
    return _wait("not-started", text, of.since, agent=of.agent, tasks=of.number)


def _stopping(record: JobRecord, of: TasksInState, site: ClusterPresence) -> dict[str, Any]:
    if (wait := _silent(record, of, site)) is not None:
        return wait
    if how := of.preempted:
        told = f"{some(of.number, 'task')} told by {how['signal']}, ended in {how['grace']:g} s"
        text = f"preempted by job {how['by']}: {told}"
        return _wait("preempted", text, of.since, agent=of.agent, tasks=of.number, by=how["by"])
    text = f"{some(of.number, 'task')} told to stop; agent {of.agent} has not confirmed the end"
    return _wait("stopping", text, record.canceled_at or of.since, agent=of.agent, tasks=of.number)


def _suspended(record: JobRecord, of: TasksInState, site: ClusterPresence) -> dict[str, Any]:
    if (wait := _silent(record, of, site)) is not None:
        return wait
    asked = record.suspended_at is not None
    how = "; resume the job with rainbow job resume" if asked else " by the policy or at the site, or not resumed yet"
    text = f"{some(of.number, 'task')} suspended{how}"
    return _wait("suspended", text, record.suspended_at or of.since, tasks=of.number)


_SAID = {
    T.ASSIGNED: _assigned,
    T.ACCEPTED: _accepted,
    T.STOPPING: _stopping,
    T.SUSPENDED: _suspended,
    T.RUNNING: _silent,
}
