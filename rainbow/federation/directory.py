"""Where things are: the shard of a cluster, of a job; and the clusters that a caller last saw of each shard.

What is remembered is a hint: the shard itself decides what exists for a caller. A shard that answers "not found" is
forgotten, and the others are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any
from urllib.parse import quote

from rainbow.cache import LruCache
from rainbow.errors import Conflict
from rainbow.federation.callers import Caller, busy
from rainbow.federation.shards import Answer, Away, Shard
from rainbow.selection.rank import chance_of, drawn

MOST = 200_000  # clusters, and jobs, whose shard is remembered
MOST_SEEN = 10_000  # callers whose clusters are remembered, by name
SEEN = 300.0  # seconds until they are looked at again
WHOLE_ID = 24  # digits of a job's id; fewer are the beginning of one
CLUSTER, JOB = "/v1/clusters/{}", "/v1/jobs/{}?limit=1"


class Directory:
    """What a router has learned of its shards."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._places: LruCache[tuple[str, str], Shard] = LruCache(MOST)
        self._rows: dict[Shard, dict[str, dict[str, Any]]] = {}
        self._seen: LruCache[tuple[str, Shard], tuple[float, tuple[str, ...]]] = LruCache(MOST_SEEN)

    def home(self, name: str) -> Shard:
        """Return the shard where a cluster of this name is registered, by rendezvous: of any shards the same."""
        return _by_hash(name, self._shards)

    async def of_cluster(self, who: Caller, name: str) -> Shard:
        """Return the shard of a cluster; if there is none, one that says so."""
        return await self._find(who, CLUSTER, name)

    async def of_job(self, who: Caller, job: str) -> Shard:
        """Return the shard of a job, by its id or the beginning of it; if there is none, one that says so."""
        return await self._find(who, JOB, job)

    def pinned(self, who: Caller, text: str) -> Shard:
        """Return the shard for what must always be at the same of a caller's; Away if it does not answer."""
        found = _by_hash(text, [*who.tokens, *who.unsure])
        if found.since is not None:
            raise found.away()
        return found

    def learn(self, job: str, shard: Shard) -> None:
        """Remember where a job is."""
        self._places.put((JOB, job), shard)

    def forget(self, cluster: str) -> None:
        """Forget where a cluster is."""
        self._places.forget((CLUSTER, cluster))

    async def _find(self, who: Caller, kind: str, name: str) -> Shard:
        known = self._places.get((kind, name))
        if known is not None and known in who.tokens:
            return known
        if len(who.tokens) == 1 and not who.away:
            return who.shards[0]
        here = who.here
        answers = await asyncio.gather(*(_ask(who, shard, kind.format(quote(name, safe=""))) for shard in here))
        told = {shard: answer for shard, answer in zip(here, answers, strict=True) if answer is not None}
        found = [shard for shard, answer in told.items() if answer.is_good]
        if len(found) > 1:
            at = ", ".join(shard.url for shard in found)
            raise Conflict(f"{name[:100]} is at several shards: {at}; give the whole id, or ask the shard itself")
        if len(found) == 1 and (kind == CLUSTER or len(name) == WHOLE_ID):
            return self._places.put((kind, name), found[0])
        return found[0] if found else self._nowhere(who, told)

    def _nowhere(self, who: Caller, told: Mapping[Shard, Answer]) -> Shard:
        """Return the shard that says most of what is wrong; raise if one of those that are away may have it."""
        if who.away or not told:
            raise who.one_away()
        for shard, answer in told.items():
            if answer.status in (429, 503):
                raise busy(shard, answer)
        return max(told, key=lambda shard: len(told[shard].body))  # "several jobs begin with ..."

    # ── what was seen ──

    def has_seen(self, who: Caller) -> bool:
        """Return whether the clusters are remembered that a caller sees."""
        return all(time.monotonic() - self._seen_of(who, shard)[0] < SEEN for shard in who.here)

    def _seen_of(self, who: Caller, shard: Shard) -> tuple[float, tuple[str, ...]]:
        return self._seen.get((who.digests, shard)) or (-inf, ())

    async def see(self, who: Caller) -> None:
        """Remember the clusters that a caller sees: their shards may go away."""
        for shard in who.here:
            names = self._seen_of(who, shard)[1]
            self._seen.put((who.digests, shard), (time.monotonic(), names))
            answer = await _ask(who, shard, "/v1/clusters")
            if answer is not None and answer.is_good:
                rows = {row["name"]: row for row in answer.json()["clusters"]}
                self._rows.setdefault(shard, {}).update(rows)
                self._seen.put((who.digests, shard), (time.monotonic(), tuple(rows)))

    def gone(self, who: Caller) -> list[dict[str, Any]]:
        """Return the clusters that a caller last saw of shards that are away, with the reason."""
        return [
            {**self._rows[shard][name], "state": "away", "reason": f"away: {shard.away().message}"}
            for shard in who.away
            for name in self._seen_of(who, shard)[1]
        ]


def _by_hash(text: str, shards: Sequence[Shard]) -> Shard:
    by_url = {shard.url: shard for shard in shards}
    return by_url[drawn(dict.fromkeys(by_url, 1.0), chance_of(text))]


async def _ask(who: Caller, shard: Shard, target: str) -> Answer | None:
    try:
        return await shard.ask("GET", target, who.header(shard))
    except Away:
        return None
