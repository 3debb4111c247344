"""The reason of a wait: one function gives it to every reader, from the cluster's plan in force.

    code       what the store keeps of a wait, with the time since when it holds: {"reason", "since"}
    in force   the last plan of a cluster that this process has made, in a step or for a reader; text and facts are
               worked out from it, job by job, on request
    mark       a wait that is a fact and no plan's opinion (store/jobs.py); it is stored whole

A plan answers for the state of the mirror that it was made of, and what it has answered it answers again. So one
plan gives one answer about a job, and `at`, the plan's time, keeps the plans of two processes apart.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from rainbow.errors import RainbowError, TryLater
from rainbow.scheduling import planner, policies, traits_of
from rainbow.selection.choice import is_number
from rainbow.service.core.counters import count
from rainbow.service.core.heartbeats import PULLS, alive
from rainbow.service.core.memory import ByCluster, place
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.scheduler.plan_in_force import (
    BUDGET,
    EVERY,
    SOON,
    Budget,
    PlanInForce,
    PlansInForce,
    Reason,
    as_seen,
    reason_document,
)
from rainbow.service.scheduler.view import take_snapshot
from rainbow.state_machine import JobState, TaskState
from rainbow.store import cluster_states, clusters, jobs, reservations, tasks, workers
from rainbow.store.jobs import LIVE, MARKS, code_of
from rainbow.text import rfc3339, some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import RegisteredCluster, Service
    from rainbow.service.live_state.mirror import Mirror
    from rainbow.store.clusters import Planned
    from rainbow.store.jobs import JobRecord
    from rainbow.store.reservations import UnplacedBooking
    from rainbow.store.tasks import TasksInState

# reasons that lie with the job: they come before what its cluster is
ITS_OWN = frozenset({"dependency", "begin-time", "suspended", "held", "canceled", "array-limit", "pending"}) | {
    *("stopping", "not-accepted")
}


def reason_of(service: Service, record: JobRecord, who: Caller | None = None) -> Reason | None:
    """Return why a job waits: {"reason", "text", "facts", "since", "at", "plan"}; None if nothing of it waits.

    `at` is the time of the plan that says so (RFC 3339) and `plan` its number; both None where no plan does.
    """
    return reasons_of(service, [record], who).get(record.id)


def reasons_of(service: Service, records: Sequence[JobRecord], who: Caller | None = None) -> dict[str, Reason]:
    """Return {job: why it waits} of those of some jobs that do; all jobs of a cluster by one plan.

    `who` reads it: jobs that do not exist for this caller are not named.
    """
    results: dict[str, Reason | None] = {one.id: _mark(one) for one in records if one.wait and _is_marked(one)}
    if unplaced := [one for one in records if one.state is JobState.UNPLACED and one.id in results]:
        results |= _booked(service, unplaced, who)
    live = [one for one in records if one.state in LIVE and one.id not in results]
    planned, request = _without_plan(service, live, results)
    budget = Budget(monotonic() + BUDGET)
    for cluster_id, own in request.items():
        results |= _by_plan(service, cluster_id, planned[cluster_id], own, budget)
    said = {job: reason for job, reason in results.items() if reason is not None}
    if who is None:
        return said
    at = {record.id: record.cluster_id for record in records}
    return {job: as_seen(reason, who, at[job]) for job, reason in said.items()}


def _is_marked(record: JobRecord) -> bool:
    """Return whether what is stored of a job's wait is the whole of it, text and facts included."""
    return record.state is JobState.UNPLACED or (record.state in LIVE and code_of(record) in MARKS)


def _mark(record: JobRecord) -> Reason:
    wait = record.wait or {}
    return reason_document(wait["reason"], wait.get("text", ""), wait.get("facts", {}), wait.get("since"))


