"""Recorded decisions, taken again as they were or under other priorities.

A decision is a function of candidates, their states, the job's parameters, selector, options and seed; the ledger has
all of them. Each is taken again by itself: that a job would have gone elsewhere does not
change what the states of later decisions say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from rainbow.errors import SelectionError
from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection.choice import ByRow, Choice, NamedRows, Scalar, digests_of
from rainbow.selection.expression.columnar import read_column
from rainbow.selection.expression.scalar import summable
from rainbow.selection.select import matched_read, select
from rainbow.selection.variables import MATCHED


@dataclass(frozen=True, slots=True)
class SelectorRules:
    """A selector and its options."""

    selector: str
    options: Mapping[str, Any]

    @property
    def matched(self) -> Sequence[str]:
        """The variables `matched.*` that a decision by them may read, without the prefix."""
        read = matched_read(self.selector, self.options)
        return [name for name in MATCHED if name != "switches"] if read is None else read


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """The inputs of one decision, and its result."""

    id: str
    candidates: Sequence[Verdict]
    states: Mapping[str, Mapping[str, Scalar]]
    parameters: Mapping[str, Any]
    seed: int | str
    cluster: str | None = None  # the chosen one
    unknown: Sequence[
        str
    ] = ()  # candidates whose graphs have changed since: what the rules read of a match is not known


@dataclass(frozen=True, slots=True)
class Moved:
    """A job that two sets of rules place differently; None: nowhere. `step` is the one that drops the old cluster."""

    id: str
    old: str | None
    new: str | None
    step: str = ""


@dataclass(slots=True)
class Sum:
    """The sum of a computed variable over the chosen clusters, and over how many jobs."""

    total: float = 0.0
    jobs: int = 0

    def add(self, value: Scalar) -> None:
        """Add one job's value, if it is a number."""
        if (number := summable(value)) is not None:
            self.total += number
            self.jobs += 1


@dataclass(slots=True)
class Comparison:
    """Two sets of rules over the same decisions; `sums`: variable → (under the old one, under the new one)."""

    decisions: int = 0
    left_out: int = 0  # of which something is no longer known
    neither: int = 0  # that have no cluster under either
    moved: list[Moved] = field(default_factory=list)
    sums: dict[str, tuple[Sum, Sum]] = field(default_factory=dict)


def redecide(recorded: RecordedDecision, rules: SelectorRules) -> Choice:
    """Take a recorded decision again."""
    request = Request(variants=((),), tasks=(), parameters=recorded.parameters)
    return select(request, recorded.candidates, recorded.states, rules.selector, rules.options, seed=recorded.seed)


def compare(decisions: Iterable[RecordedDecision], old: SelectorRules, new: SelectorRules) -> Comparison:
    """Take every decision under both rules; return the jobs that go elsewhere and the sum of each calc."""
    result = Comparison()
    for recorded in decisions:
        if recorded.unknown:
            result.left_out += 1
            continue
        choices = redecide(recorded, old), redecide(recorded, new)
        result.decisions += 1
        result.neither += choices[0].cluster is None and choices[1].cluster is None
        if choices[0].cluster != choices[1].cluster:
            result.moved.append(Moved(recorded.id, choices[0].cluster, choices[1].cluster, _parting(*choices)))
        for which, choice in enumerate(choices):
            for name, value in choice.values.get(choice.cluster or "", {}).items():
                result.sums.setdefault(name, (Sum(), Sum()))[which].add(value)
    return result


def _parting(old: Choice, new: Choice) -> str:
    """Return the first step of the new rules that drops the old choice."""
    dropped = (f"{step.step} {step.argument}" for step in new.steps if old.cluster not in step.survivors)
    return next(dropped, new.reason)


# ── as JSON ─────────────────────────────────────────────────────────────────────────────────────────────────


def written(comparison: Comparison) -> dict[str, Any]:
    """Write a comparison; `gained`: jobs that each cluster gains and loses."""
    gained: Counter[str] = Counter(one.new for one in comparison.moved if one.new)
    gained.subtract(one.old for one in comparison.moved if one.old)
    sums = {name: {"old": _sum(old), "new": _sum(new)} for name, (old, new) in sorted(comparison.sums.items())}
    return {
        "decisions": comparison.decisions,
        "left_out": comparison.left_out,
        "neither": comparison.neither,
        "moved": [asdict(one) for one in comparison.moved],
        "refused": sum(one.new is None for one in comparison.moved),
        "gained": {name: jobs for name, jobs in gained.most_common() if jobs},
        "sums": sums,
    }


