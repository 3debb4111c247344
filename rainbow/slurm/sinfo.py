"""What sinfo prints of clusters, which are its partitions, and of their nodes by state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rainbow.jobspec.hostlist import fold_hosts
from rainbow.slurm.command_line import CommandError, GivenWords
from rainbow.slurm.job_rows import NodeRow
from rainbow.slurm.texts import fitted, one_line

DEFAULT = "%#P %.5a %.10l %.6D %.6t %N"
LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
BY_NODE = "%#N %.6D %#P %6t"
LONG_BY_NODE = "%#N %.6D %#P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E"
SUMMARY = "%#P %.5a %.10l %.16F  %N"
_SHORT = {
    "idle": "idle",
    "mixed": "mix",
    "allocated": "alloc",
    "maint": "maint",
    "resv": "resv",
    "drained": "drain",
    "draining": "drng",
    "down": "down",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are one line: of a partition, in one state or, in short, in all."""

    rows: Sequence[NodeRow]
    default: bool

    @property
    def first(self) -> NodeRow:
        """A row of them."""
        return self.rows[0]

    @property
    def names(self) -> list[str]:
        """All nodes."""
        return [name for row in self.rows for name in row.names]

    def nodes(self, *states: str) -> int:
        """Count the nodes in some states."""
        return sum(len(row.names) for row in self.rows if row.state in states)


def _counts(group: Group) -> str:
    busy, idle = group.nodes("allocated", "mixed", "draining"), group.nodes("idle", "resv")
    whole = len(group.names)
    return f"{busy}/{idle}/{whole - busy - idle}/{whole}"


def _cores(group: Group) -> str:
    used = sum(row.total - row.free for row in group.rows if row.state in ("allocated", "mixed", "draining"))
    idle = sum(row.free for row in group.rows if row.state in ("idle", "mixed", "allocated", "resv"))
    whole = sum(row.total for row in group.rows)
    return f"{used}/{idle}/{max(0, whole - used - idle)}/{whole}"


