"""A jobspec in normal form → Flux's canonical jobspec (RFC 25), which `flux job submit` takes.

    {node, replicas N, with core c}      node: N, with slot: 1, with core: c
    {core, count c, replicas r}          slot: r, with core: c
    duration, cwd, environment           attributes.system
    name, queue, constraints             attributes.system.job.name, .queue, .constraints
    output, error, input                 attributes.system.shell.options
    dependencies                         attributes.system.dependencies, by their schemes

Flux has slots of cores and GPUs on nodes: what it cannot say is a JobspecError. Written by Flux's RFCs and read again
by our own reader of them; no Flux has been asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import loader
from rainbow.jobspec.handover import handover
from rainbow.jobspec.request import SLOT, Request, Resource, TaskSpec

TYPES = frozenset(("node", "socket", "core", "gpu", SLOT))
FILES = {"output": ("output", "stdout"), "error": ("output", "stderr"), "input": ("input", "stdin")}
RESOURCES = "/resources"


def flux_jobspec(request: Request) -> dict[str, Any]:
    """Return the document; JobspecError names what Flux cannot be told.

    >>> from rainbow.jobspec import parse_jobspec
    >>> work = "resources: {w: {type: core, replicas: 2, count: 4}}\\ntasks: [{command: [x], resources: w}]"
    >>> flux_jobspec(parse_jobspec(work))["resources"]
    [{'type': 'slot', 'count': 2, 'label': 'w', 'with': [{'type': 'core', 'count': 4}]}]
    """
    if len(request.tasks) != 1:
        raise JobspecError(f"a job of Flux has one command, the jobspec has {len(request.tasks)}", pointer="/tasks")
    [task] = request.tasks
    if request.array or task.replicas > 1:
        raise JobspecError("Flux has no arrays; submit each element", pointer="/attributes/system/array")
    if len(request.resources) != 1:
        told = f"a job of Flux has one kind of slot, the jobspec has {len(request.resources)}"
        raise JobspecError(told, pointer=RESOURCES)
    label = task.slots[0] if task.slots else "job"
    return {
        "version": 1,
        "resources": [_part(request.resources[0], label)],
        "tasks": [{"command": _command(request, task), "slot": label, "count": _count(task)}],
        "attributes": {"system": _system(request)},
    }


def _part(part: Resource, label: str) -> dict[str, Any]:
    if part.type not in TYPES or part.unit or part.needs:
        raise JobspecError(f"Flux cannot be asked for {part.type}: it has nodes, cores and GPUs", pointer=RESOURCES)
    least, most = part.count.min, part.count.max
    if most != least:
        raise JobspecError(f"Flux takes one number of {part.type}, not a range", pointer=RESOURCES)
    told: dict[str, Any] = {"type": part.type, "count": least}
    told |= {"label": label} if part.is_slot else {}
    told |= {"exclusive": True} if part.exclusive else {}
    return {**told, "with": [_part(child, label) for child in part.children]} if part.children else told


def _command(request: Request, task: TaskSpec) -> list[str]:
    if request.script:
        return loader(request.script, task.command)
    if not task.command:
        raise JobspecError("the task has no command", pointer="/tasks/0")
    return list(task.command)


def _count(task: TaskSpec) -> dict[str, int]:
    return {"total": task.total} if task.total else {"per_slot": task.per_slot}


def _system(request: Request) -> dict[str, Any]:
    told = handover(request, (), 1, request.name, "")
    given: Mapping[str, Any] = told["system"]
    options: dict[str, dict[str, Any]] = {}
    for key, (stream, name) in FILES.items():
        if given.get(key):
            options.setdefault(stream, {})[name] = {"type": "file", "path": _pattern(str(given[key]))}
    environment = {key: value for key, value in request.environment.items() if value is not None}
    after = [{"scheme": one.scheme, "value": one.value} for one in request.dependencies]
    found = {
        "duration": request.duration,
        "cwd": request.cwd or request.submitted_from,
        "environment": environment,
        "constraints": told["constraint"],
        "queue": given.get("queue"),
        "dependencies": after,
        "job": {"name": request.name} if request.name else None,
        "shell": {"options": options} if options else None,
    }
    return {key: value for key, value in found.items() if value or key == "duration"}


def _pattern(path: str) -> str:
    """Write a file's name as Flux does: %j is {{id}}, %x {{name}}."""
    return path.replace("%j", "{{id}}").replace("%A", "{{id}}").replace("%x", "{{name}}")
