"""Operators' test cases of a selection: states, candidates and the expected choice.

A file of cases is a mapping: `states`, `parameters`, `nodes` and `options` for all, and `cases`, each with the same
keys for itself (its states are laid over the common ones, null takes a cluster or a variable away), and

    case        what it is called                 seed    of the draw; the place of the case unless given
    candidates  [name] or {name: {type: count}}, every cluster of `states` unless given
    expect      cluster, or one_of [names]; reason, dropped {cluster: text}, values {cluster: {variable: number}},
                warnings [texts]: each must be contained; wins {cluster: [least, most]} of `seeds` draws
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isclose
from typing import Any

from rainbow.errors import SelectionError
from rainbow.matching import Verdict
from rainbow.selection.choice import Choice
from rainbow.selection.options import nearest
from rainbow.selection.replay import RecordedDecision, SelectorRules, redecide

COMMON = ("states", "parameters", "nodes", "options")
OF_CASE = (*COMMON, "case", "candidates", "seed", "seeds", "expect")
EXPECTED: Mapping[str, type | tuple[type, ...]] = {
    "cluster": (str, type(None)),
    "one_of": list,
    "reason": str,
    "dropped": Mapping,
    "values": Mapping,
    "warnings": list,
    "wins": Mapping,
}
EXACT = 1e-12  # relative
MAX_SEEDS = 100_000  # and any number of a case


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One case, read."""

    name: str
    given: RecordedDecision
    rules: SelectorRules
    expect: Mapping[str, Any]
    seeds: int


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The result of a case; no fault: as expected."""

    name: str
    choice: Choice
    faults: tuple[str, ...]


def read_trials(document: Any, rules: SelectorRules) -> list[PolicyCase]:
    """Read a file's cases; SelectionError says where one cannot be read."""
    top = _mapping(document, "")
    written = top.get("cases")
    if not isinstance(written, list) or not written:
        raise SelectionError("cases is a list of at least one case", pointer="/cases")
    return [_trial(top, case, at, rules) for at, case in enumerate(written)]


def _trial(top: Mapping[str, Any], written: Any, at: int, rules: SelectorRules) -> PolicyCase:
    pointer = f"/cases/{at}"
    case = _known(_mapping(written, pointer), OF_CASE, pointer)
    states = _laid_over(_mapping(top.get("states"), "/states"), _mapping(case.get("states"), f"{pointer}/states"))
    options = {**rules.options, **_of(top, case, "options", pointer)}
    decision = RecordedDecision(
        id=str(at),
        candidates=_candidates(top, case, states, pointer),
        states=states,
        parameters=_of(top, case, "parameters", pointer),
        seed=_number(case.get("seed", at), 0, f"{pointer}/seed"),
    )
    seeds = _number(case.get("seeds", 1), 1, f"{pointer}/seeds")
    name = str(case.get("case", f"case {at + 1}"))
    return PolicyCase(name, decision, SelectorRules(rules.selector, options), _expected(case, pointer), seeds)


def _expected(case: Mapping[str, Any], pointer: str) -> Mapping[str, Any]:
    """Return the expectation of a case, every part of the kind it must be."""
    pointer = f"{pointer}/expect"
    expect = _known(_mapping(case.get("expect"), pointer), list(EXPECTED), pointer)
    for key, value in expect.items():
        if not isinstance(value, EXPECTED[key]):
            raise SelectionError(f"{key} is not written like this", pointer=f"{pointer}/{key}")
    for key in ("dropped", "values", "wins"):
        _mapping(expect.get(key), f"{pointer}/{key}")
    for name, values in expect.get("values", {}).items():
        _mapping(values, f"{pointer}/values/{name}")
    for name, bounds in expect.get("wins", {}).items():
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise SelectionError("wins are [least, most]", pointer=f"{pointer}/wins/{name}")
        for bound in bounds:
            _number(bound, 0, f"{pointer}/wins/{name}")
    return expect


