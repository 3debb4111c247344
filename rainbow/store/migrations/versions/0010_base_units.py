"""Amounts of placements in base units: of memory in GB, 64 becomes 64,000,000,000 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BASES = ("B", "Hz", "W", "J")
DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
FACTORS = {**DECIMAL, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
UNITS = {prefix + base: factor for base in BASES for prefix, factor in FACTORS.items()}
ROWS = 1_000

clusters = sa.table("clusters", sa.column("id"), sa.column("levels"), sa.column("document", sa.JSON))
tasks = sa.table("tasks", sa.column("id"), sa.column("cluster_id"), sa.column("placement", sa.JSON))
reservations = sa.table("reservations", sa.column("id"), sa.column("cluster_id"), sa.column("placement", sa.JSON))


def upgrade() -> None:
    """Convert what tasks and reservations hold of clusters whose graphs state units; strict ones do not read them."""
    connection = op.get_bind()
    found = connection.execute(sa.select(clusters).where(clusters.c.levels != "strict"))
    units = {row.id: units_of(row.document) for row in found}
    for cluster, factors in units.items():
        for table in (tasks, reservations) if factors else ():
            _convert(connection, table, cluster, factors)


def units_of(document: Any) -> dict[str, int]:
    """Return the largest unit of every type in a graph document, whatever its form."""
    result: dict[str, int] = {}
    for each in _mappings(document):
        kind, unit = each.get("type"), each.get("unit")
        if isinstance(kind, str) and isinstance(unit, str) and unit in UNITS:
            result[kind] = max(result.get(kind, 1), UNITS[unit])
    return result


def _mappings(document: Any) -> Iterator[Mapping[str, Any]]:
    stack = [document]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            yield each
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)


def _convert(connection: sa.Connection, table: sa.TableClause, cluster: str, factors: Mapping[str, int]) -> None:
    last = ""
    while True:
        wanted = sa.select(table.c.id, table.c.placement).where(table.c.cluster_id == cluster, table.c.id > last)
        rows = connection.execute(wanted.order_by(table.c.id).limit(ROWS)).all()
        for row in rows:
            placement = {
                worker: {kind: amount * factors.get(kind, 1) for kind, amount in held.items()}
                for worker, held in (row.placement or {}).items()
            }
            if placement != row.placement and row.placement:
                connection.execute(table.update().where(table.c.id == row.id).values(placement=placement))
        if len(rows) < ROWS:
            return
        last = rows[-1].id
