"""/v1/jobs, /v1/jobs:batch and /v1/match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flask import Blueprint, jsonify, request

from rainbow.api.problems import body_of
from rainbow.api.wire import (
    MOST_DIGITS,
    check,
    check_credentials,
    count_in_query,
    flag,
    list_of,
    login,
    number_of,
    read_jobspec,
    read_mapping,
    service,
    timed,
    tokens,
    who,
)
from rainbow.errors import InputError, LimitError, RainbowError, RequestError, Unauthenticated
from rainbow.service.core.access import Caller
from rainbow.service.core.counters import phase
from rainbow.service.jobs import names, verbs
from rainbow.service.placement import batch as placement_batch
from rainbow.service.placement import ledger
from rainbow.service.placement.batch import Answer, Entry, Optimal
from rainbow.service.placement.submission import Submission, match_answer
from rainbow.service.placement.update import update as update_job
from rainbow.service.queries import bid as bids
from rainbow.service.queries import certificates, definition, fleet, forecasts
from rainbow.service.queries import jobs as job_queries
from rainbow.store.credentials import digest
from rainbow.store.jobs import PENDING
from rainbow.store.pages import COUNTED, Filter
from rainbow.write_queue import WRITER, Writer

batch = Blueprint("batch", __name__, url_prefix="/v1")
SECONDS = 2.0  # that an optimal assignment may take, unless said
# of the batch, for the jobs that do not bring their own
COMMON = ("selector", "clusters", "requestor", "login", "account", "queue", "backend")


@batch.post("/jobs:batch", endpoint="submit")
def submit_batch() -> Any:
    """Submit up to 1,000 jobs; each has its own answer with a `status`."""
    asking = who()
    body = read_mapping("Batch")
    jobs = list_of(body, "jobs")
    most = service().settings.limits.batch
    if len(jobs) > most:
        raise LimitError(f"batch contains {len(jobs)} jobs; the limit is {most}", limit="batch", pointer="/jobs")
    optimal = _optimal(body)
    common = {key: body[key] for key in COMMON if key in body}
    check_credentials(len(set(_tokens_in([common, *jobs]))), "the body")
    entries = [_entry(asking, common, job, at) for at, job in enumerate(jobs)]
    answers, assigned = placement_batch.submit_batch(service(), entries, optimal)
    with phase("answer"):
        return jsonify(answers=[_written(answer) for answer in answers], assign=assigned)


def _optimal(body: Mapping[str, Any]) -> Optimal | None:
    how = body.get("assign") or "greedy"
    seconds = number_of(body, "time_limit", SECONDS, service().settings.limits.wait)
    if how == "greedy":
        return None
    return Optimal(body["minimise"], seconds)


def _tokens_in(jobs: Iterable[Any]) -> Iterator[str]:
    """Give the tokens of all jobs, as far as they are written as tokens are."""
    for job in jobs:
        clusters = job.get("clusters") if isinstance(job, Mapping) else None
        for entry in clusters if isinstance(clusters, list) else ():
            if isinstance(entry, Mapping) and isinstance(entry.get("token"), str):
                yield entry["token"]


def _entry(asking: Caller, common: Mapping[str, Any], job: Any, at: int) -> Entry:
    """Read one job; what is wrong with it is its own answer."""
    try:
        if not isinstance(job, Mapping) or "jobspec" not in job:
            raise RequestError(
                "each job must be an object with jobspec and, optionally, selector, clusters, name, requestor",
                pointer="",
            )
        envelope = {**common, **job}
        brought = cluster_tokens(envelope)
        submission = submission_of(envelope["jobspec"], envelope, brought, _key(at))
        return Entry(who(brought) if brought else asking, submission)
    except RainbowError as fault:
        if isinstance(fault, InputError):
            fault.pointer = f"/jobs/{at}{fault.pointer or ''}"
        return Entry(None, None, fault)
    except Exception as fault:  # of one job: the others have answers of their own
        return Entry(None, None, placement_batch.as_answer(fault))


def _key(at: int) -> str | None:
    key = request.headers.get("Idempotency-Key")
    return None if key is None else f"{key}/{at}"


def _written(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, RainbowError):
        return body_of(answer)
    placed, again = answer
    return {"status": 200 if again else 201, **written(placed)}


jobs = Blueprint("jobs", __name__, url_prefix="/v1")


@jobs.post("/jobs")
def submit() -> Any:
    """Submit a jobspec: 201 with the job, its cluster and the decision; 200 for one sent again.

    With `queue` a job that clusters match and none takes now waits: its state is UNPLACED and its cluster null. A
    `basis` cancels the caller's active jobs of that basis with another `tag`; 409 if a newer tag followed. `login` is
    whom the job is for where neither `requestor` nor the token names one. The decision lists at most 16 clusters of
    each kind and the chosen one; `more` counts the others, which `GET /v1/jobs/{job_id}/why` lists.
    """
    asking, query = _asked()
    placed, again = placement_batch.submit(service(), asking, query)
    with phase("answer"):
        answer = jsonify(written(placed))
    if again:
        answer.headers["Idempotent-Replayed"] = "true"
    answer.headers["Location"] = f"/v1/jobs/{placed['id']}"
    return answer, 200 if again else 201


def written(placed: Mapping[str, Any]) -> dict[str, Any]:
    """Write what a submit is answered; the decision holds what clusters say, which is never taken for a time."""
    return {key: timed(value) if key == "wait" else value for key, value in placed.items()}


@jobs.post("/match")
def match() -> Any:
    """Match a jobspec with the caller's clusters; nothing is stored.

    Answers `candidates`, `refusals` with reasons, and clusters `undecided` because `limits.match_seconds` ended
    first. With `"explain": true` each has an `explanation`; with `"certificate": true` each candidate has a
    `certificate`, the rows that prove it, and each refusal a `refutation`, what of it can be counted again.
    """
    asking, query = _asked()
    return jsonify(match_answer(service(), asking, query))


@jobs.post("/jobs:bid")
def bid() -> Any:
    """Say what a submit would choose here, for a router that compares several servers; nothing is stored.

    `standing` is what is compared (null: no cluster takes the job, `refusal` says why), `earlier` whether there is a
    job of this Idempotency-Key.
    """
    result = bids.bid(service(), *_asked())
    why = result.pop("refusal")
    return jsonify(**result, refusal=why and body_of(why))


def _asked() -> tuple[Caller, Submission]:
    """Read the request; who asks is settled before the jobspec is looked at."""
    asking = _by_header()
    jobspec, envelope = read_jobspec()
    brought = cluster_tokens(envelope)
    submission = submission_of(jobspec, envelope, brought, request.headers.get("Idempotency-Key"))
    return asking if asking and not brought else who(brought), submission


def _by_header() -> Caller | None:
    """Say who asks; None if nothing in the header is known, and the body's tokens must say it."""
    try:
        return who() if tokens() else None
    except Unauthenticated:
        return None


