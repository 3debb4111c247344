"""Why jobs wait under load_based: every waiting job is told what it lacks itself."""

from dataclasses import replace

import pytest

from rainbow.matching import Take
from rainbow.scheduling import LoadBased
from rainbow.scheduling.invariants import every_wait
from tests.support.policies.views import job, plan, running, view

HALVES = {"classes": {"a": 45, "b": 55}, "default_class": "b", "requestors": [{"match": "ann", "class": "a"}]}


def waits(of):
    return {wait.job: wait for wait in every_wait(of, plan(of))}


def mixed(demands, gpus=10, others=90):
    """A cluster whose GPU nodes are all taken; a demand of `node` takes a core too, which other nodes have."""
    kinds = {f"node{k}": "gpu" for k in range(gpus)}
    runs = [running(f"g-{k}", k) for k in range(gpus)]
    of = view(demands, gpus + others, runs, kinds=kinds)
    return replace(of, hosts=lambda demand: frozenset({"gpu", "k"}))


def test_on_a_mixed_cluster_jobs_are_told_that_what_they_need_is_taken():
    """27 of 28 waiting GPU jobs said "share-used ... 9000 idle"."""
    of = mixed([job(f"j{k}", 1, kind="gpu", submitted=float(k)) for k in range(28)])
    gpus = {f"node{k}" for k in range(10)}
    requests = []

    def place(demand, free):
        requests.append(demand)
        chosen = [name for name in free if name in gpus][:1]
        return Take((("s", {chosen[0]: {"core": 1, "gpu": 1}}),), {}) if chosen else None

    result = waits(replace(of, place=place))
    assert {wait.reason for wait in result.values()} == {"workers-busy"}
    assert not any("share" in wait.text for wait in result.values())


def test_reasons_of_equal_jobs_cost_one_question():
    """Ten thousand GPU jobs behind taken nodes, workers of another kind idle: the matcher is asked about one."""
    jobs = [job(f"j{k}", 1, kind="gpu", submitted=float(k)) for k in range(10_000)]
    jobs = [replace(j, gangs=tuple(replace(gang, alike=7) for gang in j.gangs)) for j in jobs]
    of = mixed(jobs)
    requests = []
    of = replace(of, place=lambda demand, free: requests.append(demand), hosts=lambda demand: frozenset({"gpu"}))
    made = LoadBased().plan(of)
    assert len(requests) <= 30
    assert len(made.waits) == 1
    assert made.rest.of("j9999").reason == made.waits[0].reason
    assert made.rest.of("j9999").facts["ahead"] == 9_999
    assert len(requests) <= 30


@pytest.mark.parametrize("limit", [0.0, 500.0])
@pytest.mark.parametrize("threshold", [0, 10])
def test_class_that_holds_less_than_its_share_is_told_who_has_it(limit, threshold):
    """Entitled to 9, holding none: who holds the loans, when they end, or that rebalance is off."""
    runs = [replace(running(f"b-{k}", k, "bob"), until=limit) for k in range(20)]
    of = view(
        [job("x", 1, requestor="ann"), job("y", 1, requestor="bob")],
        20,
        runs,
        {**HALVES, "rebalance_threshold": threshold},
    )
    result = waits(of)
    assert result["x"].reason == "on-loan"
    end = (
        "the first ends by 1970-01-01T00:08:20.000Z"
        if limit
        else f"no known end, rebalance {'on' if threshold else 'off'}"
    )
    assert result["x"].text == f"class a is using 0 of 9 workers; 9 on loan to class b; {end}"
    facts = result["x"].facts
    assert (facts["loans"], facts["held"], facts["target"]) == ({"b": 9}, 0, 9)
    assert facts["first_end"] == ("1970-01-01T00:08:20.000Z" if limit else None)
    assert facts["rebalance"] == ("1970-01-01T00:04:00.000Z" if threshold else "off")
    assert result["y"].reason == "share-used"


def test_what_is_cluster_wide_is_named_where_it_is_what_lacks():
    of = replace(view([job("a", 1), job("b", 1, submitted=1.0)]), consumables={"licence": 1})
    of = replace(
        of, place=lambda _, free: Take((("s", {free[0]: {"core": 1}, "": {"licence": 1}}),), {}) if free else None
    )
    assert waits(of)["b"].text == "cluster-wide: 0 of 1 licence free"


def test_no_reason_is_longer_than_a_hundred_characters_and_no_time_in_facts_is_a_number():
    runs = [replace(running(f"b-{k}", k, "bob"), until=2e9) for k in range(20)]
    jobs = [job("x", 1, requestor="ann"), job("w", 15, requestor="ann", submitted=1.0), job("y", 1, requestor="bob")]
    for wait in waits(view(jobs, 20, runs, HALVES, now=1.9e9)).values():
        assert len(wait.text) <= 100
        assert not any(isinstance(value, float) for value in wait.facts.values())
