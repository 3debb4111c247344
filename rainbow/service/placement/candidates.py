"""The clusters a caller may submit to, and what selection may know of them.

While neither the clusters nor the caller's credentials change they are one object, so that matches and log entries
are reused across submits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rainbow.cache import LruCache, Overlay, Same, cached_property
from rainbow.errors import Forbidden, JobspecError, NotFound, TryLater
from rainbow.jobspec.dialects.common import FOR_ACCOUNTS, FOR_POLICIES
from rainbow.matching import Verdict, candidates_of, match, names_of, undecided_of
from rainbow.scheduling import Names, installed, traits_of
from rainbow.selection.choice import is_number
from rainbow.selection.variables import AGE, SWITCHES
from rainbow.service.core.memory import IMMUTABLE, Table, age, picture
from rainbow.service.core.settings import PLACE
from rainbow.store import clusters, workers
from rainbow.store.cluster_states import BoardStates, Made, StateBoard, read_made, row_of
from rainbow.text import meant

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import CompiledClusters, RegisteredCluster, Service


@dataclass(frozen=True, slots=True)
class DigestedText:
    """A text and its digest, both worked out once."""

    text: str
    digest: str

    @classmethod
    def of(cls, value: Any) -> DigestedText:
        """Write a value."""
        text = json.dumps(value, default=str)
        return cls(text, sha256(text.encode()).hexdigest())


SNAPSHOT_LASTS = 10.0  # seconds that a snapshot stands for the states of decisions that read none


@dataclass(frozen=True, slots=True)
class CandidateStates:
    """The states of some clusters at some time, as the ledger keeps them."""

    at: float
    states: DigestedText


MOST_CALLERS = 256  # callers, and choices of clusters by name, that are remembered


class Snapshots(
    Table[Any, "CandidateStates"],
    name="snapshots",
    most=2 * MOST_CALLERS,
    valid=age(SNAPSHOT_LASTS),
    key="ids of clusters; states beside decisions that read none",
):
    """The last states of the clusters of a reach, whatever their graphs."""


READ_ALONE = 16  # candidates whose states are read by themselves
FEW_CANDIDATES = 64  # candidates whose agents are looked for at every decision
NOTED = 1.0  # seconds that the look at the agents of more of them stands


class CandidateAbsences(
    Table[Any, tuple[float, list[str]]],
    name="absences",
    most=2 * MOST_CALLERS,
    valid=age(NOTED),
    key="ids of candidates; which of many have no agent",
):
    """When, and which candidates had no agent, by the ids of the candidates."""


@picture(
    "states", most="all clusters", true="read again where an event or a note says so; the chosen one is compared"
)
class KnownStates(StateBoard):
    """The states of all clusters, as selection reads them of many."""


def snapshot(service: Service, among: ReachableClusters) -> DigestedText:
    """Return the states for a decision that reads none of them: what another selector would have been given.

    They are written once for all jobs that are placed within SNAPSHOT_LASTS seconds.
    """
    snapshots, now = service.state(Snapshots), service.clock()
    known = snapshots.get(Same(among.names), now) or snapshots.get(tuple(among.names), now)
    if known is None:
        look_ahead(service, among.names)
        with service.store.read() as connection:
            result = read_states(service, connection, among.names, idle=False).values
        known = CandidateStates(now, DigestedText.of(result))
        snapshots.put(tuple(among.names), known, now)
    snapshots.put(Same(among.names), known, known.at)
    return known.states


def candidate_ids(service: Service, verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return {cluster id: name} of the clusters that match."""
    entries = service.catalogue
    return {entries[v.cluster].id: v.cluster for v in verdicts if v.matched and v.cluster in entries}


def unattended(service: Service, connection: sa.Connection, ids: Mapping[str, str]) -> list[str]:
    """Name the candidates ({id: name}) that no agent works for, where another has one; else none.

    A policy that needs no worker hands jobs over to any taker, so its clusters have no agent to miss.
    """
    results = without_agent(service, connection, ids) if len(ids) > 1 else []
    return results if len(results) < len(ids) else []


def without_agent(service: Service, connection: sa.Connection, ids: Mapping[str, str]) -> list[str]:
    """Name the candidates ({id: name}) that no agent works for."""
    if len(ids) <= FEW_CANDIDATES:
        return _without_agent(connection, ids)
    absences, now = service.state(CandidateAbsences), service.clock()
    known = absences.get(Same(ids), now) or absences.get(tuple(ids), now)  # other graphs, the same clusters
    if known is None:
        known = absences.put(tuple(ids), (now, _without_agent(connection, ids)), now)
    absences.put(Same(ids), known, known[0])
    return known[1]