def submission_of(jobspec: Any, envelope: Mapping[str, Any], brought: list[str], key: str | None) -> Submission:
    """Read what an envelope asks for; `brought` are the tokens it brings."""
    if envelope:
        check(envelope, "Question")
    selector = envelope.get("selector") or {}
    return Submission(
        jobspec=jobspec,
        selector=selector.get("name"),
        options=selector.get("options"),
        clusters=[entry["name"] for entry in envelope["clusters"]] if envelope.get("clusters") else None,
        name=envelope.get("name"),
        requestor=envelope.get("requestor"),
        basis=envelope.get("basis"),
        tag=envelope.get("tag"),
        key=key,
        credentials=[digest(token) for token in [*tokens(), *brought]],
        explain=envelope.get("explain", False),
        certificate=envelope.get("certificate", False),
        stated=tuple(envelope.get("stated") or ()),
        backend=envelope.get("backend"),
        queue=envelope.get("queue"),
        account=envelope.get("account"),
        login=envelope.get("login"),
    )


def cluster_tokens(envelope: Mapping[str, Any]) -> list[str]:
    """Read `clusters: [{name, token}]` of an envelope."""
    brought = []
    for k, entry in enumerate(list_of(envelope, "clusters") if envelope.get("clusters") else []):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise RequestError("an entry is {name, token}", pointer=f"/clusters/{k}")
        if entry.get("token") is not None:
            if not isinstance(entry["token"], str):
                raise RequestError("a token is text", pointer=f"/clusters/{k}/token")
            brought.append(entry["token"])
    check_credentials(len(set(brought)), "the body")
    return brought


