"""What selection may know of the candidates at the moment of a submit, and who of them has no such queue or class."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from rainbow.errors import JobspecError
from rainbow.jobspec.common import FOR_POLICIES
from rainbow.jobspec.meant import meant
from rainbow.matching import Verdict
from rainbow.scheduling import Names, policies
from rainbow.selection.arithmetic import is_number
from rainbow.service.parts import Part
from rainbow.store import clusters, states, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.service import Service
    from rainbow.service.submits.reach import Reach

KEPT = 10.0  # seconds that a snapshot stands for the states of decisions that read none


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The states of the clusters of a reach at some time, as the ledger keeps them."""

    reach: Reach
    at: float
    states: Part


def snapshot(service: Service, among: Reach) -> Part:
    """Return the states for a decision that reads none of them: what another selector would have been given.

    They are written once for all jobs that are placed within KEPT seconds.
    """
    known, now = service.snapshots.get(among), service.clock()
    if known is None or not 0 <= now - known.at < KEPT:
        with service.store.read() as connection:
            found = states_of(service, connection, among.names, idle=False)
        known = service.snapshots.put(among, Snapshot(among, now, Part.of(found)))
    return known.states


def candidate_ids(service: Service, verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return {cluster id: name} of the clusters that match."""
    entries = service.catalogue
    return {entries[v.cluster].id: v.cluster for v in verdicts if v.matched and v.cluster in entries}


def states_of(
    service: Service, connection: sa.Connection, ids: Mapping[str, str], idle: bool
) -> dict[str, dict[str, Any]]:
    """Return the variables of every candidate's state; nodes_free as booked, idle workers if they are read."""
    reported, booked = states.get(connection, ids), states.booked(connection, ids)
    queued: Mapping[str, dict[str, int]] = states.queues(connection, ids)
    for cluster_id, count in (workers.idle(connection, ids) if idle else {}).items():
        queued[cluster_id]["idle_workers"] = count
    found: dict[str, dict[str, Any]] = {}
    for cluster_id, name in ids.items():
        values: dict[str, Any] = {f"queue.{key}": value for key, value in queued[cluster_id].items()}
        if cluster_id in reported:
            values |= reported[cluster_id].values
            values["state.age"] = max(0.0, service.clock() - reported[cluster_id].reported_at)
        free = values.get("nodes_free")
        if is_number(free):
            values["nodes_free"] = free + booked[cluster_id]
        found[name] = values
    return found


# ── names that policies give ──


def barred(connection: sa.Connection, request: Request, ids: Mapping[str, str]) -> dict[str, JobspecError]:
    """Return {cluster: fault} of the candidates ({id: name}) without a queue or class that a job asks for."""
    system = request.attributes.get("system")
    asked = {key: _texts(system[key]) for key in system if key in NAMED} if isinstance(system, Mapping) else {}
    if not any(asked.values()):
        return {}
    found: dict[str, JobspecError] = {}
    for cluster_id, (policy, settings) in clusters.policies(connection, ids).items():
        plugin = policies.get(policy)
        known = plugin.names(settings) if isinstance(plugin, Names) else {}
        for key in asked.keys() & known.keys():
            for name in asked[key]:
                if not _is_among(name.partition("@")[0], known[key]):
                    found[ids[cluster_id]] = _not_there(key, name, ids[cluster_id], known[key])
    return found


NAMED = FOR_POLICIES | {"class"}


def _texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed if isinstance(one, str) and one]


def _is_among(name: str, known: Collection[str]) -> bool:
    return name in known or (("*" in name or "?" in name) and any(fnmatchcase(one, name) for one in known))


def _not_there(key: str, name: str, cluster: str, known: Collection[str]) -> JobspecError:
    there = ", ".join(sorted(known)) or "none"
    hint = meant(name.partition("@")[0], known) or f"there are: {there:.200}"
    return JobspecError(
        f"{key} {name:.80} not found on cluster {cluster}; {hint}", pointer=f"/attributes/system/{key}"
    )
