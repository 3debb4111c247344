"""Options of `constraint` that are refused with their place, and those that are warned of."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import SelectionError
from rainbow.selection import check_options
from tests.unit.selection.test_selection import choose, load, one_priority


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in load("invalid.yaml")])
def test_invalid_options_are_refused_with_their_place(case: dict[str, Any]) -> None:
    with pytest.raises(SelectionError) as caught:
        choose({"alpha": {}}, case["options"], {})
    error = caught.value
    assert error.pointer == case["pointer"]
    assert case["says"] in error.message
    assert error.column == case.get("column", error.column)
    assert error.line == case.get("line", error.line)
    for fact in ("priority", "step"):
        assert error.facts.get(fact) == case.get(fact, error.facts.get(fact))


@pytest.mark.parametrize("options", [[], "x", 5])
def test_options_that_are_no_mapping_are_refused(options: Any) -> None:
    with pytest.raises(SelectionError):
        choose({"alpha": {}}, options, {})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 5000, id="nesting"),
        pytest.param("a" * 40_000, id="length"),
        pytest.param("a: &a [x]\n" + "".join(f"k{n}: &k{n} [*a, *a]\n" for n in range(9)), id="aliases"),
        pytest.param("!!python/object/apply:os.getcwd []", id="python"),
        pytest.param("\x00", id="control"),
    ],
)
def test_hostile_yaml_text_is_refused(text: str) -> None:
    with pytest.raises(SelectionError):
        check_options("constraint", {"priorities": text})


def test_too_many_priorities_or_steps_are_refused() -> None:
    priority = {"priority": 1, "steps": [{"select": "first"}]}
    with pytest.raises(SelectionError, match="more than 64 priorities"):
        check_options("constraint", {"priorities": [priority] * 65})
    with pytest.raises(SelectionError, match="1 to 64 steps"):
        check_options("constraint", one_priority(*[{"filter": "a"}] * 65))


def test_priorities_that_are_too_much_work_are_refused_before_any_is_done() -> None:
    states: dict[str, dict[str, Any]] = {f"c{n}": {"a": n} for n in range(1000)}
    long = "min(" + ", ".join(["a ** 2"] * 400) + ")"
    heavy = {"priorities": [{"priority": n, "steps": [{"filter": f"{n} + {long} < 0"}]} for n in range(10)]}
    with pytest.raises(SelectionError, match="operations for 1000 clusters"):
        choose(states, heavy, {})
    assert choose({"alpha": {"a": 1}}, heavy, {}).cluster is None


def test_steps_that_are_too_long_together_are_refused() -> None:
    steps = [{"calc": "x=" + " " * 4000 + "1"}] * 9
    with pytest.raises(SelectionError, match="at most 32768 are read"):
        check_options("constraint", one_priority(*steps))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in load("warnings.yaml")])
def test_doubtful_options_are_warned_of(case: dict[str, Any]) -> None:
    options = {**one_priority(*case["steps"]), **case.get("options", {})}
    assert list(check_options("constraint", options)) == case["warnings"]


def test_priority_given_twice_is_warned_of() -> None:
    priority = {"priority": 4, "steps": [{"select": "first"}]}
    warnings = check_options("constraint", {"priorities": [priority, priority]})
    assert list(warnings) == ["duplicate priority 4: entries are tried in the order listed"]
