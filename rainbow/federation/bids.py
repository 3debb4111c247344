"""What each shard would choose for a job, and which is the best: as one server with all clusters would choose.

What a shard would choose at random is asked for every few seconds by shape of job: the same clusters match, whatever
their states. Anything else is asked for at every submit.

A job of an Idempotency-Key is drawn by the key, so that it is drawn again where it is. This is relied on only for a
key that says when it was made, and was made since all is as it is; for any other every shard is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.cache import LruCache
from rainbow.errors import UNKNOWN, Conflict, SelectionError, Unavailable
from rainbow.federation.callers import Caller
from rainbow.federation.question import Question
from rainbow.federation.shards import Answer, Away, Shard
from rainbow.idempotency import made_at
from rainbow.selection.rank import Standing, best, chance_of

LASTS = 3.0  # seconds that a bid stands which reads no states
SKEW = 1.0  # seconds by which clocks may differ, and what routers have seen of a shard
MOST_SHAPES = 10_000  # whose bids are remembered


@dataclass(slots=True)
class Bids:
    """The bids of the shards on one job, and the problems of those that made none."""

    answers: dict[Shard, dict[str, Any]] = field(default_factory=dict)
    problems: dict[Shard, Answer] = field(default_factory=dict)
    at: float = 0.0
    since: float = 0.0  # since when they have been the same

    @property
    def standings(self) -> dict[Shard, Standing]:
        """What is compared, of the shards that would take the job."""
        return {
            shard: Standing.read(answer["standing"]) for shard, answer in self.answers.items() if answer["standing"]
        }

    @property
    def are_steady(self) -> bool:
        """Whether they hold for a while."""
        return (
            bool(self.standings) and not self.problems and all(answer["steady"] for answer in self.answers.values())
        )

    @property
    def earlier(self) -> Shard | None:
        """The shard that has a job of this key already."""
        return next((shard for shard, answer in self.answers.items() if answer["earlier"]), None)

    @property
    def stated(self) -> list[str]:
        """The variables that some shards' clusters state and others' do not: what decides is what all of them do."""
        every = [set(answer["stated"]) for answer in self.answers.values() if answer["candidates"]]
        return sorted(set().union(*every)) if any(one != every[0] for one in every) else []

    @property
    def weights(self) -> dict[Shard, Any]:
        """What is drawn by."""
        return {shard: (one.alone, one.among) for shard, one in self.standings.items()}


class Bidding:
    """Asks for bids, and remembers those that hold for a while."""

    def __init__(self) -> None:
        self._known: LruCache[object, Bids] = LruCache(MOST_SHAPES)

    async def bids(self, who: Caller, question: Question) -> Bids:
        """Return the bids of all shards on a job: those of a moment ago, where they and its key allow it."""
        shape = who.digests, question.shape
        known = self._known.get(shape)
        if known and 0 <= time.time() - known.at < LASTS and _is_new(question, known):
            return known
        result = await _all(who, question)
        if stated := result.stated:
            result = await _all(who, question, stated=stated)
        if not result.are_steady:
            return result
        away = {
            shard: answer for shard, answer in (known.answers if known else {}).items() if shard.since is not None
        }
        result.answers = {**away, **result.answers}
        result.since = known.since if known and known.weights == result.weights else result.at
        return self._known.put(shape, result)

    def forget(self, who: Caller, question: Question) -> None:
        """Ask again next time."""
        if known := self._known.get((who.digests, question.shape)):
            known.at = 0.0


async def _all(who: Caller, question: Question, **more: Any) -> Bids:
    result, here = Bids(at=time.time()), [shard for shard in question.places if shard.since is None]
    for shard, answer in zip(
        here, await asyncio.gather(*(_one(who, question, one, more) for one in here)), strict=True
    ):
        if answer is not None and answer.is_good:
            result.answers[shard] = answer.json()
        elif answer is not None:
            result.problems[shard] = answer
    if len({reported["policy"] for reported in result.answers.values()}) > 1:
        raise Conflict("the shards choose by different rules: give all one scheduler.algorithms.selection")
    return result


async def _one(who: Caller, question: Question, shard: Shard, more: Mapping[str, Any]) -> Answer | None:
    headers, body = question.to(shard, **more)
    try:
        return await shard.ask("POST", "/v1/jobs:bid", [*who.header(shard), *headers], body)
    except Away:
        return None


def chosen(who: Caller, question: Question, bids: Bids) -> Shard | None:
    """Return the shard that gets the job; None if none takes it.

    Unavailable if one that does not answer may have a job of its key, SelectionError for what cannot be compared.
    """
    if bids.earlier is not None:
        return bids.earlier
    if any(answer["standing"] is None and answer["refusal"] is None for answer in bids.answers.values()):
        raise SelectionError("choices of this selector cannot be compared; name `clusters` of one shard")
    standings = bids.standings
    chance = chance_of(f"{question.key}\n{who.digests}" if question.key else str(time.perf_counter_ns()))
    _check_doubt(who, question, bids, _best(standings, chance))
    return _best({shard: one for shard, one in standings.items() if shard.since is None}, chance)


def _best(standings: Mapping[Shard, Standing], chance: Callable[[str], float]) -> Shard | None:
    by_url = {shard.url: shard for shard in standings}
    return by_url[best({shard.url: one for shard, one in standings.items()}, chance)] if standings else None


def _is_new(question: Question, bids: Bids) -> bool:
    """Return whether no shard can have a job of this key but the one that is drawn by it."""
    made = made_at(question.key) if question.key else time.time()
    since = max([bids.since, *(shard.back for shard in question.places)]) + SKEW
    return not question.key or (made is not None and made > since)


def _check_doubt(who: Caller, question: Question, bids: Bids, drawn: Shard | None) -> None:
    """Raise Unavailable if a shard that does not answer may have a job of this key."""
    made = made_at(question.key)
    for shard in who.away if question.key else ():
        elsewhere = shard in bids.answers and drawn is not shard and _is_new(question, bids)
        if not elsewhere and (made is None or made <= (shard.since or 0.0) + SKEW):
            text = f"{shard.away().message}; it may have a job of this Idempotency-Key"
            raise Unavailable(text, retry_after=5, shard=shard.url, outcome=UNKNOWN)
