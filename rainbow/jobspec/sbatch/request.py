"""What a task asks for → options of sbatch: the only translation, of the command line and of the executor `slurm`.

    {core, count c, replicas r}                              --ntasks=r --cpus-per-task=c
    {node, replicas N, with core c}                          --nodes=N --ntasks-per-node=1 --cpus-per-task=c
    {node, count N, with {core, replicas k, count c}}        --nodes=N --ntasks-per-node=k --cpus-per-task=c
    {node, count N, with core c}                             the same with k = 1
    node without `with`                                      --nodes=N --exclusive --mem=0
    several of these                                         a component each

`attributes.site.slurm` comes on top and is stronger. Values in, words out; what Slurm cannot be told is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from rainbow.jobspec.batch import laid_over
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import SLOT
from rainbow.jobspec.sbatch.constraint import MIB, NotCarriedError, Options, constraint_options
from rainbow.jobspec.times import seconds_of

__all__ = [
    "MIB",
    "Carried",
    "NotCarriedError",
    "Options",
    "carried",
    "clock",
    "one_line",
    "site_options",
    "time_limit",
]

Tree = Mapping[str, Any]

PLAIN_MEMORY = MIB  # bytes: what a number of memory without a unit counts
LONGEST = 1_000  # characters of a comment before our own mark
SWITCH = "switch"  # a leaf switch, as graph/sources/slurm_topology.py calls it
GPUS = ("gpu", "mig")
GRES = {"mig": "gpu"}  # what Slurm calls a type otherwise
DISKS = frozenset({"disk", "ssd", "storage", "tmp"})
LOCAL = frozenset({"core", "gpu", "memory", *DISKS})
NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
# what the site decides, what would leave the job unwatched, and what Rainbow says itself
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("uid", "gid"), "the site decides which account a job runs as"),
    **dict.fromkeys(("priority", "reboot", "power"), "only operators of a site set it"),
    "clusters": "Rainbow chooses the cluster",
    "hetjob": "it lists the options of later components, in a job of several resources",
    **dict.fromkeys(("export", "export-file"), "name variables in attributes.system.environment"),
    **dict.fromkeys(("array", "wrap", "parsable", "test-only", "wait", "quiet"), "Rainbow says it itself"),
}


@dataclass(frozen=True, slots=True)
class Carried:
    """Options of sbatch by name, in order, of each component. `tasks`: how many processes srun starts in all.

    `notes`: what is left out.
    """

    components: tuple[Options, ...]
    tasks: int = 1
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> Options:
        """The options of the only component, or the first."""
        return self.components[0]


@dataclass
class _Shape:
    """nodes: (least, most), None: anywhere; slots: in each node, or in all; `inside` a slot, `beside` on the node."""

    slots: int
    inside: Sequence[Tree]
    nodes: tuple[int, int] | None = None
    beside: Sequence[Tree] = ()
    whole: bool = False  # a node without any parts named: all of it
    exclusive: bool = False
    notes: list[str] = field(default_factory=list)
    switches: Options = field(default_factory=dict)
    total: int = 0  # slots on all nodes together; 0: `slots` on each
    at_most: Mapping[str, int] = field(default_factory=dict)
    of_job: Sequence[Tree] = ()

    @property
    def tasks(self) -> int:
        """How many processes it starts."""
        if self.total:
            return self.total
        return self.slots * (self.nodes[0] if self.nodes else 1)

    def options(self) -> Options:
        """Return what asks for it."""
        return {**_layout(self), **_amounts(self), **self.switches}


def carried(
    request: Mapping[str, Any], duration: float = 0.0, hosts: Sequence[str] | None = None, zone: tzinfo | None = None
) -> Carried:
    """Return the options for a whole request (handover.py); NotCarriedError names what Slurm cannot do.

    `hosts` are the site's, None: not known. Times are written in `zone`, else in that of this machine.

    >>> tree = {"type": "slot", "count": 3, "with": [{"type": "core", "count": 2}]}
    >>> carried({"resources": [tree], "name": "a"}, 90).options
    {'ntasks': '3', 'cpus-per-task': '2', 'time': '2', 'job-name': 'a'}
    """
    if request.get("gang", 1) > 1:
        raise NotCarriedError(f"its {request['gang']} tasks start together, which is not handed over; submit each")
    answer = (request.get("site") or {}).get("slurm")
    answer = dict(answer) if isinstance(answer, Mapping) else {}
    later = answer.pop("hetjob", ())
    said = [site_options(answer), *(site_options(one) for one in later if isinstance(one, Mapping))]
    notes: list[str] = []
    forest = request.get("resources") or []
    parts = [_component(tree, notes) for tree in forest if not tree.get("within")]
    if shares := [tree for tree in forest if tree.get("within")]:
        if len(parts) != 1:
            raise NotCarriedError("resources of the job beside several different nodes cannot be said to Slurm")
        parts[0].of_job = shares
    said += [{} for _ in parts[len(said) :]]
    if not parts or len(said) > len(parts):
        raise NotCarriedError(f"options for {len(said)} components, and {len(parts)} different resources")
    nodes = parts[0].nodes[0] if parts[0].nodes else None
    options = constraint_options(request.get("constraint"), nodes, hosts, named="nodelist" in said[0])
    options |= time_limit(duration) | _system(request, notes, zone)
    shapes = [part.options() for part in parts]
    shapes[0] |= options
    components = tuple(laid_over(shape, one) for shape, one in zip(shapes, said, strict=True))
    return Carried(components, sum(part.tasks for part in parts), tuple(notes))


# ── the tree ──


def _component(tree: Tree, notes: list[str]) -> _Shape:
    below, switches = _below_a_switch(tree)
    shape = _shape(below, notes)
    shape.switches = switches
    return shape


def _below_a_switch(tree: Tree) -> tuple[Tree, Options]:
    """Return the tree without one leaf switch around its nodes, and the option that asks Slurm for the switch."""
    below = tree.get("with") or []
    inner = below[0] if len(below) == 1 else {}
    if tree["type"] == SWITCH and tree["count"] == 1 and inner:
        return inner, {"switches": "1"}
    if tree["type"] == SLOT and tree["count"] == 1 and inner.get("type") == SWITCH and inner["count"] == 1:
        return {**tree, "with": inner.get("with") or []}, {"switches": "1"}
    return tree, {}


def _shape(tree: Tree, notes: list[str]) -> _Shape:
    notes += [f"{need} is matched by Rainbow only" for need in _needs(tree)]
    below = tree.get("with") or []
    if tree["type"] == SLOT:
        nodes = [part for part in below if part["type"] == "node"]
        if nodes and len(below) > 1:
            raise NotCarriedError("a slot of nodes and something beside them cannot be said to Slurm")
        if nodes:
            return _slot_of_nodes(tree, nodes[0], notes)
        return _Shape(_least(tree, notes), below, exclusive=_is_exclusive(tree), notes=notes)
    slots = [part for part in below if part["type"] == SLOT]
    if tree["type"] == "node" and below and not slots:
        slots = [{"type": SLOT, "count": 1, "with": [part for part in below if part["type"] == "core"]}]
        below = [part for part in below if part["type"] != "core"]
    if tree["type"] != "node" or len(slots) != 1:
        raise NotCarriedError(f"slots in a {tree['type']}, or different slots in a node, cannot be said to Slurm")
    beside = [part for part in below if part["type"] != SLOT]
    [slot] = slots
    result = _Shape(_least(slot, notes), slot.get("with") or [], _range(tree, notes), beside, notes=notes)
    result.total = _least(slot, notes) if slot.get("total") else 0
    result.at_most = slot.get("at_most") or {}
    result.exclusive = _is_exclusive(tree) or _is_exclusive(slot)
    return result


def _slot_of_nodes(slot: Tree, node: Tree, notes: list[str]) -> _Shape:
    inside = node.get("with") or []
    if slot["count"] == 1:
        nodes = _range(node, notes)
    elif node["count"] == 1:
        nodes = _range(slot, notes)
    else:
        many = _least(slot, notes) * _least(node, notes)
        nodes = (many, many)
    cores, beside = ([part for part in inside if (part["type"] == "core") is core] for core in (True, False))
    exclusive = _is_exclusive(slot) or _is_exclusive(node)
    return _Shape(1, cores, nodes, beside, whole=not inside, exclusive=exclusive, notes=notes)


def _needs(tree: Tree) -> Iterator[str]:
    yield from tree.get("needs") or ()
    for part in tree.get("with") or ():
        yield from _needs(part)


def _is_exclusive(part: Tree) -> bool:
    return bool(part.get("exclusive"))


def _least(part: Tree, notes: list[str]) -> int:
    count = part["count"]
    if isinstance(count, int):
        return count
    notes.append(f"a range of {part['type']} is asked for with its least number, {count['min']}")
    return int(count["min"])


def _range(part: Tree, notes: list[str]) -> tuple[int, int]:
    count = part["count"]
    if isinstance(count, Mapping) and count.get("max") and not count.get("steps"):
        return count["min"], count["max"]
    least = _least(part, notes)
    return least, least


# ── options ──


def _layout(shape: _Shape) -> Options:
    cores = sum(_least(part, shape.notes) for part in shape.inside if part["type"] == "core")
    options: Options = {}
    if shape.nodes is None:
        options["ntasks"] = str(shape.slots)
    else:
        low, high = shape.nodes
        options["nodes"] = str(low) if low == high else f"{low}-{high}"
        if shape.total:
            options["ntasks"] = str(shape.total)
        elif not shape.whole:
            options["ntasks-per-node"] = str(shape.slots)
    for kind, option in (("node", "ntasks-per-node"), ("socket", "ntasks-per-socket")):
        if kind in shape.at_most:
            options[option] = str(shape.at_most[kind])
    if cores:
        options["cpus-per-task"] = str(cores)
    if shape.whole or shape.exclusive:
        options["exclusive"] = ""
    if shape.whole:
        options["mem"] = "0"  # without it only the default memory of its cores would be given
    return options


def _amounts(shape: _Shape) -> Options:
    """Ask for what a slot holds beside its cores, and for what a node holds beside its slots."""
    for part in (*shape.inside, *shape.beside):
        if part["type"] not in LOCAL and part.get("with"):
            raise NotCarriedError(f"a {part['type']} with parts of its own cannot be said to Slurm")
    inside = _sums([part for part in shape.inside if not part.get("model")], shape.notes)
    beside = _sums([part for part in shape.beside if not part.get("model")], shape.notes)
    options = _memory(shape, inside, beside) | _gpus(shape, inside, beside)
    if spared := beside.pop("core", 0):
        options["core-spec"] = str(spared)
    models = [part for part in shape.beside if part.get("model")]
    named = [f"{GRES.get(part['type'], part['type'])}:{_typed(part, shape.notes)}" for part in models]
    others: dict[str, int] = {}
    for kind in sorted({*inside, *beside} - {"core"}):
        others[kind] = inside.get(kind, 0) * shape.slots + beside.get(kind, 0)
    if others and shape.nodes is None and shape.slots > 1:
        raise NotCarriedError(f"{', '.join(others)} in slots that may lie on any node cannot be said to Slurm")
    if disk := sum(others.pop(kind) for kind in sorted(others.keys() & DISKS)):
        options["tmp"] = f"{math.ceil(disk / MIB)}M"
    if others or named:
        options["gres"] = ",".join([*named, *(f"{GRES.get(kind, kind)}:{amount}" for kind, amount in others.items())])
    return options


def _gpus(shape: _Shape, inside: dict[str, int], beside: dict[str, int]) -> Options:
    """Ask for the GPUs of each task, each node and the job; those of nodes that have a model are gres."""
    models = [part for part in shape.inside if part.get("model")]
    if any(part["type"] not in GPUS for part in (*models, *shape.of_job)):
        raise NotCarriedError("a model of each task, or an amount of the job, can be said to Slurm of GPUs only")
    options: Options = {}
    if models:
        options["gpus-per-task"] = ",".join(_typed(part, shape.notes) for part in models)
    if number := inside.pop("gpu", 0):
        options["gpus-per-task"] = str(number)
    if number := beside.pop("gpu", 0):
        options["gpus-per-node"] = str(number)
    if shape.of_job:
        options["gpus"] = ",".join(_typed(part, shape.notes) for part in shape.of_job)
    return options


def _sums(parts: Sequence[Tree], notes: list[str]) -> dict[str, int]:
    """Add up amounts by type: bytes of memory and disk, else as they are counted."""
    result: dict[str, int] = {}
    for part in parts:
        kind, each = part["type"], 1
        if kind == "memory" or kind in DISKS:
            each = quantity(part["unit"])[1] if part.get("unit") else PLAIN_MEMORY
        result[kind] = result.get(kind, 0) + _least(part, notes) * each
    return result


def _memory(shape: _Shape, inside: dict[str, int], beside: dict[str, int]) -> Options:
    slot, node, cores = inside.pop("memory", 0), beside.pop("memory", 0), inside.get("core", 1)
    if not slot and not node:
        return {}
    if shape.total and slot and not node:
        return {"mem-per-cpu": f"{math.ceil(slot / cores / MIB)}M"}
    if shape.nodes is not None or shape.slots == 1:
        return {"mem": f"{math.ceil((slot * shape.slots + node) / MIB)}M"}
    return {"mem-per-cpu": f"{math.ceil(slot / cores / MIB)}M"}


def _typed(part: Tree, notes: list[str]) -> str:
    """Write a count and its model as Slurm does: "a100:2", "2" for any."""
    count = str(_least(part, notes))
    return f"{part['model']}:{count}" if part.get("model") else count


def time_limit(duration: float) -> Options:
    """Return the option for a limit in seconds; 0: the site's default."""
    return {"time": str(math.ceil(duration / 60))} if duration > 0 else {}


