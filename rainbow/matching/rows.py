"""Needs asked of distinct rows: which equal vertices of a subsystem meet all conditions of a need.

A matcher looks at one field (and at the type), so each distinct value of a field is asked once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.matching.needs import field_of, matchers

if TYPE_CHECKING:
    from collections.abc import Collection

    from rainbow.jobspec import Condition, Need
    from rainbow.matching.kinds import Row

BY_FIELD = frozenset({"match", "flat", "range"})  # the matchers that look at nothing but a field and the type


class RowTable:
    """The distinct rows of one subsystem, grouped by the values of a field when it is first asked for."""

    def __init__(self, rows: Collection[Row]) -> None:
        self.rows = frozenset(rows)
        self._groups: dict[str, list[list[Row]]] = {}

    def meeting(self, need: Need) -> frozenset[Row]:
        """Return the rows that meet every condition of a need."""
        left = self.rows
        for condition in need.conditions:
            if not left:
                break
            left = self._meeting(condition, left)
        return left

    def _meeting(self, condition: Condition, left: frozenset[Row]) -> frozenset[Row]:
        groups = self._by_field(condition.options["field"])
        if len(left) <= len(groups):
            return frozenset(row for row in left if _meets(condition, row))
        return left.intersection(row for group in groups if _meets(condition, group[0]) for row in group)

    def _by_field(self, field: str) -> list[list[Row]]:
        if field not in self._groups:
            groups: dict[Any, list[Row]] = {}
            for row in self.rows:
                value = field_of(row.vertex, field)
                groups.setdefault((row.vertex["type"], type(value), repr(value)), []).append(row)
            self._groups[field] = list(groups.values())
        return self._groups[field]


def tables(rows: Collection[Row]) -> dict[str, RowTable]:
    """Make a table of every subsystem's rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.subsystem, []).append(row)
    return {subsystem: RowTable(own) for subsystem, own in found.items()}


def _meets(condition: Condition, row: Row) -> bool:
    return matchers.get(condition.matcher)(condition.options, row.vertex, NO_GRAPH) is None


NO_GRAPH = None  # matchers BY_FIELD do not look at the subsystem's graph
