"""The names of a job, as every verb reads them: `last` is of who asks, and no verb acts on one of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from rainbow.service.placement import submit as placement_submit
from tests.conftest import ADMIN, Api, Cluster, jobspec


def submit(oak: Cluster, requestor: str, name: str = "job", spec: Any = None, **more: Any) -> str:
    """Submit a job for a requestor, with the token that names nobody."""
    body = {"jobspec": spec or jobspec(), "requestor": requestor, "name": name, **more}
    return str(oak.api.good("POST", "/v1/jobs", body, oak.token)["id"])


def found(oak: Cluster, text: str, token: str = "", **headers: str) -> list[str]:
    answer = oak.api.good("GET", f"/v1/jobs:find?job={quote(text, safe='')}", None, token or oak.token, **headers)
    return [row["id"] for row in answer["jobs"]]


@pytest.mark.parametrize("verb", ["DELETE", ":suspend", ":resume"])
def test_last_is_of_the_person_who_asks(oak: Cluster, verb: str) -> None:
    """Alice's job is newer; what bob says of `last`, with the token that both have, is of his."""
    bobs, alices = submit(oak, "bob"), submit(oak, "alice")
    method, path = ("DELETE", "/v1/jobs/last") if verb == "DELETE" else ("POST", f"/v1/jobs/last{verb}")
    changed = oak.api.good(method, path, None, oak.token, Rainbow_Login="bob")
    assert changed["id"] == bobs
    assert oak.api.good("GET", f"/v1/jobs/{alices}", None, oak.token)["state"] == "WAITING"


def test_last_of_somebody_without_a_job_is_nobodys(oak: Cluster) -> None:
    submit(oak, "alice")
    for headers in ({"Rainbow_Login": "carol"}, {}):
        answer = oak.api.call("DELETE", "/v1/jobs/last", None, oak.token, **headers)
        assert answer.status_code == 404, answer.get_data(as_text=True)
        assert "has no job here" in answer.get_json()["detail"] or "you have no job" in answer.get_json()["detail"]


def test_last_of_a_token_that_names_its_requestor_needs_no_login(oak: Cluster) -> None:
    mint = {"clusters": ["oak"], "requestors": ["bob"]}
    token = oak.api.good("POST", "/v1/tokens", mint, oak.secret)["token"]
    bobs, _ = submit(oak, "bob"), submit(oak, "alice")
    assert found(oak, "last", token) == [bobs]
    assert found(oak, "last", token, Rainbow_Login="alice") == [bobs]
    assert found(oak, "last", ADMIN, Rainbow_Login="bob") == [bobs]
    assert found(oak, "last", oak.secret, Rainbow_Login="bob") == [bobs]


def test_a_name_is_that_of_one_active_job(oak: Cluster) -> None:
    first = submit(oak, "ann", "train")
    assert found(oak, "train") == [first]
    second = submit(oak, "bob", "train")
    assert found(oak, "train") == [second, first]
    answer = oak.api.problem(404, "not-found", "DELETE", "/v1/jobs/train", None, oak.token)
    numbers = [oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["number"] for job in (second, first)]
    assert answer["detail"] == f"2 jobs are named train: {numbers[0]}, {numbers[1]}; give a number"
    assert answer["jobs"] == [second, first]
    oak.api.good("DELETE", f"/v1/jobs/{second}", None, oak.token)
    assert oak.api.good("DELETE", "/v1/jobs/train", None, oak.token)["id"] == first
    assert found(oak, "train") == []


def test_a_number_is_the_job_that_has_it_and_never_the_beginning_of_an_id(
    oak: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(oak, "ann", "77")
    number = oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["number"]
    other = submit(oak, "bob", str(number))
    assert found(oak, str(number)) == [job]
    assert found(oak, "77") == [job]  # no job has this number
    assert found(oak, str(number + 1)) == [other]
    monkeypatch.setattr(placement_submit, "new_id", lambda: "123456789012345678901234")
    third = submit(oak, "carol")
    assert (found(oak, "12345678"), found(oak, "123456789012")) == ([], [third])


@pytest.mark.parametrize(
    "name", ["last", "a b", "é✓", "‮evil", "line\nbreak", "%41", "a+b&c=d", "..", "a/b:9", "$(x)"]
)
def test_any_name_finds_its_job_and_no_other(oak: Cluster, name: str) -> None:
    """What is written as `last` is the newest job, whatever is called so."""
    target, other = submit(oak, "ann", name), submit(oak, "bob", "other")
    assert found(oak, name, Rainbow_Login="bob") == ([other] if name == "last" else [target])


def test_an_element_is_one_of_the_arrays_own_indexes(oak: Cluster) -> None:
    spec = {
        "resources": {"w": {"type": "core", "replicas": 1}},
        "tasks": [{"command": ["true"], "resources": "w", "replicas": 3}],
        "attributes": {"system": {"array": "2,4-6:2"}},
    }
    job = submit(oak, "ann", "array", spec)
    for index, task in ((2, 0), (4, 1), (6, 2)):
        shown = oak.api.good("GET", f"/v1/jobs/{job}_{index}", None, oak.token)
        assert ([one["index"] for one in shown["tasks"]], shown["next"]) == ([task], None)
    assert found(oak, f"{job}_3") == []
    oak.api.problem(409, "conflict", "POST", f"/v1/jobs/{job}_4:suspend", None, oak.token)


def test_a_site_calls_a_job_by_its_own_number(oak: Cluster) -> None:
    job = submit(oak, "ann")
    oak.say("heartbeat", workers=["n0", "n1"])
    [offer] = oak.take()
    at = {"task": offer["id"], "attempt": offer["attempt"], "event": "site", "number": "530", "partition": "batch"}
    oak.say("events", events=[at])
    assert found(oak, "oak:530") == [job]
    assert found(oak, "oak:531") == found(oak, "elm:530") == []
    assert oak.api.good("GET", "/v1/jobs/oak:530", None, oak.token)["id"] == job
    assert oak.api.good("POST", "/v1/jobs/oak:530:suspend", None, oak.token)["id"] == job


@pytest.mark.parametrize(
    "names",
    [lambda job: "last", lambda job: job, lambda job: job[:20], lambda job: "secret", lambda job: f"{job}_0"],
    ids=["last", "id", "beginning", "name", "element"],
)
def test_a_job_one_may_not_see_has_no_name(api: Api, names: Callable[[str], str]) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    job = submit(elm, "ann", "secret")
    assert found(oak, names(job), Rainbow_Login="ann") == []
