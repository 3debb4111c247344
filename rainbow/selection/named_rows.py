"""What a step says of many clusters: rows of names, and what is worked out of them when somebody looks.

A decision among ten thousand clusters is made of columns; hardly anybody reads more than a few lines of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from rainbow.lazy import cached_property

Rows = NDArray[np.int64]


class Names:
    """Names of clusters in order, where each stands, and what is worked out of them once."""

    def __init__(self, names: Sequence[str]) -> None:
        self.all = tuple(names)

    @cached_property
    def places(self) -> dict[str, int]:
        """{name: row}."""
        return {name: row for row, name in enumerate(self.all)}

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """By row, eight bytes that stand for the name."""
        return digests_of(self.all)


def digests_of(names: Sequence[str]) -> NDArray[np.uint64]:
    """Return eight bytes of the digest of each name."""
    parts = (blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(parts), np.uint64)


class NamedRows(Sequence[str]):
    """The names of some rows, in their order."""

    __slots__ = ("_named", "names", "rows")

    def __init__(self, names: Names, rows: Rows) -> None:
        self.names = names
        self.rows = rows
        self._named: tuple[str, ...] | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """All of them."""
        if self._named is None:
            self._named = tuple(map(self.names.all.__getitem__, self.rows.tolist()))
        return self._named

    def among(self, wanted: Collection[str]) -> tuple[str, ...]:
        """Return those of these names that are there, in their order."""
        places = self.names.places
        rows = np.array([places[name] for name in wanted if name in places], np.int64)
        found = self.rows[np.isin(self.rows, rows)]
        return tuple(map(self.names.all.__getitem__, found.tolist()))

    def ranks(self, wanted: Collection[str]) -> dict[str, int]:
        """Return {name: its place, from 1} of those of these names that are there."""
        among, places = self.among(wanted), self.names.places
        return {name: int(np.flatnonzero(self.rows == places[name])[0]) + 1 for name in among}

    def digests(self) -> bytes:
        """Return bytes that stand for the names in their order."""
        return self.names.digests[self.rows].tobytes()

    def __len__(self) -> int:
        """As many as there are rows."""
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        """Return a name, or some."""
        return self.named[at]

    def __contains__(self, name: object) -> bool:
        """Return whether a name is among them."""
        return name in self.names.places and bool((self.rows == self.names.places[str(name)]).any())

    def __eq__(self, other: object) -> bool:
        """Sequences of the same names are equal."""
        return isinstance(other, Sequence) and self.named == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        """Show the names."""
        return repr(self.named)


class ByRow(Mapping[str, Any]):
    """What is said of the clusters of some rows, by name; `of` says it of the n-th of them."""

    __slots__ = ("_known", "_of", "names", "rows")

    def __init__(self, names: Names, rows: Rows, of: Callable[[int], Any]) -> None:
        self.names = names
        self.rows = rows
        self._of = of
        self._known: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        """Return what is said of one."""
        if self._known is not None:
            return self._known[name]
        at = np.flatnonzero(self.rows == self.names.places[name])
        if not len(at):
            raise KeyError(name)
        return self._of(int(at[0]))

    def listed(self) -> list[Any]:
        """Return what is said of each, in the order of the rows."""
        return list(map(self._of, range(len(self.rows))))

    def _all(self) -> dict[str, Any]:
        if self._known is None:
            named = map(self.names.all.__getitem__, self.rows.tolist())
            self._known = dict(zip(named, self.listed(), strict=True))
        return self._known

    def digests(self) -> bytes:
        """Return bytes that stand for the names in their order."""
        return self.names.digests[self.rows].tobytes()

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._all())

    def __len__(self) -> int:
        """As many as there are rows."""
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        """Mappings that say the same are equal."""
        return isinstance(other, Mapping) and self._all() == dict(other)

    __hash__ = None  # type: ignore[assignment]  # like a dictionary

    def __repr__(self) -> str:
        """Show all of it."""
        return repr(self._all())
