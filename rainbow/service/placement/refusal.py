"""Reasons why no cluster takes a job: a refusal, or an entry among the jobs that wait unplaced.

unsatisfiable     no cluster can ever run it
undecided         no cluster is known to: the time for matching ended first
no-cluster-now    some match, and the rules of selection leave none now; this job may wait
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NoClusterNow, RainbowError, Refused, TooMany, Undecided
from rainbow.matching import largest_worker, names_of
from rainbow.scheduling import installed
from rainbow.scheduling.gangs import processes_at_least
from rainbow.scheduling.snapshot import asked_priority
from rainbow.service.core.access import Caller, requestor_of
from rainbow.service.placement import site_checks
from rainbow.service.placement.candidates import verdicts_on
from rainbow.service.placement.match_cache import MOST_SHOWN, Match, MatchedRequest
from rainbow.state_machine import JobState
from rainbow.store import clusters, events, jobs
from rainbow.store.engine import Contended, NeedsExclusiveWrite
from rainbow.store.jobs import UnplacedRecord
from rainbow.text import some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.selection import Choice
    from rainbow.service.core.service import Service
    from rainbow.service.placement.candidates import ReachableClusters
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord

UNCOUNTED = 128  # cores of a worker whose graph counts none; its agent knows better


class Outdated(Conflict):
    """The graphs of the cluster that was selected changed after they were matched."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"the graphs of cluster {cluster} keep changing; submit again")
        self.cluster = cluster


def refusal(
    match: Match, choice: Choice, drained: Mapping[str, str], decision: Mapping[str, Any], seconds: float
) -> Refused:
    """Return why the job has no cluster: none matches, or none takes it now, and what dropped each."""
    named = match.candidates[:MOST_SHOWN]
    dropped = {**{one.cluster: choice.drops.get(one.cluster, choice.reason) for one in named}, **drained}
    if not dropped:
        return _unmatched(match, decision, seconds)
    count = len(match.candidates) + len(drained)
    text = f"{some(count, 'cluster')} could run this job, none takes it now: {_first(dropped)}"
    return NoClusterNow(text, dropped=dropped, **decision)


def _unmatched(match: Match, decision: Mapping[str, Any], seconds: float) -> Refused:
    """Return why no cluster matches: none can ever take the job, or none is known to in so many seconds."""
    names = names_of(match.undecided)
    if not names:
        said = _first(site_checks.refusals(match))
        return Refused(f"no eligible cluster can run this job{said and ': '}{said}", **decision)
    unknown = [(one.cluster, one.presumed.unknown) for one in match.undecided if one.presumed]
    if len(unknown) == len(names):
        shown = "; ".join(f"{name}: {', '.join(words)}" for name, words in unknown[:MOST_SHOWN])
        return Undecided(f"no cluster is known to match: {shown}", **decision)
    message = ", ".join(names[:MOST_SHOWN]) + (
        f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    )
    text = f"no cluster is known to match: {len(names)} undecided after {seconds:g} s ({message})"
    return Undecided(f"{text}; ask for less, name one cluster, or have limits.match_seconds raised", **decision)


def _first(dropped: Mapping[str, str]) -> str:
    shown = [f"{name}: {why}" for name, why in list(dropped.items())[:3]]
    return "; ".join([*shown, *([f"and {len(dropped) - 3} more"] if len(dropped) > 3 else [])])


def drained(service: Service, result: MatchedRequest) -> dict[str, str]:
    """Return why not of the clusters that match and are drained: they could run the job, and will again."""
    entries = result.match.reach.drained
    verdicts = verdicts_on(service, result.request, entries) if entries else ()
    why = "drained: it takes nothing new until it is reinstated"
    return {verdict.cluster: why for verdict in verdicts if verdict.matched}


# ── jobs that wait ──


def requestor_for(query: str | None, login: str | None, who: Caller, cluster_ids: Iterable[str]) -> str:
    """Return whom a job is for that no cluster has: by the first of these clusters whose token may say it."""
    fault: RainbowError | None = None
    for cluster_id in cluster_ids:
        try:
            return requestor_of(query, who.submits.get(cluster_id), login)
        except RainbowError as found:
            fault = fault or found
    raise fault or AssertionError("a job waits where some cluster matches")


def check_room(service: Service, connection: sa.Connection, requestor: str) -> None:
    """Raise TooMany if a requestor has as many jobs waiting as are allowed."""
    most = service.settings.limits.unplaced
    if most and jobs.count_unplaced(connection, requestor) >= most:
        text = f"{requestor} has {most} jobs waiting for a cluster, the limit"
        raise TooMany(text, retry_after=30, limit="unplaced")