def _booked(service: Service, unplaced: Sequence[JobRecord], who: Caller | None) -> dict[str, Reason]:
    """Return the reasons of jobs without a cluster that nodes are kept for, or that lack nodes kept for others."""
    with service.store.read() as connection:
        if not (booked := reservations.bookings(connection)):
            return {}
        made = cluster_states.read_made(connection, {one.cluster_id for one in booked})
        owners = {one.id: one for one in jobs.some(connection, [one.job for one in booked])}
    names = {entry.id: name for name, entry in service.catalogue.items()}
    blocks: dict[str, UnplacedBlock] = {}
    for one in booked:
        free = cluster_states.row_of(made[one.cluster_id])[0].get("nodes_free")
        here = int(min(one.nodes, max(0, free + one.nodes))) if is_number(free) else 0
        owner = owners[one.job]
        shown = who is None or who.sees_of(one.cluster_id, owner.requestor)
        blocks[one.job] = UnplacedBlock(names.get(one.cluster_id, ""), one, here, owner if shown else None)
    said: dict[str, Reason] = {}
    for record in unplaced:
        mark = _mark(record)
        lacks = mark["facts"].get("dropped", {})
        if (own := blocks.get(record.id)) is not None:
            text = f"{own.here} of {some(own.booking.nodes, 'node')} of {own.cluster} are kept for it"
            text += ", the others as they become free" if own.here < own.booking.nodes else ""
            said[record.id] = {**mark, "text": text}
        elif others := [one for one in blocks.values() if one.cluster in lacks]:
            text = f"{mark['text']}; {', '.join(one.text for one in others)}"
            stored = [one.row for one in others]
            said[record.id] = {**mark, "text": text, "facts": {**mark["facts"], "kept": stored}}
    return said


@dataclass(frozen=True, slots=True)
class UnplacedBlock:
    """Nodes that are free and kept for a job without a cluster; `owner` None: its reader may not see it."""

    cluster: str
    booking: UnplacedBooking
    here: int
    owner: JobRecord | None

    @property
    def text(self) -> str:
        """What is kept, and for whom."""
        whom = f"{self.owner.name} ({self.owner.requestor})" if self.owner else "another job"
        are = "is" if self.here == 1 else "are"
        return f"{some(self.here, 'node')} of {self.cluster} {are} free but kept for {whom}"

    @property
    def row(self) -> dict[str, Any]:
        """The block as documents have it."""
        one, until = self.owner, None if self.booking.start is None else rfc3339(self.booking.start)
        named = {"job": one and one.id, "name": one and one.name, "user": one and one.requestor}
        return {**named, "amounts": {"node": self.here}, "workers": self.here, "until": until}


def _without_plan(
    service: Service, live: Sequence[JobRecord], results: dict[str, Reason | None]
) -> tuple[Mapping[str, Planned], dict[str, list[JobRecord]]]:
    """Add the reasons that no plan says; return how clusters are planned, and by cluster the jobs to ask plans of."""
    if not live:
        return {}, {}
    request: dict[str, list[JobRecord]] = {}
    ids = {record.cluster_id for record in live}
    with service.store.read() as connection:
        planned, lonely = clusters.planned(connection, ids), workers.unattended(connection, ids)
        uncoded = [record for record in live if record.wait is None]
        standing = tasks.standing(connection, [record.id for record in uncoded])
        seen = planned.keys() & {*lonely, *(record.cluster_id for record in uncoded)}
        sites = {one: _presence(service, connection, one, planned[one]) for one in seen}
    for record in live:
        if (cluster := planned.get(record.cluster_id)) is None:
            continue
        code, since = code_of(record), (record.wait or {}).get("since")
        if record.wait is None:
            said = _on_its_way(record, standing.get(record.id, {}), sites[record.cluster_id])
            results[record.id] = said
            if said is None:
                continue
            code, since = said["reason"], said["since"]
        nobody = _nobody(sites[record.cluster_id], record.submitted_at) if record.cluster_id in lonely else None
        if fault := service.faults.get(record.cluster_id):
            text = f"the scheduler's last step of {cluster.name} failed, its owner must act: {fault}"
            results[record.id] = reason_document("step-failed", text, {"fault": fault}, since)
        elif cluster.drained_at is not None and code not in ITS_OWN:
            until = f"until `rainbow cluster reinstate {cluster.name}`"
            text = f"cluster {cluster.name} is drained and starts nothing {until}"
            results[record.id] = reason_document("drained", text, {"drained_at": cluster.drained_at}, since)
        elif nobody and code not in ITS_OWN | {"agent-silent"}:
            results[record.id] = reason_document(nobody["reason"], nobody["text"], nobody["facts"], since)
        elif record.wait is not None or code == SOON:
            request.setdefault(record.cluster_id, []).append(record)
    return planned, request


