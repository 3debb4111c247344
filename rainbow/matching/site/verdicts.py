"""Verdicts of clusters whose sites say more than their graphs: each tries its ways in order, the first yes wins.

Clusters that ask their backend the same are asked together, so that a job without words stays one pass over all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from rainbow.matching.model.budget import MatchesAll
from rainbow.matching.model.verdict import Answer, Reason, Verdict, Why
from rainbow.matching.reasons import of_variants
from rainbow.matching.site.resolve import Way, is_plain, resolve

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.model.budget import Budget
    from rainbow.matching.model.verdict import Backend, Take

Ask = Callable[["Request", Sequence["Cluster"]], Sequence[Verdict]]
MOST_QUEUES_TRIED = 8  # of the others, to say which one would match


class SiteBackend:
    """A backend that is asked in words of sites; the one inside sees plain requests only."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Return the verdict on one cluster."""
        return self.match_all(request, [cluster])[0]

    def match_all(
        self,
        request: Request,
        clusters: Sequence[Cluster],
        budget: Budget | None = None,
        own_queues: Collection[str] = (),
    ) -> Sequence[Verdict]:
        """Return the verdict on every cluster, in order of name."""
        ask = partial(plain_verdicts, self.backend, budget=budget)
        return match_sites(request, clusters, ask, own_queues)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy of a plain request holds when only these workers are free."""
        return self.backend.take(request, cluster, workers)


def plain_verdicts(
    backend: Backend, request: Request, clusters: Sequence[Cluster], budget: Budget | None
) -> Sequence[Verdict]:
    """Return a backend's verdicts on a request without words of sites, in order of name."""
    if not isinstance(backend, MatchesAll):
        return [_of(backend.match(request, cluster), cluster) for cluster in _ordered(clusters)]
    result = backend.match_all(request, clusters, budget)
    if isinstance(result, list) and len(result) == len(clusters):
        return [_of(verdict, cluster) for verdict, cluster in zip(result, _ordered(clusters), strict=True)]
    return result


def _ordered(clusters: Iterable[Cluster]) -> list[Cluster]:
    return sorted(clusters, key=attrgetter("sort_key"))


def _of(verdict: Verdict, cluster: Cluster) -> Verdict:
    """Let a verdict know its cluster; what a plug-in returns instead of one is not ours to mend."""
    return verdict.of(cluster) if isinstance(verdict, Verdict) else verdict


def match_sites(
    request: Request, clusters: Sequence[Cluster], ask: Ask, own_queues: Collection[str] = ()
) -> Sequence[Verdict]:
    """Return the verdict on every cluster, in order of name; `ask` gives those on plain requests.

    `own_queues` names the clusters whose policies have queues of their own.
    """
    if all(is_plain(request, cluster) for cluster in clusters):
        return ask(request, clusters)
    ordered = sorted(clusters, key=lambda cluster: cluster.sort_key)
    ways = [resolve(request, cluster, own_queues=cluster.name in own_queues) for cluster in ordered]
    first = {way[0].request.key for way in ways if way[0].request}
    if (
        not request.queues
        and all(len(way) == 1 and way[0].request and not way[0].unknown for way in ways)
        and len(first) == 1
    ):
        return ask(ways[0][0].request, clusters)  # type: ignore[arg-type] # each has a request
    results: dict[int, Verdict] = {}
    misses: dict[int, list[tuple[Way, Verdict | None]]] = {place: [] for place in range(len(ordered))}
    for depth in range(max(map(len, ways))):
        together: dict[bytes, list[int]] = {}
        for place, way in enumerate(ways):
            if place not in results and depth < len(way):
                if (plain := way[depth].request) is None:
                    misses[place].append((way[depth], None))
                else:
                    together.setdefault(plain.key, []).append(place)
        for place, verdict in _asked(together, ways, ordered, depth, ask):
            if verdict.matched:
                results[place] = _yes(verdict, ordered[place], ways[place][depth])
            else:
                misses[place].append((ways[place][depth], verdict))
    missed = [place for place in range(len(ordered)) if place not in results]
    results |= {place: _refused(request, ordered[place], misses[place], ask) for place in missed}
    return [results[place] for place in range(len(ordered))]


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
    result = Verdict(
        cluster.name, True, later=lambda: verdict.answer, take_later=lambda: verdict.take, queue=way.queue
    ).of(cluster)
    if not way.unknown:
        return result
    result.unknown = way.unknown
    reason = Reason(Why.WORD_UNKNOWN, "; ".join(way.unknown), way.unknown[0].partition(":")[0])
    undecided = Verdict(cluster.name, None, reason=reason)
    undecided.presumed = result
    return undecided


def _refused(request: Request, cluster: Cluster, misses: Sequence[tuple[Way, Verdict | None]], ask: Ask) -> Verdict:
    undecided = any(
        (verdict is not None and verdict.matched is None)
        or (way.reason is not None and way.reason.why is Why.UNDECIDED)
        for way, verdict in misses
    )

    def answer() -> Answer:
        reasons = [_reason(way, verdict, cluster, ask) for way, verdict in misses]
        reason = of_variants(reasons[:3])
        other = "" if undecided else _other_queue(request, cluster, ask)
        return Answer(reason=replace(reason, text=f"{reason.text}{other and f'; queue {other} would match'}"))

    return Verdict(cluster.name, None if undecided else False, later=answer)


def _reason(way: Way, verdict: Verdict | None, cluster: Cluster, ask: Ask) -> Reason:
    reason = way.reason or (verdict.reason if verdict else None)
    if way.least is not None and cluster.site is None:  # less than that is too much, and the search says why
        reason = ask(way.least, [cluster])[0].reason or reason
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
