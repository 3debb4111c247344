"""Variables that expressions can read, as one column per name over the candidates.

computed      by a calc of this priority
    matched.*     what matching found: nodes, cores, gpus, memory, fits, switches
    state         the cluster's own, with state.age and queue.* among it
    parameter     the job's, the same for every cluster

In that order a name is looked up, and a name belongs to the state as soon as one candidate's state has it:
a job cannot fill in, let alone lower, what clusters say of themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rainbow.cache import LruCache, cached_property
from rainbow.matching import amounts_on, names_of
from rainbow.selection.choice import MISSING, Names, Scalar, names_in_rows
from rainbow.selection.expression.columnar import Column, Numbers, Truths, evaluate_columns, read_column, scalars
from rainbow.selection.expression.compiler import Expression, Fault, evaluate_with
from rainbow.selection.expression.scalar import Unknown, admit

if TYPE_CHECKING:
    from rainbow.matching import Verdict


MATCHED = ("nodes", "cores", "gpus", "memory", "fits", "switches")
SWITCHES = "matched.switches"
SAME = {"node_memory_gb": "memory_per_node", "memory_per_node": "node_memory_gb"}  # two names of one variable
FORECAST = {
    "eta.known": "whether the cluster has a forecast that says so, for all that the job asks",
    "eta.wait": "seconds until the job would start",
    "eta.start": "when it would start",
    "eta.finish": "when it would end",
    "eta.total": "seconds until it would end",
    "eta.low": "when it would end: 80 % likely between this",
    "eta.high": "and this",
    "eta.length": "seconds it would run",
    "eta.age": "seconds since the forecast",
}
MODEL = {
    "model.runtime": "seconds it would run, by the line that runs like it have taught",
    "model.low": "80 % likely between this",
    "model.high": "and this",
    "model.seconds_per_gb": "the slope of that line",
    "model.n": "runs that it was learned from",
    "model.why": "why there is none",
}
NO_MODEL = "model.why"
OWN_SLOPE = "seconds_per_gb"  # of the job; where it gives none, a model's
ACCOUNT = ("account.factor", "account.used", "account.left")
MORE = (SWITCHES, *FORECAST, *ACCOUNT, *MODEL)  # what clusters do not say of themselves
OURS = ("matched.", "queue.", "state.", "eta.", "account.", "model.")  # what no job may set
_NOTHING: Mapping[str, Scalar] = {}
FEW_CLUSTERS = 24  # up to here single evaluation is faster than columns

Values = Sequence[Any]
Rows = Sequence[int] | NDArray[np.int64]


class Variables:
    """The variables of one decision. Rows are candidates in order of name; nothing given to it is changed."""

    def __init__(
        self,
        candidates: Sequence[Verdict],
        states: Mapping[str, Mapping[str, Scalar]],
        parameters: Mapping[str, Any],
        elsewhere: Collection[str] = (),
    ) -> None:
        self.names = names_of(candidates)
        self.warnings: list[str] = []
        self._candidates = candidates
        self._given_states = states
        many = isinstance(states, StatesAt) and len(self.names) > FEW_CLUSTERS
        self._table = Columns(states, self.names) if isinstance(states, StatesAt) and many else None
        self.rows = self._table.names if self._table else names_in_rows(tuple(self.names))
        self._elsewhere = elsewhere  # stated by clusters that are no candidates here
        here = self._table.keys if self._table else set[str]().union(*self._states)
        self._stated: set[str] = here.union(elsewhere)
        self._parameters = self._admitted(parameters)
        self._given: dict[str, Values] = {}
        self._columns: dict[str, Numbers] = {}
        self._computed: dict[str, Values] = {}
        self._known: dict[str, bool] = {}

    @cached_property
    def _states(self) -> list[Mapping[str, Scalar]]:
        return list(map(self._given_states.get, self.names, repeat(_NOTHING)))

    # ── what a priority computes ────────────────────────────────────────────────────────────────────────────

    def forget(self) -> None:
        """Begin a priority: nothing is computed yet."""
        for name in self._computed:
            self._outdate(name)
        self._computed = {}

    def compute(self, name: str, values: Mapping[int, Scalar]) -> None:
        """Add a computed variable, known in these rows; in none, if it had to be skipped."""
        self._computed[name] = list(map(values.get, range(len(self.names)), repeat(MISSING)))
        self._outdate(name)

    def compute_column(self, name: str, rows: Rows, column: Column) -> None:
        """Add a computed variable that is known in these rows."""
        values: list[Any] = scalars(column)
        if len(rows) < len(self.names):
            whole = np.full(len(self.names), MISSING, object)
            whole[np.asarray(rows)] = np.array(values, object)
            values = whole.tolist()
        self._computed[name] = values
        self._outdate(name)

    def _outdate(self, name: str) -> None:
        self._columns.pop(name, None)
        self._known.pop(name, None)

    # ── what is known ───────────────────────────────────────────────────────────────────────────────────────

    def known(self, name: str) -> bool:
        """Return whether the job or any candidate gives this variable."""
        if name not in self._known:
            values = self.values(name)
            elsewhere = name not in self._computed and (name in self._elsewhere or SAME.get(name) in self._elsewhere)
            self._known[name] = elsewhere or any(value is not MISSING for value in values)
        return self._known[name]

    def stated(self, name: str) -> bool:
        """Return whether the variable is the clusters' own: at least one candidate's state has it."""
        return name in self._stated or SAME.get(name) in self._stated

    def skipped(self, name: str) -> bool:
        """Return whether a calc of this priority was to compute it and could not, being uninformed."""
        return name in self._computed and not self.known(name)

    def values(self, name: str) -> Values:
        """Return the variable for every row, MISSING where it is not known."""
        if name in self._computed:
            return self._computed[name]
        if name not in self._given:
            self._given[name] = self._look_up(name)
        return self._given[name]

    def known_names(self) -> list[str]:
        """Return every name that can be read, sorted."""
        return sorted(
            {*map(str, self._stated), *self._parameters, *self._computed, *(f"matched.{name}" for name in MATCHED)}
        )

    def _look_up(self, name: str) -> Values:
        if name.startswith("matched."):
            return self._matched(name.removeprefix("matched."))
        if not self.stated(name):
            return [self._parameter(name)] * len(self.names)
        if self._table is not None and SAME.get(name) not in self._stated:
            return self._table.column(name)[0]
        if SAME.get(name) in self._stated:
            return [_first(state, name) for state in self._states]
        try:
            return list(map(itemgetter(name), self._states))  # three times as fast, where everybody has it
        except KeyError:
            return [state.get(name, MISSING) for state in self._states]

    def _parameter(self, name: str) -> Any:
        return MISSING if name in self._computed else _first(self._parameters, name)

    def _matched(self, name: str) -> Values:
        if name == "switches":
            return list(map(switches_of, self._candidates, self._states))
        missing = 0 if name in MATCHED else MISSING
        return [missing if value is None else value for value in matched_values(self._candidates, name)]

    def _admitted(self, parameters: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return the parameters the job may set, with a warning for every other."""
        admitted: dict[str, Scalar] = {}
        for name, value in sorted(parameters.items(), key=lambda item: str(item[0])):
            if not isinstance(name, str) or not isinstance(value, int | float | str):
                self.warnings.append(f"ignored job parameter {name}: not a number, text or boolean")
            elif name.startswith(OURS):
                self.warnings.append(f"ignored job parameter {name}: jobs cannot set this variable")
            elif self.stated(name):
                self.warnings.append(f"ignored job parameter {name}: the cluster's own value takes precedence")
            else:
                admitted[name] = value
        return admitted

    # ── evaluation ──────────────────────────────────────────────────────────────────────────────────────────

    def column_of(self, expression: Expression, rows: Rows) -> Column | None:
        """Return the value in each of these rows as one column; None if they are few or not all are plain."""
        if len(rows) <= FEW_CLUSTERS:
            return None
        if self._computed.get(expression.text) is not None:
            result: Any = self._column(rows)(expression.text)
            return result if isinstance(result, Numbers | Truths) and not result.doubt.any() else None
        whole = evaluate_columns(expression, self._column(rows), len(rows))
        return None if whole is None or whole[1] else whole[0]

    def evaluate(self, expression: Expression, rows: Sequence[int]) -> tuple[dict[int, Scalar], dict[int, Fault]]:
        """Return the value in these rows, and why there is none in the others."""
        values: dict[int, Scalar] = {}
        alone = rows
        if (computed := self._computed.get(expression.text)) is not None:  # by a calc, nothing to evaluate
            values = dict(zip(rows, map(computed.__getitem__, rows), strict=True))
            alone = [row for row in rows if values[row] is MISSING] if MISSING in computed else ()
        elif len(rows) > FEW_CLUSTERS and (results := evaluate_columns(expression, self._column(rows), len(rows))):
            values = dict(zip(rows, scalars(results[0]), strict=True))
            alone = [rows[at] for at in results[1]]
        faults: dict[int, Fault] = {}
        for row in alone:
            value = evaluate_with(expression, self._get(row))
            if isinstance(value, Fault):
                faults[row] = self._explain(value)
                values.pop(row, None)
            else:
                values[row] = value
        return values, faults

    def _get(self, row: int) -> Callable[[str], Scalar]:
        def get(name: str) -> Scalar:
            value = self.values(name)[row]
            if value is MISSING:
                raise Unknown(name)
            return admit(name, value)

        return get

    def _column(self, rows: Rows) -> Callable[[str], Any]:
        every = isinstance(rows, range) and rows == range(len(self.names))

        def column(name: str) -> Any:
            if (value := self._parameter(name)) is not MISSING:
                return value  # the same in every row
            if name not in self._columns:
                self._columns[name] = self._numbers(name)
            return self._columns[name] if every else self._columns[name].rows(rows)

        return column

    def _numbers(self, name: str) -> Numbers:
        own = name not in self._computed and not name.startswith(OURS[0]) and self.stated(name)
        if self._table is not None and own and SAME.get(name) not in self._stated:
            return self._table.column(name)[1]
        return read_column(self.values(name))

    def _explain(self, fault: Fault) -> Fault:
        if not fault.name or self.known(fault.name):
            return fault
        return Fault(f"{fault.name} is given neither by the job nor by any cluster", fault.name)


