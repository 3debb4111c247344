"""The options of sbatch about nodes, tasks, cpus, memory and GPUs → resources and a constraint.

    tasks   -n and nothing per node     slots anywhere
            with -N or amounts per node a node with `replicas` slots, or `total` slots over a range of nodes
    beside  --mem, --gres, --gpus-per-node: of each node, whatever the number of its tasks
    job     --gpus: `within: job`, what all nodes have together
    facts   --tmp, --mincpus, --sockets-per-node, ...: a constraint `at_least`, of which nothing is taken

Measured on Slurm 22.05.8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import LAYOUT, SHAPE
from rainbow.jobspec.sbatch.features import read_features

Document = dict[str, Any]
_MEMORY = re.compile(r"([0-9]{1,15})(?:([KMGT])(?:i?B)?)?", re.ASCII | re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_COUNT = re.compile(r"([0-9]{1,9})([km]?)(?:-([0-9]{1,9})([km]?))?", re.ASCII | re.IGNORECASE)
_THOUSANDS = {"": 1, "k": 1024, "m": 1024**2}
_SLICE = re.compile(r"[0-9]+[cg]\.[0-9]+gb", re.ASCII | re.IGNORECASE)
_MEMORIES = ("mem", "mem-per-cpu", "mem-per-gpu")


class Gres:
    """A number of a gres of a model, "" for any."""

    def __init__(self, name: str, model: str, count: int) -> None:
        sliced = name == "gpu" and _SLICE.search(model)
        self.type = "mig" if sliced else name
        self.model = model
        self.count = count

    def resource(self, count: int, **more: Any) -> Document:
        """Return the resource for a count of it."""
        named = [{"name": "containment", "field": "model", "match": self.model}] if self.model else []
        return {"type": self.type, "count": count, **({"requires": named} if named else {}), **more}


class Shape:
    """The resources of one component of a job; `kept` are options that they do not say in full.

    nodes    (least, most), None: Slurm chooses
    tasks    in all, None: as many as nodes, or as nodes times `each`
    each     on one node, at most where `tasks` is said
    """

    def __init__(self, options: Mapping[str, str], notes: list[str]) -> None:
        self.options, self.notes, self.kept = options, notes, dict[str, str]()
        _refuse(options)
        self.cpus = self._number("cpus-per-task") or 1
        self.tasks, self.each = self._number("ntasks"), self._number("ntasks-per-node")
        self.nodes = read_range(options["nodes"]) if "nodes" in options else None
        self.per_gpu = self._number("cpus-per-gpu") or 0
        self._set_hosts()
        self._set_gpus()
        self._set_layout()
        self.resources = self._resources()
        self.facts = dict(self._facts())
        self.constraint = self._constraint()
        self.kept |= {name: options[name] for name in self._as_written()}
        if "nodefile" in options:
            self.keep("nodefile", "sent to the site as written; matching does not read the file")

    def _as_written(self) -> set[str]:
        """Name the options that resources and constraint do not give back as they were written."""
        written = self.options.keys() & SHAPE
        layout = written & LAYOUT
        nodes = {"nodes", "ntasks-per-node"} <= layout
        spread = self.resources[0][1]["type"] == "node" and "nodes" not in self.options
        plain = {"nodes", "ntasks-per-node", "cpus-per-task"} if nodes else {"ntasks", "cpus-per-task"}
        if spread or {"overcommit", "gpus"} & self.options.keys() or not layout <= plain:
            self.kept |= (
                {} if layout or "gpus" in written else {"ntasks": "1"}
            )  # so that nothing of the layout is made up
            return written
        memory = "mem" if nodes or (self.tasks or 1) == 1 else "mem-per-cpu"
        back = LAYOUT | {memory, "exclusive" if nodes else "gpus-per-task"}
        return (written - back) | (written & self.kept.keys())

    # ── what is read ──

    def _number(self, name: str, least: int = 1) -> int | None:
        text = self.options.get(name)
        if text is None:
            return None
        if not text.isdecimal() or not least <= int(text[:10]) < 10**9:
            raise JobspecError(f"--{name} must be a whole number of at least {least}, got {text!r:.60}")
        return int(text)

    def _note(self, name: str, why: str) -> None:
        value = self.options[name]
        self.notes.append(f"--{name}{value and f'={value}'}: {why}")

    def keep(self, name: str, why: str) -> None:
        """Carry an option as it is written, with a note that says why."""
        self.kept[name] = self.options[name]
        self._note(name, why)

    def _set_hosts(self) -> None:
        """Read how many nodes --nodelist names: without -N these are asked for."""
        from rainbow.jobspec.hostlist import count_hosts

        self.hosts = count_hosts(self.options["nodelist"]) or 0 if "nodelist" in self.options else 0
        if self.hosts and self.nodes is None and self.hosts > 1:
            self.nodes = (self.hosts, self.hosts)

    def _set_gpus(self) -> None:
        gres = list(_gres("gres", self.options.get("gres", "")))
        gres += [Gres("gpu", *one) for one in _typed("gpus-per-node", self.options.get("gpus-per-node", ""))]
        sockets = self._number("sockets-per-node") or 1
        per_socket = _typed("gpus-per-socket", self.options.get("gpus-per-socket", ""))
        gres += [Gres("gpu", model, count * sockets) for model, count in per_socket]
        self.beside = [one for one in gres if one.count]
        self.per_task = [Gres("gpu", *one) for one in _typed("gpus-per-task", self.options.get("gpus-per-task", ""))]
        self.of_job = [Gres("gpu", *one) for one in _typed("gpus", self.options.get("gpus", "")) if one[1]]
        every = (*self.beside, *self.per_task, *self.of_job)
        for_each = self._number("ntasks-per-gpu")
        if for_each and self.tasks is None and (total := sum(one.count for one in self.of_job)):
            self.tasks = for_each * total
        elif for_each and self.tasks is None and self.nodes:
            self.tasks = for_each * self._gpus_of_node() * self.nodes[0]
        if self.per_task and self.of_job and self.tasks is None and self.each is None:
            self.tasks = max(1, sum(one.count for one in self.of_job) // sum(one.count for one in self.per_task))
        self.has_gpus = any(one.type in ("gpu", "mig") for one in every)

    def _gpus_of_node(self) -> int:
        return sum(one.count for one in self.beside if one.type in ("gpu", "mig"))

    def _set_layout(self) -> None:
        if self.nodes is None and self.each is not None:
            least = -(-self.tasks // self.each) if self.tasks else 1
            self.nodes = (least, least)
        total = sum(one.count for one in self.of_job)
        if self.nodes is None and self.tasks is None and total > 1:
            self.nodes = (1, total)  # a task on each
        if self.nodes and self.hosts > self.nodes[1]:
            raise JobspecError(f"invalid number of nodes (-N {self.hosts}-{self.nodes[1]}): --nodelist names more")
        if self.nodes and self.tasks is not None and self.tasks < self.nodes[0]:
            nodes, self.nodes = self.nodes[0], (self.tasks, min(self.tasks, self.nodes[1]))
            self.notes.append(
                f"--nodes={nodes}: {self.tasks} tasks are on {self.tasks} nodes at most, as sbatch has it"
            )
        if self.nodes and self.tasks is None and self.each is None and self.nodes[0] < self.nodes[1]:
            self.each = 1
        if "overcommit" in self.options:
            # tasks share cpus: each node needs one, however many tasks it has
            self.tasks, self.each = (self.nodes or (1, 1))[0], None

    # ── resources ──

    def _slot(self) -> list[Document]:
        """Return what one slot holds."""
        inside = [*self._cpus(self.cpus), *self._memory_of_slot()]
        return inside + [one.resource(one.count) for one in self.per_task]

    def _cpus(self, count: int) -> list[Document]:
        threads = {"threads": 1} if self._one_thread else {}
        return [{"type": "cpu", "count": count, **threads}]

    @property
    def _one_thread(self) -> bool:
        options = self.options
        single = options.get("threads-per-core") == "1" or options.get("hint") == "nomultithread"
        return single or (options.get("ntasks-per-core") == "1" and self.cpus == 1)

    def _memory_of_slot(self) -> list[Document]:
        if (text := self.options.get("mem-per-cpu")) is not None and not self._whole:
            return _memory(mebibytes("mem-per-cpu", text) * self.cpus)
        gpus = sum(one.count for one in self.per_task)
        if (text := self.options.get("mem-per-gpu")) is not None and gpus:
            return _memory(mebibytes("mem-per-gpu", text) * gpus)
        return []

    @property
    def _whole(self) -> bool:
        return self.options.get("exclusive") == "" or "core-spec" in self.options or "thread-spec" in self.options

    def _of_node(self) -> list[Document]:
        """Return what each node has beside its slots."""
        results = [
            one.resource(
                one.count, **({"same": "model"} if one.type == "gpu" and one.count > 1 and not one.model else {})
            )
            for one in self.beside
        ]
        if (text := self.options.get("mem")) is not None:
            size = mebibytes("mem", text)
            if size:
                results += _memory(size)
            else:
                self._note("mem", "all memory of each node: any amount will do for matching")
                self.kept["mem"] = text
        if (text := self.options.get("mem-per-gpu")) is not None and self._gpus_of_node():
            results += _memory(mebibytes("mem-per-gpu", text) * self._gpus_of_node())
        spared = self._number("core-spec", 0) or 0
        return results + ([{"type": "core", "count": spared}] if spared else [])

    def _resources(self) -> list[tuple[str, Document]]:
        """Return the resources by name: the slots where tasks run, and what the job has together."""
        if (by_gpu := self._by_gpu()) is not None:
            return [("job", by_gpu)]
        beside, slot = self._of_node(), self._slot()
        whole = {"exclusive": True} if self._whole else {}
        if "exclusive" in self.options and self.options["exclusive"] != "":
            self.keep("exclusive", "sent to the site as written; matching does not read it")
        slots = self.tasks or 1
        if self.nodes is None and slots == 1 and not whole and len({one.type for one in self.beside}) <= 1:
            job = [one.resource(one.count) for one in self.of_job]
            return [("job", _in_slots(1, [*slot, *beside, *job]))]
        if self.nodes is None and not (beside or whole or self.of_job or self._at_most()):
            return [("job", _in_slots(slots, slot))]
        low, high = self.nodes or (1, slots)
        if high > slots and self.tasks is not None:
            high = max(low, slots)
        each = self._each(low, high)
        at_most = self._at_most() if each is None else {}
        inside = {"type": "slot", "total": slots, **({"at_most": at_most} if at_most else {}), "with": slot}
        node: Document = {"type": "node", "count": low if low == high else f"{low}-{high}", **whole}
        if (
            whole
            and not beside
            and each == 1
            and slot == [{"type": "cpu", "count": 1}]
            and self.kept.get("mem") == "0"
        ):
            del self.kept["mem"]
            self.notes[:] = [note for note in self.notes if not note.startswith("--mem=0:")]
            del node["exclusive"]  # a node without parts is taken whole
            return [("job", node)]
        if low == high == 1 and self.of_job:
            beside = [*beside, *(one.resource(one.count) for one in self.of_job)]
        node["with"] = [_in_slots(each, slot) if each else inside, *beside]
        result = [("job", node)]
        if self.of_job and not low == high == 1:
            result += [(f"gpus{k or ''}", one.resource(one.count, within="job")) for k, one in enumerate(self.of_job)]
        return result

    def _each(self, low: int, high: int) -> int | None:
        """Return the slots of each node, None where nodes may have different ones."""
        if self.tasks is None:
            return self.each or 1
        if low == high and self.tasks % low == 0 and self.each in (None, self.tasks // low):
            return self.tasks // low
        return None

    def _at_most(self) -> Document:
        """Return how many slots may be on one node and on one socket."""
        result: Document = {}
        if self.each is not None and self.tasks is not None:
            result["node"] = self.each
        if (sockets := self._number("ntasks-per-socket")) is not None:
            result["socket"] = sockets
        return result

    def _by_gpu(self) -> Document | None:
        """Return slots of one GPU each, with its cpus and memory, where these are said for each GPU."""
        gpus = [one for one in (*self.of_job, *self.beside) if one.type in ("gpu", "mig")]
        others = [one for one in self.beside if one.type not in ("gpu", "mig")]
        if not (self.per_gpu or ("mem-per-gpu" in self.options and self.of_job)) or self.per_task or len(gpus) != 1:
            return None
        [gpu] = gpus
        cpus = self.per_gpu or self.cpus * (self.tasks or 1) // gpu.count or 1
        size = 0
        if (text := self.options.get("mem-per-gpu")) is not None:
            size = mebibytes("mem-per-gpu", text)
        elif (text := self.options.get("mem-per-cpu")) is not None:
            size = mebibytes("mem-per-cpu", text) * cpus
        slot = [*self._cpus(cpus), *_memory(size), gpu.resource(1)]
        nodes = self.nodes or ((1, gpu.count) if gpu in self.of_job else (1, 1))
        low, high = nodes
        if gpu in self.of_job:
            high = min(high, gpu.count)
        if low > high:
            raise JobspecError(f"--gpus={gpu.count}: {low} nodes need at least one GPU each")
        beside = [one.resource(one.count) for one in others]
        if (text := self.options.get("mem")) is not None:
            beside += _memory(mebibytes("mem", text))
        slots = (
            {"type": "slot", "total": gpu.count} if gpu in self.of_job else {"type": "slot", "replicas": gpu.count}
        )
        whole = {"exclusive": True} if self._whole else {}
        if self.tasks and self.tasks > cpus * gpu.count * low:
            self._note("ntasks", f"matching takes {cpus * gpu.count * low} cpus, those of the GPUs")
        count = low if low == high else f"{low}-{high}"
        return {"type": "node", "count": count, **whole, "with": [{**slots, "with": slot}, *beside]}

    # ── the constraint ──

    def _facts(self) -> Iterator[tuple[str, int | str]]:
        """Yield what a node must have, of which nothing is taken."""
        options = self.options
        if "tmp" in options and (size := mebibytes("tmp", options["tmp"])):
            yield "ssd", f"{size}MiB"
        cpus, per_socket = self._number("mincpus") or 0, self._number("ntasks-per-socket")
        sockets, cores, threads = self._grid()
        if per_socket is not None:
            if self.each is None:  # so Slurm has it: a node has cpus for the tasks of one socket
                cpus = max(cpus, per_socket * self.cpus)
            if self.nodes and (each := self._each(*self.nodes)):
                sockets = max(sockets, -(-each // per_socket))
        facts = {"cpu": cpus, "socket": sockets, "socket/core": cores, "threads": threads if threads > 1 else 0}
        yield from ((fact, least) for fact, least in facts.items() if least)
        if (text := options.get("mem-per-cpu")) is not None and self._whole:
            yield "memory/cpu", f"{mebibytes('mem-per-cpu', text)}MiB"

    def _grid(self) -> tuple[int, int, int]:
        """Return the least sockets of a node, cores of a socket and threads of a core; 0 for what is not said."""
        names = ("sockets-per-node", "cores-per-socket", "threads-per-core")
        grid = [self._number(name) or 0 for name in names]
        for place, part in enumerate(self.options.get("extra-node-info", "").split(":")[:3]):
            grid[place] = int(part[:9]) if part.isdecimal() else grid[place]
        return grid[0], grid[1], grid[2]

    def _constraint(self) -> Document:
        """Return what each node must be: features, names, facts."""
        options, parts = self.options, list[Document]()
        if text := options.get("constraint"):
            features = read_features(text)
            if features is None:
                self.keep("constraint", "sent to the site as written; matching does not read it")
            else:
                parts.append(features)
        if hosts := options.get("nodelist"):
            if self.nodes and self.nodes[0] < self.hosts:
                self._note("nodelist", "more nodes are named than the job has; matching chooses among them")
            elif self.nodes is None or self.nodes[0] > self.hosts:
                self._note("nodelist", "matching chooses among these nodes")
            self.kept["nodelist"] = hosts
            parts.append({"hostlist": [hosts]})
        if hosts := options.get("exclude"):
            parts.append({"not": [{"hostlist": [hosts]}]})
        if self.facts:
            parts.append({"at_least": self.facts})
        return parts[0] if len(parts) == 1 else {"and": parts} if parts else {}


def _in_slots(slots: int, inside: list[Document]) -> Document:
    if len(inside) == 1 and inside[0]["type"] == "cpu":
        return {**inside[0], "replicas": slots}
    return {"type": "slot", "replicas": slots, "with": inside}


def _memory(size: int) -> list[Document]:
    return [{"type": "memory", "count": size, "unit": "MiB"}] if size else []


def _refuse(options: Mapping[str, str]) -> None:
    """Refuse what sbatch refuses in combination."""
    said = [name for name in _MEMORIES if name in options]
    if len(said) > 1:
        raise JobspecError(f"--{said[0]} and --{said[1]} are mutually exclusive")
    if "cpus-per-gpu" in options and "cpus-per-task" in options:
        raise JobspecError("--cpus-per-gpu and --cpus-per-task are mutually exclusive")
    counted = {"ntasks", "gpus", "ntasks-per-node", "ntasks-per-gpu"}
    least, most = read_range(options.get("nodes", "1-2"))  # a task on each of so many nodes counts the tasks, too
    if "gpus-per-task" in options and not counted & options.keys() and least < most:
        raise JobspecError("--gpus-per-task needs --ntasks, --gpus, --ntasks-per-node or one number of --nodes")


def read_range(text: str) -> tuple[int, int]:
    """Read how many nodes are asked for: the least and the most."""
    result = _COUNT.fullmatch(text)
    if result is None:
        raise JobspecError(f"--nodes must be a number or a range such as 2-8, got {text!r:.60}")
    least = int(result[1]) * _THOUSANDS[result[2].lower()]
    most = int(result[3]) * _THOUSANDS[result[4].lower()] if result[3] else least
    if not 1 <= least <= most:
        raise JobspecError(f"--nodes must be at least 1 and ascend, got {text!r:.60}")
    return least, most


def mebibytes(name: str, text: str) -> int:
    """Read an amount of memory of the option of this name."""
    result = _MEMORY.fullmatch(text)
    if result is None:
        raise JobspecError(f"--{name} must be a size such as 500M or 4G (MiB without a unit), got {text!r:.60}")
    return math.ceil(int(result[1]) * _MIB[(result[2] or "M").upper()])


def _gres(name: str, text: str) -> Iterator[Gres]:
    """Yield what --gres lists: name[:model][:count]."""
    for part in filter(None, text.split(",")):
        kind, _, rest = part.removeprefix("gres:").removeprefix("gres/").partition(":")
        if not kind or kind == "none":
            continue
        for model, count in _typed(name, rest or "1"):
            yield Gres(kind, model, count)


def _typed(name: str, text: str) -> list[tuple[str, int]]:
    """Read [model:]count, several with commas."""
    result = []
    for part in filter(None, text.split(",")):
        model, _, number = part.rpartition(":")
        if not number.isdecimal():
            model, number = part, "1"
        if len(number) > 9:
            raise JobspecError(f"--{name} must be a count such as 2 or a100:2, got {text!r:.60}")
        result.append((model, int(number)))
    return result
