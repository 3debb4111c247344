"""Settings of the priority policy and what jobs ask are taken or refused by pointer, and harm nobody."""

from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import PolicyError
from rainbow.scheduling import Priority
from rainbow.scheduling.priority.config.settings import check_settings
from tests.support.policies.dispatching import Job
from tests.support.policies.priority_cases import FOUR, PES, asking, placed, plan, view


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"discipline": "random"}, "/discipline"),
        ({"discipline": ["easy"]}, "/discipline"),
        ({"max_reservation": 3}, "/max_reservation"),
        ({"discipline": "tuned", "max_reservation": -1}, "/max_reservation"),
        ({"schedule_interval": float("nan")}, "/schedule_interval"),
        ({"schedule_interval": 10**400}, "/schedule_interval"),
        ({"schedule_interval": True}, "/schedule_interval"),
        ({"parallel_environments": {"a/b": {"rule": 0}}}, "/parallel_environments/a~1b/rule"),
        ({"parallel_environments": {"p": {"rule": "up"}}}, "/parallel_environments/p/rule"),
        ({"parallel_environments": [1]}, "/parallel_environments"),
        ({"queues": {"q": {"calendar": {"week": "Funday=off"}}}}, "/queues/q/calendar"),
        ({"queues": {"q": {"calendar": {"year": "31.2.2024=off"}}}}, "/queues/q/calendar"),
        ({"queues": {"q": {"calendar": {"year": "\x00"}}}}, "/queues/q/calendar"),
        ({"queues": {"q": {"slots": "7"}}}, "/queues/q/slots"),
        ({"queues": {"q": {"subordinates": {"r": 1}}}}, "/queues/q/subordinates/r"),
        ({"load_formula": "a*b"}, "/load_formula"),
        ({"load_formula": None}, "/load_formula"),
        ({"quotas": [{"limits": []}]}, "/quotas/0"),
        ({"quotas": [{"name": "q", "limits": [{"to": {"slots": "2*x"}}]}]}, "/quotas/0/limits/0/to/slots"),
        ({"tickets": {"hierarchy": "OO"}}, "/tickets/hierarchy"),
        ({"tickets": {"share_tree": {"name": "r", "children": [{"shares": 1}]}}}, "/tickets/share_tree/children/0"),
        ({"tickets": {"share_tree": {"name": "r", "shares": -1}}}, "/tickets/share_tree/shares"),
        ({"weights": {"prio": 1}}, "/weights/prio"),
        ({"urgency": {"core": inf}}, "/urgency/core"),
        ({"utc_offset": 1e9}, "/utc_offset"),
        ({"what": 1}, "/what"),
    ],
)
def test_faulty_setting_is_named_by_its_pointer(settings, pointer):
    with pytest.raises(PolicyError) as fault:
        Priority().check(settings)
    assert fault.value.pointer == pointer


def test_deep_share_tree_is_refused_not_followed():
    tree = {"name": "leaf"}
    for k in range(5_000):
        tree = {"name": f"n{k}", "children": [tree]}
    with pytest.raises(PolicyError):
        Priority().check({"tickets": {"share_tree": tree}})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "priority",
    "queue",
    "master_queue",
    "pe",
    "project",
    "department",
    "reserve",
    "reservation",
    "deadline",
    "job_share",
    "tasks_at_once",
    "soft",
]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), anything))
def test_whatever_a_job_asks_never_harms_the_run(attributes):
    hostile = Job("bad", 0.0, 1, 5, 100.0, 9, attributes=attributes)
    made = plan(view([hostile, asking("good")], FOUR, parallel_environments=PES, queues={"q": {}}))
    assert "good" in placed(made) or "bad" in placed(made)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(check_settings({}))), anything, max_size=3))
def test_whatever_is_set_is_accepted_whole_or_refused_with_a_pointer(given_):
    filled = fault = None
    try:
        filled = Priority().check(given_)
    except PolicyError as refused:
        fault = refused.pointer
    assert fault is not None or Priority().check(filled) == filled
