"""Symbols and tags: names by which later jobs refer to a job."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from rainbow.store.jobs import LIVE, PENDING
from rainbow.store.schema import ID, WORD, jobs, metadata, symbols, tags

# of jobs on jobs, so that the one that is awaited can say by whom
dependencies = sa.Table(
    "dependencies",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("awaited", ID, nullable=False, primary_key=True, index=True),
    sa.Column("scheme", WORD, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Bringer:
    """A live job that brings something about."""

    job: str
    cluster_id: str
    requestor: str
    name: str
    scope: str


def add_symbols(connection: sa.Connection, job_id: str, named: Collection[tuple[str, str]]) -> None:
    """Note what a job brings about, as (name, scope)."""
    if named:
        connection.execute(symbols.insert(), [{"job": job_id, "name": name, "scope": scope} for name, scope in named])


def live_with_symbols(connection: sa.Connection, names: Collection[str]) -> list[Bringer]:
    """Return who brings something of these names about and has not ended, in order of submission."""
    query = sa.select(jobs.c.id, jobs.c.cluster_id, jobs.c.requestor, symbols.c.name, symbols.c.scope)
    query = query.join(symbols, symbols.c.job == jobs.c.id)
    query = query.where(symbols.c.name.in_(names), jobs.c.state.in_(PENDING)).order_by(jobs.c.id)
    return [Bringer(*row) for row in connection.execute(query)]


def add_dependencies(connection: sa.Connection, job_id: str, schemes: Mapping[str, str]) -> None:
    """Note which jobs a job waits for, as {id: scheme}."""
    if schemes:
        rows = [{"job": job_id, "awaited": one, "scheme": scheme} for one, scheme in schemes.items()]
        connection.execute(dependencies.insert(), rows)


def awaited(connection: sa.Connection, job_id: str, most: int) -> list[tuple[str, str]]:
    """Return the jobs that a job waits for, or has waited for, with the scheme; the oldest first."""
    query = sa.select(dependencies.c.awaited, dependencies.c.scheme).where(dependencies.c.job == job_id)
    return [
        (row.awaited, row.scheme) for row in connection.execute(query.order_by(dependencies.c.awaited).limit(most))
    ]


def dependents(connection: sa.Connection, job_id: str, most: int) -> list[tuple[str, str]]:
    """Return the jobs that name a job as one they wait for, with the scheme; the oldest first."""
    query = sa.select(dependencies.c.job, dependencies.c.scheme).where(dependencies.c.awaited == job_id)
    return [(row.job, row.scheme) for row in connection.execute(query.order_by(dependencies.c.job).limit(most))]


KEPT_TAGS = 100  # tags of one basis
BASES, SWEEP = 1_000_000, 1_000  # tags in all, and new ones between two times of forgetting


@dataclass(frozen=True, slots=True)
class Basis:
    """What a tag is a version of; the parts stand in columns of their own and cannot run into each other."""

    requestor: str
    name: str


def known_tags(connection: sa.Connection, cluster_ids: Collection[str], basis: Basis) -> list[str]:
    """Return the basis's tags at these clusters, the newest first."""
    query = sa.select(tags.c.tag).where(*_of(basis), tags.c.cluster_id.in_(cluster_ids))
    return list(connection.execute(query.order_by(tags.c.id.desc())).scalars())


def add_tag(connection: sa.Connection, cluster_id: str, basis: Basis, tag: str) -> None:
    """Store a basis's newest tag, and forget the oldest."""
    values = {"cluster_id": cluster_id, "requestor": basis.requestor, "basis": basis.name, "tag": tag}
    made = connection.execute(tags.insert().values(**values)).inserted_primary_key
    ids = sa.select(tags.c.id).where(*_of(basis), tags.c.cluster_id == cluster_id)
    oldest = connection.execute(ids.order_by(tags.c.id.desc()).limit(1).offset(KEPT_TAGS)).scalar()
    if oldest is not None:
        connection.execute(tags.delete().where(*_of(basis), tags.c.cluster_id == cluster_id, tags.c.id <= oldest))
    if made and int(made[0]) % SWEEP == 0:
        connection.execute(tags.delete().where(tags.c.id <= int(made[0]) - BASES))


def live_with_tag(connection: sa.Connection, cluster_ids: Collection[str], basis: Basis, tag: str) -> list[str]:
    """Return the ids of live jobs of the basis with another tag."""
    query = sa.select(jobs.c.id).where(jobs.c.cluster_id.in_(cluster_ids), jobs.c.state.in_(LIVE))
    query = query.where(jobs.c.requestor == basis.requestor, jobs.c.basis == basis.name, jobs.c.tag != tag)
    return list(connection.execute(query.order_by(jobs.c.id)).scalars())


def _of(basis: Basis) -> tuple[sa.ColumnElement[bool], ...]:
    return tags.c.requestor == basis.requestor, tags.c.basis == basis.name
