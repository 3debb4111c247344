"""When a job would start and end on each candidate: the variables `eta.*` of selection.

They are worked out only where the options of a decision read one, from the rooms of the last forecasts, and kept with
the decision like any state. The chosen cluster's room has the job booked before the next decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from rainbow.forecast import Key, ratios, read_room
from rainbow.forecast.lengths import RUNS
from rainbow.forecast.outlook import Arriving, Ask, ClusterForecast, ask_of
from rainbow.forecast.room import Floats
from rainbow.matching import settled
from rainbow.scheduling import SlotsView
from rainbow.scheduling.gangs import slots_on
from rainbow.service.core.memory import IMMUTABLE, Table, age
from rainbow.service.core.service import Outlook
from rainbow.store import statistics

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.matching import Verdict
    from rainbow.service.core.service import RegisteredCluster, Service
    from rainbow.service.jobs.jobspecs import Reading

MOST = 4_096  # shapes that are remembered
FOLLOWED = 5.0  # seconds between two looks at what other processes have forecast
OLDEST = 600.0  # seconds: older ones are not read
RATED = 2_000  # lengths that a cluster's speed is compared by
LOOKED_UP = 1_000  # keys of one forecast
COMPARED = 3  # clusters that have run a job most often: the others are judged by them
COMPARED_AGAIN = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job on its way: what it asks for, whose it is, what it is called, and how a cluster is chosen for it."""

    reading: Reading
    requestor: str
    name: str
    selector: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    account: str = ""
    waits: Mapping[str, float] = field(default_factory=dict)  # {cluster: seconds}, where sites have said so just now
    job: str = ""  # its id, where it has one

    @property
    def keys(self) -> list[Key]:
        """What runs like it are remembered by, whatever the cluster, the most specific first."""
        task = self.reading.gangs[0].tasks[0].name
        return [Key("", self.requestor, self.name, task), Key("", self.requestor)]


class Ratios(
    Table[str, Mapping[str, float]],
    name="speeds",
    most=MOST,
    valid=age(COMPARED_AGAIN),
    key="cluster",
):
    """How many times as long runs take on other clusters, by cluster."""


class Shapes(
    Table[Any, tuple[SlotsView, ...]], name="shapes", most=MOST, valid=IMMUTABLE, key="request, revision of a cluster"
):
    """Slots by amounts of the last requests, by request and cluster."""


def arrivals(
    service: Service,
    connection: sa.Connection,
    job: Arrival,
    candidates: Sequence[Verdict],
    ids: Mapping[str, str],
) -> Arriving:
    """Say when a job would start and end on each candidate ({cluster id: name}, in their order)."""
    ask, outlook = _ask(service, job, candidates), service.state(Outlook)
    _follow(service, connection, outlook)
    now, seconds = service.clock(), _seconds(service, connection, outlook, job, ids)
    return Arriving(outlook, ask, ids, outlook.ask(ids, ask, seconds, now), now)


def _follow(service: Service, connection: sa.Connection, outlook: Outlook) -> None:
    """Take over the forecasts of other processes, now and then."""
    now = service.monotonic()
    if now < outlook.followed + FOLLOWED:
        return
    outlook.followed = now
    for cluster_id, (at, content) in statistics.later_than(connection, service.clock() - OLDEST).items():
        known = outlook.of(cluster_id, service.clock())
        if known is None or known.at < at:
            outlook.put(cluster_id, stored(at, content))


def stored(at: float, content: Mapping[str, Any]) -> ClusterForecast:
    """Read what another process has stored of a forecast."""
    room = read_room(content["room"]) if content.get("room") else None
    length = content.get("length")
    return ClusterForecast(at, room, length=inf if length is None else length, limit=content.get("limit", 0.0))


# ── what it asks for ──