def _by_plan(
    service: Service, cluster_id: str, cluster: Planned, records: Sequence[JobRecord], budget: Budget
) -> dict[str, Reason | None]:
    """Return what the plan in force says of some jobs of a cluster; the stored code where there is none in time.

    Of a job whose stored code has been changed since, as when its owner resumes it, only the newest plan is believed.
    """
    plans, fault = service.state(PlansInForce), ""
    entry, requirements = service.catalogue.get(cluster.name), [record.id for record in records]
    answers: Mapping[str, Reason | None] = {}
    if entry is not None and entry.id == cluster_id:
        known = plans.get(cluster_id)
        if known and _holds(service, known, cluster) and known.answers.keys() >= set(requirements):
            answers = known.answers
        failed = service.state(Failures)
        at, fault = failed.get(cluster_id, (-EVERY, ""))
        if not 0 <= service.monotonic() - at < EVERY:
            fault = ""
        try:
            answers = answers or ({} if fault else _in_time(service, entry, cluster, requirements, budget))
        except TryLater:
            answers = plans[cluster_id].answers if cluster_id in plans else {}
        except Exception as raised:  # a policy is anybody's code: what it raises is said of the jobs it is about
            fault = _text_of(service, cluster.name, raised)
            failed[cluster_id] = service.monotonic(), fault
    known = plans.get(cluster_id)
    return {
        record.id: answers[record.id]
        if record.id in answers and (not known or known.is_about(record) or _is_newest(service, known, cluster))
        else _undecided(record, cluster.name, fault)
        for record in records
    }


@place("failed-reasons", most="one for a cluster", of="when a policy failed that was asked for readers, and how")
class Failures(ByCluster[tuple[float, str]]):
    """When a policy failed that was asked for readers, and how: it is not asked again at once."""


def _undecided(record: JobRecord, cluster: str, fault: str) -> Reason:
    """Return the stored code, with what is known where no plan says more."""
    text = f"the policy of cluster {cluster} failed, its owner must act: {fault}" if fault else ""
    since = (record.wait or {}).get("since", record.submitted_at)
    text = text or f"the next scheduling cycle of {cluster} decides"
    return reason_document(code_of(record) or SOON, text, {}, since)


def _text_of(service: Service, cluster: str, raised: Exception) -> str:
    count("rainbow_step_faults", cluster)
    return str(raised) if isinstance(raised, RainbowError) else f"{type(raised).__name__}: {raised}"


def _holds(service: Service, known: PlanInForce, cluster: Planned) -> bool:
    """Return whether a plan answers although something may have happened since, or nothing has.

    News of other processes may be lost: where there are any, no plan is believed for long.
    """
    now = service.monotonic()
    if 0 <= now - known.asked < EVERY:
        return True
    return (not service.store.many_processes or 0 <= now - known.made < EVERY) and _is_newest(service, known, cluster)


def _is_newest(service: Service, known: PlanInForce, cluster: Planned) -> bool:
    """Return whether nothing is known to have happened since a plan was made."""
    return (known.epoch, known.version) == (cluster.epoch, service.news.version(known.mirror.entry.id))


def _in_time(
    service: Service, entry: RegisteredCluster, cluster: Planned, requirements: Sequence[str], budget: Budget
) -> Mapping[str, Reason | None]:
    """Ask a built-in policy here; a third party's in a thread of its own, which may not come back."""
    if not policies.is_installed(cluster.policy):
        return _asked(service, entry, cluster, requirements, budget)
    stuck = service.state(AskingThreads)
    if (before := stuck.get(entry.id)) is not None:
        before.join(budget.wait)
        if before.is_alive():
            raise RainbowError("it has not come back since it was asked why jobs wait")
    done: list[Mapping[str, Reason | None] | Exception] = []

    def work() -> None:
        try:
            done.append(_asked(service, entry, cluster, requirements, budget))
        except Exception as fault:
            done.append(fault)

    stuck[entry.id] = thread = threading.Thread(target=work, name="reasons", daemon=True)
    thread.start()
    thread.join(budget.wait)
    if not done:
        raise RainbowError(f"it does not come back within {BUDGET:g} s, asked why jobs wait")
    if isinstance(done[0], Exception):
        raise done[0]
    return done[0]