def _each(group: Group) -> str:
    results = sorted({row.total // max(1, len(row.names)) for row in group.rows})
    return str(results[0]) + ("+" if len(results) > 1 else "")


def _memory(group: Group) -> str:
    results = sorted({row.memory or 1 for row in group.rows})
    return str(results[0]) + ("+" if len(results) > 1 else "")


def _gpus(group: Group) -> str:
    return f"gpu:{group.first.gpus}" if group.first.gpus else "(null)"


Value = Callable[[Group], str]
LETTERS: Mapping[str, tuple[str, Value]] = {
    "a": ("AVAIL", lambda group: "up" if any(row.up for row in group.rows) else "down"),
    "A": ("NODES(A/I)", lambda group: "/".join(_counts(group).split("/")[:2])),
    "b": ("ACTIVE_FEATURES", lambda _: "(null)"),
    "B": ("MAX_CPUS_PER_NODE", lambda _: "UNLIMITED"),
    "c": ("CPUS", _each),
    "C": ("CPUS(A/I/O/T)", _cores),
    "d": ("TMP_DISK", lambda _: "0"),
    "D": ("NODES", lambda group: str(len(group.names))),
    "e": ("FREE_MEM", lambda _: "N/A"),
    "E": ("REASON", lambda _: "none"),
    "f": ("AVAIL_FEATURES", lambda _: "(null)"),
    "F": ("NODES(A/I/O/T)", _counts),
    "g": ("GROUPS", lambda _: "all"),
    "G": ("GRES", _gpus),
    "h": ("OVERSUBS", lambda _: "NO"),
    "H": ("TIMESTAMP", lambda _: "Unknown"),
    "i": ("RESERVATION", lambda _: ""),
    "I": ("PRIO_JOB_FACTOR", lambda _: "1"),
    "l": ("TIMELIMIT", lambda _: "infinite"),
    "L": ("DEFAULTTIME", lambda _: "n/a"),
    "m": ("MEMORY", _memory),
    "M": ("PREEMPT_MODE", lambda _: "OFF"),
    "n": ("HOSTNAMES", lambda group: ",".join(group.names)),
    "N": ("NODELIST", lambda group: fold_hosts(group.names)),
    "o": ("NODE_ADDR", lambda group: ",".join(group.names)),
    "O": ("CPU_LOAD", lambda _: "N/A"),
    "p": ("PRIO_TIER", lambda _: "1"),
    "P": ("PARTITION", lambda group: group.first.partition + ("*" if group.default else "")),
    "r": ("ROOT", lambda _: "no"),
    "R": ("PARTITION", lambda group: group.first.partition),
    "s": ("JOB_SIZE", lambda _: "1-infinite"),
    "S": ("ALLOCNODES", lambda _: "all"),
    "t": ("STATE", lambda group: _SHORT.get(group.first.state, "unk")),
    "T": ("STATE", lambda group: group.first.state),
    "u": ("USER", lambda _: "Unknown"),
    "U": ("USER", lambda _: "Unknown"),
    "v": ("VERSION", lambda _: "22.05.8"),
    "V": ("CLUSTER", lambda _: "N/A"),
    "w": ("WEIGHT", lambda _: "1"),
    "X": ("SOCKETS", lambda _: "1"),
    "Y": ("CORES", _each),
    "Z": ("THREADS", lambda _: "1"),
    "z": ("S:C:T", lambda group: f"1:{_each(group)}:1"),
}
NAMES = {
    "all": "",
    "available": "a",
    "cpus": "c",
    "cpusload": "O",
    "cpusstate": "C",
    "cores": "Y",
    "defaulttime": "L",
    "disk": "d",
    "features": "f",
    "features_act": "b",
    "freemem": "e",
    "gres": "G",
    "groups": "g",
    "maxcpuspernode": "B",
    "memory": "m",
    "nodeaddr": "o",
    "nodeai": "A",
    "nodeaiot": "F",
    "nodehost": "n",
    "nodelist": "N",
    "nodes": "D",
    "oversubscribe": "h",
    "partition": "P",
    "partitionname": "R",
    "preemptmode": "M",
    "priorityjobfactor": "I",
    "prioritytier": "p",
    "reason": "E",
    "root": "r",
    "size": "s",
    "socketcorethread": "z",
    "sockets": "X",
    "statecompact": "t",
    "statelong": "T",
    "threads": "Z",
    "time": "l",
    "timestamp": "H",
    "user": "u",
    "version": "v",
    "weight": "w",
}
_PER_STATE = frozenset("tTnN")  # with one of these a line is of one state
_FIELD = re.compile(r"%(\.?)(#?)([0-9]{0,5})([A-Za-z%])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a line, or the text between fields. `widest`: as wide as the widest value."""

    letter: str
    text: str
    width: int = 0
    right: bool = False
    widest: bool = False


def read_format(text: str) -> list[Field]:
    """Read what -o says."""
    result, at = list[Field](), 0
    for part in _FIELD.finditer(text):
        if part.start() > at:
            result.append(Field("", text[at : part.start()]))
        at = part.end()
        if part[4] not in LETTERS:
            raise CommandError(f"sinfo: error: Invalid node format specification: {part[4]}\n")
        result.append(Field(part[4], "", min(int(part[3] or 0), 10_000), part[1] == ".", bool(part[2])))
    return result + ([Field("", text[at:])] if at < len(text) else [])


def read_long_format(text: str) -> list[Field]:
    """Read what -O says."""
    result = []
    for part in filter(None, text.split(",")):
        name, _, size = part.partition(":")
        letter = NAMES.get(name.strip().lower())
        if not letter or not re.fullmatch(r"\.?[0-9]{0,5}", size, re.ASCII):
            raise CommandError(f"sinfo: error: Invalid node format specification: {part[:60]}\n")
        result.append(Field(letter, "", int(size.lstrip(".") or 20), size.startswith(".")))
    return result


def _fields(words: GivenWords, environment: Mapping[str, str]) -> list[Field]:
    if "Format" in words:
        return read_long_format(words.last("Format"))
    if "Node" in words:
        default = LONG_BY_NODE if "long" in words else BY_NODE
    else:
        default = SUMMARY if "summarize" in words else LONG if "long" in words else DEFAULT
    return read_format(words.last("format") or environment.get("SINFO_FORMAT") or default)


def written(rows: Sequence[NodeRow], words: GivenWords, environment: Mapping[str, str], default: str) -> str:
    """Write what sinfo prints."""
    fields = _fields(words, environment)
    chosen = [row for row in rows if _wanted(row, words)]
    by_state = any(one.letter in _PER_STATE for one in fields) and "summarize" not in words
    groups: dict[object, list[NodeRow]] = {}
    if "Node" in words:
        for row in chosen:
            share = (len(row.names), row.total, row.free)
            for name in row.names:
                total, free = share[1] // share[0], share[2] // share[0]
                groups[row.partition, name] = [replace(row, names=(name,), total=total, free=free)]
    else:
        for row in chosen:
            key = (row.partition, row.state if by_state else "", row.gpus if _of(fields, "G") else 0)
            groups.setdefault(key, []).append(row)
    lines = [Group(own, own[0].partition == default) for own in groups.values()]
    cells = [[one.text if not one.letter else LETTERS[one.letter][1](line) for one in fields] for line in lines]
    head = [one.text if not one.letter else LETTERS[one.letter][0] for one in fields]
    shown = cells if "noheader" in words else [head, *cells]
    widths = [
        max((len(row[k]) for row in [head, *cells]), default=0) if one.widest else one.width
        for k, one in enumerate(fields)
    ]
    return "".join(_line(fields, widths, row) for row in shown)


def _of(fields: Sequence[Field], letter: str) -> bool:
    return any(one.letter == letter for one in fields)


def _line(fields: Sequence[Field], widths: Sequence[int], row: Sequence[str]) -> str:
    cells = [
        fitted(one_line(text), width, right=field.right) if width else one_line(text)
        for field, width, text in zip(fields, widths, row, strict=True)
    ]
    return "".join(cells) + "\n"


def _wanted(row: NodeRow, words: GivenWords) -> bool:
    states = {word.lower() for word in words.words("states")}
    named = words.words("nodes")
    if "partition" in words and row.partition not in words.words("partition"):
        return False
    if named and not set(named) & set(row.names):
        return False
    return not states or "all" in states or row.state in states or _SHORT.get(row.state) in states
