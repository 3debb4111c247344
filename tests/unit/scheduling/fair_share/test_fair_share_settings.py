"""Settings of the fair-share policy: what is taken, what is refused and where."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rainbow.errors import LimitError, PolicyError
from rainbow.scheduling.fair_share.settings import Rule, check_settings, compile_settings
from tests.support.settings_documents import read_settings

REFUSED = yaml.load(
    (Path(__file__).parents[3] / "cases" / "fair_share" / "refused.yaml").read_text(), yaml.CSafeLoader
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["text"].replace("\n", " "))
def test_refused_settings_say_where(case):
    with pytest.raises(PolicyError) as refused:
        read_settings(case["text"], check_settings)
    fault = refused.value
    assert (fault.pointer, fault.line, fault.column) == (case["pointer"], case["line"], case["column"])


def test_settings_of_the_original_site():
    """The classes the original is shipped with, in our words."""
    checked = read_settings(
        """
        classes:
          fair-base: {policy: FAIR_SHARE, nodepool: default, priority: 10, abstract: true}
          background: {parent: fair-base, weight: 1}
          low:        {parent: fair-base, weight: 50}
          normal:     {parent: fair-base, weight: 100, default: true, users: [bob, alice]}
          urgent:     {parent: normal, weight: 400}
          fixed:      {policy: FIXED_SHARE, priority: 5, default: true}
          debug:      {parent: fixed, priority: 7, max_processes: 4}
          reserve:    {policy: RESERVE, priority: 1, default: true}
        users:
          bob: {max_allotment: 90, allotments: {fixed: 30}}
        """,
        check_settings,
    )
    settings = compile_settings(checked)
    assert set(settings.classes) == {"background", "low", "normal", "urgent", "fixed", "debug", "reserve"}
    urgent = settings.classes["urgent"]
    assert (urgent.weight, urgent.users, urgent.default) == (400, frozenset({"bob", "alice"}), False)
    assert settings.default_class(Rule.FAIR_SHARE).name == "normal"
    assert settings.classes["debug"].most == 4
    assert (settings.allotment_of("bob"), settings.allotment_of("ann")) == (90, None)
    assert settings.class_allotments == {("bob", "fixed"): 30}


def test_deep_nesting_is_a_limit():
    with pytest.raises(LimitError):
        read_settings("users: " + "{a: " * 100 + "1" + "}" * 100, check_settings)


def test_text_that_is_no_yaml_is_refused_with_its_line():
    with pytest.raises(PolicyError) as refused:
        read_settings("classes: {", check_settings)
    assert refused.value.line is not None


words = st.text(max_size=5) | st.sampled_from(["a", "default", "FAIR_SHARE", "quantum", "classes"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
keys = ["quantum", "nodepools", "classes", "users", "allotment", "fragmentation_threshold", "epoch", "mode", "x"]


@given(st.dictionaries(st.sampled_from(keys), values, max_size=3))
def test_whatever_is_sent_is_taken_whole_or_refused_with_a_pointer(sent):
    refused = None
    try:
        checked = check_settings(sent)
    except PolicyError as fault:
        refused = fault
    if refused is not None:
        assert refused.pointer is not None
        return
    assert check_settings(checked) == checked
    compile_settings(checked)
