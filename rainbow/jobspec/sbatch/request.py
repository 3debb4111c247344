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

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import laid_over
from rainbow.jobspec.hostlist import expand_hosts
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import SLOT

Tree = Mapping[str, Any]
Options = dict[str, str]  # "" is an option without a value

MIB = 2**20
PLAIN_MEMORY = MIB  # bytes: what a number of memory without a unit counts
MOST_HOSTS = 100_000
LONGEST = 1_000  # characters of a comment before our own mark
SWITCH = "switch"  # a leaf switch, as graph/sources/slurm_topology.py calls it
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


class NotCarriedError(JobspecError):
    """What cannot be said to Slurm, in words."""


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

    @property
    def tasks(self) -> int:
        """How many processes it starts."""
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
    told = (request.get("site") or {}).get("slurm")
    told = dict(told) if isinstance(told, Mapping) else {}
    later = told.pop("hetjob", ())
    said = [site_options(told), *(site_options(one) for one in later if isinstance(one, Mapping))]
    notes: list[str] = []
    parts = [_component(tree, notes) for tree in request.get("resources") or []]
    said += [{} for _ in parts[len(said) :]]
    if not parts or len(said) > len(parts):
        raise NotCarriedError(f"options for {len(said)} components, and {len(parts)} different resources")
    nodes = parts[0].nodes[0] if parts[0].nodes else None
    options = _constraints(request.get("constraint"), nodes, hosts, named="nodelist" in said[0])
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
    if tree["type"] != "node" or len(slots) != 1:
        raise NotCarriedError(f"slots in a {tree['type']}, or different slots in a node, cannot be said to Slurm")
    beside = [part for part in below if part["type"] != SLOT]
    [slot] = slots
    found = _Shape(_least(slot, notes), slot.get("with") or [], _range(tree, notes), beside, notes=notes)
    found.exclusive = _is_exclusive(tree) or _is_exclusive(slot)
    return found


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
        if not shape.whole:
            options["ntasks-per-node"] = str(shape.slots)
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
    inside, beside = _sums(shape.inside, shape.notes), _sums(shape.beside, shape.notes)
    options = _memory(shape, inside, beside)
    if gpus := inside.pop("gpu", 0):
        options["gpus-per-task"] = str(gpus)
    if gpus := beside.pop("gpu", 0):
        options["gpus-per-node"] = str(gpus)
    if "core" in beside:
        raise NotCarriedError("cores of a node beside its slots cannot be said to Slurm")
    others: dict[str, int] = {}
    for kind in sorted({*inside, *beside} - {"core"}):
        others[kind] = inside.get(kind, 0) * shape.slots + beside.get(kind, 0)
    if others and shape.nodes is None and shape.slots > 1:
        raise NotCarriedError(f"{', '.join(others)} in slots that may lie on any node cannot be said to Slurm")
    if disk := sum(others.pop(kind) for kind in sorted(others.keys() & DISKS)):
        options["tmp"] = f"{math.ceil(disk / MIB)}M"
    if others:
        options["gres"] = ",".join(f"{kind}:{amount}" for kind, amount in others.items())
    return options


def _sums(parts: Sequence[Tree], notes: list[str]) -> dict[str, int]:
    """Add up amounts by type: bytes of memory and disk, else as they are counted."""
    found: dict[str, int] = {}
    for part in parts:
        kind, each = part["type"], 1
        if kind == "memory" or kind in DISKS:
            each = quantity(part["unit"])[1] if part.get("unit") else PLAIN_MEMORY
        found[kind] = found.get(kind, 0) + _least(part, notes) * each
    return found


def _memory(shape: _Shape, inside: dict[str, int], beside: dict[str, int]) -> Options:
    slot, node, cores = inside.pop("memory", 0), beside.pop("memory", 0), inside.get("core", 1)
    if not slot and not node:
        return {}
    if shape.nodes is not None or shape.slots == 1:
        return {"mem": f"{math.ceil((slot * shape.slots + node) / MIB)}M"}
    return {"mem-per-cpu": f"{math.ceil(slot / cores / MIB)}M"}


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


