"""How much is in one vertex, as the facts of `at_least` ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def threads_of(metadata: Mapping[str, Any]) -> int:
    """Return how many hardware threads a core has, by the metadata of its node.

    >>> threads_of({"threads": 2}), threads_of({"threads": "many"})
    (2, 1)
    """
    result = metadata.get("threads")
    return result if isinstance(result, int) and result > 0 else 1


class Amounts:
    """How much is in one vertex: `core` units of a type, `socket/core` in the largest of a type, `threads`, `cpu`."""

    @property
    def threads(self) -> int:
        """The threads of a core."""
        raise NotImplementedError

    def total(self, type_: str) -> int:
        """Return the amount of a type."""
        raise NotImplementedError

    def largest(self, of: str, type_: str) -> int:
        """Return the most of a type in one vertex of another."""
        raise NotImplementedError

    def has(self, fact: str, least: int) -> bool:
        """Return whether there is as much as a fact of `at_least` says."""
        if fact == "threads":
            return self.threads >= least
        if fact == "cpu":
            return self.total("core") * self.threads >= least
        of, slash, type_ = fact.partition("/")
        if not slash:
            return self.total(of) >= least
        if type_ == "cpu":  # as much of the first for each cpu
            return self.total(of) >= least * self.total("core") * self.threads
        return self.largest(of, type_) >= least
