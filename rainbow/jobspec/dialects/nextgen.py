"""The next-generation dialect → Request: named groups of resources, tasks that refer to them, groups of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice, product
from typing import Any

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.attributes import named_needs, requires
from rainbow.jobspec.dialects.common import (
    MOST_VARIANTS,
    OR,
    XOR,
    of_version,
    read_command,
    read_counts,
    request_of,
    spread,
)
from rainbow.jobspec.quantities import read_count
from rainbow.jobspec.request import SLOT, Count, Need, Request, Resource, TaskSpec
from rainbow.jobspec.validation import check, unknown_keys
from rainbow.jobspec.yaml_reader import step
from rainbow.text import REFUSED, meant, shortened

MOST_DEPENDENCIES = 100_000
Named = Mapping[str, tuple[Need, ...]]
Entry = tuple[Mapping[str, Any], str, str, str]  # a task, its pointer, its group, the group's resources


def read_nextgen(document: Mapping[str, Any]) -> Request:
    """Read a jobspec whose resources are a mapping of named groups."""
    check(document, "nextgen")
    warnings: list[str] = []
    unfit: list[tuple[str, str]] = []
    request = document.get("requires", [])
    named = _named(request) if isinstance(request, Mapping) else {}
    common = requires([] if named or isinstance(request, Mapping) else request, "/requires")
    entries = list(_entries(document))
    of_tasks = _of_tasks(document, entries, named)
    groups = {
        name: _slotted(value, f"/resources/{step(name)}", name, common + of_tasks.get(name, ()), named)
        for name, value in document["resources"].items()
    }
    chosen = [name for name, value in document["resources"].items() if value.get("schedule")] or list(groups)
    tasks = list(_tasks(entries, groups, unfit))
    warnings.extend(f"{pointer} {text}; {REFUSED}" for pointer, text in unfit)
    idle = named.keys() - _by_name(document, entries) if named else ()
    warnings.extend(f"/requires/{step(name)} is required by nothing" for name in idle)
    _check_dependencies(tasks)
    choices = [task.slots for task in tasks if len(task.slots) > 1]
    variants = tuple(tuple(groups[name] for name in names) for names in _variants(chosen, choices, tasks))
    if not tasks:
        tasks = [TaskSpec("task-0", ())]
    warnings.extend(f"{task.name} has no command; {REFUSED}" for task in tasks if not task.command)
    return request_of(
        variants,
        tuple(tasks),
        document.get("attributes"),
        "/attributes",
        dialect="nextgen",
        together=len(tasks) == 1 and tasks[0].replicas == 1,
        name=document.get("name", ""),
        warnings=(*of_version(document), *unknown_keys(document, "nextgen"), *shortened(dict.fromkeys(warnings))),
        unfit=tuple(unfit[:1]),
    )


def _check_dependencies(tasks: list[TaskSpec]) -> None:
    """Refuse a dependency on nothing, and tasks that wait for each other."""
    if not any(task.depends_on for task in tasks):
        return
    called, inside = _called(tasks), dict[str, int]()
    order: TopologicalSorter[int | str] = TopologicalSorter()
    for name in {name for task in tasks for name in task.depends_on if name in called}:
        order.add(name, *called[name])  # a name stands for its tasks: the edges stay as few as the words
    for k, task in enumerate(tasks):
        for name in task.depends_on:
            others = called.get(name, [])
            if not set(others[:2]) - {k}:
                which = "itself" if others else f"{name}, which is not a task or group of this jobspec"
                raise JobspecError(f"{task.name} depends on {which}", pointer="/tasks")
            if name not in (task.name, task.group):
                order.add(k, name)
            elif inside.setdefault(name, k) == k:
                order.add(k, *(i for i in others if i != k))
            else:
                raise _waiting([tasks[inside[name]].name, task.name])
    try:
        order.prepare()
    except CycleError as fault:
        raise _waiting([tasks[k].name for k in fault.args[1] if isinstance(k, int)]) from None


def _waiting(names: list[str]) -> JobspecError:
    return JobspecError(f"task dependencies form a cycle: {' > '.join(names)[:500]}", pointer="/tasks")


def _called(tasks: list[TaskSpec]) -> dict[str, list[int]]:
    """Map the names by which others may depend on tasks (their own, their groups') to those tasks."""
    called: dict[str, list[int]] = {}
    for k, task in enumerate(tasks):
        for name in {task.name, task.group} - {""}:
            called.setdefault(name, []).append(k)
    return called


# ── resources ──


def _named(request: Mapping[str, Any]) -> dict[str, tuple[Need, ...]]:
    """Read the needs that tasks and resources name."""
    return {name: requires(entries, f"/requires/{step(name)}") for name, entries in request.items()}


def _by_name(document: Mapping[str, Any], entries: Iterable[Entry]) -> set[str]:
    """Collect the lists of needs that tasks and resources name."""
    result = {task["requires"] for task, *_ in entries if isinstance(task.get("requires"), str)}
    stack = list(document["resources"].values())
    while stack:
        resource = stack.pop()
        result |= {resource["requires"]} if isinstance(resource.get("requires"), str) else set()
        stack.extend(resource.get("with", []))
    return result


def _of_tasks(document: Mapping[str, Any], entries: Iterable[Entry], named: Named) -> dict[str, tuple[Need, ...]]:
    """Return by name of a group what the tasks that run in it require."""
    result: dict[str, tuple[Need, ...]] = {}
    for task, at, _, inherited in entries:
        if "requires" not in task:
            continue
        needs = named_needs(task["requires"], f"{at}/requires", named)
        names = _alternatives(task, inherited) or document["resources"]
        for name in names if needs else ():
            result[name] = (*result.get(name, ()), *(need for need in needs if need not in result.get(name, ())))
    return result


def _slotted(value: Mapping[str, Any], pointer: str, name: str, common: tuple[Need, ...], named: Named) -> Resource:
    """Read a named group; unless it has slots of its own, all of it is one slot of that name."""
    resource = _resource(value, pointer, name, named)
    if common:
        top = resource.children[0] if resource.is_slot and "replicas" in value and resource.children else resource
        needing = replace(top, needs=top.needs + common)
        resource = needing if top is resource else replace(resource, children=(needing, *resource.children[1:]))
    if resource.within or any(part.is_slot for part in resource.walk()):
        return resource
    return Resource(SLOT, label=name, children=(resource,))


def _resource(value: Mapping[str, Any], pointer: str, name: str, named: Named) -> Resource:
    if value["type"] in (XOR, OR):
        text = f"{value['type']} is for a list of resources; here a task names its alternatives: resources: a|b"
        raise JobspecError(text, pointer=f"{pointer}/type")
    count = read_count(value["count"], f"{pointer}/count") if "count" in value else Count()
    replicas = read_count(value["replicas"], f"{pointer}/replicas") if "replicas" in value else None
    inside = enumerate(value.get("with", []))
    children = tuple(_resource(child, f"{pointer}/with/{k}", name, named) for k, child in inside)
    needs = named_needs(value["requires"], f"{pointer}/requires", named) if "requires" in value else ()
    label = value.get("label") or name
    if value["type"] == SLOT:
        return spread(Resource(SLOT, replicas or count, label=label, needs=needs, children=children), value, pointer)
    own = Resource(value["type"], count, value.get("unit", ""), value.get("exclusive", False), "", needs, children)
    own = spread(own, value, pointer)
    return own if replicas is None else Resource(SLOT, replicas, label=label, children=(own,))


def _variants(chosen: list[str], choices: list[tuple[str, ...]], tasks: list[TaskSpec]) -> list[list[str]]:
    """Enumerate which groups are matched: one of each choice, and all that are in no choice."""
    fixed = {name for task in tasks if len(task.slots) == 1 for name in task.slots}
    optional = {name for choice in choices for name in choice} - fixed
    always, requirements = [name for name in chosen if name not in optional], set(chosen)
    variants: list[list[str]] = []
    picks = product(*(tuple(n for n in choice if n in requirements) or choice for choice in dict.fromkeys(choices)))
    for pick in islice(picks, MOST_VARIANTS + 1):
        if len(variants) == MOST_VARIANTS:
            message = f"more than {MOST_VARIANTS} ways to choose among resources"
            raise LimitError(message, pointer="/tasks", limit="variants")
        picked = {*always, *pick}
        variants.append(list(dict.fromkeys(name for name in [*chosen, *pick] if name in picked)))
    return variants


# ── tasks ──


def _entries(document: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield every task that is written out."""
    listed = [(document["task"], "/task")] if "task" in document else []
    listed += [(task, f"/tasks/{k}") for k, task in enumerate(document.get("tasks", []))]
    entries: Iterable[Entry] = ((task, at, "", "") for task, at in listed)
    groups = enumerate(document.get("groups", []))
    in_groups = _bounded(chain.from_iterable(_of_group(group, f"/groups/{k}", "") for k, group in groups))
    yield from (entry for entry in chain(entries, in_groups) if not _is_reference(entry[0]))


def _tasks(
    entries: Iterable[Entry], groups: Mapping[str, Resource], unfit: list[tuple[str, str]]
) -> Iterator[TaskSpec]:
    names: set[str] = set()
    for number, (task, at, group, inherited) in enumerate(entries):
        result = _task(task, at, group, inherited, groups, number, unfit)
        if result.name in names:
            unfit.append((f"{at}/name", f"{result.name:.80} is the name of another task, too"))
        names.add(result.name)
        yield result


def _bounded(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Refuse what a short text can make large: every task of a group repeats what the group depends on."""
    count = 0
    for entry in entries:
        count += len(entry[0]["depends_on"])
        if count > MOST_DEPENDENCIES:
            raise LimitError(f"more than {MOST_DEPENDENCIES} dependencies", pointer=entry[1], limit="dependencies")
        yield entry


def _of_group(group: Mapping[str, Any], at: str, above: str) -> Iterator[Entry]:
    resources = group.get("resources") or above
    for k, task in enumerate(group.get("tasks", [])):
        depends = [*group.get("depends_on", []), *task.get("depends_on", [])]
        yield {**task, "depends_on": depends}, f"{at}/tasks/{k}", group["name"], resources
    for k, inner in enumerate(group.get("groups", [])):
        yield from _of_group(inner, f"{at}/groups/{k}", resources)


def _is_reference(task: Mapping[str, Any]) -> bool:
    """Return whether an entry only says that a group belongs here; the group lists its tasks itself."""
    return "group" in task and "command" not in task


def _alternatives(task: Mapping[str, Any], inherited: str) -> list[str]:
    """Return the names of the groups of which a task may have any."""
    return [name for name in re.split(r"[|]", task.get("resources") or inherited) if name]


def _task(
    task: Mapping[str, Any],
    at: str,
    group: str,
    inherited: str,
    groups: Mapping[str, Resource],
    number: int,
    unfit: list[tuple[str, str]],
) -> TaskSpec:
    named = _alternatives(task, inherited)
    place = at if task.get("resources") else at.rpartition("/tasks/")[0]
    for name in (name for name in named if name not in groups):
        hint = meant(name, groups)
        text = f"refers to undefined resource group {name:.80}" + (hint and f"; {hint}")
        unfit.append((f"{place}/resources", text))
    slots = tuple(name for name in named if name in groups)
    return TaskSpec(
        name=task.get("name") or f"task-{number}",
        command=read_command(task.get("command"), f"{at}/command"),
        slots=slots,
        replicas=int(task.get("replicas", 1)),
        group=task.get("group") or group,
        depends_on=tuple(task.get("depends_on", [])),
        **read_counts(task.get("count"), f"{at}/count"),
    )
