"""The server's own history, for simulations: jobs with jobspecs and run times, clusters, and who plans there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rainbow.graph import Cluster, read_cluster
from rainbow.service.accounts.account_cache import stored_rules
from rainbow.store import clusters, jobs, open_store, pages, tasks
from rainbow.store.pages import Filter

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.scheduling.qos import Rules
    from rainbow.store.clusters import ClusterRecord

PAGE = 500


@dataclass(frozen=True, slots=True)
class History:
    """Jobs that were submitted in a time, all clusters, and (policy, settings) and rules of each by name."""

    rows: list[dict[str, Any]]
    clusters: list[Cluster]
    governed: Mapping[str, tuple[str, Mapping[str, Any]]]
    rules: Mapping[str, Rules]


def read_history(database: str, begin: float, end: float) -> History:
    """Read what was submitted in [begin, end) from a server's store, beside a server that may be running."""
    store = open_store(database, existing=True)
    try:
        with store.read() as connection:
            known = clusters.every(connection)
            compiled = [_cluster(connection, record) for record in known]
            rows = list(_rows(connection, begin, end))
            rules = stored_rules(connection, [record.name for record in known])
    finally:
        store.close()
    return History(rows, compiled, {record.name: (record.policy, record.settings) for record in known}, rules)


def _cluster(connection: sa.Connection, record: ClusterRecord) -> Cluster:
    cluster = read_cluster(clusters.document(connection, record.id), record.name, record.levels, record.worker_type)
    for name, subsystem in clusters.graphs_of(connection, record.id).items():
        cluster = cluster.with_subsystem(name, subsystem)
    return cluster


def _rows(connection: sa.Connection, begin: float, end: float) -> Iterator[dict[str, Any]]:
    """Yield jobs, the newest first, each with what a simulation needs of it."""
    before: str | None = None
    while page := pages.listing(connection, Filter(before=before, limit=PAGE)):
        for record in page:
            if begin <= record.submitted_at < end:
                yield {
                    "id": record.id,
                    "submitted_at": record.submitted_at,
                    "requestor": record.requestor,
                    "priority": record.priority,
                    "account": record.account,
                    "qos": record.qos,
                    "cluster": record.cluster,
                    "jobspec": jobs.jobspec(connection, record.id),
                    "tasks": [
                        {"started_at": task.started_at, "ended_at": task.ended_at}
                        for task in tasks.of_job(connection, record.id)
                    ],
                }
        before = page[-1].id
        if page[-1].submitted_at < begin:
            return
