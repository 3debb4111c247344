"""YAML (and JSON, which is YAML) → plain Python, with the line and column of every value.

Nothing of YAML that a jobspec has no use for gets in: no tags of one's own, no keys twice, no merge keys, no bombs of
aliases. A number that is not written as Python would write it remembers its text: version 1.10 is not 1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.json_text import is_json, join_pairs, number
from rainbow.jobspec.places import Path, Positions, place, step
from rainbow.jobspec.written import LONGEST_NUMBER, written

__all__ = ["Limits", "Positions", "load", "step"]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_NUMBERS = {"int", "float"}
_AS_WRITTEN = {"str", "timestamp", "merge", "value"}  # nothing in a jobspec is a date
_SCALARS = {"bool", "null", *_NUMBERS, *_AS_WRITTEN}


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a jobspec may be, aliases written out; `values` counts every scalar, list and mapping."""

    size: int = 1 << 20  # bytes of the text; characters of all its values together
    depth: int = 64
    values: int = 100_000
    key: int = 1_000  # characters: pointers repeat the keys on their way


def load(text: str | bytes, limits: Limits) -> tuple[Any, Positions]:
    """Read one YAML document; JobspecError or LimitError say where it goes wrong."""
    if len(text) > limits.size:
        raise LimitError(f"a jobspec of {len(text)} bytes, the limit is {limits.size}", limit="size")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        json = is_json(decoded)
        node = _composed(join_pairs(decoded) if json else decoded, limits)
    except (yaml.YAMLError, UnicodeError) as fault:
        raise _not_yaml(fault, text) from None
    if node is None:
        raise JobspecError("the jobspec is empty", pointer="", line=1, column=1)
    return _Building(limits, json).value(node, 0), Positions(node)


def _composed(text: str, limits: Limits) -> Any:
    _check_events(text, limits)
    return yaml.compose(text, Loader=_Loader)


def _not_yaml(fault: Exception, text: str | bytes) -> JobspecError:
    mark = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else _place_of(fault, text)
    said = getattr(fault, "problem", None) or getattr(fault, "context", None) or str(fault).splitlines()[0]
    return JobspecError(f"not YAML: {said}", pointer="", line=line, column=column)


def _place_of(fault: Any, text: str | bytes) -> tuple[int, int]:
    """Count the lines before a character that cannot be read: the faults of readers know its offset only."""
    offset = getattr(fault, "start", getattr(fault, "position", 0))
    before = text[:offset]
    lines = before.split(b"\n") if isinstance(before, bytes) else before.split("\n")
    return len(lines), len(lines[-1]) + 1


def _check_events(text: str, limits: Limits) -> None:
    """Count nesting and values on events, which need no stack, before anything recursive sees the text."""
    depth = count = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        count += isinstance(event, yaml.NodeEvent)
        if depth > limits.depth:
            raise LimitError(f"nested deeper than {limits.depth}", pointer="", **place(event), limit="depth")
        if count > 2 * limits.values:  # a mapping's keys are no values
            raise LimitError(f"more than {limits.values} values", pointer="", **place(event), limit="values")


class _Building:
    """Turns composed nodes into values; a shared node is walked again for every alias, and counted again."""

    def __init__(self, limits: Limits, json: bool) -> None:
        self.limits = limits
        self.json = json
        self.path = Path()
        self.values = 0
        self.size = 0
        self.scalars = yaml.constructor.SafeConstructor()

    def value(self, node: Any, depth: int) -> Any:
        self._count(node, depth)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_PREFIX}map":
            return self.mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_PREFIX}seq":
            return [self.below(k, item, depth) for k, item in enumerate(node.value)]
        raise self.fault(f"the tag {node.tag[:80]} is not read", node)

    def below(self, key: str | int, node: Any, depth: int) -> Any:
        with self.path.below(key):
            return self.value(node, depth + 1)

    def mapping(self, node: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key in found:
                with self.path.below(key):
                    raise self.fault(f"the key {key} stands twice", key_node)
            found[key] = self.below(key, value_node, depth)
        return found

    def key(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.removeprefix(_PREFIX) not in _SCALARS:
            raise self.fault("a key must be text", node)
        if node.tag == f"{_PREFIX}merge":
            raise self.fault("merge keys (<<) are not read: write the mapping out", node)
        if len(node.value) > self.limits.key:
            raise LimitError(
                f"a key of {len(node.value)} characters, the limit is {self.limits.key}",
                pointer=str(self.path),
                **place(node),
                limit="key",
            )
        key: str = node.value
        return key

    def scalar(self, node: Any) -> Any:
        kind = node.tag.removeprefix(_PREFIX)
        if kind not in _SCALARS:
            raise self.fault(f"the tag {node.tag[:80]} is not read", node)
        if kind in _AS_WRITTEN:
            found = number(node) if self.json else None
            return node.value if found is None else found
        if kind in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise self.fault(f"a number of {len(node.value)} characters is too long", node)
        try:
            return written(self.scalars.construct_object(node), node.value)
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
            raise self.fault(f"{node.value[:40]!r} is no {kind}", node) from None

    def _count(self, node: Any, depth: int) -> None:
        self.values += 1
        self.size += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        for limit, found in (("values", self.values), ("depth", depth), ("size", self.size)):
            most = getattr(self.limits, limit)
            if found > most:
                raise LimitError(
                    f"more than {most} ({limit}), aliases written out",
                    pointer=str(self.path),
                    **place(node),
                    limit=limit,
                )

    def fault(self, message: str, node: Any) -> JobspecError:
        return JobspecError(message, pointer=str(self.path), **place(node))
