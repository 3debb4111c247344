"""Jobs listed and explained: show, why, replay, verify.

Why a job waits says scheduler/reasons.py to all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rainbow.errors import RequestError
from rainbow.jobspec.batch import ids_text
from rainbow.matching import stated_units
from rainbow.plugins import PluginFault, UnknownPlugin
from rainbow.scheduling import Answer, can_ever, can_now, policies
from rainbow.service.accounts.account_cache import standing_document, standings_of
from rainbow.service.core.access import Caller
from rainbow.service.jobs.expectation import expectation
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.lifecycle import visible_job
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.placement import ledger
from rainbow.service.queries.certificates import verified
from rainbow.service.queries.definition import definition
from rainbow.service.queries.now import now_document
from rainbow.service.scheduler.reasons import ITS_OWN, reason_of, reasons_of
from rainbow.service.scheduler.view import take_snapshot
from rainbow.state_machine import JobState, Task, TaskState, ran_for
from rainbow.store import clusters, pages, tasks
from rainbow.store.jobs import LIVE, PENDING
from rainbow.store.names.numbers import element_number
from rainbow.store.pages import Filter
from rainbow.text import in_time, some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord


FilterWords = Mapping[str, str | Sequence[str]]  # a filter's words: each may come several times


def job_filter(
    who: Caller, request: FilterWords, cursor: str | None, limit: int, ids: Collection[str] | None = None
) -> Filter:
    """Return the filter that a query asks for, over what a caller may see; RequestError for what is no state or time.

    `ids`: those of the jobs that it names, if it names any.
    """
    states = [state for text in _each(request, "state") for state in text.upper().split(",") if state]
    if unknown := next((state for state in states if state not in JobState.__members__), None):
        raise RequestError(
            f"unknown job state {unknown[:40]}; expected one of {', '.join(JobState)}", pointer="/state"
        )
    if cursor and not re.fullmatch("[0-9a-f]{24}", cursor):
        raise RequestError(f"unknown cursor {cursor[:40]!r}; give what a page said under next", pointer="/cursor")
    return Filter(
        clusters=who.visible,
        own=who.own,
        states=states,
        places=_each(request, "cluster") or None,
        requestors=[*_each(request, "user"), *_each(request, "requestor")] or None,
        reasons=_each(request, "reason"),
        accounts=_each(request, "account"),
        names=_each(request, "name") or None,
        ids=ids,
        since=moment(request, "since"),
        until=moment(request, "until"),
        oldest="oldest" in _each(request, "sort"),
        before=cursor or None,
        limit=limit,
    )


def _each(request: FilterWords, key: str) -> list[str]:
    said = request.get(key, ())
    return [text for text in ([said] if isinstance(said, str) else said) if text]


def moment(request: FilterWords, key: str) -> float | None:
    """Read a time of a filter, in seconds since 1970; None where it says none."""
    if key not in request:
        return None
    said = request[key]
    text = said if isinstance(said, str) else next(iter(said), "")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise RequestError(f"{key} must be a time as 2030-01-31T12:00:00Z, got {text[:40]!r}", pointer=f"/{key}")
    return at.timestamp()


def why_now(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show the answer and the whole decision: match, selection steps, and why the job waits."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        decision = ledger.whole(connection, job_id)
        by = tasks.preempted(connection, job_id) if record.state in PENDING else None
        of_account = (
            standing_document(record.account, record.requestor, standings_of(service, connection))
            if record.account
            else None
        )
    wait = reason_of(service, record, who)
    with service.store.read() as connection:
        said = answer_of(connection, record, wait, of_account)
        proof = verified(service, connection, record)
    decision = {key: value for key, value in decision.items() if key not in ("given", "digests")}
    return {
        "id": job_id,
        "number": record.number,
        "cluster": record.cluster or None,
        "state": record.state,
        "decision": only_for(service, who, record.cluster, decision),
        "wait": wait,
        "now": now_document(service, who, record, wait),
        "eta": expectation(service, who, record, wait),
        **({"account": of_account} if of_account else {}),
        **({"preempted": {**by, "text": f"preempted by job {by['by']}; it waits in its old place"}} if by else {}),
        "answer": said,
        **({"verified": proof} if proof else {}),
    }


def show(
    service: Service,
    who: Caller,
    job_id: str,
    after: int | None = None,
    most: int | None = None,
    element: int | None = None,
) -> dict[str, Any]:
    """Show a job with how many tasks are in which state, and a page of them: those after an index, or one alone."""
    begin, listed = 0 if after is None else after + 1, service.settings.limits.listed
    begin, most = (begin, most) if element is None else (element, 1)
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        counts = tasks.counts(connection, [job_id])[job_id]
        result = tasks.page(connection, job_id, begin, min(listed if most is None else most, sum(counts.values())))
        array = reading(connection, job_id).request.array
        defined = definition(connection, who, record)
        bad = tasks.some_of(connection, job_id, ENDED_BADLY, LOOKED_AT) if set(counts) & {*ENDED_BADLY} else []
    remaining = element is None and result and result[-1].index + 1 < sum(counts.values())
    ids = [*array.ids] if array else []
    listed_tasks = [{**_task(task), **_element(record, ids, task)} for task in result]
    page = {"counts": counts, "tasks": listed_tasks, "next": result[-1].index if remaining else None}
    bad.sort(key=lambda task: (task.ended_at or 0.0, task.index))
    job = job_document(record, reason_of(service, record, who))
    return {
        **job,
        "headline": headline(record, job["wait"], counts, bad, ids),
        **page,
        **({"failed": [{**_task(task), **_element(record, ids, task)} for task in bad[:MOST_FAILED]]} if bad else {}),
        "eta": expectation(service, who, record, job["wait"]),
        **_units(service, record),
        **({"array": ids_text(array.ids)} if array else {}),
        **({"changes": record.overrides["changes"]} if record.overrides else {}),
        "definition": defined,
    }


def _element(record: JobRecord, ids: Sequence[int], task: Task) -> dict[str, Any]:
    """Return the own number of an element of an array, and how it is called by its array."""
    if not record.elements or task.index >= len(ids):
        return {}
    number = element_number(record.number, record.elements, task.index)
    return {"number": number, "element": f"{record.number}_{ids[task.index]}"}


def job_document(record: JobRecord, wait: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job as it is answered, without what is the server's own."""
    hidden = (
        "cluster_id",
        "accepted_clock",
        "ended_clock",
        "awaits",
        "rate",
        "overrides",
        *([] if record.account else ["account"]),
        *([] if record.qos else ["qos"]),
        *([] if record.elements else ["elements"]),
    )
    written = {key: value for key, value in asdict(record).items() if key not in hidden}
    return {**written, "cluster": record.cluster or None, "wait": None if wait is None else dict(wait)}


