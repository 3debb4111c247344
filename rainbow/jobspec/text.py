"""YAML (and JSON, which is YAML) → plain Python, with the line and column of every value.

Nothing of YAML that a jobspec has no use for gets in: no tags of one's own, no keys twice, no bombs of aliases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from rainbow.errors import JobspecError, LimitError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_AS_WRITTEN = {"timestamp", "merge", "value"}  # nothing in a jobspec is a date

Positions = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a jobspec may be; `values` counts every scalar, list and mapping, aliases written out."""

    size: int = 1 << 20  # bytes
    depth: int = 64
    values: int = 100_000


def load(text: str | bytes, limits: Limits) -> tuple[Any, Positions]:
    """Read one YAML document; JobspecError or LimitError say where it goes wrong."""
    if len(text) > limits.size:
        raise LimitError(f"a jobspec of {len(text)} bytes, the limit is {limits.size}", limit="size")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        _check_depth(decoded, limits)
        node = yaml.compose(decoded, Loader=_Loader)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise JobspecError(
            f"not YAML: {fault.problem or fault.context}", pointer="", line=line, column=column
        ) from None
    except (yaml.YAMLError, UnicodeError) as fault:
        raise JobspecError(f"not YAML: {str(fault).splitlines()[0]}", pointer="", line=1, column=1) from None
    if node is None:
        raise JobspecError("the jobspec is empty", pointer="", line=1, column=1)
    building = _Building(limits)
    return building.value(node, "", 0), building.positions


def _check_depth(text: str, limits: Limits) -> None:
    """Count nesting on events, which need no stack, before anything recursive sees the text."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > limits.depth:
            raise LimitError(f"nested deeper than {limits.depth}", pointer="", **_place(event), limit="depth")


def _place(part: Any) -> dict[str, int]:
    return {"line": part.start_mark.line + 1, "column": part.start_mark.column + 1}


class _Building:
    """Turns composed nodes into values; a shared node is walked again for every alias, and counted again."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.positions: Positions = {}
        self.values = 0
        self.scalars = yaml.constructor.SafeConstructor()

    def value(self, node: Any, pointer: str, depth: int) -> Any:
        self.values += 1
        if self.values > self.limits.values or depth > self.limits.depth:
            raise LimitError(f"more than {self.limits.values} values or {self.limits.depth} levels", limit="values")
        place = _place(node)
        self.positions.setdefault(pointer, (place["line"], place["column"]))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, pointer)
        if node.tag not in (f"{_PREFIX}map", f"{_PREFIX}seq"):
            raise JobspecError(f"the tag {node.tag} is not read", pointer=pointer, **place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{pointer}/{k}", depth + 1) for k, item in enumerate(node.value)]
        return self.mapping(node, pointer, depth)

    def mapping(self, node: Any, pointer: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise JobspecError("a key must be text", pointer=pointer, **_place(key_node))
            if key in found:
                raise JobspecError(
                    f"the key {key} stands twice", pointer=f"{pointer}/{step(key)}", **_place(key_node)
                )
            found[key] = self.value(value_node, f"{pointer}/{step(key)}", depth + 1)
        return found

    def scalar(self, node: Any, pointer: str) -> Any:
        kind = node.tag.removeprefix(_PREFIX)
        if kind not in _SCALARS:
            raise JobspecError(f"the tag {node.tag} is not read", pointer=pointer, **_place(node))
        if kind in _AS_WRITTEN:
            return node.value
        try:
            return self.scalars.construct_object(node)
        except (ValueError, KeyError, yaml.YAMLError):
            raise JobspecError(f"{node.value[:40]!r} is no {kind}", pointer=pointer, **_place(node)) from None


def step(key: object) -> str:
    """Write one step of a JSON Pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def plain(value: Any, limits: Limits) -> Any:
    """Copy a mapping given as Python, held to the same limits as text."""
    count = 0

    def copy(part: Any, pointer: str, depth: int) -> Any:
        nonlocal count
        count += 1
        if count > limits.values or depth > limits.depth:
            raise LimitError(
                f"more than {limits.values} values or {limits.depth} levels", pointer=pointer, limit="values"
            )
        if isinstance(part, Mapping):
            if not all(isinstance(key, str) for key in part):
                raise JobspecError("a key must be text", pointer=pointer)
            return {key: copy(item, f"{pointer}/{step(key)}", depth + 1) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            return [copy(item, f"{pointer}/{k}", depth + 1) for k, item in enumerate(part)]
        if part is None or isinstance(part, (str, int, float, bool)):
            return part
        raise JobspecError(f"{type(part).__name__} is nothing a jobspec can hold", pointer=pointer)

    return copy(value, "", 0)
