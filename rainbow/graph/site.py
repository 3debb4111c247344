"""The words of a site about its cluster: queues with their limits, licenses, qualities of service, accounts.

They are metadata of the graph. `queues` has the form of RFC 33; a word that is absent is not known, an empty mapping
says that there is none. A node belongs to a queue if it has all properties that the queue requires. The nodes of the
default queue get the property `queue=` besides, so that a job that names no queue asks every cluster the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import mapping, sequence, step, text
from rainbow.jobspec.quantities import amount_of
from rainbow.jobspec.times import seconds_of

IN_DEFAULT = "queue="  # the property of the nodes that a job without a queue may have
MOST_QUEUES = 64
STATES = ("up", "inactive", "drain", "down")
WORDS = ("queues", "policy", "licenses", "qos", "accounts", "features")


@dataclass(frozen=True)
class Queue:
    """A queue of a site; None where there is no limit. Times in seconds, memory in bytes."""

    name: str
    requires: tuple[str, ...] = ()
    state: str = "up"
    duration: float | None = None
    nodes: tuple[int, int | None] = (0, None)
    most: Mapping[str, int] = field(default_factory=dict)  # {"core": 384, "gpu": 8}
    memory_per_node: int | None = None
    access: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    default_duration: float | None = None
    whole_nodes: bool = False


@dataclass(frozen=True)
class License:
    """How many of a license there are; `shared` names the pool that several clusters draw from."""

    count: int
    shared: str = ""


@dataclass(frozen=True)
class Site:
    """What a site says of its cluster; None where it says nothing. `words` is what it was read from."""

    words: Mapping[str, Any] = field(default_factory=dict)
    queues: Mapping[str, Queue] | None = None
    default: str = ""
    licenses: Mapping[str, License] | None = None
    qos: Mapping[str, float | None] | None = None  # {name: the longest duration, None: no limit}
    accounts: frozenset[str] | None = None
    complete: bool = False  # the properties of the nodes are all there are


def read_site(metadata: Any, pointer: str, properties: Collection[str] | None = None) -> Site | None:
    """Read the words in a graph's metadata, None if there are none; GraphError points at what is wrong.

    `properties` are those that nodes have, None: not known.

    >>> read_site({"queues": {"gpu": {"policy": {"limits": {"duration": "1d"}}}}}, "").queues["gpu"].duration
    86400.0
    """
    if not isinstance(metadata, Mapping) or not any(word in metadata for word in WORDS):
        return None
    words = {word: metadata[word] for word in WORDS if metadata.get(word) is not None}
    queues = None
    if "queues" in words:
        at = step(pointer, "queues")
        entries = mapping(words["queues"], at, "queues")
        if len(entries) > MOST_QUEUES:
            raise GraphError(f"{len(entries)} queues, at most {MOST_QUEUES} are read", pointer=at)
        queues = {str(name): _queue(str(name), entry, step(at, name), properties) for name, entry in entries.items()}
    default = _inside(words.get("policy"), step(pointer, "policy"), "jobspec", "defaults", "system").get("queue", "")
    if default and queues is not None and default not in queues:
        at = step(pointer, "policy/jobspec/defaults/system/queue".replace("/", "\0")).replace("\0", "/")
        raise GraphError(f"the default queue {default!r:.60} is not among the queues", pointer=at)
    accounts = words.get("accounts")
    if accounts is not None:
        accounts = frozenset(map(str, sequence(accounts, step(pointer, "accounts"), "accounts")))
    return Site(
        words,
        queues,
        str(default),
        _licenses(words.get("licenses"), step(pointer, "licenses")),
        _qos(words.get("qos"), step(pointer, "qos")),
        accounts,
        words.get("features") == "complete",
    )


def _inside(value: Any, pointer: str, *path: str) -> Mapping[str, Any]:
    """Return a mapping in mappings, an empty one where it is absent."""
    result = {} if value is None else mapping(value, pointer, "this")
    for key in path:
        pointer = step(pointer, key)
        result = mapping(result.get(key) or {}, pointer, key)
    return result


def _queue(name: str, entry: Any, pointer: str, properties: Collection[str] | None) -> Queue:
    entry = mapping(entry or {}, pointer, "a queue")
    requires = _texts(entry.get("requires"), step(pointer, "requires"))
    for place, required in enumerate(requires):
        if properties is not None and required not in properties:
            at = step(step(pointer, "requires"), place)
            raise GraphError(f"queue {name} requires the property {required}, which no node has", pointer=at)
    state = entry.get("state", "up")
    if state not in STATES:
        text = f"state must be {', '.join(STATES)}, got {state!r:.40}"
        raise GraphError(text, pointer=step(pointer, "state"))
    at = step(step(pointer, "policy"), "limits")
    limits = _inside(entry.get("policy"), step(pointer, "policy"), "limits")
    size, sized = _inside(limits.get("job-size"), step(at, "job-size")), step(at, "job-size")
    least, most = _inside(size.get("min"), step(sized, "min")), _inside(size.get("max"), step(sized, "max"))
    sizes = {key: _number(most[key], step(step(sized, "max"), key)) for key in most}
    defaults = _inside(entry.get("policy"), step(pointer, "policy"), "jobspec", "defaults", "system")
    access = _inside(entry.get("policy"), step(pointer, "policy"), "access")
    return Queue(
        name,
        requires,
        state,
        _seconds(limits.get("duration"), step(at, "duration")),
        (_number(least.get("nnodes", 0), step(step(sized, "min"), "nnodes")) or 0, sizes.get("nnodes")),
        {kind: n for key, kind in (("ncores", "core"), ("ngpus", "gpu")) if (n := sizes.get(key)) is not None},
        _bytes(limits.get("memory-per-node"), step(at, "memory-per-node")),
        {key: names for key in access if (names := _texts(access[key], step(pointer, key)))},
        _seconds(defaults.get("duration"), pointer),
        bool(entry.get("whole_nodes")),
    )


def _texts(value: Any, pointer: str) -> tuple[str, ...]:
    if value is None:
        return ()
    results = sequence(value, pointer, "a list of names")
    return tuple(text(name, step(pointer, place), "a name") for place, name in enumerate(results))


def _number(value: Any, pointer: str) -> int | None:
    """Read a limit of a size; a negative one is none (RFC 33)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphError(f"a limit of a size must be a whole number, got {value!r:.40}", pointer=pointer)
    return value if value >= 0 else None


