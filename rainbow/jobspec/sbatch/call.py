"""A jobspec in normal form → the call of sbatch that asks for the same.

    {core, count c, replicas r}                              --ntasks=r --cpus-per-task=c
    {node, replicas N, with core c}                          --nodes=N --ntasks-per-node=1 --cpus-per-task=c
    {node, count N, with {core, replicas k, count c}}        --nodes=N --ntasks-per-node=k --cpus-per-task=c
    {node, count N, with core c}                             the same with k = 1
    node without `with`                                      --nodes=N --exclusive --mem=0

What `attributes.site.slurm` says comes on top and is stronger. What sbatch cannot say is a JobspecError.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import ids_text, laid_over
from rainbow.jobspec.durations import slurm_time
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import SLOT, Constraint, Count, Request, Resource, TaskSpec
from rainbow.jobspec.sbatch.options import OPTIONS, Call

MIB = 1024**2
SYSTEM = "/attributes/system"
_AS_THEY_ARE = ("output", "error", "input", "comment", "export-file")


def call_of(request: Request, zone: tzinfo = UTC) -> Call:
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
    site = _site(request)
    later = site.pop("hetjob", [])
    notes: list[str] = []
    trees = request.resources
    shapes = [dict(_Tree.of(tree, notes).options()) for tree in trees]
    first = {**_named(request), **_merged(shapes[0], {**_system(request, zone, notes), **site})}
    rest = [_merged(shape, dict(_options(later, k))) for k, shape in enumerate(shapes[1:])]
    script, name, arguments = _script(request, task)
    environment = {key: value for key, value in request.environment.items() if value is not None}
    return Call((first, *rest), script, name, arguments, environment, tuple(notes))


def _site(request: Request) -> dict[str, Any]:
    site = request.attributes.get("site")
    slurm = site.get("slurm") if isinstance(site, Mapping) else None
    return dict(slurm) if isinstance(slurm, Mapping) else {}


def _options(later: Any, k: int) -> Mapping[str, str]:
    found = later[k] if isinstance(later, list) and k < len(later) else {}
    return found if isinstance(found, Mapping) else {}


def _merged(derived: Mapping[str, str], said: Mapping[str, Any]) -> dict[str, str]:
    """Return the options in the order of Slurm's help."""
    site = {key: "" if value is None or value is True else str(value) for key, value in said.items()}
    found = laid_over(derived, site)
    order = {name: k for k, name in enumerate(OPTIONS)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def _named(request: Request) -> dict[str, str]:
    return {"job-name": request.name} if request.name else {}


def _script(request: Request, task: TaskSpec) -> tuple[str, str, tuple[str, ...]]:
    if request.script:
        return request.script, (task.command or ("script",))[0], tuple(task.command[1:])
    if not task.command:
        raise JobspecError("the task has no command", pointer="/tasks/0")
    words = shlex.join(task.command).replace("'{index}'", '"$SLURM_ARRAY_TASK_ID"')
    start = "exec" if task.total == 1 else f"exec srun --ntasks={task.total}" if task.total else "exec srun"
    return f"#!/bin/sh\n{start} {words}\n", task.name, ()


# ── resources ──


@dataclass(frozen=True, slots=True)
class _Tree:
    """One resource request as sbatch sees it. `nodes` None: Slurm may spread the slots."""

    nodes: Count | None
    slots: int
    inside: tuple[Resource, ...]
    exclusive: bool

    @classmethod
    def of(cls, tree: Resource, notes: list[str]) -> _Tree:
        """Read a tree of the normal form; JobspecError for a shape that sbatch cannot say."""
        slot = tree if tree.is_slot else None
        below = tree.children if slot else (tree,)
        nodes = [child for child in below if child.type == "node"]
        if not nodes and slot:
            return cls(None, _exact(slot.count, notes), slot.children, False)
        if len(nodes) != 1 or len(below) != 1:
            raise _cannot(tree)
        [node] = nodes
        inner = [child for child in node.children if child.is_slot]
        if slot and inner:
            raise _cannot(tree)
        count = node.count
        if slot and slot.count != Count(1, 1):
            if count != Count(1, 1) and count != Count():
                raise _cannot(tree)
            count = slot.count
        if not inner:
            return cls(count, 1, node.children, node.exclusive)
        if len(inner) != 1 or len(node.children) != 1:
            raise _cannot(tree)
        return cls(count, _exact(inner[0].count, notes), inner[0].children, node.exclusive)

    def options(self) -> Iterator[tuple[str, str]]:
        """Yield the options."""
        if self.nodes is not None:
            least, most = self.nodes.min, self.nodes.max
            yield "nodes", str(least) if most == least else f"{least}-{most}" if most else str(least)
        if self.nodes is not None and not self.inside:
            yield from (("exclusive", ""), ("mem", "0"))
            return
        yield ("ntasks" if self.nodes is None else "ntasks-per-node"), str(self.slots)
        cores = max(1, self._amount("core"))
        yield "cpus-per-task", str(cores)
        yield from self._memory(cores)
        if gpus := self._amount("gpu"):
            yield ("gpus-per-task", str(gpus)) if self.nodes is None else ("gpus-per-node", str(gpus * self.slots))
        if self.exclusive:
            yield "exclusive", ""
        for child in self.inside:
            if child.type not in ("core", "gpu", "memory", "disk") or child.children:
                raise _cannot(child)
            if child.type == "disk":
                yield "tmp", f"{math.ceil(_base(child) / MIB)}M"

    def _amount(self, kind: str) -> int:
        return sum(child.count.min for child in self.inside if child.type == kind)

    def _memory(self, cores: int) -> Iterator[tuple[str, str]]:
        found = [child for child in self.inside if child.type == "memory"]
        if not found:
            return
        mebibytes = math.ceil(sum(map(_base, found)) / MIB)
        if self.nodes is not None or self.slots == 1:
            yield "mem", f"{mebibytes * self.slots}M"
        else:
            yield "mem-per-cpu", f"{-(-mebibytes // cores)}M"


def _base(part: Resource) -> int:
    measured, factor = quantity(part.unit)
    if measured != "byte":
        raise JobspecError(
            f"{part.type} without a unit of bytes: sbatch needs one, such as MiB", pointer="/resources"
        )
    return part.count.min * factor


def _exact(count: Count, notes: list[str]) -> int:
    if count.max != count.min:
        notes.append(f"sbatch takes one number of tasks: the least, {count.min}")
    return count.min


def _cannot(part: Resource) -> JobspecError:
    kind = f"slot {part.label}" if part.type == SLOT else part.type
    return JobspecError(f"sbatch cannot say these resources: {kind}", pointer="/resources")


# ── attributes.system ──


def _system(request: Request, zone: tzinfo, notes: list[str]) -> dict[str, str]:
    system = request.attributes.get("system")
    system = system if isinstance(system, Mapping) else {}
    found: dict[str, str] = {key: str(system[key]) for key in _AS_THEY_ARE if system.get(key) is not None}
    found |= {"time": slurm_time(request.duration)} if request.duration else {}
    found |= {"chdir": request.cwd} if request.cwd else {}
    found |= {"array": _array(request, system)} if request.tasks[0].replicas > 1 or request.array else {}
    found |= {"hold": ""} if request.held else {}
    if isinstance(system.get("requeue"), bool):
        found["requeue" if system["requeue"] else "no-requeue"] = ""
    if isinstance(system.get("deadline"), int | float):
        found["deadline"] = _clock(system["deadline"], zone)
    if (priority := system.get("priority")) and priority < 0:
        found["nice"] = str(-priority)
    elif priority:
        notes.append(f"priority {priority} is above 0: only operators of a site raise one")
    found |= {"export": system["export"]} if "export" in system else {}
    if request.environment:
        found["export"] = ",".join(key for key, value in request.environment.items() if value is not None)
    return (
        found | _dependencies(request, zone, notes) | _constraints(request.constraint, "nodelist" in _site(request))
    )


def _array(request: Request, system: Mapping[str, Any]) -> str:
    if request.array:
        at_once = request.array.at_once
        return ids_text(request.array.ids) + (f"%{at_once}" if at_once else "")
    at_once = system.get("tasks_at_once") or 0
    return f"0-{request.tasks[0].replicas - 1}" + (f"%{at_once}" if at_once else "")


def _clock(seconds: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%dT%H:%M:%S")


def _dependencies(request: Request, zone: tzinfo, notes: list[str]) -> dict[str, str]:
    found, after = dict[str, str](), list[str]()
    for one in request.dependencies:
        if one.scheme == "begin-time":
            found["begin"] = _clock(float(one.value), zone)
        elif one.scheme == "string" and one.type == "inout" and one.value == f"singleton {request.name}":
            after.append("singleton")
        elif one.scheme in ("string", "fluid"):
            notes.append(f"Rainbow waits for {one.value} itself, before it hands the job over")
        elif after and after[-1].startswith(f"{one.scheme}:"):
            after[-1] += f":{one.value}"
        else:
            after.append(f"{one.scheme}:{one.value}")
    return found | ({"dependency": ",".join(after)} if after else {})


def _constraints(constraint: Constraint | None, named: bool) -> dict[str, str]:
    """Return --constraint, --partition and --exclude; JobspecError for what they cannot say.

    `named`: the site has its own list of nodes, of which a hostlist is the part that matching reads.
    """
    found: dict[str, str] = {}
    for part in _conjuncts(constraint) if constraint else ():
        if part.operator == "hostlist" and named:
            continue
        for name, value in _constraint(part).items():
            if name in found:
                raise _unsaid(f"several {name}")
            found[name] = value
    return found


def _conjuncts(constraint: Constraint) -> Iterator[Constraint]:
    if constraint.operator == "and":
        for operand in constraint.operands:
            yield from _conjuncts(operand)
    else:
        yield constraint


def _constraint(part: Constraint) -> dict[str, str]:
    if part.operator == "properties" and not any(value.startswith("^") for value in part.values):
        partitions = [value.removeprefix("partition=") for value in part.values if value.startswith("partition=")]
        others = [value for value in part.values if not value.startswith("partition=")]
        if len(partitions) < 2:
            said = {"constraint": "&".join(others), "partition": ",".join(partitions)}
            return {name: value for name, value in said.items() if value}
    if part.operator == "or" and all(one.operator == "properties" and len(one.values) == 1 for one in part.operands):
        values = [one.values[0] for one in part.operands]
        if all(value.startswith("partition=") for value in values):
            return {"partition": ",".join(value.removeprefix("partition=") for value in values)}
        return {"constraint": "|".join(values)}
    if part.operator == "hostlist":
        raise _unsaid("hosts to choose among (--nodelist takes all of them)")
    if part.operator == "not" and len(part.operands) == 1 and part.operands[0].operator == "hostlist":
        return {"exclude": ",".join(part.operands[0].values)}
    raise _unsaid(part.operator)


def _unsaid(what: str) -> JobspecError:
    return JobspecError(f"sbatch cannot say this constraint: {what}", pointer=f"{SYSTEM}/constraints")