def _sum(result: Sum) -> dict[str, Any]:
    return {"sum": result.total, "jobs": result.jobs}


def read_recorded(document: Any) -> RecordedDecision:
    """Read a decision as the ledger writes it; SelectionError says where it is none."""
    if not isinstance(document, Mapping):
        raise SelectionError("a decision is a mapping", pointer="")
    states = _mapping(document, "states")
    for name, values in states.items():
        if not isinstance(values, Mapping):
            raise SelectionError("a state is a mapping", pointer=f"/states/{name}")
    candidates = document.get("candidates")
    if not isinstance(candidates, list):
        raise SelectionError("candidates is a list", pointer="/candidates")
    return RecordedDecision(
        id=str(document.get("id", "")),
        candidates=[_candidate(one, f"/candidates/{at}") for at, one in enumerate(candidates)],
        states=states,
        parameters=_mapping(document, "parameters"),
        seed=_seed(document.get("seed", 0)),
        cluster=document.get("cluster"),
        unknown=tuple(map(str, document.get("unknown") or ())),
    )


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, Mapping):
        raise SelectionError(f"{key} is a mapping", pointer=f"/{key}")
    return value


def _candidate(written: Any, pointer: str) -> Verdict:
    if not isinstance(written, Mapping) or not isinstance(written.get("cluster"), str):
        raise SelectionError("a candidate is {cluster, fits, totals}", pointer=pointer)
    fits, totals = written.get("fits", 1), written.get("totals", {})
    if not isinstance(fits, int) or not isinstance(totals, Mapping):
        raise SelectionError("fits is a number and totals a mapping", pointer=pointer)
    return Verdict(written["cluster"], True, fits=fits, exact=bool(written.get("fits_exact", True)), totals=totals)


def _seed(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SelectionError("a seed is a number or text", pointer="/seed")
    return value


# ── seals: a choice that is taken again is known to be the same by its digest ──


def seal_of(choice: Choice) -> str:
    """Return a digest of the result of each step, reasons left out: another choice has another one."""
    answer = sha256(repr((choice.cluster, choice.selector, choice.reason, choice.warnings)).encode())
    last: Any = None
    for step in choice.steps:
        answer.update(repr((step.priority, step.step, step.argument, step.note, len(step.values))).encode())
        answer.update(_names(step.dropped))
        answer.update(_numbers(step.values))
        if step.survivors is not last:
            last = step.survivors
            answer.update(_names(last))
    return answer.hexdigest()


def is_sealed_by(choice: Choice, seal: str) -> bool:
    """Return whether this is the choice that a digest was made of, now or by a version before."""
    return seal in (seal_of(choice), _former_seal(choice))


def _former_seal(choice: Choice) -> str:
    answer = sha256(repr((choice.cluster, choice.selector, choice.reason, choice.warnings)).encode())
    last: Any = None
    for step in choice.steps:
        same = step.survivors == last
        about = (step.priority, step.step, step.argument, step.note, same, [*step.dropped.items()])
        answer.update(repr((*about, [*step.values], [*step.values.values()])).encode())
        if not same:
            last = step.survivors
            answer.update(repr(tuple(last)).encode())
    return answer.hexdigest()


def _names(names: Collection[str]) -> bytes:
    """Return bytes that stand for names in their order."""
    return names.digests() if isinstance(names, NamedRows | ByRow) else digests_of([*names]).tobytes()


def _numbers(values: Mapping[str, Scalar]) -> bytes:
    """Return bytes that stand for values in their order: numbers as they are, all else in words."""
    if not values:
        return b""
    listed = values.listed() if isinstance(values, ByRow) else [*values.values()]
    column = read_column(listed)
    others = [listed[at] for at in np.flatnonzero(column.doubt).tolist()]
    numbers = np.where(column.doubt, 0.0, column.value)
    return numbers.tobytes() + np.packbits(column.whole).tobytes() + column.doubt.tobytes() + repr(others).encode()