# ── states of many clusters by column: the next ones are made of the last by what differs ──
#
# A table has the states of all clusters, without the ages of their reports; nobody changes anything in it. StatesAt
# is a table at some time: what a selector is given, a mapping like any other. A column that was read once is kept.

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

    def all_of(self, names: Iterable[str]) -> dict[str, dict[str, Scalar]]:
        """Return the variables of many, by name."""
        every, rows = [*names], self.table.rows
        places = [*map(self.table.names.places.__getitem__, every)]
        result = {name: dict(rows[at]) for name, at in zip(every, places, strict=True)}
        ages = np.maximum(0.0, self.at - self.table.reported[places])
        for k in np.flatnonzero(~np.isnan(ages)).tolist():
            result[every[k]][AGE] = float(ages[k])
        return result

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
            self.names = names_in_rows(names)
            self._places = np.array(itemgetter(*names)(table.names.places), np.int64).reshape(-1)

    @cached_property
    def keys(self) -> set[str]:
        """The variables that at least one of them has."""
        if self._places is None:
            results = {key for key, times in self._table.keys.items() if times > 0}
        else:
            results = set().union(*map(self._table.rows.__getitem__, self._places.tolist()))
        return results | {AGE} if np.isfinite(self._reported).any() else results

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


def matched_values(candidates: Sequence[Verdict], name: str) -> list[int | None]:
    """Return what matching found of the candidates, None where nothing: `fits`, or an amount that one copy takes."""
    if name == "fits":
        return [candidate.fits for candidate in candidates]
    return amounts_on(candidates, name)


def switches_of(candidate: Verdict, state: Mapping[str, Any]) -> Any:
    """Return how many switches a job would be below, MISSING if unknown; recorded candidates have it in the state."""
    if not candidate.has_graph:
        return state.get(SWITCHES, MISSING)
    return MISSING if candidate.switches is None else candidate.switches


def _first(values: Mapping[str, Any], name: str) -> Any:
    """Return the variable under its own name, else under its other one."""
    value = values.get(name, MISSING)
    return values.get(SAME.get(name, name), MISSING) if value is MISSING else value
