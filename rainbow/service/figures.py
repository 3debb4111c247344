"""How much there is of what, from the store: for /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.store import clusters, figures

if TYPE_CHECKING:
    from rainbow.service.service import Service

Rows = list[tuple[tuple[str, ...], float]]


def gauges(service: Service) -> dict[str, Rows]:
    """Return {metric: [(labels, value)]}, clusters by name."""
    with service.store.read() as connection:
        names = {record.id: record.name for record in clusters.every(connection)}
        found = figures.counted(connection)
    told: dict[str, Rows] = {"rainbow_clusters": [((), float(len(names)))]}
    for metric, counts in found.items():
        rows = [((names[key], label), float(n)) for (key, label), n in counts.items() if key in names]
        told[metric] = sorted(rows)
    return told