def open_to(reach: ReachableClusters, who: Caller, requestor: str, *, named: bool) -> list[str] | None:
    """Return the ids of the clusters a job may go to; None: to any there is, and any that comes."""
    if who.admin and not named:
        return None
    ids = [entry.id for entry in (*reach.entries, *reach.drained)]
    return [one for one in ids if requestor in (who.submits.get(one) or [requestor])]


def wait_of(fault: RainbowError, since: float) -> dict[str, Any]:
    """Return why a job waits, as it is stored."""
    facts = {"dropped": fault.facts["dropped"]} if "dropped" in fault.facts else {}
    return {"reason": fault.code, "text": fault.message, "since": since, "facts": facts}


def answer_of(record: JobRecord, decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a submit is answered about a job, placed or waiting."""
    named = {"id": record.id, "number": record.number, "name": record.name}
    answer = {**named, "cluster": record.cluster or None, "state": record.state, "decision": decision}
    return answer | ({"wait": dict(record.wait or {})} if record.state is JobState.UNPLACED else {})


def enter(
    connection: sa.Connection, record: JobRecord, home: str, ids: list[str] | None, how: tuple[Any, Any, Any]
) -> None:
    """Let a stored job wait for one of these clusters (None: for any), to be placed by selector, options, backend."""
    reach = None if ids is None else jobs.keep_reach(connection, ids)
    jobs.add_unplaced(connection, UnplacedRecord(record.id, reach, record.submitted_at, home, *how))
    events.add(connection, record.submitted_at, home, "job", job=record.id, state=str(record.state), cluster=None)


def check_processes(service: Service, request: Request, cluster: Cluster) -> None:
    """Refuse a task that starts more processes than the cores it holds may have."""
    most = service.settings.limits.processes_per_core  # 0 is no limit
    whole, seen = 0, set[object]()
    for spec in request.tasks if most else ():
        # most tasks start one for each slot, which has a core or counts as one
        if spec.total is None and spec.per_resource is None and spec.per_slot <= most:
            continue
        if (key := (spec.slots, spec.per_slot, spec.total, spec.per_resource)) in seen:
            continue
        seen.add(key)
        whole = whole or _largest(cluster)
        processes, cores = processes_at_least(request, spec, whole)
        if processes > most * cores:
            text = f"task {spec.name} starts {processes:,} processes on {some(cores, 'core')}; at most {most} "
            text += "for each core it holds (limits.processes_per_core)"
            raise Refused(text, task=spec.name, processes=processes, cores=cores, most=most * cores)


def counts_less(cluster: ClusterRecord, request: Request) -> Iterator[str]:
    """Say that a jobspec asks for a higher priority than a cluster lets it, if it does."""
    system = request.attributes.get("system")
    requested = system.get("priority", 0) if isinstance(system, Mapping) else 0
    if asked_priority({"priority": requested}) <= 0 or (policy := installed(cluster.policy)) is None:
        return
    most = policy.check(cluster.settings).get("most_asked_priority")
    if most is not None and most < requested:
        yield f"priority {requested} counts as {most:g}: cluster {cluster.name} allows {most:g} at most"


def _largest(cluster: Cluster) -> int:
    """Return how many cores the largest worker has; where none are counted, as many as a large machine has."""
    return largest_worker(cluster, "core") or UNCOUNTED


FEW = 10  # clusters: so many may all be locked by one other server's burst


def overtaken(candidates: Collection[str]) -> NeedsExclusiveWrite:
    """Return what is raised where another server writes of the cluster that was selected of these."""
    return Contended() if len(candidates) >= FEW else NeedsExclusiveWrite()


def taking(connection: sa.Connection, name: str, *, lock_of: Collection[str] = ()) -> ClusterRecord:
    """Return the cluster that was selected; Conflict if it takes no jobs any more since it was matched.

    `lock_of`: for this transaction alone, of these candidates; `overtaken` if another has it.
    """
    cluster = clusters.lock(connection, name) if lock_of else clusters.find(connection, name)
    if lock_of and cluster is None:
        raise overtaken(lock_of)
    if cluster is None or cluster.draining_at is not None:
        raise Conflict(f"cluster {name} is being deleted; submit again")
    if cluster.drained_at is not None:
        raise Conflict(f"cluster {name} was drained a moment ago; submit again")
    return cluster
