"""What a call of sbatch asks for → a jobspec.

`resources` say what matching needs; what they cannot say exactly stays in `attributes.site.slurm` as it was written,
so that a Slurm cluster gets it unchanged. The script starts once, over all slots of the job (`count: {total: 1}`).
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import LAYOUT, SHAPE, read_array
from rainbow.jobspec.request import LOWEST
from rainbow.jobspec.sbatch.options import OPTIONS, GivenOptions, Place
from rainbow.jobspec.times import moment, seconds_of
from rainbow.text import some

Document = dict[str, Any]
NICE = 100  # of --nice without a number
_MEMORY = re.compile(r"([0-9]{1,15})(?:([KMGT])(?:i?B)?)?", re.ASCII | re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_COUNT = re.compile(r"([0-9]{1,9})([km]?)(?:-([0-9]{1,9})([km]?))?", re.ASCII | re.IGNORECASE)
_THOUSANDS = {"": 1, "k": 1024, "m": 1024**2}
_NAMES = re.compile(r"[A-Za-z0-9_.=:-]+(?:([&|])[A-Za-z0-9_.=:-]+(?:\1[A-Za-z0-9_.=:-]+)*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_AFTER = ("after", "afterany", "afterok", "afternotok")
_WHERE = {"constraint", "nodelist", "exclude"}
PRIVATE = ("RAINBOW_", "SLURM_", "SBATCH_", "SALLOC_", "SRUN_")  # of a caller's environment: never exported by ALL


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Who calls: the time there (with its zone, or local), the working directory, the environment and the umask."""

    now: datetime
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    umask: int | None = None


def jobspec_of_call(call: GivenOptions, caller: Surroundings) -> tuple[Document, list[str]]:
    """Return the jobspec of a call, and in words what it carries in another form; JobspecError if it cannot.

    >>> from datetime import UTC
    >>> from rainbow.jobspec.sbatch.script import read_call
    >>> call = read_call("#!/bin/sh\\nhostname\\n", ["-n", "4", "-c", "2"])
    >>> jobspec_of_call(call, Surroundings(datetime(2030, 1, 1, tzinfo=UTC)))[0]["resources"]
    {'job': {'type': 'core', 'replicas': 4, 'count': 2}}
    """
    notes = list(call.notes)
    trees = [_Shape(options, notes) for options in call.components]
    names = ["job", *(f"job-{k}" for k in range(1, len(trees)))]
    system, constraints = _system(call, caller, notes), _constraints(trees[0])
    sites = [{**tree.kept, **_carried(tree.options)} for tree in trees]
    if system.get("duration") == 0:  # to a jobspec that is what the cluster lets it have, to sbatch more
        sites[0]["time"] = "UNLIMITED"
    for tree, site in zip(trees[1:], sites[1:], strict=True):
        site |= _of_its_own(tree.options, call.options, notes)
    system |= {"constraints": constraints} if constraints else {}
    if len(trees) > 1 and "array" in system:
        raise JobspecError("an array cannot be a heterogeneous job (hetjob)")
    slurm: Document = {**sites[0], **({"hetjob": sites[1:]} if len(sites) > 1 else {})}
    task: Document = {"command": list(call.arguments)}  # without a script it starts in every slot
    task = {"command": [call.name, *call.arguments], "count": {"total": 1}} if call.script else task
    task |= {"resources": "job"} if len(trees) == 1 else {}
    name = call.options.get("job-name", call.name)
    document: Document = {
        "version": 1,
        **({"name": name} if name else {}),
        "resources": {name: tree.resource for name, tree in zip(names, trees, strict=True)},
        "tasks": [task],
        "attributes": {"system": system, **({"site": {"slurm": slurm}} if slurm else {})},
    }
    return document, notes