def _units(service: Service, record: JobRecord) -> dict[str, Any]:
    """Return {"units": {type: base unit}} of the amounts in placements, where some have one."""
    entry = service.catalogue.get(record.cluster)
    units = stated_units(entry.cluster) if entry and entry.id == record.cluster_id else {}
    return {"units": units} if units else {}


_SHOWN = tuple(field.name for field in fields(Task) if field.name not in ("job", "account", "preempted"))


def _task(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in _SHOWN}


def listing(
    service: Service, who: Caller, chosen: Filter, *, summary: bool = False, with_tasks: bool = False
) -> list[dict[str, Any]]:
    """List jobs of the clusters that exist for the caller, the newest first; `summary`: how far each has come."""
    with service.store.read() as connection:
        results = pages.listing(connection, chosen)
        sums = tasks.summaries(connection, [record.id for record in results]) if summary else {}
        pages_ = {record.id: _page_of(connection, record) for record in results} if with_tasks else {}
    waits = reasons_of(service, results, who)
    listed = [
        {**job_document(record, waits.get(record.id)), **_summed(sums.get(record.id)), **pages_.get(record.id, {})}
        for record in results
    ]
    return [
        {**one, "eta": expectation(service, who, record, one["wait"])}
        for one, record in zip(listed, results, strict=True)
    ]


MOST_TASKS = 1_000  # of a job in a list


def _page_of(connection: sa.Connection, record: JobRecord) -> dict[str, Any]:
    read = reading(connection, record.id)
    ids = [*read.request.array.ids] if read.request.array else []
    result = tasks.page(connection, record.id, 0, min(MOST_TASKS, len(read.tasks)))
    return {"tasks": [{**_task(task), **_element(record, ids, task)} for task in result]}


def _summed(summary: tasks.Summary | None) -> dict[str, Any]:
    return {} if summary is None else {"summary": summary._asdict()}


