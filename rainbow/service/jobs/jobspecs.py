"""The jobspecs of stored jobs, each parsed once; equal jobspecs share one Request. The tasks that a new job has.

Sharing it lets a step ask the matcher once for all of them (view.py).

A jobspec is changed after its submit by overrides, which are kept beside it and read onto it: `duration`, `nodes`
(of what `changeable` counts), and `without`, the names of what is left out. Both who changes a job and who offers a
change ask `changeable`, and see the job by `altered`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rainbow.jobspec import Count, Request, parse_jobspec
from rainbow.jobspec.batch import started
from rainbow.jobspec.handover import handover, least, trees_of
from rainbow.jobspec.request import SLOT, Constraint, Resource
from rainbow.scheduling import Gang, GangTask, gangs
from rainbow.scheduling.dependencies import BY_JOB
from rainbow.service.core.memory import IMMUTABLE, Table, shared
from rainbow.state_machine import Task, task_id
from rainbow.store import jobs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Dependency
    from rainbow.store.jobs import JobRecord


DIGITS = 10  # of the number of a job


@dataclass(frozen=True, eq=False, slots=True)
class Reading:
    """A jobspec in normal form, its gangs, and its tasks by index.

    `depends`: some task depends on another; `single`: every gang is one task. `submitted` is what was asked for at
    the submit, where that has been changed since.
    """

    request: Request
    gangs: tuple[Gang, ...]
    tasks: Mapping[int, GangTask]
    depends: bool
    single: bool
    submitted: Request | None = None


class ByJob(
    Table[str, "tuple[Reading, Mapping[str, Any] | None]"],
    name="jobspecs-by-job",
    most=50_000,
    valid=IMMUTABLE,
    key="job; what was changed since is compared with the record before a plan",
):
    """What jobs ask for, by id, and what was changed of it since the submit."""


class ByRequest(Table[int, "Reading"], name="readings", most=4_096, valid=IMMUTABLE, key="number of a request"):
    """Readings by request: equal ones share one."""


class ByText(Table[str, "Reading"], name="jobspecs-by-text", most=4_096, valid=IMMUTABLE, key="text of a jobspec"):
    """Readings of jobspecs that were stored."""


_by_job, _by_request, _by_text = shared(ByJob), shared(ByRequest), shared(ByText)


def reading(connection: sa.Connection, job_id: str) -> Reading:
    """Return what a job asks for. Job ids are never used again, so what was read once stays true until it is changed.

    A process that has the job in a mirror learns of a change there, by `reading_of`, before it plans again.
    """
    if (known := _by_job.get(job_id)) is None:
        jobspec, overrides = jobs.jobspec_changed(connection, job_id)
        return remember(job_id, _changed(by_id(connection, _read(json.dumps(jobspec))), overrides), overrides)
    return known[0]


def reading_of(connection: sa.Connection, record: JobRecord) -> Reading:
    """Return what a job asks for as its record says, also where another process has changed it."""
    if (known := _by_job.get(record.id)) is not None and known[1] != (record.overrides or None):
        _by_job.forget(record.id)
    return reading(connection, record.id)


def _changed(read: Reading, overrides: Mapping[str, Any] | None) -> Reading:
    """Return what a job asks for after changes of what it was submitted with."""
    submitted = read.submitted or read.request
    request = changed_request(submitted, overrides)
    return read if request is read.request else replace(read_request(request), submitted=submitted)


def changed_request(request: Request, overrides: Mapping[str, Any] | None) -> Request:
    """Return what was submitted with the changes since: another limit, fewer nodes, what was left out."""
    if overrides and "duration" in overrides:
        request = replace(request, duration=float(overrides["duration"]))
    if overrides and "nodes" in overrides:
        request = _resized(request, overrides["nodes"])
    for name in (overrides or {}).get("without", ()):
        request = next((made for left_out, made in _omissions(request) if left_out == name), request)
    return request


# ── what may be changed of a job of which nothing has begun ──

PLACES = frozenset({"cluster", "rack", "node", "core", "slot"})  # types that are no requirement of a node


@dataclass(frozen=True, slots=True)
class Changeable:
    """What a job may ask for less of.

    kind       what it counts, "nodes" or "slots"; "": nothing that is counted above 1 at its submit
    count      how many of these it asks for now
    omissible  what may be left out, by name: types below a node, properties, needs of a subsystem
    """

    kind: str
    count: int
    omissible: tuple[str, ...]


def changeable(read: Reading, overrides: Mapping[str, Any] | None) -> Changeable:
    """Return what may be changed of a job. It counts the same resource however often that was changed."""
    counted = _counted(read.submitted or read.request)
    kind = "" if not counted else "nodes" if all(map(_counts_nodes, counted)) else "slots"
    count = (overrides or {}).get("nodes", counted[0].count.min) if counted else 0
    return Changeable(kind, count, tuple(name for name, _ in _omissions(read.request)))


def altered(read: Reading, overrides: Mapping[str, Any] | None, **change: Any) -> Reading:
    """Return what a job asks for after one more change: `nodes`, or `without` this name too."""
    merged = {**(overrides or {}), **change}
    if "without" in change:
        merged["without"] = [*(overrides or {}).get("without", ()), change["without"]]
    return _changed(read, merged)


def _counted(request: Request) -> tuple[Resource, ...]:
    """Return the outermost nodes or slots that are asked for several times, one of each variant; () if unequal."""
    counted = tuple(one for one in map(_outermost, request.variants) if one is not None)
    same = {(one.type, one.count.min) for one in counted}
    return counted if len(counted) == len(request.variants) and len(same) == 1 else ()


def _outermost(variant: Sequence[Resource]) -> Resource | None:
    row = list(variant)
    while row:
        for one in row:
            if one.type in ("node", SLOT) and one.count.min > 1 and not one.count.listed and not one.unit:
                return one
        row = [child for one in row for child in one.children]
    return None


def _counts_nodes(one: Resource) -> bool:
    return one.type == "node" or any(child.type == "node" for child in one.children)


def _resized(request: Request, count: int) -> Request:
    """Return a request with another count of what it counts."""
    which = {one.number for one in _counted(request)}
    return _mapped(request, lambda one: replace(one, count=Count(count, count)) if one.number in which else one)


def _omissions(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield what a request may leave out, one at a time, by name, with what it asks for then."""
    every = [one for variant in request.variants for tree in variant for one in tree.walk()]
    kinds = [one.type for one in every if one.type not in PLACES and not any(part.is_slot for part in one.walk())]
    for kind in dict.fromkeys(kinds):
        made = _mapped(request, lambda one, kind=kind: None if one.type == kind else one)  # type: ignore[misc]
        if all(variant and all(map(_has_all, variant)) for variant in made.variants):
            yield kind, made
    for name, constraint in _fewer_properties(request.constraint):
        yield name, replace(request, constraint=constraint)
    for subsystem in dict.fromkeys(need.subsystem for one in every for need in one.needs):
        yield subsystem, _mapped(request, lambda one, name=subsystem: _needing_no(one, name))  # type: ignore[misc]


