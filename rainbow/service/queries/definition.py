"""What a job is: command, resources, limits, what it depends on and what depends on it, directory, environment.

All who see a job may read its definition and the jobspec as it was submitted. Values of environment variables are for
those who may act for the job's user: others read the names alone, and `***` in the place of each value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from rainbow.errors import NotFound
from rainbow.jobspec.batch import ids_text
from rainbow.jobspec.handover import constraint_document, model_of, tree_document, trees_of
from rainbow.jobspec.quantities import in_words
from rainbow.jobspec.yaml_reader import Limits, load
from rainbow.service.jobs.dependencies import awaited_by
from rainbow.service.jobs.jobspecs import reading_of
from rainbow.service.jobs.lifecycle import may_change, sees, visible_job
from rainbow.store import jobs
from rainbow.store.names import symbols
from rainbow.text import rfc3339, some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Count, Request, Resource, TaskSpec
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord

Document = dict[str, Any]
HIDDEN = "***"
MOST_TASKS = 100  # kinds of tasks in a definition
MOST_JOBS = 100  # that depend on one
STEPS = 2  # of a job's relatives, each way
MOST_DRAWN = 12  # of them at one step
FILES = ("input", "output", "error")
_EXPORTED = re.compile(r"(=)[^,\s]*")
_EXPORT_LINE = re.compile(r"^(#SBATCH\s.*--export[= ])(.*)$", re.MULTILINE)


def definition(connection: sa.Connection, who: Caller, record: JobRecord) -> Document:
    """Return what a job is, as it holds now: with what was changed since its submit."""
    request = reading_of(connection, record).request
    kinds = [_kind(request, spec) for spec in islice(request.tasks, MOST_TASKS)]
    system = request.attributes.get("system")
    system = system if isinstance(system, Mapping) else {}
    begin = next((float(one.value) for one in request.dependencies if one.scheme == "begin-time"), None)
    named = [{"name": one.value, "type": one.type} for one in request.dependencies if one.scheme == "string"]
    result: Document = {
        "command": kinds[0]["command"] if len(request.tasks) == 1 else None,
        "resources": {
            "text": resources_in_words(request),
            "tree": [tree_document(tree) for tree in request.resources],
        },
        "limits": {
            "time": request.duration or None,
            "least_time": request.shortest or None,
            "begin": begin and rfc3339(begin),
        },
        "after": _awaited(connection, who, record, request),
        "before": _dependents(connection, who, record),
        "names": named,
        "directory": request.cwd or request.submitted_from,
        "environment": sorted({*request.environment, *(name for kind in kinds for name in kind["environment"])}),
        "output": {key: system[key] for key in FILES if system.get(key) is not None},
        "script": bool(request.script),
        "tasks": kinds,
        "more_tasks": len(request.tasks) - len(kinds),
    }
    if request.array:
        result["array"] = {"elements": ids_text(request.array.ids), "at_once": request.array.at_once or None}
    if request.constraint:
        result["constraint"] = constraint_document(request.constraint)
    query = {"queues": list(request.queues), "licenses": dict(request.licenses), "clusters": list(request.clusters)}
    return result | {key: value for key, value in query.items() if value}


def _kind(request: Request, spec: TaskSpec) -> Document:
    return {
        "name": spec.name,
        "command": list(spec.command),
        "resources": resources_in_words(request, spec.slots) if spec.slots else "",
        "replicas": spec.replicas,
        "after": list(spec.depends_on),
        "environment": sorted(spec.environment),
    }


def _awaited(connection: sa.Connection, who: Caller, record: JobRecord, request: Request) -> list[Document]:
    """Return the jobs that a job waits for, or has waited for, in the order in which it names them."""
    return [_relative(connection, who, job, scheme) for job, scheme in awaited_by(record, request).items()]


def _relative(connection: sa.Connection, who: Caller, job: str, scheme: str) -> Document:
    """Return a job by number, name and state; one that is forgotten, or not the caller's to see, by its id alone."""
    record = jobs.get(connection, job)
    if record is None or not sees(connection, who, record):
        return {"id": job, "number": None, "name": None, "state": None, "scheme": scheme}
    return {"id": job, "number": record.number, "name": record.name, "state": record.state, "scheme": scheme}


def _dependents(connection: sa.Connection, who: Caller, record: JobRecord) -> list[Document]:
    rows = symbols.dependents(connection, record.id, MOST_JOBS)
    return [one for job, scheme in rows if (one := _relative(connection, who, job, scheme))["state"] is not None]


