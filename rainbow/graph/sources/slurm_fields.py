"""One record of Slurm, whichever command printed it, and how its fields are read.

Fields are called as in `scontrol show nodes --json`. Since 23.02 a number may be {"set", "infinite", "number"},
and what was a text with commas may be a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import LARGEST, step, text, whole

_NOTHING = ("", "(null)", "N/A", "n/a", "None")
_LONGEST_LIST = 2**16


@dataclass(frozen=True)
class Record:
    """The fields of a node, where they stand, and the host lists of the nodes they describe."""

    fields: Mapping[str, Any]
    pointer: str
    names: list[str]

    def at(self, key: str) -> str:
        """The pointer of a field."""
        return step(self.pointer, key)

    def number(self, key: str, least: int = 0) -> int | None:
        """Return a whole number, None where it is absent or not set."""
        value, at = self.fields.get(key), self.at(key)
        if isinstance(value, Mapping):
            if value.get("set") is False:
                return None
            if value.get("infinite") is True:
                raise GraphError(f"{key} must not be infinite", pointer=at)
            value, at = value.get("number"), step(at, "number")
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST)):
            value = int(value)
        return None if value is None or value in _NOTHING else whole(value, at, key, least)

    def words(self, key: str) -> list[str]:
        """Return a list of texts, or the parts of a text with commas."""
        value, at = self.fields.get(key), self.at(key)
        if value is None:
            return []
        if isinstance(value, str):
            value = text(value, at, key, _LONGEST_LIST).split(",")
        if not isinstance(value, list):
            raise GraphError(f"{key} must be a list or text", pointer=at)
        found = [text(word, step(at, place), key).strip() for place, word in enumerate(value)]
        return [word for word in found if word not in _NOTHING]

    def said(self, key: str) -> str:
        """Return a text, "" where there is none."""
        value = self.fields.get(key)
        said = text("" if value is None else value, self.at(key), key, _LONGEST_LIST).strip()
        return "" if said in _NOTHING else said