@jobs.get("/jobs")
def listing() -> Any:
    """List jobs, the newest first (`sort=oldest`: the oldest), in pages.

    Filters are joined by "and", and each may be given several times: `number`, `id`, `site` (SITE:N), `name` with `*`
    and `?`, `user`, `state` (also several, separated by commas), `cluster`, `account`, `reason` of a wait, `since`
    (not ended before) and `until` (submitted before). `summary=true` adds counts of tasks by state, start, the worst
    exit code and workers; `tasks=true` the tasks, at most 1,000 of a job.
    """
    asking = who()
    chosen = _filter(asking)
    result = job_queries.listing(service(), asking, chosen, summary=flag("summary"), with_tasks=flag("tasks"))
    following = result[-1]["id"] if len(result) == chosen.limit else None
    return jsonify(jobs=[timed(job) for job in result], next=following)


@jobs.get("/jobs:counts")
def counts() -> Any:
    """Count the jobs that have not ended, by state, cluster, requestor or reason."""
    by = _choice("by", COUNTED)
    return jsonify(by=by, counts=fleet.job_counts(service(), who(), by))


def _filter(asking: Caller) -> Filter:
    _choice("sort", ("newest", "oldest"))  # job_filter reads it
    limit = count_in_query("limit", 100, service().settings.limits.listed)
    query = {name: request.args.getlist(name) for name in request.args}
    texts = [text for name in names.NAMING for text in query.get(name, ()) if text]
    ids = names.ids_of(service(), asking, texts, login()) if texts else None
    return job_queries.job_filter(asking, query, request.args.get("cursor"), limit, ids)


def _choice(name: str, allowed: tuple[str, ...]) -> str:
    """Read one of some words of the query; the first where none is said."""
    value = request.args.get(name, allowed[0])
    if value not in allowed:
        raise RequestError(f"{name} must be one of {', '.join(allowed)}", pointer=f"/{name}")
    return value


def _named(job_id: str) -> tuple[Caller, str]:
    """Say who asks, and the whole id of the job that the path names."""
    asking = who()
    return asking, names.whole_id(service(), asking, job_id, login())


@jobs.get("/jobs:find")
def find() -> Any:
    """Find the jobs that a text names, the newest first.

    `job` is a number, NUMBER_INDEX for an element of an array, an id or a beginning of one, the name of a job that
    has not ended, SITE:N as a site calls it, or `last`: the newest job of the person who asks, whose login is in the
    header Rainbow-Login where the token names no requestor. `element` is the place of its task; null: all of it.
    """
    asking, text = who(), request.args.get("job", "")
    with service().store.read() as connection:
        result = names.matches(connection, asking, text, login())
    shown = ("id", "number", "name", "requestor", "cluster", "state", "submitted_at")
    rows = [{**{key: getattr(one.record, key) for key in shown}, "element": one.element} for one in result]
    return jsonify(jobs=[timed({**row, "cluster": row["cluster"] or None}) for row in rows])


@jobs.get("/jobs/<id:job_id>")
def show(job_id: str) -> Any:
    """Show a job with its tasks, in pages.

    A job is named by its number, its id, a beginning of the id of 4 digits or more, its name while it has not ended,
    SITE:N or `last`, here and everywhere; an element of an array by its own number or NUMBER_INDEX, which shows its
    task alone. Pages have 1,000 tasks, or `limit`; `next` is the index to pass as `after`, null on the last page.
    `counts` has the tasks by state. `definition` says what the job is: command, resources, limits, the jobs that it
    comes after and before, directory, names of environment variables, output files.
    """
    after, listed = request.args.get("after"), service().settings.limits.listed
    most = count_in_query("limit", listed, listed)
    if after is not None and not (after.isdecimal() and len(after) < MOST_DIGITS):
        raise RequestError("after must be the index of a task", pointer="/after")
    asking = who()
    named = names.find(service(), asking, job_id, login())
    begin = None if after is None else int(after)
    return jsonify(timed(job_queries.show(service(), asking, named.job, begin, most, named.element)))


