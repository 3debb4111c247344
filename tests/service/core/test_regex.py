"""Expressions of users: which are accepted, that each answers at once, and what a refused one in the store stops."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.errors import PolicyError
from rainbow.regex import RegexError, compile_regex
from rainbow.scheduling import policies
from rainbow.service.scheduler.loop import step_safely
from rainbow.store import clusters
from tests.support.agent_by_hand import agent, submit
from tests.support.asking import api, cluster

__all__ = ["agent", "api", "cluster"]  # fixtures

GOOD = ["land.*", "^CI.*", "(CI|jenkins|ktf)-.*", "[ab]*", "a{2,5}b?", "(x|y)*z", "", "(?i:ci).*", "a.*|b.*|c.*"]
SLOW_BEFORE = ["(a+)+", "(a|ab)*c", "(a?){30}a{30}", "a?" * 24 + "a" * 24, ".*.*.*.*x", "((a*)b)*"]
BAD = ["(", "(?=a)b", "(?<!a)b", r"(a)\1", "a" * 1001, "x{1000}" * 140, "\ud800", None, 5, ["a"]]
NODEPOOL = {"nodepools": {"all": {}, "gpu": {"parent": "all", "match": "PLACE"}}}


@pytest.mark.parametrize("expression", [*GOOD, *SLOW_BEFORE])
def test_expression_answers_at_once(expression):
    began = time.process_time()
    compile_regex(expression).fullmatch("a" * 200)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("expression", BAD, ids=repr)
def test_expression_outside_the_engine_is_refused_with_a_reason(expression):
    with pytest.raises(RegexError, match=r"regular expression"):
        compile_regex(expression)


parts = st.sampled_from(["a", "b", ".", "[ab]", "(a|b)", "(ab|a)", "a*", "a+", "b?", "a{0,9}", "(a*)", "(a?b?)"])
suffixes = st.sampled_from(["", "*", "+", "?", "{5}", "{2,4}"])
names = st.text("abc", max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(parts, suffixes), max_size=3), names)
def test_matches_as_pythons_own_engine(chosen, name):
    expression = "".join(f"(?:{part}){suffix}" for part, suffix in chosen) + "c"
    compiled = compile_regex(expression)
    assert compiled.fullmatch(name) == bool(re.fullmatch(expression, name))
    assert compiled.search(name) == bool(re.search(expression, name))


def test_name_with_a_lone_surrogate_is_no_fault():
    assert compile_regex(".*").fullmatch("a\ud800")


@pytest.mark.parametrize(
    ("policy", "given", "pointer"),
    [
        ("load_based", {"requestors": [{"match": "PLACE", "class": "default"}]}, "/requestors/0/match"),
        ("fair_share", NODEPOOL, "/nodepools/gpu/match"),
    ],
)
@pytest.mark.parametrize("expression", [bad for bad in BAD if bad is not None], ids=repr)
def test_every_policy_refuses_it_at_its_pointer(policy, given, pointer, expression):
    def put(value):
        if isinstance(value, dict):
            return {key: put(item) for key, item in value.items()}
        if isinstance(value, list):
            return [put(item) for item in value]
        return expression if value == "PLACE" else value

    with pytest.raises(PolicyError) as fault:
        policies.get(policy).check(put(given))
    assert fault.value.pointer == pointer


def test_stored_expression_that_is_refused_now_stops_its_cluster_alone(api, service, cluster, agent):
    agent.say("heartbeat")
    other = api.register("two", "cluster(node*2(core*4))")
    refused = {"requestors": [{"match": "(?=a)b", "class": "default"}]}
    with service.store.write() as connection:  # as a version before stored it
        record = clusters.find(connection, "two")
        clusters.set_policy(connection, record.id, "load_based", {**record.settings, **refused})
    assert not step_safely(service, "two")
    here = submit(api, cluster)
    assert step_safely(service, "one")
    assert api("GET", f"/v1/jobs/{here}", cluster["token"]).json["tasks"][0]["state"] == "ASSIGNED"
    shown = api("GET", "/v1/clusters/two/scheduler", other["secret"]).json
    assert "not a regular expression of RE2" in shown["fault"]
    repaired = api("PATCH", "/v1/clusters/two/scheduler", other["secret"], json={"settings": {"requestors": []}})
    assert repaired.status_code == 200, repaired.json
    step_safely(service, "two")
    assert api("GET", "/v1/clusters/two/scheduler", other["secret"]).json["fault"] is None
