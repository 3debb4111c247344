"""What sites say of patience and of the priorities that jobspecs ask for."""

from __future__ import annotations

import pytest

from tests.conftest import ADMIN
from tests.support.asking import api

__all__ = ["api"]  # a fixture
GRAPH = {
    "nodes": {
        "c": {"metadata": {"type": "cluster"}},
        "n": {"metadata": {"type": "node", "count": 2}},
        "k": {"metadata": {"type": "core", "count": 4}},
    },
    "edges": [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}],
}


def register(api, policy, settings):
    body = {"name": "oak", "graph": {"graph": GRAPH}, "policy": {"name": policy, "settings": settings}}
    return api("POST", "/v1/clusters", ADMIN, json=body).json


def submitted(api, cluster, priority):
    spec = {
        "version": 1,
        "resources": {"r": {"type": "core", "count": 1}},
        "tasks": [{"command": ["true"], "resources": "r"}],
        "attributes": {"system": {"priority": priority}},
    }
    answer = api("POST", "/v1/jobs", cluster["token"], json={"jobspec": spec})
    assert answer.status_code == 201, answer.json
    return answer.json


@pytest.mark.parametrize(
    ("policy", "most", "asked", "warned"),
    [
        ("load_based", 0, 1000, ["priority 1000 counts as 0: cluster oak allows 0 at most"]),
        ("load_based", 10, 1000, ["priority 1000 counts as 10: cluster oak allows 10 at most"]),
        ("load_based", 10, 10, []),
        ("load_based", 0, -5, []),
        ("priority", 0, 7, ["priority 7 counts as 0: cluster oak allows 0 at most"]),
    ],
)
def test_a_submit_that_asks_for_more_than_a_site_allows_is_told_what_counts(api, policy, most, asked, warned):
    cluster = register(api, policy, {"most_asked_priority": most})
    made = submitted(api, cluster, asked)
    answers = [text for text in made["decision"]["warnings"] if "counts as" in text]
    assert answers == warned
    why = api("GET", f"/v1/jobs/{made['id']}/why", cluster["token"]).json
    assert why["decision"]["warnings"] == made["decision"]["warnings"]


@pytest.mark.parametrize(
    ("policy", "settings", "named"),
    [
        ("load_based", {"patience": 0}, ["patience"]),
        ("load_based", {}, []),
        ("priority", {"patience": 0}, ["patience"]),
        ("priority", {"order": "f2"}, ["starve"]),
        ("priority", {"order": "f2", "starve": {"after": 3600, "first": 1}}, []),
        ("fair_share", {"patience": None}, ["patience"]),
        ("fair_share", {"patience": 0}, ["patience"]),
        ("fair_share", {}, []),
    ],
)
def test_settings_under_which_jobs_may_wait_for_ever_say_so(api, policy, settings, named):
    cluster = register(api, policy, settings)
    shown = api("GET", "/v1/clusters/oak/scheduler", cluster["secret"]).json
    assert [one["setting"] for one in shown["warnings"] if "setting" in one] == named
    assert all(one["text"].endswith("jobs may wait for ever") for one in shown["warnings"])


@pytest.mark.parametrize("policy", ["load_based", "priority", "fair_share"])
def test_a_patience_below_nothing_is_refused_by_its_name(api, policy):
    body = {"name": "oak", "graph": {"graph": GRAPH}, "policy": {"name": policy, "settings": {"patience": -1}}}
    answer = api("POST", "/v1/clusters", ADMIN, json=body)
    assert answer.status_code == 422
    assert "patience" in str(answer.json)
    assert "at least 0" in str(answer.json) or "0" in answer.json["detail"]
