"""/v1/jobs:batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, jsonify, request

from rainbow.api.asking import list_of, number_of, read_mapping, service, who
from rainbow.api.jobs import cluster_tokens, submission_of
from rainbow.api.problems import body_of
from rainbow.errors import InputError, LimitError, RainbowError, RequestError
from rainbow.service.access import Caller
from rainbow.service.measuring import phase
from rainbow.service.submits import batching
from rainbow.service.submits.batching import Answer, Entry, Optimal

batch = Blueprint("batch", __name__, url_prefix="/v1")
SECONDS = 2.0  # that an optimal assignment may take, unless said
COMMON = ("selector", "clusters", "requestor")  # of the batch, for the jobs that do not bring their own


@batch.post("/jobs:batch")
def submit() -> Any:
    """Submit many jobs: 200 with an answer for each, and how they were assigned."""
    asking = who()
    body = read_mapping("Batch")
    jobs = list_of(body, "jobs")
    most = service().settings.limits.batch
    if len(jobs) > most:
        raise LimitError(f"{len(jobs)} jobs, the limit is {most}", limit="batch", pointer="/jobs")
    optimal = _optimal(body)
    common = {key: body[key] for key in COMMON if key in body}
    entries = [_entry(asking, common, job, at) for at, job in enumerate(jobs)]
    answers, assigned = batching.submit_batch(service(), entries, optimal)
    with phase("answer"):
        return jsonify(answers=[_written(answer) for answer in answers], assign=assigned)


def _optimal(body: Mapping[str, Any]) -> Optimal | None:
    how = body.get("assign") or "greedy"
    seconds = number_of(body, "time_limit", SECONDS, service().settings.limits.wait)
    if how == "greedy":
        return None
    return Optimal(body["minimise"], seconds)


def _entry(asking: Caller, common: Mapping[str, Any], job: Any, at: int) -> Entry:
    """Read one job; what is wrong with it is its own answer."""
    try:
        if not isinstance(job, Mapping) or "jobspec" not in job:
            raise RequestError("a job is {jobspec, selector?, clusters?, name?, requestor?}", pointer="")
        envelope = {**common, **job}
        brought = cluster_tokens(envelope)
        asked = submission_of(envelope["jobspec"], envelope, brought, _key(at))
        return Entry(who(brought) if brought else asking, asked)
    except RainbowError as fault:
        if isinstance(fault, InputError):
            fault.pointer = f"/jobs/{at}{fault.pointer or ''}"
        return Entry(None, None, fault)


def _key(at: int) -> str | None:
    key = request.headers.get("Idempotency-Key")
    return None if key is None else f"{key}/{at}"


def _written(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, RainbowError):
        return body_of(answer)
    placed, again = answer
    return {"status": 200 if again else 201, **placed}
