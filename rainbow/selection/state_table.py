"""The states of many clusters by column: the next ones are made of the last by what differs.

    table    the states of all clusters, without the ages of their reports; whoever reads it changes nothing in it
    states   a table as it is at some time: what a selector is given, a mapping like any other

A column that was read once is kept, and patched with the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rainbow.lazy import cached_property
from rainbow.lru_cache import LruCache
from rainbow.selection.choice import MISSING, Scalar
from rainbow.selection.expression.columnar import Numbers, read_column
from rainbow.selection.named_rows import Names

AGE = "state.age"
MOST_COLUMNS = 64  # of a table, that are kept
Row = Mapping[str, Any]


class StateTable:
    """The states of clusters in order of name; `reported` are the times of their reports, NaN without one."""

    def __init__(self, names: Names, rows: list[Row], reported: NDArray[np.float64]) -> None:
        self.names = names
        self.rows = rows
        self.reported = reported
        self.keys: Counter[str] = Counter(key for row in rows for key in row)
        self._columns: LruCache[str, tuple[list[Any], Numbers]] = LruCache(MOST_COLUMNS)

    def with_rows(self, changes: Mapping[int, tuple[Row, float]]) -> StateTable:
        """Return a table with other states, and the times of their reports, at some places."""
        made = StateTable.__new__(StateTable)
        made.names, made.rows, made.reported = self.names, [*self.rows], self.reported.copy()
        made.keys = self.keys.copy()
        for at, (row, reported) in changes.items():
            made.keys.subtract(self.rows[at].keys())
            made.keys.update(row.keys())
            made.rows[at], made.reported[at] = row, reported
        made._columns = LruCache(MOST_COLUMNS)
        for name, column in self._columns.items():
            made._columns.put(
                name, _patched(column, {at: row.get(name, MISSING) for at, (row, _) in changes.items()})
            )
        return made

    def has(self, name: str) -> bool:
        """Return whether a cluster has a variable."""
        return self.keys[name] > 0

    def column(self, name: str) -> tuple[list[Any], Numbers]:
        """Return a variable of all clusters, MISSING where one has none: as it is, and as numbers."""
        return self._columns.get(name) or self._columns.put(name, self._read(name))

    def _read(self, name: str) -> tuple[list[Any], Numbers]:
        values = [row.get(name, MISSING) for row in self.rows]
        return values, read_column(values)


def _patched(column: tuple[list[Any], Numbers], changes: Mapping[int, Any]) -> tuple[list[Any], Numbers]:
    values, numbers = [*column[0]], column[1]
    places = [*changes]
    for at, value in changes.items():
        values[at] = value
    new = read_column([*changes.values()])
    made = Numbers(numbers.value.copy(), numbers.whole.copy(), numbers.doubt.copy())
    made.value[places], made.whole[places], made.doubt[places] = new.value, new.whole, new.doubt
    return values, made


class StatesAt(Mapping[str, Mapping[str, Scalar]]):
    """A table at some time."""

    def __init__(self, table: StateTable, at: float) -> None:
        self.table = table
        self.at = at

    def __getitem__(self, name: str) -> dict[str, Scalar]:
        """Return one cluster's variables, those of its own; what is done to them changes nothing here."""
        place = self.table.names.places[name]
        row, reported = self.table.rows[place], float(self.table.reported[place])
        return dict(row) if reported != reported else {**row, AGE: max(0.0, self.at - reported)}

    def __iter__(self) -> Iterator[str]:
        """Yield the clusters' names."""
        return iter(self.table.names.all)

    def __len__(self) -> int:
        """As many as there are clusters."""
        return len(self.table.names.all)


class Columns:
    """Some clusters of a table, in an order of theirs."""

    def __init__(self, states: StatesAt, names: tuple[str, ...]) -> None:
        table = states.table
        self._table, self._at = table, states.at
        self._places: NDArray[np.int64] | None = None
        self.names = table.names
        if names != table.names.all:
            self.names = Names(names)
            self._places = np.array(itemgetter(*names)(table.names.places), np.int64).reshape(-1)

    @cached_property
    def keys(self) -> set[str]:
        """The variables that at least one of them has."""
        if self._places is None:
            found = {key for key, times in self._table.keys.items() if times > 0}
        else:
            found = set().union(*map(self._table.rows.__getitem__, self._places.tolist()))
        return found | {AGE} if np.isfinite(self._reported).any() else found

    @property
    def _reported(self) -> NDArray[np.float64]:
        reported = self._table.reported
        return reported if self._places is None else reported[self._places]

    @cached_property
    def _ages(self) -> tuple[list[Any], Numbers]:
        age = np.maximum(0.0, self._at - self._reported)
        known = np.isfinite(age)
        values = age.tolist()
        for at in np.flatnonzero(~known).tolist():
            values[at] = MISSING
        return values, read_column(values)

    def column(self, name: str) -> tuple[Sequence[Any], Numbers]:
        """Return a variable, MISSING where a cluster has none: as it is, and as numbers."""
        if name == AGE:
            return self._ages
        values, numbers = self._table.column(name)
        if self._places is None:
            return values, numbers
        return [values[at] for at in self._places.tolist()], numbers.rows(self._places)