def _number(value: Any, least: int, pointer: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_SEEDS:
        raise SelectionError(f"a whole number from {least} to {MAX_SEEDS} is wanted here", pointer=pointer)
    return value


def _of(top: Mapping[str, Any], case: Mapping[str, Any], key: str, pointer: str) -> Mapping[str, Any]:
    """Return the case's own mapping, else the one common to all."""
    return _mapping(case[key], f"{pointer}/{key}") if key in case else _mapping(top.get(key), f"/{key}")


def _laid_over(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    states: dict[str, dict[str, Any]] = {}
    for name in sorted({*common, *own}):
        if name in own and own[name] is None:
            continue
        whole = {**_mapping(common.get(name), f"/states/{name}"), **_mapping(own.get(name), f"/states/{name}")}
        states[name] = {key: value for key, value in whole.items() if value is not None}
    return states


def _candidates(
    top: Mapping[str, Any], case: Mapping[str, Any], states: Mapping[str, Any], pointer: str
) -> Sequence[Verdict]:
    nodes = _number(case.get("nodes", top.get("nodes", 1)), 0, f"{pointer}/nodes")
    written = case.get("candidates", list(states))
    if isinstance(written, list) and all(isinstance(name, str) for name in written):
        written = {name: {} for name in written}
    totals = _mapping(written, f"{pointer}/candidates")
    return [
        Verdict(name, True, fits=1, totals={"nodes": nodes, **_mapping(own, f"{pointer}/candidates/{name}")})
        for name, own in totals.items()
    ]


def _mapping(value: Any, pointer: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise SelectionError("must be a mapping of names", pointer=pointer)
    return value


def _known(written: Mapping[str, Any], keys: Sequence[str], pointer: str) -> Mapping[str, Any]:
    for key in written:
        if key not in keys:
            raise SelectionError(f"there is no {key:.60}{nearest(key, keys)}", pointer=pointer)
    return written


# ── carried out ─────────────────────────────────────────────────────────────────────────────────────────────


def run(trial: PolicyCase) -> CaseOutcome:
    """Decide a case and say where the choice is not the expected one."""
    choice = redecide(trial.given, trial.rules)
    return CaseOutcome(trial.name, choice, (*_faults(choice, trial.expect), *_win_faults(trial)))


def _faults(choice: Choice, expect: Mapping[str, Any]) -> Iterator[str]:
    if "cluster" in expect and choice.cluster != expect["cluster"]:
        yield f"expected {_place(expect['cluster'])}, got {_place(choice.cluster)}"
    if "one_of" in expect and choice.cluster not in expect["one_of"]:
        yield f"{_place(choice.cluster)} was chosen, not one of {', '.join(map(str, expect['one_of']))}"
    if str(expect.get("reason", "")) not in choice.reason:
        yield f"the reason is {choice.reason!r}"
    for name, why in expect.get("dropped", {}).items():
        if str(why) not in choice.drops.get(name, "it was not dropped"):
            yield f"{name}: {choice.drops.get(name, 'it was not dropped')}"
    for text in expect.get("warnings", ()):
        if not any(str(text) in warning for warning in choice.warnings):
            yield f"warning {text!r} not found"
    yield from _value_faults(choice, expect.get("values", {}))


def _value_faults(choice: Choice, expected: Mapping[str, Any]) -> Iterator[str]:
    for name, values in expected.items():
        for variable, requirement in (values or {}).items():
            result = choice.values.get(name, {}).get(variable)
            if not _same(result, requirement):
                yield f"{variable} of {name} is {result}, not {requirement}"


def _same(result: Any, requirement: Any) -> bool:
    """Compare numbers to 1e-12; text like 5/12 is a fraction."""
    if isinstance(result, bool) or not isinstance(result, int | float):
        return bool(result == requirement)
    try:
        return isclose(result, Fraction(str(requirement)), rel_tol=EXACT)
    except (ValueError, ZeroDivisionError, OverflowError):
        return False


def _win_faults(trial: PolicyCase) -> Iterator[str]:
    wins = trial.expect.get("wins", {})
    seeds = range(trial.seeds if wins else 0)
    count = Counter(redecide(replace(trial.given, seed=seed), trial.rules).cluster for seed in seeds)
    for name, (least, most) in wins.items():
        if not least <= count[name] <= most:
            yield f"expected {name} to be chosen {least} to {most} times of {trial.seeds}, got {count[name]}"


def _place(cluster: Any) -> str:
    return "no cluster" if cluster is None else str(cluster)