def _has_all(tree: Resource) -> bool:
    """Return whether each slot of a tree holds something."""
    return all(one.children or not one.is_slot for one in tree.walk())


def _mapped(request: Request, change: Callable[[Resource], Resource | None]) -> Request:
    """Return a request with each resource changed, or left out with what it holds."""

    def mapped(one: Resource) -> Resource | None:
        made = change(one)
        if made is None:
            return None
        children = tuple(filter(None, map(mapped, one.children)))
        return made if children == one.children else replace(made, children=children)

    return replace(request, variants=tuple(tuple(filter(None, map(mapped, v))) for v in request.variants))


def _needing_no(one: Resource, subsystem: str) -> Resource:
    return replace(one, needs=tuple(need for need in one.needs if need.subsystem != subsystem))


def _fewer_properties(constraint: Constraint | None) -> Iterator[tuple[str, Constraint | None]]:
    """Yield by name what remains of a constraint without one of the properties that it asks for."""
    if constraint is None or constraint.operator not in ("properties", "and"):
        return
    if constraint.operator == "properties":
        for name in constraint.values:
            others = tuple(value for value in constraint.values if value != name)
            yield name, replace(constraint, values=others) if others else None
        return
    for k, one in enumerate(constraint.operands):
        for name, remaining in _fewer_properties(one):
            others_ = (*constraint.operands[:k], *((remaining,) if remaining else ()), *constraint.operands[k + 1 :])
            yield name, replace(constraint, operands=others_) if others_ else None


