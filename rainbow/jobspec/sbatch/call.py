"""A jobspec in normal form → the call of sbatch that asks for the same: script, options, and what Rainbow keeps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import ids_text
from rainbow.jobspec.handover import handover
from rainbow.jobspec.request import Request, TaskSpec
from rainbow.jobspec.sbatch.options import OPTIONS, GivenOptions
from rainbow.jobspec.sbatch.request import carried, clock

_AS_THEY_ARE = ("output", "error", "input", "comment", "export-file")


def call_of(request: Request, zone: tzinfo = UTC) -> GivenOptions:
    """Return the call of sbatch; times are written in the zone of the site.

    >>> from rainbow.jobspec import parse_jobspec
    >>> work = "resources: {work: {type: core, replicas: 4, count: 2}}\\ntasks: [{command: [x], resources: work}]"
    >>> call_of(parse_jobspec(work)).argv()
    ['--ntasks=4', '--cpus-per-task=2']
    """
    if len(request.tasks) != 1:
        raise JobspecError(
            f"sbatch takes one command or script, the jobspec has {len(request.tasks)}", pointer="/tasks"
        )
    [task] = request.tasks
    result = carried(handover(request, (), 1, request.name, ""), request.duration, None, zone)
    notes = list(result.notes)
    first = {**_system(request, zone, notes), **result.options}
    script, name, arguments = _script(request, task)
    environment = {key: value for key, value in request.environment.items() if value is not None}
    return GivenOptions(
        tuple(map(_sorted, (first, *result.components[1:]))), script, name, arguments, environment, tuple(notes)
    )


def _sorted(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options in the order of Slurm's help."""
    order = {name: k for k, name in enumerate(OPTIONS)}
    return dict(sorted(options.items(), key=lambda item: order.get(item[0], len(order))))


def _script(request: Request, task: TaskSpec) -> tuple[str, str, tuple[str, ...]]:
    if request.script:
        return request.script, (task.command or ("script",))[0], tuple(task.command[1:])
    if not task.command:
        raise JobspecError("the task has no command", pointer="/tasks/0")
    words = shlex.join(task.command).replace("'{index}'", '"$SLURM_ARRAY_TASK_ID"')
    start = "exec" if task.total == 1 else f"exec srun --ntasks={task.total}" if task.total else "exec srun"
    return f"#!/bin/sh\n{start} {words}\n", task.name, ()


def _system(request: Request, zone: tzinfo, notes: list[str]) -> dict[str, str]:
    system = request.attributes.get("system")
    system = system if isinstance(system, Mapping) else {}
    results: dict[str, str] = {key: str(system[key]) for key in _AS_THEY_ARE if system.get(key) is not None}
    results |= {"chdir": request.cwd} if request.cwd else {}
    results |= {"array": _array(request, system)} if request.tasks[0].replicas > 1 or request.array else {}
    results |= {"hold": ""} if request.held else {}
    results |= {"export": system["export"]} if "export" in system else {}
    if request.environment:
        results["export"] = ",".join(key for key, value in request.environment.items() if value is not None)
    return results | _dependencies(request, zone, notes)


def _array(request: Request, system: Mapping[str, Any]) -> str:
    if request.array:
        at_once = request.array.at_once
        return ids_text(request.array.ids) + (f"%{at_once}" if at_once else "")
    at_once = system.get("tasks_at_once") or 0
    return f"0-{request.tasks[0].replicas - 1}" + (f"%{at_once}" if at_once else "")


def _dependencies(request: Request, zone: tzinfo, notes: list[str]) -> dict[str, str]:
    result, after = dict[str, str](), list[str]()
    for one in request.dependencies:
        if one.scheme == "begin-time":
            result["begin"] = clock(float(one.value), zone)
        elif one.scheme == "string" and one.type == "inout" and one.value == f"singleton {request.name}":
            after.append("singleton")
        elif one.scheme in ("string", "fluid"):
            notes.append(f"Rainbow waits for {one.value} itself, before it hands the job over")
        elif after and after[-1].startswith(f"{one.scheme}:"):
            after[-1] += f":{one.value}"
        else:
            after.append(f"{one.scheme}:{one.value}")
    return result | ({"dependency": ",".join(after)} if after else {})
