"""What selection answers: a Choice, with every step that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import random

    from rainbow.matching import Verdict

Scalar = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Step:
    """One step carried out: what it left, what it computed and whom it dropped, with the reason."""

    priority: int
    step: str  # filter, calc, sort_ascending, sort_descending, select
    argument: str
    survivors: tuple[str, ...]  # in their order after the step
    values: Mapping[str, Scalar] = field(default_factory=dict)  # by cluster, for calc and sorts
    dropped: Mapping[str, str] = field(default_factory=dict)  # cluster: why
    note: str = ""  # "uninformed: ...", warnings


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen cluster, or None with the reason; equal inputs and seed give an equal Choice."""

    cluster: str | None
    selector: str
    steps: tuple[Step, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()
    values: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)  # {cluster: {variable: value}}


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
