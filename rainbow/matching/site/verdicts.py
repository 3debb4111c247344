"""Verdicts of clusters whose sites say more than their graphs: each tries its ways in order, the first yes wins.

Clusters that ask their backend the same are asked together, so that a job without words stays one pass over all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rainbow.matching.model.verdict import Answer, Reason, Verdict, Why
from rainbow.matching.search.reasons import of_variants
from rainbow.matching.site.resolve import Way, is_plain, resolve

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

Ask = Callable[["Request", Sequence["Cluster"]], Sequence[Verdict]]
MOST_QUEUES_TRIED = 8  # of the others, to say which one would match


def match_sites(request: Request, clusters: Sequence[Cluster], ask: Ask) -> Sequence[Verdict]:
    """Return the verdict on every cluster, in order of name; `ask` gives those on plain requests."""
    if all(is_plain(request, cluster) for cluster in clusters):
        return ask(request, clusters)
    ordered = sorted(clusters, key=lambda cluster: cluster.sort_key)
    ways = [resolve(request, cluster) for cluster in ordered]
    first = {way[0].request.key for way in ways if way[0].request}
    if (
        not request.queues
        and all(len(way) == 1 and way[0].request and not way[0].unknown for way in ways)
        and len(first) == 1
    ):
        return ask(ways[0][0].request, clusters)  # type: ignore[arg-type] # each has a request
    found: dict[int, Verdict] = {}
    misses: dict[int, list[tuple[Way, Verdict | None]]] = {place: [] for place in range(len(ordered))}
    for depth in range(max(map(len, ways))):
        together: dict[bytes, list[int]] = {}
        for place, way in enumerate(ways):
            if place not in found and depth < len(way):
                if (plain := way[depth].request) is None:
                    misses[place].append((way[depth], None))
                else:
                    together.setdefault(plain.key, []).append(place)
        for place, verdict in _asked(together, ways, ordered, depth, ask):
            if verdict.matched:
                found[place] = _yes(verdict, ordered[place], ways[place][depth])
            else:
                misses[place].append((ways[place][depth], verdict))
    missed = [place for place in range(len(ordered)) if place not in found]
    found |= {place: _refused(request, ordered[place], misses[place], ask) for place in missed}
    return [found[place] for place in range(len(ordered))]


def _asked(
    together: Mapping[bytes, Sequence[int]],
    ways: Sequence[Sequence[Way]],
    clusters: Sequence[Cluster],
    depth: int,
    ask: Ask,
) -> Iterator[tuple[int, Verdict]]:
    """Yield the verdicts on the clusters that are asked the same, by place."""
    for places in together.values():
        plain = ways[places[0]][depth].request
        if plain is not None:
            yield from zip(places, ask(plain, [clusters[place] for place in places]), strict=True)


def _yes(verdict: Verdict, cluster: Cluster, way: Way) -> Verdict:
    """Return a yes with its queue; undecided where the graph has no word for something that is asked."""
    found = Verdict(
        cluster.name, True, later=lambda: verdict.answer, take_later=lambda: verdict.take, queue=way.queue
    ).of(cluster)
    if not way.unknown:
        return found
    found.unknown = way.unknown
    reason = Reason(Why.WORD_UNKNOWN, "; ".join(way.unknown), way.unknown[0].partition(":")[0])
    undecided = Verdict(cluster.name, None, reason=reason)
    undecided.presumed = found
    return undecided


def _refused(request: Request, cluster: Cluster, misses: Sequence[tuple[Way, Verdict | None]], ask: Ask) -> Verdict:
    undecided = any(
        (verdict is not None and verdict.matched is None)
        or (way.reason is not None and way.reason.why is Why.UNDECIDED)
        for way, verdict in misses
    )

    def answer() -> Answer:
        reasons = [_reason(way, verdict) for way, verdict in misses]
        reason = of_variants(reasons[:3])
        other = "" if undecided else _other_queue(request, cluster, ask)
        return Answer(reason=replace(reason, text=f"{reason.text}{other and f'; queue {other} would match'}"))

    return Verdict(cluster.name, None if undecided else False, later=answer)


def _reason(way: Way, verdict: Verdict | None) -> Reason:
    reason = way.reason or (verdict.reason if verdict else None)
    if reason is None:
        return Reason(Why.CONSTRAINT_UNMET, "unknown")
    return replace(reason, text=f"{way.shown}: {reason.text}") if way.shown else reason


def _other_queue(request: Request, cluster: Cluster, ask: Ask) -> str:
    """Return another queue that would take the job, "" for none: the nearest change there is."""
    queues = (cluster.site.queues if cluster.site else None) or {}
    tried = request.queues or ((cluster.site.default,) if cluster.site else ())
    for name in [name for name in queues if name not in tried][:MOST_QUEUES_TRIED]:
        for way in resolve(replace(request, queues=(name,)), cluster):
            if way.request and not way.unknown and ask(way.request, [cluster])[0].matched:
                return name
    return ""
