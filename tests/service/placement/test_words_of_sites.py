"""A job in words of a site starts there: what is booked is proved by the checker, which shares no code with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.graph.sources.slurm import read_slurm
from tests.conftest import Api

OAK = Path(__file__).parents[2] / "cases" / "scripts" / "sites" / "oak.txt"
A100 = {"type": "gpu", "count": 1, "requires": [{"name": "containment", "field": "model", "match": "a100"}]}


def node(count: int | str, *inside: dict[str, Any]) -> dict[str, Any]:
    return {"type": "node", "count": count, "with": list(inside)}


def slot(core: str = "core", **count: int) -> dict[str, Any]:
    return {"type": "slot", **count, "with": [{"type": core}]}


@pytest.mark.parametrize(
    ("resources", "system", "held"),
    [
        ({"job": node(1, slot(replicas=4), A100)}, {"queue": "gpu"}, {"core": 4, "gpu": 1}),
        ({"job": node("1-3", slot("cpu", total=40))}, {}, {"core": 40}),
        ({"job": node(2, {"type": "core"})}, {"constraints": {"counts": {"rack1": 1, "rack2": 1}}}, {"core": 2}),
        ({"job": node(1, {"type": "core"})}, {"constraints": {"at_least": {"core": 32}}}, {"core": 1}),
        (
            {"job": node("1-2", slot(total=2)), "more": {"type": "gpu", "count": 6, "within": "job"}},
            {"queue": "gpu"},
            {"core": 2, "gpu": 6},
        ),
    ],
    ids=["model beside slots", "total", "counts", "at_least", "within the job"],
)
def test_job_in_words_of_a_site_is_started(
    api: Api, resources: dict[str, Any], system: dict[str, Any], held: dict[str, int]
) -> None:
    oak = api.register("oak", read_slurm(OAK.read_text()))
    task = {"command": ["x"], "resources": "job"}
    job = {"version": 1, "resources": resources, "tasks": [task], "attributes": {"system": system}}
    made = api.good("POST", "/v1/jobs", job, oak.token)
    oak.say("heartbeat")
    (offer,) = oak.take()
    assert offer["job"] == made["id"]
    (candidate,) = made["decision"]["candidates"]
    assert {kind: candidate["totals"].get(f"{kind}s", 0) for kind in held} == held


@pytest.mark.parametrize(("refuse", "status"), [(False, 201), (True, 422)])
def test_cluster_that_lacks_a_word_may_have_the_job_if_no_other_says_yes(api: Api, refuse: bool, status: int) -> None:
    if refuse:
        api.service.settings = replace(api.service.settings, undecided="refuse")
    yew = api.register("yew")
    job = {
        "version": 1,
        "resources": {"job": {"type": "core"}},
        "tasks": [{"command": ["x"], "resources": "job"}],
        "attributes": {"system": {"licenses": {"matlab": 1}}},
    }
    answer = api.good("POST", "/v1/match", job, yew.token)
    assert [one["reason"] for one in answer["undecided"]] == ["word-unknown"]
    made = api.call("POST", "/v1/jobs", job, yew.token)
    assert made.status_code == status
    if refuse:
        assert "yew: licenses matlab: the graph lists no licenses" in made.json["detail"]
    else:
        warnings = made.json["decision"]["warnings"]
        assert any("licenses matlab: the graph lists no licenses" in text for text in warnings)