@place("reason-threads", most="one for a cluster", of="the thread that asks a third party's policy")
class AskingThreads(ByCluster[threading.Thread]):
    """The last thread that asked a third party's policy."""


def _asked(
    service: Service, entry: RegisteredCluster, cluster: Planned, requirements: Sequence[str], budget: Budget
) -> Mapping[str, Reason | None]:
    """Return what the plan in force says of jobs; it is made if it must be and may."""
    with mirrored(service, entry, budget.wait) as mirror:
        known = _current(service, mirror, cluster, budget)
        if known is None or not known.is_of(mirror):
            return known.answers if known else {}
        return {job: _said(service, known, job, budget) for job in requirements if job in mirror.jobs}


def _said(service: Service, known: PlanInForce, job: str, budget: Budget) -> Reason | None:
    """Return the reason of one job; what its policy raises is said in its place."""
    try:
        return known.reason(job, budget)
    except Exception as raised:
        name, record = known.mirror.entry.cluster.name, known.mirror.jobs[job].record
        return known.dated(_undecided(record, name, _text_of(service, name, raised)))


def _current(service: Service, mirror: Mirror, cluster: Planned, budget: Budget) -> PlanInForce | None:
    """Return the plan in force, or make one if something has happened since, at most once in EVERY seconds."""
    plans, began = service.state(PlansInForce), thread_time()
    known = plans.get(mirror.entry.id)
    if known and known.is_of(mirror) and _holds(service, known, cluster):
        return known
    if not budget.allows(known.cost if known else 0.0):
        return known
    version = service.news.version(mirror.entry.id)
    seen = take_snapshot(service, mirror)
    if seen is None:
        return None
    plan = planner.plan(policies.get(seen.record.policy), seen.view, seen.rules)
    cost = thread_time() - began
    budget.pay(cost)
    made = plans.put(service, seen, plan, version, cost)
    made.asked = service.monotonic()
    return made


# ── without a plan: the tasks are on their way to an agent, or back from one ──
#
# WAITING    no scheduling cycle has looked at it yet
# ASSIGNED   no agent has accepted it: none is connected, or it has not asked yet
# ACCEPTED   the agent has it; its resource manager says why it does not start, if the executor can say so
# STOPPING   the agent has not confirmed the end
# SUSPENDED  it is held in place
#
# An agent that is silent comes before all of this: nothing is known of its tasks.

T = TaskState
NAMED = 5  # agents that are called by name


@dataclass(frozen=True, slots=True)
class ClusterPresence:
    """What is known of a cluster: when each agent was last seen.

    `living` are those whose lease is not over, `serving` those of them that have not said that no worker is up.
    """

    name: str
    seen: Mapping[str, float]
    living: frozenset[str]
    serving: frozenset[str]
    delegates: bool = False


def _presence(service: Service, connection: sa.Connection, cluster_id: str, cluster: Planned) -> ClusterPresence:
    """Return what is known of a cluster."""
    signs = workers.agents_of(connection, cluster_id)
    living = alive(service.heartbeats, service.settings.lease, cluster_id, signs)
    return ClusterPresence(
        cluster.name,
        {name: sign.seen_at for name, sign in signs.items()},
        frozenset(living),
        frozenset(name for name, sign in living.items() if sign.workers is None or sign.workers),
        traits_of(cluster.policy).hands_over,
    )


def _nobody(site: ClusterPresence, since: float) -> Reason | None:
    """Return why nothing starts at a cluster none of whose workers is there; None if an agent serves one."""
    return None if site.serving or site.delegates else _no_agent(site, since)