def _of_its_own(options: Mapping[str, str], first: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Return what a later component says of its own that a jobspec says once for all."""
    once = {name for name, option in OPTIONS.items() if option.place is Place.SYSTEM} | _WHERE
    found = {name: value for name, value in options.items() if name in once and first.get(name) != value}
    notes += [f"--{name}={value} of a later component: sent to the site as written" for name, value in found.items()]
    return found


def _carried(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that only the site reads, in their order."""
    known = {name: OPTIONS[name].place if name in OPTIONS else Place.SITE for name in options}
    return {name: options[name] for name in options if known[name] is Place.SITE}


# ── resources ──


class _Shape:
    """The resources of one component, and what they do not say (`kept`).

    nodes    (least, most) or None: Slurm may spread the slots
    slots    in each node if nodes are known, else in all
    """

    def __init__(self, options: Mapping[str, str], notes: list[str]) -> None:
        self.options, self.notes, self.kept = options, notes, dict[str, str]()
        self.cores = self._number("cpus-per-task") or 1
        self.nodes, self.slots = self._layout()
        self.resource = self._tree()
        for name, option in OPTIONS.items():
            if option.place is Place.RESOURCES and name in options and name not in self._read:
                self._keep(name, "sent to the site as written; matching does not read it")
        self.kept |= {name: options[name] for name in self._as_written()}

    def _as_written(self) -> set[str]:
        """Name the options of the shape that the resources do not give back as they were written."""
        written = self.options.keys() & SHAPE
        layout = written & LAYOUT
        nodes = {"nodes", "ntasks-per-node"} <= layout
        if not layout <= ({"nodes", "ntasks-per-node", "cpus-per-task"} if nodes else {"ntasks", "cpus-per-task"}):
            return written
        memory = "mem" if nodes or self.slots == 1 else "mem-per-cpu"
        back = LAYOUT | {memory, "exclusive" if nodes else "gpus-per-task"}
        return (written - back) | (written & self.kept.keys())

    _read = frozenset(
        (
            *("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "gpus", "gpus-per-node"),
            *("gpus-per-task", "gres", "exclusive", "constraint", "nodelist", "exclude"),
        )
    )

    def _keep(self, name: str, why: str) -> None:
        self.kept[name] = self.options[name]
        value = self.options[name]
        self.notes.append(f"--{name}{value and f'={value}'}: {why}")

    def _number(self, name: str) -> int | None:
        text = self.options.get(name)
        if text is None:
            return None
        if not text.isdecimal() or not 0 < int(text[:10]) < 10**9:
            raise JobspecError(f"--{name} must be a whole number of at least 1, got {text!r:.60}")
        return int(text)

    def _layout(self) -> tuple[tuple[int, int] | None, int]:
        asked, each = self._number("ntasks"), self._number("ntasks-per-node")
        nodes = read_range(self.options["nodes"]) if "nodes" in self.options else None
        if nodes is None and each is None:
            return None, asked or 1
        if nodes is None:
            least = -(-(asked or each or 1) // (each or 1))
            nodes = (least, least)
        least, most = nodes
        slots = each or -(-(asked or least) // least)
        if asked is not None and (asked != least * slots or least != most):
            self._keep("ntasks", f"matching takes room for {slots} on each node")
        return nodes, slots

    @property
    def _all(self) -> int:
        return self.slots * (self.nodes[0] if self.nodes else 1)

    def _tree(self) -> Document:
        memory, gpus = self._memory(), self._gpus()
        whole = self.options.get("exclusive") == ""
        if "exclusive" in self.options and not (whole and self.nodes):
            self._keep("exclusive", "sent to the site as written; matching does not reserve the nodes whole")
        if not self.nodes:
            return _slots(self.slots, self.cores, memory, gpus)
        least, most = self.nodes
        node: Document = {"type": "node", "count": least if least == most else f"{least}-{most}"}
        if whole and self.options.get("mem") == "0" and (self.slots, self.cores, gpus) == (1, 1, 0):
            self.kept.pop("mem", None)
            self.notes[:] = [note for note in self.notes if not note.startswith("--mem=0:")]
            return node
        return {
            **node,
            **({"exclusive": True} if whole else {}),
            "with": [_slots(self.slots, self.cores, memory, gpus)],
        }

    def _memory(self) -> int:
        """Return the MiB of a slot; 0 if none is named."""
        if (text := self.options.get("mem-per-cpu")) is not None:
            return mebibytes("mem-per-cpu", text) * self.cores
        if (text := self.options.get("mem")) is None:
            return 0
        whole = mebibytes("mem", text)
        if not whole:
            self._keep("mem", "all memory of each node, which matching does not read")
        elif whole % self.slots or (not self.nodes and self.slots > 1):
            self._keep("mem", f"memory of each node; matching takes {-(-whole // self.slots)} MiB for each task")
        return -(-whole // self.slots)

    def _gpus(self) -> int:
        """Return the GPUs of a slot."""
        found = [
            (name, *_gpu_count(name, self.options[name]))
            for name in ("gpus-per-task", "gpus-per-node", "gpus", "gres")
            if name in self.options
        ]
        slots = 0
        for k, (name, count, plain) in enumerate(found):
            over = {"gpus-per-task": 1, "gpus": self._all}.get(name, self.slots)
            known = name in ("gpus-per-task", "gpus") or bool(self.nodes) or self.slots == 1
            if k == 0 or not slots:
                slots = -(-count // over)
            if not plain or len(found) > 1 or count % over or not known:
                self._keep(
                    name, f"sent to the site as written; matching takes {some(slots, 'GPU')} of any kind a task"
                )
        return slots


def _slots(slots: int, cores: int, memory: int, gpus: int) -> Document:
    if not (memory or gpus):
        return {"type": "core", "replicas": slots, "count": cores}
    inside: list[Document] = [{"type": "core", "count": cores}]
    inside += [{"type": "memory", "count": memory, "unit": "MiB"}] if memory else []
    inside += [{"type": "gpu", "count": gpus}] if gpus else []
    return {"type": "slot", "replicas": slots, "with": inside}


def read_range(text: str) -> tuple[int, int]:
    """Read how many nodes are wanted: the least and the most."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise JobspecError(f"--nodes must be a number or a range such as 2-8, got {text!r:.60}")
    least = int(found[1]) * _THOUSANDS[found[2].lower()]
    most = int(found[3]) * _THOUSANDS[found[4].lower()] if found[3] else least
    if not 1 <= least <= most:
        raise JobspecError(f"--nodes must be at least 1 and ascend, got {text!r:.60}")
    return least, most


def mebibytes(name: str, text: str) -> int:
    """Read an amount of memory of the option of this name."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise JobspecError(f"--{name} must be a size such as 500M or 4G (MiB without a unit), got {text!r:.60}")
    return math.ceil(int(found[1]) * _MIB[(found[2] or "M").upper()])


def _gpu_count(name: str, text: str) -> tuple[int, bool]:
    """Return how many GPUs are named, and whether that is all that is said (no type, no other resource)."""
    total, plain = 0, True
    for part in text.split(","):
        kind, _, rest = part.partition(":") if name == "gres" else ("gpu", "", part)
        if kind.removeprefix("gres/") != "gpu":
            plain = False
            continue
        *types, number = rest.rpartition(":")[::2] if rest else ("", "1")
        if not number.isdecimal():
            types, number = [number], "1"
        total += int(number[:9])
        plain = plain and not any(types)
    return total, plain


def _constraints(shape: _Shape) -> Document:
    """Return an RFC 31 constraint of --constraint, --nodelist and --exclude."""
    options, parts = shape.options, list[Document]()
    if text := options.get("constraint"):
        found = _NAMES.fullmatch(text)
        if found is None:
            shape._keep("constraint", "sent to the site as written; matching does not read it")
        elif found[1] == "|":
            parts.append({"or": [{"properties": [name]} for name in text.split("|")]})
        else:
            parts.append({"properties": text.split("&")})
    if hosts := options.get("nodelist"):
        shape._keep("nodelist", "all of these nodes; matching chooses among them")
        parts.append({"hostlist": [hosts]})
    if hosts := options.get("exclude"):
        parts.append({"not": [{"hostlist": [hosts]}]})
    return parts[0] if len(parts) == 1 else {"and": parts} if parts else {}


# ── attributes.system ──


def _system(call: GivenOptions, caller: Surroundings, notes: list[str]) -> Document:
    options = call.options
    system: Document = {"script": call.script}  # empty texts are left out in the end
    if "time" in options:
        system["duration"] = seconds(options["time"])
    if "chdir" in options:
        system["cwd"] = posixpath.join(caller.cwd, options["chdir"])
    else:
        system["submitted_from"] = caller.cwd
    if caller.umask is not None:
        system["umask"] = f"{caller.umask:04o}"
    for name in ("output", "error", "input", "comment", "export-file"):
        if name in options:
            system[name] = options[name]
    if "array" in options:
        read_array(options["array"], "")
        system["array"] = options["array"]
    if "hold" in options:
        system["hold"] = True
    if "requeue" in options or "no-requeue" in options:
        system["requeue"] = "requeue" in options
    if "deadline" in options:
        system["deadline"] = _moment("deadline", options["deadline"], caller)
    system |= _priority(options, notes) | _environment(options, caller, notes)
    dependencies = _dependencies(options, call.name, caller, notes)
    return {key: value for key, value in system.items() if value != ""} | (
        {"dependencies": dependencies} if dependencies else {}
    )


def seconds(text: str) -> float:
    """Read a time limit; what has no unit is one of Slurm's forms, which counts in minutes, rounded up."""
    found = seconds_of(text, plain=60)
    if found is None:
        raise JobspecError(f"--time must be minutes, MM:SS, HH:MM:SS or D-HH[:MM[:SS]], got {text!r:.60}")
    if text[-1].isdecimal() or text[-1] == "-":
        found = math.ceil(found / 60) * 60
    return int(found) if found == int(found) else found


def _moment(name: str, text: str, caller: Surroundings) -> float:
    found = moment(text, caller.now)
    if found is None:
        raise JobspecError(f"--{name} must be a time such as 16:00, now+1hour or 2030-01-31T12:00, got {text!r:.60}")
    return found


def _priority(options: Mapping[str, str], notes: list[str]) -> Document:
    if "nice" not in options:
        return {}
    text = options["nice"] or str(NICE)
    if not text.removeprefix("-").isdecimal() or len(text) > 11:
        raise JobspecError(f"--nice must be a whole number, got {text!r:.60}")
    nice = int(text)
    if nice < 0 or -nice < LOWEST:
        notes.append(f"--nice={text}: carried as priority {max(min(-nice, 0), LOWEST)}, the nearest there is")
    return {"priority": max(min(-nice, 0), LOWEST)}


def _environment(options: Mapping[str, str], caller: Surroundings, notes: list[str]) -> Document:
    """Return the variables that --export names. Without it none are sent: a caller's environment may hold secrets."""
    if "export" not in options:
        return {}
    if options["export"].upper() in ("NONE", "NIL"):
        return {"export": options["export"].upper()}
    found, sent = dict[str, str](), dict[str, str]()
    for part in options["export"].split(","):
        name, equals, value = part.partition("=")
        if part == "ALL":
            sent = {key: one for key, one in caller.environment.items() if not key.startswith(PRIVATE)}
            notes.append(
                f"--export=ALL: sent {len(sent)} variables of your environment, none of {', '.join(PRIVATE)}"
            )
        elif not _VARIABLE.fullmatch(name):
            raise JobspecError(f"--export must be ALL, NONE or variables such as A,B=1, got {part!r:.60}")
        elif equals:
            found[name] = value
        elif name in caller.environment:
            found[name] = caller.environment[name]
        else:
            notes.append(f"--export={name}: {name} is not set here")
    return {"environment": {**sent, **found}}


def _dependencies(options: Mapping[str, str], called: str, caller: Surroundings, notes: list[str]) -> list[Document]:
    found: list[Document] = []
    if "begin" in options:
        at = _moment("begin", options["begin"], caller)
        found.append({"scheme": "begin-time", "value": str(int(at) if at == int(at) else at)})
    text = options.get("dependency", "")
    if "?" in text:
        raise JobspecError('--dependency: "?" (any of several) cannot be carried; Rainbow waits for all of them')
    for part in filter(None, text.split(",")):
        found += _dependency(part, options, called, notes)
    return found


def _dependency(part: str, options: Mapping[str, str], called: str, notes: list[str]) -> list[Document]:
    kind, _, rest = part.partition(":")
    if part == "singleton":
        name = options.get("job-name", "") or called
        notes.append(f"--dependency=singleton: waits for your earlier jobs that say singleton of the name {name}")
        return [{"scheme": "string", "value": f"singleton {name}", "type": "inout", "scope": "user"}]
    ids = [one for one in rest.split(":") if one]
    if kind == "aftercorr":
        notes.append(f"--dependency={part}: every element waits until all of job {' and '.join(ids)} has completed")
        kind = "afterok"
    if kind not in _AFTER or not ids:
        raise JobspecError(f"--dependency must be {', '.join(_AFTER)} with :JOB, or singleton, got {part!r:.60}")
    if any("+" in one for one in ids):
        raise JobspecError(f"--dependency={part}: a delay (+MINUTES) cannot be carried; use --begin")
    return [{"scheme": kind, "value": one} for one in ids]
