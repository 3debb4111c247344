"""Whatever stands in options, files of cases and recorded decisions: it is read, or refused as ours."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.errors import RainbowError
from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import check_options, reads, select
from rainbow.selection.cases import read_trials, run
from rainbow.selection.replay import SelectorRules, compare, read_recorded
from tests.conftest import examples

WORDS = st.sampled_from(
    [
        *(
            "priorities",
            "priority",
            "steps",
            "group",
            "groups",
            "filter",
            "calc",
            "sort_ascending",
            "select",
            "cases",
        ),
        *("stale_after", "uninformed_sort", "states", "candidates", "cluster", "expect", "one_of", "values", "wins"),
        *(
            "seed",
            "seeds",
            "nodes",
            "parameters",
            "options",
            "dropped",
            "warnings",
            "totals",
            "fits",
            "id",
            "selector",
        ),
        *(
            "a",
            "b",
            "a > 1",
            "x=a/0",
            "x=a+b",
            "first",
            "random",
            "*",
            "1/0",
            "nan",
            "[{priority: 1}]",
            "",
            "\0",
            "\ud800",
        ),
    ]
)
SCALARS = WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.integers(10**300, 10**320)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
# near enough to what is right that the reading goes deep
STEPS = st.lists(st.dictionaries(WORDS, SCALARS, min_size=1, max_size=1) | JSON, max_size=4)
PRIORITY = st.fixed_dictionaries(
    {"priority": st.integers() | JSON, "steps": STEPS | JSON}, optional={"group": SCALARS}
)
OPTIONS = JSON | st.fixed_dictionaries(
    {"priorities": st.lists(PRIORITY, max_size=3) | JSON},
    optional={"groups": JSON, "stale_after": SCALARS, "uninformed_sort": SCALARS},
)
STATES = {"a": {"a": 1, "b": 2.5, "nodes_free": 3}, "b": {"a": "text", "nodes_free": 10**400}}
SIMPLE = SelectorRules(
    "constraint", {"priorities": [{"priority": 1, "steps": [{"calc": "x=a"}, {"select": "random"}]}]}
)


@settings(max_examples=examples(250), deadline=None)
@given(OPTIONS)
def test_any_options_decide_or_are_refused(options: Any) -> None:
    verdicts = [Verdict(name, True, totals={"nodes": 1}) for name in STATES]
    try:
        check_options("constraint", options)
        reads("constraint", options, "a")
        choice = select(Request(((),), ()), verdicts, STATES, "constraint", options)
    except RainbowError:
        return
    assert choice.cluster in (None, *STATES)
    assert choice.values.keys() <= STATES.keys()
    assert set(choice.ranks) | set(choice.drops) <= STATES.keys()


CASE = st.dictionaries(WORDS, JSON, max_size=5) | st.fixed_dictionaries({"expect": JSON, "states": JSON})


@settings(max_examples=examples(250), deadline=None)
@given(JSON | st.fixed_dictionaries({"cases": st.lists(CASE | JSON, max_size=3)}, optional={"states": JSON}))
def test_any_file_of_cases_is_run_or_refused(document: Any) -> None:
    try:
        for trial in read_trials(document, SIMPLE):
            run(trial)
    except RainbowError:
        return


VALUES = st.dictionaries(WORDS | st.sampled_from(["nodes_free", "nodes"]), JSON, max_size=3)
CANDIDATE = st.fixed_dictionaries({"cluster": st.sampled_from("ab")}, optional={"totals": VALUES, "fits": SCALARS})
RECORDED = st.fixed_dictionaries(
    {"candidates": st.lists(CANDIDATE | JSON, max_size=3) | JSON},
    optional={"states": st.dictionaries(st.sampled_from("ab"), VALUES) | JSON, "parameters": VALUES, "seed": SCALARS},
)


@settings(max_examples=examples(250), deadline=None)
@given(RECORDED | JSON)
def test_any_recorded_decision_is_compared_or_refused(document: Any) -> None:
    try:
        compare([read_recorded(document)], SIMPLE, SelectorRules("random", {}))
    except RainbowError:
        return