@jobs.get("/jobs/<id:job_id>/jobspec")
def jobspec(job_id: str) -> Any:
    """Show the jobspec of a job as it was submitted, text or a mapping.

    Who may not act for the job's user reads `***` for the values of environment variables, and `environment_hidden`
    is true.
    """
    return jsonify(definition.jobspec(service(), *_named(job_id)))


@jobs.get("/jobs/<id:job_id>/script")
def script(job_id: str) -> Any:
    """Show the batch script of a job; 404 for a job that has none."""
    return jsonify(definition.script(service(), *_named(job_id)))


@jobs.get("/jobs/<id:job_id>/eta")
def eta(job_id: str) -> Any:
    """Show when a job is expected to start and end, with a band.

    8 in 10 starts lie between `low` and `high`. `how` is running, ahead, one-pass or unknown; `ahead` counts jobs
    and core-hours.
    """
    return jsonify(forecasts.of_job(service(), *_named(job_id)))


@jobs.post("/eta")
def eta_of_jobspec() -> Any:
    """Show when a jobspec would start and end on each candidate; nothing is submitted."""
    asking, query = _asked()
    return jsonify(forecasts.of_jobspec(service(), asking, query))


@jobs.get("/jobs/<id:job_id>/why")
def why(job_id: str) -> Any:
    """Show the whole decision and why the job waits.

    `verify=true` adds `ever` (on the empty cluster) and `now` (alone, now): `can`, `text`, `facts`.
    """
    query = job_queries.why_verified if flag("verify") else job_queries.why_now
    return jsonify(timed(query(service(), *_named(job_id))))


@jobs.get("/jobs/<id:job_id>/certificate")
def certificate(job_id: str) -> Any:
    """Show the rows that prove a start: of `task`, an index, or of the first task that has some.

    Of more than 10,000 rows the digest `sha256` is kept. 404 where the start has no certificate says why.
    """
    index = request.args.get("task")
    if index is not None and not (index.isdecimal() and len(index) < MOST_DIGITS):
        raise RequestError("task must be the index of a task", pointer="/task")
    return jsonify(certificates.certificate(service(), *_named(job_id), None if index is None else int(index)))


@jobs.get("/jobs/<id:job_id>/replay")
def replay(job_id: str) -> Any:
    """Repeat the decision from its recorded inputs and compare."""
    return jsonify(job_queries.replay(service(), *_named(job_id)))


@jobs.get("/decisions")
def decisions() -> Any:
    """List recorded decisions with their inputs, the newest first, in pages.

    Needs the admin token. `matched` names variables, as `fits,nodes`: clusters are matched again of which a decision
    has not read them.
    """
    asking = who()
    chosen, matched = _filter(asking), [name for name in request.args.get("matched", "").split(",") if name]
    result, following = ledger.listing(service(), asking, chosen, matched)
    # a state's own variables are never taken for times, whatever they are called
    listed = [{**one, **timed({"submitted_at": one["submitted_at"]})} for one in result]
    return jsonify(decisions=listed, next=following)


@jobs.post("/policy:diff")
def policy_diff() -> Any:
    """Decide the last decisions again under the rules of a configuration; nothing is changed.

    `config` is its text; `limit` counts decisions, the newest first. After 2 s the answer is `cut`. Needs the admin
    token.
    """
    asking, body = who(), read_mapping("PolicyDiff")
    return jsonify(ledger.tried(service(), asking, body["config"], int(body.get("limit", 500))))


