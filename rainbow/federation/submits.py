"""A submit over several shards: ask what each would choose, compare, submit to the one that is the best."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from rainbow.errors import UNKNOWN, InternalError, LimitError, RainbowError, RequestError
from rainbow.federation import answers as merge
from rainbow.federation.bids import Bidding, Bids, chosen
from rainbow.federation.callers import Caller
from rainbow.federation.directory import Directory
from rainbow.federation.question import Question
from rainbow.federation.shards import Answer, NotSent, Shard
from rainbow.scheduling.dependencies import BY_JOB
from rainbow.selection.rank import chance_of, drawn

Finding = Callable[[Mapping[str, Any]], Awaitable[Caller]]  # who submits, by the header and an envelope
log = structlog.get_logger("rainbow.router")
ATTEMPTS = 3  # of a submit whose shard has changed its mind
AGAIN = frozenset({"unsatisfiable", "no-cluster-now", "conflict", "try-later"})  # another shard may take the job


class Submits:
    """Places jobs over the shards, and asks all of them where they may go."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._bidding = Bidding()

    async def submit(self, who: Caller, question: Question) -> Answer:
        """Place a job."""
        question = await self._placed(who, question)
        if len(question.places) == 1:
            return await self._send(who, question, *question.places)
        answer: Answer | None = None
        for _ in range(ATTEMPTS):
            bids = await self._bidding.bids(who, question)
            shard = chosen(who, question, bids) or _to_wait(question, bids)
            if shard is None:
                return merge.refused(bids.answers, bids.problems, self._directory.gone(who), who)
            try:
                answer = await self._send(who, question, shard, stated=bids.stated)
            except NotSent:
                continue  # it is away from now on, and others are asked
            if answer.is_good or merge.code_of(answer) not in AGAIN:
                return merge.with_away(answer, who)
            self._bidding.forget(who, question)
        return answer or merge.problem_of(who.one_away())

    async def _send(self, who: Caller, question: Question, shard: Shard, stated: Any = ()) -> Answer:
        headers, body = question.to(shard, **({"stated": stated} if stated else {}))
        answer = await shard.ask("POST", "/v1/jobs", [*who.header(shard), *headers], body)
        if job := answer.header(b"location").rpartition("/")[2]:
            self._directory.learn(job, shard)
        return answer

    async def everywhere(self, who: Caller, question: Question, path: str) -> Answer:
        """Ask all shards which of their clusters could run a jobspec, or when."""
        question = await self._placed(who, question)
        results = {shard: question.to(shard) for shard in question.places if shard.since is None}
        answers = await asyncio.gather(
            *(
                shard.ask("POST", path, [*who.header(shard), *headers], body)
                for shard, (headers, body) in results.items()
            )
        )
        if not (good := [answer.json() for answer in answers if answer.is_good]):
            return merge.nearest(answers) if answers else merge.problem_of(who.one_away())
        return merge.reply(merge.matches(good, self._directory.gone(who)))

    async def batch(self, caller: Finding, body: Mapping[str, Any], key: str, most: int) -> Answer:
        """Submit many, one after the other, as one server does: each decision knows those before it."""
        if (body.get("assign") or "greedy") != "greedy":
            text = "an optimal assignment needs all its clusters in one shard; name `clusters` of one"
            raise RequestError(text, pointer="/assign")
        jobs = body["jobs"]
        if len(jobs) > most:
            raise LimitError(f"batch contains {len(jobs)} jobs; the limit is {most}", limit="batch", pointer="/jobs")
        common = {name: body[name] for name in body if name not in ("jobs", "assign", "minimise", "time_limit")}
        answers = [await self._one_of(caller, common, job, key and f"{key}/{at}", at) for at, job in enumerate(jobs)]
        return merge.reply({"answers": answers, "assign": None})

    async def _one_of(self, caller: Finding, common: Any, job: Any, key: str, at: int) -> dict[str, Any]:
        try:
            if not isinstance(job, dict) or "jobspec" not in job:
                raise RequestError("each job must be an object with jobspec", pointer="")
            request = Question.read(json.dumps({**common, **job}).encode(), "application/json", key)
            answer = await self.submit(await caller(request.envelope), request)
            results: dict[str, Any] = answer.json()
        except RainbowError as fault:
            answer = merge.problem_of(fault)
            results = answer.json()
        except Exception as fault:  # of the router's own, and it may have been sent: the others have their answers
            log.error("submit-failed", fault=repr(fault), exc_info=fault)
            answer = merge.problem_of(InternalError(outcome=UNKNOWN))
            results = answer.json()
        if "pointer" in results and not answer.is_good:
            results["pointer"] = f"/jobs/{at}{results['pointer']}"
        return {"status": answer.status, **results}

    # ── where ──

    async def _placed(self, who: Caller, question: Question) -> Question:
        """Say which shards may answer: those of the clusters that are named, or one because of other jobs."""
        if pin := await self._pinned(who, question):
            return replace(question, places={pin: {}})
        named = question.envelope.get("clusters")
        if not named:
            return replace(question, places={shard: {} for shard in (*who.shards, *who.unsure)})
        entries: dict[Shard, list[Any]] = {}
        for entry in named:
            entries.setdefault(await self._directory.of_cluster(who, entry["name"]), []).append(entry)
        places = {shard: {"clusters": some} if len(entries) > 1 else {} for shard, some in entries.items()}
        return replace(question, places=places)

    async def _pinned(self, who: Caller, question: Question) -> Shard | None:
        """Return where a job must go because of others: those of its basis, or that it depends on."""
        if len(who.tokens) == 1 and not who.unsure:
            return None
        if basis := question.envelope.get("basis"):
            return self._directory.pinned(who, f"basis {basis}")
        for one in question.request.dependencies if question.request else ():
            if one.scheme == "string":
                return self._directory.pinned(who, "dependencies by name")
            if one.scheme in BY_JOB or one.scheme == "fluid":
                return await self._directory.of_job(who, one.value)
        return None


def _to_wait(question: Question, bids: Bids) -> Shard | None:
    """Return where a job waits that no cluster takes now, if it may."""
    waits = {
        shard.url: float(answer["candidates"])
        for shard, answer in bids.answers.items()
        if shard.since is None and answer["queues"] and (answer["refusal"] or {}).get("code") == "no-cluster-now"
    }
    by_url = {shard.url: shard for shard in bids.answers}
    return by_url[drawn(waits, chance_of(question.key))] if waits else None