def _ask(service: Service, job: Arrival, candidates: Sequence[Verdict]) -> Ask:
    """Say a job's largest gang by amounts, as the first candidate counts them; else by what it matched in all."""
    gang = max(job.reading.gangs, key=lambda one: len(one.request.resources))
    entry = service.catalogue.get(candidates[0].cluster) if candidates else None
    slots = _slots(service, entry, gang.request) if entry else ()
    return ask_of(slots, len(job.reading.gangs), candidates[0].totals if candidates else {})


def _slots(service: Service, entry: RegisteredCluster, request: Any) -> tuple[SlotsView, ...]:
    shapes = service.state(Shapes)
    key = (request.number, entry.id, entry.revision)
    known = shapes.get(key)
    return shapes.put(key, slots_on(entry.cluster, settled(request, entry.cluster))) if known is None else known


# ── how long it runs ──


def _seconds(
    service: Service, connection: sa.Connection, outlook: Outlook, job: Arrival, ids: Mapping[str, str]
) -> Floats:
    """Predict how long a job runs on each cluster: by runs like it there, elsewhere, by who asks, or by all."""
    limit = float(job.reading.request.duration)
    named, request = (statistics.digest(key) for key in job.keys)
    known = statistics.everywhere(connection, job.keys)
    alike, others = known.get(named, {}), known.get(request, {})
    whole, limits = outlook.limits(ids)
    limits = np.where(limit > 0, limit, limits)
    with np.errstate(invalid="ignore"):
        seconds = np.where(np.isfinite(whole), whole, np.where(limits > 0, limits / 2, inf))
    if alike and not alike.keys() >= ids.keys():
        seconds = _elsewhere(service, connection, alike, ids)
    runs = alike if alike else others
    for row, cluster_id in enumerate(ids if runs else ()):
        if cluster_id in runs:
            seconds[row] = median(runs[cluster_id])
    return np.where(limits > 0, np.minimum(seconds, limits), seconds)


def _elsewhere(
    service: Service, connection: sa.Connection, alike: Mapping[str, Sequence[float]], ids: Iterable[str]
) -> Floats:
    """Predict how long a job runs where nothing like it has run: as elsewhere, by the ratio of their speeds."""
    rows = []
    for cluster_id in _most_often(alike):
        ratio = _ratios(service, connection, cluster_id)
        rows.append([median(alike[cluster_id]) * ratio.get(one, 1.0) for one in ids])
    result: Floats = np.median(np.array(rows), axis=0)
    return result


def _most_often(alike: Mapping[str, Sequence[float]]) -> list[str]:
    return sorted(alike, key=lambda one: (-len(alike[one]), one))[:COMPARED]


def runs_elsewhere(
    service: Service, connection: sa.Connection, keys: Iterable[Key], here: Mapping[Key, Sequence[float]]
) -> dict[Key, list[float]]:
    """Return runs like those that a cluster has not run, as long as they would take there, so that ETAs agree.

    `here`: what it has run. Of very many keys the first are looked up.
    """
    named = dict.fromkeys(replace(key, slots=0) for key in keys if key.name and key not in here)
    lacking = list(islice((key for key in named if key not in here), LOOKED_UP))
    known = statistics.everywhere(connection, [replace(key, cluster="") for key in lacking])
    result: dict[Key, list[float]] = {}
    for key in lacking:
        alike = known.get(statistics.digest(key), {})
        seen = _most_often(alike)
        speeds = {one: _ratios(service, connection, one).get(key.cluster, 1.0) for one in seen}
        if seen:
            result[key] = [speeds[one] * seconds for one in seen for seconds in alike[one][-(RUNS // len(seen)) :]]
    return result


def _ratios(service: Service, connection: sa.Connection, cluster_id: str) -> Mapping[str, float]:
    reserved, now = service.state(Ratios), service.monotonic()
    if (result := reserved.get(cluster_id, now)) is None:
        result = reserved.put(cluster_id, ratios(statistics.medians(connection, cluster_id, RATED), cluster_id), now)
    return result
