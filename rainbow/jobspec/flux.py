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

from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import loader
from rainbow.jobspec.handover import handover
from rainbow.jobspec.request import SLOT, Request

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
    label = task.slots[0] if task.slots else "job"
    answer = handover(request, (), 1, request.name, "")
    environment = {**request.environment, **task.environment}
    count = {"total": task.total} if task.total else {"per_slot": task.per_slot}
    where = request.cwd or request.submitted_from
    command = loader(request.script, task.command) if request.script else task.command
    document = flux_document(answer, command, count, request.duration, where, environment, label)
    after = [{"scheme": one.scheme, "value": one.value} for one in request.dependencies]
    document["attributes"]["system"] |= {"dependencies": after} if after else {}
    return document


def flux_document(
    answer: Mapping[str, Any],
    command: Sequence[str],
    count: int | Mapping[str, int],
    duration: float,
    cwd: str,
    environment: Mapping[str, str | None],
    label: str = "",
) -> dict[str, Any]:
    """Return the document for one task as it is handed over (handover.py); `count`: processes, or as RFC 14 has them.

    JobspecError names what Flux cannot be told.
    """
    trees = answer.get("resources") or []
    if len(trees) != 1:
        raise JobspecError(f"a job of Flux has one kind of slot, the jobspec has {len(trees)}", pointer=RESOURCES)
    if not command:
        raise JobspecError("the task has no command", pointer="/tasks/0")
    label = label or _label(trees[0]) or "job"
    task = {
        "command": list(command),
        "slot": label,
        "count": {"total": count} if isinstance(count, int) else dict(count),
    }
    return {
        "version": 1,
        "resources": [_part(trees[0], label)],
        "tasks": [task],
        "attributes": {"system": _system(answer, duration, cwd, environment)},
    }


def _label(part: Mapping[str, Any]) -> str:
    below = (_label(child) for child in part.get("with", ()))
    return str(part.get("label") or next(filter(None, below), ""))


def _part(part: Mapping[str, Any], label: str) -> dict[str, Any]:
    kind = part["type"]
    if kind not in TYPES or part.get("unit") or part.get("needs"):
        raise JobspecError(f"Flux cannot be asked for {kind}: it has nodes, cores and GPUs", pointer=RESOURCES)
    if not isinstance(part["count"], int):
        raise JobspecError(f"Flux takes one number of {kind}, not a range", pointer=RESOURCES)
    results: dict[str, Any] = {"type": kind, "count": part["count"]}
    results |= {"label": label} if kind == SLOT else {}
    results |= {"exclusive": True} if part.get("exclusive") else {}
    below = [_part(child, label) for child in part.get("with", ())]
    return {**results, "with": below} if below else results


def _system(
    answer: Mapping[str, Any], duration: float, cwd: str, environment: Mapping[str, str | None]
) -> dict[str, Any]:
    inputs: Mapping[str, Any] = answer.get("system") or {}
    options: dict[str, dict[str, Any]] = {}
    for key, (stream, name) in FILES.items():
        if inputs.get(key):
            options.setdefault(stream, {})[name] = {"type": "file", "path": _pattern(str(inputs[key]))}
    results = {
        "duration": duration,
        "cwd": cwd,
        "environment": {key: value for key, value in environment.items() if value is not None},
        "constraints": answer.get("constraint"),
        "queue": inputs.get("queue"),
        "job": {"name": answer["name"]} if answer.get("name") else None,
        "shell": {"options": options} if options else None,
    }
    return {key: value for key, value in results.items() if value or key == "duration"}


def _pattern(path: str) -> str:
    """Write a file's name as Flux does: %j is {{id}}, %x {{name}}."""
    return path.replace("%j", "{{id}}").replace("%A", "{{id}}").replace("%x", "{{name}}")