def by_id(connection: sa.Connection, read: Reading) -> Reading:
    """Return a reading whose dependencies name jobs by their ids where they were named by number."""
    named = read.request.dependencies
    results = tuple(replace(one, value=_known_id(connection, one.value)) if _by_number(one) else one for one in named)
    return read if results == named else read_request(replace(read.request, dependencies=results))


def _by_number(one: Dependency) -> bool:
    return one.scheme in (*BY_JOB, "fluid") and len(one.value) <= DIGITS and one.value.isdecimal()


def _known_id(connection: sa.Connection, number: str) -> str:
    """Return the id of the job with this number; a number of no job as it is, which no lookup finds either."""
    record = jobs.by_number(connection, int(number))
    return record.id if record is not None and record.number == int(number) else number


def remember(job_id: str, read: Reading, overrides: Mapping[str, Any] | None = None) -> Reading:
    """Note what a job asks for, which its submit has read already, or after changes; return it."""
    _by_job.put(job_id, (read, overrides or None))
    return read


def _read(jobspec: str) -> Reading:
    return _by_text.get(jobspec) or _by_text.put(jobspec, read_request(parse_jobspec(json.loads(jobspec))))


def read_request(request: Request) -> Reading:
    """Return what a request asks for; the same reading for the same request."""
    known = _by_request.get(request.number)
    return known or _by_request.put(request.number, _reading(request))


def _reading(request: Request) -> Reading:
    results = tuple(gangs(request))
    query = {task.index: task for gang in results for task in gang.tasks}
    depends = any(task.spec.depends_on for task in query.values())
    return Reading(request, results, query, depends, len(results) == len(query))


def first_tasks(
    job_id: str, requirements: Sequence[Gang], retries: int, expected: Mapping[str, float], account: str = ""
) -> Iterator[Task]:
    """Make the tasks of a new job, which all wait."""
    return (
        Task(
            task_id(job_id, task.index),
            job_id,
            task.index,
            gang.number,
            task.name,
            retries_left=retries,
            expected=expected.get(task.name, 0.0),
            account=account,
        )
        for gang in requirements
        for task in gang.tasks
    )


def handed_over(requirement: Reading, gang: int, index: int, name: str, requestor: str) -> dict[str, Any]:
    """Return what a task asks for, as it is handed over to a site that decides its place itself."""
    one = requirement.tasks[index]
    together, trees = len(requirement.gangs[gang].tasks), trees_of(requirement.request, one.labels)
    kind = one.spec.per_resource[0] if one.spec.per_resource else ""
    each = one.spec.per_resource[1] if one.spec.per_resource else one.spec.per_slot
    count = one.spec.total or max(1, least(trees, kind or SLOT, () if kind else one.labels)) * each
    answer = {**handover(requirement.request, one.labels, together, name, requestor), "tasks": len(requirement.tasks)}
    if answer["script"]:  # the command is a shell's that loads it: the site is given the script itself, and these
        answer["arguments"] = started(replace(requirement.request, script=""), one.spec, index)[0][1:]
    return {"processes": count, "request": answer}
