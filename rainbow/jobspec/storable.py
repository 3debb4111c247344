"""Values of a jobspec that a store can keep without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.yaml_reader import TOO_MUCH, Limits, Path, WrittenFloat, WrittenInt


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(tag: str) -> Any:
    return lambda dumper, number: dumper.represent_scalar(f"tag:yaml.org,2002:{tag}", str(number))


_Dumper.add_representer(WrittenInt, _represent("int"))
_Dumper.add_representer(WrittenFloat, _represent("float"))
_COMPACT: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": 1 << 20}


def keeping(document: Any) -> Any:
    """Return a document as it is, or as YAML where its numbers have texts of their own, which JSON would drop.

    >>> from rainbow.jobspec.yaml_reader import load
    >>> keeping({"a": 1.1}), keeping(load("a: 1.10", Limits())[0])
    ({'a': 1.1}, '{a: 1.10}\\n')
    """
    if not _has_texts(document):
        return document
    text: str = yaml.dump(document, Dumper=_Dumper, **_COMPACT)
    return text if len(text) <= Limits().size else document  # what is kept must be read again


def _has_texts(document: Any) -> bool:
    stack = [document]
    while stack:
        part = stack.pop()
        if isinstance(part, (WrittenInt, WrittenFloat)):
            return True
        stack.extend(part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ())
    return False


_BITS = 64


def _plain_copy(document: Any, limits: Limits) -> Any:
    """Copy a small document of plain values at once; None: it needs a closer look."""
    left = [min(limits.values, MOST_PLAIN)]

    def copy(part: Any, depth: int) -> Any:
        left[0] -= 1
        kind = type(part)
        if left[0] < 0 or depth < 0:
            raise ValueError(part)
        if kind is dict:
            return {key: copy(value, depth - 1) for key, value in part.items() if is_text(key)}
        if kind is list:
            return [copy(value, depth - 1) for value in part]
        if kind in _PLAIN or (kind is int and -_SMALL < part < _SMALL) or (kind is str and is_text(part)):
            return part
        raise ValueError(part)

    def is_text(text: Any) -> bool:
        if type(text) is str and len(text) <= most and text.isascii() and "\0" not in text:
            return True
        raise ValueError(text)

    most = min(limits.key, limits.size // MOST_PLAIN)
    try:
        return copy(document, min(limits.depth, MOST_DEPTH))
    except ValueError:
        return None


MOST_PLAIN, MOST_DEPTH, _SMALL = 1_000, 30, 1 << 63  # values and levels that are copied without a closer look
_PLAIN = {bool, type(None)}


class _Copying:
    """Copies a document value by value; a fault says where."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.path = Path()
        self.values = 0
        self.size = 0

    def copy(self, part: Any, depth: int) -> Any:
        self._count(part, depth)
        if isinstance(part, Mapping):
            return {self._key(key): self._below(key, item, depth) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            return [self._below(k, item, depth) for k, item in enumerate(part)]
        return self._scalar(part)

    def _below(self, key: str | int, part: Any, depth: int) -> Any:
        with self.path.below(key):
            return self.copy(part, depth + 1)

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise self._fault("a key must be text")
        if len(key) > self.limits.key:
            raise self._limit(f"a key of {len(key)} characters, the limit is {self.limits.key}", "key")
        return self._text(key)

    def _scalar(self, part: Any) -> Any:
        if isinstance(part, str):
            return self._text(part)
        if part is None or isinstance(part, bool):
            return part
        if isinstance(part, int):
            if part.bit_length() > _BITS:
                raise self._fault(f"a whole number of more than {_BITS} bits")
            return part
        if isinstance(part, float):
            if not math.isfinite(part):
                raise self._fault("a number must be finite")
            return part
        raise self._fault(f"{type(part).__name__} is nothing a jobspec can hold")

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise self._fault("text cannot hold a NUL character")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise self._fault("text cannot hold half a surrogate pair")
        return text

    def _count(self, part: Any, depth: int) -> None:
        self.values += 1
        self.size += len(part) if isinstance(part, str) else 0
        for limit, found in (("values", self.values), ("depth", depth), ("size", self.size)):
            most = getattr(self.limits, limit)
            if found > most:
                raise self._limit(f"{TOO_MUCH[limit]}; the limit is {most:,}", limit)

    def _fault(self, message: str) -> JobspecError:
        return JobspecError(message, pointer=str(self.path))

    def _limit(self, message: str, limit: str) -> LimitError:
        return LimitError(message, pointer=str(self.path), limit=limit)


def sound(document: Any, limits: Limits) -> Any:
    """Copy a document, refusing what no jobspec can hold; what is given as Python is held to the limits of text."""
    if (found := _plain_copy(document, limits)) is not None:
        return found
    return _Copying(limits).copy(document, 0)