@jobs.post("/policy:check")
def policy_check() -> Any:
    """Check a configuration, or the settings of a scheduling policy: 422 says where they are wrong.

    Needs the admin token or a cluster's secret.
    """
    asking = who()
    return jsonify(ledger.checked(asking, read_mapping("PolicyCheck")))


MOST_TOGETHER = 10_000  # jobs that one request changes


@jobs.post("/jobs:<any(cancel,suspend,resume,hold,release,requeue):verb>")
def change_many(verb: str) -> Any:
    """Cancel, suspend, resume, hold, release or requeue many jobs in one request.

    `jobs` names them, as paths do; or `where` has filters of the list, joined by "and", and `limit` bounds how many
    of the oldest are changed. Without `user` they choose the caller's own jobs, without `state` those that have not
    ended. Answers how many are `done`, those that were so already among them, and which are `refused`, with `code`
    and `text`. `dry_run` changes nothing and lists the `jobs`. At most 500 are changed in one transaction, and others
    write between them; said again it is harmless.
    """
    asking, body = who(), read_mapping("ManyJobs")
    WRITER.set(Writer(asking.known[0]))  # beside what others submit it is in no hurry
    many = verbs.ManyJobs(service(), asking, verb, body.get("dry_run", False))
    if "jobs" in body:
        return jsonify(many.named(body["jobs"], login()).document())
    chosen = _where(asking, body["where"])
    return jsonify(many.matching(chosen, int(body.get("limit", MOST_TOGETHER))).document())


def _where(asking: Caller, where: Mapping[str, Any]) -> Filter:
    """Read the filters of a request for many jobs; one that has none would be for all of them."""
    query = {key: [value] if isinstance(value, str) else value for key, value in where.items()}
    if not any(text for texts in query.values() for text in texts):
        raise RequestError("where must have at least one filter", pointer="/where")
    texts = [text for name in names.NAMING for text in query.get(name, ()) if text]
    ids = names.ids_of(service(), asking, texts, login()) if texts else None
    result = job_queries.job_filter(asking, query, None, 1, ids)
    own = [*names.persons_of(asking, login())] if result.requestors is None else result.requestors
    return replace(result, requestors=own, states=result.states or sorted(PENDING))


def _change(verb: str, job_id: str) -> Any:
    """Change a job, or an element of an array, and show it as it is then."""
    asking = who()
    one = names.find(service(), asking, job_id, login())
    verbs.change(service(), asking, verb, one.job, one.element)
    return jsonify(timed(job_queries.show(service(), asking, one.job, None, None, one.element)))


@jobs.post("/jobs/<id:job_id>:<any(suspend,resume,hold,release,requeue):verb>")
def change(job_id: str, verb: str) -> Any:
    """Suspend, resume, hold, release or requeue a job.

    suspend: running tasks stop in place and keep their resources, waiting tasks do not start, until `resume`. hold:
    waiting tasks do not start and running tasks are left alone, until `release`. requeue: running tasks are stopped
    and wait to start again; of an array also one element.
    """
    return _change(verb, job_id)


@jobs.patch("/jobs/<id:job_id>")
def update(job_id: str) -> Any:
    """Change limit, size, requirements, cluster, priority or name of a job, hold or release it: all, or nothing.

    `nodes` (fewer of its nodes, else of its slots), `without` (a type below a node, a property, or a subsystem that
    it no longer asks for) and `cluster` (one that matches and that its submit allowed) only while nothing of it has
    been given to an agent; a longer `time_limit` (seconds, 0: none) only while nothing was accepted, a shorter one
    always.
    A higher `priority` needs the cluster's secret. Old values stay under `changes`.
    """
    asking, query = who(), read_mapping("JobChange")
    whole = names.whole_job(service(), asking, job_id, login())
    update_job(service(), asking, whole, query, login())
    return jsonify(timed(job_queries.show(service(), asking, whole)))


@jobs.delete("/jobs/<id:job_id>")
def cancel(job_id: str) -> Any:
    """Cancel a job, or one element of an array: nothing of it starts any more, running tasks are stopped.

    A job of very many tasks is canceled in pieces; `wait.reason` is `canceled` until the last.
    """
    return _change("cancel", job_id)
