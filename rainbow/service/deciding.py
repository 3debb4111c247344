"""The decision ledger: what a placement was decided from is kept, so that it can be decided again, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from json import dumps, loads
from typing import TYPE_CHECKING, Any

from rainbow import __version__
from rainbow.errors import NotFound
from rainbow.graph import read_cluster
from rainbow.jobspec import parse_jobspec
from rainbow.matching import match, shown
from rainbow.selection import Choice, select
from rainbow.service.access import Caller
from rainbow.service.showing import only_for, visible_job
from rainbow.store import clusters, jobs, ledger
from rainbow.store.ledger import LedgerRecord, digest_of, forms

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord

RENEWED = 3600.0  # seconds after which a blob is noted as used again


@dataclass(frozen=True, slots=True)
class Basis:
    """What one submit decides from. `kept` are the blobs it has to store."""

    entries: Sequence[Entry]
    backend: str
    selector: str
    options: Mapping[str, Any]
    kept: dict[str, float] = field(default_factory=dict)


def record(
    service: Service,
    connection: sa.Connection,
    basis: Basis,
    states: Mapping[str, Any],
    to: ClusterRecord,
    job: str,
) -> None:
    """Write a placement into the ledger, in the transaction of the placement."""
    graphs = service.graphs_digest(basis.entries)
    _keep(service, connection, basis, graphs, lambda: {e.cluster.name: e.digest for e in basis.entries})
    known = digest_of(states)
    _keep(service, connection, basis, known, lambda: states)
    policy = digest_of([to.policy, dict(to.settings)])
    settings = {"backend": basis.backend, "selector": basis.selector, "options": dict(basis.options), "seed": job}
    ledger.add(connection, LedgerRecord(job, graphs, known, policy, settings, __version__[:16]))


def _keep(service: Service, connection: sa.Connection, basis: Basis, digest: str, content: Any) -> None:
    now = service.clock()
    if now - service.kept.get(digest, float("-inf")) >= RENEWED:
        ledger.keep(connection, digest, content(), now)
        basis.kept[digest] = now


def archive(service: Service, connection: sa.Connection, found: ClusterRecord) -> None:
    """Keep a cluster's graphs for the decisions that were made from them: they are about to change."""
    document = clusters.document(connection, found.id)
    whole = forms(document, clusters.graphs_of(connection, found.id), found.levels, found.worker_type)
    ledger.keep(connection, digest_of(whole), whole, service.clock())


# ── replay ──


def replay(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Decide a placement again from what it was decided from, and compare."""
    with service.store.read() as connection:
        found = visible_job(connection, who, job_id)
        noted = ledger.get(connection, job_id)
        if noted is None:
            raise NotFound(f"what job {job_id} was decided from is not known")
        recorded = jobs.decision(connection, job_id)
        spec = jobs.jobspec(connection, job_id)
        states = ledger.blob(connection, noted.states)
        among = [
            _cluster(service, connection, *pair) for pair in sorted(ledger.blob(connection, noted.graphs).items())
        ]
    request = parse_jobspec(spec)
    settings = noted.settings
    verdicts = match(request, among, settings["backend"])
    choice = select(request, verdicts, states, settings["selector"], settings["options"], seed=settings["seed"])
    again = {**shown(request, verdicts), "selection": written(choice), "seed": settings["seed"]}
    again = loads(dumps(again))
    return {
        "id": job_id,
        "cluster": found.cluster,
        "same": again == recorded,
        "digests": {"graphs": noted.graphs, "states": noted.states, "policy": noted.policy},
        "settings": dict(settings),
        "version": noted.version,
        "recorded": only_for(service, who, found.cluster, recorded),
        "replayed": only_for(service, who, found.cluster, again),
    }


def _cluster(service: Service, connection: sa.Connection, name: str, digest: str) -> Cluster:
    known = service.catalogue.get(name)
    if known and known.digest == digest:
        return known.cluster
    whole = ledger.blob(connection, digest)
    if whole is None:
        raise NotFound(f"the graph that cluster {name} had is not known any more")
    cluster = read_cluster(whole["graph"], name, whole["levels"], whole["worker_type"])
    for subsystem, document in whole["subsystems"].items():
        cluster = cluster.with_subsystem(subsystem, document)
    return cluster


def written(choice: Choice) -> Any:
    """Return a choice as it is stored."""
    told = asdict(choice)
    told["steps"] = [{**step, "values": dict(step["values"])} for step in told["steps"]]
    return loads(dumps(told))