def _on_its_way(
    record: JobRecord, standing: Mapping[TaskState, TasksInState], site: ClusterPresence
) -> Reason | None:
    """Say why a job waits; None if all that is left of it runs."""
    for state, say in _SAID.items():
        if state in standing and (wait := say(record, standing[state], site)) is not None:
            return wait
    if T.RUNNING in standing:
        return None
    return _wait("next-cycle", f"the next scheduling cycle of {site.name} decides", record.submitted_at)


def _wait(reason: str, text: str, since: float | None, /, **facts: Any) -> Reason:
    return reason_document(reason, text, facts, since)


def _silent(_: JobRecord, of: TasksInState, site: ClusterPresence) -> Reason | None:
    if of.agent in site.living or of.agent.startswith(PULLS):
        return None
    seen = site.seen.get(of.agent)
    since = f"silent since {rfc3339(seen)}" if seen is not None else "not known any more"
    text = f"{some(of.number, 'task')} at agent {of.agent}, {since}; requeued when its lease and grace are over"
    return _wait("agent-silent", text, seen, agent=of.agent, tasks=of.number)


def _assigned(_: JobRecord, of: TasksInState, site: ClusterPresence) -> Reason:
    if site.serving:
        names = sorted(site.serving)[:NAMED]
        may = some(len(site.serving), "connected agent")
        text = f"{some(of.number, 'task')} assigned; {may} of {site.name} may accept"
        return _wait("not-accepted", text, of.since, tasks=of.number, agents=names)
    return _no_agent(site, of.since, tasks=of.number)


def _no_agent(site: ClusterPresence, since: float | None, **facts: Any) -> Reason:
    """Say that no agent serves a cluster."""
    last = max(site.seen.values(), default=None)
    seen = f"the last was seen at {rfc3339(last)}" if last is not None else "none was ever seen"
    pull = ", none has received it" if site.delegates else ""
    none = "connected agents of {} serve a worker" if site.living else "agents of {} are connected"
    text = f"0 {none.format(site.name)}{pull}; {seen}; start one with rainbow agent"
    return _wait("no-agent", text, since, **facts, last_seen=None if last is None else rfc3339(last))


def _accepted(record: JobRecord, of: TasksInState, site: ClusterPresence) -> Reason:
    if (wait := _silent(record, of, site)) is not None:
        return wait
    if of.pending:
        facts = {**of.pending.get("facts", {}), "code": of.pending["code"], "agent": of.agent, "tasks": of.number}
        return _wait("pending", of.pending["text"], of.pending["since"], **facts)
    text = f"{some(of.number, 'task')} accepted by agent {of.agent} and not started; it reports no reason"
    return _wait("not-started", text, of.since, agent=of.agent, tasks=of.number)


def _stopping(record: JobRecord, of: TasksInState, site: ClusterPresence) -> Reason:
    if (wait := _silent(record, of, site)) is not None:
        return wait
    if how := of.preempted:
        message = f"{some(of.number, 'task')} told by {how['signal']}, ended in {how['grace']:g} s"
        text = f"preempted by job {how['by']}: {message}"
        return _wait("preempted", text, of.since, agent=of.agent, tasks=of.number, by=how["by"])
    text = f"{some(of.number, 'task')} told to stop; agent {of.agent} has not confirmed the end"
    return _wait("stopping", text, record.canceled_at or of.since, agent=of.agent, tasks=of.number)


def _suspended(record: JobRecord, of: TasksInState, site: ClusterPresence) -> Reason:
    if (wait := _silent(record, of, site)) is not None:
        return wait
    requested = record.suspended_at is not None
    how = (
        "; resume the job with rainbow job resume"
        if requested
        else " by the policy or at the site, or not resumed yet"
    )
    text = f"{some(of.number, 'task')} suspended{how}"
    return _wait("suspended", text, record.suspended_at or of.since, tasks=of.number)


_SAID = {
    T.ASSIGNED: _assigned,
    T.ACCEPTED: _accepted,
    T.STOPPING: _stopping,
    T.SUSPENDED: _suspended,
    T.RUNNING: _silent,
}
