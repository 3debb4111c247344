"""Names of what jobs bring about (RFC 26, scheme `string`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from rainbow.store.jobs import LIVE
from rainbow.store.schema import jobs, symbols


@dataclass(frozen=True, slots=True)
class Bringer:
    """A live job that brings something about."""

    job: str
    cluster_id: str
    requestor: str
    name: str
    scope: str


def add(connection: sa.Connection, job_id: str, named: Collection[tuple[str, str]]) -> None:
    """Note what a job brings about, as (name, scope)."""
    if named:
        connection.execute(symbols.insert(), [{"job": job_id, "name": name, "scope": scope} for name, scope in named])


def live_with(connection: sa.Connection, names: Collection[str]) -> list[Bringer]:
    """Return who brings something of these names about and has not ended, in order of submission."""
    query = sa.select(jobs.c.id, jobs.c.cluster_id, jobs.c.requestor, symbols.c.name, symbols.c.scope)
    query = query.join(symbols, symbols.c.job == jobs.c.id)
    query = query.where(symbols.c.name.in_(names), jobs.c.state.in_(LIVE)).order_by(jobs.c.id)
    return [Bringer(*row) for row in connection.execute(query)]