def _system(request: Mapping[str, Any], notes: list[str], zone: tzinfo | None) -> Options:
    """Say what `attributes.system` has for resource managers."""
    system, options = request.get("system") or {}, Options()
    if name := one_line(request.get("name")):
        options["job-name"] = name
    if queue := system.get("queue"):
        options["partition"] = ",".join(map(str, queue)) if isinstance(queue, list) else str(queue)
    options |= _wishes(system)
    if isinstance(deadline := system.get("deadline"), int | float):
        options["deadline"] = clock(deadline, zone)
    priority = system.get("priority", 0)
    if priority < 0:
        options["nice"] = str(-priority)
    elif priority > 0:
        notes.append(f"priority {priority} is not sent: only operators raise a job's priority in Slurm")
    if isinstance(requeue := system.get("requeue"), bool):
        options["requeue" if requeue else "no-requeue"] = ""
    return options


def _wishes(system: Mapping[str, Any]) -> Options:
    """Say licenses, and what a job wishes for."""
    options: Options = {}
    if licenses := system.get("licenses"):
        options["licenses"] = ",".join(f"{name}:{count}" for name, count in licenses.items())
    if isinstance(switches := system.get("switches"), Mapping):
        wait = f"@{math.ceil(switches['wait'] / 60)}" if switches.get("wait") else ""
        options["switches"] = f"{switches.get('count', 1)}{wait}"
    if isinstance(prefer := system.get("prefer"), Mapping):
        options["prefer"] = constraint_options(prefer, None, None, named=True).get("constraint", "")
    if system.get("contiguous"):
        options["contiguous"] = ""
    if isinstance(exclusive := system.get("exclusive"), str):
        options["exclusive"] = exclusive
    if shortest := system.get("min_duration"):
        options["time-min"] = time_limit(float(seconds_of(str(shortest)) or 0)).get("time", "0")
    return options


def clock(seconds: float, zone: tzinfo | None) -> str:
    """Write a time as Slurm reads it, in a zone, None: that of this machine."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%dT%H:%M:%S")


def one_line(text: object) -> str:
    """Return a text without what would end a line or a word of Slurm's records.

    >>> one_line(" two\\n lines ")
    'two lines'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in str(text or "")).split())[:LONGEST]


def site_options(inputs: Mapping[str, Any]) -> Options:
    """Return options that a jobspec writes for Slurm, as written; NotCarriedError for those that no job may say.

    >>> site_options({"qos": "long", "contiguous": True})
    {'qos': 'long', 'contiguous': ''}
    """
    options: Options = {}
    for name, value in inputs.items():
        if not NAME.fullmatch(name):
            raise NotCarriedError(f"{name!r:.60} is not an option of sbatch")
        if name in REFUSED:
            raise NotCarriedError(f"--{name} cannot be asked for: {REFUSED[name]}")
        if value is False:
            continue
        text = "" if value in (True, None, "") else one_line(value)
        options[name] = text
    return options
