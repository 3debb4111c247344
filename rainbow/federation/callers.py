"""Which shards know a caller's credentials: a shard is asked for their digests, and sent none but its own."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow.api.wire import tokens_of
from rainbow.cache import LruCache
from rainbow.errors import TryLater, Unauthenticated
from rainbow.federation.shards import Answer, Away, Shard
from rainbow.service.core.access import HELP, MISSING, UNKNOWN
from rainbow.store.credentials import digest

MOST_CALLERS = 10_000  # that are remembered
KNOWN, REFUSED = 30.0, 1.0  # seconds that the answer holds for a known caller, and for a stranger
CREDENTIAL = re.compile(r"[!-+\--~]+")  # visible ASCII without the comma between two of them


@dataclass(frozen=True, slots=True)
class Caller:
    """The credentials that are brought, by shard; `unsure` are shards that are away and have never been asked."""

    tokens: dict[Shard, tuple[str, ...]]
    unsure: tuple[Shard, ...]
    digests: str  # what tells callers apart
    until: float

    @property
    def shards(self) -> list[Shard]:
        """The shards that know them."""
        return [*self.tokens]

    @property
    def here(self) -> list[Shard]:
        """Those of them that answer."""
        return [shard for shard in self.tokens if shard.since is None]

    @property
    def away(self) -> list[Shard]:
        """The shards that do not answer and may know them."""
        return [*(shard for shard in self.tokens if shard.since is not None), *self.unsure]

    def header(self, shard: Shard) -> list[tuple[bytes, bytes]]:
        """Return the credentials that a shard is sent."""
        return [(b"Authorization", ", ".join(f"Bearer {one}" for one in self.tokens.get(shard, ())).encode())]

    def one_away(self) -> Away:
        """Return what is said if the answer may be at a shard that is away."""
        return self.away[0].away()


class Callers:
    """The last callers."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._known: LruCache[tuple[str, ...], Caller] = LruCache(MOST_CALLERS)

    async def find(self, header: str, more: Iterable[str] = ()) -> Caller:
        """Say who brings these credentials; Unauthenticated if no shard knows any, Away if one could not be asked."""
        brought = tuple(filter(CREDENTIAL.fullmatch, dict.fromkeys([*tokens_of(header), *more])))
        if not brought:
            raise Unauthenticated(f"{UNKNOWN if brought else MISSING} ({HELP})")
        result = self._known.get(brought)
        if result is None or result.until < time.monotonic() or any(shard.since is None for shard in result.unsure):
            result = self._known.put(brought, await self._ask(brought, result))
        if not result.tokens:
            raise result.one_away() if result.unsure else Unauthenticated(f"{UNKNOWN} ({HELP})")
        return result

    async def _ask(self, brought: tuple[str, ...], before: Caller | None) -> Caller:
        by_digest = {digest(one): one for one in brought}
        answers = await asyncio.gather(*(self._known_to(shard, [*by_digest]) for shard in self._shards))
        tokens, unsure = dict[Shard, tuple[str, ...]](), []
        for shard, known in zip(self._shards, answers, strict=True):
            if known is None and (before is None or shard in before.unsure):
                unsure.append(shard)
                continue
            stored = (
                before.tokens.get(shard, ()) if known is None and before else (by_digest[one] for one in known or ())
            )
            if stored := tuple(stored):
                tokens[shard] = stored
        lasts = KNOWN if tokens else REFUSED
        return Caller(tokens, tuple(unsure), ",".join(sorted(by_digest)), time.monotonic() + lasts)

    async def _known_to(self, shard: Shard, digests: list[str]) -> list[str] | None:
        """Return which of these digests a shard knows, in order; None if it is away."""
        try:
            answer = await shard.ask("GET", f"/v1/credentials:known?digests={','.join(digests)}", [])
        except Away:
            return None
        if answer.status not in (200, 401):
            raise busy(shard, answer)
        known: Any = answer.json().get("known", ()) if answer.is_good else ()
        return [one for one in digests if one in known]


def busy(shard: Shard, answer: Answer) -> TryLater:
    """Return what is said if a shard answers a question of the router's own with something else."""
    return TryLater(f"shard {shard.url} answered {answer.status} to a question of the router", retry_after=1)
