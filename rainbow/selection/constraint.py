"""The plug-in `constraint`: priorities of steps that filter, compute, sort and select.

candidates ── booking, stale_after ──► priority 1: filter ► calc ► sort ► select ──► a cluster
                                                │ nobody left
                                                ▼
                                           priority 2: ... ──► a cluster, or none

Every priority starts again with all candidates that may be booked. A step is a function from the rows still
in (candidates by number, in order of name) to those left, with the Step that tells what it did.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rainbow.errors import SelectionError
from rainbow.selection.choice import MISSING, ByRow, Choice, NamedRows, Scalar, Step, is_number
from rainbow.selection.expression.columnar import Column, Numbers, Truths, scalars
from rainbow.selection.expression.compiler import Expression, compile_expression
from rainbow.selection.expression.scalar import NoValueError, describe, shown, truth
from rainbow.selection.options import (
    Instruction,
    Priority,
    Settings,
    advise,
    check_work,
    nearest,
    read_options,
    variables_read,
)
from rainbow.selection.variables import MODEL, NO_MODEL, OWN_SLOPE, Variables
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.matching import Verdict


NAME = "constraint"
BOOKING = compile_expression("nodes_free >= matched.nodes")
_AGE = compile_expression("state.age")
_IMPLIED = Instruction("select", "first")

Rows = Sequence[int] | NDArray[np.int64]  # a range as long as nobody is dropped and nothing sorted


class ConstraintSelector:
    """Tries priorities in ascending order; the first whose steps leave a cluster decides."""

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return warnings about the options; SelectionError names priority, step and column of a fault."""
        return advise(read_options(options), options)

    def reads(self, options: Mapping[str, Any]) -> Collection[str]:
        """Name every variable a decision with these options may read."""
        return variables_read(read_options(options))

    def select(
        self,
        candidates: Sequence[Verdict],
        states: Mapping[str, Mapping[str, Scalar]],
        parameters: Mapping[str, Any],
        options: Mapping[str, Any],
        rng: random.Random,
    ) -> Choice:
        """Choose one of the candidates, or none with every step that dropped one."""
        settings = read_options(options)
        check_work(settings, len(candidates))
        return _Decision(Variables(candidates, states, parameters, settings.stated), settings, rng).decide()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a step did, by row."""

    rows: Rows
    values: Mapping[int, Scalar] | ByRow
    dropped: Mapping[int, str] | ByRow
    note: str = ""
    among: int = 0  # of a select


class _Decision:
    """One run through the priorities."""

    def __init__(self, variables: Variables, settings: Settings, rng: random.Random) -> None:
        self._variables = variables
        self._settings = settings
        self._rng = rng
        self._steps: list[Step] = []
        self._left: tuple[Rows, Sequence[str]] | None = None  # after the last step, and their names
        self._carry_out: Mapping[str, Callable[[Instruction, Rows], _Outcome]] = {
            "filter": self._filter,
            "calc": self._calc,
            "sort_ascending": self._sort,
            "sort_descending": self._sort,
            "select": self._select,
        }

    def decide(self) -> Choice:
        rows = self._bar_stale(self._bar_booked(range(len(self._variables.names))))
        if len(rows):
            for priority in self._settings.priorities:
                self._variables.forget()
                if (row := self._try(priority, rows)) is not None:
                    return self._choice(row, f"priority {priority.number}: {self._steps[-1].note}")
        return self._choice(None, self._why_none())

    def _choice(self, row: int | None, reason: str) -> Choice:
        notes = [step.note for step in self._steps if step.note.startswith("uninformed")]
        return Choice(
            cluster=None if row is None else self._variables.names[row],
            selector=NAME,
            steps=tuple(self._steps),
            reason=reason,
            warnings=tuple(dict.fromkeys([*self._variables.warnings, *notes])),
        )

    def _why_none(self) -> str:
        first = self._variables.names[:3]
        last = {name: step.dropped[name] for step in self._steps for name in first if name in step.dropped}
        shown = [f"{name}: {last[name]}" for name in first]
        more = len(self._variables.names) - len(shown)
        return "every cluster was filtered out: " + "; ".join(shown) + (f"; and {more} more" if more else "")

    # ── before any priority ─────────────────────────────────────────────────────────────────────────────────

    def _bar_booked(self, rows: Rows) -> Rows:
        """Drop clusters with fewer free nodes than the job takes; those that say nothing of them stay."""
        if not self._variables.stated("nodes_free"):
            return rows
        free, takes = self._variables.values("nodes_free"), self._variables.values("matched.nodes")
        if (enough := self._variables.column_of(BOOKING, rows)) is not None:
            return self._bar_rows(
                "booking", BOOKING.text, rows, enough.value, lambda row: _unbooked(takes[row], free[row])
            )
        silent = {row: "" for row in rows if free[row] is MISSING}
        values, faults = self._variables.evaluate(BOOKING, _listed(_left(rows, silent)))
        dropped = {row: fault.reason for row, fault in faults.items()}
        short = [row for row, enough in values.items() if not enough]
        dropped |= {row: _unbooked(takes[row], free[row]) for row in short}
        return self._bar("booking", BOOKING.text, rows, dropped)

    def _bar_stale(self, rows: Rows) -> Rows:
        limit = self._settings.stale_after
        if limit is None or not len(rows):
            return rows
        if (known := self._variables.column_of(_AGE, rows)) is not None:
            answer = self._variables.values("state.age")
            fresh = known.value <= limit
            return self._bar_rows("stale_after", f"{limit:.12g}", rows, fresh, lambda row: _stale(answer[row], limit))
        ages, _ = self._variables.evaluate(_AGE, _listed(rows))
        old = {row: age for row, age in ages.items() if is_number(age) and float(age) > limit}
        dropped = {row: _stale(age, limit) for row, age in old.items()}
        return self._bar("stale_after", f"{limit:.12g}", rows, dropped)

    def _bar(self, step: str, argument: str, rows: Rows, dropped: Mapping[int, str]) -> Rows:
        if dropped:
            rows = _left(rows, dropped)
            self._record(0, Instruction(step, argument), _Outcome(rows, {}, dropped))
        return rows

    def _bar_rows(self, step: str, argument: str, rows: Rows, stored: Any, why: Callable[[int], str]) -> Rows:
        outcome = self._divided(rows, stored, why)
        if len(outcome.rows) < len(rows):
            self._record(0, Instruction(step, argument), outcome)
        return outcome.rows

    def _divided(self, rows: Rows, stored: Any, why: Callable[[int], str]) -> _Outcome:
        """Keep the rows for which `stored` is true; say why the others are dropped when that is read."""
        if stored.all():
            return _Outcome(rows, {}, {})
        rows = np.asarray(rows)
        remaining, dropped = rows[stored], rows[~stored]
        return _Outcome(remaining, {}, ByRow(self._variables.rows, dropped, lambda at: why(int(dropped[at]))))

    # ── one priority ────────────────────────────────────────────────────────────────────────────────────────

    def _try(self, priority: Priority, rows: Rows) -> int | None:
        """Carry out the steps; return the row that was selected, or None if nobody is left."""
        rows = self._keep_group(priority, rows)
        if not len(rows):
            return None
        for instruction in priority.steps:
            outcome = self._carry_out[instruction.kind](instruction, rows)
            self._record(priority.number, instruction, outcome)
            rows = outcome.rows
            if not len(rows):
                return None
            if instruction.kind == "select":
                return int(rows[0])
        implied = self._select(_IMPLIED, rows)
        self._record(priority.number, _IMPLIED, replace(implied, note=f"{implied.note}, as no select is given"))
        return int(implied.rows[0])

    def _keep_group(self, priority: Priority, rows: Rows) -> Rows:
        """Drop the clusters that are not of the group a priority is for."""
        if not priority.group:
            return rows
        group, names = self._settings.groups[priority.group], self._variables.names
        others = [row for row in _listed(rows) if names[row] not in group]
        dropped = dict.fromkeys(others, f"it is not of the group {priority.group}")
        remaining = _left(rows, dropped)
        self._record(priority.number, Instruction("group", priority.group), _Outcome(remaining, {}, dropped))
        return remaining

    def _record(self, number: int, instruction: Instruction, outcome: _Outcome) -> None:
        names = self._variables.names
        every = isinstance(outcome.rows, range)  # they, and values if there are any, stand in order of name
        if self._left is None or self._left[0] is not outcome.rows:
            self._left = outcome.rows, names if every else self._named(outcome.rows)
        values: Mapping[str, Scalar] | ByRow
        dropped: Mapping[str, str] | ByRow
        if isinstance(outcome.values, ByRow):
            values = outcome.values
        else:
            named = names if every and outcome.values else map(names.__getitem__, outcome.values)
            values = dict(zip(named, outcome.values.values(), strict=True))
        if isinstance(outcome.dropped, ByRow):
            dropped = outcome.dropped
        else:
            dropped = {names[row]: why for row, why in outcome.dropped.items()}
        kind, argument, remaining = instruction.kind, instruction.argument, self._left[1]
        self._steps.append(Step(number, kind, argument, remaining, values, dropped, outcome.note, outcome.among))

    def _named(self, rows: Rows) -> Sequence[str]:
        if isinstance(rows, np.ndarray):
            return NamedRows(self._variables.rows, rows)
        return tuple(map(self._variables.names.__getitem__, rows))

    def _evaluate(self, expression: Expression, rows: Rows, of: str) -> tuple[dict[int, Scalar], dict[int, str]]:
        """Return the values, and why there is none where there is none."""
        values, faults = self._variables.evaluate(expression, _listed(rows))
        return values, {row: f"{of}: {fault.reason}" for row, fault in faults.items()}

    def _filter(self, instruction: Instruction, rows: Rows) -> _Outcome:
        expression = _expression(instruction)
        if isinstance(truths := self._variables.column_of(expression, rows), Truths):
            return self._divided(rows, truths.value, self._refusal_of(expression))
        values, dropped = self._evaluate(expression, rows, expression.text)
        for row in [row for row, value in values.items() if value is not True]:
            if why := self._refusal(expression, row, values[row]):
                dropped[row] = why
        return _Outcome(_left(rows, dropped), {}, dropped)

    def _refusal(self, expression: Expression, row: int, value: Scalar) -> str:
        """Say why a filter does not let this cluster pass; empty if it does."""
        try:
            if truth(value):
                return ""
        except NoValueError as error:
            return f"{expression.text}: {error}"
        return self._refusal_of(expression)(row)

    def _refusal_of(self, expression: Expression) -> Callable[[int], str]:
        """Return what says why a filter that is false drops a row, by the values of this moment."""
        read = [(name, self._variables.values(name)) for name in expression.names]

        def why(row: int) -> str:
            there = [(name, values[row]) for name, values in read]
            facts = ", ".join(f"{name} is {shown(value)}" for name, value in there if value is not MISSING)
            return f"{expression.text} is false" + (f": {facts}" if facts else "")

        return why

    def _calc(self, instruction: Instruction, rows: Rows) -> _Outcome:
        expression = _expression(instruction)
        if lacking := expression.needs(self._variables.known):
            self._variables.compute(instruction.variable, {})
            return _Outcome(rows, {}, {}, f"{self._uninformed(lacking)}; {instruction.variable} is not computed")
        if (column := self._variables.column_of(expression, rows)) is not None:
            self._variables.compute_column(instruction.variable, rows, column)
            return _Outcome(rows, self._by_row(rows, column), {})
        values, dropped = self._evaluate(expression, rows, instruction.variable)
        self._variables.compute(instruction.variable, values)
        return _Outcome(_left(rows, dropped), values, dropped)

    def _sort(self, instruction: Instruction, rows: Rows) -> _Outcome:
        expression, note = self._sort_by(_expression(instruction))
        if expression is None:
            return _Outcome(rows, {}, {}, note)
        if isinstance(numbers := self._variables.column_of(expression, rows), Numbers):
            key = -numbers.value if instruction.kind == "sort_descending" else numbers.value
            ordered = np.asarray(rows)[np.argsort(key, kind="stable")]
            return _Outcome(ordered, self._by_row(rows, numbers), {}, note)
        values, dropped = self._evaluate(expression, rows, expression.text)
        for row in [row for row in values if isinstance(values[row], str)] if _any_text(values) else ():
            dropped[row] = f"{expression.text}: a sort requires a number, got {describe(values[row])}"
        remaining = list(
            _left(rows, dropped)
        )  # by the sorts before, else by name, which a stable sort keeps among equals
        remaining.sort(key=values.__getitem__, reverse=instruction.kind == "sort_descending")
        return _Outcome(remaining, values, dropped, note)

    def _by_row(self, rows: Rows, column: Column) -> ByRow:
        return ByRow(self._variables.rows, np.asarray(rows), scalars(column).__getitem__)

    def _sort_by(self, expression: Expression) -> tuple[Expression | None, str]:
        """Return what to sort by: the expression, or what stands for it if nobody gives its variables."""
        lacking = expression.needs(self._variables.known)
        if not lacking:
            return expression, ""
        note, instead = self._uninformed(lacking), self._settings.uninformed_sort
        if instead.needs(self._variables.known):
            return None, f"{note}; not sorted, as {instead.text} is not known either"
        return instead, f"{note}; sorted by {instead.text}"

    def _uninformed(self, lacking: Sequence[str]) -> str:
        skipped = [name for name in lacking if self._variables.skipped(name)]
        unknown = [name for name in lacking if name not in skipped]
        learned = [name for name in unknown if name in MODEL or name == OWN_SLOPE]
        reasons = {str(why) for why in self._variables.values(NO_MODEL) if why is not MISSING} if learned else set()
        unknown = [name for name in unknown if not (reasons and name in MODEL)]
        inputs = self._variables.known_names() if unknown else ()
        hints = ", ".join(f"{name}{nearest(name, inputs)}" for name in unknown)
        parts = [f"not provided by the job or by any cluster: {hints}"] if unknown else []
        return "uninformed: " + "; ".join(
            [*sorted(reasons), *parts, *(f"{name} was not computed" for name in skipped)]
        )

    def _select(self, instruction: Instruction, rows: Rows) -> _Outcome:
        if instruction.argument == "random":
            ordered = np.sort(np.asarray(rows))  # so that the draw does not depend on the order of the steps before
            row = int(ordered[self._rng.randrange(len(ordered))])
        else:
            row = int(rows[0 if instruction.argument == "first" else -1])
        return _Outcome([row], {}, {}, f"{instruction.argument} of {len(rows)}", len(rows))


def _unbooked(takes: Any, free: Any) -> str:
    """Say that too few nodes are free; what others hold may be more than a cluster reports as free."""
    there = "none is" if free <= 0 else "only 1 is" if free == 1 else f"only {shown(free)} are"
    return f"job needs {some(takes, 'node')}, but {there} free (nodes_free)"


def _expression(instruction: Instruction) -> Expression:
    if instruction.expression is None:
        raise SelectionError(f"{instruction.kind} needs an expression")
    return instruction.expression


def _any_text(values: Mapping[int, Scalar]) -> bool:
    return str in set(map(type, values.values()))


def _stale(age: Any, limit: float) -> str:
    return f"cluster state is {shown(age)} s old; stale_after is {limit:.12g} s"


def _listed(rows: Rows) -> Sequence[int]:
    """Return rows as Python's numbers."""
    return rows.tolist() if isinstance(rows, np.ndarray) else rows


def _left(rows: Rows, dropped: Mapping[int, str]) -> Rows:
    return [row for row in _listed(rows) if row not in dropped] if dropped else rows
