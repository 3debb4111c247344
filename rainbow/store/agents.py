"""The agents' last signs of life. Every process that serves or schedules reads them here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from rainbow.store.schema import agents

_OF_CLUSTER = sa.select(agents).where(agents.c.cluster_id == sa.bindparam("wanted"))
_SEEN = agents.update().where(agents.c.cluster_id == sa.bindparam("of"), agents.c.name == sa.bindparam("called"))


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent's last sign of life, and the workers it last said are up (None: all of the cluster).

    `seq` is the highest number of a message of its: one with a lower number was overtaken, and is not believed.
    """

    name: str
    seen_at: float
    workers: frozenset[str] | None = None
    seq: int = 0
    load: Mapping[str, float] | None = None  # of the machine it watches, by name of the value
    keeps: bool = False  # its tasks go on when it loses the server


def of_cluster(connection: sa.Connection, cluster_id: str) -> dict[str, AgentRecord]:
    """Return {agent: its last sign of life}."""
    return {row.name: _record(row) for row in connection.execute(_OF_CLUSTER, {"wanted": cluster_id})}


def put(connection: sa.Connection, cluster_id: str, record: AgentRecord) -> None:
    """Store a sign of life in place of the agent's last."""
    values: dict[str, Any] = {
        "seen_at": record.seen_at,
        "workers": _written(record.workers),
        "seq": record.seq,
        "keeps": record.keeps,
    }
    values["load"] = None if record.load is None else dict(record.load)
    if not connection.execute(_SEEN, {"of": cluster_id, "called": record.name, **values}).rowcount:
        connection.execute(agents.insert().values(cluster_id=cluster_id, name=record.name, **values))


def forget(connection: sa.Connection, before: float) -> None:
    """Forget agents that were last seen before a time."""
    connection.execute(agents.delete().where(agents.c.seen_at < before))


def _record(row: sa.Row[Any]) -> AgentRecord:
    return AgentRecord(row.name, row.seen_at, _workers(row.workers), row.seq, row.load, bool(row.keeps))


def _workers(stored: Collection[str] | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(stored)


def _written(up: Collection[str] | None) -> list[str] | None:
    return None if up is None else sorted(up)