def _without_agent(connection: sa.Connection, ids: Mapping[str, str]) -> list[str]:
    results = workers.unattended(connection, ids)
    needing = {policy for policy in set(results.values()) if traits_of(policy).needs_workers}
    return sorted(ids[one] for one, policy in results.items() if policy in needing)


@dataclass(frozen=True, slots=True)
class FewStates:
    """The variables of a few candidates' states at some time."""

    at: float
    values: dict[str, dict[str, Any]]
    made_of: Mapping[str, Made]

    def made(self, name: str) -> Made:
        """Return what a cluster's state was made of."""
        return self.made_of[name]


StatesRead = FewStates | BoardStates


def read_states(service: Service, connection: sa.Connection, ids: Mapping[str, str], idle: bool) -> StatesRead:
    """Return the variables of every candidate's state; nodes_free as booked, idle workers if they are read.

    Those of many are kept from one decision to the next, and read again where they have changed.
    """
    if len(ids) > READ_ALONE and not idle:
        return service.state(KnownStates).seen(connection, partial(_ordered, service), ids, service.clock())
    made, now, result = read_made(connection, ids, idle), service.clock(), dict[str, dict[str, Any]]()
    for cluster_id, name in ids.items():
        values, reported = row_of(made[cluster_id])
        result[name] = values if reported != reported else {**values, AGE: max(0.0, now - reported)}
    return FewStates(now, result, {name: made[one] for one, name in ids.items()})


def look_ahead(service: Service, ids: Mapping[str, str]) -> None:
    """Read what a decision among these candidates will read, before its transaction."""
    if len(ids) > READ_ALONE:
        service.state(KnownStates).advance(service.store, partial(_ordered, service), ids)


def _ordered(service: Service) -> dict[str, str]:
    entries = sorted(service.catalogue.values(), key=attrgetter("cluster.sort_key"))
    return {entry.id: entry.cluster.name for entry in entries}


def is_true(
    service: Service, connection: sa.Connection, seen: StatesRead | None, reach: ReachableClusters, chosen: str | None
) -> bool:
    """Return whether the chosen cluster's state is as it was seen; if not, what is kept of states is forgotten.

    A change that nobody was told of must not book a node twice.
    """
    if chosen is None or not isinstance(seen, BoardStates):
        return True
    cluster_id = reach.entry(chosen).id
    if read_made(connection, [cluster_id])[cluster_id] == seen.made(chosen):
        return True
    service.state(KnownStates).board = None
    return False


WAIT = "expected_wait"
SIZED = f"{WAIT}_"


def sized(
    states: dict[str, dict[str, Any]], candidates: Sequence[Verdict], spans: bool = False
) -> dict[str, dict[str, Any]]:
    """Let `expected_wait` be that of the job's own size, where clusters report waits by number of cores.

    `spans`: add how many switches the job is below. The ledger keeps states, and no graphs.
    """
    for verdict in candidates if spans else ():
        if verdict.switches is not None:
            states.get(verdict.cluster, {})[SWITCHES] = verdict.switches
    answers = [at for at, name in enumerate(names_of(candidates)) if WAIT in states.get(name, {})]
    for at in answers:
        _size(states[candidates[at].cluster], candidates[at].totals.get("cores", 0))
    return states


def _size(values: dict[str, Any], cores: int) -> None:
    answer = {
        int(key[len(SIZED) :]): key for key in values if key.startswith(SIZED) and key[len(SIZED) :].isdecimal()
    }
    size = min((size for size in answer if size >= cores), default=max(answer, default=0))
    if size and is_number(low := values[answer[size]]):
        high = max(low, values.get("expected_wait_high", low))
        values |= {"expected_wait_low": low, "expected_wait_high": high, "expected_wait": (low + high) / 2}


