"""YAML and JSON → plain values, with the line and column of each, and JSON Pointers.

Refused are YAML's features that a jobspec does not need: tags, duplicate keys, merge keys, and aliases that expand
without limit. A number that is not written as Python would write it remembers its text: version 1.10 is not 1.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import yaml

from rainbow.errors import JobspecError, LimitError

_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def is_json(text: str) -> bool:
    """Return whether a text is a JSON object; what json cannot read for depth or size is left to YAML's limits."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def join_pairs(text: str) -> str:
    r"""Write a character for each pair of escapes, which YAML takes for two broken ones.

    >>> join_pairs(r'["\\ud83d\\ude00", "\ud83d\ude00"]')
    '["\\\\ud83d\\\\ude00", "😀"]'
    """
    return _PAIR.sub(lambda pair: pair[1] + _character(pair[2], pair[3]), text)


def _character(high: str, low: str) -> str:
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)


def number(node: Any) -> float | None:
    """Read a word without quotes: in JSON it is a number, where YAML 1.1 sees text in 1e-05."""
    return None if node.style in ("'", '"') else float(node.value)


def step(key: object) -> str:
    """Write one step of a JSON Pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def place(part: Any) -> dict[str, int]:
    """Return line and column (from 1) of a node or an event of YAML."""
    return {"line": part.start_mark.line + 1, "column": part.start_mark.column + 1}


class Path:
    """The way from the top to where a reader is. A pointer is written only for a fault: most values have none."""

    def __init__(self) -> None:
        self.steps: list[str | int] = []

    @contextmanager
    def below(self, key: str | int) -> Iterator[None]:
        """Be one step deeper, also while a fault is made there."""
        self.steps.append(key)
        yield
        self.steps.pop()

    def __str__(self) -> str:
        return "".join(f"/{step(key)}" for key in self.steps)


class Positions:
    """The places of all values of one document; without a document it knows none.

    They are worked out when one is asked for: most documents have no fault.
    """

    def __init__(self, compose: Callable[[], Any] = lambda: None) -> None:
        self._compose = compose

    def nearest(self, pointer: str) -> tuple[int, int] | None:
        """Return line and column of what a pointer leads to, or of the nearest thing above it."""
        node = self._compose()
        if node is None:
            return None
        for key in pointer.split("/")[1:]:
            inner = _inner(node, key)
            if inner is None:
                break
            node = inner
        results = place(node)
        return results["line"], results["column"]


def _inner(node: Any, key: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if step(name.value) == key), None)
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and len(key) < 10:
        return node.value[int(key)] if int(key) < len(node.value) else None
    return None


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
    values: int = 30_000  # read in a second at most, whatever they are
    key: int = 1_000  # characters: pointers repeat the keys on their way


TOO_MUCH = {"size": "the texts are too long", "depth": "nested too deep", "values": "too many values"}


def load(text: str | bytes, limits: Limits) -> tuple[Any, Positions]:
    """Read one YAML document; JobspecError or LimitError say where it goes wrong."""
    if len(text) > limits.size:
        raise LimitError(f"document is {len(text)} bytes; the limit is {limits.size} bytes", limit="size")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        if _is_small(decoded, limits, "[{") and (result := _plain_json(decoded)) is not None:
            return result, Positions(lambda: _composed(join_pairs(decoded), limits))
        json = is_json(decoded)
        node = _composed(join_pairs(decoded) if json else decoded, limits)
    except (yaml.YAMLError, UnicodeError) as fault:
        raise _not_yaml(fault, text) from None
    if node is None:
        raise JobspecError("the document is empty", pointer="", line=1, column=1)
    return _Building(limits, json).value(node, 0), Positions(lambda: node)


def _is_small(text: str, limits: Limits, signs: str = "[{:-?") -> bool:
    """Return whether a text cannot pass the limits: nothing is nested without a sign, and no value is empty."""
    return sum(map(text.count, signs)) <= limits.depth and len(text) <= limits.values


class _Doubt(ValueError):
    """What reads YAML has to look at a text."""


def _plain_json(text: str) -> Any:
    """Read a JSON object about which YAML says the same, ten times as fast; None: YAML has to say what it is."""
    if not text.lstrip().startswith("{") or not text.isascii() or "\x7f" in text or "\\ud" in text.lower():
        return None
    try:
        return json.loads(text, parse_int=_plain, parse_float=_plain, parse_constant=_plain, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return None


def _plain(text: str) -> Any:
    """Read a number without an exponent: YAML 1.1 reads some of those as text."""
    if len(text) > LONGEST_NUMBER or not text.lstrip("-").replace(".", "").isdecimal():
        raise _Doubt
    return written(float(text) if "." in text else int(text), text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _Doubt  # a key comes twice
    return result


def _composed(text: str, limits: Limits) -> Any:
    if not _is_small(text, limits):
        try:
            _check_events(text, limits)
        except yaml.MarkedYAMLError as fault:
            _check_before(fault, text, limits)
            raise
    return yaml.compose(text, Loader=_Loader)


def _check_before(fault: yaml.MarkedYAMLError, text: str, limits: Limits) -> None:
    """Check what is before a fault: libyaml looks ahead, and ends at a depth of its own."""
    if fault.problem_mark:
        with suppress(yaml.YAMLError):
            _check_events(text[: fault.problem_mark.index], limits)


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
        self.path.steps.append(key)  # a fault leaves it as it is
        result = self.value(node, depth + 1)
        self.path.steps.pop()
        return result

    def mapping(self, node: Any, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key in result:
                with self.path.below(key):
                    raise self.fault(f"duplicate key {key}", key_node)
            result[key] = self.below(key, value_node, depth)
        return result

    def key(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.removeprefix(_PREFIX) not in _SCALARS:
            raise self.fault("a key must be text", node)
        if node.tag == f"{_PREFIX}merge":
            raise self.fault("YAML merge keys (<<) are not supported: write the mapping out", node)
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
            result = number(node) if self.json else None
            return node.value if result is None else result
        if kind in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise self.fault(f"a number of {len(node.value)} characters is too long", node)
        try:
            return written(self.scalars.construct_object(node), node.value)
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
            raise self.fault(f"{node.value[:40]!r} is no {kind}", node) from None

    def _count(self, node: Any, depth: int) -> None:
        self.values += 1
        self.size += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        for limit, result in (("values", self.values), ("depth", depth), ("size", self.size)):
            most = getattr(self.limits, limit)
            if result > most:
                raise LimitError(
                    f"{TOO_MUCH[limit]}, with aliases written out; the limit is {most:,}",
                    pointer=str(self.path),
                    **place(node),
                    limit=limit,
                )

    def fault(self, message: str, node: Any) -> JobspecError:
        return JobspecError(message, pointer=str(self.path), **place(node))


LONGEST_NUMBER = 100  # characters; reading a longer one takes time that grows with its square


class _Written:
    """What both kinds share; stands before int or float among the bases."""

    text: str

    def __new__(cls, value: Any, text: str = "") -> Self:
        """Make the number; without a text only to be copied, as its text follows."""
        made = super().__new__(cls, value)  # type: ignore[call-arg]  # int and float take it
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text


class WrittenInt(_Written, int):
    """A whole number whose text is its own: 0x10, 1_000, 010."""


class WrittenFloat(_Written, float):
    """A number whose text is its own: 1.10, 3600."""


def written(value: Any, text: str) -> Any:
    """Give a number its text, where Python would write it otherwise.

    >>> f"{written(1.1, '1.10')} {written(1.5, '1.5')}", written(1.1, "1.10") == 1.1, type(written(8, "8"))
    ('1.10 1.5', True, <class 'int'>)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or str(value) == text:
        return value
    return WrittenInt(value, text) if isinstance(value, int) else WrittenFloat(value, text)


def as_number(value: Any) -> Any:
    """Return a number without its text, for what computes with it; anything else as it is.

    >>> type(as_number(written(1.1, "1.10"))), as_number("1.10")
    (<class 'float'>, '1.10')
    """
    if isinstance(value, WrittenInt):
        return int(value)
    return float(value) if isinstance(value, WrittenFloat) else value


def as_text(value: Any) -> Any:
    """Return what a field is compared with: fractions and numbers in a form of their own as they are written.

    >>> as_text(written(1.1, "1.10")), as_text(0.5), as_text(7), as_text(True)
    ('1.10', '0.5', 7, True)
    """
    return str(value) if isinstance(value, (float, WrittenInt)) else value
