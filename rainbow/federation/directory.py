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
from rainbow.errors import Conflict, NotFound
from rainbow.federation.callers import Caller, busy
from rainbow.federation.shards import Answer, Away, Shard
from rainbow.job_names import LAST, not_one
from rainbow.selection.rank import chance_of, drawn

MOST = 200_000  # clusters, and jobs, whose shard is remembered
MOST_SEEN = 10_000  # callers whose clusters are remembered, by name
SEEN = 300.0  # seconds until they are looked at again
CLUSTER, JOB, FIND = "/v1/clusters/{}", "/v1/jobs/{}", "/v1/jobs:find?job={}"
Headers = Sequence[tuple[bytes, bytes]]


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
        if (shard := self._sure(who, CLUSTER, name)) is not None:
            return shard
        reported = await self._ask_all(who, CLUSTER.format(quote(name, safe="")))
        results = [shard for shard, answer in reported.items() if answer.is_good]
        if len(results) > 1:
            at = ", ".join(shard.url for shard in results)
            raise Conflict(f"{name[:100]} is at several shards: {at}; ask the shard itself")
        return self._places.put((CLUSTER, name), results[0]) if results else self._nowhere(who, reported)

    async def of_job(self, who: Caller, job: str, headers: Headers = ()) -> Shard:
        """Return the shard of the job that a text names; if there is none, one that says so.

        Each shard says which of its jobs it names: those of all together must be one, and `last` is the newest.
        """
        if (shard := self._sure(who, JOB, job)) is not None:
            return shard
        answer = await self._ask_all(who, FIND.format(quote(job, safe="")), headers)
        rows = [(row, shard) for shard, one in answer.items() if one.is_good for row in one.json()["jobs"]]
        rows.sort(key=lambda each: str(each[0]["id"]), reverse=True)
        rows = rows[:1] if job == LAST else rows
        if len(rows) > 1:
            raise not_one(job, [row for row, _ in rows])
        if rows and job == rows[0][0]["id"]:
            self.learn(job, rows[0][1])
        return rows[0][1] if rows else self._nowhere(who, answer)

    def pinned(self, who: Caller, text: str) -> Shard:
        """Return the shard for what must always be at the same of a caller's; Away if it does not answer."""
        result = _by_hash(text, [*who.tokens, *who.unsure])
        if result.since is not None:
            raise result.away()
        return result

    def learn(self, job: str, shard: Shard) -> None:
        """Remember where a job is."""
        self._places.put((JOB, job), shard)

    def forget(self, cluster: str) -> None:
        """Forget where a cluster is."""
        self._places.forget((CLUSTER, cluster))

    async def divide(
        self, who: Caller, texts: Sequence[str], headers: Headers
    ) -> tuple[dict[Shard, list[str]], list[dict[str, str]]]:
        """Return the names of jobs by their shards, and what is said of those that none or several have."""
        own: dict[Shard, list[str]] = {}
        refused = []
        for text in texts:
            try:
                own.setdefault(await self.of_job(who, text, headers), []).append(text)
            except NotFound as fault:
                refused.append({"job": text, "code": fault.code, "text": fault.message})
        return own, refused

    def _sure(self, who: Caller, kind: str, name: str) -> Shard | None:
        """Return the shard of something without asking; None: several might have it."""
        known = self._places.get((kind, name))
        if known is not None and known in who.tokens:
            return known
        return who.shards[0] if len(who.tokens) == 1 and not who.away else None

    async def _ask_all(self, who: Caller, target: str, headers: Headers = ()) -> dict[Shard, Answer]:
        here = who.here
        answers = await asyncio.gather(*(_ask(who, shard, target, headers) for shard in here))
        return {shard: answer for shard, answer in zip(here, answers, strict=True) if answer is not None}

    def _nowhere(self, who: Caller, reported: Mapping[Shard, Answer]) -> Shard:
        """Return the shard that says most of what is wrong; raise if one that did not answer may have it.

        It may be back by now: what counts is who has answered.
        """
        if missing := [*(shard for shard in who.shards if shard not in reported), *who.unsure]:
            raise missing[0].away()
        for shard, answer in reported.items():
            if answer.status in (429, 503):
                raise busy(shard, answer)
        return next(iter(reported))

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


async def _ask(who: Caller, shard: Shard, target: str, headers: Headers = ()) -> Answer | None:
    try:
        return await shard.ask("GET", target, [*who.header(shard), *headers])
    except Away:
        return None