def relatives(service: Service, who: Caller, job_id: str) -> Document:
    """Return the jobs up to STEPS steps before and after a job, and who waits for whom.

    {"jobs": [{"id", "number", "name", "state", "step"}], "edges": [(earlier, later, scheme)], "more"}: `step` is 0
    for the job, negative before it; `more`: some are left out. A job that is not the caller's to see has an id alone,
    and what is beyond it is not looked for; who waits for a job, unseen, is not named at all.
    """
    with service.store.read() as connection:
        first = _relative(connection, who, visible_job(connection, who, job_id).id, "")
        drawn: dict[str, Document] = {job_id: {**first, "step": 0}}
        edges: dict[tuple[str, str], str] = {}
        more = False
        for sign, neighbors in ((-1, symbols.awaited), (1, symbols.dependents)):
            column = [job_id]
            for step in range(1, STEPS + 1):
                following: list[str] = []
                for one in column:
                    rows = neighbors(connection, one, MOST_DRAWN + 1)
                    for other, scheme in rows:
                        job = drawn.get(other) or _relative(connection, who, other, scheme)
                        if sign > 0 and job["state"] is None:
                            continue
                        if other not in drawn and len(following) == MOST_DRAWN:
                            more = True
                            continue
                        if other not in drawn:
                            drawn[other] = {**job, "step": sign * step}
                            following += [other] if job["state"] else []
                        edges[(other, one) if sign < 0 else (one, other)] = scheme
                column = following
    return {"jobs": [*drawn.values()], "edges": [(*pair, scheme) for pair, scheme in edges.items()], "more": more}


# ── in words ──


def resources_in_words(request: Request, labels: Iterable[str] = ()) -> str:
    """Write what a request asks for: "2 nodes, each with 1 task of 4 cores"."""
    whole = not labels
    slot = "task" if len(request.tasks) == 1 and request.tasks[0].per_slot == 1 else "slot"
    trees = trees_of(request, list(labels))
    text = " and ".join(_in_words(tree, slot) for tree in trees)
    if request.array and whole:
        once = f", at most {request.array.at_once} at once" if request.array.at_once else ""
        return f"{some(len(request.array.ids), 'element')}{once}, each {text}"
    replicas = request.tasks[0].replicas if len(request.tasks) == 1 and whole else 1
    return f"{replicas} times {text}" if replicas > 1 else text


def _in_words(part: Resource, slot: str) -> str:
    noun = slot if part.is_slot else "cpu" if part.cpus else part.type
    head = f"{_count(part.count, part.unit)} {noun}{'' if part.unit or part.count.max == 1 else 's'}"
    if model := model_of(part):
        head = f"{head} of model {model}"
    others = ", ".join(need.subsystem for need in part.needs if need.subsystem != "containment")
    head += f" with {others}" if others else ""
    head += ", not shared" if part.exclusive else ""
    if not part.children:
        return head
    inside = " and ".join(_in_words(child, slot) for child in part.children)
    if part.is_slot:
        return f"{head} of {inside}"
    return f"{head}, {'each ' if part.count.max != 1 else ''}with {inside}"


def _count(count: Count, unit: str) -> str:
    least = in_words(count.min, unit) if unit else str(count.min)
    if count.max == count.min:
        return least
    return (
        f"{least} or more" if count.max is None else f"{least} to {in_words(count.max, unit) if unit else count.max}"
    )


# ── what was submitted ──


def jobspec(service: Service, who: Caller, job_id: str) -> Document:
    """Return the jobspec as it was submitted, without values of the environment for who may not act for its user."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        document = jobs.jobspec(connection, job_id)
        open_ = may_change(connection, who, record)
    shown = document if open_ else _hidden(_loaded(document))
    return {"id": record.id, "number": record.number, "jobspec": shown, "environment_hidden": not open_}


def script(service: Service, who: Caller, job_id: str) -> Document:
    """Return the text of a job's batch script; NotFound for a job that has none."""
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        text = reading_of(connection, record).request.script
        open_ = may_change(connection, who, record)
    if not text:
        raise NotFound(f"job {record.number or job_id} has no script: it was submitted as a command or a jobspec")
    shown = text if open_ else _hidden_in_script(text)
    return {"id": record.id, "number": record.number, "script": shown, "environment_hidden": not open_}


def _loaded(document: Any) -> Any:
    return load(document, Limits())[0] if isinstance(document, str) else document


def _hidden(value: Any, key: str = "") -> Any:
    """Return a document without the values of variables, wherever it names some."""
    if isinstance(value, Mapping):
        names = key == "environment"
        return {name: HIDDEN if names and one is not None else _hidden(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    if not isinstance(value, str):
        return value
    if key == "export":
        return _EXPORTED.sub(rf"\1{HIDDEN}", value)
    return _hidden_in_script(value) if key == "script" else value


def _hidden_in_script(text: str) -> str:
    """Hide the values of variables in the lines of a script that are options of sbatch."""
    return _EXPORT_LINE.sub(lambda line: line[1] + _EXPORTED.sub(rf"\1{HIDDEN}", line[2]), text)
