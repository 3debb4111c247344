"""The interface of a selector, and its answer: a Choice with every step that led to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rainbow.cache import cached_property
from rainbow.text import data_frame, html_table

if TYPE_CHECKING:
    import random

    import pandas

    from rainbow.matching import Verdict


Scalar = int | float | str | bool
MISSING = object()  # in place of a value that nobody gives


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell numbers from truth values, which Python counts among the integers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


# ── of many clusters hardly anybody reads more than a few lines: names and values are made when somebody looks ──

Rows = NDArray[np.int64]


class Names:
    """Names of clusters in order, the place of each, and values computed from them once."""

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


@lru_cache(16)  # lists of candidates, the same from decision to decision
def names_in_rows(names: tuple[str, ...]) -> Names:
    """Return the one `Names` of a list of names."""
    return Names(names)


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

    def among(self, requirements: Collection[str]) -> tuple[str, ...]:
        """Return those of these names that are there, in their order."""
        places = self.names.places
        rows = np.array([places[name] for name in requirements if name in places], np.int64)
        result = self.rows[np.isin(self.rows, rows)]
        return tuple(map(self.names.all.__getitem__, result.tolist()))

    def ranks(self, requirements: Collection[str]) -> dict[str, int]:
        """Return {name: its place, from 1} of those of these names that are there."""
        among, places = self.among(requirements), self.names.places
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
    """Values of the clusters of some rows, by name; `of` returns that of the n-th of them."""

    __slots__ = ("_known", "_of", "names", "rows")

    def __init__(self, names: Names, rows: Rows, of: Callable[[int], Any]) -> None:
        self.names = names
        self.rows = rows
        self._of = of
        self._known: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        """Return the value of one."""
        if self._known is not None:
            return self._known[name]
        at = np.flatnonzero(self.rows == self.names.places[name])
        if not len(at):
            raise KeyError(name)
        return self._of(int(at[0]))

    def listed(self) -> list[Any]:
        """Return the value of each, in the order of the rows."""
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


# ── the choice ──


@dataclass(frozen=True, slots=True)
class Step:
    """One step carried out: the clusters left, the values computed, and the clusters dropped with the reason."""

    priority: int
    step: str  # filter, calc, sort_ascending, sort_descending, select, group; booking, stale_after of priority 0
    argument: str
    survivors: Sequence[str]  # in their order after the step
    values: Mapping[str, Scalar] = field(default_factory=dict)  # by cluster, for calc and sorts
    dropped: Mapping[str, str] = field(default_factory=dict)  # cluster: why
    note: str = ""  # "uninformed: ...", warnings
    among: int = 0  # clusters that a select could take; not stored, so that what was stored before stays equal

    @property
    def variable(self) -> str:
        """Return the values that a calc computes."""
        return self.argument.partition("=")[0].strip() if self.step == "calc" else ""


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """The chosen cluster, or None with the reason; equal inputs and seed give an equal Choice."""

    cluster: str | None
    selector: str
    steps: tuple[Step, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the cluster and the reason; `steps` have the rest."""
        return f"<Choice {self.cluster or 'no cluster'} by {self.selector}: {self.reason}>"

    def _repr_html_(self) -> str:
        ranked = sorted(self.ranks.items(), key=lambda item: item[1])
        rows = [("reason", self.reason), *((f"{rank}.", name) for name, rank in ranked), *self.drops.items()]
        return html_table(f"{self.cluster or 'no cluster'} by {self.selector}", rows)

    def to_frame(self) -> pandas.DataFrame:
        """Return a row for each candidate, by cluster: chosen, rank, computed values, the reason it was dropped."""
        ranks, drops, values = self.ranks, self.drops, self.values
        rows = (
            {
                "cluster": name,
                "chosen": name == self.cluster,
                "rank": ranks.get(name),
                **computed,
                "dropped": drops.get(name),
            }
            for name, computed in values.items()
        )
        return data_frame(rows, "cluster")

    def about(self, names: Collection[str]) -> tuple[Step, ...]:
        """Return the steps with their values for these clusters."""
        requirements, remaining = frozenset(names), tuple[str, ...]()
        last: Any = None
        results = []
        for step in self.steps:
            if step.survivors is not last:  # a step that drops nobody leaves the same
                last, remaining = step.survivors, _among(step.survivors, requirements)
            values = {name: step.values[name] for name in names if name in step.values}
            dropped = {name: step.dropped[name] for name in names if name in step.dropped}
            results.append(replace(step, survivors=remaining, values=values, dropped=dropped))
        return tuple(results)

    @property
    def values(self) -> dict[str, dict[str, Scalar]]:
        """Return {cluster: {variable: value}}: the computed values of each, the later priority's where two did."""
        result: dict[str, dict[str, Scalar]] = {}
        for step in self.steps:
            for name in (*step.survivors, *step.dropped):
                result.setdefault(name, {})
            for name, value in step.values.items() if step.step == "calc" else ():
                result[name][step.variable] = value
        return result

    @property
    def ranks(self) -> dict[str, int]:
        """Return the place, from 1, of every cluster that the select could take; empty where nothing orders them."""
        if self.cluster is None or len(self.steps) < 2 or self.steps[-2].priority != self.steps[-1].priority:
            return {}
        return {name: place for place, name in enumerate(self.steps[-2].survivors, 1)}

    def ranks_of(self, names: Collection[str]) -> dict[str, int]:
        """Return the places of these clusters alone."""
        there = self.steps[-2].survivors if len(self.steps) > 1 else ()
        if not isinstance(there, NamedRows) or self.steps[-2].priority != self.steps[-1].priority:
            return {name: place for name, place in self.ranks.items() if name in names}
        return there.ranks(names) if self.cluster is not None else {}

    @property
    def drops(self) -> dict[str, str]:
        """Return the step that dropped a cluster, with its reason, for every one that no later priority took in."""
        result: dict[str, str] = {}
        for step in self.steps:
            for name in step.survivors if result else ():
                result.pop(name, None)
            where = f"priority {step.priority}, {step.step}" if step.priority else step.step
            result |= {name: f"{where}: {why}" for name, why in step.dropped.items()}
        return result


def _among(names: Sequence[str], requirements: Collection[str]) -> tuple[str, ...]:
    return (
        names.among(requirements)
        if isinstance(names, NamedRows)
        else tuple([name for name in names if name in requirements])
    )


class Selector(Protocol):
    """Picks one cluster among candidates.

    `check` refuses bad options with SelectionError before anything is decided. `select` is pure: `states` are
    {cluster: {variable: value}}, `parameters` the job's own, `rng` the only chance there is. Candidates arrive
    in order of name.
    """

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return warnings about the options; SelectionError if they cannot be used."""

    def select(
        self,
        candidates: Sequence[Verdict],
        states: Mapping[str, Mapping[str, Scalar]],
        parameters: Mapping[str, Any],
        options: Mapping[str, Any],
        rng: random.Random,
    ) -> Choice:
        """Choose one of the candidates, all of which match."""


@runtime_checkable
class DeclaresReads(Protocol):
    """A selector that says which variables it may read, so that others need not be found out for it."""

    def reads(self, options: Mapping[str, Any]) -> Collection[str]:
        """Name every variable a decision with these options may read."""