def clock(seconds: float, zone: tzinfo | None) -> str:
    """Write a time as Slurm reads it, in a zone, None: that of this machine."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%dT%H:%M:%S")


def one_line(text: object) -> str:
    """Return a text without what would end a line or a word of Slurm's records.

    >>> one_line(" two\\n lines ")
    'two lines'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in str(text or "")).split())[:LONGEST]


def site_options(given: Mapping[str, Any]) -> Options:
    """Return options that a jobspec writes for Slurm, as written; NotCarriedError for those that no job may say.

    >>> site_options({"qos": "long", "contiguous": True})
    {'qos': 'long', 'contiguous': ''}
    """
    options: Options = {}
    for name, value in given.items():
        if not NAME.fullmatch(name):
            raise NotCarriedError(f"{name!r:.60} is not an option of sbatch")
        if name in REFUSED:
            raise NotCarriedError(f"--{name} cannot be asked for: {REFUSED[name]}")
        if value is False:
            continue
        text = "" if value in (True, None, "") else one_line(value)
        options[name] = text
    return options


# ── constraints ──


def _constraints(
    constraint: Mapping[str, Any] | None, nodes: int | None, hosts: Sequence[str] | None, *, named: bool
) -> Options:
    """Say an RFC 31 constraint with --constraint, --partition, --nodelist and --exclude.

    `hosts` are the site's; `named`: the site has its own list of nodes, of which matching reads the constraint.
    """
    features, partitions, among, never = list[Any](), list[str](), list[set[str]](), set[str]()
    for part in _conjuncts(constraint):
        [(operator, values)] = part.items()
        if found := _partitions(part):
            partitions = [name for name in found if not partitions or name in partitions]
        elif operator == "hostlist":
            among += [] if named else [_hosts(values)]
        elif operator == "not" and "hostlist" in values[0]:
            never |= _hosts(values[0]["hostlist"])
        else:
            features.append(part)
    words = [_feature(part, nested=len(features) > 1) for part in features]
    options: Options = {"constraint": "&".join(words)} if words else {}
    if partitions:
        options["partition"] = ",".join(partitions)
    if among:
        wanted = set.intersection(*among) - never
        if nodes == len(wanted):
            options["nodelist"] = ",".join(sorted(wanted))
        elif hosts is None:
            raise NotCarriedError("hosts to choose among cannot be said to Slurm (--nodelist takes all of them)")
        else:
            never |= set(hosts) - wanted
    if never:
        options["exclude"] = ",".join(sorted(never))
    return options


def _conjuncts(constraint: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield what must all be true; several properties of one list are several."""
    for operator, values in (constraint or {}).items():
        if operator == "and":
            for value in values:
                yield from _conjuncts(value)
        elif operator == "properties":
            yield from ({operator: [value]} for value in values)
        else:
            yield {operator: values}


def _partitions(part: Mapping[str, Any]) -> list[str]:
    """Return the partitions that a part names, one or alternatives; none if it says anything else."""
    parts = part.get("or", [part])
    texts = [value for each in parts for value in (each.get("properties") or [""])]
    named = [text.removeprefix("partition=") for text in texts if text.startswith("partition=")]
    return named if len(named) == len(parts) == len(texts) else []


def _hosts(values: Sequence[str]) -> set[str]:
    return {host for text in values for host in expand_hosts(text, MOST_HOSTS) or ()}


def _feature(part: Mapping[str, Any], *, nested: bool) -> str:
    [(operator, values)] = part.items()
    if operator == "properties":
        if refused := [text for text in values if text.startswith(("^", "partition="))]:
            raise NotCarriedError(f"{refused[0]:.60} in a constraint: Slurm cannot say what a node must not have")
        return "&".join(values)
    if operator not in ("and", "or"):
        raise NotCarriedError(f"the constraint {operator} cannot be said to Slurm")
    said = ("|" if operator == "or" else "&").join(_feature(each, nested=len(values) > 1) for each in values)
    return f"({said})" if nested and len(values) > 1 else said
