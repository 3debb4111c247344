"""Clusters in the order they are looked at where nothing calls for it at once.

asleep   something was heard of it, but no agent speaks for any of its workers: nothing can start there
quiet    nothing was heard of it; leases end all the same, and another process may have written
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rainbow.service.news import ALL

if TYPE_CHECKING:
    from rainbow.service.service import Entry


class Line:
    """The clusters of a catalogue by id: who sleeps first, then the quiet ones from the time they are due."""

    def __init__(self) -> None:
        self._catalogue: Mapping[str, Entry] = {}
        self._names: dict[str, str] = {}
        self._asleep: dict[str, None] = {}
        self._due: dict[str, float] = {}  # when it is looked at if nothing is heard of it; the first one first

    def follow(self, catalogue: Mapping[str, Entry]) -> None:
        """Bring the line up to date; what is new in it is due at once."""
        if catalogue is not self._catalogue:
            self._catalogue = catalogue
            self._names = {entry.id: name for name, entry in catalogue.items()}
            new = dict.fromkeys(self._names.keys() - self._due.keys(), 0.0)
            self._due = {**new, **{one: due for one, due in self._due.items() if one in self._names}}
            self._asleep = {one: None for one in self._asleep if one in self._names}

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of some clusters that stand in it; ALL among them is every one."""
        return set(self._names if ALL in ids else self._names.keys() & ids)

    def name(self, cluster_id: str) -> str:
        """Name a cluster."""
        return self._names[cluster_id]

    @property
    def sleepers(self) -> bool:
        """Whether something is still to be looked at of which something was heard."""
        return bool(self._asleep)

    def put_off(self, ids: Iterable[str]) -> None:
        """Let clusters be looked at before the quiet ones, when there is time."""
        self._asleep |= dict.fromkeys(ids)

    def first(self, now: float) -> str | None:
        """Return the cluster to look at next, None while none is due."""
        if self._asleep:
            return next(iter(self._asleep))
        one = next(iter(self._due), None)
        return one if one is not None and self._due[one] <= now else None

    def looked_at(self, cluster_id: str, due: float) -> None:
        """Send a cluster to the end of the line, until it is due again."""
        self._asleep.pop(cluster_id, None)
        self._due.pop(cluster_id, None)
        self._due[cluster_id] = due
