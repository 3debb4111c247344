"""Answers of several shards → one, and what it says of those that are away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rainbow.api.front import answer_to
from rainbow.errors import RainbowError
from rainbow.federation.callers import Caller
from rainbow.federation.shards import Answer, Shard
from rainbow.job_names import LAST
from rainbow.service.placement.match_cache import MOST_SHOWN
from rainbow.text import natural

Gone = Sequence[Mapping[str, Any]]  # clusters of shards that are away
JSON = [(b"content-type", b"application/json")]
# what is said if no shard can do what is asked, and each says something else: what is nearest to doing it
TELLING = (409, 422, 413, 400, 429, 503, 403, 404, 401)
LISTS = ("candidates", "refusals", "undecided")
WORST = ("no-cluster-now", "undecided", "unsatisfiable")  # of refusals, by what may come of them


def reply(body: Mapping[str, Any], status: int = 200) -> Answer:
    """Write an answer of the router's own."""
    return Answer(status, JSON, json.dumps(body).encode())


def problem_of(fault: RainbowError) -> Answer:
    """Write a fault."""
    answer = answer_to(fault)
    return Answer(answer.status, answer.headers, answer.body)


def code_of(answer: Answer) -> str:
    """Return the code of a problem."""
    results = answer.json() if not answer.is_good else {}
    return str(results.get("code", "")) if isinstance(results, Mapping) else ""


def nearest(problems: Iterable[Answer]) -> Answer:
    """Return the problem that says most."""
    return min(problems, key=lambda one: TELLING.index(one.status) if one.status in TELLING else len(TELLING))


def shards_away(who: Caller) -> list[dict[str, Any]]:
    """Say which shards of a caller's do not answer."""
    return [{"shard": shard.url, "reason": shard.away().message, **shard.away().facts} for shard in who.away]


def with_away(answer: Answer, who: Caller) -> Answer:
    """Add to a job's decision which shards were not asked."""
    if not who.away or not answer.is_good:
        return answer
    body = answer.json()
    body["decision"] = {**body["decision"], "away": shards_away(who)}
    headers = [(name, value) for name, value in answer.headers if name != b"content-length"]
    return Answer(answer.status, headers, json.dumps(body).encode())


def refused(bids: Mapping[Shard, Any], problems: Mapping[Shard, Answer], gone: Gone, who: Caller) -> Answer:
    """Say why no shard takes a job: as one server does, and that those that are away might."""
    refusals = [answer["refusal"] for answer in bids.values() if answer["refusal"]]
    if not refusals and problems:
        return nearest(problems.values())
    results: dict[str, Any] = min(refusals, key=lambda one: _rank(one["code"]), default={"code": "unavailable"})
    results = {**results, **_verdicts(refusals, gone)}
    if dropped := {name: why for one in refusals for name, why in (one.get("dropped") or {}).items()}:
        results["dropped"] = dict(list(dropped.items())[:MOST_SHOWN])
    if who.away:
        fault = who.one_away()
        fault.message = f"{results['detail']}; {fault.message}" if "detail" in results else fault.message
        fault.facts |= {key: results[key] for key in (*LISTS, "more", "dropped") if key in results}
        return problem_of(fault)
    return Answer(results["status"], [(b"content-type", b"application/problem+json")], json.dumps(results).encode())


def _rank(code: str) -> int:
    return WORST.index(code) if code in WORST else -1


def _verdicts(answers: Sequence[Mapping[str, Any]], gone: Gone) -> dict[str, Any]:
    """Merge verdicts: at most MOST_SHOWN of each kind, and how many more there are."""
    results: dict[str, Any] = {kind: [one for answer in answers for one in answer.get(kind) or ()] for kind in LISTS}
    away = [{"cluster": one["name"], "reason": "away", "text": one["reason"]} for one in gone]
    results["refusals"] = [*away, *results["refusals"]]
    more = {kind: sum((one.get("more") or {}).get(kind, 0) for one in answers) for kind in LISTS}
    more = {kind: more[kind] + max(0, len(results[kind]) - MOST_SHOWN) for kind in LISTS}
    warnings = dict.fromkeys(word for answer in answers for word in answer.get("warnings") or ())
    shown = {kind: results[kind][:MOST_SHOWN] for kind in LISTS}
    return {**shown, "warnings": [*warnings], **({"more": more} if any(more.values()) else {})}


def matches(answers: Sequence[Any], gone: Gone) -> dict[str, Any]:
    """Merge what `match`, or a question for times, was answered: all clusters, by name."""
    results: dict[str, Any] = {}
    for key in dict.fromkeys(key for answer in answers for key in answer):
        parts = [answer[key] for answer in answers if key in answer]
        listed = all(isinstance(part, list) for part in parts)
        results[key] = _by_name([one for part in parts for one in part]) if listed else parts[0]
    if any("finish" in one for one in results.get("candidates", ())):  # of times: the first to end first
        results["candidates"].sort(key=lambda one: (one["finish"] is None, one["finish"] or ""))
    away = [{"cluster": one["name"], "reason": "away", "text": one["reason"]} for one in gone]
    return {**results, "refusals": _by_name([*results.get("refusals", ()), *away])} if away else results


def _by_name(rows: list[Any]) -> list[Any]:
    named = [row for row in rows if isinstance(row, Mapping)]
    others = list(dict.fromkeys(row for row in rows if isinstance(row, str)))
    return [*sorted(named, key=lambda row: natural(str(row.get("cluster") or row.get("name") or ""))), *others]


def rows(key: str, answers: Sequence[Any], gone: Gone) -> dict[str, Any]:
    """Merge lists of clusters or nodes, by name."""
    return {key: _by_name([row for answer in answers for row in [*answer[key]]] + list(gone))}


def page(answers: Sequence[Any], limit: int, oldest: bool) -> dict[str, Any]:
    """Merge pages of jobs: ids sort by time."""
    jobs = sorted(
        (job for answer in answers for job in answer["jobs"]), key=lambda job: job["id"], reverse=not oldest
    )
    more = len(jobs) > limit or any(answer["next"] for answer in answers)
    return {"jobs": jobs[:limit], "next": jobs[:limit][-1]["id"] if jobs and more else None}


def named(text: str, answers: Sequence[Any]) -> dict[str, Any]:
    """Merge the jobs that a text names: `last` is the newest of all."""
    rows = sorted((row for answer in answers for row in answer["jobs"]), key=lambda row: row["id"], reverse=True)
    return {"jobs": rows[:1] if text == LAST else rows}


def texts_of(body: Any) -> list[str]:
    """Return the names of the jobs in a request for many; none where it has filters, or is wrong."""
    texts = body.get("jobs") if isinstance(body, Mapping) else None
    known = isinstance(texts, list) and all(isinstance(text, str) and text for text in texts)
    return list(dict.fromkeys(texts)) if known and texts else []


def changed(answers: Sequence[Any], refused: Sequence[Any] = ()) -> dict[str, Any]:
    """Merge what became of many jobs; `refused`: those of no shard, or of several."""
    refused = [*refused, *(row for answer in answers for row in answer["refused"])]
    chosen = [row for answer in answers for row in answer.get("jobs", ())]
    done = sum(answer["done"] for answer in answers)
    return {"done": done, "refused": refused, **({"jobs": chosen} if chosen else {})}


def counts(answers: Sequence[Any]) -> dict[str, Any]:
    """Sum counts."""
    results: dict[str, int] = {}
    for answer in answers:
        for name, count in answer["counts"].items():
            results[name] = results.get(name, 0) + count
    return {"by": answers[0]["by"], "counts": results}