def with_waits(states: Mapping[str, dict[str, Any]], waits: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Let `expected_wait` be what sites have said of the job itself, just now."""
    result = dict(states)
    for name in result.keys() & waits.keys():
        low, high = waits[name], max(waits[name], result[name].get(f"{SIZED}high", waits[name]))
        result[name] = {**result[name], f"{SIZED}low": low, f"{SIZED}high": high, WAIT: (low + high) / 2}
    return result


# ── names that policies give ──


def own_queues(
    service: Service, request: Request, entries: Sequence[RegisteredCluster], connection: sa.Connection | None = None
) -> frozenset[str]:
    """Name the clusters whose policies have queues of their own, if a job asks for a queue."""
    if not request.queues:
        return frozenset()
    ids = {entry.id: entry.cluster.name for entry in entries}
    with nullcontext(connection) if connection is not None else service.store.read() as reading:
        result = clusters.policies(reading, ids).items()
    return frozenset(ids[one] for one, (policy, settings) in result if "queue" in _names(policy, settings))


def verdicts_on(
    service: Service, request: Request, entries: Sequence[RegisteredCluster], connection: sa.Connection | None = None
) -> Sequence[Verdict]:
    """Return the verdict on every cluster, in order of name, as its graph and the queues of its policy have it."""
    settings, own = service.settings, own_queues(service, request, entries, connection)
    return match(request, [entry.cluster for entry in entries], settings.backend, settings.budget(), own)


def placeable(service: Service, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Return the verdicts by which a job is placed.

    Where none is a yes, a cluster that lacks a word only may have the job, unless `scheduler.undecided` says refuse.
    """
    undecided = undecided_of(verdicts)
    if service.settings.undecided != PLACE or not any(one.presumed for one in undecided) or candidates_of(verdicts):
        return verdicts
    return [one.presumed or one for one in verdicts]


def _names(policy: str, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
    plugin = installed(policy)
    return plugin.names(settings) if isinstance(plugin, Names) else {}


def barred(
    service: Service, connection: sa.Connection, request: Request, ids: Mapping[str, str]
) -> dict[str, JobspecError]:
    """Return {cluster: fault} of the candidates ({id: name}) without a queue or class that a job asks for.

    A queue is one of the policy's or of the graph's.
    """
    system = request.attributes.get("system")
    query = {key: _texts(system[key]) for key in system if key in NAMED} if isinstance(system, Mapping) else {}
    if not any(query.values()):
        return {}
    result: dict[str, JobspecError] = {}
    for cluster_id, (policy, settings) in clusters.policies(connection, ids).items():
        known = _names(policy, settings)
        for key in query.keys() & known.keys():
            there = {*known[key], *(_queues_of_graph(service, ids[cluster_id]) if key == "queue" else ())}
            for name in query[key]:
                if not _is_among(name.partition("@")[0], there):
                    result[ids[cluster_id]] = _not_there(key, name, ids[cluster_id], there)
    return result


def _queues_of_graph(service: Service, name: str) -> Collection[str]:
    entry = service.catalogue.get(name)
    site = entry.cluster.site if entry else None
    return (site.queues if site else None) or ()


NAMED = FOR_POLICIES | FOR_ACCOUNTS | {"class", "queue"}


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


MOST_REQUESTORS = 32


class ReachableClusters:
    """Clusters in order of name, as they are in one catalogue."""

    def __init__(self, entries: Sequence[RegisteredCluster], drained: Sequence[RegisteredCluster] = ()) -> None:
        self.drained = tuple(drained)  # match a job, perhaps, and take none until they are reinstated
        self.entries = Overlay(sorted(entries, key=attrgetter("cluster.sort_key")))
        self.clusters: Overlay[Cluster] = Overlay(entry.cluster for entry in self.entries)
        self.allowed: LruCache[str, list[str]] = LruCache(MOST_REQUESTORS)  # requestor: clusters open to them
        self.regraphed: Mapping[str, str] = {}  # {name: id and revision} of those with others than `graphs` says

    @cached_property
    def places(self) -> Mapping[str, int]:
        """{name: place}."""
        return {cluster.name: place for place, cluster in enumerate(self.clusters)}

    def entry(self, name: str) -> RegisteredCluster:
        """Return the cluster of this name as it was matched."""
        return self.entries[self.places[name]]

    @cached_property
    def names(self) -> Mapping[str, str]:
        """{cluster id: name}."""
        return {entry.id: entry.cluster.name for entry in self.entries}

    @cached_property
    def has_sites(self) -> bool:
        """Whether the graph of any has words of its site."""
        return any(cluster.site is not None for cluster in self.clusters)

    @cached_property
    def all_match(self) -> DigestedText:
        """A match by which all of them are candidates, as the ledger keeps it."""
        candidates = [{"cluster": cluster.name} for cluster in self.clusters]
        return DigestedText.of({"candidates": candidates, "refusals": [], "undecided": []})

    @cached_property
    def graphs(self) -> DigestedText:
        """{name: id and revision}, as the ledger keeps it: a cluster that was registered again is another."""
        return DigestedText.of({entry.cluster.name: revision_of(entry) for entry in self.entries})

    @cached_property
    def graph_parts(self) -> dict[str, DigestedText]:
        """What the ledger keeps of the graphs: those of a reach before, and of which there are others since."""
        return {"graphs": self.graphs, **({"regraphed": DigestedText.of(self.regraphed)} if self.regraphed else {})}

    def with_graphs(self, others: Sequence[RegisteredCluster]) -> ReachableClusters | None:
        """Return the same clusters, some with other graphs; what depends on none is kept. None if they are others."""
        changed = {self.places.get(entry.cluster.name, -1): entry for entry in others}
        if any(at < 0 or _differ(self.entries[at], entry) for at, entry in changed.items()):
            return None
        made = copy(self)
        made.entries = self.entries.with_others(changed)
        made.clusters = self.clusters.with_others({at: entry.cluster for at, entry in changed.items()})
        for of_graphs in ("graph_parts", "has_sites"):
            made.__dict__.pop(of_graphs, None)
        made.regraphed = {**self.regraphed, **{entry.cluster.name: revision_of(entry) for entry in others}}
        if len(made.regraphed) > FEW_CANDIDATES:
            made.__dict__.pop("graphs", None)
            made.regraphed = {}
        return made


class Reaches(
    Table[Any, "tuple[CompiledClusters, ReachableClusters]"],
    name="reaches",
    most=MOST_CALLERS,
    valid=IMMUTABLE,
    key="caller and names; used with the catalogue it was made of, or after changes of graphs alone",
):
    """What the last callers may submit to, and by which catalogue."""

    def of(self, catalogue: CompiledClusters, whose: Any) -> ReachableClusters | None:
        """Return what a caller reaches if nothing but graphs has changed since it was last asked; else None."""
        known, reach = self.get(whose) or (None, None)
        if known is catalogue:
            return reach
        if known is None or reach is None or (names := catalogue.replaced_since(known)) is None:
            return None
        if any(_differ(known[name], catalogue[name]) for name in names):
            return None
        return reach.with_graphs([catalogue[name] for name in names if name in reach.places])


def _differ(one: RegisteredCluster, other: RegisteredCluster) -> bool:
    """Return whether clusters of one name differ in more than their graphs, or take nothing."""
    return one.id != other.id or any((one.draining, other.draining, one.drained, other.drained))


def revision_of(entry: RegisteredCluster) -> str:
    """Return what tells a cluster's graphs from those before and after."""
    return f"{entry.id}/{entry.revision}"


def eligible_clusters(
    service: Service, who: Caller, names: Sequence[str] | None = None, *, even_drained: bool = False
) -> ReachableClusters:
    """Return what a caller may submit to, or those of it that are asked for by name.

    TryLater if all of them are drained, unless `even_drained`.
    """
    requests = None if names is None else tuple(sorted(set(names)))
    catalogue = service.catalogue
    whose = (Same(who), requests)
    reaches = service.state(Reaches)
    reach = reaches.of(catalogue, whose) or _found(service, who, requests)
    reaches.put(whose, (catalogue, reach))
    if not reach.entries and reach.drained and not even_drained:
        text = ", ".join(sorted(entry.cluster.name for entry in reach.drained))
        raise TryLater(f"drained until reinstated: {text}", retry_after=60)
    return reach


def _found(service: Service, who: Caller, requests: Sequence[str] | None) -> ReachableClusters:
    results = _known(service, who)
    if not results and not who.admin:
        raise Forbidden("no submit token was provided")
    return _taking(results if requests is None else _named(results, requests))


def _named(results: Sequence[RegisteredCluster], names: Sequence[str]) -> list[RegisteredCluster]:
    known = {entry.cluster.name: entry for entry in results}
    for name in names:
        if name not in known:
            raise NotFound(f"cluster {name} not found")
    return [known[name] for name in names]


def _taking(entries: Sequence[RegisteredCluster]) -> ReachableClusters:
    """Tell the clusters that are drained from the others."""
    return ReachableClusters(
        [entry for entry in entries if not entry.drained], [entry for entry in entries if entry.drained]
    )


def _known(service: Service, who: Caller) -> list[RegisteredCluster]:
    """Return the clusters the caller may submit to; those another process has registered are compiled now."""
    results = [entry for entry in service.catalogue.values() if who.admin or entry.id in who.submits]
    if missing := set(who.submits) - {entry.id for entry in results}:
        with service.store.read() as connection:
            names = clusters.names(connection, missing)
        results += [entry for name in names.values() if (entry := service.compile(name))]
    return [entry for entry in results if not entry.draining]
