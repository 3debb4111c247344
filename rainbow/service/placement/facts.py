"""What a selection may read of the clusters that match a job, frozen for one decision.

A submit, a batch's plan, an unplaced job and a job that moves (its cluster is lost or drained, or another starts it
sooner) are all decided by these facts: a cluster is not better or worse by the way in which a job comes to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.forecast.outlook import Arriving
from rainbow.matching import candidates_without
from rainbow.selection import Choice, read_of, reads, reads_states, select
from rainbow.selection.choice import is_number
from rainbow.selection.variables import ACCOUNT, FORECAST, MODEL, MORE, OWN_SLOPE, SWITCHES
from rainbow.service.accounts import account_cache
from rainbow.service.core.counters import phase
from rainbow.service.jobs.run_models import JobModel, model_for
from rainbow.service.placement.arrival import Arrival, arrivals
from rainbow.service.placement.candidates import WAIT, StatesRead, read_states, sized, unattended, with_waits
from rainbow.store.cluster_states import BoardStates
from rainbow.store.reservations import bookings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.matching import Verdict
    from rainbow.service.core.service import Service

IDLE, FREE = "queue.idle_workers", "nodes_free"
States = Mapping[str, Mapping[str, Any]]


class Candidates(Protocol):
    """The clusters that match a job."""

    @property
    def candidates(self) -> Sequence[Verdict]:
        """Their verdicts, in the order of `ids`."""

    @property
    def ids(self) -> Mapping[str, str]:
        """{cluster id: name}."""


@dataclass(frozen=True, slots=True)
class Around:
    """Clusters that are looked at together."""

    candidates: Sequence[Verdict]
    ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """The variables of each cluster by name, and what they were made of."""

    values: States
    stored: StatesRead | None = None  # the states as the store has them; None: the selector reads none
    board: BoardStates | None = None  # the same, where the ledger writes only what has changed since another decision
    forecast: Arriving | None = None  # when the job would start and end on each, if that is read
    model: JobModel | None = None  # what runs like the job have taught, if that is read
    absent: Sequence[str] = ()  # clusters without an agent, where another has one

    @property
    def own(self) -> dict[str, dict[str, Any]]:
        """The variables that are of this job: another one's are other."""
        more = (*MORE, OWN_SLOPE) if self.model is not None else MORE
        return {
            name: {key: value for key, value in values.items() if key in more or key.startswith(WAIT)}
            for name, values in self.values.items()
        }


def facts_for(
    service: Service,
    connection: sa.Connection,
    job: Arrival,
    among: Candidates,
    *,
    forecast: bool = False,
    in_full: bool = False,
    stated: bool = False,
) -> Facts:
    """Return what a decision about a job may read of the clusters that match it.

    `forecast`: also when it would start on each, whether its selector reads that or not. `in_full`: the ledger writes
    the states of these clusters alone. `stated`: the states, too, whether its selector reads them or not.
    """
    absent = unattended(service, connection, among.ids)
    if not (forecast or stated or reads_states(job.selector)):
        return Facts({}, absent=absent)
    stored = read_stored(service, connection, job, among.ids)
    learned = service.settings.models and read_of(job.selector, job.options, (*MODEL, OWN_SLOPE))
    spared = _spared(connection, job, among.ids, service.clock())
    more = forecast or in_full or learned or bool(job.waits or spared) or read_of(job.selector, job.options, MORE)
    if isinstance(stored, BoardStates) and stored.says_all(more):
        return Facts(stored.table, stored, stored, absent=absent)
    values, spans = stored.values, reads(job.selector, job.options, SWITCHES)
    if extended := spans or not isinstance(stored, BoardStates) or stored.waits:
        before = sum(map(len, values.values()))
        values = sized(values, among.candidates, spans)
        extended = any(WAIT in state for state in values.values()) or before != sum(map(len, values.values()))
    if job.waits or spared:
        values, extended = _with_spared(with_waits(values, job.waits), spared), True
    names = read_of(job.selector, job.options, FORECAST)
    made = None
    if names or forecast:
        made = replace(arrivals(service, connection, job, among.candidates, among.ids), names=sorted(names))
        made.tell(values)
    if read_of(job.selector, job.options, ACCOUNT):
        known = account_cache.variables(service, connection, job.account, job.requestor) if job.account else {}
        for state in values.values():
            state.update(known)
        extended = True
    model = None
    if learned:
        fields = {"name": job.name, "requestor": job.requestor}
        model = model_for(service, fields, job.reading.request.parameters, values)
        model.tell(values)
        extended = True
    board = stored if isinstance(stored, BoardStates) and not (extended or in_full) else None
    return Facts(values, stored, board, made, model, absent)


def _with_spared(values: Mapping[str, dict[str, Any]], spared: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Let nodes that are booked for a job without a cluster be free, where this job may use them."""
    result = dict(values)
    for name in result.keys() & spared.keys():
        if is_number(free := result[name].get(FREE)):
            result[name] = {**result[name], FREE: free + spared[name]}
    return result


def _spared(connection: sa.Connection, job: Arrival, ids: Mapping[str, str], now: float) -> dict[str, int]:
    """Return {cluster: nodes} that are booked for a job without a cluster, and that this job may use."""
    limit = max(gang.request.duration for gang in job.reading.gangs)
    return {
        ids[one.cluster_id]: one.nodes
        for one in bookings(connection)
        if one.cluster_id in ids and one.spares(job.job, now, limit)
    }


def read_stored(service: Service, connection: sa.Connection, job: Arrival, ids: Mapping[str, str]) -> StatesRead:
    """Return the states of clusters ({id: name}) as the store has them."""
    return read_states(service, connection, ids, reads(job.selector, job.options, IDLE))


def decide(job: Arrival, verdicts: Sequence[Verdict], facts: Facts, seed: str) -> tuple[Choice, Sequence[str]]:
    """Choose a cluster where an agent is, else anywhere; name those that were left out for having none."""
    request, values, how = job.reading.request, facts.values, (job.selector, job.options)
    with phase("select"):
        if facts.absent:
            attended = candidates_without(verdicts, set(facts.absent))
            if (choice := select(request, attended, values, *how, seed=seed)).cluster is not None:
                return choice, facts.absent
        return select(request, verdicts, values, *how, seed=seed), ()
