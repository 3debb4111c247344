"""/v1/jobs and /v1/match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, jsonify, request

from rainbow.api.asking import list_of, read_jobspec, read_mapping, service, tokens, who
from rainbow.api.problems import of_fault
from rainbow.api.schemas import check
from rainbow.api.times import timed
from rainbow.errors import LimitError, RainbowError, RequestError
from rainbow.jobs import JobState
from rainbow.service import deciding, showing, submitting
from rainbow.service.access import Caller, digest
from rainbow.service.submitting import Submission
from rainbow.store.jobs import Filter

jobs = Blueprint("jobs", __name__, url_prefix="/v1")


@jobs.post("/jobs")
def submit() -> Any:
    """Submit a jobspec: 201 with the job, its cluster and the decision; 200 for one sent again."""
    asking, asked = _asked()
    placed, again = submitting.submit(service(), asking, asked)
    answer = jsonify(placed)
    if again:
        answer.headers["Idempotent-Replayed"] = "true"
    answer.headers["Location"] = f"/v1/jobs/{placed['id']}"
    return answer, 200 if again else 201


@jobs.post("/match")
def match() -> Any:
    """Say which clusters could run a jobspec; nothing is stored."""
    asking, asked = _asked()
    return jsonify(submitting.answer(service(), asking, asked))


@jobs.post("/jobs:batch")
def batch() -> Any:
    """Submit {"jobs": [jobspec or envelope]}: each has its own answer, in order, with a status of its own."""
    asking = who()
    body = read_mapping("Batch")
    many = list_of(body, "jobs")
    most = service().settings.limits.batch
    if len(many) > most:
        raise LimitError(f"{len(many)} jobs in one request, the limit is {most}", limit="batch")
    key = request.headers.get("Idempotency-Key")
    answers: dict[int, Any] = {}
    ready: list[tuple[int, Submission]] = []
    for k, each in enumerate(many):
        try:
            ready.append((k, _one_of_batch(each, k, f"{key}/{k}" if key else None)))
        except RainbowError as fault:
            answers[k] = fault
    placed = submitting.submit_all(service(), asking, [asked for _, asked in ready])
    answers |= {k: one for (k, _), one in zip(ready, placed, strict=True)}
    return jsonify(jobs=[_shown(answers[k]) for k in range(len(many))])


def _one_of_batch(each: Any, k: int, key: str | None) -> Submission:
    if not isinstance(each, Mapping):
        raise RequestError("a job is a jobspec or an envelope", pointer=f"/jobs/{k}")
    if each.get("clusters") and _cluster_tokens(each):
        raise RequestError("in a batch tokens are brought in the header", pointer=f"/jobs/{k}/clusters")
    return _submission(each.get("jobspec", each), each if "jobspec" in each else {}, [], key)


def _shown(answer: Any) -> dict[str, Any]:
    if isinstance(answer, RainbowError):
        return dict(of_fault(answer).get_json())
    placed, again = answer
    return {"status": 200 if again else 201, **placed}


def _asked() -> tuple[Caller, Submission]:
    """Read the request; who asks is settled before the jobspec is looked at."""
    asking = who() if tokens() else None
    jobspec, envelope = read_jobspec()
    brought = _cluster_tokens(envelope)
    asked = _submission(jobspec, envelope, brought, request.headers.get("Idempotency-Key"))
    return asking if asking and not brought else who(brought), asked


def _submission(jobspec: Any, envelope: Mapping[str, Any], brought: list[str], key: str | None) -> Submission:
    if envelope:
        check(envelope, "Question")
    selector = envelope.get("selector") or {}
    return Submission(
        jobspec,
        selector.get("name"),
        selector.get("options"),
        [entry["name"] for entry in envelope["clusters"]] if envelope.get("clusters") else None,
        envelope.get("name"),
        envelope.get("requestor"),
        key,
        [digest(token) for token in [*tokens(), *brought]],
        envelope.get("explain", False),
    )


def _cluster_tokens(envelope: Mapping[str, Any]) -> list[str]:
    """Read `clusters: [{name, token}]` of an envelope."""
    brought = []
    for k, entry in enumerate(list_of(envelope, "clusters") if envelope.get("clusters") else []):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise RequestError("an entry is {name, token}", pointer=f"/clusters/{k}")
        if entry.get("token") is not None:
            if not isinstance(entry["token"], str):
                raise RequestError("a token is text", pointer=f"/clusters/{k}/token")
            brought.append(entry["token"])
    return brought


@jobs.get("/jobs")
def listing() -> Any:
    """List jobs, the newest first, page by page."""
    asking = who()
    chosen = _filter(asking)
    found = showing.listing(service(), asking, chosen)
    following = found[-1]["id"] if len(found) == chosen.limit else None
    return jsonify(jobs=[timed(job) for job in found], next=following)


def _filter(asking: Caller) -> Filter:
    arguments = request.args
    states = [state for state in arguments.get("state", "").upper().split(",") if state]
    for state in states:
        if state not in JobState.__members__:
            raise RequestError(f"there is no state {state}; there are: {', '.join(JobState)}", pointer="/state")
    text = arguments.get("limit", "100")
    if not text.isdecimal() or not 1 <= int(text[:9]) <= service().settings.limits.listed:
        raise RequestError(f"limit is a number from 1 to {service().settings.limits.listed}", pointer="/limit")
    return Filter(
        asking.visible,
        states,
        arguments.get("cluster"),
        arguments.get("cursor"),
        int(text),
        arguments.get("requestor"),
    )


@jobs.get("/jobs/<job_id>")
def show(job_id: str) -> Any:
    """Show a job with its tasks."""
    return jsonify(timed(showing.show(service(), who(), job_id)))


@jobs.get("/jobs/<job_id>/why")
def why(job_id: str) -> Any:
    """Show the whole decision."""
    return jsonify(timed(showing.why(service(), who(), job_id)))


@jobs.get("/jobs/<job_id>/replay")
def replay(job_id: str) -> Any:
    """Decide the placement again from what it was decided from, and compare."""
    return jsonify(deciding.replay(service(), who(), job_id))


@jobs.delete("/jobs/<job_id>")
def cancel(job_id: str) -> Any:
    """Cancel a job."""
    return jsonify(timed(showing.cancel(service(), who(), job_id)))
