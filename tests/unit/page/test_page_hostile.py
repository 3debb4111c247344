"""Every text that the API takes, sent as markup: it is answered, and no page shows it as markup.

The fields are those of the OpenAPI document that no pattern and no list of words bounds: a new one is tried too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from rainbow.service.jobs.verbs import VERBS
from tests.conftest import ADMIN, REGISTRATION, Api, Cluster, grid, jobspec
from tests.support.page_client import Browser, every_page, read, submit

MARKS = ("<i id=mark", "\u202e", "\x1b")
PAGE_QUERIES = (
    "cluster",
    "requestor",
    "user",
    "state",
    "reason",
    "sort",
    "tab",
    "worker",
    "workers",
    "verb",
    "hours",
)


def hostile(number: int) -> str:
    """Return markup, a reversed word and a color, with the number of their field."""
    return f"<i id=mark{number} onmark='1'></i>{{{{7*7}}}}\u202etxt\x1b[31m"


def texts(
    schema: Mapping[str, Any], known: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the places of a body where any text may stand."""
    while "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", ())
    if "string" in ([kinds] if isinstance(kinds, str) else kinds) and not {"enum", "pattern", "const"} & {*schema}:
        yield path
    for part in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(part, ()):
            yield from texts(one, known, path)
    inner = {**schema.get("properties", {}), "*": schema.get("additionalProperties"), "0": schema.get("items")}
    for key, one in inner.items():
        if isinstance(one, dict):
            yield from texts(one, known, (*path, key))


def put(body: Any, place: tuple[str, ...], text: str) -> Any:
    """Return a body with a text in its place; lists and mappings on the way are made."""
    if not place:
        return text
    key, rest = place[0], place[1:]
    if key == "0":
        [first, *others] = body if isinstance(body, list) and body else [{}]
        return [put(first, rest, text), *others]
    body = body if isinstance(body, dict) else {}
    return {**body, key: put(body.get(key), rest, text)}


def bodies(oak: Cluster) -> dict[str, Callable[[], Any]]:
    """What each operation is sent where nothing is hostile."""
    request = {"jobspec": jobspec(), "clusters": [{"name": "oak"}]}

    def ended() -> dict[str, Any]:
        submit(oak.api, oak.token)
        [offer] = oak.take()
        event = {
            "task": offer["id"],
            "attempt": offer["attempt"],
            "event": "ended",
            "result": "exited",
            "exit_code": 1,
        }
        return {"agent": "a", "events": [event]}

    reserved = {"workers": "n0", "start": "2000-01-01T00:00:00Z", "duration": 60}
    return {
        "put /v1/accounts/{account}": lambda: {"shares": 2},
        "post /v1/clusters": lambda: {"name": "elm", "graph": grid(2, 2)},
        "post /v1/clusters/{name}/accept": lambda: {"agent": "a", "tasks": [{"id": "0", "attempt": 1}]},
        "post /v1/clusters/{name}/events": ended,
        "patch /v1/clusters/{name}/graph": lambda: {"changes": [{"op": "resize", "vertex": "n0", "size": 1}]},
        "post /v1/clusters/{name}/heartbeat": lambda: {"agent": "a", "running": [{"id": "0", "attempt": 1}]},
        "post /v1/clusters/{name}/plan": lambda: {"jobs": [{"jobspec": jobspec()}]},
        "post /v1/clusters/{name}/receive": lambda: {"agent": "a", "wait": 0},
        "post /v1/clusters/{name}/reservations": lambda: reserved,
        "patch /v1/clusters/{name}/state": dict,
        "put /v1/clusters/{name}/state": dict,
        "post /v1/jobs:batch": lambda: {"jobs": [{"jobspec": jobspec()}], "clusters": [{"name": "oak"}]},
        "patch /v1/jobs/{job_id}": lambda: {"name": "other"},
        **{f"post /v1/jobs:{verb}": lambda: {"where": {"name": "none-such"}} for verb in VERBS},
        "post /v1/slurm/{command}": lambda: {"words": [], "user": "ann"},
        "post /v1/policy:check": dict,
        "post /v1/policy:diff": lambda: {"config": ""},
        "post /v1/tokens": lambda: {"clusters": ["oak"]},
        **dict.fromkeys(("post /v1/eta", "post /v1/jobs", "post /v1/jobs:bid", "post /v1/match"), lambda: request),
    }


def fields(api: Api) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every operation and place of its body that takes any text."""
    answer = api.good("GET", "/openapi.json")
    for path, operations in answer["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}) if method != "parameters" else {}
            if "application/json" in content:
                places = texts(content["application/json"]["schema"], answer["components"]["schemas"])
                for place in dict.fromkeys(places):
                    yield f"{method} {path}", tuple("note" if key == "*" else key for key in place)
                    if "*" in place:
                        yield f"{method} {path}", tuple(hostile(2_000) if key == "*" else key for key in place)


@pytest.fixture
def oak(api: Api) -> Cluster:
    return api.register("oak", grid(100, 2), policy={"name": "priority"})


@pytest.fixture
def taken(api: Api, oak: Cluster) -> set[str]:
    """Send markup in each field; return where it was taken."""
    sent, results = bodies(oak), set()
    for number, (operation, place) in enumerate(fields(api)):
        method, path = operation.split()
        name = f"{operation} /{'/'.join(place)}"
        body = put(sent[operation](), place, hostile(number))
        secret = REGISTRATION if operation == "post /v1/clusters" else oak.secret if "{name}" in path else ADMIN
        answer = api.call(
            method.upper(), path.format(name="oak", account="bio", job_id="last", command="squeue"), body, secret
        )
        assert answer.status_code < 500, (name, answer.get_data(as_text=True))
        if answer.status_code < 300:
            results.add(name)
    return results


SHOWN = {  # some that are taken: otherwise nothing would be shown
    *(
        "post /v1/jobs /name",
        "post /v1/jobs /requestor",
        "post /v1/jobs /tag",
        "post /v1/clusters/{name}/heartbeat /agent",
    ),
    *(f"post /v1/clusters/{{name}}/events /events/0/{key}" for key in ("output", "errors", "detail")),
    *("post /v1/clusters/{name}/reservations /name", "post /v1/tokens /name", "put /v1/clusters/{name}/state /note"),
}


def test_no_page_shows_a_text_of_the_api_as_markup(api: Api, oak: Cluster, taken: set[str]) -> None:
    assert taken >= SHOWN, SHOWN - taken
    jobs = [one["id"] for one in api.good("GET", "/v1/jobs?limit=100", None, ADMIN)["jobs"]]
    browser = Browser(api, ADMIN, acts=True)
    request = quote(hostile(1_000))
    query = "&".join(f"{key}={request}" for key in PAGE_QUERIES)
    pages = [*every_page(api, "oak", jobs[0]), *(f"/jobs/{job}" for job in jobs), *every_page(api, request, request)]
    shown = 0
    for path in [
        *pages,
        *(f"{path}{'&' if '?' in path else '?'}{query}" for path in every_page(api, "oak", jobs[0])),
    ]:
        answer = browser.client.get(path)
        text = answer.get_data(as_text=True)
        assert answer.status_code < 500, (path, text)
        if answer.mimetype == "text/html":
            read(text)
            shown += "&lt;i id=mark" in text
            assert [mark for mark in MARKS if mark in text] == [], path
        elif text.startswith(("{", "[")):
            json.loads(text)
    assert shown
