"""The clusters a caller may submit to. While neither they nor the caller's credentials change, they are one object:
what is worked out for it once (who matches, what is written of it in the ledger) need not be for the next submit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from rainbow.errors import Forbidden, NotFound, TryLater
from rainbow.lazy import cached_property
from rainbow.matching.memory import Same
from rainbow.service.parts import Part
from rainbow.store import clusters

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.service.access import Caller
    from rainbow.service.service import Entry, Service

MOST = 256  # callers, and choices of clusters by name, that are remembered


class Reach:
    """Clusters in order of name, as they are in one catalogue."""

    def __init__(self, entries: Sequence[Entry], drained: Sequence[Entry] = ()) -> None:
        self.drained = tuple(drained)  # match a job, perhaps, and take none until they are reinstated
        self.entries = tuple(sorted(entries, key=attrgetter("cluster.sort_key")))
        self.clusters: tuple[Cluster, ...] = tuple(entry.cluster for entry in self.entries)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """{name: place}."""
        return {cluster.name: place for place, cluster in enumerate(self.clusters)}

    def entry(self, name: str) -> Entry:
        """Return the cluster of this name as it was matched."""
        return self.entries[self.places[name]]

    @cached_property
    def names(self) -> Mapping[str, str]:
        """{cluster id: name}."""
        return {entry.id: entry.cluster.name for entry in self.entries}

    @cached_property
    def graphs(self) -> Part:
        """{name: id and revision}, as the ledger keeps it: a cluster that was registered again is another."""
        return Part.of({entry.cluster.name: revision_of(entry) for entry in self.entries})


def revision_of(entry: Entry) -> str:
    """Return what tells a cluster's graphs from those before and after."""
    return f"{entry.id}/{entry.revision}"


def reach_of(service: Service, who: Caller, names: Sequence[str] | None = None) -> Reach:
    """Return what a caller may submit to, or those of it that are asked for by name."""
    asked = None if names is None else tuple(sorted(set(names)))
    catalogue = service.catalogue
    key = (Same(catalogue), Same(who), asked)
    known = service.reaches.get(key)
    if known is not None:
        return known
    found = _known(service, who)
    if not found and not who.admin:
        raise Forbidden("no submit token of a cluster was brought")
    return service.reaches.put(key, _taking(found if asked is None else _named(found, asked)))


def _named(found: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    known = {entry.cluster.name: entry for entry in found}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no cluster {name}")
    return [known[name] for name in names]


def _taking(entries: Sequence[Entry]) -> Reach:
    """Tell the clusters that are drained from the others; TryLater if all of them are."""
    taking = [entry for entry in entries if not entry.drained]
    if entries and not taking:
        told = ", ".join(sorted(entry.cluster.name for entry in entries))
        raise TryLater(f"drained, and taking no jobs until reinstated: {told}", retry_after=60)
    return Reach(taking, [entry for entry in entries if entry.drained])


def _known(service: Service, who: Caller) -> list[Entry]:
    """Return the clusters the caller may submit to; those another process has registered are compiled now."""
    found = [entry for entry in service.catalogue.values() if who.admin or entry.id in who.submits]
    if missing := set(who.submits) - {entry.id for entry in found}:
        with service.store.read() as connection:
            names = clusters.names(connection, missing)
        found += [entry for name in names.values() if (entry := service.compile(name))]
    return [entry for entry in found if not entry.draining]