def replay(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Take a job's decision again from the ledger; say whether the same comes of it."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        results = ledger.replay(service, connection, record)
    return only_for(service, who, record.cluster, results)


def only_for(service: Service, who: Caller, cluster: str, decision: dict[str, Any]) -> dict[str, Any]:
    """Return what of a decision that chose this cluster its reader may see."""
    if who.admin:
        return decision
    seen = {name for name, entry in service.catalogue.items() if who.sees(entry.id)}
    return only_about(seen | {cluster}, decision)


def only_about(seen: Collection[str], decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision without the clusters that do not exist for its reader.

    >>> only_about({"oak"}, {"refusals": [{"cluster": "elm"}], "steps": [{"survivors": ["elm", "oak"]}]})
    {'refusals': [], 'steps': [{'survivors': ['oak']}]}
    """
    return {key: _PARTS.get(key, _as_it_is)(seen, value) for key, value in decision.items()}


def _as_it_is(_: Collection[str], value: Any) -> Any:
    return value


def _of_clusters(seen: Collection[str], listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in listed if entry["cluster"] in seen]


def _names(seen: Collection[str], names: list[str]) -> list[str]:
    return [name for name in names if name in seen]


def _name(seen: Collection[str], name: str) -> str:
    return name if name in seen else ""


def _by_name(seen: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in seen}


def _each_part(seen: Collection[str], parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [only_about(seen, part) for part in parts]


# what in a decision is about clusters, and how those are left out
_PARTS: dict[str, Callable[[Collection[str], Any], Any]] = {
    "candidates": _of_clusters,
    "refusals": _of_clusters,
    "undecided": _of_clusters,
    "selection": only_about,
    "replayed": only_about,
    "graphs_changed_since": _names,
    "again": only_about,
    "clusters": _names,
    "moves": _each_part,
    "cluster": _name,
    "from": _name,
    "to": _name,
    "steps": _each_part,
    "survivors": _names,
    "values": _by_name,
    "dropped": _by_name,
    "ranks": _by_name,
    "drops": _by_name,
    "barred": _by_name,
    "unattended": _names,
}


def why_verified(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show the whole decision, and under `verify` both answers.

    None where the policy has nothing to decide: nothing waits, or something else comes first.
    """
    reported = why_now(service, who, job_id)
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        cluster = clusters.get(connection, record.cluster_id)
    if cluster is None:
        return {**reported, "verify": None}
    with mirrored(service, service.entry(cluster)) as mirror:
        frozen = take_snapshot(service, mirror)
        if frozen is None or not any(job.id == job_id and job.gangs for job in frozen.view.jobs):
            return {**reported, "verify": None}
        try:
            seen = (policies.get(frozen.record.policy), frozen.view, job_id, frozen.rules)
            answers = {"ever": can_ever(*seen), "now": can_now(*seen)}
        except (PluginFault, UnknownPlugin):  # what the job waits for says so
            return {**reported, "verify": None}
    return {**reported, "verify": {question: _document(answer) for question, answer in answers.items()}}


def _document(answer: Answer) -> dict[str, Any]:
    return {"can": answer.can, "text": answer.text, "facts": dict(answer.facts)}


# ── the headline: what a reader must know first ──

ENDED_BADLY = (TaskState.FAILED, TaskState.TIMED_OUT)
MOST_FAILED = 10  # tasks shown before all others
LONGEST_LINE = 200  # characters of the last line that a task has written


def headline(
    record: JobRecord,
    wait: Mapping[str, Any] | None,
    counts: Mapping[TaskState, int],
    bad: Sequence[Task],
    ids: Sequence[int],
) -> str:
    """Return what is most important about a job; `bad`: tasks that ended badly, `ids`: those of its elements.

    It says no state, which is shown beside it, and no time of day, which is the reader's own.
    """
    whole = sum(counts.values())
    if bad and (record.state in BAD or record.state in LIVE):
        return "; ".join(filter(None, [_how_it_failed(bad[0], ids, whole), _of_the_others(counts, whole)]))
    if record.state in PENDING and (record.state is not JobState.RUNNING or wait):
        return str((wait or {}).get("text") or (wait or {}).get("reason") or "")
    return ", ".join(_progress(counts, record.state))


def _how_it_failed(task: Task, ids: Sequence[int], whole: int) -> str:
    """Say which task failed how, where, after how long, and what it wrote last."""
    name = f"Element {ids[task.index]}" if task.index < len(ids) else f"Task {task.name}" if whole > 1 else "It"
    how = "ran longer than its limit" if task.state is TaskState.TIMED_OUT else "failed"
    how += f" with exit code {task.exit_code}" if task.exit_code and task.state is TaskState.FAILED else ""
    there = [one for one in task.placement if one]
    where = f" on {', '.join(there[:2])}{f' and {len(there) - 2} more' if len(there) > 2 else ''}" if there else ""
    ran = task.started_at is not None and task.ended_at is not None
    after = f" after {in_time(ran_for(task, task.ended_at or 0.0))}" if ran else ""
    lines = (line for text in (task.errors, task.output) for line in reversed(text.split("\n")))
    said = next(filter(str.strip, lines), "")
    last = said.strip()[:LONGEST_LINE] or ("" if task.exit_code else task.detail)
    return f"{name} {how}{where}{after}{f': {last}' if last else ''}"


def _of_the_others(counts: Mapping[TaskState, int], whole: int) -> str:
    if whole == 1:
        return ""
    words = {state: count for state, count in counts.items() if count}
    return f"of {whole}, " + ", ".join(f"{count} {state.lower()}" for state, count in sorted(words.items()))


# ── the answer to "why?" in one line: where a job is, and what it waits for or how it ended ──

T = TaskState
# how its tasks have ended, by the job's state
BAD = {JobState.FAILED: (T.FAILED, T.TIMED_OUT), JobState.CANCELED: (T.CANCELED,)}
VERBS = {T.FAILED: "failed", T.TIMED_OUT: "ran longer than its limit", T.CANCELED: "canceled"}
# reasons that lie with the cluster, where nothing starts
AWAY = {"drained", "step-failed", "no-agent", "no-worker-ready", "agent-silent"}
OVER = (T.COMPLETED, T.FAILED, T.TIMED_OUT, T.CANCELED)
LOOKED_AT = 100  # tasks among which the first that ended so is looked for


def answer_of(
    connection: sa.Connection, record: JobRecord, wait: Mapping[str, Any] | None, account: Mapping[str, Any] | None
) -> str:
    """Return the answer about a stored job; `wait`: why it waits by the numbers of now; `account`: its place."""
    counts = tasks.counts(connection, [record.id]).get(record.id, {})
    ended = tasks.some_of(connection, record.id, BAD.get(record.state, ()), LOOKED_AT) if record.state in BAD else []
    current = wait if record.state not in LIVE or counts.get(T.WAITING) or record.wait is None else None
    result = answer(record.state, record.cluster, current, counts, ended)
    result += _lost_before(tasks.some_of(connection, record.id, OVER, LOOKED_AT)) if record.state not in LIVE else ""
    turn = current and current.get("reason") not in ITS_OWN | AWAY
    if turn and account and not account["text"].endswith("it comes first"):
        return f"{result}; {account['text']}"
    return result


def answer(
    state: JobState,
    cluster: str,
    wait: Mapping[str, Any] | None,
    counts: Mapping[TaskState, int],
    ended: Sequence[Task] = (),
) -> str:
    """Return where a job is and why; `ended`: tasks of a job that failed or was canceled.

    >>> answer(JobState.WAITING, "oak", {"text": "1 of 2 workers is busy"}, {T.WAITING: 1})
    'WAITING on oak: 1 of 2 workers is busy'
    >>> answer(JobState.RUNNING, "oak", {"text": "1 at a time"}, {T.WAITING: 2, T.RUNNING: 1, T.FAILED: 1})
    'RUNNING on oak: 1 of 4 tasks running, 1 ended, 2 waiting: 1 at a time'
    >>> answer(JobState.FAILED, "oak", None, {T.FAILED: 1}, [Task("a-0", "a", 0, 0, "task-0", T.FAILED, exit_code=4)])
    'FAILED on oak: task-0 ended with exit code 4'
    """
    where = f"{state} on {cluster}" if cluster else str(state)
    if state in BAD or state is JobState.COMPLETED:
        return ": ".join([where, *_ended(counts, ended)])
    counted = [] if wait and wait.get("reason") == "array-limit" else _progress(counts, state)
    said = (wait.get("text") or wait.get("reason") or "") if wait else ""
    return ": ".join(filter(None, [where, *counted, said]))


def _lost_before(ended: Sequence[Task]) -> str:
    """Say of the first task of a job that was lost before it ended, how often and why."""
    first = next((task for task in ended if task.losses and task.cause != "lost"), None)
    if first is None:
        return ""
    attempts = some(len(first.losses), "attempt")
    return f"; {first.name} lost {attempts} before, the last because {first.losses[-1]['why']}"


def _progress(counts: Mapping[TaskState, int], state: JobState) -> list[str]:
    whole, runs, waits = sum(counts.values()), counts.get(T.RUNNING, 0), counts.get(T.WAITING, 0)
    if state is not JobState.RUNNING or whole < 2:
        return []
    over = sum(counts.get(one, 0) for one in OVER)
    parts = [f"{runs} of {some(whole, 'task')} running"]
    parts += [f"{over} ended"] * bool(over) + [f"{waits} waiting"] * bool(waits)
    return [", ".join(parts)]


def _ended(counts: Mapping[TaskState, int], ended: Sequence[Task]) -> list[str]:
    if not ended:
        return []
    first = min(ended, key=lambda task: (task.ended_at or 0.0, task.index, task.id))
    kind = {task.state for task in ended}
    number, whole = sum(counts.get(state, 0) for state in kind), sum(counts.values())
    how = f"ended with exit code {first.exit_code}" if first.exit_code else VERBS[first.state]
    if first.detail and first.detail != how:
        how = f"{how}: {first.detail}"
    bad = "canceled" if kind == {T.CANCELED} else "failed"
    share = [] if whole == 1 else [f"{number} of {some(whole, 'task')} {bad}"]
    return [*share, f"{first.name} {how}"]
