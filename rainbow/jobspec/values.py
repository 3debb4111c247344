"""What a jobspec can hold: text a store and a program can hold, and numbers every reader of JSON can."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.places import Path
from rainbow.jobspec.text import Limits

_BITS = 64


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
                raise self._limit(f"more than {most} ({limit})", limit)

    def _fault(self, message: str) -> JobspecError:
        return JobspecError(message, pointer=str(self.path))

    def _limit(self, message: str, limit: str) -> LimitError:
        return LimitError(message, pointer=str(self.path), limit=limit)


def sound(document: Any, limits: Limits) -> Any:
    """Copy a document, refusing what no jobspec can hold; what is given as Python is held to the limits of text."""
    return _Copying(limits).copy(document, 0)
