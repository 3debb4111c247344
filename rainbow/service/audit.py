"""Settings before and after, told apart key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.store import changes
from rainbow.store.changes import Change

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.access import Caller


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, before, after) of everything that differs.

    >>> list(differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}))
    [('b', 2, 3), ('c', None, 4)]
    """
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)


Parts = Mapping[str, Mapping[str, Any]]  # "policy", "settings" or "limits" → name → value


def note(connection: sa.Connection, who: Caller, cluster_id: str, now: float, before: Parts, after: Parts) -> None:
    """Store what is changed of a cluster's policy, settings and limits."""
    for part, values in after.items():
        for name, was, becomes in differences(before[part], values):
            what = name if part == "policy" else f"{part}.{name}"
            changes.add(connection, cluster_id, Change(now, who.called(cluster_id), what, was, becomes))