def _seconds(value: Any, pointer: str) -> float | None:
    """Read a duration, None for no limit."""
    if value is None:
        return None
    result = seconds_of(value) if isinstance(value, str) else value
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not 0 <= result < math.inf:
        raise GraphError(f"a duration must be seconds or a text such as 1d, got {value!r:.40}", pointer=pointer)
    return float(result) or None


def _bytes(value: Any, pointer: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str) or (result := amount_of(value)) is None:
        raise GraphError(f"memory-per-node must be a size such as 400GiB, got {value!r:.40}", pointer=pointer)
    return result


def _licenses(value: Any, pointer: str) -> Mapping[str, License] | None:
    if value is None:
        return None
    result = {}
    for name, entry in mapping(value, pointer, "licenses").items():
        at = step(pointer, name)
        count, shared = (entry.get("count"), entry.get("shared", "")) if isinstance(entry, Mapping) else (entry, "")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise GraphError(f"the number of a license must be a whole number, got {count!r:.40}", pointer=at)
        result[str(name)] = License(count, str(shared))
    return result


def _qos(value: Any, pointer: str) -> Mapping[str, float | None] | None:
    if value is None:
        return None
    entries = mapping(value, pointer, "qos")
    limits = {name: _inside(entry, step(pointer, name), "limits") for name, entry in entries.items()}
    return {str(name): _seconds(one.get("duration"), step(pointer, name)) for name, one in limits.items()}
